//! The merge operands of one key, in one buffer: a key may have very many. A thread keeps the buffer for its next key.

use std::cell::Cell;

/// A larger buffer is not kept for the next key.
const KEPT_MAX: usize = 1 << 20;

thread_local! {
    static SPARE: Cell<Buffers> = const { Cell::new(Buffers::new()) };
}

/// See the module.
#[derive(Debug)]
pub(super) struct Operands(Buffers);

#[derive(Debug, Default)]
struct Buffers {
    bytes: Vec<u8>,
    /// Where each operand ends in `bytes`.
    ends: Vec<usize>,
}

impl Buffers {
    const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

impl Operands {
    pub(super) const fn new() -> Self {
        Self(Buffers::new())
    }

    pub(super) fn push(&mut self, operand: &[u8]) {
        if self.0.ends.capacity() == 0 {
            self.0 = SPARE.try_with(Cell::take).unwrap_or_default();
        }
        self.0.bytes.extend_from_slice(operand);
        self.0.ends.push(self.0.bytes.len());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.ends.is_empty()
    }

    pub(super) fn clear(&mut self) {
        if self.0.len() > KEPT_MAX {
            self.0 = Buffers::new();
        }
        self.0.bytes.clear();
        self.0.ends.clear();
    }

    /// The operands in the order in which they were added.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let Buffers { bytes, ends } = &self.0;
        let begin = |i: usize| i.checked_sub(1).and_then(|i| ends.get(i)).copied();
        let each = ends.iter().enumerate();
        each.map(move |(i, &end)| bytes.get(begin(i).unwrap_or(0)..end).unwrap_or_default())
    }
}

impl Drop for Operands {
    fn drop(&mut self) {
        if self.0.ends.capacity() > 0 {
            self.clear();
            let buffers = std::mem::take(&mut self.0);
            // While the thread ends, there may be nothing left to keep it in.
            SPARE.try_with(|spare| spare.set(buffers)).unwrap_or(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_come_back_in_both_orders() {
        let mut operands = Operands::new();
        for operand in [&b"a"[..], b"", b"bcd"] {
            operands.push(operand);
        }
        let forward: Vec<&[u8]> = operands.iter().collect();
        assert_eq!(forward, [&b"a"[..], b"", b"bcd"]);
        let backward: Vec<&[u8]> = operands.iter().rev().collect();
        assert_eq!(backward, [&b"bcd"[..], b"", b"a"]);
    }

    #[test]
    fn a_buffer_is_kept_for_the_next_key_unless_it_is_large() {
        let filled = |len| {
            let mut operands = Operands::new();
            operands.push(&vec![1; len]);
            let at = operands.0.bytes.as_ptr();
            assert_eq!(operands.iter().count(), 1);
            at
        };
        assert_eq!(filled(1000), filled(1000));
        filled(KEPT_MAX + 1);
        assert_eq!(SPARE.take().len(), 0);
    }
}
