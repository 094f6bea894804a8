//! The log's knowledge of each group: its state, and where its entries are. In memory only: a scan of the files
//! rebuilds it.
//!
//! ```text
//!   truncated        synced (S)       commit          last
//!   ────┼───────────────┼───────────────┼───────────────┤
//!       first entry that is kept                         entries, each in some file
//! ```
//!
//! Each file begins with the state of every group, so an older file is needed only as long as it has a kept
//! entry.

use std::collections::{BTreeMap, VecDeque};

use base::{Error, Result};
use bytes::Bytes;

use super::batch::{Item, Kind, MORE};
use crate::ids::{Group, Index, Term};

/// The state that a replica must never lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The latest term that the replica has seen.
    pub term: Term,
    /// The candidate that it voted for in that term; 0: none.
    pub vote: u64,
    /// The last entry that is known to be committed.
    pub commit: Index,
}

impl HardState {
    /// As an item of a batch.
    pub fn to_item(self, group: Group) -> Item {
        Item {
            kind: Kind::HardState,
            flags: 0,
            group,
            index: self.commit,
            term: self.term,
            inline: Bytes::copy_from_slice(&self.vote.to_le_bytes()),
            payload: Bytes::new(),
        }
    }

    fn of_item(item: &Item) -> Option<Self> {
        Some(Self {
            term: item.term,
            vote: u64::from_le_bytes(item.inline.get(..)?.try_into().ok()?),
            commit: item.index,
        })
    }
}

/// An entry of a group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its term.
    pub term: Term,
    /// The item's flags.
    pub flags: u8,
    /// The command's head, and the crcs of the payload's blocks.
    pub inline: Bytes,
    /// The location of its payload.
    pub payload: Payload,
    /// The number of its file.
    pub file: u64,
}

/// The location of an entry's payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Offset in the entry's file, bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// The bytes, while they are in memory too.
    pub here: Option<Bytes>,
}

impl Payload {
    /// Drops the bytes from memory; returns their number.
    fn unload(&mut self) -> u64 {
        self.here.take().map_or(0, |here| here.len() as u64)
    }
}

/// Stands for the term of a dropped entry that is in no file.
const UNKNOWN: Term = Term(u64::MAX);

/// The log's knowledge of one group.
#[derive(Debug, Default)]
pub struct GroupLog {
    hard: HardState,
    /// The entry up to which the data file is synced, and its term.
    synced: (Index, Term),
    /// Members, epochs and windows at that entry.
    state: Bytes,
    /// The last entry of an unfinished copy from a peer: the data file may have blocks of entries up to
    /// here.
    copying: Index,
    /// The last dropped entry, and its term.
    truncated: (Index, Term),
    entries: VecDeque<Entry>,
}

impl GroupLog {
    /// Its hard state.
    pub fn hard(&self) -> HardState {
        self.hard
    }

    /// The entry up to which the data file is synced (S), and its term.
    pub fn synced(&self) -> (Index, Term) {
        self.synced
    }

    /// The group's state at S.
    pub fn state(&self) -> &Bytes {
        &self.state
    }

    /// Index of the first kept entry, whether or not it exists.
    pub fn first(&self) -> Index {
        Index(self.truncated.0.0 + 1)
    }

    /// The last entry; the one before the first if there is none.
    pub fn last(&self) -> Index {
        Index(self.truncated.0.0 + self.entries.len() as u64)
    }

    /// The last entry of an unfinished copy of which the data file may have blocks; 0: there is none.
    pub fn copying(&self) -> Index {
        self.copying
    }

    /// The last entry of which the data file may have blocks.
    pub fn last_in_data(&self) -> Index {
        self.last().max(self.copying)
    }

    /// An entry, if it is kept.
    pub fn entry(&self, index: Index) -> Option<&Entry> {
        let nth = index.0.checked_sub(self.first().0)?;
        self.entries.get(nth as usize)
    }

    /// Takes an item that is no entry. Returns entries that are obsolete now.
    fn take_state(&mut self, item: &Item) -> Result<VecDeque<Entry>> {
        match item.kind {
            Kind::HardState => {
                self.hard = HardState::of_item(item)
                    .ok_or_else(|| cannot_be(item, "a hard state of another size"))?;
            }
            Kind::Checkpoint => {
                self.synced = (item.index, item.term);
                if item.index >= self.copying {
                    self.copying = Index(0);
                }
                // A copy from a peer starts a new log, behind the entries that the replica has, or in place of
                // entries that were never committed.
                let other = self.entry(item.index).is_some_and(|e| e.term != item.term);
                if item.index > self.last() || other {
                    self.truncated = self.synced;
                    return Ok(std::mem::take(&mut self.entries));
                }
            }
            Kind::GroupState if item.flags & MORE == 0 => self.state = item.inline.clone(),
            Kind::GroupState => self.state = [&self.state[..], &item.inline[..]].concat().into(),
            Kind::Copying => self.copying = item.index.max(self.copying),
            Kind::Entry | Kind::Purge => {}
        }
        Ok(VecDeque::new())
    }

    /// The last entry in files with numbers up to `file`; the one before the first if there is none.
    pub fn last_in(&self, file: u64) -> Index {
        let count = self.entries.partition_point(|e| e.file <= file);
        Index(self.truncated.0.0 + count as u64)
    }

    fn entry_mut(&mut self, index: Index) -> Option<&mut Entry> {
        let nth = index.0.checked_sub(self.first().0)?;
        self.entries.get_mut(nth as usize)
    }

    /// The term of a kept entry, or of the last dropped one.
    pub fn term(&self, index: Index) -> Option<Term> {
        if index == self.truncated.0 {
            return Some(self.truncated.1);
        }
        self.entry(index).map(|e| e.term)
    }
}

/// The log's knowledge of all groups.
#[derive(Debug, Default)]
pub struct Groups {
    all: BTreeMap<Group, GroupLog>,
    /// Number of kept entries in each file.
    kept: BTreeMap<u64, usize>,
    /// Bytes of payloads in memory.
    in_memory: u64,
    /// The files are being read: the entries before the first one found of a group may have been dropped.
    finding: bool,
}

impl Groups {
    /// Starts the reading of all files, from the oldest on; [`Groups::found`] ends it.
    pub fn find() -> Self {
        Self {
            finding: true,
            ..Self::default()
        }
    }

    /// All files are read. Errors: Corruption, if entries are missing that the data file does not have.
    pub fn found(&mut self) -> Result<()> {
        self.finding = false;
        let mut known_later = Vec::new();
        for (&id, group) in &mut self.all {
            if group.truncated.1 != UNKNOWN {
                continue;
            }
            if group.synced.0 < group.truncated.0 {
                return Err(Error::corruption(format!(
                    "entries {} to {} of group {id} are missing from the log",
                    group.synced.0.0 + 1,
                    group.truncated.0
                ))
                .hint("a file of the log is missing; bring its own files back, or leave the store out"));
            }
            if group.synced.0 == group.truncated.0 {
                group.truncated = group.synced;
            } else {
                known_later.push((id, group.first()));
            }
        }
        for (id, first) in known_later {
            self.truncate(id, first);
        }
        Ok(())
    }

    /// Drops the payloads of a group's entries up to `through` from memory: they are read from the files
    /// from now on.
    pub fn unload(&mut self, group: Group, through: Index) {
        let Some(log) = self.all.get_mut(&group) else {
            return;
        };
        let count = (through.0 + 1).saturating_sub(log.first().0) as usize;
        for entry in log.entries.iter_mut().take(count) {
            self.in_memory -= entry.payload.unload();
        }
    }

    /// Drops the payload of one entry from memory.
    pub fn unload_one(&mut self, group: Group, index: Index) {
        let log = self.all.get_mut(&group);
        if let Some(entry) = log.and_then(|log| log.entry_mut(index)) {
            self.in_memory -= entry.payload.unload();
        }
    }

    /// Whether the payload of an entry is in memory.
    pub fn is_in_memory(&self, group: Group, index: Index) -> bool {
        let entry = self.all.get(&group).and_then(|log| log.entry(index));
        entry.is_some_and(|e| e.payload.here.is_some())
    }

    /// Bytes of payloads in memory.
    pub fn bytes_in_memory(&self) -> u64 {
        self.in_memory
    }

    /// A group, if the log knows it.
    pub fn get(&self, group: Group) -> Option<&GroupLog> {
        self.all.get(&group)
    }

    /// All groups.
    pub fn iter(&self) -> impl Iterator<Item = (Group, &GroupLog)> {
        self.all.iter().map(|(&id, group)| (id, group))
    }

    /// The first file that has a kept entry.
    pub fn first_needed(&self) -> Option<u64> {
        self.kept.first_key_value().map(|(&file, _)| file)
    }

    /// Takes an item of a batch, when it is appended or found by a scan. Errors: Corruption, if it does not
    /// follow what is known.
    pub fn take(&mut self, item: &Item, file: u64, payload: Payload) -> Result<()> {
        match item.kind {
            Kind::Entry => self.take_entry(item, file, payload),
            Kind::Purge => {
                for entry in self.all.remove(&item.group).unwrap_or_default().entries {
                    self.forget(entry);
                }
                Ok(())
            }
            _ => {
                let gone = self.all.entry(item.group).or_default().take_state(item)?;
                for entry in gone {
                    self.forget(entry);
                }
                Ok(())
            }
        }
    }

    fn take_entry(&mut self, item: &Item, file: u64, payload: Payload) -> Result<()> {
        let group = self.all.entry(item.group).or_default();
        if item.index <= group.truncated.0 {
            return Ok(()); // an older file's, dropped since
        }
        // A conflicting suffix is overwritten.
        let nth = (item.index.0 - group.first().0) as usize;
        if nth > group.entries.len() {
            let last = group.last();
            if !group.entries.is_empty() || !self.finding {
                return Err(cannot_be(item, &format!("an entry behind {last}")));
            }
            // The entries in between were in files that are gone: `found` checks that they are not needed.
            group.truncated = (Index(item.index.0 - 1), UNKNOWN);
        }
        let nth = (item.index.0 - group.first().0) as usize;
        let gone = group.entries.split_off(nth);
        let here = payload.here.as_ref().map_or(0, |here| here.len() as u64);
        group.entries.push_back(Entry {
            term: item.term,
            flags: item.flags,
            inline: item.inline.clone(),
            payload,
            file,
        });
        self.in_memory += here;
        for entry in gone {
            self.forget(entry);
        }
        *self.kept.entry(file).or_default() += 1;
        Ok(())
    }

    /// Drops a group's entries up to `through`.
    pub fn truncate(&mut self, group: Group, through: Index) {
        let Some(log) = self.all.get_mut(&group) else {
            return;
        };
        while log.first() <= through {
            let Some(entry) = log.entries.pop_front() else {
                break;
            };
            log.truncated = (Index(log.truncated.0.0 + 1), entry.term);
            forget(&mut self.kept, &mut self.in_memory, entry);
        }
    }

    fn forget(&mut self, entry: Entry) {
        forget(&mut self.kept, &mut self.in_memory, entry);
    }

    /// The items for the first batch of a new file: everything but the entries.
    pub fn states(&self) -> Vec<Item> {
        let mut out = Vec::with_capacity(self.all.len() * 3);
        for (&group, log) in &self.all {
            let item = |kind, (index, term), inline: Bytes| Item {
                kind,
                flags: 0,
                group,
                index,
                term,
                inline,
                payload: Bytes::new(),
            };
            out.push(log.hard.to_item(group));
            out.push(item(Kind::Checkpoint, log.synced, Bytes::new()));
            out.extend(Item::states(group, log.synced, &log.state));
            if log.copying > log.synced.0 {
                let at = (log.copying, Term(0));
                out.push(item(Kind::Copying, at, Bytes::new()));
            }
        }
        out
    }
}

/// Accounts for an entry that is no longer kept.
fn forget(kept: &mut BTreeMap<u64, usize>, in_memory: &mut u64, mut entry: Entry) {
    *in_memory -= entry.payload.unload();
    match kept.get_mut(&entry.file) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(kept.remove(&entry.file)),
    }
}

fn cannot_be(item: &Item, what: &str) -> Error {
    Error::corruption(format!(
        "the log has of group {}, at {}: {what}",
        item.group, item.index
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Group = Group(1);
    const B: Group = Group(2);

    fn item(kind: Kind, group: Group, index: u64, term: u64) -> Item {
        Item {
            kind,
            flags: 0,
            group,
            index: Index(index),
            term: Term(term),
            inline: Bytes::new(),
            payload: Bytes::new(),
        }
    }

    fn take(groups: &mut Groups, item: &Item, file: u64) -> Result<()> {
        groups.take(item, file, Payload::default())
    }

    fn entries(
        groups: &mut Groups,
        group: Group,
        range: std::ops::Range<u64>,
        term: u64,
        file: u64,
    ) {
        for index in range {
            take(groups, &item(Kind::Entry, group, index, term), file).unwrap();
        }
    }

    #[test]
    fn files_are_needed_as_long_as_they_have_entries() {
        let mut groups = Groups::default();
        entries(&mut groups, A, 1..6, 1, 3);
        entries(&mut groups, B, 1..3, 1, 3);
        entries(&mut groups, A, 6..9, 2, 4);
        assert_eq!(groups.first_needed(), Some(3));
        groups.truncate(A, Index(7));
        let a = groups.get(A).unwrap();
        assert_eq!((a.first(), a.last()), (Index(8), Index(8)));
        assert_eq!((a.term(Index(7)), a.term(Index(6))), (Some(Term(2)), None));
        assert_eq!(groups.first_needed(), Some(3), "B has some there");
        take(&mut groups, &item(Kind::Purge, B, 0, 0), 4).unwrap();
        assert!(groups.get(B).is_none());
        assert_eq!(groups.first_needed(), Some(4));
        groups.truncate(A, Index(99));
        assert_eq!(
            (groups.first_needed(), groups.get(A).unwrap().last()),
            (None, Index(8))
        );
    }

    #[test]
    fn a_conflicting_suffix_is_written_over() {
        let mut groups = Groups::default();
        entries(&mut groups, A, 1..8, 1, 3);
        entries(&mut groups, A, 4..6, 2, 4);
        let a = groups.get(A).unwrap();
        let terms: Vec<_> = (1..8).map(|i| a.term(Index(i)).map(|t| t.0)).collect();
        let expected = [Some(1), Some(1), Some(1), Some(2), Some(2), None, None];
        assert_eq!(terms, expected);
        let e = take(&mut groups, &item(Kind::Entry, A, 7, 2), 4).unwrap_err();
        assert!(
            e.to_string().contains("group 1, at 7: an entry behind 5"),
            "{e}"
        );
        groups.truncate(A, Index(5));
        assert_eq!(groups.first_needed(), None);
    }

    /// The oldest kept file begins in the middle of a group's entries: those before are in the data file,
    /// as a later file says.
    #[test]
    fn the_oldest_file_may_begin_anywhere_below_the_checkpoint() {
        for (synced, first, missing) in [(7, 8, false), (8, 9, false), (9, 9, false), (6, 0, true)]
        {
            let mut groups = Groups::find();
            take(&mut groups, &item(Kind::Checkpoint, A, 4, 1), 3).unwrap();
            entries(&mut groups, A, 8..12, 1, 3);
            take(&mut groups, &item(Kind::Checkpoint, A, synced, 1), 4).unwrap();
            let found = groups.found();
            assert_eq!(found.is_err(), missing, "{synced}");
            if let Err(e) = found {
                assert!(e.to_string().contains("entries 7 to 7 of group 1"), "{e}");
                continue;
            }
            let a = groups.get(A).unwrap();
            assert_eq!((a.first(), a.last()), (Index(first), Index(11)));
            assert_eq!(a.term(Index(first - 1)), Some(Term(1)));
        }
        let mut groups = Groups::find();
        entries(&mut groups, A, 1..3, 1, 3);
        assert!(take(&mut groups, &item(Kind::Entry, A, 9, 1), 3).is_err());
    }

    /// A new file's first batch repeats everything but the entries.
    #[test]
    fn states_are_said_again_in_each_file() {
        let mut groups = Groups::default();
        entries(&mut groups, A, 1..9, 3, 3);
        let hard = HardState {
            term: Term(4),
            vote: 77,
            commit: Index(6),
        };
        take(&mut groups, &hard.to_item(A), 3).unwrap();
        take(&mut groups, &item(Kind::Checkpoint, A, 5, 3), 3).unwrap();
        let mut state = item(Kind::GroupState, A, 5, 3);
        state.inline = Bytes::from_static(b"members");
        take(&mut groups, &state, 3).unwrap();
        groups.truncate(A, Index(4));

        let mut again = Groups::default();
        for item in groups.states() {
            take(&mut again, &item, 9).unwrap();
        }
        let a = again.get(A).unwrap();
        assert_eq!(
            (a.hard(), a.synced(), &a.state()[..]),
            (hard, (Index(5), Term(3)), &b"members"[..])
        );
        assert_eq!(a.first(), Index(6), "a log begins behind its checkpoint");
        let mut short = hard.to_item(A);
        short.inline = Bytes::from_static(b"short");
        assert!(take(&mut again, &short, 9).unwrap_err().is_corruption());
    }
}
