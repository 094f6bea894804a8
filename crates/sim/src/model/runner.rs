//! Draws operations and does them on both sides.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::rng::Rng;
use ironstone::{
    ColumnFamily, ColumnFamilyDescriptor, Db, ReadOptions, Snapshot, WideColumns, WriteBatch,
    WriteOptions,
};

use super::setup::{FAMILIES, Setup, for_family};
use super::store::{Change, Family, Model, Value};
use super::{Counts, Failure, check};
use crate::dirs;
use crate::hooked::{Free, HookedFs};

/// Operations that a failure shows.
const TRACE: usize = 12;

/// A run in progress.
pub(super) struct Runner<'a> {
    /// Dropped before the directory is.
    db: Option<Db>,
    seed: u64,
    rng: Rng,
    setup: Setup,
    fs: Arc<HookedFs>,
    temp: tempfile::TempDir,
    /// The directory of the database: a crash goes on in another one.
    dir: PathBuf,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    /// A write without the log happened since the last flush of everything.
    unlogged: bool,
    created: u64,
    crashed: u64,
    trace: VecDeque<String>,
    counts: &'a Counts,
}

type Step = Result<(), String>;

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl<'a> Runner<'a> {
    /// Creates the database of a seed.
    pub(super) fn start(seed: u64, counts: &'a Counts) -> Result<Self, Box<Failure>> {
        let fail = |what: String| {
            Box::new(Failure {
                seed,
                operation: 0,
                what,
                trace: Vec::new(),
            })
        };
        let mut rng = Rng::new(seed);
        let mut setup = Setup::of(&mut rng);
        let temp = dirs::scratch().map_err(|e| fail(e.to_string()))?;
        let fs = HookedFs::new(Arc::new(Free));
        setup.options.env.fs = Arc::<HookedFs>::clone(&fs);
        let mut runner = Self {
            seed,
            rng,
            fs,
            dir: temp.path().join("0"),
            temp,
            db: None,
            model: Vec::new(),
            snapshots: Vec::new(),
            unlogged: false,
            created: 0,
            crashed: 0,
            trace: VecDeque::new(),
            counts,
            setup,
        };
        runner.create().map_err(fail)?;
        Ok(runner)
    }

    fn create(&mut self) -> Step {
        let db = Db::open(&self.dir, &self.setup.options).map_err(|e| format!("create: {e}"))?;
        for (name, reverse) in FAMILIES {
            self.model.push(Family::new(name, reverse));
            if name != "default" {
                db.create_column_family(name, &for_family(&self.setup.options, reverse))
                    .map_err(|e| format!("create family: {e}"))?;
            }
        }
        self.db = Some(db);
        Ok(())
    }

    pub(super) fn run(mut self, operations: u64) -> Result<(), Box<Failure>> {
        for operation in 0..=operations {
            let result = if operation == operations {
                self.compare_everything()
            } else {
                self.step()
            };
            if let Err(what) = result {
                return Err(Box::new(Failure {
                    seed: self.seed,
                    operation: operation.min(operations),
                    what: format!("{what}\nwith {:?}", self.setup),
                    trace: self.trace.into(),
                }));
            }
        }
        Ok(())
    }

    fn note(&mut self, what: String) {
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(what);
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open between operations")
    }

    fn handle(&self, family: usize) -> Result<ColumnFamily, String> {
        let name = &self.model[family].name;
        let cf = self.db().column_family(name);
        cf.ok_or_else(|| format!("family {name:?} is missing"))
    }

    fn family(&mut self) -> usize {
        // Half of the operations hit the default family, so that families fill unevenly.
        if self.rng.one_in(2) {
            return 0;
        }
        self.rng.below(self.model.len() as u64) as usize
    }

    fn key(rng: &mut Rng, keys: u64) -> Vec<u8> {
        let n = rng.below(keys);
        match n % 16 {
            0 if n == 0 => Vec::new(),
            1 => vec![0; (n / 16 % 20) as usize],
            2 => vec![0xff; (n / 16 % 20) as usize],
            3 => n.to_be_bytes().to_vec(),
            4 => format!("long/{}/{n:06}", "x".repeat(100)).into_bytes(),
            _ => format!("key{n:06}").into_bytes(),
        }
    }

    fn value(&mut self) -> Value {
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

    fn write_options(&mut self) -> WriteOptions {
        let disable_wal = self.rng.one_in(50);
        let sync = !disable_wal && self.rng.one_in(50);
        self.unlogged |= disable_wal;
        WriteOptions {
            sync,
            disable_wal,
            ..WriteOptions::default()
        }
    }

    fn step(&mut self) -> Step {
        match self.rng.below(100_000) {
            0..30_000 => {
                let value = self.value();
                self.change(Change::Put(value))
            }
            30_000..36_000 => {
                let operand = self.operand();
                self.change(Change::Merge(operand))
            }
            36_000..38_000 => {
                let columns = self.columns();
                self.change(Change::Entity(columns))
            }
            38_000..45_500 => self.change(Change::Delete),
            45_500..46_000 => {
                let f = self.family();
                let (begin, end) = self.range(f);
                self.write(vec![(f, begin, Change::DeleteTo(end))])
            }
            46_000..50_000 => self.put_once(),
            50_000..58_000 => self.batch(),
            58_000..86_000 => self.get(),
            86_000..98_000 => self.walk(),
            98_000..98_800 => {
                self.snapshot();
                Ok(())
            }
            98_800..99_500 => self.release(),
            99_500..99_700 => self.flush(),
            99_700..99_760 => self.compact(),
            99_760..99_800 => self.reopen(),
            99_800..99_860 => self.crash(),
            99_860..99_900 => self.compare_everything(),
            99_900..99_930 => self.change_families(),
            _ => self.sync_wal(),
        }
    }

    fn operand(&mut self) -> Vec<u8> {
        let mut out = vec![0; self.rng.below(12) as usize];
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

    /// Makes one change in a batch of its own.
    fn change(&mut self, change: Change) -> Step {
        let f = self.family();
        let key = Self::key(&mut self.rng, self.setup.keys);
        self.write(vec![(f, key, change)])
    }

    /// Puts a key that is put and single-deleted in turns.
    fn put_once(&mut self) -> Step {
        let f = self.family();
        let key = format!("once{:03}", self.rng.below(100)).into_bytes();
        if self.model[f].get(&key).is_none() {
            let value = self.value();
            return self.write(vec![(f, key, Change::Put(value))]);
        }
        add(&self.counts.writes, 1);
        let options = self.write_options();
        self.note(format!("single delete {} in {f}", key.escape_ascii()));
        let cf = self.handle(f)?;
        self.db()
            .single_delete_opt(&options, &cf, &key)
            .map_err(|e| format!("single delete: {e}"))?;
        self.apply(f, key, Change::Delete);
        Ok(())
    }

    fn apply(&mut self, family: usize, key: Vec<u8>, change: Change) {
        let operator = self.setup.options.cf.merge_operator.as_deref();
        let operator = operator.expect("every run has one");
        self.model[family].apply(operator, key, change);
    }

    /// A range of keys in the family's order: mostly of a few neighbours, now and then a wide one.
    fn range(&mut self, f: usize) -> (Vec<u8>, Vec<u8>) {
        let keys = self.setup.keys;
        let (mut a, mut b) = if self.rng.one_in(20) {
            let rng = &mut self.rng;
            (Self::key(rng, keys), Self::key(rng, keys))
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

    fn batch(&mut self) -> Step {
        let n = self.rng.below(20);
        let mut changes = Vec::new();
        for _ in 0..n {
            let f = self.family();
            let key = Self::key(&mut self.rng, self.setup.keys);
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
        self.write(changes)
    }

    /// Writes changes as one batch.
    fn write(&mut self, changes: Vec<(usize, Vec<u8>, Change)>) -> Step {
        add(&self.counts.writes, 1);
        let mut batch = WriteBatch::new();
        for (f, key, change) in &changes {
            let id = self.handle(*f)?.id();
            let added = match change {
                Change::Delete => batch.delete_cf_id(id, key),
                Change::Put(value) => batch.put_cf_id(id, key, value),
                Change::DeleteTo(end) => batch.delete_range_cf_id(id, key, end),
                Change::Merge(operand) => batch.merge_cf_id(id, key, operand),
                Change::Entity(columns) => batch.put_entity_cf_id(id, key, columns),
            };
            added.map_err(|e| format!("batch: {e}"))?;
        }
        let options = self.write_options();
        match &changes[..] {
            [(f, key, change)] => {
                let mut shown = format!("{change:?}");
                shown.truncate(40);
                let key = key.escape_ascii();
                self.note(format!("{shown} {key} in {f}, {options:?}"));
            }
            _ => self.note(format!("batch of {}, {options:?}", changes.len())),
        }
        self.db()
            .write_opt(&options, batch)
            .map_err(|e| format!("write: {e}"))?;
        for (f, key, change) in changes {
            self.apply(f, key, change);
        }
        Ok(())
    }

    /// Now, or one of the snapshots: options, and what is to be read.
    fn moment(&mut self) -> (ReadOptions, Option<usize>) {
        let mut options = ReadOptions {
            verify_checksums: !self.rng.one_in(4),
            fill_cache: !self.rng.one_in(4),
            ..ReadOptions::default()
        };
        let at = (!self.snapshots.is_empty() && self.rng.one_in(3))
            .then(|| self.rng.below(self.snapshots.len() as u64) as usize);
        options.snapshot = at.map(|i| self.snapshots[i].0.clone());
        (options, at)
    }

    /// The family at a moment, and its handle.
    fn view(&self, f: usize, at: Option<usize>) -> Result<(&Family, ColumnFamily), String> {
        let family = &at.map_or(&self.model, |i| &self.snapshots[i].1)[f];
        Ok((family, self.handle(f)?))
    }

    fn get(&mut self) -> Step {
        add(&self.counts.gets, 1);
        let f = self.family();
        let (options, at) = self.moment();
        let key = Self::key(&mut self.rng, self.setup.keys + 20);
        let others = self.rng.one_in(4);
        let (family, cf) = self.view(f, at)?;
        if others {
            check::other_gets(self.db(), &cf, &options, &key, family)?;
        }
        check::get(self.db(), &cf, &options, &key, family.get(&key))
    }

    fn walk(&mut self) -> Step {
        let f = self.family();
        let (mut options, at) = self.moment();
        let keys = self.setup.keys;
        let mut bound = || {
            let some = self.rng.one_in(3);
            let key = Self::key(&mut self.rng, keys);
            some.then_some(key)
        };
        options.iterate_lower_bound = bound();
        options.iterate_upper_bound = bound();
        let mut rng = Rng::new(self.rng.next_u64());
        let (family, cf) = self.view(f, at)?;
        let steps = check::walk(self.db(), &cf, &options, family, &mut rng, |rng| {
            Self::key(rng, keys + 20)
        })?;
        add(&self.counts.steps, steps);
        Ok(())
    }

    fn snapshot(&mut self) {
        add(&self.counts.snapshots, 1);
        self.note("snapshot".to_owned());
        let taken = (self.db().snapshot(), self.model.clone());
        self.snapshots.push(taken);
        if self.snapshots.len() > 6 {
            self.snapshots.remove(0);
        }
    }

    /// Compares everything at a snapshot, and releases it.
    fn release(&mut self) -> Step {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let i = self.rng.below(self.snapshots.len() as u64) as usize;
        let full = self.rng.one_in(8);
        let (snapshot, model) = self.snapshots.remove(i);
        self.note("release of a snapshot".to_owned());
        let options = ReadOptions {
            snapshot: Some(snapshot),
            ..ReadOptions::default()
        };
        for (f, family) in model.iter().enumerate().filter(|_| full) {
            check::everything(self.db(), &self.handle(f)?, &options, family)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Step {
        add(&self.counts.flushes, 1);
        if self.rng.one_in(2) {
            self.note("flush".to_owned());
            self.unlogged = false;
            return self.db().flush().map_err(|e| format!("flush: {e}"));
        }
        let f = self.family();
        self.note(format!("flush of {f}"));
        let cf = self.handle(f)?;
        self.db()
            .flush_cf(&cf)
            .map_err(|e| format!("flush_cf: {e}"))
    }

    fn compact(&mut self) -> Step {
        add(&self.counts.compactions, 1);
        let f = self.family();
        let (mut a, mut b) = (
            Self::key(&mut self.rng, self.setup.keys),
            Self::key(&mut self.rng, self.setup.keys),
        );
        if self.model[f].before(&b, &a) {
            std::mem::swap(&mut a, &mut b);
        }
        let begin = (!self.rng.one_in(3)).then_some(a);
        let end = (!self.rng.one_in(3)).then_some(b);
        self.note(format!("compact {f} from {begin:?} to {end:?}"));
        let cf = self.handle(f)?;
        self.db()
            .compact_range(&cf, begin.as_deref(), end.as_deref())
            .map_err(|e| format!("compact_range: {e}"))
    }

    fn sync_wal(&mut self) -> Step {
        let sync = self.rng.one_in(2);
        self.note(format!("flush_wal({sync})"));
        self.db()
            .flush_wal(sync)
            .map_err(|e| format!("flush_wal: {e}"))
    }

    fn reopen(&mut self) -> Step {
        add(&self.counts.reopens, 1);
        self.note("close and open".to_owned());
        self.snapshots.clear();
        let db = self.db.take().expect("open between operations");
        if self.rng.one_in(2) {
            db.close().map_err(|e| format!("close: {e}"))?;
        } else {
            drop(db);
        }
        self.unlogged = false;
        self.open()
    }

    /// Goes on with a copy of the directory as it is at this moment.
    fn crash(&mut self) -> Step {
        add(&self.counts.crashes, 1);
        if self.unlogged {
            self.unlogged = false;
            self.db().flush().map_err(|e| format!("flush: {e}"))?;
        }
        if self.setup.options.db.manual_wal_flush {
            let flushed = self.db().flush_wal(false);
            flushed.map_err(|e| format!("flush_wal: {e}"))?;
        }
        self.crashed += 1;
        self.note("crash and open".to_owned());
        let to = self.temp.path().join(self.crashed.to_string());
        let copied = self.fs.frozen(|| dirs::copy(&self.dir, &to));
        copied.map_err(|e| format!("copy: {e}"))?;
        self.snapshots.clear();
        drop(self.db.take());
        let old = std::mem::replace(&mut self.dir, to);
        std::fs::remove_dir_all(old).map_err(|e| format!("remove: {e}"))?;
        self.open()
    }

    fn open(&mut self) -> Step {
        let options = &self.setup.options;
        let descriptors: Vec<_> = self
            .model
            .iter()
            .map(|f| ColumnFamilyDescriptor::new(&f.name, for_family(options, f.reverse)))
            .collect();
        let db = Db::open_cf(&self.dir, options, &descriptors).map_err(|e| format!("open: {e}"))?;
        self.db = Some(db);
        self.compare_everything()
    }

    fn compare_everything(&mut self) -> Step {
        add(&self.counts.scans, 1);
        self.note("comparison of everything".to_owned());
        for (f, family) in self.model.iter().enumerate() {
            let cf = self.handle(f)?;
            check::everything(self.db(), &cf, &ReadOptions::default(), family)?;
        }
        Ok(())
    }

    /// Drops the last family, or creates one. Snapshots go: they do not hold dropped families.
    fn change_families(&mut self) -> Step {
        add(&self.counts.families, 1);
        self.snapshots.clear();
        if self.model.len() > FAMILIES.len() && self.rng.one_in(2) {
            let cf = self.handle(self.model.len() - 1)?;
            self.note(format!("drop of family {:?}", cf.name()));
            self.db()
                .drop_column_family(&cf)
                .map_err(|e| format!("drop family: {e}"))?;
            self.model.pop();
            return Ok(());
        }
        self.created += 1;
        // A name comes back, as another family.
        let name = format!("extra{}", self.created % 3);
        if self.model.iter().any(|f| f.name == name) {
            return Ok(());
        }
        let reverse = self.rng.one_in(2);
        self.note(format!("new family {name:?}"));
        let options = for_family(&self.setup.options, reverse);
        self.db()
            .create_column_family(&name, &options)
            .map_err(|e| format!("create family: {e}"))?;
        self.model.push(Family::new(&name, reverse));
        Ok(())
    }
}
