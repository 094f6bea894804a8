//! The order of user keys.
//!
//! The comparator's name is stored in the MANIFEST and in every SST; opening a database with another
//! comparator is refused. The two built-in orders are enum variants, not trait objects, so that hot
//! comparisons are inlined; other orders go through [`UserComparator`].

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// An order that the application defines. It must be total, and must never change under its name.
pub trait UserComparator: Send + Sync {
    /// The name that is stored in files. Names that start with `leveldb.` or `rocksdb.` are reserved.
    fn name(&self) -> &str;
    /// Compares two user keys. Keys that compare equal are the same key.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;
}

/// A total order of user keys; cheap to clone.
#[derive(Clone)]
pub struct Comparator(Order);

#[derive(Clone)]
enum Order {
    Bytewise,
    ReverseBytewise,
    User(Arc<dyn UserComparator>),
}

impl Comparator {
    /// The default: `memcmp`, the shorter key first.
    pub fn bytewise() -> Self {
        Self(Order::Bytewise)
    }

    /// The exact reverse of [`Comparator::bytewise`].
    pub fn reverse_bytewise() -> Self {
        Self(Order::ReverseBytewise)
    }

    /// An order that the application defines.
    pub fn user(c: Arc<dyn UserComparator>) -> Self {
        Self(Order::User(c))
    }

    /// The built-in comparator with this stored name.
    ///
    /// ```
    /// use base::Comparator;
    /// assert!(Comparator::by_name("leveldb.BytewiseComparator").is_some());
    /// assert!(Comparator::by_name("my.Comparator").is_none());
    /// ```
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::bytewise(), Self::reverse_bytewise()]
            .into_iter()
            .find(|c| c.name() == name)
    }

    /// The stored name.
    pub fn name(&self) -> &str {
        match &self.0 {
            Order::Bytewise => "leveldb.BytewiseComparator",
            Order::ReverseBytewise => "rocksdb.ReverseBytewiseComparator",
            Order::User(c) => c.name(),
        }
    }

    /// Compares two user keys.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match &self.0 {
            Order::Bytewise => a.cmp(b),
            Order::ReverseBytewise => b.cmp(a),
            Order::User(c) => c.compare(a, b),
        }
    }

    /// True for the default order.
    pub fn is_bytewise(&self) -> bool {
        matches!(self.0, Order::Bytewise)
    }

    /// An integer that sorts like the first 8 bytes of the key: if `prefix(a) < prefix(b)` then
    /// `a < b`; if the prefixes are equal, [`Comparator::compare`] decides. 0 for orders that are not
    /// built in.
    #[inline]
    pub fn prefix(&self, key: &[u8]) -> u64 {
        match &self.0 {
            Order::Bytewise => big_endian_prefix(key),
            Order::ReverseBytewise => !big_endian_prefix(key),
            Order::User(_) => 0,
        }
    }

    /// Length of the common prefix of two keys, which all keys between them share. 0 for orders that are
    /// not built in.
    #[inline]
    pub fn common_prefix(&self, a: &[u8], b: &[u8]) -> usize {
        match &self.0 {
            Order::Bytewise | Order::ReverseBytewise => {
                a.iter().zip(b).take_while(|(a, b)| a == b).count()
            }
            Order::User(_) => 0,
        }
    }

    /// Shortens `start` to a key `s` with `start <= s < limit`, if one is easily found. Index
    /// blocks use it. Leaves `start` unchanged for orders other than bytewise.
    pub fn shorten_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        if !self.is_bytewise() {
            return;
        }
        let common = start.iter().zip(limit).take_while(|(a, b)| a == b).count();
        if common >= start.len() || common >= limit.len() {
            return; // one is a prefix of the other
        }
        let (s, l) = (start[common], limit[common]);
        if s >= l {
            return;
        }
        if s + 1 < l || common + 1 < limit.len() {
            start[common] = s + 1;
            start.truncate(common + 1);
            return;
        }
        // start = "..a..", limit = "..b": raise the first byte after `a` that is not 0xff.
        if let Some(i) = (common + 1..start.len()).find(|&i| start[i] != 0xff) {
            start[i] += 1;
            start.truncate(i + 1);
        }
    }

    /// Shortens `key` to a key `s >= key`, if one is easily found. Leaves `key` unchanged for orders
    /// other than bytewise.
    pub fn shorten_successor(&self, key: &mut Vec<u8>) {
        if !self.is_bytewise() {
            return;
        }
        if let Some(i) = key.iter().position(|&b| b != 0xff) {
            key[i] += 1;
            key.truncate(i + 1);
        }
    }
}

/// The first 8 bytes of `key` as a big-endian integer, padded with zeros.
#[inline]
fn big_endian_prefix(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut b = [0u8; 8];
    b[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(b)
}

impl Default for Comparator {
    fn default() -> Self {
        Self::bytewise()
    }
}

impl fmt::Debug for Comparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn separators_lie_between(a: Vec<u8>, b: Vec<u8>) {
            let c = Comparator::bytewise();
            let (lo, hi) = if a < b { (a, b) } else { (b, a) };
            prop_assume!(lo != hi);
            let mut s = lo.clone();
            c.shorten_separator(&mut s, &hi);
            prop_assert!(lo <= s && s < hi && s.len() <= lo.len());
            let mut t = lo.clone();
            c.shorten_successor(&mut t);
            prop_assert!(lo <= t && t.len() <= lo.len());
        }

        #[test]
        fn prefixes_agree_with_the_order(a: Vec<u8>, b: Vec<u8>) {
            for c in [Comparator::bytewise(), Comparator::reverse_bytewise()] {
                let (pa, pb) = (c.prefix(&a), c.prefix(&b));
                if pa != pb {
                    prop_assert_eq!(pa.cmp(&pb), c.compare(&a, &b));
                }
                let common = c.common_prefix(&a, &b);
                let (low, high) = if c.compare(&a, &b).is_lt() { (&a, &b) } else { (&b, &a) };
                let between = [&low[..], &[0]].concat();
                if c.compare(low, &between).is_le() && c.compare(&between, high).is_le() {
                    prop_assert_eq!(&between[..common], &low[..common]);
                }
            }
        }
    }
}
