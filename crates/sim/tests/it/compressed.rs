//! Compressed logs: `wal_compression = kZSTD`, between Ironstone and RocksDB in both directions, after a
//! kill, in every mode of writing logs.

use std::path::Path;

use base::options::OptionTable;
use base::rng::Rng;
use io::FileSystem;
use ironstone::{Db, Options, WriteOptions};
use log::RecoveryMode;
use sim::dirs::{self, State};
use sim::disk::{Act, Config, SimDisk};
use sim::frozen::{self, Frozen};
use sim::oracle::content::everything;
use sim::oracle::{self, RocksDb, RocksOptions, ldb};

use crate::rot;

const DIR: &str = "/db";
/// RocksDB's recovery modes that stop at damage, by their numbers. The first is the default: the others
/// take the rest of the old log in a recycled file for damage.
const MODES: [u8; 3] = [2, 0, 1];
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn with(settings: &[(&str, &str)]) -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.db.stats_dump_period_sec = 0;
    o.cf.write_buffer_size = 256 << 10;
    o.cf.disable_auto_compactions = true;
    for (name, value) in settings {
        o.db.set(name, value).unwrap();
    }
    o
}

fn on(mut options: Options, disk: &SimDisk) -> Options {
    options.env.fs = disk.shared();
    options
}

fn synced() -> WriteOptions {
    WriteOptions {
        sync: true,
        ..WriteOptions::default()
    }
}

/// Writes values of sizes around a fragment, a block and more; half of the bytes of a value compress, or
/// none.
fn fill(db: &Db, rng: &mut Rng, prefix: &str, n: u32) {
    let cf = db.default_column_family();
    for i in 0..n {
        let len = match i % 20 {
            0 => 70_000,
            1 => 32_700 + rng.below(80) as usize,
            2 => 0,
            _ => 1 + rng.below(300) as usize,
        };
        let mut value = vec![b'c'; len];
        let noise = if i % 3 == 0 { len } else { len / 2 };
        rng.fill(&mut value[..noise]);
        let key = format!("{prefix}{i:05}");
        let options = if i % 4 == 0 {
            WriteOptions::default()
        } else {
            synced()
        };
        db.cf(&cf).with(&options).put(key, &value).unwrap();
    }
}

fn is_log(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| e == "log")
}

fn pairs(db: &Db) -> Pairs {
    everything(db).unwrap().remove(0).1
}

fn rocksdb_finds(options: &RocksOptions, state: &State) -> base::Result<Pairs> {
    let temp = dirs::scratch()?;
    state.restore(temp.path())?;
    let db = RocksDb::open(options, temp.path())?;
    db.iterator().collect_all()
}

/// Both engines read the logs that a killed process leaves.
#[test]
fn rocksdb_reads_what_a_killed_process_leaves() {
    let lib = oracle::rocksdb();
    let ways: [&[(&str, &str)]; 5] = [
        &[("wal_io_mode", "buffered")],
        &[("wal_io_mode", "buffered"), ("recycle_log_file_num", "3")],
        &[("wal_io_mode", "direct")],
        &[("wal_io_mode", "direct"), ("wal_tail_policy", "pad")],
        &[
            ("wal_io_mode", "direct"),
            ("wal_tail_policy", "pad"),
            ("wal_pipeline_depth", "4"),
            ("recycle_log_file_num", "3"),
        ],
    ];
    for (seed, way) in ways.into_iter().enumerate() {
        let disk = SimDisk::new(Config::default());
        let settings = [&[("wal_compression", "kZSTD")], way].concat();
        let options = on(with(&settings), &disk);
        let db = Db::open(DIR, &options).unwrap();
        let mut rng = Rng::new(seed as u64);
        let is_direct = || disk.trace().iter().any(|e| e.act == Act::WriteDsync);
        let cf = db.default_column_family();
        for i in 0..10_000 {
            // The log is a buffered one until the first file of the pool is filled.
            if way[0].1 == "buffered" || is_direct() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            db.cf(&cf)
                .with(&synced())
                .put(format!("wait{i}"), "")
                .unwrap();
        }
        for part in ["a", "b", "c", "d"] {
            fill(&db, &mut rng, part, 60);
        }
        assert_eq!(is_direct(), way[0].1 == "direct", "{way:?}");
        let want = pairs(&db);
        let temp = dirs::scratch().unwrap();
        let killed = disk.kill_image();
        killed.export(temp.path()).unwrap();
        let path = temp.path().join("db");
        let state = State::of(&path).unwrap();
        let logs: Vec<_> = state.names().filter(|n| is_log(n)).collect();
        for log in &logs {
            let kind = state.get(log).unwrap().get(6);
            assert!(matches!(kind, None | Some(9)), "{log} {way:?}");
        }
        if let Some(lib) = &lib {
            let recycles = way.iter().any(|(name, _)| *name == "recycle_log_file_num");
            for &mode in &MODES[..if recycles { 1 } else { 3 }] {
                let mut o = lib.options();
                o.wal_recovery_mode(mode);
                let found = rocksdb_finds(&o, &state).unwrap();
                assert!(found == want, "mode {mode}, {way:?}");
            }
        }
        if ldb::available() {
            assert!(ldb::scan(&path, "default").unwrap() == want, "ldb, {way:?}");
        }
        let again = on(with(way), &killed);
        let recovered = Db::open(DIR, &again).unwrap();
        assert!(pairs(&recovered) == want, "{way:?}");
        drop(db);
    }
}

/// Databases of RocksDB, with a log that RocksDB compressed, are read in every mode.
#[test]
fn logs_of_rocksdb_are_read() {
    let Some(lib) = oracle::rocksdb() else { return };
    for recycle in ["0", "2"] {
        let temp = dirs::scratch().unwrap();
        let path = temp.path().join("db");
        let mut o = lib.options();
        o.create_if_missing(true);
        o.set("wal_compression", "kZSTD").unwrap();
        o.set("recycle_log_file_num", recycle).unwrap();
        o.set("write_buffer_size", "300000").unwrap();
        let db = RocksDb::open(&o, &path).unwrap();
        let mut rng = Rng::new(5);
        let mut want = Pairs::new();
        for i in 0..400 {
            let mut value = vec![b'c'; if i % 50 == 0 { 70_000 } else { 200 }];
            let half = value.len() / 2;
            rng.fill(&mut value[..half]);
            let key = format!("{i:05}").into_bytes();
            db.put(&key, &value).unwrap();
            want.push((key, value));
        }
        // RocksDB makes and deletes files meanwhile: a state that is read twice the same is whole.
        let twice = || Some([State::of(&path).ok()?, State::of(&path).ok()?]);
        let state = (0..1000).find_map(|_| twice().filter(|[a, b]| a == b));
        let [state, _] = state.unwrap();
        db.close();
        let log = state.names().filter(|n| is_log(n)).last();
        assert_eq!(state.get(log.unwrap()).unwrap().get(6), Some(&9));
        let modes = [
            RecoveryMode::TolerateCorruptedTailRecords,
            RecoveryMode::AbsoluteConsistency,
            RecoveryMode::PointInTimeRecovery,
        ];
        for mode in modes {
            let copy = dirs::scratch().unwrap();
            state.restore(copy.path()).unwrap();
            let mut o = with(&[]);
            o.db.wal_recovery_mode = mode;
            // The rest behind the end of a recycled log is damage in the two strict modes.
            let mut theirs = lib.options();
            theirs.wal_recovery_mode(mode as u8);
            let theirs = rocksdb_finds(&theirs, &state);
            match Db::open(copy.path(), &o) {
                Ok(db) => assert!(pairs(&db) == want, "{mode:?}, recycle {recycle}"),
                Err(e) => assert!(
                    theirs.is_err() && recycle == "2",
                    "{mode:?}, {recycle}: {e}; RocksDB opens it"
                ),
            }
            if let Ok(theirs) = theirs {
                assert!(theirs == want, "RocksDB itself in {mode:?}");
            }
        }
    }
}

/// The same two tests with the other release: a process loads one RocksDB.
#[test]
fn an_older_release_reads_and_is_read_too() {
    const LIBRARY: &str = "IRONSTONE_LIBROCKSDB";
    let dirs = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten();
    let old = dirs
        .map(|dir| dir.path().join("librocksdb.so.7.8"))
        .find(|path| path.exists());
    if std::env::var_os(LIBRARY).is_some() {
        return;
    }
    let Some(old) = old else {
        eprintln!("skipped: there is no librocksdb.so.7.8");
        return;
    };
    let out = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["compressed::", "--nocapture"])
        .env(LIBRARY, Path::new(&old))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Compression is switched on and off across kills and reopens, and the logs are kept from one life to the
/// next: compressed and plain logs stand side by side.
#[test]
fn compression_is_switched_on_and_off_across_reopens() {
    for recycle in ["0", "2"] {
        let mut disk = SimDisk::new(Config::default());
        let mut want = Pairs::new();
        for (life, value) in [
            "kZSTD",
            "kNoCompression",
            "kZSTD",
            "kZSTD",
            "kNoCompression",
        ]
        .into_iter()
        .enumerate()
        {
            let mut options = with(&[
                ("wal_compression", value),
                ("recycle_log_file_num", recycle),
                ("avoid_flush_during_recovery", "true"),
            ]);
            options.cf.write_buffer_size = if life < 3 { 8 << 20 } else { 64 << 10 };
            let db = Db::open(DIR, &on(options, &disk)).unwrap();
            assert!(pairs(&db) == want, "life {life}, recycle {recycle}");
            fill(&db, &mut Rng::new(life as u64), &format!("{life}-"), 50);
            want = pairs(&db);
            disk = disk.kill_image();
        }
        let logs = disk.list(Path::new(DIR)).unwrap();
        assert!(logs.iter().any(|n| is_log(&n.to_string_lossy())));
        let db = Db::open(DIR, &on(with(&[]), &disk)).unwrap();
        assert!(pairs(&db) == want);
    }
}

/// A recycled file holds, behind the new log, compressed records of the old one, which begin with the same
/// bytes. They are not read.
#[test]
fn the_old_log_in_a_recycled_file_is_not_read() {
    let disk = SimDisk::new(Config::default());
    let options = with(&[
        ("wal_compression", "kZSTD"),
        ("recycle_log_file_num", "2"),
        ("wal_io_mode", "buffered"),
    ]);
    let db = Db::open(DIR, &on(options.clone(), &disk)).unwrap();
    let put = |key: &str, value: &str| {
        let cf = db.default_column_family();
        db.cf(&cf).with(&synced()).put(key, value).unwrap();
    };
    for round in 0..6 {
        let n = if round == 5 { 3 } else { 200 };
        for i in 0..n {
            // Deleted before the flush: if the key is there again, it comes from an old log.
            put(&format!("old{round}-{i}"), "value");
            db.delete(format!("old{round}-{i}")).unwrap();
        }
        put("round", &round.to_string());
        if round < 5 {
            db.flush().unwrap();
            db.wait_for_compact().unwrap(); // then the log's file waits for its next use
        }
    }
    let killed = disk.kill_image();
    let want = vec![(b"round".to_vec(), b"5".to_vec())];
    let temp = dirs::scratch().unwrap();
    killed.export(temp.path()).unwrap();
    let state = State::of(&temp.path().join("db")).unwrap();
    let log = state.names().filter(|n| is_log(n)).last().unwrap();
    let bytes = state.get(log).unwrap();
    assert_eq!(bytes.get(6), Some(&9));
    assert!(bytes.len() > 5000, "a longer log was there before");
    assert!(pairs(&Db::open(DIR, &on(options, &killed)).unwrap()) == want);
    if let Some(lib) = oracle::rocksdb() {
        let found = rocksdb_finds(&lib.options(), &state).unwrap();
        assert!(found == want);
    }
}

/// Damage below a fence is corruption in a compressed log as in any other: every byte of it.
#[test]
fn damage_to_what_was_durable_is_refused() {
    let disk = SimDisk::new(Config::default());
    let options = with(&[("wal_compression", "kZSTD"), ("wal_io_mode", "buffered")]);
    let db = Db::open(DIR, &on(options, &disk)).unwrap();
    let cf = db.default_column_family();
    let mut before_last = 0;
    let size = || {
        let names = disk.list(Path::new(DIR)).unwrap();
        let log = names.iter().find(|n| is_log(&n.to_string_lossy())).unwrap();
        let len = disk.metadata(&Path::new(DIR).join(log)).unwrap().len;
        (log.to_string_lossy().into_owned(), len as usize)
    };
    for i in 0..40 {
        before_last = size().1;
        db.cf(&cf)
            .with(&synced())
            .put(format!("key {i}"), vec![b'v'; 50])
            .unwrap();
    }
    let (log, len) = size();
    let temp = dirs::scratch().unwrap();
    disk.kill_image().export(temp.path()).unwrap();
    let state = State::of(&temp.path().join("db")).unwrap();
    let whole = state.get(&log).unwrap().to_vec();
    assert_eq!(whole.len(), len);
    let frozen = Frozen::of(&state);
    for at in 0..len {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        let fs = frozen.with(&log, bytes);
        let opened = Db::open_read_only(frozen::DIR, &rot::options(fs));
        match opened {
            Err(e) => {
                let told = e.to_string();
                assert!(
                    e.is_corruption() && told.contains(&log),
                    "byte {at}: {told}"
                );
            }
            Ok(db) => {
                let found = pairs(&db).len();
                assert!(at >= before_last, "byte {at} of {len}: {found} of 40 found");
                assert!(found >= 39);
            }
        }
    }
}
