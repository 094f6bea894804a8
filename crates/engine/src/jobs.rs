//! The background threads: the only place in the engine that starts threads.
//!
//! One thread flushes, the others compact (`max_background_jobs` in all, at least two). They look
//! for work under the state lock, do it without, and sleep when there is none.

use std::sync::Arc;
use std::thread::JoinHandle;

use base::{Error, ErrorKind, Result};

use crate::compaction;
use crate::flush;
use crate::shared::Shared;

/// The running threads.
#[derive(Default)]
pub(crate) struct Jobs {
    threads: Vec<JoinHandle<()>>,
}

impl Jobs {
    /// Starts the threads of a database.
    pub(crate) fn start(db: &Arc<Shared>) -> Result<Self> {
        let compactors = (db.options.db.max_background_jobs.max(2) - 1) as usize;
        let mut jobs = Self::default();
        jobs.spawn("ironstone:flush", db, flush::next)?;
        for i in 0..compactors {
            jobs.spawn(&format!("ironstone:low{i}"), db, compaction::next)?;
        }
        Ok(jobs)
    }

    /// Starts a thread that repeats `step` until the database closes.
    fn spawn(&mut self, name: &str, db: &Arc<Shared>, step: Step) -> Result<()> {
        let db = Arc::clone(db);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&db, step))
            .map_err(|e| {
                Error::new(
                    ErrorKind::IoError,
                    format!("cannot start a background thread: {e}"),
                )
            })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Waits for the threads; [`Shared::begin_close`] has told them to end.
    pub(crate) fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic in a job has been reported by the panic hook already.
            drop(thread.join());
        }
    }
}

/// Finds a piece of work and returns it, or `None` if there is nothing to do now.
type Step = fn(&Arc<Shared>, &mut crate::shared::State) -> Option<Work>;

/// A piece of work, to be done without the state lock.
pub(crate) type Work = Box<dyn FnOnce(&Arc<Shared>) -> Result<()>>;

fn work(db: &Arc<Shared>, step: Step) {
    loop {
        let mut state = db.state();
        let job = loop {
            if state.closing {
                return;
            }
            if state.failure.is_none()
                && let Some(job) = step(db, &mut state)
            {
                break job;
            }
            state = db.wait(state);
        };
        drop(state);
        if let Err(e) = job(db) {
            db.fail("background job", &e);
        }
        db.delete_obsolete_files();
        db.attention.raise();
        db.notify();
    }
}
