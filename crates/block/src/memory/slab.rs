//! Memory for incoming payloads: whole pages, cut from larger pieces.
//!
//! A page-aligned allocation for each block of 4 KiB would take twice its size, because the allocator's header
//! of the next one lies in between. Payloads that arrive together are freed together, except for blocks that
//! stay, which are copied ([`Pages`](super::pages::Pages)). So pieces become free in the order in which they
//! were allocated. Larger payloads have [`Buffers`] of their own.

use std::ops::{Deref, DerefMut};

use base::Result;
use bytes::{Bytes, BytesMut};
use io::buffer::PAGE;

use super::buffers::{Buffer, Buffers};
use super::pages::aligned;

/// Bytes of a piece. A payload of more than a quarter has a buffer of its own.
const PIECE: usize = 256 << 10;

/// Hands out memory for payloads.
#[derive(Debug, Default)]
pub struct Slab {
    rest: BytesMut,
    buffers: Buffers,
}

/// Memory for a payload, with arbitrary content.
#[derive(Debug)]
pub enum Space {
    /// A part of a piece.
    Part(BytesMut),
    /// A buffer of its own.
    Own(Buffer),
}

impl Slab {
    /// A slab that takes large payloads' memory from `buffers`.
    pub fn new(buffers: Buffers) -> Self {
        Self {
            rest: BytesMut::new(),
            buffers,
        }
    }

    /// `len` bytes at a page boundary. Fails with `Aborted` if memory is short.
    pub fn take(&mut self, len: usize) -> Result<Space> {
        let whole = len.next_multiple_of(PAGE);
        if whole > PIECE / 4 {
            return self.buffers.take(len).map(Space::Own);
        }
        if self.rest.len() < whole {
            self.rest = aligned(PIECE);
        }
        Ok(Space::Part(self.rest.split_to(whole).split_to(len)))
    }
}

impl Space {
    /// The bytes, once all of them are written.
    pub fn freeze(self) -> Bytes {
        match self {
            Self::Part(part) => part.freeze(),
            Self::Own(buffer) => buffer.into(),
        }
    }
}

impl Deref for Space {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Part(part) => part,
            Self::Own(buffer) => buffer,
        }
    }
}

impl DerefMut for Space {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Part(part) => part,
            Self::Own(buffer) => buffer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_lie_at_pages_and_not_on_each_other() {
        let mut slab = Slab::new(Buffers::default());
        let mut all = Vec::new();
        for (n, len) in [1, 4096, 5000, 70_000, 4096, 0, 300_000, 65_536]
            .into_iter()
            .cycle()
            .take(200)
            .enumerate()
        {
            let mut buf = slab.take(len).unwrap();
            assert_eq!(buf.len(), len);
            assert!(len == 0 || (buf.as_ptr() as usize).is_multiple_of(PAGE));
            buf.fill(n as u8 | 1);
            all.push((n as u8 | 1, buf.freeze()));
        }
        for (byte, buf) in all {
            assert!(buf.iter().all(|&b| b == byte));
        }
    }
}
