//! The progress of a suite, on standard error: a bar with the remaining time on a terminal,
//! otherwise lines.

use std::io::IsTerminal as _;
use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The finished and the remaining runs.
///
/// The remaining time is estimated for two kinds of runs: timed ones, whose length is known, and
/// the others, which are expected to take as long as the finished ones of this kind.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    clock: Arc<dyn Clock>,
    runs: u64,
    done: u64,
    timed: Timed,
    /// The time of the finished runs without a given length, nanoseconds, and their number.
    others: (u64, u64),
    begun: u64,
}

/// Runs with a given length.
#[derive(Clone, Copy)]
pub(crate) struct Timed {
    /// How many remain.
    pub(crate) left: u64,
    pub(crate) seconds: u32,
}

impl Progress {
    pub(crate) fn new(runs: u64, timed: Timed) -> Self {
        let clock = SystemClock::shared();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            begun: clock.monotonic_nanos(),
            clock,
            runs,
            done: 0,
            timed,
            others: (0, 0),
        }
    }

    /// Reports the begin of something that does not count as a run.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_prefix(text.to_owned()),
            None => eprintln!("{text}"),
        }
    }

    /// Reports the begin of a run.
    pub(crate) fn begin(&mut self, what: &str) {
        self.begun = self.clock.monotonic_nanos();
        if let Some(bar) = &self.bar {
            bar.set_prefix(what.to_owned());
        }
    }

    /// Records the end of a run.
    pub(crate) fn ran(&mut self, timed: bool) {
        self.done += 1;
        if timed {
            self.timed.left = self.timed.left.saturating_sub(1);
        } else {
            self.others.0 += self.clock.monotonic_nanos() - self.begun;
            self.others.1 += 1;
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
            bar.set_message(self.left());
        }
    }

    /// Reports the result of a pair.
    pub(crate) fn result(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}; {}", self.left()),
        }
    }

    /// The estimated remaining time.
    fn left(&self) -> String {
        let (nanos, others) = self.others;
        let each = nanos as f64 * 1e-9 / others.max(1) as f64;
        let (done, runs, timed) = (self.done, self.runs, self.timed);
        let others_left = runs.saturating_sub(done).saturating_sub(timed.left);
        let seconds = others_left as f64 * each + timed.left as f64 * f64::from(timed.seconds);
        format!("run {done} of {runs}, about {} left", length(seconds))
    }

    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `45 s`, `12 min`.
fn length(seconds: f64) -> String {
    if seconds < 100.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.0} min", seconds / 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short() {
        assert_eq!(length(44.6), "45 s");
        assert_eq!(length(720.0), "12 min");
    }

    #[test]
    fn timed_runs_take_their_time() {
        let timed = Timed {
            left: 2,
            seconds: 30,
        };
        let mut progress = Progress::new(4, timed);
        assert_eq!(progress.left(), "run 0 of 4, about 60 s left");
        progress.begin("x");
        progress.ran(true);
        assert_eq!(progress.left(), "run 1 of 4, about 30 s left");
        progress.ran(false);
        progress.others = (2_000_000_000, 1);
        assert_eq!(progress.left(), "run 2 of 4, about 32 s left");
        progress.end();
    }
}
