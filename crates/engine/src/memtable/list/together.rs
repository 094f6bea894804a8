//! Several inserts whose searches run side by side.
//!
//! A search in a large list is a chain of cache misses, each a hundred times a comparison: the block
//! of the lowest level, and then the entry before the place. Entries that come together, of a batch
//! or of a log that is replayed, are searched for in steps: each search asks for the cache lines of its
//! next step, and while they are on their way the others take theirs. The lists may be different ones.

use super::index::{Index, Near, Place};
use super::{Entry, List, Target};

/// An entry that has its memory in a list, but no place yet.
pub(in crate::memtable) struct Unlinked(*mut Entry);

// SAFETY: the entry is reached by nobody else before it is linked; the arena outlives the list's users.
unsafe impl Send for Unlinked {}

/// The most searches that run side by side: about as many cache lines as a core can wait for.
pub(in crate::memtable) const WIDTH: usize = 16;

impl List {
    /// Makes an entry, which [`link_all`] puts into the list; its internal key must not be there.
    pub(in crate::memtable) fn prepare(
        &self,
        user_key: &[u8],
        packed: u64,
        value: &[u8],
    ) -> Unlinked {
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

/// Puts entries into the lists that they were made in; at most [`WIDTH`] at once are searched for.
pub(in crate::memtable) fn link_all<'a>(entries: impl Iterator<Item = (&'a List, Unlinked)>) {
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
