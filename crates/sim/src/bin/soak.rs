//! The long random tests, as a program: `cargo xtask soak` builds it with optimisation and runs it.
//!
//! ```text
//! soak model --ops 10000000 --sets 20 --seed 1      the model, under 20 sets of options
//! soak switches --switches 2000 --seed 1            turns with RocksDB on one directory
//! soak ttl --ops 200000 --sets 20 --seed 1          values that expire
//! soak chaos --minutes 10 --seed 1                  many threads, and everything goes wrong
//! soak block --minutes 10 --seed 1                  simulated clusters of block stores
//! ```
//!
//! Progress goes to standard error, the result to standard output. The first failure ends the run and
//! prints the command that repeats it.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]
#![expect(
    clippy::disallowed_methods,
    reason = "runs are timed, and run side by side"
)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use sim::chaos;
use sim::cluster::coverage::Coverage;
use sim::cluster::run;
use sim::model::{self, Counts, Plan};
use sim::oracle;
use sim::turns;

#[derive(Parser)]
#[command(about = "The long random tests")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Random operations against a model, under sets of options
    Model(Model),
    /// Ironstone and RocksDB take turns on one directory
    Switches(Switches),
    /// Random operations on databases whose values expire
    Ttl(Ttl),
    /// Everything at once from many threads, while calls of the disk fail and users' code panics
    Chaos(Chaos),
    /// Simulated clusters of block stores, while nodes, networks, clocks and disks fail
    Block(Block),
}

#[derive(clap::Args)]
struct Model {
    /// Operations in all
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    ops: u64,
    /// Sets of options, each with a database of its own
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    sets: u64,
    /// The seed of the first set
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many times more often the rare operations come
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rare: u64,
    /// Run the one seed alone, with all operations: to repeat a failure
    #[arg(long)]
    only: bool,
    /// Threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,
}

#[derive(clap::Args)]
struct Switches {
    /// Switches in all
    #[arg(long = "switches", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Games into which they are divided
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    games: u64,
    /// The seed of the first game
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
struct Ttl {
    /// Operations in all
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    ops: u64,
    /// Sets of options
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    sets: u64,
    /// The seed of the first set
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
struct Chaos {
    /// How long
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Rounds, at most
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    rounds: u64,
    /// Seconds of a round
    #[arg(long, default_value_t = 6.0)]
    round_seconds: f64,
    /// The seed of the first round
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds that an operation may take
    #[arg(long, default_value_t = 60.0)]
    bound_seconds: f64,
    /// Parts to leave out, separated by commas: faults, panics, comparators, async,
    /// callbacks-that-write, listeners-that-read, listeners-that-write, ingestion, families, imports, ranges, resume, pauses,
    /// set-options, copies, unlogged
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Where the disk is copied to at a failure
    #[arg(long)]
    dump: Option<std::path::PathBuf>,
    /// Options that are not drawn: name=value;...
    #[arg(long, default_value = "")]
    options: String,
}

#[derive(clap::Args)]
struct Block {
    /// How long, unless the seeds end before
    #[arg(long)]
    minutes: Option<f64>,
    /// Seeds, at most; 1000 if no time is said either
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,
    /// Go on behind a failure, and tell of each in a line
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Model(a) => run_model(&a),
        Task::Switches(a) => run_switches(&a),
        Task::Ttl(a) => run_ttl(&a),
        Task::Chaos(a) => run_chaos(&a),
        Task::Block(a) => run_block(&a),
    };
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

/// Seconds between lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// Runs `work`, and prints lines of progress in the meantime.
fn watched<T>(
    total: u64,
    what: &str,
    done: impl Fn() -> u64 + Sync,
    work: impl FnOnce() -> T,
) -> T {
    let begun = Instant::now();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            while stopped
                .recv_timeout(PROGRESS)
                .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                let (n, seconds) = (done(), begun.elapsed().as_secs_f64());
                let rate = n as f64 / seconds;
                let left = total.saturating_sub(n) as f64 / rate.max(1e-9);
                eprintln!("{n} of {total} {what}, {rate:.0}/s, {left:.0} s to go");
            }
        });
        let out = work();
        drop(stop);
        out
    })
}

fn seconds_since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64().max(1e-9)
}

fn run_model(a: &Model) -> Result<String, String> {
    let sets = if a.only { 1 } else { a.sets };
    let plans: Vec<Plan> = (0..sets)
        .map(|n| Plan {
            seed: a.seed + n,
            operations: a.ops.div_ceil(sets),
            rare: a.rare,
        })
        .collect();
    let counts = Arc::new(Counts::default());
    let begun = Instant::now();
    let done = watched(
        a.ops,
        "operations",
        || counts.operations(),
        || model::run_all(&plans, a.threads as usize, &counts),
    );
    let (n, rate) = (
        counts.operations(),
        counts.operations() as f64 / seconds_since(begun),
    );
    let told = format!("{n} operations, {sets} sets of options, {rate:.0}/s: {counts}");
    done.map(|()| format!("model: all agree; {told}"))
        .map_err(|failure| format!("{failure}\nmodel: FAILED; {told}"))
}

fn run_switches(a: &Switches) -> Result<String, String> {
    let lib = oracle::rocksdb().ok_or("there is no RocksDB to take turns with")?;
    let mut total = turns::Tally::default();
    let played = AtomicU64::new(0);
    let begun = Instant::now();
    watched(
        a.count,
        "switches",
        || played.load(Ordering::Relaxed),
        || {
            for n in 0..a.games {
                let plan = turns::Plan {
                    seed: a.seed + n,
                    switches: a.count.div_ceil(a.games),
                    classic: n % 2 == 0,
                };
                let before = played.load(Ordering::Relaxed);
                let progress = |turn| played.store(before + turn, Ordering::Relaxed);
                total.add(turns::play(plan, &lib, &progress)?);
            }
            Ok::<(), String>(())
        },
    )?;
    let version = lib.version().map_err(|e| e.to_string())?;
    let rate = total.switches as f64 / seconds_since(begun);
    Ok(format!(
        "turns with RocksDB {version}: all scans are equal; {total}; {rate:.1} switches/s"
    ))
}

fn run_ttl(a: &Ttl) -> Result<String, String> {
    let begun = Instant::now();
    for seed in a.seed..a.seed + a.sets {
        model::run_ttl(seed, a.ops.div_ceil(a.sets))?;
    }
    let rate = a.ops as f64 / seconds_since(begun);
    Ok(format!(
        "time to live: all agree; {} operations, {rate:.0}/s",
        a.ops
    ))
}

/// A progress bar as text.
fn bar(part: f64) -> String {
    let full = (part.clamp(0.0, 1.0) * 30.0) as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(30 - full))
}

fn run_chaos(a: &Chaos) -> Result<String, String> {
    let bound = Duration::from_secs_f64(a.bound_seconds);
    let watch = chaos::Watch::start(bound, a.dump.clone()).map_err(|e| e.to_string())?;
    let part = |name: &String| chaos::Part::named(name).ok_or(format!("--without {name}?"));
    let without: Vec<_> = a.without.iter().map(part).collect::<Result<_, _>>()?;
    let mut tally = chaos::Tally::default();
    let (begun, seconds) = (Instant::now(), a.minutes * 60.0);
    let told = |tally: &chaos::Tally| {
        let (ms, what) = watch.longest();
        format!(
            "{} rounds, {} lives, {} operations, {} failed calls, {} panics, longest {ms} ms ({what}), \
             {} MiB",
            tally.rounds,
            tally.lives,
            watch.operations(),
            tally.faults,
            tally.panics,
            tally.memory >> 20
        )
    };
    while seconds_since(begun) < seconds && tally.rounds < a.rounds {
        let plan = chaos::Plan {
            seed: a.seed + tally.rounds,
            time: Duration::from_secs_f64(a.round_seconds),
            without: without.clone(),
            options: a.options.clone(),
        };
        let mut repeat = format!(
            "cargo xtask soak chaos --seed {} --rounds 1 --round-seconds {}",
            plan.seed, a.round_seconds
        );
        if !a.without.is_empty() {
            repeat += &format!(" --without {}", a.without.join(","));
        }
        if !a.options.is_empty() {
            repeat += &format!(" --options '{}'", a.options);
        }
        watch.set_repeat(repeat.clone());
        let done = chaos::run(&plan, &watch, &mut tally);
        done.map_err(|e| format!("{e}\nrepeat: {repeat}\nchaos: FAILED; {}", told(&tally)))?;
        let now = seconds_since(begun);
        eprintln!(
            "{} {now:.0} of {seconds:.0} s, {}",
            bar(now / seconds),
            told(&tally)
        );
    }
    Ok(format!("chaos: all held; {}", told(&tally)))
}

/// Runs that may be used to reduce a failing seed.
const REDUCING_RUNS: usize = 200;

fn run_block(a: &Block) -> Result<String, String> {
    let seeds = a
        .seeds
        .unwrap_or(if a.minutes.is_some() { u64::MAX } else { 1000 });
    let limit = a.minutes.map(|minutes| minutes * 60.0);
    let (begun, next) = (Instant::now(), AtomicU64::new(0));
    let total: Mutex<(Coverage, Vec<(u64, String)>)> = Mutex::default();
    let lock = || total.lock().unwrap_or_else(PoisonError::into_inner);
    let is_over = || {
        let is_late = limit.is_some_and(|limit| seconds_since(begun) >= limit);
        is_late || (!a.keep_going && !lock().1.is_empty())
    };
    let work = || {
        while !is_over() {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= seeds {
                return;
            }
            let seed = a.seed.wrapping_add(n);
            let done = run::run(seed);
            let mut total = lock();
            match done {
                Ok(done) => total.0.add(&done.coverage),
                Err(e) => {
                    eprintln!("seed {seed}: {}", e.lines().next().unwrap_or_default());
                    total.1.push((seed, e));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..a.threads).map(|_| scope.spawn(work)).collect();
        let mut told = Instant::now();
        while !workers
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
        {
            std::thread::sleep(Duration::from_millis(50));
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                let (done, now) = (lock().0.runs, seconds_since(begun));
                let part = limit.map_or(done as f64 / seeds as f64, |limit| now / limit);
                eprintln!("{} {done} seeds, {:.1}/s", bar(part), done as f64 / now);
            }
        }
    });
    let (coverage, mut failed) = std::mem::take(&mut *lock());
    let seconds = seconds_since(begun);
    let told = format!("{seconds:.1} s\n{coverage}");
    failed.sort();
    let count = failed.len();
    match failed.into_iter().next() {
        None => Ok(format!("block: all held; {told}")),
        Some((seed, e)) => {
            let failure = run::explain(seed, e, REDUCING_RUNS);
            Err(format!("{failure}\nblock: {count} seeds FAILED; {told}"))
        }
    }
}
