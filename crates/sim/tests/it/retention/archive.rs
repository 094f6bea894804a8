//! Obsolete logs that are kept for a while.

use super::*;

#[test]
fn obsolete_logs_are_kept_and_listed() {
    let place = Place::new();
    let mut options = place.options();
    options.db.wal_ttl_seconds = 1000;
    let db = Db::open(&place.db, &options).unwrap();
    for i in 0..3 {
        put_and_flush(&db, &format!("key{i}"));
    }
    db.put("last", "v").unwrap();
    let files = db.get_sorted_wal_files().unwrap();
    let kinds: Vec<_> = files.iter().map(ironstone::WalFile::kind).collect();
    assert_eq!(kinds[..3], [WalFileKind::Archived; 3]);
    assert_eq!(kinds[3..], [WalFileKind::Alive]);
    for (i, file) in files.iter().enumerate() {
        assert_eq!(file.start_sequence(), i as u64 + 1);
        let path = format!("{}{}", place.logs.display(), file.path_name());
        assert_eq!(std::fs::metadata(path).unwrap().len(), file.size_bytes());
    }
    assert!(files.is_sorted_by_key(ironstone::WalFile::log_number));
    let current = db.get_current_wal_file().unwrap();
    assert_eq!(current.log_number(), files[3].log_number());
    assert_eq!(current.path_name(), files[3].path_name());
    // At the next open the log is obsolete, and archived as well; the empty one is not.
    drop(db);
    for _ in 0..2 {
        let db = Db::open(&place.db, &options).unwrap();
        db.wait_for_compact().unwrap(); // the log is needed until its content is in a table
    }
    assert_eq!(logs_in(&place.logs.join("archive")).len(), 4);
    assert_eq!(logs_in(&place.logs).len(), 1);
}

#[test]
fn without_the_options_nothing_is_kept() {
    let place = Place::new();
    let db = Db::open(&place.db, &place.options()).unwrap();
    put_and_flush(&db, "a");
    drop(db);
    assert!(!place.logs.join("archive").exists());
    assert_eq!(logs_in(&place.logs).len(), 1);
}

#[test]
fn old_logs_go_by_the_injected_clock() {
    let place = Place::new();
    let clock = Ahead::new();
    let mut options = place.options();
    options.db.wal_ttl_seconds = 1000;
    options.env.clock = clock.clone();
    let archive = place.logs.join("archive");
    let db = Db::open(&place.db, &options).unwrap();
    put_and_flush(&db, "a");
    assert_eq!(logs_in(&archive).len(), 1);
    clock.advance(800);
    put_and_flush(&db, "b");
    assert_eq!(logs_in(&archive).len(), 2, "not old enough");
    clock.advance(300);
    // The archive was checked 300 seconds ago: it is not checked again yet.
    put_and_flush(&db, "c");
    assert_eq!(logs_in(&archive).len(), 3);
    clock.advance(300);
    put_and_flush(&db, "d");
    // The files' own times are the machine's: all of them were made now.
    assert_eq!(logs_in(&archive).len(), 0);
    put_and_flush(&db, "e");
    assert_eq!(logs_in(&archive).len(), 1, "purged a moment ago");
}

#[test]
fn the_size_is_bounded_in_whole_logs() {
    let place = Place::new();
    let clock = Ahead::new();
    let mut options = place.options();
    options.db.wal_size_limit_mb = 1;
    options.env.clock = clock.clone();
    let archive = place.logs.join("archive");
    let db = Db::open(&place.db, &options).unwrap();
    for i in 0..6 {
        db.put(format!("key{i}"), vec![i; 300 << 10]).unwrap();
        db.flush().unwrap();
        db.wait_for_compact().unwrap();
    }
    assert_eq!(logs_in(&archive).len(), 6, "looked at every ten minutes");
    let all = logs_in(&archive);
    clock.advance(601);
    put_and_flush(&db, "g");
    let kept = logs_in(&archive);
    assert_eq!(kept.len(), 3, "1 MiB holds three of the largest");
    assert_eq!(kept[..2], all[4..]);
}

/// The archive is purged without any write by the user, and that writes nothing.
#[test]
fn an_idle_database_purges_and_writes_nothing() {
    #[derive(Debug, Default)]
    struct Changes {
        count: AtomicUsize,
        removed: AtomicUsize,
    }
    impl Hook for Changes {
        fn before(&self, op: Op, path: &Path) -> Verdict {
            let name = path.file_name().unwrap().to_string_lossy();
            if op == Op::Remove {
                self.removed.fetch_add(1, Ordering::SeqCst);
            } else if op.changes() && !name.starts_with("LOG") {
                self.count.fetch_add(1, Ordering::SeqCst);
            }
            Verdict::Go
        }
    }
    let place = Place::new();
    let clock = Ahead::new();
    let hook = Arc::new(Changes::default());
    let mut options = place.options();
    options.db.wal_ttl_seconds = 1;
    options.env.clock = clock.clone();
    options.env.fs = HookedFs::new(Arc::clone(&hook) as Arc<dyn Hook>);
    let db = Db::open(&place.db, &options).unwrap();
    put_and_flush(&db, "a");
    db.put("in the log", "v").unwrap();
    let archive = place.logs.join("archive");
    assert_eq!(logs_in(&archive).len(), 1);
    let (writes, removed) = (&hook.count, &hook.removed);
    let before = (
        writes.load(Ordering::SeqCst),
        removed.load(Ordering::SeqCst),
    );
    clock.advance(100);
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        if logs_in(&archive).is_empty() {
            break;
        }
    }
    assert_eq!(logs_in(&archive).len(), 0);
    let after = (
        writes.load(Ordering::SeqCst),
        removed.load(Ordering::SeqCst),
    );
    assert_eq!(after, (before.0, before.1 + 1));
    assert_eq!(logs_in(&place.logs).len(), 1, "no new log");
}

/// Archived logs were deleted while a user who had disabled deletions copied them.
#[test]
fn nothing_is_purged_while_deletions_are_disabled() {
    let place = Place::new();
    let clock = Ahead::new();
    let mut options = place.options();
    options.db.wal_ttl_seconds = 1;
    options.env.clock = clock.clone();
    let db = Db::open(&place.db, &options).unwrap();
    put_and_flush(&db, "a");
    let archive = place.logs.join("archive");
    db.disable_file_deletions();
    clock.advance(100);
    // The thread checks at least every second.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(logs_in(&archive).len(), 1);
    db.enable_file_deletions();
    for _ in 0..100 {
        if logs_in(&archive).is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        clock.advance(10);
    }
    panic!("it stays: {:?}", logs_in(&archive));
}

#[test]
fn numbers_in_the_archive_are_not_used_again() {
    let place = Place::new();
    let mut options = place.options();
    options.db.wal_ttl_seconds = 1000;
    std::fs::create_dir_all(place.logs.join("archive")).unwrap();
    std::fs::write(place.logs.join("archive/000099.log"), "x").unwrap();
    let db = Db::open(&place.db, &options).unwrap();
    assert!(db.get_current_wal_file().unwrap().log_number() > 99);
}
