//! Options of reads. Names and defaults are RocksDB's.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use base::stats::Activity;
use base::{Error, Result};
use io::IoPriority;

use crate::shared::snapshot::Snapshot;

/// The sources that a read uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadTier {
    /// Memory and files.
    #[default]
    ReadAll,
    /// Memory only. A read that needs a block outside the block cache fails with `Incomplete`.
    BlockCache,
    /// Only data that survives the end of the process: memtables are ignored if anything was written with
    /// `disable_wal`. Not for iterators.
    Persisted,
    /// Iterators show only data in memtables. Gets are not affected.
    Memtable,
}

/// A filter that decides by a table's properties whether an iterator reads the table.
#[derive(Clone)]
pub struct TableFilter(Arc<Filter>);

type Filter = dyn Fn(&table::Properties) -> bool + Send + Sync;

impl TableFilter {
    /// Skips the tables for which `filter` returns false. Their range tombstones still apply.
    pub fn new(filter: impl Fn(&table::Properties) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(filter))
    }

    /// Whether a table is read. If the function panics, the table is read.
    pub(crate) fn passes(&self, properties: &table::Properties) -> bool {
        catch_unwind(AssertUnwindSafe(|| (self.0)(properties))).unwrap_or(true)
    }
}

impl fmt::Debug for TableFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableFilter")
    }
}

/// Options of a read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The snapshot to read; `None` reads the newest state at the time of the call.
    pub snapshot: Option<Snapshot>,
    /// A point in time, as the duration since 1970, after which the operation reads no more blocks from files and
    /// fails with `TimedOut`. Zero means no deadline.
    pub deadline: Duration,
    /// The longest time that one read of a file may take. Must be zero, which means no limit, because the operating
    /// system has no such limit; other values are refused.
    pub io_timeout: Duration,
    /// The sources that the read uses.
    pub read_tier: ReadTier,
    /// The priority with which reads of data blocks are charged to the rate limiter, if it limits reads. `None`
    /// (RocksDB's `IO_TOTAL`) does not charge them.
    pub rate_limiter_priority: Option<IoPriority>,
    /// The total size in bytes of the returned values above which the remaining keys of a `multi_get` fail with
    /// `Aborted`.
    pub value_size_soft_limit: u64,
    /// Must be `None`: a result has no place for the hint that more operands than this were merged.
    pub merge_operand_count_threshold: Option<usize>,
    /// Whether the checksum of each block read from a file is verified.
    pub verify_checksums: bool,
    /// Whether blocks read from a file are put into the block cache.
    pub fill_cache: bool,
    /// Whether `delete_range` may be ignored, so that removed keys may be visible. Saves time if the application knows
    /// that there are no range deletions.
    pub ignore_range_deletions: bool,
    /// Without effect: `read_io_mode` of the database says whether lookups and iterators read several blocks at a time.
    pub async_io: bool,
    /// Without effect: `multi_get` does not go level by level.
    pub optimize_multiget_for_io: bool,
    /// How many bytes an iterator reads ahead from each file; 0 adapts to the access pattern.
    pub readahead_size: u64,
    /// The most internal keys that an iterator may visit in one movement. Beyond that it fails with `Incomplete`; 0
    /// means no limit.
    pub max_skippable_internal_keys: u64,
    /// The smallest key that an iterator shows (inclusive).
    pub iterate_lower_bound: Option<Vec<u8>>,
    /// The end of the keys that an iterator shows (exclusive).
    pub iterate_upper_bound: Option<Vec<u8>>,
    /// Whether an iterator also shows entries written after it was created. Such an iterator moves forward only,
    /// and cannot read a snapshot.
    pub tailing: bool,
    /// Whether seeks read all files even if there is a `prefix_extractor`. The result is the same either way; see
    /// [`ReadOptions::prefix_same_as_start`].
    pub total_order_seek: bool,
    /// Whether seeks use prefix filters only if the bounds show that nothing beyond the prefix is wanted.
    pub auto_prefix_mode: bool,
    /// Whether an iterator ends at the end of the prefix of the key that it seeks to, as the `prefix_extractor`
    /// defines it. Files whose filters exclude this prefix are then never read. If this is not set, they are read
    /// when the iterator leaves the prefix.
    pub prefix_same_as_start: bool,
    /// Whether an iterator keeps all blocks that it has visited in memory.
    pub pin_data: bool,
    /// Whether an iterator that goes on in the next file of a level reads ahead as much as in the one before. Otherwise it
    /// begins with a few blocks again.
    pub adaptive_readahead: bool,
    /// Without effect: the thread that drops an iterator never deletes files.
    pub background_purge_on_iterator_cleanup: bool,
    /// Selects the tables that an iterator reads; `None` selects all.
    pub table_filter: Option<TableFilter>,
    /// Whether reading ahead ends at the upper bound, and cursors of tables too. Has no effect on
    /// [`Db::multi_scan`](crate::Db::multi_scan), which always ends there.
    pub auto_readahead_size: bool,
    /// Without effect: values are always loaded.
    pub allow_unprepared_value: bool,
    /// Whether an iterator at a snapshot switches to the current files and memtables, so that it does not keep old
    /// ones.
    pub auto_refresh_iterator_with_snapshot: bool,
}

impl ReadOptions {
    /// The part of the options that tables use.
    pub(crate) fn for_tables(&self) -> table::ReadOptions {
        table::ReadOptions {
            verify_checksums: self.verify_checksums,
            fill_cache: self.fill_cache,
            readahead_bytes: self.readahead_size as usize,
            adaptive_readahead: self.adaptive_readahead,
            whole_range: false,
            cache_only: self.read_tier == ReadTier::BlockCache,
            activity: Activity::Get,
            deadline_micros: self.deadline.as_micros() as u64,
            pin: self.pin_data,
            rate_limiter_priority: self.rate_limiter_priority,
        }
    }

    /// Errors: `NotSupported`, with the name of the refused option.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if !self.io_timeout.is_zero() {
            return Err(Error::not_supported("ReadOptions::io_timeout"));
        }
        if self.merge_operand_count_threshold.is_some() {
            return Err(Error::not_supported(
                "ReadOptions::merge_operand_count_threshold",
            ));
        }
        Ok(())
    }

    /// [`ReadOptions::check`] for an iterator.
    pub(crate) fn check_for_iterator(&self) -> Result<()> {
        self.check()?;
        if self.read_tier == ReadTier::Persisted {
            return Err(Error::not_supported(
                "ReadTier::Persisted is not supported by iterators",
            ));
        }
        if self.tailing && self.snapshot.is_some() {
            return Err(Error::not_supported(
                "a tailing iterator at a snapshot: it shows what is written later",
            ));
        }
        Ok(())
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            snapshot: None,
            deadline: Duration::ZERO,
            io_timeout: Duration::ZERO,
            read_tier: ReadTier::ReadAll,
            rate_limiter_priority: None,
            value_size_soft_limit: u64::MAX,
            merge_operand_count_threshold: None,
            verify_checksums: true,
            fill_cache: true,
            ignore_range_deletions: false,
            async_io: false,
            optimize_multiget_for_io: true,
            readahead_size: 0,
            max_skippable_internal_keys: 0,
            iterate_lower_bound: None,
            iterate_upper_bound: None,
            tailing: false,
            total_order_seek: false,
            auto_prefix_mode: false,
            prefix_same_as_start: false,
            pin_data: false,
            adaptive_readahead: false,
            background_purge_on_iterator_cleanup: false,
            table_filter: None,
            auto_readahead_size: true,
            allow_unprepared_value: false,
            auto_refresh_iterator_with_snapshot: false,
        }
    }
}

/// Called with each operand of a key, newest first. Returns false if no older operands are wanted.
pub type ContinueCallback<'a> = &'a mut (dyn FnMut(&[u8]) -> bool + Send);

/// Options for reading the operands of a key.
#[derive(Default)]
pub struct GetMergeOperandsOptions<'a> {
    /// If there are more operands than this, the read fails with `Incomplete`.
    pub expected_max_number_of_operands: usize,
    /// Called with each operand, newest first; may end the lookup early. `None` reads all operands.
    pub continue_cb: Option<ContinueCallback<'a>>,
}

impl GetMergeOperandsOptions<'_> {
    /// At most `max` operands, and no callback.
    pub fn up_to(max: usize) -> Self {
        Self {
            expected_max_number_of_operands: max,
            continue_cb: None,
        }
    }
}

impl fmt::Debug for GetMergeOperandsOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = self.expected_max_number_of_operands;
        write!(f, "GetMergeOperandsOptions({max})")
    }
}
