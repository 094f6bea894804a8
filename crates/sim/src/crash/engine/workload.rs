//! The operations of a workload, and what each of them promises.

use std::sync::Arc;

use base::Result;
use base::rng::Rng;
use base::sync::Mutex;
use ironstone::{ColumnFamily, Db, Options, PendingWrite, WriteBatch, WriteOptions};

use super::super::model::{
    Change, History, LOGGED, Op, UNLOGGED, UNLOGGED_LINE, UNLOGGED_TOO, is_unlogged,
};
use super::{Plant, contents, lock, open_all};

/// Names of families that are created and dropped.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// The most families at a time, besides the default one.
const FAMILIES_MAX: usize = 4;
/// Different keys in a family.
const KEYS: u64 = 60;

pub(super) fn key(n: u64) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

/// A database in use.
pub(in crate::crash) struct Workload {
    pub(super) options: Options,
    pub(super) history: Arc<Mutex<History>>,
    pub(super) rng: Rng,
    pub(super) plant: Plant,
    db: Option<Db>,
    /// Whether families are created and dropped; if not, there is only the default one.
    several: bool,
    /// Whether most operations are writes, so that logs grow long.
    steady: bool,
    /// One write in so many is synced if true, unsynced if false; the others are the opposite.
    sync: (bool, u64),
    /// Asynchronous writes that were not waited for, each with the number of logged writes up to it.
    pending: Vec<(PendingWrite, usize)>,
}

impl Workload {
    pub(in crate::crash) fn new(
        options: Options,
        history: Arc<Mutex<History>>,
        seed: u64,
        plant: Plant,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let several = !rng.one_in(4);
        let steady = rng.one_in(2);
        let sync = (rng.one_in(2), 3 + 3 * rng.below(2));
        Self {
            options,
            history,
            rng,
            plant,
            db: None,
            several,
            steady,
            sync,
            pending: Vec::new(),
        }
    }

    /// Does one operation. Errors: the engine's; or the process reads something else than it wrote.
    pub(in crate::crash) fn step(&mut self) -> Result<()> {
        let Some(db) = self.db.take() else {
            return self.open();
        };
        let result = self.operate(&db);
        match result {
            Ok(true) => {
                self.db = Some(db);
                Ok(())
            }
            Ok(false) => self.reopen(db),
            Err(e) => {
                self.db = Some(db);
                Err(e)
            }
        }
    }

    /// A synced write after a failure; `None` if the database is not open.
    pub(in crate::crash) fn write_after_failure(&mut self) -> Option<Result<()>> {
        let db = self.db.take()?;
        let result = self.write_key(&db, b"after the failure");
        self.db = Some(db);
        Some(result)
    }

    fn write_key(&mut self, db: &Db, key: &[u8]) -> Result<()> {
        let family = lock(&self.history).now.families["default"];
        let change = Change {
            family,
            key: key.to_vec(),
            op: Op::Put(b"x".to_vec()),
        };
        lock(&self.history).start(LOGGED, &[change]);
        let options = WriteOptions {
            sync: true,
            ..WriteOptions::default()
        };
        db.with(&options).put(key, b"x")?;
        lock(&self.history).acknowledge(LOGGED, true, true);
        Ok(())
    }

    /// Closes the database; what that promises is not counted.
    pub(in crate::crash) fn close(&mut self) {
        self.db = None;
        self.pending.clear();
    }

    fn open(&mut self) -> Result<()> {
        let db = open_all(&self.options)?;
        let mut history = lock(&self.history);
        if history.now.families.is_empty() {
            let id = history.incarnations;
            history.incarnations += 1;
            history.now.families.insert("default".to_owned(), id);
        }
        history.now.exists = true;
        history.now.next = None;
        let want = history.visible();
        drop(history);
        let found = contents(&db)?;
        self.db = Some(db);
        if found != want {
            return Err(base::Error::corruption(
                "a clean reopen shows other content than was written",
            ));
        }
        Ok(())
    }

    fn reopen(&mut self, db: Db) -> Result<()> {
        db.close()?;
        // Closing makes asynchronous writes durable.
        for (write, number) in std::mem::take(&mut self.pending) {
            write.durable.wait()?;
            lock(&self.history).durable_up_to(number);
        }
        let mut history = lock(&self.history);
        history.acknowledge(LOGGED, true, false);
        // Unlogged writes are flushed by the close.
        history.acknowledge(UNLOGGED_LINE, true, true);
        drop(history);
        self.open()
    }

    /// Does a random operation; false asks for a reopen.
    fn operate(&mut self, db: &Db) -> Result<bool> {
        let steady = self.steady && !self.rng.one_in(4);
        match self.rng.below(if steady { 75 } else { 100 }) {
            50..=56 => self.write_async(db)?,
            57..=59 => self.await_some()?,
            60..=65 if self.several => self.write_unlogged(db)?,
            66..=70 => {
                db.sync_wal()?;
                lock(&self.history).acknowledge(LOGGED, true, true);
            }
            71..=73 => {
                db.flush_wal(false)?;
                lock(&self.history).acknowledge(LOGGED, true, false);
            }
            74..=77 => {
                let all: Vec<usize> = lock(&self.history).now.families.values().copied().collect();
                db.flush()?;
                let mut history = lock(&self.history);
                for family in all {
                    history.flushed(family);
                }
            }
            78..=87 => self.flush_or_compact_family(db)?,
            46..=49 => self.ingest(db)?,
            88..=92 if self.several => self.create_family(db)?,
            93..=95 if self.several => self.drop_family(db)?,
            96..=97 => return Ok(false),
            _ => self.write(db)?,
        }
        Ok(true)
    }

    fn flush_or_compact_family(&mut self, db: &Db) -> Result<()> {
        let (name, family) = self.any_family();
        let compact = self.rng.one_in(3);
        // A flush of one family is not atomic with others, so families that are flushed atomically are left
        // out.
        if is_unlogged(&name) && self.options.db.atomic_flush {
            return Ok(());
        }
        let cf = handle(db, &name)?;
        if compact {
            db.cf(&cf).compact_range(None, None)?;
        } else {
            db.cf(&cf).flush()?;
        }
        lock(&self.history).flushed(family);
        Ok(())
    }

    pub(super) fn any_family(&mut self) -> (String, usize) {
        let history = lock(&self.history);
        let at = self.rng.below(history.now.families.len() as u64) as usize;
        let mut all = history.now.families.iter();
        all.nth(at)
            .map(|(n, f)| (n.clone(), *f))
            .expect("the default family exists")
    }

    fn logged_batch(&mut self, db: &Db) -> Result<(WriteBatch, Vec<Change>)> {
        let mut batch = WriteBatch::new();
        let mut changes = Vec::new();
        for _ in 0..=self.rng.below(4) {
            let (name, family) = self.any_family();
            if !is_unlogged(&name) {
                changes.push(self.change(&mut batch, db, &name, family)?);
            }
        }
        Ok((batch, changes))
    }

    /// Writes without waiting; the promise comes later.
    fn write_async(&mut self, db: &Db) -> Result<()> {
        let (batch, changes) = self.logged_batch(db)?;
        if changes.is_empty() {
            return Ok(());
        }
        lock(&self.history).start(LOGGED, &changes);
        let result = db.write_async(batch);
        let mut history = lock(&self.history);
        match result {
            Ok(write) => {
                history.acknowledge(LOGGED, false, false);
                let number = history.now.lines[LOGGED].started;
                if self.plant == Plant::AcknowledgeEarly {
                    history.durable_up_to(number);
                }
                self.pending.push((write, number));
                Ok(())
            }
            Err(e) => {
                history.fail_last();
                Err(e)
            }
        }
    }

    /// Waits for one asynchronous write, or checks all of them.
    fn await_some(&mut self) -> Result<()> {
        if !self.pending.is_empty() && self.rng.one_in(2) {
            let at = self.rng.below(self.pending.len() as u64) as usize;
            self.pending[at].0.durable.wait()?;
        }
        let history = &self.history;
        self.pending.retain(|(write, number)| {
            let ready = write.durable.is_ready();
            if ready {
                lock(history).durable_up_to(*number);
            }
            !ready
        });
        Ok(())
    }

    fn write(&mut self, db: &Db) -> Result<()> {
        let (mut batch, changes) = self.logged_batch(db)?;
        if changes.is_empty() {
            return Ok(());
        }
        let sync = self.rng.one_in(self.sync.1) == self.sync.0;
        let options = WriteOptions {
            sync,
            ..WriteOptions::default()
        };
        let submitted = !self.options.db.manual_wal_flush;
        let mut history = lock(&self.history);
        history.start(LOGGED, &changes);
        if self.plant == Plant::AcknowledgeEarly && sync {
            history.acknowledge(LOGGED, true, true);
        }
        drop(history);
        let result = db.with(&options).write(&mut batch);
        let mut history = lock(&self.history);
        match result {
            Ok(()) => history.acknowledge(LOGGED, submitted, sync),
            Err(_) => history.fail_last(),
        }
        result
    }

    /// Writes to one family, or to two if flushes are atomic.
    fn write_unlogged(&mut self, db: &Db) -> Result<()> {
        let mut batch = WriteBatch::new();
        let mut changes = Vec::new();
        for name in [UNLOGGED, UNLOGGED_TOO] {
            let family = lock(&self.history).now.families.get(name).copied();
            let together = name == UNLOGGED || self.options.db.atomic_flush;
            if let Some(family) = family.filter(|_| together) {
                changes.push(self.change(&mut batch, db, name, family)?);
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        lock(&self.history).start(UNLOGGED_LINE, &changes);
        let options = WriteOptions {
            disable_wal: true,
            ..WriteOptions::default()
        };
        db.with(&options).write(&mut batch)
    }

    fn change(
        &mut self,
        batch: &mut WriteBatch,
        db: &Db,
        name: &str,
        family: usize,
    ) -> Result<Change> {
        let cf = handle(db, name)?;
        let at = self.rng.below(KEYS);
        let key = key(at);
        let op = self.op(at);
        match &op {
            Op::Put(v) => batch.cf(&cf).put(&key, v)?,
            Op::Delete => batch.cf(&cf).delete(&key)?,
            Op::Merge(operand) => batch.cf(&cf).merge(&key, operand)?,
            Op::DeleteTo(end) => batch.cf(&cf).delete_range(&key, end)?,
        }
        Ok(Change { family, key, op })
    }

    fn op(&mut self, at: u64) -> Op {
        match self.rng.below(24) {
            0..=3 => Op::Delete,
            4..=5 => Op::Merge(self.rng.below(100).to_string().into_bytes()),
            6 => Op::DeleteTo(key(at + self.rng.below(12))),
            _ => Op::Put(self.value()),
        }
    }

    pub(super) fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.below(30) {
            0 => 33_000 + self.rng.below(8000),
            1..=4 => self.rng.below(6000),
            _ => self.rng.below(150),
        };
        let mut v = vec![0; len as usize];
        self.rng.fill(&mut v);
        v
    }

    fn create_family(&mut self, db: &Db) -> Result<()> {
        let mut history = lock(&self.history);
        let have = &history.now.families;
        let lacks = |name: &&str| !have.contains_key(*name);
        let unlogged = [UNLOGGED, UNLOGGED_TOO]
            .into_iter()
            .find(lacks)
            .filter(|name| *name == UNLOGGED || self.options.db.atomic_flush)
            .filter(|_| self.rng.one_in(2));
        let name = if let Some(name) = unlogged {
            name
        } else {
            NAMES[self.rng.below(NAMES.len() as u64) as usize]
        };
        if have.contains_key(name) || have.len() > FAMILIES_MAX {
            return Ok(());
        }
        let mut next = have.clone();
        next.insert(name.to_owned(), history.incarnations);
        history.incarnations += 1;
        history.now.next = Some(next);
        drop(history);
        db.create_column_family(name, &self.options.cf)?;
        self.families_changed();
        Ok(())
    }

    fn drop_family(&mut self, db: &Db) -> Result<()> {
        let (name, _) = self.any_family();
        if name == "default" || is_unlogged(&name) {
            return Ok(());
        }
        let mut history = lock(&self.history);
        let mut next = history.now.families.clone();
        next.remove(&name);
        history.now.next = Some(next);
        drop(history);
        db.drop_column_family(&handle(db, &name)?)?;
        self.families_changed();
        Ok(())
    }

    fn families_changed(&self) {
        let mut history = lock(&self.history);
        if let Some(next) = history.now.next.take() {
            history.now.families = next;
        }
    }
}

pub(super) fn handle(db: &Db, name: &str) -> Result<ColumnFamily> {
    db.column_family(name)
        .ok_or_else(|| base::Error::corruption(format!("column family {name} is not open")))
}
