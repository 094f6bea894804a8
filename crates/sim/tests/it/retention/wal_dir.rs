//! Logs in a directory of their own.

use super::*;

#[test]
fn logs_lie_there_and_recovery_finds_them() {
    let place = Place::new();
    let db = Db::open(&place.db, &place.options()).unwrap();
    db.put("a", "1").unwrap();
    drop(db);
    assert_eq!(logs_in(&place.db), Vec::<String>::new());
    assert_eq!(logs_in(&place.logs).len(), 1);
    let db = Db::open_read_only(&place.db, &place.options()).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), b"1");
    drop(db);
    let db = Db::open(&place.db, &place.options()).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), b"1");
    db.wait_for_compact().unwrap();
    assert_eq!(logs_in(&place.logs).len(), 1, "the old one is gone");
    let file = db.get_current_wal_file().unwrap();
    assert_eq!(file.path_name(), format!("/{}", logs_in(&place.logs)[0]));
    assert_eq!((file.kind(), file.size_bytes()), (WalFileKind::Alive, 0));
}

#[test]
fn the_options_file_has_it_and_tools_follow() {
    let place = Place::new();
    let db = Db::open(&place.db, &place.options()).unwrap();
    db.put("a", "1").unwrap();
    drop(db);
    if ldb::available() {
        let pairs = ldb::scan(&place.db, "default").unwrap();
        assert_eq!(pairs, [(b"a".to_vec(), b"1".to_vec())]);
    }
}

#[test]
fn real_rocksdb_opens_it_and_the_other_way_round() {
    let Some(lib) = oracle::rocksdb() else { return };
    let place = Place::new();
    let mut ours = place.options();
    ours.db.wal_ttl_seconds = 1000;
    let mut theirs = lib.options();
    theirs
        .create_if_missing(true)
        .set("wal_dir", place.logs.to_str().unwrap())
        .unwrap();
    theirs.set("WAL_ttl_seconds", "1000").unwrap();
    for round in 0..3 {
        let db = Db::open(&place.db, &ours).unwrap();
        put_and_flush(&db, "flushed");
        db.put(format!("ours{round}"), "1").unwrap();
        drop(db);
        let db = RocksDb::open(&theirs, &place.db).unwrap();
        let key = format!("ours{round}");
        assert_eq!(db.get(key.as_bytes()).unwrap().unwrap(), b"1");
        db.put(format!("theirs{round}").as_bytes(), b"2").unwrap();
        db.close();
        let db = Db::open(&place.db, &ours).unwrap();
        let key = format!("theirs{round}");
        assert_eq!(db.get(key).unwrap().unwrap(), b"2");
        // The logs that either engine archived are read as one sequence.
        let seen = updates(&db, 1);
        assert_eq!(seen.len() as u64, db.latest_sequence_number());
        assert!(seen.iter().map(|u| u.0).eq(1..=seen.len() as u64));
    }
    assert!(logs_in(&place.logs.join("archive")).len() >= 6);
    assert_eq!(logs_in(&place.db), Vec::<String>::new());
}

#[test]
fn the_databases_own_directory_counts_as_none() {
    let place = Place::new();
    let mut options = place.options();
    std::fs::create_dir(&place.db).unwrap();
    let link = place.db.with_file_name("link");
    std::os::unix::fs::symlink(&place.db, &link).unwrap();
    let db = place.db.to_str().unwrap();
    let spellings = [
        db.to_owned(),
        format!("{db}/"),
        format!("{db}/../db"),
        format!("{db}//."),
        link.to_str().unwrap().to_owned(),
        String::new(),
    ];
    for (i, name) in spellings.iter().enumerate() {
        options.db.wal_dir.clone_from(name);
        let db = Db::open(&place.db, &options).unwrap();
        if i > 0 {
            assert!(db.get(format!("key{}", i - 1)).unwrap().is_some(), "{name}");
        }
        db.put(format!("key{i}"), "v").unwrap();
        db.wait_for_compact().unwrap(); // the content of the previous log is in a table
        assert_eq!(logs_in(&place.db).len(), 1);
    }
}

fn refusal(place: &Place, options: &Options) -> ironstone::Error {
    let e = Db::open(&place.db, options).unwrap_err();
    assert!(e.to_string().contains("wal_dir"), "{e}");
    let named = e.path().is_some_and(|p| p.starts_with(&options.db.wal_dir));
    assert!(named, "{e}");
    e
}

#[test]
fn what_is_no_directory_is_refused() {
    let place = Place::new();
    std::fs::write(&place.logs, "mine").unwrap();
    refusal(&place, &place.options());
    assert_eq!(std::fs::read(&place.logs).unwrap(), b"mine");
    let mut options = place.options();
    options.db.wal_dir += "/below";
    refusal(&place, &options);
    options.db.wal_dir = format!("{}/no/such", place.db.display());
    refusal(&place, &options);
    assert!(!place.db.join("no").exists());
}

#[test]
fn the_logs_of_another_database_are_refused() {
    let place = Place::new();
    let other = place.db.with_file_name("other");
    let db = Db::open(&other, &place.options()).unwrap();
    db.put("a", "1").unwrap();
    drop(db);
    refusal(&place, &place.options());
    let db = Db::open(&other, &place.options()).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), b"1");
}

/// In each of these cases RocksDB opens the database without the writes that were in the logs.
#[test]
fn logs_that_are_elsewhere_are_not_given_up_in_silence() {
    let place = Place::new();
    let db = Db::open(&place.db, &plain()).unwrap();
    db.put("a", "1").unwrap();
    drop(db);
    let e = refusal(&place, &place.options());
    assert!(e.to_string().contains(".log is needed"), "{e}");
    let db = Db::open(&place.db, &plain()).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), b"1");
    // The log is empty after this open.
    drop(db);
    let db = Db::open(&place.db, &place.options()).unwrap();
    db.put("b", "2").unwrap();
    drop(db);
    for read_only in [false, true] {
        let opened = if read_only {
            Db::open_read_only(&place.db, &plain())
        } else {
            Db::open(&place.db, &plain())
        };
        let e = opened.unwrap_err();
        assert!(e.to_string().contains("open with wal_dir = "), "{e}");
    }
    let away = place.logs.with_file_name("away");
    std::fs::rename(&place.logs, &away).unwrap();
    refusal(&place, &place.options());
    assert!(!place.logs.exists(), "it must not be made anew");
    std::fs::create_dir(&place.logs).unwrap();
    let e = refusal(&place, &place.options());
    assert!(e.to_string().contains("holds no log"), "{e}");
    std::fs::remove_dir(&place.logs).unwrap();
    std::fs::rename(&away, &place.logs).unwrap();
    let db = Db::open(&place.db, &place.options()).unwrap();
    assert_eq!(db.get("b").unwrap().unwrap(), b"2");
}

/// Fails operations that change something below a directory.
#[derive(Debug)]
struct Broken {
    below: PathBuf,
    errno: i32,
    reads_too: bool,
    on: std::sync::atomic::AtomicBool,
}

impl Hook for Broken {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let hit = self.on.load(Ordering::Relaxed)
            && path.starts_with(&self.below)
            && (self.reads_too || op.changes());
        if hit {
            Verdict::Fail(self.errno)
        } else {
            Verdict::Go
        }
    }
}

#[test]
fn read_only_full_or_vanished() {
    for (errno, reads_too) in [(EROFS, false), (ENOSPC, false), (ENODEV, true)] {
        let place = Place::new();
        let hook = Arc::new(Broken {
            below: place.logs.clone(),
            errno,
            reads_too,
            on: false.into(),
        });
        let mut options = place.options();
        let hooked: Arc<dyn Hook> = hook.clone();
        options.env.fs = HookedFs::new(hooked);
        // A new database, without and with the directory there.
        hook.on.store(true, Ordering::Relaxed);
        refused_naming(&place, &options, errno);
        std::fs::create_dir(&place.logs).unwrap();
        refused_naming(&place, &options, errno);
        hook.on.store(false, Ordering::Relaxed);

        let db = Db::open(&place.db, &options).unwrap();
        let family = db.default_column_family();
        db.cf(&family).with(&synced()).put("a", "1").unwrap();
        hook.on.store(true, Ordering::Relaxed);
        let e = db.cf(&family).with(&synced()).put("b", "2").unwrap_err();
        assert!(e.path().is_some_and(|p| p.starts_with(&place.logs)), "{e}");
        assert_eq!(db.get("a").unwrap().unwrap(), b"1");
        drop(db);
        // An existing database is refused, and loses nothing.
        refused_naming(&place, &options, errno);
        hook.on.store(false, Ordering::Relaxed);
        let db = Db::open(&place.db, &options).unwrap();
        assert_eq!(db.get("a").unwrap().unwrap(), b"1", "errno {errno}");
    }
}

fn refused_naming(place: &Place, options: &Options, errno: i32) {
    let e = Db::open(&place.db, options).unwrap_err();
    let named = e.path().is_some_and(|p| p.starts_with(&place.logs));
    assert!(named, "errno {errno}: {e}");
}

#[test]
fn the_directory_is_durable_before_a_log_is_in_it() {
    #[derive(Debug, Default)]
    struct Order(Mutex<Vec<(Op, PathBuf)>>);
    impl Hook for Order {
        fn before(&self, op: Op, path: &Path) -> Verdict {
            self.0.lock().unwrap().push((op, path.to_path_buf()));
            Verdict::Go
        }
    }
    let place = Place::new();
    let hook = Arc::new(Order::default());
    let mut options = place.options();
    options.env.fs = HookedFs::new(Arc::clone(&hook) as Arc<dyn Hook>);
    drop(Db::open(&place.db, &options).unwrap());
    let ops = hook.0.lock().unwrap();
    let parent = place.logs.parent().unwrap();
    let at = |op, path: &Path| {
        let found = ops.iter().rposition(|o| o.0 == op && o.1 == path);
        found.unwrap_or_else(|| panic!("{op:?} {}", path.display()))
    };
    let log = place.logs.join(&logs_in(&place.logs)[0]);
    let order = [
        at(Op::CreateDir, &place.logs),
        at(Op::SyncDir, parent),
        at(Op::OpenWrite, &log),
        at(Op::SyncDir, &place.logs),
        at(Op::Rename, &place.db.join("CURRENT")),
    ];
    assert!(order.is_sorted(), "{order:?}");
}
