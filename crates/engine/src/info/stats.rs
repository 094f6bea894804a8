//! Counts of the whole database's operations since it was opened: the numbers of `rocksdb.dbstats`.
//!
//! They are maintained even if the application sets no statistics. They are identified by the tickers with the
//! same meaning, so that a call site counts each event once. A ticker that has no count here costs nothing: the
//! compiler removes the call, because the ticker is a constant at the call site.

use std::sync::atomic::{AtomicU64, Ordering};

use base::stats::Ticker;
use base::sync::{Mutex, PoisonError, ranked};

use crate::locks;

/// The counts at one moment, or their increase over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Nanoseconds on the monotonic clock since the database was opened, or the length of the interval.
    pub(crate) nanos: u64,
    /// Write groups.
    pub(crate) groups: u64,
    /// Writes of followers.
    pub(crate) followers: u64,
    pub(crate) keys: u64,
    /// Bytes of batches, whether or not they were logged.
    pub(crate) bytes: u64,
    pub(crate) wal_writes: u64,
    pub(crate) wal_bytes: u64,
    pub(crate) wal_syncs: u64,
    /// Microseconds for which writers were held back.
    pub(crate) stall_micros: u64,
}

impl Counts {
    /// The increase since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            nanos: self.nanos.saturating_sub(earlier.nanos),
            groups: self.groups - earlier.groups,
            followers: self.followers - earlier.followers,
            keys: self.keys - earlier.keys,
            bytes: self.bytes - earlier.bytes,
            wal_writes: self.wal_writes - earlier.wal_writes,
            wal_bytes: self.wal_bytes - earlier.wal_bytes,
            wal_syncs: self.wal_syncs - earlier.wal_syncs,
            stall_micros: self.stall_micros - earlier.stall_micros,
        }
    }

    /// The number of writes of leaders and followers.
    pub(crate) fn writes(&self) -> u64 {
        self.groups + self.followers
    }
}

/// Counts that group leaders update.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Leaders {
    groups: AtomicU64,
    keys: AtomicU64,
    bytes: AtomicU64,
    wal_writes: AtomicU64,
    wal_bytes: AtomicU64,
    wal_syncs: AtomicU64,
}

/// Counts that other threads update.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Others {
    followers: AtomicU64,
    stall_micros: AtomicU64,
}

/// The counts of an open database.
#[derive(Debug)]
pub(crate) struct DbStats {
    leaders: Leaders,
    others: Others,
    opened_nanos: u64,
    /// The counts at the last call of [`DbStats::interval`].
    told: Mutex<Counts>,
}

impl DbStats {
    pub(crate) fn new(now_nanos: u64) -> Self {
        Self {
            leaders: Leaders::default(),
            others: Others::default(),
            opened_nanos: now_nanos,
            told: ranked(locks::LEAF, Counts::default()),
        }
    }

    /// Adds `n` to the count for a ticker, if there is one.
    #[inline]
    pub(crate) fn count(&self, t: Ticker, n: u64) {
        let count = match t {
            Ticker::WriteDoneBySelf => &self.leaders.groups,
            Ticker::NumberKeysWritten => &self.leaders.keys,
            Ticker::BytesWritten => &self.leaders.bytes,
            Ticker::WriteWithWal => &self.leaders.wal_writes,
            Ticker::WalFileBytes => &self.leaders.wal_bytes,
            Ticker::WalFileSynced => &self.leaders.wal_syncs,
            Ticker::WriteDoneByOther => &self.others.followers,
            Ticker::StallMicros => &self.others.stall_micros,
            _ => return,
        };
        count.fetch_add(n, Ordering::Relaxed);
    }

    /// The time at which the database was opened, in nanoseconds on the monotonic clock.
    pub(crate) fn opened_nanos(&self) -> u64 {
        self.opened_nanos
    }

    /// The counts since the database was opened; `nanos` is the time since then.
    pub(crate) fn get(&self, now_nanos: u64) -> Counts {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Counts {
            nanos: now_nanos.saturating_sub(self.opened_nanos),
            groups: get(&self.leaders.groups),
            followers: get(&self.others.followers),
            keys: get(&self.leaders.keys),
            bytes: get(&self.leaders.bytes),
            wal_writes: get(&self.leaders.wal_writes),
            wal_bytes: get(&self.leaders.wal_bytes),
            wal_syncs: get(&self.leaders.wal_syncs),
            stall_micros: get(&self.others.stall_micros),
        }
    }

    /// Returns the counts of the previous call and stores `now` for the next one.
    pub(crate) fn interval(&self, now: Counts) -> Counts {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut told, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickers_of_writes_are_counted_and_others_are_not() {
        let stats = DbStats::new(100);
        stats.count(Ticker::WriteDoneBySelf, 2);
        stats.count(Ticker::WriteDoneByOther, 3);
        stats.count(Ticker::NumberKeysWritten, 9);
        stats.count(Ticker::BlockCacheHit, 7);
        let first = stats.get(350);
        assert_eq!((first.nanos, first.writes(), first.keys), (250, 5, 9));
        assert_eq!(stats.interval(first), Counts::default());
        stats.count(Ticker::WalFileSynced, 1);
        let second = stats.get(400);
        let interval = second.since(&stats.interval(second));
        let want = Counts {
            nanos: 50,
            wal_syncs: 1,
            ..Counts::default()
        };
        assert_eq!(interval, want);
    }
}
