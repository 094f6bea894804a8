//! Bugs that the simulated disk has found, each as the shortest run that shows it.

use std::sync::atomic::{AtomicU64, Ordering};

use ironstone::{Db, Env, Options, WriteOptions};
use sim::disk::{Act, Config, CrashKind, CrashWhen, Fault, Repeat, SimClock, SimDisk};

pub(super) fn options(disk: &SimDisk) -> Options {
    let mut o = Options {
        env: Env {
            fs: disk.shared(),
            clock: SimClock::shared(),
            ..Env::default()
        },
        ..Options::default()
    };
    o.db.create_if_missing = true;
    o.db.stats_dump_period_sec = 0;
    o
}

pub(super) fn open(disk: &SimDisk, set: impl Fn(&mut Options)) -> base::Result<Db> {
    let mut o = options(disk);
    set(&mut o);
    Db::open_all("/db", &o)
}

pub(super) const SYNC: WriteOptions = WriteOptions {
    sync: true,
    disable_wal: false,
    no_slowdown: false,
    low_pri: false,
};

pub(super) const BACKGROUND: ironstone::FlushOptions = ironstone::FlushOptions {
    wait: false,
    allow_write_stall: false,
};

/// Growing logs in a directory of their own.
pub(super) fn buffered_apart(o: &mut Options) {
    o.db.wal_dir = "/logs".to_owned();
    o.db.wal_io_mode = ironstone::WalIoMode::Buffered;
}

/// Growing logs.
fn buffered(o: &mut Options) {
    o.db.wal_io_mode = ironstone::WalIoMode::Buffered;
    o.cf.disable_auto_compactions = true;
}

pub(super) fn power_cut(disk: &SimDisk, kind: CrashKind) -> SimDisk {
    disk.crash_image(&mut base::rng::Rng::new(1), kind)
}

/// Under `wal_tail_policy = pad` a log that grew through the page cache wrote the sector of the last synced
/// put again together with the next put. A power cut that destroyed the sector took both.
#[test]
fn a_growing_log_under_pad_writes_no_acknowledged_sector_again() {
    use ironstone::{WalIoMode, WalTailPolicy};
    use sim::disk::Garbage;
    let disk = SimDisk::new(Config {
        garbage: Garbage::Sector,
        garbage_in: ".log",
        ..Config::default()
    });
    let padded = |o: &mut Options| {
        o.db.wal_io_mode = WalIoMode::Buffered;
        o.db.wal_tail_policy = WalTailPolicy::Pad;
    };
    let db = open(&disk, padded).unwrap();
    let default = db.default_column_family();
    let mut rng = base::rng::Rng::new(1);
    for i in 0..20 {
        db.cf(&default)
            .with(&SYNC)
            .put(format!("synced{i}"), b"1")
            .unwrap();
        db.put(format!("in flight{i}"), b"1").unwrap();
        for _ in 0..10 {
            let after = disk.crash_image(&mut rng, CrashKind::Random);
            let db = open(&after, padded).unwrap();
            for n in 0..=i {
                let found = db.get(format!("synced{n}")).unwrap();
                assert!(found.is_some(), "put {n} of {i} is lost");
            }
        }
    }
}

/// A database stored the logs of another database as values. Their fences were taken for the log's own, and
/// a torn tail for damage to durable records. The log's first batch is torn too, and with it the note that
/// tells which fences are the log's: the MANIFEST still tells.
#[test]
fn a_log_that_is_stored_as_a_value_makes_no_torn_tail_corruption() {
    let stored = SimDisk::new(Config::default());
    let db = open(&stored, |_| {}).unwrap();
    let default = db.default_column_family();
    for i in 0..200 {
        db.cf(&default)
            .with(&SYNC)
            .put(format!("key{i}"), [7; 100])
            .unwrap();
    }
    let logs: Vec<Vec<u8>> = stored
        .shared()
        .list("/db".as_ref())
        .unwrap()
        .iter()
        .map(|name| std::path::Path::new("/db").join(name))
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .map(|path| {
            let file = stored.shared().open(&path, io::OpenHow::READ).unwrap();
            let mut bytes = vec![0; (file.len().unwrap() as usize).min(40_000)];
            io::read_exact_at(&*file, &mut bytes, 0).unwrap();
            bytes
        })
        .collect();
    let fences = |log: &Vec<u8>| log.windows(7).filter(|w| w == b"ISfence").count();
    assert!(logs.iter().map(fences).sum::<usize>() > 100);
    for before in [0, 3] {
        let disk = SimDisk::new(Config::default());
        let db = open(&disk, |_| {}).unwrap();
        let default = db.default_column_family();
        for i in 0..before {
            db.cf(&default)
                .with(&SYNC)
                .put(format!("before{i}"), b"1")
                .unwrap();
        }
        for (i, log) in logs.iter().enumerate() {
            db.put(format!("log{i}"), log).unwrap();
        }
        let mut rng = base::rng::Rng::new(1);
        for round in 0..150 {
            let after = disk.crash_image(&mut rng, CrashKind::Random);
            let db = open(&after, |_| {})
                .unwrap_or_else(|e| panic!("{before} before, round {round}: {e}"));
            for i in 0..before {
                assert!(db.get(format!("before{i}")).unwrap().is_some());
            }
        }
    }
}

/// A flush of one family makes its last write durable. An earlier write to another family was only in the
/// closed log, which was not synced: after a power cut the later write was there and the earlier one was
/// not.
#[test]
fn a_flush_of_one_family_does_not_overtake_the_others() {
    let disk = SimDisk::new(Config::default());
    let db = open(&disk, |_| {}).unwrap();
    let other = db
        .create_column_family("other", &options(&disk).cf)
        .unwrap();
    db.put(b"first", b"1").unwrap();
    db.cf(&other).put(b"second", b"2").unwrap();
    db.cf(&other).flush().unwrap();
    let after = power_cut(&disk, CrashKind::Nothing);
    let db = open(&after, |_| {}).unwrap();
    let other = db.column_family("other").unwrap();
    assert!(db.cf(&other).get(b"second").unwrap().is_some());
    assert!(db.get(b"first").unwrap().is_some());
}

/// With avoid_flush_during_recovery the logs of a killed process stay in use. They were in the page cache
/// only; a synced write to the new log was acknowledged, and the power cut took the writes before it.
#[test]
fn logs_that_are_kept_at_open_are_durable_before_the_next_write() {
    let keep = |o: &mut Options| o.db.avoid_flush_during_recovery = true;
    let disk = SimDisk::new(Config::default());
    let db = open(&disk, keep).unwrap();
    db.put(b"first", b"1").unwrap();
    let killed = disk.kill_image();
    let db = open(&killed, keep).unwrap();
    db.with(&SYNC).put(b"second", b"2").unwrap();
    let after = power_cut(&killed, CrashKind::Nothing);
    let db = open(&after, keep).unwrap();
    assert!(db.get(b"second").unwrap().is_some());
    assert!(db.get(b"first").unwrap().is_some());
}

/// The same with a separate directory of logs, whose names were not durable. The MANIFEST, in another
/// directory, said that the logs must be there.
#[test]
fn the_names_of_logs_that_are_kept_at_open_are_durable() {
    let keep = |o: &mut Options| {
        o.db.wal_dir = "/logs".to_owned();
        o.db.avoid_flush_during_recovery = true;
        o.db.track_and_verify_wals_in_manifest = true;
    };
    let disk = SimDisk::new(Config::default());
    let db = open(&disk, keep).unwrap();
    db.put(b"first", b"1").unwrap();
    let killed = disk.kill_image();
    drop(open(&killed, keep).unwrap());
    for kind in CrashKind::ALL {
        let db = open(&power_cut(&killed, kind), keep).unwrap();
        assert!(db.get(b"first").unwrap().is_some(), "{kind:?}");
    }
}

/// A new log does not wait for its name to be durable; the first durable write in it does, by whichever call.
#[test]
fn a_log_has_its_name_once_something_in_it_is_durable() {
    type Durably = fn(&Db);
    let ways: [Durably; 4] = [
        |db| {
            let default = db.default_column_family();
            db.cf(&default).with(&SYNC).put(b"key", b"1").unwrap();
        },
        |db| {
            db.put(b"key", b"1").unwrap();
            db.flush_wal(true).unwrap();
        },
        |db| {
            db.put(b"key", b"1").unwrap();
            db.sync_wal().unwrap();
        },
        // In a closed log, which the sync of a later one takes along.
        |db| {
            db.put(b"key", b"1").unwrap();
            let other = db.column_family("other").unwrap();
            db.cf(&other).put(b"key", b"2").unwrap();
            db.cf(&other).with(&BACKGROUND).flush().unwrap();
            db.cf(&other).put(b"key", b"3").unwrap();
            db.sync_wal().unwrap();
        },
    ];
    for (i, durably) in ways.iter().enumerate() {
        let disk = SimDisk::new(Config::default());
        let db = open(&disk, buffered_apart).unwrap();
        db.create_column_family("other", &options(&disk).cf)
            .unwrap();
        durably(&db);
        for kind in CrashKind::ALL {
            let after = open(&power_cut(&disk, kind), buffered_apart).unwrap();
            assert!(after.get(b"key").unwrap().is_some(), "way {i}, {kind:?}");
        }
    }
}

/// A new MANIFEST begins while a closed log is not durable. It must not say that a family which needs
/// nothing of that log has moved beyond it.
#[test]
fn a_new_manifest_does_not_outrun_a_closed_log() {
    let small = |o: &mut Options| o.db.max_manifest_file_size = 1;
    let disk = SimDisk::new(Config::default());
    let db = open(&disk, small).unwrap();
    let other = db
        .create_column_family("other", &options(&disk).cf)
        .unwrap();
    db.put(b"table", b"1").unwrap();
    db.flush().unwrap();
    db.cf(&other).put(b"unsynced", b"2").unwrap();
    db.pause_background_work().unwrap();
    db.cf(&other).with(&BACKGROUND).flush().unwrap();
    db.create_column_family("third", &options(&disk).cf)
        .unwrap();
    db.put(b"later", b"3").unwrap();
    let mut rng = base::rng::Rng::new(1);
    for kind in CrashKind::ALL.into_iter().cycle().take(60) {
        let db = open(&disk.crash_image(&mut rng, kind), small).unwrap();
        assert!(db.get(b"table").unwrap().is_some(), "{kind:?}");
    }
    db.continue_background_work().unwrap();
}

/// A directory whose sync has failed may have lost the name of the new log. Nothing relies on that log
/// until there is a newer one, even if a second sync succeeds.
#[test]
fn a_log_whose_name_may_be_lost_is_not_relied_on() {
    let disk = SimDisk::new(Config::default());
    let db = open(&disk, buffered_apart).unwrap();
    let default = db.default_column_family();
    db.cf(&default).with(&SYNC).put(b"before", b"1").unwrap();
    disk.fail_on(Fault::Eio, Repeat::Once, |act, path| {
        act == Act::SyncDir && path.ends_with("logs")
    });
    assert!(db.flush().is_err());
    disk.clear_faults();
    let kept = db.cf(&default).with(&SYNC).put(b"after", b"2").is_ok();
    for kind in CrashKind::ALL {
        let db = open(&power_cut(&disk, kind), buffered_apart).unwrap();
        assert!(db.get(b"before").unwrap().is_some(), "{kind:?}");
        assert!(
            !kept || db.get(b"after").unwrap().is_some(),
            "{kind:?}: lost"
        );
    }
    db.resume().unwrap();
    db.cf(&default).with(&SYNC).put(b"resumed", b"3").unwrap();
    for kind in CrashKind::ALL {
        let db = open(&power_cut(&disk, kind), buffered_apart).unwrap();
        for key in ["before", "resumed"] {
            assert!(db.get(key).unwrap().is_some(), "{kind:?}: {key}");
        }
    }
}

/// The same for the names alone: a later sync that succeeds says nothing about earlier names.
#[test]
fn names_that_a_failed_sync_may_have_lost_stay_lost() {
    let disk = SimDisk::new(Config::default());
    let names = log::Names::new(disk.shared(), "/".into());
    let note = || names.note(7, names.begin());
    assert_eq!(note(), 1);
    names.make_durable(1).unwrap();
    assert_eq!((note(), note()), (2, 3));
    disk.fail_on(Fault::Eio, Repeat::Once, |act, _| act == Act::SyncDir);
    names.make_durable(2).unwrap_err();
    disk.clear_faults();
    names.make_newest_durable().unwrap_err();
    assert_eq!(note(), 4);
    names.make_newest_durable().unwrap();
    for (nth, durable) in [(1, true), (2, false), (3, false), (4, true)] {
        assert_eq!(names.make_durable(nth).is_ok(), durable, "{nth}");
    }
}

/// An open that could not make its log's name durable left the log behind.
#[test]
fn an_open_that_fails_leaves_no_log_behind() {
    let disk = SimDisk::new(Config::default());
    drop(open(&disk, buffered_apart).unwrap());
    let logs = || {
        let mut names = disk.shared().list("/logs".as_ref()).unwrap();
        names.sort();
        names
    };
    let before = logs();
    disk.fail_on(Fault::Eio, Repeat::Once, |act, path| {
        act == Act::SyncDir && path.ends_with("logs")
    });
    assert!(open(&disk, buffered_apart).is_err());
    assert_eq!(logs(), before);
}

/// A flush whose edit does not fit into the MANIFEST begins a new one. The new MANIFEST called the log of
/// the flushed memtable obsolete before the edit with the table was in it: a crash between the two lost a
/// synced write.
#[test]
fn a_new_manifest_does_not_forget_the_log_before_the_table_is_named() {
    let small = |o: &mut Options| o.db.max_manifest_file_size = 1;
    let mut n = 1;
    loop {
        let disk = SimDisk::new(Config::default());
        let db = open(&disk, small).unwrap();
        db.with(&SYNC).put(b"key", b"1").unwrap();
        disk.crash_at(disk.events() + n, CrashWhen::During);
        let done = db.flush().is_ok();
        drop(db);
        for kind in [CrashKind::Everything, CrashKind::Nothing] {
            let db = open(&power_cut(&disk, kind), small).unwrap();
            assert!(db.get(b"key").unwrap().is_some(), "event {n}, {kind:?}");
        }
        if done {
            break;
        }
        n += 1;
    }
    assert!(n > 8, "a flush has more events than {n}");
}

/// The sync of a log that was no longer the active one failed. The next write got the error, and that
/// cleared the flag which makes writes look for errors. The write after it tried the sync again, which
/// succeeded although the pages were lost; it was acknowledged without the writes before it.
#[test]
fn after_a_failed_sync_of_a_closed_log_no_write_succeeds() {
    for n in 1..60 {
        let disk = SimDisk::new(Config::default());
        let db = open(&disk, |_| {}).unwrap();
        let default = db.default_column_family();
        db.put(b"first", b"1").unwrap();
        db.flush().unwrap();
        disk.fail_at(n, Fault::Sync, Repeat::Once);
        let puts: Vec<bool> = (0..5)
            .map(|i| {
                db.cf(&default)
                    .with(&SYNC)
                    .put(format!("after{i}"), b"2")
                    .is_ok()
            })
            .collect();
        assert!(puts.is_sorted_by(|a, b| a >= b), "operation {n}: {puts:?}");
        if disk.failed().is_none() && puts.len() < n as usize {
            return;
        }
    }
    panic!("five writes have fewer operations");
}

/// A synced group in a growing log was in the page cache before the closed logs were synced, and carried a
/// fence which says that they are durable. A power cut spared the group and took the end of a closed log:
/// the database refused to open.
#[test]
fn a_fence_says_nothing_of_closed_logs_that_are_not_durable() {
    for n in 1..25 {
        let disk = SimDisk::new(Config::default());
        let db = open(&disk, buffered).unwrap();
        let other = db
            .create_column_family("other", &options(&disk).cf)
            .unwrap();
        db.put(b"first", b"1").unwrap();
        db.cf(&other).put(b"x", b"1").unwrap();
        // The log is closed and stays: its flush waits.
        db.pause_background_work().unwrap();
        disk.crash_at(disk.events() + n, CrashWhen::During);
        drop(db.cf(&other).with(&BACKGROUND).flush());
        drop(db.with(&SYNC).put(b"second", b"2"));
        drop(db);
        let mut rng = base::rng::Rng::new(n);
        for i in 0..20 {
            let image = disk.crash_image(&mut rng, CrashKind::any(&mut base::rng::Rng::new(i)));
            let db = open(&image, buffered).unwrap();
            let second = db.get(b"second").unwrap().is_some();
            let first = db.get(b"first").unwrap().is_some();
            assert!(first || !second, "event {n}");
        }
    }
}

/// The last step of writing an edit that crosses a sector boundary is its header. An error in the middle of
/// that step left a header without its payload, and the database was refused.
#[test]
fn half_an_edit_of_the_manifest_is_torn_and_not_damage() {
    let mut refused = 0;
    for len in (300..480).step_by(7) {
        for (nth, shift) in [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)] {
            let disk = SimDisk::new(Config::default());
            let db = open(&disk, |_| {}).unwrap();
            for _ in 0..shift {
                // How many writes come before decides whether half of the edit is written.
                db.put(b"key", b"1").unwrap();
            }
            let left = AtomicU64::new(nth);
            disk.fail_on(Fault::Eio, Repeat::Forever, move |act, path| {
                let of_manifest = path.to_string_lossy().contains("MANIFEST");
                let one_less = |n: u64| n.checked_sub(1);
                act == Act::Write
                    && of_manifest
                    && left
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                        .is_err()
            });
            let name = "f".repeat(len);
            refused += u64::from(db.create_column_family(&name, &options(&disk).cf).is_err());
            drop(db);
            disk.clear_faults();
            let killed = disk.kill_image();
            if let Err(e) = open(&killed, |_| {}) {
                panic!("name of {len} bytes, write {nth}, shift {shift}: {e}");
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

/// A family was imported while older logs were in the page cache only. A power cut took the end of one of
/// those logs, and the family's tables looked newer than the point where recovery ended: the database was
/// refused. The family's sequence numbers did not count as durable either.
#[test]
fn an_import_does_not_outrun_what_was_written_before() {
    let disk = SimDisk::new(Config::default());
    let cf = options(&disk).cf;
    let db = open(&disk, buffered).unwrap();
    let source = db.create_column_family("source", &cf).unwrap();
    for i in 0..50 {
        db.cf(&source).put(format!("{i}"), b"1").unwrap();
    }
    let metadata = db.cf(&source).export("/export").unwrap();
    let mut rng = base::rng::Rng::new(1);
    for n in 1.. {
        let disk = disk.crash_image(&mut rng, CrashKind::Everything);
        let db = open(&disk, buffered).unwrap();
        let source = db.column_family("source").unwrap();
        db.pause_background_work().unwrap();
        db.put(b"first", b"1").unwrap();
        db.cf(&source).put(b"x", b"1").unwrap();
        db.cf(&source).with(&BACKGROUND).flush().unwrap(); // the next writes go to another log
        db.put(b"second", b"2").unwrap();
        disk.crash_at(disk.events() + n, CrashWhen::During);
        let how = ironstone::ImportColumnFamilyOptions::default();
        let done = db.create_column_family_with_import("imported", &cf, &how, &metadata);
        if done.is_ok() {
            assert_eq!(db.durable_seq(), db.latest_sequence_number());
        }
        let done = done.is_ok();
        for kind in CrashKind::ALL.into_iter().cycle().take(12) {
            let after = disk.crash_image(&mut rng, kind);
            let after =
                open(&after, buffered).unwrap_or_else(|e| panic!("event {n}, {kind:?}: {e}"));
            let Some(imported) = after.column_family("imported") else {
                assert!(!done, "event {n}, {kind:?}");
                continue;
            };
            let all = |key: &str| after.cf(&imported).get(key).unwrap().is_some();
            let found = (0..50).filter(|i| all(&i.to_string())).count();
            assert!(found == 50 || !done && found == 0, "event {n}: {found}");
            for key in [b"first".as_slice(), b"second"] {
                let lost = after.get(key).unwrap().is_none();
                assert!(!lost || found == 0, "event {n}, {kind:?}");
            }
        }
        if done {
            assert!(n > 8, "an import has more events than {n}");
            break;
        }
    }
}

/// A write of the MANIFEST failed while a family was dropped, with the edit in it or not. The call returned
/// an error, the family was still there, and synced writes to it were acknowledged. After a kill, the
/// database had neither the family nor the writes.
#[test]
fn after_a_drop_that_failed_nothing_is_promised() {
    type Change = fn(&Db, &ironstone::ColumnFamily) -> base::Result<()>;
    let changes: [Change; 3] = [
        |db, family| db.drop_column_family(family),
        |db, _| {
            let cf = ironstone::ColumnFamilyOptions::default();
            db.create_column_family("new", &cf).map(|_| ())
        },
        |db, family| db.cf(family).delete_files_in_ranges(&[(None, None)], true),
    ];
    for (i, change) in changes.iter().enumerate() {
        let disk = SimDisk::new(Config::default());
        let db = open(&disk, |_| {}).unwrap();
        let other = db
            .create_column_family("other", &options(&disk).cf)
            .unwrap();
        db.cf(&other).put(b"table", b"1").unwrap();
        db.cf(&other).compact_range(None, None).unwrap();
        disk.fail_on(Fault::Sync, Repeat::Once, |_, path| {
            path.to_string_lossy().contains("MANIFEST")
        });
        change(&db, &other).unwrap_err();
        disk.clear_faults();
        let kept = db.cf(&other).with(&SYNC).put(b"after", b"2").is_ok();
        {
            let after = open(&disk.kill_image(), |_| {}).unwrap();
            let found = after.column_family("other");
            let found = found.map(|f| after.cf(&f).get(b"after").unwrap());
            assert!(!kept || found.flatten().is_some(), "change {i}: lost");
        }
        db.resume().unwrap();
        db.cf(&other).with(&SYNC).put(b"resumed", b"3").unwrap();
        change(&db, &other).unwrap();
        db.with(&SYNC).put(b"last", b"4").unwrap();
        for kind in CrashKind::ALL {
            let after = open(&power_cut(&disk, kind), |_| {}).unwrap();
            assert!(after.get(b"last").unwrap().is_some(), "change {i}");
            assert_eq!(after.column_family("other").is_none(), i == 0);
            assert_eq!(after.column_family("new").is_some(), i == 1);
        }
    }
}

/// The sync of a closed log failed, and the database was resumed: each family's memtable was flushed to a
/// table of its own. A power cut between two of these flushes left tables that were newer than what the
/// logs still had of the other family, and the database was refused.
#[test]
fn a_power_cut_while_several_families_resume() {
    let mut rng = base::rng::Rng::new(1);
    for n in 1.. {
        let disk = SimDisk::new(Config::default());
        let db = open(&disk, buffered).unwrap();
        let cf = options(&disk).cf;
        let others = ["a", "b"].map(|name| db.create_column_family(name, &cf).unwrap());
        db.pause_background_work().unwrap();
        for family in &others {
            db.cf(family).put(b"first", b"1").unwrap();
        }
        db.put(b"first", b"1").unwrap();
        db.cf(&others[0]).with(&BACKGROUND).flush().unwrap(); // the next writes go to another log
        for family in &others {
            db.cf(family).put(b"second", b"2").unwrap();
        }
        disk.fail_on(Fault::Sync, Repeat::Once, |act, path| {
            act == Act::Sync && path.extension().is_some_and(|e| e == "log")
        });
        db.continue_background_work().unwrap();
        db.cf(&others[0]).flush().unwrap_err();
        disk.clear_faults();
        disk.crash_at(disk.events() + n, CrashWhen::During);
        let done = db.resume().is_ok();
        drop(db);
        for kind in CrashKind::ALL.into_iter().cycle().take(12) {
            let after = open(&disk.crash_image(&mut rng, kind), buffered);
            let after = after.unwrap_or_else(|e| panic!("event {n}, {kind:?}: {e}"));
            let others = ["a", "b"].map(|name| after.column_family(name).unwrap());
            let first = after.get(b"first").unwrap().is_some();
            assert!(first || !done, "event {n}, {kind:?}");
            for family in &others {
                let has = |key: &str| after.cf(family).get(key).unwrap().is_some();
                assert!(has("first") || !has("second"), "event {n}, {kind:?}");
                assert!(first || !has("second"), "event {n}, {kind:?}");
            }
        }
        if done {
            assert!(n > 20, "a resume has more events than {n}");
            break;
        }
    }
}
