//! Tests of a file system on a volume, through `nbdfuse` and a loop device, while processes are killed: it is
//! clean, and its files have the written content.

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

/// `nbdfuse`, if everything that the tests need is installed.
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
    // Dropped in this order.
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

/// The names and checksums of a directory's files.
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

/// Copies each file of a directory, makes it durable before the next, and appends its name to a list.
fn copy(from: &Path, to: &Path, list: &Path) -> Child {
    let script = r#"for f in "$1"/*; do n=${f##*/}; cp "$f" "$2" && sync "$2/$n" && echo "$n" >>"$3" || exit 1; done"#;
    Command::new("timeout")
        .args(["-k", "5", "120", "sh", "-c", script, "copy"])
        .args([from, to, list])
        .stdin(Stdio::null())
        .stderr(Stdio::null()) // it may fail, as a test wants it to
        .spawn()
        .unwrap()
}

/// A cluster, a directory with files for its volume, and the volume's mount point.
struct Fixture {
    nbdfuse: PathBuf,
    cluster: Cluster,
    files: PathBuf,
    at: PathBuf,
    list: PathBuf,
}

impl Fixture {
    /// With a file system on the volume; `None` if tools are missing.
    fn new() -> Option<Self> {
        let nbdfuse = nbdfuse()?;
        let cluster = Cluster::start_with("log = \"256M\"\n");
        let folder = |name: &str| {
            let path = cluster.dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let (files, at) = (folder("files"), folder("mnt"));
        let list = cluster.dir.path().join("durable");
        std::fs::write(&list, "").unwrap();
        let mut rng = Rng::new(7);
        for n in 0..FILES {
            let mut content = vec![0; 1 + rng.below(600_000) as usize];
            rng.fill(&mut content);
            std::fs::write(files.join(format!("file-{n:02}")), content).unwrap();
        }
        Some(Self {
            nbdfuse,
            cluster,
            files,
            at,
            list,
        })
    }

    fn attach(&self) -> Attached {
        Attached::new(&self.nbdfuse, &self.cluster)
    }

    fn mount(&self, volume: &Attached, options: &str) -> Mount {
        Mount::new(&volume.device.device, &self.at, options)
    }

    /// Creates a file system and begins to copy; returns when some files are durable.
    fn begin(&self) -> (Attached, Mount, Child) {
        let volume = self.attach();
        let mkfs = find("mkfs.ext4", "e2fsprogs").unwrap();
        tool(&mkfs, &["-q", "-F", &volume.device.device]);
        let mount = self.mount(&volume, "errors=remount-ro");
        let copy = copy(&self.files, &self.at, &self.list);
        wait_for("some files are there", || self.durable().len() > FILES / 4);
        (volume, mount, copy)
    }

    /// The files that are durable.
    fn durable(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.list).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn is_clean(volume: &Attached) {
        let fsck = find("fsck.ext4", "e2fsprogs").unwrap();
        tool(&fsck, &["-f", "-n", &volume.device.device]);
    }
}

fn end_of(mut child: Child) -> bool {
    let mut ended = None;
    wait_for("the copy ends", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    ended.unwrap().success()
}

/// Creates a file system on the volume, writes files to it, calls `harm` in between, and checks everything
/// after attaching the volume again.
fn with_files_while(harm: impl FnOnce(&mut Cluster)) {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let (volume, mount, copy) = fixture.begin();
    harm(&mut fixture.cluster);
    assert!(end_of(copy));
    mount.end();
    drop(volume);
    // This machine has nothing of it in memory any more.
    let volume = fixture.attach();
    Fixture::is_clean(&volume);
    let mount = fixture.mount(&volume, "ro");
    let found = sums(&fixture.at);
    assert_eq!(found.len(), FILES);
    assert_eq!(found, sums(&fixture.files));
    mount.end();
    drop(volume);
    fixture.cluster.wait_until_well();
}

/// The same, but `harm` takes the volume away from the file system: after the journal is replayed, durable
/// files are there, and the rest of the files can be written.
fn with_files_until(harm: impl FnOnce(&mut Cluster)) {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let (volume, mount, copying) = fixture.begin();
    harm(&mut fixture.cluster);
    let is_whole = end_of(copying);
    drop(mount);
    drop(volume);
    assert!(!is_whole, "all files were there before the harm");
    fixture.cluster.start_nbd();
    fixture.cluster.wait_until_well();
    let durable = fixture.durable();
    println!("{} of {FILES} files were durable", durable.len());
    let volume = fixture.attach();
    fixture.mount(&volume, "errors=remount-ro").end();
    Fixture::is_clean(&volume);
    let mount = fixture.mount(&volume, "errors=remount-ro");
    let (found, want) = (sums(&fixture.at), sums(&fixture.files));
    for name in durable {
        assert_eq!(found.get(&name), want.get(&name), "{name}");
    }
    assert!(end_of(copy(&fixture.files, &fixture.at, &fixture.list)));
    mount.end();
    Fixture::is_clean(&volume);
    let mount = fixture.mount(&volume, "ro");
    assert_eq!(sums(&fixture.at), want);
    mount.end();
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

/// What the file system had on its way is lost with the NBD server.
#[test]
fn ext4_has_what_it_synced_after_the_nbd_server_was_killed() {
    with_files_until(|cluster| cluster.kill("nbd"));
}

/// As if the power had failed everywhere.
#[test]
fn ext4_has_what_it_synced_after_all_processes_were_killed() {
    with_files_until(|cluster| {
        for name in ["nbd", "chunk-1", "chunk-2", "chunk-3"] {
            cluster.kill(name);
        }
        for id in 1..=3 {
            cluster.start_store(id);
        }
    });
}
