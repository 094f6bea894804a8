//! Block handles: where a block lies in its file.
//!
//! ```text
//! varint64 offset | varint64 size        size excludes the 5-byte block trailer
//! ```
//! Footers, the metaindex and index entries use this encoding.
#![deny(clippy::indexing_slicing)]

use base::coding::{Decoder, put_varint};

/// Offset and size of a block, both in bytes.
///
/// ```
/// use base::coding::Decoder;
/// use table::handle::BlockHandle;
/// let mut bytes = Vec::new();
/// BlockHandle { offset: 300, size: 7 }.encode(&mut bytes);
/// let back = BlockHandle::decode(&mut Decoder::new(&bytes));
/// assert_eq!(back, Some(BlockHandle { offset: 300, size: 7 }));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockHandle {
    /// Byte offset of the block's first byte in the file.
    pub offset: u64,
    /// Stored bytes of the block, without its trailer.
    pub size: u64,
}

impl BlockHandle {
    /// Appends the two varints.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.size);
    }

    /// Reads the two varints; `None` if the input is too short.
    #[inline]
    pub fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let offset = from.varint64()?;
        let size = from.varint64()?;
        Some(Self { offset, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(offset: u64, size: u64) {
            let handle = BlockHandle { offset, size };
            let mut bytes = Vec::new();
            handle.encode(&mut bytes);
            let mut from = Decoder::new(&bytes);
            prop_assert_eq!(BlockHandle::decode(&mut from), Some(handle));
            prop_assert!(from.is_empty());
            bytes.pop();
            prop_assert_eq!(BlockHandle::decode(&mut Decoder::new(&bytes)), None);
        }
    }
}
