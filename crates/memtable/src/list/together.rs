//! Several inserts whose searches run side by side.
//!
//! A search in a large list is a chain of cache misses, each costing as much as a hundred comparisons: the
//! block of the lowest level, then the entry before the place. So entries that come together, from a batch
//! or a log that is being replayed, are searched for in steps. Each search prefetches the cache lines of
//! its next step; while they are loading, the other searches take a step. The lists may be different ones.

use super::index::{Index, Near, Place};
use super::{Entry, List, Target};

/// An entry that has been allocated in a list, but not linked yet.
pub(crate) struct Unlinked(*mut Entry);

// SAFETY: nothing else reaches the entry before it is linked; the arena outlives the list's users.
unsafe impl Send for Unlinked {}

/// The maximum number of searches that run side by side: about the number of cache misses that a core can
/// have outstanding.
pub(crate) const WIDTH: usize = 16;

impl List {
    /// Allocates an entry, which [`link_all`] adds to the list; its internal key must not be in the list
    /// yet.
    pub(crate) fn prepare(&self, user_key: &[u8], packed: u64, value: &[u8]) -> Unlinked {
        Unlinked(self.new_entry(&Target { user_key, packed }, value))
    }
}

/// The search for an entry's place.
struct Search<'a> {
    list: &'a List,
    target: Target<'a>,
    entry: *mut Entry,
    near: Option<Near<'a>>,
    place: Option<Place<'a>>,
}

/// Adds entries to the lists that they were allocated in; at most [`WIDTH`] searches run at once.
pub(crate) fn link_all<'a>(entries: impl Iterator<Item = (&'a List, Unlinked)>) {
    let mut searches: Vec<Search<'a>> = Vec::new();
    for (list, Unlinked(entry)) in entries {
        if searches.capacity() == 0 {
            searches.reserve_exact(WIDTH);
        }
        // SAFETY: the entry was made by this list, which is borrowed for 'a.
        let target = Target::new(unsafe { Entry::key(entry) });
        searches.push(Search {
            list,
            target,
            entry,
            near: list.index.near(&target, &list.comparator),
            place: None,
        });
        if searches.len() == WIDTH {
            finish(&mut searches);
        }
    }
    finish(&mut searches);
}

fn finish(searches: &mut Vec<Search<'_>>) {
    for search in searches.iter_mut() {
        let comparator = &search.list.comparator;
        let near = search.near;
        search.place = near.and_then(|near| Index::place(near, &search.target, comparator));
    }
    for search in searches.drain(..) {
        search.list.link(search.entry, &search.target, search.place);
    }
}
