//! Indexes and filters whose blocks are kept in the block cache, and read again when they were evicted.
//!
//! The cache has them as they are stored, so that a lookup searches the bytes of the file, with a little that helps to search
//! them. What is pinned belongs to the reader
//! and is charged to the cache. A lookup goes down from the top: the top level of a partitioned filter, its partition; the top
//! level of a partitioned index, its partition; a data block. Each may be what a lookup lacks.
#![deny(clippy::indexing_slicing)]

use std::ops::ControlFlow;
use std::sync::Arc;

use base::perf::{self, PerfCounter};
use base::stats::Ticker;
use base::{Comparator, Error, ErrorKind, Result};

use super::fetch;
use super::filters::FilterAt;
use super::{ReadOptions, Reader, ReaderOptions};
use crate::block::{Block, Target};
use crate::cache::{BlockCache, BlockKind, CacheKey, MakesRoom, Priority, Reservation};
use crate::filter;
use crate::handle::BlockHandle;
use crate::index::{Aim, Encoding, Index, Root, Step, StoredIndex, Walk, prepare};

/// Where the index and the filters of a table are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metadata {
    /// Decoded in memory, as long as the table is open.
    #[default]
    InMemory,
    /// The same, and charged to the block cache.
    Charged,
    /// In the block cache. Without a cache, in memory.
    Cached(Pinning),
}

/// Which blocks of an index and of filters stay in memory as long as the table is open, although they are kept in the cache;
/// and how long the others stay there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pinning {
    /// The top level of what is partitioned.
    pub top_level: bool,
    /// The partitions.
    pub partitions: bool,
    /// What is not partitioned.
    pub unpartitioned: bool,
    /// Whether blocks stay in the cache as long as if they had been asked for.
    pub high_priority: bool,
}

/// A kind of block that is no data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meta {
    /// A block of the index.
    Index,
    /// The top level of partitioned filters, which is an index.
    FilterIndex,
    Filter,
}

/// The index of a table.
#[derive(Debug)]
pub(super) enum TableIndex {
    Memory(Index),
    OnDemand(Box<OnDemand>),
}

/// An index and filters in the block cache.
#[derive(Debug)]
pub(super) struct OnDemand {
    pub(super) root: Root,
    pub(super) encoding: Encoding,
    priority: Priority,
    /// A block that takes more bytes of memory is refused.
    limit: usize,
    /// By their numbers ([`Meta::number`]), ascending.
    pins: Vec<(u64, Block)>,
    /// Held while they are there.
    charge: Option<Reservation>,
}

/// A place in the index of a table, which remembers the blocks of the index that it has seen.
#[derive(Clone, Debug)]
pub(crate) enum IndexCursor {
    Memory(usize),
    /// Boxed, so that lookups in an index in memory have less to move.
    OnDemand(Box<Walk>),
}

impl IndexCursor {
    /// The block of the index that it looks at, if that is not in memory.
    pub(crate) fn part(&self) -> Option<BlockHandle> {
        match self {
            Self::Memory(_) => None,
            Self::OnDemand(walk) => walk.part(),
        }
    }

    /// Whether it may lack a block of the index.
    #[inline]
    pub(crate) fn may_lack(&self) -> bool {
        matches!(self, Self::OnDemand(_))
    }

    #[inline]
    pub(crate) fn next(&mut self) {
        match self {
            Self::Memory(at) => *at = at.saturating_add(1),
            Self::OnDemand(walk) => walk.next(),
        }
    }

    #[inline]
    pub(crate) fn prev(&mut self) {
        match self {
            Self::Memory(at) => *at = at.checked_sub(1).unwrap_or(usize::MAX),
            Self::OnDemand(walk) => walk.prev(),
        }
    }
}

/// Where a cursor is.
pub(crate) enum Spot {
    At(BlockHandle),
    /// Before the first block, or behind the last one.
    End,
    /// It lacks this block of the index.
    Lacks(BlockHandle),
}

/// What the filters say of a key.
pub(super) enum Verdict {
    MayBeThere,
    IsNotThere,
    /// They lack this block.
    Lacks(Meta, BlockHandle),
}

impl OnDemand {
    pub(super) fn new(root: Root, encoding: Encoding, (pinning, limit): (Pinning, usize)) -> Self {
        Self {
            root,
            encoding,
            limit,
            priority: if pinning.high_priority {
                Priority::High
            } else {
                Priority::Low
            },
            pins: Vec::new(),
            charge: None,
        }
    }

    /// Keeps these blocks, and charges them to the cache.
    pub(super) fn pin(&mut self, mut pins: Vec<(u64, Block)>, cache: &Arc<BlockCache>) {
        pins.sort_unstable_by_key(|(number, _)| *number);
        let bytes = pins
            .iter()
            .map(|(_, block)| BlockCache::charge(block))
            .sum();
        self.pins = pins;
        self.charge = Some(cache.reserve(bytes));
    }

    /// Puts a block into the cache before it is needed; returns whether it was.
    pub(super) fn warm(
        &self,
        meta: Meta,
        handle: BlockHandle,
        block: &Block,
        (cache, cache_id): (&BlockCache, u64),
    ) -> bool {
        let what = (meta.key(cache_id, handle), block, self.priority);
        cache.insert_making_room(what, MakesRoom::Dropping)
    }

    fn pinned(&self, meta: Meta, handle: BlockHandle) -> Option<&Block> {
        let number = meta.number(handle);
        let at = self
            .pins
            .binary_search_by_key(&number, |(number, _)| *number);
        self.pins.get(at.ok()?).map(|(_, block)| block)
    }

    pub(super) fn index(&self, meta: Meta, block: Block) -> StoredIndex {
        StoredIndex::new(block, encoding_of(meta, self.encoding))
    }

    fn keep(&self, meta: Meta, bytes: &[u8], comparator: &Comparator) -> Result<Block> {
        keep(meta, bytes, self.encoding, (comparator, self.limit))
    }
}

fn encoding_of(meta: Meta, encoding: Encoding) -> Encoding {
    match meta {
        Meta::Index => encoding,
        Meta::FilterIndex | Meta::Filter => encoding.of_top_level(),
    }
}

/// What is kept of a block with these bytes: at most `limit` bytes. Errors: it is damaged, or larger.
pub(super) fn keep(
    meta: Meta,
    bytes: &[u8],
    encoding: Encoding,
    (comparator, limit): (&Comparator, usize),
) -> Result<Block> {
    match meta {
        Meta::Index | Meta::FilterIndex => {
            prepare(bytes, encoding_of(meta, encoding), comparator, limit)
        }
        Meta::Filter if bytes.len() > limit => Err(Error::not_supported(format!(
            "a filter that takes more than {limit} bytes"
        ))),
        Meta::Filter => Block::raw(&[], bytes),
    }
}

impl Meta {
    fn kind(self) -> BlockKind {
        match self {
            Self::Index => BlockKind::Index,
            Self::FilterIndex => BlockKind::FilterIndex,
            Self::Filter => BlockKind::Filter,
        }
    }

    pub(super) fn key(self, id: u64, handle: BlockHandle) -> CacheKey {
        CacheKey {
            id,
            offset: self.number(handle),
        }
    }

    /// A number for the block, which differs from the offset of every data block.
    pub(super) fn number(self, handle: BlockHandle) -> u64 {
        self.kind().place(handle.offset)
    }

    fn is_of_filter(self) -> bool {
        self != Self::Index
    }
}

impl Reader {
    /// A cursor at the first block that can hold an entry not before `target`.
    #[inline]
    pub(crate) fn seek_index(&self, target: &Target<'_>) -> IndexCursor {
        match &self.index {
            TableIndex::Memory(index) => IndexCursor::Memory(index.seek(target)),
            TableIndex::OnDemand(_) => IndexCursor::OnDemand(Box::new(Walk::new(Aim::Seek))),
        }
    }

    /// A cursor at the first block.
    pub(crate) fn first_in_index(&self) -> IndexCursor {
        match &self.index {
            TableIndex::Memory(_) => IndexCursor::Memory(0),
            TableIndex::OnDemand(_) => IndexCursor::OnDemand(Box::new(Walk::new(Aim::First))),
        }
    }

    /// Moves a cursor to another place, and keeps the blocks of the index that it has.
    #[inline]
    pub(crate) fn move_cursor(
        &self,
        cursor: &mut IndexCursor,
        aim: Aim,
        target: Option<&Target<'_>>,
    ) {
        match (cursor, &self.index) {
            (IndexCursor::OnDemand(walk), TableIndex::OnDemand(_)) => walk.restart(aim),
            (IndexCursor::Memory(at), TableIndex::Memory(index)) => {
                *at = match (aim, target) {
                    (Aim::Seek, Some(target)) => index.seek(target),
                    (Aim::Seek | Aim::First, _) => 0,
                    (Aim::Last, _) => index.len().checked_sub(1).unwrap_or(usize::MAX),
                }
            }
            _ => {}
        }
    }

    /// Where a cursor is. `target` is what it was made or moved for. With `LATER`, blocks of the index are not waited for.
    ///
    /// Errors: those of reading.
    #[inline]
    pub(crate) fn spot<const LATER: bool>(
        &self,
        cursor: &mut IndexCursor,
        target: Option<&Target<'_>>,
        options: ReadOptions,
    ) -> Result<Spot> {
        match (cursor, &self.index) {
            (IndexCursor::Memory(at), TableIndex::Memory(index)) => {
                Ok(index.handle(*at).map_or(Spot::End, Spot::At))
            }
            (IndexCursor::OnDemand(walk), TableIndex::OnDemand(on_demand)) => {
                self.walk::<LATER>(on_demand, walk, target, options)
            }
            _ => Err(Error::broken("a cursor of another table")),
        }
    }

    fn walk<const LATER: bool>(
        &self,
        on_demand: &OnDemand,
        walk: &mut Walk,
        target: Option<&Target<'_>>,
        options: ReadOptions,
    ) -> Result<Spot> {
        loop {
            let root = on_demand.root;
            let step = walk.step(root, self.comparator(), target);
            match step.map_err(|e| self.locate(e, walk.looks_at(root)))? {
                Step::At(handle) => return Ok(Spot::At(handle)),
                Step::End => return Ok(Spot::End),
                Step::Needs(handle) => {
                    match self.meta::<LATER>(on_demand, Meta::Index, handle, options)? {
                        Some(block) => {
                            walk.give(on_demand.root, handle, on_demand.index(Meta::Index, block));
                        }
                        None => return Ok(Spot::Lacks(handle)),
                    }
                }
            }
        }
    }

    /// Gives a cursor the block of the index that it lacked.
    pub(crate) fn give_index(&self, cursor: &mut IndexCursor, handle: BlockHandle, block: Block) {
        if let (IndexCursor::OnDemand(walk), TableIndex::OnDemand(on_demand)) =
            (cursor, &self.index)
        {
            walk.give(on_demand.root, handle, on_demand.index(Meta::Index, block));
        }
    }

    /// The first block from the cursor on that ends after this offset of the file, if the cursor can say that without a read.
    pub(crate) fn first_ending_after(
        &self,
        cursor: &IndexCursor,
        offset: u64,
    ) -> Option<BlockHandle> {
        match (cursor, &self.index) {
            (IndexCursor::Memory(_), TableIndex::Memory(index)) => index.first_ending_after(offset),
            (IndexCursor::OnDemand(walk), _) => walk.first_ending_after(offset),
            _ => None,
        }
    }

    /// True if entries of one user key may lie in two blocks.
    #[inline]
    pub(super) fn splits_user_keys(&self) -> bool {
        match &self.index {
            TableIndex::Memory(index) => index.splits_user_keys(),
            TableIndex::OnDemand(on_demand) => !on_demand.encoding.user_keys,
        }
    }

    /// What filters that are kept in the cache say of a key. `given` is the block that was lacked before.
    ///
    /// Errors: those of reading. A filter that only the file has does not count with [`ReadOptions::cache_only`].
    pub(super) fn ask_on_demand<const LATER: bool>(
        &self,
        (on_demand, at): (&OnDemand, FilterAt),
        given: Option<(Meta, BlockHandle, Block)>,
        (target, what): (&Target<'_>, &[u8]),
        options: ReadOptions,
    ) -> Result<Verdict> {
        let mut given = given;
        let handle = match &given {
            Some((Meta::Filter, handle, _)) => *handle,
            _ if !at.is_partitioned => at.handle,
            _ => {
                let wanted = (Meta::FilterIndex, at.handle);
                let top =
                    match self.filter_block::<LATER>(on_demand, wanted, &mut given, options)? {
                        ControlFlow::Continue(top) => on_demand.index(Meta::FilterIndex, top),
                        ControlFlow::Break(verdict) => return Ok(verdict),
                    };
                let part = top.seek_or_last(self.comparator(), target);
                match part.map_err(|e| self.locate(e, at.handle))? {
                    Some(part) => part,
                    None => return Ok(Verdict::MayBeThere),
                }
            }
        };
        let wanted = (Meta::Filter, handle);
        Ok(
            match self.filter_block::<LATER>(on_demand, wanted, &mut given, options)? {
                ControlFlow::Break(verdict) => verdict,
                ControlFlow::Continue(filter)
                    if filter::may_match_in(filter.raw_parts().1, what) =>
                {
                    Verdict::MayBeThere
                }
                ControlFlow::Continue(_) => Verdict::IsNotThere,
            },
        )
    }

    /// A block of filters, perhaps the one that was given; or what is to be said without it.
    fn filter_block<const LATER: bool>(
        &self,
        on_demand: &OnDemand,
        (meta, handle): (Meta, BlockHandle),
        given: &mut Option<(Meta, BlockHandle, Block)>,
        options: ReadOptions,
    ) -> Result<ControlFlow<Verdict, Block>> {
        if let Some((_, _, block)) = given.take_if(|(of, _, _)| *of == meta) {
            return Ok(ControlFlow::Continue(block));
        }
        match self.meta::<LATER>(on_demand, meta, handle, options) {
            Ok(Some(block)) => Ok(ControlFlow::Continue(block)),
            Ok(None) => Ok(ControlFlow::Break(Verdict::Lacks(meta, handle))),
            Err(e) if options.cache_only && e.kind() == ErrorKind::Incomplete => {
                Ok(ControlFlow::Break(Verdict::MayBeThere))
            }
            Err(e) => Err(e),
        }
    }

    /// A block of the index or of filters: pinned, from the cache, or from the file. With `LATER`, `None` if the device would
    /// have to be waited for.
    fn meta<const LATER: bool>(
        &self,
        on_demand: &OnDemand,
        meta: Meta,
        handle: BlockHandle,
        options: ReadOptions,
    ) -> Result<Option<Block>> {
        if let Some(block) = on_demand.pinned(meta, handle) {
            return Ok(Some(block.clone()));
        }
        if let Some(pinned) = self.cached(meta.key(self.cache_id, handle)) {
            self.count_meta_hit(meta, handle);
            return Ok(Some(pinned.to_block()));
        }
        if let Some(block) = self.decompressed_meta(on_demand, (meta, handle), options) {
            return Ok(Some(block));
        }
        self.check_may_read(options)?;
        let how = fetch::Read::from(options);
        let keep = |bytes: &[u8]| on_demand.keep(meta, bytes, self.comparator());
        let (timer, clock) = (self.read_timer(), self.options.clock.as_deref());
        let began = clock.and_then(perf::start);
        let block = self.fetch.kept_block::<LATER>(handle, how, keep)?;
        if let Some(clock) = clock {
            let what = match meta {
                Meta::Index => PerfCounter::ReadIndexBlockNanos,
                _ => PerfCounter::ReadFilterBlockNanos,
            };
            perf::stop(what, clock, began);
        }
        if let Some(block) = &block {
            self.meta_was_read(on_demand, (meta, handle), options, block, timer);
        }
        Ok(block)
    }

    /// A block of the index or of filters from the second tier of the cache.
    fn decompressed_meta(
        &self,
        on_demand: &OnDemand,
        (meta, handle): (Meta, BlockHandle),
        options: ReadOptions,
    ) -> Option<Block> {
        let cache = self.options.block_cache.as_ref()?;
        cache.secondary()?;
        let promote = options.fill_cache.then_some(on_demand.priority);
        let block = self.decompressed(cache, meta.key(self.cache_id, handle), promote)?;
        self.count_meta_hit(meta, handle);
        let ticker = if meta.is_of_filter() {
            Ticker::SecondaryCacheFilterHits
        } else {
            Ticker::SecondaryCacheIndexHits
        };
        self.count(ticker, 1);
        Some(block)
    }

    /// A block of the index or of filters that a lookup lacked, in the bytes that were read for it.
    pub(super) fn meta_in(
        &self,
        (meta, handle): (Meta, BlockHandle),
        stored: Option<&[u8]>,
        options: ReadOptions,
        timer: Option<u64>,
    ) -> Result<Block> {
        let TableIndex::OnDemand(on_demand) = &self.index else {
            return Err(Error::broken("an index in memory lacks nothing"));
        };
        let keep = |bytes: &[u8]| on_demand.keep(meta, bytes, self.comparator());
        let block = self.fetch.kept_in(stored, handle, keep)?;
        self.meta_was_read(on_demand, (meta, handle), options, &block, timer);
        Ok(block)
    }

    /// A block of the index or of filters that a lookup lacked, read now.
    pub(super) fn read_meta(
        &self,
        (meta, handle): (Meta, BlockHandle),
        options: ReadOptions,
    ) -> Result<Block> {
        let TableIndex::OnDemand(on_demand) = &self.index else {
            return Err(Error::broken("an index in memory lacks nothing"));
        };
        let block = self.meta::<false>(on_demand, meta, handle, options)?;
        block.ok_or_else(|| Error::broken("a read without a wait"))
    }

    fn count_meta_hit(&self, meta: Meta, handle: BlockHandle) {
        let (counter, ticker) = if meta.is_of_filter() {
            (
                PerfCounter::BlockCacheFilterHitCount,
                Ticker::BlockCacheFilterHit,
            )
        } else {
            (
                PerfCounter::BlockCacheIndexHitCount,
                Ticker::BlockCacheIndexHit,
            )
        };
        perf::count(counter, 1);
        self.count_hit(ticker, handle);
    }

    /// Counts a block that was read from the file, with the timer from [`ReadMeter::block_timer`](super::ReadMeter), and puts
    /// it into the cache.
    fn meta_was_read(
        &self,
        on_demand: &OnDemand,
        (meta, handle): (Meta, BlockHandle),
        options: ReadOptions,
        block: &Block,
        timer: Option<u64>,
    ) {
        let (counter, miss) = if meta.is_of_filter() {
            (
                PerfCounter::FilterBlockReadCount,
                Ticker::BlockCacheFilterMiss,
            )
        } else {
            (
                PerfCounter::IndexBlockReadCount,
                Ticker::BlockCacheIndexMiss,
            )
        };
        perf::count(counter, 1);
        self.count_read(options.activity, miss, handle, timer);
        let Some(cache) = &self.options.block_cache else {
            return;
        };
        let key = meta.key(self.cache_id, handle);
        if options.fill_cache && cache.insert_with(key, block, on_demand.priority) {
            count_added(&self.options, meta, block);
        }
    }
}

/// Counts a block of an index or of filters that was put into the cache.
pub(super) fn count_added(options: &ReaderOptions, meta: Meta, block: &Block) {
    let tickers = if meta.is_of_filter() {
        (
            Ticker::BlockCacheFilterAdd,
            Ticker::BlockCacheFilterBytesInsert,
        )
    } else {
        (
            Ticker::BlockCacheIndexAdd,
            Ticker::BlockCacheIndexBytesInsert,
        )
    };
    options.count_added(tickers, block);
}
