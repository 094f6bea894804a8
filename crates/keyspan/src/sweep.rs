//! A sweep over the bounds of tombstones, in key order.

use std::collections::BTreeMap;

use base::{Comparator, key};

use crate::span::Span;

/// Calls `emit` in key order for every piece between two adjacent bounds that has a tombstone over it.
/// `emit` gets the sequence numbers of these tombstones, and how often each occurs. Stops and returns false
/// as soon as `emit` returns false.
pub fn sweep(
    cmp: &Comparator,
    spans: &[&Span],
    mut emit: impl FnMut(&[u8], &[u8], &BTreeMap<u64, usize>) -> bool,
) -> bool {
    let order = |a: &[u8], b: &[u8]| key::compare(cmp, a, b);
    let mut starts: Vec<&Span> = spans
        .iter()
        .copied()
        .filter(|s| order(&s.start, &s.end).is_lt())
        .collect();
    let mut ends = starts.clone();
    starts.sort_by(|a, b| order(&a.start, &b.start));
    ends.sort_by(|a, b| order(&a.end, &b.end));
    let (mut starts, mut ends) = (starts.into_iter().peekable(), ends.into_iter().peekable());
    let mut active: BTreeMap<u64, usize> = BTreeMap::new();
    let mut from: &[u8] = &[];
    // The last bound is always an end, so as long as anything is left, there is an end.
    while let Some(end) = ends.peek() {
        let at: &[u8] = match starts.peek() {
            Some(s) if order(&s.start, &end.end).is_lt() => &s.start,
            _ => &end.end,
        };
        if !active.is_empty() && order(from, at).is_lt() && !emit(from, at, &active) {
            return false;
        }
        while let Some(s) = ends.next_if(|s| order(&s.end, at).is_eq()) {
            if let Some(n) = active.get_mut(&s.sequence.0) {
                *n -= 1;
                if *n == 0 {
                    active.remove(&s.sequence.0);
                }
            }
        }
        while let Some(s) = starts.next_if(|s| order(&s.start, at).is_eq()) {
            *active.entry(s.sequence.0).or_default() += 1;
        }
        from = at;
    }
    true
}
