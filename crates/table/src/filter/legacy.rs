//! The Bloom filter of format versions up to 4, read only, and its 32-bit hash.
//!
//! ```text
//! data: n lines of 2^k bytes (64 as RocksDB writes it)     m0 = probes, m1…m4 = u32 n
//! h = hash32(key); line = h mod n; delta = rotate_right(h, 17)
//! each probe: bit h mod (8·2^k) of the line; then h = h + delta
//! ```
#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;

use super::METADATA_LEN;

/// The seed of filters.
pub(super) const SEED: u32 = 0xbc9f_1d34;
const M: u32 = 0xc6a4_a793;

/// The hash of legacy Bloom filters and of the hash index in data blocks (seed 397). Bytes after
/// the last whole word are sign-extended: a mistake of the original code that files depend on.
///
/// ```
/// assert_eq!(table::filter::hash32(b"", 397), 397);
/// ```
pub fn hash32(data: &[u8], seed: u32) -> u32 {
    let mut h = seed ^ (data.len() as u32).wrapping_mul(M);
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        h = h.wrapping_add(u32::from_le_bytes(*word)).wrapping_mul(M);
        h ^= h >> 16;
    }
    if !tail.is_empty() {
        for (i, &byte) in tail.iter().enumerate() {
            h = h.wrapping_add((i32::from(byte as i8) as u32) << (8 * i));
        }
        h = h.wrapping_mul(M);
        h ^= h >> 24;
    }
    h
}

/// A decoded filter.
#[derive(Debug)]
pub(super) struct Legacy<'a> {
    data: Cow<'a, [u8]>,
    lines: u32,
    line_len_log2: u32,
    probes: u8,
}

impl<'a> Legacy<'a> {
    /// `None` if the data is not divided into lines whose length is a power of two.
    pub(super) fn new(data: &'a [u8], metadata: [u8; METADATA_LEN]) -> Option<Self> {
        let [probes, a, b, c, d] = metadata;
        let lines = u32::from_le_bytes([a, b, c, d]);
        let len = u32::try_from(data.len()).ok()?;
        let line_len = len.checked_div(lines)?;
        if !line_len.is_power_of_two() || len % lines != 0 {
            return None;
        }
        Some(Self {
            data: Cow::Borrowed(data),
            lines,
            line_len_log2: line_len.trailing_zeros(),
            probes,
        })
    }

    /// The filter with its own copy of the data.
    pub(super) fn into_owned(self) -> Legacy<'static> {
        Legacy {
            data: Cow::Owned(self.data.into_owned()),
            ..self
        }
    }

    pub(super) fn may_match(&self, key: &[u8]) -> bool {
        let mut h = hash32(key, SEED);
        let delta = h.rotate_right(17);
        let start = ((h % self.lines) as usize) << self.line_len_log2;
        let line_bits = 8u64 << self.line_len_log2;
        for _ in 0..self.probes {
            let bit = (u64::from(h) & (line_bits - 1)) as usize;
            let byte = self.data.get(start + bit / 8).copied().unwrap_or(0xff);
            if byte & (1 << (bit % 8)) == 0 {
                return false;
            }
            h = h.wrapping_add(delta);
        }
        true
    }

    pub(super) fn data_len(&self) -> usize {
        self.data.len()
    }
}
