//! Kernels over memtables and over the merging iterator.

use std::hint::black_box;
use std::sync::Arc;

use base::{Comparator, FileNumber, Result, SequenceNumber, ValueType};
use memtable::{Memtable, Settings};
use merging::MergingIter;
use table::InternalIterator;

use crate::{Kernel, inputs, measured};

pub(crate) const KERNELS: &[Kernel] = &[
    Kernel::new("memtable_insert", 10_000, memtable_insert),
    Kernel::new("memtable_insert_batch", 10_000, memtable_insert_batch),
    Kernel::new("memtable_get", 10_000, memtable_get),
    Kernel::new("memtable_seek", 10_000, memtable_seek),
    Kernel::new("memtable_next", 10_000, memtable_next),
    Kernel::new("merge_next", 10_000, merge_next),
    Kernel::new("merge_seek", 2_000, merge_seek),
];

/// Cursors that are merged.
const SOURCES: u64 = 4;
/// Records of a batch.
const BATCH: usize = 100;

/// A memtable of the default options.
fn empty() -> Arc<Memtable> {
    let settings = Settings::new(Comparator::bytewise());
    Arc::new(Memtable::with(0, FileNumber(1), settings))
}

/// A memtable with the keys from 0 up to `entries` that are `first` modulo `step`.
fn filled(entries: u64, first: u64, step: u64) -> Arc<Memtable> {
    let (table, value) = (empty(), inputs::value());
    let all = inputs::shuffled(entries);
    for i in all.into_iter().filter(|i| i % step == first) {
        insert(&table, i, &value);
    }
    table
}

#[inline]
fn insert(table: &Memtable, i: u64, value: &[u8]) {
    let key = inputs::user_key(i);
    table.insert(key.as_ref(), SequenceNumber(i), ValueType::Value, value);
}

/// Inserts, starting with an empty memtable.
fn memtable_insert(operations: u64) -> Result<()> {
    let (table, value) = (empty(), inputs::value());
    let order = inputs::shuffled(operations);
    measured(&mut || {
        for &i in &order {
            insert(&table, i, &value);
        }
        Ok(())
    })
}

/// The same, a batch at a time.
fn memtable_insert_batch(operations: u64) -> Result<()> {
    let (table, value) = (empty(), inputs::value());
    let order = inputs::shuffled(operations);
    measured(&mut || {
        for batch in order.chunks(BATCH) {
            insert_all(&table, batch, &value);
        }
        Ok(())
    })
}

/// Inserts as a batch is applied: the searches of several run side by side.
fn insert_all(table: &Memtable, batch: &[u64], value: &[u8]) {
    let mut waiting = Vec::with_capacity(memtable::TOGETHER);
    for &i in batch {
        let key = inputs::user_key(i);
        let prepared = table.prepare(key.as_ref(), SequenceNumber(i), ValueType::Value, value);
        waiting.extend(prepared.map(|p| (table, p)));
        if waiting.len() == memtable::TOGETHER {
            memtable::link_all(waiting.drain(..));
        }
    }
    memtable::link_all(waiting.drain(..));
}

fn memtable_get(operations: u64) -> Result<()> {
    let table = filled(operations, 0, 1);
    let order = inputs::shuffled(operations);
    let keys: Vec<_> = order.into_iter().map(inputs::seek_key).collect();
    measured(&mut || {
        for key in &keys {
            let mut found = None;
            table.versions(key, |_, value| {
                found = Some(value.bytes().len());
                false
            });
            black_box(found);
        }
        Ok(())
    })
}

fn memtable_seek(operations: u64) -> Result<()> {
    let table = filled(operations, 0, 1);
    let order = inputs::shuffled(operations);
    let mut cursor: Box<dyn InternalIterator> = Box::new(table.iter());
    seeks(&mut *cursor, order)
}

fn memtable_next(operations: u64) -> Result<()> {
    let mut cursor: Box<dyn InternalIterator> = Box::new(filled(operations, 0, 1).iter());
    steps(&mut *cursor)
}

/// Four memtables that have the keys in turns: every step goes to another cursor.
fn merged(entries: u64) -> impl InternalIterator {
    let cursor = |i| -> Box<dyn InternalIterator> { Box::new(filled(entries, i, SOURCES).iter()) };
    MergingIter::new(Comparator::bytewise(), (0..SOURCES).map(cursor).collect())
}

fn merge_next(operations: u64) -> Result<()> {
    steps(&mut merged(operations))
}

fn merge_seek(operations: u64) -> Result<()> {
    let order = inputs::shuffled(operations);
    seeks(&mut merged(operations), order)
}

fn seeks(iter: &mut dyn InternalIterator, order: Vec<u64>) -> Result<()> {
    let keys: Vec<_> = order.into_iter().map(inputs::seek_key).collect();
    measured(&mut || {
        for key in &keys {
            iter.seek(key);
            black_box(iter.valid());
        }
        iter.status()
    })
}

fn steps(iter: &mut dyn InternalIterator) -> Result<()> {
    iter.seek_to_first();
    measured(&mut || {
        while iter.valid() {
            black_box((iter.key(), iter.value()));
            iter.next();
        }
        iter.status()
    })
}
