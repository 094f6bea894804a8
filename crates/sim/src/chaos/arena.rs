//! What the threads of one life share.

use std::sync::{Arc, OnceLock};

use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, PoisonError, RwLock};
use ironstone::{ColumnFamily, Db, Error, ErrorKind, Options};

use super::Part;
use super::callbacks::Home;
use super::ledger::Promises;
use super::trouble::Trouble;
use super::watch::Slot;

/// What the threads of one life share.
pub(super) struct Arena {
    pub options: Options,
    pub promises: Arc<Promises>,
    pub trouble: Arc<Trouble>,
    pub home: Arc<Home>,
    /// Nothing goes wrong in this life: nothing may fail.
    pub quiet: AtomicBool,
    without: Vec<Part>,
    /// The threads are to end.
    pub stop: AtomicBool,
    /// Families that come and go.
    pub passing: RwLock<Vec<ColumnFamily>>,
    /// The first thing that did not hold.
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

    /// The families that come and go, as they are now.
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

    /// Something does not hold: everybody stops.
    pub(super) fn fail(&self, text: String) {
        drop(self.failure.set(text));
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn failure(&self) -> Option<String> {
        let text = self.failure.get()?;
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        Some(format!("{text}\nlast errors:\n  {}", errors.join("\n  ")))
    }

    /// Looks at the error of an operation: whether it may happen.
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
        // Unlogged writes, and logs that failed, are missing between the others.
        let gap = what == "get_updates_since" && text.contains("go on with get_updates_since(");
        if error.is_corruption() && !of_users_code && !gap {
            self.fail(format!("{what} found damage: {error}"));
        } else if self.quiet.load(Ordering::Relaxed) && !usual && !asked_for && !gap {
            self.fail(format!("nothing went wrong, but {what} failed: {error}"));
        }
    }
}

/// What a thread works with.
pub(super) struct Tools {
    pub arena: Arc<Arena>,
    pub db: Arc<Db>,
    pub families: Vec<ColumnFamily>,
    pub slot: Arc<Slot>,
}

impl Tools {
    /// Does an operation; `None` if it failed, which is looked at.
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
