//! What the whole database did since it was opened: the numbers behind `rocksdb.dbstats`.
//!
//! They are counted whether or not the application wants statistics, under the names of the tickers
//! that count the same, so that a place that counts says it once. A ticker that is not among them
//! costs nothing here: which one it is, is known when the place is compiled.

use base::stats::Ticker;
use base::sync::{Mutex, PoisonError};
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// When, by the monotonic clock.
    pub(crate) nanos: u64,
    /// Groups of writes.
    pub(crate) groups: u64,
    /// Writes that went along in another's group.
    pub(crate) followers: u64,
    pub(crate) keys: u64,
    /// Of batches, whether or not they went to the log.
    pub(crate) bytes: u64,
    pub(crate) wal_writes: u64,
    pub(crate) wal_bytes: u64,
    pub(crate) wal_syncs: u64,
    /// Writers were held back.
    pub(crate) stall_micros: u64,
}

impl Counts {
    /// What happened since `earlier`.
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

    /// Writes, whoever did them.
    pub(crate) fn writes(&self) -> u64 {
        self.groups + self.followers
    }
}

/// What is counted by leaders of groups.
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

/// What is counted by the others.
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
    /// What was told last.
    told: Mutex<Counts>,
}

impl DbStats {
    pub(crate) fn new(now_nanos: u64) -> Self {
        Self {
            leaders: Leaders::default(),
            others: Others::default(),
            opened_nanos: now_nanos,
            told: Mutex::default(),
        }
    }

    /// Adds to the count that has the ticker's name, if there is one.
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

    /// When the database was opened, by the monotonic clock.
    pub(crate) fn opened_nanos(&self) -> u64 {
        self.opened_nanos
    }

    /// The counts since then; their time is the one since then, too.
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

    /// What was told last; from now on it is `now`.
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
