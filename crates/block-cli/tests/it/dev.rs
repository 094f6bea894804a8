//! Tests of `dev`: started, used, ended by SIGTERM, started again; and obstacles.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::cluster::{BIN, find, folder, run, tool, wait_for};

fn start(dir: &Path) -> (Child, String) {
    let out = dir.with_extension("out");
    let err = dir.with_extension("err");
    #[expect(clippy::disallowed_methods, reason = "the test's own files")]
    let create = |p: &Path| std::fs::File::create(p).unwrap();
    let child = Command::new(BIN)
        .args([
            "dev", "--size", "64M", "--log", "32M", "--groups", "2", "--port", "0", "--dir",
        ])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(create(&out))
        .stderr(create(&err))
        .process_group(0)
        .spawn()
        .unwrap();
    let mut uri = String::new();
    wait_for("dev prints the URI", || {
        uri = std::fs::read_to_string(&out).unwrap();
        uri.ends_with('\n')
    });
    (child, uri.trim().to_owned())
}

/// The metrics of the first store in a cluster file.
fn metrics_of(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find(|l| l.starts_with("metrics")).unwrap();
    let mut socket = TcpStream::connect(line.split('"').nth(1).unwrap()).unwrap();
    socket
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

fn end(mut child: Child) -> Option<i32> {
    tool(Path::new("/bin/kill"), &["-TERM", &child.id().to_string()]);
    let mut status = None;
    wait_for("dev ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code()
}

/// A store that is created anew would vote without what it has acknowledged.
fn a_lost_store_is_not_made_anew(dir: &Path) {
    let lost = dir.join("store-2").join("STORE");
    let away = dir.join("STORE");
    std::fs::rename(&lost, &away).unwrap();
    let text = dir.to_str().unwrap();
    let out = run(&["dev", "--size", "64M", "--port", "0", "--dir", text]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        said.contains("store-2") && said.contains("bring it back"),
        "{said}"
    );
    std::fs::rename(&away, &lost).unwrap();
}

#[test]
fn a_cluster_on_one_machine() {
    let Some(qemu_io) = find("qemu-io", "qemu-utils") else {
        return;
    };
    let folder = folder();
    let dir = folder.path().join("dev");
    let (child, uri) = start(&dir);
    let io = |uri: &str, command: &str| tool(&qemu_io, &["-f", "raw", "-c", command, uri]);
    io(&uri, "write -P 9 1000 200000");
    let text = dir.to_str().unwrap();
    let second = run(&["dev", "--size", "64M", "--port", "0", "--dir", text]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        said.contains("another `ironstone-block dev`") && !second.status.success(),
        "{said}"
    );
    let store = dir.join("store-1");
    let check = run(&["ctl", "store", "check", "--dir", store.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(said.contains("has the store open"), "{said}");
    let file = dir.join("cluster.toml");
    let top = run(&[
        "ctl",
        "top",
        "--count",
        "1",
        "--json",
        "--cluster",
        file.to_str().unwrap(),
    ]);
    let rates: serde_json::Value = serde_json::from_slice(&top.stdout).unwrap();
    assert_eq!(rates["stores"].as_array().unwrap().len(), 3);
    let metrics = metrics_of(&file);
    for word in [
        "ironstone_block_requests_total{store=\"1\",kind=\"write\"}",
        "ironstone_block_write_part_seconds_bucket{store=\"1\",part=\"log\",le=\"+Inf\"}",
        "ironstone_block_leaders{store=\"1\"}",
        "ironstone_block_flusher_bytes_total",
    ] {
        assert!(metrics.contains(word), "{word}: {metrics}");
    }
    assert_eq!(end(child), Some(0));
    let other = run(&["dev", "--size", "128M", "--port", "0", "--dir", text]);
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(said.contains("--size 64M"), "{said}");
    let odsync = [
        "dev",
        "--apply-sync",
        "fast",
        "--size",
        "64M",
        "--port",
        "0",
        "--dir",
        text,
    ];
    let said = String::from_utf8_lossy(&run(&odsync).stderr).into_owned();
    assert!(said.contains("not fast"), "{said}");
    let (child, uri) = start(&dir);
    io(&uri, "read -P 9 1000 200000");
    assert_eq!(end(child), Some(0));
    a_lost_store_is_not_made_anew(&dir);
    let (child, uri) = start(&dir);
    io(&uri, "read -P 9 1000 200000");
    assert_eq!(end(child), Some(0));
}

/// If a child dies, that is printed, and the rest ends.
#[test]
fn a_child_that_dies_is_said() {
    let folder = folder();
    let dir = folder.path().join("dev");
    let (mut child, _) = start(&dir);
    let file = dir.join("cluster.toml");
    let status = run(&[
        "ctl",
        "status",
        "--json",
        "--cluster",
        file.to_str().unwrap(),
    ]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let pid = status["chunks"][1]["pid"].as_u64().unwrap();
    let parent = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let parent = parent
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap();
    assert_eq!(parent, child.id().to_string(), "it is not ours");
    tool(Path::new("/bin/kill"), &["-KILL", &pid.to_string()]);
    let mut ended = None;
    wait_for("dev ends", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(1));
    let said = std::fs::read_to_string(dir.with_extension("err")).unwrap();
    assert!(
        said.contains("chunk-2") && said.contains("has ended"),
        "{said}"
    );
}
