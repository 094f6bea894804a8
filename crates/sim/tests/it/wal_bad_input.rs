//! What an open does with malformed log files, and with options that do not go together: a clear error, or
//! the right content; nothing is lost, and nothing changed.
//!
//! `wal_dir` on a full, read-only or vanished file system is tested in `retention`; links and
//! directories in the place of pool files by the log crate's own tests, on a real file system.

use std::path::{Path, PathBuf};

use base::ErrorKind;
use base::checksum::{crc32c, mask};
use base::options::OptionTable;
use io::{FileSystem, OpenHow, WriteSync};
use ironstone::options::codec::{self, Unsupported};
use ironstone::{Db, Options, WriteOptions};
use log::RecoveryMode;
use sim::dirs::{self, State};
use sim::disk::{Act, Config, SimDisk};
use sim::oracle::content::everything;
use sim::oracle::{self, RocksDb};

const DIR: &str = "/db";
/// Long enough that a pool file is soon half used.
const VALUE: [u8; 1000] = [b'v'; 1000];

/// Modes that refuse what they cannot read.
const STRICT: [RecoveryMode; 3] = [
    RecoveryMode::TolerateCorruptedTailRecords,
    RecoveryMode::AbsoluteConsistency,
    RecoveryMode::PointInTimeRecovery,
];

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.db.stats_dump_period_sec = 0;
    o.cf.write_buffer_size = 1 << 20;
    o
}

fn on(disk: &SimDisk) -> Options {
    let mut o = options();
    o.db.wal_io_mode = ironstone::WalIoMode::Direct;
    o.env.fs = disk.shared();
    o
}

fn keys(db: &Db) -> Vec<String> {
    let pairs = everything(db).unwrap().remove(0).1;
    let text = |(k, _): (Vec<u8>, _)| String::from_utf8(k).unwrap();
    pairs.into_iter().map(text).collect()
}

fn put(db: &Db, key: &str) {
    let synced = WriteOptions {
        sync: true,
        ..WriteOptions::default()
    };
    db.with(&synced).put(key, VALUE).unwrap();
}

/// Puts until a log is direct, which needs a usable file in the pool.
fn put_until_direct(db: &Db, disk: &SimDisk, prefix: &str) {
    let direct = || {
        let log = |p: &Path| p.extension().is_some_and(|e| e == "log");
        let dsync = |e: &sim::disk::Event| e.act == Act::WriteDsync && log(&e.path);
        disk.trace().iter().filter(|e| dsync(e)).count()
    };
    let before = direct();
    for i in 0..20_000 {
        put(db, &format!("{prefix}{i:05}"));
        if direct() > before + 20 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    panic!("no direct log");
}

fn pool_files(disk: &SimDisk) -> Vec<PathBuf> {
    let pool = Path::new(DIR).join("log-pool");
    let names = disk.list(&pool).unwrap_or_default();
    names.into_iter().map(|n| pool.join(n)).collect()
}

/// A change that another program makes to a file.
type Change<'a> = &'a dyn Fn(&dyn io::File);

/// Files of the pool that another program wrote to, cut or lengthened are not used, and their content is
/// not read as a log.
#[test]
fn foreign_pool_files_do_not_become_logs() {
    let foreign = b"foreign content";
    // A file that is being made may still be empty.
    let at_end = |len: u64| len.saturating_sub(foreign.len() as u64);
    let changes: [(&str, Change<'_>); 5] = [
        ("at the start", &|f| {
            io::write_all_at(f, foreign, 0, WriteSync::None).unwrap();
        }),
        ("behind zeros", &|f| {
            io::write_all_at(f, foreign, 5000, WriteSync::None).unwrap();
        }),
        ("at the end", &|f| {
            let at = at_end(f.len().unwrap());
            io::write_all_at(f, foreign, at, WriteSync::None).unwrap();
        }),
        ("cut", &|f| f.truncate(1000).unwrap()),
        ("longer", &|f| f.truncate(f.len().unwrap() + 1).unwrap()),
    ];
    for (what, change) in changes {
        let disk = SimDisk::new(Config::default());
        let db = Db::open(DIR, &on(&disk)).unwrap();
        put_until_direct(&db, &disk, "a");
        // One file is in use; when half of it is used, the next one is made ready.
        put_until_ready(&db, &disk);
        let before = keys(&db);
        let disk = disk.kill_image();
        drop(db);
        let files = pool_files(&disk);
        for path in &files {
            change(&*disk.open(path, OpenHow::UPDATE).unwrap());
        }
        let db = Db::open(DIR, &on(&disk)).unwrap();
        assert_eq!(keys(&db), before, "{what}");
        put_until_direct(&db, &disk, "b");
        let after = keys(&db);
        let disk = disk.kill_image();
        for entry in disk.list(Path::new(DIR)).unwrap() {
            let path = Path::new(DIR).join(entry);
            if path.extension().is_some_and(|e| e == "log") {
                let bytes = io::read_file(&disk, &path, 1 << 30).unwrap();
                let found = bytes.windows(foreign.len()).any(|w| w == foreign);
                assert!(!found, "{what}: {}", path.display());
            }
        }
        assert_eq!(keys(&Db::open(DIR, &on(&disk)).unwrap()), after, "{what}");
    }
}

fn put_until_ready(db: &Db, disk: &SimDisk) {
    for i in 0..20_000 {
        put(db, &format!("r{i:05}"));
        let zero = |p: &PathBuf| p.extension().is_some_and(|e| e == "zero");
        if pool_files(disk).iter().any(zero) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    panic!("no file was made ready");
}

/// A physical record of any type, with a right checksum.
fn physical(kind: u8, payload: &[u8]) -> Vec<u8> {
    let covered = [&[kind][..], payload].concat();
    let crc = mask(crc32c(&covered)).to_le_bytes();
    let len = (payload.len() as u16).to_le_bytes();
    [&crc[..], &len, &covered].concat()
}

/// A database with some puts in its log, as a killed process leaves it; the log's name and content.
fn with_log() -> (State, String, Vec<u8>) {
    let temp = dirs::scratch().unwrap();
    let mut o = options();
    o.db.wal_io_mode = ironstone::WalIoMode::Buffered;
    let db = Db::open(temp.path(), &o).unwrap();
    for i in 0..5 {
        put(&db, &format!("key{i}"));
    }
    let state = State::of(temp.path()).unwrap();
    drop(db);
    let is_log = |n: &&str| Path::new(n).extension().is_some_and(|e| e == "log");
    let log = state.names().find(is_log).unwrap().to_owned();
    let bytes = state.get(&log).unwrap().to_vec();
    (state, log, bytes)
}

/// Opens the state in every strict mode; each must refuse it with these words.
fn refused(state: &State, what: &str, kind: ErrorKind, words: &[&str]) {
    for mode in STRICT {
        for read_only in [false, true] {
            let temp = dirs::scratch().unwrap();
            state.restore(temp.path()).unwrap();
            let mut o = options();
            o.db.wal_recovery_mode = mode;
            let opened = if read_only {
                Db::open_read_only(temp.path(), &o)
            } else {
                Db::open(temp.path(), &o)
            };
            let e = opened
                .err()
                .unwrap_or_else(|| panic!("{what} opens in {mode:?}"));
            let told = e.to_string();
            assert_eq!(e.kind(), kind, "{what} in {mode:?}: {told}");
            for word in words {
                assert!(
                    told.contains(word),
                    "{what} in {mode:?}: no {word:?} in {told}"
                );
            }
            let now = State::of(temp.path()).unwrap();
            assert_eq!(state.changes(&now), None, "{what} in {mode:?}");
        }
    }
}

#[test]
fn a_log_of_a_newer_format_is_refused() {
    let (state, log, bytes) = with_log();
    let end = bytes.len();
    let at_end = format!("at offset {end}");
    for kind in [12, 77, 127] {
        let newer = [&bytes[..], &physical(kind, b"what?"), &physical(1, b"x")].concat();
        let what = format!("record type {kind}");
        let number = format!("({kind})");
        let words = [&log, &at_end, "unknown record type", number.as_str()];
        refused(
            &state.with(&log, newer),
            &what,
            ErrorKind::NotSupported,
            &words,
        );
    }
    for compression in [1u32, 8, 99] {
        let start = physical(9, &compression.to_le_bytes());
        let newer = [&start[..], &bytes].concat();
        let words = [&log, "at offset 0", "unknown compression of the log"];
        let what = format!("compression {compression}");
        refused(
            &state.with(&log, newer),
            &what,
            ErrorKind::NotSupported,
            &words,
        );
    }
    for tag in [0x1b, 0x7f, 0xff] {
        // The next sequence number, one record.
        let batch = [&6u64.to_le_bytes()[..], &[1, 0, 0, 0, tag], b"\x01k\x01v"].concat();
        let newer = [&bytes[..], &physical(1, &batch)].concat();
        let unknown = format!("unknown tag 0x{tag:02x}");
        let words = [&log, &at_end, unknown.as_str()];
        let what = format!("tag {tag}");
        refused(
            &state.with(&log, newer),
            &what,
            ErrorKind::Corruption,
            &words,
        );
    }
}

/// A reader may skip records of type 128 and above, as the format says since RocksDB 9.11, and the records
/// behind them are read.
#[test]
fn records_that_may_be_ignored_are() {
    let (state, log, bytes) = with_log();
    let behind = [
        &6u64.to_le_bytes()[..],
        &[1, 0, 0, 0, 1],
        b"\x06behind\x01v",
    ]
    .concat();
    for kind in [128, 200, 255] {
        let newer = [
            &physical(kind, b"first"),
            &bytes[..],
            &physical(kind, b"a hint"),
            &physical(1, &behind),
        ]
        .concat();
        let newer = state.with(&log, newer);
        for mode in STRICT {
            let temp = dirs::scratch().unwrap();
            newer.restore(temp.path()).unwrap();
            let mut o = options();
            o.db.wal_recovery_mode = mode;
            let db = Db::open(temp.path(), &o).unwrap();
            let want = ["behind", "key0", "key1", "key2", "key3", "key4"];
            assert_eq!(keys(&db), want, "{kind} in {mode:?}");
        }
        let Some(lib) = oracle::rocksdb() else {
            continue;
        };
        let temp = dirs::scratch().unwrap();
        newer.restore(temp.path()).unwrap();
        let db = RocksDb::open(&lib.options(), temp.path()).unwrap();
        assert_eq!(db.iterator().collect_all().unwrap().len(), 6, "{kind}");
    }
}

/// Each with Ironstone's error, and RocksDB 11.8.1's where it has the options and the rule: at open, or at
/// the first write.
const COMBINATIONS: &[(&str, &str, Option<&str>)] = &[
    (
        "two_write_queues=true;enable_pipelined_write=true",
        "two_write_queues is not compatible with enable_pipelined_write",
        Some("pipelined_writes is not compatible with concurrent prepares"),
    ),
    (
        "keep_log_file_num=0",
        "option keep_log_file_num = 0 is out of range",
        Some("keep_log_file_num must be greater than 0"),
    ),
    (
        "atomic_flush=true;enable_pipelined_write=true",
        "atomic_flush",
        Some("atomic_flush is incompatible with enable_pipelined_write"),
    ),
    (
        "allow_mmap_reads=true;use_direct_reads=true",
        "allow_mmap_reads",
        Some("direct I/O reads (use_direct_reads) must be disabled"),
    ),
    (
        "wal_compression=nonsense",
        "wal_compression",
        Some("wal_compression"),
    ),
    (
        "wal_recovery_mode=nonsense",
        "wal_recovery_mode",
        Some("wal_recovery_mode"),
    ),
    (
        "wal_pipeline_depth=2",
        "wal_pipeline_depth > 1 needs wal_tail_policy = pad",
        None,
    ),
    (
        "wal_pipeline_depth=2;wal_tail_policy=atomic",
        "wal_pipeline_depth > 1 needs wal_tail_policy = pad",
        None,
    ),
    ("wal_pipeline_depth=9", "wal_pipeline_depth", None),
    (
        "use_direct_io_for_wal=true;wal_io_mode=buffered",
        "use_direct_io_for_wal = true contradicts wal_io_mode = buffered",
        None,
    ),
];

/// The error of an OPTIONS file that has the settings, or of the open.
fn said(settings: &str) -> String {
    let mut text = "[DBOptions]\n".to_owned();
    for one in settings.split(';') {
        text.extend(["  ", one, "\n"]);
    }
    text.push_str("[CFOptions \"default\"]\n");
    let parsed = match codec::parse_with(&text, Unsupported::Refuse) {
        Ok(parsed) => parsed,
        Err(e) => return e.to_string(),
    };
    let temp = dirs::scratch().unwrap();
    let path = temp.path().join("db");
    let mut o = options();
    o.db = parsed.db;
    for (name, value) in settings.split(';').filter_map(|one| one.split_once('=')) {
        // Ironstone's own options are in no OPTIONS file.
        if let Err(e) = o.db.set(name, value) {
            return e.to_string();
        }
    }
    o.db.create_if_missing = true;
    let e = Db::open(&path, &o).unwrap_err();
    assert!(
        !path.exists(),
        "{settings}: refused before anything is made"
    );
    e.to_string()
}

#[test]
fn impossible_combinations_of_options_are_refused() {
    let lib = oracle::rocksdb().filter(|lib| {
        let version = lib.version().unwrap_or_default();
        version.starts_with("11.")
    });
    for (settings, ours, theirs) in COMBINATIONS {
        let told = said(settings);
        assert!(told.contains(ours), "{settings}: {told}");
        let (Some(lib), Some(theirs)) = (&lib, theirs) else {
            continue;
        };
        let temp = dirs::scratch().unwrap();
        let mut o = lib.options();
        o.create_if_missing(true);
        let refused = o
            .set_all(settings)
            .map(|_| ())
            .and_then(|()| RocksDb::open(&o, temp.path().join("db")))
            .and_then(|db| db.put(b"k", b"v"))
            .unwrap_err()
            .to_string();
        assert!(refused.contains(theirs), "RocksDB: {settings}: {refused}");
    }
    // Set by hand, not from a text.
    let mut o = options();
    assert!(o.db.set("wal_compression", "kLZ4Compression").is_err());
    o.db.two_write_queues = true;
    o.db.enable_pipelined_write = true;
    let e = o.validate().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
}
