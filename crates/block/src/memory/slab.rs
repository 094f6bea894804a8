//! Memory for payloads that come: whole pages, cut from larger pieces.
//!
//! An allocation of its own for each block of 4 KiB at a page's boundary takes twice its size, as the allocator's head
//! of the next one lies between. What comes together is forgotten together, but for blocks, which are copied
//! ([`Pages`](super::pages::Pages)); so pieces are free in the order in which they were taken. Larger payloads have
//! [`Buffers`] of their own.

use std::ops::{Deref, DerefMut};

use base::Result;
use bytes::{Bytes, BytesMut};
use io::buffer::PAGE;

use super::buffers::{Buffer, Buffers};
use super::pages::aligned;

/// Bytes of a piece; larger payloads than a quarter have a buffer of their own.
const PIECE: usize = 256 << 10;

/// See the module.
#[derive(Debug, Default)]
pub struct Slab {
    rest: BytesMut,
    buffers: Buffers,
}

/// Place for a payload, with anything in it.
#[derive(Debug)]
pub enum Space {
    /// Of a piece.
    Part(BytesMut),
    /// A buffer of its own.
    Own(Buffer),
}

impl Slab {
    /// One whose large payloads come from `buffers`.
    pub fn new(buffers: Buffers) -> Self {
        Self {
            rest: BytesMut::new(),
            buffers,
        }
    }

    /// So many bytes at a page's boundary. Fails with `Aborted` where memory is short.
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
    /// The bytes, once all are written.
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
