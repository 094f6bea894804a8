//! The counts of a thread while it runs, and the result line.
//!
//! The clock is read at the start and the end of a run, and after each operation only if a
//! histogram is wanted, as in RocksDB's db_bench. So the time is mostly that of the engine.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use base::clock::Clock;
use base::stats::Histogram;
use base::{Error, Result};

use crate::flags::Flags;
use crate::progress::Progress;
use crate::reporter::Reporter;

/// The names of operations in histograms, in RocksDB's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    Delete,
    Seek,
    Merge,
    Update,
    Compress,
    Uncompress,
    Crc,
    Hash,
    Other,
    MultiScan,
}

impl Op {
    const NAMES: [&'static str; 12] = [
        "read",
        "write",
        "delete",
        "seek",
        "merge",
        "update",
        "compress",
        "uncompress",
        "crc",
        "hash",
        "op",
        "multiscan",
    ];
}

/// The operation times of each kind; `None` for kinds without operations.
type Histograms = [Option<Box<Histogram>>; Op::NAMES.len()];

/// One thread's counts.
pub(crate) struct Stats<'a> {
    pub(crate) thread: usize,
    clock: Arc<dyn Clock>,
    progress: Option<Arc<Progress<'a>>>,
    reporter: Option<Arc<Reporter>>,
    started: u64,
    finished: u64,
    last: u64,
    /// Nanoseconds of all merged threads.
    busy: u64,
    done: u64,
    next_report: u64,
    next_look: u64,
    reported: (u64, u64),
    bytes: u64,
    message: String,
    histograms: Option<Histograms>,
    /// `--times_file`: nanoseconds of each operation.
    times: Option<Vec<u64>>,
    /// Operations that take at least this long are reported.
    slow_micros: u64,
    /// `--pause_every`, and the number of the operation before the next pause.
    pause_every: u64,
    next_pause: u64,
}

impl<'a> Stats<'a> {
    pub(crate) fn new(
        thread: usize,
        clock: Arc<dyn Clock>,
        progress: Arc<Progress<'a>>,
        reporter: Option<Arc<Reporter>>,
        flags: &Flags,
    ) -> Self {
        Self {
            thread,
            clock,
            next_report: progress.first_report(),
            next_look: 0,
            progress: Some(progress),
            reporter,
            started: 0,
            finished: 0,
            last: 0,
            busy: 0,
            done: 0,
            reported: (0, 0),
            bytes: 0,
            message: String::new(),
            histograms: flags.histogram.then(Histograms::default),
            times: (!flags.times_file.is_empty()).then(Vec::new),
            slow_micros: if flags.stats_interval == 0 && flags.stats_interval_seconds == 0 {
                flags.slow_usecs
            } else {
                u64::MAX
            },
            pause_every: flags.pause_every,
            next_pause: pause_after(0, flags.pause_every),
        }
    }

    /// Its operations do not count as operations of the benchmark, and are not reported.
    pub(crate) fn beside(mut self) -> Self {
        self.reporter = None;
        self.times = None;
        self.next_report = u64::MAX;
        self.next_pause = u64::MAX;
        self
    }

    /// Starts or restarts the time; earlier counts are dropped.
    pub(crate) fn start(&mut self) {
        self.done = 0;
        self.started = self.clock.monotonic_nanos();
        self.last = self.started;
        self.reported = (self.started, 0);
        self.next_pause = pause_after(0, self.pause_every);
        if let Some(times) = &mut self.times {
            times.clear();
        }
    }

    /// Stops the time. The second call does nothing.
    pub(crate) fn stop(&mut self) {
        if self.progress.is_none() {
            return;
        }
        self.finished = self.clock.monotonic_nanos();
        self.busy = self.finished - self.started;
        if let Some(progress) = self.progress.take() {
            progress.add(self.done - self.reported.1);
        }
    }

    /// Counts `n` operations that just ended. Unless each operation is timed or reported, this costs
    /// only an addition and a comparison.
    #[inline]
    pub(crate) fn finished(&mut self, n: u64, op: Op) {
        self.done += n;
        if self.done >= self.next_look {
            self.look(n, op);
        }
    }

    /// The part of counting that is not needed for every operation.
    #[inline(never)]
    fn look(&mut self, n: u64, op: Op) {
        if self.is_timed() {
            self.time(op);
        }
        if let Some(reporter) = &self.reporter {
            reporter.add(n);
        }
        if self.done >= self.next_report {
            self.report_progress();
        }
        if self.done >= self.next_pause {
            self.pause();
        }
        self.next_look = self.next_look();
    }

    /// Waits for the program that asked for `--pause_every`; this time is not counted. If there is no
    /// answer, because that program has ended, the run continues.
    #[cold]
    fn pause(&mut self) {
        let begun = self.clock.monotonic_nanos();
        let told = writeln!(std::io::stdout(), "paused: {}", std::process::id());
        drop(told);
        std::io::stdin().read_line(&mut String::new()).ok();
        let paused = self.clock.monotonic_nanos() - begun;
        self.started += paused;
        self.last += paused;
        self.reported.0 += paused;
        self.next_pause = pause_after(self.done, self.pause_every);
    }

    /// The number of operations at which more than counting is needed.
    fn next_look(&self) -> u64 {
        if self.is_timed() || self.reporter.is_some() {
            0
        } else {
            self.next_report.min(self.next_pause)
        }
    }

    /// Whether the clock is read after each operation.
    fn is_timed(&self) -> bool {
        self.histograms.is_some() || self.times.is_some()
    }

    fn time(&mut self, op: Op) {
        let now = self.clock.monotonic_nanos();
        if let Some(times) = &mut self.times {
            times.push(now - self.last);
        }
        if let Some(histograms) = &mut self.histograms {
            let histogram = histograms[op as usize].get_or_insert_default();
            // Whole microseconds of the clock, so that the rounding evens out.
            let micros = now / 1000 - self.last / 1000;
            histogram.add(micros);
            if micros >= self.slow_micros {
                eprint!("long op: {micros} micros{:30}\r", "");
            }
        }
        self.last = now;
    }

    #[cold]
    fn report_progress(&mut self) {
        let Some(progress) = &self.progress else {
            self.next_report = u64::MAX;
            return;
        };
        let now = self.clock.monotonic_nanos();
        let since = (now - self.reported.0, self.done - self.reported.1);
        if progress.report(self.thread, now - self.started, self.done, since) {
            self.reported = (now, self.done);
        }
        self.next_report = progress.next_report(self.next_report);
    }

    pub(crate) fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub(crate) fn add_message(&mut self, message: &str) {
        if message.is_empty() {
            return;
        }
        if !self.message.is_empty() {
            self.message.push(' ');
        }
        self.message.push_str(message);
    }

    /// Nanoseconds since the start.
    pub(crate) fn elapsed(&self) -> u64 {
        self.clock.monotonic_nanos() - self.started
    }

    /// Adds another thread's counts of the same run.
    pub(crate) fn merge(&mut self, other: Self) {
        self.started = self.started.min(other.started);
        self.finished = self.finished.max(other.finished);
        self.busy += other.busy;
        self.done += other.done;
        self.bytes += other.bytes;
        if self.message.is_empty() {
            self.message = other.message;
        }
        if let (Some(mine), Some(theirs)) = (&mut self.times, other.times) {
            mine.extend(theirs);
        }
        if let (Some(mine), Some(theirs)) = (&mut self.histograms, other.histograms) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                match (mine, theirs) {
                    (Some(mine), Some(theirs)) => mine.merge(&theirs),
                    (mine @ None, theirs) => *mine = theirs,
                    (Some(_), None) => {}
                }
            }
        }
    }

    /// Errors: the file of `--times_file` cannot be created. This is checked before the run.
    pub(crate) fn make_times_file(flags: &Flags) -> Result<()> {
        if flags.times_file.is_empty() {
            return Ok(());
        }
        let path = Path::new(&flags.times_file);
        std::fs::write(path, "").map_err(|e| Error::io("write", path, e))
    }

    /// Writes the file of `--times_file`: the nanoseconds of each operation, one per line, thread by
    /// thread. Errors: the file cannot be written.
    pub(crate) fn write_times(&self, path: &Path) -> Result<()> {
        let Some(times) = &self.times else {
            return Ok(());
        };
        let mut text = String::new();
        for nanos in times {
            text += &nanos.to_string();
            text.push('\n');
        }
        std::fs::write(path, text).map_err(|e| Error::io("write", path, e))
    }

    /// The result line, and the histogram if there is one; ends with a line break.
    pub(crate) fn result(&self, name: &str) -> String {
        let mut out = result_line(&Totals {
            name,
            busy_seconds: self.busy as f64 * 1e-9,
            elapsed_seconds: (self.finished - self.started) as f64 * 1e-9,
            operations: self.done.max(1),
            bytes: self.bytes,
            message: &self.message,
        });
        let named = self.histograms.iter().flatten().zip(Op::NAMES);
        for (histogram, name) in named {
            if let Some(histogram) = histogram.as_ref().filter(|h| !h.is_empty()) {
                out.push_str(&format!("Microseconds per {name}:\n{histogram}\n"));
            }
        }
        out
    }

    /// Operations a second, and MiB a second if bytes were counted.
    pub(crate) fn rates(&self) -> (f64, Option<f64>) {
        let seconds = (self.finished - self.started) as f64 * 1e-9;
        let megabytes = self.bytes as f64 / 1048576.0 / seconds;
        let operations = self.done.max(1) as f64 / seconds;
        (operations, (self.bytes > 0).then_some(megabytes))
    }
}

/// The content of a result line.
struct Totals<'a> {
    name: &'a str,
    /// The sum of the threads' times.
    busy_seconds: f64,
    elapsed_seconds: f64,
    operations: u64,
    bytes: u64,
    message: &'a str,
}

/// The number of the operation before the next pause.
fn pause_after(done: u64, every: u64) -> u64 {
    if every == 0 { u64::MAX } else { done + every }
}

/// RocksDB's line: the time of an operation in its thread, the operations a second of all threads
/// together, and the seconds from the first start to the last end.
fn result_line(t: &Totals<'_>) -> String {
    let micros = t.busy_seconds * 1e6 / t.operations as f64;
    let rate = (t.operations as f64 / t.elapsed_seconds) as i64;
    let mut extra = String::new();
    if t.bytes > 0 {
        let megabytes = t.bytes as f64 / 1048576.0 / t.elapsed_seconds;
        extra = format!(" {megabytes:6.1} MB/s");
    }
    if !t.message.is_empty() {
        extra.push(' ');
        extra.push_str(t.message);
    }
    format!(
        "{:<12} : {micros:11.3} micros/op {rate} ops/sec {:.3} seconds {} operations;{extra}\n",
        t.name, t.elapsed_seconds, t.operations
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_rocksdbs() {
        // Lines that RocksDB 7.8.3's db_bench printed; the inputs are chosen to give their figures.
        let line = |name, busy, elapsed, operations, bytes, message| {
            result_line(&Totals {
                name,
                busy_seconds: busy,
                elapsed_seconds: elapsed,
                operations,
                bytes,
                message,
            })
        };
        assert_eq!(
            line("fillseq", 0.06897, 0.0690062, 10000, 1_160_000, ""),
            "fillseq      :       6.897 micros/op 144914 ops/sec 0.069 seconds 10000 operations;   \
             16.0 MB/s\n"
        );
        assert_eq!(
            line("fillsync", 14.6939, 7.36933, 20000, 2_320_000, "(10 ops)"),
            "fillsync     :     734.695 micros/op 2713 ops/sec 7.369 seconds 20000 operations;    \
             0.3 MB/s (10 ops)\n"
        );
        assert_eq!(
            line(
                "readmissing",
                0.044,
                0.04415292,
                10000,
                0,
                "(0 of 10000 found)\n"
            ),
            "readmissing  :       4.400 micros/op 226485 ops/sec 0.044 seconds 10000 operations; \
             (0 of 10000 found)\n\n"
        );
        assert_eq!(
            line("compact", 0.039314, 0.039314, 1, 0, ""),
            "compact      :   39314.000 micros/op 25 ops/sec 0.039 seconds 1 operations;\n"
        );
    }
}
