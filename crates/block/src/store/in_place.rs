//! Blocks that are written to their place before anybody is answered: `apply_sync = odsync`, how it was done before.
//!
//! What is written so is still dirty, as its page does not know of it. The next write-back leaves the block out, and
//! writes the page.

use std::sync::Arc;

use base::Result;
use bytes::Bytes;
use io::queue::{Act, Request};
use io::{File, WriteSync};

use super::data::Reader;
use super::dirty::Key;
use crate::ids::Group;

/// Blocks that lie one behind the other, on their way to their place, durably.
#[derive(Clone, Debug)]
#[must_use = "somebody waits for it"]
pub struct InPlace {
    file: Arc<dyn File>,
    offset: u64,
    bytes: Bytes,
}

impl InPlace {
    /// Writes them, and returns when they are durable.
    pub fn run(&self) -> Result<()> {
        io::write_all_at(&*self.file, &self.bytes, self.offset, WriteSync::Dsync)
    }

    /// The same, for a queue to do.
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
    /// Blocks of a chunk from `first` on, for their place; the chunk has a slot from then on. Errors: no slot is free.
    pub fn in_place(&self, group: Group, first: &Key, bytes: Bytes) -> Result<InPlace> {
        Ok(InPlace {
            file: Arc::clone(self.file()),
            offset: self.claim(group, first)?,
            bytes,
        })
    }
}
