//! How a database is closed: in which steps, on which thread, and when LOCK is released.
//!
//! ```text
//!   before_close     writes that are in no log are flushed; the log is handed to the operating system
//!   begin_close      no thread begins anything new
//!   join             all threads have ended, except a thread that is itself closing the database
//!   the rest         waiters get an error, obsolete files are deleted, remaining letters are delivered
//!   LOCK             is released: another process may open the database
//! ```
//!
//! A listener or a callback on one of the database's own threads may drop the last handle. That thread
//! still has to go on with its work, so no code on it can wait for its end. A separate thread then closes
//! the database. If the system cannot start such a thread, everything after `begin_close` is left to the
//! database's threads: the first thread that ends has nothing else to do, and waits for the others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::sync::{Mutex, PoisonError, ranked};
use base::{Error, ErrorKind, Result};
use io::FileLock;

use crate::db::maintenance;
use crate::info::log::InfoLog;
use crate::jobs::Jobs;
use crate::shared::Shared;
use crate::{locks, outbox};

/// The threads of a database, and its LOCK. LOCK is released when this is dropped, on whichever thread. The
/// database's threads have been joined by then.
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

    /// Closes the database. The caller is not one of its threads, or uses nothing of the database any more.
    pub(crate) fn close(&mut self, shared: &Shared) -> Result<()> {
        let result = before(shared);
        self.end(shared);
        result
    }

    /// Closes the database on a separate thread, for a caller on one of the database's own threads.
    /// Errors are reported in LOG only.
    pub(crate) fn close_elsewhere(self, shared: &Arc<Shared>) {
        // The thread that closes the database takes `self` out of `running`. If that thread cannot be started,
        // `self` is still in `running`.
        let running = Arc::new(ranked(locks::LEAF, Some(self)));
        let (to_close, of) = (Arc::clone(&running), Arc::clone(shared));
        let close = move || {
            if let Some(mut running) = take(&to_close) {
                report(&of.info.log, running.close(&of));
            }
        };
        let threads = &shared.env().threads;
        if threads.start("ironstone:close", Box::new(close)).is_ok() {
            return;
        }
        if let Some(mut running) = take(&running) {
            report(&shared.info.log, before(shared));
            // No thread of the database would do the rest for a task on the thread for reads, which they do not wait for.
            if !outbox::belongs_to(shared.instance) {
                return running.end(shared);
            }
            shared
                .left
                .leave(Box::new(move |shared| running.end(shared)));
        }
    }

    /// Joins the threads and does everything that follows.
    fn end(&mut self, shared: &Shared) {
        self.jobs.join();
        shared.background.check_idle();
        shared.catalog.tables.compressors.end();
        let closed = Error::new(ErrorKind::ShutdownInProgress, "the database was closed");
        shared.wal.durable.fail(&closed);
        // A panic of the file system must not keep the remaining letters from the listeners.
        let delete = AssertUnwindSafe(|| shared.delete_obsolete_files());
        if !shared.read_only && catch_unwind(delete).is_err() {
            shared.info.log.error(format_args!(
                "closing: the deletion of obsolete files panicked"
            ));
        }
        shared.deliver_the_rest();
    }
}

/// The steps before the threads are joined. The database closes even if they fail.
fn before(shared: &Shared) -> Result<()> {
    let before = AssertUnwindSafe(|| maintenance::before_close(shared));
    let result = catch_unwind(before)
        .unwrap_or_else(|_| Err(Error::aborted("closing the database panicked")));
    shared.begin_close();
    result
}

/// Reports a failed close in LOG: no caller gets the error.
pub(crate) fn report(log: &InfoLog, result: Result<()>) {
    if let Err(e) = result {
        log.error(format_args!("closing: {e}"));
    }
}

fn take(running: &Mutex<Option<Running>>) -> Option<Running> {
    running
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
}
