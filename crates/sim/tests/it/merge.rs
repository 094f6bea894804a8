//! Merge operators: the same results as RocksDB's, in files that each engine reads of the other; errors of
//! operators that are missing, give up or panic.

use std::path::Path;
use std::sync::Arc;

use base::merge::parse;
use base::rng::Rng;
use ironstone::{
    ColumnFamilyOptions, Db, ErrorKind, MergeOperator, Options, ReadOptions, WriteBatch,
};
use sim::dirs;
use sim::oracle::content::{difference, everything};
use sim::oracle::{self, Library, RocksDb, RocksOptions};

fn options(operator: &str) -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.cf.write_buffer_size = 16 << 10;
    o.cf.merge_operator = parse(operator).unwrap();
    o
}

fn rocks_options(lib: &Arc<Library>, operator: &str) -> RocksOptions {
    let mut o = lib.options();
    o.create_if_missing(true);
    o.set("merge_operator", operator).unwrap();
    o.set("write_buffer_size", "65536").unwrap();
    o
}

/// A short random operand: sometimes of 8 bytes, the size of a counter.
fn operand(rng: &mut Rng) -> Vec<u8> {
    let len = if rng.one_in(2) { 8 } else { rng.below(20) };
    let mut out = vec![0; len as usize];
    rng.fill(&mut out);
    out
}

/// Applies the same operations to both databases.
fn work(ours: &Db, theirs: &RocksDb, rng: &mut Rng, operations: u64) {
    let cf = theirs.default_cf();
    for _ in 0..operations {
        let k = format!("key{:03}", rng.below(60));
        let v = operand(rng);
        match rng.below(20) {
            0..2 => {
                ours.put(&k, &v).unwrap();
                theirs.put(k.as_bytes(), &v).unwrap();
            }
            2..4 => {
                ours.delete(&k).unwrap();
                theirs.delete(k.as_bytes()).unwrap();
            }
            _ => {
                ours.merge(&k, &v).unwrap();
                theirs.merge_cf(cf, k.as_bytes(), &v).unwrap();
            }
        }
        if rng.one_in(150) {
            ours.flush().unwrap();
            theirs.flush().unwrap();
        }
        if rng.one_in(400) {
            let family = ours.default_column_family();
            ours.cf(&family).compact_range(None, None).unwrap();
            theirs.compact_range(cf, None, None);
        }
    }
}

fn compare(what: &str, db: &Db, theirs: &RocksDb) {
    let want = theirs.iterator().collect_all().unwrap();
    let have = everything(db).unwrap();
    let want = [("default".to_owned(), want)];
    if let Some(d) = difference(&want, &have) {
        panic!("{what}: {d}");
    }
}

#[test]
fn operators_give_what_rocksdbs_give_and_files_are_read_both_ways() {
    let Some(lib) = oracle::rocksdb() else { return };
    let operators = [
        ("stringappend", 0),
        ("{id=StringAppendOperator;delimiter=--;}", 2),
        ("stringappendtest", 0),
        ("uint64add", 3),
        ("max", 0),
        ("put", 1),
        ("bytesxor", 0),
    ];
    for (seed, (operator, successive)) in operators.into_iter().enumerate() {
        let what = format!("{operator}, seed {seed}");
        let temp = dirs::scratch().unwrap();
        let (a, b) = (temp.path().join("a"), temp.path().join("b"));
        let mut rng = Rng::new(seed as u64);
        let mut own = options(operator);
        own.cf.max_successive_merges = successive;
        let mut rocks = rocks_options(&lib, operator);
        let n = successive.to_string();
        rocks.set("max_successive_merges", &n).unwrap();
        let ours = Db::open(&a, &own).unwrap();
        let theirs = RocksDb::open(&rocks, &b).unwrap();
        work(&ours, &theirs, &mut rng, 1000);
        compare(&what, &ours, &theirs);
        // Each engine opens the other's directory.
        drop(ours);
        drop(theirs);
        let ours = Db::open(&b, &own).unwrap();
        let theirs = RocksDb::open(&rocks, &a).unwrap();
        compare(&format!("{what}, exchanged"), &ours, &theirs);
        work(&ours, &theirs, &mut rng, 400);
        compare(&format!("{what}, gone on"), &ours, &theirs);
    }
}

#[test]
fn snapshots_and_iterators_see_operands_as_of_their_time() {
    let temp = dirs::scratch().unwrap();
    let db = Db::open(temp.path(), &options("stringappend")).unwrap();
    let cf = db.default_column_family();
    let mut moments = Vec::new();
    let mut want = String::new();
    for i in 0..9 {
        if i % 3 == 2 {
            db.flush().unwrap();
        }
        db.merge("k", i.to_string()).unwrap();
        db.put("l", "x").unwrap();
        want += &format!("{}{i}", if i == 0 { "" } else { "," });
        moments.push((db.snapshot(), want.clone()));
    }
    for round in ["as written", "compacted"] {
        for (snapshot, want) in &moments {
            let options = ReadOptions {
                snapshot: Some(snapshot.clone()),
                ..ReadOptions::default()
            };
            let have = db.cf(&cf).with(&options).get("k").unwrap().unwrap();
            assert_eq!(have, want.as_bytes(), "{round}");
            let mut it = db.with(&options).iterator().unwrap();
            it.seek_to_first();
            assert_eq!(it.value(), want.as_bytes(), "{round}");
            it.next();
            assert_eq!(it.key(), b"l");
            it.prev();
            assert_eq!(
                (it.key(), it.value()),
                (&b"k"[..], want.as_bytes()),
                "{round}"
            );
            it.next();
            assert_eq!(it.key(), b"l");
            it.prev();
            it.prev();
            assert!(!it.valid());
        }
        db.cf(&cf).compact_range(None, None).unwrap();
    }
}

#[test]
fn tables_and_options_name_the_operator() {
    let Some(lib) = oracle::rocksdb() else { return };
    let operators = [
        "{id=StringAppendOperator;delimiter=,;}",
        "{id=StringAppendTESTOperator;delimiter=,;}",
        "UInt64AddOperator",
        "PutOperator",
        "MaxOperator",
        "BytesXOR",
    ];
    let line = |dir: &Path| {
        let files = dirs::files(dir).unwrap();
        let (_, newest) = files
            .into_iter()
            .rfind(|(n, _)| n.starts_with("OPTIONS-"))
            .unwrap();
        let text = std::fs::read_to_string(newest).unwrap();
        let lines: Vec<String> = text
            .lines()
            .filter(|l| l.trim().starts_with("merge_operator="))
            .map(|l| l.trim().to_owned())
            .collect();
        lines.join("; ")
    };
    let property = |dir: &Path| {
        let path = dirs::only(dir, "0", ".sst");
        let fs = io::posix::Posix::shared();
        let file = fs.open(&path, io::OpenHow::READ).unwrap();
        let size = fs.metadata(&path).unwrap().len;
        let reader = table::Reader::open(file, size, table::ReaderOptions::default()).unwrap();
        let p = reader.properties();
        (p.merge_operator.clone(), p.num_merge_operands)
    };
    for operator in operators {
        let temp = dirs::scratch().unwrap();
        let (a, b) = (temp.path().join("a"), temp.path().join("b"));
        let ours = Db::open(&a, &options(operator)).unwrap();
        ours.merge("k", "12345678").unwrap();
        ours.flush().unwrap();
        drop(ours);
        let theirs = RocksDb::open(&rocks_options(&lib, operator), &b).unwrap();
        let cf = theirs.default_cf();
        theirs.merge_cf(cf, b"k", b"12345678").unwrap();
        theirs.flush().unwrap();
        drop(theirs);
        assert_eq!(line(&a), line(&b), "{operator}");
        assert_eq!(line(&a), format!("merge_operator={operator}"));
        assert_eq!(property(&a), property(&b), "{operator}");
    }
}

#[test]
fn a_missing_operator_is_named_and_loses_nothing() {
    let temp = dirs::scratch().unwrap();
    let with = options("stringappend");
    let mut without = with.clone();
    without.cf.merge_operator = None;
    let db = Db::open(temp.path(), &without).unwrap();
    let e = db.merge("k", "1").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    assert!(
        e.to_string()
            .contains("\"default\", which has no merge operator"),
        "{e}"
    );
    let mut batch = WriteBatch::new();
    batch.put("other", "x").unwrap();
    batch.merge("k", "1").unwrap();
    assert_eq!(
        db.write(&mut batch).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert_eq!(db.get("other").unwrap(), None);
    db.put("k", "0").unwrap();
    drop(db);
    let db = Db::open(temp.path(), &with).unwrap();
    db.merge("k", "1").unwrap();
    drop(db);
    // From the log, from a table, and after a compaction.
    let db = Db::open(temp.path(), &without).unwrap();
    let cf = db.default_column_family();
    for _ in 0..2 {
        let e = db.get("k").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
        assert!(
            e.to_string()
                .contains("family \"default\" has merge operands"),
            "{e}"
        );
        let mut it = db.iterator().unwrap();
        it.seek_to_last();
        assert!(!it.valid());
        assert!(
            it.status()
                .unwrap_err()
                .to_string()
                .contains("no merge operator")
        );
        assert_eq!(db.get("other").unwrap(), None);
        db.cf(&cf).compact_range(None, None).unwrap();
    }
    drop(db);
    let db = Db::open(temp.path(), &with).unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), b"0,1");
}

/// An operator that gives up on operand `no`, and panics on `panic`.
struct Moody;

impl MergeOperator for Moody {
    fn name(&self) -> &'static str {
        "Moody"
    }

    fn full_merge(&self, _: &[u8], old: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        assert!(!operands.contains(&&b"panic"[..]), "a bug in an operator");
        let all = old.into_iter().chain(operands.iter().copied());
        (!operands.contains(&&b"no"[..])).then(|| all.collect::<Vec<_>>().concat())
    }
}

#[test]
fn an_operator_that_fails_makes_reads_fail_and_nothing_else() {
    let temp = dirs::scratch().unwrap();
    let mut options = options("");
    options.cf.merge_operator = Some(Arc::new(Moody));
    options.cf.max_successive_merges = 1;
    let db = Db::open(temp.path(), &options).unwrap();
    let cf = db.default_column_family();
    for k in ["panic", "no", "good"] {
        db.put(k, "base").unwrap();
        db.merge(k, "1").unwrap();
        db.merge(k, k).unwrap();
        db.merge(k, "2").unwrap();
    }
    for round in 0..3 {
        for (k, words) in [("panic", "Moody panicked on"), ("no", "Moody cannot merge")] {
            let e = db.get(k).unwrap_err();
            assert!(
                e.is_corruption() && e.to_string().contains(words),
                "{round}: {e}"
            );
            let mut it = db.iterator().unwrap();
            it.seek(k.as_bytes());
            assert!(!it.valid());
            assert!(it.status().unwrap_err().to_string().contains(words));
        }
        assert_eq!(db.get("good").unwrap().unwrap(), b"base1good2");
        db.put("more", round.to_string()).unwrap();
        if round == 0 {
            db.flush().unwrap();
        } else {
            db.cf(&cf).compact_range(None, None).unwrap();
        }
    }
    // A value that cannot be merged can be replaced.
    db.put("no", "new").unwrap();
    db.delete("panic").unwrap();
    assert_eq!(db.get("no").unwrap().unwrap(), b"new");
    let mut it = db.iterator().unwrap();
    it.seek_to_first();
    it.status().unwrap();
    // The name of the user's operator is in the OPTIONS file.
    drop(db);
    let text = std::fs::read_to_string(
        dirs::files(temp.path())
            .unwrap()
            .into_iter()
            .rfind(|(n, _)| n.starts_with("OPTIONS-"))
            .unwrap()
            .1,
    );
    assert!(text.unwrap().contains("merge_operator=Moody\n"));
}

#[test]
fn families_have_operators_of_their_own() {
    let temp = dirs::scratch().unwrap();
    let db = Db::open(temp.path(), &options("stringappend")).unwrap();
    let numbers = ColumnFamilyOptions {
        merge_operator: parse("uint64add").unwrap(),
        ..ColumnFamilyOptions::default()
    };
    let cf = db.create_column_family("numbers", &numbers).unwrap();
    let mut batch = WriteBatch::new();
    for i in 1..4u64 {
        batch.merge("k", i.to_string()).unwrap();
        batch.cf(&cf).merge("k", i.to_le_bytes()).unwrap();
    }
    db.write(&mut batch).unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), b"1,2,3");
    assert_eq!(db.cf(&cf).get("k").unwrap().unwrap(), 6u64.to_le_bytes());
}
