//! What was promised of which write. Its lock is the standard library's, so that looking into the book does
//! not let the scheduler switch threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::world::told;

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Running,
    /// It was acknowledged, at this moment.
    Done(u64),
    /// It may be there or not.
    Failed,
    /// It was refused before anything was done.
    Refused,
}

/// A write.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) begun: u64,
    pub(crate) outcome: Outcome,
    pub(crate) logged: bool,
    /// Whether it is also in the second family.
    pub(crate) second: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    now: u64,
    pub(crate) writes: BTreeMap<String, Write>,
    /// The writes that survive a power cut.
    pub(crate) durable: BTreeSet<String>,
}

impl Pages {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// The writes that were acknowledged so far; with `all`, also those without a log.
    pub(crate) fn acknowledged(&self, all: bool) -> Vec<String> {
        let done = |w: &Write| matches!(w.outcome, Outcome::Done(_)) && (all || w.logged);
        let names = self.writes.iter().filter(|(_, w)| done(w));
        names.map(|(name, _)| name.clone()).collect()
    }
}

/// The book.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Pages>);

impl Book {
    pub(crate) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, name: &str, logged: bool, second: bool) {
        let mut pages = self.pages();
        let write = Write {
            begun: pages.tick(),
            outcome: Outcome::Running,
            logged,
            second,
        };
        pages.writes.insert(name.to_owned(), write);
    }

    pub(crate) fn end(&self, name: &str, done: bool, refused: bool) {
        let mut pages = self.pages();
        let now = pages.tick();
        let write = pages.writes.get_mut(name).expect("it has begun");
        write.outcome = match (done, refused) {
            (true, _) => Outcome::Done(now),
            (_, true) => Outcome::Refused,
            _ => Outcome::Failed,
        };
        told(&format!("{name}: {write:?}"));
    }

    pub(crate) fn durable(&self, names: impl IntoIterator<Item = String>) {
        self.pages().durable.extend(names);
    }
}
