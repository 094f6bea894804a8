//! Crashes of a database that several threads write to.
//!
//! Each thread writes numbered batches; batch `i` of thread `t` puts the key `t/i`, which no other batch
//! writes, into two families, and `t/i` as the value of the key `last`. So the content after a crash shows
//! which batches are there. They must be a prefix in the order of sequence numbers, which the test does not
//! know, but:
//!
//! - a batch is there in both families or in none;
//! - of each thread, the first batches are there, at least the promised ones;
//! - batches that were acknowledged before a batch began have lower numbers: they are there if it is;
//! - `last` is not older than any batch that is there;
//! - two images of one life are prefixes of one order, so one has all batches of the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::rng::Rng;
use base::sync::Mutex;
use base::{Error, Result};
use ironstone::{Db, Options, WriteBatch, WriteOptions};

use super::super::Tally;
use super::super::model::Found;
use super::{Plant, Setup, check, lock, on, open, open_all, options};
use crate::disk::{Act, Config, CrashKind, Lying, Moment, Phase, SimClock, SimDisk, Watcher};

/// The family besides the default one.
const SECOND: &str = "second";
/// The key whose value is the name of the last batch.
const LAST: &[u8] = b"last";
/// The most images of one life; more are sampled at random.
const IMAGES_MAX: usize = 400;

/// A number of batches for each thread.
type Counts = Vec<usize>;

/// The promises at a moment.
#[derive(Clone, Debug)]
struct Promise {
    started: Counts,
    acknowledged: Counts,
    submitted: Counts,
    durable: Counts,
    /// Log switches so far.
    switches: usize,
}

/// All batches that were written.
#[derive(Clone, Debug)]
struct Book {
    seed: u64,
    now: Promise,
    /// For each thread and batch: the batches that were acknowledged when it began.
    before: Vec<Vec<Counts>>,
    /// For each new log: the batches that were acknowledged, and those that had begun, when it was created.
    /// Unsynced batches at the end of the previous log may be lost although later ones are found.
    switches: Vec<(Counts, Counts)>,
}

fn raise(marks: &mut Counts, to: &Counts) {
    for (mark, to) in marks.iter_mut().zip(to) {
        *mark = (*mark).max(*to);
    }
}

fn covers(all: &Counts, some: &Counts) -> bool {
    all.iter().zip(some).all(|(a, s)| a >= s)
}

/// The value that a batch puts under its key, which follows from the batch's name.
fn payload(seed: u64, thread: usize, number: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed ^ ((thread as u64) << 48) ^ ((number as u64) << 16));
    let len = match rng.below(40) {
        0 => 33_000 + rng.below(4000),
        1..=4 => rng.below(5000),
        _ => rng.below(100),
    };
    let mut out = vec![0; len as usize];
    rng.fill(&mut out);
    out
}

fn name(thread: usize, number: usize) -> String {
    format!("{thread}/{number:06}")
}

fn parse(name: &[u8]) -> Option<(usize, usize)> {
    let (thread, number) = std::str::from_utf8(name).ok()?.split_once('/')?;
    Some((thread.parse().ok()?, number.parse().ok()?))
}

impl Book {
    fn new(seed: u64, threads: usize) -> Self {
        let none = vec![0; threads];
        Self {
            seed,
            now: Promise {
                started: none.clone(),
                acknowledged: none.clone(),
                submitted: none.clone(),
                durable: none,
                switches: 0,
            },
            before: vec![Vec::new(); threads],
            switches: Vec::new(),
        }
    }

    fn start(&mut self, thread: usize) -> usize {
        let number = self.now.started[thread];
        self.now.started[thread] += 1;
        self.before[thread].push(self.now.acknowledged.clone());
        number
    }

    fn acknowledge(&mut self, thread: usize, number: usize, submitted: bool, durable: bool) {
        let mut upto = self.before[thread][number].clone();
        upto[thread] = number + 1;
        self.now.acknowledged[thread] = number + 1;
        self.promise(&upto, submitted, durable);
    }

    /// Notes that these batches are handed to the operating system, or durable.
    fn promise(&mut self, upto: &Counts, submitted: bool, durable: bool) {
        if submitted || durable {
            raise(&mut self.now.submitted, upto);
        }
        if durable {
            raise(&mut self.now.durable, upto);
        }
    }

    /// The batches of each thread in `found`.
    fn batches(&self, found: &Found) -> Result<Vec<BTreeSet<usize>>, String> {
        let mut out = vec![BTreeSet::new(); self.before.len()];
        let default = found.get("default").ok_or("there is no default family")?;
        for (key, value) in default.iter().filter(|(k, _)| *k != LAST) {
            let (thread, number) = parse(key)
                .filter(|(t, n)| self.now.started.get(*t).is_some_and(|s| n < s))
                .ok_or_else(|| format!("a key that nobody wrote: {}", key.escape_ascii()))?;
            if *value != payload(self.seed, thread, number) {
                return Err(format!("{thread}/{number} has a wrong value"));
            }
            out[thread].insert(number);
        }
        let keys = |f: Option<&super::super::model::Contents>| -> BTreeSet<Vec<u8>> {
            f.into_iter()
                .flat_map(|c| c.keys().filter(|k| *k != LAST).cloned())
                .collect()
        };
        if keys(Some(default)) != keys(found.get(SECOND)) {
            return Err("a batch is in one family and not in the other".to_owned());
        }
        Ok(out)
    }

    /// Whether batch `lost` of its thread may be missing although `there` is found: a log was begun between
    /// them.
    fn tolerated(&self, promise: &Promise, lost: (usize, usize), there: (usize, usize)) -> bool {
        self.switches[..promise.switches]
            .iter()
            .any(|(acknowledged, started)| {
                lost.1 < started[lost.0] && there.1 >= acknowledged[there.0]
            })
    }

    /// Checks the content; returns the number of each thread's batches if there can be no hole.
    fn check(
        &self,
        promise: &Promise,
        found: &Found,
        killed: bool,
    ) -> Result<Option<Counts>, String> {
        let there = self.batches(found)?;
        let floor = if killed {
            &promise.submitted
        } else {
            &promise.durable
        };
        for (u, set) in there.iter().enumerate() {
            let end = set.last().map_or(0, |n| n + 1);
            let ceiling = promise.started[u];
            if end > ceiling {
                return Err(format!("thread {u}: {end} batches, {ceiling} were begun"));
            }
            if let Some(lost) = (0..floor[u]).find(|n| !set.contains(n)) {
                return Err(format!(
                    "batch {u}/{lost} is lost; expected {floor:?} to {:?}",
                    promise.started
                ));
            }
            for lost in (0..ceiling).filter(|n| !set.contains(n)) {
                self.no_hole(promise, (u, lost), &there)?;
            }
        }
        self.check_last(found, &there)?;
        let safe = match promise.switches.checked_sub(1) {
            None => true,
            Some(last) => covers(&promise.durable, &self.switches[last].1),
        };
        let counts = there.iter().map(BTreeSet::len).collect();
        Ok(safe.then_some(counts))
    }

    /// Checks that nothing later than a lost batch is there.
    fn no_hole(
        &self,
        promise: &Promise,
        lost: (usize, usize),
        there: &[BTreeSet<usize>],
    ) -> Result<(), String> {
        for (t, set) in there.iter().enumerate() {
            let later =
                |n: &&usize| self.before[t][**n][lost.0] > lost.1 || (t == lost.0 && **n > lost.1);
            if let Some(&n) = set.iter().find(later)
                && !set
                    .iter()
                    .filter(later)
                    .all(|n| self.tolerated(promise, lost, (t, *n)))
            {
                return Err(format!(
                    "a hole: {}/{} is lost, but {t}/{n} was begun after it and is there",
                    lost.0, lost.1
                ));
            }
        }
        Ok(())
    }

    fn check_last(&self, found: &Found, there: &[BTreeSet<usize>]) -> Result<(), String> {
        let last = |family: &str| found.get(family).and_then(|c| c.get(LAST));
        let value = last("default");
        if value != last(SECOND) {
            return Err("the families have other last batches".to_owned());
        }
        let Some(value) = value else {
            return if there.iter().all(BTreeSet::is_empty) {
                Ok(())
            } else {
                Err("there are batches, but no last one".to_owned())
            };
        };
        let (t, n) = parse(value).ok_or("the last batch has no name")?;
        if !there.get(t).is_some_and(|set| set.contains(&n)) {
            return Err(format!("{t}/{n} was the last batch and is lost"));
        }
        for (u, set) in there.iter().enumerate() {
            let newer = set
                .iter()
                .find(|&&m| (u == t && m > n) || self.before[u][m][t] > n);
            if let Some(m) = newer {
                return Err(format!("{t}/{n} is the last batch, but {u}/{m} is newer"));
            }
        }
        Ok(())
    }

    /// The book of a database that continues with these batches.
    fn heir(&self, promise: &Promise, counts: &Counts, killed: bool) -> Self {
        let mut me = self.clone();
        for (batches, &n) in me.before.iter_mut().zip(counts) {
            batches.truncate(n);
        }
        me.switches.truncate(promise.switches);
        me.now = Promise {
            started: counts.clone(),
            acknowledged: counts.clone(),
            submitted: counts.clone(),
            durable: if killed {
                promise.durable.clone()
            } else {
                counts.clone()
            },
            switches: promise.switches,
        };
        me
    }
}

/// An image that is to be checked.
struct Shot {
    disk: SimDisk,
    promise: Promise,
    killed: bool,
    label: String,
}

/// The images that are kept.
struct Shots {
    rng: Rng,
    kept: Vec<Shot>,
    /// How many images there were.
    seen: u64,
}

impl Shots {
    /// The index for the next image, if it is to be taken.
    fn place(&mut self) -> Option<usize> {
        self.seen += 1;
        if self.kept.len() < IMAGES_MAX {
            return Some(self.kept.len());
        }
        let place = self.rng.below(self.seen) as usize;
        (place < IMAGES_MAX).then_some(place)
    }

    fn put(&mut self, place: usize, shot: Shot) {
        match self.kept.get_mut(place) {
            Some(old) => *old = shot,
            None => self.kept.push(shot),
        }
    }
}

struct Recorder {
    book: Arc<Mutex<Book>>,
    state: Mutex<Shots>,
    points: std::sync::atomic::AtomicU64,
    direct: std::sync::atomic::AtomicU64,
}

impl Watcher for Recorder {
    fn at(&self, moment: &Moment<'_>) {
        use std::sync::atomic::Ordering::Relaxed;
        let mut shots = lock(&self.state);
        let event = moment.event;
        let log = event.path.extension().is_some_and(|e| e == "log");
        let mut book = lock(&self.book);
        if moment.phase == Phase::InFlight {
            self.points.fetch_add(1, Relaxed);
            if log && matches!(event.act, Act::Create | Act::Rename) {
                let switch = (book.now.acknowledged.clone(), book.now.started.clone());
                book.switches.push(switch);
                book.now.switches = book.switches.len();
            }
        } else {
            self.direct
                .fetch_add(u64::from(log && event.act == Act::WriteDsync), Relaxed);
        }
        let wanted = if log {
            shots.rng.below(2)
        } else {
            u64::from(shots.rng.one_in(6))
        };
        for _ in 0..wanted {
            let Some(place) = shots.place() else {
                continue;
            };
            let rng = &mut shots.rng;
            let killed = rng.one_in(6);
            let kind = CrashKind::any(rng);
            let disk = if killed {
                moment.kill_image()
            } else {
                moment.crash_image(rng, kind)
            };
            let shot = Shot {
                disk,
                promise: book.now.clone(),
                killed,
                label: format!("{event} {:?} {kind:?}, killed: {killed}", moment.phase),
            };
            shots.put(place, shot);
        }
    }
}

/// One of the writing threads.
struct Writer<'a> {
    db: &'a Db,
    book: &'a Mutex<Book>,
    rng: Rng,
    thread: usize,
    plant: Plant,
    submits: bool,
    sync: (bool, u64),
}

impl Writer<'_> {
    fn run(&mut self, operations: u64) -> Result<()> {
        for _ in 0..operations {
            let acknowledged = || lock(self.book).now.acknowledged.clone();
            match self.rng.below(40) {
                0..=1 => {
                    let upto = acknowledged();
                    self.db.sync_wal()?;
                    lock(self.book).promise(&upto, true, true);
                }
                2..=3 => {
                    let (upto, sync) = (acknowledged(), self.rng.one_in(2));
                    self.db.flush_wal(sync)?;
                    lock(self.book).promise(&upto, true, sync);
                }
                4 if self.thread < 2 => {
                    let upto = acknowledged();
                    let family = self.db.column_families().swap_remove(self.thread);
                    self.db.cf(&family).flush()?;
                    lock(self.book).promise(&upto, true, true);
                }
                _ => self.write()?,
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let sync = self.rng.one_in(self.sync.1) == self.sync.0;
        let number = lock(self.book).start(self.thread);
        if self.plant == Plant::AcknowledgeEarly && sync {
            lock(self.book).acknowledge(self.thread, number, true, true);
        }
        let mut batch = WriteBatch::new();
        let name = name(self.thread, number);
        let seed = lock(self.book).seed;
        let value = payload(seed, self.thread, number);
        let second = self.db.column_family(SECOND).ok_or_else(no_family)?;
        batch.put(&name, &value)?;
        batch.cf(&second).put(&name, b"")?;
        batch.put(LAST, &name)?;
        batch.cf(&second).put(LAST, &name)?;
        let options = WriteOptions {
            sync,
            ..WriteOptions::default()
        };
        self.db.with(&options).write(&mut batch)?;
        lock(self.book).acknowledge(self.thread, number, self.submits, sync);
        Ok(())
    }
}

fn no_family() -> Error {
    Error::corruption("the second family is gone")
}

/// Writes with several threads until each has done its operations.
fn write_all(setup: &Setup, rng: &mut Rng, options: &Options, book: &Mutex<Book>) -> Result<()> {
    let db = open_all(options)?;
    if db.column_family(SECOND).is_none() {
        db.create_column_family(SECOND, &options.cf)?;
    }
    let threads = lock(book).before.len();
    let sync = (rng.one_in(2), 2 + rng.below(5));
    let writers: Vec<Writer<'_>> = (0..threads)
        .map(|thread| Writer {
            db: &db,
            book,
            rng: Rng::new(rng.next_u64()),
            thread,
            plant: setup.plant,
            submits: !options.db.manual_wal_flush,
            sync,
        })
        .collect();
    let results: Vec<Result<()>> = base::sync::thread::scope(|scope| {
        let running: Vec<_> = writers
            .into_iter()
            .map(|mut w| scope.spawn(move || w.run(setup.operations)))
            .collect();
        running
            .into_iter()
            .map(|w| {
                w.join()
                    .unwrap_or_else(|_| Err(Error::aborted("a writer panicked")))
            })
            .collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    let upto = lock(book).now.acknowledged.clone();
    db.close()?;
    lock(book).promise(&upto, true, false);
    Ok(())
}

/// A workload of several threads, its crashes, and one more life.
pub fn run(setup: Setup) -> Tally {
    let mut rng = Rng::new(setup.seed);
    let mut tally = Tally {
        workloads: 1,
        ..Tally::default()
    };
    let config = Config {
        garbage_in: ".log",
        overtaking: true,
        ..Config::default()
            .with_sector(if rng.one_in(3) { 4096 } else { 512 })
            .with_atomic_writes(if rng.one_in(2) { 16384 } else { 4096 })
    };
    let threads = 2 + rng.below(5) as usize;
    let mut next = Some((SimDisk::new(config), Book::new(setup.seed, threads)));
    let mut lives = 0;
    while let Some((disk, book)) = next.take()
        && lives < 3
        && tally.failures.is_empty()
    {
        lives += 1;
        next = live(&setup, &mut rng, &disk, book, &mut tally);
    }
    tally
}

/// One life; returns a disk and its book to continue with.
fn live(
    setup: &Setup,
    rng: &mut Rng,
    disk: &SimDisk,
    book: Book,
    tally: &mut Tally,
) -> Option<(SimDisk, Book)> {
    let options = options(rng, &SimClock::shared(), setup);
    super::choose_garbage(disk, &options, rng);
    let book = Arc::new(Mutex::new(book));
    let recorder = Arc::new(Recorder {
        book: Arc::clone(&book),
        state: Mutex::new(Shots {
            rng: Rng::new(rng.next_u64()),
            kept: Vec::new(),
            seen: 0,
        }),
        points: 0.into(),
        direct: 0.into(),
    });
    disk.watch(Arc::clone(&recorder) as Arc<dyn Watcher>);
    let fs: Arc<dyn io::FileSystem> = match setup.plant {
        Plant::Disk(lie) => Lying::new(disk.shared(), lie),
        _ => disk.shared(),
    };
    let context = format!(
        "{} threads; {}; reproduce: IRONSTONE_CRASH_SEED={} \
         cargo test -p ironstone-sim --test crash threads",
        lock(&book).before.len(),
        super::drawn_settings(&options),
        setup.seed
    );
    if let Err(e) = write_all(setup, rng, &on(&options, fs), &book) {
        tally.fail(format!("the workload failed: {e}; {context}"));
    }
    disk.unwatch();
    tally.points += recorder.points.load(std::sync::atomic::Ordering::Relaxed);
    tally.direct += recorder.direct.load(std::sync::atomic::Ordering::Relaxed);
    let shots = std::mem::take(&mut lock(&recorder.state).kept);
    let book = lock(&book).clone();
    check_all(&options, rng, &book, shots, tally, &context)
}

fn check_all(
    options: &Options,
    rng: &mut Rng,
    book: &Book,
    shots: Vec<Shot>,
    tally: &mut Tally,
    context: &str,
) -> Option<(SimDisk, Book)> {
    let mut chain: Vec<(Counts, String)> = Vec::new();
    let mut heir = None;
    let all = shots.len() as u64;
    for shot in shots {
        let before = shot.disk.kill_image();
        tally.states += 1;
        let found = open(options, &shot.disk);
        match found.and_then(|found| book.check(&shot.promise, &found, shot.killed)) {
            Ok(None) => {}
            Ok(Some(counts)) => {
                if rng.below(all) < 3 {
                    heir = Some((before, book.heir(&shot.promise, &counts, shot.killed)));
                }
                chain.push((counts, shot.label));
            }
            Err(what) if check::is_ambiguous(&before, &what) => tally.ambiguous += 1,
            Err(what) => {
                check::dump(&before);
                tally.fail(format!("{what}; {}; {context}", shot.label));
                return None;
            }
        }
    }
    chain.sort_by_key(|(counts, _)| counts.iter().sum::<usize>());
    for pair in chain.windows(2) {
        if !covers(&pair[1].0, &pair[0].0) {
            tally.fail(format!(
                "two orders: {:?} at {}, {:?} at {}; {context}",
                pair[0].0, pair[0].1, pair[1].0, pair[1].1
            ));
        }
    }
    heir
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content of a database with these batches, of which `last` is the last.
    fn found(book: &Book, batches: &[(usize, usize)], last: (usize, usize)) -> Found {
        let mut out = Found::new();
        for family in ["default", SECOND] {
            let contents = out.entry(family.to_owned()).or_default();
            for &(t, n) in batches {
                let value = payload(book.seed, t, n);
                contents.insert(name(t, n).into_bytes(), value);
            }
            contents.insert(LAST.to_vec(), name(last.0, last.1).into_bytes());
        }
        out
    }

    #[test]
    fn losses_holes_halves_and_wrong_orders_are_seen() {
        let mut book = Book::new(7, 2);
        for (thread, sync) in [(0, false), (1, true), (0, false), (0, false)] {
            let number = book.start(thread);
            book.acknowledge(thread, number, true, sync);
        }
        // 0/0 is older than the synced 1/0, so both are durable.
        assert_eq!(book.now.durable, [1, 1]);
        let check = |batches: &[(usize, usize)], last| {
            book.check(&book.now, &found(&book, batches, last), false)
        };
        let counts = check(&[(0, 0), (1, 0), (0, 1)], (0, 1)).unwrap();
        assert_eq!(counts, Some(vec![2, 1]));
        let lost = check(&[(0, 0)], (0, 0)).unwrap_err();
        assert!(lost.contains("1/0 is lost"), "{lost}");
        let hole = check(&[(0, 0), (1, 0), (0, 2)], (0, 2)).unwrap_err();
        assert!(hole.contains("a hole"), "{hole}");
        let last = check(&[(0, 0), (1, 0), (0, 1)], (1, 0)).unwrap_err();
        assert!(last.contains("is newer"), "{last}");
        let mut half = found(&book, &[(0, 0), (1, 0)], (1, 0));
        half.get_mut(SECOND).unwrap().remove(&b"0/000000"[..]);
        let half = book.check(&book.now, &half, false).unwrap_err();
        assert!(half.contains("one family"), "{half}");
        let killed = found(&book, &[(0, 0), (1, 0), (0, 1)], (0, 1));
        book.check(&book.now, &killed, true).unwrap_err();
    }

    #[test]
    fn a_hole_is_tolerated_where_a_log_was_begun() {
        let mut book = Book::new(7, 2);
        for thread in [0, 1, 0] {
            let number = book.start(thread);
            book.acknowledge(thread, number, true, false);
            if thread == 1 {
                let now = &mut book.now;
                let switch = (now.acknowledged.clone(), now.started.clone());
                book.switches.push(switch);
                book.now.switches = 1;
            }
        }
        let hole = found(&book, &[(0, 0), (0, 1)], (0, 1));
        assert_eq!(book.check(&book.now, &hole, false), Ok(None));
        book.now.switches = 0;
        book.check(&book.now, &hole, false).unwrap_err();
    }
}
