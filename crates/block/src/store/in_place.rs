//! Blocks that are written in place before their write is answered: `apply_sync = odsync`.
//!
//! Such blocks are still dirty, because their pages do not record them yet. The next write-back skips the
//! blocks and writes the pages.

use std::sync::Arc;

use base::Result;
use bytes::Bytes;
use io::queue::{Act, Request};
use io::{File, WriteSync};

use super::data::Reader;
use super::dirty::Key;
use crate::ids::Group;

/// A durable in-place write of adjacent blocks.
#[derive(Clone, Debug)]
#[must_use = "somebody waits for it"]
pub struct InPlace {
    file: Arc<dyn File>,
    offset: u64,
    bytes: Bytes,
}

impl InPlace {
    /// Writes the blocks; returns when they are durable.
    pub fn run(&self) -> Result<()> {
        io::write_all_at(&*self.file, &self.bytes, self.offset, WriteSync::Dsync)
    }

    /// The same as a request for a queue.
    pub fn request(self, token: u64) -> Request {
        Request {
            token,
            file: self.file,
            offset: self.offset,
            act: Act::Write(vec![self.bytes], WriteSync::Dsync),
        }
    }
}

impl Reader {
    /// The in-place write of a chunk's blocks from `first` on; the chunk gets a slot if it has none. Errors: no
    /// slot is free.
    pub fn in_place(&self, group: Group, first: &Key, bytes: Bytes) -> Result<InPlace> {
        Ok(InPlace {
            file: Arc::clone(self.file()),
            offset: self.claim(group, first)?,
            bytes,
        })
    }
}
