//! Every table in a corpus of databases that RocksDB 7.8 to 11.8 wrote.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::comparator::UserComparator;
use base::{Comparator, ErrorKind, key};
use table::{Reader, ReaderOptions};

use crate::util::{Entries, get_all, load, scan, scan_back, shared};

/// Bytewise, with an 8-byte timestamp at the end of the key, newest first.
struct Timestamped;

impl UserComparator for Timestamped {
    fn name(&self) -> &'static str {
        "leveldb.BytewiseComparator.u64ts"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match (a.split_last_chunk::<8>(), b.split_last_chunk::<8>()) {
            (Some((a, ta)), Some((b, tb))) => a
                .cmp(b)
                .then_with(|| u64::from_le_bytes(*tb).cmp(&u64::from_le_bytes(*ta))),
            _ => a.cmp(b),
        }
    }
}

fn tables(corpus: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for db in std::fs::read_dir(corpus).unwrap() {
        let Ok(files) = std::fs::read_dir(db.unwrap().path().join("db")) else {
            continue;
        };
        out.extend(
            files
                .map(|f| f.unwrap().path())
                .filter(|p| p.extension().is_some_and(|e| e == "sst")),
        );
    }
    out.sort();
    out
}

fn open(path: &Path) -> base::Result<Reader> {
    let mut last = None;
    for comparator in [
        Comparator::bytewise(),
        Comparator::reverse_bytewise(),
        Comparator::user(Arc::new(Timestamped)),
    ] {
        let file = load(path);
        let n = file.content().len() as u64;
        let options = ReaderOptions {
            comparator,
            largest_seqno: u64::MAX,
            ..ReaderOptions::default()
        };
        match Reader::open(file, n, options) {
            Err(e) if e.kind() == ErrorKind::InvalidArgument => last = Some(e),
            other => return other,
        }
    }
    Err(last.unwrap())
}

fn check(reader: &Arc<Reader>) -> Entries {
    reader.verify_checksums().unwrap();
    let all = scan(reader).unwrap();
    assert_eq!(scan_back(reader).unwrap(), all);
    let deletions = reader.range_tombstones().unwrap();
    let p = reader.properties();
    assert_eq!(deletions.len() as u64, p.num_range_deletions);
    assert_eq!((all.len() + deletions.len()) as u64, p.num_entries);
    for (k, v) in &all {
        let (user, packed) = key::split(k).unwrap();
        let found = get_all(reader, user, packed >> 8).unwrap();
        assert_eq!(found.first(), Some(&(k.clone(), v.clone())));
    }
    all
}

#[test]
fn every_table_of_the_corpus_reads_the_same_in_all_ways() {
    let Some(corpus) = shared("corpus") else {
        eprintln!("skipped: no folder shared/corpus beside the repository");
        return;
    };
    let (mut read, mut entries, mut refused) = (0, 0, Vec::new());
    for path in tables(&corpus) {
        let name = path.strip_prefix(&corpus).unwrap().display().to_string();
        match open(&path) {
            Ok(reader) => {
                read += 1;
                entries += check(&Arc::new(reader)).len();
            }
            Err(e) if e.kind() == ErrorKind::NotSupported => refused.push((name, e.to_string())),
            Err(e) => panic!("{name}: {e}"),
        }
    }
    eprintln!(
        "{read} tables with {entries} entries read, {} refused:",
        refused.len()
    );
    for (name, why) in &refused {
        eprintln!("  {name}: {why}");
        assert!(name.contains("udt_nopersist"), "{name}: {why}");
    }
    assert!(read > 250, "{read}");
}
