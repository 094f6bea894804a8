//! Puts the records of a batch into the memtables: for new writes and for recovery.

use std::sync::Arc;

use base::{Error, Result, SequenceNumber, ValueType};

use crate::batch::{Record, WriteBatch};
use crate::family::{Family, FamilySet};

/// Which family a record of a batch goes to; `None` skips the record, which still uses up its
/// sequence number.
pub(crate) trait Target {
    fn family(&self, id: u32) -> Result<Option<&Arc<Family>>>;
}

/// New writes: every family must exist.
impl Target for FamilySet {
    fn family(&self, id: u32) -> Result<Option<&Arc<Family>>> {
        self.require(id).map(Some)
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
            Record::LogData(_) | Record::Noop => continue,
            other => return Err(unsupported(&other)),
        };
        if let Some(family) = target.family(cf)? {
            let view = family.view.load();
            view.mem.insert(key, SequenceNumber(seq), kind, value);
        }
        seq += 1;
    }
    Ok(())
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
            Record::LogData(_) | Record::Noop => {}
            other => return Err(unsupported(&other)),
        }
    }
    Ok(())
}

fn unsupported(record: &Record<'_>) -> Error {
    Error::not_supported(format!("{} records in a write batch", record.name()))
}
