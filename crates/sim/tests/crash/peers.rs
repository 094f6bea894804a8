//! Whatever a crash leaves, real RocksDB opens: before Ironstone's recovery without a loss, and
//! after it with the same content.
//!
//! A process loads one RocksDB, so the second release has a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{run_until_enough, states_wanted};
use sim::crash::engine::{self, Setup};
use sim::oracle;

/// The variable that names the library of the second process.
const LIBRARY: &str = "IRONSTONE_LIBROCKSDB";
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
