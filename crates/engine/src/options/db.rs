//! Options of a whole database. Names and defaults are RocksDB 7.8.3's.

use log::RecoveryMode;

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
        /// It is filled up with an empty batch and never written again.
        Pad = "pad",
    }
}

base::options! {
    /// Options of a whole database.
    pub struct DbOptions ["DBOptions"] {
        /// Whether `open` creates the database if there is none.
        create_if_missing: bool = false;
        /// Whether `open` creates column families that are asked for and do not exist.
        create_missing_column_families: bool = false;
        /// Whether `open` fails if the database exists.
        error_if_exists: bool = false;
        /// Threads for flushes and compactions together.
        max_background_jobs: i32 = 2, in 1..=1024, [Mutable];
        /// Bytes of all write-ahead logs at which the families that hold the oldest log alive
        /// are flushed; 0 means four times the sum of all write buffers.
        max_total_wal_size: u64 = 0, in 0..=u64::MAX, [Mutable];
        /// What damage in a write-ahead log means at `open`.
        wal_recovery_mode: RecoveryMode = RecoveryMode::PointInTimeRecovery;
        /// Whether `open` keeps the logs instead of flushing what it recovered from them.
        avoid_flush_during_recovery: bool = false;
        /// Whether `close` leaves unlogged writes (`disable_wal`) in memory, which loses them.
        avoid_flush_during_shutdown: bool = false, [Mutable];
        /// Whether the writers of a group insert into the memtable at the same time.
        allow_concurrent_memtable_write: bool = true;
        /// Bytes of batches that one write group takes into one log write, at most.
        max_write_batch_group_size_bytes: u64 = 1 << 20, in 1..=1 << 40;
        /// Whether log records stay in memory until the log is flushed by call.
        manual_wal_flush: bool = false;
        /// The least important message that goes to LOG.
        info_log_level: InfoLogLevel = InfoLogLevel::Info;
        /// How many LOG files are kept, the current one included.
        keep_log_file_num: u64 = 1000, in 1..=u64::MAX;
        /// Bytes after which a new MANIFEST is begun.
        max_manifest_file_size: u64 = 1 << 30, in 1..=u64::MAX;
        /// Bytes of a table file after which writeback is started; 0 leaves it to the system.
        bytes_per_sync: u64 = 0, in 0..=u64::MAX, [Mutable];
        /// Bytes of a log after which writeback is started; 0 leaves it to the system.
        wal_bytes_per_sync: u64 = 0, in 0..=u64::MAX, [Mutable];
        /// How logs are written: `direct`, past the page cache into files that were filled with
        /// zeros ahead; `buffered`, through the page cache; `auto`, direct while writes are
        /// synced. Where the file system cannot write directly, or copies on write, all are
        /// buffered. A direct log needs sectors that the device writes as a whole or not at all.
        wal_io_mode: WalIoMode = WalIoMode::Auto, [Ironstone];
        /// What becomes of the last, partly filled sector of a direct log when the next group
        /// comes. `pad` is safe also where a power cut may destroy a sector that is being written,
        /// and costs the rest of a sector for each group.
        wal_tail_policy: WalTailPolicy = WalTailPolicy::Rewrite, [Ironstone];
        /// How many durable writes of the log may be on their way at once; more than 1 needs
        /// wal_tail_policy = pad.
        wal_pipeline_depth: u32 = 1, in 1..=8, [Ironstone];
        /// Microseconds from the start of one synced log write to the next, at least: more writers
        /// then share one, for disks that are paid by the write.
        wal_min_sync_interval: u64 = 0, in 0..=10_000_000, [Ironstone];
        /// Milliseconds after which a log write that is not done is told in LOG; 0 is never.
        wal_slow_io_ms: u64 = 1000, in 0..=3_600_000, [Ironstone];
        /// Whether the next group of writers begins while one is being inserted into the
        /// memtables. Groups that wait for the device always overlap like that.
        enable_pipelined_write: bool = false;
        /// Whether writes that have nothing for a memtable return without waiting for those
        /// before them to become visible.
        two_write_queues: bool = false;
        /// How many log files are kept filled with zeros ahead of use; 0 makes every log buffered.
        wal_pool_files: u32 = 1, in 0..=16, [Ironstone];
        /// Bytes of all memtables of all families at which one is flushed; 0 is no limit.
        db_write_buffer_size: u64 = 0;
        /// Bytes a second to which writers are slowed down when flush or compaction lags.
        delayed_write_rate: u64 = 16 << 20, in 1..=u64::MAX, [Mutable];
        /// Seconds between statistics in LOG; 0 is never.
        stats_dump_period_sec: u32 = 600, in 0..=u32::MAX, [Mutable];
        /// Whether `open` compares the unique ids of table files with the MANIFEST's.
        verify_sst_unique_id_in_manifest: bool = true;
        /// Whether `open` trusts the sizes of table files in the MANIFEST.
        skip_checking_sst_file_sizes_on_db_open: bool = false;
    }
}
