//! Operations that write.

use ironstone::{ErrorKind, WideColumns, WriteBatch, WriteOptions};

use super::runner::{Runner, Step};
use super::store::{Change, Value};

/// The changes of a batch: family, key, change.
type Changes = Vec<(usize, Vec<u8>, Change)>;

impl Runner {
    pub(super) fn value(&mut self) -> Value {
        let rng = &mut self.rng;
        let len = match rng.below(2000) {
            0 => rng.below(100_000),
            1..20 => rng.below(5000),
            20..120 => 0,
            _ => rng.below(self.setup.value_bytes),
        };
        let mut out = vec![0; len as usize];
        rng.fill(&mut out);
        let half = out.len() / 2; // the second half compresses
        out[half..].fill(b'v');
        out.into()
    }

    /// Sometimes 8 bytes long, like a counter.
    pub(super) fn operand(&mut self) -> Vec<u8> {
        let len = if self.rng.one_in(2) {
            8
        } else {
            self.rng.below(12)
        };
        let mut out = vec![0; len as usize];
        self.rng.fill(&mut out);
        out
    }

    fn columns(&mut self) -> WideColumns {
        let mut columns = Vec::new();
        for name in ["", "a", "long name"] {
            if self.rng.one_in(2) {
                columns.push((name, self.operand()));
            }
        }
        WideColumns::new(columns).expect("each name once")
    }

    fn write_options(&mut self) -> WriteOptions {
        let disable_wal = self.rng.one_in(50);
        let sync = !disable_wal && self.rng.one_in(50);
        self.unlogged |= disable_wal;
        WriteOptions {
            sync,
            disable_wal,
            no_slowdown: self.rng.one_in(100),
            low_pri: self.rng.one_in(2000),
        }
    }

    /// Writes one change in a batch of its own.
    fn change(&mut self, change: Change) -> Step {
        let f = self.family();
        let key = self.some_key();
        self.write(vec![(f, key, change)])
    }

    pub(super) fn put(&mut self) -> Step {
        let value = self.value();
        self.change(Change::Put(value))
    }

    pub(super) fn merge(&mut self) -> Step {
        let operand = self.operand();
        self.change(Change::Merge(operand))
    }

    pub(super) fn put_entity(&mut self) -> Step {
        let columns = self.columns();
        self.change(Change::Entity(columns))
    }

    pub(super) fn delete(&mut self) -> Step {
        self.change(Change::Delete)
    }

    pub(super) fn delete_range(&mut self) -> Step {
        let f = self.family();
        let (begin, end) = self.range(f);
        self.write(vec![(f, begin, Change::DeleteTo(end))])
    }

    /// Changes a key that is put and single-deleted in turns.
    pub(super) fn put_once(&mut self) -> Step {
        let f = self.family();
        let key = format!("once{:03}", self.rng.below(100)).into_bytes();
        let change = if self.model[f].get(&key).is_none() {
            Change::Put(self.value())
        } else {
            Change::SingleDelete
        };
        self.write(vec![(f, key, change)])
    }

    pub(super) fn apply(&mut self, family: usize, key: Vec<u8>, change: Change) {
        let operator = self.setup.options.cf.merge_operator.as_deref();
        let operator = operator.expect("every run has one");
        self.model[family].apply(operator, key, change);
    }

    /// A range of keys in the family's order: mostly a few neighbors, now and then a wide one.
    pub(super) fn range(&mut self, f: usize) -> (Vec<u8>, Vec<u8>) {
        let keys = self.setup.keys;
        let (mut a, mut b) = if self.rng.one_in(20) {
            (self.some_key(), self.some_key())
        } else {
            let n = self.rng.below(keys);
            let to = n + self.rng.below(1 + keys / 20);
            let name = |n: u64| format!("key{n:06}").into_bytes();
            (name(n), name(to))
        };
        if self.model[f].before(&b, &a) {
            std::mem::swap(&mut a, &mut b);
        }
        (a, b)
    }

    fn changes(&mut self) -> Changes {
        let mut changes = Vec::new();
        for _ in 0..self.rng.below(20) {
            let f = self.family();
            let key = self.some_key();
            let change = match self.rng.below(160) {
                0..40 => Change::Delete,
                40..80 => Change::Merge(self.operand()),
                80..90 => Change::Entity(self.columns()),
                90..92 => {
                    let (begin, end) = self.range(f);
                    changes.push((f, begin, Change::DeleteTo(end)));
                    continue;
                }
                _ => Change::Put(self.value()),
            };
            changes.push((f, key, change));
        }
        changes
    }

    fn add(&self, batch: &mut WriteBatch, changes: &Changes) -> Step {
        for (f, key, change) in changes {
            let id = self.handle(*f)?.id();
            let added = match change {
                Change::Delete => batch.cf_id(id).delete(key),
                Change::SingleDelete => batch.cf_id(id).single_delete(key),
                Change::Put(value) => batch.cf_id(id).put(key, value),
                Change::DeleteTo(end) => batch.cf_id(id).delete_range(key, end),
                Change::Merge(operand) => batch.cf_id(id).merge(key, operand),
                Change::Entity(columns) => batch.cf_id(id).put_entity(key, columns),
            };
            added.map_err(|e| format!("batch: {e}"))?;
        }
        Ok(())
    }

    /// A batch in which some parts were rolled back, and the remaining changes.
    fn transaction(&mut self) -> Result<(WriteBatch, Changes), String> {
        let mut batch = WriteBatch::new();
        let mut kept = self.changes();
        self.add(&mut batch, &kept)?;
        let failed = |e| format!("batch: {e}");
        for _ in 0..self.rng.below(3) {
            let part = self.changes();
            batch.set_save_point();
            self.add(&mut batch, &part)?;
            match self.rng.below(3) {
                0 => batch.rollback_to_save_point().map_err(failed)?,
                1 => {
                    batch.pop_save_point().map_err(failed)?;
                    kept.extend(part);
                }
                _ => kept.extend(part),
            }
        }
        if self.rng.one_in(4) {
            batch.put_log_data(b"a note").map_err(failed)?;
        }
        if self.rng.one_in(4) {
            let more = self.changes();
            let mut other = WriteBatch::new();
            self.add(&mut other, &more)?;
            batch.append(&other).map_err(failed)?;
            kept.extend(more);
        }
        if self.rng.one_in(4) {
            batch = WriteBatch::from_data(batch.into_data()).map_err(failed)?;
        }
        Ok((batch, kept))
    }

    pub(super) fn batch(&mut self) -> Step {
        let (batch, changes) = self.transaction()?;
        self.write_batch(batch, changes)
    }

    fn write(&mut self, changes: Changes) -> Step {
        let mut batch = WriteBatch::new();
        self.add(&mut batch, &changes)?;
        self.write_batch(batch, changes)
    }

    fn write_batch(&mut self, mut batch: WriteBatch, changes: Changes) -> Step {
        let options = self.write_options();
        self.note(format!("{}, {options:?}", shown(&changes)));
        match self.db().with(&options).write(&mut batch) {
            Ok(()) => {}
            // The write would have had to wait, and was not done.
            Err(e) if options.no_slowdown && e.kind() == ErrorKind::Incomplete => return Ok(()),
            Err(e) => return Err(format!("write: {e}")),
        }
        for (f, key, change) in changes {
            self.apply(f, key, change);
        }
        Ok(())
    }

    /// Writes without waiting for durability.
    pub(super) fn write_async(&mut self) -> Step {
        let (batch, changes) = self.transaction()?;
        self.note(format!("asynchronously {}", shown(&changes)));
        let written = self.db().write_async(batch);
        let pending = written.map_err(|e| format!("write_async: {e}"))?;
        let applied = pending.applied.wait();
        applied.map_err(|e| format!("write_async, applied: {e}"))?;
        for (f, key, change) in changes {
            self.apply(f, key, change);
        }
        self.pending.push(pending);
        if self.pending.len() > 8 {
            let first = self.pending.remove(0);
            let durable = first.durable.wait();
            durable.map_err(|e| format!("write_async, durable: {e}"))?;
        }
        Ok(())
    }
}

/// A batch, as text for the trace.
fn shown(changes: &Changes) -> String {
    match &changes[..] {
        [(f, key, change)] => {
            let (what, bytes) = match change {
                Change::Put(value) => ("put", value.len()),
                Change::Delete => ("delete", 0),
                Change::SingleDelete => ("single delete", 0),
                Change::DeleteTo(end) => {
                    let (begin, end) = (key.escape_ascii(), end.escape_ascii());
                    return format!("delete {begin} to {end} in {f}");
                }
                Change::Merge(operand) => ("merge", operand.len()),
                Change::Entity(_) => ("entity", 0),
            };
            format!("{what} {}, {bytes} bytes, in {f}", key.escape_ascii())
        }
        _ => format!("batch of {}", changes.len()),
    }
}
