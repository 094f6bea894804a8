//! Merged cursors against a plain model.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};

use base::rng::Rng;
use base::{FileNumber, ValueType};

use super::*;
use crate::cover::Lists;
use keyspan::Span;
use keyspan::fragments::fragment;
use memtable::{Memtable, Settings};

/// A child that counts its steps and seeks, and how often its status is read.
struct Counted {
    iter: memtable::Iter,
    steps: Arc<AtomicUsize>,
    looks: Arc<AtomicUsize>,
}

impl InternalIterator for Counted {
    fn valid(&self) -> bool {
        self.iter.valid()
    }
    fn seek_to_first(&mut self) {
        self.iter.seek_to_first();
    }
    fn seek_to_last(&mut self) {
        self.iter.seek_to_last();
    }
    fn seek(&mut self, target: &[u8]) {
        self.steps.fetch_add(1, Atomic::Relaxed);
        self.iter.seek(target);
    }
    fn seek_for_prev(&mut self, target: &[u8]) {
        self.steps.fetch_add(1, Atomic::Relaxed);
        self.iter.seek_for_prev(target);
    }
    fn next(&mut self) {
        self.steps.fetch_add(1, Atomic::Relaxed);
        self.iter.next();
    }
    fn prev(&mut self) {
        self.steps.fetch_add(1, Atomic::Relaxed);
        self.iter.prev();
    }
    fn key(&self) -> &[u8] {
        self.iter.key()
    }
    fn value(&self) -> &[u8] {
        self.iter.value()
    }
    fn status(&self) -> Result<()> {
        self.looks.fetch_add(1, Atomic::Relaxed);
        self.iter.status()
    }
}

/// Entries and tombstones of several sources, each newer than all sources after it.
struct Sources {
    tables: Vec<(Arc<Memtable>, Vec<Span>)>,
    steps: Arc<AtomicUsize>,
    looks: Arc<AtomicUsize>,
}

impl Sources {
    fn new() -> Self {
        Self {
            tables: Vec::new(),
            steps: Arc::default(),
            looks: Arc::default(),
        }
    }

    fn add(&mut self, entries: &[(u8, u64)], spans: Vec<Span>) {
        let mem = Memtable::with(0, FileNumber(1), Settings::new(Comparator::bytewise()));
        for &(k, seq) in entries {
            mem.insert(&[k], SequenceNumber(seq), ValueType::Value, b"");
        }
        self.tables.push((Arc::new(mem), spans));
    }

    fn merged(&self, limit: u64) -> MergingIter {
        let cmp = Comparator::bytewise();
        let mut cover = Cover::new(cmp.clone(), SequenceNumber(limit));
        let mut children: Vec<Box<dyn InternalIterator>> = Vec::new();
        for (mem, spans) in &self.tables {
            children.push(Box::new(Counted {
                iter: mem.iter(),
                steps: Arc::clone(&self.steps),
                looks: Arc::clone(&self.looks),
            }));
            let lists = fragment(&cmp, spans);
            if !lists.is_empty() {
                cover.add(Lists::One(lists), children.len());
            }
        }
        MergingIter::new(cmp, children).covered_by(cover.if_any())
    }
}

fn at(it: &MergingIter) -> Option<(u8, u64)> {
    it.valid().then(|| {
        let p = key::parse(it.key()).unwrap();
        (p.user_key[0], p.sequence.0)
    })
}

fn span(a: u8, b: u8, seq: u64) -> Span {
    Span::new(&[a], &[b], SequenceNumber(seq))
}

/// Random sources; all their entries, and all their tombstones.
fn draw(rng: &mut Rng) -> (Sources, Vec<(u8, u64)>, Vec<Span>) {
    let mut sources = Sources::new();
    let (mut all, mut spans) = (Vec::new(), Vec::new());
    let mut seq = 100;
    for _ in 0..=rng.below(4) {
        let (mut entries, mut own) = (Vec::new(), Vec::new());
        for _ in 0..rng.below(20) {
            seq -= 1;
            let k = rng.below(24) as u8;
            if rng.one_in(4) {
                own.push(span(k, k + rng.below(10) as u8, seq));
            } else {
                entries.push((k, seq));
            }
        }
        sources.add(&entries, own.clone());
        all.extend(entries);
        spans.extend(own);
    }
    (sources, all, spans)
}

/// Seeks somewhere; returns the index in `want` of the entry where it should be then.
fn seek(it: &mut MergingIter, want: &[(u8, u64)], rng: &mut Rng) -> i64 {
    let k = rng.below(26) as u8;
    let target = key::encode(&[k], SequenceNumber::MAX, ValueType::FOR_SEEK);
    let behind = want.partition_point(|e| e.0 < k) as i64;
    match rng.below(4) {
        0 => {
            it.seek_to_first();
            0
        }
        1 => {
            it.seek_to_last();
            want.len() as i64 - 1
        }
        2 => {
            it.seek(&target);
            behind
        }
        _ => {
            it.seek_for_prev(&target);
            behind - 1
        }
    }
}

#[test]
fn covered_entries_are_passed_in_both_directions() {
    let cmp = Comparator::bytewise();
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let (sources, mut want, spans) = draw(&mut rng);
        let limit = rng.below(102);
        want.retain(|&(k, s)| {
            let at = key::encode(&[k], SequenceNumber(s), ValueType::Value);
            !spans.iter().any(|t| {
                (s + 1..=limit).contains(&t.sequence.0)
                    && key::compare(&cmp, &t.start, &at).is_le()
                    && key::compare(&cmp, &at, &t.end).is_lt()
            })
        });
        want.sort_by_key(|&(k, s)| (k, u64::MAX - s));
        let mut it = sources.merged(limit);
        for _ in 0..20 {
            let mut i = seek(&mut it, &want, &mut rng);
            for _ in 0..30 {
                let expected = usize::try_from(i).ok().and_then(|i| want.get(i)).copied();
                assert_eq!(at(&it), expected, "seed {seed}, limit {limit}");
                if expected.is_none() {
                    break;
                }
                if rng.one_in(3) {
                    it.prev();
                    i -= 1;
                } else {
                    it.next();
                    i += 1;
                }
            }
        }
    }
}

#[test]
fn a_newer_tombstone_is_jumped_over_not_walked_through() {
    let mut sources = Sources::new();
    let old: Vec<(u8, u64)> = (0..=255).map(|k| (k, 1)).collect();
    sources.add(&[(200, 9)], vec![span(5, 250, 8)]);
    sources.add(&old, Vec::new());
    let mut it = sources.merged(10);
    it.seek_to_first();
    for k in [0, 1, 2, 3, 4] {
        assert_eq!(at(&it), Some((k, 1)));
        it.next();
    }
    assert_eq!(at(&it), Some((200, 9)));
    it.next();
    assert_eq!(at(&it), Some((250, 1)));
    it.prev();
    assert_eq!(at(&it), Some((200, 9)));
    it.prev();
    assert_eq!(at(&it), Some((4, 1)));
    it.seek(&key::encode(&[90], SequenceNumber(10), ValueType::FOR_SEEK));
    assert_eq!(at(&it), Some((200, 9)));
    let steps = sources.steps.load(Atomic::Relaxed);
    assert!(steps < 50, "{steps}");
}

/// Once one child had ended, the status of all was read for each entry.
#[test]
fn a_step_does_not_look_at_children_that_have_ended() {
    let mut sources = Sources::new();
    for _ in 0..100 {
        sources.add(&[(0, 9)], Vec::new());
    }
    sources.add(&(1..=255).map(|k| (k, 1)).collect::<Vec<_>>(), Vec::new());
    let mut it = sources.merged(10);
    it.seek_to_first();
    let mut entries = 0;
    while it.valid() {
        entries += 1;
        it.next();
    }
    it.status().unwrap();
    assert_eq!(entries, 355);
    let looks = sources.looks.load(Atomic::Relaxed);
    assert!(looks <= 101, "{looks} for 101 children");
}
