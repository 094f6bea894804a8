//! A Bloom filter over the keys of a memtable. It says which keys the memtable certainly does not have.
//!
//! Each key sets six bits in one cache line. Bits are set with relaxed atomics before the key is linked
//! into the list. A reader that may see the key by its sequence number sees the bits too, because
//! publishing the sequence number orders both.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words of 64 bits in a cache line.
const LINE_WORDS: usize = 8;
/// Number of bits that a key sets.
const PROBES: u32 = 6;

/// The filter.
pub(crate) struct Bloom {
    words: Box<[AtomicU64]>,
}

impl Bloom {
    /// A filter of about `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let lines = (bytes / (LINE_WORDS * 8)).max(1);
        Self {
            words: (0..lines * LINE_WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.words.len() * 8
    }

    /// The cache line for a hash, and the bits of the hash that choose positions in it.
    #[inline]
    fn line(&self, hash: u64) -> (&[AtomicU64], u64) {
        let lines = (self.words.len() / LINE_WORDS) as u64;
        let line = ((u128::from(hash) * u128::from(lines)) >> 64) as usize;
        let words = &self.words[line * LINE_WORDS..(line + 1) * LINE_WORDS];
        (words, hash.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Adds a key.
    #[inline]
    pub(crate) fn add(&self, key: &[u8]) {
        let (words, mut bits) = self.line(hash(key));
        for _ in 0..PROBES {
            let word = &words[(bits & 7) as usize];
            let mask = 1 << (bits >> 3 & 63);
            if word.load(Ordering::Relaxed) & mask == 0 {
                word.fetch_or(mask, Ordering::Relaxed);
            }
            bits >>= 9;
        }
    }

    /// False only if the key was not added.
    #[inline]
    pub(crate) fn may_contain(&self, key: &[u8]) -> bool {
        let (words, mut bits) = self.line(hash(key));
        for _ in 0..PROBES {
            let word = words[(bits & 7) as usize].load(Ordering::Relaxed);
            if word & 1 << (bits >> 3 & 63) == 0 {
                return false;
            }
            bits >>= 9;
        }
        true
    }
}

/// A hash used only within this process: it folds eight bytes at a time.
#[inline]
fn hash(key: &[u8]) -> u64 {
    let fold = |a: u64, b: u64| {
        let wide = u128::from(a) * u128::from(b);
        (wide >> 64) as u64 ^ wide as u64
    };
    let (words, rest) = key.as_chunks::<8>();
    let mut h = 0xa076_1d64_78bd_642f ^ key.len() as u64;
    for word in words {
        h = fold(h ^ u64::from_le_bytes(*word), 0xe703_7ed1_a0b4_28db);
    }
    let mut last = [0u8; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(h ^ u64::from_le_bytes(last), 0x8ebc_6af0_9c88_c6e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_found_and_little_else() {
        let bloom = Bloom::new(10_000);
        let key = |i: u32| format!("key{i:06}");
        for i in 0..8000 {
            bloom.add(key(i).as_bytes());
        }
        assert!((0..8000).all(|i| bloom.may_contain(key(i).as_bytes())));
        let wrong = (8000..18_000)
            .filter(|&i| bloom.may_contain(key(i).as_bytes()))
            .count();
        assert!(wrong < 400, "{wrong} of 10,000 at 10 bits a key");
        assert!(!Bloom::new(0).may_contain(b""));
    }
}
