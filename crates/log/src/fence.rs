//! Sync fences: entries in the log that record how far it was durable.
//!
//! A log whose end is damaged may have lost its last, unsynced records in a crash (a torn tail),
//! or records that were durable (corruption). The damaged bytes alone do not show which. So each
//! synced group carries a fence: everything of this log before [`Fence::durable`] was durable before
//! the group was submitted. Damage below a fence that can still be read is corruption.
//!
//! ```text
//!   magic "ISfence2" | log number u64 | durable u64 | previous log u64 | its end u64
//!                    | nonce u64 | crc u32
//!   magic "ISfence1" | log number u64 | durable u64 | previous log u64 | its end u64 | crc u32
//! ```
//!
//! Little-endian; the crc is masked CRC-32C of the bytes before it. A fence is found by its magic
//! in the bytes of the file, so it counts even where the record around it can no longer be reached.
//! The engine writes it as a `LogData` entry of a batch, which every RocksDB ignores.
//!
//! Most bytes of a log are values, and a value may contain anything, even a copy of another log with
//! its fences. So a fence carries the *nonce* of its log, a random number that no value can know, and
//! only fences with the right nonce count: see [`Trust`]. Older versions wrote the second form,
//! without a nonce.
//!
//! The last group of a log has no fence behind it: damage there stays ambiguous and is cut off.
#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use base::Result;
use io::File;

use crate::format::{BLOCK, LEGACY_HEADER, RECYCLABLE_HEADER};
use crate::statement::Statement;

const STATEMENT: Statement<5> = Statement {
    magic: *b"ISfence2",
    old_magic: *b"ISfence1",
};
/// The prefix of both magics.
const ANY_MAGIC: &[u8] = b"ISfence";
/// Bytes of a fence.
pub const LEN: usize = Statement::<5>::LEN;
/// Bytes read at a time while looking for fences.
const WINDOW: usize = 32 * BLOCK;

/// A statement about what was durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// The log that holds the fence.
    pub log_number: u64,
    /// Everything of that log before this offset was durable.
    pub durable: u64,
    /// The log before it; 0 if there is none.
    pub previous_log: u64,
    /// The end of that log, all of it durable.
    pub previous_end: u64,
    /// The nonce of the log; 0 in the older form, which has none.
    pub nonce: u64,
}

/// Which fences found in a log count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those with this nonce.
    Nonce(u64),
    /// Those of the older form: the log's note is of the older form too.
    Old,
    /// None: the log begins with a whole record that has no note, so its writer wrote no fences.
    Nobody,
    /// All: the note that would tell is damaged, and nothing else has the nonce. Refusing a torn tail
    /// is better than losing durable records.
    Anybody,
}

impl Trust {
    fn accepts(self, fence: &Fence) -> bool {
        match self {
            Self::Nonce(nonce) => fence.nonce == nonce,
            Self::Old => fence.nonce == 0,
            Self::Nobody => false,
            Self::Anybody => true,
        }
    }
}

impl Fence {
    /// Encodes the fence: in the older form if it has no nonce.
    pub fn encode(&self) -> Vec<u8> {
        STATEMENT.encode([
            self.log_number,
            self.durable,
            self.previous_log,
            self.previous_end,
            self.nonce,
        ])
    }

    /// The fence at the start of `bytes`, if there is one with a correct checksum.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Self::with_len(bytes).map(|(fence, _)| fence)
    }

    /// Decodes `bytes` as exactly one fence: `None` if anything follows it.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (fence, len) = Self::with_len(bytes)?;
        (bytes.len() == len).then_some(fence)
    }

    fn with_len(bytes: &[u8]) -> Option<(Self, usize)> {
        let (numbers, len) = STATEMENT.decode(bytes)?;
        let [log_number, durable, previous_log, previous_end, nonce] = numbers;
        let fence = Self {
            log_number,
            durable,
            previous_log,
            previous_end,
            nonce,
        };
        Some((fence, len))
    }
}

/// The position in `bytes` of the first magic at or after `from`.
fn find_magic(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    // Compares the last byte of a candidate first: most of a log, above all the zeros at its end, is
    // skipped seven bytes at a time.
    while let Some(candidate) = bytes.get(at..at + ANY_MAGIC.len()) {
        if candidate == ANY_MAGIC {
            return Some(at);
        }
        let last = *candidate.last()?;
        let before = ANY_MAGIC.split_last()?.1;
        at += before
            .iter()
            .rev()
            .position(|&b| b == last)
            .map_or(ANY_MAGIC.len(), |back| back + 1);
    }
    None
}

/// Searches the file from byte `from` on for fences of log `log_number` that count, and returns the
/// one with the highest [`Fence::durable`]. [`note::trust`](crate::note::trust) says which fences
/// count.
pub fn strongest(
    file: &Arc<dyn File>,
    log_number: u64,
    from: u64,
    trust: Trust,
) -> Result<Option<Fence>> {
    if trust == Trust::Nobody {
        return Ok(None);
    }
    let mut best: Option<Fence> = None;
    let mut at = from - from % BLOCK as u64;
    let left = usize::try_from(file.len()?.saturating_sub(at)).unwrap_or(WINDOW);
    let mut buf = vec![0; WINDOW.min(left)];
    loop {
        let n = file.read_at(&mut buf, at)?;
        let bytes = buf.get(..n).unwrap_or_default();
        each_fence(bytes, &mut |fence| {
            let better = best.is_none_or(|b| b.durable < fence.durable);
            if fence.log_number == log_number && better && trust.accepts(&fence) {
                best = Some(fence);
            }
        });
        if n < WINDOW {
            return Ok(best);
        }
        // The windows overlap by one block: a fence may cross the end of a window.
        at += (WINDOW - BLOCK) as u64;
    }
}

/// Calls `visit` for every fence in `bytes`, which begin at a block boundary: for contiguous fences
/// and for those that a record header at the start of a block splits in two.
fn each_fence(bytes: &[u8], visit: &mut impl FnMut(Fence)) {
    find(bytes, visit);
    for header in [LEGACY_HEADER, RECYCLABLE_HEADER] {
        for boundary in (BLOCK..bytes.len()).step_by(BLOCK) {
            let before = bytes
                .get(boundary.saturating_sub(LEN)..boundary)
                .unwrap_or_default();
            let after = bytes.get(boundary + header..).unwrap_or_default();
            let after = after.get(..LEN).unwrap_or(after);
            find(&[before, after].concat(), visit);
        }
    }
}

fn find(bytes: &[u8], visit: &mut impl FnMut(Fence)) {
    let mut from = 0;
    while let Some(at) = find_magic(bytes, from) {
        if let Some(fence) = Fence::decode(bytes.get(at..).unwrap_or_default()) {
            visit(fence);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCE: Fence = Fence {
        log_number: 9,
        durable: 4096,
        previous_log: 7,
        previous_end: 123,
        nonce: 0x5eed,
    };
    const OLD: Fence = Fence { nonce: 0, ..FENCE };

    #[test]
    fn a_fence_round_trips_and_every_bit_counts() {
        for (fence, len) in [(FENCE, 52), (OLD, 44)] {
            let bytes = fence.encode();
            assert_eq!(bytes.len(), len);
            assert_eq!(Fence::of(&bytes), Some(fence));
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(Fence::decode(&longer), Some(fence));
            assert_eq!(Fence::of(&longer), None);
            for bit in 0..len * 8 {
                let mut bad = bytes.clone();
                if let Some(b) = bad.get_mut(bit / 8) {
                    *b ^= 1 << (bit % 8);
                }
                assert_eq!(Fence::decode(&bad), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn only_fences_that_are_trusted_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("000009.log");
        let stranger = Fence {
            durable: 9000,
            nonce: 0xbad,
            ..FENCE
        };
        let old = Fence {
            durable: 8000,
            ..OLD
        };
        let all = [FENCE, stranger, old].map(|f| f.encode()).concat();
        std::fs::write(&path, all).unwrap();
        let file = io::posix::Posix;
        let file = io::FileSystem::open(&file, &path, io::OpenHow::READ).unwrap();
        for (trust, durable) in [
            (Trust::Nonce(FENCE.nonce), Some(4096)),
            (Trust::Nonce(1), None),
            (Trust::Old, Some(8000)),
            (Trust::Nobody, None),
            (Trust::Anybody, Some(9000)),
        ] {
            let found = strongest(&file, 9, 0, trust).unwrap();
            assert_eq!(found.map(|f| f.durable), durable, "{trust:?}");
        }
    }

    #[test]
    fn fences_are_found_wherever_they_lie() {
        let fence = FENCE.encode();
        for at in [0, 5, BLOCK - LEN, 2 * BLOCK + 100] {
            let mut bytes = vec![0; 3 * BLOCK];
            bytes.splice(at..at + LEN, fence.clone());
            let mut found = Vec::new();
            each_fence(&bytes, &mut |f| found.push(f));
            assert!(found.contains(&FENCE), "at {at}");
        }
        for (header, cut) in [
            (LEGACY_HEADER, 1),
            (LEGACY_HEADER, 51),
            (RECYCLABLE_HEADER, 20),
        ] {
            let (head, tail) = fence.split_at(cut);
            let bytes = [
                &vec![0; BLOCK - cut][..],
                head,
                &vec![7; header],
                tail,
                &[0; 99],
            ]
            .concat();
            let mut found = Vec::new();
            each_fence(&bytes, &mut |f| found.push(f));
            assert!(found.contains(&FENCE), "header {header} cut {cut}");
        }
    }
}
