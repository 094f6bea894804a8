//! The interface that benchmarks use of an engine. The driver is compiled once for each engine, so
//! that no dynamic call is part of the measurement.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use base::{Error, Result};

use crate::flags::Flags;

/// An open database.
pub(crate) trait Engine: Sized + Send + Sync + 'static {
    /// Options of a write.
    type Write: Sync;
    /// A write batch.
    type Batch;
    /// A position among the keys.
    type Cursor<'a>: Cursor
    where
        Self: 'a;

    /// The content at one moment.
    type Snapshot<'a>
    where
        Self: 'a;
    /// The state that the databases of a run share, at the same time or one after the other:
    /// caches, counters, limits.
    type Settings: Send + Sync;

    /// A table outside of a database that is being written.
    type Table;
    /// The costs of a thread's operations while they are measured.
    type Perf;

    /// The settings of the flags. Errors: the engine does not support one.
    fn settings(flags: &Flags) -> Result<Self::Settings>;
    /// Opens the database in `dir`, as `--readonly` and `--use_secondary_db` say. Creates it if it
    /// is missing.
    fn open(flags: &Flags, settings: &Self::Settings, dir: &Path) -> Result<Self>;
    /// Opens the existing database in `dir` without changing it.
    fn open_read_only(flags: &Flags, settings: &Self::Settings, dir: &Path) -> Result<Self>;
    /// In a secondary instance: catches up with the primary.
    fn catch_up(&self) -> Result<()>;
    /// Closes the database. Errors: also those of the last background work.
    fn close(self) -> Result<()>;

    fn write_options(&self, sync: bool, disable_wal: bool) -> Self::Write;
    fn put(&self, options: &Self::Write, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&self, options: &Self::Write, key: &[u8]) -> Result<()>;
    fn single_delete(&self, options: &Self::Write, key: &[u8]) -> Result<()>;
    /// Deletes the keys from `begin` up to, not including, `end`.
    fn delete_range(&self, options: &Self::Write, begin: &[u8], end: &[u8]) -> Result<()>;
    fn merge(&self, options: &Self::Write, key: &[u8], operand: &[u8]) -> Result<()>;
    fn batch(&self) -> Self::Batch;
    fn batch_put(&self, batch: &mut Self::Batch, key: &[u8], value: &[u8]) -> Result<()>;
    fn batch_delete(&self, batch: &mut Self::Batch, key: &[u8]) -> Result<()>;
    /// Applies a batch and empties it.
    fn write(&self, options: &Self::Write, batch: &mut Self::Batch) -> Result<()>;

    /// Puts into the family with this number; 0 is the default family. `--num_column_families` says
    /// how many there are.
    fn batch_put_in(
        &self,
        batch: &mut Self::Batch,
        family: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<()>;
    fn batch_delete_in(&self, batch: &mut Self::Batch, family: usize, key: &[u8]) -> Result<()>;

    fn delete_range_in(
        &self,
        options: &Self::Write,
        family: usize,
        begin: &[u8],
        end: &[u8],
    ) -> Result<()>;
    fn merge_in(
        &self,
        options: &Self::Write,
        family: usize,
        key: &[u8],
        operand: &[u8],
    ) -> Result<()>;

    /// The length of a key's value; `scratch` is a buffer that the engine may use.
    fn get(&self, key: &[u8], scratch: &mut Vec<u8>) -> Result<Option<usize>>;
    /// The same, in the family with this number.
    fn get_in(&self, family: usize, key: &[u8], scratch: &mut Vec<u8>) -> Result<Option<usize>>;
    /// Copies a key's value to `value`; false if there is none.
    fn get_value(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// The values of several keys at one moment.
    fn get_at_once(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>>;
    /// The merge operands of a key as they were written, oldest first; none if there is no value.
    fn merge_operands(&self, key: &[u8]) -> Result<Vec<Vec<u8>>>;
    /// The size in bytes of a key's columns, including the names.
    fn entity(&self, key: &[u8]) -> Result<Option<usize>>;
    /// The number of existing keys among these, and the size in bytes of their columns, all at one
    /// moment.
    fn multi_entity(&self, keys: &[&[u8]]) -> Result<(u64, u64)>;
    /// Estimates of the number and the bytes of memtable entries between these keys.
    fn memtable_stats(&self, begin: &[u8], end: &[u8]) -> Result<(u64, u64)>;
    /// The number of existing keys among these, and the bytes of their values, by `MultiGet`.
    fn multi_get(&self, keys: &[&[u8]]) -> Result<(u64, u64)>;
    fn cursor(&self, bounds: Bounds<'_>) -> Result<Self::Cursor<'_>>;
    /// Reads the entries of ranges of keys, of each from its end on if `reverse`. Returns how many there were.
    fn multi_scan(&self, ranges: &[(Vec<u8>, Vec<u8>)], reverse: bool) -> Result<u64>;
    fn snapshot(&self) -> Self::Snapshot<'_>;
    /// A cursor over the content of the snapshot.
    fn cursor_at<'s>(
        &'s self,
        snapshot: &'s Self::Snapshot<'_>,
        bounds: Bounds<'_>,
    ) -> Result<Self::Cursor<'s>>;
    /// An estimate of the bytes that keys from `begin` to `end` take in files.
    fn approximate_size(&self, begin: &[u8], end: &[u8]) -> Result<u64>;

    fn flush(&self) -> Result<()>;
    /// Makes everything logged durable.
    fn sync_wal(&self) -> Result<()>;
    /// Compacts everything. With `rewrites`, files that were on the lowest level before, or were only moved there, are
    /// written again (`kForceOptimized`): RocksDB's db_bench does so in `compact`, and not in `compactall`.
    fn compact(&self, rewrites: bool) -> Result<()>;
    /// The names and levels of the tables.
    fn tables(&self) -> Result<Vec<(i32, CString)>>;
    /// Begins a table at `path`; keys must be added in order.
    fn table(&self, path: &Path) -> Result<Self::Table>;
    fn table_put(&self, table: &mut Self::Table, key: &[u8], value: &[u8]) -> Result<()>;
    fn table_finish(&self, table: Self::Table) -> Result<()>;
    /// Ingests finished tables by moving them into the database.
    fn ingest(&self, files: &[PathBuf]) -> Result<()>;
    /// Compacts tables into a level.
    fn compact_files(&self, names: &[CString], output_level: i32) -> Result<()>;
    /// The tables of the default family: level by level; those of level 0 newest first, others in key
    /// order.
    fn table_files(&self) -> Result<Vec<TableFile>>;
    /// Compacts tables into a level, into files of this many bytes.
    fn compact_into(&self, tables: &[TableFile], level: i32, file_bytes: u64) -> Result<()>;
    /// Changes options of the default family.
    fn set_options(&self, options: &[(&str, &str)]) -> Result<()>;
    fn verify_checksum(&self) -> Result<()>;
    fn verify_file_checksums(&self) -> Result<()>;
    /// Backs the database up into a directory.
    fn backup(&self, dir: &Path) -> Result<()>;
    /// Restores the newest backup in `from` to `to`.
    fn restore(&self, from: &Path, to: &Path) -> Result<()>;
    /// Begins to measure the costs of this thread's operations at one of RocksDB's perf levels; level
    /// 1 measures nothing.
    fn perf_start(&self, level: i32) -> Result<Self::Perf>;
    /// The costs since then.
    fn perf_report(&self, perf: &Self::Perf) -> Result<String>;
    fn property(&self, name: &str) -> Option<String>;
    /// A property of the family with this number.
    fn property_of(&self, family: usize, name: &str) -> Option<String>;
    /// The file operations since the last report, if they are counted.
    fn file_operations(&self) -> Option<String> {
        None
    }
    /// The counters, if they are enabled.
    fn statistics(&self) -> Option<String>;

    /// Waits until no flush or compaction is running or due.
    fn wait_for_compaction(&self) -> Result<()>;
}

/// A table of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableFile {
    pub(crate) level: i32,
    /// The name with a leading slash: `/000009.sst`.
    pub(crate) name: CString,
    pub(crate) bytes: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    /// The smallest and the largest sequence number in it.
    pub(crate) sequences: (u64, u64),
}

/// The error of an engine whose API does not have this call.
pub(crate) fn no_call(engine: &str, call: &str) -> Error {
    Error::not_supported(format!("{engine} has no {call}"))
}

/// The bounds of a cursor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds<'a> {
    /// The smallest key that it shows.
    pub(crate) lower: Option<&'a [u8]>,
    /// The upper bound, which it does not show.
    pub(crate) upper: Option<&'a [u8]>,
}

/// RocksDB's name of the comparator of `--use_uint64_comparator`.
pub(crate) const UINT64_ORDER: &std::ffi::CStr = c"rocksdb.Uint64Comparator";

/// The comparator: it compares the first 8 bytes as a native integer. The keys of db_bench are then
/// not longer; longer keys are ordered by the remaining bytes.
pub(crate) fn compare_uint64(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        let len = key.len().min(bytes.len());
        bytes[..len].copy_from_slice(&key[..len]);
        u64::from_ne_bytes(bytes)
    };
    number(a).cmp(&number(b)).then_with(|| a.cmp(b))
}

/// Waits as [`Engine::wait_for_compaction`] by asking for properties.
pub(crate) fn poll_for_compaction(engine: &impl Engine) -> Result<()> {
    const COUNTS: [&str; 4] = [
        "rocksdb.mem-table-flush-pending",
        "rocksdb.num-running-flushes",
        "rocksdb.compaction-pending",
        "rocksdb.num-running-compactions",
    ];
    loop {
        let counts: Vec<String> = COUNTS.iter().filter_map(|p| engine.property(p)).collect();
        if counts.is_empty() {
            return Err(Error::not_supported(format!("the property {}", COUNTS[3])));
        }
        if counts.iter().all(|count| count == "0") {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// A position among the keys.
pub(crate) trait Cursor {
    fn seek_to_first(&mut self);
    fn seek_to_last(&mut self);
    fn seek(&mut self, key: &[u8]);
    fn seek_for_prev(&mut self, key: &[u8]);
    fn next(&mut self);
    fn prev(&mut self);
    fn valid(&self) -> bool;
    fn key(&self) -> &[u8];
    fn value(&self) -> &[u8];
    fn status(&self) -> Result<()>;
}

/// Implements [`Cursor`] for an iterator; the iterators of both engines have the same methods.
macro_rules! cursor {
    ($iterator:ty) => {
        impl crate::engine::Cursor for $iterator {
            fn seek_to_first(&mut self) {
                <$iterator>::seek_to_first(self);
            }
            fn seek_to_last(&mut self) {
                <$iterator>::seek_to_last(self);
            }
            #[inline]
            fn seek(&mut self, key: &[u8]) {
                <$iterator>::seek(self, key);
            }
            fn seek_for_prev(&mut self, key: &[u8]) {
                <$iterator>::seek_for_prev(self, key);
            }
            #[inline]
            fn next(&mut self) {
                <$iterator>::next(self);
            }
            #[inline]
            fn prev(&mut self) {
                <$iterator>::prev(self);
            }
            #[inline]
            fn valid(&self) -> bool {
                <$iterator>::valid(self)
            }
            #[inline]
            fn key(&self) -> &[u8] {
                <$iterator>::key(self)
            }
            #[inline]
            fn value(&self) -> &[u8] {
                <$iterator>::value(self)
            }
            fn status(&self) -> base::Result<()> {
                <$iterator>::status(self)
            }
        }
    };
}
pub(crate) use cursor;

/// The names of the families that `--num_column_families` asks for, the same as in RocksDB's
/// db_bench.
pub(crate) fn families(flags: &Flags) -> Vec<String> {
    let others = 1..flags.num_column_families;
    std::iter::once("default".to_owned())
        .chain(others.map(|i| format!("column_family_name_{i:06}")))
        .collect()
}

/// The error for a family that is not among [`families`].
pub(crate) fn no_family(number: usize) -> Error {
    Error::invalid_argument(format!("there is no column family number {number}"))
}
