//! A life: one opening of the database, what happens while it is open, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use base::rng::Rng;
use base::sync::atomic::Ordering;
use base::sync::thread::{Builder, JoinHandle};
use ironstone::{ColumnFamily, ColumnFamilyDescriptor, Db, Options, WriteOptions};

use super::arena::{Arena, Tools};
use super::callbacks::{Cuts, Ear, Filters, Home, Order, Sum};
use super::helper::Helper;
use super::ledger::{Bounds, FAMILIES, Ledger, Promises, REVERSE, Reach, SUMS};
use super::trouble::{Trouble, Weather};
use super::watch::{self, Slot, Watch};
use super::worker::{Left, Worker, check_sum, sum_key};
use super::{Part, Plan};
use crate::disk::{CrashKind, SimDisk};
use crate::hooked::HookedFs;
use crate::model::setup::{Setup, for_family};

/// The database's directory, and the directory for copies.
pub(super) const DIR: &str = "/db";
const CURRENT: &str = "/db/CURRENT";
pub(super) const OUTSIDE: &str = "/outside";
/// The families with known content.
const NAMES: [&str; FAMILIES] = ["default", "second", "third"];
/// The most memory of all memtables of a family: a multiple of what the options say, plus a constant.
const MEMTABLES_TIMES: u64 = 2;
const MEMTABLES_BESIDE: u64 = 1 << 20;
/// How long joined threads may still be in the system's list.
const THREADS_VANISH: Duration = Duration::from_secs(2);

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Faults end, `resume` is called, and the database is closed.
    Closed,
    /// It is closed while there are faults.
    ClosedInTrouble,
    /// A power cut.
    PowerCut,
    /// The process is killed.
    Killed,
}

/// The state of a round.
pub(super) struct Round<'a> {
    pub plan: &'a Plan,
    pub rng: Rng,
    pub watch: &'a Watch,
    pub setup: Setup,
    pub disk: SimDisk,
    pub trouble: Arc<Trouble>,
    pub promises: Arc<Promises>,
    pub ledgers: Vec<Ledger>,
    pub helpers: usize,
    /// What must be found at the next opening, and whether that is durable.
    pub found: Option<(Bounds, bool)>,
    pub quiet: bool,
    pub panics: bool,
    pub comparator_panics: bool,
    /// How the previous life ended.
    pub before: String,
}

/// The threads of a life.
struct Crew {
    arena: Arc<Arena>,
    workers: Vec<JoinHandle<(Ledger, Left)>>,
    helpers: Vec<JoinHandle<()>>,
}

impl Round<'_> {
    /// Opens the database, lets threads work for a while, and ends it.
    pub(super) fn live(&mut self, time: Duration) -> Result<(), String> {
        self.watch.clear();
        self.watch.set_disk(self.disk.kill_image());
        let slot = self.watch.slot("conductor");
        self.setup.vary(&mut self.rng);
        let home = Arc::new(Home::default());
        let options = self.options(&home);
        let (workers, helpers) = (self.ledgers.len(), self.helpers);
        self.watch.set_context(format!(
            "{workers} workers, {helpers} helpers, quiet: {}, panics: {}, of comparators too: {}; the \
             life before: {}; {}",
            self.quiet,
            self.panics,
            self.comparator_panics,
            self.before,
            self.setup.text()
        ));
        let db = Arc::new(self.open(&slot, &options)?);
        let families = NAMES.map(|name| db.column_family(name));
        let families: Vec<ColumnFamily> = families.into_iter().flatten().collect();
        if families.len() != FAMILIES {
            return Err("a family is missing".to_owned());
        }
        self.check_content(&slot, &db, &families)?;
        self.watch.set_disk(self.disk.clone());
        home.set(Arc::downgrade(&db));
        let arena = Arena::new(
            options,
            Arc::clone(&self.promises),
            Arc::clone(&self.trouble),
            Arc::clone(&home),
            self.quiet,
            self.plan.without.clone(),
        );
        let crew = self.start(&arena, &db, &families)?;
        self.rage(&arena, &db, &families, time);
        self.end(&slot, crew, db, &home)?;
        self.check_threads()
    }

    fn weather(&mut self) -> Weather {
        let mut weather = Weather::draw(&mut self.rng, self.panics);
        if !self.plan.has(Part::Faults) {
            weather.fault = None;
            weather.no_handles_one_in = 0;
        }
        weather
    }

    fn options(&self, home: &Arc<Home>) -> Options {
        let mut options = self.setup.options.clone();
        let trouble = || Arc::clone(&self.trouble);
        options.env.fs = HookedFs::over(self.disk.shared(), trouble());
        options.env.clock = SystemClock::shared();
        options.cf.merge_operator = Some(Arc::new(Sum(trouble())));
        if self.panics {
            options.cf.compaction_filter_factory = Some(Arc::new(Filters(trouble())));
            options.cf.sst_partitioner_factory = Some(Arc::new(Cuts(trouble())));
        }
        options.env.listeners.add(Arc::new(Ear {
            trouble: trouble(),
            home: Arc::clone(home),
            reads: self.plan.has(Part::ListenersThatRead),
            writes: self.plan.has(Part::ListenersThatWrite),
        }));
        options
    }

    /// The families of the database, with their options.
    fn descriptors(&self, options: &Options) -> ironstone::Result<Vec<ColumnFamilyDescriptor>> {
        let mut names = match Db::list_column_families(DIR, &options.env) {
            Ok(names) => names,
            Err(e) if options.env.fs.metadata(CURRENT.as_ref()).is_ok() => return Err(e),
            Err(_) => Vec::new(),
        };
        for name in NAMES {
            if !names.iter().any(|n| n == name) {
                names.push(name.to_owned());
            }
        }
        let describe = |name: String| {
            let mut cf = for_family(options, name == NAMES[REVERSE]);
            if name == NAMES[2] && self.comparator_panics {
                let order = Order(Arc::clone(&self.trouble));
                cf.comparator = base::Comparator::user(Arc::new(order));
            }
            ColumnFamilyDescriptor::new(name, cf)
        };
        Ok(names.into_iter().map(describe).collect())
    }

    /// Opens the database, perhaps after several tries with faults; without faults it must open.
    fn open(&mut self, slot: &Slot, options: &Options) -> Result<Db, String> {
        if !self.quiet && self.rng.one_in(2) {
            for _ in 0..self.rng.below(4) {
                let weather = self.weather();
                self.trouble.set(weather);
                let open = || Db::open_cf(DIR, options, &self.descriptors(options)?);
                match slot.run("open in trouble", open) {
                    Some(Ok(db)) => {
                        self.trouble.calm();
                        return Ok(db);
                    }
                    Some(Err(_)) | None => self.check_threads()?,
                }
            }
        }
        self.trouble.calm();
        let open = || Db::open_cf(DIR, options, &self.descriptors(options)?);
        match slot.run("open", open) {
            Some(Ok(db)) => Ok(db),
            Some(Err(e)) => Err(format!("it does not open: {e}")),
            None => Err("open panicked though nothing was injected".to_owned()),
        }
    }

    /// Compares what is found with what was promised.
    fn check_content(
        &mut self,
        slot: &Slot,
        db: &Db,
        families: &[ColumnFamily],
    ) -> Result<(), String> {
        let Some((bounds, settled)) = self.found.take() else {
            return Ok(());
        };
        let get = |family: usize, key: String| {
            let found = slot.run("get after opening", || db.cf(&families[family]).get(key));
            let found = found.ok_or("a get panicked though nothing was injected")?;
            found.map_err(|e| format!("a get after opening: {e}"))
        };
        for (ledger, least) in self.ledgers.iter_mut().zip(bounds.threads) {
            let thread = ledger.thread;
            ledger.reopened(least, settled, |key| get(key.family, key.text(thread)))?;
        }
        for (sum, least) in bounds.sums.into_iter().enumerate() {
            let found = get(sum / SUMS, sum_key(sum))?;
            let most = self.promises.attempted(sum);
            let n = check_sum(sum, found.as_deref(), least, most)?;
            self.promises.settle(sum, n, settled);
        }
        Ok(())
    }

    fn start(
        &mut self,
        arena: &Arc<Arena>,
        db: &Arc<Db>,
        families: &[ColumnFamily],
    ) -> Result<Crew, String> {
        let mut crew = Crew {
            arena: Arc::clone(arena),
            workers: Vec::new(),
            helpers: Vec::new(),
        };
        let tools = |name: &str| Tools {
            arena: Arc::clone(arena),
            db: Arc::clone(db),
            families: families.to_vec(),
            slot: self.watch.slot(name),
        };
        for ledger in std::mem::take(&mut self.ledgers) {
            let name = format!("worker{}", ledger.thread);
            let rng = Rng::new(self.rng.next_u64());
            let worker = Worker::new(tools(&name), ledger, rng);
            let thread = Builder::new().name(name).spawn(move || worker.work());
            crew.workers.push(thread.map_err(|e| e.to_string())?);
        }
        for n in 0..self.helpers {
            let name = format!("helper{n}");
            let rng = Rng::new(self.rng.next_u64());
            let helper = Helper::new(tools(&name), rng, self.comparator_panics);
            let thread = Builder::new().name(name).spawn(move || helper.work());
            crew.helpers.push(thread.map_err(|e| e.to_string())?);
        }
        Ok(crew)
    }

    /// Periods with and without faults, until the time is over.
    fn rage(&mut self, arena: &Arena, db: &Db, families: &[ColumnFamily], time: Duration) {
        let clock = SystemClock::shared();
        let end = clock.monotonic_nanos() + time.as_nanos() as u64;
        while clock.monotonic_nanos() < end && !arena.stopped() {
            if !self.quiet && self.rng.one_in(2) {
                let weather = self.weather();
                self.trouble.set(weather);
            } else {
                self.trouble.calm();
            }
            let pause = 20 + self.rng.below(400);
            base::sync::thread::sleep(Duration::from_millis(pause));
            for family in families {
                check_memory(arena, db, family);
            }
        }
    }

    fn end(
        &mut self,
        slot: &Arc<Slot>,
        crew: Crew,
        db: Arc<Db>,
        home: &Home,
    ) -> Result<(), String> {
        let end = match self.rng.below(6) {
            0 | 1 => End::Closed,
            2 => End::ClosedInTrouble,
            3 | 4 => End::PowerCut,
            _ => End::Killed,
        };
        self.before = format!("{end:?}");
        let context = format!("{}; the end: {end:?}", self.watch.context());
        self.watch.set_context(context);
        let image = self.take_image(end);
        if let Some((_, bounds)) = &image {
            self.before += &format!(", to be found: {bounds:?}");
        }
        if end == End::Closed || (end != End::ClosedInTrouble && self.rng.one_in(2)) {
            self.trouble.calm();
        } else if matches!(end, End::PowerCut | End::Killed) {
            crew.arena.quiet.store(false, Ordering::Relaxed);
            self.disk.crash_now();
        }
        let arena = Arc::clone(&crew.arena);
        let left = self.join(slot, crew)?;
        if end == End::Closed {
            Self::check_alive(slot, &arena, &db)?;
        }
        if end == End::ClosedInTrouble && self.rng.one_in(3) {
            let wait = self.rng.one_in(2);
            slot.run("cancel_all_background_work", || {
                db.cancel_all_background_work(wait);
            });
        }
        let closed = close(slot, db, home)?;
        for left in left {
            slot.run("use after the end", || use_after_end(left));
        }
        if let Some(text) = arena.failure() {
            return Err(text);
        }
        self.found = Some(match (image, closed) {
            (Some((disk, bounds)), _) => {
                self.disk = disk;
                self.trouble.haunt(&self.disk);
                (bounds, end == End::PowerCut)
            }
            (None, Ok(())) if end == End::Closed => (self.promises.everything(), false),
            (None, Err(e)) if end == End::Closed => return Err(format!("close: {e}")),
            (None, _) => (self.promises.bounds(Reach::Handed), false),
        });
        Ok(())
    }

    /// The disk's image if the life ends without a close, and what must be in it.
    fn take_image(&mut self, end: End) -> Option<(SimDisk, Bounds)> {
        match end {
            End::Closed | End::ClosedInTrouble => None,
            End::PowerCut => {
                let bounds = self.promises.bounds(Reach::Durable);
                let kind = CrashKind::any(&mut self.rng);
                Some((self.disk.crash_image(&mut self.rng, kind), bounds))
            }
            End::Killed => {
                let bounds = self.promises.bounds(Reach::Handed);
                Some((self.disk.kill_image(), bounds))
            }
        }
    }

    fn join(&mut self, slot: &Slot, crew: Crew) -> Result<Vec<Left>, String> {
        crew.arena.stop.store(true, Ordering::Relaxed);
        let join = || {
            for helper in crew.helpers {
                helper.join().map_err(drop)?;
            }
            let mut left = Vec::new();
            for worker in crew.workers {
                let (ledger, more) = worker.join().map_err(drop)?;
                self.ledgers.push(ledger);
                left.push(more);
            }
            Ok::<_, ()>(left)
        };
        let joined = slot.run("join", join);
        let panics = watch::unexpected_panics();
        if let Some(panic) = panics.first() {
            return Err(format!("a panic that nobody asked for: {panic}"));
        }
        match joined {
            Some(Ok(left)) => Ok(left),
            _ => Err("a thread of the test panicked".to_owned()),
        }
    }

    /// After faults have ended and `resume` was called, writes must succeed.
    fn check_alive(slot: &Slot, arena: &Arena, db: &Db) -> Result<(), String> {
        if arena.failure().is_some() {
            return Ok(());
        }
        let mut resumed = None;
        for _ in 0..2 {
            resumed = slot.run("resume at the end", || db.resume());
            // A job that was begun with faults may fail now.
            let ended = slot.run("wait_for_compact at the end", || db.wait_for_compact());
            if matches!(ended, Some(Ok(()))) {
                break;
            }
        }
        let options = WriteOptions {
            sync: true,
            ..WriteOptions::default()
        };
        let family = db.default_column_family();
        for what in ["the last put", "the last put but one"] {
            let put = || db.cf(&family).with(&options).put("last", "put");
            match slot.run(what, put) {
                Some(Ok(())) => (),
                other => {
                    return Err(format!(
                        "nothing goes wrong any more, resume returned {resumed:?}, and a put {other:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// No thread of the database may be left.
    fn check_threads(&self) -> Result<(), String> {
        let steps = 40;
        for _ in 0..steps {
            if watch::engine_threads().is_empty() {
                return Ok(());
            }
            base::sync::thread::sleep(THREADS_VANISH / steps);
        }
        Err(format!(
            "threads of a closed database live on: {:?}\n{}",
            watch::engine_threads(),
            self.watch.table()
        ))
    }
}

/// Closes the database as soon as nobody else holds it.
fn close(slot: &Slot, db: Arc<Db>, home: &Home) -> Result<ironstone::Result<()>, String> {
    home.set(std::sync::Weak::new());
    let mut db = db;
    let alone = || {
        loop {
            match Arc::try_unwrap(db) {
                Ok(db) => return db,
                Err(again) => db = again,
            }
            base::sync::thread::sleep(Duration::from_millis(1));
        }
    };
    let db = slot.run("waiting for callbacks", alone);
    let db = db.ok_or("nobody panics here")?;
    let closed = slot.run("close", || db.close());
    closed.ok_or_else(|| "close panicked".to_owned())
}

/// Iterators and futures that outlive the database must end.
fn use_after_end(left: Left) {
    drop(left.snapshots);
    if let Some(mut it) = left.iterator {
        it.seek_to_first();
        while it.valid() {
            it.next();
        }
    }
    if let Some(pending) = left.pending {
        drop(pending.applied.wait());
        drop(pending.durable.wait());
    }
}

/// Memtables must not grow without a bound.
fn check_memory(arena: &Arena, db: &Db, family: &ColumnFamily) {
    let options = db.cf(family).options();
    let buffer = options.cf.write_buffer_size;
    let number = options.cf.max_write_buffer_number as u64;
    let most = (number + 1) * buffer * MEMTABLES_TIMES + MEMTABLES_BESIDE;
    let has = db
        .cf(family)
        .int_property("rocksdb.cur-size-all-mem-tables");
    if let Some(has) = has.filter(|has| *has > most) {
        arena.fail(format!(
            "the memtables of {} have {has} bytes at a buffer of {buffer} and {number} of them",
            family.name()
        ));
    }
}
