//! How the database fails: from then on it refuses writes; reads still work.

use base::stats::Ticker;
use base::{Error, ErrorKind};

use crate::shared::Shared;
use options::hooks::listener::BackgroundErrorReason;

impl Shared {
    /// Makes `error` sticky: every later write fails with it; reads still work. The caller may hold any lock except
    /// the state lock.
    pub(crate) fn fail(&self, what: &str, error: &Error) {
        self.fail_in(BackgroundErrorReason::WriteCallback, what, error);
    }

    /// [`Shared::fail`], with a reason for listeners.
    pub(crate) fn fail_in(&self, reason: BackgroundErrorReason, what: &str, error: &Error) {
        let mut state = self.background.state();
        let first = state.failure.is_none();
        if first {
            state.failure = Some(
                error
                    .clone()
                    .hint("the database refuses writes until it is resumed or reopened"),
            );
        }
        // A thread that sees the failure must not find a write path that does not see it.
        self.writes.attention.raise();
        // Under the lock: a resume clears both failures together.
        self.wal.durable.fail(error);
        drop(state);
        // Before anything that may panic: no other thread wakes the waiters.
        self.background.notify();
        self.wal.wake_waiting();
        if first {
            self.info.log.error(format_args!(
                "{what} failed, the database refuses writes: {error}"
            ));
            self.info.count(Ticker::ErrorHandlerBgErrorCount, 1);
            if matches!(error.kind(), ErrorKind::IoError | ErrorKind::NoSpace) {
                self.info.count(Ticker::ErrorHandlerBgIoErrorCount, 1);
            }
            let error = error.clone();
            self.info
                .tell_later(move |l| l.on_background_error(reason, &error));
        }
        self.wal.demand.lazily_again(); // what is in the log may be all that there will be of it
        self.wal.demand.wake(); // to call the callbacks with the error
    }
}
