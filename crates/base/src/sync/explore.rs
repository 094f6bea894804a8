//! Runs a test under many random schedules, each with its own seed.
//!
//! The seed selects one of three ways to choose the next thread: any thread with equal probability;
//! mostly the current thread, which is replaced with a random probability at each step; or random
//! priorities, which change at a few random steps. The last way finds bugs that need few switches at
//! the right places (Burckhardt and others, "A randomized scheduler with probabilistic guarantees of
//! finding bugs").

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use super::time;
use crate::rng::Rng;

/// The environment variable with the number of schedules of each test.
pub const SCHEDULES_VARIABLE: &str = "IRONSTONE_SCHEDULES";
/// The environment variable with the seed of the first schedule.
pub const SEED_VARIABLE: &str = "IRONSTONE_SCHEDULE_SEED";
/// The environment variable that makes a test run all schedules instead of its share.
pub const ALONE_VARIABLE: &str = "IRONSTONE_SCHEDULES_ALONE";

/// Default number of schedules for a test with a share of 100 %.
const SCHEDULES: u64 = 200;
/// One in this many choices lets time advance although threads could run.
const TIME_RUNS_AHEAD: u64 = 300;
/// Maximum steps of a schedule: with more, it is in an endless loop.
const STEPS_MAX: usize = 3_000_000;
/// Bytes of each simulated thread's stack.
const STACK_BYTES: usize = 256 << 10;

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// How the next thread is chosen.
#[derive(Debug)]
enum Way {
    Any,
    /// The current thread continues, except in one of this many steps.
    Mostly(u64),
    /// The thread with the lowest number; at the steps in `changes` the current thread gets the
    /// highest number.
    Priorities {
        of: BTreeMap<usize, u64>,
        last: u64,
        changes: Vec<u64>,
    },
}

impl Way {
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(8) {
            0..2 => Self::Any,
            2..5 => Self::Mostly(2 << rng.below(6)),
            _ => {
                let steps = 100 << rng.below(8);
                let changes = (0..rng.below(6)).map(|_| rng.below(steps)).collect();
                Self::Priorities {
                    of: BTreeMap::new(),
                    last: 1 << 32,
                    changes,
                }
            }
        }
    }
}

/// Generates one random schedule after the other.
struct Drawn {
    next: u64,
    step_by: u64,
    end: u64,
    now: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    rng: Rng,
    way: Way,
    steps: u64,
}

impl Drawn {
    fn choose(&mut self, runnable: &[usize], current: Option<usize>, yields: bool) -> usize {
        let any = |rng: &mut Rng| runnable[rng.below(runnable.len() as u64) as usize];
        let current = current.filter(|c| runnable.contains(c));
        match &mut self.way {
            Way::Any => any(&mut self.rng),
            Way::Mostly(one_in) => match current {
                Some(c) if !yields && !self.rng.one_in(*one_in) => c,
                _ => any(&mut self.rng),
            },
            Way::Priorities { of, last, changes } => {
                for task in runnable {
                    let rng = &mut self.rng;
                    of.entry(*task).or_insert_with(|| rng.below(1 << 32));
                }
                if let Some(c) = current
                    && (yields || changes.contains(&self.steps))
                {
                    *last += 1;
                    of.insert(c, *last);
                }
                let first = runnable.iter().min_by_key(|t| of.get(t));
                *first.unwrap_or(&runnable[0])
            }
        }
    }
}

impl Scheduler for Drawn {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.next >= self.end || self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let seed = self.next;
        self.next += self.step_by;
        self.now.store(seed, Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Relaxed);
        SEED.set(seed);
        self.rng = Rng::new(seed);
        self.way = Way::draw(&mut self.rng);
        self.steps = 0;
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        all: &[&Task],
        current: Option<TaskId>,
        yields: bool,
    ) -> Option<TaskId> {
        self.steps += 1;
        let keeper = time::keeper();
        let tasks = all.iter().map(|t| usize::from(t.id()));
        let others: Vec<usize> = tasks.filter(|t| Some(*t) != keeper).collect();
        // A parked thread may wake spuriously: that alone must not stop time.
        let awake = all
            .iter()
            .any(|t| t.runnable() && Some(usize::from(t.id())) != keeper);
        let runs = keeper.filter(|k| {
            let keeper_can = all.iter().any(|t| usize::from(t.id()) == *k);
            keeper_can && (!awake || self.rng.one_in(TIME_RUNS_AHEAD))
        });
        if let Some(keeper) = runs {
            time::keeper_runs(!awake);
            return Some(TaskId::from(keeper));
        }
        let current = current.map(usize::from);
        Some(TaskId::from(self.choose(&others, current, yields)))
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|e| panic!("{variable}={text}: {e}")))
}

/// The seed of the current schedule.
pub fn seed() -> u64 {
    SEED.get()
}

/// Runs `body` under `share` percent of the schedules that [`SCHEDULES_VARIABLE`] says, at least one.
/// If one fails, prints how to run it again, and panics.
pub fn explore(name: &str, share: u64, body: fn(u64)) {
    let share = if number(ALONE_VARIABLE).is_some() {
        100
    } else {
        share
    };
    let total = (number(SCHEDULES_VARIABLE).unwrap_or(SCHEDULES) * share / 100).max(1);
    let first = number(SEED_VARIABLE).unwrap_or(1);
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let workers = processors.min(total);
    let done = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let begun = shown(name, total);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let now = Arc::new(AtomicU64::new(0));
            let drawn = Drawn {
                next: first + worker,
                step_by: workers,
                end: first + total,
                now: Arc::clone(&now),
                done: Arc::clone(&done),
                stop: Arc::clone(&stop),
                rng: Rng::new(0),
                way: Way::Any,
                steps: 0,
            };
            let stop = Arc::clone(&stop);
            scope.spawn(move || {
                let run = || Runner::new(drawn, config()).run(move || body(seed()));
                if let Err(e) = catch_unwind(AssertUnwindSafe(run)) {
                    stop.store(true, Ordering::Relaxed);
                    let seed = now.load(Ordering::Relaxed);
                    eprintln!(
                        "schedule {seed} of {name} fails; again: \
                         cargo xtask schedules --only {name} --seed {seed} --iterations 1"
                    );
                    resume_unwind(e);
                }
            });
        }
        progress(name, total, &done, &stop);
    });
    begun(done.load(Ordering::Relaxed));
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    config
        .ungraceful_shutdown_config
        .immediately_return_on_panic = true;
    config
}

/// Prints how many schedules were run in what time.
#[expect(
    clippy::disallowed_methods,
    reason = "tells the tester how long it took"
)]
fn shown(name: &str, total: u64) -> impl FnOnce(u64) {
    let begun = std::time::Instant::now();
    move |done| {
        let seconds = begun.elapsed().as_secs_f64();
        let rate = done as f64 / seconds.max(0.001);
        eprintln!("{name}: {done} of {total} schedules in {seconds:.1} s, {rate:.0} a second");
    }
}

/// Seconds between two lines of progress.
const TELL_SECONDS: u64 = 30;

fn progress(name: &str, total: u64, done: &AtomicU64, stop: &AtomicBool) {
    let mut tenths = 0;
    while done.load(Ordering::Relaxed) < total && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(std::time::Duration::from_millis(100));
        tenths += 1;
        if tenths % (10 * TELL_SECONDS) == 0 {
            let (done, seconds) = (done.load(Ordering::Relaxed), tenths / 10);
            eprintln!("{name}: {done} of {total} schedules after {seconds} s");
        }
    }
}
