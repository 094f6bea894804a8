//! RocksDB's Standard128 Ribbon filter, read only: less memory than Bloom, more work to build.
//!
//! ```text
//! data: segments of 128 bits        m0 = 0xfe  m1 = seed  m2…m4 = u24 blocks (at least 2)
//!
//!   columns:      c-1 or c segments per block; a block is 128 slots
//!   block 0 | block 1 | …           the first `upper` blocks have c-1 columns, the others c
//! ```
//! The filter is the solution of a system of linear equations over bits. A key names a slot to
//! start at, 128 coefficients for the slots from there on, and the result it expects in each
//! column; it may be there if the products agree in every column. The 128 slots of a key reach
//! from its block into the next one, whose segments follow directly.
#![deny(clippy::indexing_slicing)]

use super::METADATA_LEN;

const COLUMNS_MAX: usize = 32;
const SLOTS_PER_BLOCK: u64 = 128;
const SEGMENT_LEN: usize = 16;

/// A filter to ask.
#[derive(Debug)]
pub(super) struct Ribbon {
    segments: Box<[u128]>,
    /// Mixed into each hash; chosen by the builder so that the equations had a solution.
    seed: u64,
    /// Slots where a key may start.
    starts: u64,
    /// Columns of the larger blocks.
    columns: usize,
    /// Index of the first block with `columns` columns.
    upper: usize,
}

impl Ribbon {
    /// `None` if there are fewer than two blocks, which stands for "every key".
    pub(super) fn new(data: Vec<u8>, metadata: [u8; METADATA_LEN]) -> Option<Self> {
        let [_, ordinal, a, b, c] = metadata;
        let blocks = u32::from_le_bytes([a, b, c, 0]);
        if blocks < 2 {
            return None;
        }
        let (segments, _) = data.as_chunks::<SEGMENT_LEN>();
        let segments: Box<[u128]> = segments.iter().map(|s| u128::from_le_bytes(*s)).collect();
        let columns = segments.len().div_ceil(blocks as usize).min(COLUMNS_MAX);
        let upper = (columns * blocks as usize).saturating_sub(segments.len());
        Some(Self {
            seed: raw_seed(ordinal),
            starts: u64::from(blocks) * SLOTS_PER_BLOCK - 127,
            columns,
            upper,
            segments,
        })
    }

    pub(super) fn may_match(&self, hash: u64) -> bool {
        let h = (hash ^ self.seed).wrapping_mul(0x6193_d459_236a_3a0d);
        let start = ((u128::from(h) * u128::from(self.starts)) >> 64) as u64;
        let a = h.wrapping_mul(0xc28f_8282_2b65_0bed);
        let row = (u128::from(a) << 64 ^ u128::from(a) ^ 0xc367_844a_6e52_731d) | 1;
        let expected = a.swap_bytes() as u32;

        let block = (start / SLOTS_PER_BLOCK) as usize;
        let shift = (start % SLOTS_PER_BLOCK) as u32;
        let columns = self.columns - usize::from(block < self.upper);
        let first = block * self.columns - block.min(self.upper);
        let here = row << shift;
        // What of the row lies in the next block: nothing if it starts at the block's first slot.
        let next = row.checked_shr(128 - shift).unwrap_or(0);
        let span = if next == 0 { columns } else { 2 * columns };
        let Some(segments) = self.segments.get(first..first + span) else {
            return true;
        };
        let (low, high) = segments.split_at(columns);
        low.iter().enumerate().all(|(i, segment)| {
            let product = (segment & here) ^ (high.get(i).unwrap_or(&0) & next);
            product.count_ones() & 1 == (expected >> i) & 1
        })
    }

    pub(super) fn data_len(&self) -> usize {
        self.segments.len() * SEGMENT_LEN
    }
}

/// The seed that the filter stores as a small number.
fn raw_seed(ordinal: u8) -> u64 {
    let mut raw = u64::from(ordinal).wrapping_mul(0xc782_19a2_3eea_dd03);
    raw ^= (raw & 0xf0f0_f0f0_f0f0_f0f0) >> 4;
    raw & 0xffff_ffff
}
