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
    for (kind, comes_back) in [(4, true), (8, false)] {
        let temp = tempfile::tempdir().unwrap();
        let (live, copy) = (temp.path().join("live"), temp.path().join("copy"));
        let mut options = ironstone::Options::default();
        options.db.create_if_missing = true;
        options.db.wal_io_mode = ironstone::WalIoMode::Buffered;
        let db = ironstone::Db::open(&live, &options).unwrap();
        db.put(b"key", b"value").unwrap();
        sim::dirs::copy_all(&live, &copy).unwrap();
        let log = std::fs::read_dir(&copy)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|e| e == "log"))
            .unwrap();
        let mut bytes = std::fs::read(&log).unwrap();
        bytes.extend([1, 2, 3, 4, 0xff, 0xee, kind, 5, 6, 7, 8, 9, 10]);
        std::fs::write(&log, bytes).unwrap();
        // Ironstone sees a torn record, whatever its type.
        let again = temp.path().join("again");
        sim::dirs::copy_all(&copy, &again).unwrap();
        assert!(ironstone::Db::open(&again, &options).is_ok());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "peers::opens_a_directory"])
            .env(DIRECTORY, &copy)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let limit = Duration::from_secs(if comes_back { 60 } else { 2 });
        let mut ended = None;
        while ended.is_none() && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(20));
            ended = child.try_wait().unwrap();
        }
        if ended.is_none() {
            child.kill().unwrap();
        }
        let came_back = child.wait().unwrap().success();
        assert_eq!(came_back, comes_back, "type {kind}: {ended:?}");
    }
}
