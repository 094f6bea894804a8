//! Shared code of the tests: files in memory, and tables made from entries.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Comparator, Result, SequenceNumber, ValueType, key};
use io::testing::Memory;
use table::{
    Builder, BuilderOptions, Finished, InternalIterator, ReadOptions, Reader, ReaderOptions,
};

/// A copy of a file.
pub(crate) fn load(path: &Path) -> Arc<Memory> {
    Memory::new(path, std::fs::read(path).unwrap())
}

/// Internal keys and values.
pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn ikey(user: &[u8], sequence: u64) -> Vec<u8> {
    key::encode(user, SequenceNumber(sequence), ValueType::Value)
}

pub(crate) fn seek_key(user: &[u8], sequence: u64) -> Vec<u8> {
    key::encode(user, SequenceNumber(sequence), ValueType::FOR_SEEK)
}

/// Writes a table.
pub(crate) fn build(entries: &Entries, options: BuilderOptions) -> (Vec<u8>, Finished) {
    let file = Memory::new("000007.sst", Vec::new());
    let mut b = Builder::new(file.clone(), options).unwrap();
    for (k, v) in entries {
        b.add(k, v).unwrap();
    }
    let done = b.finish().unwrap();
    let bytes = file.content();
    assert_eq!(bytes.len() as u64, done.file_size);
    (bytes, done)
}

pub(crate) fn open(bytes: Vec<u8>, options: ReaderOptions) -> Result<Arc<Reader>> {
    let n = bytes.len() as u64;
    Reader::open(Memory::new("000007.sst", bytes), n, options).map(Arc::new)
}

/// Everything, forwards.
pub(crate) fn scan(reader: &Arc<Reader>) -> Result<Entries> {
    let mut it = reader.iter(ReadOptions::default());
    let mut out = Vec::new();
    it.seek_to_first();
    while it.valid() {
        out.push((it.key().to_vec(), it.value().to_vec()));
        it.next();
    }
    it.status().map(|()| out)
}

/// Everything, backwards, in forward order.
pub(crate) fn scan_back(reader: &Arc<Reader>) -> Result<Entries> {
    let mut it = reader.iter(ReadOptions::default());
    let mut out = Vec::new();
    it.seek_to_last();
    while it.valid() {
        out.push((it.key().to_vec(), it.value().to_vec()));
        it.prev();
    }
    out.reverse();
    it.status().map(|()| out)
}

/// The versions of a user key that are visible at a sequence.
pub(crate) fn get_all(reader: &Reader, user: &[u8], sequence: u64) -> Result<Entries> {
    let mut out = Vec::new();
    reader.get(
        &ReadOptions::default(),
        &seek_key(user, sequence),
        &mut |k, v| {
            out.push((k.to_vec(), v.bytes().to_vec()));
            true
        },
    )?;
    Ok(out)
}

/// A thread for each job.
#[derive(Debug)]
pub(crate) struct Threads;

impl Threads {
    pub(crate) fn shared() -> Arc<dyn table::Compressors> {
        Arc::new(Self)
    }
}

impl table::Compressors for Threads {
    #[expect(clippy::disallowed_methods, reason = "a test may start threads")]
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        std::thread::spawn(job);
    }
}

/// Keys as the family sorts them.
pub(crate) fn sorted(mut entries: Entries, cmp: &Comparator) -> Entries {
    entries.sort_by(|a, b| key::compare(cmp, &a.0, &b.0));
    entries.dedup_by(|a, b| a.0 == b.0);
    entries
}

/// The folder `shared` beside the repository, if it exists.
pub(crate) fn shared(what: &str) -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")).join(what);
    path.exists().then_some(path)
}
