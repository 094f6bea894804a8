//! The directory of logs, how long logs are kept, and reading updates from them: `wal_dir`,
//! `WAL_ttl_seconds`, `WAL_size_limit_MB`, `get_sorted_wal_files`, `get_updates_since`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base::clock::{Clock, SystemClock};
use ironstone::{
    ColumnFamilyDescriptor, Db, ErrorKind, Options, WalFileKind, WriteBatch, WriteOptions,
};
use sim::dirs;
use sim::hooked::{Hook, HookedFs, Op, Verdict};
use sim::oracle::{self, RocksDb, ldb};

const EROFS: i32 = 30;
const ENOSPC: i32 = 28;
const ENODEV: i32 = 19;

/// The machine's clock, ahead by a time that a test sets.
#[derive(Debug)]
struct Ahead {
    inner: Arc<dyn Clock>,
    seconds: AtomicU64,
}

impl Ahead {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: SystemClock::shared(),
            seconds: AtomicU64::new(0),
        })
    }

    fn advance(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for Ahead {
    fn wall_micros(&self) -> u64 {
        self.inner.wall_micros() + self.seconds.load(Ordering::Relaxed) * 1_000_000
    }

    fn monotonic_nanos(&self) -> u64 {
        self.inner.monotonic_nanos()
    }
}

/// Two directories, for a database and its logs.
struct Place {
    _temp: tempfile::TempDir,
    db: PathBuf,
    logs: PathBuf,
}

impl Place {
    fn new() -> Self {
        let temp = dirs::scratch().unwrap();
        Self {
            db: temp.path().join("db"),
            logs: temp.path().join("logs"),
            _temp: temp,
        }
    }

    /// Options with `wal_dir`.
    fn options(&self) -> Options {
        let mut options = plain();
        options.db.wal_dir = self.logs.to_str().unwrap().to_owned();
        options
    }
}

fn plain() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.stats_dump_period_sec = 0;
    options
}

/// Names in a directory that end in `.log`, sorted; empty if there is no directory.
fn logs_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.strip_suffix(".log").is_some())
        .collect();
    names.sort();
    names
}

/// Puts a key and begins a new log; the old one is then obsolete.
fn put_and_flush(db: &Db, key: &str) {
    db.put(key, vec![b'v'; 1000]).unwrap();
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
}

fn synced() -> WriteOptions {
    WriteOptions {
        sync: true,
        ..WriteOptions::default()
    }
}

/// The updates that an iterator from `from` on shows now: (sequence, count).
fn updates(db: &Db, from: u64) -> Vec<(u64, u32)> {
    let mut it = db.get_updates_since(from).unwrap();
    let mut out = Vec::new();
    while it.valid() {
        out.push((it.sequence(), it.batch().count()));
        it.next();
    }
    it.status().unwrap();
    out
}

mod wal_dir {
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
            db.put_opt(&synced(), &family, "a", "1").unwrap();
            hook.on.store(true, Ordering::Relaxed);
            let e = db.put_opt(&synced(), &family, "b", "2").unwrap_err();
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
}

mod archive {
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
}

mod updates_since {
    use super::*;

    #[test]
    fn every_batch_comes_once_in_order() {
        let place = Place::new();
        let mut options = place.options();
        options.db.wal_ttl_seconds = 1000;
        let db = Db::open(&place.db, &options).unwrap();
        let family = db.default_column_family();
        for i in 0..60u32 {
            let mut batch = WriteBatch::new();
            for k in 0..=i % 3 {
                batch.put(format!("{i}-{k}"), vec![0; 3000]).unwrap();
            }
            batch.put_log_data(b"mine").unwrap();
            let written = batch.data().to_vec();
            let o = WriteOptions {
                sync: i % 2 == 0,
                ..WriteOptions::default()
            };
            let next = db.latest_sequence_number() + 1;
            db.write_opt(&o, batch).unwrap();
            // The batch as the user wrote it, without the fence that a synced one gets.
            let it = db.get_updates_since(next).unwrap();
            assert_eq!(it.sequence(), next);
            assert_eq!(it.batch().data()[8..], written[8..]);
            if i % 20 == 19 {
                db.flush_cf(&family).unwrap();
            }
        }
        let all = updates(&db, 0);
        assert_eq!(all.len(), 60);
        let mut next = 1;
        for &(sequence, count) in &all {
            assert_eq!(sequence, next);
            next += u64::from(count);
        }
        assert_eq!(next, db.latest_sequence_number() + 1);
        // A start inside a batch gives the batch that contains it.
        for from in 1..next {
            let first = updates(&db, from)[0];
            assert!(first.0 <= from && from < first.0 + u64::from(first.1));
        }
        let e = db.get_updates_since(next).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotFound);
        // The same after a reopen.
        drop(db);
        let db = Db::open(&place.db, &options).unwrap();
        assert_eq!(updates(&db, 0), all);
        drop(db);
        let db = Db::open_read_only(&place.db, &options).unwrap();
        assert_eq!(updates(&db, 0), all);
    }

    #[test]
    fn its_end_is_not_the_end() {
        let place = Place::new();
        let db = Db::open(&place.db, &place.options()).unwrap();
        let mut it = db.get_updates_since(0).unwrap();
        assert!(!it.valid());
        for i in 1..=50 {
            it.next();
            assert!(!it.valid());
            it.status().unwrap();
            db.put(format!("key{i}"), vec![0; 5000]).unwrap();
            it.next();
            assert_eq!(it.sequence(), i);
            if i % 10 == 0 {
                db.flush().unwrap(); // deletes the log that the iterator reads
            }
        }
    }

    #[test]
    fn what_is_not_submitted_is_not_seen() {
        let place = Place::new();
        let mut options = place.options();
        options.db.manual_wal_flush = true;
        let db = Db::open(&place.db, &options).unwrap();
        db.put("a", "1").unwrap();
        let mut it = db.get_updates_since(1).unwrap();
        assert!(!it.valid());
        db.flush_wal(false).unwrap();
        it.next();
        assert_eq!(it.sequence(), 1);
        db.put("b", "2").unwrap();
        it.next();
        assert!(!it.valid());
        it.status().unwrap();
        db.flush_wal(true).unwrap();
        it.next();
        assert_eq!(it.sequence(), 2);
    }

    #[test]
    fn gaps_are_errors() {
        let place = Place::new();
        let db = Db::open(&place.db, &place.options()).unwrap();
        let family = db.default_column_family();
        let unlogged = WriteOptions {
            disable_wal: true,
            ..WriteOptions::default()
        };
        db.put("a", "1").unwrap();
        db.put_opt(&unlogged, &family, "b", "2").unwrap();
        let mut it = db.get_updates_since(1).unwrap();
        it.next();
        assert!(!it.valid());
        it.status().unwrap();
        db.put("c", "3").unwrap();
        it.next();
        let e = it.status().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corruption, "{e}");
        assert!(e.to_string().contains("2 to 2 are missing"), "{e}");
        it.next();
        assert!(!it.valid() && it.status().is_err());
        assert_eq!(updates(&db, 2), [(3, 1)], "what is there from 2 on");
        // A log that was deleted.
        let mut it = db.get_updates_since(3).unwrap();
        put_and_flush(&db, "d");
        put_and_flush(&db, "e");
        db.put("f", "6").unwrap();
        it.next();
        assert_eq!(it.sequence(), 4, "the open log is still there");
        it.next();
        let e = it.status().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
        assert_eq!(updates(&db, 1), [(6, 1)]);
    }

    #[test]
    fn damage_in_the_live_log_is_told() {
        let place = Place::new();
        let db = Db::open(&place.db, &place.options()).unwrap();
        for i in 0..10 {
            db.put(format!("key{i}"), [i; 100]).unwrap();
        }
        let path = place.logs.join(&logs_in(&place.logs)[0]);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let mut it = db.get_updates_since(1).unwrap();
        while it.valid() {
            it.next();
        }
        let e = it.status().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corruption, "{e}");
        assert_eq!(e.path(), Some(&*path));
    }

    /// A reader follows writers while the logs that it reads are switched, deleted or archived.
    #[test]
    fn a_reader_races_writers() {
        for (archive, manual) in [(true, false), (true, true), (false, false)] {
            let place = Place::new();
            let mut options = place.options();
            options.db.wal_ttl_seconds = if archive { 1000 } else { 0 };
            options.db.manual_wal_flush = manual;
            options.cf.write_buffer_size = 64 << 10;
            options.cf.disable_auto_compactions = true;
            let default = ColumnFamilyDescriptor::new("default", options.cf.clone());
            let db = Db::open_cf(&place.db, &options, &[default]).unwrap();
            race(&db, archive, manual);
        }
    }

    const WRITERS: u64 = 2;
    const BATCHES: u64 = 1500;

    fn race(db: &Db, archive: bool, manual: bool) {
        let running = AtomicU64::new(WRITERS);
        std::thread::scope(|scope| {
            for w in 0..WRITERS {
                let running = &running;
                scope.spawn(move || {
                    for i in 0..BATCHES {
                        let mut batch = WriteBatch::new();
                        for k in 0..=i % 3 {
                            batch.put(format!("{w}-{i}-{k}"), vec![1; 100]).unwrap();
                        }
                        let o = WriteOptions {
                            sync: i % 7 == 0,
                            ..WriteOptions::default()
                        };
                        db.write_opt(&o, batch).unwrap();
                        if manual && i % 50 == 0 {
                            db.flush_wal(false).unwrap();
                        }
                    }
                    db.flush_wal(false).unwrap();
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
            let mut it = db.get_updates_since(0).unwrap();
            let mut next = 1;
            // Without an archive, a new iterator begins with the oldest log that is left.
            let mut begins = !archive;
            loop {
                let done = running.load(Ordering::SeqCst) == 0;
                if !it.valid() {
                    it.next();
                }
                if let Some(batch) = it.take() {
                    if std::mem::take(&mut begins) {
                        assert!(batch.sequence() >= next);
                        next = batch.sequence();
                    }
                    assert_eq!(batch.sequence(), next);
                    next += u64::from(batch.count());
                    assert!(next <= db.latest_sequence_number() + 1, "not published");
                } else if let Err(e) = it.status() {
                    assert!(!archive && e.kind() == ErrorKind::NotFound, "{e}");
                    it = db.get_updates_since(next).unwrap();
                    begins = true;
                } else if done {
                    break;
                }
            }
            assert!(!archive || next == db.latest_sequence_number() + 1);
        });
    }
}
