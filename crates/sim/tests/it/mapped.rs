//! Logs that are written by stores into memory (`wal_mapped`): what survives the end of the process, pages that cannot be
//! written, and readers of such a log while it grows.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ironstone::{Db, Options, WriteOptions};
use sim::dirs;
use sim::oracle::content::{difference, everything};
use sim::oracle::{self, ldb};

use crate::damage::refusals::start_child;
use crate::vanished::Volume;

const SYNC: WriteOptions = WriteOptions {
    sync: true,
    disable_wal: false,
    no_slowdown: false,
    low_pri: false,
};
/// The most writes until a log must have a window.
const WRITES_MAX: u32 = 100_000;

fn options() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.stats_dump_period_sec = 0;
    options
}

/// The logs of the directory that this process has mapped.
fn mapped_logs(dir: &Path) -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|l| l.find('/').map(|at| &l[at..]));
    let logs = paths.map(PathBuf::from);
    logs.filter(|p| p.parent() == Some(dir) && p.extension().is_some_and(|e| e == "log"))
        .collect()
}

fn key(i: u32) -> String {
    format!("{:05}/{i}", i.wrapping_mul(7919) % 100_000)
}

fn value(i: u32) -> Vec<u8> {
    vec![i as u8; 500 + (i % 1000) as usize]
}

fn put(db: &Db, i: u32) -> ironstone::Result<()> {
    db.put(key(i), value(i))
}

/// Writes from number `from` on until a log has a window. Returns the number of the next write.
fn until_mapped(db: &Db, dir: &Path, from: u32) -> u32 {
    for i in from..from + WRITES_MAX {
        put(db, i).unwrap();
        if i % 1000 == 999 {
            if !mapped_logs(dir).is_empty() {
                return i + 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    panic!("the log of {} has no window", dir.display());
}

fn check(db: &Db, written: u32) {
    for i in (0..written)
        .step_by(97)
        .chain(written.saturating_sub(100)..written)
    {
        assert_eq!(db.get(key(i)).unwrap(), Some(value(i)), "{i} of {written}");
    }
}

/// The bytes behind the last one of the log that is not zero.
fn zeros_behind(log: &Path) -> usize {
    let content = std::fs::read(log).unwrap();
    content.iter().rev().take_while(|b| **b == 0).count()
}

fn logs(dir: &Path) -> Vec<PathBuf> {
    let files = dirs::files(dir).unwrap();
    let logs = files.into_iter().filter(|(name, _)| name.ends_with(".log"));
    logs.map(|(_, path)| path).collect()
}

#[test]
fn logs_are_mapped_while_nothing_is_synced_and_end_where_their_records_do() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let mut options = options();
    options.cf.write_buffer_size = 16 << 20;
    let db = Db::open(&dir, &options).unwrap();
    let mapped = until_mapped(&db, &dir, 0);
    // Over several logs; each has windows soon.
    for i in mapped..100_000 {
        put(&db, i).unwrap();
        if i % 10_000 == 0 {
            let logs = mapped_logs(&dir);
            assert!(logs.len() <= 4, "{logs:?}");
        }
    }
    check(&db, 100_000);
    db.close().unwrap();
    assert_eq!(mapped_logs(&dir), Vec::<PathBuf>::new());
    let logs = logs(&dir);
    assert!(!logs.is_empty());
    for log in &logs {
        assert!(zeros_behind(log) < 10, "{}", log.display());
    }
    let db = Db::open_read_only(&dir, &Options::default()).unwrap();
    check(&db, 100_000);
}

#[test]
fn without_the_option_no_log_is_mapped() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let options = options().with_text("wal_mapped=false").unwrap();
    let db = Db::open(&dir, &options).unwrap();
    for i in 0..30_000 {
        put(&db, i).unwrap();
    }
    assert_eq!(mapped_logs(&dir), Vec::<PathBuf>::new());
}

const WRITE_TO: &str = "IRONSTONE_TEST_STORE_TO";

/// Not a test of its own: writes until it is killed, and prints the writes that were acknowledged.
#[test]
fn child_that_stores() {
    let Some(dir) = std::env::var_os(WRITE_TO) else {
        return;
    };
    let dir = Path::new(&dir);
    let db = Db::open(dir, &options()).unwrap();
    let from = until_mapped(&db, dir, 0);
    for i in from..WRITES_MAX {
        put(&db, i).unwrap();
        eprintln!("put {i}");
    }
}

#[test]
fn a_killed_process_loses_nothing_that_was_stored() {
    for round in 0..4 {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        let mut child = start_child("mapped::child_that_stores", WRITE_TO, &dir);
        let mut last = None;
        let mut heard = 0;
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some(i) = line
                .strip_prefix("put ")
                .and_then(|n| n.parse::<u32>().ok())
            {
                last = Some(i);
                heard += 1;
                if heard == 10 + round * 3000 {
                    child.kill().unwrap();
                }
            }
        }
        assert!(!child.wait().unwrap().success());
        let written = last.expect("it wrote") + 1;
        let log = logs(&dir).pop().unwrap();
        assert!(zeros_behind(&log) > 1000, "it had no window");
        let copy = temp.path().join("copy");
        dirs::copy(&dir, &copy).unwrap();
        let db = Db::open_all(&copy, &Options::default()).unwrap();
        check(&db, written);
        let content = everything(&db).unwrap();
        drop(db);
        // RocksDB recovers the directory too.
        if ldb::available() {
            std::fs::remove_dir_all(&copy).unwrap();
            dirs::copy(&dir, &copy).unwrap();
            let have = ldb::scan_all(&copy, &["default"]).unwrap();
            assert_eq!(difference(&content, &have), None, "ldb, round {round}");
        }
        if let Some(lib) = oracle::rocksdb() {
            std::fs::remove_dir_all(&copy).unwrap();
            dirs::copy(&dir, &copy).unwrap();
            let have = oracle::scan(&lib, &copy, |_| Ok(lib.options())).unwrap();
            assert_eq!(difference(&content, &have), None, "librocksdb, {round}");
        }
    }
}

/// The log is cut under its windows, so that a store finds no page.
#[test]
fn a_page_that_cannot_be_written_fails_its_database_and_no_other() {
    let temp = dirs::scratch().unwrap();
    let (dir, other) = (temp.path().join("db"), temp.path().join("other"));
    let db = Db::open(&dir, &options()).unwrap();
    let second = Db::open(&other, &options()).unwrap();
    let written = until_mapped(&db, &dir, 0);
    let written_there = until_mapped(&second, &other, 0);
    let log = mapped_logs(&dir).pop().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(1 << 20).unwrap();
    let e = put(&db, written).unwrap_err();
    let text = e.to_string();
    assert!(text.contains("mapped") && text.contains(".log"), "{text}");
    assert_eq!(e.kind(), ironstone::ErrorKind::IoError);
    put(&db, written).unwrap_err();
    check(&db, written);
    // The other database goes on.
    for i in written_there..written_there + 20_000 {
        put(&second, i).unwrap();
    }
    check(&second, written_there + 20_000);
    // What was acknowledged is in memory, and goes to tables.
    db.resume().unwrap();
    check(&db, written);
    // The next log is mapped again.
    let more = until_mapped(&db, &dir, written);
    db.close().unwrap();
    check(&Db::open(&dir, &options()).unwrap(), more);
    drop(second);
    check(
        &Db::open(&other, &options()).unwrap(),
        written_there + 20_000,
    );
}

/// Makes the file system refuse everything, as it does when its device is gone.
fn shut_down(mount: &Path) -> Result<(), String> {
    // EXT4_IOC_SHUTDOWN, without writing the journal (Linux, fs/ext4/ext4.h).
    let script = "import fcntl, os, struct, sys\n\
        fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";
    let mut command = Command::new("python3");
    let out = command.args(["-c", script]).arg(mount).output();
    let out = out.map_err(|e| format!("python3: {e}"))?;
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    out.status.success().then_some(()).ok_or(why)
}

#[test]
#[expect(clippy::print_stdout, reason = "says what was not tested")]
fn a_device_that_dies_under_a_mapped_log_is_an_error_and_nothing_synced_is_lost() {
    for synced_last in [true, false] {
        let temp = tempfile::tempdir().unwrap();
        let (image, at) = (temp.path().join("image"), temp.path().join("mounted"));
        let volume = match Volume::mount(&image, &at) {
            Ok(volume) => volume,
            Err(why) => return println!("skipped: no volume can be mounted here: {why}"),
        };
        let dir = at.join("db");
        let db = Db::open(&dir, &options()).unwrap();
        let written = until_mapped(&db, &dir, 0);
        // Pages that the sync wrote must be made writable again, and that fails then.
        db.flush_wal(true).unwrap();
        let mut acknowledged = written;
        if !synced_last {
            put(&db, acknowledged).unwrap();
            acknowledged += 1;
        }
        if let Err(why) = shut_down(&at) {
            return println!("skipped: the file system cannot be shut down: {why}");
        }
        let failed = loop {
            match put(&db, acknowledged) {
                Ok(()) => acknowledged += 1,
                Err(e) => break e,
            }
            assert!(acknowledged < written + 20_000, "nobody notices");
        };
        assert!(failed.to_string().contains(".log"), "{failed}");
        put(&db, acknowledged).unwrap_err();
        db.with(&SYNC).put("synced", "1").unwrap_err();
        check(&db, acknowledged);
        drop(db.close());
        drop(volume);
        crate::vanished::until_unused(&image);
        let volume = Volume::mount_again(&image, &at).unwrap();
        let db = Db::open(&dir, &options()).unwrap();
        check(&db, written);
        drop(db);
        drop(volume);
        crate::vanished::until_unused(&image);
    }
}

#[test]
fn a_secondary_and_copies_read_a_mapped_log_while_it_grows() {
    let temp = dirs::scratch().unwrap();
    let (dir, own) = (temp.path().join("db"), temp.path().join("own"));
    let db = Db::open(&dir, &options()).unwrap();
    let mut written = 0;
    let secondary = Db::open_as_secondary(&dir, &own, &Options::default()).unwrap();
    for round in 0..4 {
        // A checkpoint syncs the log, and what is written behind that gets new windows.
        written = until_mapped(&db, &dir, written);
        secondary.try_catch_up_with_primary().unwrap();
        check(&secondary, written);
        // From the middle of the log to its end.
        let from = db.latest_sequence_number() - 100;
        let mut updates = db.get_updates_since(from).unwrap();
        let mut last = 0;
        while updates.valid() {
            last = updates.sequence();
            updates.next();
        }
        updates.status().unwrap();
        assert_eq!(last, db.latest_sequence_number());
        let copy = temp.path().join(format!("checkpoint{round}"));
        db.create_checkpoint(&copy, u64::MAX).unwrap();
        for log in logs(&copy) {
            assert!(zeros_behind(&log) < 10, "{}", log.display());
        }
        check(&Db::open(&copy, &options()).unwrap(), written);
    }
}
