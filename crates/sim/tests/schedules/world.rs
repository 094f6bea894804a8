//! One schedule: a database with random settings on a simulated disk, its clients, and the checks
//! afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::options::OptionTable;
use base::rng::Rng;
use base::sync::{thread, time};
use ironstone::{Db, Options, WriteBatch, WriteOptions};
use sim::disk::{Config, CrashKind, Fault, Moment, Phase, Repeat, SimClock, SimDisk, Watcher};

use crate::book::Book;
use crate::check::{self, LIST, Must, SECOND};
use crate::clients::Client;

const DIR: &str = "/db";

/// The most time that an operation may take while all threads wait. The engine's own pauses that may add up
/// are far shorter; the longest, after which it looks again, is longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// What happens besides the clients' calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sound,
    Failing,
    Closing,
}

/// The state that the clients share.
pub(crate) struct World {
    pub(crate) book: Book,
    pub(crate) disk: SimDisk,
    pub(crate) kind: Kind,
    /// Time that passes until the disk is mended.
    pub(crate) clock: Arc<dyn Clock>,
}

/// Settings that vary, each with the values to draw from.
const DRAWN: &[(&str, &[&str])] = &[
    ("wal_io_mode", &["auto", "buffered", "buffered", "direct"]),
    ("wal_pool_files", &["0", "1"]),
    ("wal_tail_policy", &["rewrite", "pad"]),
    ("wal_pipeline_depth", &["1", "2", "4"]),
    ("enable_pipelined_write", &["false", "true"]),
    ("two_write_queues", &["false", "false", "true"]),
    (
        "allow_concurrent_memtable_write",
        &["true", "true", "false"],
    ),
    ("manual_wal_flush", &["false", "false", "true"]),
    ("atomic_flush", &["false", "false", "true"]),
    ("recycle_log_file_num", &["0", "0", "1"]),
    ("max_total_wal_size", &["0", "0", "20000"]),
    ("wal_no_space_wait_ms", &["0", "100"]),
    ("wal_sync_interval_ms", &["0", "0", "1"]),
    ("max_write_buffer_number", &["2", "3", "6"]),
];

fn draw(rng: &mut Rng, clock: &Arc<dyn Clock>, disk: &SimDisk) -> Options {
    loop {
        let mut o = Options::default();
        o.env.clock = Arc::clone(clock);
        o.env.fs = disk.shared();
        o.db.create_if_missing = true;
        o.db.stats_dump_period_sec = 0;
        o.db.keep_log_file_num = 2;
        o.db.info_log_level = ironstone::InfoLogLevel::Header;
        o.db.max_background_jobs = 1;
        o.cf.write_buffer_size = 16384;
        o.cf.arena_block_size = 4096;
        o.cf.disable_auto_compactions = !rng.one_in(4);
        o.cf.compression = ironstone::CompressionType::None;
        o.cf.table.no_block_cache = true;
        o.cf.merge_operator = base::merge::parse("stringappend").unwrap();
        for (name, values) in DRAWN {
            let value = values[rng.below(values.len() as u64) as usize];
            let set = o.db.set(name, value);
            set.or_else(|_| o.cf.set(name, value))
                .unwrap_or_else(|e| panic!("setting {name}={value}: {e}"));
        }
        if o.validate().is_ok() {
            let each = DRAWN.iter().map(|(name, _)| {
                let value = o.db.get(name).or_else(|| o.cf.get(name));
                format!("{name}={} ", value.unwrap_or_default())
            });
            told(&each.collect::<String>());
            return o;
        }
    }
}

pub(crate) fn watch(what: &str) -> time::Watched {
    told(what);
    time::watch(what.to_owned(), LIMIT)
}

fn open(options: &Options) -> Db {
    let _watched = watch("open");
    Db::open_all(DIR, options).unwrap_or_else(|e| panic!("open: {e}"))
}

/// Makes disk operations fail, once or until a client mends the disk.
fn plant(rng: &mut Rng, disk: &SimDisk) {
    for _ in 0..=rng.below(2) {
        let fault = Fault::ALL[rng.below(Fault::ALL.len() as u64) as usize];
        let repeat = if rng.one_in(3) {
            Repeat::Forever
        } else {
            Repeat::Once
        };
        told(&format!("planted: {fault:?} {repeat:?}"));
        if rng.one_in(2) {
            disk.fail_at(1 + rng.below(80), fault, repeat);
        } else {
            let mut passes = rng.below(6);
            let passes = std::sync::Mutex::new(move || {
                passes = passes.saturating_sub(1);
                passes == 0
            });
            disk.fail_on(fault, repeat, move |_, path| {
                let log = path.extension().is_some_and(|e| e == "log");
                log && (passes.lock().unwrap())()
            });
        }
    }
}

pub(crate) fn run(seed: u64, kind: Kind) {
    let _passing = time::begin();
    let mut rng = Rng::new(seed ^ 0x5eed);
    let clock = SimClock::shared();
    let disk = SimDisk::new(Config::default());
    let options = draw(&mut rng, &clock, &disk);
    if std::env::var_os(TELL_VARIABLE).is_some() {
        disk.watch(Arc::new(Teller));
    }
    let db = open(&options);
    {
        let _watched = watch("create_column_family");
        db.create_column_family(SECOND, &options.cf).unwrap();
    }
    let world = Arc::new(World {
        book: Book::default(),
        disk: disk.clone(),
        kind,
        clock,
    });
    if kind == Kind::Failing {
        plant(&mut rng, &disk);
    }
    let db = Arc::new(db);
    let mut threads = Vec::new();
    let mut waiters = Vec::new();
    for number in 0..2 + rng.below(3) {
        let mut client = Client::new(number, Rng::new(rng.next_u64()), &world, &db);
        let run = move || {
            client.run();
            client.into_waiters()
        };
        threads.push(thread::spawn(run));
    }
    let cut = rng.one_in(3).then(|| {
        let (world, seed, steps) = (Arc::clone(&world), rng.next_u64(), rng.below(400));
        thread::spawn(move || power_cut(&world, seed, steps))
    });
    let db = (kind != Kind::Closing).then_some(db);
    for thread in threads {
        waiters.extend(thread.join().unwrap());
    }
    let cut = cut.map(|c| c.join().unwrap());
    told(&format!("failed: {:?}", disk.failed()));
    disk.clear_faults();
    let closed = db.map(|db| finish(&world, Arc::into_inner(db).expect("the clients are gone")));
    for waiter in waiters {
        waiter.join().unwrap();
    }
    let pages = world.book.pages().clone();
    if let Some((image, durable)) = cut {
        let mut options = options;
        options.env.fs = image.shared();
        let db = open(&options);
        check::check(&check::read(&db), &pages, &durable, Must::Durable);
        let _watched = watch("close");
        db.close().unwrap();
    } else {
        let db = open(&options);
        let must = match (closed, kind) {
            (Some(true), _) | (None, Kind::Closing) => Must::All,
            _ => Must::Durable,
        };
        check::check(&check::read(&db), &pages, &pages.durable, must);
        let _watched = watch("close");
        db.close().unwrap();
    }
}

/// The clients have ended, and the disk works. Returns whether every acknowledged write must be found.
fn finish(world: &World, db: Db) -> bool {
    let probe = |n: u32| {
        let _watched = watch("the last write");
        let name = format!("last.{n}");
        world.book.begin(&name, true, false);
        let mut batch = WriteBatch::new();
        batch.put(name.as_bytes(), b"v").unwrap();
        batch.merge(LIST, name.as_bytes()).unwrap();
        let sync = WriteOptions {
            sync: true,
            ..WriteOptions::default()
        };
        let done = db.with(&sync).write(&mut batch);
        world.book.end(&name, done.is_ok(), false);
        if done.is_ok() {
            let all = world.book.pages().acknowledged(false);
            world.book.durable(all);
        }
        done
    };
    let mut failed = None;
    if let Err(e) = probe(0) {
        assert!(
            world.kind == Kind::Failing,
            "nothing failed, but writes are refused: {e}"
        );
        let _watched = watch("resume");
        db.resume()
            .unwrap_or_else(|again| panic!("resume after {e}: {again}"));
        probe(1).unwrap();
        failed = Some(e);
    }
    let pages = world.book.pages().clone();
    check::check(&check::read(&db), &pages, &pages.durable, Must::All);
    told("all is there; close");
    let _watched = watch("close");
    let closed = db.close();
    told(&format!("closed: {closed:?}"));
    assert!(closed.is_ok() || world.kind == Kind::Failing, "{closed:?}");
    closed.is_ok() && failed.is_none()
}

/// The disk as a power cut leaves it at some moment, and the writes that were durable then.
fn power_cut(world: &World, seed: u64, steps: u64) -> (SimDisk, BTreeSet<String>) {
    for _ in 0..steps {
        time::switch();
    }
    let mut rng = Rng::new(seed);
    // Read before the image is taken: a write that becomes durable between the two need not be there.
    let durable = world.book.pages().durable.clone();
    let kind = CrashKind::any(&mut rng);
    let image = world.disk.crash_image(&mut rng, kind);
    told(&format!("power cut: {kind:?}, durable: {durable:?}"));
    (image, durable)
}

/// If this environment variable is set, the events are printed.
const TELL_VARIABLE: &str = "IRONSTONE_SCHEDULE_TELL";

/// Prints an event, for a person who looks at one schedule.
pub(crate) fn told(what: &str) {
    if std::env::var_os(TELL_VARIABLE).is_some() {
        eprintln!("{what}");
    }
}

/// Prints everything that is done to the disk.
struct Teller;

impl Watcher for Teller {
    fn at(&self, moment: &Moment<'_>) {
        if moment.phase == Phase::InFlight {
            eprintln!("    {}", moment.event);
        }
    }
}
