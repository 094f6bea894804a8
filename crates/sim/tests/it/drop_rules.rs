//! Which versions survive: the same operations, with the same snapshots, in Ironstone and in
//! RocksDB leave the same entries in the tables of a flush, and of a compaction.

use std::path::Path;
use std::sync::Arc;

use base::merge::parse;
use base::rng::Rng;
use base::{SequenceNumber, ValueType, key};
use ironstone::{Db, Options, Snapshot};
use sim::dirs;
use sim::oracle::{self, Library, RocksDb, RocksSnapshot};
use table::InternalIterator;

/// User key, sequence, kind, value.
type Entry = (Vec<u8>, u64, ValueType, Vec<u8>);

/// Every entry of every table in the directory, table by table.
fn entries(dir: &Path) -> Vec<Entry> {
    let mut out = Vec::new();
    for (name, path) in dirs::files(dir).unwrap() {
        if !name.ends_with(".sst") {
            continue;
        }
        let fs = io::posix::Posix::shared();
        let file = fs.open(&path, io::OpenHow::READ).unwrap();
        let size = fs.metadata(&path).unwrap().len;
        let reader = table::Reader::open(file, size, table::ReaderOptions::default()).unwrap();
        let mut it = Arc::new(reader).iter(table::ReadOptions::default());
        it.seek_to_first();
        while it.valid() {
            let p = key::parse(it.key()).unwrap();
            let SequenceNumber(sequence) = p.sequence;
            out.push((
                p.user_key.to_vec(),
                sequence,
                p.value_type,
                it.value().to_vec(),
            ));
            it.next();
        }
        it.status().unwrap();
    }
    out
}

/// The two databases, which always get the same.
struct Both<'a> {
    ours: &'a Db,
    theirs: &'a RocksDb,
    snapshots: Vec<(Snapshot, RocksSnapshot<'a>)>,
    trace: Vec<String>,
}

impl Both<'_> {
    fn put(&mut self, k: &str, v: &str) {
        self.trace.push(format!("put {k} {v}"));
        self.ours.put(k, v).unwrap();
        self.theirs.put(k.as_bytes(), v.as_bytes()).unwrap();
    }

    fn merge(&mut self, k: &str, v: &str) {
        self.trace.push(format!("merge {k} {v}"));
        self.ours.merge(k, v).unwrap();
        let cf = self.theirs.default_cf();
        self.theirs
            .merge_cf(cf, k.as_bytes(), v.as_bytes())
            .unwrap();
    }

    fn delete(&mut self, k: &str) {
        self.trace.push(format!("delete {k}"));
        self.ours.delete(k).unwrap();
        self.theirs.delete(k.as_bytes()).unwrap();
    }

    fn single_delete(&mut self, k: &str) {
        self.trace.push(format!("single_delete {k}"));
        self.ours.single_delete(k).unwrap();
        let cf = self.theirs.default_cf();
        self.theirs.single_delete_cf(cf, k.as_bytes()).unwrap();
    }

    fn flush(&mut self) {
        self.trace.push("flush".to_owned());
        self.ours.flush().unwrap();
        self.theirs.flush().unwrap();
    }
}

fn workload(both: &mut Both<'_>, rng: &mut Rng, operations: u64, flush_every: u64) {
    let mut exists = [false; 4];
    for i in 0..operations {
        let value = format!("v{i}");
        let n = rng.below(4) as usize;
        if rng.one_in(2) {
            // Keys that are put once.
            let k = format!("single{n}");
            if exists[n] {
                both.single_delete(&k);
            } else {
                both.put(&k, &value);
            }
            exists[n] = !exists[n];
        } else {
            let k = format!("key{n}");
            match rng.below(8) {
                0..2 => both.put(&k, &value),
                2..4 => both.delete(&k),
                _ => both.merge(&k, &value),
            }
        }
        if rng.one_in(10) {
            both.trace.push("snapshot".to_owned());
            let pair = (both.ours.snapshot(), both.theirs.snapshot());
            both.snapshots.push(pair);
        }
        if rng.one_in(10) && !both.snapshots.is_empty() {
            let n = rng.below(both.snapshots.len() as u64) as usize;
            both.trace.push(format!("release {n}"));
            both.snapshots.remove(n);
        }
        if flush_every > 0 && i % flush_every == flush_every - 1 {
            both.flush();
        }
    }
}

/// Runs a workload; returns what was done.
fn fill(ours: &Db, theirs: &RocksDb, seed: u64, compact: bool) -> Vec<String> {
    let mut both = Both {
        ours,
        theirs,
        snapshots: Vec::new(),
        trace: Vec::new(),
    };
    let mut rng = Rng::new(seed);
    let flush_every = if compact { 15 } else { 0 };
    let operations = 30 + rng.below(60);
    workload(&mut both, &mut rng, operations, flush_every);
    both.flush();
    if compact {
        let cf = ours.default_column_family();
        ours.compact_range(&cf, None, None).unwrap();
        theirs.compact_range(theirs.default_cf(), None, None);
        theirs.wait_for_compaction().unwrap();
    }
    both.trace
}

/// What both have in their tables after a workload.
fn run(
    lib: &Arc<Library>,
    seed: u64,
    operator: &str,
    compact: bool,
) -> (Vec<Entry>, Vec<Entry>, Vec<String>) {
    let temp = dirs::scratch().unwrap();
    let (a, b) = (temp.path().join("ours"), temp.path().join("theirs"));
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.cf.disable_auto_compactions = true;
    options.cf.merge_operator = parse(operator).unwrap();
    let ours = Db::open(&a, &options).unwrap();
    let mut theirs = lib.options();
    theirs.create_if_missing(true);
    theirs.set("merge_operator", operator).unwrap();
    theirs.set("disable_auto_compactions", "true").unwrap();
    let theirs = RocksDb::open(&theirs, &b).unwrap();
    let trace = fill(&ours, &theirs, seed, compact);
    ours.close().unwrap();
    theirs.close();
    (entries(&a), entries(&b), trace)
}

#[test]
fn a_flush_leaves_the_same_entries_as_rocksdbs() {
    let Some(lib) = oracle::rocksdb() else { return };
    for seed in 0..24 {
        let operator = ["stringappend", "stringappendtest", "put"][seed as usize % 3];
        let (ours, theirs, trace) = run(&lib, seed, operator, false);
        assert_eq!(ours, theirs, "seed {seed}: {}", trace.join("\n"));
    }
}

#[test]
fn a_compaction_leaves_the_same_entries_as_rocksdbs() {
    let Some(lib) = oracle::rocksdb() else { return };
    // RocksDB sets sequences at the bottom to 0.
    let without_sequence = |entries: Vec<Entry>| -> Vec<_> {
        entries.into_iter().map(|(k, _, t, v)| (k, t, v)).collect()
    };
    for seed in 0..24 {
        let operator = ["stringappend", "stringappendtest"][seed as usize % 2];
        let (ours, theirs, trace) = run(&lib, seed, operator, true);
        let (ours, theirs) = (without_sequence(ours), without_sequence(theirs));
        assert_eq!(ours, theirs, "seed {seed}: {}", trace.join("\n"));
    }
}
