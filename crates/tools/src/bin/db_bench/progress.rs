//! Shows the progress of a benchmark on standard error: on a terminal a bar with rate, remaining
//! time and stalls; otherwise a line every few seconds; or RocksDB's interval lines, with
//! `--stats_interval` or `--stats_interval_seconds`.
//!
//! A separate thread shows it, because stopped writers report nothing. This thread checks four times
//! a second whether the engine delays writers.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::clock::Clock;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::flags::Flags;

/// The time between two checks of the progress.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Number of checks between two lines when standard error is not a terminal: ten seconds.
const LOOKS_PER_LINE: u32 = 40;

enum Show {
    Bar(ProgressBar),
    Lines { total: Option<u64> },
    Interval { operations: u64, nanos: u64 },
    Nothing,
}

/// Shared by the threads of a run.
pub(crate) struct Progress<'a> {
    /// Called after an interval line of the first thread: prints the engine's statistics.
    more: Option<&'a (dyn Fn() -> String + Sync)>,
    name: String,
    clock: Arc<dyn Clock>,
    done: AtomicU64,
    ended: AtomicBool,
    show: Show,
}

impl<'a> Progress<'a> {
    /// Progress of a run with `total` operations, or with an unknown number.
    pub(crate) fn new(
        name: &str,
        flags: &Flags,
        total: Option<u64>,
        clock: Arc<dyn Clock>,
        more: &'a (dyn Fn() -> String + Sync),
    ) -> Self {
        let interval = flags.stats_interval as u64;
        let seconds = flags.stats_interval_seconds as u64;
        let show = if seconds > 0 {
            Show::Interval {
                operations: 1000,
                nanos: seconds * 1_000_000_000,
            }
        } else if interval > 0 {
            Show::Interval {
                operations: interval,
                nanos: 0,
            }
        } else if !flags.progress_reports {
            Show::Nothing
        } else if std::io::stderr().is_terminal() {
            Show::Bar(bar(name, total))
        } else {
            Show::Lines { total }
        };
        Self {
            name: name.to_owned(),
            clock,
            done: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            show,
            more: (flags.stats_per_interval > 0).then_some(more),
        }
    }

    /// The number of operations before a thread's first report.
    pub(crate) fn first_report(&self) -> u64 {
        match self.show {
            Show::Interval { operations, .. } => operations,
            Show::Bar(_) | Show::Lines { .. } => 100,
            Show::Nothing => u64::MAX,
        }
    }

    /// The number of operations before a thread's next report; large enough that reports cost
    /// almost nothing.
    pub(crate) fn next_report(&self, last: u64) -> u64 {
        match self.show {
            Show::Interval { operations, .. } => last + operations,
            Show::Bar(_) | Show::Lines { .. } => last + (last / 10).clamp(100, 20_000),
            Show::Nothing => u64::MAX,
        }
    }

    /// A thread's report: `elapsed` nanoseconds since its start, `done` operations in total, and
    /// both values `since` its last report. Returns true if the report was used, so that the next
    /// one starts from here.
    pub(crate) fn report(&self, thread: usize, elapsed: u64, done: u64, since: (u64, u64)) -> bool {
        let (nanos_since, done_since) = since;
        match &self.show {
            Show::Interval { nanos, .. } => {
                if nanos_since < *nanos {
                    return false;
                }
                let (interval, all) = (nanos_since as f64 * 1e-9, elapsed as f64 * 1e-9);
                eprintln!(
                    "{} ... thread {thread}: ({done_since},{done}) ops and ({:.1},{:.1}) \
                     ops/second in ({interval:.6},{all:.6}) seconds",
                    crate::environment::time_text(self.clock.wall_micros() / 1_000_000),
                    done_since as f64 / interval,
                    done as f64 / all,
                );
                if let Some(more) = self.more.filter(|_| thread == 0) {
                    eprint!("{}", more());
                }
            }
            Show::Bar(_) | Show::Lines { .. } => self.add(done_since),
            Show::Nothing => {}
        }
        true
    }

    /// Counts operations of any thread.
    pub(crate) fn add(&self, operations: u64) {
        self.done.fetch_add(operations, Ordering::Relaxed);
    }

    /// Whether [`Progress::run`] has anything to show.
    pub(crate) fn is_shown(&self) -> bool {
        matches!(self.show, Show::Bar(_) | Show::Lines { .. })
    }

    /// Shows the progress until [`Progress::end`]. `stall` returns whether writers wait at the
    /// moment.
    pub(crate) fn run(&self, stall: impl Fn() -> Stall) {
        let mut line = Line::default();
        let mut since = self.clock.monotonic_nanos();
        let mut before = 0;
        while !self.ended.load(Ordering::Acquire) {
            std::thread::park_timeout(LOOK_EVERY);
            let done = self.done.load(Ordering::Relaxed);
            line.look(stall());
            match &self.show {
                Show::Bar(bar) => {
                    bar.set_position(done);
                    bar.set_message(line.last.text());
                }
                Show::Lines { total } if line.looks >= LOOKS_PER_LINE => {
                    let now = self.clock.monotonic_nanos();
                    let seconds = now.saturating_sub(since).max(1) as f64 * 1e-9;
                    let rate = (done - before) as f64 / seconds;
                    eprintln!("{}: {}", self.name, line.text(done, *total, rate));
                    (line, since, before) = (Line::default(), now, done);
                }
                _ => {}
            }
        }
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
    }

    /// Ends [`Progress::run`]; the caller must unpark its thread.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// Whether writers wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Stall {
    #[default]
    None,
    /// Slowed down to this many bytes a second.
    Delayed(u64),
    Stopped,
}

impl Stall {
    /// The state according to the engine's properties.
    pub(crate) fn of(property: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name| property(name).and_then(|text| text.trim().parse::<u64>().ok());
        if number("rocksdb.is-write-stopped").is_some_and(|n| n > 0) {
            return Self::Stopped;
        }
        match number("rocksdb.actual-delayed-write-rate") {
            Some(rate) if rate > 0 => Self::Delayed(rate),
            _ => Self::None,
        }
    }

    fn text(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Delayed(rate) => format!("writes delayed to {:.1} MB/s", rate as f64 / 1e6),
            Self::Stopped => "writes stopped".to_owned(),
        }
    }
}

/// The changes since the last line.
#[derive(Default)]
struct Line {
    looks: u32,
    delayed: u32,
    stopped: u32,
    last: Stall,
}

impl Line {
    fn look(&mut self, stall: Stall) {
        self.looks += 1;
        self.delayed += u32::from(matches!(stall, Stall::Delayed(_)));
        self.stopped += u32::from(stall == Stall::Stopped);
        self.last = stall;
    }

    /// `2067423 of 5785000 operations, 133077/s, 28 s left, writes delayed 12 % of the time`.
    fn text(&self, done: u64, total: Option<u64>, rate: f64) -> String {
        let mut text = match total {
            Some(total) => format!("{done} of {total} operations, {rate:.0}/s"),
            None => format!("{done} operations, {rate:.0}/s"),
        };
        if let Some(total) = total
            && rate >= 1.0
        {
            let left = total.saturating_sub(done) as f64 / rate;
            text += &format!(", {left:.0} s left");
        }
        for (what, looks) in [("delayed", self.delayed), ("stopped", self.stopped)] {
            if looks > 0 {
                let share = f64::from(looks) * 100.0 / f64::from(self.looks);
                text += &format!(", writes {what} {share:.0} % of the time");
            }
        }
        text
    }
}

/// Operations a second.
fn rate(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    let text = format!("{:.0}/s", state.per_sec());
    out.write_str(&text).ok(); // into memory
}

fn bar(name: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{prefix} {wide_bar} {human_pos}/{human_len} {rate} {eta} left {msg}",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{prefix} {spinner} {human_pos} {rate} {elapsed} {msg}",
        ),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("rate", rate));
    }
    bar.with_prefix(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_tell_of_stalls() {
        let of = |stopped: &str, rate: &str| {
            let (stopped, rate) = (stopped.to_owned(), rate.to_owned());
            Stall::of(move |name| match name {
                "rocksdb.is-write-stopped" => Some(stopped.clone()),
                "rocksdb.actual-delayed-write-rate" => Some(rate.clone()),
                _ => None,
            })
        };
        assert_eq!(of("0", "0"), Stall::None);
        assert_eq!(of("0", "16777216").text(), "writes delayed to 16.8 MB/s");
        assert_eq!(of("1", "16777216").text(), "writes stopped");
        assert_eq!(Stall::of(|_| None), Stall::None);
    }

    #[test]
    fn a_line_tells_rate_time_and_stalls() {
        let mut line = Line::default();
        assert_eq!(line.text(5, None, 2.4), "5 operations, 2/s");
        let told = [Stall::None, Stall::Delayed(1), Stall::Stopped, Stall::None];
        for stall in told {
            line.look(stall);
        }
        assert_eq!(
            line.text(100, Some(300), 50.0),
            "100 of 300 operations, 50/s, 4 s left, writes delayed 25 % of the time, \
             writes stopped 25 % of the time"
        );
        // Nothing moves: nobody knows when it ends.
        assert!(!line.text(100, Some(300), 0.0).contains("left"));
    }
}
