//! The range tombstones of a memtable.
//!
//! Tombstones are stored in the order of insertion, and cut into fragments when a reader needs them.
//! Readers share the fragments until the next tombstone is inserted. Then only the tombstones since the
//! last full run are cut again, so that reads between many range deletions stay cheap.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::{Mutex, PoisonError, ranked};
use base::{Comparator, SequenceNumber};
use keyspan::{Fragments, Span, fragments};

use crate::locks;

/// This many tombstones make up a run that is not cut again.
const RUN: usize = 256;

/// After this many runs, all tombstones are cut together again.
const RUNS_MAX: usize = 16;

#[derive(Default)]
struct State {
    all: Vec<Span>,
    /// The number of tombstones that `lists` covers.
    cut: usize,
    lists: Vec<Arc<Fragments>>,
    /// The number of runs since all tombstones were last cut together.
    runs: usize,
}

/// Fragments of the first `count` tombstones.
struct Cut {
    count: usize,
    lists: Vec<Arc<Fragments>>,
}

/// The tombstones. Inserts and reads may run at the same time.
pub(crate) struct Tombstones {
    /// The number of tombstones; if it is 0, readers need not look any further.
    count: AtomicUsize,
    bytes: AtomicUsize,
    state: Mutex<State>,
    cut: ArcSwapOption<Cut>,
}

impl Default for Tombstones {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            state: ranked(locks::MEMTABLE, State::default()),
            cut: ArcSwapOption::default(),
        }
    }
}

impl Tombstones {
    pub(crate) fn insert(&self, begin: &[u8], end: &[u8], sequence: SequenceNumber) {
        let span = Span::new(begin, end, sequence);
        let bytes = size_of::<Span>() + span.start.len() + span.end.len();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.all.push(span);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count.store(state.all.len(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Bytes of memory, without the fragments made for readers.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// All tombstones in the order of insertion.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.all.clone()
    }

    /// The sequence number of the newest tombstone that covers the internal key `at` and is not newer than
    /// `limit`; 0 if there is none.
    #[cold]
    pub(crate) fn covering(&self, cmp: &Comparator, at: &[u8], limit: SequenceNumber) -> u64 {
        let count = self.len();
        match &*self.cut.load() {
            Some(cut) if cut.count >= count => fragments::covering(&cut.lists, cmp, at, limit),
            _ => fragments::covering(&self.cut_now(cmp).lists, cmp, at, limit),
        }
    }

    /// All tombstones as fragments.
    pub(crate) fn lists(&self, cmp: &Comparator) -> Vec<Arc<Fragments>> {
        let count = self.len();
        match &*self.cut.load() {
            Some(cut) if cut.count >= count => cut.lists.clone(),
            _ => self.cut_now(cmp).lists.clone(),
        }
    }

    fn cut_now(&self, cmp: &Comparator) -> Arc<Cut> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let count = state.all.len();
        if let Some(cut) = self.cut.load_full().filter(|c| c.count == count) {
            return cut; // another reader has cut them meanwhile
        }
        let from = if state.runs >= RUNS_MAX { 0 } else { state.cut };
        let new = fragments::fragment(cmp, &state.all[from..]);
        let mut lists = if from == 0 {
            Vec::new()
        } else {
            state.lists.clone()
        };
        lists.extend(new);
        if count - state.cut >= RUN {
            state.runs = if from == 0 { 0 } else { state.runs + 1 };
            state.cut = count;
            state.lists.clone_from(&lists);
        }
        let cut = Arc::new(Cut { count, lists });
        self.cut.store(Some(Arc::clone(&cut)));
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{ValueType, key};

    #[test]
    fn reads_between_insertions_see_all_that_came() {
        let cmp = Comparator::bytewise();
        let t = Tombstones::default();
        let n = 6000u64;
        let at = |i: u64| key::encode(&i.to_be_bytes(), SequenceNumber(0), ValueType::Value);
        for i in 0..n {
            let (begin, end) = (i.to_be_bytes(), (i + 2).to_be_bytes());
            t.insert(&begin, &end, SequenceNumber(i + 1));
            if i.is_multiple_of(7) {
                let newest = SequenceNumber::MAX;
                assert_eq!(t.covering(&cmp, &at(i), newest), i + 1);
                assert_eq!(t.covering(&cmp, &at(i + 1), newest), i + 1);
                assert_eq!(t.covering(&cmp, &at(i + 2), newest), 0);
                assert_eq!(t.covering(&cmp, &at(i / 2), newest), i / 2 + 1);
                assert_eq!(t.covering(&cmp, &at(i), SequenceNumber(i)), i);
                assert!(t.lists(&cmp).len() <= RUNS_MAX + 2);
            }
        }
        assert_eq!(t.len() as u64, n);
        assert_eq!(t.spans().len() as u64, n);
        assert!(t.bytes() > 6000 * 32);
    }
}
