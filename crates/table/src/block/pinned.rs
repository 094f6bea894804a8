//! Values that keep their block in memory.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use super::Block;

/// A value that a lookup visits.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    block: &'a Block,
    bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// A value in `block`.
    #[inline]
    pub(crate) fn new(block: &'a Block, bytes: &'a [u8]) -> Self {
        Self { block, bytes }
    }

    /// The bytes of the value.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// A reference to `part` of this value that keeps the block in memory. `None` if `part` is elsewhere.
    pub fn pin(self, part: &[u8]) -> Option<PinnedBytes> {
        let memory = &self.block.memory;
        let from = part.as_ptr().addr().checked_sub(memory.as_ptr().addr())?;
        let range = from..from.checked_add(part.len())?;
        memory.get(range.clone()).map(|_| PinnedBytes {
            memory: Arc::clone(memory),
            range,
        })
    }
}

/// Bytes of a value in a block, which stays in memory while this lives.
#[derive(Clone)]
pub struct PinnedBytes {
    memory: Arc<[u8]>,
    range: Range<usize>,
}

impl Deref for PinnedBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.memory.get(self.range.clone()).unwrap_or_default()
    }
}

impl fmt::Debug for PinnedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PinnedBytes").field(&&**self).finish()
    }
}

#[cfg(test)]
mod tests {
    use base::Comparator;

    use super::*;

    #[test]
    fn only_what_is_in_the_block_is_pinned() {
        let mut stored = vec![0, 1, 5];
        stored.extend(b"kvalue");
        stored.extend(0u32.to_le_bytes());
        stored.extend(1u32.to_le_bytes());
        let block = Block::searchable(&stored, &Comparator::bytewise()).unwrap();
        let at = block.memory.windows(5).position(|w| w == b"value").unwrap();
        let bytes = block.memory.get(at..at + 5).unwrap();
        let value = Value::new(&block, bytes);
        assert!(value.pin(b"value").is_none(), "equal, but elsewhere");
        let whole = value.pin(bytes).unwrap();
        let part = value.pin(bytes.get(2..).unwrap()).unwrap();
        drop(block);
        assert_eq!((&*whole, &*part), (&b"value"[..], &b"lue"[..]));
    }
}
