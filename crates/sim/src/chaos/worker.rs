//! A thread that writes its own keys in every way, reads them back, and knows which values it may find.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::rng::Rng;
use ironstone::{DbIterator, PendingWrite, ReadOptions, Snapshot, WriteBatch, WriteOptions};

use super::arena::Tools;
use super::ledger::{Attempt, FAMILIES, Key, Ledger, REVERSE, Reach, SUMS, Seen, value};
use super::{Part, detached, ingest};

/// Keys of a thread in a family, logged and unlogged each.
pub(super) const KEYS: u64 = 60;
/// The most snapshots that a thread keeps.
const SNAPSHOTS_MAX: usize = 3;

/// A snapshot, and the attempts of the thread up to it.
struct Old {
    snapshot: Snapshot,
    keys: Vec<(Key, Vec<Attempt>)>,
}

/// A worker thread.
pub(super) struct Worker {
    pub tools: Tools,
    pub ledger: Ledger,
    pub rng: Rng,
    pub left: Left,
    old: Vec<Old>,
}

/// Objects that outlive the thread and the database.
#[derive(Default)]
pub(super) struct Left {
    pub iterator: Option<DbIterator>,
    pub pending: Option<PendingWrite>,
    pub snapshots: Vec<Snapshot>,
}

/// A write, as it is recorded.
pub(super) struct Write {
    pub n: u64,
    pub batch: WriteBatch,
    pub keys: Vec<Key>,
    pub sums: Vec<usize>,
    pub logged: bool,
    /// The writes that had returned before it began.
    pub seen: Seen,
}

/// The name of a counter.
pub(super) fn sum_key(sum: usize) -> String {
    format!("sum/{}", sum % SUMS)
}

impl Worker {
    pub(super) fn new(tools: Tools, ledger: Ledger, rng: Rng) -> Self {
        Self {
            tools,
            ledger,
            rng,
            left: Left::default(),
            old: Vec::new(),
        }
    }

    /// Works until it is told to stop.
    pub(super) fn work(mut self) -> (Ledger, Left) {
        while !self.tools.arena.stopped() {
            if let Err(text) = self.step() {
                self.tools.arena.fail(text);
            }
        }
        let snapshots = self.old.into_iter().map(|old| old.snapshot);
        self.left.snapshots = snapshots.collect();
        (self.ledger, self.left)
    }

    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0 if self.tools.arena.has(Part::Ingestion) => ingest::run(self),
            0..45 => self.write(),
            45..55 => detached::write(self),
            55..57 => self.sync(),
            57..80 => self.read()?,
            80..86 => self.read_sum()?,
            86..90 => self.scan()?,
            90..94 => self.take_snapshot(),
            _ => self.read_snapshot()?,
        }
        Ok(())
    }

    fn key(&mut self, logged: bool) -> Key {
        Key {
            family: self.rng.below(FAMILIES as u64) as usize,
            logged,
            number: self.rng.below(KEYS),
        }
    }

    /// A random batch, recorded as attempted.
    pub(super) fn draw_write(&mut self, logged: bool) -> ironstone::Result<Write> {
        let n = self.ledger.next();
        let mut write = Write {
            n,
            batch: WriteBatch::new(),
            keys: Vec::new(),
            sums: Vec::new(),
            logged,
            seen: self.tools.arena.promises.look(),
        };
        let records = if self.rng.one_in(2) {
            1
        } else {
            1 + self.rng.below(6)
        };
        for _ in 0..records {
            self.draw_record(&mut write)?;
        }
        if self.rng.one_in(50) {
            self.draw_record_for_passing(&mut write)?;
        }
        Ok(write)
    }

    fn draw_record(&mut self, write: &mut Write) -> ironstone::Result<()> {
        let key = self.key(write.logged);
        let family = &self.tools.families[key.family];
        let text = key.text(self.ledger.thread);
        match self.rng.below(20) {
            0..3 if write.logged => {
                let sum = key.family * SUMS + self.rng.below(SUMS as u64) as usize;
                write
                    .batch
                    .cf(family)
                    .merge(sum_key(sum), 1u64.to_le_bytes())?;
                self.tools.arena.promises.adding(sum);
                write.sums.push(sum);
                return Ok(());
            }
            3..6 => {
                write.batch.cf(family).delete(text)?;
                self.ledger.attempt(write.n, key, false);
            }
            6 if self.rng.one_in(4) && self.tools.arena.has(Part::Ranges) => {
                return self.draw_range(write, key);
            }
            _ => {
                let bytes = value(self.ledger.thread, write.n, self.ledger.value_bytes);
                write.batch.cf(family).put(text, bytes)?;
                self.ledger.attempt(write.n, key, true);
            }
        }
        write.keys.push(key);
        Ok(())
    }

    /// Deletes a few neighbors at once.
    fn draw_range(&mut self, write: &mut Write, from: Key) -> ironstone::Result<()> {
        let family = &self.tools.families[from.family];
        let to = Key {
            number: (from.number + self.rng.below(6)).min(KEYS - 1),
            ..from
        };
        let mut ends = [from, to].map(|k| k.text(self.ledger.thread));
        let mut numbers = from.number..to.number;
        if from.family == REVERSE {
            ends.reverse();
            numbers = from.number + 1..to.number + 1;
        }
        write.batch.cf(family).delete_range(&ends[0], &ends[1])?;
        for number in numbers {
            let key = Key { number, ..from };
            self.ledger.attempt(write.n, key, false);
            write.keys.push(key);
        }
        Ok(())
    }

    /// Adds a record for a family that may be dropped at any time.
    fn draw_record_for_passing(&mut self, write: &mut Write) -> ironstone::Result<()> {
        let passing = self.tools.arena.passing();
        if passing.is_empty() {
            return Ok(());
        }
        let family = &passing[self.rng.below(passing.len() as u64) as usize];
        write.batch.cf(family).put("passing", "by")
    }

    /// Notes that a write returned `Ok`.
    pub(super) fn succeeded(&mut self, write: &Write) {
        self.ledger.succeeded(write.n, &write.keys);
        for sum in &write.sums {
            self.tools.arena.promises.added(*sum);
        }
        self.tools
            .arena
            .promises
            .returned(self.ledger.thread, write.n);
    }

    fn write(&mut self) {
        let logged = !self.rng.one_in(8) || !self.tools.arena.has(Part::Unlogged);
        let options = WriteOptions {
            sync: logged && self.rng.one_in(6),
            disable_wal: !logged,
            no_slowdown: self.rng.one_in(20),
            low_pri: self.rng.one_in(20),
        };
        let Ok(mut write) = self.draw_write(logged) else {
            return;
        };
        let mut batch = std::mem::take(&mut write.batch);
        let what = match (options.sync, logged) {
            (true, _) => "a synced write",
            (_, true) => "a write",
            _ => "a write without log",
        };
        if self
            .tools
            .run(what, |db| db.with(&options).write(&mut batch))
            .is_none()
        {
            return;
        }
        self.succeeded(&write);
        write.seen.threads[self.ledger.thread] = write.n;
        if options.sync {
            self.tools
                .arena
                .promises
                .promise(Reach::Durable, &write.seen);
        } else if logged && !self.tools.arena.options.db.manual_wal_flush {
            self.tools
                .arena
                .promises
                .promise(Reach::Handed, &write.seen);
        }
    }

    fn sync(&mut self) {
        let seen = self.tools.arena.promises.look();
        let (what, sync): (_, bool) = match self.rng.below(3) {
            0 => ("flush_wal(false)", false),
            1 => ("flush_wal(true)", true),
            _ => ("sync_wal", true),
        };
        if self.tools.run(what, |db| db.flush_wal(sync)).is_some() {
            let reach = if sync { Reach::Durable } else { Reach::Handed };
            self.tools.arena.promises.promise(reach, &seen);
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let logged = !self.rng.one_in(8);
        let keys: Vec<Key> = (0..=self.rng.below(4)).map(|_| self.key(logged)).collect();
        let texts: Vec<String> = keys.iter().map(|k| k.text(self.ledger.thread)).collect();
        if keys.len() == 1 {
            let family = &self.tools.families[keys[0].family];
            let get = |db: &ironstone::Db| db.cf(family).get(&texts[0]);
            if let Some(found) = self.tools.run("get", get) {
                self.ledger.check(keys[0], found.as_deref())?;
            }
            return Ok(());
        }
        let pairs: Vec<_> = keys
            .iter()
            .zip(&texts)
            .map(|(k, t)| (&self.tools.families[k.family], t))
            .collect();
        let options = ReadOptions::default();
        let get = |db: &ironstone::Db| Ok(db.with(&options).multi_get_families(&pairs));
        let Some(all) = self.tools.run("multi_get", get) else {
            return Ok(());
        };
        for (key, found) in keys.iter().zip(all) {
            match found {
                Ok(found) => self.ledger.check(*key, found.as_deref())?,
                Err(e) => self.tools.arena.judge("multi_get", &e),
            }
        }
        Ok(())
    }

    fn read_sum(&mut self) -> Result<(), String> {
        let sum = self.rng.below((FAMILIES * SUMS) as u64) as usize;
        let family = &self.tools.families[sum / SUMS];
        let promises = Arc::clone(&self.tools.arena.promises);
        let least = promises.added_to(sum);
        let get = |db: &ironstone::Db| db.cf(family).get(sum_key(sum));
        let Some(found) = self.tools.run("get of a sum", get) else {
            return Ok(());
        };
        check_sum(sum, found.as_deref(), least, promises.attempted(sum)).map(drop)
    }

    /// Scans the thread's keys in a family.
    fn scan(&mut self) -> Result<(), String> {
        let family = self.rng.below(FAMILIES as u64) as usize;
        let handle = &self.tools.families[family];
        let prefix = format!("t{:02}/", self.ledger.thread);
        let back = self.rng.one_in(3);
        let scan = |db: &ironstone::Db| {
            let mut it = db.cf(handle).iterator()?;
            let found = collect(&mut it, &prefix, back);
            it.status().map(|()| (found, it))
        };
        let Some((found, it)) = self.tools.run("a scan", scan) else {
            return Ok(());
        };
        self.left.iterator = Some(it);
        for key in self.ledger.keys().filter(|k| k.family == family) {
            let value = found.get(&key.text(self.ledger.thread));
            self.ledger
                .check(key, value.map(Vec::as_slice))
                .map_err(|e| format!("a scan: {e}"))?;
        }
        Ok(())
    }

    fn take_snapshot(&mut self) {
        let Some(snapshot) = self.tools.run("snapshot", |db| Ok(db.snapshot())) else {
            return;
        };
        let keys = (0..5).map(|_| {
            let logged = !self.rng.one_in(8);
            let key = self.key(logged);
            (key, self.ledger.attempts(key))
        });
        let keys = keys.collect();
        self.old.push(Old { snapshot, keys });
        if self.old.len() > SNAPSHOTS_MAX {
            drop(self.old.remove(0));
        }
    }

    fn read_snapshot(&mut self) -> Result<(), String> {
        if self.old.is_empty() {
            return Ok(());
        }
        let old = &self.old[self.rng.below(self.old.len() as u64) as usize];
        let options = ReadOptions {
            snapshot: Some(old.snapshot.clone()),
            ..ReadOptions::default()
        };
        for (key, attempts) in &old.keys {
            let family = &self.tools.families[key.family];
            let text = key.text(self.ledger.thread);
            let get = |db: &ironstone::Db| db.cf(family).with(&options).get(text);
            if let Some(found) = self.tools.run("get at a snapshot", get) {
                self.ledger
                    .check_against(*key, attempts, found.as_deref())
                    .map_err(|e| format!("at a snapshot: {e}"))?;
            }
        }
        Ok(())
    }
}

/// The entries that an iterator shows under a prefix.
fn collect(it: &mut DbIterator, prefix: &str, back: bool) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    if back {
        it.seek_to_last();
    } else {
        it.seek_to_first();
    }
    while it.valid() {
        if it.key().starts_with(prefix.as_bytes()) {
            let key = String::from_utf8_lossy(it.key()).into_owned();
            found.insert(key, it.value().to_vec());
        }
        if back {
            it.prev();
        } else {
            it.next();
        }
    }
    found
}

/// Checks whether a counter can have the found value.
pub(super) fn check_sum(
    sum: usize,
    found: Option<&[u8]>,
    least: u64,
    most: u64,
) -> Result<u64, String> {
    let n = found.map_or(Some(0), |v| v.first_chunk().map(|b| u64::from_le_bytes(*b)));
    match n {
        Some(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(format!(
            "{} of family {}: found {n:?}, but at least {least} were added and at most {most}",
            sum_key(sum),
            sum / SUMS
        )),
    }
}
