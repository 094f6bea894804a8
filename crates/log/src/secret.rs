//! Where the nonces of logs come from.
//!
//! Each opening of a database draws a random *secret*, which the MANIFEST stores. The nonce of a log is
//! derived from the secret that was current when the log was created, and from the log's number. The
//! log stores its nonce in its note as well ([`crate::note`]). Both are needed: the note may be damaged,
//! and RocksDB drops entries that it does not know when it rewrites a MANIFEST.
#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;

/// The secrets of a database, by the number of the first log to which each applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<u64, u64>);

impl Secrets {
    /// Adds a secret, from which the nonces of the logs from `first_log` on are derived.
    pub fn insert(&mut self, first_log: u64, secret: u64) {
        self.0.insert(first_log, secret);
    }

    /// A copy with one more secret.
    #[must_use]
    pub fn with(&self, first_log: u64, secret: u64) -> Self {
        let mut out = self.clone();
        out.insert(first_log, secret);
        out
    }

    /// The nonce of a log, if there was a secret when it was created.
    pub fn nonce_of(&self, log_number: u64) -> Option<u64> {
        let (_, secret) = self.0.range(..=log_number).next_back()?;
        Some(nonce(*secret, log_number))
    }

    /// Drops the secrets that only logs below `log_number` need.
    pub fn forget_below(&mut self, log_number: u64) {
        let first = self.0.range(..=log_number).next_back();
        if let Some(first) = first.map(|(first, _)| *first) {
            self.0 = self.0.split_off(&first);
        }
    }

    /// The secrets, each with the number of the first log to which it applies.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(&first, &secret)| (first, secret))
    }
}

/// The nonce of log `log_number`, never 0.
pub fn nonce(secret: u64, log_number: u64) -> u64 {
    // splitmix64: the nonces of two logs show no relation.
    let mut x = secret ^ log_number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_log_has_the_nonce_of_its_time() {
        let mut secrets = Secrets::default();
        assert_eq!(secrets.nonce_of(9), None);
        for (first, secret) in [(4, 100), (9, 200), (20, 300)] {
            secrets.insert(first, secret);
        }
        let expect = |number| Some(nonce(if number < 9 { 100 } else { 200 }, number));
        for number in [4, 8, 9, 19] {
            assert_eq!(secrets.nonce_of(number), expect(number), "{number}");
        }
        assert_eq!(secrets.nonce_of(3), None);
        assert_ne!(secrets.nonce_of(9), secrets.nonce_of(10));
        secrets.forget_below(12);
        assert_eq!(secrets.iter().map(|(n, _)| n).collect::<Vec<_>>(), [9, 20]);
        assert_eq!(secrets.nonce_of(15), Some(nonce(200, 15)));
        secrets.forget_below(3);
        assert_eq!(secrets.iter().count(), 2);
    }
}
