//! The filter of a new table: full or partitioned, of keys, of their prefixes, or of both.
//!
//! A partition ends at the end of a data block. Each partition also contains the prefix of the key
//! before it and of the key after it, so that a lookup of a prefix needs one partition only.

use base::{Result, SliceTransform};

use crate::filter::FilterBuilder;
use crate::options::TableOptions;

/// Collects the keys of one table.
#[derive(Debug)]
pub(super) struct TableFilter {
    builder: FilterBuilder,
    whole_keys: bool,
    prefixes: Option<Prefixes>,
    /// Whether each filter is checked to match its keys.
    check: bool,
    /// Target size of a partition in bytes; `None` for a full filter.
    partition_bytes: Option<usize>,
    /// No key has been added to the current partition.
    fresh: bool,
    entries: u64,
    parts: Vec<FilterPart>,
}

#[derive(Debug)]
struct Prefixes {
    extractor: SliceTransform,
    /// The prefix added last.
    last: Option<Vec<u8>>,
}

/// One filter, and the number of the last data block whose keys it contains.
#[derive(Debug)]
pub(super) struct FilterPart {
    pub(super) bytes: Vec<u8>,
    pub(super) last_block: usize,
}

impl TableFilter {
    /// `None` if the table gets no filter.
    pub(super) fn new(
        table: &TableOptions,
        level: i32,
        prefix_extractor: Option<&SliceTransform>,
    ) -> Option<Self> {
        if !table.whole_key_filtering && prefix_extractor.is_none() {
            return None;
        }
        Some(Self {
            builder: table.filter_policy.builder(level)?,
            whole_keys: table.whole_key_filtering,
            prefixes: prefix_extractor.map(|e| Prefixes {
                extractor: e.clone(),
                last: None,
            }),
            check: table.detect_filter_construct_corruption,
            partition_bytes: table
                .partition_filters
                .then_some(table.metadata_block_size as usize),
            fresh: true,
            entries: 0,
            parts: Vec::new(),
        })
    }

    /// To be called with each entry's user key; `repeats` says that the previous entry had the same one.
    #[inline]
    pub(super) fn add(&mut self, user_key: &[u8], repeats: bool) {
        if repeats && !self.fresh {
            return;
        }
        self.fresh = false;
        if self.whole_keys {
            self.builder.add_key(user_key);
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.add(user_key, &mut self.builder);
        }
    }

    /// To be called when data block `block` has ended and another one follows that starts with `next`.
    pub(super) fn block_ends(&mut self, block: usize, next: &[u8]) -> Result<()> {
        let size = self.builder.estimated_size();
        if self.partition_bytes.is_none_or(|limit| size < limit) {
            return Ok(());
        }
        let mut before = None;
        if let Some(prefixes) = &mut self.prefixes {
            before = prefixes.last.take();
            prefixes.add(next, &mut self.builder);
            prefixes.last = None;
        }
        self.end_part(block)?;
        if let Some(before) = before {
            self.builder.add_key(&before);
        }
        self.fresh = true;
        Ok(())
    }

    /// Estimated size in bytes of all filters so far.
    pub(super) fn estimated_size(&self) -> usize {
        let parts = self.parts.iter().map(|p| p.bytes.len()).sum::<usize>();
        parts + self.builder.estimated_size()
    }

    /// All filters of a table of `blocks` data blocks, and how many keys were added to them; no filter if
    /// there were none.
    pub(super) fn finish(mut self, blocks: usize) -> Result<(Vec<FilterPart>, u64)> {
        // A lookup after the last partition uses the last one, so no empty partition is needed.
        if self.builder.num_added() > 0 {
            self.end_part(blocks.saturating_sub(1))?;
        }
        Ok((self.parts, self.entries))
    }

    pub(super) fn is_partitioned(&self) -> bool {
        self.partition_bytes.is_some()
    }

    fn end_part(&mut self, last_block: usize) -> Result<()> {
        self.entries += self.builder.num_added() as u64;
        let bytes = if self.check {
            self.builder.finish_checked()?
        } else {
            self.builder.finish()
        };
        self.parts.push(FilterPart { bytes, last_block });
        Ok(())
    }
}

impl Prefixes {
    fn add(&mut self, user_key: &[u8], builder: &mut FilterBuilder) {
        let Some(prefix) = self.extractor.prefix(user_key) else {
            return;
        };
        if self.last.as_deref() != Some(prefix) {
            builder.add_key(prefix);
            let last = self.last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(prefix);
        }
    }
}
