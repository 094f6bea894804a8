//! The input of a flush or compaction, without the entries that range tombstones hide.

use std::sync::Arc;

use base::{Comparator, Error, Result, SequenceNumber, ValueType, key};
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

/// What a compaction does now and then while it reads, also while it drops all that it reads. It gets the number of entries
/// passed so far. If it fails, the input ends with that error.
pub(crate) type Watch<'a> = Box<dyn FnMut(u64) -> Result<()> + 'a>;

/// The watch is called after so many entries, or fewer of them if their values are large.
const WATCH_EVERY: usize = 512;
/// So many bytes that are written count as another entry: the watch is called after each MiB.
const BYTES_AS_ENTRY: usize = 2 << 10;

/// The input of a flush or compaction, without the entries that range tombstones hide.
pub(crate) struct Input<'a> {
    iter: Box<dyn InternalIterator>,
    /// `None` if there are no tombstones, the usual case.
    hidden: Option<Hidden>,
    /// Number of entries that were passed and not hidden.
    passed: u64,
    /// Whether the current entry is a single deletion that is hidden.
    at_hidden: bool,
    /// Number of entries that were hidden.
    num_hidden: u64,
    watch: Option<Watch<'a>>,
    /// Number of entries until the next call of the watch.
    unwatched: usize,
    /// The error of the watch.
    failure: Option<Error>,
}

impl<'a> Input<'a> {
    pub(crate) fn new(iter: Box<dyn InternalIterator>, hidden: Option<Hidden>) -> Self {
        Self {
            iter,
            hidden,
            passed: 0,
            at_hidden: false,
            num_hidden: 0,
            watch: None,
            unwatched: WATCH_EVERY,
            failure: None,
        }
    }

    pub(crate) fn watch(&mut self, watch: Watch<'a>) {
        self.watch = Some(watch);
    }

    /// Counts the bytes of an entry that was written, and itself if it `is_made`, not from the input.
    #[inline]
    pub(crate) fn note_written(&mut self, bytes: usize, is_made: bool) {
        let entries = bytes / BYTES_AS_ENTRY + usize::from(is_made);
        if entries > 0 {
            self.count(entries);
        }
    }

    #[inline]
    fn count(&mut self, entries: usize) {
        match self.unwatched.checked_sub(entries) {
            Some(left) if left > 0 => self.unwatched = left,
            _ => self.look(),
        }
    }

    #[cold]
    fn look(&mut self) {
        self.unwatched = WATCH_EVERY;
        let passed = self.num_passed();
        if let Some(watch) = &mut self.watch
            && let Err(e) = watch(passed)
        {
            self.failure = Some(e);
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
        self.failure.is_none() && self.iter.valid()
    }

    pub(crate) fn seek_to_first(&mut self) {
        self.iter.seek_to_first();
        self.pass_hidden();
    }

    /// Seeks forward only.
    pub(crate) fn seek(&mut self, target: &[u8]) {
        self.iter.seek(target);
        self.count(1);
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
        self.count(1);
    }

    /// Moves to the first entry from here on that is not hidden or is a single deletion.
    pub(crate) fn pass_hidden(&mut self) {
        self.at_hidden = false;
        while self.valid()
            && let Some(hidden) = &mut self.hidden
            && hidden.hides(self.iter.key())
        {
            if is_single_deletion(self.iter.key()) {
                self.at_hidden = true;
                return;
            }
            self.num_hidden += 1;
            self.iter.next();
            self.count(1);
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
        match &self.failure {
            Some(e) => Err(e.clone()),
            None => self.iter.status(),
        }
    }
}
