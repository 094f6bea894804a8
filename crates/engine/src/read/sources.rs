//! The parts of an iterator: one cursor for each memtable, level 0 file and deeper level of a View, and the
//! range tombstones of these sources.
//!
//! An [`Origin`] remembers where the parts came from, so that an iterator can be updated to the family's
//! current content. It does not keep the database open.

use std::borrow::Cow;
use std::sync::{Arc, Weak};

use base::clock::Clock;
use base::stats::{Activity, Statistics};
use base::{Comparator, Error, ErrorKind, Result, SequenceNumber, ValueType, key};

use crate::catalog::family::Family;
use crate::catalog::view::View;
use crate::read::options::{ReadOptions, ReadTier};
use crate::shared::Shared;
use crate::shared::snapshot::Snapshot;
use manifest::{TableFile, Version};
use merging::LevelIter;
use merging::MergingIter;
use merging::{Cover, Lists};

/// Where the content of an iterator comes from.
pub(crate) struct Origin {
    shared: Weak<Shared>,
    pub(crate) family: Arc<Family>,
    pub(crate) statistics: Option<Arc<Statistics>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: ReadOptions,
    /// The View that was used last.
    view: Arc<View>,
    /// The number of that View, or of a View that followed right after it.
    number: u64,
    /// The number of range tombstones in the active memtable at that time.
    tombstones: u64,
    /// The internal key at which cursors may end.
    end: Option<Arc<[u8]>>,
    /// Whether the range is read as a whole.
    whole_range: bool,
}

/// The change of an [`Origin`] since it was last checked.
pub(crate) enum News {
    /// No change, or none that the cursors do not show already.
    None,
    /// The cursor of the active memtable must be positioned again.
    Memtable(SequenceNumber),
    /// The cursors must be created anew.
    View(SequenceNumber),
}

impl Origin {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        view: Arc<View>,
        family: &Arc<Family>,
        options: Cow<'_, ReadOptions>,
    ) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            end: end_of(&options).filter(|_| options.auto_readahead_size),
            whole_range: false,
            family: Arc::clone(family),
            statistics: shared.env().statistics.clone(),
            clock: Arc::clone(&shared.env().clock),
            options: options.into_owned(),
            tombstones: view.mem.num_range_deletes(),
            number: family.view.number(),
            view,
        }
    }

    /// The same content with other options, whose range is read as a whole if it has an end.
    pub(crate) fn of_range(&self, options: ReadOptions) -> Self {
        Self {
            shared: Weak::clone(&self.shared),
            end: end_of(&options),
            whole_range: options.iterate_upper_bound.is_some(),
            family: Arc::clone(&self.family),
            statistics: self.statistics.clone(),
            clock: Arc::clone(&self.clock),
            options,
            tombstones: self.tombstones,
            number: self.number,
            view: Arc::clone(&self.view),
        }
    }

    /// Cursors over all sources, for a reader at `sequence`.
    pub(crate) fn cursors(&self, sequence: SequenceNumber) -> MergingIter {
        let mut out = Collected::new(self, sequence);
        out.memtables(&self.view);
        if self.options.read_tier != ReadTier::Memtable {
            out.files(&self.view.version);
        }
        out.merged.covered_by(out.cover.if_any())
    }

    /// Checks whether there are new entries for a tailing iterator at `sequence`.
    pub(crate) fn news(&mut self, sequence: SequenceNumber) -> News {
        let Some(shared) = self.shared.upgrade() else {
            return News::None; // the database was closed
        };
        // Load the View first: see `get::search_view`.
        let changed = self.load_view(true);
        let visible = shared.writes.visible();
        if changed || (visible > sequence && !self.view.mem.cursors_live()) {
            News::View(visible)
        } else if visible > sequence {
            News::Memtable(visible)
        } else {
            News::None
        }
    }

    /// Switches to the family's current View; returns whether that changes anything. With `and_tombstones`,
    /// new range tombstones in the active memtable count as a change too.
    pub(crate) fn load_view(&mut self, and_tombstones: bool) -> bool {
        let view = self.family.view.load();
        let tombstones = view.mem.num_range_deletes();
        let other = !Arc::ptr_eq(&view, &self.view);
        if other {
            self.number = self.family.view.number();
            self.view = Arc::clone(&view);
        }
        let more = and_tombstones && tombstones != self.tombstones;
        if other || more {
            self.tombstones = tombstones;
        }
        other || more
    }

    /// RocksDB's `SuperVersion` number.
    pub(crate) fn view_number(&self) -> u64 {
        self.number
    }

    /// Switches to the current content of the database, or to the content at a snapshot; returns the
    /// sequence number to read at. Errors: the database was closed; the snapshot is of another database.
    pub(crate) fn refresh(&mut self, snapshot: Option<&Snapshot>) -> Result<SequenceNumber> {
        let shared = self.shared.upgrade().filter(|s| !s.background.is_closing());
        let shared = shared
            .ok_or_else(|| Error::new(ErrorKind::ShutdownInProgress, "the database was closed"))?;
        if snapshot.is_some_and(|s| !s.belongs_to(&shared.snapshots)) {
            return Err(Error::invalid_argument(
                "the snapshot is of another database",
            ));
        }
        self.options.snapshot = snapshot.cloned();
        self.load_view(true);
        Ok(snapshot.map_or_else(|| shared.writes.visible(), Snapshot::sequence))
    }
}

/// The internal key at which cursors of an iterator with these options may end, if there is one.
fn end_of(options: &ReadOptions) -> Option<Arc<[u8]>> {
    let upper = options.iterate_upper_bound.as_deref()?;
    Some(key::encode(upper, SequenceNumber::MAX, ValueType::FOR_SEEK).into())
}

/// The cursors, from newest to oldest, and the tombstones.
struct Collected<'a> {
    origin: &'a Origin,
    merged: MergingIter,
    cover: Cover,
}

impl<'a> Collected<'a> {
    fn new(origin: &'a Origin, sequence: SequenceNumber) -> Self {
        let view = &origin.view;
        let version = &view.version;
        let cursors = 1 + view.imm.len() + version.level(0).len() + version.num_levels();
        Self {
            origin,
            merged: MergingIter::with_room(origin.family.comparator().clone(), cursors),
            cover: Cover::new(origin.family.comparator().clone(), sequence),
        }
    }

    /// Adds the tombstones of the source whose cursor was added last.
    fn hide(&mut self, lists: Lists) {
        if !self.origin.options.ignore_range_deletions {
            self.cover.add(lists, self.merged.cursors());
        }
    }

    fn memtables(&mut self, view: &View) {
        for (i, mem) in std::iter::once(&view.mem).chain(&view.imm).enumerate() {
            // The first cursor of a tailing iterator must be the cursor of the active memtable.
            if mem.has_points() || (i == 0 && self.origin.options.tailing) {
                self.merged.push(Box::new(mem.iter()));
            }
            let lists = mem.tombstone_fragments();
            if !lists.is_empty() {
                self.hide(Lists::One(lists));
            }
        }
    }

    fn files(&mut self, version: &Version) {
        let levels = version.num_levels();
        for file in version.level(0) {
            if self.passes(file) {
                let (comparator, options) = self.for_tables();
                let (file, last) = (Arc::clone(file), levels == 1);
                let mut cursor = LevelIter::one(comparator, file, options, last);
                cursor.end_at(self.origin.end.clone());
                self.merged.push(cursor);
            }
            if let Some(t) = file.tombstones() {
                self.hide(Lists::One(t.lists.clone()));
            }
        }
        for level in 1..levels {
            if version.level(level).is_empty() {
                continue;
            }
            let mut files = version.share_level(level);
            if self.origin.options.table_filter.is_some() {
                files = Arc::new(files.iter().filter(|f| self.passes(f)).cloned().collect());
            }
            if !files.is_empty() {
                let (comparator, options) = self.for_tables();
                let last = level + 1 == levels;
                let mut cursor = LevelIter::new(comparator, files, options, last);
                cursor.end_at(self.origin.end.clone());
                self.merged.push(cursor);
            }
            let files = version.with_tombstones(level);
            if !files.is_empty() {
                self.hide(Lists::Level(Arc::clone(files)));
            }
        }
    }

    /// Whether `table_filter` lets the iterator read the file.
    fn passes(&self, file: &TableFile) -> bool {
        let filter = &self.origin.options.table_filter;
        filter.as_ref().is_none_or(|f| f.passes(&file.properties))
    }

    fn for_tables(&self) -> (Comparator, table::ReadOptions) {
        let options = table::ReadOptions {
            activity: Activity::DbIterator,
            whole_range: self.origin.whole_range,
            ..self.origin.options.for_tables()
        };
        (self.origin.family.comparator().clone(), options)
    }
}
