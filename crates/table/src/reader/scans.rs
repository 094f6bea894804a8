//! How long the scans of a table are, and how long the current one is.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::footer::BLOCK_TRAILER_LEN;
use crate::handle::BlockHandle;

/// How long the scans of a table are: all of its iterators say so, and a new scan reads that much at once.
///
/// Only what scans had to read from the file counts. After four in a row of about the same length, the next one is expected to
/// be as long as the longest of them. So a few long scans among many seeks cost nothing.
#[derive(Debug, Default)]
pub(crate) struct Scans(AtomicU64);

/// So many scans of about the same length are a habit.
const HABIT: u64 = 4;

impl Scans {
    /// A scan read so many bytes of blocks in a row; 0 if it was a block.
    fn note(&self, bytes: u64) {
        let bytes = bytes.min(u64::from(u32::MAX));
        let before = self.0.load(Ordering::Relaxed);
        let (usual, times) = (before >> 8, before & 0xff);
        let (least, most) = (bytes.min(usual), bytes.max(usual));
        let after = if most < 2 * least {
            most << 8 | (times + 1).min(HABIT)
        } else {
            bytes << 8 | 1
        };
        // Threads that scan in the same way share the line of memory.
        if after != before {
            self.0.store(after, Ordering::Relaxed);
        }
    }

    /// How many bytes a scan will probably read; 0 if that is not known.
    fn usual(&self) -> u64 {
        let now = self.0.load(Ordering::Relaxed);
        if now & 0xff == HABIT { now >> 8 } else { 0 }
    }
}

/// The blocks to which an iterator has come in a row.
#[derive(Debug)]
pub(crate) struct Row {
    /// Where they begin and end in the file.
    start: u64,
    end: u64,
    /// How many there are, and the bytes of those that were not in the cache.
    blocks: u64,
    read: u64,
    /// Whether the iterator goes backwards.
    is_reverse: bool,
    /// The bytes that will probably be read; 0 is not known.
    usual: u64,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            start: u64::MAX,
            end: u64::MAX,
            blocks: 0,
            read: 0,
            is_reverse: false,
            usual: 0,
        }
    }
}

impl Row {
    /// The iterator comes to this block. Without `scans`, nothing is expected.
    pub(crate) fn come_to(&mut self, handle: BlockHandle, scans: Option<&Scans>) {
        // A damaged index may name places that no file has.
        let len = handle.size.saturating_add(BLOCK_TRAILER_LEN);
        let end = handle.offset.saturating_add(len);
        if self.end == end {
            return; // it is there already
        }
        if self.end == handle.offset && !self.is_reverse {
            self.end = end;
            self.blocks += 1;
            return;
        }
        if self.start == end {
            self.start = handle.offset;
            self.is_reverse = true;
            return;
        }
        self.end(scans);
        *self = Self {
            start: handle.offset,
            end,
            blocks: 1,
            read: 0,
            is_reverse: false,
            usual: scans.map_or(0, Scans::usual),
        };
    }

    /// The iterator goes elsewhere.
    pub(crate) fn end(&mut self, scans: Option<&Scans>) {
        let read = std::mem::take(&mut self.read);
        // One from the first block of the file on may have begun in the file before.
        let is_whole = self.start > 0 && !self.is_reverse;
        if let Some(scans) = scans.filter(|_| is_whole && read > 0) {
            scans.note(if self.blocks > 1 { read } else { 0 });
        }
    }

    /// The iterator has come to the end of the file: how long its scan is will not be known.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The current block, which has so many bytes, was not in the cache.
    pub(super) fn is_read(&mut self, len: usize) {
        self.read = self.read.saturating_add(len as u64);
    }

    /// How many bytes behind the current block, which has `len`, will probably be read.
    pub(super) fn left(&self, len: usize) -> usize {
        let known = self.read.saturating_add(len as u64);
        let left = if self.is_reverse {
            0
        } else {
            self.usual.saturating_sub(known)
        };
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    pub(super) fn is_reverse(&self) -> bool {
        self.is_reverse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_scans_of_about_the_same_length_are_a_habit() {
        let scans = Scans::default();
        let after = |lengths: &[u64]| {
            for bytes in lengths {
                scans.note(*bytes);
            }
            scans.usual()
        };
        assert_eq!(after(&[]), 0);
        assert_eq!(after(&[40, 44, 39]), 0);
        assert_eq!(after(&[41]), 44);
        assert_eq!(after(&[23, 45, 47]), 47);
        assert_eq!(after(&[20]), 0);
        assert_eq!(after(&[20, 0, 20, 20]), 0, "a seek is not a scan");
        assert_eq!(after(&[20, 20]), 20);
        assert_eq!(after(&[40]), 0, "twice as long");
        assert_eq!(after(&[u64::MAX]), 0);
        assert_eq!(after(&[u64::MAX; 3]), u64::from(u32::MAX));
    }
}
