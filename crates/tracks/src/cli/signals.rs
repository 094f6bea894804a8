//! SIGTERM and SIGINT: the first one ends the process in order, a second SIGINT at once. SIGHUP:
//! files are read again.

use base::threads::Threads;
use base::{Error, ErrorKind, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Reload,
    Stop,
}

/// Calls `tell` at each SIGHUP, and at the first signal to stop, on a separate thread.
pub(crate) fn on_signals(
    threads: &dyn Threads,
    tell: impl Fn(Wish) + Send + 'static,
) -> Result<()> {
    let failed = |e: std::io::Error| {
        Error::new(ErrorKind::IoError, format!("cannot wait for signals: {e}")).because(e)
    };
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
    let run = move || {
        let mut stops = false;
        for signal in &mut signals {
            match signal {
                SIGHUP => tell(Wish::Reload),
                SIGINT if stops => {
                    super::say("ended at once by a second signal");
                    std::process::exit(1);
                }
                _ if !stops => {
                    stops = true;
                    tell(Wish::Stop);
                }
                _ => {}
            }
        }
    };
    // The thread ends with the process.
    drop(threads.start("signals", Box::new(run)).map_err(failed)?);
    Ok(())
}
