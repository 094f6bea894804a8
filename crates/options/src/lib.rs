//! Options: plain settings, each declared once in a table, and the components that belong to them.
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
//! `sanitize` replaces values that RocksDB accepts but does not use. [`codec`] writes and reads the OPTIONS file;
//! `kept` holds its settings that have no effect here. [`rocksdb`] lists every key of RocksDB 7.8.3 and 11.8.1, so
//! that a setting which Ironstone does not implement is refused by name.

mod cf;
pub mod codec;
mod compaction;
mod db;
pub mod hooks;
mod kept;
mod keys;
pub mod latest;
pub mod memory;
mod profiles;
pub mod rocksdb;
pub mod sanitize;
pub mod text;
mod write;
pub mod write_buffer_manager;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use base::merge::MergeOperator;
use base::options::OptionTable;
use base::stats::Statistics;
use base::threads::{SystemThreads, Threads};
use base::{Comparator, Error, Result, SliceTransform};
use io::RateLimiter;
use log::RecoveryMode;
use table::{BlockCache, CompressionType, RowCache, TableOptions};

use crate::hooks::filter::{CompactionFilter, CompactionFilterFactory};
use crate::hooks::listener::Listeners;
use crate::hooks::partitioner::SstPartitionerFactory;
use crate::write_buffer_manager::WriteBufferManager;
use rocksdb::DB_SECTION;

pub use cf::{CfOptions, CompressionOptions};
pub use codec::ParsedOptions;
pub use compaction::{
    BottommostCompression, BottommostLevelCompaction, CompactRangeOptions, CompactionOptions,
    CompactionOptionsFifo, CompactionOptionsUniversal, CompactionPri, CompactionStopStyle,
    CompactionStyle, PerLevel,
};
pub use db::{CacheTier, DbOptions, InfoLogLevel, WalCompression, WalIoMode, WalTailPolicy};
pub use kept::Kept;
pub use memtable::MemtableFactory;
pub use profiles::Profile;
pub use write::{FlushOptions, WriteOptions};

/// Everything that is needed to open a database.
///
/// Each setting is a field. They are set one by one, or in one expression with [`Options::with_db`],
/// [`Options::with_cf`] and [`Options::with_env`]:
///
/// ```
/// use ironstone::{CompressionType, FilterPolicy, Options};
///
/// let options = Options::default()
///     .with_db(|db| db.create_if_missing = true)
///     .with_cf(|cf| {
///         cf.write_buffer_size = 8 << 20;
///         cf.compression = CompressionType::Zstd;
///         cf.table.filter_policy = FilterPolicy::Bloom { bits_per_key: 10.0 };
///     });
/// options.validate().unwrap();
///
/// let mut options = Options::default();
/// options.db.keep_log_file_num = 0;
/// assert!(options.validate().is_err());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Settings of the whole database.
    pub db: DbOptions,
    /// Settings of the default column family, and of families that are opened without their own options.
    pub cf: ColumnFamilyOptions,
    /// The environment of the database.
    pub env: Env,
}

impl Options {
    /// These options with what `set` changes in those of the database.
    #[must_use]
    pub fn with_db(mut self, set: impl FnOnce(&mut DbOptions)) -> Self {
        set(&mut self.db);
        self
    }

    /// These options with what `set` changes in those of the default column family, which are also those of families that
    /// are opened without their own.
    #[must_use]
    pub fn with_cf(mut self, set: impl FnOnce(&mut ColumnFamilyOptions)) -> Self {
        set(&mut self.cf);
        self
    }

    /// These options with what `set` changes in the environment: the file system, the clock, listeners, statistics.
    #[must_use]
    pub fn with_env(mut self, set: impl FnOnce(&mut Env)) -> Self {
        set(&mut self.env);
        self
    }

    /// Checks the options in the form in which a database uses them ([`Options::sanitized`]): the range of each
    /// option, and the rules between options. Errors: `InvalidArgument`, with the option, its value and the allowed
    /// values; `NotSupported` for settings that Ironstone does not support.
    pub fn validate(&self) -> Result<()> {
        let (all, _) = self.sanitized();
        all.db.validate()?;
        all.db.validate_together()?;
        memory::check(&all.db, &all.env)?;
        all.cf.validate_in(&all.db)
    }

    /// Applies a text in the format of RocksDB's `GetOptionsFromString` to these options: options of the database,
    /// of the default family and, in braces, of its tables.
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
    /// Errors: a malformed text, an unknown name, or an invalid value; `NotSupported` for settings that Ironstone
    /// does not support. Options that the text does not name keep their values.
    pub fn with_text(&self, text: &str) -> Result<Self> {
        text::apply(self, text)
    }

    /// The settings that differ from the defaults, in the form that [`Options::with_text`] reads.
    pub fn to_text(&self) -> String {
        text::to_options_text(self)
    }

    /// How many old logs are kept for reuse. As in RocksDB, none are kept with the recovery modes that would refuse
    /// a recycled log, because its end looks like damage.
    #[doc(hidden)]
    pub fn recycled_logs(&self) -> usize {
        match self.db.wal_recovery_mode {
            RecoveryMode::TolerateCorruptedTailRecords | RecoveryMode::AbsoluteConsistency => 0,
            _ => self.db.recycle_log_file_num as usize,
        }
    }
}

/// All options of one column family.
///
/// The settings of [`CfOptions`] can be used as if they were fields of this struct: `options.cf.write_buffer_size`.
///
/// ```
/// use ironstone::{ColumnFamilyOptions, CompressionType, FilterPolicy};
///
/// let cf = ColumnFamilyOptions::new().with(|cf| {
///     cf.write_buffer_size = 8 << 20;
///     cf.compression = CompressionType::Zstd;
///     cf.table.filter_policy = FilterPolicy::Bloom { bits_per_key: 10.0 };
/// });
/// # assert_eq!(cf.write_buffer_size, 8 << 20);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ColumnFamilyOptions {
    /// Settings of memtables, levels and compaction.
    pub cf: CfOptions,
    /// Settings of table files.
    pub table: TableOptions,
    /// The order of keys. Its name is stored, and the family can only be opened with the same name.
    pub comparator: Comparator,
    /// Decides where table files end, in addition to their size.
    pub sst_partitioner_factory: Option<Arc<dyn SstPartitionerFactory>>,
    /// Applies merge operands to values; without it, merges are refused.
    pub merge_operator: Option<Arc<dyn MergeOperator>>,
    /// Sees the values that compactions write, and may drop or change them.
    pub compaction_filter: Option<Arc<dyn CompactionFilter>>,
    /// Creates a filter for each compaction. Ignored if `compaction_filter` is set.
    pub compaction_filter_factory: Option<Arc<dyn CompactionFilterFactory>>,
    /// Extracts the prefixes of keys, for filters.
    pub prefix_extractor: Option<SliceTransform>,
    /// Settings of the family and its tables in an OPTIONS file that have no effect here.
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
    /// The defaults, as a starting point.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// These options with what `set` changes in them.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }

    /// Whether compactions have a filter.
    #[doc(hidden)]
    pub fn has_compaction_filter(&self) -> bool {
        self.compaction_filter.is_some() || self.compaction_filter_factory.is_some()
    }

    /// Like [`ColumnFamilyOptions::validate`], for a family of a database with the options `db`.
    #[doc(hidden)]
    pub fn validate_in(&self, db: &DbOptions) -> Result<()> {
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

    /// Checks the options in the form in which a database uses them: the range of each option, and the rules
    /// between options. Errors: as [`Options::validate`].
    pub fn validate(&self) -> Result<()> {
        self.validate_in(&DbOptions::default())
    }

    fn validate_sanitized(&self) -> Result<()> {
        self.cf.validate()?;
        self.table.check_writable()?;
        let compressed = self.cf.compression != CompressionType::None;
        self.table
            .check_together(compressed, self.prefix_extractor.is_some())?;
        self.cf.validate_together()
    }
}

/// A column family to open.
#[derive(Clone, Debug)]
pub struct ColumnFamilyDescriptor {
    /// The name. The family that every database has is `default`.
    pub name: String,
    /// The options of the family.
    pub options: ColumnFamilyOptions,
}

impl ColumnFamilyDescriptor {
    /// A descriptor with this name and these options.
    pub fn new(name: impl Into<String>, options: ColumnFamilyOptions) -> Self {
        Self {
            name: name.into(),
            options,
        }
    }
}

/// The environment of a database. Its components can be shared between databases.
#[derive(Clone, Debug)]
pub struct Env {
    /// The file system for all files.
    pub fs: Arc<dyn io::FileSystem>,
    /// The source of time. From the first panic of one of its methods on, the machine's clock answers in its place.
    pub clock: Arc<dyn Clock>,
    /// Holds uncompressed blocks of tables; if `None`, the database creates its own.
    pub block_cache: Option<Arc<BlockCache>>,
    /// Holds what gets have found in tables; if `None`, only blocks are cached. Gets and `multi_get` ask it before filters,
    /// indexes and blocks, unless they read at a snapshot that is older than a table's newest entry. They fill it unless
    /// `ReadOptions::fill_cache` is false.
    ///
    /// ```
    /// use std::sync::Arc;
    /// let rows = Arc::new(ironstone::RowCache::new(64 << 20));
    /// let options = ironstone::Options::default().with_env(|env| env.row_cache = Some(Arc::clone(&rows)));
    /// options.validate().unwrap();
    /// assert_eq!((rows.usage(), rows.capacity()), (0, 64 << 20));
    /// ```
    pub row_cache: Option<Arc<RowCache>>,
    /// Counts events; if `None`, nothing is counted.
    pub statistics: Option<Arc<Statistics>>,
    /// Limits the memory of memtables; if `None`, the database creates its own, limited by `db_write_buffer_size`.
    pub write_buffer_manager: Option<Arc<WriteBufferManager>>,
    /// Limits the bytes per second that flushes and compactions write and, depending on its mode, the bytes that
    /// compactions and reads with `ReadOptions::rate_limiter_priority` read.
    pub rate_limiter: Option<Arc<RateLimiter>>,
    /// Notified of events.
    pub listeners: Listeners,
    /// Starts the background threads. For tests.
    #[doc(hidden)]
    pub threads: Arc<dyn Threads>,
}

impl Env {
    /// The limit of background work in bytes per second, if there is one.
    #[doc(hidden)]
    pub fn background_rate(&self) -> Option<u64> {
        let limiter = self.rate_limiter.as_ref();
        limiter.map(|limiter| limiter.bytes_per_second())
    }
}

impl Default for Env {
    /// The file system and clock of the operating system.
    fn default() -> Self {
        Self {
            fs: io::posix::Posix::shared(),
            clock: SystemClock::shared(),
            block_cache: None,
            row_cache: None,
            statistics: None,
            write_buffer_manager: None,
            rate_limiter: None,
            listeners: Listeners::default(),
            threads: SystemThreads::shared(),
        }
    }
}
