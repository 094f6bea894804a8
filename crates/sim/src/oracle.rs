//! Real RocksDB as an oracle: it reads files that Ironstone wrote, and writes files for Ironstone to read.
//!
//! [`rocksdb`] finds a library or says on standard error why the test is skipped, so that a
//! machine without RocksDB still runs everything else.

pub mod content;
pub mod ldb;

use std::path::Path;
use std::sync::Arc;

use base::Result;
use ironstone::{ExportImportFilesMetaData, LiveFileMetaData};

pub use tools::librocksdb::{
    Cf, FilterVerdict, Library, RocksBackupEngine, RocksBackupInfo, RocksCache, RocksDb,
    RocksExport, RocksIngest, RocksIter, RocksLiveFile, RocksOptions, RocksReadOptions,
    RocksSnapshot, RocksSstFileWriter, RocksTableOptions, RocksWriteBatch, RocksWriteOptions,
};

/// The RocksDB to compare with; `None`, with a message, if there is none on this machine.
pub fn rocksdb() -> Option<Arc<Library>> {
    Library::discover()
        .inspect_err(|e| eprintln!("skipped: {e}"))
        .ok()
}

/// The files of an exported family, in the form that RocksDB takes.
pub fn exported_files(export: &ExportImportFilesMetaData) -> Vec<RocksLiveFile> {
    let of = |f: &LiveFileMetaData| RocksLiveFile {
        level: f.level as i32,
        name: f.name.clone(),
        directory: f.directory.display().to_string(),
        size: f.size as usize,
        smallest_key: f.smallestkey.clone(),
        largest_key: f.largestkey.clone(),
        smallest_seqno: f.smallest_seqno,
        largest_seqno: f.largest_seqno,
    };
    export.files.iter().map(of).collect()
}

/// A family's name and its keys with their values, in the family's order.
pub type FamilyContent = (String, Vec<(Vec<u8>, Vec<u8>)>);

/// Everything that RocksDB reads from the database at `path`, opened read-only. `options` returns a
/// family's options by its name, for its comparator and merge operator.
pub fn scan(
    lib: &Arc<Library>,
    path: impl AsRef<Path>,
    options: impl Fn(&str) -> Result<RocksOptions>,
) -> Result<Vec<FamilyContent>> {
    let path = path.as_ref();
    let db_options = lib.options();
    let names = RocksDb::list_column_families(&db_options, path)?;
    let each = names
        .iter()
        .map(|name| options(name))
        .collect::<Result<Vec<_>>>()?;
    let families: Vec<_> = names.iter().map(String::as_str).zip(&each).collect();
    let db = RocksDb::open_read_only_cf(&db_options, path, &families)?;
    names
        .iter()
        .map(|name| Ok((name.clone(), db.iterator_cf(db.cf(name)?).collect_all()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_sees_every_family() {
        let Some(lib) = rocksdb() else { return };
        let dir = tempfile::tempdir().unwrap();
        let mut options = lib.options();
        options.create_if_missing(true);
        let mut db = RocksDb::open(&options, dir.path()).unwrap();
        db.create_cf("other", &lib.options()).unwrap();
        db.put(b"k", b"v").unwrap();
        db.put_cf(db.cf("other").unwrap(), b"K", b"V").unwrap();
        db.close();
        let content = scan(&lib, dir.path(), |_| Ok(lib.options())).unwrap();
        let expected = [
            ("default".to_owned(), vec![(b"k".to_vec(), b"v".to_vec())]),
            ("other".to_owned(), vec![(b"K".to_vec(), b"V".to_vec())]),
        ];
        assert_eq!(content, expected);
    }
}
