//! Several inserts whose searches run side by side.
//!
//! A search in a large list is a chain of cache misses, each a hundred times a comparison. Entries
//! that come together, of a batch or of a log that is replayed, are searched for in turns: each
//! search asks for the cache line that it needs next, and while that is on its way the others go on.
//! The lists may be different ones.
//!
//! Entries near the place of the last insert do not search: see [`Splice`].

use std::cmp::Ordering as Order;
use std::ptr;
use std::sync::atomic::Ordering;

use super::{Node, SkipList, Splice, Target, prefetch};

/// An entry that has its memory in a list, but no place yet.
pub(in crate::memtable) struct Unlinked {
    node: *mut Node,
    height: usize,
}

// SAFETY: the node is reached by nobody else before it is linked; the arena outlives the list's users.
unsafe impl Send for Unlinked {}

/// The most searches that run side by side: about as many cache lines as a core can wait for.
pub(in crate::memtable) const WIDTH: usize = 16;

impl SkipList {
    /// Makes an entry, which [`link_all`] puts into the list; its internal key must not be there.
    pub(in crate::memtable) fn prepare(
        &self,
        user_key: &[u8],
        packed: u64,
        value: &[u8],
    ) -> Unlinked {
        let target = self.target_of(user_key, packed);
        let height = self.random_height();
        let node = self.new_node(&target, value, height);
        Unlinked { node, height }
    }

    /// Links the entry if its place is next to that of the last one.
    fn link_near(&self, entry: &Unlinked, target: &Target<'_>) -> bool {
        let Ok(mut splice) = self.splice.try_lock() else {
            return false;
        };
        if splice.height < self.raise_to(entry.height) {
            return false;
        }
        let (prev, next) = (splice.prev[0], splice.next[0]);
        // SAFETY: a splice with a height holds the head or linked nodes of this list, or null.
        let around = unsafe {
            (prev == self.head || self.compare(prev, target) == Order::Less)
                && (next.is_null() || self.compare(next, target) == Order::Greater)
        };
        if around {
            self.link(entry.node, entry.height, target, &mut splice);
        }
        around
    }
}

/// The search for an entry's place.
struct Search<'a> {
    list: &'a SkipList,
    target: Target<'a>,
    entry: Unlinked,
    splice: Splice,
    level: usize,
    /// The last node that is known to be before the target.
    from: *mut Node,
    /// The node behind `from`, whose cache line is on its way.
    next: *mut Node,
    /// The first node that is known to be behind the target.
    behind: *mut Node,
}

impl<'a> Search<'a> {
    fn begin(list: &'a SkipList, target: Target<'a>, entry: Unlinked) -> Self {
        let height = list.raise_to(entry.height);
        let mut splice = Splice::empty();
        splice.height = height;
        splice.prev[height] = list.head;
        let mut search = Self {
            list,
            target,
            entry,
            splice,
            level: height - 1,
            from: list.head,
            next: ptr::null_mut(),
            behind: ptr::null_mut(),
        };
        search.look_ahead();
        search
    }

    /// Finds `next` and asks for it.
    #[inline]
    fn look_ahead(&mut self) {
        // SAFETY: `from` is the head or a linked node that was reached on this level or above it.
        self.next = unsafe { Node::next(self.from, self.level) }.load(Ordering::Acquire);
        prefetch(self.next);
        // The tower stands before the node, perhaps in the line before.
        prefetch(
            self.next
                .wrapping_byte_sub((self.level + 1) * super::POINTER),
        );
    }

    /// Goes on until a node is needed that has only been asked for. True when the place is found.
    #[inline]
    fn step(&mut self) -> bool {
        loop {
            let known = self.next.is_null() || self.next == self.behind;
            // SAFETY: `next` is a linked node: it was loaded with acquire.
            if !known && unsafe { self.list.compare(self.next, &self.target) } == Order::Less {
                self.from = self.next;
            } else {
                self.splice.prev[self.level] = self.from;
                self.splice.next[self.level] = self.next;
                self.behind = self.next;
                if self.level == 0 {
                    return true;
                }
                self.level -= 1;
            }
            self.look_ahead();
            if !self.next.is_null() && self.next != self.behind {
                return false;
            }
        }
    }
}

/// Puts entries into the lists that they were made in; at most [`WIDTH`] at once are searched for.
pub(in crate::memtable) fn link_all<'a>(entries: impl Iterator<Item = (&'a SkipList, Unlinked)>) {
    let mut searches: Vec<Search<'a>> = Vec::new();
    for (list, entry) in entries {
        // SAFETY: the entry was made by this list, which is borrowed for 'a.
        let target = list.target(unsafe { Node::key(entry.node) });
        if list.link_near(&entry, &target) {
            list.entries.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        if searches.capacity() == 0 {
            searches.reserve_exact(WIDTH);
        }
        searches.push(Search::begin(list, target, entry));
        if searches.len() == WIDTH {
            finish(&mut searches);
        }
    }
    finish(&mut searches);
}

fn finish(searches: &mut Vec<Search<'_>>) {
    let mut left = searches.len();
    while left > 0 {
        let mut i = 0;
        while i < left {
            if searches[i].step() {
                left -= 1;
                searches.swap(i, left);
            } else {
                i += 1;
            }
        }
    }
    for mut search in searches.drain(..) {
        let Unlinked { node, height } = search.entry;
        let list = search.list;
        list.link_at(node, height, &search.target, &mut search.splice);
        list.entries.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut last) = list.splice.try_lock() {
            *last = search.splice;
        }
    }
}
