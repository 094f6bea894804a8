//! Options of a whole database. Names and defaults are RocksDB 7.8.3's.

use base::{Error, Result};
use io::ReadIoMode;
use log::RecoveryMode;

use super::kept::Kept;
use super::rocksdb::DB_SECTION;

base::option_enum! {
    /// The least important message that goes to LOG.
    #[derive(PartialOrd, Ord)]
    pub enum InfoLogLevel {
        /// Everything.
        Debug = "DEBUG_LEVEL",
        /// Progress and events.
        Info = "INFO_LEVEL",
        /// What may need attention.
        Warn = "WARN_LEVEL",
        /// What failed.
        Error = "ERROR_LEVEL",
        /// What ends the database's work.
        Fatal = "FATAL_LEVEL",
        /// Only the header of the file: versions and options.
        Header = "HEADER_LEVEL",
    }
}

base::option_enum! {
    /// How write-ahead logs are written.
    pub enum WalIoMode {
        /// Direct while writes are synced, buffered while they are not.
        Auto = "auto",
        /// Past the page cache, wherever the file system can.
        Direct = "direct",
        /// Through the page cache.
        Buffered = "buffered",
    }
}

base::option_enum! {
    /// What becomes of the last, partly filled sector of a direct log when the next group comes.
    pub enum WalTailPolicy {
        /// It is written again with the next group: right where the device writes a sector as a
        /// whole or not at all, even when the power fails.
        Rewrite = "rewrite",
        /// It is written again in a write that the device promises never to tear (`RWF_ATOMIC`).
        Atomic = "atomic",
        /// It is filled up with an empty batch and never written again.
        Pad = "pad",
    }
}

base::option_enum! {
    /// How far down the tiers of the block cache a database goes.
    pub enum CacheTier {
        /// Only blocks as they are read.
        Volatile = "kVolatileTier",
        /// Also blocks that are kept compressed. RocksDB 7.8.3 does not know this value, and does not load an OPTIONS file
        /// with it.
        VolatileCompressed = "kVolatileCompressedTier",
        /// Also blocks on a device. There is no such tier: the same as the one before.
        NonVolatileBlock = "kNonVolatileBlockTier",
    }
}

base::option_enum! {
    /// How the records of write-ahead logs are compressed.
    pub enum WalCompression {
        /// Not at all.
        None = "kNoCompression",
        /// With zstd, record by record.
        Zstd = "kZSTD",
    }
}

base::options! {
    /// Options of a whole database.
    pub struct DbOptions ["DBOptions"]
    and {
        /// What an OPTIONS file said of the database and has no effect here.
        kept: Kept
    } {
        /// Whether `open` creates the database if there is none.
        create_if_missing: bool = false;
        /// Whether `open` creates column families that are asked for and do not exist.
        create_missing_column_families: bool = false;
        /// Whether `open` fails if the database exists.
        error_if_exists: bool = false;
        /// Threads for flushes and compactions together.
        max_background_jobs: i32 = 2, in 1..=1024, [Mutable];
        /// Threads for flushes; with this or `max_background_compactions` other than -1, each of
        /// the two is for itself (at least 1), and `max_background_jobs` has no effect.
        max_background_flushes: i32 = -1, in -1..=1024, [Mutable];
        /// Threads for compactions; see `max_background_flushes`.
        max_background_compactions: i32 = -1, in -1..=1024, [Mutable];
        /// Threads that share one compaction, by key ranges; 1 is one thread for each.
        max_subcompactions: u32 = 1, in 1..=64, [Mutable];
        /// Threads that open table files when the database is opened, at most.
        max_file_opening_threads: i32 = 16, in 1..=1024;
        /// Table files that are open at once; -1 is all. With a limit, at least 20, tables that were not
        /// used for longest are closed, with their indexes and filters, and opened again when they
        /// are needed; ten of the limit are for other files. Iterators keep what they read open.
        max_open_files: i32 = -1, in -1..=i32::MAX, [Mutable];
        /// Bytes of all write-ahead logs at which the families that hold the oldest log alive
        /// are flushed; 0 means four times the sum of all write buffers, and that a family which has less in
        /// memory than an eighth of its write buffer is flushed when it keeps logs of four write buffers
        /// alive that no other family needs.
        max_total_wal_size: u64 = 0, in 0..=u64::MAX, [Mutable];
        /// What damage in a write-ahead log means at `open`.
        wal_recovery_mode: RecoveryMode = RecoveryMode::PointInTimeRecovery;
        /// Whether the MANIFEST records each closed log with the size up to which it is durable.
        /// `open` refuses a recorded log that is missing or shorter.
        track_and_verify_wals_in_manifest: bool = false;
        /// Whether what `open` recovered from the logs stays in the active memtables, and the logs with
        /// it. If not, it is flushed: before `open` returns if it is little,
        /// else in the background.
        avoid_flush_during_recovery: bool = false;
        /// Whether `close` leaves unlogged writes (`disable_wal`) in memory, which loses them.
        avoid_flush_during_shutdown: bool = false, [Mutable];
        /// Whether the writers of a group insert into the memtable at the same time.
        allow_concurrent_memtable_write: bool = true;
        /// Bytes of batches that one write group takes into one log write, at most.
        max_write_batch_group_size_bytes: u64 = 1 << 20, in 1..=1 << 40;
        /// Whether log records stay in memory until the log is flushed by call.
        manual_wal_flush: bool = false;
        /// How often the database tries to accept writes again by itself after the device was full;
        /// 0 is never. The count begins anew when it succeeds.
        max_bgerror_resume_count: i32 = i32::MAX;
        /// The directory of LOG, which is then named after the path of the database; empty is the
        /// database's own. Created if missing, but not the directory above it.
        db_log_dir: String = String::new();
        /// The least important message that goes to LOG.
        info_log_level: InfoLogLevel = InfoLogLevel::Info;
        /// How many LOG files are kept, the current one included.
        keep_log_file_num: u64 = 1000, in 1..=u64::MAX, [Strict];
        /// Bytes of LOG after which a new one is begun; 0 is without limit.
        max_log_file_size: u64 = 0;
        /// Seconds after which a new LOG is begun; 0 is without limit.
        log_file_time_to_roll: u64 = 0;
        /// Bytes after which a new MANIFEST is begun.
        max_manifest_file_size: u64 = 1 << 30, in 1..=u64::MAX, [Mutable];
        /// Bytes of a table file after which writeback is started; 0 leaves it to the system.
        bytes_per_sync: u64 = 0, in 0..=u64::MAX, [Mutable];
        /// Buffered logs that are synced have their blocks reserved ahead (`fallocate`), so that a sync does
        /// not write the file system's records of each new block as well.
        allow_fallocate: bool = true;
        /// Bytes of a log after which writeback is started; 0 leaves it to the system.
        wal_bytes_per_sync: u64 = 0, in 0..=u64::MAX, [Mutable];
        /// How logs are written: `direct`, past the page cache into files that were filled with
        /// zeros ahead; `buffered`, through the page cache; `auto`, direct while writes are
        /// synced. Where the file system cannot write directly, or copies on write, all are
        /// buffered. A direct log needs sectors that the device writes as a whole or not at all.
        wal_io_mode: WalIoMode = WalIoMode::Auto, [Ironstone];
        /// The same as wal_io_mode = direct.
        use_direct_io_for_wal: bool = false, [Ironstone];
        /// What becomes of the last, partly filled sector of a direct log when the next group
        /// comes. `pad` is safe also where a power cut may destroy a sector that is being written,
        /// and costs the rest of a sector for each group. `atomic` is as safe without that cost on
        /// devices that do atomic writes (Linux 6.11 and a file system that passes them on); elsewhere
        /// `open` refuses it. With both, a log that grows through the page cache is filled up to the end
        /// of a page before each sync.
        wal_tail_policy: WalTailPolicy = WalTailPolicy::Rewrite, [Ironstone];
        /// How many durable writes of the log may be on their way at once; more than 1 needs
        /// wal_tail_policy = pad. One in a log that overwrites an older one.
        wal_pipeline_depth: u32 = 1, in 1..=8, [Ironstone];
        /// Microseconds from the start of one synced log write to the next, at least: more writers
        /// then share one, for disks that are paid by the write.
        wal_min_sync_interval: u64 = 0, in 0..=10_000_000, [Ironstone];
        /// Milliseconds after which unsynced writes are brought to the device, at the latest: a power cut
        /// then loses only the last of them. Nobody waits for that. 0 leaves it to the system.
        wal_sync_interval_ms: u64 = 0, in 0..=3_600_000, [Ironstone];
        /// Milliseconds after which a log write that is not done is told in LOG; 0 is never.
        wal_slow_io_ms: u64 = 1000, in 0..=3_600_000, [Ironstone];
        /// Milliseconds that writes wait for space on a full device, all together, before they fail with NoSpace.
        wal_no_space_wait_ms: u64 = 10_000, in 0..=3_600_000, [Ironstone];
        /// How many old logs are kept to be overwritten by new ones. Their records are written in
        /// the recyclable format. Without effect where RocksDB ignores it too: with
        /// wal_recovery_mode kTolerateCorruptedTailRecords or kAbsoluteConsistency, and where logs
        /// are archived.
        recycle_log_file_num: u64 = 0, in 0..=64;
        /// How the records of write-ahead logs are compressed: `kNoCompression` or `kZSTD`. With any
        /// other codec, named in a text, logs stay uncompressed, as in RocksDB. Logs of both sorts
        /// are always read.
        wal_compression: WalCompression = WalCompression::None;
        /// Whether the next group of writers begins while one is being inserted into the
        /// memtables. Groups that wait for the device always overlap like that.
        enable_pipelined_write: bool = false;
        /// Whether writes that have nothing for a memtable return without waiting for those
        /// before them to become visible.
        two_write_queues: bool = false;
        /// How many log files are kept filled with zeros ahead of use; 0 makes every log buffered.
        wal_pool_files: u32 = 1, in 0..=16, [Ironstone];
        /// Whether buffered logs are written by stores into memory while much is written without a sync,
        /// in writes of up to 4 KiB, on ext4, XFS and tmpfs, with a write buffer from 8 MiB on. A store
        /// costs a fraction of a system call. The process gets a handler for SIGBUS, which makes a page
        /// that cannot be written an error of the write; it passes on what does not concern it. Without
        /// effect with wal_recovery_mode kTolerateCorruptedTailRecords or kAbsoluteConsistency.
        wal_mapped: bool = true, [Ironstone];
        /// Whether tables are read past the page cache, so that the block cache is the only one. For data much
        /// larger than the memory: the page cache then keeps little that is asked for again. `open` refuses it
        /// where the file system cannot read directly.
        use_direct_reads: bool = false;
        /// How far down the tiers of the block cache the database goes: with `kVolatileTier`, its blocks stay out of the
        /// second tier of a cache that has one, so that other databases have it for themselves.
        lowest_used_cache_tier: CacheTier = CacheTier::NonVolatileBlock;
        /// How lookups of several keys, futures and iterators read the blocks that neither cache has: `uring`, many
        /// at once by io_uring; `pool`, by threads; `off`, one after the other; `auto`, by io_uring, or by threads
        /// where the kernel has none or does not allow it. LOG says why. `open` refuses `uring` there.
        read_io_mode: ReadIoMode = ReadIoMode::Auto, [Ironstone];
        /// Bytes of all memtables of all families at which one is flushed; 0 is no limit. Without
        /// effect where a write-buffer manager is given.
        db_write_buffer_size: u64 = 0;
        /// Whether the memtables of all families are flushed together, and their tables become part
        /// of the database all at once: families are then consistent after a crash even for writes
        /// with `disable_wal`.
        atomic_flush: bool = false;
        /// Bytes a second to which writers are slowed down, at most, when a trigger of a slowdown
        /// is met; 0 is 16 MiB. Before that they are held to what compactions can bear.
        delayed_write_rate: u64 = 16 << 20, in 0..=u64::MAX, [Mutable];
        /// Whether a flush or compaction fails that finds a single deletion over a deletion of the
        /// same key.
        enforce_single_del_contracts: bool = true;
        /// Bytes that the database may keep in memory: block cache, memtables, indexes and filters.
        /// Seven eighths of it are a block cache that the others are charged to; memtables get a
        /// quarter, and writers wait while they take more. It replaces `db_write_buffer_size`, the
        /// environment's block cache and its write-buffer manager. What flushes and compactions read
        /// and write just now is not counted. 0 is no limit; one that was set at open can be changed.
        memory_limit: u64 = 0, in 0..=1 << 50, [Mutable, Ironstone];
        /// Whether recovery flushes memtables when those of all families are larger than the
        /// write-buffer manager allows.
        enforce_write_buffer_manager_during_recovery: bool = true;
        /// Seconds between statistics in LOG; 0 is never.
        stats_dump_period_sec: u32 = 600, in 0..=u32::MAX, [Mutable];
        /// Whether `open` compares the unique ids of table files with the MANIFEST's.
        verify_sst_unique_id_in_manifest: bool = true;
        /// Whether `open` trusts the sizes of table files in the MANIFEST.
        skip_checking_sst_file_sizes_on_db_open: bool = false;
        /// Whether the last level is kept free for files that are ingested behind everything, and
        /// deletions are never dropped. To be set from the database's creation on.
        allow_ingest_behind: bool = false;
        /// The directory of the write-ahead logs; empty is the database's own. Created if missing,
        /// but not the directory above it. No other database may have its logs there.
        wal_dir: String = String::new();
        /// Seconds for which a log that is not needed any more is kept in `archive/` beside the
        /// logs, from its last change on; 0 is no limit by age. With this and
        /// `WAL_size_limit_MB` at 0, such logs are not kept at all.
        wal_ttl_seconds as "WAL_ttl_seconds": u64 = 0;
        /// MiB that the logs in `archive/` may take: so many of the newest are kept as would fit if
        /// each were as large as the largest. 0 is no limit by size.
        wal_size_limit_mb as "WAL_size_limit_MB": u64 = 0;
    }
}

impl DbOptions {
    /// The mode in which logs are written, from either of the two options.
    #[doc(hidden)]
    pub fn wal_mode(&self) -> WalIoMode {
        if self.use_direct_io_for_wal {
            WalIoMode::Direct
        } else {
            self.wal_io_mode
        }
    }

    /// [`DbOptions::delayed_write_rate`], with 0 replaced by the value that it stands for.
    #[doc(hidden)]
    pub fn delayed_rate(&self) -> u64 {
        match self.delayed_write_rate {
            0 => 16 << 20,
            rate => rate,
        }
    }

    /// Checks the rules between options, including RocksDB's own.
    pub(crate) fn validate_together(&self) -> Result<()> {
        let refuse = |what: &str, hint: &str| Err(Error::invalid_argument(what).hint(hint));
        if self.atomic_flush && self.enable_pipelined_write {
            return refuse(
                "atomic_flush is incompatible with enable_pipelined_write",
                "set one of them only",
            );
        }
        if self.two_write_queues && self.enable_pipelined_write {
            return refuse(
                "two_write_queues is not compatible with enable_pipelined_write",
                "set one of them only",
            );
        }
        self.check_kept()?;
        if self.wal_pipeline_depth > 1 && self.wal_tail_policy != WalTailPolicy::Pad {
            return refuse(
                "wal_pipeline_depth > 1 needs wal_tail_policy = pad: two writes must not touch \
                 one sector",
                "set wal_tail_policy = pad, or wal_pipeline_depth = 1",
            );
        }
        if self.use_direct_io_for_wal && self.wal_io_mode == WalIoMode::Buffered {
            return refuse(
                "use_direct_io_for_wal = true contradicts wal_io_mode = buffered",
                "set wal_io_mode = direct, or leave use_direct_io_for_wal out",
            );
        }
        Ok(())
    }

    /// Checks RocksDB's rules for options without effect here: it would refuse to load an OPTIONS file that breaks
    /// them.
    fn check_kept(&self) -> Result<()> {
        let is = |name: &str, value: &str| self.kept.get(DB_SECTION, name) == Some(value);
        let unordered = is("unordered_write", "true");
        let threads = self.kept.get(DB_SECTION, "read_io_executor_threads");
        let refused = [
            (
                unordered && self.enable_pipelined_write,
                "unordered_write is incompatible with enable_pipelined_write",
            ),
            (
                unordered && !self.allow_concurrent_memtable_write,
                "unordered_write is incompatible with allow_concurrent_memtable_write = false",
            ),
            (
                is("open_files_async", "true") && !is("skip_stats_update_on_db_open", "true"),
                "open_files_async requires skip_stats_update_on_db_open = true",
            ),
            (
                threads.is_some_and(|n| n == "0" || n.starts_with('-')),
                "read_io_executor_threads must be greater than 0",
            ),
        ];
        match refused.iter().find(|(is, _)| *is) {
            None => Ok(()),
            Some((_, what)) => Err(Error::invalid_argument(*what).hint("RocksDB refuses it too")),
        }
    }
}
