//! How long the scans of a table are, and how long the current one is.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::footer::BLOCK_TRAILER_LEN;
use crate::handle::BlockHandle;

/// How long the scans of a table are: all of its iterators say so, and a new scan reads that much at once.
///
/// Only scans that had to read the file count. After four in a row of about the same length, the next one is expected to be as
/// long as the longest of them. So a few long scans among many seeks cost nothing.
#[derive(Debug, Default)]
pub(crate) struct Scans(AtomicU64);

/// So many scans of about the same length are a habit.
const HABIT: u64 = 4;

impl Scans {
    /// A scan came to blocks of so many bytes in a row.
    fn note(&self, bytes: u64) {
        let bytes = bytes.min(u64::from(u32::MAX));
        let before = self.0.load(Ordering::Relaxed);
        let (usual, times) = (before >> 8, before & 0xff);
        let after = if bytes.max(usual) / 2 <= bytes.min(usual) {
            bytes.max(usual) << 8 | (times + 1).min(HABIT)
        } else {
            bytes << 8 | 1
        };
        // Threads that scan in the same way share the line of memory.
        if after != before {
            self.0.store(after, Ordering::Relaxed);
        }
    }

    /// How many bytes a scan will probably come to; 0 if that is not known.
    fn usual(&self) -> u64 {
        let now = self.0.load(Ordering::Relaxed);
        if now & 0xff == HABIT { now >> 8 } else { 0 }
    }
}

/// The blocks to which an iterator has come in a row.
#[derive(Debug)]
pub(crate) struct Row {
    /// Their bytes.
    bytes: u64,
    /// Where they end in the file.
    end: u64,
    /// Whether the file was read for one of them.
    was_read: bool,
    /// The bytes that they will probably have; 0 is not known.
    usual: u64,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            bytes: 0,
            end: u64::MAX,
            was_read: false,
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
        if self.end == handle.offset {
            self.bytes = self.bytes.saturating_add(len);
            self.end = end;
            return;
        }
        self.end(scans);
        *self = Self {
            bytes: len,
            end,
            was_read: false,
            usual: scans.map_or(0, Scans::usual),
        };
    }

    /// The iterator goes elsewhere.
    pub(crate) fn end(&mut self, scans: Option<&Scans>) {
        // One from the first block of the file on may have begun in the file before.
        if std::mem::take(&mut self.was_read)
            && self.end > self.bytes
            && let Some(scans) = scans
        {
            scans.note(self.bytes);
        }
    }

    /// The iterator has come to the end of the file: how long its scan is will not be known.
    pub(crate) fn forget(&mut self) {
        self.was_read = false;
    }

    /// The file is read for the current block.
    pub(super) fn is_read(&mut self) {
        self.was_read = true;
    }

    /// How many bytes behind the current block will probably be wanted.
    pub(super) fn left(&self) -> usize {
        usize::try_from(self.usual.saturating_sub(self.bytes)).unwrap_or(usize::MAX)
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
        assert_eq!(after(&[22, 50, 47]), 50);
        assert_eq!(after(&[20]), 0);
        assert_eq!(after(&[20, 20]), 0);
        assert_eq!(after(&[20]), 20);
        assert_eq!(after(&[u64::MAX]), 0);
        assert_eq!(after(&[u64::MAX; 3]), u64::from(u32::MAX));
    }
}
