//! Puts the records of a batch into the memtables: for new writes and for recovery.

use std::sync::Arc;

use base::{Error, Result, SequenceNumber, ValueType, key};

use crate::batch::{Record, WriteBatch};
use crate::entity;
use crate::family::{Family, FamilySet};
use crate::read::view::View;
use crate::shared::Shared;
use crate::stored::{self, Base, Stored};
use crate::version::Version;

/// Where the records of a batch go.
pub(crate) trait Target {
    /// The family with this id; `None` skips the record, which still uses up its sequence number.
    fn family(&self, id: u32) -> Result<Option<&Arc<Family>>>;

    /// Everything up to this sequence number is in the memtables.
    fn settled(&self) -> SequenceNumber;
}

/// New writes: every family must exist.
pub(crate) struct NewWrites<'a> {
    pub(crate) families: &'a FamilySet,
    pub(crate) db: &'a Shared,
}

impl Target for NewWrites<'_> {
    fn family(&self, id: u32) -> Result<Option<&Arc<Family>>> {
        self.families.require(id).map(Some)
    }

    fn settled(&self) -> SequenceNumber {
        self.db.visible()
    }
}

/// Recovery: records of families that were dropped, or whose data from this log is in tables
/// already, are skipped.
pub(crate) struct Replay<'a> {
    pub(crate) families: &'a FamilySet,
    pub(crate) log_number: base::FileNumber,
}

impl Target for Replay<'_> {
    fn family(&self, id: u32) -> Result<Option<&Arc<Family>>> {
        Ok(self
            .families
            .get(id)
            .filter(|f| f.log_number() <= self.log_number))
    }

    /// Not known, and not needed.
    fn settled(&self) -> SequenceNumber {
        SequenceNumber(0)
    }
}

/// Inserts every record of the batch, the first counted one under the batch's sequence number.
///
/// Errors: an unknown column family, or a kind of record that Ironstone does not have yet. The
/// caller checks new batches with [`check`] before they reach the log.
pub(crate) fn insert(batch: &WriteBatch, target: &impl Target) -> Result<()> {
    let mut seq = batch.sequence();
    for record in batch.records() {
        let (cf, key, kind, value) = match record? {
            Record::DeleteRange { cf, begin, end } => {
                if let Some(family) = target.family(cf)? {
                    let view = family.view.load();
                    view.mem.delete_range(begin, end, SequenceNumber(seq));
                }
                seq += 1;
                continue;
            }
            Record::Put { cf, key, value } => (cf, key, ValueType::Value, value),
            Record::Delete { cf, key } => (cf, key, ValueType::Deletion, &b""[..]),
            Record::SingleDelete { cf, key } => (cf, key, ValueType::SingleDeletion, &b""[..]),
            Record::Merge { cf, key, operand } => (cf, key, ValueType::Merge, operand),
            Record::PutEntity { cf, key, entity } => (cf, key, ValueType::WideColumnEntity, entity),
            Record::LogData(_) | Record::Noop => continue,
            other => return Err(unsupported(&other)),
        };
        if let Some(family) = target.family(cf)? {
            let view = family.view.load();
            if kind == ValueType::Merge
                && family.options.cf.max_successive_merges > 0
                // Nothing that may lie between is still on its way to the memtable.
                && target.settled().0 + 1 == batch.sequence()
                && let Some(merged) = merge_in_memory(family, &view, key, seq, value)
            {
                let kind = merged.kind();
                view.mem
                    .insert(key, SequenceNumber(seq), kind, &merged.bytes);
            } else {
                view.mem.insert(key, SequenceNumber(seq), kind, value);
            }
        }
        seq += 1;
    }
    Ok(())
}

/// Whether no table has a range that contains the key.
fn in_no_table(version: &Version, seek_key: &[u8]) -> bool {
    let user_key = key::user_key(seek_key);
    let mut level0 = version.level(0).iter();
    !level0.any(|f| f.spans(&version.comparator, user_key))
        && (1..version.num_levels())
            .all(|level| version.files_for(level, seek_key).next().is_none())
}

/// The value that the operand gives with the operands under it, if there are as many as
/// `max_successive_merges` in the active memtable, and what they lie on is in memory or nowhere.
fn merge_in_memory(
    family: &Family,
    view: &View,
    user_key: &[u8],
    sequence: u64,
    operand: &[u8],
) -> Option<Stored> {
    let operator = family.options.merge_operator.as_deref()?;
    let older = SequenceNumber(sequence.checked_sub(1)?);
    let seek_key = key::encode(user_key, older, ValueType::FOR_SEEK);
    let mut operands = vec![operand.to_vec()]; // newest first
    let mut base = None;
    for (i, mem) in std::iter::once(&view.mem).chain(&view.imm).enumerate() {
        if mem.covering_tombstone(&seek_key) > 0 {
            return None; // what lies under it does not count
        }
        mem.versions(&seek_key, |version, value| {
            if version.value_type == ValueType::Merge {
                operands.push(value.to_vec());
                return true;
            }
            base = Some((version.value_type, value.to_vec()));
            false
        });
        let under = operands.len() as u64 - 1;
        if i == 0 && under < family.options.cf.max_successive_merges {
            return None;
        }
        if base.is_some() {
            break;
        }
    }
    let base = match &base {
        Some((kind, value)) => Base::of(*kind, value).ok()?,
        None if in_no_table(&view.version, &seek_key) => Base::Nothing,
        None => return None,
    };
    let oldest_first: Vec<&[u8]> = operands.iter().rev().map(|o| &o[..]).collect();
    stored::apply(operator, None, user_key, base, &oldest_first).ok()
}

/// Refuses a batch that [`insert`] would fail on: before it is logged.
pub(crate) fn check(batch: &WriteBatch, families: &FamilySet) -> Result<()> {
    for record in batch.records() {
        match record? {
            Record::Put { cf, .. }
            | Record::Delete { cf, .. }
            | Record::SingleDelete { cf, .. } => {
                families.require(cf)?;
            }
            Record::DeleteRange { cf, begin, end } => {
                let cmp = families.require(cf)?.comparator();
                if cmp.compare(begin, end).is_gt() {
                    return Err(Error::invalid_argument("end key comes before start key"));
                }
            }
            Record::Merge { cf, .. } => {
                let family = families.require(cf)?;
                if family.options.merge_operator.is_none() {
                    return Err(Error::invalid_argument(format!(
                        "merge in column family {:?}, which has no merge operator",
                        family.name
                    ))
                    .hint("open it with a merge_operator in its options"));
                }
            }
            Record::PutEntity { cf, entity, .. } => {
                families.require(cf)?;
                entity::default_column(entity)?;
            }
            Record::LogData(_) | Record::Noop => {}
            other => return Err(unsupported(&other)),
        }
    }
    Ok(())
}

fn unsupported(record: &Record<'_>) -> Error {
    Error::not_supported(format!("{} records in a write batch", record.name()))
}
