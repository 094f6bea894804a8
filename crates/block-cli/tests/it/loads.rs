//! Other projects' loads while processes are killed: acknowledged writes are read back.

use std::process::{Command, Stdio};
use std::time::Duration;

use base::clock::SystemClock;
use base::rng::Rng;

use crate::cluster::{Cluster, find, run, tool, wait_for};

/// Content with holes, and with data that differs everywhere.
fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut content = vec![0; bytes];
    let mut rng = Rng::new(seed);
    for _ in 0..60 {
        let at = rng.below(bytes as u64 - 300_000) as usize;
        let len = 1 + rng.below(300_000) as usize;
        rng.fill(&mut content[at..at + len]);
    }
    content
}

/// A copy in, all processes killed and restarted, a copy out.
#[test]
fn a_copy_is_read_back_after_all_were_killed() {
    let Some(nbdcopy) = find("nbdcopy", "libnbd-bin") else {
        return;
    };
    let mut cluster = Cluster::start();
    let path = |name: &str| cluster.dir.path().join(name).to_str().unwrap().to_owned();
    let (image, copy) = (path("image"), path("copy"));
    let want = content(64 << 20, 1);
    std::fs::write(&image, &want).unwrap();
    tool(&nbdcopy, &[&image, &cluster.uri()]);
    for name in ["chunk-1", "chunk-2", "chunk-3", "nbd"] {
        cluster.kill(name);
    }
    for id in 1..=3 {
        cluster.start_store(id);
    }
    cluster.start_nbd();
    cluster.wait_until_well();
    tool(&nbdcopy, &[&cluster.uri(), &copy]);
    assert!(std::fs::read(&copy).unwrap() == want);
    // All processes end in order, and their stores are intact.
    for name in ["nbd", "chunk-1", "chunk-2", "chunk-3"] {
        assert_eq!(cluster.end(name), Some(0), "{}", cluster.said(name));
    }
    for id in 1..=3 {
        let dir = cluster.dir.path().join(format!("store-{id}"));
        let dir = dir.to_str().unwrap();
        let out = run(&["ctl", "store", "check", "--json", "--dir", dir]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{text}");
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["damage"].as_array().unwrap().len(), 0);
        let dump = run(&["ctl", "log", "dump", "--dir", dir]);
        let text = String::from_utf8_lossy(&dump.stdout).into_owned();
        assert!(
            dump.status.success() && text.contains("checkpoint"),
            "{text}"
        );
    }
}

/// fio writes and verifies its blocks while the leader of a group is killed and comes back.
#[test]
fn fio_verifies_its_blocks_while_the_leader_is_killed() {
    let Some(fio) = find("fio", "fio") else {
        return;
    };
    // The logs are long enough that a store that comes back finds everything in them.
    let mut cluster = Cluster::start_with("log = \"256M\"\n");
    let load = Command::new("timeout")
        .args(["-k", "5", "120"])
        .arg(&fio)
        .args([
            "--name=load",
            "--ioengine=nbd",
            "--rw=randwrite",
            "--bs=4k",
            "--iodepth=32",
        ])
        .args([
            "--size=32M",
            "--io_size=48M",
            "--verify=crc32c",
            "--do_verify=1",
        ])
        .args([
            "--serialize_overlap=1",
            "--verify_fatal=1",
            "--output-format=json",
        ])
        .arg(format!("--uri={}", cluster.uri()))
        .current_dir(cluster.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("fio writes", || {
        cluster.status()["nbd"]["writes"]
            .as_u64()
            .is_some_and(|n| n > 1000)
    });
    let leader = cluster.leader(1);
    cluster.kill(&format!("chunk-{leader}"));
    let at = cluster.status()["nbd"]["writes"].as_u64().unwrap();
    wait_for("writes go on", || {
        let now = cluster.status()["nbd"]["writes"].as_u64();
        now.is_some_and(|n| n > at + 500)
    });
    assert_ne!(cluster.leader(1), leader);
    cluster.start_store(leader);
    let out = load.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{text}{err}");
    // The store that came back catches up.
    wait_for("all replicas have applied the same", || {
        let status = cluster.status();
        let chunks = status["chunks"].as_array().unwrap();
        let applied = chunks.iter().map(|c| &c["groups"][0]["applied"]);
        let applied: Vec<_> = applied.collect();
        status["well"] == true && applied.iter().all(|a| *a == applied[0])
    });
}

/// A second NBD server takes the volume over; the first does not serve it until a client attaches anew.
#[test]
fn a_second_server_fences_the_first() {
    let Some(qemu_io) = find("qemu-io", "qemu-utils") else {
        return;
    };
    let cluster = Cluster::start();
    let socket = cluster.dir.path().join("second");
    let mut second = Command::new(crate::cluster::BIN)
        .args(["nbd", "--cluster", &cluster.file()])
        .args(["--with-parent", &std::process::id().to_string()])
        .arg("--listen")
        .arg(format!("unix:{}", socket.display()))
        .args(["--metrics", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the second listens", || socket.exists());
    let theirs = format!("nbd+unix:///vol0?socket={}", socket.display());
    let io = |uri: &str, command: &str| tool(&qemu_io, &["-f", "raw", "-c", command, uri]);
    io(&cluster.uri(), "write -P 7 4096 8192");
    io(&theirs, "read -P 7 4096 8192");
    io(&theirs, "write -P 8 100 5000");
    io(&cluster.uri(), "read -P 8 100 5000");
    // While the first server has a client, the second takes the volume over.
    let held = Command::new("timeout")
        .args(["-k", "5", "60"])
        .arg(&qemu_io)
        .args(["-f", "raw", "-c", "write -P 1 0 4096", "-c", "sleep 3000"])
        .args(["-c", "write -P 2 0 4096", &cluster.uri()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    SystemClock::shared().sleep(Duration::from_millis(1500));
    io(&theirs, "write -P 3 0 4096");
    let out = held.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(
        text.contains("failed") || err.contains("failed"),
        "{text}{err}"
    );
    io(&theirs, "read -P 3 0 4096");
    second.kill().unwrap();
    second.wait().unwrap();
}
