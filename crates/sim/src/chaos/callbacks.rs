//! User code that the database calls: it panics at random, and calls the database in turn.

use std::cmp::Ordering;
use std::sync::{Arc, Weak};

use base::sync::{Mutex, PoisonError};
use ironstone::listener::{
    BackgroundErrorReason, BackgroundErrorRecoveryInfo, CompactionJobInfo, FlushJobInfo,
    MemTableInfo, SubcompactionJobInfo, TableFileCreationBriefInfo, TableFileCreationInfo,
    TableFileDeletionInfo, WriteStallInfo,
};
use ironstone::{
    CompactionFilter, CompactionFilterFactory, Db, Error, EventListener, FilterContext,
    FilterDecision, FilterValue, MergeOperator, PartitionerContext, PartitionerRequest,
    SstPartitioner, SstPartitionerFactory, SstPartitionerFixedPrefix, UserComparator, WriteBatch,
    WriteOptions, merge_operators::UInt64AddOperator,
};

use super::trouble::Trouble;
use super::watch::note;

/// One in so many calls of a listener does something expensive.
const UPDATES_ONE_IN: u64 = 50;

/// One in so many calls of a listener writes.
const WRITES_ONE_IN: u64 = 5;

/// Gives user code access to the database while it is open.
#[derive(Debug, Default)]
pub(super) struct Home(Mutex<Weak<Db>>);

impl Home {
    pub(super) fn set(&self, db: Weak<Db>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = db;
    }

    pub(super) fn db(&self) -> Option<Arc<Db>> {
        let home = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        home.upgrade()
    }
}

/// A listener that reads, writes and panics.
#[derive(Debug)]
pub(super) struct Ear {
    pub trouble: Arc<Trouble>,
    pub home: Arc<Home>,
    pub reads: bool,
    pub writes: bool,
}

/// A write that does not wait: the caller of user code may hold the lock of the log, or have paused jobs.
pub(super) fn write_without_waiting(db: &Db) {
    let options = WriteOptions {
        no_slowdown: true,
        ..WriteOptions::default()
    };
    let mut batch = WriteBatch::new();
    if batch.put("from users' code", "x").is_ok() {
        drop(db.with(&options).write_async(batch));
    }
}

impl Ear {
    fn told(&self) {
        if let Some(db) = self.home.db().filter(|_| self.reads) {
            let seq = db.latest_sequence_number();
            drop(db.get(b"anything"));
            db.int_property("rocksdb.cur-size-all-mem-tables");
            if self.trouble.one_in(UPDATES_ONE_IN) {
                drop(db.get_updates_since(seq)); // reads a log from its start
            }
            drop(db.snapshot());
            if self.writes && self.trouble.one_in(WRITES_ONE_IN) {
                write_without_waiting(&db);
            }
        }
        self.trouble.maybe_panic();
    }
}

impl EventListener for Ear {
    fn on_flush_begin(&self, _: &FlushJobInfo) {
        self.told();
    }
    fn on_flush_completed(&self, info: &FlushJobInfo) {
        note(format!("flushed {}: {:?}", info.cf_name, info.flush_reason));
        self.told();
    }
    fn on_compaction_begin(&self, info: &CompactionJobInfo) {
        note(format!(
            "compacting {} for {}: {:?} of level {} to level {}",
            info.cf_name,
            info.compaction_reason,
            info.input_files,
            info.base_input_level,
            info.output_level
        ));
        self.told();
    }
    fn on_compaction_completed(&self, info: &CompactionJobInfo) {
        note(format!(
            "compacted {}: {}, {:?} of level {} to {:?} of level {}, {} to {} bytes",
            info.cf_name,
            info.compaction_reason,
            info.input_files,
            info.base_input_level,
            info.output_files,
            info.output_level,
            info.total_input_bytes,
            info.total_output_bytes
        ));
        self.told();
    }
    fn on_subcompaction_begin(&self, _: &SubcompactionJobInfo) {
        self.told();
    }
    fn on_table_file_creation_started(&self, _: &TableFileCreationBriefInfo) {
        self.told();
    }
    fn on_table_file_created(&self, _: &TableFileCreationInfo) {
        self.told();
    }
    fn on_table_file_deleted(&self, _: &TableFileDeletionInfo) {
        self.told();
    }
    fn on_memtable_sealed(&self, _: &MemTableInfo) {
        self.told();
    }
    fn on_stall_conditions_changed(&self, _: &WriteStallInfo) {
        self.told();
    }
    fn on_column_family_handle_deletion_started(&self, _: &str) {
        self.told();
    }
    fn on_background_error(&self, reason: BackgroundErrorReason, error: &Error) {
        note(format!("background error of {reason:?}: {error}"));
        self.told();
    }
    fn on_error_recovery_begin(&self, _: BackgroundErrorReason, _: &Error) {
        self.told();
    }
    fn on_error_recovery_end(&self, info: &BackgroundErrorRecoveryInfo) {
        note(format!("recovery ends: {:?}", info.new_bg_error));
        self.told();
    }
}

/// A merge operator that sums, and panics.
#[derive(Debug)]
pub(super) struct Sum(pub Arc<Trouble>);

impl MergeOperator for Sum {
    fn name(&self) -> &'static str {
        UInt64AddOperator::NAME
    }

    fn full_merge(&self, key: &[u8], existing: Option<&[u8]>, ops: &[&[u8]]) -> Option<Vec<u8>> {
        self.0.maybe_panic();
        UInt64AddOperator.full_merge(key, existing, ops)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.0.maybe_panic();
        UInt64AddOperator.partial_merge(key, operands)
    }
}

/// The bytewise order under another name, which panics.
pub(super) struct Order(pub Arc<Trouble>);

impl UserComparator for Order {
    fn name(&self) -> &'static str {
        "chaos.Order"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.0.rarely_panic();
        a.cmp(b)
    }
}

/// Compaction filters that keep everything, and panic.
pub(super) struct Filters(pub Arc<Trouble>);

struct Keeps(Arc<Trouble>);

impl CompactionFilterFactory for Filters {
    fn name(&self) -> &'static str {
        "chaos.Filters"
    }

    fn create(&self, _: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        self.0.maybe_panic();
        Some(Box::new(Keeps(Arc::clone(&self.0))))
    }
}

impl CompactionFilter for Keeps {
    fn name(&self) -> &'static str {
        "chaos.Keeps"
    }

    fn filter(&self, _: usize, _: &[u8], _: FilterValue<'_>) -> FilterDecision {
        self.0.maybe_panic();
        FilterDecision::Keep
    }
}

/// A partitioner that ends files at prefixes, and panics.
#[derive(Debug)]
pub(super) struct Cuts(pub Arc<Trouble>);

struct Cut(Arc<Trouble>, SstPartitionerFixedPrefix);

impl SstPartitionerFactory for Cuts {
    fn name(&self) -> &'static str {
        "chaos.Cuts"
    }

    fn create_partitioner(&self, _: &PartitionerContext<'_>) -> Option<Box<dyn SstPartitioner>> {
        self.0.maybe_panic();
        let inner = SstPartitionerFixedPrefix::new(2);
        Some(Box::new(Cut(Arc::clone(&self.0), inner)))
    }
}

impl SstPartitioner for Cut {
    fn should_partition(&mut self, request: &PartitionerRequest<'_>) -> bool {
        self.0.maybe_panic();
        self.1.should_partition(request)
    }

    fn can_do_trivial_move(&mut self, smallest: &[u8], largest: &[u8]) -> bool {
        self.0.maybe_panic();
        self.1.can_do_trivial_move(smallest, largest)
    }
}
