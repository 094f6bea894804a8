//! Logs that are written by stores into memory (`wal_mapped`): what survives the end of the process, pages that cannot be
//! written, and readers of such a log while it grows.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::rng::Rng;
use io::posix::Posix;
use io::{FileSystem, MappedFile, OpenHow};
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

/// A window that this process has: its log, and where it begins in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Window(PathBuf, u64);

/// The windows of the logs of the directory.
fn windows(dir: &Path) -> Vec<Window> {
    let dir = dir.canonicalize().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut windows = Vec::new();
    for line in maps.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let Some(path) = fields.get(5).map(PathBuf::from) else {
            continue;
        };
        if path.parent() == Some(&dir) && path.extension().is_some_and(|e| e == "log") {
            let offset = u64::from_str_radix(fields[2], 16).unwrap();
            windows.push(Window(path, offset));
        }
    }
    windows.sort();
    windows
}

fn key(i: u32) -> String {
    format!("{:05}/{i}", i.wrapping_mul(7919) % 100_000)
}

/// No value can be compressed, or ends in a zero.
fn value(i: u32) -> Vec<u8> {
    let mut value = vec![0; 500 + (i % 1000) as usize];
    Rng::new(u64::from(i)).fill(&mut value);
    value.push(1);
    value
}

fn put(db: &Db, i: u32) -> ironstone::Result<()> {
    db.put(key(i), value(i))
}

/// Writes from number `from` on until a log has a window that it does not have now. Returns the number of the next write.
fn until_mapped(db: &Db, dir: &Path, from: u32) -> u32 {
    let before = windows(dir);
    for i in from..from + WRITES_MAX {
        put(db, i).unwrap();
        if i % 1000 == 999 {
            if windows(dir).iter().any(|w| !before.contains(w)) {
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
    let paths = files.into_values();
    paths
        .filter(|p| p.extension().is_some_and(|e| e == "log"))
        .collect()
}

#[test]
fn logs_are_mapped_while_nothing_is_synced_and_end_where_their_records_do() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let mut options = options();
    options.cf.write_buffer_size = 16 << 20;
    let db = Db::open(&dir, &options).unwrap();
    // Over several logs, each of which has windows.
    let mut mapped = BTreeSet::new();
    let mut written = 0;
    while mapped.len() < 5 {
        written = until_mapped(&db, &dir, written);
        let windows = windows(&dir);
        assert!(windows.len() <= 6, "{windows:?}");
        mapped.extend(windows.into_iter().map(|w| w.0));
    }
    check(&db, written);
    db.close().unwrap();
    assert_eq!(windows(&dir), []);
    let logs = logs(&dir);
    assert!(!logs.is_empty());
    for log in &logs {
        assert!(zeros_behind(log) < 10, "{}", log.display());
    }
    let db = Db::open_read_only(&dir, &Options::default()).unwrap();
    check(&db, written);
}

/// Also with small write buffers, whose logs windows do not suit, and where half of a record makes an open fail.
#[test]
fn some_logs_are_not_mapped() {
    for text in [
        "wal_mapped=false",
        "write_buffer_size=4000000",
        "wal_recovery_mode=kAbsoluteConsistency",
        "wal_recovery_mode=kTolerateCorruptedTailRecords",
    ] {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        let options = options().with_text(text).unwrap();
        let db = Db::open(&dir, &options).unwrap();
        for i in 0..20_000 {
            put(&db, i).unwrap();
            if i % 1000 == 0 {
                assert_eq!(windows(&dir), [], "{text}");
            }
        }
    }
}

const WRITE_TO: &str = "IRONSTONE_TEST_STORE_TO";

/// A directory on the disk, or in memory if files on the disk are not mapped.
fn on_disk() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let file = Posix.open(&temp.path().join("f"), OpenHow::CREATE_NEW);
    if MappedFile::new(&file.unwrap(), 0).is_some() {
        temp
    } else {
        dirs::scratch().unwrap()
    }
}

/// Options of the processes that are killed. The names of their directories are made of these.
const KILLED: [&str; 4] = [
    "wal_tail_policy=rewrite",
    "wal_tail_policy=pad",
    "wal_compression=kZSTD",
    "wal_recovery_mode=kSkipAnyCorruptedRecords",
];

/// Not a test of its own: writes until it is killed, and prints the writes that were acknowledged.
#[test]
fn child_that_stores() {
    let Some(dir) = std::env::var_os(WRITE_TO) else {
        return;
    };
    let dir = Path::new(&dir);
    let text = dir.file_name().unwrap().to_str().unwrap();
    let db = Db::open(dir, &options().with_text(text).unwrap()).unwrap();
    let from = until_mapped(&db, dir, 0);
    for i in from..WRITES_MAX {
        put(&db, i).unwrap();
        eprintln!("put {i}");
    }
}

#[test]
fn a_killed_process_loses_nothing_that_was_stored() {
    let mut with_window = 0;
    for (round, text) in KILLED.into_iter().enumerate() {
        let temp = if round == 0 {
            dirs::scratch().unwrap()
        } else {
            on_disk()
        };
        let dir = temp.path().join(text);
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
        with_window += usize::from(zeros_behind(&log) > 1000);
        let copy = temp.path().join("copy");
        dirs::copy(&dir, &copy).unwrap();
        let db = Db::open_all(&copy, &Options::default().with_text(text).unwrap()).unwrap();
        check(&db, written);
        let content = everything(&db).unwrap();
        drop(db);
        // RocksDB recovers the directory too.
        if ldb::available() {
            std::fs::remove_dir_all(&copy).unwrap();
            dirs::copy(&dir, &copy).unwrap();
            let have = ldb::scan_all(&copy, &["default"]).unwrap();
            assert_eq!(difference(&content, &have), None, "ldb, {text}");
        }
        if let Some(lib) = oracle::rocksdb() {
            std::fs::remove_dir_all(&copy).unwrap();
            dirs::copy(&dir, &copy).unwrap();
            let have = oracle::scan(&lib, &copy, |_| Ok(lib.options())).unwrap();
            assert_eq!(difference(&content, &have), None, "librocksdb, {text}");
        }
    }
    assert!(with_window > 0);
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
    let Window(log, _) = windows(&dir).pop().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(1 << 20).unwrap();
    // The first of them may go by a call, if the window is still being made.
    let e = (0..20_000).find_map(|_| put(&db, written).err()).unwrap();
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

/// Tells a thread to end, also after a failed assertion.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_secondary_and_copies_read_a_mapped_log_while_it_grows() {
    let temp = dirs::scratch().unwrap();
    let (dir, own) = (temp.path().join("db"), temp.path().join("own"));
    let db = Db::open(&dir, &options()).unwrap();
    put(&db, 0).unwrap();
    let secondary = Db::open_as_secondary(&dir, &own, &Options::default()).unwrap();
    let mut written = 1;
    for round in 0..4 {
        // A checkpoint syncs the log, and what is written behind that gets new windows.
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Acquire) {
                    secondary.try_catch_up_with_primary().unwrap();
                    let seen = secondary.latest_sequence_number();
                    check(&secondary, u32::try_from(seen).unwrap());
                    // What is in the log is published a moment later.
                    read_updates(&db, seen.min(db.latest_sequence_number()));
                }
            });
            let _ends = Ends(&ends);
            written = until_mapped(&db, &dir, written);
        });
        secondary.try_catch_up_with_primary().unwrap();
        check(&secondary, written);
        assert_eq!(
            read_updates(&db, u64::from(written) - 100),
            u64::from(written)
        );
        let copy = temp.path().join(format!("checkpoint{round}"));
        db.create_checkpoint(&copy, u64::MAX).unwrap();
        for log in logs(&copy) {
            assert!(zeros_behind(&log) < 10, "{}", log.display());
        }
        check(&Db::open(&copy, &options()).unwrap(), written);
    }
}

/// Reads the updates from `from` on. Returns the last sequence number.
fn read_updates(db: &Db, from: u64) -> u64 {
    let mut updates = db.get_updates_since(from).unwrap();
    let mut last = from - 1;
    while updates.valid() {
        assert_eq!(updates.sequence(), last + 1);
        last = updates.sequence();
        updates.next();
    }
    updates.status().unwrap();
    last
}
