//! Cursors over a memtable.
//!
//! The `unsafe` code here resumes positions in a list or a vector that the cursor's memtable keeps alive.
#![expect(unsafe_code, reason = "a part of the unsafe island of memtables")]

use std::sync::Arc;

use base::Result;
use base::perf::{self, PerfCounter};
use table::{InternalIterator, Prefix};

use crate::list::{self, Position};
use crate::memtable::{Memtable, Rep};
use crate::vector::{Sorted, Vector};

impl Memtable {
    /// A cursor over all entries. A vector's cursor shows what was there when the cursor was created.
    pub fn iter(self: &Arc<Self>) -> Iter {
        Iter::of(self)
    }

    /// The same for one pass from the first entry to the last: entries are prefetched, because most of a
    /// pass is waiting for memory.
    pub fn pass(self: &Arc<Self>) -> Iter {
        let mut iter = self.iter();
        if let Rep::List(list) = &self.rep {
            iter.ahead = Some(list.ahead());
        }
        iter
    }
}

/// A cursor that keeps its memtable alive.
pub struct Iter {
    at: At,
    pub(crate) ahead: Option<list::Ahead>,
    memtable: Arc<Memtable>,
}

/// The position of a cursor, depending on the memtable's representation.
enum At {
    List(Position),
    /// An index; beyond the last entry, the cursor has no position.
    Vector(Sorted, usize),
}

impl Iter {
    /// A cursor without a position.
    pub(crate) fn of(memtable: &Arc<Memtable>) -> Self {
        Self {
            at: match &memtable.rep {
                Rep::List(_) => At::List(Position::NOWHERE),
                Rep::Vector(vector) => At::Vector(vector.sorted(memtable.is_sealed()), usize::MAX),
            },
            ahead: None,
            memtable: Arc::clone(memtable),
        }
    }

    /// Whether the memtable may have keys with the prefix; if not, the cursor loses its position.
    fn may_find(&mut self, prefix: Prefix<'_>) -> bool {
        let filter = self.memtable.filter.as_ref();
        let may = filter.is_none_or(|f| f.may_contain_prefix(prefix));
        if !may {
            match &mut self.at {
                At::List(at) => *at = Position::NOWHERE,
                At::Vector(_, at) => *at = usize::MAX,
            }
        }
        may
    }

    #[inline]
    fn current(&self) -> Option<(&[u8], &[u8])> {
        match (&self.at, &self.memtable.rep) {
            (At::List(at), Rep::List(list)) => {
                // SAFETY: `at` is only ever set from cursors of this memtable's list.
                unsafe { list.resume(*at) }.entry()
            }
            (At::Vector(sorted, at), Rep::Vector(vector)) => {
                // SAFETY: `sorted` is this vector's.
                unsafe { vector.at(sorted, *at) }
            }
            _ => None,
        }
    }

    /// Moves the cursor: `step` moves a cursor of the list, `place` returns a position in the vector.
    #[inline]
    fn go(
        &mut self,
        step: impl FnOnce(&mut list::Cursor<'_>),
        place: impl FnOnce(&Vector, &Sorted, usize) -> usize,
    ) {
        match (&mut self.at, &self.memtable.rep) {
            (At::List(at), Rep::List(list)) => {
                // SAFETY: as in `current`.
                let mut cursor = unsafe { list.resume(*at) };
                step(&mut cursor);
                *at = cursor.save();
            }
            (At::Vector(sorted, at), Rep::Vector(vector)) => *at = place(vector, sorted, *at),
            _ => {}
        }
    }

    #[inline]
    fn entry(&self) -> (&[u8], &[u8]) {
        self.current()
            .expect("key() and value() need a valid iterator")
    }
}

/// The position before `at`; before the first, an invalid one.
fn before(at: usize) -> usize {
    at.checked_sub(1).unwrap_or(usize::MAX)
}

impl InternalIterator for Iter {
    fn valid(&self) -> bool {
        self.current().is_some()
    }

    fn seek_to_first(&mut self) {
        self.go(|c| c.seek_to_first(), |_, _, _| 0);
    }

    fn seek_to_last(&mut self) {
        self.go(|c| c.seek_to_last(), |_, sorted, _| before(sorted.len()));
    }

    fn seek(&mut self, target: &[u8]) {
        perf::count(PerfCounter::SeekOnMemtableCount, 1);
        self.go(
            |c| c.seek(target),
            |vector, sorted, _| vector.position(sorted, target),
        );
    }

    fn seek_for_prev(&mut self, target: &[u8]) {
        perf::count(PerfCounter::SeekOnMemtableCount, 1);
        self.go(
            |c| c.seek_for_prev(target),
            |vector, sorted, _| {
                let at = vector.position(sorted, target);
                // SAFETY: `sorted` is this vector's.
                match unsafe { vector.at(sorted, at) } {
                    Some((k, _)) if k == target => at,
                    _ => before(at),
                }
            },
        );
    }

    fn seek_in_prefix(&mut self, target: &[u8], prefix: Prefix<'_>) -> bool {
        let may = self.may_find(prefix);
        if may {
            self.seek(target);
        }
        may
    }

    fn seek_for_prev_in_prefix(&mut self, target: &[u8], prefix: Prefix<'_>) -> bool {
        let may = self.may_find(prefix);
        if may {
            self.seek_for_prev(target);
        }
        may
    }

    fn next(&mut self) {
        perf::count(PerfCounter::NextOnMemtableCount, 1);
        self.go(|c| c.next(), |_, _, at| at + 1);
        if let Some(ahead) = &mut self.ahead {
            // SAFETY: `ahead` came from this memtable, which is kept alive.
            unsafe { ahead.go_on() };
        }
    }

    fn prev(&mut self) {
        perf::count(PerfCounter::PrevOnMemtableCount, 1);
        self.go(|c| c.prev(), |_, _, at| before(at));
    }

    fn key(&self) -> &[u8] {
        self.entry().0
    }

    fn value(&self) -> &[u8] {
        self.entry().1
    }

    fn status(&self) -> Result<()> {
        Ok(())
    }

    fn is_value_pinned(&self) -> bool {
        true
    }

    fn is_key_pinned(&self) -> bool {
        true
    }
}
