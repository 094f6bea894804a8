//! The blocks that have changes on their way, and the requests that wait for them.
//!
//! Whole blocks may be written at any time: the log defines the order. A change of a part of a block reads the
//! block first, so everything on its way to the block must be applied before, and nothing may come in between.
//! Requests that must wait are queued in order; none overtakes another that wants the same block.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Asked;
use crate::group::command::Range;
use crate::store::dirty::Key;

/// The most waiting requests.
const WAITING_MAX: usize = 1024;

/// The blocks of a change on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lock {
    pub(super) range: Range,
    /// Whether the change covers blocks partly, and is merged with their content.
    pub(super) is_merge: bool,
}

/// The locks of a replica.
#[derive(Debug, Default)]
pub(super) struct Locks {
    /// Blocks with a merge on its way.
    merging: BTreeSet<Key>,
    /// Number of changes of whole blocks on their way to each block.
    open: BTreeMap<Key, u32>,
    queue: VecDeque<(Asked, Lock)>,
    /// Number of queued requests that want each block.
    wanted: BTreeMap<Key, u32>,
}

impl Locks {
    /// Takes the lock if the change may begin now; returns whether it may.
    pub(super) fn begin(&mut self, lock: Lock) -> bool {
        let is_wanted = |key: &Key| !self.wanted.is_empty() && self.wanted.contains_key(key);
        let may = lock
            .range
            .keys()
            .all(|k| self.is_free(&k, lock) && !is_wanted(&k));
        if may {
            self.take(lock);
        }
        may
    }

    fn is_free(&self, key: &Key, lock: Lock) -> bool {
        let is_open = lock.is_merge && self.open.contains_key(key);
        !is_open && !self.merging.contains(key)
    }

    fn take(&mut self, lock: Lock) {
        for key in lock.range.keys() {
            if lock.is_merge {
                self.merging.insert(key);
            } else {
                *self.open.entry(key).or_default() += 1;
            }
        }
    }

    /// Releases the lock of a change that is applied, or will not be.
    pub(super) fn end(&mut self, lock: Lock) {
        for key in lock.range.keys() {
            if lock.is_merge {
                self.merging.remove(&key);
            } else {
                less(&mut self.open, &key);
            }
        }
    }

    /// Whether no more requests may wait.
    pub(super) fn is_crowded(&self) -> bool {
        self.queue.len() >= WAITING_MAX
    }

    /// Queues a request until it may begin.
    pub(super) fn wait(&mut self, asked: Asked, lock: Lock) {
        for key in lock.range.keys() {
            *self.wanted.entry(key).or_default() += 1;
        }
        self.queue.push_back((asked, lock));
    }

    /// Removes the first queued request that may begin now, and takes its lock.
    pub(super) fn next(&mut self) -> Option<(Asked, Lock)> {
        let mut earlier: BTreeSet<Key> = BTreeSet::new();
        let nth = self.queue.iter().position(|(_, lock)| {
            let may = lock
                .range
                .keys()
                .all(|k| self.is_free(&k, *lock) && !earlier.contains(&k));
            if !may {
                earlier.extend(lock.range.keys());
            }
            may
        })?;
        let (asked, lock) = self.queue.remove(nth)?;
        lock.range
            .keys()
            .for_each(|key| less(&mut self.wanted, &key));
        self.take(lock);
        Some((asked, lock))
    }

    /// Forgets everything; returns the waiting requests.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Asked> + use<> {
        let all = std::mem::take(self);
        all.queue.into_iter().map(|(asked, _)| asked)
    }

    /// Whether no request waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty()
    }
}

fn less(counts: &mut BTreeMap<Key, u32>, key: &Key) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::command::Origin;
    use crate::ids::{Block, Group, Layer, Tree};
    use crate::wire::client::{Request, What};

    fn lock(first: u32, blocks: u16, is_merge: bool) -> Lock {
        Lock {
            range: Range {
                first: Block(first),
                blocks,
                ..Range::default()
            },
            is_merge,
        }
    }

    fn asked(id: u64) -> Asked {
        Asked {
            client: 1,
            request: Request {
                id,
                group: Group(1),
                tree: Tree(1),
                layer: Layer(1),
                origin: Origin::default(),
                what: What::Attach,
            },
        }
    }

    #[test]
    fn whole_blocks_do_not_wait_for_each_other_and_merges_wait_for_all() {
        let mut locks = Locks::default();
        let whole = lock(0, 4, false);
        assert!(locks.begin(whole) && locks.begin(whole));
        let merge = lock(3, 1, true);
        assert!(!locks.begin(merge));
        locks.wait(asked(1), merge);
        // No request overtakes the merge.
        assert!(!locks.begin(lock(3, 2, false)) && locks.begin(lock(4, 1, false)));
        locks.wait(asked(2), lock(3, 2, false));
        locks.end(whole);
        assert!(locks.next().is_none());
        locks.end(whole);
        assert_eq!(locks.next().unwrap().0.request.id, 1);
        assert!(locks.next().is_none());
        locks.end(merge);
        assert_eq!(locks.next().unwrap().0.request.id, 2);
        assert!(locks.is_quiet() && locks.wanted.is_empty());
        locks.end(lock(3, 2, false));
        locks.end(lock(4, 1, false));
        assert!(locks.open.is_empty() && locks.merging.is_empty());
    }

    #[test]
    fn the_queue_is_bounded_and_can_be_let_go() {
        let mut locks = Locks::default();
        assert!(locks.begin(lock(0, 1, true)));
        for id in 0..WAITING_MAX as u64 {
            locks.wait(asked(id), lock(0, 1, true));
        }
        assert!(locks.is_crowded());
        assert_eq!(locks.clear().count(), WAITING_MAX);
        assert!(locks.begin(lock(0, 1, true)));
    }
}
