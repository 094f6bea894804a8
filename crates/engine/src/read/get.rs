//! Point lookups.
//!
//! The sources of a View are searched from newest to oldest. Each source passes its versions of the key, newest
//! first, to a [`Search`], a small state machine that ends the search when the result is known:
//!
//! ```text
//!            value, entity                     deletion
//!   Open ───────────────────> Found     Open ───────────> Absent
//!     │ operand
//!     v      operand: one more
//!   Merging ─────────────────────┐
//!     ├<─────────────────────────┘
//!     └ value, entity, deletion, or no source is left ──> merged, oldest operand first
//! ```
//!
//! The usual get sees one version and copies its value once, or pins it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base::perf::{self, PerfCounter};
use base::stats::{HistogramKind, Ticker};
use base::{Error, Result, SequenceNumber, ValueType, key};

use crate::catalog::family::Family;
use crate::catalog::view::View;
use crate::commit::Writes;
use crate::info::Info;
use crate::read::operands::Operands;
use crate::read::options::{ContinueCallback, ReadOptions, ReadTier};
use crate::read::pinned::{PinnedValue, Place};
use base::values::entity::WideColumns;
use base::values::{self, Base, Stored, no_operator, visible_value};
use manifest::{Opened, TableFile, Version};
use table::{Block, Missing};

/// Longest user key whose seek key is built on the stack.
const STACK_KEY: usize = 120;

/// A key to look up, and the sources to search.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) family: &'a Family,
    pub(crate) options: &'a table::ReadOptions,
    pub(crate) user_key: &'a [u8],
    /// Whether range tombstones are respected.
    pub(crate) range_deletions: bool,
    /// Whether memtables are searched.
    pub(crate) memtables: bool,
}

impl<'a> Lookup<'a> {
    /// A lookup in all sources.
    #[inline]
    pub(crate) fn new(
        family: &'a Family,
        options: &'a table::ReadOptions,
        user_key: &'a [u8],
    ) -> Self {
        Self {
            family,
            options,
            user_key,
            range_deletions: true,
            memtables: true,
        }
    }

    /// Applies those read options that `table::ReadOptions` does not have.
    pub(crate) fn with(self, writes: &Writes, options: &ReadOptions) -> Self {
        Self {
            range_deletions: !options.ignore_range_deletions,
            memtables: options.read_tier != ReadTier::Persisted || !writes.has_unlogged(),
            ..self
        }
    }
}

/// Sets `value`, which is empty, to the value of the key as of `sequence`; the default column of an entity. Returns
/// false if the key does not exist; `value` is then still empty.
pub(crate) fn get(
    info: &Info,
    writes: &Writes,
    lookup: Lookup<'_>,
    sequence: Option<SequenceNumber>,
    value: &mut Vec<u8>,
) -> Result<bool> {
    let mut search = Search::new(lookup, Want::Plain);
    search.base = std::mem::take(value);
    search_timed(info, writes, search, sequence, |search| {
        let stored = search.stored(info)?;
        let found = stored.is_some();
        *value = stored.map_or_else(|| std::mem::take(&mut search.base), |s| s.bytes);
        Ok((found, value.len()))
    })
}

/// The value of the key as of `sequence`, without a copy if it need not be merged; `None` if the key does not exist.
pub(crate) fn get_pinned(
    info: &Info,
    writes: &Writes,
    lookup: Lookup<'_>,
    sequence: Option<SequenceNumber>,
) -> Result<Option<PinnedValue>> {
    let search = Search::new(lookup, Want::Pinned);
    search_timed(info, writes, search, sequence, |search| {
        let value = search.pinned(info)?;
        let len = value.as_ref().map_or(0, |v| v.len());
        Ok((value, len))
    })
}

/// A search that statistics count as a get. `result` takes the result, and says how many bytes the value has.
#[inline]
fn search_timed<'a, T>(
    info: &Info,
    writes: &Writes,
    mut search: Search<'a>,
    sequence: Option<SequenceNumber>,
    result: impl FnOnce(&mut Search<'a>) -> Result<(T, usize)>,
) -> Result<T> {
    let began = info.timer();
    search_view(info, writes, &mut search, sequence)?;
    let clock = &*info.clock;
    let processing = perf::start(clock);
    let (found, bytes) = result(&mut search)?;
    count_read(info, bytes);
    perf::stop(PerfCounter::GetPostProcessTime, clock, processing);
    info.timed(HistogramKind::DbGet, began);
    Ok(found)
}

/// The columns of the key as of `sequence`; a plain value is the default column.
pub(crate) fn get_entity(
    info: &Info,
    writes: &Writes,
    lookup: Lookup<'_>,
    sequence: Option<SequenceNumber>,
) -> Result<Option<WideColumns>> {
    let mut search = Search::new(lookup, Want::Entity);
    search_view(info, writes, &mut search, sequence)?;
    let stored = search.stored(info)?;
    count_read(info, stored.as_ref().map_or(0, |s| s.bytes.len()));
    stored.map(|s| s.columns()).transpose()
}

/// Counts a lookup that found `bytes` bytes.
#[inline]
pub(super) fn count_read(info: &Info, bytes: usize) {
    let bytes = bytes as u64;
    perf::count(PerfCounter::GetReadBytes, bytes);
    if let Some(s) = &info.statistics {
        s.add(Ticker::NumberKeysRead, 1);
        s.add(Ticker::BytesRead, bytes);
        s.record(HistogramKind::BytesPerRead, bytes);
    }
}

/// The operands of the key as of `sequence`, oldest first, preceded by the plain value under them; empty if
/// there is neither. `goes_on` is called with each operand, newest first, and returns whether older operands are
/// wanted.
pub(crate) fn merge_operands<'a>(
    info: &Info,
    writes: &Writes,
    lookup: Lookup<'a>,
    sequence: Option<SequenceNumber>,
    goes_on: Option<ContinueCallback<'a>>,
) -> Result<Vec<Vec<u8>>> {
    let mut search = Search::new(lookup, Want::Operands);
    search.goes_on = goes_on;
    search_view(info, writes, &mut search, sequence)?;
    let has_base = search.state == State::Found && search.has_base;
    let base = has_base.then_some(search.base);
    let operands = search.operands.iter().rev().map(<[u8]>::to_vec);
    Ok(base.into_iter().chain(operands).collect())
}

/// Whether the key exists, as far as this can be found out without its value: a merge operand counts as a value.
pub(crate) fn exists(
    info: &Info,
    writes: &Writes,
    lookup: Lookup<'_>,
    sequence: Option<SequenceNumber>,
) -> Result<bool> {
    let mut search = Search::new(lookup, Want::Existence);
    search_view(info, writes, &mut search, sequence)?;
    Ok(search.state == State::Found)
}

fn search_view(
    info: &Info,
    writes: &Writes,
    search: &mut Search<'_>,
    sequence: Option<SequenceNumber>,
) -> Result<()> {
    // Load the View before the sequence number. Any version that compactions have dropped from this View is
    // then hidden by a newer one that is visible at this sequence number.
    let view = search.lookup.family.view.load();
    let sequence = sequence.unwrap_or_else(|| writes.visible());
    search_at(info, &view, search, sequence)
}

#[inline]
fn search_at(
    info: &Info,
    view: &View,
    search: &mut Search<'_>,
    sequence: SequenceNumber,
) -> Result<()> {
    let user_key = search.lookup.user_key;
    let trailer = key::pack(sequence, ValueType::FOR_SEEK).to_le_bytes();
    if user_key.len() <= STACK_KEY {
        let mut stack = [0u8; STACK_KEY + key::TRAILER_LEN];
        let n = user_key.len();
        stack[..n].copy_from_slice(user_key);
        stack[n..n + key::TRAILER_LEN].copy_from_slice(&trailer);
        search_sources(info, view, search, &stack[..n + key::TRAILER_LEN])?;
    } else {
        search_sources(info, view, search, &[user_key, &trailer].concat())?;
    }
    Ok(())
}

/// Searches one source after the other until the result is known.
fn search_sources(
    info: &Info,
    view: &View,
    search: &mut Search<'_>,
    seek_key: &[u8],
) -> Result<()> {
    begin_search::<false>(info, view, search, seek_key)?;
    Ok(())
}

/// The same; with `LATER` only until a block is needed that the device would have to be waited for, which is returned.
#[inline]
pub(super) fn begin_search<'v, const LATER: bool>(
    info: &Info,
    view: &'v View,
    search: &mut Search<'_>,
    seek_key: &[u8],
) -> Result<Option<Lacking<'v>>> {
    let clock = &*info.clock;
    let began = perf::start(clock);
    let over = search_memtables(view, search, seek_key);
    perf::stop(PerfCounter::GetFromMemtableTime, clock, began);
    if over {
        info.count(Ticker::MemtableHit, 1);
        search.check()?;
        return Ok(None);
    }
    info.count(Ticker::MemtableMiss, 1);
    search_tables::<LATER>(info, &view.version, search, seek_key, Point::default())
}

/// Searches the memtables; true if the search is over.
fn search_memtables(view: &View, search: &mut Search<'_>, seek_key: &[u8]) -> bool {
    if !search.lookup.memtables {
        return false;
    }
    for mem in std::iter::once(&view.mem).chain(&view.imm) {
        perf::count(PerfCounter::GetFromMemtableCount, 1);
        search.cover(mem.covering_tombstone(seek_key));
        mem.versions(seek_key, |version, value| {
            search.add(version, Place::Memtable(mem, value))
        });
        if search.is_over() {
            return true;
        }
    }
    false
}

/// Where a search in tables begins, or goes on.
#[derive(Default)]
pub(super) struct Point<'v> {
    level: usize,
    /// Which of the level's files that may have the key.
    nth: usize,
    /// What the search lacked there.
    found: Option<Found<'v>>,
}

/// A block that a search lacked, and the reader of its table, which may be closed otherwise.
struct Found<'v> {
    reader: Opened<'v>,
    missing: Missing,
    block: Block,
}

/// What a search needs to go on.
pub(super) struct Lacking<'v> {
    pub(super) file: &'v TableFile,
    pub(super) missing: Missing,
    pub(super) level: usize,
    nth: usize,
}

impl<'v> Lacking<'v> {
    /// Where the search goes on, now that the block is there.
    pub(super) fn found(&self, reader: Opened<'v>, block: Block) -> Point<'v> {
        Point {
            level: self.level,
            nth: self.nth,
            found: Some(Found {
                reader,
                missing: self.missing.clone(),
                block,
            }),
        }
    }
}

/// Searches the tables from a point on; see [`begin_search`].
#[inline]
pub(super) fn search_tables<'v, const LATER: bool>(
    info: &Info,
    version: &'v Version,
    search: &mut Search<'_>,
    seek_key: &[u8],
    from: Point<'_>,
) -> Result<Option<Lacking<'v>>> {
    let clock = &*info.clock;
    let began = perf::start(clock);
    let result = search_levels::<LATER>(info, version, search, seek_key, from);
    perf::stop(PerfCounter::GetFromOutputFilesTime, clock, began);
    result
}

fn search_levels<'v, const LATER: bool>(
    info: &Info,
    version: &'v Version,
    search: &mut Search<'_>,
    seek_key: &[u8],
    from: Point<'_>,
) -> Result<Option<Lacking<'v>>> {
    let (first_level, mut skipped, mut found) = (from.level, from.nth, from.found);
    let lacking = |level, nth, file, missing| {
        Ok(Some(Lacking {
            file,
            missing,
            level,
            nth,
        }))
    };
    if first_level == 0 {
        for (nth, file) in version.level(0).iter().enumerate().skip(skipped) {
            if !file.spans(&version.comparator, search.lookup.user_key) {
                continue;
            }
            search.cover(file.covering_tombstone(&version.comparator, seek_key));
            if let Some(missing) = search.table::<LATER>(file, seek_key, found.take())? {
                return lacking(0, nth, file, missing);
            }
            if search.is_over() {
                info.count(Ticker::GetHitL0, 1);
                search.check()?;
                return Ok(None);
            }
        }
        skipped = 0;
    }
    for level in first_level.max(1)..version.num_levels() {
        // There are several files if they share the user key. The next file has older versions of the key, which
        // may be newer than a tombstone of the first file.
        let files = version.files_for(level, seek_key).enumerate();
        for (nth, file) in files.skip(std::mem::take(&mut skipped)) {
            search.cover(file.covering_tombstone(&version.comparator, seek_key));
            if let Some(missing) = search.table::<LATER>(file, seek_key, found.take())? {
                return lacking(level, nth, file, missing);
            }
            if search.is_settled() {
                break;
            }
        }
        if search.is_over() {
            let t = if level == 1 {
                Ticker::GetHitL1
            } else {
                Ticker::GetHitL2AndUp
            };
            info.count(t, 1);
            search.check()?;
            return Ok(None);
        }
    }
    Ok(None)
}

/// The information about a key that the caller wants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// The value, or the default column of an entity.
    Plain,
    /// The same, without a copy if possible.
    Pinned,
    /// All columns.
    Entity,
    /// Only whether the key exists.
    Existence,
    /// The operands and the plain value under them, not merged.
    Operands,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No version was seen yet.
    Open,
    /// Operands were seen, but no base under them yet.
    Merging,
    /// The base is known; `operands` go on top of it.
    Found,
    /// The base does not exist; `operands` go on top of nothing.
    Absent,
}

/// The state of a search: the versions of the key found so far.
pub(super) struct Search<'a> {
    lookup: Lookup<'a>,
    want: Want,
    state: State,
    /// The base as it is stored, or with [`Want::Plain`] its plain value.
    base: Vec<u8>,
    /// The base instead, with [`Want::Pinned`], if no operand goes on top of it.
    pinned: Option<PinnedValue>,
    has_base: bool,
    base_is_entity: bool,
    /// Newest first.
    operands: Operands,
    /// Versions older than this sequence number are hidden by a range tombstone; 0 if there is none so far.
    covered: u64,
    /// The error because of which the search cannot go on.
    failure: Option<Error>,
    /// With [`Want::Operands`]: called with each operand; returns whether older operands are wanted.
    goes_on: Option<ContinueCallback<'a>>,
}

impl<'a> Search<'a> {
    #[inline]
    pub(super) fn new(lookup: Lookup<'a>, want: Want) -> Self {
        Self {
            lookup,
            want,
            state: State::Open,
            base: Vec::new(),
            pinned: None,
            has_base: false,
            base_is_entity: false,
            operands: Operands::new(),
            covered: 0,
            failure: None,
            goes_on: None,
        }
    }

    /// Adds the sequence number of the next source's range tombstone over the key; 0 if there is no such tombstone.
    #[inline]
    fn cover(&mut self, sequence: u64) {
        if sequence > self.covered && self.lookup.range_deletions {
            self.covered = sequence;
        }
    }

    /// Whether older versions of the key no longer matter, in any source.
    #[inline]
    fn is_settled(&self) -> bool {
        matches!(self.state, State::Found | State::Absent) || self.failure.is_some()
    }

    /// Whether the search can stop after a source that was searched as a whole: a memtable, a level 0 file,
    /// or all files of a deeper level that may have the key.
    #[inline]
    fn is_over(&mut self) -> bool {
        if self.covered > 0 && !self.is_settled() {
            self.state = State::Absent; // everything in older sources is covered
        }
        self.is_settled()
    }

    fn check(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Adds the versions that a table has. With `LATER`, returns the block that it lacks, or goes on with that block.
    #[inline]
    fn table<const LATER: bool>(
        &mut self,
        file: &TableFile,
        seek_key: &[u8],
        found: Option<Found<'_>>,
    ) -> Result<Option<Missing>> {
        let options = self.lookup.options;
        let visit = &mut |internal: &[u8], value: table::Value<'_>| {
            if let Some(version) = key::parse(internal) {
                return self.add(version, Place::Block(value));
            }
            self.failure = Some(Error::corruption("a key of unknown type"));
            false
        };
        let missing = match found {
            Some(found) if LATER => {
                let block = (found.missing, found.block);
                found.reader.resume_get(options, seek_key, block, visit)?
            }
            _ if LATER => {
                let reader = file.reader_for(options)?;
                reader.begin_get(options, seek_key, visit)?
            }
            _ => {
                file.reader_for(options)?.get(options, seek_key, visit)?;
                None
            }
        };
        self.check().map_err(|e| e.or_file(file.path()))?;
        Ok(missing)
    }

    /// Adds the next older version; returns false if no older versions are needed.
    #[inline]
    fn add(&mut self, version: key::Parsed<'_>, place: Place<'_>) -> bool {
        if version.sequence.0 < self.covered {
            return false;
        }
        match version.value_type {
            ValueType::Value => {
                self.found(place, place.stored());
                false
            }
            ValueType::Deletion | ValueType::SingleDeletion | ValueType::DeletionWithTimestamp => {
                self.state = State::Absent;
                false
            }
            other => self.add_other(other, place),
        }
    }

    /// Ends the search at the base, which is `value`, a part of what is stored in `place`.
    #[inline]
    fn found(&mut self, place: Place<'_>, value: &[u8]) {
        self.state = State::Found;
        self.has_base = true;
        match self.want {
            Want::Existence => {}
            Want::Pinned if self.operands.is_empty() => self.pinned = Some(place.pin(value)),
            _ => self.base.extend_from_slice(value),
        }
    }

    /// A version that is neither a plain value nor a deletion.
    fn add_other(&mut self, kind: ValueType, place: Place<'_>) -> bool {
        let (family, value) = (self.lookup.family, place.stored());
        match kind {
            ValueType::Merge if self.want == Want::Existence => {
                self.state = State::Found;
                return false;
            }
            ValueType::Merge if family.merge_operator.is_none() => {
                self.failure = Some(no_operator(&family.name));
            }
            ValueType::Merge => {
                self.operands.push(value);
                self.state = State::Merging;
                let Some(goes_on) = &mut self.goes_on else {
                    return true;
                };
                let asked = catch_unwind(AssertUnwindSafe(|| goes_on(value)));
                match asked {
                    Ok(true) => return true,
                    Ok(false) => self.state = State::Found,
                    Err(_) => self.failure = Some(Error::aborted("continue_cb panicked")),
                }
            }
            // The columns under operands are needed too: a merge changes only the default column.
            ValueType::WideColumnEntity
                if self.want == Want::Entity
                    || (!self.operands.is_empty() && self.want != Want::Operands) =>
            {
                self.base_is_entity = true;
                self.found(place, value);
            }
            _ => match visible_value(kind, value) {
                Ok(plain) => self.found(place, plain),
                Err(e) => self.failure = Some(e),
            },
        }
        false
    }

    /// The result of the search, `None` if the key does not exist.
    #[inline]
    pub(super) fn stored(&mut self, info: &Info) -> Result<Option<Stored>> {
        let found = if self.operands.is_empty() {
            (self.state == State::Found).then(|| Stored {
                bytes: std::mem::take(&mut self.base),
                is_entity: self.base_is_entity,
            })
        } else {
            Some(self.merged(info)?)
        };
        Ok(found)
    }

    /// The result of a search for [`Want::Pinned`].
    pub(super) fn pinned(&mut self, info: &Info) -> Result<Option<PinnedValue>> {
        if self.pinned.is_some() {
            return Ok(self.pinned.take());
        }
        let stored = self.stored(info)?;
        Ok(stored.map(|s| PinnedValue::owned(s.bytes)))
    }

    fn merged(&self, info: &Info) -> Result<Stored> {
        let base = match self.state {
            State::Found if self.base_is_entity => Base::Entity(&self.base),
            State::Found => Base::Value(&self.base),
            _ => Base::Nothing,
        };
        let operands: Vec<&[u8]> = self.operands.iter().rev().collect();
        let family = self.lookup.family;
        let operator = family.merge_operator.as_deref();
        let operator = operator.ok_or_else(|| no_operator(&family.name))?;
        let statistics = info.statistics.as_deref();
        if let Some(s) = statistics {
            s.record(HistogramKind::ReadNumMergeOperands, operands.len() as u64);
        }
        let user_key = self.lookup.user_key;
        let clock = &*info.clock;
        let began = perf::start(clock);
        let stored = values::apply(operator, statistics, user_key, base, &operands)?;
        perf::stop(PerfCounter::MergeOperatorTimeNanos, clock, began);
        if matches!(self.want, Want::Plain | Want::Pinned) {
            return Ok(Stored {
                bytes: stored.into_plain()?,
                is_entity: false,
            });
        }
        Ok(stored)
    }
}
