//! Flushed memtables that are kept for a while: a transaction that began before their flush can check in
//! them, without reading a file, whether a key has been written since.
//!
//! Reads do not use them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Memtable;

/// How much is kept. The memtables of the family that are not flushed yet count too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No history.
    Nothing,
    /// As many memtables as fill this many bytes.
    Bytes(usize),
    /// This many memtables.
    Memtables(usize),
}

/// The kept memtables of a family, newest first.
#[derive(Default)]
pub struct History {
    kept: VecDeque<Arc<Memtable>>,
}

impl History {
    /// Keeps flushed memtables, given from old to new, and drops the oldest ones that exceed the limit.
    /// `living` are the memtables not flushed yet; they count too.
    pub fn add(&mut self, flushed: &[Arc<Memtable>], living: &[&Arc<Memtable>], limit: Limit) {
        if limit == Limit::Nothing {
            return;
        }
        for m in flushed {
            m.keep();
            self.kept.push_front(Arc::clone(m));
        }
        let used: usize = living.iter().map(|m| m.memory_usage()).sum();
        let mut total = used + self.memory_usage();
        while let Some(oldest) = self.kept.back() {
            // The oldest goes only if the others still fill the limit without it.
            let too_much = match limit {
                Limit::Nothing => true,
                Limit::Bytes(bytes) => total.saturating_sub(oldest.memory_usage()) >= bytes,
                Limit::Memtables(number) => living.len() + self.kept.len() > number,
            };
            if !too_much {
                break;
            }
            total -= oldest.memory_usage();
            self.kept.pop_back();
        }
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Number of memtables that are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Bytes of memory.
    pub fn memory_usage(&self) -> usize {
        self.kept.iter().map(|m| m.memory_usage()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use base::{Comparator, FileNumber, SequenceNumber, ValueType};

    fn memtable(id: u64, bytes: usize) -> Arc<Memtable> {
        let m = Memtable::with(
            id,
            FileNumber(1),
            Settings {
                arena_block_size: 4096,
                ..Settings::new(Comparator::bytewise())
            },
        );
        m.insert(
            b"k",
            SequenceNumber(id + 1),
            ValueType::Value,
            &vec![0; bytes],
        );
        Arc::new(m)
    }

    #[test]
    fn by_number_the_newest_are_kept() {
        let limit = Limit::Memtables(3);
        let (mut history, active) = (History::default(), memtable(100, 1));
        for id in 0..5 {
            history.add(&[memtable(id, 1)], &[&active], limit);
        }
        let ids: Vec<u64> = history.kept.iter().map(|m| m.id()).collect();
        assert_eq!(ids, [4, 3]);
    }

    #[test]
    fn by_bytes_the_limit_is_filled_and_not_much_more() {
        let limit = Limit::Bytes(100_000);
        let (mut history, active) = (History::default(), memtable(100, 1));
        for id in 0..9 {
            history.add(&[memtable(id, 30_000)], &[&active], limit);
        }
        let total = history.memory_usage() + active.memory_usage();
        assert!((100_000..140_000).contains(&total), "{total}");
    }

    #[test]
    fn without_a_limit_nothing_is_kept() {
        let (mut history, active) = (History::default(), memtable(100, 1));
        history.add(&[memtable(0, 1)], &[&active], Limit::Nothing);
        assert_eq!(history.len(), 0);
    }
}
