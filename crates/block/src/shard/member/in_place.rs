//! In-place writes before the answer, if the store's mode asks for them: see `store/in_place.rs`.
//!
//! Two writes of a block must not be on their way at once, because the older one might reach the disk last. So
//! the second waits for the first, and a write-back waits until no in-place write is on its way.

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

/// An in-place write of an applied entry's blocks.
#[derive(Debug)]
pub(super) struct Writing {
    index: Index,
    range: Range,
    bytes: Bytes,
    /// The client and the request to answer.
    client: Option<(u64, u64)>,
    /// Whether the data file will have these bytes: no write-back had any of the blocks on its way.
    counts: bool,
}

/// The in-place writes of a replica.
#[derive(Debug, Default)]
pub(super) struct InPlaceWrites {
    pub(super) is_on: bool,
    open: BTreeMap<u64, Writing>,
    busy: BTreeSet<Key>,
    queue: VecDeque<Writing>,
    /// Whether a write-back waits until none is on its way.
    holds: bool,
}

impl InPlaceWrites {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            ..Self::default()
        }
    }

    /// Whether no write is on its way or waits.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.queue.is_empty()
    }

    /// Number of writes that wait for others.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether a write-back may begin. If not, no more writes begin, so that it may soon.
    pub(super) fn may_mark(&mut self) -> bool {
        self.holds = !self.open.is_empty();
        !self.holds
    }
}

impl Member {
    /// Queues the blocks of an entry to be written in place, and then answered.
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

    /// Begins the writes that need not wait. Called after write-backs, which may have waited for writes to
    /// end.
    pub(in super::super) fn in_place_on(&mut self, data: &Reader, out: &mut VecDeque<Command>) {
        if self.in_place.queue.is_empty() {
            return;
        }
        if self.in_place.holds && self.in_place.open.is_empty() {
            // The write-back has begun, or nothing was dirty.
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
            // A newer write has come, or the block was written back meanwhile: this write would overwrite
            // that.
            let is_newest = |k: &Key| self.replica.newest(k) == Some(writing.index);
            if !writing.range.keys().all(|k| is_newest(&k)) {
                answer(&writing, out);
                continue;
            }
            let first = writing.range.keys().next();
            let place = first.map(|key| data.in_place(self.group, &key, writing.bytes.clone()));
            let Some(Ok(place)) = place else {
                // The entry is in the log; its blocks are written back later.
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

    /// An in-place write is durable, or has failed.
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
        // If it failed, its blocks are in the log, and are written back with their page.
        answer(&writing, out);
    }
}

fn answer(writing: &Writing, out: &mut VecDeque<Command>) {
    if let Some((client, id)) = writing.client {
        reply(out, client, id, Outcome::Done);
    }
}
