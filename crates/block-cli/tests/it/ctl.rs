//! Tests of `ctl`: its reports on a healthy cluster and on one that lacks a store, on logs, and on damaged
//! stores.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use block::ids::BLOCK;
use serde_json::Value;

use crate::cluster::{Cluster, find, run, tool, wait_for};

fn text_of(out: &Output) -> String {
    let both = [&out.stdout[..], &out.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// The lines of the output, as JSON.
fn lines_of(out: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&out.stdout);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

fn store_dir(cluster: &Cluster, id: u64) -> PathBuf {
    cluster.dir.path().join(format!("store-{id}"))
}

fn offline(command: [&str; 2], dir: &Path, more: &[&str]) -> Output {
    let args = [
        "ctl",
        command[0],
        command[1],
        "--dir",
        dir.to_str().unwrap(),
    ];
    run(&[&args[..], more].concat())
}

fn end_all(cluster: &mut Cluster) {
    for name in ["nbd", "chunk-1", "chunk-2", "chunk-3"] {
        assert_eq!(cluster.end(name), Some(0), "{}", cluster.said(name));
    }
}

/// The dump lists files of a log, batches with their offset and sequence number, and entries: each store
/// has what a client did.
#[test]
fn log_dump_lists_what_was_written() {
    let Some(qemu_io) = find("qemu-io", "qemu-utils") else {
        return;
    };
    let mut cluster = Cluster::start();
    let commands = [
        "write -P 7 8k 64k",
        "write -z 128k 8k",
        "discard 256k 64k",
        "read -P 7 8k 64k",
    ];
    let uri = cluster.uri();
    let mut args = vec!["-f", "raw"];
    for command in commands {
        args.extend(["-c", command]);
    }
    args.push(&uri);
    tool(&qemu_io, &args);
    wait_for("all replicas have all of it", || {
        let status = cluster.status();
        let chunks = status["chunks"].as_array().unwrap();
        let applied = |c: &Value| c["groups"][0]["applied"].as_u64();
        chunks
            .iter()
            .all(|c| applied(c) == applied(&chunks[0]) && applied(c) >= Some(4))
    });
    end_all(&mut cluster);
    for id in 1..=3 {
        let dir = store_dir(&cluster, id);
        let out = offline(["log", "dump"], &dir, &["--json"]);
        assert!(out.status.success(), "{}", text_of(&out));
        lists_all(&lines_of(&out));
        let out = offline(["log", "dump"], &dir, &[]);
        let text = text_of(&out);
        assert!(out.status.success(), "{text}");
        for word in [
            "file 1 of store ",
            "batch 1, ",
            "group 1 hard state",
            "Write tree 1 chunk 0 blocks 2+16, epoch 1, seq ",
            "Zero tree 1 chunk 0 blocks 32+2, epoch 1, seq ",
            "Trim tree 1 chunk 0 blocks 64+16, epoch 1, seq ",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}

/// The lines of a dump are consistent, and have the three changes of the test.
fn lists_all(lines: &[Value]) {
    let (mut file, mut sequence, mut offset, mut store) = (0, 0, 0, None);
    let mut changes = Vec::new();
    for line in lines {
        let number = line["file"].as_u64().unwrap();
        let Some(items) = line["items"].as_array() else {
            assert!(number > file, "{line}");
            assert!(store.is_none_or(|s| s == &line["store"]), "{line}");
            (file, sequence, offset, store) = (number, 0, 0, Some(&line["store"]));
            continue;
        };
        let at = line["offset"].as_u64().unwrap();
        assert!(number == file && at > offset, "{line}");
        assert!(line["durable"].as_u64().unwrap() <= at, "{line}");
        sequence += 1;
        assert_eq!(line["sequence"], sequence, "{line}");
        offset = at;
        let commands = items.iter().filter(|i| i["command"]["op"].is_string());
        for item in
            commands.filter(|i| i["command"]["op"] != "epoch" && i["command"]["op"] != "nothing")
        {
            assert_eq!(item["kind"], "entry");
            let c = &item["command"];
            let place = [&c["tree"], &c["chunk"], &c["first"], &c["blocks"]];
            let place = place.map(|n| n.as_u64().unwrap());
            let bytes = item["payload_bytes"].as_u64().unwrap();
            let op = c["op"].as_str().unwrap().to_owned();
            changes.push((item["group"].as_u64().unwrap(), op, place, bytes));
        }
    }
    let want = [
        ("write", [1, 0, 2, 16], 65536),
        ("zero", [1, 0, 32, 2], 0),
        ("trim", [1, 0, 64, 16], 0),
    ];
    let want = want.map(|(op, place, bytes)| (1, op.to_owned(), place, bytes));
    // An opening may have written them again.
    changes.dedup();
    assert_eq!(changes, want);
}

/// A load of writes; ended when dropped.
struct Load(Child);

impl Load {
    fn start(fio: &Path, cluster: &Cluster) -> Self {
        let child = Command::new("timeout")
            .args(["-k", "5", "100"])
            .arg(fio)
            .args(["--name=load", "--ioengine=nbd", "--rw=randwrite", "--bs=4k"])
            .args([
                "--iodepth=8",
                "--size=32M",
                "--time_based=1",
                "--runtime=90",
            ])
            .arg(format!("--uri={}", cluster.uri()))
            .current_dir(cluster.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // `timeout` passes SIGTERM on to its command, and ends with it.
        let pid = self.0.id().to_string();
        drop(Command::new("/bin/kill").args(["-TERM", &pid]).status());
        drop(self.0.wait());
    }
}

/// Writes per second of all stores, and the stores that did not answer.
fn rates(cluster: &Cluster) -> (f64, Vec<u64>) {
    let file = cluster.file();
    let out = run(&["ctl", "top", "--count", "1", "--json", "--cluster", &file]);
    assert!(out.status.success(), "{}", text_of(&out));
    let all = lines_of(&out);
    assert_eq!(all.len(), 1);
    assert!(all[0]["seconds"].as_f64().unwrap() >= 1.0);
    let stores = all[0]["stores"].as_array().unwrap();
    assert_eq!(stores.len(), 3);
    let silent = stores.iter().filter(|s| s["error"].is_string());
    let silent = silent.map(|s| s["store"].as_u64().unwrap()).collect();
    let writes = stores
        .iter()
        .filter_map(|s| s["writes_per_second"].as_f64());
    (writes.sum(), silent)
}

/// Under load, with all stores and without one: a process that does not answer is named, and the others are
/// reported.
#[test]
fn status_and_top_while_a_store_is_stopped() {
    let Some(fio) = find("fio", "fio") else {
        return;
    };
    let cluster = Cluster::start();
    let load = Load::start(&fio, &cluster);
    wait_for("top shows writes", || rates(&cluster).0 > 0.0);
    assert!(rates(&cluster).1.is_empty());
    let file = cluster.file();
    let status = || run(&["ctl", "status", "--cluster", &file]);
    let out = status();
    let text = text_of(&out);
    assert!(
        out.status.success() && text.contains("3 stores connected"),
        "{text}"
    );
    let leader = cluster.leader(1);
    let stopped = leader % 3 + 1;
    cluster.signal(&format!("chunk-{stopped}"), "-STOP");
    // The groups that it led soon have another leader.
    wait_for("top shows writes and the store that is stopped", || {
        let (writes, silent) = rates(&cluster);
        writes > 0.0 && silent == [stopped]
    });
    let top = run(&["ctl", "top", "--count", "1", "--cluster", &file]);
    let out = status();
    assert!(top.status.success());
    assert_eq!(out.status.code(), Some(1));
    for text in [text_of(&top), text_of(&out)] {
        let row = |id: u64| {
            text.lines()
                .find(|l| l.starts_with(&format!("| {id} ")))
                .unwrap()
        };
        assert!(row(stopped).contains("timeout"), "{text}");
        assert!(!row(leader).contains("timeout"), "{text}");
    }
    let out = cluster.status();
    assert_eq!(out["well"], false);
    let chunk = &out["chunks"][stopped as usize - 1];
    assert!(
        chunk["store"] == stopped && chunk["error"].is_string(),
        "{out}"
    );
    assert!(out["nbd"]["writes"].as_u64().unwrap() > 0, "{out}");
    cluster.signal(&format!("chunk-{stopped}"), "-CONT");
    drop(load);
    cluster.wait_until_well();
    assert!(status().status.success());
}

/// The damage that `ctl store check` reports; its exit code must agree.
fn damage(dir: &Path) -> Vec<String> {
    let out = offline(["store", "check"], dir, &["--json"]);
    let found = lines_of(&out);
    let found: Vec<String> = serde_json::from_value(found[0]["damage"].clone()).unwrap();
    let code = i32::from(!found.is_empty());
    assert_eq!(out.status.code(), Some(code), "{found:?}");
    let out = offline(["store", "check"], dir, &[]);
    assert_eq!(out.status.code(), Some(code));
    let text = text_of(&out);
    for one in &found {
        assert!(text.contains(&format!("damaged: {one}")), "{text}");
    }
    found
}

/// Flips bytes of a file until it is dropped.
struct Damaged(std::fs::File, Vec<u64>);

impl Damaged {
    fn new(file: &Path, at: &[u64]) -> Self {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(file);
        let damaged = Self(file.unwrap(), at.to_vec());
        damaged.flip();
        damaged
    }

    fn flip(&self) {
        for at in &self.1 {
            let mut byte = [0];
            self.0.read_exact_at(&mut byte, *at).unwrap();
            self.0.write_all_at(&[byte[0] ^ 0x40], *at).unwrap();
        }
    }
}

impl Drop for Damaged {
    fn drop(&mut self) {
        self.flip();
    }
}

/// Checks the first damage reported after changing these bytes, which must have all `words`. The store is
/// intact before and after.
fn finds(dir: &Path, file: &Path, at: &[u64], words: &[&str]) {
    assert_eq!(damage(dir), Vec::<String>::new());
    let damaged = Damaged::new(file, at);
    let found = damage(dir);
    let first = found.first().map_or("nothing", String::as_str);
    let file = file.to_str().unwrap();
    assert!(first.contains(file), "{file}: {found:?}");
    assert!(
        words.iter().all(|w| first.contains(w)),
        "{words:?}: {found:?}"
    );
    drop(damaged);
}

/// Damages a byte of a block, both pages of an extent, a batch and a payload of the log, and removes files. Two
/// damaged pages of an extent looked like an extent that was never written, and a missing log file was not
/// noticed.
#[test]
fn store_check_names_what_is_damaged() {
    let Some(qemu_io) = find("qemu-io", "qemu-utils") else {
        return;
    };
    let mut cluster = Cluster::start_with("log = \"64M\"\ncheckpoint_seconds = 1\n");
    let io = |command: &str| tool(&qemu_io, &["-f", "raw", "-c", command, &cluster.uri()]);
    io("write -P 0xa7 20k 4k");
    for byte in 1..=3 {
        io(&format!("write -P {byte} 1M 30M"));
    }
    wait_for("all is written back", || {
        let status = cluster.status();
        let chunks = status["chunks"].as_array().unwrap();
        chunks.iter().all(|c| c["dirty_bytes"] == 0)
    });
    end_all(&mut cluster);
    let dir = store_dir(&cluster, 2);
    let (data, log) = (dir.join("data"), dir.join("log"));
    let bytes = std::fs::read(&data).unwrap();
    let blocks = bytes.chunks_exact(BLOCK).collect::<Vec<_>>();
    let nth = blocks
        .iter()
        .position(|b| b.iter().all(|b| *b == 0xa7))
        .unwrap();
    let at = (nth * BLOCK) as u64;
    let place = format!("at offset {at}: block 5 of chunk 0 of tree 1 in group 1");
    finds(&dir, &data, &[at + 17], &[&place, "checksum"]);
    // The block's slot begins with the pages of its first extent; one intact page is enough.
    let slot = at - (64 << 10) - 5 * BLOCK as u64;
    let page = BLOCK as u64;
    let one = Damaged::new(&data, &[slot + 100]);
    let found = damage(&dir);
    drop(one);
    let other = Damaged::new(&data, &[slot + page + 100]);
    let found = [found, damage(&dir)];
    drop(other);
    assert!(found.iter().any(Vec::is_empty), "{found:?}");
    let both = [slot + 100, slot + page + 100];
    let words = ["both pages of extent 0", "chunk 0 of tree 1 in group 1"];
    finds(&dir, &data, &both, &words);
    let lines = lines_of(&offline(["log", "dump"], &dir, &["--json"]));
    let file = log.join(format!("{:06}.log", lines[0]["file"].as_u64().unwrap()));
    finds(&dir, &file, &[4096 + 20], &["4096", "durable up to"]);
    finds(&dir, &file, &[20], &["head of a log file"]);
    let damaged = Damaged::new(&file, &[4096 + 20]);
    let out = offline(["log", "dump"], &dir, &[]);
    drop(damaged);
    let text = text_of(&out);
    assert!(text.contains("durable up to"), "{text}");
    assert_eq!(out.status.code(), Some(1), "{text}");
    let last = lines.last().unwrap()["file"].as_u64().unwrap();
    let file = log.join(format!("{last:06}.log"));
    let away = cluster.dir.path().join("away");
    std::fs::rename(&file, &away).unwrap();
    let found = damage(&dir);
    let name = format!("{last:06}.log of the log was begun, and is missing");
    assert!(found.iter().any(|d| d.contains(&name)), "{found:?}");
    std::fs::rename(&away, &file).unwrap();
    assert_eq!(damage(&dir), Vec::<String>::new());
}
