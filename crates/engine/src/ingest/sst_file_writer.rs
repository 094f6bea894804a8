//! Writes tables outside of any database, for later ingestion: RocksDB's `SstFileWriter`.
//!
//! All entries have sequence number 0; ingestion assigns the real number. So each key occurs once in a file, and
//! entries must be added in key order. When [`SstFileWriter::finish`] returns, the file and its name are durable. A
//! file that is not finished is removed.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::rng::Rng;
use base::{Error, Result, SequenceNumber, ValueType, key};

use crate::db::ColumnFamily;
use files::copies::parent;
use options::Options;

/// The database id that RocksDB's own `SstFileWriter` writes into its files.
const DB_ID: &str = "SST Writer";

/// Describes a finished file. RocksDB's `ExternalSstFileInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalSstFileInfo {
    /// The path of the file.
    pub file_path: PathBuf,
    /// The first key; empty if the file has range deletions only.
    pub smallest_key: Vec<u8>,
    /// The last key; empty if the file has range deletions only.
    pub largest_key: Vec<u8>,
    /// The smallest start key of the range deletions; empty if there are none.
    pub smallest_range_del_key: Vec<u8>,
    /// The largest end key of the range deletions, exclusive; empty if there are none.
    pub largest_range_del_key: Vec<u8>,
    /// The sequence number of all entries: 0.
    pub sequence_number: u64,
    /// The size of the file in bytes.
    pub file_size: u64,
    /// The number of entries, without range deletions.
    pub num_entries: u64,
    /// The number of range deletions.
    pub num_range_del_entries: u64,
    /// The version of the format: 2.
    pub version: u32,
}

/// Writes a table for [`Db::ingest_external_file`](crate::Db::ingest_external_file) of Ironstone, or for RocksDB.
///
/// ```
/// use ironstone::{Db, IngestExternalFileOptions, Options, SstFileWriter};
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = Options::default();
/// # options.db.create_if_missing = true;
/// let path = dir.path().join("bulk.sst");
/// let mut writer = SstFileWriter::new(&options);
/// writer.open(&path)?;
/// writer.put("a", "1")?;
/// writer.put("b", "2")?;
/// assert_eq!(writer.finish()?.num_entries, 2);
///
/// let db = Db::open(dir.path().join("db"), &options)?;
/// db.ingest_external_file(&[&path], &IngestExternalFileOptions::default())?;
/// assert_eq!(db.get("b")?.as_deref(), Some(&b"2"[..]));
/// # Ok::<(), ironstone::Error>(())
/// ```
#[derive(Debug)]
pub struct SstFileWriter {
    options: Options,
    /// The id and name of the column family that the tables are for; `None` means any.
    pub(crate) family: Option<(u32, String)>,
    session_id: String,
    files: u64,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: Arc<dyn io::File>,
    builder: table::Builder,
    info: ExternalSstFileInfo,
    /// Reused buffer for the internal key.
    key: Vec<u8>,
}

impl SstFileWriter {
    /// A writer of tables for a column family with `options.cf`.
    pub fn new(options: &Options) -> Self {
        let clock = base::clock::guarded(&options.env.clock);
        let seed = clock.wall_micros().rotate_left(24)
            ^ u64::from(std::process::id())
            ^ clock.monotonic_nanos();
        Self {
            session_id: table::unique_id::new_session_id(&mut Rng::new(seed)),
            options: options.clone(),
            family: None,
            files: 0,
            open: None,
        }
    }

    /// Begins a file. A file that was begun before and is not finished is removed. Errors: the file exists; the options
    /// are invalid; those of the file system.
    pub fn open(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.abandon();
        let path = path.as_ref();
        self.options.cf.validate()?;
        self.options = self.options.sanitized().0;
        let file = self.options.env.fs.open(path, io::OpenHow::CREATE_NEW)?;
        self.files += 1;
        let cf = &self.options.cf;
        // As in RocksDB: that of the lowest level, whichever it will be.
        let lowest = cf.cf.compression_per_level.0.len();
        let (compression, compression_opts) = cf.cf.compression_of(lowest, 1, true);
        let now = self.options.env.clock.wall_micros() / 1_000_000;
        let unknown = || (table::props::UNKNOWN_COLUMN_FAMILY as u32, String::new());
        let (column_family_id, column_family_name) = self.family.clone().unwrap_or_else(unknown);
        let builder = table::Builder::new(
            Arc::clone(&file),
            table::BuilderOptions {
                column_family_id,
                column_family_name,
                table: cf.table.clone(),
                comparator: cf.comparator.clone(),
                compression,
                compression_opts,
                prefix_extractor: cf.prefix_extractor.clone(),
                db_id: DB_ID.to_owned(),
                db_session_id: self.session_id.clone(),
                file_number: self.files,
                creation_time: now,
                file_creation_time: now,
                merge_operator_name: cf.merge_operator.as_ref().map(|m| m.name().to_owned()),
                statistics: self.options.env.statistics.clone(),
                ..table::BuilderOptions::default()
            },
        );
        let builder = match builder {
            Ok(builder) => builder.external(),
            Err(e) => {
                drop(file);
                drop(self.options.env.fs.remove(path));
                return Err(e.or_file(path));
            }
        };
        self.open = Some(Open {
            file,
            builder,
            info: ExternalSstFileInfo {
                file_path: path.to_path_buf(),
                version: 2,
                ..ExternalSstFileInfo::default()
            },
            key: Vec::new(),
        });
        Ok(())
    }

    /// Sets `key`. Errors: the key does not come after the previous one; no file is open.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), value.as_ref(), ValueType::Value)
    }

    /// Adds a merge operand for `key`. Errors: as [`SstFileWriter::put`].
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), operand.as_ref(), ValueType::Merge)
    }

    /// Deletes `key` in the database that ingests the file. Errors: as [`SstFileWriter::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), &[], ValueType::Deletion)
    }

    /// Deletes the keys from `begin` up to, but not including, `end` in the database that ingests the file. Keys
    /// that the file itself sets are not affected. Ranges may be added in any order, and between keys. Does nothing
    /// if `begin` equals `end`. Errors: `end` comes before `begin`; no file is open.
    pub fn delete_range(&mut self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        let (begin, end) = (begin.as_ref(), end.as_ref());
        let comparator = self.options.cf.comparator.clone();
        let open = self.current()?;
        match comparator.compare(begin, end) {
            Ordering::Less => {}
            Ordering::Equal => return Ok(()),
            Ordering::Greater => {
                return Err(Error::invalid_argument("end key comes before start key")
                    .file(&open.info.file_path));
            }
        }
        let seq = SequenceNumber(0);
        open.key.clear();
        key::append(&mut open.key, begin, seq, ValueType::RangeDeletion);
        open.builder.add_range_tombstone(&open.key, end)?;
        let info = &mut open.info;
        let first = info.num_range_del_entries == 0;
        if first
            || comparator
                .compare(begin, &info.smallest_range_del_key)
                .is_lt()
        {
            info.smallest_range_del_key = begin.to_vec();
        }
        if first || comparator.compare(end, &info.largest_range_del_key).is_gt() {
            info.largest_range_del_key = end.to_vec();
        }
        info.num_range_del_entries += 1;
        Ok(())
    }

    /// The approximate number of bytes written so far; 0 if no file is open.
    pub fn file_size(&self) -> u64 {
        let open = self.open.as_ref();
        open.map_or(0, |o| o.builder.file_size_estimate())
    }

    /// Completes the file and makes it durable. After an error the file is removed. Errors: no file is open;
    /// no entry was added; those of the file system.
    pub fn finish(&mut self) -> Result<ExternalSstFileInfo> {
        let open = self.current()?;
        if open.info.num_entries + open.info.num_range_del_entries == 0 {
            let path = open.info.file_path.clone();
            self.abandon();
            return Err(
                Error::invalid_argument("Cannot create sst file with no entries").file(path),
            );
        }
        let Some(open) = self.open.take() else {
            return Err(not_open());
        };
        let path = open.info.file_path.clone();
        let file = open.file;
        let mut info = open.info;
        let fs = &*self.options.env.fs;
        let finished = open.builder.finish().and_then(|finished| {
            file.sync(io::SyncKind::Data)?;
            fs.sync_dir(parent(&path))?;
            Ok(finished)
        });
        drop(file);
        info.file_size = finished.inspect_err(|_| drop(fs.remove(&path)))?.file_size;
        Ok(info)
    }

    fn add(&mut self, user_key: &[u8], value: &[u8], kind: ValueType) -> Result<()> {
        let comparator = self.options.cf.comparator.clone();
        let open = self.current()?;
        let info = &mut open.info;
        if info.num_entries > 0 && comparator.compare(&info.largest_key, user_key).is_ge() {
            return Err(Error::invalid_argument(format!(
                "Keys must be added in strict ascending order: \"{}\" comes after \"{}\"",
                user_key.escape_ascii(),
                info.largest_key.escape_ascii()
            ))
            .file(&info.file_path));
        }
        open.key.clear();
        key::append(&mut open.key, user_key, SequenceNumber(0), kind);
        open.builder.add(&open.key, value)?;
        if info.num_entries == 0 {
            info.smallest_key = user_key.to_vec();
        }
        info.largest_key.clear();
        info.largest_key.extend_from_slice(user_key);
        info.num_entries += 1;
        Ok(())
    }

    fn current(&mut self) -> Result<&mut Open> {
        self.open.as_mut().ok_or_else(not_open)
    }

    /// Removes the unfinished file, if there is one.
    fn abandon(&mut self) {
        if let Some(open) = self.open.take() {
            let path = open.info.file_path;
            drop(open.file);
            drop(self.options.env.fs.remove(&path));
        }
    }
}

impl SstFileWriter {
    /// Tables are for this column family only: an ingestion into another family is refused. RocksDB's argument
    /// `column_family`.
    #[must_use]
    pub fn with_column_family(mut self, family: &ColumnFamily) -> Self {
        self.family = Some((family.id(), family.name().to_owned()));
        self
    }
}

impl Drop for SstFileWriter {
    fn drop(&mut self) {
        self.abandon();
    }
}

fn not_open() -> Error {
    Error::invalid_argument("File is not opened").hint("call SstFileWriter::open first")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(dir: &Path) -> (SstFileWriter, PathBuf) {
        let path = dir.join("x.sst");
        let mut w = SstFileWriter::new(&Options::default());
        w.open(&path).unwrap();
        (w, path)
    }

    #[test]
    fn a_finished_file_tells_what_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let (mut w, path) = writer(dir.path());
        w.put("b", "1").unwrap();
        w.delete("c").unwrap();
        w.merge("d", "2").unwrap();
        w.delete_range("x", "z").unwrap();
        w.delete_range("a", "b").unwrap();
        w.delete_range("a", "a").unwrap();
        let info = w.finish().unwrap();
        assert_eq!(
            (info.num_entries, info.num_range_del_entries, info.version),
            (3, 2, 2)
        );
        assert_eq!(
            (&info.smallest_key[..], &info.largest_key[..]),
            (&b"b"[..], &b"d"[..])
        );
        assert_eq!(info.smallest_range_del_key, b"a");
        assert_eq!(info.largest_range_del_key, b"z");
        let len = std::fs::metadata(&path).unwrap().len();
        assert_eq!(info.file_size, len);
        assert!(w.finish().is_err(), "it is finished");
        w.open(dir.path().join("y.sst")).unwrap();
        assert!(w.open(&path).is_err(), "it exists");
        assert!(!dir.path().join("y.sst").exists(), "it was not finished");
        assert!(path.exists());
    }

    #[test]
    fn bad_calls_are_refused_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut idle = SstFileWriter::new(&Options::default());
        let e = idle.put("a", "1").unwrap_err();
        assert!(e.to_string().contains("not opened"), "{e}");
        assert_eq!(idle.file_size(), 0);
        let (mut w, path) = writer(dir.path());
        let e = w.finish().unwrap_err();
        assert!(e.to_string().contains("no entries"), "{e}");
        assert!(!path.exists());
        let (mut w, _) = writer(dir.path());
        w.put("b", "1").unwrap();
        for key in ["b", "a"] {
            let e = w.put(key, "2").unwrap_err();
            assert!(e.to_string().contains("strict ascending order"), "{e}");
        }
        assert!(w.delete_range("b", "a").is_err());
        drop(w);
        assert!(!path.exists(), "it was not finished");
    }
}
