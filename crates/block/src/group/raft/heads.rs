//! The part of a group's log that raft sees: terms and inline bytes, in memory, without payloads.
//!
//! It has all entries that were returned by readies, durable or not: raft itself tracks which are durable. All
//! entries behind the checkpoint are here, because raft scans the unapplied ones when it campaigns, and panics
//! if one cannot be read.

use std::collections::VecDeque;

use raft::eraftpb::{Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

/// The entries of one group's log, as raft sees them.
#[derive(Default)]
pub(super) struct Heads {
    /// The last dropped entry, and its term.
    pub(super) truncated: (u64, u64),
    pub(super) entries: VecDeque<Entry>,
    /// The state of the log when it was opened.
    pub(super) initial: RaftState,
    /// The last entry that the replica has applied.
    pub(super) applied: u64,
}

impl Heads {
    pub(super) fn first(&self) -> u64 {
        self.truncated.0 + 1
    }

    pub(super) fn last(&self) -> u64 {
        self.truncated.0 + self.entries.len() as u64
    }

    pub(super) fn get(&self, index: u64) -> Option<&Entry> {
        let nth = index.checked_sub(self.first())?;
        self.entries.get(nth as usize)
    }

    fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.truncated.0 {
            return Some(self.truncated.1);
        }
        self.get(index).map(|e| e.term)
    }

    /// Appends entries, after removing the suffix that conflicts with them. Returns whether there was one.
    pub(super) fn append(&mut self, entries: Vec<Entry>) -> bool {
        let Some(first) = entries.first() else {
            return false;
        };
        let keep = first.index.saturating_sub(self.first()) as usize;
        let overwrites = keep < self.entries.len();
        self.entries.truncate(keep);
        self.entries.extend(entries);
        overwrites
    }

    /// Drops entries up to `through`.
    pub(super) fn truncate(&mut self, through: u64) {
        while self.first() <= through {
            let Some(gone) = self.entries.pop_front() else {
                break;
            };
            self.truncated = (gone.index, gone.term);
        }
    }
}

impl Storage for Heads {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low < self.first() {
            return Err(Error::Store(StorageError::Compacted));
        }
        let most = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let range = (low - self.first()) as usize;
        let found = self.entries.iter().skip(range);
        let found = found.take(high.saturating_sub(low) as usize);
        let fits = |e: &&Entry| {
            bytes += e.data.len() as u64;
            bytes <= most || e.index == low
        };
        Ok(found.take_while(fits).cloned().collect())
    }

    fn term(&self, index: u64) -> Result<u64> {
        self.term_at(index)
            .ok_or(Error::Store(if index < self.truncated.0 {
                StorageError::Compacted
            } else {
                StorageError::Unavailable
            }))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    /// A place to copy from, without data: it is never sent.
    fn snapshot(&self, request_index: u64, _: u64) -> Result<Snapshot> {
        let wait = Error::Store(StorageError::SnapshotTemporarilyUnavailable);
        if self.applied == 0 || self.applied < request_index {
            return Err(wait);
        }
        let term = self.term_at(self.applied).ok_or(wait)?;
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = self.applied;
        metadata.term = term;
        Ok(snapshot)
    }
}

/// A hard state of the raft crate.
pub(super) fn hard_state(term: u64, vote: u64, commit: u64) -> HardState {
    HardState {
        term,
        vote,
        commit,
        ..HardState::default()
    }
}
