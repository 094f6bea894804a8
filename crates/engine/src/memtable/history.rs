//! Flushed memtables that are kept for a while: a transaction that began before their flush can check in
//! them, without reading a file, whether a key has been written since.
//!
//! Reads do not use them. `max_write_buffer_size_to_maintain` limits how many are kept (bytes of all
//! memtables of the family, including those not flushed yet), or, if that is 0,
//! `max_write_buffer_number_to_maintain` (a number of memtables, counted in the same way).

use std::collections::VecDeque;
use std::sync::Arc;

use super::Memtable;
use crate::options::CfOptions;

/// The kept memtables of a family, newest first.
#[derive(Default)]
pub(crate) struct History {
    kept: VecDeque<Arc<Memtable>>,
}

impl History {
    /// Keeps flushed memtables, given from old to new, and drops the oldest ones that exceed the limit.
    /// `living` are the memtables not flushed yet; they count too.
    pub(crate) fn add(
        &mut self,
        flushed: &[Arc<Memtable>],
        living: &[&Arc<Memtable>],
        options: &CfOptions,
    ) {
        let (bytes, number) = limits(options);
        if bytes == 0 && number == 0 {
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
            let too_much = if bytes > 0 {
                total.saturating_sub(oldest.memory_usage()) >= bytes
            } else {
                living.len() + self.kept.len() > number
            };
            if !too_much {
                break;
            }
            total -= oldest.memory_usage();
            self.kept.pop_back();
        }
    }

    /// Number of memtables that are kept.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Bytes of memory.
    pub(crate) fn memory_usage(&self) -> usize {
        self.kept.iter().map(|m| m.memory_usage()).sum()
    }
}

/// The limits in bytes and in memtables; -1 means as much as the write buffers may have.
fn limits(options: &CfOptions) -> (usize, usize) {
    let writable = options.max_write_buffer_number.unsigned_abs() as usize;
    let bytes = match options.max_write_buffer_size_to_maintain {
        n if n < 0 => writable * options.write_buffer_size as usize,
        n => n.unsigned_abs() as usize,
    };
    let number = match options.max_write_buffer_number_to_maintain {
        n if n < 0 => writable,
        n => n.unsigned_abs() as usize,
    };
    (bytes, number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Comparator, FileNumber, SequenceNumber, ValueType};

    fn memtable(id: u64, bytes: usize) -> Arc<Memtable> {
        let m = Memtable::new(id, Comparator::bytewise(), 4096, FileNumber(1));
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
        let options = CfOptions {
            max_write_buffer_number_to_maintain: 3,
            ..CfOptions::default()
        };
        let (mut history, active) = (History::default(), memtable(100, 1));
        for id in 0..5 {
            history.add(&[memtable(id, 1)], &[&active], &options);
        }
        let ids: Vec<u64> = history.kept.iter().map(|m| m.id()).collect();
        assert_eq!(ids, [4, 3]);
    }

    #[test]
    fn by_bytes_the_limit_is_filled_and_not_much_more() {
        let options = CfOptions {
            max_write_buffer_size_to_maintain: 100_000,
            ..CfOptions::default()
        };
        let (mut history, active) = (History::default(), memtable(100, 1));
        for id in 0..9 {
            history.add(&[memtable(id, 30_000)], &[&active], &options);
        }
        let total = history.memory_usage() + active.memory_usage();
        assert!((100_000..140_000).contains(&total), "{total}");
    }

    #[test]
    fn by_default_nothing_is_kept() {
        let (mut history, active) = (History::default(), memtable(100, 1));
        history.add(&[memtable(0, 1)], &[&active], &CfOptions::default());
        assert_eq!(history.len(), 0);
    }
}
