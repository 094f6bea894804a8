//! How a seek of an iterator is confined to a prefix.
//!
//! With a prefix extractor, filters can tell that a file or memtable has no key with the prefix of the
//! sought key. How an iterator uses this depends on its options:
//!
//! | options | filters are asked | the iterator ends |
//! |---|---|---|
//! | `prefix_same_as_start` | yes | at the end of the prefix |
//! | none of the three | yes | never; sources that were left out are included when it leaves the prefix |
//! | `auto_prefix_mode` | if the upper bound lies within the prefix, or right after it | never |
//! | `total_order_seek` | no | never |
//!
//! So without `prefix_same_as_start`, the entries that an iterator shows never depend on filters. (In the second
//! case, RocksDB's iterators may miss keys beyond the prefix.)

use base::{Comparator, SliceTransform};
use table::Prefix;

use crate::read::options::ReadOptions;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Prefixes do not matter.
    Total,
    Auto,
    Free,
    SameAsStart,
}

/// How an iterator treats prefixes, and its current prefix.
#[derive(Debug)]
pub(crate) struct Scope {
    mode: Mode,
    extractor: Option<SliceTransform>,
    /// Whether keys are in byte order, so that a prefix sorts directly before its keys.
    bytewise: bool,
    /// The prefix of the last seek.
    prefix: Vec<u8>,
    /// Whether keys must be compared with `prefix`.
    watched: bool,
}

impl Scope {
    pub(crate) fn new(
        options: &ReadOptions,
        extractor: Option<&SliceTransform>,
        comparator: &Comparator,
    ) -> Self {
        let mode = if extractor.is_none() {
            Mode::Total
        } else if options.prefix_same_as_start {
            Mode::SameAsStart
        } else if options.auto_prefix_mode {
            Mode::Auto
        } else if options.total_order_seek {
            Mode::Total
        } else {
            Mode::Free
        };
        Self {
            mode,
            extractor: extractor.cloned(),
            bytewise: comparator.is_bytewise(),
            prefix: Vec::new(),
            watched: false,
        }
    }

    /// Forgets the prefix of the last seek.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.watched = false;
    }

    /// Begins a seek for `target`, which goes to the key `at` or, in reverse, to the keys before it.
    /// Returns the prefix for which filters may be asked.
    pub(crate) fn aim(
        &mut self,
        target: &[u8],
        at: &[u8],
        upper: Option<&[u8]>,
        forward: bool,
    ) -> Option<Prefix<'_>> {
        self.watched = false;
        if self.mode == Mode::Total {
            return None;
        }
        let transform = self.extractor.as_ref()?;
        let prefix = transform.prefix(target)?;
        let bounded = forward && upper.is_some_and(|u| self.ends_within(transform, prefix, u));
        let asks = target == at && (bounded || self.mode != Mode::Auto);
        self.watched = match self.mode {
            Mode::SameAsStart => true,
            Mode::Free => asks && !bounded,
            _ => false,
        };
        if !(asks || self.watched) {
            return None;
        }
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
        let bytes = &self.prefix;
        asks.then_some(Prefix { transform, bytes })
    }

    /// Whether all keys between a key with the prefix and `upper` have the prefix too.
    fn ends_within(&self, transform: &SliceTransform, prefix: &[u8], upper: &[u8]) -> bool {
        if transform.prefix(upper) == Some(prefix) {
            return true;
        }
        // The first key after the prefix is the prefix with its last byte incremented. With a carry it
        // would not be: shorter keys lie in between.
        let (Some((last, head)), Some((end, same))) = (prefix.split_last(), upper.split_last())
        else {
            return false;
        };
        self.bytewise
            && transform.full_length() == Some(prefix.len())
            && head == same
            && last.checked_add(1) == Some(*end)
    }

    /// The iterator moved to the first or last entry and found this key. With `prefix_same_as_start`, it
    /// stays within the key's prefix.
    pub(crate) fn start_at(&mut self, user_key: &[u8]) {
        if self.mode != Mode::SameAsStart {
            return;
        }
        let prefix = self.extractor.as_ref().and_then(|e| e.prefix(user_key));
        if let Some(prefix) = prefix {
            self.prefix.clear();
            self.prefix.extend_from_slice(prefix);
            self.watched = true;
        }
    }

    /// Whether an iterator that reaches this key leaves its prefix.
    #[inline]
    pub(crate) fn is_left_by(&self, user_key: &[u8]) -> bool {
        self.watched && !self.holds(user_key)
    }

    #[inline(never)]
    fn holds(&self, user_key: &[u8]) -> bool {
        let extractor = self.extractor.as_ref();
        extractor.and_then(|e| e.prefix(user_key)) == Some(&self.prefix)
    }

    /// Whether the iteration ends at the end of the prefix.
    pub(crate) fn ends(&self) -> bool {
        self.mode == Mode::SameAsStart
    }

    /// Whether the last seek may have left out entries that the iterator can still reach.
    pub(crate) fn is_open(&self) -> bool {
        self.watched && self.mode == Mode::Free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(set: impl Fn(&mut ReadOptions), extractor: &SliceTransform) -> Scope {
        let mut options = ReadOptions::default();
        set(&mut options);
        Scope::new(&options, Some(extractor), &Comparator::bytewise())
    }

    fn asks(scope: &mut Scope, target: &[u8], upper: Option<&[u8]>) -> bool {
        scope.aim(target, target, upper, true).is_some()
    }

    #[test]
    fn automatic_mode_asks_where_the_bound_lies_within_the_prefix() {
        let fixed = SliceTransform::fixed_prefix(2);
        let mut auto = scope(|o| o.auto_prefix_mode = true, &fixed);
        assert!(!asks(&mut auto, b"abc", None));
        assert!(asks(&mut auto, b"abc", Some(b"abz")));
        assert!(asks(&mut auto, b"abc", Some(b"ac")));
        assert!(!asks(&mut auto, b"abc", Some(b"ac\0")));
        assert!(!asks(&mut auto, b"abc", Some(b"ad")));
        // "b" is between the two.
        assert!(!asks(&mut auto, b"a\xff", Some(b"b\0")));
        // A key without prefix.
        assert!(!asks(&mut auto, b"a", Some(b"b")));
        assert!(!auto.is_left_by(b"x"));
        assert!(auto.aim(b"abc", b"abc", Some(b"abz"), false).is_none());
        // "abx" has another prefix than "ab", and comes before "ac".
        let capped = SliceTransform::capped_prefix(3);
        let mut auto = scope(|o| o.auto_prefix_mode = true, &capped);
        assert!(!asks(&mut auto, b"ab", Some(b"ac")));
        assert!(asks(&mut auto, b"abc", Some(b"abd")));
    }

    #[test]
    fn the_other_modes() {
        let fixed = SliceTransform::fixed_prefix(2);
        let mut total = scope(|o| o.total_order_seek = true, &fixed);
        assert!(!asks(&mut total, b"abc", Some(b"abd")));
        let mut free = scope(|_| {}, &fixed);
        assert!(asks(&mut free, b"abc", None) && free.is_open());
        assert!(free.is_left_by(b"ac") && !free.is_left_by(b"abz") && !free.ends());
        assert!(asks(&mut free, b"abc", Some(b"ac")) && !free.is_open());
        let mut same = scope(
            |o| {
                o.prefix_same_as_start = true;
                o.total_order_seek = true;
            },
            &fixed,
        );
        assert!(asks(&mut same, b"abc", None) && same.ends() && same.is_left_by(b"a"));
        // A bound moved the seek: no filter, but the prefix counts.
        assert!(same.aim(b"abc", b"ac", None, true).is_none() && same.is_left_by(b"ac"));
        same.forget();
        assert!(!same.is_left_by(b"zz"));
        same.start_at(b"zz");
        assert!(same.is_left_by(b"zy") && !same.is_left_by(b"zza"));
    }
}
