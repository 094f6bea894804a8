//! Read options, and reads over several families and of operands, compared with RocksDB where it has them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::stats::Ticker;
use ironstone::{
    Db, DbIterator, ErrorKind, ExportImportFilesMetaData, GetMergeOperandsOptions,
    ImportColumnFamilyOptions, LiveFileMetaData, Options, ReadOptions, ReadTier, SliceTransform,
    Snapshot, Statistics, TableFilter, WriteBatch, WriteOptions,
};
use sim::dirs;
use sim::oracle::{self, Library, RocksDb, RocksExport, RocksIter, RocksOptions, RocksReadOptions};

mod shared;

mod iterators;

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.cf.merge_operator = ironstone::merge_operators::parse("stringappend").unwrap();
    o.cf.disable_auto_compactions = true;
    o
}

fn rocks_options(lib: &Arc<Library>) -> RocksOptions {
    let mut o = lib.options();
    o.create_if_missing(true);
    o.set("merge_operator", "stringappend").unwrap();
    o.set("disable_auto_compactions", "true").unwrap();
    o
}

/// The same database in both engines.
struct Both {
    _temp: tempfile::TempDir,
    lib: Arc<Library>,
    ours: Db,
    theirs: RocksDb,
}

impl Both {
    fn new() -> Option<Self> {
        let lib = oracle::rocksdb()?;
        let temp = dirs::scratch().unwrap();
        let ours = Db::open(temp.path().join("ours"), &options()).unwrap();
        let theirs = RocksDb::open(&rocks_options(&lib), temp.path().join("theirs")).unwrap();
        Some(Self {
            _temp: temp,
            lib,
            ours,
            theirs,
        })
    }

    fn put(&self, key: &str, value: &str) {
        self.ours.put(key, value).unwrap();
        self.theirs.put(key.as_bytes(), value.as_bytes()).unwrap();
    }

    fn delete(&self, key: &str) {
        self.ours.delete(key).unwrap();
        self.theirs.delete(key.as_bytes()).unwrap();
    }

    fn merge(&self, key: &str, operand: &str) {
        self.ours.merge(key, operand).unwrap();
        let cf = self.theirs.default_cf();
        self.theirs
            .merge_cf(cf, key.as_bytes(), operand.as_bytes())
            .unwrap();
    }

    fn delete_range(&self, begin: &str, end: &str) {
        self.ours.delete_range(begin, end).unwrap();
        let cf = self.theirs.default_cf();
        self.theirs
            .delete_range_cf(cf, begin.as_bytes(), end.as_bytes())
            .unwrap();
    }

    fn flush(&self) {
        self.ours.flush().unwrap();
        self.theirs.flush().unwrap();
    }

    fn iterators<'a>(&'a self, ours: &ReadOptions, theirs: &'a RocksReadOptions<'_>) -> Pair<'a> {
        Pair {
            ours: self.ours.with(ours).iterator().unwrap(),
            theirs: self.theirs.iterator_opt(theirs, self.theirs.default_cf()),
        }
    }

    /// Both refuse: ours at once, theirs by the iterator's status.
    fn no_iterators(&self, ours: &ReadOptions, theirs: &RocksReadOptions<'_>, kind: ErrorKind) {
        assert_eq!(self.ours.with(ours).iterator().unwrap_err().kind(), kind);
        let mut theirs = self.theirs.iterator_opt(theirs, self.theirs.default_cf());
        theirs.seek_to_first();
        assert!(!theirs.valid());
        assert_eq!(theirs.status().unwrap_err().kind(), kind);
    }
}

/// An iterator of each engine, moved together.
struct Pair<'a> {
    ours: DbIterator,
    theirs: RocksIter<'a>,
}

type Place = (Option<(String, String)>, Option<ErrorKind>);

impl Pair<'_> {
    fn seek(&mut self, key: &str) -> Place {
        self.ours.seek(key.as_bytes());
        self.theirs.seek(key.as_bytes());
        self.place(&format!("seek {key}"))
    }

    fn first(&mut self) -> Place {
        self.ours.seek_to_first();
        self.theirs.seek_to_first();
        self.place("to first")
    }

    fn next(&mut self) -> Place {
        self.ours.next();
        self.theirs.next();
        self.place("next")
    }

    /// The position of both, which must agree.
    fn place(&self, what: &str) -> Place {
        let text = |k: &[u8], v: &[u8]| {
            Some((
                String::from_utf8_lossy(k).into_owned(),
                String::from_utf8_lossy(v).into_owned(),
            ))
        };
        let kind = |e: ironstone::Error| e.kind();
        let ours = if self.ours.valid() {
            text(self.ours.key(), self.ours.value())
        } else {
            None
        };
        let theirs = if self.theirs.valid() {
            text(self.theirs.key(), self.theirs.value())
        } else {
            None
        };
        let ours = (ours, self.ours.status().err().map(kind));
        let theirs = (theirs, self.theirs.status().err().map(kind));
        assert_eq!(ours, theirs, "{what}");
        ours
    }
}

fn entry(key: &str, value: &str) -> Place {
    (Some((key.to_owned(), value.to_owned())), None)
}

const END: Place = (None, None);

#[test]
fn tiers() {
    let Some(both) = Both::new() else { return };
    both.put("disk", "1");
    both.put("disk2", "1");
    both.flush();
    both.put("memory", "2");
    let cf = both.ours.default_column_family();
    let read = |tier| ReadOptions {
        read_tier: tier,
        ..ReadOptions::default()
    };
    let numbered = [
        (0, ReadTier::ReadAll),
        (1, ReadTier::BlockCache),
        (2, ReadTier::Persisted),
        (3, ReadTier::Memtable),
    ];
    let look = |cached: bool| {
        for (number, tier) in numbered {
            let (a, b) = (read(tier), both.lib.read_options().read_tier(number));
            for key in ["disk", "memory", "none", "zzz"] {
                let ours = both.ours.cf(&cf).with(&a).get(key).map_err(|e| e.kind());
                let theirs = both
                    .theirs
                    .get_opt(&b, both.theirs.default_cf(), key.as_bytes());
                let theirs = theirs.map_err(|e| e.kind());
                assert_eq!(ours, theirs, "{tier:?} {key}, cached: {cached}");
            }
            if tier == ReadTier::ReadAll {
                continue; // it fills the cache
            }
            if tier == ReadTier::Persisted {
                both.no_iterators(&a, &b, ErrorKind::NotSupported);
                continue;
            }
            let mut it = both.iterators(&a, &b);
            let first = it.first();
            let want = match tier {
                ReadTier::BlockCache if !cached => (None, Some(ErrorKind::Incomplete)),
                ReadTier::BlockCache => entry("disk", "1"),
                _ => entry("memory", "2"),
            };
            assert_eq!(first, want, "{tier:?}");
        }
    };
    // No block has been read from the file yet when the cache tier is tried.
    let (a, b) = (
        read(ReadTier::BlockCache),
        both.lib.read_options().read_tier(1),
    );
    let mut it = both.iterators(&a, &b);
    assert_eq!(it.first(), (None, Some(ErrorKind::Incomplete)));
    let e = both.ours.cf(&cf).with(&a).get("disk").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Incomplete);
    assert!(both.ours.cf(&cf).with(&a).get("memory").unwrap().is_some());
    both.ours.get("disk").unwrap();
    both.theirs.get(b"disk").unwrap();
    // A seek clears the error.
    assert_eq!(it.first(), entry("disk", "1"));
    assert_eq!(it.next(), entry("disk2", "1"));
    look(true);
}

/// The tier of persisted data leaves out what a crash of the process would lose.
#[test]
fn the_tier_of_what_is_persistent() {
    let Some(both) = Both::new() else { return };
    both.put("disk", "1");
    both.flush();
    both.put("memory", "2");
    let cf = both.ours.default_column_family();
    let unlogged = WriteOptions {
        disable_wal: true,
        ..WriteOptions::default()
    };
    both.ours.cf(&cf).with(&unlogged).put("lost", "3").unwrap();
    let theirs = both.lib.write_options().disable_wal(true);
    let their_cf = both.theirs.default_cf();
    both.theirs
        .put_opt(&theirs, their_cf, b"lost", b"3")
        .unwrap();
    let a = ReadOptions {
        read_tier: ReadTier::Persisted,
        ..ReadOptions::default()
    };
    let b = both.lib.read_options().read_tier(2);
    for key in ["lost", "memory", "disk"] {
        let ours = both.ours.cf(&cf).with(&a).get(key).unwrap();
        let theirs = both.theirs.get_opt(&b, their_cf, key.as_bytes()).unwrap();
        assert_eq!(ours, theirs, "{key}");
    }
}

#[test]
fn deadlines() {
    let Some(both) = Both::new() else { return };
    both.put("disk", "1");
    both.flush();
    both.put("memory", "2");
    let cf = both.ours.default_column_family();
    let late = ReadOptions {
        deadline: Duration::from_secs(1),
        ..ReadOptions::default()
    };
    let their_late = both.lib.read_options().deadline(1_000_000);
    let their_cf = both.theirs.default_cf();
    let e = both.ours.cf(&cf).with(&late).get("disk").unwrap_err();
    let their_e = both.theirs.get_opt(&their_late, their_cf, b"disk");
    assert_eq!(e.kind(), ErrorKind::TimedOut);
    assert_eq!(their_e.unwrap_err().kind(), ErrorKind::TimedOut);
    let mut it = both.iterators(&late, &their_late);
    assert_eq!(it.first(), (None, Some(ErrorKind::TimedOut)));
    assert!(
        both.ours
            .cf(&cf)
            .with(&late)
            .get("memory")
            .unwrap()
            .is_some()
    );
    let found = both.ours.cf(&cf).with(&late).multi_get(&["memory", "disk"]);
    assert!(found[0].is_ok() && found[1].is_err());
    both.ours.get("disk").unwrap();
    assert!(both.ours.cf(&cf).with(&late).get("disk").unwrap().is_some());
    let refused = [
        ReadOptions {
            io_timeout: Duration::from_secs(1),
            ..ReadOptions::default()
        },
        ReadOptions {
            merge_operand_count_threshold: Some(1),
            ..ReadOptions::default()
        },
    ];
    for o in &refused {
        let e = both.ours.cf(&cf).with(o).get("disk").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported);
        assert_eq!(both.ours.with(o).iterator().unwrap_err().kind(), e.kind());
        assert!(both.ours.cf(&cf).with(o).multi_get(&["disk"])[0].is_err());
    }
}

#[test]
fn a_multi_get_gives_up_at_its_limit() {
    let Some(both) = Both::new() else { return };
    let keys = ["e", "a", "c", "none", "b", "d"];
    for key in keys {
        if key != "none" {
            both.put(key, &key.repeat(10));
        }
    }
    let cf = both.ours.default_column_family();
    let compare = || {
        for limit in [0, 1, 9, 10, 11, 20, 25, 40, 50, u64::MAX] {
            let o = ReadOptions {
                value_size_soft_limit: limit,
                ..ReadOptions::default()
            };
            let ours = both.ours.cf(&cf).with(&o).multi_get(&keys);
            let o = both.lib.read_options().value_size_soft_limit(limit);
            let raw: Vec<&[u8]> = keys.iter().map(|k| k.as_bytes()).collect();
            let theirs = both.theirs.multi_get(&o, both.theirs.default_cf(), &raw);
            for (i, key) in keys.iter().enumerate() {
                let ours = ours[i].as_ref().map_err(ironstone::Error::kind);
                let theirs = theirs[i].as_ref().map_err(ironstone::Error::kind);
                assert_eq!(ours, theirs, "{key} with {limit}");
            }
        }
    };
    compare();
    both.flush();
    compare();
}

#[test]
fn internal_keys_that_are_skipped() {
    let Some(both) = Both::new() else { return };
    for i in 0..30 {
        both.put(&format!("{i:02}"), "v");
    }
    both.flush();
    for i in (0..30).filter(|i| i % 10 != 9) {
        both.delete(&format!("{i:02}"));
    }
    for max in [1, 5, 8, 9, 10, 17, 18, 19, 20, 30] {
        let ours = ReadOptions {
            max_skippable_internal_keys: max,
            ..ReadOptions::default()
        };
        let theirs = both.lib.read_options().max_skippable_internal_keys(max);
        let mut it = both.iterators(&ours, &theirs);
        for start in 0..30 {
            let mut at = it.seek(&format!("{start:02}"));
            while at.0.is_some() {
                at = it.next();
            }
            it.ours.seek_for_prev(format!("{start:02}").as_bytes());
            it.theirs.seek_for_prev(format!("{start:02}").as_bytes());
            let mut at = it.place(&format!("back from {start} with {max}"));
            while at.0.is_some() {
                it.ours.prev();
                it.theirs.prev();
                at = it.place(&format!("prev with {max} from {start}"));
            }
        }
    }
}

#[test]
fn filters_of_prefixes_spare_files() {
    let temp = dirs::scratch().unwrap();
    let statistics = Arc::new(Statistics::new());
    let mut o = options();
    o.env.statistics = Some(Arc::clone(&statistics));
    o.cf.prefix_extractor = Some(SliceTransform::fixed_prefix(2));
    o.cf.table
        .apply("filter_policy", "bloomfilter:20:false")
        .unwrap();
    let db = Db::open(temp.path(), &o).unwrap();
    let cf = db.default_column_family();
    for file in 0..8 {
        for i in 0..20 {
            db.put(format!("{file:02}-{i:02}"), "v").unwrap();
        }
        // All files span all keys.
        db.put("!", "").unwrap();
        db.put("~", "").unwrap();
        db.flush().unwrap();
    }
    let filtered = || statistics.get(Ticker::NonLastLevelSeekFiltered);
    let count = |o: &ReadOptions, target: &str| {
        let before = filtered();
        let mut it = db.with(o).iterator().unwrap();
        it.seek(target.as_bytes());
        let mut found = 0;
        while it.valid() {
            found += 1;
            it.next();
        }
        it.status().unwrap();
        (found, filtered() - before)
    };
    let same = ReadOptions {
        prefix_same_as_start: true,
        ..ReadOptions::default()
    };
    let auto = |bound: &str| ReadOptions {
        auto_prefix_mode: true,
        iterate_upper_bound: Some(bound.into()),
        ..ReadOptions::default()
    };
    let total = ReadOptions {
        total_order_seek: true,
        ..ReadOptions::default()
    };
    assert_eq!(count(&same, "03-10"), (10, 7));
    assert_eq!(count(&same, "none"), (0, 8));
    assert_eq!(count(&auto("03-15"), "03-10"), (5, 7));
    assert_eq!(count(&auto("04"), "03-10"), (10, 7));
    assert_eq!(count(&auto("05"), "03-10"), (30, 0));
    assert_eq!(count(&total, "03-10"), (91, 0));
    // By default: no entry is missing beyond the prefix.
    assert_eq!(count(&ReadOptions::default(), "03-10"), (91, 7));
    assert_eq!(count(&ReadOptions::default(), "03-99"), (81, 7));
    assert_eq!(count(&ReadOptions::default(), "}"), (1, 0)); // without a prefix
    db.cf(&cf).compact_range(None, None).unwrap();
    assert_eq!(count(&same, "03-10").0, 10);
    assert_eq!(count(&ReadOptions::default(), "03-10").0, 91);
}

#[test]
fn tables_are_chosen_by_their_properties() {
    let temp = dirs::scratch().unwrap();
    let db = Db::open(temp.path(), &options()).unwrap();
    let cf = db.default_column_family();
    for i in 0..5 {
        db.put(format!("old{i}"), "v").unwrap();
    }
    db.flush().unwrap();
    db.cf(&cf).compact_range(None, None).unwrap();
    db.put("new1", "v").unwrap();
    db.delete_range("old1", "old3").unwrap();
    db.flush().unwrap();
    db.put("newer", "v").unwrap();
    let keys = |filter: TableFilter| {
        let o = ReadOptions {
            table_filter: Some(filter),
            ..ReadOptions::default()
        };
        let mut it = db.with(&o).iterator().unwrap();
        let mut out = Vec::new();
        it.seek_to_first();
        while it.valid() {
            out.push(String::from_utf8_lossy(it.key()).into_owned());
            it.next();
        }
        it.status().unwrap();
        out
    };
    let large = keys(TableFilter::new(|p| p.num_entries > 2));
    // Range tombstones count even in tables that are left out.
    assert_eq!(large, ["newer", "old0", "old3", "old4"]);
    assert_eq!(keys(TableFilter::new(|_| false)), ["newer"]);
    let all = keys(TableFilter::new(|_| panic!("a bug in a filter")));
    assert_eq!(all, ["new1", "newer", "old0", "old3", "old4"]);
}

/// A database with operands in tables and in memory, and a snapshot before some of them.
fn with_operands(dir: &Path) -> (Db, Snapshot) {
    let db = Db::open(dir, &options()).unwrap();
    db.put("base", "0").unwrap();
    db.put("gone", "0").unwrap();
    db.put("plain", "0").unwrap();
    db.merge("only", "1").unwrap();
    db.merge("base", "1").unwrap();
    db.merge("covered", "1").unwrap();
    let columns = ironstone::WideColumns::new([("", "e"), ("x", "y")]).unwrap();
    db.put_entity("entity", &columns).unwrap();
    let snapshot = db.snapshot();
    db.flush().unwrap();
    db.merge("base", "2").unwrap();
    db.delete("gone").unwrap();
    db.delete_range("covered", "coverez").unwrap();
    db.flush().unwrap();
    db.merge("base", "3").unwrap();
    db.merge("gone", "4").unwrap();
    db.merge("covered", "5").unwrap();
    db.merge("entity", "6").unwrap();
    (db, snapshot)
}

#[test]
fn operands_as_they_are() {
    let temp = dirs::scratch().unwrap();
    let (db, snapshot) = with_operands(temp.path());
    let operands = |key: &str| {
        let found = db
            .get_merge_operands(key, GetMergeOperandsOptions::up_to(10))
            .unwrap();
        found
            .iter()
            .map(|o| String::from_utf8_lossy(o).into_owned())
            .collect::<Vec<_>>()
    };
    let empty: [&str; 0] = [];
    // The flush merged the operands that it found together.
    assert_eq!(operands("base"), ["0,1", "2", "3"]);
    assert_eq!(operands("only"), ["1"]);
    assert_eq!(operands("plain"), ["0"]);
    assert_eq!(operands("gone"), ["4"]);
    assert_eq!(operands("covered"), ["5"]);
    assert_eq!(operands("entity"), ["e", "6"]);
    assert_eq!(operands("none"), empty);
    let e = db
        .get_merge_operands("base", GetMergeOperandsOptions::up_to(2))
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Incomplete);
    assert!(e.to_string().contains("there are 3, room for 2"), "{e}");
    let at = ReadOptions {
        snapshot: Some(snapshot),
        ..ReadOptions::default()
    };
    let how = |max| GetMergeOperandsOptions::up_to(max);
    let found = db.with(&at).get_merge_operands("base", how(2)).unwrap();
    assert_eq!(found, [b"0,1"]);
    // The newest two are enough.
    let mut seen = Vec::new();
    let mut ask = |operand: &[u8]| {
        seen.push(operand.to_vec());
        seen.len() < 2
    };
    let how = GetMergeOperandsOptions {
        expected_max_number_of_operands: 2,
        continue_cb: Some(&mut ask),
    };
    let read = ReadOptions::default();
    let found = db.with(&read).get_merge_operands("base", how).unwrap();
    assert_eq!(found, [b"2", b"3"]);
    assert_eq!(seen, [b"3", b"2"]);
    let mut ask = |_: &[u8]| panic!("a bug in a callback");
    let how = GetMergeOperandsOptions {
        expected_max_number_of_operands: 9,
        continue_cb: Some(&mut ask),
    };
    let e = db.with(&read).get_merge_operands("base", how).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Aborted);
    drop(db);
    let mut without = options();
    without.cf.merge_operator = None;
    let db = Db::open(temp.path(), &without);
    if let Ok(db) = db {
        let plain = db
            .get_merge_operands("plain", GetMergeOperandsOptions::up_to(1))
            .unwrap();
        assert_eq!(plain, [b"0"]);
    }
}

#[test]
fn several_families_are_read_at_one_moment() {
    let temp = dirs::scratch().unwrap();
    let mut o = options();
    o.cf.write_buffer_size = 64 << 10;
    let db = Db::open(temp.path(), &o).unwrap();
    let other = db.create_column_family("other", &o.cf).unwrap();
    let default = db.default_column_family();
    let (stop, value) = (AtomicBool::new(false), "x".repeat(500));
    std::thread::scope(|scope| {
        let (db, default, other, stop) = (&db, &default, &other, &stop);
        scope.spawn(move || {
            let mut i = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let mut batch = WriteBatch::new();
                let both = format!("{i:012}{value}");
                batch.cf(default).put("k", &both).unwrap();
                batch.cf(other).put("k", &both).unwrap();
                db.write(&mut batch).unwrap();
                i += 1;
            }
        });
        let read = ReadOptions::default();
        for _ in 0..300 {
            let values = db
                .with(&read)
                .multi_get_families(&[(other, "k"), (default, "k")]);
            assert_eq!(values[0].as_ref().unwrap(), values[1].as_ref().unwrap());
            let mut its = db.with(&read).iterators(&[default, other]).unwrap();
            let seen: Vec<_> = its
                .iter_mut()
                .map(|it| {
                    it.seek_to_first();
                    it.status().unwrap();
                    it.valid().then(|| it.value().to_vec())
                })
                .collect();
            assert_eq!(seen[0], seen[1]);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let stray = dirs::scratch().unwrap();
    let stray = Db::open(stray.path(), &o).unwrap();
    let foreign = stray.default_column_family();
    let read = ReadOptions::default();
    assert!(db.with(&read).iterators(&[&default, &foreign]).is_err());
    let values = db
        .with(&read)
        .multi_get_families(&[(&foreign, "k"), (&default, "k")]);
    assert!(values[0].is_err() && values[1].is_ok());
}
