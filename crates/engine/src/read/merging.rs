//! Merges sorted cursors into one, in both directions.
//!
//! The children that have an entry stand in a binary heap by their current key. Each child's
//! comparator prefix is kept beside it, so most comparisons look at two integers. Going on with
//! the same child, the usual case, costs one comparison with each of the two below it.

use std::cmp::Ordering;

use base::{Comparator, Result, key};
use table::InternalIterator;

struct Child {
    iter: Box<dyn InternalIterator>,
    prefix: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Reverse,
}

/// The union of its children, sorted by internal key.
pub(crate) struct MergingIter {
    comparator: Comparator,
    children: Vec<Child>,
    /// Indices of the children that are valid; the first is the current one.
    heap: Vec<usize>,
    direction: Direction,
}

impl MergingIter {
    pub(crate) fn new(comparator: Comparator, children: Vec<Box<dyn InternalIterator>>) -> Self {
        let children: Vec<_> = children
            .into_iter()
            .map(|iter| Child { iter, prefix: 0 })
            .collect();
        Self {
            comparator,
            heap: Vec::with_capacity(children.len()),
            children,
            direction: Direction::Forward,
        }
    }

    /// Whether child `a` comes before child `b` in the current direction.
    #[inline]
    fn before(&self, a: usize, b: usize) -> bool {
        let (ca, cb) = (&self.children[a], &self.children[b]);
        let order = if ca.prefix == cb.prefix {
            key::compare(&self.comparator, ca.iter.key(), cb.iter.key())
        } else {
            ca.prefix.cmp(&cb.prefix)
        };
        match self.direction {
            Direction::Forward => order == Ordering::Less,
            Direction::Reverse => order == Ordering::Greater,
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                return;
            }
            let mut best = left;
            if right < self.heap.len() && self.before(self.heap[right], self.heap[left]) {
                best = right;
            }
            if !self.before(self.heap[best], self.heap[at]) {
                return;
            }
            self.heap.swap(at, best);
            at = best;
        }
    }

    #[inline]
    fn load_prefix(&mut self, i: usize) {
        let child = &mut self.children[i];
        child.prefix = self.comparator.prefix(key::user_key(child.iter.key()));
    }

    fn rebuild(&mut self) {
        self.heap.clear();
        for i in 0..self.children.len() {
            if self.children[i].iter.valid() {
                self.load_prefix(i);
                self.heap.push(i);
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    /// Positions every child with `seek` and starts over in `direction`.
    fn restart(&mut self, direction: Direction, seek: impl Fn(&mut dyn InternalIterator)) {
        self.direction = direction;
        for child in &mut self.children {
            seek(&mut *child.iter);
        }
        self.rebuild();
    }

    /// Turns around at the current key: every other child is positioned on the far side of it.
    fn turn(&mut self, direction: Direction) {
        let current = self.heap[0];
        let at = self.children[current].iter.key().to_vec();
        self.direction = direction;
        for (i, child) in self.children.iter_mut().enumerate() {
            if i == current {
                continue;
            }
            match direction {
                Direction::Forward => child.iter.seek(&at),
                Direction::Reverse => {
                    child.iter.seek_for_prev(&at);
                    if child.iter.valid() && child.iter.key() == at {
                        child.iter.prev();
                    }
                }
            }
        }
        self.rebuild();
    }

    #[inline]
    fn step(&mut self, direction: Direction) {
        if self.direction != direction {
            self.turn(direction);
        }
        // After a turn the current child may no longer be on top, but it is the one to move.
        let current = self.heap[0];
        match direction {
            Direction::Forward => self.children[current].iter.next(),
            Direction::Reverse => self.children[current].iter.prev(),
        }
        if self.children[current].iter.valid() {
            self.load_prefix(current);
        } else {
            let last = self.heap.len() - 1;
            self.heap.swap_remove(0);
            if last == 0 {
                return;
            }
        }
        if self.heap.len() > 1 {
            self.sift_down(0);
        }
    }

    #[inline]
    fn current(&self) -> &dyn InternalIterator {
        &*self.children[*self.heap.first().expect("the iterator is not valid")].iter
    }
}

impl InternalIterator for MergingIter {
    #[inline]
    fn valid(&self) -> bool {
        // A child with an error drops out of the heap; what the others have must not be taken for
        // the whole then.
        !self.heap.is_empty() && (self.heap.len() == self.children.len() || self.status().is_ok())
    }

    fn seek_to_first(&mut self) {
        self.restart(Direction::Forward, |c| c.seek_to_first());
    }

    fn seek_to_last(&mut self) {
        self.restart(Direction::Reverse, |c| c.seek_to_last());
    }

    fn seek(&mut self, target: &[u8]) {
        self.restart(Direction::Forward, |c| c.seek(target));
    }

    fn seek_for_prev(&mut self, target: &[u8]) {
        self.restart(Direction::Reverse, |c| c.seek_for_prev(target));
    }

    #[inline]
    fn next(&mut self) {
        self.step(Direction::Forward);
    }

    #[inline]
    fn prev(&mut self) {
        self.step(Direction::Reverse);
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current().key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current().value()
    }

    fn status(&self) -> Result<()> {
        self.children.iter().try_for_each(|c| c.iter.status())
    }
}
