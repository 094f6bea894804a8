//! RocksDB's Standard128 Ribbon filter: it takes less memory than Bloom, and more work to build.
//!
//! ```text
//! data: segments of 128 bits        m0 = 0xfe  m1 = seed  m2…m4 = u24 blocks (at least 2)
//!
//!   columns:      c-1 or c segments per block; a block is 128 slots
//!   block 0 | block 1 | …           the first `upper` blocks have c-1 columns, the others c
//! ```
//! The filter is the solution of a system of linear equations over bits. The hash of a key determines
//! a start slot, 128 coefficients for the slots from there on, and the expected result in each column.
//! The filter matches the key if the products agree in every column. The 128 slots of a key may extend
//! from its block into the next one, whose segments follow directly.
//!
//! Building is Gaussian elimination, which is cheap because a key's coefficients lie close together:
//! each equation is transformed to start at a slot at which no other starts. If an equation contradicts
//! the others, the next seed is tried. Slots that no equation determines are zero, so for the same
//! seed, slots and columns the filter equals RocksDB's, byte by byte.
#![deny(clippy::indexing_slicing)]

use super::METADATA_LEN;

/// Maximum number of keys: more do not fit RocksDB's lengths.
const KEYS_MAX: usize = 950_000_000;
/// Number of sizes that are tried: once all seeds have failed, the next try has a few more slots.
const SIZES_MAX: usize = 3;
const COLUMNS_MAX: usize = 32;
const SLOTS_PER_BLOCK: u64 = 128;
const SEGMENT_LEN: usize = 16;

/// A decoded filter.
#[derive(Debug)]
pub(super) struct Ribbon {
    segments: Box<[u128]>,
    shape: Shape,
}

/// What the metadata and the length of the data say.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Mixed into each hash; chosen by the builder so that the equations had a solution.
    seed: u64,
    /// Number of slots where a key may start.
    starts: u64,
    /// Columns of the larger blocks.
    columns: usize,
    /// Index of the first block with `columns` columns.
    upper: usize,
}

impl Shape {
    /// The shape of a filter of `segments` segments. `None` if there are fewer than two blocks: such a filter matches every
    /// key.
    fn of(segments: usize, metadata: [u8; METADATA_LEN]) -> Option<Self> {
        let [_, ordinal, a, b, c] = metadata;
        let blocks = u32::from_le_bytes([a, b, c, 0]);
        if blocks < 2 {
            return None;
        }
        let columns = segments.div_ceil(blocks as usize).min(COLUMNS_MAX);
        Some(Self {
            seed: raw_seed(ordinal),
            starts: u64::from(blocks) * SLOTS_PER_BLOCK - 127,
            columns,
            upper: (columns * blocks as usize).saturating_sub(segments),
        })
    }

    /// Whether the segments, as `read` reads them, match the hash.
    #[inline]
    fn may_match<S>(&self, segments: &[S], hash: u64, read: impl Fn(&S) -> u128) -> bool {
        let Equation {
            start,
            row,
            expected,
        } = Equation::of(hash ^ self.seed, self.starts);
        let block = (start / SLOTS_PER_BLOCK) as usize;
        let shift = (start % SLOTS_PER_BLOCK) as u32;
        let columns = self.columns - usize::from(block < self.upper);
        let first = block * self.columns - block.min(self.upper);
        let here = row << shift;
        // The part of the row in the next block: nothing if it starts at the block's first slot.
        let next = row.checked_shr(128 - shift).unwrap_or(0);
        let span = if next == 0 { columns } else { 2 * columns };
        let Some(segments) = segments.get(first..first + span) else {
            return true;
        };
        let (low, high) = segments.split_at(columns);
        low.iter().enumerate().all(|(i, segment)| {
            let product = (read(segment) & here) ^ (high.get(i).map_or(0, &read) & next);
            product.count_ones() & 1 == (expected >> i) & 1
        })
    }
}

/// [`Ribbon::may_match`] of a filter that is not decoded; `None` as [`Ribbon::new`].
pub(super) fn may_match_in(data: &[u8], metadata: [u8; METADATA_LEN], hash: u64) -> Option<bool> {
    let (segments, _) = data.as_chunks::<SEGMENT_LEN>();
    let shape = Shape::of(segments.len(), metadata)?;
    Some(shape.may_match(segments, hash, |s| u128::from_le_bytes(*s)))
}

impl Ribbon {
    /// `None` if there are fewer than two blocks: such a filter matches every key.
    pub(super) fn new(data: &[u8], metadata: [u8; METADATA_LEN]) -> Option<Self> {
        let (segments, _) = data.as_chunks::<SEGMENT_LEN>();
        let shape = Shape::of(segments.len(), metadata)?;
        let segments = segments.iter().map(|s| u128::from_le_bytes(*s)).collect();
        Some(Self { segments, shape })
    }

    pub(super) fn may_match(&self, hash: u64) -> bool {
        self.shape.may_match(&self.segments, hash, |&s| s)
    }

    pub(super) fn data_len(&self) -> usize {
        self.segments.len() * SEGMENT_LEN
    }
}

/// The equation of a key: the sum of the slots from `start` on that `row` selects must equal
/// `expected`, column by column.
struct Equation {
    start: u64,
    row: u128,
    expected: u32,
}

impl Equation {
    #[inline]
    fn of(seeded_hash: u64, starts: u64) -> Self {
        let h = seeded_hash.wrapping_mul(0x6193_d459_236a_3a0d);
        let a = h.wrapping_mul(0xc28f_8282_2b65_0bed);
        Self {
            start: ((u128::from(h) * u128::from(starts)) >> 64) as u64,
            row: (u128::from(a) << 64 ^ u128::from(a) ^ 0xc367_844a_6e52_731d) | 1,
            expected: a.swap_bytes() as u32,
        }
    }
}

/// The equations in echelon form, at most one for each slot.
struct Banding {
    rows: Vec<u128>,
    results: Vec<u32>,
}

impl Banding {
    /// `None` if two equations contradict each other.
    fn solve(hashes: &[u64], seed: u64, slots: usize) -> Option<Self> {
        let mut band = Self {
            rows: vec![0; slots],
            results: vec![0; slots],
        };
        let starts = slots as u64 - 127;
        for &hash in hashes {
            let Equation {
                start,
                mut row,
                mut expected,
            } = Equation::of(hash ^ seed, starts);
            let mut slot = start as usize;
            loop {
                let (here, result) = (band.rows.get_mut(slot)?, band.results.get_mut(slot)?);
                if *here == 0 {
                    (*here, *result) = (row, expected);
                    break;
                }
                row ^= *here;
                expected ^= *result;
                if row == 0 {
                    if expected != 0 {
                        return None;
                    }
                    break;
                }
                let shift = row.trailing_zeros();
                row >>= shift;
                slot += shift as usize;
            }
        }
        Some(band)
    }

    /// The solution, in interleaved columns, computed from the last slot down.
    fn back_substitute(&self, layout: &Layout) -> Vec<u8> {
        let mut segments = vec![0u128; layout.segments()];
        let mut columns = [0u128; COLUMNS_MAX];
        for (slot, (&row, &result)) in self.rows.iter().zip(&self.results).enumerate().rev() {
            for (j, state) in columns.iter_mut().enumerate().take(layout.columns) {
                let shifted = *state << 1;
                let parity = (shifted & row).count_ones() & 1;
                *state = shifted | u128::from(parity ^ (result >> j) & 1);
            }
            if slot % SLOTS_PER_BLOCK as usize == 0 {
                let block = slot / SLOTS_PER_BLOCK as usize;
                let to = segments.iter_mut().skip(layout.first_segment(block));
                for (to, state) in to.zip(columns.iter().take(layout.columns_of(block))) {
                    *to = *state;
                }
            }
        }
        segments.iter().flat_map(|s| s.to_le_bytes()).collect()
    }
}

/// How the solution is divided into segments.
#[derive(Clone, Copy, Debug)]
struct Layout {
    blocks: usize,
    /// Columns of the larger blocks.
    columns: usize,
    /// Number of blocks at the start that have one column less.
    upper: usize,
}

impl Layout {
    /// The layout for `blocks` blocks and a false positive rate of one in `one_in`.
    fn new(blocks: usize, one_in: f64) -> Self {
        let lower = one_in.log2().floor().clamp(1.0, COLUMNS_MAX as f64 - 1.0);
        // This part of the blocks has `lower` columns, the rest one more.
        let part = (2f64.powf(lower + 1.0) / one_in - 1.0).clamp(0.0, 1.0);
        Self {
            blocks,
            columns: lower as usize + 1,
            upper: (part * blocks as f64) as usize,
        }
    }

    fn segments(&self) -> usize {
        self.blocks * self.columns - self.upper
    }

    fn first_segment(&self, block: usize) -> usize {
        block * self.columns - block.min(self.upper)
    }

    fn columns_of(&self, block: usize) -> usize {
        self.columns - usize::from(block < self.upper)
    }
}

/// Number of blocks of 128 slots for `keys` keys. The share of spare slots grows with the number of
/// keys, so that the equations have a solution for most seeds.
fn blocks_for(keys: usize) -> usize {
    let slack = 1.01 + 0.0042 * (keys.max(1) as f64).log2();
    let slots = (keys as f64 * slack) as usize;
    slots.div_ceil(SLOTS_PER_BLOCK as usize).max(2)
}

/// Size in bytes of the filter block of `keys` keys; `None` if there are too many.
pub(super) fn size_for(keys: usize, one_in: f64) -> Option<usize> {
    let layout = Layout::new(blocks_for(keys), one_in);
    (keys <= KEYS_MAX).then(|| layout.segments() * SEGMENT_LEN + METADATA_LEN)
}

/// The filter block of keys with these hashes, with a false positive rate of one in `one_in`; `None`
/// if there are too many keys, or no solution was found.
pub(super) fn build(hashes: &[u64], one_in: f64) -> Option<Vec<u8>> {
    build_from(hashes, one_in, *hashes.first()? as u8)
}

/// Like [`build`], trying seeds from `first_seed` on.
pub(super) fn build_from(hashes: &[u64], one_in: f64, first_seed: u8) -> Option<Vec<u8>> {
    if hashes.len() > KEYS_MAX {
        return None;
    }
    let mut blocks = blocks_for(hashes.len());
    for _ in 0..SIZES_MAX {
        let slots = blocks * SLOTS_PER_BLOCK as usize;
        let solve = |ordinal| Some((ordinal, Banding::solve(hashes, raw_seed(ordinal), slots)?));
        let mut seeds = (0..=u8::MAX).map(|i| first_seed.wrapping_add(i));
        if let Some((ordinal, band)) = seeds.find_map(solve) {
            let mut out = band.back_substitute(&Layout::new(blocks, one_in));
            let [a, b, c, _] = (blocks as u32).to_le_bytes();
            out.extend_from_slice(&[0xfe, ordinal, a, b, c]);
            return Some(out);
        }
        blocks += blocks / 20 + 1;
    }
    None
}

/// The seed for an ordinal, which the filter stores.
fn raw_seed(ordinal: u8) -> u64 {
    let mut raw = u64::from(ordinal).wrapping_mul(0xc782_19a2_3eea_dd03);
    raw ^= (raw & 0xf0f0_f0f0_f0f0_f0f0) >> 4;
    raw & 0xffff_ffff
}
