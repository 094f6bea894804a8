//! Runs a suite: alternating pairs; results are stored as they come.
//!
//! The speed of a machine varies over time, so that a single time says little. Each measurement is
//! a pair: the same benchmark with the same seed and options on both engines, one right after the
//! other, by the same driver. Every second pair begins with the other engine, because the first run
//! of a pair finds caches and device in a different state from the second. Results are stored after
//! every run: a suite that is interrupted leaves its measurements, marked as incomplete.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::data::{Benchmark, Engine, Extra, Pair, Report};
use super::files::Files;
use super::peers::Peers;
use super::progress::{Progress, Timed};
use super::run::{Runner, relative};
use super::suite::{Bench, Database};
use crate::driver::Setup;

/// Measurements of `cargo xtask` that a full suite includes: title, arguments, and whether the
/// machine may lack a requirement, such as root.
const EXTRAS: [(&str, &str, bool); 4] = [
    (
        "Ten minutes of overwriting",
        "bench-sustained --pairs 2",
        false,
    ),
    (
        "Requests of a service: three puts and a delete in a batch",
        "bench-requests --rounds 2",
        false,
    ),
    (
        "Bulk load: random keys into vector memtables, then one compaction",
        "bench-bulkload",
        false,
    ),
    (
        "Device operations of a synced put, counted on a device of its own",
        "bench-device --count-only",
        true,
    ),
];

/// The exit status of a command whose requirements are not met.
const LACKING: i32 = 2;

/// Set by Ctrl-C and by SIGTERM.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub(crate) fn watch() -> Result<Self, String> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(|e| format!("signals: {e}"))?;
        }
        Ok(Self(flag))
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.0.load(Ordering::Relaxed) {
            return Err("interrupted".to_owned());
        }
        Ok(())
    }

    /// `failed`, unless there was an interrupt, which ends db_bench, too.
    pub(crate) fn or(&self, failed: String) -> String {
        self.check().err().unwrap_or(failed)
    }
}

/// A suite in progress.
pub(super) struct Session<'a> {
    pub(super) setup: &'a Setup,
    pub(super) files: &'a Files,
    pub(super) interrupt: &'a Interrupt,
    /// The driver of other engines, if they are to be measured.
    pub(super) peers: Option<&'a Path>,
}

impl Session<'_> {
    /// Measures, and fills the report; measurements before a failure stay in it. Errors: the
    /// outputs cannot be written. A failed run is recorded in the report instead.
    pub(super) fn measure(
        &self,
        benches: &[Bench],
        extras: bool,
        report: &mut Report,
    ) -> Result<(), String> {
        let settings = &report.settings;
        let runs = |benches: usize| 2 * u64::from(settings.pairs) * benches as u64;
        let timed = benches.iter().filter(|b| b.is_timed(settings)).count();
        let timed = Timed {
            left: runs(timed),
            seconds: settings.seconds,
        };
        let mut progress = Progress::new(runs(benches.len()), timed);
        let mut measured = self.pairs(benches, report, &mut progress);
        if let (Ok(()), Some(driver)) = (&measured, self.peers) {
            measured = self.peers(driver, report, &progress);
        }
        if measured.is_ok() && extras {
            measured = self.extras(report, &progress);
        }
        progress.end();
        match measured {
            Ok(()) => {
                report.complete = true;
                report.problem = None;
            }
            Err(problem) => {
                let root = xtask::root();
                let problem = relative(&self.interrupt.or(problem), &root.to_string_lossy());
                report.problem = Some(problem.trim().to_owned());
            }
        }
        self.files.write(report)
    }

    fn pairs(
        &self,
        benches: &[Bench],
        report: &mut Report,
        progress: &mut Progress,
    ) -> Result<(), String> {
        let settings = report.settings.clone();
        let runner = Runner::new(self.setup, &settings);
        let mut prepared = vec![Database::New];
        for bench in benches {
            if !prepared.contains(&bench.database) {
                self.prepare(bench.database, &runner, progress)?;
                prepared.push(bench.database);
            }
            report.benchmarks.push(Benchmark {
                name: bench.name.to_owned(),
                about: bench.about.to_owned(),
                writes: bench.writes,
                pairs: Vec::new(),
            });
            for number in 0..settings.pairs {
                self.pair(bench, number, &runner, report, progress)?;
            }
        }
        Ok(())
    }

    /// Makes the databases that later runs need. This is done late, so that the other benchmarks
    /// are measured even if there is no space for these.
    fn prepare(
        &self,
        database: Database,
        runner: &Runner<'_>,
        progress: &Progress,
    ) -> Result<(), String> {
        for engine in Engine::BOTH {
            let (name, what) = (engine.name(), database.name());
            progress.say(&format!("filling {name}'s database to {what}"));
            runner
                .prepare(database, engine)
                .map_err(|e| format!("filling {name}'s database to {what}: {e}"))?;
            self.interrupt.check()?;
        }
        Ok(())
    }

    fn pair(
        &self,
        bench: &Bench,
        number: u32,
        runner: &Runner<'_>,
        report: &mut Report,
        progress: &mut Progress,
    ) -> Result<(), String> {
        let first = Engine::BOTH[number as usize % 2];
        let which = format!("{} {}/{}", bench.name, number + 1, report.settings.pairs);
        let mut pair = Pair {
            first,
            ironstone: None,
            rocksdb: None,
        };
        let mut failed = Ok(());
        for engine in [first, first.other()] {
            progress.begin(&format!("{which} {}", engine.name()));
            match runner.measure(bench, engine, number) {
                Ok(outcome) => {
                    let version = match engine {
                        Engine::Ironstone => &mut report.versions.ironstone,
                        Engine::RocksDb => &mut report.versions.rocksdb,
                    };
                    *version = outcome.version.or(version.take());
                    pair.set(engine, outcome.run);
                    progress.ran(bench.is_timed(&report.settings));
                }
                Err(e) => failed = Err(format!("{which} on {}: {e}", engine.name())),
            }
            failed = failed.and_then(|()| self.interrupt.check());
            if failed.is_err() {
                break;
            }
        }
        let told = told(&which, &pair);
        if let Some(benchmark) = report.benchmarks.last_mut() {
            benchmark.pairs.push(pair);
        }
        self.files.write(report)?;
        failed?;
        progress.result(&told);
        Ok(())
    }

    fn peers(&self, driver: &Path, report: &mut Report, progress: &Progress) -> Result<(), String> {
        let peers = Peers {
            driver,
            setup: self.setup,
            settings: &report.settings,
        };
        let extra = peers.measure(|text| progress.say(text), || self.interrupt.check())?;
        report.extras.push(extra);
        self.files.write(report)
    }

    /// Runs the other measurements, each as a separate command.
    fn extras(&self, report: &mut Report, progress: &Progress) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        for (title, arguments, optional) in EXTRAS {
            progress.say(&format!("cargo xtask {arguments}"));
            let mut command = Command::new(&program);
            command.args(arguments.split(' '));
            command.arg("--driver").arg(&self.setup.driver);
            command.stderr(std::process::Stdio::inherit());
            let output = command.output().map_err(|e| format!("{arguments}: {e}"))?;
            self.interrupt.check()?;
            let text = match output.status.code() {
                Some(0) => String::from_utf8_lossy(&output.stdout).into_owned(),
                Some(LACKING) if optional => {
                    "Not measured: this machine lacks what it takes.".into()
                }
                _ => return Err(format!("cargo xtask {arguments} failed")),
            };
            report.extras.push(Extra {
                title: title.to_owned(),
                command: format!("cargo xtask {arguments}"),
                text,
            });
            self.files.write(report)?;
        }
        Ok(())
    }
}

/// The result of a pair in one line.
fn told(which: &str, pair: &Pair) -> String {
    let micros = |engine| {
        let run = pair.run(engine)?;
        Some(format!("{} {:.3} µs", engine.name(), run.micros_per_op))
    };
    let mut parts: Vec<_> = Engine::BOTH.into_iter().filter_map(micros).collect();
    parts.extend(pair.ratio().map(|ratio| format!("ratio {ratio:.2}")));
    format!("{which}: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::data::tests::benchmark;

    #[test]
    fn a_pair_is_told_in_a_line() {
        let mut pair = benchmark("x", &[(1.5, 3.0)]).pairs.remove(0);
        assert_eq!(
            told("x 1/5", &pair),
            "x 1/5: Ironstone 1.500 µs, RocksDB 3.000 µs, ratio 2.00"
        );
        pair.rocksdb = None;
        assert_eq!(told("x 1/5", &pair), "x 1/5: Ironstone 1.500 µs");
    }

    #[test]
    fn an_interrupt_explains_a_failure() {
        let interrupt = Interrupt(Arc::new(AtomicBool::new(false)));
        assert_eq!(interrupt.or("x failed".to_owned()), "x failed");
        interrupt.0.store(true, Ordering::Relaxed);
        assert_eq!(interrupt.or("x failed".to_owned()), "interrupted");
    }
}
