//! Draws operations and does them on both sides.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::rng::Rng;
use ironstone::{
    ColumnFamily, ColumnFamilyDescriptor, Db, ReadOptions, Snapshot, WriteBatch, WriteOptions,
};

use super::setup::{FAMILIES, Setup, for_family};
use super::store::{Family, Model, Value};
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

/// What a record of a batch does to a key, or to the keys from it on.
enum Change {
    Put(Value),
    Delete,
    DeleteTo(Vec<u8>),
}

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
            0..38_000 => self.put(),
            38_000..49_000 => self.delete(),
            49_000..50_000 => self.delete_range(),
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

    fn put(&mut self) -> Step {
        add(&self.counts.writes, 1);
        let f = self.family();
        let key = Self::key(&mut self.rng, self.setup.keys);
        let value = self.value();
        let options = self.write_options();
        self.note(format!(
            "put {} ({} bytes) in {f}, {options:?}",
            key.escape_ascii(),
            value.len()
        ));
        let cf = self.handle(f)?;
        self.db()
            .put_opt(&options, &cf, &key, &value)
            .map_err(|e| format!("put: {e}"))?;
        self.model[f].put(key, value);
        Ok(())
    }

    fn delete(&mut self) -> Step {
        add(&self.counts.writes, 1);
        let f = self.family();
        let key = Self::key(&mut self.rng, self.setup.keys);
        let options = self.write_options();
        self.note(format!("delete {} in {f}", key.escape_ascii()));
        let cf = self.handle(f)?;
        self.db()
            .delete_opt(&options, &cf, &key)
            .map_err(|e| format!("delete: {e}"))?;
        self.model[f].delete(&key);
        Ok(())
    }

    /// A range of keys in the family's order: mostly of a few neighbours, now and then a wide one.
    fn range(&mut self, f: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut a, mut b) = if self.rng.one_in(20) {
            let keys = self.setup.keys;
            (
                Self::key(&mut self.rng, keys),
                Self::key(&mut self.rng, keys),
            )
        } else {
            let n = self.rng.below(self.setup.keys);
            let to = n + self.rng.below(1 + self.setup.keys / 20);
            let name = |n: u64| format!("key{n:06}").into_bytes();
            (name(n), name(to))
        };
        if self.model[f].before(&b, &a) {
            std::mem::swap(&mut a, &mut b);
        }
        (a, b)
    }

    fn delete_range(&mut self) -> Step {
        add(&self.counts.writes, 1);
        let f = self.family();
        let (begin, end) = self.range(f);
        let options = self.write_options();
        self.note(format!(
            "delete {} to {} in {f}",
            begin.escape_ascii(),
            end.escape_ascii()
        ));
        let cf = self.handle(f)?;
        self.db()
            .delete_range_opt(&options, &cf, &begin, &end)
            .map_err(|e| format!("delete_range: {e}"))?;
        self.model[f].delete_range(&begin, &end);
        Ok(())
    }

    fn batch(&mut self) -> Step {
        add(&self.counts.writes, 1);
        let mut batch = WriteBatch::new();
        let n = self.rng.below(20);
        let mut changes: Vec<(usize, Vec<u8>, Change)> = Vec::new();
        for _ in 0..n {
            let f = self.family();
            let key = Self::key(&mut self.rng, self.setup.keys);
            let id = self.handle(f)?.id();
            let (key, change) = if self.rng.one_in(40) {
                let (begin, end) = self.range(f);
                (begin, Change::DeleteTo(end))
            } else if self.rng.one_in(4) {
                (key, Change::Delete)
            } else {
                (key, Change::Put(self.value()))
            };
            let added = match &change {
                Change::Put(value) => batch.put_cf_id(id, &key, value),
                Change::Delete => batch.delete_cf_id(id, &key),
                Change::DeleteTo(end) => batch.delete_range_cf_id(id, &key, end),
            };
            added.map_err(|e| format!("batch: {e}"))?;
            changes.push((f, key, change));
        }
        let options = self.write_options();
        self.note(format!("batch of {n}, {options:?}"));
        self.db()
            .write_opt(&options, batch)
            .map_err(|e| format!("write: {e}"))?;
        for (f, key, change) in changes {
            match change {
                Change::Put(value) => self.model[f].put(key, value),
                Change::Delete => self.model[f].delete(&key),
                Change::DeleteTo(end) => self.model[f].delete_range(&key, &end),
            }
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
        let (family, cf) = self.view(f, at)?;
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
