//! Lookups as futures: polled, dropped and woken in any order, on one thread and on many.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Wake, Waker};

use base::sync::thread::JoinHandle;
use base::threads::{Run, SystemThreads, Threads};
use futures::executor::block_on;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use ironstone::ReadFuture;

use super::*;

type Value = Result<Option<Vec<u8>>, ironstone::Error>;

/// Compares futures with gets: many of one key, and some of several keys, all on their way at once.
fn compare(db: &Db, families: &[ColumnFamily], rng: &mut Rng, rounds: u64) {
    for _ in 0..rounds {
        let cf = db.cf(&families[rng.below(2) as usize]);
        let keys = wanted(rng, 200);
        let expected: Vec<_> = keys.iter().map(|k| cf.get(k).unwrap()).collect();
        let ones: Vec<_> = keys.iter().map(|k| cf.get_async(k)).collect();
        let many: Vec<_> = keys.chunks(33).map(|k| cf.multi_get_async(k)).collect();
        let (ones, many) = block_on(futures::future::join(join_all(ones), join_all(many)));
        assert_eq!(unwrapped(ones), expected);
        assert_eq!(unwrapped(many.concat()), expected);
    }
}

fn unwrapped(values: Vec<Value>) -> Vec<Option<Vec<u8>>> {
    values.into_iter().map(Result::unwrap).collect()
}

#[test]
fn futures_agree_with_gets_in_all_modes() {
    for mode in MODES {
        for (cache, direct) in [(0, false), (40_000, true), (8 << 20, false)] {
            let dir = dirs::scratch().unwrap();
            let Some(o) = options_in(dir.path(), mode, (cache, direct)) else {
                continue;
            };
            let (db, families) = fill(dir.path(), &o, 11);
            compare(&db, &families, &mut Rng::new(1), 4);
        }
    }
}

/// A device that reads in any order, with tables that are closed meanwhile.
#[test]
fn any_order_of_reads_gives_the_same_futures() {
    for cache in [0, 60_000] {
        let s = Simulated::new(cache, |o| o.db.max_open_files = 20);
        let before = s.disk.queued_reads();
        compare(s.db(), &s.families, &mut Rng::new(5), 10);
        assert!(s.disk.queued_reads() > before + 1000);
    }
}

/// A lookup begins at the call, as of that moment, and reads before it is polled. What memory has is ready at once.
#[test]
fn a_lookup_begins_at_the_call() {
    let s = Simulated::new(8 << 20, |_| {});
    let old = s.db().with(&ReadOptions::default()).get(key(1)).unwrap();
    let snapshot = s.db().snapshot();
    let before = s.disk.queued_reads();
    let keys: Vec<_> = (0..KEYS).step_by(30).map(key).collect();
    let first: Vec<_> = keys.iter().map(|k| s.db().get_async(k)).collect();
    let many = s.db().multi_get_async(&keys);
    let expected: Vec<_> = keys.iter().map(|k| s.db().get(k).unwrap()).collect();
    while s.disk.queued_reads() < before + 10 {
        base::sync::thread::yield_now(); // nobody polls
    }
    for k in &keys {
        s.db().put(k, "new").unwrap();
    }
    s.db().put(key(1), "new").unwrap();
    s.db().flush().unwrap();
    s.db().compact_range(None, None).unwrap();
    let at = s.db().with(&snapshot).get_async(key(1));
    drop(snapshot); // the future keeps it
    assert_eq!(unwrapped(block_on(join_all(first))), expected);
    assert_eq!(unwrapped(block_on(many)), expected);
    assert_eq!(block_on(at).unwrap(), old);
    s.db().get(key(1)).unwrap();
    let mut cached = s.db().get_async(key(1));
    let polled = Pin::new(&mut cached).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(
        polled.map(Result::unwrap),
        Poll::Ready(Some(b"new".to_vec()))
    );
}

/// Errors before the first read: a snapshot or a handle of another database, options that are refused.
#[test]
fn what_cannot_be_looked_up_is_said() {
    let (s, other) = (Simulated::new(0, |_| {}), Simulated::new(0, |_| {}));
    let foreign = other.db().snapshot();
    let refused = ReadOptions {
        io_timeout: Duration::from_secs(1),
        ..ReadOptions::default()
    };
    let errors = [
        block_on(s.db().with(&foreign).get_async("k")).unwrap_err(),
        block_on(s.db().cf(&other.families[0]).get_async("k")).unwrap_err(),
        block_on(s.db().with(&refused).get_async("k")).unwrap_err(),
        block_on(s.db().with(&refused).multi_get_async(&["k"]))
            .remove(0)
            .unwrap_err(),
    ];
    let kinds = errors.map(|e| e.kind());
    let argument = ErrorKind::InvalidArgument;
    let not = ErrorKind::NotSupported;
    assert_eq!(kinds, [argument, argument, not, not]);
    assert!(block_on(s.db().multi_get_async::<&str>(&[])).is_empty());
}

/// A read that fails is an error of the lookups that need its block; a queue that breaks is none.
#[test]
fn failures_reach_those_who_wait_for_them() {
    for nth in [1, 4, 30] {
        let s = Simulated::new(0, |_| {});
        let keys: Vec<_> = (0..KEYS).step_by(40).map(key).collect();
        let expected: Vec<_> = keys.iter().map(|k| s.db().get(k).unwrap()).collect();
        let all = || join_all(keys.iter().map(|k| s.db().get_async(k)));
        let left = AtomicU64::new(nth);
        s.disk.fail_on(Fault::Eio, Repeat::Once, move |act, path| {
            act == Act::Read
                && path.extension().is_some_and(|e| e == "sst")
                && left.fetch_sub(1, Ordering::Relaxed) == 1
        });
        let got = block_on(all());
        let failed = got.iter().filter_map(|v| v.as_ref().err());
        let failed: Vec<_> = failed.map(|e| (e.kind(), e.to_string())).collect();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(failed[0].0 == ErrorKind::IoError && failed[0].1.contains(".sst"));
        s.disk.clear_faults();
        for waits in 0..8 {
            s.disk.fail_queues(Some(waits));
            assert_eq!(unwrapped(block_on(all())), expected);
            let many = block_on(s.db().multi_get_async(&keys));
            assert_eq!(unwrapped(many), expected);
            s.disk.fail_queues(None);
            let before = s.disk.queued_reads();
            assert_eq!(unwrapped(block_on(all())), expected);
            assert!(s.disk.queued_reads() > before, "the queue is made anew");
        }
    }
}

/// Many threads, each with many lookups; some are dropped while they wait, some go on on another thread.
#[test]
fn lookups_are_dropped_and_moved_while_they_wait() {
    let s = Simulated::new(20_000, |_| {});
    let moved = Mutex::new(Vec::<(ReadFuture<Value>, Option<Vec<u8>>)>::new());
    base::sync::thread::scope(|scope| {
        for seed in 0..16 {
            let (s, moved) = (&s, &moved);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..6 {
                    let keys = wanted(&mut rng, 60);
                    let mut waiting = FuturesUnordered::new();
                    for k in &keys {
                        let expected = s.db().get(k).unwrap();
                        waiting.push(async move { (s.db().get_async(k).await, expected) });
                    }
                    let wanted = rng.below(60);
                    for _ in 0..wanted {
                        let (got, expected) = block_on(waiting.next()).unwrap();
                        assert_eq!(got.unwrap(), expected);
                    }
                    drop(waiting);
                    let k = key(rng.below(KEYS));
                    let mut lookup = s.db().get_async(&k);
                    let noop = &mut Context::from_waker(Waker::noop());
                    if Pin::new(&mut lookup).poll(noop).is_pending() {
                        moved
                            .lock()
                            .unwrap()
                            .push((lookup, s.db().get(&k).unwrap()));
                    }
                    let other = moved.lock().unwrap().pop();
                    if let Some((lookup, expected)) = other {
                        assert_eq!(block_on(lookup).unwrap(), expected);
                    }
                }
            });
        }
    });
}

/// A lookup that waits while the database is closed gets its value, and the last one may go on the thread that wakes it.
#[test]
fn lookups_outlive_the_database() {
    for wakes in 0..3 {
        let mut s = Simulated::new(0, |_| {});
        let keys: Vec<_> = (0..KEYS).step_by(50).map(key).collect();
        let expected: Vec<_> = keys.iter().map(|k| s.db().get(k).unwrap()).collect();
        let many = s.db().multi_get_async(&keys);
        let all: Vec<_> = keys.iter().map(|k| s.db().get_async(k)).collect();
        s.db.take().unwrap().close().unwrap();
        s.families.clear();
        match wakes {
            0 => {
                assert_eq!(unwrapped(block_on(join_all(all))), expected);
                assert_eq!(unwrapped(block_on(many)), expected);
            }
            1 => drop((all, many)),
            _ => {
                drop(many);
                drop_on_wake(all);
            }
        }
        // Nothing holds the directory.
        let (db, _) = open(Path::new("/db"), &s.options);
        assert_eq!(db.get(&keys[0]).unwrap(), expected[0]);
    }
}

/// Lookups that the thread which wakes them drops, the last owner of the database among them.
fn drop_on_wake(all: Vec<ReadFuture<Value>>) {
    struct Drops(Mutex<Option<ReadFuture<Value>>>, Arc<AtomicU64>);
    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            let lookup = self.0.lock().unwrap().take();
            drop(lookup);
            self.1.fetch_add(1, Ordering::Relaxed);
            panic!("an executor that panics");
        }
    }
    let dropped = Arc::new(AtomicU64::new(0));
    let mut waiting = 0;
    for lookup in all {
        let drops = Arc::new(Drops(Mutex::new(None), Arc::clone(&dropped)));
        let waker = Waker::from(Arc::clone(&drops));
        let mut lookup = lookup;
        // The wake may come at once: it waits for the lock until the lookup is in its place.
        let mut place = drops.0.lock().unwrap();
        if Pin::new(&mut lookup)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
        {
            *place = Some(lookup);
            waiting += 1;
        }
    }
    while dropped.load(Ordering::Relaxed) < waiting {
        base::sync::thread::yield_now();
    }
}

/// Without a thread for reads, lookups read for themselves; once there are threads again, it is started.
#[test]
fn lookups_need_no_thread() {
    #[derive(Debug, Default)]
    struct Few(AtomicBool);
    impl Threads for Few {
        fn start(&self, name: &str, run: Run) -> std::io::Result<JoinHandle<()>> {
            if name == "ironstone:reads" && !self.0.load(Ordering::Relaxed) {
                return Err(std::io::Error::from_raw_os_error(11));
            }
            SystemThreads.start(name, run)
        }
    }
    let few = Arc::new(Few::default());
    let s = Simulated::new(0, |o| o.env.threads = Arc::<Few>::clone(&few));
    let before = s.disk.queued_reads();
    let expected = s.db().get(key(3)).unwrap();
    assert_eq!(block_on(s.db().get_async(key(3))).unwrap(), expected);
    assert_eq!(s.disk.queued_reads(), before);
    few.0.store(true, Ordering::Relaxed);
    compare(s.db(), &s.families, &mut Rng::new(2), 1);
    assert!(s.disk.queued_reads() > before);
}

/// Read options hold for futures too.
#[test]
fn options_of_futures_hold() {
    let s = Simulated::new(0, |_| {});
    let late = ReadOptions {
        deadline: Duration::from_micros(1),
        ..ReadOptions::default()
    };
    let cache_only = ReadOptions {
        read_tier: ReadTier::BlockCache,
        ..ReadOptions::default()
    };
    let limited = ReadOptions {
        value_size_soft_limit: 300,
        ..ReadOptions::default()
    };
    let before = s.disk.queued_reads();
    let late = block_on(s.db().with(&late).get_async(key(4))).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    let cached = block_on(s.db().with(&cache_only).get_async(key(4))).unwrap_err();
    assert_eq!(cached.kind(), ErrorKind::Incomplete);
    assert_eq!(s.disk.queued_reads(), before);
    let keys: Vec<_> = (0..60).map(key).collect();
    let expected = s.db().with(&limited).multi_get(&keys);
    let got = block_on(s.db().with(&limited).multi_get_async(&keys));
    let kinds = |values: &[Value]| -> Vec<_> {
        values
            .iter()
            .map(|v| v.clone().map_err(|e| e.kind()))
            .collect()
    };
    assert_eq!(kinds(&got), kinds(&expected));
    assert!(got.iter().any(Result::is_err));
}

/// Statistics count futures as gets.
#[test]
fn statistics_count_futures() {
    let s = Simulated::new(0, |_| {});
    let statistics = s.options.env.statistics.clone().unwrap();
    let reads = statistics.get(Ticker::NumberKeysRead);
    let queued = s.disk.queued_reads();
    let counts = |kind| statistics.histogram(kind).count();
    let batches = counts(HistogramKind::MultigetIoBatchSize);
    let bytes = counts(HistogramKind::AsyncReadBytes);
    block_on(join_all((0..50).map(|n| s.db().get_async(key(n)))));
    assert_eq!(statistics.get(Ticker::NumberKeysRead), reads + 50);
    let queued = s.disk.queued_reads() - queued;
    assert_eq!(counts(HistogramKind::AsyncReadBytes), bytes + queued);
    assert_eq!(counts(HistogramKind::MultigetIoBatchSize), batches);
}

/// Runs a task on the thread that wakes it, as some executors do.
struct Inline<F>(Mutex<Option<Pin<Box<F>>>>);

impl<F: Future<Output = ()> + Send + 'static> Inline<F> {
    fn run(task: F) {
        Arc::new(Self(Mutex::new(Some(Box::pin(task))))).wake();
    }
}

impl<F: Future<Output = ()> + Send + 'static> Wake for Inline<F> {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut place = self.0.lock().unwrap();
        if let Some(task) = &mut *place {
            let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_ready() {
                *place = None;
            }
        }
    }
}

/// A task that goes on on the thread that reads: it looks up, scans direct files, and closes the database there.
#[test]
fn a_task_may_run_on_the_thread_that_wakes_it() {
    for closes in [false, true] {
        let mut s = Simulated::new(0, |o| o.db.use_direct_reads = true);
        let db = s.db.take().unwrap();
        s.families.clear();
        let expected = db.range(..).unwrap().count();
        let (told, result) = std::sync::mpsc::channel();
        let mut lookups = Vec::new();
        for n in 0..20 {
            lookups.push(db.get_async(key(n * 100)));
        }
        Inline::run(async move {
            let here = base::sync::thread::current().id();
            for lookup in lookups {
                lookup.await.unwrap();
            }
            let mut elsewhere = base::sync::thread::current().id() != here;
            // A read that is done at once is not waited for.
            for n in 0..100_000 {
                if n >= 50 && elsewhere {
                    break;
                }
                let k = key(n * 31 % KEYS);
                let one = db.get_async(&k).await.unwrap();
                elsewhere = elsewhere || base::sync::thread::current().id() != here;
                assert_eq!(db.multi_get(&[k]).remove(0).unwrap(), one);
            }
            let count = db.range(..).unwrap().count();
            let closed = if closes { db.close().err() } else { None };
            told.send((count, elsewhere, closed.map(|e| e.kind())))
                .unwrap();
        });
        let (count, elsewhere, closed) = result.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(count, expected);
        assert!(elsewhere, "it never waited");
        assert_eq!(closed, closes.then_some(ErrorKind::Busy));
        // It is closed by another thread then.
        let reopened = (0..1000).find_map(|_| {
            let opened = try_open(Path::new("/db"), &s.options);
            opened
                .inspect_err(|_| base::sync::thread::sleep(Duration::from_millis(10)))
                .ok()
        });
        let (db, _) = reopened.expect("the database was not closed");
        assert_eq!(db.range(..).unwrap().count(), expected);
    }
}

/// Lookups that are dropped before the thread has begun their reads are not read.
#[test]
fn dropped_lookups_are_not_read() {
    struct Held(Mutex<std::sync::mpsc::Receiver<()>>, AtomicBool);
    impl Wake for Held {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::SeqCst);
            self.0.lock().unwrap().recv().ok();
        }
    }
    let s = Simulated::new(0, |_| {});
    let (release, held) = std::sync::mpsc::channel();
    let held = Arc::new(Held(Mutex::new(held), AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&held));
    // Holds the thread that reads.
    for n in 0.. {
        let mut lookup = s.db().get_async(key(n % KEYS));
        let polled = Pin::new(&mut lookup).poll(&mut Context::from_waker(&waker));
        for _ in 0..1000 {
            if polled.is_ready() || held.1.load(Ordering::SeqCst) {
                break;
            }
            base::sync::thread::sleep(Duration::from_millis(1));
        }
        if held.1.load(Ordering::SeqCst) {
            break;
        }
    }
    let before = s.disk.queued_reads();
    for n in 0..5000 {
        drop(s.db().get_async(key(n % KEYS)));
    }
    let last = s.db().get_async(key(7));
    release.send(()).unwrap();
    drop(release);
    let expected = s.db().get(key(7)).unwrap();
    assert_eq!(block_on(last).unwrap(), expected);
    let reads = s.disk.queued_reads() - before;
    assert!(reads < 200, "{reads} reads for one lookup");
}
