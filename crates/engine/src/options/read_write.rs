//! Options of single operations. Names and defaults are RocksDB's.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use base::stats::Activity;
use base::{Error, Result};
use io::IoPriority;

use crate::Snapshot;

/// Where a read looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadTier {
    /// In memory and in files.
    #[default]
    ReadAll,
    /// In memory: what would need a block that is not in the block cache fails with `Incomplete`.
    BlockCache,
    /// What survives the death of the process: memtables do not count if something was written with
    /// `disable_wal`. Not for iterators.
    Persisted,
    /// Iterators show what is in memtables alone. Gets are not affected.
    Memtable,
}

/// Decides by its properties whether an iterator looks at a table.
#[derive(Clone)]
pub struct TableFilter(Arc<Filter>);

type Filter = dyn Fn(&table::Properties) -> bool + Send + Sync;

impl TableFilter {
    /// Tables for which `filter` returns false are passed over; their range tombstones are not.
    pub fn new(filter: impl Fn(&table::Properties) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(filter))
    }

    /// Whether a table is looked at; it is if the function panics.
    pub(crate) fn passes(&self, properties: &table::Properties) -> bool {
        catch_unwind(AssertUnwindSafe(|| (self.0)(properties))).unwrap_or(true)
    }
}

impl fmt::Debug for TableFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableFilter")
    }
}

/// How a read is done.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The state that is read; `None` is the newest at the time of the call.
    pub snapshot: Option<Snapshot>,
    /// The time since 1970 from which on the operation reads no block from a file any more and
    /// fails with `TimedOut`; zero is never.
    pub deadline: Duration,
    /// How long one read of a file may take. Refused unless it is zero, which is for ever: the
    /// operating system has no such limit.
    pub io_timeout: Duration,
    /// Where the read looks.
    pub read_tier: ReadTier,
    /// As what reads of data blocks are charged to the rate limiter, if it limits reads; `None` is
    /// RocksDB's `IO_TOTAL`, not at all.
    pub rate_limiter_priority: Option<IoPriority>,
    /// Bytes of values after which the remaining keys of a `multi_get` fail with `Aborted`.
    pub value_size_soft_limit: u64,
    /// Refused unless `None`: a result has no place for the hint that more operands than this were
    /// merged.
    pub merge_operand_count_threshold: Option<usize>,
    /// Whether the checksum of each block read from a file is checked.
    pub verify_checksums: bool,
    /// Whether blocks read from a file go to the block cache.
    pub fill_cache: bool,
    /// Whether keys that `delete_range` removed may be shown: for reads that know that there are
    /// none, and want no time spent on looking.
    pub ignore_range_deletions: bool,
    /// A hint without effect: reads are synchronous.
    pub async_io: bool,
    /// A hint without effect, for [`ReadOptions::async_io`].
    pub optimize_multiget_for_io: bool,
    /// Bytes that an iterator reads ahead from each file; 0 adapts to what it reads.
    pub readahead_size: u64,
    /// An iterator that looks at more internal keys than this in one movement fails with
    /// `Incomplete`; 0 is no limit.
    pub max_skippable_internal_keys: u64,
    /// The smallest key that an iterator shows.
    pub iterate_lower_bound: Option<Vec<u8>>,
    /// The first key that an iterator does not show any more.
    pub iterate_upper_bound: Option<Vec<u8>>,
    /// Whether an iterator shows what is written after it was made. It goes forward only, and not
    /// at a snapshot.
    pub tailing: bool,
    /// Whether seeks look at all files though there is a `prefix_extractor`. What they find is the
    /// same without it; see [`ReadOptions::prefix_same_as_start`].
    pub total_order_seek: bool,
    /// Whether seeks use the filters for prefixes only where the bounds say that nothing beyond the
    /// prefix is wanted.
    pub auto_prefix_mode: bool,
    /// Whether an iterator ends where the prefix of the key that it was sent to does, as the
    /// `prefix_extractor` has it. Files whose filters say that they have nothing with this prefix
    /// are then not looked at. (Without it, they are when the iterator leaves the prefix.)
    pub prefix_same_as_start: bool,
    /// Whether an iterator keeps all blocks that it has been in.
    pub pin_data: bool,
    /// A hint without effect: the read-ahead starts anew in each file.
    pub adaptive_readahead: bool,
    /// A hint without effect: files are never deleted by the thread that drops an iterator.
    pub background_purge_on_iterator_cleanup: bool,
    /// Which tables an iterator looks at; `None` is all.
    pub table_filter: Option<TableFilter>,
    /// A hint without effect: whether the read-ahead ends at the upper bound.
    pub auto_readahead_size: bool,
    /// A hint without effect: values are always there.
    pub allow_unprepared_value: bool,
    /// Whether an iterator at a snapshot changes over to the files and memtables that are there
    /// now, so that it does not hold back old ones.
    pub auto_refresh_iterator_with_snapshot: bool,
}

impl ReadOptions {
    /// The part that the tables look at.
    pub(crate) fn for_tables(&self) -> table::ReadOptions {
        table::ReadOptions {
            verify_checksums: self.verify_checksums,
            fill_cache: self.fill_cache,
            readahead_bytes: self.readahead_size as usize,
            cache_only: self.read_tier == ReadTier::BlockCache,
            activity: Activity::Get,
            deadline_micros: self.deadline.as_micros() as u64,
            pin: self.pin_data,
            rate_limiter_priority: self.rate_limiter_priority,
        }
    }

    /// Errors: `NotSupported` naming the option that is refused.
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

/// Is called with each operand of a key, from the newest on; false says that no older ones are wanted.
pub type ContinueCallback<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// How the operands of a key are read.
#[derive(Default)]
pub struct GetMergeOperandsOptions<'a> {
    /// More operands than this are an error.
    pub expected_max_number_of_operands: usize,
    /// Ends the lookup early.
    pub continue_cb: Option<ContinueCallback<'a>>,
}

impl fmt::Debug for GetMergeOperandsOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = self.expected_max_number_of_operands;
        write!(f, "GetMergeOperandsOptions({max})")
    }
}

/// How a write is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Whether the write returns only after it is durable.
    pub sync: bool,
    /// Whether the write goes to the memtable only: a crash loses it.
    pub disable_wal: bool,
    /// Whether the write fails with `Incomplete` instead of waiting for a stall to end.
    pub no_slowdown: bool,
    /// Whether the write gives way to others when compaction lags.
    pub low_pri: bool,
}

/// How a flush by call is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushOptions {
    /// Whether the call returns only after the flush.
    pub wait: bool,
    /// Whether the flush starts at once even if it makes writers wait.
    pub allow_write_stall: bool,
}

impl Default for FlushOptions {
    fn default() -> Self {
        Self {
            wait: true,
            allow_write_stall: false,
        }
    }
}
