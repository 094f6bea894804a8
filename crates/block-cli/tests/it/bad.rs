//! Tests of faults that users or disks cause: the error names the fault and the remedy, and everything else
//! goes on.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use base::checksum::crc32c;
use base::clock::SystemClock;
use block::store::data::SLOT_BYTES;

use crate::cluster::{Cluster, find, folder, run, tool, wait_for};
use crate::disks::{Disk, can_mount, sh};
use crate::wire::Reader;

/// The cluster file of one store in a directory.
fn file_of(folder: &Path, store: &Path, storage: &str) -> String {
    let text = format!(
        "cluster = \"0d1c5c2e-9d3a-4f4b-8a64-0d6f2f0c7a11\"\n[[store]]\nid = 1\ndir = \"{}\"\n\
         address = \"127.0.0.1:0\"\n[storage]\n{storage}",
        store.display()
    );
    let path = folder.join("cluster.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn chunk(file: &str, more: &[&str]) -> Output {
    run(&[&["chunk", "--store", "1", "--cluster", file], more].concat())
}

fn refused(out: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(words.iter().all(|w| text.contains(w)), "{words:?}: {text}");
}

#[test]
fn a_second_opener_is_told_who_has_the_store() {
    let cluster = Cluster::start();
    let out = chunk(&cluster.file(), &[]);
    let pid = cluster.status()["chunks"][0]["pid"].to_string();
    refused(&out, &["LOCK", &pid, "end it first"]);
    cluster.wait_until_well();
}

#[test]
fn a_store_is_not_made_in_memory() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        println!("SKIPPED: no /dev/shm");
        return;
    };
    let store = memory.path().join("store");
    let file = file_of(memory.path(), &store, "capacity = \"64M\"\nlog = \"32M\"\n");
    let out = chunk(&file, &["--make"]);
    refused(&out, &["lives in memory", "on a disk", "/dev/shm"]);
    assert!(!store.exists());
}

/// A store that was created and opened: its directory and its cluster file.
fn used_store(folder: &Path) -> (PathBuf, String) {
    let store = folder.join("store");
    let file = file_of(folder, &store, "capacity = \"64M\"\nlog = \"32M\"\n");
    // The machine does not have this address, so the process ends when it has opened the store.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("127.0.0.1:0", "192.0.2.1:9")).unwrap();
    let out = chunk(&file, &["--make", "--insecure"]);
    refused(&out, &["cannot listen on 192.0.2.1:9", "cluster file"]);
    (store, file)
}

/// The damaged part of a store, the damage, and the words of the error.
type Harm<'a> = (&'a str, &'a dyn Fn(&Path), &'a [&'a str]);

/// Parts of a store are missing, or are of a newer release. `--make` creates nothing where a store was.
#[test]
fn a_store_with_parts_missing_or_newer_is_left_alone() {
    let folder = folder();
    let (store, file) = used_store(folder.path());
    let away = folder.path().join("away");
    let newer = |at: u64| {
        move |path: &Path| {
            let mut bytes = std::fs::read(path).unwrap();
            let block = &mut bytes[at as usize..][..4096];
            block[8] = 7;
            let crc = crc32c(&block[8..]).to_le_bytes();
            block[4..8].copy_from_slice(&crc);
            std::fs::write(path, bytes).unwrap();
        }
    };
    let gone = |path: &Path| {
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    };
    let slots = (64 << 20) / SLOT_BYTES * SLOT_BYTES;
    let log = newest_log(&store);
    let log = log.as_str();
    let left = "start that one; the store was not changed";
    let harms: [Harm<'_>; 6] = [
        ("STORE", &newer(0), &["STORE: a store of version 7", left]),
        (
            "data",
            &newer(slots),
            &["data: ", "a data file of version 7", left],
        ),
        (log, &newer(0), &[log, "log files of version 7", left]),
        (
            "log",
            &gone,
            &["the store's log is missing", "mount its disk"],
        ),
        (
            "data",
            &gone,
            &["the store's data file is missing", "mount its disk"],
        ),
        (
            "STORE",
            &gone,
            &["whose file STORE is missing", "bring STORE back"],
        ),
    ];
    for (name, harm, words) in harms {
        copy(&store, &away);
        harm(&store.join(name));
        for more in [&["--insecure"][..], &["--insecure", "--make"]] {
            let words = if name == "STORE" && more.len() == 1 && !store.join(name).exists() {
                &["there is no store", "mount its disk"][..]
            } else {
                words
            };
            refused(&chunk(&file, more), words);
        }
        std::fs::remove_dir_all(&store).unwrap();
        std::fs::rename(&away, &store).unwrap();
    }
    // With its parts back, it is opened.
    refused(&chunk(&file, &["--insecure"]), &["cannot listen"]);
}

/// A log file with acknowledged writes is missing: its store ends, the others go on, and the store comes back
/// with the file.
#[test]
fn a_missing_file_of_the_log_ends_its_store_alone() {
    let mut cluster = Cluster::start();
    cluster.kill("chunk-3");
    let store = cluster.dir.path().join("store-3");
    let (log, away) = (store.join(newest_log(&store)), store.join("away"));
    std::fs::rename(&log, &away).unwrap();
    cluster.start_store(3);
    assert_eq!(cluster.ended("chunk-3"), Some(1));
    let said = cluster.said("chunk-3");
    let name = log.file_name().unwrap().to_str().unwrap();
    for word in ["store-3/log", name, "is missing", "bring the file back"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!(cluster.status()["nbd"]["stores"], 2);
    std::fs::rename(&away, &log).unwrap();
    cluster.start_store(3);
    cluster.wait_until_well();
}

/// The newest file of a store's log, relative to its directory.
fn newest_log(store: &Path) -> String {
    let names = std::fs::read_dir(store.join("log")).unwrap();
    let names = names.map(|n| n.unwrap().file_name().into_string().unwrap());
    let newest = names.filter(|n| !n.starts_with("spare-")).max().unwrap();
    format!("log/{newest}")
}

fn copy(from: &Path, to: &Path) {
    let [from, to] = [from, to].map(|p| p.to_str().unwrap());
    sh("cp", &["-a", from, to]);
}

/// Blocks are overwritten in place, which a copy-on-write file system turns into new places each time.
#[test]
fn a_store_on_a_copy_on_write_file_system_is_refused() {
    if !can_mount() || find("mkfs.btrfs", "btrfs-progs").is_none() {
        return;
    }
    if !std::fs::read_to_string("/proc/filesystems").is_ok_and(|kinds| kinds.contains("btrfs")) {
        println!("SKIPPED: the kernel has no btrfs");
        return;
    }
    let folder = folder();
    let disk = Disk::of("btrfs", 256 << 20);
    let store = disk.path().join("store");
    let file = file_of(folder.path(), &store, "capacity = \"64M\"\nlog = \"32M\"\n");
    let out = chunk(&file, &["--make"]);
    let at = disk.path();
    let words = [
        "btrfs",
        "to a new place",
        "ext4 or xfs",
        at.to_str().unwrap(),
    ];
    refused(&out, &words);
    assert!(!store.exists());
}

/// A store that does not fit is not created, and nothing is left of it: neither of the log nor, if the log
/// fits, of the data file.
#[test]
fn a_disk_too_small_is_said_and_left_as_it_was() {
    if !can_mount() {
        return;
    }
    let folder = folder();
    let disk = Disk::new(96 << 20);
    let names = |at: &Path| std::fs::read_dir(at).unwrap().count();
    let before = names(&disk.path());
    for (storage, mib) in [
        ("capacity = \"64M\"\nlog = \"256M\"\n", "305 MiB"),
        ("capacity = \"512M\"\nlog = \"32M\"\n", "530 MiB"),
    ] {
        let store = disk.path().join("store");
        let file = file_of(folder.path(), &store, storage);
        let out = chunk(&file, &["--make"]);
        refused(&out, &["No space left", mib, "a larger disk", "store"]);
        assert!(!store.exists());
        // The disk's own directory, which existed before.
        let file = file_of(folder.path(), &disk.path(), storage);
        let out = chunk(&file, &["--make"]);
        refused(&out, &["No space left"]);
        assert_eq!(names(&disk.path()), before);
    }
}

#[test]
fn a_store_on_a_disk_that_is_read_only_is_not_opened() {
    if !can_mount() {
        return;
    }
    let folder = folder();
    let mut disk = Disk::new(256 << 20);
    let store = disk.path().join("store");
    let storage = "capacity = \"64M\"\nlog = \"32M\"\n";
    // An address that is refused without `--insecure`: the store is created, opened, and closed at once.
    let file = file_of(folder.path(), &store, storage);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("127.0.0.1:0", "0.0.0.0:0")).unwrap();
    refused(&chunk(&file, &["--make"]), &["--insecure"]);
    assert!(store.join("STORE").exists());
    let file = file_of(folder.path(), &store, storage);
    let at = disk.path();
    sh("mount", &["-o", "remount,ro", at.to_str().unwrap()]);
    refused(&chunk(&file, &[]), &["LOCK", "read-only", "mount it"]);
    let other = file_of(folder.path(), &at.join("other"), storage);
    refused(
        &chunk(&other, &["--make"]),
        &["other", "read-only", "mount it"],
    );
    disk.unmount();
}

/// The file system of a store finds an error and goes read-only while a client writes: the store says so and
/// ends, the volume lives, and the store comes back when the disk is repaired.
#[test]
fn a_disk_that_goes_read_only_ends_its_store_alone() {
    let Some(qemu_io) = find("qemu-io", "qemu-utils") else {
        return;
    };
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(512 << 20);
    let fault = format!("/sys/fs/ext4/{}/trigger_fs_error", disk.device());
    if !Path::new(&fault).exists() {
        println!("SKIPPED: no {fault}: a kernel without it");
        return;
    }
    let at = disk.path().join("store");
    let mut cluster = Cluster::start_on("log = \"64M\"\ncheckpoint = \"4M\"\n", Some(&at));
    let io = |cluster: &Cluster, command: &str| {
        tool(&qemu_io, &["-f", "raw", "-c", command, &cluster.uri()]);
    };
    io(&cluster, "write -P 1 0 8M");
    std::fs::write(&fault, "a test").unwrap();
    io(&cluster, "write -P 2 0 24M");
    io(&cluster, "read -P 2 0 24M");
    assert_eq!(cluster.ended("chunk-3"), Some(1));
    let said = cluster.said("chunk-3");
    // Either of the file system's errors.
    let words = ["Read-only file system", "Input/output error"];
    assert!(words.iter().any(|w| said.contains(w)), "{said}");
    for word in ["error: ", "disk/store", "see dmesg, check it, and mount it"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    disk.unmount();
    disk.mend();
    disk.mount("errors=remount-ro");
    cluster.start_store(3);
    cluster.wait_until_well();
    io(&cluster, "read -P 2 0 24M");
    // Before its disk is removed.
    drop(cluster);
}

const ASKED: u64 = 64;

/// The store that leads the first group, and a client of that store alone, which has read this byte from
/// it.
fn leader_that_serves(cluster: &Cluster, byte: u8) -> (u64, Reader) {
    let mut found = None;
    wait_for("a leader serves a client of its own", || {
        let leader = cluster.leader(1);
        let Some(mut direct) = Reader::connect(cluster.addresses[leader as usize - 1]) else {
            return false;
        };
        direct.ask(ASKED);
        let said = direct.hear(ASKED);
        assert!(said.served.iter().all(|b| *b == byte), "{said:?}");
        found = (said.refused == 0).then_some((leader, direct));
        found.is_some()
    });
    found.unwrap()
}

/// Checks that everything the store serves of the last request is the newest; it may refuse to serve.
/// Returns the number of refusals.
fn says_only(direct: &mut Reader, newest: u8) -> usize {
    let said = direct.hear(ASKED);
    assert!(said.served.iter().all(|b| *b == newest), "{said:?}");
    said.refused
}

/// A leader that is stopped for ten seconds has lost its groups. Afterwards it must not serve old content,
/// neither to the NBD server nor to a client that asks it alone.
#[test]
fn a_leader_that_was_stopped_serves_nothing_old() {
    let Some(qemu_io) = find("qemu-io", "qemu-utils") else {
        return;
    };
    let cluster = Cluster::start();
    let clock = SystemClock::shared();
    let io = |commands: &[&str]| {
        let mut args = vec!["-f", "raw"];
        for command in commands {
            args.extend(["-c", command]);
        }
        let uri = cluster.uri();
        args.push(&uri);
        tool(&qemu_io, &args);
    };
    io(&["write -P 1 0 4M"]);
    let (leader, mut direct) = leader_that_serves(&cluster, 1);
    let name = format!("chunk-{leader}");
    let stopped_at = clock.monotonic_nanos();
    cluster.signal(&name, "-STOP");
    let rest = direct.ask_in_part(ASKED);
    io(&["write -P 2 0 4M", "read -P 2 0 4M"]);
    let stopped = Duration::from_nanos(clock.monotonic_nanos() - stopped_at);
    println!("writes went on after {stopped:?}");
    // When it wakes, it receives this before any message of a new leader.
    direct.ask_the_rest(&rest);
    clock.sleep(Duration::from_secs(10).saturating_sub(stopped));
    cluster.signal(&name, "-CONT");
    says_only(&mut direct, 2);
    for _ in 0..20 {
        io(&["read -P 2 0 4M"]);
        direct.ask(ASKED);
        says_only(&mut direct, 2);
    }
    io(&["write -P 3 100 4M", "read -P 3 100 4M", "read -P 2 0 100"]);
    cluster.wait_until_well();
    wait_for("all replicas have applied the same", || {
        let status = cluster.status();
        let chunks = status["chunks"].as_array().unwrap();
        let of =
            |n: usize| -> Vec<_> { chunks.iter().map(|c| &c["groups"][n]["applied"]).collect() };
        [of(0), of(1)].iter().all(|a| a.iter().all(|b| *b == a[0]))
    });
}

/// The same with a leader that is stopped only until another serves: its lease has just ended, and no message
/// has told it of the other leader.
#[test]
fn a_leader_that_wakes_early_serves_nothing_old() {
    let Some(qemu_io) = find("qemu-io", "qemu-utils") else {
        return;
    };
    let cluster = Cluster::start();
    let io = |command: &str| tool(&qemu_io, &["-f", "raw", "-c", command, &cluster.uri()]);
    let mut refused = 0;
    for round in 1..=3 {
        let (old, new) = (round * 2, round * 2 + 1);
        io(&format!("write -P {old} 0 1M"));
        let (leader, mut direct) = leader_that_serves(&cluster, old);
        let name = format!("chunk-{leader}");
        cluster.signal(&name, "-STOP");
        let rest = direct.ask_in_part(ASKED);
        io(&format!("write -P {new} 0 1M"));
        direct.ask_the_rest(&rest);
        cluster.signal(&name, "-CONT");
        refused += says_only(&mut direct, new);
        for _ in 0..20 {
            direct.ask(ASKED);
            refused += says_only(&mut direct, new);
        }
        cluster.wait_until_well();
    }
    // If it refused nothing, it was never the old leader.
    assert!(refused > 0);
}
