//! How far a suite is, on standard error: a bar with the remaining time on a terminal, else lines.

use std::io::IsTerminal as _;
use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Runs done and to come.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    clock: Arc<dyn Clock>,
    begun: u64,
    runs: u64,
    done: u64,
}

impl Progress {
    pub(super) fn new(runs: u64) -> Self {
        let clock = SystemClock::shared();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template(
                "{msg} {wide_bar} run {human_pos} of {human_len}, {eta} left",
            ) {
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
        }
    }

    /// Something begins that is no run of its own.
    pub(super) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => eprintln!("{text}"),
        }
    }

    /// A run begins.
    pub(super) fn begin(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    /// A run has ended.
    pub(super) fn ran(&mut self) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        }
    }

    /// A pair has ended, with this result.
    pub(super) fn result(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}; {}", self.left()),
        }
    }

    /// What is left, if it goes on as it went.
    fn left(&self) -> String {
        let elapsed = (self.clock.monotonic_nanos() - self.begun) as f64 * 1e-9;
        let (done, runs) = (self.done, self.runs);
        let seconds = elapsed / done.max(1) as f64 * runs.saturating_sub(done) as f64;
        format!("run {done} of {runs}, {} left", length(seconds))
    }

    pub(super) fn end(&self) {
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
    fn runs_are_counted() {
        let mut progress = Progress::new(4);
        assert!(progress.left().starts_with("run 0 of 4"));
        progress.ran();
        assert!(progress.left().starts_with("run 1 of 4"));
        progress.end();
    }
}
