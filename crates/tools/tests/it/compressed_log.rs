//! Compressed logs as Ironstone writes them, opened by real RocksDB.

use std::fs;
use std::path::Path;

use tools::librocksdb::{RocksDb, RocksOptions};

use crate::librocksdb::{library, with_each_library};

#[test]
fn rocksdb_opens_compressed_logs() {
    with_each_library("compressed_log::with_library::");
}

/// A new database whose only log is `log`, opened and read: the keys.
fn keys(options: &mut RocksOptions, log: &[u8]) -> base::Result<Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    options.create_if_missing(true);
    drop(RocksDb::open(options, &path).unwrap());
    let first = path.join("000004.log");
    assert!(first.is_file(), "the first log of a new database");
    fs::write(&first, log).unwrap();
    let db = RocksDb::open(options, &path)?;
    let mut found = Vec::new();
    for key in [
        "small", "text", "noise", "fenced", "filled", "both", "last", "plain",
    ] {
        if db.get(key.as_bytes())?.is_some() {
            found.push(key.to_owned());
        }
    }
    Ok(found)
}

fn golden(name: &str) -> Vec<u8> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../log/tests/data");
    fs::read(Path::new(dir).join(name)).unwrap()
}

/// A record of a batch that is not compressed.
fn plain() -> Vec<u8> {
    let mut batch = 8u64.to_le_bytes().to_vec();
    batch.extend(b"\x01\0\0\0\x01\x05plain\x01v");
    let covered = [&[1][..], &batch].concat();
    let crc = base::checksum::mask(base::checksum::crc32c(&covered));
    let length = (batch.len() as u16).to_le_bytes();
    [&crc.to_le_bytes()[..], &length, &covered].concat()
}

/// Run by the test above, one process for each library.
mod with_library {
    use super::*;

    #[test]
    fn every_record_is_recovered() {
        let Some(lib) = library() else { return };
        for name in ["compressed.log", "compressed-recyclable.log"] {
            for mode in [0, 1, 2] {
                let mut options = lib.options();
                options.wal_recovery_mode(mode);
                let all = keys(&mut options, &golden(name)).unwrap();
                let expected = ["small", "text", "noise", "fenced", "filled", "both", "last"];
                assert_eq!(all, expected, "{name} in mode {mode}");
            }
        }
    }

    /// Why a fence cannot be a record of its own without compression: RocksDB drops it and what
    /// follows, and says nothing, in AbsoluteConsistency too.
    #[test]
    fn a_record_without_compression_ends_a_compressed_log() {
        let Some(lib) = library() else { return };
        let log = [golden("compressed.log"), plain()].concat();
        for mode in [0, 1, 2] {
            let mut options = lib.options();
            options.wal_recovery_mode(mode);
            let found = keys(&mut options, &log).unwrap();
            assert_eq!(found.len(), 7, "mode {mode}: {found:?}");
        }
    }
}
