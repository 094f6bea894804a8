//! Reads data blocks into the block cache before they are asked for.
//!
//! ```text
//!   wanted offsets ─ index ─> handles ─> runs of blocks that lie close together ─ read at once ─> blocks ─> cache
//! ```
#![deny(clippy::indexing_slicing)]

use base::Result;
use base::stats::Ticker;
use io::LargeVec;

use super::fetch::{self, Span, cut_short};
use super::together::{Wanted, read_at_once};
use super::{ReadOptions, Reader, Spot};
use crate::block::Block;
use crate::cache::{BlockCache, Tier};
use crate::footer::BLOCK_TRAILER_LEN;
use crate::handle::BlockHandle;

/// Blocks with at most so many bytes between them are read together.
const GAP_MAX: u64 = 16 << 10;
/// At most so many bytes are read together, except for a block that is larger.
const RUN_MAX: u64 = 64 << 10;
/// At most so many runs are read at the same time.
const RUNS_MAX: usize = 64;
/// At most so many bytes are read at the same time, except for one run.
const BYTES_MAX: u64 = 8 << 20;

/// Blocks that were read into the cache, by [`Reader::warm`] of one table after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warmed {
    /// How many.
    pub blocks: u64,
    /// The bytes that the cache is charged for them.
    pub bytes: u64,
    /// Whether a tier had no room for a block: no more are read for it.
    is_first_full: bool,
    is_second_full: bool,
}

impl Warmed {
    fn is_full(&self, tier: Tier) -> bool {
        match tier {
            Tier::First => self.is_first_full,
            Tier::Second => self.is_second_full,
        }
    }

    fn now_full(&mut self, tier: Tier) {
        match tier {
            Tier::First => self.is_first_full = true,
            Tier::Second => self.is_second_full = true,
        }
    }
}

/// Blocks that are read together.
#[derive(Debug)]
struct Run {
    blocks: Vec<(BlockHandle, Tier)>,
    start: u64,
    end: u64,
}

impl Run {
    fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether a block may be added; it is then.
    fn takes(&mut self, handle: BlockHandle, tier: Tier, end: u64) -> bool {
        let is_near = handle.offset.saturating_sub(self.end) <= GAP_MAX;
        let fits = is_near && end - self.start <= RUN_MAX;
        if fits {
            self.blocks.push((handle, tier));
            self.end = end;
        }
        fits
    }
}

/// The runs that are read next, and the others.
fn split_group(runs: &[Run]) -> (&[Run], &[Run]) {
    let (mut bytes, mut count) = (0, 0);
    for run in runs.iter().take(RUNS_MAX) {
        bytes += run.len();
        if bytes > BYTES_MAX && count > 0 {
            break;
        }
        count += 1;
    }
    runs.split_at(count)
}

impl Reader {
    /// Reads data blocks into the cache, as far as it has room for them without evicting others. `wanted` are their offsets,
    /// ascending, and the tiers; an offset at which no block begins is passed over. After each read, `goes_on` is told how
    /// many blocks have been read; if it returns false, no more are.
    ///
    /// # Errors
    /// Those of reading. What was read before is in the cache.
    pub fn warm(
        &self,
        wanted: &[(u64, Tier)],
        options: &ReadOptions,
        warmed: &mut Warmed,
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<()> {
        let Some(cache) = self.options.block_cache.clone() else {
            return Ok(());
        };
        let runs = self.runs(&cache, wanted, *options, warmed)?;
        let mut left = &*runs;
        while !left.is_empty() {
            let (group, rest) = split_group(left);
            left = rest;
            let so_far = *warmed;
            let has_room = |run: &&Run| run.blocks.iter().any(|(_, tier)| !so_far.is_full(*tier));
            let group: Vec<&Run> = group.iter().filter(has_room).collect();
            if group.is_empty() {
                continue;
            }
            self.check_may_read(*options)?;
            self.read_runs(&group, *options, &mut |run, bytes| {
                self.fill_from(&cache, run, bytes, (*options, warmed))
            })?;
            if !goes_on(group.iter().map(|run| run.blocks.len()).sum()) {
                break;
            }
        }
        Ok(())
    }

    /// What to read: nothing for a tier that is full.
    fn runs(
        &self,
        cache: &BlockCache,
        wanted: &[(u64, Tier)],
        options: ReadOptions,
        warmed: &Warmed,
    ) -> Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let has_room = |tier, bytes| !warmed.is_full(tier) && cache.has_room_in(tier, bytes);
        let any_room = [Tier::First, Tier::Second].map(|tier| has_room(tier, 0));
        let (Some((last, _)), true) = (wanted.last(), any_room.contains(&true)) else {
            return Ok(runs);
        };
        // The blocks of the index are needed only now, and would evict others.
        let options = ReadOptions {
            fill_cache: false,
            ..options
        };
        let (mut cursor, mut end) = (self.first_in_index(), 0);
        while let Spot::At(handle) = self.spot::<false>(&mut cursor, None, options)? {
            cursor.next();
            if handle.offset > *last {
                break;
            }
            let found = wanted.binary_search_by_key(&handle.offset, |(offset, _)| *offset);
            let Some((_, tier)) = found.ok().and_then(|at| wanted.get(at)) else {
                continue;
            };
            let key = self.cache_key(handle);
            let tier = cache.tier_for(key, *tier);
            let is_there = cache.has(key, Tier::First) || cache.has(key, tier);
            // In a damaged table, blocks may overlap, and be together larger than the file.
            if handle.offset < end || is_there || !has_room(tier, handle.size as usize) {
                continue;
            }
            let len = self.fetch.stored_len(handle);
            let len = len.map_err(|e| self.locate(e, handle))? as u64;
            end = handle.offset + len; // inside the file
            let run = runs.last_mut();
            if !run.is_some_and(|run| run.takes(handle, tier, end)) {
                runs.push(Run {
                    blocks: vec![(handle, tier)],
                    start: handle.offset,
                    end,
                });
            }
        }
        Ok(runs)
    }

    /// Reads runs at the same time if there is a queue; otherwise, and what the queue could not read, one after the other.
    /// Passes each on with its bytes.
    fn read_runs(
        &self,
        runs: &[&Run],
        options: ReadOptions,
        fill: &mut dyn FnMut(&Run, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let how = fetch::Read::from(options);
        let spans = runs.iter().map(|run| {
            let span = self.fetch.span_of(run.start, run.len() as usize);
            self.fetch.charge(span, how); // before a queue is lent
            span
        });
        let spans: Vec<Span> = spans.collect();
        let mut read: Vec<_> = spans.iter().map(|_| None).collect();
        if spans.len() > 1 {
            let wanted = spans
                .iter()
                .map(|span| Wanted::new(self, *span, options.activity));
            read = read_at_once(self, &wanted.collect::<Vec<_>>());
        }
        for ((run, span), read) in runs.iter().zip(&spans).zip(read) {
            if let Some(bytes) = read.as_deref().and_then(|bytes| span.stored_in(bytes)) {
                fill(run, bytes)?;
                continue;
            }
            let mut bytes = LargeVec::new();
            bytes.resize(run.len() as usize, 0);
            let meter = self.fetch.meter();
            meter.read(&*self.fetch.file, &mut bytes, run.start, options.activity)?;
            fill(run, &bytes)?;
        }
        Ok(())
    }

    /// Puts the blocks of a run into the cache.
    fn fill_from(
        &self,
        cache: &BlockCache,
        run: &Run,
        bytes: &[u8],
        (options, warmed): (ReadOptions, &mut Warmed),
    ) -> Result<()> {
        for &(handle, tier) in &run.blocks {
            let open = || -> Result<Block> {
                let from = (handle.offset - run.start) as usize;
                let len = (handle.size + BLOCK_TRAILER_LEN) as usize;
                let stored = bytes.get(from..from + len).ok_or_else(cut_short)?;
                let verify = options.verify_checksums;
                self.fetch.open(stored, handle, self.comparator(), verify)
            };
            let block = open().map_err(|e| self.locate(e, handle))?;
            let key = self.cache_key(handle);
            let charge = cache.insert_into(key, &block, tier);
            if charge == 0 && !cache.has(key, tier) {
                warmed.now_full(tier);
            }
            warmed.blocks += u64::from(charge > 0);
            warmed.bytes += charge as u64;
            if charge > 0 && tier == Tier::First {
                let tickers = (Ticker::BlockCacheDataAdd, Ticker::BlockCacheDataBytesInsert);
                self.options.count_added(tickers, &block);
            }
        }
        Ok(())
    }
}
