//! Damaged, missing and foreign files: the result is an error that names the file, or no effect; never a
//! panic, never other data. An open that fails changes nothing.

mod bits;
mod missing;
pub(crate) mod refusals;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use ironstone::{Comparator, Db, Error, Options};
use sim::dirs::{self, State};
use sim::oracle::content::{FamilyContent, everything};
use table::{ChecksumType, CompressionType};

/// A small database with tables and a log in two families, as it is on disk after its close.
struct Small {
    temp: tempfile::TempDir,
    options: Options,
    state: State,
    content: Vec<FamilyContent>,
}

fn creating() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o
}

impl Small {
    fn new(checksum: ChecksumType, compression: CompressionType) -> Self {
        let temp = dirs::scratch().unwrap();
        let mut options = creating();
        options.cf.table.checksum = checksum;
        options.cf.compression = compression;
        options.cf.table.block_size = 256;
        options.cf.table.filter_policy = table::filter::FilterPolicy::Bloom { bits_per_key: 10.0 };
        let dir = temp.path().join("db");
        let db = Db::open(&dir, &options).unwrap();
        let mut reverse = options.cf.clone();
        reverse.comparator = Comparator::reverse_bytewise();
        let cf = db.create_column_family("reverse", &reverse).unwrap();
        for i in 0..60 {
            db.put(format!("key{i:03}"), format!("value {i} aaaaaaaaaaaaaaaa"))
                .unwrap();
            db.cf(&cf).put(format!("r{i:03}"), "x").unwrap();
        }
        db.delete("key007").unwrap();
        db.flush().unwrap();
        for i in 0..8 {
            db.put(format!("log{i:03}"), "unflushed").unwrap();
            db.cf(&cf).put(format!("log{i:03}"), "unflushed").unwrap();
        }
        db.delete("key008").unwrap();
        let content = everything(&db).unwrap();
        db.close().unwrap();
        let state = State::of(&dir).unwrap();
        Self {
            temp,
            options,
            state,
            content,
        }
    }

    fn dir(&self) -> PathBuf {
        self.temp.path().join("db")
    }

    /// The name of the only file that starts and ends so.
    fn file(&self, start: &str, end: &str) -> String {
        let mut found = self
            .state
            .names()
            .filter(|n| n.starts_with(start) && n.ends_with(end));
        let name = found.next().expect("there is one").to_owned();
        assert_eq!(found.next(), None, "one file {start}*{end}");
        name
    }

    /// Puts `state` on disk, opens it, and reads all of it.
    fn read(&self, state: &State, how: How) -> Result<Vec<FamilyContent>, Error> {
        state.restore(&self.dir()).unwrap();
        read(&self.dir(), &self.options, how)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Reader,
    Writer,
}

const BOTH: [How; 2] = [How::Reader, How::Writer];

/// Opens and reads; checks that an open that fails changes nothing.
fn read(dir: &Path, options: &Options, how: How) -> Result<Vec<FamilyContent>, Error> {
    let before = State::of(dir).unwrap();
    let opened = match how {
        How::Reader => Db::open_read_only(dir, options),
        How::Writer => Db::open_all(dir, options),
    };
    match opened {
        Ok(db) => everything(&db),
        Err(e) => {
            let now = State::of(dir).unwrap();
            assert_eq!(before.changes(&now), None, "{how:?}: changed by: {e}");
            Err(e)
        }
    }
}

/// Runs `f`; a panic is reported with what was damaged.
fn guarded<T>(what: &str, f: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(out) => out,
        Err(cause) => {
            eprintln!("while testing {what}");
            std::panic::resume_unwind(cause)
        }
    }
}

/// Whether the error names the file.
fn names(e: &Error, file: &str) -> bool {
    e.to_string().contains(file)
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| e == extension)
}

fn flip(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[bit / 8] ^= 1 << (bit % 8);
    out
}
