//! Options of single operations. Names and defaults are RocksDB's.

use base::stats::Activity;

use crate::Snapshot;

/// How a read is done.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The state that is read; `None` is the newest at the time of the call.
    pub snapshot: Option<Snapshot>,
    /// Whether the checksum of each block read from a file is checked.
    pub verify_checksums: bool,
    /// Whether blocks read from a file go to the block cache.
    pub fill_cache: bool,
    /// The smallest key that an iterator shows.
    pub iterate_lower_bound: Option<Vec<u8>>,
    /// The first key that an iterator does not show any more.
    pub iterate_upper_bound: Option<Vec<u8>>,
    /// Bytes that an iterator reads ahead from each file; 0 adapts to what it reads.
    pub readahead_size: u64,
    /// Whether keys that `delete_range` removed may be shown: for reads that know that there are
    /// none, and want no time spent on looking.
    pub ignore_range_deletions: bool,
}

impl ReadOptions {
    /// The part that the tables look at.
    pub(crate) fn for_tables(&self) -> table::ReadOptions {
        table::ReadOptions {
            verify_checksums: self.verify_checksums,
            fill_cache: self.fill_cache,
            readahead_bytes: self.readahead_size as usize,
            cache_only: false,
            activity: Activity::Get,
        }
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            snapshot: None,
            verify_checksums: true,
            fill_cache: true,
            iterate_lower_bound: None,
            iterate_upper_bound: None,
            readahead_size: 0,
            ignore_range_deletions: false,
        }
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
