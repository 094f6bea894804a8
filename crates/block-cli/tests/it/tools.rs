//! Clients of others on a volume of three stores: what they see of it, and whether their bytes come back.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use base::rng::Rng;
use serde_json::Value;

use crate::cluster::{Cluster, find, tool, wait_for};

const VOLUME: usize = 64 << 20;

/// A server of others on a Unix socket; ended when dropped.
struct Other {
    child: Child,
    uri: String,
}

impl Other {
    fn start(program: &Path, socket: &Path, args: &[&str], volume: &str) -> Self {
        let child = Command::new("timeout")
            .args(["-k", "5", "120"])
            .arg(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let uri = format!("nbd+unix:///{volume}?socket={}", socket.display());
        let other = Self { child, uri };
        wait_for("the other server listens", || {
            std::os::unix::net::UnixStream::connect(socket).is_ok()
        });
        other
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // `timeout` passes SIGTERM on to what it runs, and ends with it.
        let pid = self.child.id().to_string();
        drop(Command::new("/bin/kill").args(["-TERM", &pid]).status());
        drop(self.child.wait());
    }
}

/// A file with holes, and data that no two places share.
fn image(path: &str, seed: u64) {
    let mut content = vec![0; VOLUME];
    let mut rng = Rng::new(seed);
    for _ in 0..40 {
        let at = rng.below(VOLUME as u64 - 300_000) as usize;
        let len = 1 + rng.below(300_000) as usize;
        rng.fill(&mut content[at..at + len]);
    }
    std::fs::write(path, content).unwrap();
}

fn export(nbdinfo: &Path, uri: &str) -> Value {
    let text = tool(nbdinfo, &["--json", uri]);
    let info: Value = serde_json::from_str(&text).unwrap();
    info["exports"][0].clone()
}

/// Whatever `nbdinfo` says that a raw file of `qemu-nbd` can, a volume can.
#[test]
fn nbdinfo_sees_of_a_volume_all_that_qemu_nbd_has() {
    let (Some(nbdinfo), Some(qemu_nbd)) = (
        find("nbdinfo", "libnbd-bin"),
        find("qemu-nbd", "qemu-utils"),
    ) else {
        return;
    };
    let cluster = Cluster::start();
    let path = |name: &str| cluster.dir.path().join(name);
    let (raw, socket) = (path("raw"), path("qemu"));
    let raw = raw.to_str().unwrap();
    image(raw, 1);
    let at = socket.to_str().unwrap();
    let args = ["--persistent", "--shared=8", "-k", at, "-f", "raw", raw];
    let qemu = Other::start(&qemu_nbd, &socket, &args, "");
    let theirs = export(&nbdinfo, &qemu.uri);
    let own = export(&nbdinfo, &cluster.uri());
    for (key, value) in theirs.as_object().unwrap() {
        if key.starts_with("can_") && value == true {
            assert_eq!(own[key], true, "{key}: {own:#}");
        }
        if key.starts_with("is_") || key == "export-size" {
            assert_eq!(own[key], *value, "{key}: {own:#}");
        }
    }
    assert_eq!(own["contexts"][0], "base:allocation");
    assert_eq!(own["block_size_minimum"], 1);
    assert_eq!(own["block_size_preferred"], 4096);
    assert_eq!(own["block_size_maximum"], 32 << 20);
}

/// `nbdcopy` and `qemu-img` in and out, over what was there, and compared by `qemu-img`.
#[test]
fn copies_in_and_out_of_a_volume_are_equal() {
    let (Some(nbdcopy), Some(qemu_img)) = (
        find("nbdcopy", "libnbd-bin"),
        find("qemu-img", "qemu-utils"),
    ) else {
        return;
    };
    let cluster = Cluster::start();
    let uri = cluster.uri();
    let path = |name: &str| cluster.dir.path().join(name).to_str().unwrap().to_owned();
    let (from, to) = (path("from"), path("to"));
    let equal = |a: &str, b: &str| {
        tool(&qemu_img, &["compare", "-f", "raw", "-F", "raw", a, b]);
    };
    image(&from, 2);
    tool(&nbdcopy, &["--destination-is-zero", &from, &uri]);
    equal(&from, &uri);
    tool(&nbdcopy, &[&uri, &to]);
    equal(&from, &to);
    image(&from, 3);
    let convert = ["convert", "-n", "-f", "raw", "-O", "raw", "-m", "16", "-W"];
    tool(&qemu_img, &[&convert[..], &[&from, &uri]].concat());
    equal(&from, &uri);
    tool(&qemu_img, &["convert", "-f", "raw", "-O", "raw", &uri, &to]);
    equal(&from, &to);
}

/// Reads and writes of `qemu-io` that begin and end anywhere: in blocks, over stripes, over 32 MiB.
#[test]
fn qemu_io_at_any_offset_of_a_volume() {
    let Some(qemu_io) = find("qemu-io", "qemu-utils") else {
        return;
    };
    let cluster = Cluster::start();
    let commands = [
        "write -P 0xab 1234 5000",
        "read -P 0xab 1234 5000",
        "read -P 0 0 1234",
        "read -P 0 6234 1958",
        "write -P 0xcd -f 8191 2",
        "read -P 0xcd 8191 2",
        // Over the end of a stripe unit.
        "write -P 0xef 1048575 3",
        "read -P 0xef 1048575 3",
        "write -z 1300 4000",
        "read -P 0 1300 4000",
        "read -P 0xab 1234 66",
        "write -z -u 0 64k",
        "write -P 0x11 65535 33554432",
        "read -P 0x11 65535 33554432",
        "discard 1M 4M",
        "read -P 0 1M 4M",
        "aio_write -P 0x22 5M 1M",
        "aio_write -P 0x33 7000001 99999",
        "aio_flush",
        "read -P 0x22 5M 1M",
        "read -P 0x33 7000001 99999",
        "write -P 0x44 67108863 1",
        "read -P 0x44 67108863 1",
        "flush",
    ];
    let uri = cluster.uri();
    let mut args = vec!["-f", "raw", "-t", "none"];
    for command in commands {
        args.extend(["-c", command]);
    }
    args.push(&uri);
    let text = tool(&qemu_io, &args);
    assert!(
        !text.contains("failed") && !text.contains("error"),
        "{text}"
    );
}

/// `nbdkit` as a client of the volume, with answers that come late and requests that fail on their way: whoever
/// tries them again has written and read what he wanted.
#[test]
fn nbdkit_with_delays_and_errors_before_a_volume() {
    let (Some(nbdkit), Some(qemu_img), Some(nbdcopy)) = (
        find("nbdkit", "nbdkit"),
        find("qemu-img", "qemu-utils"),
        find("nbdcopy", "libnbd-bin"),
    ) else {
        return;
    };
    let cluster = Cluster::start();
    let path = |name: &str| cluster.dir.path().join(name);
    let (from, to) = (path("from"), path("to"));
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    let target = format!("uri={}", cluster.uri());
    let start = |name: &str, more: &[&str]| {
        let socket = path(name);
        let at = socket.to_str().unwrap();
        let args = [&["-f", "--exit-with-parent", "-U", at], more].concat();
        Other::start(&nbdkit, &socket, &args, "")
    };
    image(from, 4);
    let late = start(
        "late",
        &["--filter=delay", "nbd", &target, "rdelay=5ms", "wdelay=5ms"],
    );
    tool(&nbdcopy, &[from, &late.uri]);
    tool(&nbdcopy, &[&late.uri, to]);
    tool(&qemu_img, &["compare", "-f", "raw", "-F", "raw", from, to]);
    drop(late);
    image(from, 5);
    // The filter that is named first is nearest to the client.
    let torn = start(
        "torn",
        &[
            "--filter=retry-request",
            "--filter=error",
            "nbd",
            &target,
            "error=EIO",
            "error-rate=3%",
            "retry-request-delay=1",
            "retry-request-retries=20",
        ],
    );
    tool(&nbdcopy, &[from, &torn.uri]);
    tool(
        &qemu_img,
        &["compare", "-f", "raw", "-F", "raw", from, &cluster.uri()],
    );
    tool(&nbdcopy, &[&torn.uri, to]);
    tool(&qemu_img, &["compare", "-f", "raw", "-F", "raw", from, to]);
}
