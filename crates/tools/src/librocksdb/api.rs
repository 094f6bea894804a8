//! The functions of RocksDB's C API that the wrapper calls, as a table of pointers filled once.
//!
//! Signatures are those of `rocksdb/c.h` of RocksDB 7.8 and 11.8, which agree for every function
//! listed here. `required` functions must all be present; an `optional` one is `None` in
//! libraries that are too old for it.

use std::ffi::{c_char, c_int, c_uchar, c_void};

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub(super) struct $name([u8; 0]);
    )*};
}

opaque! {
    /// `rocksdb_t`
    Db;
    /// `rocksdb_options_t`
    Options;
    /// `rocksdb_block_based_table_options_t`
    TableOptions;
    /// `rocksdb_readoptions_t`
    ReadOptions;
    /// `rocksdb_writeoptions_t`
    WriteOptions;
    /// `rocksdb_flushoptions_t`
    FlushOptions;
    /// `rocksdb_compactoptions_t`
    CompactOptions;
    /// `rocksdb_column_family_handle_t`
    Family;
    /// `rocksdb_writebatch_t`
    Batch;
    /// `rocksdb_iterator_t`
    Iterator;
    /// `rocksdb_snapshot_t`
    Snapshot;
    /// `rocksdb_cache_t`
    Cache;
    /// `rocksdb_filterpolicy_t`
    FilterPolicy;
    /// `rocksdb_pinnableslice_t`
    Pinned;
    /// `rocksdb_ratelimiter_t`
    RateLimiter;
    /// `rocksdb_wait_for_compact_options_t`
    WaitOptions;
    /// `rocksdb_compactionfilter_t`
    Filter;
    /// `rocksdb_envoptions_t`
    EnvOptions;
    /// `rocksdb_sstfilewriter_t`
    SstFileWriter;
    /// `rocksdb_ingestexternalfileoptions_t`
    IngestOptions;
    /// `rocksdb_checkpoint_t`
    Checkpoint;
    /// `rocksdb_compaction_options_t`
    CompactionOptions;
    /// `rocksdb_perfcontext_t`
    PerfContext;
    /// `rocksdb_export_import_files_metadata_t`
    ExportMetadata;
    /// `rocksdb_import_column_family_options_t`
    ImportOptions;
    /// `rocksdb_livefiles_t`
    LiveFiles;
    /// `rocksdb_livefile_t`
    LiveFile;
    /// `rocksdb_backup_engine_t`
    BackupEngine;
    /// `rocksdb_backup_engine_info_t`
    BackupInfo;
    /// `rocksdb_restore_options_t`
    RestoreOptions;
    /// `rocksdb_env_t`
    Env;
    /// `rocksdb_comparator_t`
    Comparator;
    /// `rocksdb_logger_t`
    Logger;
    /// `rocksdb_hyper_clock_cache_options_t`
    ClockCacheOptions;
    /// `rocksdb_lru_cache_options_t`
    LruCacheOptions;
    /// `rocksdb_write_buffer_manager_t`
    WriteBufferManager;
}

/// Bytes that go in or out; not terminated.
pub(super) type Bytes = *const c_char;
/// The output of a function for its error text (`malloc`ed); null if there is none.
pub(super) type Err = *mut *mut c_char;
/// C's `unsigned char` used as a truth value.
pub(super) type Bool = c_uchar;

/// The callback of RocksDB for each value that a compaction writes. Arguments: state, level, key,
/// value, and the outputs for a new value and for whether there is one. Returns whether the value
/// is removed.
pub(super) type FilterFn = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    Bytes,
    usize,
    Bytes,
    usize,
    *mut *mut c_char,
    *mut usize,
    *mut Bool,
) -> Bool;

/// The callback of RocksDB that compares two keys. Arguments: state and the keys.
pub(super) type CompareFn = unsafe extern "C" fn(*mut c_void, Bytes, usize, Bytes, usize) -> c_int;

/// The function of this name.
///
/// # Safety
/// `F` must be the function's type, and it must not be called after `lib` is unloaded.
unsafe fn find<F: Copy>(lib: &libloading::Library, name: &str) -> Option<F> {
    // SAFETY: the caller's contract.
    let symbol = unsafe { lib.get::<F>(name.as_bytes()) };
    symbol.ok().map(|f| *f)
}

macro_rules! api {
    (
        required { $( $name:ident : fn($($arg:ty),*) $(-> $ret:ty)?; )* }
        optional { $( $opt:ident : fn($($oarg:ty),*) $(-> $oret:ty)?; )* }
    ) => {
        /// Pointers to the functions, named without their prefix `rocksdb_`.
        #[expect(non_snake_case, reason = "the C API's names")]
        pub(super) struct Api {
            $( pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?, )*
            $( pub(super) $opt: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>, )*
        }

        impl Api {
            /// Looks every function up; the error lists the required ones that are missing.
            ///
            /// # Safety
            /// Functions of these names in `lib` must have the signatures of RocksDB's C API,
            /// and the pointers must not be called after `lib` is unloaded.
            #[expect(non_snake_case, reason = "the C API's names")]
            pub(super) unsafe fn load(lib: &libloading::Library) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    // SAFETY: the caller vouches for the signature.
                    let $name: Option<unsafe extern "C" fn($($arg),*) $(-> $ret)?> = unsafe {
                        find(lib, concat!("rocksdb_", stringify!($name)))
                    };
                    if $name.is_none() {
                        missing.push(concat!("rocksdb_", stringify!($name)));
                    }
                )*
                $(
                    // SAFETY: the caller vouches for the signature.
                    let $opt: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?> = unsafe {
                        find(lib, concat!("rocksdb_", stringify!($opt)))
                    };
                )*
                $( let Some($name) = $name else { return Err(missing) }; )*
                Ok(Self { $($name,)* $($opt,)* })
            }

            /// The names of the required functions.
            pub(super) const REQUIRED: &'static [&'static str] =
                &[ $( concat!("rocksdb_", stringify!($name)), )* ];
        }
    };
}

api! {
    required {
        free: fn(*mut c_void);

        options_create: fn() -> *mut Options;
        options_destroy: fn(*mut Options);
        options_create_copy: fn(*mut Options) -> *mut Options;
        load_latest_options: fn(
            *const c_char, *mut Env, bool, *mut Cache, *mut *mut Options, *mut usize,
            *mut *mut *mut c_char, *mut *mut *mut Options, Err
        );
        load_latest_options_destroy: fn(*mut Options, *mut *mut c_char, *mut *mut Options, usize);
        create_default_env: fn() -> *mut Env;
        env_destroy: fn(*mut Env);
        get_options_from_string: fn(*const Options, *const c_char, *mut Options, Err);
        options_set_create_if_missing: fn(*mut Options, Bool);
        options_set_error_if_exists: fn(*mut Options, Bool);
        options_set_compression: fn(*mut Options, c_int);
        options_set_wal_recovery_mode: fn(*mut Options, c_int);
        options_set_block_based_table_factory: fn(*mut Options, *mut TableOptions);
        options_set_ratelimiter: fn(*mut Options, *mut RateLimiter);
        ratelimiter_destroy: fn(*mut RateLimiter);
        options_enable_statistics: fn(*mut Options);
        options_set_compaction_filter: fn(*mut Options, *mut Filter);
        compactionfilter_create: fn(
            *mut c_void, unsafe extern "C" fn(*mut c_void), FilterFn,
            unsafe extern "C" fn(*mut c_void) -> *const c_char
        ) -> *mut Filter;
        comparator_create: fn(
            *mut c_void, unsafe extern "C" fn(*mut c_void), CompareFn,
            unsafe extern "C" fn(*mut c_void) -> *const c_char
        ) -> *mut Comparator;
        options_set_comparator: fn(*mut Options, *mut Comparator);
        options_statistics_get_string: fn(*mut Options) -> *mut c_char;

        block_based_options_create: fn() -> *mut TableOptions;
        block_based_options_destroy: fn(*mut TableOptions);
        block_based_options_set_block_size: fn(*mut TableOptions, usize);
        block_based_options_set_block_restart_interval: fn(*mut TableOptions, c_int);
        block_based_options_set_format_version: fn(*mut TableOptions, c_int);
        block_based_options_set_block_cache: fn(*mut TableOptions, *mut Cache);
        block_based_options_set_no_block_cache: fn(*mut TableOptions, Bool);
        block_based_options_set_filter_policy: fn(*mut TableOptions, *mut FilterPolicy);
        block_based_options_set_cache_index_and_filter_blocks: fn(*mut TableOptions, Bool);
        cache_create_lru: fn(usize) -> *mut Cache;
        cache_destroy: fn(*mut Cache);
        filterpolicy_create_bloom_full: fn(f64) -> *mut FilterPolicy;

        readoptions_create: fn() -> *mut ReadOptions;
        readoptions_destroy: fn(*mut ReadOptions);
        readoptions_set_verify_checksums: fn(*mut ReadOptions, Bool);
        readoptions_set_fill_cache: fn(*mut ReadOptions, Bool);
        readoptions_set_snapshot: fn(*mut ReadOptions, *const Snapshot);
        readoptions_set_iterate_lower_bound: fn(*mut ReadOptions, Bytes, usize);
        readoptions_set_iterate_upper_bound: fn(*mut ReadOptions, Bytes, usize);
        readoptions_set_total_order_seek: fn(*mut ReadOptions, Bool);
        readoptions_set_prefix_same_as_start: fn(*mut ReadOptions, Bool);
        readoptions_set_tailing: fn(*mut ReadOptions, Bool);
        readoptions_set_readahead_size: fn(*mut ReadOptions, usize);
        readoptions_set_pin_data: fn(*mut ReadOptions, Bool);
        readoptions_set_ignore_range_deletions: fn(*mut ReadOptions, Bool);
        readoptions_set_read_tier: fn(*mut ReadOptions, c_int);
        readoptions_set_max_skippable_internal_keys: fn(*mut ReadOptions, u64);
        readoptions_set_deadline: fn(*mut ReadOptions, u64);
        writeoptions_create: fn() -> *mut WriteOptions;
        writeoptions_destroy: fn(*mut WriteOptions);
        writeoptions_set_sync: fn(*mut WriteOptions, Bool);
        writeoptions_disable_WAL: fn(*mut WriteOptions, c_int);
        writeoptions_set_no_slowdown: fn(*mut WriteOptions, Bool);
        flushoptions_create: fn() -> *mut FlushOptions;
        flushoptions_destroy: fn(*mut FlushOptions);
        compactoptions_create: fn() -> *mut CompactOptions;
        compactoptions_destroy: fn(*mut CompactOptions);
        compactoptions_set_bottommost_level_compaction: fn(*mut CompactOptions, Bool);

        open_column_families: fn(
            *const Options, *const c_char, c_int, *const *const c_char, *const *const Options,
            *mut *mut Family, Err
        ) -> *mut Db;
        open_for_read_only_column_families: fn(
            *const Options, *const c_char, c_int, *const *const c_char, *const *const Options,
            *mut *mut Family, Bool, Err
        ) -> *mut Db;
        close: fn(*mut Db);
        destroy_db: fn(*const Options, *const c_char, Err);
        list_column_families: fn(*const Options, *const c_char, *mut usize, Err) -> *mut *mut c_char;
        list_column_families_destroy: fn(*mut *mut c_char, usize);
        create_column_family: fn(*mut Db, *const Options, *const c_char, Err) -> *mut Family;
        drop_column_family: fn(*mut Db, *mut Family, Err);
        column_family_handle_destroy: fn(*mut Family);

        put_cf: fn(*mut Db, *const WriteOptions, *mut Family, Bytes, usize, Bytes, usize, Err);
        delete_cf: fn(*mut Db, *const WriteOptions, *mut Family, Bytes, usize, Err);
        singledelete_cf: fn(*mut Db, *const WriteOptions, *mut Family, Bytes, usize, Err);
        delete_range_cf: fn(
            *mut Db, *const WriteOptions, *mut Family, Bytes, usize, Bytes, usize, Err
        );
        merge_cf: fn(*mut Db, *const WriteOptions, *mut Family, Bytes, usize, Bytes, usize, Err);
        write: fn(*mut Db, *const WriteOptions, *mut Batch, Err);
        get_pinned_cf: fn(*mut Db, *const ReadOptions, *mut Family, Bytes, usize, Err) -> *mut Pinned;
        pinnableslice_value: fn(*const Pinned, *mut usize) -> Bytes;
        pinnableslice_destroy: fn(*mut Pinned);

        writebatch_create: fn() -> *mut Batch;
        writebatch_create_from: fn(Bytes, usize) -> *mut Batch;
        writebatch_destroy: fn(*mut Batch);
        writebatch_clear: fn(*mut Batch);
        writebatch_count: fn(*mut Batch) -> c_int;
        writebatch_data: fn(*mut Batch, *mut usize) -> Bytes;
        writebatch_put: fn(*mut Batch, Bytes, usize, Bytes, usize);
        writebatch_put_cf: fn(*mut Batch, *mut Family, Bytes, usize, Bytes, usize);
        writebatch_merge_cf: fn(*mut Batch, *mut Family, Bytes, usize, Bytes, usize);
        writebatch_delete: fn(*mut Batch, Bytes, usize);
        writebatch_delete_cf: fn(*mut Batch, *mut Family, Bytes, usize);
        writebatch_singledelete_cf: fn(*mut Batch, *mut Family, Bytes, usize);
        writebatch_delete_range_cf: fn(*mut Batch, *mut Family, Bytes, usize, Bytes, usize);
        writebatch_put_log_data: fn(*mut Batch, Bytes, usize);

        create_iterator_cf: fn(*mut Db, *const ReadOptions, *mut Family) -> *mut Iterator;
        iter_destroy: fn(*mut Iterator);
        iter_valid: fn(*const Iterator) -> Bool;
        iter_seek_to_first: fn(*mut Iterator);
        iter_seek_to_last: fn(*mut Iterator);
        iter_seek: fn(*mut Iterator, Bytes, usize);
        iter_seek_for_prev: fn(*mut Iterator, Bytes, usize);
        iter_next: fn(*mut Iterator);
        iter_prev: fn(*mut Iterator);
        iter_key: fn(*const Iterator, *mut usize) -> Bytes;
        iter_value: fn(*const Iterator, *mut usize) -> Bytes;
        iter_get_error: fn(*const Iterator, Err);
        create_snapshot: fn(*mut Db) -> *const Snapshot;
        release_snapshot: fn(*mut Db, *const Snapshot);

        flush_cf: fn(*mut Db, *const FlushOptions, *mut Family, Err);
        flush_wal: fn(*mut Db, Bool, Err);
        compact_range_cf_opt: fn(
            *mut Db, *mut Family, *mut CompactOptions, Bytes, usize, Bytes, usize
        );
        property_int_cf: fn(*mut Db, *mut Family, *const c_char, *mut u64) -> c_int;
        property_value_cf: fn(*mut Db, *mut Family, *const c_char) -> *mut c_char;
        set_options_cf: fn(
            *mut Db, *mut Family, c_int, *const *const c_char, *const *const c_char, Err
        );
        get_latest_sequence_number: fn(*mut Db) -> u64;
        approximate_sizes_cf: fn(
            *mut Db, *mut Family, c_int, *const Bytes, *const usize, *const Bytes, *const usize,
            *mut u64, Err
        );
        delete_file_in_range_cf: fn(*mut Db, *mut Family, Bytes, usize, Bytes, usize, Err);
        open_column_families_with_ttl: fn(
            *const Options, *const c_char, c_int, *const *const c_char, *const *const Options,
            *mut *mut Family, *const c_int, Err
        ) -> *mut Db;
        open_as_secondary_column_families: fn(
            *const Options, *const c_char, *const c_char, c_int, *const *const c_char,
            *const *const Options, *mut *mut Family, Err
        ) -> *mut Db;
        try_catch_up_with_primary: fn(*mut Db, Err);

        envoptions_create: fn() -> *mut EnvOptions;
        envoptions_destroy: fn(*mut EnvOptions);
        sstfilewriter_create: fn(*const EnvOptions, *const Options) -> *mut SstFileWriter;
        sstfilewriter_open: fn(*mut SstFileWriter, *const c_char, Err);
        sstfilewriter_put: fn(*mut SstFileWriter, Bytes, usize, Bytes, usize, Err);
        sstfilewriter_merge: fn(*mut SstFileWriter, Bytes, usize, Bytes, usize, Err);
        sstfilewriter_delete: fn(*mut SstFileWriter, Bytes, usize, Err);
        sstfilewriter_delete_range: fn(*mut SstFileWriter, Bytes, usize, Bytes, usize, Err);
        sstfilewriter_finish: fn(*mut SstFileWriter, Err);
        sstfilewriter_destroy: fn(*mut SstFileWriter);
        ingestexternalfileoptions_create: fn() -> *mut IngestOptions;
        ingestexternalfileoptions_destroy: fn(*mut IngestOptions);
        ingestexternalfileoptions_set_move_files: fn(*mut IngestOptions, Bool);
        ingestexternalfileoptions_set_ingest_behind: fn(*mut IngestOptions, Bool);
        ingest_external_file_cf: fn(
            *mut Db, *mut Family, *const *const c_char, usize, *const IngestOptions, Err
        );
        checkpoint_object_create: fn(*mut Db, Err) -> *mut Checkpoint;
        checkpoint_object_destroy: fn(*mut Checkpoint);
        checkpoint_create: fn(*mut Checkpoint, *const c_char, u64, Err);
        livefiles_count: fn(*const LiveFiles) -> c_int;
        livefiles_name: fn(*const LiveFiles, c_int) -> *const c_char;
        livefiles_level: fn(*const LiveFiles, c_int) -> c_int;
        livefiles_size: fn(*const LiveFiles, c_int) -> usize;
        livefiles_smallestkey: fn(*const LiveFiles, c_int, *mut usize) -> Bytes;
        livefiles_largestkey: fn(*const LiveFiles, c_int, *mut usize) -> Bytes;
        livefiles_destroy: fn(*const LiveFiles);

        backup_engine_open: fn(*const Options, *const c_char, Err) -> *mut BackupEngine;
        backup_engine_close: fn(*mut BackupEngine);
        backup_engine_create_new_backup_flush: fn(*mut BackupEngine, *mut Db, Bool, Err);
        backup_engine_purge_old_backups: fn(*mut BackupEngine, u32, Err);
        backup_engine_verify_backup: fn(*mut BackupEngine, u32, Err);
        backup_engine_restore_db_from_latest_backup: fn(
            *mut BackupEngine, *const c_char, *const c_char, *const RestoreOptions, Err
        );
        backup_engine_restore_db_from_backup: fn(
            *mut BackupEngine, *const c_char, *const c_char, *const RestoreOptions, u32, Err
        );
        backup_engine_get_backup_info: fn(*mut BackupEngine) -> *const BackupInfo;
        backup_engine_info_count: fn(*const BackupInfo) -> c_int;
        backup_engine_info_timestamp: fn(*const BackupInfo, c_int) -> i64;
        backup_engine_info_backup_id: fn(*const BackupInfo, c_int) -> u32;
        backup_engine_info_size: fn(*const BackupInfo, c_int) -> u64;
        backup_engine_info_number_files: fn(*const BackupInfo, c_int) -> u32;
        backup_engine_info_destroy: fn(*const BackupInfo);
        restore_options_create: fn() -> *mut RestoreOptions;
        restore_options_destroy: fn(*mut RestoreOptions);
    }
    optional {
        set_db_options: fn(*mut Db, c_int, *const *const c_char, *const *const c_char, Err);
        readoptions_set_auto_prefix_mode: fn(*mut ReadOptions, Bool);
        readoptions_set_value_size_soft_limit: fn(*mut ReadOptions, u64);
        readoptions_set_auto_refresh_iterator_with_snapshot: fn(*mut ReadOptions, Bool);
        iter_refresh: fn(*const Iterator, Err);
        batched_multi_get_cf: fn(
            *mut Db, *const ReadOptions, *mut Family, usize, *const Bytes, *const usize,
            *mut *mut Pinned, *mut *mut c_char, Bool
        );
        ingestexternalfileoptions_set_write_global_seqno: fn(*mut IngestOptions, Bool);
        checkpoint_export_column_family: fn(
            *mut Checkpoint, *mut Family, *const c_char, Err
        ) -> *mut ExportMetadata;
        create_column_family_with_import: fn(
            *mut Db, *mut Options, *const c_char, *mut ImportOptions, *mut ExportMetadata, Err
        ) -> *mut Family;
        import_column_family_options_create: fn() -> *mut ImportOptions;
        import_column_family_options_destroy: fn(*mut ImportOptions);
        export_import_files_metadata_create: fn() -> *mut ExportMetadata;
        export_import_files_metadata_destroy: fn(*mut ExportMetadata);
        export_import_files_metadata_set_db_comparator_name: fn(*mut ExportMetadata, *mut c_char);
        export_import_files_metadata_set_files: fn(*mut ExportMetadata, *mut LiveFiles);
        export_import_files_metadata_get_files: fn(*mut ExportMetadata) -> *mut LiveFiles;
        livefiles_directory: fn(*const LiveFiles, c_int) -> *const c_char;
        livefiles_smallest_seqno: fn(*const LiveFiles, c_int) -> u64;
        livefiles_largest_seqno: fn(*const LiveFiles, c_int) -> u64;
        livefiles_create: fn() -> *mut LiveFiles;
        livefiles_add: fn(*mut LiveFiles, *mut LiveFile);
        livefile_create: fn() -> *mut LiveFile;
        livefile_set_level: fn(*mut LiveFile, c_int);
        livefile_set_name: fn(*mut LiveFile, *const c_char);
        livefile_set_directory: fn(*mut LiveFile, *const c_char);
        livefile_set_size: fn(*mut LiveFile, usize);
        livefile_set_smallest_key: fn(*mut LiveFile, Bytes, usize);
        livefile_set_largest_key: fn(*mut LiveFile, Bytes, usize);
        livefile_set_smallest_seqno: fn(*mut LiveFile, u64);
        livefile_set_largest_seqno: fn(*mut LiveFile, u64);
        get_into_buffer_cf: fn(
            *mut Db, *const ReadOptions, *mut Family, Bytes, usize, *mut c_char, usize, *mut usize,
            *mut Bool, Err
        ) -> Bool;
        wait_for_compact_options_create: fn() -> *mut WaitOptions;
        wait_for_compact_options_destroy: fn(*mut WaitOptions);
        wait_for_compact: fn(*mut Db, *mut WaitOptions, Err);
        livefiles: fn(*mut Db) -> *const LiveFiles;
        livefiles_column_family_name: fn(*const LiveFiles, c_int) -> *const c_char;
        compaction_options_create: fn() -> *mut CompactionOptions;
        compaction_options_destroy: fn(*mut CompactionOptions);
        compaction_options_set_output_file_size_limit: fn(*mut CompactionOptions, u64);
        compact_files_cf: fn(
            *mut Db, *mut Family, *const CompactionOptions, *const *const c_char, usize, c_int,
            c_int, *mut *mut *mut c_char, *mut usize, *mut c_void, Err
        );
        compact_files_output_file_names_destroy: fn(*mut *mut c_char, usize);
        verify_checksum: fn(*mut Db, Err);
        verify_file_checksums: fn(*mut Db, Err);
        set_perf_level: fn(c_int);
        perfcontext_create: fn() -> *mut PerfContext;
        perfcontext_reset: fn(*mut PerfContext);
        perfcontext_report: fn(*mut PerfContext, Bool) -> *mut c_char;
        perfcontext_destroy: fn(*mut PerfContext);
        ratelimiter_create_with_mode: fn(i64, i64, i32, c_int, Bool) -> *mut RateLimiter;
        readoptions_set_async_io: fn(*mut ReadOptions, Bool);
        readoptions_set_adaptive_readahead: fn(*mut ReadOptions, Bool);
        readoptions_set_auto_readahead_size: fn(*mut ReadOptions, Bool);
        readoptions_set_optimize_multiget_for_io: fn(*mut ReadOptions, Bool);
        readoptions_set_rate_limiter_priority: fn(*mut ReadOptions, c_int);
        writeoptions_set_rate_limiter_priority: fn(*mut WriteOptions, c_int);
        writebatch_create_with_params: fn(usize, usize, usize, usize) -> *mut Batch;
        options_set_statistics_level: fn(*mut Options, c_int);
        options_set_row_cache: fn(*mut Options, *mut Cache);
        options_set_info_log: fn(*mut Options, *mut Logger);
        logger_create_stderr_logger: fn(c_int, *const c_char) -> *mut Logger;
        logger_destroy: fn(*mut Logger);
        options_set_write_buffer_manager: fn(*mut Options, *mut WriteBufferManager);
        write_buffer_manager_create_with_cache: fn(
            usize, *const Cache, bool
        ) -> *mut WriteBufferManager;
        write_buffer_manager_destroy: fn(*mut WriteBufferManager);
        hyper_clock_cache_options_create: fn(usize, usize) -> *mut ClockCacheOptions;
        hyper_clock_cache_options_set_num_shard_bits: fn(*mut ClockCacheOptions, c_int);
        hyper_clock_cache_options_destroy: fn(*mut ClockCacheOptions);
        cache_create_hyper_clock_opts: fn(*const ClockCacheOptions) -> *mut Cache;
        lru_cache_options_create: fn() -> *mut LruCacheOptions;
        lru_cache_options_set_capacity: fn(*mut LruCacheOptions, usize);
        lru_cache_options_set_num_shard_bits: fn(*mut LruCacheOptions, c_int);
        lru_cache_options_destroy: fn(*mut LruCacheOptions);
        cache_create_lru_opts: fn(*const LruCacheOptions) -> *mut Cache;
        env_set_background_threads: fn(*mut Env, c_int);
        env_set_high_priority_background_threads: fn(*mut Env, c_int);
        env_set_bottom_priority_background_threads: fn(*mut Env, c_int);
        env_lower_thread_pool_io_priority: fn(*mut Env);
        env_lower_high_priority_thread_pool_io_priority: fn(*mut Env);
        env_lower_thread_pool_cpu_priority: fn(*mut Env);
        env_lower_high_priority_thread_pool_cpu_priority: fn(*mut Env);
        ingestexternalfileoptions_set_fill_cache: fn(*mut IngestOptions, Bool);
        ingestexternalfileoptions_set_prefetch_lmax_index_and_filter_blocks: fn(
            *mut IngestOptions, Bool
        );
        ingestexternalfileoptions_set_file_opening_threads: fn(*mut IngestOptions, c_int);
    }
}
