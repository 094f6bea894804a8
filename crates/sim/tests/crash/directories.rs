//! Names of files and directories: when they are durable, and what a failed sync of a directory means.

use std::path::Path;

use ironstone::{Db, Options};
use sim::disk::{Act, Config, CrashKind, Fault, Repeat, SimDisk};

use super::regressions::{BACKGROUND, SYNC, buffered_apart, open, options, power_cut};

/// Logs that grow, beside the other files.
fn buffered(o: &mut Options) {
    o.db.wal_io_mode = ironstone::WalIoMode::Buffered;
}

/// Makes the next sync of this directory fail, and no other.
fn fail_sync_of(disk: &SimDisk, fault: Fault, dir: &'static str) {
    disk.fail_on(fault, Repeat::Once, move |act, path| {
        act == Act::SyncDir && path == Path::new(dir)
    });
}

/// An open of `a/b/c` made all three and synced `a/b` alone: after a power cut there was no `a`, and
/// synced writes were gone with it.
#[test]
fn every_directory_that_an_open_makes_is_durable() {
    for (dir, logs) in [("/a/b/c", ""), ("/a/b/c", "/a/logs"), ("new", "")] {
        let disk = SimDisk::new(Config::default());
        let mut o = options(&disk);
        o.db.wal_dir = logs.to_owned();
        let db = Db::open(dir, &o).unwrap();
        db.with(&SYNC).put(b"key", b"1").unwrap();
        for kind in CrashKind::ALL {
            let image = power_cut(&disk, kind);
            o.env.fs = image.shared();
            o.db.create_if_missing = false;
            let db = Db::open(dir, &o).unwrap();
            assert!(db.get(b"key").unwrap().is_some(), "{dir}, {kind:?}");
        }
    }
}

/// The sync of a parent directory failed, and so did the open. The next open found the directory there, and
/// took it for an old one.
#[test]
fn a_directory_whose_name_may_be_lost_is_made_again() {
    for above in ["/", "/a", "/a/b"] {
        let disk = SimDisk::new(Config::default());
        let mut o = options(&disk);
        fail_sync_of(&disk, Fault::Eio, above);
        Db::open("/a/b/c", &o).unwrap_err();
        disk.clear_faults();
        let db = Db::open("/a/b/c", &o).unwrap();
        db.with(&SYNC).put(b"key", b"1").unwrap();
        o.env.fs = power_cut(&disk, CrashKind::Nothing).shared();
        o.db.create_if_missing = false;
        let db = Db::open("/a/b/c", &o).unwrap();
        assert!(db.get(b"key").unwrap().is_some(), "{above}");
    }
}

/// A sync of a directory failed for lack of space, and was treated as if it had tried nothing. But the
/// error may be that of an earlier write, reported late and once: the next sync succeeds without that
/// write.
#[test]
fn a_full_device_may_lose_names_as_well() {
    let disk = SimDisk::new(Config::default());
    let names = log::Names::new(disk.shared(), "/".into());
    let nth = names.note(1, names.begin());
    fail_sync_of(&disk, Fault::NoSpace, "/");
    names.make_durable(nth).unwrap_err();
    names.make_durable(nth).unwrap_err();
    // The database resumes with a new log, and by itself when the device has space.
    let disk = SimDisk::new(Config::default());
    let db = open(&disk, buffered_apart).unwrap();
    let default = db.default_column_family();
    db.cf(&default).with(&SYNC).put(b"before", b"1").unwrap();
    fail_sync_of(&disk, Fault::NoSpace, "/logs");
    drop(db.flush()); // it fails, or the database has resumed by itself before it looks
    assert!(disk.failed().is_some());
    let kept = db.cf(&default).with(&SYNC).put(b"after", b"2").is_ok();
    db.resume().unwrap();
    db.cf(&default).with(&SYNC).put(b"resumed", b"3").unwrap();
    for kind in CrashKind::ALL {
        let db = open(&power_cut(&disk, kind), buffered_apart).unwrap();
        for (key, there) in [("before", true), ("after", kept), ("resumed", true)] {
            assert!(!there || db.get(key).unwrap().is_some(), "{kind:?}: {key}");
        }
    }
}

/// Another part of the database synced the directory, which failed; the names of logs were not told. Their
/// own sync succeeded, and a synced write was acknowledged in a log that a power cut took.
#[test]
fn a_failed_sync_for_another_file_loses_the_names_of_logs_too() {
    let disk = SimDisk::new(Config::default());
    let db = open(&disk, buffered).unwrap();
    let default = db.default_column_family();
    db.cf(&default).with(&SYNC).put(b"before", b"1").unwrap();
    db.pause_background_work().unwrap();
    db.cf(&default).with(&BACKGROUND).flush().unwrap(); // a new log, which has not been synced
    fail_sync_of(&disk, Fault::Eio, "/db");
    // This call writes an OPTIONS file.
    drop(db.set_db_options(&[("stats_dump_period_sec", "7")]));
    assert!(disk.failed().is_some());
    let kept = db.cf(&default).with(&SYNC).put(b"after", b"2").is_ok();
    for kind in CrashKind::ALL {
        let db = open(&power_cut(&disk, kind), buffered).unwrap();
        for (key, there) in [("before", true), ("after", kept)] {
            assert!(!there || db.get(key).unwrap().is_some(), "{kind:?}: {key}");
        }
    }
    db.continue_background_work().unwrap();
    db.resume().unwrap();
    db.cf(&default).with(&SYNC).put(b"resumed", b"3").unwrap();
    let db = open(&power_cut(&disk, CrashKind::Nothing), buffered).unwrap();
    assert!(db.get(b"resumed").unwrap().is_some());
}

/// The same for the names alone, also for names that are made while a sync fails.
#[test]
fn names_hear_of_every_failed_sync() {
    let disk = SimDisk::new(Config::default());
    let fs = io::hold(&disk.shared(), Path::new("/")).unwrap();
    let names = log::Names::new(std::sync::Arc::clone(&fs), "/".into());
    let first = names.note(1, names.begin());
    names.make_durable(first).unwrap();
    let (second, begun) = (names.note(2, names.begin()), names.begin());
    let table = io::NewNames::begin(&*fs, Path::new("/"));
    fail_sync_of(&disk, Fault::Sync, "/");
    fs.sync_dir(Path::new("/")).unwrap_err();
    let third = names.note(3, begun);
    let fourth = names.note(4, names.begin());
    for (nth, durable) in [
        (first, true),
        (second, false),
        (third, false),
        (fourth, true),
    ] {
        assert_eq!(names.make_durable(nth).is_ok(), durable, "{nth}");
    }
    table.sync(&*fs, Path::new("/")).unwrap_err();
    // A name that is removed needs no sync any more.
    let fifth = names.note(5, names.begin());
    fail_sync_of(&disk, Fault::Sync, "/");
    names.make_newest_durable().unwrap_err();
    names.forget(5);
    names.make_newest_durable().unwrap();
    names.make_durable(fifth).unwrap();
}

/// Of several logs whose names are not durable, only the newest must be made durable when the MANIFEST is
/// written: it needs one log to be there. The content of an older log whose name is lost was never
/// acknowledged as durable, and its loss takes no durable write along.
#[test]
fn a_lost_log_between_others_takes_nothing_along() {
    for families in [1, 2] {
        let disk = SimDisk::new(Config::default());
        let set = |o: &mut Options| {
            buffered(o);
            o.cf.max_write_buffer_number = 6; // two wait to be flushed
        };
        let db = open(&disk, set).unwrap();
        let default = db.default_column_family();
        if families == 2 {
            db.create_column_family("other", &options(&disk).cf)
                .unwrap();
        }
        db.cf(&default).with(&SYNC).put(b"before", b"1").unwrap();
        db.pause_background_work().unwrap();
        let flush = || db.cf(&default).with(&BACKGROUND).flush();
        flush().unwrap();
        db.put(b"lost", b"2").unwrap();
        fail_sync_of(&disk, Fault::Eio, "/db");
        drop(db.set_db_options(&[("stats_dump_period_sec", "7")]));
        assert!(disk.failed().is_some());
        let written = flush().and_then(|()| db.put(b"later", b"3")).is_ok();
        drop(db.continue_background_work());
        let flushed = db.flush().is_ok();
        let synced = db.cf(&default).with(&SYNC).put(b"synced", b"4").is_ok();
        assert!(
            written && (flushed || families == 2),
            "the test tests something"
        );
        let mut rng = base::rng::Rng::new(1);
        for kind in CrashKind::ALL.into_iter().cycle().take(60) {
            let db = open(&disk.crash_image(&mut rng, kind), set).unwrap();
            let there = |key: &str| db.get(key).unwrap().is_some();
            assert!(there("before"), "{kind:?}");
            assert!(!synced || there("synced"), "{kind:?}");
            assert!(!flushed || there("later"), "{kind:?}");
            assert!(there("lost") || !there("later"), "{kind:?}: a gap");
        }
    }
}
