//! Tests of a disk that fills up under a store. The store has all its space from the first day. If its data
//! file has lost space, as a sparse copy has, the store says so, and goes on when there is room.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::cluster::{Cluster, find, run, tool, wait_for};
use crate::disks::{Disk, can_mount};

/// Room for the third store: a log of 64 MiB, and 256 MiB of slots.
const DISK_BYTES: u64 = 512 << 20;

/// Writes a file until the disk is full.
fn fill(disk: &Disk) {
    let path = disk.path().join("others");
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(path)
        .unwrap();
    for bytes in [1 << 20, 4096] {
        let piece = vec![1; bytes];
        while file.write_all(&piece).is_ok() {}
    }
    assert!(file.sync_all().is_ok() || file.metadata().unwrap().len() > 0);
}

fn io(qemu_io: &Path, cluster: &Cluster, commands: &[&str]) {
    let uri = cluster.uri();
    let mut args = vec!["-f", "raw"];
    for command in commands {
        args.extend(["-c", command]);
    }
    args.push(&uri);
    let text = tool(qemu_io, &args);
    assert!(!text.contains("failed"), "{text}");
}

fn is_whole(store: &Path) {
    let args = ["ctl", "store", "check", "--dir", store.to_str().unwrap()];
    let out = run(&args);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}");
}

/// A cluster whose third store is on a disk of its own, and that store's directory; `None` if disks cannot
/// be mounted.
fn on_a_small_disk(storage: &str) -> Option<(PathBuf, Disk, PathBuf, Cluster)> {
    let qemu_io = find("qemu-io", "qemu-utils")?;
    can_mount().then(|| {
        let disk = Disk::new(DISK_BYTES);
        let at = disk.path().join("store");
        let cluster = Cluster::start_on(storage, Some(&at));
        (qemu_io, disk, at, cluster)
    })
}

/// Its log wraps around, blocks are written back, and it is restarted; all of that takes no room.
#[test]
fn a_full_disk_is_no_matter_to_a_store_on_it() {
    let storage = "log = \"64M\"\ncheckpoint = \"4M\"\n";
    let Some((qemu_io, disk, at, mut cluster)) = on_a_small_disk(storage) else {
        return;
    };
    fill(&disk);
    for (old, new) in [(0, 1), (1, 2), (2, 3)] {
        let write = [(0, 30), (30, 30)].map(|(at, len)| format!("write -P {new} {at}M {len}M"));
        io(&qemu_io, &cluster, &[&write[0], &write[1]]);
        println!("{new} is written over {old}");
    }
    cluster.kill("chunk-3");
    io(&qemu_io, &cluster, &["write -P 4 1000 8M"]);
    cluster.start_store(3);
    cluster.wait_until_well();
    let reads = ["read -P 4 1000 8M", "read -P 3 0 1000", "read -P 3 10M 20M"];
    io(&qemu_io, &cluster, &reads);
    for name in ["nbd", "chunk-1", "chunk-2", "chunk-3"] {
        assert_eq!(cluster.end(name), Some(0), "{}", cluster.said(name));
    }
    is_whole(&at);
    drop(cluster);
}

/// Nothing acknowledged is lost, the volume is served, and everything is well when there is room.
#[test]
fn a_store_that_has_lost_its_place_says_so() {
    let storage = "log = \"64M\"\ncheckpoint_seconds = 1\n";
    let Some((qemu_io, disk, at, mut cluster)) = on_a_small_disk(storage) else {
        return;
    };
    io(&qemu_io, &cluster, &["write -P 1 0 8M"]);
    let is_written = |cluster: &Cluster| cluster.status()["chunks"][2]["dirty_bytes"] == 0;
    wait_for("all is written back", || is_written(&cluster));
    assert_eq!(cluster.end("chunk-3"), Some(0));
    // Like a backup that leaves zeros out.
    let (data, copy) = (at.join("data"), at.join("copy"));
    let args = [
        "--sparse=always",
        data.to_str().unwrap(),
        copy.to_str().unwrap(),
    ];
    tool(Path::new("/bin/cp"), &args);
    std::fs::rename(&copy, &data).unwrap();
    fill(&disk);
    cluster.start_store(3);
    cluster.wait_until_well();
    io(&qemu_io, &cluster, &["write -P 2 0 20M"]);
    let words = [
        "not written back",
        "No space left",
        "store/data",
        "make room on its disk",
    ];
    wait_for("the store says so", || {
        let said = cluster.said("chunk-3");
        words.iter().all(|w| said.contains(w))
    });
    io(&qemu_io, &cluster, &["read -P 2 0 20M", "write -P 3 5M 5M"]);
    std::fs::remove_file(disk.path().join("others")).unwrap();
    wait_for("all is written back", || is_written(&cluster));
    // The third store is a full replica again, so one of the others can be missing.
    cluster.kill("chunk-1");
    let reads = ["read -P 2 0 5M", "read -P 3 5M 5M", "read -P 2 10M 10M"];
    io(&qemu_io, &cluster, &reads);
    for name in ["nbd", "chunk-2", "chunk-3"] {
        assert_eq!(cluster.end(name), Some(0), "{}", cluster.said(name));
    }
    is_whole(&at);
    drop(cluster);
}
