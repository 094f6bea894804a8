//! One run of db_bench on a device, with its own figures and the device's.
//!
//! The device's counters are read when db_bench prints `DB path:`, which is after the database is
//! open, and again when the result is printed, before it closes. So opening and closing are not
//! counted, but background work in between is.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::floor::Floor;
use super::stat::{Counters, Each, Stat};

/// How often a single-threaded run is paused for raw writes.
const PAUSES: u64 = 20;

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// The device operations per operation.
    pub(crate) each: Each,
    /// Microseconds per operation, in its thread.
    pub(crate) micros: f64,
    /// Operations per second, of all threads.
    pub(crate) per_second: f64,
    /// Percentiles of an operation's time, in microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) p9999: f64,
    /// The background work during the operations.
    pub(crate) jobs: Jobs,
}

impl Figures {
    /// Sets the percentiles from the operations' nanoseconds: exact, by the nearest rank.
    pub(super) fn rank(&mut self, nanos: &mut [u64]) {
        nanos.sort_unstable();
        let rank = |share: f64| {
            let at = (nanos.len() as f64 * share).ceil() as usize;
            let at = at.clamp(1, nanos.len().max(1)) - 1;
            nanos.get(at).copied().unwrap_or_default() as f64 / 1000.0
        };
        self.p50 = rank(0.5);
        self.p99 = rank(0.99);
        self.p999 = rank(0.999);
        self.p9999 = rank(0.9999);
    }
}

/// The number of jobs in the background or in the way of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Jobs {
    /// New log files.
    pub(crate) logs: u64,
    pub(crate) flushes: u64,
    pub(crate) compactions: u64,
}

impl Jobs {
    /// Counts the jobs in the LOG of either engine.
    fn of(log: &str) -> Self {
        let count = |is: fn(&str) -> bool| log.lines().filter(|line| is(line)).count() as u64;
        Self {
            logs: count(|l| {
                l.contains("New memtable created with log file: #")
                    || l.contains(" log 0") && (l.contains(": direct") || l.contains(": buffered"))
            }),
            flushes: count(|l| l.contains("\"event\": \"flush_finished\"")),
            compactions: count(|l| l.contains("\"event\": \"compaction_finished\"")),
        }
    }
}

/// The engines, as db_bench calls them.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    Ironstone,
    /// The path of its library.
    RocksDb(PathBuf),
}

impl Engine {
    fn flag(&self) -> String {
        match self {
            Self::Ironstone => "ironstone".to_owned(),
            Self::RocksDb(library) => format!("librocksdb:{}", library.display()),
        }
    }
}

/// A run of one benchmark that puts.
pub(crate) struct Run<'a> {
    /// `fillsync`, or another benchmark of db_bench.
    pub(crate) benchmark: &'a str,
    pub(crate) driver: &'a Path,
    pub(crate) engine: &'a Engine,
    /// The mount point of the file system; the database is made in it and removed.
    pub(crate) mount: &'a Path,
    /// The counters of the device.
    pub(crate) counters: &'a Counters,
    pub(crate) threads: u32,
    /// The puts of all threads together, as far as they divide evenly.
    pub(crate) puts: u64,
    pub(crate) seed: u32,
    /// Further flags, the same for both engines.
    pub(crate) flags: Vec<String>,
    /// The time limit of the run, in seconds.
    pub(crate) seconds: u64,
}

impl Run<'_> {
    /// Runs it without raw writes.
    pub(crate) fn go(&self) -> Result<Figures, String> {
        self.with(None)
    }

    /// Runs it interleaved with as many raw writes. A single thread is held between two puts, and
    /// its process is stopped, so that nothing of it runs beside the raw writes. With more threads,
    /// half of the raw writes are done before, and half after.
    pub(crate) fn beside(&self, floor: &mut Floor<'_>) -> Result<Figures, String> {
        if self.threads == 1 {
            return self.with(Some(floor));
        }
        floor.slice(self.puts.div_ceil(2), self.seconds)?;
        let figures = self.go()?;
        floor.slice(self.puts.div_ceil(2), self.seconds)?;
        Ok(figures)
    }

    /// The number of puts between two pauses.
    fn turn(&self) -> u64 {
        (self.puts / PAUSES).max(1)
    }

    fn with(&self, floor: Option<&mut Floor<'_>>) -> Result<Figures, String> {
        let db = self.mount.join("db");
        let mut result = self.measure(&db, floor);
        if let Ok(figures) = &mut result {
            let log = std::fs::read(db.join("LOG")).unwrap_or_default();
            figures.jobs = Jobs::of(&String::from_utf8_lossy(&log));
        }
        let removed = match std::fs::remove_dir_all(&db) {
            Err(e) if db.exists() => Err(format!("{}: {e}", db.display())),
            _ => Ok(()),
        };
        let figures = result?;
        removed?;
        Ok(figures)
    }

    fn measure(&self, db: &Path, mut floor: Option<&mut Floor<'_>>) -> Result<Figures, String> {
        // Not on the disk that is measured.
        let times = super::folder().join("times");
        let mut command = self.command(db);
        command.arg(format!("--times_file={}", times.display()));
        if floor.is_some() {
            command.arg(format!("--pause_every={}", self.turn()));
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("setpriv: {e}"))?;
        let mut counted = Counted::of(self.benchmark);
        let mut stdin = child.stdin.take();
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines() {
                let line = line.map_err(|e| format!("db_bench: {e}"))?;
                if let Some(process) = paused(&line)
                    && let Some(floor) = &mut floor
                {
                    let stopped = Stopped::stop(process)?;
                    counted.skip(floor.slice(self.turn(), self.seconds)?);
                    drop(stopped);
                    if let Some(stdin) = &mut stdin {
                        // If this fails, the process has ended, which is reported below.
                        writeln!(stdin).ok();
                    }
                }
                counted.line(line, || self.counters.read())?;
            }
        }
        drop(stdin);
        let mut errors = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            stderr
                .read_to_string(&mut errors)
                .map_err(|e| format!("db_bench: {e}"))?;
        }
        let status = child.wait().map_err(|e| format!("db_bench: {e}"))?;
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        let arguments = arguments.join(" ");
        if status.code() == Some(124) {
            return Err(format!(
                "{arguments}: not done after {} s and ended",
                self.seconds
            ));
        }
        if !status.success() {
            return Err(format!("{arguments} failed ({status}):\n{}", errors.trim()));
        }
        let mut figures = counted
            .figures()
            .ok_or_else(|| format!("{arguments}: no result in:\n{}", counted.output))?;
        figures.rank(&mut read_times(&times)?);
        Ok(figures)
    }

    /// db_bench, with a time limit, and ended if this process ends first.
    fn command(&self, db: &Path) -> Command {
        let mut command = Command::new("setpriv");
        let each = (self.puts / u64::from(self.threads)).max(1);
        command
            .args(["--pdeathsig", "TERM", "timeout", "--foreground"])
            .arg("--kill-after=5")
            .arg(self.seconds.to_string())
            .arg(self.driver)
            .arg(format!("--engine={}", self.engine.flag()))
            .arg(format!("--db={}", db.display()))
            .arg(format!("--benchmarks={}", self.benchmark))
            .args(["--key_size=16", "--value_size=100"])
            .arg("--compression_type=none")
            .arg(format!("--threads={}", self.threads))
            .arg(format!("--num={}", self.puts.max(1)))
            .arg(format!("--writes={each}"))
            .arg(format!("--seed={}", self.seed))
            .args(&self.flags);
        command
    }
}

/// The pid of a process that reports a pause: `paused: 1234`.
fn paused(line: &str) -> Option<i32> {
    line.strip_prefix("paused: ")?.parse().ok()
}

/// A stopped process, which is continued when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(process: i32) -> Result<Self, String> {
        let pid =
            Pid::from_raw(process).ok_or_else(|| format!("db_bench: no process {process}"))?;
        kill_process(pid, Signal::STOP).map_err(|e| format!("stopping process {process}: {e}"))?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // If this fails, the process is gone, and its output ends.
        kill_process(self.0, Signal::CONT).ok();
    }
}

/// Reads db_bench's output as it comes.
#[derive(Default)]
struct Counted {
    benchmark: String,
    before: Option<Stat>,
    after: Option<Stat>,
    operations: u64,
    /// Microseconds per operation, and operations per second.
    rate: Option<(f64, f64)>,
    output: String,
}

impl Counted {
    fn of(benchmark: &str) -> Self {
        Self {
            benchmark: benchmark.to_owned(),
            ..Self::default()
        }
    }

    /// Excludes device operations of others between two operations.
    fn skip(&mut self, spent: Stat) {
        self.before = self.before.map(|before| before.plus(spent));
    }

    fn line(&mut self, line: String, now: impl Fn() -> Result<Stat, String>) -> Result<(), String> {
        if line.starts_with("DB path:") {
            self.before = Some(now()?);
        } else if let Some((operations, micros, per_second)) = result(&line, &self.benchmark) {
            self.after = Some(now()?);
            self.operations = operations;
            self.rate = Some((micros, per_second));
        }
        self.output.push_str(&line);
        self.output.push('\n');
        Ok(())
    }

    fn figures(&self) -> Option<Figures> {
        let (micros, per_second) = self.rate?;
        Some(Figures {
            each: self.after?.each_since(self.before?, self.operations),
            micros,
            per_second,
            ..Figures::default()
        })
    }
}

/// Operations, microseconds of one, and operations per second from a result line:
/// `fillsync : 76.123 micros/op 13136 ops/sec 1.522 seconds 20000 operations;`.
fn result(line: &str, benchmark: &str) -> Option<(u64, f64, f64)> {
    let (name, rest) = line.split_once(" : ")?;
    if name.trim() != benchmark {
        return None;
    }
    let mut words = rest.split_whitespace();
    let mut before = |unit: &str| -> Option<f64> {
        let figure = words.next()?.parse().ok()?;
        (words.next()?.trim_end_matches(';') == unit).then_some(figure)
    };
    let micros = before("micros/op")?;
    let per_second = before("ops/sec")?;
    let seconds = before("seconds")?;
    let operations = before("operations")?;
    // The rate has no decimals, the time has three: the more precise one is used.
    let per_second = if per_second < 1000.0 && seconds > 0.0 {
        operations / seconds
    } else {
        per_second
    };
    (micros > 0.0 && per_second > 0.0).then_some((operations as u64, micros, per_second))
}

/// The nanoseconds in the file of `--times_file`, one per line.
fn read_times(path: &Path) -> Result<Vec<u64>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    times(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn times(text: &str) -> Result<Vec<u64>, String> {
    let times: Result<Vec<u64>, _> = text.lines().map(str::parse).collect();
    times.map_err(|e| e.to_string())
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "figures that are exact in binary")]
mod tests {
    use super::*;

    const OUTPUT: &str = "Set seed to 7 because --seed was 0\n\
        DB path: [/mnt/db]\n\
        fillsync     :      76.123 micros/op 13136 ops/sec 1.522 seconds 20000 operations;    1.5 MB/s\n";

    #[test]
    fn output_and_counters_make_figures() {
        let mut counted = Counted::of("fillsync");
        let reads = std::cell::Cell::new(0u64);
        for line in OUTPUT.lines() {
            counted
                .line(line.to_owned(), || {
                    reads.set(reads.get() + 1);
                    Ok(Stat {
                        requests: reads.get() * 40_000,
                        sectors: reads.get() * 160_000,
                        flushes: reads.get() * 20_000,
                        writes: None,
                    })
                })
                .unwrap();
        }
        assert_eq!(reads.get(), 2);
        let f = counted.figures().unwrap();
        assert_eq!((f.each.requests, f.each.flushes), (2.0, 1.0));
        assert_eq!((f.micros, f.per_second), (76.123, 13136.0));
    }

    #[test]
    fn percentiles_are_exact() {
        let percentiles = |nanos: &mut [u64]| {
            let mut f = Figures::default();
            f.rank(nanos);
            [f.p50, f.p99, f.p999, f.p9999]
        };
        let mut nanos: Vec<u64> = (1..=1000).rev().map(|n| n * 1000).collect();
        assert_eq!(percentiles(&mut nanos), [500.0, 990.0, 999.0, 1000.0]);
        assert_eq!(percentiles(&mut []), [0.0; 4]);
        assert_eq!(percentiles(&mut [2000]), [2.0; 4]);
        assert_eq!(times("7\n12\n").unwrap(), [7, 12]);
        assert!(times("7 µs\n").unwrap_err().contains("invalid"));
    }

    #[test]
    fn both_engines_logs_tell_of_their_jobs() {
        let ours = "2026/11/23-18:34:18.404089 2 log 000004: direct, 4194304 bytes made ahead\n\
            2026/11/23-18:34:39.393777 2 log 000006: buffered, because no file made ahead is ready\n\
            1 3 EVENT_LOG_v1 {\"time_micros\": 1, \"event\": \"flush_started\", \"job\": 2}\n\
            1 3 EVENT_LOG_v1 {\"time_micros\": 1, \"event\": \"flush_finished\", \"job\": 2}\n";
        let theirs = "1 2 [/db_impl/db_impl_write.cc:3026] [default] New memtable created with log \
            file: #8. Immutable memtables: 0.\n\
            1 3 EVENT_LOG_v1 {\"time_micros\": 1, \"job\": 3, \"event\": \"compaction_finished\"}\n";
        let jobs = |logs, flushes, compactions| Jobs {
            logs,
            flushes,
            compactions,
        };
        assert_eq!(Jobs::of(ours), jobs(2, 1, 0));
        assert_eq!(Jobs::of(theirs), jobs(1, 0, 1));
    }

    #[test]
    fn what_others_wrote_in_a_pause_is_not_counted() {
        let stat = |requests| Stat {
            requests,
            ..Stat::default()
        };
        let mut counted = Counted::of("fillsync");
        let mut lines = OUTPUT.lines();
        for line in lines.by_ref().take(2) {
            counted.line(line.to_owned(), || Ok(stat(100))).unwrap();
        }
        assert_eq!(paused("paused: 12"), Some(12));
        counted.skip(stat(5_000));
        for line in lines {
            counted.line(line.to_owned(), || Ok(stat(45_100))).unwrap();
        }
        assert!((counted.figures().unwrap().each.requests - 2.0).abs() < 1e-9);
    }

    #[test]
    fn half_an_output_has_no_figures() {
        let mut counted = Counted::of("fillsync");
        let stat = Stat::parse("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17").unwrap();
        for line in OUTPUT.lines().take(2) {
            counted.line(line.to_owned(), || Ok(stat)).unwrap();
        }
        assert_eq!(counted.figures(), None);
    }

    #[test]
    fn a_slow_rate_is_taken_from_the_time() {
        let line = "fillsync     :   17021.000 micros/op 58 ops/sec 10.213 seconds 600 operations;";
        let (operations, micros, per_second) = result(line, "fillsync").unwrap();
        assert_eq!((operations, micros), (600, 17021.0));
        assert!((per_second - 58.748).abs() < 0.001);
        assert_eq!(
            result("fillseq : 1.0 micros/op 58 ops/sec", "fillsync"),
            None
        );
        assert_eq!(
            result(
                "fillsync     : skipped (--use_existing_db is true)",
                "fillsync"
            ),
            None
        );
    }
}
