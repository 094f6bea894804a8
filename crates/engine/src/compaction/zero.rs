//! Values that lie under everything else get the sequence number 0, as in RocksDB.
//!
//! A sequence number says which entry of a key is newer, and which snapshots see the entry. It says neither of a value
//! that all snapshots see and that has no older entry of its key below it. Eight bytes of each entry that are equal
//! cost almost no space once a block is compressed; sequence numbers in the order of the keys look random.
//!
//! Operands and deletions keep their numbers. They are not needed either, but an entry of the same key may follow them
//! in the table.

use base::{SequenceNumber, ValueType, key};

use super::Pick;
use picking::candidates;

/// Writes sequence numbers as 0.
pub(crate) struct Zero {
    /// The newest sequence number that all readers see; `None` if no number may become 0.
    seen_by_all: Option<SequenceNumber>,
    key: Vec<u8>,
}

impl Zero {
    /// For the outputs of a compaction, unless levels below have files in its range. With `allow_ingest_behind`, older
    /// entries may still come.
    ///
    /// A value never gets under a range tombstone that it is newer than. Such a tombstone is dropped if all snapshots see
    /// it and nothing is below; else the value has a higher number than the oldest snapshot too.
    pub(crate) fn of(pick: &Pick, snapshots: &[SequenceNumber], ingest_behind: bool) -> Self {
        let levels = candidates::levels(&pick.version);
        // Level 0 may have older files beside the output.
        let is_lowest = pick.output_level > 0
            && (pick.output_level + 1..levels.count())
                .all(|level| levels.sorted_overlapping(level, &pick.range).is_empty());
        let fits = is_lowest && !ingest_behind;
        let oldest = || snapshots.first().copied().unwrap_or(SequenceNumber::MAX);
        Self {
            seen_by_all: fits.then(oldest),
            key: Vec::new(),
        }
    }

    /// The internal key under which an entry is written.
    #[inline]
    pub(crate) fn key<'a>(&'a mut self, internal_key: &'a [u8]) -> &'a [u8] {
        let Some(seen_by_all) = self.seen_by_all else {
            return internal_key;
        };
        match key::parse(internal_key) {
            Some(entry)
                if matches!(
                    entry.value_type,
                    ValueType::Value | ValueType::WideColumnEntity
                ) && entry.sequence <= seen_by_all =>
            {
                self.key.clear();
                key::append(
                    &mut self.key,
                    entry.user_key,
                    SequenceNumber(0),
                    entry.value_type,
                );
                &self.key
            }
            _ => internal_key,
        }
    }
}
