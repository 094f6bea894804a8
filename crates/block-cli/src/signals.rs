//! SIGTERM and SIGINT: the first one ends a process in order; a second SIGINT ends it at once.

use base::threads::Threads;
use base::{Error, ErrorKind, Result};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `stop` at the first signal, on a thread of its own.
pub(crate) fn on_stop(threads: &dyn Threads, stop: impl Fn() + Send + 'static) -> Result<()> {
    let failed = |e: std::io::Error| {
        Error::new(ErrorKind::IoError, format!("cannot wait for signals: {e}")).because(e)
    };
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let run = move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            stop();
        }
        if signals.any(|signal| signal == SIGINT) {
            crate::say("ended at once by a second signal");
            std::process::exit(1);
        }
    };
    // The thread ends with the process.
    drop(threads.start("signals", Box::new(run)).map_err(failed)?);
    Ok(())
}

/// Makes the system send SIGTERM to this process when its parent ends.
pub(crate) fn end_with_parent(parent: u32) -> Result<()> {
    let set = set_parent_process_death_signal(Some(Signal::TERM));
    set.map_err(|e| Error::new(ErrorKind::IoError, format!("cannot watch the parent: {e}")))?;
    // The parent may have ended before.
    if getppid().map(|pid| pid.as_raw_nonzero().get() as u32) != Some(parent) {
        return Err(Error::aborted("the process that started this one is gone"));
    }
    Ok(())
}
