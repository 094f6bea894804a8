//! A door to the inner leaves for the crate `counts`, which counts their instructions, and for the fuzz
//! targets. It is no part of the engine's interface: it changes with what lies behind it.
//!
//! A door and not a benchmark inside: the counted program then links the engine as applications do.

use std::sync::Arc;

use base::{Comparator, FileNumber, SequenceNumber, ValueType};
use table::InternalIterator;

use crate::entity::WideColumns;
use crate::memtable::{self, Memtable, Settings};
use crate::options::MemtableFactory;
use crate::read::merging::MergingIter;

/// Bytes of an arena's larger chunks, as with the default options.
const ARENA_BLOCK_SIZE: usize = 1 << 20;

/// A sorted memtable without a filter.
#[derive(Clone)]
pub struct Sorted(Arc<Memtable>);

impl Sorted {
    /// An empty one.
    #[expect(
        clippy::new_without_default,
        reason = "an empty memtable is no default"
    )]
    pub fn new() -> Self {
        let settings = Settings {
            comparator: Comparator::bytewise(),
            arena_block_size: ARENA_BLOCK_SIZE,
            factory: MemtableFactory::SkipList,
            bloom_bytes: 0,
            whole_keys: false,
            prefixes: None,
            tracker: None,
        };
        Self(Arc::new(Memtable::with(0, FileNumber(1), settings)))
    }

    /// Adds a version of a key.
    #[inline]
    pub fn insert(&self, sequence: u64, key: &[u8], value: &[u8]) {
        self.0
            .insert(key, SequenceNumber(sequence), ValueType::Value, value);
    }

    /// The same for several at once, as a batch is applied: their searches run side by side.
    pub fn insert_all<K: AsRef<[u8]>>(
        &self,
        versions: impl Iterator<Item = (u64, K)>,
        value: &[u8],
    ) {
        let mut waiting = Vec::with_capacity(memtable::TOGETHER);
        for (sequence, key) in versions {
            let sequence = SequenceNumber(sequence);
            let prepared = self
                .0
                .prepare(key.as_ref(), sequence, ValueType::Value, value);
            waiting.extend(prepared.map(|p| (&*self.0, p)));
            if waiting.len() == memtable::TOGETHER {
                memtable::link_all(waiting.drain(..));
            }
        }
        memtable::link_all(waiting.drain(..));
    }

    /// Length of the newest value of the user key in `seek_key`.
    #[inline]
    pub fn get(&self, seek_key: &[u8]) -> Option<usize> {
        let mut found = None;
        self.0.versions(seek_key, |_, value| {
            found = Some(value.len());
            false
        });
        found
    }

    /// A cursor over all of it.
    pub fn cursor(&self) -> Box<dyn InternalIterator> {
        Box::new(self.0.iter())
    }
}

/// The union of sorted cursors, newest first.
pub fn merge(children: Vec<Box<dyn InternalIterator>>) -> impl InternalIterator {
    MergingIter::new(Comparator::bytewise(), children)
}

/// The columns of an entity as it is stored.
pub fn entity(stored: &[u8]) -> base::Result<WideColumns> {
    WideColumns::decode(stored)
}
