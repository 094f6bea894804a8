//! Reads a whole table and verifies it.
#![deny(clippy::indexing_slicing)]

use base::stats::Activity;
use base::{Error, Result};

use super::Reader;
use super::ahead::{ReadAhead, ReadAheadSizes};
use super::fetch::Read;
use super::on_demand::{OnDemand, TableIndex};
use super::open;
use crate::handle::BlockHandle;
use crate::index::{self, Encoding};

impl Reader {
    /// Verifies the checksum of every block of the file, and that each data block can be decompressed
    /// and decoded.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, for the first block that is damaged.
    pub fn verify_checksums(&self) -> Result<()> {
        self.verify_blocks(&mut Err)
    }

    /// Like [`Reader::verify_checksums`], but passes each block's error to `problem`: continues with
    /// the next block if `problem` returns `Ok`, and otherwise returns its error.
    pub fn verify_blocks(&self, problem: &mut dyn FnMut(Error) -> Result<()>) -> Result<()> {
        let mut ahead = ReadAhead::new(ReadAheadSizes {
            initial: 256 << 10,
            max: 1 << 20,
            after: 0,
            told: 0,
        });
        let how = Read {
            verify: true,
            activity: Activity::VerifyDbChecksum,
            priority: None,
        };
        let mut data = |handle| {
            self.fetch
                .data_block_from(&mut ahead, handle, self.comparator(), how)
                .map(drop)
        };
        match &self.index {
            TableIndex::Memory(index) => {
                for handle in (0..index.len()).filter_map(|i| index.handle(i)) {
                    data(handle).or_else(&mut *problem)?;
                }
            }
            TableIndex::OnDemand(on_demand) => {
                for part in self.index_parts(on_demand, problem)? {
                    let part = self.meta_entries(part, on_demand.encoding);
                    match part {
                        Ok(blocks) => {
                            for handle in blocks {
                                data(handle).or_else(&mut *problem)?;
                            }
                        }
                        Err(e) => problem(e)?,
                    }
                }
            }
        }
        for &handle in self
            .meta_blocks
            .iter()
            .filter(|at| !self.is_read_above(**at))
        {
            self.fetch
                .meta_block(handle)
                .map(drop)
                .or_else(&mut *problem)?;
        }
        if let Some(handle) = self.meta_handle(open::PROPERTIES) {
            open::read_properties(&self.fetch, handle)
                .map(drop)
                .or_else(&mut *problem)?;
        }
        Ok(())
    }

    /// The blocks of an index that is not in memory, without its top level. Verifies the partitions of the filters.
    fn index_parts(
        &self,
        on_demand: &OnDemand,
        problem: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<BlockHandle>> {
        let named = |top| {
            let bytes = self.fetch.meta_block(top)?;
            self.fetch.partitions(top, &bytes, on_demand.encoding)
        };
        let mut partitions = |top| match named(top) {
            Ok(parts) => Ok(parts),
            Err(e) => problem(e).map(|()| Vec::new()),
        };
        let filters = self.filters.on_demand().filter(|at| at.is_partitioned);
        let filters = filters.map_or(Ok(Vec::new()), |at| partitions(at.handle))?;
        let root = on_demand.root;
        let index = if root.is_partitioned {
            partitions(root.handle)?
        } else {
            vec![root.handle]
        };
        for filter in filters {
            self.fetch
                .meta_block(filter)
                .map(drop)
                .or_else(&mut *problem)?;
        }
        Ok(index)
    }

    /// What a block of an index that is not in memory points at.
    fn meta_entries(&self, block: BlockHandle, encoding: Encoding) -> Result<Vec<BlockHandle>> {
        let bytes = self.fetch.meta_block(block)?;
        index::handles(&bytes, encoding).map_err(|e| self.locate(e, block))
    }

    /// Whether a block was read with what it points at.
    fn is_read_above(&self, block: BlockHandle) -> bool {
        let TableIndex::OnDemand(on_demand) = &self.index else {
            return false;
        };
        let filters = self.filters.on_demand().filter(|at| at.is_partitioned);
        block == on_demand.root.handle || filters.is_some_and(|at| at.handle == block)
    }
}
