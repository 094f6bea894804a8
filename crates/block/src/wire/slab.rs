//! Memory for payloads that come: whole pages, cut from larger pieces.
//!
//! An allocation of its own for each block of 4 KiB at a page's boundary takes twice its size, as the allocator's head
//! of the next one lies between. What comes together is forgotten together, but for blocks, which are copied
//! ([`Pages`](crate::pages::Pages)); so pieces are free in the order in which they were taken.

use bytes::BytesMut;
use io::buffer::PAGE;

use crate::pages::aligned;

/// Bytes of a piece; larger payloads have one of their own.
const PIECE: usize = 256 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Slab {
    rest: BytesMut,
}

impl Slab {
    /// So many zeros at a page's boundary.
    pub(super) fn take(&mut self, len: usize) -> BytesMut {
        let whole = len.next_multiple_of(PAGE);
        if whole > PIECE / 4 {
            return aligned(whole).split_to(len);
        }
        if self.rest.len() < whole {
            self.rest = aligned(PIECE);
        }
        self.rest.split_to(whole).split_to(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_lie_at_pages_and_not_on_each_other() {
        let mut slab = Slab::default();
        let mut all = Vec::new();
        for (n, len) in [1, 4096, 5000, 70_000, 4096, 0, 300_000, 65_536]
            .into_iter()
            .cycle()
            .take(200)
            .enumerate()
        {
            let mut buf = slab.take(len);
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|&b| b == 0));
            assert!(len == 0 || (buf.as_ptr() as usize).is_multiple_of(PAGE));
            buf.fill(n as u8 | 1);
            all.push((n as u8 | 1, buf.freeze()));
        }
        for (byte, buf) in all {
            assert!(buf.iter().all(|&b| b == byte));
        }
    }
}
