//! How far a benchmark is, on standard error: a bar with rate and remaining time on a terminal,
//! a line every few seconds otherwise, or RocksDB's interval lines where
//! `--stats_interval` or `--stats_interval_seconds` asks for them.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::clock::Clock;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::flags::Flags;

/// Nanoseconds between two lines that are not on a terminal.
const LINE_EVERY: u64 = 10_000_000_000;

enum Show {
    Bar(ProgressBar),
    Lines { total: Option<u64>, last: AtomicU64 },
    Interval { operations: u64, nanos: u64 },
    Nothing,
}

/// Shared by the threads of a run.
pub(crate) struct Progress<'a> {
    /// What follows an interval line of the first thread: the engine's own statistics.
    more: Option<&'a (dyn Fn() -> String + Sync)>,
    name: String,
    clock: Arc<dyn Clock>,
    done: AtomicU64,
    show: Show,
}

impl<'a> Progress<'a> {
    /// For a run of `total` operations, or of an unknown number.
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
            Show::Lines {
                total,
                last: AtomicU64::new(clock.monotonic_nanos()),
            }
        };
        Self {
            name: name.to_owned(),
            clock,
            done: AtomicU64::new(0),
            show,
            more: (flags.stats_per_interval > 0).then_some(more),
        }
    }

    /// After how many operations a thread reports first.
    pub(crate) fn first_report(&self) -> u64 {
        match self.show {
            Show::Interval { operations, .. } => operations,
            Show::Bar(_) | Show::Lines { .. } => 100,
            Show::Nothing => u64::MAX,
        }
    }

    /// After how many operations a thread reports next: rarely enough to cost nothing.
    pub(crate) fn next_report(&self, last: u64) -> u64 {
        match self.show {
            Show::Interval { operations, .. } => last + operations,
            Show::Bar(_) | Show::Lines { .. } => last + (last / 10).clamp(100, 20_000),
            Show::Nothing => u64::MAX,
        }
    }

    /// A thread's report: `elapsed` nanoseconds since its start, `done` operations in all, and
    /// both `since` its last report. True if the report was taken, so that the next one starts
    /// from here.
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
        let done = self.done.fetch_add(operations, Ordering::Relaxed) + operations;
        match &self.show {
            Show::Bar(bar) => bar.set_position(done),
            Show::Lines { total, last } => {
                let now = self.clock.monotonic_nanos();
                let before = last.load(Ordering::Relaxed);
                let due = now.saturating_sub(before) >= LINE_EVERY
                    && last
                        .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok();
                if due {
                    let of = total.map_or(String::new(), |total| format!(" of {total}"));
                    eprintln!("{}: {done}{of} operations", self.name);
                }
            }
            Show::Interval { .. } | Show::Nothing => {}
        }
    }

    /// Removes the bar, so that the result line stands alone.
    pub(crate) fn clear(&self) {
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
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
            "{prefix} {wide_bar} {human_pos}/{human_len} {rate} {eta} left",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{prefix} {spinner} {human_pos} {rate} {elapsed}",
        ),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("rate", rate));
    }
    bar.with_prefix(name.to_owned())
}
