//! Per-thread counters of the cost of operations: RocksDB's perf context and IO stats context.
//!
//! Each thread has its own counters, so reading and resetting need no lock, and a caller can measure
//! one call. Off by default: [`set_level`] turns counting on for the calling thread. Counters that are
//! not implemented stay 0, and are not printed.
//!
//! ```
//! use base::perf::{self, PerfCounter, PerfLevel};
//! perf::set_level(PerfLevel::EnableCount);
//! perf::reset();
//! perf::count(PerfCounter::BlockReadCount, 2);
//! assert_eq!(perf::get(PerfCounter::BlockReadCount), 2);
//! assert_eq!(perf::report(), "block_read_count = 2");
//! perf::set_level(PerfLevel::Disable);
//! ```

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;

use crate::clock::Clock;

/// How much is counted: each level includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PerfLevel {
    /// Nothing.
    Disable = 1,
    /// Counts and bytes.
    EnableCount = 2,
    /// Times too.
    EnableTimeExceptForMutex = 3,
    /// Everything.
    EnableTime = 5,
}

macro_rules! counters {
    ($( $variant:ident = $name:literal, )*) => {
        /// What is counted, by the name of RocksDB's field. Names that end in `time` or `nanos`
        /// are nanoseconds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum PerfCounter {
            $( #[doc = concat!("`", $name, "`")] $variant, )*
        }

        impl PerfCounter {
            /// All of them: the perf context's, then the IO stats context's.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),* ];

            /// RocksDB's name.
            pub fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $name, )*
                }
            }
        }
    };
}

counters! {
    UserKeyComparisonCount = "user_key_comparison_count",
    BlockCacheHitCount = "block_cache_hit_count",
    BlockReadCount = "block_read_count",
    BlockReadByte = "block_read_byte",
    BlockReadTime = "block_read_time",
    BlockCacheIndexHitCount = "block_cache_index_hit_count",
    BlockCacheStandaloneHandleCount = "block_cache_standalone_handle_count",
    BlockCacheRealHandleCount = "block_cache_real_handle_count",
    IndexBlockReadCount = "index_block_read_count",
    BlockCacheFilterHitCount = "block_cache_filter_hit_count",
    FilterBlockReadCount = "filter_block_read_count",
    CompressionDictBlockReadCount = "compression_dict_block_read_count",
    SecondaryCacheHitCount = "secondary_cache_hit_count",
    CompressedSecCacheInsertRealCount = "compressed_sec_cache_insert_real_count",
    CompressedSecCacheInsertDummyCount = "compressed_sec_cache_insert_dummy_count",
    CompressedSecCacheUncompressedBytes = "compressed_sec_cache_uncompressed_bytes",
    CompressedSecCacheCompressedBytes = "compressed_sec_cache_compressed_bytes",
    BlockChecksumTime = "block_checksum_time",
    BlockDecompressTime = "block_decompress_time",
    GetReadBytes = "get_read_bytes",
    MultigetReadBytes = "multiget_read_bytes",
    IterReadBytes = "iter_read_bytes",
    BlobCacheHitCount = "blob_cache_hit_count",
    BlobReadCount = "blob_read_count",
    BlobReadByte = "blob_read_byte",
    BlobReadTime = "blob_read_time",
    BlobChecksumTime = "blob_checksum_time",
    BlobDecompressTime = "blob_decompress_time",
    InternalKeySkippedCount = "internal_key_skipped_count",
    InternalDeleteSkippedCount = "internal_delete_skipped_count",
    InternalRecentSkippedCount = "internal_recent_skipped_count",
    InternalMergeCount = "internal_merge_count",
    InternalRangeDelReseekCount = "internal_range_del_reseek_count",
    GetSnapshotTime = "get_snapshot_time",
    GetFromMemtableTime = "get_from_memtable_time",
    GetFromMemtableCount = "get_from_memtable_count",
    GetPostProcessTime = "get_post_process_time",
    GetFromOutputFilesTime = "get_from_output_files_time",
    SeekOnMemtableTime = "seek_on_memtable_time",
    SeekOnMemtableCount = "seek_on_memtable_count",
    NextOnMemtableCount = "next_on_memtable_count",
    PrevOnMemtableCount = "prev_on_memtable_count",
    SeekChildSeekTime = "seek_child_seek_time",
    SeekChildSeekCount = "seek_child_seek_count",
    SeekMinHeapTime = "seek_min_heap_time",
    SeekMaxHeapTime = "seek_max_heap_time",
    SeekInternalSeekTime = "seek_internal_seek_time",
    FindNextUserEntryTime = "find_next_user_entry_time",
    WriteWalTime = "write_wal_time",
    WriteMemtableTime = "write_memtable_time",
    WriteDelayTime = "write_delay_time",
    WriteSchedulingFlushesCompactionsTime = "write_scheduling_flushes_compactions_time",
    WritePreAndPostProcessTime = "write_pre_and_post_process_time",
    WriteThreadWaitNanos = "write_thread_wait_nanos",
    DbMutexLockNanos = "db_mutex_lock_nanos",
    DbConditionWaitNanos = "db_condition_wait_nanos",
    MergeOperatorTimeNanos = "merge_operator_time_nanos",
    ReadIndexBlockNanos = "read_index_block_nanos",
    ReadFilterBlockNanos = "read_filter_block_nanos",
    NewTableBlockIterNanos = "new_table_block_iter_nanos",
    NewTableIteratorNanos = "new_table_iterator_nanos",
    BlockSeekNanos = "block_seek_nanos",
    FindTableNanos = "find_table_nanos",
    BloomMemtableHitCount = "bloom_memtable_hit_count",
    BloomMemtableMissCount = "bloom_memtable_miss_count",
    BloomSstHitCount = "bloom_sst_hit_count",
    BloomSstMissCount = "bloom_sst_miss_count",
    KeyLockWaitTime = "key_lock_wait_time",
    KeyLockWaitCount = "key_lock_wait_count",
    EnvNewSequentialFileNanos = "env_new_sequential_file_nanos",
    EnvNewRandomAccessFileNanos = "env_new_random_access_file_nanos",
    EnvNewWritableFileNanos = "env_new_writable_file_nanos",
    EnvReuseWritableFileNanos = "env_reuse_writable_file_nanos",
    EnvNewRandomRwFileNanos = "env_new_random_rw_file_nanos",
    EnvNewDirectoryNanos = "env_new_directory_nanos",
    EnvFileExistsNanos = "env_file_exists_nanos",
    EnvGetChildrenNanos = "env_get_children_nanos",
    EnvGetChildrenFileAttributesNanos = "env_get_children_file_attributes_nanos",
    EnvDeleteFileNanos = "env_delete_file_nanos",
    EnvCreateDirNanos = "env_create_dir_nanos",
    EnvCreateDirIfMissingNanos = "env_create_dir_if_missing_nanos",
    EnvDeleteDirNanos = "env_delete_dir_nanos",
    EnvGetFileSizeNanos = "env_get_file_size_nanos",
    EnvGetFileModificationTimeNanos = "env_get_file_modification_time_nanos",
    EnvRenameFileNanos = "env_rename_file_nanos",
    EnvLinkFileNanos = "env_link_file_nanos",
    EnvLockFileNanos = "env_lock_file_nanos",
    EnvUnlockFileNanos = "env_unlock_file_nanos",
    EnvNewLoggerNanos = "env_new_logger_nanos",
    GetCpuNanos = "get_cpu_nanos",
    IterNextCpuNanos = "iter_next_cpu_nanos",
    IterPrevCpuNanos = "iter_prev_cpu_nanos",
    IterSeekCpuNanos = "iter_seek_cpu_nanos",
    EncryptDataNanos = "encrypt_data_nanos",
    DecryptDataNanos = "decrypt_data_nanos",
    NumberAsyncSeek = "number_async_seek",
    IoBytesWritten = "bytes_written",
    IoBytesRead = "bytes_read",
    IoOpenNanos = "open_nanos",
    IoAllocateNanos = "allocate_nanos",
    IoWriteNanos = "write_nanos",
    IoReadNanos = "read_nanos",
    IoRangeSyncNanos = "range_sync_nanos",
    IoFsyncNanos = "fsync_nanos",
    IoPrepareWriteNanos = "prepare_write_nanos",
    IoLoggerNanos = "logger_nanos",
    IoCpuWriteNanos = "cpu_write_nanos",
    IoCpuReadNanos = "cpu_read_nanos",
}

thread_local! {
    static LEVEL: Cell<u8> = const { Cell::new(PerfLevel::Disable as u8) };
    static COUNTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Sets how much the calling thread counts.
pub fn set_level(level: PerfLevel) {
    LEVEL.set(level as u8);
}

/// How much the calling thread counts.
pub fn level() -> PerfLevel {
    match LEVEL.get() {
        1 => PerfLevel::Disable,
        2 => PerfLevel::EnableCount,
        3 => PerfLevel::EnableTimeExceptForMutex,
        _ => PerfLevel::EnableTime,
    }
}

/// Adds `n` to a counter of the calling thread, if it counts.
#[inline]
pub fn count(counter: PerfCounter, n: u64) {
    if LEVEL.get() > PerfLevel::Disable as u8 {
        add(counter, n);
    }
}

#[cold]
fn add(counter: PerfCounter, n: u64) {
    COUNTS.with_borrow_mut(|counts| {
        if counts.is_empty() {
            counts.resize(PerfCounter::ALL.len(), 0);
        }
        counts[counter as usize] += n;
    });
}

/// The current time in nanoseconds, if the calling thread counts times; to be passed to [`stop`].
#[inline]
pub fn start(clock: &dyn Clock) -> Option<u64> {
    (LEVEL.get() > PerfLevel::EnableCount as u8).then(|| clock.monotonic_nanos())
}

/// Adds the nanoseconds since [`start`] to a counter.
#[inline]
pub fn stop(counter: PerfCounter, clock: &dyn Clock, started: Option<u64>) {
    if let Some(started) = started {
        add(counter, clock.monotonic_nanos().saturating_sub(started));
    }
}

/// The value of a counter of the calling thread.
pub fn get(counter: PerfCounter) -> u64 {
    COUNTS.with_borrow(|counts| counts.get(counter as usize).copied().unwrap_or(0))
}

/// Sets the calling thread's counters to 0.
pub fn reset() {
    COUNTS.with_borrow_mut(Vec::clear);
}

/// The calling thread's counters that are not 0, as RocksDB prints them: `name = value, …`.
pub fn report() -> String {
    let mut out = String::new();
    for &counter in PerfCounter::ALL {
        let n = get(counter);
        if n > 0 {
            let comma = if out.is_empty() { "" } else { ", " };
            write!(out, "{comma}{} = {n}", counter.name()).expect("a String takes all text");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_for_itself_and_only_when_asked() {
        count(PerfCounter::BlockReadCount, 1);
        assert_eq!(get(PerfCounter::BlockReadCount), 0);
        set_level(PerfLevel::EnableCount);
        count(PerfCounter::BlockReadCount, 1);
        count(PerfCounter::IoBytesRead, 9);
        std::thread::scope(|s| {
            s.spawn(|| {
                assert_eq!(level(), PerfLevel::Disable);
                assert_eq!(get(PerfCounter::BlockReadCount), 0);
            });
        });
        assert_eq!(report(), "block_read_count = 1, bytes_read = 9");
        reset();
        assert_eq!(report(), "");
    }

    #[test]
    fn times_need_a_higher_level() {
        let clock = crate::clock::SystemClock::shared();
        set_level(PerfLevel::EnableCount);
        assert_eq!(start(clock.as_ref()), None);
        set_level(PerfLevel::EnableTime);
        let started = start(clock.as_ref());
        assert!(started.is_some());
        stop(PerfCounter::BlockReadTime, clock.as_ref(), started);
        stop(PerfCounter::BlockReadTime, clock.as_ref(), None);
    }
}
