//! FastLocalBloom: all probes of a key fall into one 64-byte line, so a query costs one cache miss.
//!
//! ```text
//! data: n lines of 64 bytes         m0 = 0xff  m1 = 0  m2 = probes (1…30)  m3 = m4 = 0
//! h = hash64(key); line = (low32(h) · n) >> 32; x = high32(h)
//! each probe: bit x >> 23 (of 512) of the line; then x = x · 0x9e3779b9
//! ```
//! The lines are copied to memory aligned to cache lines, because a block read from a file is not.
#![deny(clippy::indexing_slicing)]

use io::LargeVec;

use super::METADATA_LEN;

/// Bytes of a line.
pub(super) const LINE_LEN: usize = 64;
/// Maximum bytes of data, because RocksDB's lengths have 32 bits.
const DATA_LEN_MAX: u64 = 0xffff_ffc0;
const PROBES_MAX: u8 = 30;
const GOLDEN_RATIO: u32 = 0x9e37_79b9;

/// One cache line as little-endian words.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u64; 8]);

impl Line {
    /// The index of the word that `x` probes, and the bit in it as a mask.
    #[inline(always)]
    fn place(x: u32) -> (usize, u64) {
        ((x >> 29) as usize, 1 << ((x >> 23) & 63))
    }

    #[inline(always)]
    fn may_match(&self, mut x: u32, probes: u8) -> bool {
        for _ in 0..probes {
            let (word, bit) = Self::place(x);
            if self.0.get(word).is_some_and(|w| w & bit == 0) {
                return false;
            }
            x = x.wrapping_mul(GOLDEN_RATIO);
        }
        true
    }

    #[inline(always)]
    fn add(&mut self, mut x: u32, probes: u8) {
        for _ in 0..probes {
            let (word, bit) = Self::place(x);
            if let Some(w) = self.0.get_mut(word) {
                *w |= bit;
            }
            x = x.wrapping_mul(GOLDEN_RATIO);
        }
    }
}

/// The index of the line to which a hash belongs.
#[inline(always)]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash & 0xffff_ffff) * lines as u64) >> 32) as usize
}

/// The lines of a filter and the number of probes; `None` if the metadata is not that of this layout.
fn shape(data: &[u8], metadata: [u8; METADATA_LEN]) -> Option<(&[[u8; LINE_LEN]], u8)> {
    let [_, 0, probes @ 1..=PROBES_MAX, 0, 0] = metadata else {
        return None;
    };
    let (lines, rest) = data.as_chunks::<LINE_LEN>();
    let fits = !lines.is_empty() && rest.is_empty() && data.len() as u64 <= DATA_LEN_MAX;
    fits.then_some((lines, probes))
}

fn read_line(bytes: &[u8; LINE_LEN]) -> Line {
    let mut line = Line([0; 8]);
    let (words, _) = bytes.as_chunks::<8>();
    for (word, bytes) in line.0.iter_mut().zip(words) {
        *word = u64::from_le_bytes(*bytes);
    }
    line
}

/// [`Bloom::may_match`] of a filter that is not decoded; `None` as [`Bloom::new`].
#[inline]
pub(super) fn may_match_in(data: &[u8], metadata: [u8; METADATA_LEN], hash: u64) -> Option<bool> {
    let (lines, probes) = shape(data, metadata)?;
    let line = lines.get(line_of(hash, lines.len())).map(read_line);
    Some(line.is_none_or(|line| line.may_match((hash >> 32) as u32, probes)))
}

/// A decoded filter.
#[derive(Debug)]
pub(super) struct Bloom {
    lines: LargeVec<Line>,
    probes: u8,
}

impl Bloom {
    /// `None` if the metadata is not that of this layout.
    pub(super) fn new(data: &[u8], metadata: [u8; METADATA_LEN]) -> Option<Self> {
        let (lines, probes) = shape(data, metadata)?;
        let lines = lines.iter().map(read_line);
        Some(Self {
            lines: lines.collect(),
            probes,
        })
    }

    #[inline]
    pub(super) fn may_match(&self, hash: u64) -> bool {
        match self.lines.get(line_of(hash, self.lines.len())) {
            Some(line) => line.may_match((hash >> 32) as u32, self.probes),
            None => true,
        }
    }

    pub(super) fn data_len(&self) -> usize {
        self.lines.len() * LINE_LEN
    }
}

/// Number of lines for `keys` keys.
pub(super) fn lines_for(keys: usize, millibits_per_key: u64) -> usize {
    let bytes = (keys as u64)
        .saturating_mul(millibits_per_key)
        .div_ceil(8000);
    bytes.clamp(1, DATA_LEN_MAX).div_ceil(LINE_LEN as u64) as usize
}

/// The number of probes with the fewest false positives, by thousandths of bits per key. RocksDB's
/// authors found it by measurement (`util/bloom_impl.h`).
fn probes_for(millibits_per_key: u64) -> u8 {
    const UP_TO: [u64; 12] = [
        2080, 3580, 5100, 6640, 8300, 10070, 11720, 14001, 16050, 18300, 22001, 25501,
    ];
    if let Some(i) = UP_TO.iter().position(|&up_to| millibits_per_key <= up_to) {
        return i as u8 + 1;
    }
    if millibits_per_key > 50_000 {
        return 24;
    }
    ((millibits_per_key - 1) / 2000 - 1) as u8
}

/// The false positive rate of a filter: the mean of the rates of a line with one standard deviation
/// more and one with one fewer keys than the average, as RocksDB estimates it.
pub(super) fn false_positives(millibits_per_key: u64) -> f64 {
    let probes = f64::from(probes_for(millibits_per_key));
    let keys = 512.0 / (millibits_per_key as f64 / 1000.0);
    let rate = |keys: f64| (1.0 - (-probes * keys / 512.0).exp()).powf(probes);
    f64::midpoint(rate(keys + keys.sqrt()), rate(keys - keys.sqrt()))
}

/// The filter block of keys with these hashes.
pub(super) fn build(hashes: &[u64], millibits_per_key: u64) -> Vec<u8> {
    let probes = probes_for(millibits_per_key);
    let mut lines = vec![Line([0; 8]); lines_for(hashes.len(), millibits_per_key)];
    let count = lines.len();
    for &hash in hashes {
        if let Some(line) = lines.get_mut(line_of(hash, count)) {
            line.add((hash >> 32) as u32, probes);
        }
    }
    let mut out = Vec::with_capacity(count * LINE_LEN + METADATA_LEN);
    for line in &lines {
        for word in line.0 {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
    out.extend_from_slice(&[0xff, 0, probes, 0, 0]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_by_bits_per_key() {
        for (millibits, probes) in [
            (1000, 1),
            (2080, 1),
            (2081, 2),
            (10_000, 6),
            (10_071, 7),
            (16_000, 9),
            (25_501, 12),
            (26_000, 11),
            (28_001, 13),
            (50_000, 23),
            (50_001, 24),
            (100_000, 24),
        ] {
            assert_eq!(probes_for(millibits), probes, "{millibits}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(lines_for(1, 10_000), 1);
        assert_eq!(lines_for(51, 10_000), 1);
        assert_eq!(lines_for(52, 10_000), 2);
        assert_eq!(lines_for(1000, 10_000), 20);
        assert_eq!(lines_for(usize::MAX, 100_000) as u64 * 64, DATA_LEN_MAX);
    }
}
