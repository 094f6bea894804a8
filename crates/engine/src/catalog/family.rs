//! A column family while the database is open, and the set of them.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use base::merge::MergeOperator;
use base::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Comparator, Error, FileNumber, Result};
use memtable::history::{History, Limit};
use memtable::{Memtable, Settings, Tracker, WriteBuffers};

use crate::catalog::job_stats::Compactions;
use crate::catalog::view::View;
use crate::locks;
use manifest::Version;
use options::codec::Sections;
use options::hooks::listener::{FlushReason, Listeners};
use options::{ColumnFamilyOptions, CompactionStyle};

/// The current View of a family, and the Versions of earlier Views.
pub(crate) struct Views {
    now: ArcSwap<View>,
    /// Number of Views so far.
    number: AtomicU64,
    /// Number of Versions so far.
    versions: AtomicU64,
    /// Versions that were in a View. Versions that are no longer used are removed when a new Version is added.
    seen: Mutex<Vec<Weak<Version>>>,
}

impl Views {
    fn new(first: View) -> Self {
        let seen = ranked(locks::LEAF, vec![Arc::downgrade(&first.version)]);
        Self {
            now: ArcSwap::from_pointee(first),
            number: AtomicU64::new(1),
            versions: AtomicU64::new(1),
            seen,
        }
    }

    /// Makes `view` the current View, which reads use.
    pub(crate) fn store(&self, view: Arc<View>) {
        let new = Arc::downgrade(&view.version);
        self.number.fetch_add(1, Ordering::Relaxed);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.last().is_some_and(|last| last.ptr_eq(&new)) {
            self.versions.fetch_add(1, Ordering::Relaxed);
            seen.retain(|v| v.strong_count() > 0);
            seen.push(new);
        }
        let old = self.now.swap(view);
        drop(seen);
        drop(old); // may free memtables
    }

    /// Number of Views so far.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Number of Versions so far.
    pub(crate) fn versions(&self) -> u64 {
        self.versions.load(Ordering::Relaxed)
    }

    /// The Versions that are still in use, including the current one.
    pub(crate) fn live_versions(&self) -> Vec<Arc<Version>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Deref for Views {
    type Target = ArcSwap<View>;

    #[inline]
    fn deref(&self) -> &ArcSwap<View> {
        &self.now
    }
}

/// One column family.
pub(crate) struct Family {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// The order of keys; never changes.
    comparator: Comparator,
    /// Does not change while the database is open.
    pub(crate) merge_operator: Option<Arc<dyn MergeOperator>>,
    /// The options in force; replaced as a whole when any of them changes.
    options: ArcSwap<ColumnFamilyOptions>,
    /// Some options, and their sections in an OPTIONS file, as they were written last.
    sections: ArcSwapOption<(Arc<ColumnFamilyOptions>, Sections)>,
    /// The options that the write path reads.
    often: Often,
    /// The View that reads use. Replaced, under the database's state lock, when a memtable is rotated or
    /// flushed, or when the Version changes.
    pub(crate) view: Views,
    /// Logs with a smaller number have no unflushed data of this family.
    log_number: AtomicU64,
    /// The same number as recorded in the MANIFEST.
    recorded_log: AtomicU64,
    next_epoch: AtomicU64,
    next_memtable_id: AtomicU64,
    /// Whether the active memtable is full: the next write group then rotates it.
    pub(crate) flush_wanted: AtomicBool,
    /// Memtables with smaller ids do not wait for `min_write_buffer_number_to_merge`, because their flush was
    /// requested. The value only grows, so that a flush that began in between cannot lose the request.
    flush_below: AtomicU64,
    /// The [`FlushReason`] of the newest rotation, as a number.
    flush_reason: AtomicU8,
    /// Data bytes of all memtables rotated so far.
    rotated_bytes: AtomicU64,
    history: Mutex<History>,
    write_buffers: Arc<WriteBuffers>,
    dropped: AtomicBool,
    /// Statistics of its flushes and compactions.
    pub(crate) compactions: Compactions,
    /// Set once a compaction filter of the family has panicked: filters are not called any more.
    pub(crate) filter_failed: Arc<AtomicBool>,
    /// Number of handles that applications hold.
    handles: AtomicUsize,
    /// The listeners to call when the last handle is dropped.
    listeners: OnceLock<Listeners>,
    /// The number of the open database that the family belongs to, to detect handles of another database.
    pub(crate) instance: u64,
}

impl Family {
    pub(crate) fn new(
        id: u32,
        name: String,
        options: ColumnFamilyOptions,
        version: Arc<Version>,
        log_number: FileNumber,
        instance: u64,
        write_buffers: Arc<WriteBuffers>,
    ) -> Self {
        let options = in_force(options);
        let last_epoch = version
            .files()
            .filter_map(|(_, f)| f.meta.epoch_number)
            .max();
        Self {
            id,
            name,
            view: Views::new(View {
                mem: Arc::new(Memtable::with(
                    0,
                    log_number,
                    memtable_settings(&options, &write_buffers),
                )),
                imm: Vec::new(),
                version,
            }),
            comparator: options.comparator.clone(),
            merge_operator: options.merge_operator.clone(),
            often: Often::of(&options),
            options: ArcSwap::from_pointee(options),
            sections: ArcSwapOption::empty(),
            log_number: AtomicU64::new(log_number.0),
            recorded_log: AtomicU64::new(log_number.0),
            next_epoch: AtomicU64::new(last_epoch.unwrap_or(0) + 1),
            next_memtable_id: AtomicU64::new(1),
            flush_wanted: AtomicBool::new(false),
            flush_below: AtomicU64::new(0),
            flush_reason: AtomicU8::new(FlushReason::Others as u8),
            rotated_bytes: AtomicU64::new(0),
            history: ranked(locks::HISTORY, History::default()),
            write_buffers,
            dropped: AtomicBool::new(false),
            compactions: Compactions::default(),
            filter_failed: Arc::default(),
            handles: AtomicUsize::new(0),
            listeners: OnceLock::new(),
            instance,
        }
    }

    pub(crate) fn comparator(&self) -> &Comparator {
        &self.comparator
    }

    /// The options in force, for a single read.
    pub(crate) fn options(&self) -> Guard<Arc<ColumnFamilyOptions>> {
        self.options.load()
    }

    /// The options in force, for a job that uses the same options from its start to its end.
    pub(crate) fn options_now(&self) -> Arc<ColumnFamilyOptions> {
        self.options.load_full()
    }

    /// Puts other options in force. The comparator and the merge operator stay.
    pub(crate) fn set_options(&self, options: ColumnFamilyOptions) {
        let options = in_force(options);
        self.often.set(&options);
        self.options.store(Arc::new(options));
    }

    /// The sections of the family in an OPTIONS file. The arena block size in force is written: RocksDB's tools use the
    /// value as it is, and 7.8.3 aborts if a block is larger than a write buffer.
    pub(crate) fn sections(&self) -> Arc<(Arc<ColumnFamilyOptions>, Sections)> {
        let now = self.options.load_full();
        let before = self.sections.load_full();
        if let Some(before) = before.filter(|before| Arc::ptr_eq(&before.0, &now)) {
            return before;
        }
        let mut in_force = ColumnFamilyOptions::clone(&now);
        in_force.cf.arena_block_size = arena_block_size(&now) as u64;
        let sections = Sections::of(&self.name, &in_force);
        let new = Arc::new((now, sections));
        self.sections.store(Some(Arc::clone(&new)));
        new
    }

    /// `write_buffer_size`.
    #[inline]
    pub(crate) fn write_buffer_size(&self) -> u64 {
        self.often.write_buffer_size.load(Ordering::Relaxed)
    }

    /// Whether the active memtable should be closed.
    #[inline]
    pub(crate) fn is_full(&self, active: &Memtable) -> bool {
        let size = self.write_buffer_size() as usize;
        let deletions = &self.often.memtable_max_range_deletions;
        let deletions = deletions.load(Ordering::Relaxed);
        active.should_flush(size, self.arena_block_size())
            || deletions > 0 && active.num_range_deletes() >= deletions
    }

    /// Requests the rotation of the active memtable if it is full. Returns whether this is the first request.
    #[inline]
    pub(crate) fn wants_rotation(&self, active: &Memtable) -> bool {
        self.is_full(active) && !self.flush_wanted.swap(true, Ordering::Relaxed)
    }

    /// The size in bytes of all write buffers of the family together.
    pub(crate) fn write_buffers_size(&self) -> u64 {
        let number = self.often.max_write_buffer_number.load(Ordering::Relaxed);
        self.write_buffer_size().saturating_mul(number)
    }

    /// `max_successive_merges`.
    #[inline]
    pub(crate) fn max_successive_merges(&self) -> u64 {
        self.often.max_successive_merges.load(Ordering::Relaxed)
    }

    pub(crate) fn log_number(&self) -> FileNumber {
        FileNumber(self.log_number.load(Ordering::Acquire))
    }

    /// Sets the first log that may have unflushed data of the family. An edit or the next MANIFEST records it.
    pub(crate) fn set_log_number(&self, n: FileNumber) {
        base::invariant!(
            n >= self.recorded_log(),
            "{}: log {n} comes after log {}",
            self.name,
            self.recorded_log()
        );
        self.log_number.store(n.0, Ordering::Release);
        self.recorded_log.store(n.0, Ordering::Release);
    }

    /// Sets the first log that may have unflushed data of the family, without a record in the MANIFEST. If recovery
    /// ends in an earlier log because that log was not durable, the family's tables must not count as newer than the
    /// end of the log.
    pub(crate) fn skip_logs(&self, n: FileNumber) {
        self.log_number.store(n.0, Ordering::Release);
    }

    /// The first log that may have unflushed data of the family, as recorded in the MANIFEST.
    pub(crate) fn recorded_log(&self) -> FileNumber {
        FileNumber(self.recorded_log.load(Ordering::Acquire))
    }

    /// Takes the epoch number of the next file. Level 0 is ordered by epoch number.
    pub(crate) fn take_epoch(&self) -> u64 {
        self.next_epoch.fetch_add(1, Ordering::Relaxed)
    }

    /// An empty memtable whose first writes go to the log `log_number`.
    pub(crate) fn new_memtable(&self, log_number: FileNumber) -> Arc<Memtable> {
        Arc::new(Memtable::with(
            self.next_memtable_id.fetch_add(1, Ordering::Relaxed),
            log_number,
            memtable_settings(&self.options(), &self.write_buffers),
        ))
    }

    /// Makes the active memtable immutable. New writes go to the log `number`.
    pub(crate) fn seal(&self, memtable: &Memtable, number: FileNumber) {
        memtable.seal(number);
        self.rotated_bytes
            .fetch_add(memtable.data_bytes(), Ordering::Relaxed);
    }

    /// Bytes written to the family so far.
    pub(crate) fn written(&self) -> u64 {
        self.rotated_bytes.load(Ordering::Relaxed) + self.view.load().mem.data_bytes()
    }

    /// Sets the reason of the next rotation.
    pub(crate) fn set_flush_reason(&self, reason: FlushReason) {
        self.flush_reason.store(reason as u8, Ordering::Relaxed);
    }

    /// Makes the flush of all immutable memtables due at once.
    pub(crate) fn want_flush(&self) {
        let below = self.view.load().mem.id();
        self.flush_below.fetch_max(below, Ordering::Relaxed);
    }

    pub(crate) fn flush_reason(&self) -> FlushReason {
        FlushReason::from_number(self.flush_reason.load(Ordering::Relaxed))
    }

    /// How many flushed memtables are kept: `max_write_buffer_size_to_maintain`, or, if that is 0,
    /// `max_write_buffer_number_to_maintain`. A negative value stands for the size, or the number, of all write
    /// buffers.
    pub(crate) fn history_limit(&self) -> Limit {
        let options = &self.options().cf;
        let writable = options.max_write_buffer_number.unsigned_abs() as usize;
        let bytes = match options.max_write_buffer_size_to_maintain {
            n if n < 0 => writable * options.write_buffer_size as usize,
            n => n.unsigned_abs() as usize,
        };
        let number = match options.max_write_buffer_number_to_maintain {
            n if n < 0 => writable,
            n => n.unsigned_abs() as usize,
        };
        match (bytes, number) {
            (0, 0) => Limit::Nothing,
            (0, number) => Limit::Memtables(number),
            (bytes, _) => Limit::Bytes(bytes),
        }
    }

    /// The memtables that are kept after their flush.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn arena_block_size(&self) -> usize {
        self.often.arena_block_size.load(Ordering::Relaxed)
    }

    /// Whether enough memtables wait for a flush, or a flush was requested.
    pub(crate) fn flush_due(&self) -> bool {
        self.flush_due_of(&self.view.load())
    }

    /// [`Family::flush_due`] for a recent View of the family.
    pub(crate) fn flush_due_of(&self, view: &View) -> bool {
        let imm = &view.imm;
        let enough = self.options().cf.min_write_buffer_number_to_merge.max(1) as usize;
        let below = self.flush_below.load(Ordering::Relaxed);
        imm.len() >= enough || imm.iter().any(|m| m.id() < below)
    }

    /// Whether the oldest memtable of the View is being flushed, or soon will be. An immutable memtable may
    /// instead wait for more memtables (`min_write_buffer_number_to_merge`), which a family without writes
    /// never produces.
    pub(crate) fn is_being_flushed(&self, view: &View) -> bool {
        !view.imm.is_empty() && self.flush_due_of(view)
    }

    /// Sets the listeners to call when the last handle is dropped.
    pub(crate) fn listen(&self, listeners: &Listeners) {
        if !listeners.is_empty() {
            self.listeners.get_or_init(|| listeners.clone());
        }
    }

    pub(crate) fn handle_made(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn handle_gone(&self) {
        let before = self.handles.fetch_sub(1, Ordering::Relaxed);
        base::invariant!(before > 0, "a handle of {} goes twice", self.name);
        let last = before == 1;
        if let (true, Some(listeners)) = (last, self.listeners.get()) {
            // A panic in a listener does not concern the handle's owner.
            let _panics =
                listeners.tell(|l| l.on_column_family_handle_deletion_started(&self.name));
        }
    }

    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }
}

/// Options that are read often, once per write group or per entry. They are read without loading all options.
struct Often {
    write_buffer_size: AtomicU64,
    max_write_buffer_number: AtomicU64,
    max_successive_merges: AtomicU64,
    memtable_max_range_deletions: AtomicU64,
    /// The value in force.
    arena_block_size: AtomicUsize,
}

impl Often {
    fn of(options: &ColumnFamilyOptions) -> Self {
        let new = Self {
            write_buffer_size: AtomicU64::new(0),
            max_write_buffer_number: AtomicU64::new(0),
            max_successive_merges: AtomicU64::new(0),
            memtable_max_range_deletions: AtomicU64::new(0),
            arena_block_size: AtomicUsize::new(0),
        };
        new.set(options);
        new
    }

    fn set(&self, options: &ColumnFamilyOptions) {
        let cf = &options.cf;
        self.write_buffer_size
            .store(cf.write_buffer_size, Ordering::Relaxed);
        let number = cf.max_write_buffer_number.unsigned_abs();
        self.max_write_buffer_number
            .store(u64::from(number), Ordering::Relaxed);
        self.max_successive_merges
            .store(cf.max_successive_merges, Ordering::Relaxed);
        let most = cf.memtable_max_range_deletions;
        self.memtable_max_range_deletions
            .store(u64::from(most), Ordering::Relaxed);
        self.arena_block_size
            .store(arena_block_size(options), Ordering::Relaxed);
    }
}

/// The options with the changes that the compaction style requires.
fn in_force(mut options: ColumnFamilyOptions) -> ColumnFamilyOptions {
    if options.cf.compaction_style == CompactionStyle::Fifo {
        // All files are on level 0: their number does not say how much work is pending.
        options.cf.level0_slowdown_writes_trigger = i32::MAX;
        options.cf.level0_stop_writes_trigger = i32::MAX;
    }
    options
}

/// `arena_block_size`, but at most an eighth of the write buffer, so that small buffers work.
fn arena_block_size(options: &ColumnFamilyOptions) -> usize {
    let set = options.cf.arena_block_size;
    let fits = options.cf.write_buffer_size / 8;
    set.min(fits).max(4096) as usize
}

fn memtable_settings(options: &ColumnFamilyOptions, write_buffers: &Arc<WriteBuffers>) -> Settings {
    let cf = &options.cf;
    Settings {
        comparator: options.comparator.clone(),
        arena_block_size: arena_block_size(options),
        factory: cf.memtable_factory,
        bloom_bytes: (cf.memtable_prefix_bloom_size_ratio * cf.write_buffer_size as f64) as usize,
        whole_keys: cf.memtable_whole_key_filtering,
        prefixes: options.prefix_extractor.clone(),
        tracker: Some(Tracker::new(Arc::clone(write_buffers))),
    }
}

/// How often the set of families has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

/// The column families of a database. The set is replaced as a whole when a family is created or dropped.
#[derive(Clone, Default)]
pub(crate) struct FamilySet {
    by_id: BTreeMap<u32, Arc<Family>>,
    epoch: Epoch,
}

impl FamilySet {
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn insert(&mut self, family: Arc<Family>) {
        self.epoch.0 += 1;
        self.by_id.insert(family.id, family);
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.epoch.0 += 1;
        self.by_id.remove(&id);
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&Arc<Family>> {
        self.by_id.get(&id)
    }

    /// The family with this id, or the error that a caller of the API gets.
    pub(crate) fn require(&self, id: u32) -> Result<&Arc<Family>> {
        self.get(id).ok_or_else(|| {
            Error::invalid_argument(format!(
                "Invalid column family: id {id} was dropped or never created"
            ))
        })
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<Family>> {
        self.iter().find(|f| f.name == name)
    }

    pub(crate) fn count(&self) -> usize {
        self.by_id.len()
    }

    /// In order of id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Family>> {
        self.by_id.values()
    }
}
