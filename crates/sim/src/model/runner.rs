//! Draws operations and executes them on both sides. The operations are in the files beside this one; this
//! one has their weights, and opens, closes and compares the database.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::rng::Rng;
use ironstone::{
    ColumnFamily, ColumnFamilyDescriptor, Db, PendingWrite, ReadOptions, Snapshot, WriteBatch,
};

use super::reads::Held;
use super::setup::{FAMILIES, Setup, for_family};
use super::store::{Family, Model};
use super::{Counts, Failure, Plan, check};
use crate::dirs;
use crate::hooked::{Free, HookedFs};

/// Number of operations in the trace of a failure.
const TRACE: usize = 24;
/// Number of operations after which the counts are handed over.
const COUNTED: u64 = 1000;

/// The outcome of a step: the difference, as text.
pub(super) type Step = Result<(), String>;
/// An operation on both sides.
type Operation = fn(&mut Runner) -> Step;

/// Operations on one or a few keys, with their weights.
const COMMON: &[(&str, u64, Operation)] = &[
    ("puts", 300_000, Runner::put),
    ("merges", 60_000, Runner::merge),
    ("entities", 20_000, Runner::put_entity),
    ("deletes", 75_000, Runner::delete),
    ("range deletions", 5_000, Runner::delete_range),
    ("puts and single deletions", 40_000, Runner::put_once),
    ("batches", 80_000, Runner::batch),
    ("asynchronous batches", 8_000, Runner::write_async),
    ("gets", 250_000, Runner::get),
    ("reads of several keys", 30_000, Runner::get_several),
    ("walks of iterators", 110_000, Runner::walk),
    ("walks in a prefix", 5_000, Runner::walk_prefix),
    ("steps of held iterators", 3_000, Runner::walk_held),
    ("snapshots", 8_000, Runner::snapshot),
    ("releases of snapshots", 7_000, Runner::release),
];

/// Other operations, with how often each is done in a million operations of a long run.
const RARE: &[(&str, u64, Operation)] = &[
    ("flushes", 1_200, Runner::flush),
    ("compactions of ranges", 700, Runner::compact_range),
    ("compactions of files", 200, Runner::compact_files),
    ("suggested compactions", 100, Runner::suggest_compact),
    ("pauses of background work", 50, Runner::pause),
    ("changes of options", 200, Runner::set_options),
    ("flushes of the log", 700, Runner::sync_wal),
    ("ingestions", 400, Runner::ingest),
    ("reopens", 150, Runner::reopen),
    ("crashes", 200, Runner::crash),
    ("checkpoints", 60, Runner::checkpoint),
    ("backups", 40, Runner::back_up),
    ("exports and imports", 60, Runner::export),
    ("instances for reading", 50, Runner::read_only),
    ("secondary instances", 100, Runner::secondary),
    ("families created or dropped", 300, Runner::change_families),
    ("looks at sizes", 400, Runner::look_at_sizes),
    ("looks at properties", 400, Runner::look_at_properties),
    ("comparisons of everything", 300, Runner::compare_everything),
];

/// A run in progress.
pub(super) struct Runner {
    /// Must be dropped before the directory.
    pub(super) db: Option<Db>,
    /// A secondary instance of the database.
    pub(super) secondary: Option<Db>,
    plan: Plan,
    pub(super) rng: Rng,
    pub(super) setup: Setup,
    pub(super) fs: Arc<HookedFs>,
    pub(super) temp: tempfile::TempDir,
    /// The directory of the database: a crash continues in another one.
    pub(super) dir: PathBuf,
    pub(super) model: Model,
    pub(super) snapshots: Vec<(Snapshot, Model)>,
    pub(super) held: Vec<Held>,
    /// Asynchronous writes that may not be durable yet.
    pub(super) pending: Vec<PendingWrite>,
    /// The contents of the existing backups, by number.
    pub(super) backups: BTreeMap<u32, Model>,
    /// Whether a write without the log happened since the last flush of everything.
    pub(super) unlogged: bool,
    /// Number of families created so far; their names are reused.
    pub(super) created: u64,
    /// Number of names of files and directories made so far.
    named: u64,
    trace: VecDeque<String>,
    table: Vec<(u64, &'static str, Operation)>,
    counted: BTreeMap<&'static str, u64>,
    counts: Arc<Counts>,
}

impl Runner {
    /// Creates the database of a plan.
    pub(super) fn start(plan: Plan, counts: &Arc<Counts>) -> Result<Self, Box<Failure>> {
        let fail = |what: String| {
            Box::new(Failure {
                plan,
                operation: 0,
                what,
                trace: Vec::new(),
            })
        };
        let mut rng = Rng::new(plan.seed);
        let mut setup = Setup::of(plan.seed, &mut rng);
        let temp = dirs::scratch().map_err(|e| fail(e.to_string()))?;
        let fs = HookedFs::new(Arc::new(Free));
        setup.options.env.fs = Arc::<HookedFs>::clone(&fs);
        let mut runner = Self {
            plan,
            rng,
            fs,
            dir: temp.path().join("0"),
            temp,
            db: None,
            secondary: None,
            model: Vec::new(),
            snapshots: Vec::new(),
            held: Vec::new(),
            pending: Vec::new(),
            backups: BTreeMap::new(),
            unlogged: false,
            created: 0,
            named: 0,
            trace: VecDeque::new(),
            table: weights(plan.rare),
            counted: BTreeMap::new(),
            counts: Arc::clone(counts),
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

    pub(super) fn run(mut self) -> Result<(), Box<Failure>> {
        let operations = self.plan.operations;
        for operation in 0..=operations {
            let result = if operation == operations {
                self.finish()
            } else {
                self.step()
            };
            if let Err(what) = result {
                return Err(Box::new(Failure {
                    plan: self.plan,
                    operation: operation + u64::from(operation < operations),
                    what: format!("{what}\nwith {}", self.setup.text()),
                    trace: self.trace.into(),
                }));
            }
            if operation % COUNTED == 0 || operation == operations {
                self.counts.take(&mut self.counted);
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Step {
        let total = self.table.last().map_or(1, |(upto, _, _)| *upto);
        let drawn = self.rng.below(total);
        let at = self.table.partition_point(|(upto, _, _)| *upto <= drawn);
        let (_, name, operation) = self.table[at];
        *self.counted.entry(name).or_default() += 1;
        operation(self)
    }

    /// Ends a run: iterators and snapshots that are kept are compared too.
    fn finish(&mut self) -> Step {
        while !self.held.is_empty() {
            self.walk_held()?;
        }
        while !self.snapshots.is_empty() {
            self.release_one(true)?;
        }
        self.compare_everything()
    }

    pub(super) fn note(&mut self, what: String) {
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(what);
    }

    pub(super) fn db(&self) -> &Db {
        self.db.as_ref().expect("open between operations")
    }

    pub(super) fn handle(&self, family: usize) -> Result<ColumnFamily, String> {
        let name = &self.model[family].name;
        let cf = self.db().column_family(name);
        cf.ok_or_else(|| format!("family {name:?} is missing"))
    }

    pub(super) fn family(&mut self) -> usize {
        // Half of the operations use the default family, so that families fill unevenly.
        if self.rng.one_in(2) {
            return 0;
        }
        self.rng.below(self.model.len() as u64) as usize
    }

    /// An unused path in the run's directory.
    pub(super) fn new_path(&mut self, kind: &str) -> PathBuf {
        self.named += 1;
        self.temp.path().join(format!("{kind}{}", self.named))
    }

    pub(super) fn key(rng: &mut Rng, keys: u64) -> Vec<u8> {
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

    pub(super) fn some_key(&mut self) -> Vec<u8> {
        Self::key(&mut self.rng, self.setup.keys)
    }

    /// Makes everything durable, in tables or in the log.
    pub(super) fn settle(&mut self) -> Step {
        for write in std::mem::take(&mut self.pending) {
            let durable = write.durable.wait();
            durable.map_err(|e| format!("an asynchronous write: {e}"))?;
        }
        if std::mem::take(&mut self.unlogged) {
            self.db().flush().map_err(|e| format!("flush: {e}"))?;
        }
        if self.setup.options.db.manual_wal_flush {
            let flushed = self.db().flush_wal(false);
            flushed.map_err(|e| format!("flush_wal: {e}"))?;
        }
        Ok(())
    }

    /// Drops everything that belongs to the open database.
    fn let_go(&mut self) {
        self.snapshots.clear();
        self.held.clear();
        self.pending.clear();
        self.secondary = None;
        self.unlogged = false;
    }

    fn reopen(&mut self) -> Step {
        self.note("close and open".to_owned());
        self.let_go();
        let db = self.db.take().expect("open between operations");
        if self.rng.one_in(2) {
            db.close().map_err(|e| format!("close: {e}"))?;
        } else {
            drop(db);
        }
        if self.rng.one_in(2) {
            self.setup.vary(&mut self.rng);
        }
        self.open()
    }

    /// Continues with a copy of the directory in its current state.
    fn crash(&mut self) -> Step {
        self.settle()?;
        self.note("crash and open".to_owned());
        let to = self.new_path("crash");
        let copied = self.fs.frozen(|| dirs::copy_all(&self.dir, &to));
        copied.map_err(|e| format!("copy: {e}"))?;
        self.go_on_in(to)
    }

    /// Continues with the database in another directory; its content is the model's.
    pub(super) fn go_on_in(&mut self, dir: PathBuf) -> Step {
        self.let_go();
        drop(self.db.take());
        let old = std::mem::replace(&mut self.dir, dir);
        std::fs::remove_dir_all(old).map_err(|e| format!("remove: {e}"))?;
        if self.rng.one_in(4) {
            self.setup.vary(&mut self.rng);
        }
        self.open()
    }

    /// The families of a model, with their options.
    pub(super) fn descriptors(&self, model: &[Family]) -> Vec<ColumnFamilyDescriptor> {
        let of = |f: &Family| {
            ColumnFamilyDescriptor::new(&f.name, for_family(&self.setup.options, f.reverse))
        };
        model.iter().map(of).collect()
    }

    fn open(&mut self) -> Step {
        let families = self.descriptors(&self.model);
        let db = Db::open_cf(&self.dir, &self.setup.options, &families)
            .map_err(|e| format!("open: {e}"))?;
        self.db = Some(db);
        self.compare_everything()
    }

    pub(super) fn compare_everything(&mut self) -> Step {
        self.note("comparison of everything".to_owned());
        compare(self.db(), &self.model)
    }

    /// Drops the last family, or creates one. Snapshots of the model are released, because they cannot read
    /// dropped families.
    fn change_families(&mut self) -> Step {
        if self.model.len() > FAMILIES.len() && self.rng.one_in(2) {
            return self.drop_family();
        }
        let Some(name) = self.new_name() else {
            return Ok(());
        };
        self.snapshots.clear();
        let reverse = self.rng.one_in(2);
        self.note(format!("new family {name:?}"));
        let options = for_family(&self.setup.options, reverse);
        self.db()
            .create_column_family(&name, &options)
            .map_err(|e| format!("create family: {e}"))?;
        self.model.push(Family::new(&name, reverse));
        if self.setup.options.db.allow_ingest_behind && self.rng.one_in(2) {
            return self.ingest_behind();
        }
        Ok(())
    }

    /// A name for a new family; `None` if the next one is in use. Names are reused for different families.
    pub(super) fn new_name(&mut self) -> Option<String> {
        self.created += 1;
        let name = format!("extra{}", self.created % 3);
        (!self.model.iter().any(|f| f.name == name)).then_some(name)
    }

    /// Drops a family; iterators of it must keep working.
    fn drop_family(&mut self) -> Step {
        let last = self.model.len() - 1;
        let cf = self.handle(last)?;
        self.note(format!("drop of family {:?}", cf.name()));
        self.hold(last)?;
        self.snapshots.clear();
        let db = self.db();
        db.drop_column_family(&cf)
            .map_err(|e| format!("drop family: {e}"))?;
        let family = self.model.pop().expect("there are more than at the start");
        let db = self.db();
        let mut batch = WriteBatch::new();
        let added = batch.cf_id(cf.id()).put(b"k", b"v");
        added.map_err(|e| format!("batch: {e}"))?;
        if db.write(&mut batch).is_ok() || db.column_family(&family.name).is_some() {
            return Err("a dropped family takes writes".to_owned());
        }
        check::everything(db, &cf, &ReadOptions::default(), &family)
    }
}

/// Compares the whole content of a database.
pub(super) fn compare(db: &Db, model: &[Family]) -> Step {
    for family in model {
        let cf = db
            .column_family(&family.name)
            .ok_or_else(|| format!("family {:?} is missing", family.name))?;
        check::everything(db, &cf, &ReadOptions::default(), family)?;
    }
    let have = db.column_families().len();
    if have == model.len() {
        return Ok(());
    }
    Err(format!("{have} families instead of {}", model.len()))
}

/// Removes a directory of the run.
pub(super) fn remove(dir: &Path) -> Step {
    std::fs::remove_dir_all(dir).map_err(|e| format!("remove {}: {e}", dir.display()))
}

/// The operations with the cumulative sum of the weights.
fn weights(rare: u64) -> Vec<(u64, &'static str, Operation)> {
    let rare = RARE
        .iter()
        .map(|&(name, n, op)| (name, n * rare.max(1), op));
    let mut upto = 0;
    let sum = |(name, weight, op): (&'static str, u64, Operation)| {
        upto += weight;
        (upto, name, op)
    };
    COMMON.iter().copied().chain(rare).map(sum).collect()
}
