//! The kinds of memtables, and flushes of several families at once.

use std::path::Path;
use std::sync::{Arc, Mutex};

use base::rng::Rng;
use base::{Error, SliceTransform};
use ironstone::MemtableFactory;
use ironstone::listener::{BackgroundErrorReason, FlushJobInfo, MemTableInfo};
use ironstone::{ColumnFamilyDescriptor, Db, EventListener, Options, WriteOptions};
use sim::dirs;
use sim::disk::{Act, Config, CrashKind, Fault, Moment, Phase, Repeat, SimDisk, Watcher};
use sim::oracle::{self, RocksDb};

const UNLOGGED: WriteOptions = WriteOptions {
    sync: false,
    disable_wal: true,
    no_slowdown: false,
    low_pri: false,
};

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.db.create_missing_column_families = true;
    o.db.stats_dump_period_sec = 0;
    o.cf.arena_block_size = 4096;
    o
}

fn two(o: &Options) -> [ColumnFamilyDescriptor; 2] {
    ["default", "other"].map(|n| ColumnFamilyDescriptor::new(n, o.cf.clone()))
}

fn scan(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut it, mut out) = (db.iterator().unwrap(), Vec::new());
    it.seek_to_first();
    while it.valid() {
        out.push((it.key().to_vec(), it.value().to_vec()));
        it.next();
    }
    it.status().unwrap();
    out
}

#[test]
fn every_kind_of_memtable_gives_the_same_database() {
    let variants: [fn(&mut Options); 4] = [
        |_| {},
        |o| {
            o.cf.memtable_factory = MemtableFactory::Vector;
        },
        |o| {
            o.cf.memtable_prefix_bloom_size_ratio = 0.1;
            o.cf.memtable_whole_key_filtering = true;
        },
        |o| {
            o.cf.memtable_prefix_bloom_size_ratio = 0.1;
            o.cf.prefix_extractor = Some(SliceTransform::fixed_prefix(2));
            o.cf.max_write_buffer_number = 5;
            o.cf.min_write_buffer_number_to_merge = 3;
            o.cf.max_write_buffer_size_to_maintain = 1 << 20;
        },
    ];
    let mut first = None;
    for (i, vary) in variants.into_iter().enumerate() {
        let dir = dirs::scratch().unwrap();
        let mut o = options();
        o.cf.write_buffer_size = 32 << 10;
        vary(&mut o);
        let db = Db::open(dir.path(), &o).unwrap();
        let mut rng = Rng::new(99);
        for n in 0..3000u32 {
            let key = format!("{}", rng.below(500));
            if rng.one_in(4) {
                db.delete(&key).unwrap();
            } else {
                db.put(&key, n.to_le_bytes().repeat(10)).unwrap();
            }
            let other = format!("{}", rng.below(600));
            if n % 16 == 0 {
                drop(db.get(&other).unwrap());
            }
        }
        let before = scan(&db);
        for (k, v) in &before {
            assert_eq!(db.get(k).unwrap().as_ref(), Some(v));
        }
        if i == 3 {
            let kept = db
                .property("rocksdb.num-immutable-mem-table-flushed")
                .unwrap();
            assert_ne!(kept, "0");
        }
        db.close().unwrap();
        let db = Db::open(dir.path(), &o).unwrap();
        assert_eq!(scan(&db), before, "variant {i} after a reopen");
        assert_eq!(first.get_or_insert(before.clone()), &before, "variant {i}");
    }
}

/// Each engine reads the names that the other writes into its OPTIONS file.
#[test]
fn components_of_memtables_have_rocksdbs_names_in_options_files() {
    let Some(lib) = oracle::rocksdb() else { return };
    let dir = dirs::scratch().unwrap();
    let path = dir.path().join("rocks");
    let text = "prefix_extractor=rocksdb.CappedPrefix.7;memtable_factory=vector;\
                memtable_prefix_bloom_size_ratio=0.05;\
                max_write_buffer_size_to_maintain=12345;atomic_flush=true";
    let mut theirs = lib.options();
    theirs.create_if_missing(true).set_all(text).unwrap();
    RocksDb::open(&theirs, &path).unwrap().close();
    let written = std::fs::read_to_string(newest_options(&path)).unwrap();
    let read = ironstone::options::codec::parse(&written).unwrap();
    let cf = &read.families[0].options;
    assert!(read.db.atomic_flush);
    assert_eq!(cf.cf.memtable_factory, MemtableFactory::Vector);
    assert_eq!(cf.prefix_extractor, Some(SliceTransform::capped_prefix(7)));
    assert_eq!(cf.cf.max_write_buffer_size_to_maintain, 12345);
    let path = dir.path().join("ours");
    let mut o = options();
    o.db = read.db;
    o.db.create_if_missing = true;
    o.cf = cf.clone();
    Db::open(&path, &o).unwrap().close().unwrap();
    let written = std::fs::read_to_string(newest_options(&path)).unwrap();
    for line in [
        "prefix_extractor=rocksdb.CappedPrefix.7",
        "memtable_factory=VectorRepFactory",
        "atomic_flush=true",
    ] {
        assert!(written.contains(line), "{line}: {written}");
    }
    RocksDb::open(&theirs, &path).unwrap().close();
}

fn newest_options(dir: &Path) -> std::path::PathBuf {
    let files = dirs::files(dir).unwrap();
    let newest = files
        .into_iter()
        .rfind(|(name, _)| name.starts_with("OPTIONS-"));
    newest.unwrap().1
}

/// Takes an image of the disk whenever a change is in flight.
#[derive(Default)]
struct Images {
    seen: Mutex<(Option<Rng>, Vec<SimDisk>)>,
}

impl Watcher for Images {
    fn at(&self, moment: &Moment<'_>) {
        if moment.phase != Phase::InFlight {
            return;
        }
        let mut seen = self.seen.lock().unwrap();
        let (rng, images) = &mut *seen;
        let rng = rng.get_or_insert_with(|| Rng::new(11));
        let kind = CrashKind::any(rng);
        images.push(moment.crash_image(rng, kind));
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn wait_for(&self, notes: usize) {
        while self.0.lock().unwrap().len() < notes {
            std::thread::yield_now();
        }
    }
}

impl EventListener for Heard {
    fn on_memtable_sealed(&self, info: &MemTableInfo) {
        self.note(format!("sealed {} {}", info.cf_name, info.num_entries));
    }

    fn on_flush_begin(&self, info: &FlushJobInfo) {
        self.note(format!("begin {:?} {}", info.flush_reason, info.file_size));
    }

    fn on_flush_completed(&self, info: &FlushJobInfo) {
        assert!(info.file_size > 0 && info.largest_seqno >= info.smallest_seqno);
        self.note(format!("completed {:?}", info.flush_reason));
        panic!("the database must not mind");
    }

    fn on_background_error(&self, reason: BackgroundErrorReason, error: &Error) {
        self.note(format!("{reason:?} {:?}", error.kind()));
    }
}

#[test]
fn listeners_hear_of_flushes_and_of_failures() {
    let disk = SimDisk::new(Config::default());
    let heard = Arc::new(Heard::default());
    let mut o = options();
    o.env.fs = disk.shared();
    o.env.listeners.add(Arc::clone(&heard) as _);
    let db = Db::open(Path::new("/db"), &o).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    heard.wait_for(3); // a flush returns before all listeners are called
    db.put("b", "2").unwrap();
    disk.fail_on(Fault::Eio, Repeat::Forever, |act, path| {
        act == Act::Sync && path.extension().is_some_and(|e| e == "sst")
    });
    db.flush().unwrap_err();
    heard.wait_for(6);
    let seen = std::mem::take(&mut *heard.0.lock().unwrap());
    // One thread seals the memtable and reports it; another one flushes.
    let (sealed, flushed): (Vec<_>, Vec<_>) =
        seen.into_iter().partition(|s| s.starts_with("sealed"));
    assert_eq!(sealed, ["sealed default 1"; 2]);
    let want = [
        "begin ManualFlush 0",
        "completed ManualFlush",
        "begin ManualFlush 0",
        "Flush IoError",
    ];
    assert_eq!(flushed, want);
}

/// Unlogged writes go to two families in turn. After a crash both have the same number of them, because the
/// flushes of both are one step.
#[test]
fn families_are_consistent_after_a_crash_without_a_log() {
    let disk = SimDisk::new(Config::default());
    let mut o = options();
    o.env.fs = disk.shared();
    o.db.atomic_flush = true;
    o.cf.write_buffer_size = 16 << 10;
    o.cf.disable_auto_compactions = true;
    let path = Path::new("/db");
    let db = Db::open_cf(path, &o, &two(&o)).unwrap();
    let images = Arc::new(Images::default());
    disk.watch(Arc::clone(&images) as Arc<dyn Watcher>);
    let families = ["default", "other"].map(|n| db.column_family(n).unwrap());
    for i in 0..400u32 {
        for (f, len) in families.iter().zip([300, 20]) {
            let key = format!("k{i:04}");
            db.cf(f).with(&UNLOGGED).put(key, vec![0; len]).unwrap();
        }
        if i == 150 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    disk.unwatch();
    drop(db);
    let images = std::mem::take(&mut images.seen.lock().unwrap().1);
    assert!(images.len() > 20, "{}", images.len());
    let mut most = 0;
    for image in images {
        let mut o = o.clone();
        o.env.fs = image.shared();
        o.db.create_if_missing = false;
        let db = Db::open_cf(path, &o, &two(&o)).unwrap();
        let count = |name: &str| {
            let cf = db.column_family(name).unwrap();
            let mut it = db.cf(&cf).iterator().unwrap();
            it.seek_to_first();
            let mut n = 0usize;
            while it.valid() {
                n += 1;
                it.next();
            }
            n
        };
        let (a, b) = (count("default"), count("other"));
        // A rotation may fall between the two writes of a pair.
        assert!(a == b || a == b + 1, "{a} in one family, {b} in the other");
        most = most.max(b);
    }
    assert!(most > 300, "{most}");
}

/// Tests what a manual flush of one family does to the others, and that RocksDB reads the result.
#[test]
fn rocksdb_flushes_atomically_as_we_do() {
    let Some(lib) = oracle::rocksdb() else { return };
    let dir = dirs::scratch().unwrap();
    let path = dir.path().join("rocks");
    let mut theirs = lib.options();
    theirs
        .create_if_missing(true)
        .set_all("atomic_flush=true;create_missing_column_families=true")
        .unwrap();
    let plain = lib.options();
    let rocks =
        RocksDb::open_cf(&theirs, &path, &[("default", &plain), ("other", &plain)]).unwrap();
    for name in ["default", "other"] {
        rocks.put_cf(rocks.cf(name).unwrap(), b"k", b"v").unwrap();
    }
    rocks.flush_cf(rocks.cf("other").unwrap()).unwrap();
    let files = |name: &str| {
        let cf = rocks.cf(name).unwrap();
        rocks
            .property_cf(cf, "rocksdb.num-files-at-level0")
            .unwrap()
    };
    let want = [files("default"), files("other")];
    rocks.close();
    let mut o = options();
    o.db.atomic_flush = true;
    let path = dir.path().join("ours");
    let db = Db::open_cf(&path, &o, &two(&o)).unwrap();
    let families = ["default", "other"].map(|n| db.column_family(n).unwrap());
    for f in &families {
        db.cf(f).put("k", "v").unwrap();
    }
    db.cf(&families[1]).flush().unwrap();
    let ours = families
        .each_ref()
        .map(|f| db.cf(f).property("rocksdb.num-files-at-level0").unwrap());
    assert_eq!(ours, want);
    db.flush().unwrap();
    db.close().unwrap();
    let content = oracle::scan(&lib, &path, |_| Ok(lib.options())).unwrap();
    assert!(
        content.iter().all(|(_, entries)| entries.len() == 1),
        "{content:?}"
    );
}
