//! Room in the log: how much there is, and how more is made by dropping entries that the data file has.

use std::collections::BTreeMap;

use base::{Error, Result};

use super::{RaftLog, TruncateToken, batch, file_head};
use crate::ids::{Group, Index};

impl RaftLog {
    /// The used part of the space for entries, from 0 to 1.
    pub fn fill(&self) -> f64 {
        let files = self.older.len() + 1 + self.files.spare();
        let all = files.saturating_sub(self.options.reserved_files).max(1) as u64;
        self.fill_of(self.older.len(), all)
    }

    /// The same, without entries that are proved to be in the data file, which can be dropped at any time.
    pub fn fill_unproven(&self) -> f64 {
        let first = self.groups.iter().filter_map(|(group, log)| {
            let proven = self.proven.get(&group).copied().unwrap_or_default();
            let next = log.entry(Index(proven.0 + 1).max(log.first()));
            next.map(|e| e.file)
        });
        let first = first.min().unwrap_or(self.current.number);
        let files = self.older.len() + 1 + self.files.spare();
        let all = files.saturating_sub(self.options.reserved_files).max(1) as u64;
        self.fill_of(self.older.range(first..).count(), all)
    }

    fn fill_of(&self, older: usize, all: u64) -> f64 {
        let used = older as u64 * self.options.file_bytes + self.current.log.size();
        (used as f64 / (all * self.options.file_bytes) as f64).min(1.0)
    }

    /// The most bytes that a batch may have ([`batch::bytes`]), checkpoints aside.
    pub fn batch_bytes_max(&self) -> u64 {
        // A new file begins with the states of all groups, which take at most half of it.
        (self.options.file_bytes / 2 - file_head::LEN as u64).min(batch::BATCH_BYTES_MAX / 2)
    }

    pub(super) fn fits(&self, bytes: u64) -> bool {
        self.current.log.size() + bytes <= self.options.file_bytes
    }

    /// Bytes that would remain after a batch of `bytes`; `None`: there is no room for it.
    fn left_behind(&self, bytes: u64) -> Option<u64> {
        let file = self.options.file_bytes;
        let spare = self.files.spare() as u64 * file;
        if self.fits(bytes) {
            return Some(spare + file - self.current.log.size() - bytes);
        }
        let states = batch::bytes(&self.groups.states(), self.options.unit as usize);
        spare.checked_sub(file_head::LEN as u64 + states + bytes)
    }

    /// Whether there is room for a batch of `bytes` without payloads, if need be in the reserved files.
    pub fn has_place(&self, bytes: u64) -> bool {
        self.left_behind(bytes).is_some()
    }

    /// Whether there is room for a batch of `bytes` with payloads; otherwise the log must be truncated first.
    /// The reserved files do not count.
    pub fn has_room(&self, bytes: u64) -> bool {
        let reserved = self.options.reserved_files as u64 * self.options.file_bytes;
        self.left_behind(bytes).is_some_and(|left| left >= reserved)
    }

    /// Errors: there is no room for the batch.
    pub(super) fn check_room(&self, items: usize, bytes: u64, has_payloads: bool) -> Result<()> {
        if !self.fits(bytes) {
            let states = batch::bytes(&self.groups.states(), self.options.unit as usize);
            let most = self.options.file_bytes - file_head::LEN as u64;
            if bytes + states > most {
                return Err(Error::broken(format!(
                    "a batch of {items} items has {bytes} bytes, and a file takes {most}"
                )));
            }
        }
        if self.left_behind(bytes).is_none() || (has_payloads && !self.has_room(bytes)) {
            return Err(Error::new(
                base::ErrorKind::NoSpace,
                "the log is full: nothing is written back fast enough",
            )
            .hint("see the checkpoints of the store's groups"));
        }
        Ok(())
    }

    /// Takes the proof that the data file has a group's entries durably. The entries are kept for lagging
    /// followers as long as there is room, but not in memory.
    pub fn prove(&mut self, token: TruncateToken) {
        self.groups.unload(token.group, token.through);
        let groups = &self.groups;
        self.in_memory.retain(|&(g, i)| groups.is_in_memory(g, i));
        self.proven.insert(token.group, token.through);
    }

    /// Drops proved entries, from the oldest file on, until the log is at most this full, and frees files that
    /// no group needs. Returns up to which entry each group's log was dropped. Errors: a file could not be
    /// freed.
    pub fn truncate_proven(&mut self, fill_max: f64) -> Result<Vec<(Group, Index)>> {
        let mut dropped = BTreeMap::new();
        self.free_files()?;
        while self.fill() > fill_max
            && let Some(&oldest) = self.older.keys().next()
        {
            let proven: Vec<(Group, Index)> = self.proven.iter().map(|(&g, &i)| (g, i)).collect();
            for (group, through) in proven {
                let end = self.groups.get(group).map(|g| g.last_in(oldest));
                let through = through.min(self.pin(group)).min(end.unwrap_or_default());
                self.groups.truncate(group, through);
                dropped.insert(group, through);
            }
            self.free_files()?;
            if self.older.contains_key(&oldest) {
                break;
            }
        }
        Ok(dropped.into_iter().collect())
    }

    /// Drops the entries that a token proves, except those from `keep_from` on, even if there is room.
    #[cfg(test)]
    pub(crate) fn truncate(&mut self, token: TruncateToken, keep_from: Index) -> Result<()> {
        let (group, through) = (token.group, token.through);
        self.prove(token);
        let through = through.min(Index(keep_from.0.saturating_sub(1)));
        self.groups.truncate(group, through);
        self.free_files()
    }

    /// Keeps a group's entries behind `through`, for a copy under way; `None`: no longer.
    pub fn keep_behind(&mut self, group: Group, through: Option<Index>) {
        match through {
            Some(through) => drop(self.pinned.insert(group, through)),
            None => drop(self.pinned.remove(&group)),
        }
    }

    fn pin(&self, group: Group) -> Index {
        self.pinned.get(&group).copied().unwrap_or(Index(u64::MAX))
    }

    /// Frees files that no group needs.
    fn free_files(&mut self) -> Result<()> {
        let needed = self.groups.first_needed().unwrap_or(u64::MAX);
        while let Some((&number, _)) = self.older.first_key_value() {
            // Until the states in the current file are durable, only the older files have them.
            if number >= needed || self.current.log.durable().0 <= file_head::LEN as u64 {
                break;
            }
            self.files.free(number)?;
            self.older.remove(&number);
        }
        Ok(())
    }
}
