//! Options: plain settings, declared once in tables, and the components that go with them.
//!
//! ```text
//!   Options ── db: DbOptions            [DBOptions]
//!           ├─ cf: ColumnFamilyOptions ── cf: CfOptions       [CFOptions "name"]
//!           │                          ├─ table: TableOptions [TableOptions/BlockBasedTable "name"]
//!           │                          └─ comparator, merge operator, compaction filter
//!           │                                                  (components with stored names)
//!           └─ env: Env                 file system, clock, block cache, statistics
//! ```
//!
//! `sanitize` replaces values that RocksDB takes and does not run with. [`codec`] writes and reads
//! the OPTIONS file, `kept` has what of it has no effect here; [`rocksdb`] lists every key that RocksDB 7.8.3
//! has, so that a setting which Ironstone does not implement is refused by name.

mod cf;
pub mod codec;
mod compaction;
mod db;
pub(crate) mod dump;
mod kept;
mod keys;
pub(crate) mod latest;
pub(crate) mod memory;
mod profiles;
mod read_write;
pub mod rocksdb;
pub(crate) mod sanitize;
pub(crate) mod text;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use base::merge::MergeOperator;
use base::options::OptionTable;
use base::stats::Statistics;
use base::{Comparator, Error, Result, SliceTransform};
use io::RateLimiter;
use log::RecoveryMode;
use table::{BlockCache, CompressionType, TableOptions};

use crate::compaction::partitioner::SstPartitionerFactory;
use crate::filter::{CompactionFilter, CompactionFilterFactory};
use crate::listener::Listeners;
use crate::write_buffer_manager::WriteBufferManager;
use base::threads::{SystemThreads, Threads};
use rocksdb::{DB_SECTION, TABLE_SECTION};

pub use cf::{CfOptions, CompressionOptions, MemtableFactory};
pub use codec::ParsedOptions;
pub use compaction::{
    BottommostCompression, BottommostLevelCompaction, CompactRangeOptions, CompactionOptions,
    CompactionOptionsFifo, CompactionOptionsUniversal, CompactionPri, CompactionStopStyle,
    CompactionStyle, PerLevel,
};
pub use db::{DbOptions, InfoLogLevel, WalCompression, WalIoMode, WalTailPolicy};
pub use kept::Kept;
pub use profiles::Profile;
pub use read_write::{
    ContinueCallback, FlushOptions, GetMergeOperandsOptions, ReadOptions, ReadTier, TableFilter,
    WriteOptions,
};

/// Everything that opening a database needs to know.
///
/// ```
/// let mut options = ironstone::Options::default();
/// options.db.create_if_missing = true;
/// options.cf.write_buffer_size = 8 << 20;
/// options.validate().unwrap();
/// options.db.keep_log_file_num = 0;
/// assert!(options.validate().is_err());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Settings of the whole database.
    pub db: DbOptions,
    /// Settings of the default column family, and of families that are opened without their own.
    pub cf: ColumnFamilyOptions,
    /// What the database runs on.
    pub env: Env,
}

impl Options {
    /// Checks the options as a database would run with them ([`Options::sanitized`]): every range
    /// and the rules between them. Errors: `InvalidArgument` naming the option, its value and what
    /// is allowed; `NotSupported` for what Ironstone does not have.
    pub fn validate(&self) -> Result<()> {
        let (all, _) = self.sanitized();
        all.db.validate()?;
        all.db.validate_together()?;
        memory::check(&all.db, &all.env)?;
        all.cf.validate_in(&all.db)
    }

    /// These options with the settings of a text like RocksDB's `GetOptionsFromString` takes:
    /// options of the database, of the default family and, in braces, of its tables.
    ///
    /// ```
    /// let options = ironstone::Options::default().with_text(
    ///     "max_background_jobs=4; write_buffer_size=128M; block_based_table_factory={block_size=16K;}",
    /// )?;
    /// assert_eq!(options.cf.write_buffer_size, 128 << 20);
    /// assert_eq!(options.cf.table.block_size, 16 << 10);
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    ///
    /// Errors: a malformed text, an unknown name, a value that is none; `NotSupported` for what
    /// Ironstone does not have. The options that are left are those from before.
    pub fn with_text(&self, text: &str) -> Result<Self> {
        text::apply(self, text)
    }

    /// The settings that are not the defaults, as [`Options::with_text`] reads them.
    pub fn to_text(&self) -> String {
        text::to_options_text(self)
    }

    /// How many old logs are kept to be overwritten: none where RocksDB does not keep any either. A
    /// recycled log ends in what looks like damage, which these recovery modes refuse.
    pub(crate) fn recycled_logs(&self) -> usize {
        match self.db.wal_recovery_mode {
            RecoveryMode::TolerateCorruptedTailRecords | RecoveryMode::AbsoluteConsistency => 0,
            _ => self.db.recycle_log_file_num as usize,
        }
    }
}

/// Everything about one column family.
///
/// The settings of [`CfOptions`] are reached as if they stood here: `options.cf.write_buffer_size`.
///
/// ```
/// use ironstone::{ColumnFamilyOptions, CompressionType, FilterPolicy};
///
/// let mut cf = ColumnFamilyOptions::new();
/// cf.write_buffer_size = 8 << 20;
/// cf.compression = CompressionType::Zstd;
/// cf.table.filter_policy = FilterPolicy::Bloom { bits_per_key: 10.0 };
/// ```
#[derive(Clone, Debug, Default)]
pub struct ColumnFamilyOptions {
    /// Settings of memtables, levels and compaction.
    pub cf: CfOptions,
    /// Settings of table files.
    pub table: TableOptions,
    /// The order of keys. Its name is stored; the family opens under no other.
    pub comparator: Comparator,
    /// Says where table files end, besides their size.
    pub sst_partitioner_factory: Option<Arc<dyn SstPartitionerFactory>>,
    /// How merge operands change values; `None` refuses merges.
    pub merge_operator: Option<Arc<dyn MergeOperator>>,
    /// Sees the values that compactions write, and may drop or change them.
    pub compaction_filter: Option<Arc<dyn CompactionFilter>>,
    /// Makes a filter for each compaction. Not together with `compaction_filter`, which wins.
    pub compaction_filter_factory: Option<Arc<dyn CompactionFilterFactory>>,
    /// The prefixes of keys, for filters.
    pub prefix_extractor: Option<SliceTransform>,
    /// What an OPTIONS file said of the family and its tables and has no effect here.
    pub kept: Kept,
}

impl Deref for ColumnFamilyOptions {
    type Target = CfOptions;

    fn deref(&self) -> &CfOptions {
        &self.cf
    }
}

impl DerefMut for ColumnFamilyOptions {
    fn deref_mut(&mut self) -> &mut CfOptions {
        &mut self.cf
    }
}

impl ColumnFamilyOptions {
    /// The defaults, to be changed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether compactions have a filter.
    pub(crate) fn has_compaction_filter(&self) -> bool {
        self.compaction_filter.is_some() || self.compaction_filter_factory.is_some()
    }

    /// [`ColumnFamilyOptions::validate`], for a family of a database with these options.
    pub(crate) fn validate_in(&self, db: &DbOptions) -> Result<()> {
        let mut all = self.clone();
        sanitize::family(&mut all, db);
        all.validate_sanitized()?;
        let ages = all.cf.compaction_style == CompactionStyle::Fifo && all.cf.ttl_seconds() > 0;
        if ages && db.max_open_files != -1 {
            return Err(Error::not_supported(format!(
                "option ttl = {} with FIFO compaction and max_open_files = {}",
                all.cf.ttl, db.max_open_files
            ))
            .hint("RocksDB refuses it too: set max_open_files = -1, or ttl = 0"));
        }
        if db.kept.get(DB_SECTION, "unordered_write") == Some("true")
            && all.cf.max_successive_merges > 0
        {
            return Err(Error::invalid_argument(
                "max_successive_merges larger than 0 is inconsistent with unordered_write",
            )
            .hint("RocksDB refuses it too: set one of them only"));
        }
        Ok(())
    }

    /// Checks the options as a database would run with them: every range and the rules between
    /// them. Errors: as [`Options::validate`].
    pub fn validate(&self) -> Result<()> {
        self.validate_in(&DbOptions::default())
    }

    fn validate_sanitized(&self) -> Result<()> {
        self.cf.validate()?;
        self.table.check_writable()?;
        let pins = self
            .kept
            .get(TABLE_SECTION, "pin_l0_filter_and_index_blocks_in_cache");
        if pins == Some("true") && self.table.no_block_cache {
            return Err(Error::invalid_argument(
                "pin_l0_filter_and_index_blocks_in_cache=true with no_block_cache=true",
            )
            .hint("RocksDB refuses it too: set one of them only"));
        }
        let compressed = self.cf.compression != CompressionType::None;
        self.table
            .check_together(compressed, self.prefix_extractor.is_some())?;
        self.cf.validate_together()
    }
}

/// A column family to open.
#[derive(Clone, Debug)]
pub struct ColumnFamilyDescriptor {
    /// Its name; the family that every database has is `default`.
    pub name: String,
    /// Its options.
    pub options: ColumnFamilyOptions,
}

impl ColumnFamilyDescriptor {
    /// A family of this name with these options.
    pub fn new(name: impl Into<String>, options: ColumnFamilyOptions) -> Self {
        Self {
            name: name.into(),
            options,
        }
    }
}

/// What a database runs on. Shared between databases where the parts are.
#[derive(Clone, Debug)]
pub struct Env {
    /// All files go through it.
    pub fs: Arc<dyn io::FileSystem>,
    /// All time comes from it.
    pub clock: Arc<dyn Clock>,
    /// Holds uncompressed blocks of tables; `None` makes a cache of the database's own.
    pub block_cache: Option<Arc<BlockCache>>,
    /// Counts events; `None` counts nothing.
    pub statistics: Option<Arc<Statistics>>,
    /// Limits the memory of memtables; `None` makes one of the database's own, with
    /// `db_write_buffer_size`.
    pub write_buffer_manager: Option<Arc<WriteBufferManager>>,
    /// Limits what flushes and compactions write per second, and what compactions and reads with
    /// [`ReadOptions::rate_limiter_priority`] read, by its mode.
    pub rate_limiter: Option<Arc<RateLimiter>>,
    /// Are told what happens.
    pub listeners: Listeners,
    /// Starts the threads that work in the background. For tests.
    #[doc(hidden)]
    pub threads: Arc<dyn Threads>,
}

impl Env {
    /// Bytes a second that background work is limited to, if it is.
    pub(crate) fn background_rate(&self) -> Option<u64> {
        let limiter = self.rate_limiter.as_ref();
        limiter.map(|limiter| limiter.bytes_per_second())
    }
}

impl Default for Env {
    /// The machine's files and clock.
    fn default() -> Self {
        Self {
            fs: io::posix::Posix::shared(),
            clock: SystemClock::shared(),
            block_cache: None,
            statistics: None,
            write_buffer_manager: None,
            rate_limiter: None,
            listeners: Listeners::default(),
            threads: SystemThreads::shared(),
        }
    }
}
