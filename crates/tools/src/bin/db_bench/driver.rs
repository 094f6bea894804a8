//! Opens the database, runs the benchmarks one after the other, and prints their results.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use base::clock::Clock;
use base::rng::Rng;
use base::{Error, ErrorKind, Result};

use crate::benchmarks::{Loop, Plan, Task};
use crate::databases::Databases;
use crate::engine::Engine;
use crate::environment;
use crate::flags::Flags;
use crate::pace::sine_rate;
use crate::progress::{Progress, Stall};
use crate::repeat::{Rates, Repeat};
use crate::reporter::Reporter;
use crate::requests::Watch;
use crate::say;
use crate::stats::Stats;
use crate::work::{Together, Worker};

/// A run of benchmarks on one engine.
pub(crate) struct Driver<E: Engine> {
    flags: Flags,
    clock: Arc<dyn Clock>,
    on: Databases<E>,
    seed: u64,
    /// Number of threads started so far; each gets a separate stream of random numbers.
    threads: u64,
}

impl<E: Engine> Driver<E> {
    /// Runs everything that the flags ask for. Names are checked before any file is changed.
    pub(crate) fn run(mut flags: Flags, name: &str, clock: Arc<dyn Clock>) -> Result<()> {
        crate::options::options(&flags)?;
        crate::keys::Sizes::new(&flags, 0)?;
        let benchmarks = flags.benchmarks.clone();
        let mut tasks = parse(&benchmarks, &flags)?;
        if flags.sine_write_rate {
            flags.benchmark_write_rate_limit = sine_rate(&flags, 0.0).max(1.0) as u64;
        }
        if flags.use_secondary_db && flags.secondary_path.is_empty() {
            let own = environment::test_directory().join("dbbench_secondary");
            flags.secondary_path = own.display().to_string();
        }
        let on = Databases::new(&flags, directory(&flags))?;
        let seed = if flags.seed == 0 {
            let seed = clock.wall_micros();
            say(&format!("Set seed to {seed} because --seed was 0\n"));
            seed
        } else {
            flags.seed as u64
        };
        let mut driver = Self {
            flags,
            clock,
            on,
            seed,
            threads: 0,
        };
        if !driver.flags.use_existing_db {
            driver.on.destroy(&driver.flags)?;
        }
        driver.open()?;
        if driver.flags.use_keep_filter {
            say("A noop compaction filter is used\n");
        }
        if driver.flags.use_existing_keys {
            driver.flags.num = driver.on.read_keys()? as i64;
            tasks = parse(&benchmarks, &driver.flags)?;
        }
        environment::print_environment(name, driver.clock.wall_micros());
        say(&environment::header(&driver.flags));
        for (name, repeat, task) in &tasks {
            driver.task(name, *repeat, task)?;
        }
        if let Some(statistics) = driver.on.first()?.statistics() {
            say(&format!("STATISTICS:\n{statistics}\n"));
        }
        driver.on.close()?;
        if driver.flags.use_secondary_db {
            let times = driver.on.caught_up();
            say(&format!("Secondary instance updated  {times} times.\n"));
        }
        if driver.flags.process_stats {
            say(&environment::process_stats());
        }
        if driver.flags.print_malloc_stats {
            say(&environment::memory());
        }
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        let start = self.clock.monotonic_nanos();
        self.on.open(&self.flags)?;
        if self.flags.report_open_timing {
            let nanos = self.clock.monotonic_nanos() - start;
            say(&format!(
                "OpenDb:     {} milliseconds\n",
                nanos as f64 / 1e6
            ));
        }
        Ok(())
    }

    fn task(&mut self, name: &str, repeat: Repeat, task: &Task) -> Result<()> {
        match task {
            Task::Run(plan) => return self.run_plan(name, repeat, plan),
            Task::Flush => {
                for engine in self.on.all() {
                    engine.flush()?;
                }
                say("flush memtable\n");
            }
            Task::WaitForCompaction => {
                for (dir, engine) in self.on.named(&self.flags) {
                    let dir = dir.display();
                    say(&format!("waitforcompaction({dir}): started\n"));
                    engine.wait_for_compaction()?;
                    say(&format!(
                        "waitforcompaction({dir}): finished with status (OK)\n"
                    ));
                }
            }
            Task::VerifyAgainst => {
                let dir = Path::new(&self.flags.truth_db);
                let truth = self.on.open_other(&self.flags, dir)?;
                let compared = crate::compare::databases(self.on.first()?, &truth);
                truth.close()?;
                compared?;
            }
            Task::CompactAll => {
                for engine in self.on.all() {
                    engine.compact(false)?;
                }
            }
            Task::CompactLevel(level) => {
                for engine in self.on.all() {
                    compact_level(engine.as_ref(), *level)?;
                }
            }
            Task::Properties(properties) => {
                let several = self.on.all().len() > 1;
                for (dir, engine) in self.on.named(&self.flags) {
                    if several {
                        say(&format!("\n==== DB: {} ===\n", dir.display()));
                    }
                    show(engine, properties);
                }
            }
        }
        Ok(())
    }

    fn run_plan(&mut self, name: &str, repeat: Repeat, plan: &Plan) -> Result<()> {
        Stats::make_times_file(&self.flags)?;
        if plan.fresh {
            if self.flags.use_existing_db {
                say(&format!(
                    "{name:<12} : skipped (--use_existing_db is true)\n"
                ));
                return Ok(());
            }
            self.on.close()?;
            self.on.destroy(&self.flags)?;
            self.open()?;
        }
        say(&format!("DB path: [{}]\n", self.on.dir().display()));
        if matches!(plan.action, Loop::Backup | Loop::Restore) {
            say(&format!("Backup path: [{}]\n", self.flags.backup_dir));
        }
        if plan.action == Loop::Restore {
            say(&format!("Restore path: [{}]\n", self.flags.restore_dir));
        }
        if repeat.warmups > 0 {
            let times = repeat.warmups;
            say(&format!("Warming up benchmark by running {times} times\n"));
        }
        for _ in 0..repeat.warmups {
            self.threads(name, plan)?;
        }
        if repeat.runs > 1 {
            let times = repeat.runs;
            say(&format!("Running benchmark for {times} times\n"));
        }
        let mut rates = Rates::default();
        for _ in 0..repeat.runs {
            if let Some((operations, megabytes)) = self.threads(name, plan)? {
                rates.add(operations, megabytes);
                say(&rates.so_far(name, self.flags.confidence_interval_only));
            }
        }
        say(&rates.summary(name));
        Ok(())
    }

    /// Runs the plan in its threads, adds up their counts, prints the sum, and returns the rates;
    /// `None` if no thread's operations are counted.
    fn threads(&mut self, name: &str, plan: &Plan) -> Result<Option<(f64, Option<f64>)>> {
        let beside = usize::from(plan.meanwhile.is_some());
        let total = (plan.seconds == 0).then(|| plan.total(self.on.all().len()));
        let reporter = Reporter::wanted(&self.flags)?.map(Arc::new);
        let first = self.threads;
        self.threads += (plan.threads + beside) as u64;
        let (engine, flags, clock) = (self.on.first()?, &self.flags, &self.clock);
        let more = || interval_statistics(engine, flags);
        let progress = Progress::new(name, flags, total, Arc::clone(clock), &more);
        let progress = Arc::new(progress);
        let together = Together::new(plan, flags, clock);
        let seed = self.seed.wrapping_add(first + 1);
        let stats = |thread| {
            let (clock, progress) = (Arc::clone(clock), Arc::clone(&progress));
            Stats::new(thread, clock, progress, reporter.clone(), flags)
        };
        // The thread beside the others is the first, as in RocksDB.
        let worker = |thread: usize| Worker {
            engine,
            on: &self.on,
            flags,
            plan,
            rng: Rng::new(seed.wrapping_add(thread as u64)),
            stats: match thread.checked_sub(beside) {
                Some(number) => stats(number),
                None => stats(thread).beside(),
            },
            together: &together,
            number: thread.checked_sub(beside),
        };
        let all = plan.threads + beside;
        let barrier = Barrier::new(all);
        let watch = Watch::new(engine, flags.num_column_families as usize);
        let stall = || Stall::of(|name| engine.property(name));
        let results: Vec<Result<Ended<'_>>> = std::thread::scope(|scope| {
            if plan.action == Loop::Requests {
                scope.spawn(|| watch.run());
            }
            if let Some(reporter) = &reporter {
                scope.spawn(|| reporter.run(clock.as_ref()));
            }
            let shown = progress.is_shown();
            let show = shown.then(|| scope.spawn(|| progress.run(stall)));
            let started: Vec<_> = (0..all)
                .map(|thread| {
                    let (worker, barrier) = (worker(thread), &barrier);
                    let run = move || {
                        worker.run(|| {
                            barrier.wait();
                        })
                    };
                    std::thread::Builder::new()
                        .name(format!("bench-{thread}"))
                        .spawn_scoped(scope, run)
                })
                .collect();
            let ended = started.into_iter().map(join).collect();
            watch.end();
            progress.end();
            if let Some(show) = show {
                show.thread().unpark();
            }
            if let Some(reporter) = &reporter {
                reporter.end();
            }
            ended
        });
        let (sum, outcome) = sum(results, beside);
        if let Some(sum) = &sum {
            sum.write_times(Path::new(&flags.times_file))?;
        }
        tell(name, (sum, outcome), &watch)
    }
}

/// Compacts level 0, or the first level below it that has data, into the next level that has data.
/// Tries again if a background job takes one of the files meanwhile.
fn compact_level(engine: &impl Engine, from: u8) -> Result<()> {
    const TRIES: u32 = 10;
    for tried in 1.. {
        let tables = engine.tables()?;
        let behind = |level: i32| {
            let levels = tables.iter().map(|(l, _)| *l);
            levels.filter(|&l| l > level).min()
        };
        let first = if from == 0 { Some(0) } else { behind(0) };
        let of = |level| tables.iter().filter(move |(l, _)| Some(*l) == level);
        let names: Vec<_> = of(first).map(|(_, name)| name.clone()).collect();
        let (Some(first), false) = (first, names.is_empty()) else {
            say(&format!("compact{from} found 0 files to compact\n"));
            return Ok(());
        };
        let Some(next) = behind(first) else {
            say(&format!("compact{from} found no data beyond L{first}\n"));
            return Ok(());
        };
        say(&format!(
            "compact{from} found {} files to compact from L{first} to L{next}\n",
            names.len()
        ));
        match engine.compact_files(&names, next) {
            Err(e) if tried < TRIES && e.kind() != ErrorKind::NotSupported => {
                eprintln!("compact{from} CompactFiles failed: {e}");
                engine.wait_for_compaction()?;
            }
            done => return done,
        }
    }
    Ok(())
}

/// Prints properties.
fn show(engine: &impl Engine, properties: &[&str]) {
    for property in properties {
        let text = engine.property(property);
        let text = text.as_deref().unwrap_or("(failed)");
        if properties.len() > 1 {
            say(&format!("{property}: {text}\n"));
        } else {
            say(&format!("\n{text}\n"));
        }
        if *property == "rocksdb.stats" {
            say(&crate::older::lines(text));
        }
    }
}

/// The benchmarks of this list. Errors: an unknown name, or a benchmark that is incompatible with
/// the flags.
fn parse<'a>(list: &'a str, flags: &Flags) -> Result<Vec<(&'a str, Repeat, Task)>> {
    let names = list.split(',').filter(|name| !name.is_empty());
    names.map(|text| Task::parse(text, flags)).collect()
}

/// Prints the result line of a benchmark, and returns its rates.
fn tell(
    name: &str,
    (sum, outcome): (Option<Stats<'_>>, Result<()>),
    watch: &Watch<'_, impl Engine>,
) -> Result<Option<(f64, Option<f64>)>> {
    let Some(mut sum) = sum else {
        return outcome.map(|()| None);
    };
    sum.add_message(&watch.told());
    if let Err(e) = &outcome {
        sum.add_message(&format!("(INCOMPLETE: {e})"));
    }
    say(&sum.result(name));
    if let Some(operations) = watch.engine().file_operations() {
        say(&operations);
    }
    outcome.map(|()| Some(sum.rates()))
}

/// The counts of a thread, and whether it finished.
type Ended<'s> = (Stats<'s>, Result<()>);

/// The sum of the counts of all threads after the first `beside` ones, and the first error of any thread.
/// `None` if no thread's operations are counted.
fn sum(results: Vec<Result<Ended<'_>>>, beside: usize) -> (Option<Stats<'_>>, Result<()>) {
    let (mut sum, mut outcome): (Option<Stats<'_>>, _) = (None, Ok(()));
    for (thread, ended) in results.into_iter().enumerate() {
        let (stats, done) = match ended {
            Ok((stats, done)) => (Some(stats), done),
            Err(e) => (None, Err(e)),
        };
        outcome = outcome.and(done);
        match (&mut sum, stats.filter(|_| thread >= beside)) {
            (Some(sum), Some(stats)) => sum.merge(stats),
            (sum @ None, stats) => *sum = stats,
            (Some(_), None) => {}
        }
    }
    (sum, outcome)
}

/// The text after an interval line with `--stats_per_interval`.
fn interval_statistics(engine: &impl Engine, flags: &Flags) -> String {
    let families = flags.num_column_families.max(1).unsigned_abs() as usize;
    let mut text = String::new();
    if families > 1 {
        for family in 0..families {
            text += &engine
                .property_of(family, "rocksdb.cfstats")
                .unwrap_or_default();
            text += "\n";
            text += &table_properties(engine, family, flags);
        }
        return text;
    }
    let of = |name: &str| engine.property(name).unwrap_or_default();
    text += &format!(
        "{}num-running-compactions: {}\nnum-running-flushes: {}\n\n",
        of("rocksdb.stats"),
        of("rocksdb.num-running-compactions"),
        of("rocksdb.num-running-flushes")
    );
    text + &table_properties(engine, 0, flags)
}

/// The output of `--show_table_properties`: a line for each level that has entries.
fn table_properties(engine: &impl Engine, family: usize, flags: &Flags) -> String {
    let levels = 0..flags.num_levels.max(0);
    let of = |level| {
        let name = format!("rocksdb.aggregated-table-properties-at-level{level}");
        let text = engine.property_of(family, &name)?;
        let has_entries = !text.contains("# entries=0");
        has_entries.then(|| format!("Level[{level}]: {text}\n"))
    };
    let wanted = levels.filter(|_| flags.show_table_properties);
    wanted.filter_map(of).collect()
}

fn join<'s>(
    started: std::io::Result<std::thread::ScopedJoinHandle<'_, Ended<'s>>>,
) -> Result<Ended<'s>> {
    let thread = started.map_err(|e| Error::aborted(format!("starting a thread: {e}")))?;
    thread
        .join()
        .map_err(|_| Error::aborted("a thread panicked"))
}

/// `--db`, or RocksDB's default: `dbbench` under `TEST_TMPDIR` or the user's test directory.
fn directory(flags: &Flags) -> PathBuf {
    if !flags.db.is_empty() {
        return PathBuf::from(&flags.db);
    }
    environment::test_directory().join("dbbench")
}
