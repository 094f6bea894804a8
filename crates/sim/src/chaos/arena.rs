//! State that the threads of one life share.

use std::sync::{Arc, OnceLock};

use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, PoisonError, RwLock};
use ironstone::{ColumnFamily, Db, Error, ErrorKind, Options};

use super::Part;
use super::callbacks::Home;
use super::ledger::Promises;
use super::trouble::Trouble;
use super::watch::Slot;

/// State that the threads of one life share.
pub(super) struct Arena {
    pub options: Options,
    pub promises: Arc<Promises>,
    pub trouble: Arc<Trouble>,
    pub home: Arc<Home>,
    /// Whether there are no faults in this life, so that nothing may fail.
    pub quiet: AtomicBool,
    without: Vec<Part>,
    /// Whether the threads should end.
    pub stop: AtomicBool,
    /// Families that are created and dropped.
    pub passing: RwLock<Vec<ColumnFamily>>,
    /// The first property that did not hold.
    failure: OnceLock<String>,
    /// The last errors of operations, for the report.
    errors: Mutex<Vec<String>>,
}

/// Errors that are kept for the report.
const ERRORS_MAX: usize = 30;

impl Arena {
    pub(super) fn new(
        options: Options,
        promises: Arc<Promises>,
        trouble: Arc<Trouble>,
        home: Arc<Home>,
        quiet: bool,
        without: Vec<Part>,
    ) -> Arc<Self> {
        Arc::new(Self {
            options,
            promises,
            trouble,
            home,
            quiet: AtomicBool::new(quiet),
            without,
            stop: AtomicBool::new(false),
            passing: RwLock::default(),
            failure: OnceLock::new(),
            errors: Mutex::default(),
        })
    }

    /// The current families among those that are created and dropped.
    pub(super) fn passing(&self) -> Vec<ColumnFamily> {
        let passing = self.passing.read().unwrap_or_else(PoisonError::into_inner);
        passing.clone()
    }

    pub(super) fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Notes that a property does not hold: all threads stop.
    pub(super) fn fail(&self, text: String) {
        drop(self.failure.set(text));
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn failure(&self) -> Option<String> {
        let text = self.failure.get()?;
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        Some(format!("{text}\nlast errors:\n  {}", errors.join("\n  ")))
    }

    /// Checks whether an operation may fail with this error.
    pub(super) fn judge(&self, what: &str, error: &Error) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() >= ERRORS_MAX {
            errors.remove(0);
        }
        errors.push(format!("{what}: {error}"));
        drop(errors);
        let usual = matches!(
            error.kind(),
            ErrorKind::Incomplete | ErrorKind::Aborted | ErrorKind::Busy | ErrorKind::TryAgain
        );
        let text = error.to_string();
        let asked_for = error.kind() == ErrorKind::InvalidArgument
            && (what == "set_options" || text.contains("Invalid column family"))
            && !text.contains("refuses writes");
        let of_users_code = text.contains("merge operator");
        // Unlogged writes, and logs that failed, leave gaps.
        let gap = what == "get_updates_since" && text.contains("go on with get_updates_since(");
        if error.is_corruption() && !of_users_code && !gap {
            self.fail(format!("{what} found damage: {error}"));
        } else if self.quiet.load(Ordering::Relaxed) && !usual && !asked_for && !gap {
            self.fail(format!("nothing went wrong, but {what} failed: {error}"));
        }
    }
}

/// What a thread needs for its operations.
pub(super) struct Tools {
    pub arena: Arc<Arena>,
    pub db: Arc<Db>,
    pub families: Vec<ColumnFamily>,
    pub slot: Arc<Slot>,
}

impl Tools {
    /// Runs an operation; `None` if it failed, and its error is judged.
    pub(super) fn run<T>(
        &self,
        what: &'static str,
        f: impl FnOnce(&Db) -> ironstone::Result<T>,
    ) -> Option<T> {
        match self.slot.run(what, || f(&self.db))? {
            Ok(value) => Some(value),
            Err(e) => {
                self.arena.judge(what, &e);
                None
            }
        }
    }
}
