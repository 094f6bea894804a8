//! Gets from a table, which read the block that they lack, or say which one it is.
//!
//! ```text
//!   get ─────────────> blocks ── lacks one ──> reads it, goes on
//!   begin_get ───────> blocks ── lacks one ──> Missing ── span, a read, finish_read ──> Block
//!   resume_get(block) ─> blocks ─ …
//! ```

use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;

use base::perf::{self, PerfCounter};
use base::stats::Ticker;
use base::{Result, SequenceNumber, key};
use io::File;

use super::fetch::{self, Span};
use super::filters::FilterAt;
use super::on_demand::{IndexCursor, Meta, Spot, TableIndex, Verdict};
use super::{ReadOptions, Reader};
use crate::block::{Block, Cursor, Keys, Target, Value};
use crate::cache::Pinned;
use crate::handle::BlockHandle;
use crate::rows::{Replayed, Rows, Visit, fill_row};

thread_local! {
    /// The cursor of this thread's gets; its buffer grows to the longest key and is kept.
    static CURSOR: Cell<Cursor> = Cell::new(Cursor::new(Keys::Internal));
}

/// A block that a get lacks, and where the get has come.
#[derive(Clone, Debug)]
pub struct Missing {
    handle: BlockHandle,
    kind: Kind,
    /// Where the get is in the index.
    cursor: Option<IndexCursor>,
    /// Whether the next data block is the first one that the get looks at.
    is_first: bool,
    /// Whether the key is still to be counted once it is found.
    counts: bool,
    /// How many of the entries that it will find were found in the row cache.
    known: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Meta(Meta),
}

impl Missing {
    fn knowing((missing, known): (Option<Self>, usize)) -> Option<Self> {
        missing.map(|missing| Self { known, ..missing })
    }

    /// A number for the block, which no other block of the table has.
    pub fn number(&self) -> u64 {
        match self.kind {
            Kind::Data => self.handle.offset,
            Kind::Meta(meta) => meta.number(self.handle),
        }
    }
}

/// A block, either pinned in the cache or owned.
pub(super) enum Held<'c> {
    Pinned(Pinned<'c>),
    Own(Block),
}

impl Deref for Held<'_> {
    type Target = Block;
    #[inline]
    fn deref(&self) -> &Block {
        match self {
            Held::Pinned(p) => p,
            Held::Own(b) => b,
        }
    }
}

impl Held<'_> {
    pub(super) fn into_block(self) -> Block {
        match self {
            Held::Pinned(pinned) => pinned.to_block(),
            Held::Own(block) => block,
        }
    }
}

impl Reader {
    /// Passes the entries with the user key of `seek_key` that are not before it, newest first,
    /// to `visit`, until `visit` returns false.
    ///
    /// # Errors
    /// Those of reading, with file and offset of the block; `InvalidArgument` if `seek_key` is no
    /// internal key.
    #[inline]
    pub fn get(&self, options: &ReadOptions, seek_key: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        self.filtered_get::<false>(options, seek_key, visit)?;
        Ok(())
    }

    /// [`Reader::get`] as far as it does not wait for the device: returns the first block that is neither in the block
    /// cache nor in the page cache. [`Reader::resume_get`] goes on from there.
    ///
    /// # Errors
    /// Those of [`Reader::get`].
    pub fn begin_get(
        &self,
        options: &ReadOptions,
        seek_key: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<Option<Missing>> {
        self.filtered_get::<true>(options, seek_key, visit)
    }

    /// Goes on with a get, now that it has the block that it lacked. `seek_key` is the same as before.
    ///
    /// # Errors
    /// Those of [`Reader::get`].
    pub fn resume_get(
        &self,
        options: &ReadOptions,
        seek_key: &[u8],
        (missing, block): (Missing, Block),
        visit: &mut Visit<'_>,
    ) -> Result<Option<Missing>> {
        let target = Target::new(seek_key)?;
        let mut from = Start {
            index: match missing.cursor {
                Some(cursor) => cursor,
                None => self.seek_index(&target),
            },
            is_first: missing.is_first,
            block: None,
        };
        match missing.kind {
            Kind::Data => from.block = Some(block),
            Kind::Meta(Meta::Index) => self.give_index(&mut from.index, missing.handle, block),
            Kind::Meta(meta) => {
                let given = Some((meta, missing.handle, block));
                if let ControlFlow::Break(answer) =
                    self.ask_filters::<true>(&target, given, *options)?
                {
                    return Ok(Missing::knowing((answer, missing.known)));
                }
            }
        }
        let (counts, known, is_first) = (missing.counts, missing.known, from.is_first);
        let get = |visit: &mut Visit<'_>| {
            self.with_cursor(|cursor| {
                self.get_from::<true>(options, &target, (from, counts), cursor, visit)
            })
        };
        let rows = self.rows_for(&target);
        let Some(rows) = rows.filter(|_| is_first || known > 0) else {
            return get(visit);
        };
        // Of a get that has visited entries before, a row would not have all.
        let makes_row = is_first && options.fill_cache;
        let filled = fill_row(rows, makes_row, (&target, known), visit, get)?;
        Ok(Missing::knowing(filled))
    }

    /// A block that a get lacks, read now. Errors: those of [`Reader::get`].
    pub fn read_missing(&self, missing: &Missing, options: &ReadOptions) -> Result<Block> {
        match missing.kind {
            Kind::Data => self.read_block(missing.handle, *options, None),
            Kind::Meta(meta) => self.read_meta((meta, missing.handle), *options),
        }
    }

    /// The file, and what to read of it for a block that a get lacks. To be called before the read, because it waits for the
    /// rate limiter.
    ///
    /// # Errors
    /// `TimedOut` after the deadline; `Incomplete` if only the cache may be read; `Corruption` if the block does not lie
    /// inside the file.
    pub fn prepare_read(
        &self,
        missing: &Missing,
        options: &ReadOptions,
    ) -> Result<(&Arc<dyn File>, Span)> {
        self.check_may_read(*options)?;
        let span = self.fetch.span(missing.handle)?;
        self.fetch.charge(span, fetch::Read::from(*options));
        Ok((&self.fetch.file, span))
    }

    /// When a read began, for [`Reader::finish_read`]; `None` if times are not recorded.
    pub fn read_timer(&self) -> Option<u64> {
        self.options.meter.block_timer()
    }

    /// The block in the bytes that were read for it, verified, decompressed and put into the cache.
    ///
    /// # Errors
    /// Those of [`Reader::get`].
    pub fn finish_read(
        &self,
        (missing, span): (&Missing, Span),
        options: &ReadOptions,
        bytes: &[u8],
        timer: Option<u64>,
    ) -> Result<Block> {
        let meter = &self.options.meter;
        meter.was_read(span.stored as u64, options.activity, timer);
        let handle = missing.handle;
        if let Kind::Meta(meta) = missing.kind {
            let stored = span.stored_in(bytes);
            return self.meta_in((meta, handle), stored, *options, timer);
        }
        let verify = options.verify_checksums;
        let block = self
            .fetch
            .open_span(span, bytes, handle, self.comparator(), verify)?;
        self.block_was_read(handle, *options, &block, timer);
        Ok(block)
    }

    #[inline]
    fn filtered_get<const LATER: bool>(
        &self,
        options: &ReadOptions,
        seek_key: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<Option<Missing>> {
        let target = Target::new(seek_key)?;
        if let Some(rows) = self.rows_for(&target) {
            return self.get_row::<LATER>(rows, options, &target, visit);
        }
        self.get_in_table::<LATER>(options, &target, visit)
    }

    /// The rows that a get may use: if there is a row cache, and the get sees all entries of the table.
    #[inline]
    fn rows_for(&self, target: &Target<'_>) -> Option<&Rows> {
        let rows = self.options.rows.as_ref()?;
        let newest = SequenceNumber(self.options.largest_seqno);
        (key::packed_sequence(target.packed) >= newest).then_some(rows)
    }

    /// A get that is served by a row, or makes one.
    #[inline(never)]
    fn get_row<const LATER: bool>(
        &self,
        rows: &Rows,
        options: &ReadOptions,
        target: &Target<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Missing>> {
        let known = match rows.replay(self.comparator(), target, visit) {
            Replayed::Done => {
                self.count(Ticker::RowCacheHit, 1);
                return Ok(None);
            }
            Replayed::NoRow => 0,
            Replayed::Wants(visited) => visited,
        };
        self.count(Ticker::RowCacheMiss, 1);
        let get = |visit: &mut Visit<'_>| self.get_in_table::<LATER>(options, target, visit);
        let filled = fill_row(rows, options.fill_cache, (target, known), visit, get)?;
        Ok(Missing::knowing(filled))
    }

    /// A get that asks the filters, then the index, then the blocks.
    #[inline]
    fn get_in_table<const LATER: bool>(
        &self,
        options: &ReadOptions,
        target: &Target<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Missing>> {
        if let ControlFlow::Break(answer) = self.ask_filters::<LATER>(target, None, *options)? {
            return Ok(answer);
        }
        self.with_cursor(|cursor| {
            let from = Start {
                index: self.seek_index(target),
                is_first: true,
                block: None,
            };
            self.get_from::<LATER>(options, target, (from, true), cursor, visit)
        })
    }

    #[inline]
    fn with_cursor<T>(&self, get: impl FnOnce(&mut Cursor) -> T) -> T {
        CURSOR.with(|slot| {
            let mut cursor = slot.take();
            cursor.reset(self.keys);
            let result = get(&mut cursor);
            slot.set(cursor);
            result
        })
    }

    /// Whether the filters end the get, perhaps with a block that it lacks. `given` is the one that it lacked before.
    #[inline]
    fn ask_filters<const LATER: bool>(
        &self,
        target: &Target<'_>,
        given: Option<(Meta, BlockHandle, Block)>,
        options: ReadOptions,
    ) -> Result<ControlFlow<Option<Missing>>> {
        if self.filters.is_none() {
            return Ok(ControlFlow::Continue(()));
        }
        let passes = match self.filters.on_demand() {
            None => self.filters.may_match(target),
            Some(at) => match self.ask_on_demand_filters::<LATER>(at, target, given, options)? {
                Verdict::MayBeThere => true,
                Verdict::IsNotThere => false,
                Verdict::Lacks(meta, handle) => {
                    return Ok(ControlFlow::Break(Some(Missing {
                        handle,
                        kind: Kind::Meta(meta),
                        cursor: None,
                        is_first: true,
                        counts: true,
                        known: 0,
                    })));
                }
            },
        };
        perf::count(
            if passes {
                PerfCounter::BloomSstHitCount
            } else {
                PerfCounter::BloomSstMissCount
            },
            1,
        );
        self.count(
            if passes {
                Ticker::BloomFilterFullPositive
            } else {
                Ticker::BloomFilterUseful
            },
            1,
        );
        Ok(if passes {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(None)
        })
    }

    #[inline(never)]
    fn ask_on_demand_filters<const LATER: bool>(
        &self,
        at: FilterAt,
        target: &Target<'_>,
        given: Option<(Meta, BlockHandle, Block)>,
        options: ReadOptions,
    ) -> Result<Verdict> {
        match (&self.index, self.filters.filter_key(target)) {
            (TableIndex::OnDemand(on_demand), Some(what)) => {
                self.ask_on_demand::<LATER>((on_demand, at), given, (target, what), options)
            }
            _ => Ok(Verdict::MayBeThere),
        }
    }

    /// Visits the blocks from `from` on. If it `counts`, and after a filter has matched, counts whether the key was found.
    #[inline]
    fn get_from<const LATER: bool>(
        &self,
        options: &ReadOptions,
        target: &Target<'_>,
        (from, counts): (Start, bool),
        cursor: &mut Cursor,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Missing>> {
        if !counts || self.filters.is_none() || self.options.statistics.is_none() {
            return self.visit_blocks::<LATER>(*options, target, from, cursor, visit);
        }
        let mut found = false;
        let result =
            self.visit_blocks::<LATER>(*options, target, from, cursor, &mut |key, value| {
                found = true;
                visit(key, value)
            });
        if found {
            self.count(Ticker::BloomFilterFullTruePositive, 1);
        }
        let missing = result?;
        Ok(missing.map(|missing| Missing {
            counts: !found,
            ..missing
        }))
    }

    /// Returns the block that it lacks; without `LATER` it reads it.
    fn visit_blocks<const LATER: bool>(
        &self,
        options: ReadOptions,
        target: &Target<'_>,
        from: Start,
        cursor: &mut Cursor,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Missing>> {
        let Start {
            mut index,
            mut is_first,
            block: mut given,
        } = from;
        loop {
            let lacks = |handle, kind, index: &IndexCursor| Missing {
                handle,
                kind,
                cursor: Some(index.clone()),
                is_first,
                counts: false,
                known: 0,
            };
            let handle = match self.spot::<LATER>(&mut index, Some(target), options)? {
                Spot::At(handle) => handle,
                Spot::End => break,
                Spot::Lacks(handle) => {
                    return Ok(Some(lacks(handle, Kind::Meta(Meta::Index), &index)));
                }
            };
            let held = match given.take().filter(|_| LATER) {
                Some(block) => Some(Held::Own(block)),
                None => self.held_block::<LATER>(handle, options)?,
            };
            let Some(block) = held else {
                return Ok(Some(lacks(handle, Kind::Data, &index)));
            };
            let more = if is_first {
                cursor.seek(&block, self.comparator(), target)
            } else {
                cursor.seek_to_first(&block)
            };
            is_first = false;
            let ended = more.and_then(|more| self.visit_key(&block, cursor, target, more, visit));
            if ended.map_err(|e| self.locate(e, handle))? || !self.splits_user_keys() {
                break;
            }
            index.next();
        }
        Ok(None)
    }

    /// Visits entries from the cursor on while they have the target's user key. False if the block
    /// ended first.
    #[inline]
    fn visit_key(
        &self,
        block: &Block,
        cursor: &mut Cursor,
        target: &Target<'_>,
        mut more: bool,
        visit: &mut Visit<'_>,
    ) -> Result<bool> {
        while more {
            let k = cursor.key();
            if self.comparator().compare(key::user_key(k), target.user) != Ordering::Equal
                || !visit(k, Value::new(block, cursor.value(block)))
            {
                return Ok(true);
            }
            more = cursor.next(block)?;
        }
        Ok(false)
    }

    /// The block, from the cache or the file; with `LATER`, `None` if the device would have to be waited for.
    #[inline]
    fn held_block<const LATER: bool>(
        &self,
        handle: BlockHandle,
        options: ReadOptions,
    ) -> Result<Option<Held<'_>>> {
        if let Some(held) = self.cached_or_decompressed(handle, options) {
            return Ok(Some(held));
        }
        if LATER {
            return Ok(self.block_at_hand(handle, options)?.map(Held::Own));
        }
        self.read_block(handle, options, None)
            .map(|block| Some(Held::Own(block)))
    }

    /// A data block from the page cache.
    pub(super) fn block_at_hand(
        &self,
        handle: BlockHandle,
        options: ReadOptions,
    ) -> Result<Option<Block>> {
        self.check_may_read(options)?;
        let timer = self.read_timer();
        let how = fetch::Read::from(options);
        let block = self
            .fetch
            .data_block_at_hand(handle, self.comparator(), how)?;
        if let Some(block) = &block {
            self.block_was_read(handle, options, block, timer);
        }
        Ok(block)
    }
}

/// Where a get begins or goes on.
struct Start {
    /// Which block of the table.
    index: IndexCursor,
    /// Whether the key is searched in it; otherwise its first entry is visited.
    is_first: bool,
    /// The block, if it is not to be fetched.
    block: Option<Block>,
}
