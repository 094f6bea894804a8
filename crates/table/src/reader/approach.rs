//! Asks for the memory that gets are going to read, for several gets at a time.
//!
//! A get of a cached block waits for memory four times, one after the other: for the place of the block in the table of the
//! cache, for its entry, for the block's restart points, and for the entries behind one of them. Each step of an
//! [`Approach`] reads what the step before has asked for, and asks for the next. Whoever does each step for several keys
//! waits once for all of them.
//!
//! Nothing is counted, and no block stays longer for it: the get that follows does that.
#![deny(clippy::indexing_slicing)]

use super::Reader;
use super::on_demand::TableIndex;
use crate::block::Target;
use crate::cache::{BlockCache, CacheKey};

/// A get of the first block that may have a key.
#[derive(Clone, Copy, Debug)]
pub struct Approach<'a> {
    cache: &'a BlockCache,
    reader: &'a Reader,
    key: CacheKey,
}

/// Where a get will look first.
#[derive(Clone, Copy, Debug)]
pub enum Destination<'a> {
    /// Not into this table: a filter says that it does not have the key.
    Elsewhere,
    /// Here, and nothing else is likely to be read.
    Here(Option<Approach<'a>>),
    /// Here, but perhaps in vain, because there is no filter.
    Perhaps(Option<Approach<'a>>),
}

/// What the processor's own caches hold, in bytes: blocks that are together smaller need not be asked for.
const NEAR_BYTES: usize = 4 << 20;

impl Reader {
    /// Whether it is worth while to ask for cached blocks of this table: not if index or rows are in caches too.
    pub fn is_cached_far(&self) -> bool {
        let is_plain = matches!(self.index, TableIndex::Memory(_)) && self.options.rows.is_none();
        let cache = self.options.block_cache.as_ref();
        is_plain && cache.is_some_and(|cache| cache.used() > NEAR_BYTES)
    }

    /// The first step, and whether the get will need it.
    pub fn destination(&self, seek_key: &[u8]) -> Destination<'_> {
        let Ok(target) = Target::new(seek_key) else {
            return Destination::Elsewhere;
        };
        if self.filters.is_none() || self.filters.on_demand().is_some() {
            return Destination::Perhaps(self.approach(&target));
        }
        if self.filters.may_match(&target) {
            Destination::Here(self.approach(&target))
        } else {
            Destination::Elsewhere
        }
    }

    /// The first step: asks for the place of the block in the cache.
    fn approach(&self, target: &Target<'_>) -> Option<Approach<'_>> {
        let TableIndex::Memory(index) = &self.index else {
            return None;
        };
        let cache = self.options.block_cache.as_deref()?;
        let key = self.cache_key(index.handle(index.seek(target))?);
        cache.prefetch_place(key);
        Some(Approach {
            cache,
            reader: self,
            key,
        })
    }
}

impl Approach<'_> {
    /// The second step: asks for the entry of the block.
    pub fn entry(&self) {
        self.cache.prefetch_entry(self.key);
    }

    /// The third step: asks for the restart points.
    pub fn block(&self) {
        if let Some(block) = self.cache.peek(self.key) {
            block.prefetch_head();
        }
    }

    /// The last step: asks for entries from the restart point on at which the get will begin.
    pub fn entries(&self, seek_key: &[u8]) {
        if let Some(block) = self.cache.peek(self.key)
            && let Ok(target) = Target::new(seek_key)
        {
            block.prefetch_entries(self.reader.comparator(), target.user);
        }
    }
}
