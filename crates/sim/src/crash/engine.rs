//! Crashes of a whole database.
//!
//! One thread runs a random workload: synced and unsynced batches over several column families, with puts,
//! deletions of keys and ranges, and merges; unlogged writes, ingested files, flushes, also with
//! `atomic_flush`, compactions, creation and drop of families, clean reopens. At each event of the disk,
//! images are taken together with the promises at that moment; between two operations they are opened and
//! compared with the history. Some are opened twice, some crash again during recovery, some continue with a
//! workload of their own.
//!
//! The database's own threads make the order of events differ between two runs of a seed; the checks do not
//! depend on it.

mod check;
mod ingest;
mod peer;
pub mod threads;
mod workload;

use std::sync::Arc;

use base::clock::Clock;
use base::options::OptionTable;
use base::rng::Rng;
use base::sync::{Mutex, MutexGuard, PoisonError};
use ironstone::{Db, Env, Options};
use ironstone::{WalIoMode, WalTailPolicy};

use super::Tally;
use super::model::{History, Progress};
use crate::disk::{
    Act, Config, CrashKind, Garbage, Lie, Lying, Moment, Phase, SimClock, SimDisk, Watcher,
};

pub(super) use check::{contents, dump, open};
pub use peer::has_stray_type;
pub(super) use workload::Workload;

/// The database's directory.
pub(super) const DIR: &str = "/db";

/// The directory of files to be ingested.
const OUTSIDE: &str = "/outside";
/// The merge operator of every family.
const OPERATOR: &str = "stringappend";

/// A bug that is planted between the engine and the disk, or in the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// None.
    None,
    /// The disk lies to the workload; recovery sees the truth.
    Disk(Lie),
    /// The caller counts a write as durable before it is synced.
    AcknowledgeEarly,
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Determines the workload, its options and the images.
    pub seed: u64,
    /// Operations of the first life; later lives have fewer.
    pub operations: u64,
    /// The bug to find.
    pub plant: Plant,
    /// Whether unsynced writes at the end of a closed log may be lost although some in the next log are
    /// found, as in RocksDB.
    pub tolerate_holes_between_logs: bool,
    /// RocksDB opens one image in this many; 0 is none.
    pub rocksdb_one_in: u64,
    /// Settings of every life, by RocksDB's names, as in an OPTIONS file.
    pub settings: &'static [(&'static str, &'static str)],
}

impl Setup {
    /// A run without bugs and with random settings.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            operations: 40,
            plant: Plant::None,
            tolerate_holes_between_logs: false,
            rocksdb_one_in: 0,
            settings: &[],
        }
    }
}

/// An image that is to be checked.
struct Shot {
    disk: SimDisk,
    progress: Progress,
    killed: bool,
    label: String,
}

/// The state of a recorder.
struct Recording {
    rng: Rng,
    shots: Vec<Shot>,
    points: u64,
    direct: u64,
}

/// Takes images.
struct Recorder {
    history: Arc<Mutex<History>>,
    state: Mutex<Recording>,
}

impl Recorder {
    fn new(seed: u64, history: Arc<Mutex<History>>) -> Arc<Self> {
        Arc::new(Self {
            history,
            state: Mutex::new(Recording {
                rng: Rng::new(seed),
                shots: Vec::new(),
                points: 0,
                direct: 0,
            }),
        })
    }

    /// The images taken since the last call.
    fn take(&self) -> Vec<Shot> {
        std::mem::take(&mut lock(&self.state).shots)
    }

    /// Adds the recorder's counts.
    fn count(&self, tally: &mut Tally) {
        let state = lock(&self.state);
        tally.points += state.points;
        tally.direct += state.direct;
    }
}

impl Watcher for Recorder {
    fn at(&self, moment: &Moment<'_>) {
        let mut state = lock(&self.state);
        let Recording {
            rng,
            shots,
            points,
            direct,
        } = &mut *state;
        let event = moment.event;
        let log = event.path.extension().is_some_and(|e| e == "log");
        let new_log = log && matches!(event.act, Act::Create | Act::Rename);
        *direct += u64::from(log && event.act == Act::WriteDsync && moment.phase == Phase::After);
        if new_log {
            lock(&self.history).log_begins();
        }
        let images = if moment.phase == Phase::InFlight {
            *points += 1;
            1 + rng.below(2)
        } else {
            rng.below(2)
        };
        for _ in 0..images {
            let killed = rng.one_in(6);
            let kind = CrashKind::any(rng);
            let disk = if killed {
                moment.kill_image()
            } else {
                moment.crash_image(rng, kind)
            };
            let kind = if killed {
                "Kill".into()
            } else {
                format!("{kind:?}")
            };
            shots.push(Shot {
                disk,
                progress: lock(&self.history).now.clone(),
                killed,
                label: format!("{} {:?} {kind}", moment.event, moment.phase),
            });
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most draws until the engine accepts one.
const DRAWS_MAX: u32 = 1000;
/// Settings that vary, each with the values that it is drawn from; a value that is listed twice is twice as
/// likely.
const DRAWN: &[(&str, &[&str])] = &[
    ("wal_io_mode", &["auto", "direct", "buffered"]),
    ("wal_pool_files", &["0", "1", "1", "2"]),
    ("wal_tail_policy", &["rewrite", "rewrite", "pad", "atomic"]),
    ("wal_pipeline_depth", &["1", "1", "2", "8"]),
    ("wal_compression", &["kNoCompression", "kZSTD"]),
    ("enable_pipelined_write", &["false", "false", "true"]),
    ("two_write_queues", &["false", "false", "true"]),
    ("recycle_log_file_num", &["0", "0", "2"]),
    ("wal_min_sync_interval", &["0", "0", "0", "50"]),
    ("wal_bytes_per_sync", &["0", "0", "0", "4096"]),
    ("manual_wal_flush", &["false", "false", "false", "true"]),
    ("avoid_flush_during_recovery", &["false", "false", "true"]),
    (
        "max_manifest_file_size",
        &["1073741824", "1073741824", "600"],
    ),
    ("max_total_wal_size", &["0", "0", "20000"]),
    ("write_buffer_size", &["16384", "65536", "1048576"]),
    ("disable_auto_compactions", &["true", "true", "false"]),
    ("atomic_flush", &["false", "false", "true"]),
];

/// Options that vary with the seed and cause little background work, drawn until the engine accepts their
/// combination.
pub(super) fn options(rng: &mut Rng, clock: &Arc<dyn Clock>, setup: &Setup) -> Options {
    let mut refused = None;
    for _ in 0..DRAWS_MAX {
        let o = draw(rng, clock, setup);
        match o.validate() {
            Ok(()) => return o,
            Err(e) => refused = Some(e),
        }
    }
    panic!("no settings that go together: {refused:?}");
}

fn draw(rng: &mut Rng, clock: &Arc<dyn Clock>, setup: &Setup) -> Options {
    let mut o = Options::default();
    o.env.clock = Arc::clone(clock);
    o.db.create_if_missing = true;
    o.db.stats_dump_period_sec = 0;
    o.db.keep_log_file_num = 2;
    o.db.info_log_level = ironstone::InfoLogLevel::Header;
    o.db.wal_no_space_wait_ms = 0;
    o.cf.arena_block_size = 4096;
    o.cf.compression = ironstone::CompressionType::None;
    o.cf.table.no_block_cache = true;
    o.cf.merge_operator = base::merge::parse(OPERATOR).unwrap_or_default();
    let drawn = DRAWN
        .iter()
        .map(|(name, values)| (*name, values[rng.below(values.len() as u64) as usize]));
    for (name, value) in drawn.chain(setup.settings.iter().copied()) {
        let set = o.db.set(name, value);
        set.or_else(|_| o.cf.set(name, value))
            .unwrap_or_else(|e| panic!("setting {name}={value}: {e}"));
    }
    o
}

/// The drawn settings, for messages.
fn drawn_settings(options: &Options) -> String {
    let each = DRAWN.iter().map(|(name, _)| {
        let value = options.db.get(name).or_else(|| options.cf.get(name));
        format!("{name}={}", value.unwrap_or_default())
    });
    each.collect::<Vec<_>>().join(" ")
}

/// The worst garbage that interrupted writes may leave in logs. With `wal_tail_policy = pad`, no log of any
/// kind rewrites a sector that holds acknowledged data; with `atomic`, logs do so only with writes that the
/// disk promises to do atomically. Other logs do rewrite their last sector: a growing one through the page
/// cache, with the same bytes before the new ones; a direct one needs sectors that are either old or new.
fn worst_garbage(options: &Options) -> Garbage {
    let growing = options.db.wal_io_mode == WalIoMode::Buffered || options.db.wal_pool_files == 0;
    match options.db.wal_tail_policy {
        WalTailPolicy::Pad | WalTailPolicy::Atomic => Garbage::Sector,
        WalTailPolicy::Rewrite if growing => Garbage::WrittenBytes,
        WalTailPolicy::Rewrite => Garbage::None,
    }
}

/// Lets later writes leave garbage now and then, as far as the options can handle it.
fn choose_garbage(disk: &SimDisk, options: &Options, rng: &mut Rng) {
    let garbage = worst_garbage(options);
    disk.set_garbage(if rng.one_in(2) {
        garbage
    } else {
        Garbage::None
    });
}

/// The options with another file system.
pub(super) fn on(options: &Options, fs: Arc<dyn io::FileSystem>) -> Options {
    let env = Env {
        fs,
        ..options.env.clone()
    };
    Options {
        env,
        ..options.clone()
    }
}

/// The start of a life: a disk, its history, and the number of lives before.
struct Life {
    disk: SimDisk,
    history: History,
    generation: usize,
}

/// One workload, its crashes, and the lives after them.
pub fn run(setup: Setup) -> Tally {
    let mut rng = Rng::new(setup.seed);
    let config = Config {
        // Garbage at the end of a MANIFEST cannot be distinguished from damage, and is refused.
        garbage_in: ".log",
        ..Config::default()
            .with_sector(if rng.one_in(3) { 4096 } else { 512 })
            .with_atomic_writes(if rng.one_in(2) { 16384 } else { 4096 })
    };
    let clock = SimClock::shared();
    let mut tally = Tally {
        workloads: 1,
        ..Tally::default()
    };
    let mut lives = vec![Life {
        disk: SimDisk::new(config),
        history: History::default(),
        generation: 0,
    }];
    while let Some(life) = lives.pop() {
        let options = options(&mut rng, &clock, &setup);
        choose_garbage(&life.disk, &options, &mut rng);
        let generation = life.generation;
        let heirs = live(&setup, &mut rng, &options, life, &mut tally);
        if generation < 2 {
            lives.extend(heirs.into_iter().map(|(disk, history)| Life {
                disk,
                history,
                generation: generation + 1,
            }));
        }
        if !tally.failures.is_empty() {
            break;
        }
    }
    tally
}

/// Runs a workload on the life's disk and checks the images; returns some to continue with.
fn live(
    setup: &Setup,
    rng: &mut Rng,
    options: &Options,
    life: Life,
    tally: &mut Tally,
) -> Vec<(SimDisk, History)> {
    let history = Arc::new(Mutex::new(life.history));
    lock(&history).tolerate_holes = setup.tolerate_holes_between_logs;
    let recorder = Recorder::new(rng.next_u64(), Arc::clone(&history));
    life.disk.watch(Arc::clone(&recorder) as Arc<dyn Watcher>);
    let fs = match setup.plant {
        Plant::Disk(lie) => Lying::new(life.disk.shared(), lie) as Arc<dyn io::FileSystem>,
        _ => life.disk.shared(),
    };
    let mut work = Workload::new(
        on(options, fs),
        Arc::clone(&history),
        rng.next_u64(),
        setup.plant,
    );
    let mut checker = check::Checker {
        options,
        history: &history,
        rng: Rng::new(rng.next_u64()),
        heirs: Vec::new(),
        heirs_max: if life.generation == 0 { 2 } else { 1 },
        tally,
        rocksdb_one_in: setup.rocksdb_one_in,
        context: format!(
            "life {}; {}; reproduce: IRONSTONE_CRASH_SEED={} \
             cargo test -p ironstone-sim --test crash {}",
            life.generation,
            drawn_settings(options),
            setup.seed,
            if setup.rocksdb_one_in > 0 {
                "peers"
            } else {
                "engine"
            }
        ),
    };
    let operations = setup.operations / (life.generation as u64 + 1);
    for _ in 0..operations {
        if let Err(e) = work.step() {
            checker.fail(&format!("the workload failed: {e}"));
            break;
        }
        checker.check_all(recorder.take());
        if !checker.tally.failures.is_empty() {
            break;
        }
    }
    work.close();
    checker.check_all(recorder.take());
    life.disk.unwatch();
    let heirs = checker.heirs;
    recorder.count(tally);
    heirs
}

/// Opens every family of the database.
pub(super) fn open_all(options: &Options) -> base::Result<Db> {
    Db::open_all(DIR, options)
}
