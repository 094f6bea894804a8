//! Statistics: counters ("tickers") under RocksDB's names.
//!
//! A [`Statistics`] is shared by everything that belongs to one database. Without one, counting
//! costs a branch.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! tickers {
    ($( $(#[$doc:meta])* $variant:ident = $name:literal, )*) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Ticker {
            $( $(#[$doc])* $variant, )*
        }

        impl Ticker {
            /// Every ticker.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),* ];

            /// The name in reports, RocksDB's where RocksDB has it.
            pub fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $name, )*
                }
            }
        }
    };
}

tickers! {
    /// Data, index and filter blocks found in the block cache.
    BlockCacheHit = "rocksdb.block.cache.hit",
    /// Blocks that had to be read from a file.
    BlockCacheMiss = "rocksdb.block.cache.miss",
    /// Blocks put into the cache.
    BlockCacheAdd = "rocksdb.block.cache.add",
    /// Bytes of blocks put into the cache.
    BlockCacheBytesWrite = "rocksdb.block.cache.bytes.write",
    /// Keys that a Bloom or Ribbon filter showed to be absent from a file.
    BloomFilterUseful = "rocksdb.bloom.filter.useful",
    /// Keys that passed a filter and were then looked for in the file.
    BloomFilterFullPositive = "rocksdb.bloom.filter.full.positive",
    /// Gets answered by a memtable.
    MemtableHit = "rocksdb.memtable.hit",
    /// Gets that no memtable could answer.
    MemtableMiss = "rocksdb.memtable.miss",
    /// Gets answered by level 0.
    GetHitL0 = "rocksdb.l0.hit",
    /// Gets answered by level 1.
    GetHitL1 = "rocksdb.l1.hit",
    /// Gets answered by level 2 or deeper.
    GetHitL2AndUp = "rocksdb.l2andup.hit",
    /// Keys read by Get.
    NumberKeysRead = "rocksdb.number.keys.read",
    /// Counted records written.
    NumberKeysWritten = "rocksdb.number.keys.written",
    /// Bytes of batches written.
    BytesWritten = "rocksdb.bytes.written",
    /// Bytes of values returned by Get.
    BytesRead = "rocksdb.bytes.read",
    /// Iterator seeks.
    NumberDbSeek = "rocksdb.number.db.seek",
    /// Iterator steps forward.
    NumberDbNext = "rocksdb.number.db.next",
    /// Iterator steps backward.
    NumberDbPrev = "rocksdb.number.db.prev",
    /// Microseconds that writers were held back or stopped.
    StallMicros = "rocksdb.stall.micros",
    /// Synced log writes.
    WalFileSynced = "rocksdb.wal.synced",
    /// Bytes appended to the log.
    WalFileBytes = "rocksdb.wal.bytes",
    /// Logs that were begun with a file from the pool.
    WalPrecreateHit = "rocksdb.wal.precreate.hit",
    /// Logs that should have been, when none was ready: they grow.
    WalPrecreateMiss = "rocksdb.wal.precreate.miss",
    /// Log files that could not be made ahead.
    WalPrecreateFailed = "rocksdb.wal.precreate.failed",
    /// Bytes of zeros written to log files ahead of use.
    WalZeroedBytes = "ironstone.wal.zeroed.bytes",
    /// Logs that were begun with the file of an older log.
    WalRecycled = "ironstone.wal.recycled",
    /// Log writes that took longer than `wal_slow_io_ms`.
    WalSlowIo = "ironstone.wal.slow.io",
    /// Failed logs whose tail went to a new one.
    WalRelogged = "ironstone.wal.relogged",
    /// Groups that a full disk refused.
    WalNoSpace = "ironstone.wal.no.space",
    /// Writes that their own thread brought through the log.
    WriteDoneBySelf = "rocksdb.write.self",
    /// Writes that another thread's group carried.
    WriteDoneByOther = "rocksdb.write.other",
    /// Calls of `get_updates_since`.
    GetUpdatesSinceCalls = "rocksdb.getupdatessince.calls",
    /// Groups written to the log.
    WriteWithWal = "rocksdb.write.wal",
    /// Bytes read by compactions.
    CompactReadBytes = "rocksdb.compact.read.bytes",
    /// Bytes written by compactions.
    CompactWriteBytes = "rocksdb.compact.write.bytes",
    /// Bytes read by compactions of marked files.
    CompactReadBytesMarked = "rocksdb.compact.read.marked.bytes",
    /// Bytes read by periodic compactions.
    CompactReadBytesPeriodic = "rocksdb.compact.read.periodic.bytes",
    /// Bytes read by compactions of data older than `ttl`.
    CompactReadBytesTtl = "rocksdb.compact.read.ttl.bytes",
    /// Bytes written by compactions of marked files.
    CompactWriteBytesMarked = "rocksdb.compact.write.marked.bytes",
    /// Bytes written by periodic compactions.
    CompactWriteBytesPeriodic = "rocksdb.compact.write.periodic.bytes",
    /// Bytes written by compactions of data older than `ttl`.
    CompactWriteBytesTtl = "rocksdb.compact.write.ttl.bytes",
    /// FIFO compactions because of the size.
    FifoMaxSizeCompactions = "rocksdb.fifo.max.size.compactions",
    /// FIFO compactions because of the age.
    FifoTtlCompactions = "rocksdb.fifo.ttl.compactions",
    /// Bytes written by flushes.
    FlushWriteBytes = "rocksdb.flush.write.bytes",
    /// Blocks of tables that were stored compressed.
    NumberBlockCompressed = "rocksdb.number.block.compressed",
}

/// One counter per [`Ticker`].
#[derive(Debug)]
pub struct Statistics {
    tickers: Vec<AtomicU64>,
}

impl Statistics {
    /// All zero.
    pub fn new() -> Self {
        Self {
            tickers: Ticker::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Adds `n` to a ticker.
    #[inline]
    pub fn add(&self, t: Ticker, n: u64) {
        self.tickers[t as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// The count of a ticker.
    pub fn get(&self, t: Ticker) -> u64 {
        self.tickers[t as usize].load(Ordering::Relaxed)
    }

    /// Sets every ticker to zero.
    pub fn reset(&self) {
        for t in &self.tickers {
            t.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for Statistics {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Display for Statistics {
    /// `rocksdb.block.cache.miss COUNT : 12`, one line a ticker, as RocksDB prints them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for &t in Ticker::ALL {
            writeln!(f, "{} COUNT : {}", t.name(), self.get(t))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickers_count_and_print() {
        let s = Statistics::new();
        s.add(Ticker::BlockCacheMiss, 3);
        s.add(Ticker::BlockCacheMiss, 2);
        assert_eq!(s.get(Ticker::BlockCacheMiss), 5);
        assert!(
            s.to_string()
                .contains("rocksdb.block.cache.miss COUNT : 5\n")
        );
        s.reset();
        assert_eq!(s.get(Ticker::BlockCacheMiss), 0);
    }
}
