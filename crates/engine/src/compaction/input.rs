//! The input of a flush or compaction, without the entries that range tombstones hide.

use std::sync::Arc;

use base::{Comparator, Result, SequenceNumber, ValueType, key};
use keyspan::clip;
use keyspan::stripes::{Hidden, Tombstones};
use table::InternalIterator;

use manifest::TableFile;

/// The tombstones of these files.
pub(crate) fn tombstones_of<'a>(
    comparator: &Comparator,
    files: impl Iterator<Item = &'a Arc<TableFile>>,
    snapshots: &[SequenceNumber],
) -> Result<Option<Tombstones>> {
    let mut spans = Vec::new();
    for file in files.filter(|f| f.tombstones().is_some()) {
        let all = file
            .reader()?
            .range_tombstones()
            .map_err(|e| e.or_file(file.path()))?;
        let meta = &file.meta;
        spans.extend(clip::spans(comparator, &meta.smallest, &meta.largest, all));
    }
    Ok(Tombstones::new(comparator, &spans, snapshots))
}

fn is_single_deletion(internal_key: &[u8]) -> bool {
    key::split(internal_key)
        .is_some_and(|(_, packed)| packed as u8 == ValueType::SingleDeletion as u8)
}

/// The input of a flush or compaction, without the entries that range tombstones hide.
pub(crate) struct Input {
    iter: Box<dyn InternalIterator>,
    /// `None` if there are no tombstones, the usual case.
    hidden: Option<Hidden>,
    /// Number of entries that were passed and not hidden.
    passed: u64,
    /// Whether the current entry is a single deletion that is hidden.
    at_hidden: bool,
    /// Number of entries that were hidden.
    num_hidden: u64,
}

impl Input {
    pub(crate) fn new(iter: Box<dyn InternalIterator>, hidden: Option<Hidden>) -> Self {
        Self {
            iter,
            hidden,
            passed: 0,
            at_hidden: false,
            num_hidden: 0,
        }
    }

    /// Number of entries hidden so far.
    pub(crate) fn num_hidden(&self) -> u64 {
        self.num_hidden
    }

    /// Number of entries passed so far.
    pub(crate) fn num_passed(&self) -> u64 {
        self.passed + self.num_hidden()
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.iter.valid()
    }

    pub(crate) fn seek_to_first(&mut self) {
        self.iter.seek_to_first();
        self.pass_hidden();
    }

    /// Seeks forward only.
    pub(crate) fn seek(&mut self, target: &[u8]) {
        self.iter.seek(target);
        self.pass_hidden();
    }

    #[inline]
    pub(crate) fn next(&mut self) {
        self.step();
        if self.hidden.is_some() {
            self.pass_hidden();
        }
    }

    /// Moves to the next entry, hidden or not. The caller may then call [`Input::pass_hidden`].
    #[inline]
    pub(crate) fn step(&mut self) {
        self.passed += 1;
        self.iter.next();
    }

    /// Moves to the first entry from here on that is not hidden or is a single deletion.
    pub(crate) fn pass_hidden(&mut self) {
        self.at_hidden = false;
        if let Some(hidden) = &mut self.hidden {
            while self.iter.valid() && hidden.hides(self.iter.key()) {
                if is_single_deletion(self.iter.key()) {
                    self.at_hidden = true;
                    return;
                }
                self.num_hidden += 1;
                self.iter.next();
            }
        }
    }

    /// Whether the current entry is hidden. A hidden single deletion is still shown, because it must
    /// meet the version that it was written for.
    #[inline]
    pub(crate) fn is_hidden(&self) -> bool {
        self.at_hidden
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.iter.key()
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.iter.value()
    }

    pub(crate) fn status(&self) -> Result<()> {
        self.iter.status()
    }
}
