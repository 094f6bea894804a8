//! Writes to their place before the answer, where the store's mode asks for that: see `store/in_place.rs`.
//!
//! Two writes of a block must not be on their way at once, as the older one might arrive last. So the second waits
//! for the first, and a write-back begins when none is on its way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Result;
use bytes::Bytes;

use super::super::core::Command;
use super::{Member, reply};
use crate::group::command::Range;
use crate::ids::Index;
use crate::store::data::Reader;
use crate::store::dirty::Key;
use crate::wire::client::Outcome;

/// Blocks of an entry that was applied.
#[derive(Debug)]
pub(super) struct Writing {
    index: Index,
    range: Range,
    bytes: Bytes,
    /// Whom to answer.
    client: Option<(u64, u64)>,
    /// Whether the data file will have these bytes: none of the blocks was on its way by a write-back.
    counts: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct InPlaceWrites {
    pub(super) is_on: bool,
    open: BTreeMap<u64, Writing>,
    busy: BTreeSet<Key>,
    queue: VecDeque<Writing>,
    /// A write-back waits until none is on its way.
    holds: bool,
}

impl InPlaceWrites {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            ..Self::default()
        }
    }

    /// Whether none is on its way, and none waits.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.queue.is_empty()
    }

    /// How many wait for others.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether a write-back may begin; if not, it may soon.
    pub(super) fn may_mark(&mut self) -> bool {
        self.holds = !self.open.is_empty();
        !self.holds
    }
}

impl Member {
    /// Writes the blocks of an entry to their place, and answers then.
    pub(super) fn write_in_place(
        &mut self,
        index: Index,
        range: Range,
        bytes: Bytes,
        client: Option<(u64, u64)>,
    ) {
        self.in_place.queue.push_back(Writing {
            index,
            range,
            bytes,
            client,
            counts: true,
        });
    }

    /// Begins what may be on its way now; behind the write-back that may have waited for it.
    pub(in super::super) fn in_place_on(&mut self, data: &Reader, out: &mut VecDeque<Command>) {
        if self.in_place.queue.is_empty() {
            return;
        }
        if self.in_place.holds && self.in_place.open.is_empty() {
            // Nothing was dirty, or it is on its way.
            self.in_place.holds = false;
        }
        let mut waits: BTreeSet<Key> = BTreeSet::new();
        let mut later = VecDeque::new();
        while let Some(mut writing) = self.in_place.queue.pop_front() {
            let is_free = |k: &Key| {
                !self.in_place.busy.contains(k) && (waits.is_empty() || !waits.contains(k))
            };
            if self.in_place.holds || !writing.range.keys().all(|k| is_free(&k)) {
                waits.extend(writing.range.keys());
                later.push_back(writing);
                continue;
            }
            // A newer one has come, or all was written back meanwhile: this one would arrive behind that.
            let is_newest = |k: &Key| self.replica.newest(k) == Some(writing.index);
            if !writing.range.keys().all(|k| is_newest(&k)) {
                answer(&writing, out);
                continue;
            }
            let first = writing.range.keys().next();
            let place = first.map(|key| data.in_place(self.group, &key, writing.bytes.clone()));
            let Some(Ok(place)) = place else {
                // It is in the log, and written back later.
                answer(&writing, out);
                continue;
            };
            writing.counts = writing.range.keys().all(|k| !self.replica.is_flying(&k));
            self.in_place.busy.extend(writing.range.keys());
            self.next_token += 1;
            let token = self.next_token << 32 | u64::from(self.group.0);
            self.in_place.open.insert(token, writing);
            out.push_back(Command::InPlace { token, place });
        }
        self.in_place.queue = later;
    }

    /// Blocks are in their place, or are not.
    pub(in super::super) fn in_place_done(
        &mut self,
        token: u64,
        result: &Result<()>,
        out: &mut VecDeque<Command>,
    ) {
        let Some(writing) = self.in_place.open.remove(&token) else {
            return;
        };
        for key in writing.range.keys() {
            self.in_place.busy.remove(&key);
            if result.is_ok() && writing.counts {
                self.replica.placed(&key, writing.index);
            }
        }
        // A failed one is in the log, and is written back with its page.
        answer(&writing, out);
    }
}

fn answer(writing: &Writing, out: &mut VecDeque<Command>) {
    if let Some((client, id)) = writing.client {
        reply(out, client, id, Outcome::Done);
    }
}
