//! Reads data blocks into the block cache before they are asked for.
//!
//! ```text
//!   wanted offsets ─ index ─> handles ─> runs of blocks that lie close together ─ read at once ─> blocks ─> cache
//! ```
#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use base::stats::Ticker;
use base::{Error, Result};
use io::LargeVec;
use io::queue::{Act, Request};

use super::fetch::{self, Span, cut_short};
use super::{IndexCursor, ReadOptions, Reader, Spot};
use crate::block::Block;
use crate::cache::{BlockCache, Tier};
use crate::footer::BLOCK_TRAILER_LEN;
use crate::handle::BlockHandle;

/// Blocks with at most so many bytes between them are read together.
const GAP_MAX: u64 = 16 << 10;
/// At most so many bytes are read together, except for a block that is larger.
const RUN_MAX: u64 = 64 << 10;
/// At most so many runs are read at the same time.
const RUNS: usize = 64;

/// Blocks that were read into the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warmed {
    /// How many.
    pub blocks: u64,
    /// The bytes that the cache is charged for them.
    pub bytes: u64,
}

/// Blocks that are read together.
#[derive(Debug)]
struct Run {
    blocks: Vec<(BlockHandle, Tier)>,
    start: u64,
    end: u64,
}

impl Run {
    /// Whether a block may be added; it is then.
    fn takes(&mut self, handle: BlockHandle, tier: Tier, end: u64) -> bool {
        let gap = handle.offset.checked_sub(self.end);
        let fits = gap.is_some_and(|gap| gap <= GAP_MAX) && end - self.start <= RUN_MAX;
        if fits {
            self.blocks.push((handle, tier));
            self.end = end;
        }
        fits
    }
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
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Warmed> {
        let mut warmed = Warmed::default();
        let Some(cache) = self.options.block_cache.clone() else {
            return Ok(warmed);
        };
        let runs = self.runs(&cache, wanted, *options)?;
        for runs in runs.chunks(RUNS) {
            let has_room = |tier| cache.has_room(tier, 0);
            if !has_room(Tier::First) && !has_room(Tier::Second) {
                break;
            }
            let mut read = 0;
            self.read_runs(runs, *options, &mut |run, bytes| {
                read += run.blocks.len();
                self.fill_from(&cache, run, bytes, (*options, &mut warmed))
            })?;
            if !goes_on(read) {
                break;
            }
        }
        Ok(warmed)
    }

    /// What to read.
    fn runs(
        &self,
        cache: &BlockCache,
        wanted: &[(u64, Tier)],
        options: ReadOptions,
    ) -> Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let mut cursor: IndexCursor = self.first_in_index();
        while let Spot::At(handle) = self.spot::<false>(&mut cursor, None, options)? {
            cursor.next();
            let found = wanted.binary_search_by_key(&handle.offset, |(offset, _)| *offset);
            let Some((_, tier)) = found.ok().and_then(|at| wanted.get(at)) else {
                continue;
            };
            if cache.has(self.cache_key(handle), *tier) {
                continue;
            }
            let len = self.fetch.stored_len(handle);
            let len = len.map_err(|e| self.locate(e, handle))? as u64;
            let end = handle.offset + len; // inside the file
            if !runs
                .last_mut()
                .is_some_and(|run| run.takes(handle, *tier, end))
            {
                runs.push(Run {
                    blocks: vec![(handle, *tier)],
                    start: handle.offset,
                    end,
                });
            }
        }
        Ok(runs)
    }

    /// Reads runs at the same time if there is a queue; otherwise, and if the queue fails, one after the other. Passes each
    /// on with its bytes.
    fn read_runs(
        &self,
        runs: &[Run],
        options: ReadOptions,
        fill: &mut dyn FnMut(&Run, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.check_may_read(options)?;
        let how = fetch::Read::from(options);
        let spans: Vec<Span> = runs
            .iter()
            .map(|run| {
                self.fetch
                    .span_of(run.start, (run.end - run.start) as usize)
            })
            .collect();
        for span in &spans {
            self.fetch.charge(*span, how);
        }
        let mut left: Vec<bool> = runs.iter().map(|_| true).collect();
        if runs.len() > 1
            && let Some(queues) = self.queues()
            && let Some(mut queue) = queues.lend()
        {
            let (timer, mut sent) = (self.read_timer(), 0);
            for (token, span) in (0..).zip(&spans) {
                let file = Arc::clone(&self.fetch.file);
                let buf = queue.buffer(span.len, file.read_alignment())?;
                let request = Request {
                    token,
                    file,
                    offset: span.offset,
                    act: Act::Read(buf),
                };
                if queue.push(request).is_err() {
                    queue.give_up();
                    break;
                }
                sent += 1;
            }
            let mut done = Vec::new();
            if sent == spans.len() && queue.wait(sent, &mut done).is_err() {
                queue.give_up();
            }
            for done in done {
                let token = done.token as usize;
                let (Some(run), Some(span)) = (runs.get(token), spans.get(token)) else {
                    continue;
                };
                let whole = done.result.is_ok_and(|n| n >= span.end_of_stored());
                if whole
                    && let Some(bytes) = done.buf.as_deref().and_then(|buf| span.stored_in(buf))
                    && let Some(is_left) = left.get_mut(token)
                {
                    *is_left = false;
                    let meter = self.fetch.meter();
                    meter.was_read(bytes.len() as u64, options.activity, timer);
                    fill(run, bytes)?;
                }
            }
        }
        for (run, _) in runs.iter().zip(left).filter(|(_, is_left)| *is_left) {
            let mut bytes = LargeVec::new();
            bytes.resize((run.end - run.start) as usize, 0);
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
            let block = open().map_err(|e: Error| self.locate(e, handle))?;
            let charge = BlockCache::charge(&block);
            if !cache.has_room(tier, charge) {
                continue;
            }
            if cache.insert_into(self.cache_key(handle), &block, tier) {
                warmed.blocks += 1;
                warmed.bytes += charge as u64;
                if tier == Tier::First {
                    let tickers = (Ticker::BlockCacheDataAdd, Ticker::BlockCacheDataBytesInsert);
                    self.options.count_added(tickers, &block);
                }
            }
        }
        Ok(())
    }
}
