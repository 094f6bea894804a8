//! Reads a whole table and verifies it.
#![deny(clippy::indexing_slicing)]

use base::Result;

use super::Reader;
use super::fetch::{ReadAhead, ReadAheadSizes, Role};
use super::open;
use crate::block::Block;

impl Reader {
    /// Verifies the checksum of every block of the file, and that each data block can be
    /// decompressed and taken apart.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, for the first block that is damaged.
    pub fn verify_checksums(&self) -> Result<()> {
        let mut ahead = ReadAhead::new(ReadAheadSizes {
            initial: 256 << 10,
            max: 1 << 20,
            after: 0,
        });
        for handle in (0..self.index.len()).filter_map(|i| self.index.handle(i)) {
            self.fetch
                .stored_ahead(handle, &mut ahead)
                .and_then(|stored| self.fetch.decode(stored, handle, Role::Data, true))
                .and_then(|bytes| Block::new(bytes, self.keys))
                .map_err(|e| self.locate(e, handle))?;
        }
        for &handle in &self.meta_blocks {
            self.fetch.block(handle, Role::Meta, true)?;
        }
        if let Some(handle) = self.meta_handle(open::PROPERTIES) {
            open::read_properties(&self.fetch, handle)?;
        }
        Ok(())
    }
}
