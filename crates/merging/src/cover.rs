//! The range tombstones of an iterator: they hide entries.
//!
//! Every source of an iterator (a memtable, a level 0 file, a deeper level) may have tombstones. For a
//! window of keys around the current position, they determine the sequence number of the newest tombstone;
//! an entry in the window is hidden if it is older than that. So each entry costs one comparison with the
//! end of the window, in either direction. The sources are asked again only where a fragment of one of them
//! begins or ends.
//!
//! A tombstone of a newer source hides everything that an older source has in its range. The older source
//! then jumps straight to the end of the fragment.

use std::sync::Arc;

use base::{Comparator, SequenceNumber, key};
use keyspan::fragments::{self, Fragments, Window};

use manifest::{Files, TableFile};

/// The tombstones of one source.
pub enum Lists {
    /// The tombstones of a memtable or of one file.
    One(Vec<Arc<Fragments>>),
    /// The files of a sorted level that have tombstones, sorted by key.
    Level(Files),
}

impl Lists {
    fn window(&self, cmp: &Comparator, at: &[u8], limit: SequenceNumber) -> Window<'_> {
        let files = match self {
            Self::One(lists) => return fragments::window(lists, cmp, at, limit),
            Self::Level(files) => files,
        };
        let i = files.partition_point(|f| key::compare(cmp, upper(f), at).is_le());
        let edges = Window {
            from: i.checked_sub(1).and_then(|i| files.get(i)).map(upper),
            to: files.get(i).map(upper),
            sequence: 0,
        };
        match files.get(i) {
            None => edges,
            Some(f) => edges.and(fragments::window(lists(f), cmp, at, limit), cmp),
        }
    }
}

fn upper(file: &Arc<TableFile>) -> &[u8] {
    file.tombstones().map_or(&[], |t| &t.upper)
}

fn lists(file: &Arc<TableFile>) -> &[Arc<Fragments>] {
    file.tombstones().map_or(&[], |t| &t.lists)
}

struct Source {
    lists: Lists,
    /// The children of the iterator from this index on are older than these tombstones.
    older_from: usize,
}

/// The tombstones that an iterator respects, and the window around its position.
pub struct Cover {
    comparator: Comparator,
    /// Tombstones newer than this are ignored.
    limit: SequenceNumber,
    /// Newest first.
    sources: Vec<Source>,
    /// The end of the window in the iterator's direction; `None` if unbounded.
    edge: Option<Vec<u8>>,
    /// Whether `edge` and `sequence` are valid.
    located: bool,
    /// The sequence number of the newest tombstone in the window; 0 if there is none.
    sequence: u64,
}

impl Cover {
    /// A cover without tombstones, for a reader at `limit`.
    pub fn new(comparator: Comparator, limit: SequenceNumber) -> Self {
        Self {
            comparator,
            limit,
            sources: Vec::new(),
            edge: None,
            located: false,
            sequence: 0,
        }
    }

    /// Adds the tombstones of the next older source; the iterator's children from `older_from` on
    /// are older than that source.
    pub fn add(&mut self, lists: Lists, older_from: usize) {
        self.sources.push(Source { lists, older_from });
    }

    /// `None` if there is no tombstone at all.
    pub fn if_any(self) -> Option<Box<Self>> {
        (!self.sources.is_empty()).then(|| Box::new(self))
    }

    /// After this call, tombstones up to `limit` are visible.
    pub fn raise_limit(&mut self, limit: SequenceNumber) {
        self.limit = limit;
        self.located = false;
    }

    /// Forgets the window: the iterator moves elsewhere or changes direction.
    pub fn lose(&mut self) {
        self.located = false;
    }

    /// Whether the entry with this internal key is hidden. Between two calls of [`Cover::lose`], keys must
    /// come in the iterator's direction.
    #[inline]
    pub fn hides(&mut self, internal_key: &[u8], forward: bool) -> bool {
        if !self.inside(internal_key, forward) {
            self.locate(internal_key, forward);
        }
        key::split(internal_key).is_some_and(|(_, packed)| packed >> 8 < self.sequence)
    }

    #[inline]
    fn inside(&self, at: &[u8], forward: bool) -> bool {
        self.located
            && self.edge.as_ref().is_none_or(|edge| {
                let order = key::compare(&self.comparator, at, edge);
                if forward {
                    order.is_lt()
                } else {
                    order.is_ge()
                }
            })
    }

    fn locate(&mut self, at: &[u8], forward: bool) {
        let cmp = &self.comparator;
        let window = self.sources.iter().fold(Window::default(), |w, s| {
            w.and(s.lists.window(cmp, at, self.limit), cmp)
        });
        let edge = if forward { window.to } else { window.from };
        let mut kept = self.edge.take().unwrap_or_default();
        self.edge = edge.map(|e| {
            kept.clear();
            kept.extend_from_slice(e);
            kept
        });
        self.sequence = window.sequence;
        self.located = true;
    }

    /// The position from which the iterator's child number `child` may continue, starting at the internal
    /// key `at`, because newer sources hide everything that the child has up to there; `None` if they do
    /// not. Forward, this is the end of the hidden range. In reverse, it is the start: the child continues
    /// before it.
    pub fn jump(&self, child: usize, at: &[u8], forward: bool) -> Option<&[u8]> {
        let cmp = &self.comparator;
        let mut best: Option<&[u8]> = None;
        for source in self.sources.iter().filter(|s| s.older_from <= child) {
            let window = source.lists.window(cmp, at, self.limit);
            if window.sequence == 0 {
                continue;
            }
            let edge = if forward { window.to } else { window.from };
            let further =
                |e: &&[u8]| best.is_none_or(|b| key::compare(cmp, e, b).is_gt() == forward);
            best = edge.filter(further).or(best);
        }
        best
    }
}
