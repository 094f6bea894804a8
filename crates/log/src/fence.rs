//! Sync fences: what was durable when, written into the log itself.
//!
//! A log whose end is damaged may have lost its last, unsynced records in a crash (a torn tail),
//! or records that were durable (corruption). The bytes at the damage cannot tell. So each synced
//! group carries a fence: everything of this log before [`Fence::durable`] was durable before the
//! group was submitted. Damage below a fence that can still be read is corruption.
//!
//! ```text
//!   magic "ISfence1" | log number u64 | durable u64 | previous log u64 | its end u64 | crc u32
//! ```
//!
//! Little-endian; the crc is masked CRC-32C of the 40 bytes before it. A fence is found by its
//! magic and believed for its own checksum and log number, so it counts even where the record
//! around it can no longer be reached. The engine writes it as a `LogData` entry of a batch, which
//! every RocksDB ignores.
//!
//! The last group of a log has no fence behind it: damage there stays ambiguous and is cut off.
#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use base::Result;
use base::checksum::{crc32c, mask, unmask};
use base::coding::Decoder;
use io::File;

use crate::format::{BLOCK, LEGACY_HEADER, RECYCLABLE_HEADER};

/// How a fence begins.
pub const MAGIC: [u8; 8] = *b"ISfence1";
/// Bytes of a fence.
pub const LEN: usize = 44;
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
}

impl Fence {
    /// Its bytes.
    pub fn encode(&self) -> [u8; LEN] {
        seal(
            MAGIC,
            &[
                self.log_number,
                self.durable,
                self.previous_log,
                self.previous_end,
            ],
        )
    }

    /// The fence at the start of `bytes`, if there is one with a right checksum.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut d = unseal::<LEN>(MAGIC, bytes)?;
        Some(Self {
            log_number: d.u64()?,
            durable: d.u64()?,
            previous_log: d.u64()?,
            previous_end: d.u64()?,
        })
    }
}

/// A statement of `N` bytes: the magic, the fields, and a masked CRC-32C of both.
pub(crate) fn seal<const N: usize>(magic: [u8; 8], fields: &[u64]) -> [u8; N] {
    let mut out = [0; N];
    let fields = fields.iter().flat_map(|f| f.to_le_bytes());
    let body: Vec<u8> = magic.into_iter().chain(fields).collect();
    let crc = mask(crc32c(&body)).to_le_bytes();
    for (to, from) in out.iter_mut().zip(body.iter().chain(&crc)) {
        *to = *from;
    }
    out
}

/// The fields of the statement at the start of `bytes`, if there is one with a right checksum.
pub(crate) fn unseal<const N: usize>(magic: [u8; 8], bytes: &[u8]) -> Option<Decoder<'_>> {
    let (body, crc) = bytes.get(..N)?.split_last_chunk::<4>()?;
    if !body.starts_with(&magic) || crc32c(body) != unmask(u32::from_le_bytes(*crc)) {
        return None;
    }
    Some(Decoder::new(body.get(magic.len()..)?))
}

/// Where in `bytes` the magic lies, from `from` on.
pub(crate) fn find_magic(magic: [u8; 8], bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    // By the last byte of a candidate: most of a log, the zeros at its end above all, is stepped
    // over eight bytes at a time.
    while let Some(candidate) = bytes.get(at..at + magic.len()) {
        let last = *candidate.last()?;
        if candidate == magic {
            return Some(at);
        }
        let before = magic.split_last()?.1;
        at += before
            .iter()
            .rev()
            .position(|&b| b == last)
            .map_or(magic.len(), |back| back + 1);
    }
    None
}

/// Looks for the fences of log `log_number` from byte `from` of the file on, and returns the one
/// that proves most to be durable.
pub fn strongest(file: &Arc<dyn File>, log_number: u64, from: u64) -> Result<Option<Fence>> {
    let mut best: Option<Fence> = None;
    let mut at = from - from % BLOCK as u64;
    let left = usize::try_from(file.len()?.saturating_sub(at)).unwrap_or(WINDOW);
    let mut buf = vec![0; WINDOW.min(left)];
    loop {
        let n = file.read_at(&mut buf, at)?;
        let bytes = buf.get(..n).unwrap_or_default();
        each_fence(bytes, &mut |fence| {
            let better = best.is_none_or(|b| b.durable < fence.durable);
            if fence.log_number == log_number && better {
                best = Some(fence);
            }
        });
        if n < WINDOW {
            return Ok(best);
        }
        // One block again: a fence may reach over the end of the window.
        at += (WINDOW - BLOCK) as u64;
    }
}

/// Calls `visit` for every fence in `bytes`, which begin at a block boundary: those that lie in one
/// piece, and those that a block's header cuts in two.
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
    while let Some(at) = find_magic(MAGIC, bytes, from) {
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
    };

    #[test]
    fn a_fence_round_trips_and_every_bit_counts() {
        let bytes = FENCE.encode();
        assert_eq!(Fence::decode(&bytes), Some(FENCE));
        for bit in 0..LEN * 8 {
            let mut bad = bytes;
            if let Some(b) = bad.get_mut(bit / 8) {
                *b ^= 1 << (bit % 8);
            }
            assert_eq!(Fence::decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn fences_are_found_wherever_they_lie() {
        let fence = FENCE.encode();
        for at in [0, 5, BLOCK - LEN, 2 * BLOCK + 100] {
            let mut bytes = vec![0; 3 * BLOCK];
            bytes.splice(at..at + LEN, fence);
            let mut found = Vec::new();
            each_fence(&bytes, &mut |f| found.push(f));
            assert!(found.contains(&FENCE), "at {at}");
        }
        for (header, cut) in [
            (LEGACY_HEADER, 1),
            (LEGACY_HEADER, 43),
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
