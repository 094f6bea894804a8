//! The store on Ironstone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError};
use base::{Error, ErrorKind, Result};
use ironstone::listener::{BackgroundErrorReason, BackgroundErrorRecoveryInfo};
use ironstone::perf::{self, PerfCounter, PerfLevel};
use ironstone::{
    BottommostLevelCompaction, ColumnFamily, ColumnFamilyDescriptor, CompactRangeOptions, Db,
    DbIterator, Env, EventListener, FlushOptions, IngestExternalFileArg, IngestExternalFileOptions,
    Options, PendingWrite, Profile, ReadOptions, Snapshot, WriteBatch,
};

use super::filter::{Factory, Oldest};
use super::stalls::{Stall, Stalls};
use super::suggested::Suggested;
use super::{Family, Rows, Store, Told, View};
use crate::model::key::Fleet;
use crate::model::time::Time;

/// The subfolder of the database that imports use as scratch. The next opening removes the
/// leftovers of an import that was killed.
pub const SCRATCH: &str = "import";
/// So long after it was made a write is synced, if nobody waits for that.
const SYNC_INTERVAL_MS: u64 = 1000;
/// How long writes wait for space on a full disk: the first of them, and others behind it.
const NO_SPACE_WAIT_MS: u64 = 2000;
/// So long after somebody asked for a durable write, others are made durable as well.
const SYNCING_NANOS: u64 = 50_000_000;
/// A memtable with this many tombstones is flushed because of them.
const FLUSHED_MIN: u64 = 10_000;

/// A database with the families of this crate, and the engine's defaults.
#[derive(Clone, Debug)]
pub struct Engine {
    db: Arc<Db>,
    families: Arc<[ColumnFamily]>,
    options: Arc<Options>,
    dir: PathBuf,
    /// The horizons for the compaction filter of points.
    oldest: Oldest,
    /// The greatest sequence number that was written.
    last: Arc<AtomicU64>,
    /// The greatest sequence number of a write that may be in the process only, until it is durable.
    pending: Arc<AtomicU64>,
    /// When somebody last asked for a durable write, by the clock; 0: nobody has.
    asked_at: Arc<AtomicU64>,
    suggested: Arc<Suggested>,
    failure: Arc<Failure>,
    pub(super) stalls: Arc<Stalls>,
    clock: Arc<dyn Clock>,
}

impl Engine {
    /// Opens the database in a folder, or creates it.
    ///
    /// Errors: another process has it open (`Busy`); it has other families than those of this
    /// crate; the engine's.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, Options::default())
    }

    /// Like [`Engine::open`], for an import: a new database gets the profile `bulk_load`, except
    /// for the number of levels, because the tables of an import are sorted and go to the lowest
    /// level.
    pub fn open_for_import(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let mut options = Options::default();
        if !options.env.fs.exists(&dir.join("CURRENT"))? {
            let levels = options.cf.num_levels;
            options = Options::for_profile(Profile::BulkLoad);
            options.cf.num_levels = levels;
        }
        Self::open_with(dir, options)
    }

    /// Like [`Engine::open`], with options of the engine for all families. Some options of the log are
    /// replaced by the service's own: `wal_sync_interval_ms` and `wal_no_space_wait_ms`.
    pub fn open_with(dir: impl AsRef<Path>, mut options: Options) -> Result<Self> {
        options.db.create_if_missing = true;
        options.db.create_missing_column_families = true;
        options.db.wal_sync_interval_ms = SYNC_INTERVAL_MS;
        options.db.wal_no_space_wait_ms = NO_SPACE_WAIT_MS;
        let dir = dir.as_ref();
        Self::check_is_ours(dir, &options.env)?;
        let oldest = Oldest::default();
        let descriptor = |family: Family| {
            let mut its = options.cf.clone();
            if family == Family::Default {
                its.compaction_filter_factory = Some(Arc::new(Factory(oldest.clone())));
                // Until a fleet has old points to drop, no table is compacted for its age.
                its.cf.periodic_compaction_seconds = 0;
            }
            ColumnFamilyDescriptor {
                name: family.name().to_owned(),
                options: its,
            }
        };
        let descriptors: Vec<_> = Family::ALL.into_iter().map(descriptor).collect();
        let failure = Arc::new(Failure::default());
        let listener: Arc<dyn EventListener> = Arc::<Failure>::clone(&failure);
        options.env.listeners.add(listener);
        let stalls = Arc::new(Stalls::default());
        let listener: Arc<dyn EventListener> = Arc::<Stalls>::clone(&stalls);
        options.env.listeners.add(listener);
        let db = Db::open_cf(dir, &options, &descriptors)?;
        let family = |family: Family| {
            let found = db.column_family(family.name());
            found.ok_or_else(|| Error::broken("a family that was opened is not there"))
        };
        let families = Family::ALL.into_iter().map(family).collect::<Result<_>>()?;
        let engine = Self {
            last: Arc::new(AtomicU64::new(db.latest_sequence_number())),
            db: Arc::new(db),
            families,
            oldest,
            suggested: Arc::default(),
            failure,
            stalls,
            clock: Arc::clone(&options.env.clock),
            options: Arc::new(options),
            pending: Arc::default(),
            asked_at: Arc::default(),
            dir: dir.to_path_buf(),
        };
        // No other process has the folder open.
        engine.clear_scratch()?;
        Ok(engine)
    }

    /// The options it was opened with.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The options of a family.
    pub(crate) fn options_of(&self, _family: Family) -> Options {
        Options::clone(&self.options)
    }

    /// The folder of the database.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes the leftovers of an import.
    pub(crate) fn clear_scratch(&self) -> Result<()> {
        let (fs, dir) = (&self.options.env.fs, self.dir.join(SCRATCH));
        if !fs.exists(&dir)? {
            return Ok(());
        }
        for name in fs.list(&dir)? {
            fs.remove(&dir.join(name))?;
        }
        fs.remove_dir(&dir)
    }

    /// Ingests tables: all of them or none. They are durable afterwards, and are moved.
    pub(crate) fn ingest(&self, tables: Vec<(Family, Vec<PathBuf>)>) -> Result<()> {
        let mut args = Vec::new();
        for (family, external_files) in tables {
            if !external_files.is_empty() {
                args.push(IngestExternalFileArg {
                    column_family: self.family(family)?.clone(),
                    external_files,
                    options: IngestExternalFileOptions {
                        move_files: true,
                        ..IngestExternalFileOptions::default()
                    },
                });
            }
        }
        if args.is_empty() {
            return Ok(());
        }
        self.db.ingest_external_files(&args)
    }

    /// Waits for the compactions that are due, so that opening and reading stay fast. Does nothing
    /// if automatic compactions are disabled.
    pub(crate) fn settle(&self) -> Result<()> {
        if self.options.cf.disable_auto_compactions {
            return Ok(());
        }
        self.db.wait_for_compact()
    }

    /// Refuses a database with other families: it belongs to another program or a newer release.
    fn check_is_ours(dir: &Path, env: &Env) -> Result<()> {
        let Ok(names) = Db::list_column_families(dir, env) else {
            return Ok(()); // There is no database, or opening it reports the error.
        };
        let is_ours = |name: &String| Family::ALL.iter().any(|family| family.name() == name);
        let other = names.iter().find(|name| !is_ours(name));
        other.map_or(Ok(()), |name| {
            let text = format!("a database with a column family {name:?}, which no tracks have");
            Err(Error::not_supported(text)
                .file(dir)
                .hint("another program's, or of a newer release: give another folder"))
        })
    }

    /// The database.
    pub fn db(&self) -> &Arc<Db> {
        &self.db
    }

    /// Begins a flush if the active memtable has many tombstones.
    fn flush_dead_rows(&self, family: Family) -> Result<()> {
        let its = self.family(family)?;
        let number = |name| self.db.cf(its).int_property(name).unwrap_or(0);
        // If another memtable waits already, one more could stall writers. The dead rows that
        // readers met may be in that one.
        let is_worth_it = number("rocksdb.num-deletes-active-mem-table") >= FLUSHED_MIN
            && number("rocksdb.num-immutable-mem-table") == 0;
        if !is_worth_it {
            return Ok(());
        }
        let options = FlushOptions {
            wait: false,
            allow_write_stall: true,
        };
        self.db.cf(its).with(&options).flush()?;
        self.suggested.forget();
        Ok(())
    }

    /// Whether the last write failed, as far as is known.
    fn has_failed(&self) -> bool {
        self.failure.lock().of_writes.is_some()
    }

    /// Writes a batch to the log, which the system has then. Returns its number.
    fn write_logged(&self, mut batch: WriteBatch) -> Result<u64> {
        self.db.write(&mut batch)?;
        // An empty batch has the number of the write before it.
        Ok((batch.sequence() + u64::from(batch.count())).saturating_sub(1))
    }

    /// Writes a batch whose durability is waited for later; reads see it.
    fn write_pending(&self, batch: WriteBatch) -> Result<PendingWrite> {
        let pending = self.db.write_async(batch)?;
        pending.applied.wait()?;
        Ok(pending)
    }

    fn family(&self, family: Family) -> Result<&ColumnFamily> {
        self.families
            .get(family as usize)
            .ok_or_else(|| Error::broken("a family that was not opened"))
    }
}

impl Store for Engine {
    fn id(&self, family: Family) -> u32 {
        self.families.get(family as usize).map_or(0, |f| f.id())
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.db.cf(self.family(family)?).get(key)
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(At {
            engine: self,
            snapshot: self.db.snapshot(),
        })
    }

    fn write(&self, batch: WriteBatch, durable: Option<Told>) -> Result<u64> {
        let before = self.db.latest_sequence_number();
        let failed = |e: &Error| self.failure.note(before, Err(e));
        let Some(told) = durable else {
            let number = self.write_logged(batch).inspect_err(failed)?;
            self.last.fetch_max(number, Ordering::Relaxed);
            return Ok(number);
        };
        let pending = self.write_pending(batch).inspect_err(failed)?;
        let (number, failure) = (pending.seq, Arc::clone(&self.failure));
        self.last.fetch_max(number, Ordering::Relaxed);
        self.pending.fetch_max(number, Ordering::Relaxed);
        pending.durable.on_ready(move |result| {
            failure.note(number, result.as_ref().copied());
            told(number, result);
        });
        Ok(number)
    }

    fn note_asked(&self) {
        let now = self.clock.monotonic_nanos();
        self.asked_at.store(now.max(1), Ordering::Relaxed);
    }

    fn is_syncing(&self) -> bool {
        // The log is written past the page cache then, where a write that is not synced is a device
        // write too.
        let at = self.asked_at.load(Ordering::Relaxed);
        let is_recent = at > 0 && self.clock.monotonic_nanos().saturating_sub(at) < SYNCING_NANOS;
        // After a failure, others need not wait until a write succeeds or has failed as well.
        is_recent || self.has_failed()
    }

    fn may_lose(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > self.db.durable_seq()
    }

    fn last_number(&self) -> u64 {
        // Not the database's number: a write with this number is durable once `when_durable`
        // reports it.
        self.last.load(Ordering::Relaxed)
    }

    fn when_durable(&self, told: Told) {
        let number = self.last_number();
        match self.db.durable(number) {
            Ok(durable) => durable.on_ready(move |result| told(number, result)),
            Err(e) => told(number, Err(e)),
        }
    }

    fn wait_durable(&self, number: u64) -> Result<()> {
        self.db.wait_durable(number)
    }

    fn stall(&self) -> Option<Stall> {
        let says = |name| self.db.int_property(name).is_some_and(|number| number > 0);
        let is_stopped = says("rocksdb.is-write-stopped");
        let is_delayed = says("rocksdb.actual-delayed-write-rate");
        self.stalls.worst((is_stopped, is_delayed))
    }

    fn refuses_writes(&self) -> Option<Error> {
        if let Some((_, e)) = &self.failure.lock().of_writes {
            return Some(e.clone());
        }
        if self.db.int_property("rocksdb.background-errors") == Some(0) {
            return None;
        }
        let unknown = || Error::aborted("the database refuses writes: its LOG says why");
        let failed = self.failure.lock();
        let last = failed.of_background.as_ref();
        Some(last.map_or_else(unknown, Error::clone))
    }

    fn keep(&self, oldest: BTreeMap<Fleet, Time>, every: Option<Duration>) -> Result<()> {
        self.oldest.set(oldest);
        let points = self.family(Family::Default)?;
        let seconds = every.map_or(0, |every| every.as_secs());
        if self.db.cf(points).options().cf.periodic_compaction_seconds == seconds {
            return Ok(());
        }
        let seconds = seconds.to_string();
        self.db
            .cf(points)
            .set_options(&[("periodic_compaction_seconds", &seconds)])
    }

    fn reclaim(&self, family: Family, from: &[u8], to: &[u8]) -> Result<()> {
        let family = self.family(family)?;
        self.db
            .cf(family)
            .delete_files_in_ranges(&[(Some(from), Some(to))], false)
    }

    fn tidy(&self) -> Result<()> {
        for family in Family::ALL {
            if !self.suggested.take_met(family) {
                continue;
            }
            if let Err(e) = self.flush_dead_rows(family) {
                self.suggested.has_met(family);
                return Err(e);
            }
        }
        Ok(())
    }

    fn compact(
        &self,
        family: Family,
        (from, to): (&[u8], &[u8]),
        canceled: &Arc<AtomicBool>,
    ) -> Result<()> {
        let family = self.family(family)?;
        let options = CompactRangeOptions {
            // A compaction under an old view may have put rows and their tombstones into one table
            // of the lowest level.
            bottommost_level_compaction: BottommostLevelCompaction::ForceOptimized,
            canceled: Some(Arc::clone(canceled)),
            ..CompactRangeOptions::default()
        };
        self.db
            .cf(family)
            .with(&options)
            .compact_range(Some(from), Some(to))
    }

    fn visible_number(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    fn oldest_view(&self) -> Option<u64> {
        let oldest = self.db.int_property("rocksdb.oldest-snapshot-sequence");
        // 0 means that there is none, or that it is empty.
        oldest.filter(|number| *number > 0)
    }
}

/// The last failure of a write or in the background.
#[derive(Debug, Default)]
struct Failure(Mutex<Failed>);

#[derive(Debug, Default)]
struct Failed {
    /// The last failed write without a later one that became durable, by its number or that of an
    /// earlier write. The database may take writes again without telling, for example after the
    /// device was full.
    of_writes: Option<(u64, Error)>,
    /// The error that made the database refuse writes, or could have.
    of_background: Option<Error>,
}

impl Failure {
    fn lock(&self) -> MutexGuard<'_, Failed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the result of a write.
    fn note(&self, number: u64, result: Result<(), &Error>) {
        let mut failed = self.lock();
        let known = failed.of_writes.as_ref().map(|(number, _)| *number);
        match result {
            Err(e) if !is_passing(e) => failed.of_writes = Some((number, e.clone())),
            Ok(()) if known.is_some_and(|known| known < number) => failed.of_writes = None,
            _ => {}
        }
    }
}

/// Whether an error says nothing about the device: the call was wrong, or came at the wrong time.
fn is_passing(e: &Error) -> bool {
    use ErrorKind::{Busy, Incomplete, InvalidArgument, ShutdownInProgress, TryAgain};
    matches!(
        e.kind(),
        Busy | Incomplete | InvalidArgument | ShutdownInProgress | TryAgain
    )
}

impl EventListener for Failure {
    fn on_background_error(&self, _reason: BackgroundErrorReason, error: &Error) {
        self.lock().of_background = Some(error.clone());
    }

    fn on_error_recovery_end(&self, info: &BackgroundErrorRecoveryInfo) {
        self.lock().of_background = info.new_bg_error.as_ref().err().cloned();
    }
}

struct At<'a> {
    engine: &'a Engine,
    snapshot: Snapshot,
}

impl At<'_> {
    fn options(&self) -> ReadOptions {
        ReadOptions {
            snapshot: Some(self.snapshot.clone()),
            ..ReadOptions::default()
        }
    }
}

impl View for At<'_> {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let family = self.engine.family(family)?;
        self.engine.db.cf(family).with(&self.options()).get(key)
    }

    fn rows(&self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<Box<dyn Rows + '_>> {
        let mut options = self.options();
        options.iterate_lower_bound = Some(from.to_vec());
        options.iterate_upper_bound = to.map(<[u8]>::to_vec);
        let rows = self
            .engine
            .db
            .cf(self.engine.family(family)?)
            .with(&options)
            .iterator()?;
        Ok(Box::new(Counted { rows, skipped: 0 }))
    }

    fn has_dead_rows(&self, family: Family, from: &[u8], to: Option<&[u8]>) {
        self.engine.suggested.has_met(family);
        let now = self.engine.clock.monotonic_nanos();
        if !self.engine.suggested.is_due((family, from), now) {
            return;
        }
        let Ok(family) = self.engine.family(family) else {
            return;
        };
        // A failure is ignored: a compaction error shows elsewhere, and the range will be suggested
        // again.
        let suggested = self
            .engine
            .db
            .cf(family)
            .suggest_compact_range(Some(from), to);
        drop(suggested);
    }
}

/// An iterator that counts the dead rows it has skipped.
struct Counted {
    rows: DbIterator,
    skipped: u64,
}

impl Counted {
    /// Moves the iterator. Skipped rows are counted per thread, by the engine's perf context.
    fn moved(&mut self, movement: impl FnOnce(&mut DbIterator)) {
        let level = perf::level();
        if level == PerfLevel::Disable {
            perf::set_level(PerfLevel::EnableCount);
        }
        let before = perf::get(PerfCounter::InternalKeySkippedCount);
        movement(&mut self.rows);
        self.skipped += perf::get(PerfCounter::InternalKeySkippedCount).saturating_sub(before);
        perf::set_level(level);
    }
}

impl Rows for Counted {
    fn seek(&mut self, key: &[u8]) {
        self.moved(|rows| rows.seek(key));
    }

    fn next(&mut self) {
        self.moved(DbIterator::next);
    }

    fn row(&self) -> Option<(&[u8], &[u8])> {
        let rows = &self.rows;
        rows.valid().then(|| (rows.key(), rows.value()))
    }

    fn status(&self) -> Result<()> {
        self.rows.status()
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }
}
