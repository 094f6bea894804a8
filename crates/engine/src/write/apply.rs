//! Puts the records of a batch into the memtables: for new writes and for recovery.

use std::sync::Arc;

use arc_swap::Guard;
use base::{Error, Result, SequenceNumber, ValueType, key};
use memtable::{self, Memtable, Prepared};

use crate::batch::{Record, WriteBatch};
use crate::catalog::family::{Family, FamilySet};
use crate::catalog::view::View;
use crate::commit::Writes;
use base::values::{self, Base, Stored, entity};
use manifest::Version;

/// Where the records of a batch go.
pub(crate) trait Target {
    /// The family with this id; `None` skips the record, which still uses up its sequence number.
    fn family(&self, id: u32) -> Result<Option<&Arc<Family>>>;

    /// Everything up to this sequence number is in the memtables.
    fn settled(&self) -> SequenceNumber;

    /// Called after records were put into a memtable.
    fn inserted(&self, family: &Family, mem: &Memtable);
}

/// New writes: every family must exist.
pub(crate) struct NewWrites<'a> {
    pub(crate) families: &'a FamilySet,
    pub(crate) writes: &'a Writes,
}

impl Target for NewWrites<'_> {
    fn family(&self, id: u32) -> Result<Option<&Arc<Family>>> {
        self.families.require(id).map(Some)
    }

    fn settled(&self) -> SequenceNumber {
        self.writes.visible()
    }

    #[inline]
    fn inserted(&self, family: &Family, mem: &Memtable) {
        if family.wants_rotation(mem) {
            self.writes.attention.raise();
        }
    }
}

/// Recovery: records of families that were dropped, or whose data from this log is in tables
/// already, are skipped.
pub(crate) struct Replay<'a> {
    pub(crate) families: &'a FamilySet,
    pub(crate) log_number: base::FileNumber,
    /// `(i, n)`: only the families of share `i` of `n` are replayed; other families are skipped.
    pub(crate) share: (usize, usize),
}

impl Target for Replay<'_> {
    fn family(&self, id: u32) -> Result<Option<&Arc<Family>>> {
        let (mine, of) = self.share;
        Ok(self
            .families
            .get(id)
            .filter(|f| f.id as usize % of == mine && f.log_number() <= self.log_number))
    }

    /// Not known and not needed.
    fn settled(&self) -> SequenceNumber {
        SequenceNumber(0)
    }

    fn inserted(&self, _: &Family, _: &Memtable) {}
}

/// Puts batches into the memtables. It collects the entries of several records, of one or many batches,
/// and links them into the memtables together. All entries are in the memtables after [`finish`].
///
/// Memtables must not be replaced while this lives.
///
/// [`finish`]: Inserter::finish
pub(crate) struct Inserter<'t, T> {
    target: &'t T,
    /// The families met so far; `None` for a family whose records are skipped.
    met: Vec<(u32, Option<Met<'t>>)>,
    /// Entries that are allocated but not linked yet, each with the family's index in `met`.
    prepared: Vec<(usize, Prepared)>,
    /// There is at most one record in all: it is inserted at once.
    single: bool,
}

struct Met<'t> {
    family: &'t Family,
    view: Guard<Arc<View>>,
}

/// Inserts every record of the batch: see [`Inserter::add`].
pub(crate) fn insert(batch: &WriteBatch, target: &impl Target) -> Result<()> {
    let mut inserter = Inserter::new(target, batch.count() == 1);
    inserter.add(batch)?;
    inserter.finish();
    Ok(())
}

impl<'t, T: Target> Inserter<'t, T> {
    /// `single`: there will be one record, or none.
    pub(crate) fn new(target: &'t T, single: bool) -> Self {
        Self {
            target,
            met: Vec::new(),
            prepared: Vec::new(),
            single,
        }
    }

    /// Adds every record of the batch. The first counted record gets the batch's sequence number.
    ///
    /// Errors: an unknown column family; a kind of record that Ironstone does not support. The
    /// caller checks new batches with [`check`] before they are logged.
    pub(crate) fn add(&mut self, batch: &WriteBatch) -> Result<()> {
        let mut seq = batch.sequence();
        for record in batch.records() {
            let (cf, key, kind, value) = match record? {
                Record::DeleteRange { cf, begin, end } => {
                    if let Some(family) = self.target.family(cf)? {
                        let view = family.view.load();
                        view.mem.delete_range(begin, end, SequenceNumber(seq));
                        self.target.inserted(family, &view.mem);
                    }
                    seq += 1;
                    continue;
                }
                Record::Put { cf, key, value } => (cf, key, ValueType::Value, value),
                Record::Delete { cf, key } => (cf, key, ValueType::Deletion, &b""[..]),
                Record::SingleDelete { cf, key } => (cf, key, ValueType::SingleDeletion, &b""[..]),
                Record::Merge { cf, key, operand } => (cf, key, ValueType::Merge, operand),
                Record::PutEntity { cf, key, entity } => {
                    (cf, key, ValueType::WideColumnEntity, entity)
                }
                Record::LogData(_) | Record::Noop => continue,
                other => return Err(unsupported(&other)),
            };
            if self.single {
                if let Some(family) = self.target.family(cf)? {
                    let mem = &family.view.load().mem;
                    if kind != ValueType::Merge || !self.merged(family, batch, key, seq, value) {
                        mem.insert(key, SequenceNumber(seq), kind, value);
                    }
                    self.target.inserted(family, mem);
                }
            } else {
                self.add_one(batch, cf, (key, seq, kind), value)?;
            }
            seq += 1;
        }
        Ok(())
    }

    fn add_one(
        &mut self,
        batch: &WriteBatch,
        cf: u32,
        (key, seq, kind): (&[u8], u64, ValueType),
        value: &[u8],
    ) -> Result<()> {
        let at = self.place(cf)?;
        let Some(met) = &self.met[at].1 else {
            return Ok(());
        };
        if kind == ValueType::Merge && met.family.max_successive_merges() > 0 {
            let family = met.family;
            self.link();
            if self.merged(family, batch, key, seq, value) {
                return Ok(());
            }
        }
        let Some((_, Some(met))) = self.met.get(at) else {
            return Ok(());
        };
        let mem = &met.view.mem;
        if let Some(version) = mem.prepare(key, SequenceNumber(seq), kind, value) {
            if self.prepared.capacity() == 0 {
                self.prepared.reserve_exact(memtable::TOGETHER);
            }
            self.prepared.push((at, version));
            if self.prepared.len() == memtable::TOGETHER {
                self.link();
            }
        }
        Ok(())
    }

    /// The index of the family in `met`.
    #[inline]
    fn place(&mut self, cf: u32) -> Result<usize> {
        if let Some(at) = self.met.iter().position(|(id, _)| *id == cf) {
            return Ok(at);
        }
        let met = self.target.family(cf)?.map(|family| Met {
            family,
            view: family.view.load(),
        });
        self.met.push((cf, met));
        Ok(self.met.len() - 1)
    }

    /// Adds the merged value instead of the merge operand, if `max_successive_merges` requires that. Returns
    /// whether it did.
    fn merged(
        &self,
        family: &Family,
        batch: &WriteBatch,
        key: &[u8],
        seq: u64,
        value: &[u8],
    ) -> bool {
        // All earlier writes, which may be to the same key, must be in the memtable.
        let settled = self.target.settled().0 + 1 == batch.sequence();
        if family.max_successive_merges() == 0 || !settled {
            return false;
        }
        let view = family.view.load();
        let Some(merged) = merge_in_memory(family, &view, key, seq, value) else {
            return false;
        };
        view.mem
            .insert(key, SequenceNumber(seq), merged.kind(), &merged.bytes);
        true
    }

    fn link(&mut self) {
        let met = &self.met;
        memtable::link_all(self.prepared.drain(..).filter_map(|(at, version)| {
            let (_, family) = met.get(at)?;
            Some((&*family.as_ref()?.view.mem, version))
        }));
    }

    /// After this, everything that was added is in the memtables.
    pub(crate) fn finish(mut self) {
        self.link();
        for (_, met) in &self.met {
            if let Some(met) = met {
                self.target.inserted(met.family, &met.view.mem);
            }
        }
    }
}

/// Whether no table has a range that contains the key.
fn in_no_table(version: &Version, seek_key: &[u8]) -> bool {
    let user_key = key::user_key(seek_key);
    let mut level0 = version.level(0).iter();
    !level0.any(|f| f.spans(&version.comparator, user_key))
        && (1..version.num_levels())
            .all(|level| version.files_for(level, seek_key).next().is_none())
}

/// The result of merging the operand with the older operands of the key and their base value. `None` unless the
/// active memtable has at least `max_successive_merges` of these operands, and the base value is in memory or
/// does not exist.
fn merge_in_memory(
    family: &Family,
    view: &View,
    user_key: &[u8],
    sequence: u64,
    operand: &[u8],
) -> Option<Stored> {
    let operator = family.merge_operator.as_deref()?;
    let older = SequenceNumber(sequence.checked_sub(1)?);
    let seek_key = key::encode(user_key, older, ValueType::FOR_SEEK);
    let mut operands = vec![operand.to_vec()]; // newest first
    let mut base = None;
    for (i, mem) in std::iter::once(&view.mem).chain(&view.imm).enumerate() {
        if mem.covering_tombstone(&seek_key) > 0 {
            return None; // the versions under the tombstone do not count
        }
        mem.versions(&seek_key, |version, value| {
            if version.value_type == ValueType::Merge {
                operands.push(value.bytes().to_vec());
                return true;
            }
            base = Some((version.value_type, value.bytes().to_vec()));
            false
        });
        let under = operands.len() as u64 - 1;
        if i == 0 && under < family.max_successive_merges() {
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
    values::apply(operator, None, user_key, base, &oldest_first).ok()
}

/// Refuses a batch that [`insert`] would fail on, before it is logged.
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
                if family.merge_operator.is_none() {
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

/// Refuses a batch with records of a family that does not exist any more.
pub(crate) fn check_families(batch: &WriteBatch, families: &FamilySet) -> Result<()> {
    for record in batch.records() {
        match record? {
            Record::Put { cf, .. }
            | Record::Delete { cf, .. }
            | Record::SingleDelete { cf, .. }
            | Record::DeleteRange { cf, .. }
            | Record::Merge { cf, .. }
            | Record::PutEntity { cf, .. } => {
                families.require(cf)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn unsupported(record: &Record<'_>) -> Error {
    Error::not_supported(format!("{} records in a write batch", record.name()))
}
