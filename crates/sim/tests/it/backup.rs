//! The backup engine: with RocksDB's as its reader and writer, incremental, with damage, and stopped in the
//! middle.
#![expect(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "RocksDB's file names are in lower case"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ironstone::{
    BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, Env, ErrorKind, Options,
    RestoreOptions,
};
use sim::dirs;
use sim::hooked::{Hook, HookedFs, Op, Verdict};
use sim::oracle::content::{FamilyContent, difference, everything};
use sim::oracle::{self, RocksBackupEngine, RocksDb, ldb};

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o
}

fn open(dir: &Path) -> BackupEngine {
    BackupEngine::open(&BackupEngineOptions::new(dir), &Env::default()).unwrap()
}

fn quiet(flush: bool) -> CreateBackupOptions {
    CreateBackupOptions {
        flush_before_backup: flush,
        progress_callback: None,
    }
}

/// Content that differs from round to round, in tables and in the log.
fn write(db: &Db, round: u32) {
    for i in 0..500 {
        db.put(
            format!("{:04}", (i * 7 + round) % 1000),
            format!("{round}/{i}").repeat(20),
        )
        .unwrap();
    }
    db.flush().unwrap();
    db.put("in the log", round.to_string()).unwrap();
}

fn restored(engine: &BackupEngine, id: u32, to: &Path) -> Vec<FamilyContent> {
    engine
        .restore_db_from_backup(id, to, to, &RestoreOptions::default())
        .unwrap();
    let db = Db::open_all(to, &Options::default()).unwrap();
    everything(&db).unwrap()
}

fn tables(backups: &Path) -> BTreeSet<String> {
    let shared = backups.join("shared_checksum");
    dirs::files(&shared).unwrap().into_keys().collect()
}

#[test]
fn backups_share_tables_and_each_is_whole() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    let mut engine = open(&at("backups"));
    let mut wanted = Vec::new();
    for round in 1..=4 {
        write(&db, round);
        let info = format!("round {round}");
        let id = engine
            .create_new_backup_with_metadata(&db, info.as_bytes(), quiet(round % 2 == 0))
            .unwrap();
        assert_eq!(id, round);
        wanted.push(everything(&db).unwrap());
        if round == 2 {
            db.compact_range(None, None).unwrap();
        }
    }
    let all = tables(&at("backups")).len();
    let sum: u32 = engine
        .get_backup_info()
        .iter()
        .map(|i| i.number_files)
        .sum();
    assert!((all as u32) < sum - 8, "{all} of {sum}");
    let check = |engine: &BackupEngine, first: u32| {
        for id in first..=4 {
            engine.verify_backup(id, true).unwrap();
            let have = restored(engine, id, &at("restored"));
            let want = &wanted[id as usize - 1];
            assert_eq!(difference(want, &have), None, "backup {id}");
        }
    };
    check(&engine, 1);
    let mut engine = open(&at("backups"));
    assert_eq!(engine.get_backup_info()[2].app_metadata, b"round 3");
    assert!(engine.get_backup_info()[0].size > 1000);
    engine.delete_backup(2).unwrap();
    assert_eq!(
        engine.delete_backup(2).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    engine.purge_old_backups(2).unwrap();
    assert!(tables(&at("backups")).len() < all);
    let ids: Vec<_> = engine
        .get_backup_info()
        .iter()
        .map(|i| i.backup_id)
        .collect();
    assert_eq!(ids, [3, 4]);
    check(&engine, 3);
    // The open database is not overwritten.
    let e = engine.restore_db_from_latest_backup(at("db"), at("db"), &RestoreOptions::default());
    assert_eq!(e.unwrap_err().kind(), ErrorKind::Busy);
    engine.purge_old_backups(0).unwrap();
    assert!(tables(&at("backups")).is_empty());
    assert_eq!(engine.create_new_backup(&db, quiet(false)).unwrap(), 1);
}

#[test]
fn rocksdb_restores_ours_and_we_restore_its() {
    let Some(lib) = oracle::rocksdb() else { return };
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    db.create_column_family("other", &options().cf).unwrap();
    write(&db, 1);
    let mut engine = open(&at("backups"));
    engine.create_new_backup(&db, quiet(false)).unwrap();
    let first = everything(&db).unwrap();
    write(&db, 2);
    engine.create_new_backup(&db, quiet(true)).unwrap();
    let second = everything(&db).unwrap();
    db.close().unwrap();

    // The tool of RocksDB 7.8 restores, and adds a backup of what it restored.
    if ldb::available() {
        let dir = format!("--backup_dir={}", at("backups").display());
        ldb::ldb(&at("by ldb"), &["restore", &dir]).unwrap();
        let have = ldb::scan_all(&at("by ldb"), &["default", "other"]).unwrap();
        assert_eq!(difference(&second, &have), None);
        ldb::ldb(&at("by ldb"), &["--try_load_options", "backup", &dir]).unwrap();
    } else {
        let db = Db::open_all(at("db"), &options()).unwrap();
        engine.create_new_backup(&db, quiet(true)).unwrap();
    }
    let engine = open(&at("backups"));

    // RocksDB sees all, restores all, and adds some of the database that it restored.
    let rocks = RocksBackupEngine::open(&lib.options(), at("backups")).unwrap();
    let theirs = rocks.info();
    for (ours, theirs) in engine.get_backup_info().iter().zip(&theirs) {
        assert_eq!(ours.backup_id, theirs.id);
        assert_eq!((ours.timestamp, ours.size), (theirs.timestamp, theirs.size));
        assert_eq!(ours.number_files, theirs.number_files);
        rocks.verify(theirs.id).unwrap();
    }
    assert_eq!(theirs.len(), 3);
    for (id, want) in [(Some(1), &first), (None, &second)] {
        rocks.restore(id, at("rocks")).unwrap();
        let have = oracle::scan(&lib, at("rocks"), |_| Ok(lib.options())).unwrap();
        assert_eq!(difference(want, &have), None, "{id:?}");
    }
    let restored_db = RocksDb::open_all(&lib.options(), at("rocks")).unwrap();
    restored_db.put(b"third", b"3").unwrap();
    rocks.create(&restored_db, false).unwrap();
    restored_db.put(b"fourth", b"4").unwrap();
    rocks.create(&restored_db, true).unwrap();
    drop(restored_db);
    drop(rocks);
    let engine = open(&at("backups"));
    assert!(engine.get_corrupted_backups().is_empty());
    assert_eq!(engine.get_backup_info().len(), 5);
    for id in 1..=5 {
        engine.verify_backup(id, true).unwrap();
        let have = restored(&engine, id, &at("ours"));
        let want = if id == 1 { &first } else { &second };
        let extra = id.saturating_sub(3) as usize;
        assert_eq!(have[0].1.len(), want[0].1.len() + extra, "backup {id}");
    }
}

#[test]
fn damage_is_found_and_loses_nothing() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    let mut engine = open(&at("backups"));
    write(&db, 1);
    engine.create_new_backup(&db, quiet(true)).unwrap();
    write(&db, 2);
    engine.create_new_backup(&db, quiet(true)).unwrap();
    db.close().unwrap();
    let want = restored(&engine, 2, &at("restored"));
    let table = tables(&at("backups")).pop_last().unwrap();
    let table = at("backups").join("shared_checksum").join(table);
    let good = std::fs::read(&table).unwrap();
    let mut bad = good.clone();
    bad[100] ^= 1;
    // Rot: only a checksum shows it. A failed restore leaves an existing database as it is.
    std::fs::write(&table, &bad).unwrap();
    let engine = open(&at("backups"));
    engine.verify_backup(2, false).unwrap();
    let e = engine.verify_backup(2, true).unwrap_err();
    assert!(
        e.is_corruption() && e.to_string().contains("Checksum mismatch"),
        "{e}"
    );
    let to = at("restored");
    let again = engine.restore_db_from_backup(2, &to, &to, &RestoreOptions::default());
    assert!(again.is_err());
    let db = Db::open_all(&to, &Options::default()).unwrap();
    assert_eq!(difference(&want, &everything(&db).unwrap()), None);
    drop(db);
    let nowhere = at("nowhere");
    let e = engine.restore_db_from_backup(2, &nowhere, &nowhere, &RestoreOptions::default());
    assert!(e.unwrap_err().is_corruption());
    assert!(Db::open_all(&nowhere, &Options::default()).is_err());
    // A short or missing file makes its backup a corrupted one, and no other.
    std::fs::write(&table, &good[..50]).unwrap();
    let engine = open(&at("backups"));
    let corrupt = engine.get_corrupted_backups();
    assert_eq!(corrupt.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2]);
    assert!(engine.verify_backup(2, false).unwrap_err().is_corruption());
    std::fs::remove_file(&table).unwrap();
    let engine = open(&at("backups"));
    assert!(
        engine.get_corrupted_backups()[0]
            .1
            .to_string()
            .contains("File missing")
    );
    restored(&engine, 1, &at("first"));
    std::fs::write(&table, &good).unwrap();
    // A damaged list: no shared file is deleted before the list is.
    let meta = at("backups").join("meta/2");
    let text = std::fs::read_to_string(&meta).unwrap();
    std::fs::write(&meta, &text[..text.len() / 2]).unwrap();
    let mut engine = open(&at("backups"));
    assert_eq!(engine.get_corrupted_backups().len(), 1);
    engine.purge_old_backups(0).unwrap();
    assert!(table.exists());
    std::fs::write(&meta, text).unwrap();
    let engine = open(&at("backups"));
    assert_eq!(
        difference(&want, &restored(&engine, 2, &at("second"))),
        None
    );
    std::fs::write(&meta, "no list").unwrap();
    let mut engine = open(&at("backups"));
    engine.delete_backup(2).unwrap();
    assert!(tables(&at("backups")).is_empty());
}

/// Fails an operation on a list of files, `meta/1`, once.
#[derive(Debug)]
struct ListFails(AtomicU32, Op);

impl Hook for ListFails {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let meta = match op {
            Op::SyncDir => path.ends_with("meta"),
            _ => path.ends_with("meta/1"),
        };
        let fails = meta && op == self.1 && self.0.swap(0, Ordering::SeqCst) > 0;
        if fails { Verdict::Fail(5) } else { Verdict::Go }
    }
}

/// A backup whose list could not be removed was forgotten, and the next garbage collection removed its
/// files.
#[test]
fn a_backup_that_cannot_be_deleted_stays_whole() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    let hook = Arc::new(ListFails(AtomicU32::new(1), Op::Remove));
    let env = Env {
        fs: HookedFs::new(Arc::clone(&hook) as _),
        ..Env::default()
    };
    let mut engine = BackupEngine::open(&BackupEngineOptions::new(at("backups")), &env).unwrap();
    for round in 1..=2 {
        write(&db, round);
        engine.create_new_backup(&db, quiet(false)).unwrap();
    }
    let e = engine.delete_backup(1).unwrap_err();
    assert!(e.to_string().contains("meta/1"), "{e}");
    engine.delete_backup(2).unwrap();
    engine.garbage_collect().unwrap();
    open(&at("backups")).verify_backup(1, true).unwrap();
    engine.delete_backup(1).unwrap();
    assert_eq!(tables(&at("backups")).len(), 0);
}

/// A backup failed after it had written its list, whose name was not known to be durable. Its files were
/// removed, the list stayed.
#[test]
fn a_backup_that_fails_at_the_end_leaves_no_list() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    write(&db, 1);
    let hook = Arc::new(ListFails(AtomicU32::new(1), Op::SyncDir));
    let env = Env {
        fs: HookedFs::new(Arc::clone(&hook) as _),
        ..Env::default()
    };
    let mut engine = BackupEngine::open(&BackupEngineOptions::new(at("backups")), &env).unwrap();
    engine.create_new_backup(&db, quiet(false)).unwrap_err();
    assert_eq!(hook.0.load(Ordering::SeqCst), 0);
    assert!(!at("backups").join("meta/1").exists());
    let mut engine = open(&at("backups"));
    assert!(engine.get_backup_info().is_empty());
    assert!(engine.get_corrupted_backups().is_empty());
    assert_eq!(engine.create_new_backup(&db, quiet(false)).unwrap(), 1);
    engine.verify_backup(1, true).unwrap();
}

#[test]
fn progress_is_told_and_a_backup_can_be_stopped() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    write(&db, 1);
    let mut o = BackupEngineOptions::new(at("backups"));
    o.callback_trigger_interval_size = 1000;
    o.backup_rate_limit = 1 << 30;
    let mut engine = BackupEngine::open(&o, &Env::default()).unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&calls);
    let counting = CreateBackupOptions {
        flush_before_backup: true,
        progress_callback: Some(Box::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        })),
    };
    engine.create_new_backup(&db, counting).unwrap();
    assert!(calls.load(Ordering::Relaxed) > 0);
    write(&db, 2);
    let panicking = CreateBackupOptions {
        flush_before_backup: true,
        progress_callback: Some(Box::new(|| panic!("not today"))),
    };
    let e = engine.create_new_backup(&db, panicking).unwrap_err();
    assert!(
        e.to_string().contains("callback of the backup panicked"),
        "{e}"
    );
    let stopper = engine.stopper();
    let stopping = CreateBackupOptions {
        flush_before_backup: true,
        progress_callback: Some(Box::new(move || stopper.stop_backup())),
    };
    write(&db, 3);
    let e = engine.create_new_backup(&db, stopping).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Incomplete);
    let mut engine = open(&at("backups"));
    assert_eq!(engine.get_backup_info().len(), 1);
    engine.garbage_collect().unwrap();
    engine.verify_backup(1, true).unwrap();
    engine.create_new_backup(&db, quiet(true)).unwrap();
    let want = everything(&db).unwrap();
    assert_eq!(
        difference(&want, &restored(&engine, 2, &at("restored"))),
        None
    );
}

#[test]
fn logs_that_are_kept_go_on_from_the_backup() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let mut o = options();
    o.db.wal_ttl_seconds = 3600;
    let db = Db::open(at("db"), &o).unwrap();
    write(&db, 1);
    let mut engine = open(&at("backups"));
    engine.create_new_backup(&db, quiet(true)).unwrap();
    write(&db, 2);
    db.put("last", "x").unwrap();
    let want = everything(&db).unwrap();
    db.close().unwrap();
    for (name, _) in dirs::files(&at("db")).unwrap() {
        if name.ends_with(".sst") {
            std::fs::remove_file(at("db").join(name)).unwrap();
        }
    }
    let keep = RestoreOptions {
        keep_log_files: true,
    };
    engine
        .restore_db_from_latest_backup(at("db"), at("db"), &keep)
        .unwrap();
    let db = Db::open(at("db"), &o).unwrap();
    assert_eq!(difference(&want, &everything(&db).unwrap()), None);
}
