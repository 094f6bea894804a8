//! Options that change while a database is open: which ones, their effect, and what is left after a reopen.
//! RocksDB is the measure of what may change.

mod effects;
mod stale;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::ErrorKind;
use base::clock::SystemClock;
use ironstone::options::ParsedOptions;
use ironstone::options::codec::Unsupported;
use ironstone::options::rocksdb::{CF_SECTION, DB_SECTION, KEYS, Key, Releases, TABLE_SECTION};
use ironstone::{ColumnFamily, ColumnFamilyDescriptor, CompressionType, Db, Env, Options, Result};
use sim::dirs;
use sim::hooked::{Hook, HookedFs, Op, Verdict};
use sim::oracle::{self, RocksDb, RocksOptions, ldb};

fn options() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options
}

fn open(dir: &Path) -> Db {
    Db::open(dir, &options()).unwrap()
}

/// Opens with a second family, which has one key.
fn with_other(dir: &Path) -> (Db, ColumnFamily) {
    let mut o = options();
    o.db.create_missing_column_families = true;
    let families = ["default", "other"].map(|n| ColumnFamilyDescriptor::new(n, o.cf.clone()));
    let db = Db::open_cf(dir, &o, &families).unwrap();
    let other = db.column_family("other").unwrap();
    db.cf(&other).put("key", "value").unwrap();
    (db, other)
}

/// Changes options of the default family.
fn set(db: &Db, changes: &[(&str, &str)]) -> Result<()> {
    db.set_options(changes)
}

/// Waits until `ready` is true; panics if that takes too long.
fn wait_until(what: &str, ready: impl Fn() -> bool) {
    let clock = SystemClock::shared();
    let end = clock.monotonic_nanos() + 60_000_000_000;
    while !ready() {
        assert!(clock.monotonic_nanos() < end, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn number(db: &Db, property: &str) -> u64 {
    db.property(property).unwrap().parse().unwrap()
}

fn newest_options(dir: &Path) -> (String, String) {
    let files = dirs::files(dir).unwrap();
    let newest = files
        .iter()
        .rfind(|(name, _)| name.starts_with("OPTIONS-") && !name.contains('.'));
    let (name, path) = newest.unwrap();
    (name.clone(), std::fs::read_to_string(path).unwrap())
}

fn log_of(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("LOG")).unwrap()
}

/// The result of an attempt, as far as both engines should agree.
fn outcome(result: &base::Result<()>) -> &'static str {
    match result {
        Ok(()) => "changed",
        // RocksDB's `SetDBOptions` reports options that cannot be changed as not found.
        Err(e) if matches!(e.kind(), ErrorKind::InvalidArgument | ErrorKind::NotFound) => "refused",
        Err(_) => "other",
    }
}

/// The value of the key in RocksDB's own OPTIONS file.
fn their_value(text: &str, key: &Key) -> String {
    let prefix = format!("{}=", key.name);
    let line = text.lines().find_map(|l| l.trim().strip_prefix(&prefix));
    line.unwrap_or(key.default).to_owned()
}

/// RocksDB accepts the current value of these, and refuses every other.
const SAME_VALUE: [&str; 3] = ["comparator", "memtable_factory", "table_factory"];

/// Every name that either release has is set on both engines, to its current value.
#[test]
fn the_options_that_change_are_rocksdbs() {
    let Some(lib) = oracle::rocksdb() else { return };
    if lib.version().unwrap() != "11.8.1" {
        eprintln!("skipped: needs RocksDB 11.8.1");
        return;
    }
    let dir = dirs::scratch().unwrap();
    let mut o = lib.options();
    o.create_if_missing(true);
    let rocks = RocksDb::open(&o, dir.path().join("rocks")).unwrap();
    let ours = open(&dir.path().join("ours"));
    let (_, theirs) = newest_options(&dir.path().join("rocks"));
    let mut wrong = Vec::new();
    for key in KEYS {
        let in_table = |value: &str| format!("{{{}={value};}}", key.name);
        let (name, their, our) = match key.section {
            TABLE_SECTION => (
                "block_based_table_factory",
                in_table(&their_value(&theirs, key)),
                in_table(key.default),
            ),
            _ => (key.name, their_value(&theirs, key), key.default.to_owned()),
        };
        let (them, us) = if key.section == DB_SECTION {
            (
                rocks.set_db_options(&[(name, &their)]),
                ours.set_db_options(&[(name, &our)]),
            )
        } else {
            (
                rocks.set_options(rocks.default_cf(), &[(name, &their)]),
                set(&ours, &[(name, &our)]),
            )
        };
        if SAME_VALUE.contains(&key.name) && them.is_ok() && outcome(&us) == "refused" {
            continue;
        }
        if outcome(&them) != outcome(&us) || them.is_ok() != key.mutable {
            wrong.push(format!(
                "{} {} {their}: {them:?} {us:?}",
                key.section, key.name
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mutable = |section| {
        let keys = KEYS.iter().filter(|k| k.section == section && k.mutable);
        keys.count()
    };
    let counts = [DB_SECTION, CF_SECTION, TABLE_SECTION].map(mutable);
    assert!(counts[0] > 15 && counts[1] > 50, "{counts:?}");
}

#[test]
fn all_change_or_none() {
    let dir = dirs::scratch().unwrap();
    let db = open(dir.path());
    let family = db.default_column_family();
    let before = (db.cf(&family).options().cf, newest_options(dir.path()));
    for (changes, kind, why) in [
        (&[][..], ErrorKind::InvalidArgument, "empty input"),
        (
            &[("write_buffer_size", "1M"), ("num_levels", "3")],
            ErrorKind::InvalidArgument,
            "num_levels",
        ),
        (
            &[("ttl", "7"), ("write_bufer_size", "1M")],
            ErrorKind::InvalidArgument,
            "did you mean write_buffer_size?",
        ),
        (
            &[("ttl", "7"), ("max_write_buffer_number", "many")],
            ErrorKind::InvalidArgument,
            "max_write_buffer_number: \"many\"",
        ),
        (
            &[
                ("ttl", "7"),
                ("compression_opts", "{zstd_max_train_bytes=9}"),
            ],
            ErrorKind::InvalidArgument,
            "zstd_max_train_bytes = 9",
        ),
        (
            &[("ttl", "7"), ("enable_blob_files", "true")],
            ErrorKind::NotSupported,
            "enable_blob_files",
        ),
        (
            &[("ttl", "7"), ("block_based_table_factory", "{no_such=1}")],
            ErrorKind::InvalidArgument,
            "no_such",
        ),
        (
            &[
                ("ttl", "7"),
                ("block_based_table_factory", "{block_align=true}"),
            ],
            ErrorKind::InvalidArgument,
            "block_align",
        ),
        (
            &[("ttl", "7"), ("max_background_jobs", "4")],
            ErrorKind::InvalidArgument,
            "max_background_jobs",
        ),
    ] {
        let e = set(&db, changes).unwrap_err();
        assert_eq!(e.kind(), kind, "{changes:?}: {e}");
        assert!(e.to_string().contains(why), "{changes:?}: {e}");
    }
    refuse_db_options(&db);
    assert_eq!(db.db_options().max_background_jobs, 2);
    let after = (db.cf(&family).options().cf, newest_options(dir.path()));
    assert_eq!(before, after, "no option and no OPTIONS file has changed");
}

fn refuse_db_options(db: &Db) {
    for (changes, why) in [
        (&[][..], "empty input"),
        (
            &[("max_background_jobs", "4"), ("wal_dir", "/tmp")],
            "wal_dir",
        ),
        (&[("max_background_jobs", "x")], "max_background_jobs"),
        (&[("ttl", "7")], "ttl"),
        (&[("memory_limit", "64M")], "memory_limit"),
    ] {
        let e = db.set_db_options(changes).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{changes:?}: {e}");
        assert!(e.to_string().contains(why), "{changes:?}: {e}");
    }
}

/// A struct that is given in part keeps its other members, as in RocksDB.
#[test]
fn members_of_structs_change_alone() {
    let dir = dirs::scratch().unwrap();
    let db = open(dir.path());
    let family = db.default_column_family();
    set(
        &db,
        &[("compression_opts", "{level=3;max_dict_bytes=4096}")],
    )
    .unwrap();
    set(&db, &[("compression_opts", "{level=5}")]).unwrap();
    set(&db, &[("compaction_options_universal", "{size_ratio=7}")]).unwrap();
    set(
        &db,
        &[("compaction_options_universal.min_merge_width", "3")],
    )
    .unwrap();
    set(&db, &[("block_based_table_factory", "{block_size=16K}")]).unwrap();
    set(
        &db,
        &[("block_based_table_factory", "{whole_key_filtering=false;}")],
    )
    .unwrap();
    let o = db.cf(&family).options();
    let opts = &o.cf.compression_opts;
    assert_eq!((opts.level, opts.max_dict_bytes), (5, 4096));
    let universal = &o.cf.compaction_options_universal;
    assert_eq!((universal.size_ratio, universal.min_merge_width), (7, 3));
    assert_eq!(
        (o.table.block_size, o.table.whole_key_filtering),
        (16 << 10, false)
    );
}

/// The newest OPTIONS file has the changes; it and the one before it are kept; RocksDB loads it.
#[test]
fn changes_survive_a_reopen_with_the_latest_options() {
    let dir = dirs::scratch().unwrap();
    let (db, other) = with_other(dir.path());
    let changes = [
        ("write_buffer_size", "3M"),
        ("compression", "kZSTD"),
        ("compaction_options_fifo", "{max_table_files_size=12345}"),
        ("block_based_table_factory", "{block_size=9000}"),
        ("prefix_extractor", "fixed:4"),
    ];
    db.cf(&other).set_options(&changes).unwrap();
    db.set_db_options(&[("max_background_jobs", "5"), ("stats_dump_period_sec", "0")])
        .unwrap();
    let kept = dirs::files(dir.path()).unwrap();
    let kept = kept.keys().filter(|n| n.starts_with("OPTIONS-")).count();
    assert_eq!(kept, 2);
    let log = log_of(dir.path());
    for line in [
        "SetOptions() on [1] column families, inputs:",
        "Set options on column family [other], inputs:",
        "compression: kZSTD",
        "Set options on column family [other] succeeded",
        "SetDBOptions(), inputs:",
        "SetDBOptions() succeeded",
    ] {
        assert!(log.contains(line), "{line} is missing in {log}");
    }
    let in_force = db.cf(&other).options();
    db.close().unwrap();

    let env = Env::default();
    let latest = ParsedOptions::load_latest(dir.path(), &env, Unsupported::Refuse).unwrap();
    assert_eq!(latest.warnings, Vec::<String>::new());
    assert_eq!(latest.db.max_background_jobs, 5);
    let families = latest.families.clone();
    assert_eq!(families[1].name, "other");
    assert_eq!(families[1].options.cf.write_buffer_size, 3 << 20);
    assert_eq!(families[1].options.cf.compression, CompressionType::Zstd);
    assert_eq!(families[1].options.table, in_force.table);
    assert_eq!(
        families[1].options.prefix_extractor,
        in_force.prefix_extractor
    );
    let db = Db::open_cf(dir.path(), &latest.into_options(env), &families).unwrap();
    let other = db.column_family("other").unwrap();
    assert_eq!(
        db.cf(&other).get("key").unwrap().as_deref(),
        Some(&b"value"[..])
    );
    assert_eq!(db.cf(&other).options().cf.write_buffer_size, 3 << 20);
    db.close().unwrap();

    others_load_them(dir.path());
}

/// RocksDB's tools and its library read the file, and open the database with it.
fn others_load_them(dir: &Path) {
    if ldb::available() {
        let args = ["--try_load_options", "--column_family=other", "scan"];
        let out = ldb::ldb(dir, &args).unwrap();
        assert!(out.contains("key : value"), "{out}");
    }
    let Some(lib) = oracle::rocksdb() else { return };
    let (whole, each) = RocksOptions::load_latest(&lib, dir, false).unwrap();
    let list: Vec<_> = each.iter().map(|(name, o)| (name.as_str(), o)).collect();
    let rocks = RocksDb::open_cf(&whole, dir, &list).unwrap();
    let other = rocks.cf("other").unwrap();
    assert_eq!(
        rocks.get_cf(other, b"key").unwrap().as_deref(),
        Some(&b"value"[..])
    );
    rocks.close();
    let (_, theirs) = newest_options(dir);
    let section = theirs.split("[CFOptions \"other\"]").nth(1).unwrap();
    for line in [
        "write_buffer_size=3145728",
        "compression=kZSTD",
        "block_size=9000",
    ] {
        assert!(section.contains(line), "{line}: {section}");
    }
    assert!(theirs.contains("max_background_jobs=5"), "{theirs}");
}

/// Old OPTIONS files stay while deletions are disabled, so that a user can copy them.
#[test]
fn old_files_stay_while_deletions_are_disabled() {
    let dir = dirs::scratch().unwrap();
    let db = open(dir.path());
    let kept = || {
        let files = dirs::files(dir.path()).unwrap();
        files.keys().filter(|n| n.starts_with("OPTIONS-")).count()
    };
    db.disable_file_deletions();
    for ttl in ["1", "2", "3"] {
        set(&db, &[("ttl", ttl)]).unwrap();
    }
    assert_eq!(kept(), 4);
    db.enable_file_deletions();
    set(&db, &[("ttl", "4")]).unwrap();
    assert_eq!(kept(), 2);
}

/// RocksDB 11.8.1 changes options; its OPTIONS file is read without an unknown option.
#[test]
fn options_files_of_rocksdb_are_read() {
    let Some(lib) = oracle::rocksdb() else { return };
    let dir = dirs::scratch().unwrap();
    let mut o = lib.options();
    o.create_if_missing(true);
    let rocks = RocksDb::open(&o, dir.path()).unwrap();
    rocks
        .set_options(
            rocks.default_cf(),
            &[
                ("write_buffer_size", "2000000"),
                ("compression_opts", "{level=4}"),
                ("block_based_table_factory", "{block_size=5000}"),
            ],
        )
        .unwrap();
    rocks.close();
    let env = Env::default();
    let latest = ParsedOptions::load_latest(dir.path(), &env, Unsupported::Refuse).unwrap();
    assert_eq!(latest.warnings, Vec::<String>::new());
    let family = &latest.families[0].options;
    assert_eq!(family.cf.write_buffer_size, 2_000_000);
    assert_eq!(family.cf.compression_opts.level, 4);
    assert_eq!(family.table.block_size, 5000);
}

/// Fails the creation of OPTIONS files while it is armed.
#[derive(Debug, Default)]
struct NoOptions(AtomicBool);

impl Hook for NoOptions {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if self.0.load(Ordering::SeqCst) && op == Op::OpenWrite && name.starts_with("OPTIONS") {
            return Verdict::Fail(28);
        }
        Verdict::Go
    }
}

#[test]
fn options_that_cannot_be_written_are_in_force_all_the_same() {
    let dir = dirs::scratch().unwrap();
    let hook = Arc::new(NoOptions::default());
    let mut o = options();
    o.env.fs = HookedFs::new(Arc::<NoOptions>::clone(&hook));
    let db = Db::open(dir.path(), &o).unwrap();
    let before = newest_options(dir.path());
    hook.0.store(true, Ordering::SeqCst);
    let e = set(&db, &[("write_buffer_size", "1M")]).unwrap_err();
    assert!(e.to_string().contains("in force"), "{e}");
    let e = db
        .set_db_options(&[("max_background_jobs", "3")])
        .unwrap_err();
    assert!(e.to_string().contains("in force"), "{e}");
    assert_eq!(newest_options(dir.path()), before);
    assert_eq!(
        db.cf(&db.default_column_family())
            .options()
            .cf
            .write_buffer_size,
        1 << 20
    );
    assert_eq!(db.db_options().max_background_jobs, 3);
    hook.0.store(false, Ordering::SeqCst);
    set(&db, &[("ttl", "77")]).unwrap();
    let (_, text) = newest_options(dir.path());
    for line in [
        "ttl=77\n",
        "write_buffer_size=1048576\n",
        "max_background_jobs=3\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    db.put("key", "value").unwrap();
}

/// FIFO has no stalls by the number of files, whatever the options say.
#[test]
fn fifo_keeps_its_own_triggers() {
    let dir = dirs::scratch().unwrap();
    let mut o = options();
    o.cf.compaction_style = ironstone::CompactionStyle::Fifo;
    let db = Db::open(dir.path(), &o).unwrap();
    let changes = [
        ("level0_slowdown_writes_trigger", "5"),
        ("level0_stop_writes_trigger", "6"),
        (
            "compaction_options_fifo",
            "{max_table_files_size=123456789}",
        ),
    ];
    set(&db, &changes).unwrap();
    let cf = db.cf(&db.default_column_family()).options().cf;
    assert_eq!(cf.level0_slowdown_writes_trigger, i32::MAX);
    assert_eq!(cf.level0_stop_writes_trigger, i32::MAX);
    assert_eq!(cf.compaction_options_fifo.max_table_files_size, 123_456_789);
}

#[test]
fn handles_of_others_and_readers_are_refused() {
    let dir = dirs::scratch().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let db = open(&one);
    let other = open(&two);
    let stray = other.default_column_family();
    let e = db.cf(&stray).set_options(&[("ttl", "1")]);
    assert_eq!(e.unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.close().unwrap();
    let reader = Db::open_read_only(&one, &options()).unwrap();
    let e = set(&reader, &[("ttl", "1")]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotSupported);
    let e = reader.set_db_options(&[("max_background_jobs", "3")]);
    assert_eq!(e.unwrap_err().kind(), ErrorKind::NotSupported);
}

/// A key that 7.8.3 does not have is written only where it is set; 7.8.3 reads the file when told to ignore
/// unknown keys, 11.8.1 as it is.
#[test]
fn newer_keys_are_written_when_set() {
    let newer = |text: &str| {
        KEYS.iter()
            .filter(|k| k.releases == Releases::New)
            .any(|k| text.contains(&format!("\n  {}=", k.name)))
    };
    let dir = dirs::scratch().unwrap();
    let mut o = options();
    let db = Db::open(dir.path(), &o).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let (_, text) = newest_options(dir.path());
    assert!(text.contains("rocksdb_version=7.8.3") && !newer(&text));
    o.db.enforce_write_buffer_manager_during_recovery = false;
    Db::open(dir.path(), &o).unwrap().close().unwrap();
    let (_, text) = newest_options(dir.path());
    assert!(
        text.contains("rocksdb_version=11.8.1") && newer(&text),
        "{text}"
    );
    if ldb::available() {
        let args = ["--try_load_options", "--ignore_unknown_options", "scan"];
        let out = ldb::ldb(dir.path(), &args).unwrap();
        assert!(out.contains("key : value"), "{out}");
    }
    let Some(lib) = oracle::rocksdb() else { return };
    if lib.version().unwrap() == "11.8.1" {
        RocksOptions::load_latest(&lib, dir.path(), false).unwrap();
    }
}
