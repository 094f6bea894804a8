//! RocksDB opens whatever a crash leaves: before Ironstone's recovery without a loss, and after it with the
//! same content.
//!
//! A process loads one RocksDB, so the second release has a process of its own; so has an open that may
//! hang.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{run_until_enough, states_wanted};
use sim::crash::engine::{self, Setup};
use sim::oracle::{self, RocksDb};

/// The variable that names the library of the second process.
const LIBRARY: &str = "IRONSTONE_LIBROCKSDB";
/// The variable that names the directory which [`opens_a_directory`] opens.
const DIRECTORY: &str = "IRONSTONE_PEER_DIRECTORY";
/// This test's name, for the second process.
const NAME: &str = "peers::peers_open_what_a_crash_leaves";

fn debian() -> Option<PathBuf> {
    let dirs = std::fs::read_dir("/usr/lib").ok()?;
    dirs.flatten()
        .map(|dir| dir.path().join("librocksdb.so.7.8"))
        .find(|path| path.exists())
}

/// Images to show to each release.
fn images() -> u64 {
    states_wanted(220_000).div_ceil(1000)
}

#[test]
fn peers_open_what_a_crash_leaves() {
    let Some(lib) = oracle::rocksdb() else { return };
    let what = format!("RocksDB {}", lib.version().unwrap());
    let images = images();
    run_until_enough(
        &what,
        |total| total.rocksdb[1] >= images,
        |seed| {
            engine::run(Setup {
                rocksdb_one_in: 4,
                ..Setup::new(seed)
            })
        },
    );
}

#[test]
fn peers_of_an_older_release_too() {
    if std::env::var_os(LIBRARY).is_some() {
        return;
    }
    let Some(old) = debian() else {
        eprintln!("skipped: there is no librocksdb.so.7.8");
        return;
    };
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(LIBRARY, Path::new(&old))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    println!("{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(
        out.status.success() && text.contains("RocksDB 7.8"),
        "{text}"
    );
}

/// In a process of its own: RocksDB opens the directory that the environment names.
#[test]
fn opens_a_directory() {
    let (Some(dir), Some(lib)) = (std::env::var_os(DIRECTORY), oracle::rocksdb()) else {
        return;
    };
    RocksDb::open_all(&lib.options(), dir).unwrap();
}

/// A torn record's header may look recyclable. Where the log began with records of the old format, RocksDB
/// 11.8.1 then reads it for ever, so images with such a header are not shown to it. If this test fails, a
/// newer release may have mended that, and the images can be shown.
#[test]
fn rocksdb_11_does_not_come_back_from_a_stray_type() {
    let Some(lib) = oracle::rocksdb() else { return };
    if lib.version().unwrap().starts_with("7.") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let live = temp.path().join("live");
    let mut options = ironstone::Options::default();
    options.db.create_if_missing = true;
    options.db.wal_io_mode = ironstone::WalIoMode::Buffered;
    let db = ironstone::Db::open(&live, &options).unwrap();
    db.put(b"key", b"value").unwrap();
    let stray = |kind: u8| vec![1, 2, 3, 4, 2, 0, kind, 5, 6, 7, 8, 9, 10];
    let mut tails: Vec<Vec<u8>> = [0, 4, 5, 6, 7, 8, 9, 10, 11, 77, 130, 131, 132]
        .map(stray)
        .to_vec();
    tails.push(vec![1, 2, 3, 4, 0xff, 0xee, 8]); // of any length, even where no longer header fits
    tails.push(vec![1, 2, 3, 4, 2, 0]);
    let tails_of_logs = tails.len();
    tails.extend([stray(1), stray(11)]); // of the MANIFEST
    let mut children: Vec<Child> = Vec::new();
    for (i, tail) in tails.iter().enumerate() {
        let of_log = i < tails_of_logs;
        children.push(Child::shown(
            &live,
            &temp.path().join(format!("tail {i}")),
            of_log,
            |file| file.extend(tail),
        ));
    }
    // After what is invalid, it goes on in the next block.
    for kind in [1, 8, 131] {
        let copy = temp.path().join(format!("block {kind}"));
        children.push(Child::shown(&live, &copy, true, |file| {
            file.extend(stray(77));
            file.resize(log::format::BLOCK, 0xab);
            file.extend(stray(kind));
        }));
    }
    assert_eq!(children.iter().filter(|c| c.stays).count(), 10);
    for child in children {
        child.check();
    }
}

/// RocksDB in a process of its own, with a directory that it may read for ever.
struct Child {
    process: std::process::Child,
    copy: PathBuf,
    /// What the harness foretells: it does not come back.
    stays: bool,
}

impl Child {
    /// Shows it a copy of `live` whose log, or else MANIFEST, is changed. Ironstone sees a torn record in a log,
    /// whatever its type.
    fn shown(live: &Path, copy: &Path, log: bool, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        sim::dirs::copy_all(live, copy).unwrap();
        let path = std::fs::read_dir(copy)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.ends_with(".log") == log && name.starts_with("MANIFEST") != log
            })
            .unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        change(&mut bytes);
        std::fs::write(&path, &bytes).unwrap();
        if log {
            let again = copy.with_extension("again");
            sim::dirs::copy_all(copy, &again).unwrap();
            let opened = ironstone::Db::open(&again, &ironstone::Options::default());
            assert!(opened.is_ok(), "{}: {opened:?}", copy.display());
        }
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "peers::opens_a_directory"])
            .env(DIRECTORY, copy)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            process,
            copy: copy.to_path_buf(),
            stays: engine::has_stray_type(&bytes),
        }
    }

    fn check(mut self) {
        let begun = Instant::now();
        let limit = Duration::from_secs(if self.stays { 2 } else { 60 });
        let mut ended = None;
        while ended.is_none() && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(20));
            ended = self.process.try_wait().unwrap();
        }
        assert_eq!(ended.is_none(), self.stays, "{}", self.copy.display());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
