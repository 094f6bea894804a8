//! How a database ends: what it closes with, on which thread, and when LOCK goes.
//!
//! ```text
//!   before_close     what is only in memory goes to a table, the log to the operating system
//!   begin_close      no thread begins anything new
//!   join             all threads have ended; one that is just closing the database ends behind it
//!   the rest         nobody waits any more, obsolete files go, listeners hear what is left
//!   LOCK             another process may open the database
//! ```
//!
//! The last handle may be let go of by a listener or a callback on a thread of the database's own,
//! which goes on with what it does and cannot be waited for there. So a thread of its own closes the
//! database then. Where the system has no more threads, everything behind `begin_close` is left to
//! the database's threads: the first that ends has nothing else to do, and waits for the others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::sync::{Mutex, PoisonError};
use base::{Error, ErrorKind, Result};
use io::FileLock;

use crate::jobs::Jobs;
use crate::maintenance;
use crate::shared::Shared;

/// What a database has besides its state: its threads, and the right to its directory. LOCK goes when
/// this is dropped, by whomever: the threads have been joined then.
#[derive(Default)]
pub(crate) struct Running {
    pub(crate) jobs: Jobs,
    _lock: Option<Box<dyn FileLock>>,
}

impl Running {
    pub(crate) fn new(lock: Option<Box<dyn FileLock>>) -> Self {
        let jobs = Jobs::default();
        Self { jobs, _lock: lock }
    }

    /// Closes the database, on a thread that is not its own or that has let go of everything of it.
    pub(crate) fn close(&mut self, shared: &Shared) -> Result<()> {
        let result = before(shared);
        self.end(shared);
        result
    }

    /// Closes the database where nobody hears of errors, on a thread of its own that goes on.
    pub(crate) fn close_elsewhere(self, shared: &Arc<Shared>) {
        // Whoever is to close it takes it from there: a thread that cannot be started takes nothing.
        let running = Arc::new(Mutex::new(Some(self)));
        let (to_close, of) = (Arc::clone(&running), Arc::clone(shared));
        let close = move || {
            if let Some(mut running) = take(&to_close) {
                report(&of, running.close(&of));
            }
        };
        let threads = &shared.env().threads;
        if threads.start("ironstone:close", Box::new(close)).is_ok() {
            return;
        }
        if let Some(mut running) = take(&running) {
            report(shared, before(shared));
            shared.leave(Box::new(move |shared| running.end(shared)));
        }
    }

    /// Joins the threads and does the rest.
    fn end(&mut self, shared: &Shared) {
        self.jobs.join();
        shared.check_idle();
        shared.tables.compressors.end();
        let closed = Error::new(ErrorKind::ShutdownInProgress, "the database was closed");
        shared.durable.fail(&closed);
        // A file system that panics may not keep listeners from hearing the rest.
        let delete = AssertUnwindSafe(|| shared.delete_obsolete_files());
        if !shared.read_only && catch_unwind(delete).is_err() {
            shared.info_log.error(format_args!(
                "closing: the deletion of obsolete files panicked"
            ));
        }
        shared.deliver_the_rest();
    }
}

/// What comes before the threads are joined. Afterwards the database closes, whatever happened.
fn before(shared: &Shared) -> Result<()> {
    let before = AssertUnwindSafe(|| maintenance::before_close(shared));
    let result = catch_unwind(before)
        .unwrap_or_else(|_| Err(Error::aborted("closing the database panicked")));
    shared.begin_close();
    result
}

/// Nobody else hears of it.
pub(crate) fn report(shared: &Shared, result: Result<()>) {
    if let Err(e) = result {
        shared.info_log.error(format_args!("closing: {e}"));
    }
}

fn take(running: &Mutex<Option<Running>>) -> Option<Running> {
    running
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
}
