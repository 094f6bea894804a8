//! The hash index of a data block: maps a user key to the restart interval that holds it.
//!
//! ```text
//!   u8 bucket… | u16 number of buckets        between the restart offsets and the footer
//!   bucket: a restart point, 254 several restart points, 255 none
//!   bucket of a key = hash32(user key, 397) mod number of buckets
//! ```
//! It is written for RocksDB, whose `Get` uses it; the cursor here finds a restart point by the
//! prefixes of the block in memory.

use base::coding::put_u16;

use crate::filter::hash32;

const SEED: u32 = 397;
const SEVERAL: u8 = 254;
const NONE: u8 = 255;
/// Restart points beyond this one cannot be stored in a bucket.
const RESTART_MAX: usize = 253;
/// Larger blocks get no hash index.
pub(super) const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Collects the keys of one block.
#[derive(Clone, Debug)]
pub(super) struct HashIndex {
    buckets_per_key: f64,
    /// Added up key by key, as RocksDB does, so that both round alike.
    buckets: f64,
    /// Hash and restart point of each key.
    keys: Vec<(u32, u8)>,
    too_many_restarts: bool,
}

impl HashIndex {
    /// `util_ratio` is the number of keys for each bucket.
    pub(super) fn new(util_ratio: f64) -> Self {
        Self {
            buckets_per_key: 1.0 / util_ratio,
            buckets: 0.0,
            keys: Vec::new(),
            too_many_restarts: false,
        }
    }

    pub(super) fn add(&mut self, user_key: &[u8], restart: usize) {
        if restart > RESTART_MAX {
            self.too_many_restarts = true;
            return;
        }
        self.keys.push((hash32(user_key, SEED), restart as u8));
        self.buckets += self.buckets_per_key;
    }

    fn num_buckets(&self) -> u16 {
        // At most what 16 bits hold; an odd number distributes better.
        self.buckets as u16 | 1
    }

    /// Bytes that [`HashIndex::finish_into`] appends.
    pub(super) fn size(&self) -> usize {
        if self.is_usable() {
            2 + usize::from(self.num_buckets())
        } else {
            0
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.too_many_restarts && !self.keys.is_empty()
    }

    pub(super) fn finish_into(&self, out: &mut Vec<u8>) {
        let count = self.num_buckets();
        let start = out.len();
        out.resize(start + usize::from(count), NONE);
        let buckets = &mut out[start..];
        for &(hash, restart) in &self.keys {
            let bucket = &mut buckets[(hash % u32::from(count)) as usize];
            if *bucket == NONE {
                *bucket = restart;
            } else if *bucket != restart {
                *bucket = SEVERAL;
            }
        }
        put_u16(out, count);
    }

    pub(super) fn clear(&mut self) {
        self.buckets = 0.0;
        self.keys.clear();
        self.too_many_restarts = false;
    }
}
