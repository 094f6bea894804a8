//! Opens the database, runs the benchmarks one after the other, prints what they give.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use base::clock::Clock;
use base::rng::Rng;
use base::{Error, Result};

use crate::destroy::destroy;
use crate::engine::Engine;
use crate::environment;
use crate::flags::Flags;
use crate::ops::{Loop, Plan, Task, Worker};
use crate::progress::Progress;
use crate::reporter::Reporter;
use crate::requests::Watch;
use crate::say;
use crate::stats::Stats;

/// A run of benchmarks on one engine.
pub(crate) struct Driver<E: Engine> {
    flags: Flags,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    seed: u64,
    /// Threads started so far: each gets a stream of random numbers of its own.
    threads: u64,
    engine: Option<E>,
}

impl<E: Engine> Driver<E> {
    /// Runs everything that the flags ask for. Names are checked before anything is touched.
    pub(crate) fn run(flags: Flags, name: &str, clock: Arc<dyn Clock>) -> Result<()> {
        crate::engine::compression(&flags)?;
        let names: Vec<String> = flags
            .benchmarks
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        let tasks = names
            .iter()
            .map(|name| Task::named(name, &flags))
            .collect::<Result<Vec<_>>>()?;
        let dir = directory(&flags);
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
            dir,
            seed,
            threads: 0,
            engine: None,
        };
        if !driver.flags.use_existing_db {
            driver.destroy()?;
        }
        driver.open()?;
        environment::print_environment(name, driver.clock.wall_micros());
        say(&environment::header(&driver.flags));
        for (name, task) in names.iter().zip(&tasks) {
            driver.task(name, task)?;
        }
        if let Some(statistics) = driver.engine()?.statistics() {
            say(&format!("STATISTICS:\n{statistics}\n"));
        }
        driver.close()?;
        if driver.flags.process_stats {
            say(&environment::process_stats());
        }
        Ok(())
    }

    fn engine(&self) -> Result<&E> {
        self.engine
            .as_ref()
            .ok_or_else(|| Error::aborted("the database is not open"))
    }

    fn open(&mut self) -> Result<()> {
        std::fs::create_dir_all(&self.dir).map_err(|e| Error::io("create", &self.dir, e))?;
        let start = self.clock.monotonic_nanos();
        self.engine = Some(E::open(&self.flags, &self.dir)?);
        if self.flags.report_open_timing {
            let nanos = self.clock.monotonic_nanos() - start;
            say(&format!(
                "OpenDb:     {} milliseconds\n",
                nanos as f64 / 1e6
            ));
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.engine.take().map_or(Ok(()), E::close)
    }

    fn destroy(&self) -> Result<()> {
        destroy(&self.dir)?;
        let wal_dir = Path::new(&self.flags.wal_dir);
        if self.flags.wal_dir.is_empty() || wal_dir == self.dir {
            return Ok(());
        }
        destroy(wal_dir)
    }

    fn task(&mut self, name: &str, task: &Task) -> Result<()> {
        match task {
            Task::Run(plan) => return self.run_plan(name, plan),
            Task::Flush => {
                self.engine()?.flush()?;
                say("flush memtable\n");
            }
            Task::WaitForCompaction => {
                say(&format!(
                    "waitforcompaction({}): started\n",
                    self.dir.display()
                ));
                self.engine()?.wait_for_compaction()?;
                say(&format!(
                    "waitforcompaction({}): finished\n",
                    self.dir.display()
                ));
            }
            Task::Property(property) => {
                let text = self.engine()?.property(property);
                say(&format!("\n{}\n", text.as_deref().unwrap_or("(failed)")));
            }
        }
        Ok(())
    }

    fn run_plan(&mut self, name: &str, plan: &Plan) -> Result<()> {
        if plan.fresh {
            if self.flags.use_existing_db {
                say(&format!(
                    "{name:<12} : skipped (--use_existing_db is true)\n"
                ));
                return Ok(());
            }
            self.close()?;
            self.destroy()?;
            self.open()?;
        }
        say(&format!("DB path: [{}]\n", self.dir.display()));
        let stats = self.threads(name, plan)?;
        say(&stats.result(name));
        Ok(())
    }

    /// Runs the plan in its threads and adds up what they counted.
    fn threads(&mut self, name: &str, plan: &Plan) -> Result<Stats> {
        let count = self.flags.threads as usize;
        let total = (plan.seconds == 0).then_some(plan.operations * count as u64);
        let clock = Arc::clone(&self.clock);
        let progress = Arc::new(Progress::new(name, &self.flags, total, clock));
        let reporter = Reporter::wanted(&self.flags)?.map(Arc::new);
        let first = self.threads;
        self.threads += count as u64;
        let engine = self.engine()?;
        let worker = |thread: usize| Worker {
            engine,
            flags: &self.flags,
            plan,
            rng: Rng::new(self.seed.wrapping_add(first + 1 + thread as u64)),
            stats: Stats::new(
                thread,
                Arc::clone(&self.clock),
                Arc::clone(&progress),
                reporter.clone(),
                self.flags.histogram,
            ),
        };
        let barrier = Barrier::new(count);
        let watch = Watch::new(engine, self.flags.num_column_families as usize);
        let results: Vec<Result<Stats>> = std::thread::scope(|scope| {
            if plan.action == Loop::Requests {
                scope.spawn(|| watch.run());
            }
            if let Some(reporter) = &reporter {
                scope.spawn(|| reporter.run(self.clock.as_ref()));
            }
            let started: Vec<_> = (0..count)
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
            if let Some(reporter) = &reporter {
                reporter.end();
            }
            ended
        });
        progress.clear();
        let mut all = results.into_iter();
        let mut stats = all
            .next()
            .unwrap_or_else(|| Err(Error::aborted("no threads")))?;
        for other in all {
            stats.merge(other?);
        }
        stats.add_message(&watch.told());
        Ok(stats)
    }
}

fn join(
    started: std::io::Result<std::thread::ScopedJoinHandle<'_, Result<Stats>>>,
) -> Result<Stats> {
    let thread = started.map_err(|e| Error::aborted(format!("starting a thread: {e}")))?;
    thread
        .join()
        .unwrap_or_else(|_| Err(Error::aborted("a thread panicked")))
}

/// `--db`, else RocksDB's default: `dbbench` under `TEST_TMPDIR` or the user's test directory.
fn directory(flags: &Flags) -> PathBuf {
    use std::os::unix::fs::MetadataExt;
    if !flags.db.is_empty() {
        return PathBuf::from(&flags.db);
    }
    let parent = std::env::var_os("TEST_TMPDIR").map_or_else(
        || {
            let user = std::fs::metadata("/proc/self").map_or(0, |m| m.uid());
            PathBuf::from(format!("/tmp/rocksdbtest-{user}"))
        },
        PathBuf::from,
    );
    parent.join("dbbench")
}
