//! What a benchmark asks of an engine. The driver is compiled once for each engine, so that no
//! call through a table stands between it and what is measured.

use std::path::Path;

use base::{Error, Result};

use crate::flags::{FLAGS, Flags, Place};

/// An open database.
pub(crate) trait Engine: Sized + Sync {
    /// Options of a write.
    type Write: Sync;
    /// Several writes that are applied as one.
    type Batch;
    /// A position among the keys.
    type Cursor<'a>: Cursor
    where
        Self: 'a;

    /// Opens the database in `dir`, creating it if it is not there.
    fn open(flags: &Flags, dir: &Path) -> Result<Self>;
    /// Closes it; errors of the last background work show here.
    fn close(self) -> Result<()>;

    fn write_options(&self, sync: bool, disable_wal: bool) -> Self::Write;
    fn put(&self, options: &Self::Write, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&self, options: &Self::Write, key: &[u8]) -> Result<()>;
    fn batch(&self) -> Self::Batch;
    fn batch_put(&self, batch: &mut Self::Batch, key: &[u8], value: &[u8]) -> Result<()>;
    fn batch_delete(&self, batch: &mut Self::Batch, key: &[u8]) -> Result<()>;
    /// Applies a batch and empties it.
    fn write(&self, options: &Self::Write, batch: &mut Self::Batch) -> Result<()>;

    /// Puts into the family of this number; 0 is the default one. Families exist as
    /// `--num_column_families` says.
    fn batch_put_in(
        &self,
        batch: &mut Self::Batch,
        family: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<()>;
    fn batch_delete_in(&self, batch: &mut Self::Batch, family: usize, key: &[u8]) -> Result<()>;

    /// The length of a key's value; `scratch` is room that the engine may use.
    fn get(&self, key: &[u8], scratch: &mut Vec<u8>) -> Result<Option<usize>>;
    fn cursor(&self) -> Result<Self::Cursor<'_>>;

    fn flush(&self) -> Result<()>;
    /// Makes everything logged durable.
    fn sync_wal(&self) -> Result<()>;
    fn compact(&self) -> Result<()>;
    fn property(&self, name: &str) -> Option<String>;
    /// A property of the family of this number.
    fn property_of(&self, family: usize, name: &str) -> Option<String>;
    /// Counters, where they were asked for.
    fn statistics(&self) -> Option<String>;

    /// Waits until no flush or compaction is running or due.
    fn wait_for_compaction(&self) -> Result<()>;
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
    fn next(&mut self);
    fn prev(&mut self);
    fn valid(&self) -> bool;
    fn key(&self) -> &[u8];
    fn value(&self) -> &[u8];
    fn status(&self) -> Result<()>;
}

/// The names of the families that `--num_column_families` asks for: RocksDB's db_bench's.
pub(crate) fn families(flags: &Flags) -> Vec<String> {
    let others = 1..flags.num_column_families;
    std::iter::once("default".to_owned())
        .chain(others.map(|i| format!("column_family_name_{i:06}")))
        .collect()
}

/// The error for a family that [`families`] did not ask for.
pub(crate) fn no_family(number: usize) -> Error {
    Error::invalid_argument(format!("there is no column family number {number}"))
}

/// An option that a flag sets.
pub(crate) struct EngineOption {
    pub(crate) place: Place,
    pub(crate) name: &'static str,
    /// As OPTIONS files write it.
    pub(crate) value: String,
    /// Whether the value is db_bench's default.
    pub(crate) is_default: bool,
}

/// The options that flags set by name.
pub(crate) fn options(flags: &Flags) -> Vec<EngineOption> {
    let by_flag = FLAGS.iter().filter_map(|flag| {
        let (place, name) = flag.option?;
        let value = (flag.get)(flags);
        (!value.is_empty()).then(|| EngineOption {
            place,
            name,
            is_default: value == (flag.default)(),
            value,
        })
    });
    let compression = compression(flags).map(|value| EngineOption {
        place: Place::Cf,
        name: "compression",
        value: value.to_owned(),
        is_default: false,
    });
    by_flag.chain(compression).collect()
}

/// The name that OPTIONS files use for `--compression_type`; the error lists what there is.
pub(crate) fn compression(flags: &Flags) -> Result<&'static str> {
    Ok(match flags.compression_type.to_ascii_lowercase().as_str() {
        "none" => "kNoCompression",
        "snappy" => "kSnappyCompression",
        "zlib" => "kZlibCompression",
        "bzip2" => "kBZip2Compression",
        "lz4" => "kLZ4Compression",
        "lz4hc" => "kLZ4HCCompression",
        "zstd" => "kZSTD",
        other => {
            return Err(Error::invalid_argument(format!(
                "compression_type {other}: must be none, snappy, zlib, bzip2, lz4, lz4hc or zstd"
            )));
        }
    })
}
