//! A file system on a volume, through `nbdfuse` and a loop device, while stores are killed: it is clean, and files
//! are what was written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base::checksum::crc32c;
use base::clock::SystemClock;
use base::rng::Rng;

use crate::cluster::{Cluster, find, tool, wait_for};
use crate::disks::{Fuse, Loop, Mount, can_mount};

const FILES: usize = 40;

/// `nbdfuse`, if all that the tests need is there.
fn nbdfuse() -> Option<PathBuf> {
    let nbdfuse = find("nbdfuse", "libnbd-bin")?;
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: no /dev/fuse: load the kernel's module `fuse`");
        return None;
    }
    can_mount().then_some(nbdfuse)
}

/// The volume, attached to this machine.
struct Attached {
    // In the order in which they go.
    device: Loop,
    _fuse: Fuse,
}

impl Attached {
    fn new(nbdfuse: &Path, cluster: &Cluster) -> Self {
        let fuse = Fuse::of(nbdfuse, &cluster.uri());
        let device = Loop::of(&fuse.file());
        Self {
            device,
            _fuse: fuse,
        }
    }
}

/// Names and sums.
fn sums(dir: &Path) -> BTreeMap<String, u32> {
    let mut sums = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_file() {
            sums.insert(name, crc32c(&std::fs::read(entry.path()).unwrap()));
        }
    }
    sums
}

/// Copies each file of a folder, and makes it durable, before the next.
fn copy(from: &Path, to: &Path) -> Child {
    let script = r#"for f in "$1"/*; do cp "$f" "$2" && sync "$2/${f##*/}" || exit 1; done"#;
    Command::new("timeout")
        .args(["-k", "5", "120", "sh", "-c", script, "copy"])
        .args([from, to])
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// Makes a file system on the volume, writes files into it, lets `harm` do what it wants in between, and looks at
/// all of it from afresh.
fn with_files_while(harm: impl FnOnce(&mut Cluster)) {
    let Some(nbdfuse) = nbdfuse() else {
        return;
    };
    let mut cluster = Cluster::start_with("log = \"256M\"\n");
    let folder = |name: &str| {
        let path = cluster.dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let (files, at) = (folder("files"), folder("mnt"));
    let mut rng = Rng::new(7);
    for n in 0..FILES {
        let mut content = vec![0; 1 + rng.below(600_000) as usize];
        rng.fill(&mut content);
        std::fs::write(files.join(format!("file-{n:02}")), content).unwrap();
    }
    let mkfs = find("mkfs.ext4", "e2fsprogs").unwrap();
    let fsck = find("fsck.ext4", "e2fsprogs").unwrap();
    {
        let volume = Attached::new(&nbdfuse, &cluster);
        tool(&mkfs, &["-q", "-F", &volume.device.device]);
        let mount = Mount::new(&volume.device.device, &at, "errors=remount-ro");
        let mut copy = copy(&files, &at);
        wait_for("some files are there", || {
            std::fs::read_dir(&at).unwrap().count() > FILES / 4
        });
        harm(&mut cluster);
        let mut ended = None;
        wait_for("all files are there", || {
            ended = copy.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.unwrap().success());
        mount.end();
    }
    // Nothing of it is in this machine's memory any more.
    let volume = Attached::new(&nbdfuse, &cluster);
    tool(&fsck, &["-f", "-n", &volume.device.device]);
    let mount = Mount::new(&volume.device.device, &at, "ro");
    let found = sums(&at);
    assert_eq!(found.len(), FILES);
    assert_eq!(found, sums(&files));
    mount.end();
    drop(volume);
    cluster.wait_until_well();
}

#[test]
fn ext4_is_clean_after_the_leader_was_killed() {
    with_files_while(|cluster| {
        let leader = cluster.leader(1);
        cluster.kill(&format!("chunk-{leader}"));
        SystemClock::shared().sleep(Duration::from_secs(2));
        cluster.start_store(leader);
    });
}

#[test]
fn ext4_is_clean_after_all_stores_were_killed() {
    with_files_while(|cluster| {
        for id in 1..=3 {
            cluster.kill(&format!("chunk-{id}"));
        }
        SystemClock::shared().sleep(Duration::from_secs(1));
        for id in 1..=3 {
            cluster.start_store(id);
        }
    });
}
