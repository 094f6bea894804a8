//! Which versions survive. The same operations, with the same snapshots, leave the same entries in the
//! tables of a flush and of a compaction in Ironstone and in RocksDB.

use std::path::Path;
use std::sync::Arc;

use base::merge::parse;
use base::rng::Rng;
use base::{SequenceNumber, ValueType, key};
use ironstone::{CompactionFilter, Db, FilterDecision, FilterValue, Options, Snapshot};
use sim::dirs;
use sim::oracle::{self, FilterVerdict, Library, RocksDb, RocksSnapshot};
use table::InternalIterator;

/// User key, sequence, kind, value.
type Entry = (Vec<u8>, u64, ValueType, Vec<u8>);

/// Every entry of every table in the directory, table by table.
fn entries(dir: &Path) -> Vec<Entry> {
    let mut out = Vec::new();
    for (name, path) in dirs::files(dir).unwrap() {
        if Path::new(&name).extension().is_none_or(|e| e != "sst") {
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

/// The two databases, which always get the same operations.
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
            // Keys that are put once, for single deletions.
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

/// Runs a workload; returns the operations as text.
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
        ours.cf(&cf).compact_range(None, None).unwrap();
        theirs.compact_range(theirs.default_cf(), None, None);
        theirs.wait_for_compaction().unwrap();
    }
    both.trace
}

/// Decides by the last digit of a value.
struct ByDigit;

impl ByDigit {
    fn verdict(value: &[u8]) -> FilterVerdict {
        match value.last() {
            Some(b'1' | b'2') => FilterVerdict::Remove,
            Some(b'3' | b'4') => FilterVerdict::Change(b"new"),
            _ => FilterVerdict::Keep,
        }
    }
}

impl CompactionFilter for ByDigit {
    fn name(&self) -> &'static str {
        "ByDigit"
    }

    fn filter(&self, level: usize, _: &[u8], value: FilterValue<'_>) -> FilterDecision {
        assert_eq!(level, 0);
        let FilterValue::Value(value) = value else {
            return FilterDecision::Keep; // as do the C API's filters, which see no operands
        };
        match Self::verdict(value) {
            FilterVerdict::Keep => FilterDecision::Keep,
            FilterVerdict::Remove => FilterDecision::Remove,
            FilterVerdict::Change(to) => FilterDecision::ChangeValue(to.to_vec()),
        }
    }
}

/// The entries in the tables of both after a workload.
fn run(
    lib: &Arc<Library>,
    seed: u64,
    operator: &str,
    compact: bool,
    filter: bool,
) -> (Vec<Entry>, Vec<Entry>, Vec<String>) {
    let temp = dirs::scratch().unwrap();
    let (a, b) = (temp.path().join("ours"), temp.path().join("theirs"));
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.disable_auto_compactions = true;
    options.cf.merge_operator = parse(operator).unwrap();
    options.cf.compaction_filter =
        filter.then(|| -> Arc<dyn CompactionFilter> { Arc::new(ByDigit) });
    let mut theirs = lib.options();
    theirs.create_if_missing(true);
    if !compact {
        // Everything is in memory, so both can merge when they write.
        let successive = seed % 4;
        options.cf.max_successive_merges = successive;
        let successive = successive.to_string();
        theirs.set("max_successive_merges", &successive).unwrap();
    }
    let ours = Db::open(&a, &options).unwrap();
    theirs.set("merge_operator", operator).unwrap();
    theirs.set("disable_auto_compactions", "true").unwrap();
    if filter {
        theirs.compaction_filter(|level, _, value| {
            assert_eq!(level, 0);
            ByDigit::verdict(value)
        });
    }
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
        let (ours, theirs, trace) = run(&lib, seed, operator, false, false);
        assert_eq!(ours, theirs, "seed {seed}: {}", trace.join("\n"));
    }
}

/// Drops the sequence numbers: RocksDB sets them to 0 at the bottom.
fn without_sequence(entries: Vec<Entry>) -> Vec<(Vec<u8>, ValueType, Vec<u8>)> {
    entries.into_iter().map(|(k, _, t, v)| (k, t, v)).collect()
}

#[test]
fn a_filter_is_called_where_rocksdb_calls_it() {
    let Some(lib) = oracle::rocksdb() else { return };
    for seed in 100..116 {
        let (ours, theirs, trace) = run(&lib, seed, "stringappend", true, true);
        let (ours, theirs) = (without_sequence(ours), without_sequence(theirs));
        assert_eq!(ours, theirs, "seed {seed}: {}", trace.join("\n"));
    }
}

#[test]
fn a_compaction_leaves_the_same_entries_as_rocksdbs() {
    let Some(lib) = oracle::rocksdb() else { return };
    for seed in 0..24 {
        let operator = ["stringappend", "stringappendtest"][seed as usize % 2];
        let (ours, theirs, trace) = run(&lib, seed, operator, true, false);
        let (ours, theirs) = (without_sequence(ours), without_sequence(theirs));
        assert_eq!(ours, theirs, "seed {seed}: {}", trace.join("\n"));
    }
}

/// Every sequence of up to four operations on a key, each for a key of its own.
fn histories() -> Vec<String> {
    let mut all = vec![String::new()];
    let mut longest = 0;
    for _ in 0..4 {
        let from = longest;
        longest = all.len();
        for i in from..longest {
            let longer = ["p", "d", "s", "r"].map(|op| all[i].clone() + op);
            all.extend(longer);
        }
    }
    all.split_off(1)
}

impl Both<'_> {
    /// Applies one operation to the key `h`: a put, a deletion, a single deletion or a range deletion.
    fn write(&mut self, h: &str, op: u8) {
        match op {
            b'p' => self.put(h, "v"),
            b'd' => self.delete(h),
            b's' => self.single_delete(h),
            _ => {
                let end = format!("{h}\0");
                self.ours.delete_range(h, &end).unwrap();
                let cf = self.theirs.default_cf();
                let (h, end) = (h.as_bytes(), end.as_bytes());
                self.theirs.delete_range_cf(cf, h, end).unwrap();
            }
        }
    }
}

/// All histories at once, in one memtable or with a table for each operation. They are flushed, or
/// compacted above a level that has all of the keys or none.
fn all_histories(lib: &Arc<Library>, compact: bool, below: bool, snapshot_at: Option<usize>) {
    let temp = dirs::scratch().unwrap();
    let (a, b) = (temp.path().join("ours"), temp.path().join("theirs"));
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.enforce_single_del_contracts = false;
    options.cf.disable_auto_compactions = true;
    options.cf.level_compaction_dynamic_level_bytes = false;
    let mut theirs = lib.options();
    theirs.create_if_missing(true);
    theirs
        .set_all(
            "enforce_single_del_contracts=false;disable_auto_compactions=true;\
             level_compaction_dynamic_level_bytes=false",
        )
        .unwrap();
    let ours = Db::open(&a, &options).unwrap();
    let theirs = RocksDb::open(&theirs, &b).unwrap();
    let mut both = Both {
        ours: &ours,
        theirs: &theirs,
        snapshots: Vec::new(),
        trace: Vec::new(),
    };
    let to_level = |level| {
        let cf = ours.default_column_family();
        let number = |f: &ironstone::LiveFileMetaData| f.file_number;
        let files = ours.get_live_files_metadata();
        let files: Vec<u64> = files.iter().filter(|f| f.level == 0).map(number).collect();
        let how = ironstone::CompactionOptions::default();
        ours.cf(&cf)
            .with(&how)
            .compact_files(&files, level)
            .unwrap();
        let all = theirs.tables("default").unwrap();
        let all = all.iter().filter(|t| t.level == 0);
        let files: Vec<_> = all.map(|t| t.name.clone()).collect();
        let level = i32::try_from(level).unwrap();
        theirs
            .compact_files(theirs.default_cf(), &files, level)
            .unwrap();
    };
    let histories = histories();
    if below {
        for h in &histories {
            both.put(h, "below");
        }
        both.flush();
        to_level(6);
    }
    for i in 0..4 {
        for h in histories.iter().filter(|h| i < h.len()) {
            both.write(h, h.as_bytes()[i]);
        }
        if compact {
            both.flush();
        }
        if snapshot_at == Some(i) {
            let pair = (both.ours.snapshot(), both.theirs.snapshot());
            both.snapshots.push(pair);
        }
    }
    both.flush();
    if compact {
        to_level(5);
    }
    drop(both);
    ours.close().unwrap();
    theirs.close();
    let case = format!("compact {compact}, below {below}, a snapshot after {snapshot_at:?}");
    compare_entries(&a, &b, &case);
}

/// Compares the entries that are left of the histories.
fn compare_entries(ours: &Path, theirs: &Path, case: &str) {
    // RocksDB drops a single deletion together with the deletion below it, so that an older value is
    // visible again.
    let sound = |h: &str| !h.replace('r', "").contains("ds");
    let shown = |dir| -> Vec<String> {
        let entries = without_sequence(entries(dir)).into_iter();
        let entries = entries.map(|(k, t, _)| (String::from_utf8(k).unwrap(), t));
        let sound = entries.filter(|(h, _)| sound(h));
        sound.map(|(h, t)| format!("{h} {t:?}")).collect()
    };
    let (ours, theirs) = (shown(ours), shown(theirs));
    let only = |a: &[String], b: &[String]| -> Vec<String> {
        a.iter().filter(|e| !b.contains(e)).cloned().collect()
    };
    let (we, they) = (only(&ours, &theirs), only(&theirs, &ours));
    assert_eq!(we, [""; 0], "only ours, {case}");
    // RocksDB keeps some deletions that a range tombstone hides; Ironstone drops them.
    let hidden = |e: &&String| e.ends_with("Deletion") && e.contains('r');
    let others: Vec<&String> = they.iter().filter(|e| !hidden(e)).collect();
    assert_eq!(others, [""; 0], "only theirs, {case}");
}

/// A single deletion over a deletion breaks the contract of single deletions, and is an error with
/// `enforce_single_del_contracts`. With a range tombstone between the two, the compaction had already left
/// out the deletion, and reported nothing. The same happened to entries that a range tombstone above both
/// hides. A single deletion also goes together with a value that a tombstone hides.
#[test]
fn single_deletions_meet_what_range_tombstones_hide() {
    let Some(lib) = oracle::rocksdb() else { return };
    for snapshot_at in [None, Some(0), Some(1), Some(2)] {
        all_histories(&lib, false, false, snapshot_at);
        for below in [false, true] {
            all_histories(&lib, true, below, snapshot_at);
        }
    }
    // Where contracts are enforced, the flush fails, and with it the database.
    let temp = dirs::scratch().unwrap();
    let (a, b) = (temp.path().join("ours"), temp.path().join("theirs"));
    let mut options = Options::default();
    options.db.create_if_missing = true;
    let ours = Db::open(&a, &options).unwrap();
    let mut options = lib.options();
    options.create_if_missing(true);
    let theirs = RocksDb::open(&options, &b).unwrap();
    let mut both = Both {
        ours: &ours,
        theirs: &theirs,
        snapshots: Vec::new(),
        trace: Vec::new(),
    };
    "drs".bytes().for_each(|op| both.write("k", op));
    let (e, theirs) = (ours.flush().unwrap_err(), theirs.flush().unwrap_err());
    assert!(e.is_corruption() && theirs.is_corruption(), "{e}, {theirs}");
}
