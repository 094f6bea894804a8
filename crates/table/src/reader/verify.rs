//! Reads a whole table and verifies it.
#![deny(clippy::indexing_slicing)]

use base::stats::Activity;
use base::{Error, Result};

use super::Reader;
use super::ahead::{ReadAhead, ReadAheadSizes};
use super::fetch::Read;
use super::open;

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
        for handle in (0..self.index.len()).filter_map(|i| self.index.handle(i)) {
            self.fetch
                .data_block_from(&mut ahead, handle, self.comparator(), how)
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
}
