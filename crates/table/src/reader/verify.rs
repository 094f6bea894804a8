//! Reads a whole table and verifies it.
#![deny(clippy::indexing_slicing)]

use base::stats::Activity;
use base::{Error, Result};

use super::Reader;
use super::ahead::{ReadAhead, ReadAheadSizes};
use super::fetch::Read;
use super::on_demand::TableIndex;
use super::open;
use crate::handle::BlockHandle;
use crate::index::{self, Encoding, Root};

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
        let mut verified = Ok(());
        let walked = self.for_each_block(&mut |handle, _| {
            if verified.is_ok() {
                verified = self
                    .fetch
                    .data_block_from(&mut ahead, handle, self.comparator(), how)
                    .map(drop)
                    .or_else(&mut *problem);
            }
        });
        verified?;
        walked.or_else(&mut *problem)?;
        for handle in self.partitions() {
            self.fetch
                .meta_block(handle)
                .map(drop)
                .or_else(&mut *problem)?;
        }
        for &handle in &self.meta_blocks {
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

    /// The partitions of an index and of filters that are not in memory. What is damaged is said where the top levels are
    /// verified.
    fn partitions(&self) -> Vec<BlockHandle> {
        let TableIndex::OnDemand(on_demand) = &self.index else {
            return Vec::new();
        };
        let Root {
            handle,
            is_partitioned,
        } = on_demand.root;
        let index = is_partitioned.then_some(handle);
        let filters = self.filters.on_demand().filter(|at| at.is_partitioned);
        let mut out = Vec::new();
        for top in index.into_iter().chain(filters.map(|at| at.handle)) {
            let plain = Encoding {
                first_keys: false,
                ..on_demand.encoding
            };
            if let Ok(bytes) = self.fetch.meta_block(top) {
                let push = &mut |_: &[u8], handle| {
                    out.push(handle);
                    Ok(())
                };
                index::for_each(&bytes, plain, push).ok();
            }
        }
        out
    }
}
