//! What a table's index tells of its data blocks: where they are, and how many bytes lie between keys.
#![deny(clippy::indexing_slicing)]

use base::{Result, key};

use super::on_demand::TableIndex;
use super::{IndexCursor, ReadOptions, Reader, Spot};
use crate::block::Target;
use crate::handle::BlockHandle;
use crate::index::Aim;

/// A data block, as the index has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataBlock {
    /// Where it is.
    pub handle: BlockHandle,
    /// A user key that is not before any key of the block, and before all keys of the next one or equal to the first.
    pub separator: Vec<u8>,
}

/// How blocks of an index are read that are needed only once.
const ONCE: ReadOptions = ReadOptions {
    fill_cache: false,
    ..ReadOptions::DEFAULT
};

impl Reader {
    /// All data blocks in their order.
    ///
    /// # Errors
    /// Those of reading the index, if it is not in memory.
    pub fn data_blocks(&self) -> Result<Vec<DataBlock>> {
        let mut out = Vec::new();
        self.for_each_block(&mut |handle, separator| {
            out.push(DataBlock {
                handle,
                separator: separator.to_vec(),
            });
        })?;
        Ok(out)
    }

    /// Calls `visit` with each data block and the user key of the separator after it.
    pub(super) fn for_each_block(&self, visit: &mut dyn FnMut(BlockHandle, &[u8])) -> Result<()> {
        let mut cursor = self.first_in_index();
        while let Spot::At(handle) = self.spot::<false>(&mut cursor, None, ONCE)? {
            visit(handle, self.separator(&cursor)?);
            cursor.next();
        }
        Ok(())
    }

    /// The user key of the separator after the block at the cursor.
    fn separator<'a>(&'a self, cursor: &'a IndexCursor) -> Result<&'a [u8]> {
        match (cursor, &self.index) {
            (IndexCursor::Memory(at), TableIndex::Memory(index)) => Ok(index.user_separator(*at)),
            (IndexCursor::OnDemand(walk), TableIndex::OnDemand(on_demand)) => {
                let separator = walk.separator()?.unwrap_or_default();
                Ok(if on_demand.encoding.user_keys {
                    separator
                } else {
                    key::user_key(separator)
                })
            }
            _ => Ok(&[]),
        }
    }

    /// At most about `count` user keys, ascending, at which the table can be split into parts, each with
    /// the bytes of the data blocks between the previous one and it.
    ///
    /// # Errors
    /// Those of reading the index, if it is not in memory.
    pub fn anchors(&self, count: usize) -> Result<Vec<(Vec<u8>, u64)>> {
        let blocks = usize::try_from(self.properties.num_data_blocks).unwrap_or(usize::MAX);
        let blocks = match &self.index {
            TableIndex::Memory(index) => index.len(),
            TableIndex::OnDemand(_) => blocks,
        };
        let step = blocks.div_ceil(count.max(1)).max(1);
        let mut out: Vec<(Vec<u8>, u64)> = Vec::new();
        // A damaged table may have other blocks than its properties say.
        let most = count.saturating_mul(2);
        let (mut bytes, mut seen, mut last) = (0_u64, 0, Vec::new());
        self.for_each_block(&mut |handle, separator| {
            (bytes, seen) = (bytes.saturating_add(handle.size), seen + 1);
            if seen % step == 0 && out.len() < most {
                out.push((separator.to_vec(), std::mem::take(&mut bytes)));
            } else {
                last.clear();
                last.extend_from_slice(separator);
            }
        })?;
        if bytes > 0 {
            out.push((last, bytes));
        }
        Ok(out)
    }

    /// Bytes of memory that index and filters take, if they are neither in the block cache nor pinned and charged to it.
    pub fn metadata_memory(&self) -> usize {
        match &self.index {
            TableIndex::Memory(index) => index.memory() + self.filters.memory(),
            TableIndex::OnDemand(_) => 0,
        }
    }

    /// File offset near which an entry with this internal key is, or would be.
    ///
    /// # Errors
    /// Those of reading the index, if it is not in memory.
    pub fn approximate_offset_of(&self, internal_key: &[u8]) -> Result<u64> {
        let Ok(target) = Target::new(internal_key) else {
            return Ok(0);
        };
        let mut cursor = self.seek_index(&target);
        let options = ReadOptions::default();
        match self.spot::<false>(&mut cursor, Some(&target), options)? {
            Spot::At(handle) => Ok(handle.offset),
            Spot::End | Spot::Lacks(_) => self.end_of_data(),
        }
    }

    /// Where the last data block ends, without its trailer; 0 without one.
    fn end_of_data(&self) -> Result<u64> {
        let mut cursor = self.first_in_index();
        self.move_cursor(&mut cursor, Aim::Last, None);
        match self.spot::<false>(&mut cursor, None, ReadOptions::default())? {
            Spot::At(handle) => Ok(handle.offset.saturating_add(handle.size)),
            Spot::End | Spot::Lacks(_) => Ok(0),
        }
    }

    /// Estimated number of bytes of the file for the entries from internal key `start` to before `end`.
    /// Blocks that are not data blocks are attributed in proportion.
    ///
    /// # Errors
    /// Those of reading the index, if it is not in memory.
    pub fn approximate_size(&self, start: &[u8], end: &[u8]) -> Result<u64> {
        let data = self.end_of_data()?;
        if data == 0 {
            return Ok(self.file_size);
        }
        let (start, end) = (
            self.approximate_offset_of(start)?,
            self.approximate_offset_of(end)?,
        );
        let share = end.saturating_sub(start) as f64 / data as f64;
        Ok((share * self.file_size as f64) as u64)
    }
}
