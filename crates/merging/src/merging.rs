//! Merges sorted cursors into one, in both directions.
//!
//! The children that have an entry are kept in a binary heap, ordered by their current key. The comparator
//! prefix of each child's key is cached, so most comparisons compare two integers. Continuing with the same
//! child, the usual case, costs one comparison with each of the two below it in the heap.
//!
//! A seek within a prefix leaves out the children that are known to have no key with that prefix. Nothing
//! is missing as long as the caller stays within the prefix. Before moving beyond it, the caller must call
//! [`MergingIter::complete`].
//!
//! With a [`Cover`], the iterator skips entries that range tombstones hide: a few entries one by one, more of
//! them by a seek to the end of a newer child's tombstone.

mod seeks;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use base::perf::{self, PerfCounter};
use base::{Comparator, Result, SequenceNumber, key};
use table::{InternalIterator, Prefix};

use crate::cover::Cover;
use seeks::{Stopped, begin, go_on, seek_all};

/// Number of hidden entries of a child that are stepped over before it seeks.
const STEPS_BEFORE_SEEK: usize = 3;

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
pub struct MergingIter {
    comparator: Comparator,
    children: Vec<Child>,
    /// Indices of the children that are valid; the first is the current one.
    heap: Vec<usize>,
    direction: Direction,
    /// A child that is not valid may have an error: the entries of the other children must not be taken for all entries
    /// then. Known only after the first seek.
    may_have_failed: bool,
    /// The tombstones that hide entries; `None` if there are none, the usual case.
    cover: Option<Box<Cover>>,
    /// Indices of the children that the last seek left out.
    left_out: Vec<usize>,
    /// The target of that seek.
    sought: Vec<u8>,
}

impl MergingIter {
    /// Merges these cursors, newest first.
    pub fn new(comparator: Comparator, children: Vec<Box<dyn InternalIterator>>) -> Self {
        let mut merged = Self::with_room(comparator, children.len());
        for child in children {
            merged.push(child);
        }
        merged
    }

    /// A union of nothing, with room for so many cursors.
    pub fn with_room(comparator: Comparator, cursors: usize) -> Self {
        Self {
            comparator,
            heap: Vec::with_capacity(cursors),
            children: Vec::with_capacity(cursors),
            direction: Direction::Forward,
            may_have_failed: true,
            cover: None,
            left_out: Vec::new(),
            sought: Vec::new(),
        }
    }

    /// Adds a cursor, which is older than those before it. The iterator has no position yet.
    #[inline]
    pub fn push(&mut self, iter: Box<dyn InternalIterator>) {
        self.children.push(Child { iter, prefix: 0 });
    }

    /// The number of cursors.
    pub fn cursors(&self) -> usize {
        self.children.len()
    }

    /// The same iterator without the entries that `cover` hides. Children must be ordered from newest to
    /// oldest.
    #[must_use]
    pub fn covered_by(mut self, cover: Option<Box<Cover>>) -> Self {
        self.cover = cover;
        self
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
        self.may_have_failed = false;
        for i in 0..self.children.len() {
            if self.children[i].iter.valid() {
                self.load_prefix(i);
                self.heap.push(i);
            } else {
                self.note_invalid(i);
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    /// Takes note of a child that is not valid.
    fn note_invalid(&mut self, i: usize) {
        self.may_have_failed = self.may_have_failed || self.children[i].iter.status().is_err();
    }

    /// Positions every child with `seek` and starts over in `direction`.
    fn restart(&mut self, direction: Direction, seek: impl Fn(&mut dyn InternalIterator)) {
        self.direction = direction;
        self.left_out.clear();
        perf::count(PerfCounter::SeekChildSeekCount, self.children.len() as u64);
        seek_all(&mut self.children, |_, child| seek(child));
        self.rebuild();
        self.pass_hidden_anew();
    }

    /// [`MergingIter::restart`] at a key: children whose entries there are hidden skip ahead at once.
    fn restart_at(
        &mut self,
        direction: Direction,
        target: &[u8],
        seek: impl Fn(&mut dyn InternalIterator, &[u8]),
    ) {
        let Some(cover) = &self.cover else {
            return self.restart(direction, |c| seek(c, target));
        };
        self.direction = direction;
        self.left_out.clear();
        let forward = direction == Direction::Forward;
        perf::count(PerfCounter::SeekChildSeekCount, self.children.len() as u64);
        seek_all(&mut self.children, |i, child| {
            seek(child, cover.jump(i, target, forward).unwrap_or(target));
        });
        self.rebuild();
        self.pass_hidden_anew();
    }

    /// [`InternalIterator::seek`] of several iterators, each to a target of its own. What all of them lack is read at the
    /// same time. Returns how many reads were done together.
    pub fn seek_together(seeks: &mut [(&mut Self, Vec<u8>)]) -> usize {
        let mut reads = 0;
        let begin = |(iter, target): &mut (&mut Self, Vec<u8>)| iter.begin_seek(target);
        let mut stopped: Vec<Stopped> = seeks.iter_mut().map(begin).collect();
        for stops in 1.. {
            let of_each: Vec<usize> = stopped.iter().map(Vec::len).collect();
            let (numbers, lacking): (Vec<usize>, Vec<_>) = stopped.drain(..).flatten().unzip();
            if lacking.is_empty() {
                break;
            }
            let filled = table::read_together(&lacking);
            reads += filled.iter().flatten().count();
            let mut all = numbers.into_iter().zip(lacking.into_iter().zip(filled));
            for ((iter, target), count) in seeks.iter_mut().zip(of_each) {
                let mut seek = seek_hidden(iter.cover.as_deref(), target);
                let its = all.by_ref().take(count);
                stopped.push(go_on(&mut iter.children, &mut seek, stops, its));
            }
        }
        for (iter, _) in seeks {
            iter.rebuild();
            iter.pass_hidden_anew();
        }
        reads
    }

    /// Begins to seek.
    fn begin_seek(&mut self, target: &[u8]) -> Stopped {
        self.direction = Direction::Forward;
        self.left_out.clear();
        perf::count(PerfCounter::SeekChildSeekCount, self.children.len() as u64);
        let seek = seek_hidden(self.cover.as_deref(), target);
        begin(&mut self.children, seek)
    }

    /// [`InternalIterator::seek`] or [`InternalIterator::seek_for_prev`] for keys with a prefix.
    pub fn seek_within(&mut self, target: &[u8], prefix: Prefix<'_>, forward: bool) {
        self.direction = if forward {
            Direction::Forward
        } else {
            Direction::Reverse
        };
        self.left_out.clear();
        self.sought.clear();
        self.sought.extend_from_slice(target);
        let left_out = &mut self.left_out;
        seek_all(&mut self.children, |i, child| {
            let found = if forward {
                child.seek_in_prefix(target, prefix)
            } else {
                child.seek_for_prev_in_prefix(target, prefix)
            };
            if !found {
                left_out.push(i);
            }
        });
        let sought = self.children.len() - self.left_out.len();
        perf::count(PerfCounter::SeekChildSeekCount, sought as u64);
        self.rebuild();
        self.pass_hidden_anew();
    }

    /// Includes the children that the last seek left out because they had no key with its prefix. Returns
    /// false if there were none.
    pub fn complete(&mut self) -> bool {
        if self.left_out.is_empty() {
            return false;
        }
        let forward = self.direction == Direction::Forward;
        for i in std::mem::take(&mut self.left_out) {
            let iter = &mut *self.children[i].iter;
            if forward {
                iter.seek(&self.sought);
            } else {
                iter.seek_for_prev(&self.sought);
            }
        }
        self.rebuild();
        self.pass_hidden_anew();
        true
    }

    /// After this call, range tombstones up to `limit` are respected.
    pub fn raise_limit(&mut self, limit: SequenceNumber) {
        if let Some(cover) = &mut self.cover {
            cover.raise_limit(limit);
        }
    }

    /// For an iterator that moves forward: seeks child number `i` to `target` again, because it can now
    /// show entries that it could not when it was positioned.
    pub fn seek_again(&mut self, i: usize, target: &[u8]) {
        if let Some(child) = self.children.get_mut(i) {
            child.iter.seek(target);
            self.left_out.retain(|&other| other != i);
            self.rebuild();
            self.pass_hidden_anew();
        }
    }

    /// After a change of position: forgets the window of the old one, and skips hidden entries.
    #[inline]
    fn pass_hidden_anew(&mut self) {
        if let Some(cover) = &mut self.cover {
            cover.lose();
            self.pass_hidden();
        }
    }

    /// Moves in the current direction to the first entry that is not hidden.
    #[inline(never)]
    fn pass_hidden(&mut self) {
        let forward = self.direction == Direction::Forward;
        while let (Some(&top), Some(cover)) = (self.heap.first(), &mut self.cover) {
            let iter = &mut *self.children[top].iter;
            if !cover.hides(iter.key(), forward) {
                return;
            }
            match cover.jump(top, iter.key(), forward) {
                Some(to) => pass(&self.comparator, iter, to, forward),
                None if forward => iter.next(),
                None => iter.prev(),
            }
            self.sift_current();
        }
    }

    /// Reverses the direction at the current key: every other child is positioned on the other side of it.
    fn turn(&mut self, direction: Direction) {
        let current = self.heap[0];
        let at = self.children[current].iter.key().to_vec();
        self.direction = direction;
        self.left_out.clear();
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
            if let Some(cover) = &mut self.cover {
                cover.lose();
            }
        }
        let current = self.heap[0];
        match direction {
            Direction::Forward => self.children[current].iter.next(),
            Direction::Reverse => self.children[current].iter.prev(),
        }
        self.sift_current();
        if self.cover.is_some() {
            self.pass_hidden();
        }
    }

    /// Restores the heap after the child on top has moved in the current direction.
    #[inline]
    fn sift_current(&mut self) {
        let current = self.heap[0];
        if self.children[current].iter.valid() {
            self.load_prefix(current);
        } else {
            self.note_invalid(current);
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

/// Seeks a child to a target, or behind what is hidden there.
fn seek_hidden<'a>(
    cover: Option<&'a Cover>,
    target: &'a [u8],
) -> impl FnMut(usize, &mut dyn InternalIterator) + 'a {
    move |i, child| {
        let jump = cover.and_then(|cover| cover.jump(i, target, true));
        child.seek(jump.unwrap_or(target));
    }
}

/// Moves a child to `to`, because everything that it has up to there is hidden: by a few steps, otherwise
/// by a seek.
fn pass(cmp: &Comparator, iter: &mut dyn InternalIterator, to: &[u8], forward: bool) {
    for _ in 0..STEPS_BEFORE_SEEK {
        if forward {
            iter.next();
        } else {
            iter.prev();
        }
        if !iter.valid() || key::compare(cmp, iter.key(), to).is_lt() != forward {
            return;
        }
    }
    perf::count(PerfCounter::InternalRangeDelReseekCount, 1);
    if forward {
        iter.seek(to);
    } else {
        iter.seek_for_prev(to);
    }
}

impl InternalIterator for MergingIter {
    #[inline]
    fn valid(&self) -> bool {
        !self.heap.is_empty() && !self.may_have_failed
    }

    fn seek_to_first(&mut self) {
        self.restart(Direction::Forward, |c| c.seek_to_first());
    }

    fn seek_to_last(&mut self) {
        self.restart(Direction::Reverse, |c| c.seek_to_last());
    }

    fn seek(&mut self, target: &[u8]) {
        self.restart_at(Direction::Forward, target, |c, to| c.seek(to));
    }

    fn seek_for_prev(&mut self, target: &[u8]) {
        self.restart_at(Direction::Reverse, target, |c, to| c.seek_for_prev(to));
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
        if !self.may_have_failed {
            return Ok(());
        }
        self.children.iter().try_for_each(|c| c.iter.status())
    }

    fn is_value_pinned(&self) -> bool {
        self.current().is_value_pinned()
    }

    fn is_key_pinned(&self) -> bool {
        self.current().is_key_pinned()
    }
}
