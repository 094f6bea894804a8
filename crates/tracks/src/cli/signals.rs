//! SIGTERM and SIGINT: the first ends the process in order; a second SIGINT at once.

use base::threads::Threads;
use base::{Error, ErrorKind, Result};
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
            super::say("ended at once by a second signal");
            std::process::exit(1);
        }
    };
    // It ends with the process.
    drop(threads.start("signals", Box::new(run)).map_err(failed)?);
    Ok(())
}
