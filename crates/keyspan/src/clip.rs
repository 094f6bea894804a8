//! The tombstones of a table, clipped to the bounds that the MANIFEST gives for it: RocksDB's compactions
//! cut a tombstone only by these bounds.

use std::sync::Arc;

use base::{Comparator, key};

use crate::fragments::{Fragments, fragment};
use crate::span::{RangeTombstone, Span, before_versions, behind};

/// The tombstones of a table, for reads.
#[derive(Debug)]
pub struct FileTombstones {
    /// The end of the table: no tombstone reaches beyond it.
    pub upper: Vec<u8>,
    /// The fragments.
    pub lists: Vec<Arc<Fragments>>,
}

impl FileTombstones {
    /// Clips the tombstones of a table between its smallest and largest internal key.
    pub fn new(
        cmp: &Comparator,
        smallest: &[u8],
        largest: &[u8],
        tombstones: Vec<RangeTombstone>,
    ) -> Self {
        // A lookup's key sorts before all versions of its user key, so the whole first user key is
        // included.
        let (lower, upper) = (before_versions(key::user_key(smallest)), behind(largest));
        let spans: Vec<Span> = tombstones
            .into_iter()
            .map(|t| Span::new(&t.start, &t.end, t.sequence))
            .filter_map(|s| s.clip(cmp, &lower, &upper))
            .collect();
        Self {
            lists: fragment(cmp, &spans),
            upper,
        }
    }
}

/// As [`FileTombstones::new`], but clipped to user keys, and not cut into fragments: the form that
/// compactions need.
pub fn spans(
    cmp: &Comparator,
    smallest: &[u8],
    largest: &[u8],
    tombstones: Vec<RangeTombstone>,
) -> Vec<Span> {
    let lower = before_versions(key::user_key(smallest));
    let upper = before_versions(key::user_key(largest));
    tombstones
        .into_iter()
        .map(|t| Span::new(&t.start, &t.end, t.sequence))
        .filter_map(|s| s.clip(cmp, &lower, &upper))
        .collect()
}

#[cfg(test)]
mod tests {
    use base::{SequenceNumber, ValueType};

    use super::*;
    use crate::fragments::covering;
    use crate::span::sentinel;

    const ALL: SequenceNumber = SequenceNumber::MAX;

    #[test]
    fn tables_clip_their_tombstones() {
        let cmp = Comparator::bytewise();
        let tombstone = |a: &str, b: &str| RangeTombstone {
            start: a.into(),
            end: b.into(),
            sequence: SequenceNumber(5),
        };
        let internal =
            |k: &str, s: u64, t: ValueType| key::encode(k.as_bytes(), SequenceNumber(s), t);
        let over = |f: &FileTombstones, k: &str, s: u64| {
            covering(&f.lists, &cmp, &internal(k, s, ValueType::Value), ALL) > 0
        };
        // The largest key is an entry's: it belongs to the table, with all newer versions of its user key.
        // So does the smallest key, with all newer versions.
        let f = FileTombstones::new(
            &cmp,
            &internal("c", 8, ValueType::Value),
            &internal("m", 3, ValueType::Value),
            vec![tombstone("a", "z")],
        );
        assert!(!over(&f, "b", 1) && over(&f, "c", 9) && over(&f, "c", 8) && over(&f, "c", 1));
        assert!(over(&f, "m", 4) && over(&f, "m", 3) && !over(&f, "m", 2) && !over(&f, "n", 1));
        // The largest key is the end of a tombstone, the smallest the start of one.
        let f = FileTombstones::new(
            &cmp,
            &internal("c", 5, ValueType::RangeDeletion),
            &sentinel(b"m"),
            vec![tombstone("a", "z")],
        );
        assert!(over(&f, "c", 9) && over(&f, "lz", 0));
        assert!(!over(&f, "m", 0) && !over(&f, "b", 0));
        let spans = super::spans(
            &cmp,
            &internal("c", 8, ValueType::Value),
            &sentinel(b"m"),
            vec![tombstone("a", "z"), tombstone("a", "b")],
        );
        assert_eq!(spans, [Span::new(b"c", b"m", SequenceNumber(5))]);
    }
}
