//! Tests with other projects' NBD clients: what they see of the server, and whether their bytes come back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::clock::SystemClock;
use base::threads::{SystemThreads, Threads};
use block::nbd::serve::{Options, Running, Server, Stop};
use block::nbd::socket::Listener;
use serde_json::Value;
use tempfile::TempDir;

use crate::memory::Memory;
use crate::tools::{QemuNbd, find, run, try_run};

const MIB: u64 = 1 << 20;

/// A server on a Unix socket or on TCP, and a directory for files.
struct Fixture {
    dir: TempDir,
    server: Running,
}

impl Fixture {
    fn new(memory: Memory, tcp: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = if tcp {
            Listener::tcp("127.0.0.1:0".parse().unwrap(), false).unwrap()
        } else {
            Listener::unix(&dir.path().join("nbd")).unwrap()
        };
        let clock = SystemClock::shared();
        let server = Server::new(listener, memory, Options::default(), clock).unwrap();
        let server = server.start(&SystemThreads).unwrap();
        Self { dir, server }
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// The URI of an export.
    fn uri(&self, name: &str) -> String {
        let uri = self.server.uri();
        uri.replacen("nbd+unix:///", &format!("nbd+unix:///{name}"), 1)
    }
}

/// Writes a file with holes, and with data that differs everywhere.
fn sparse_file(path: &str, bytes: u64, seed: u64) {
    let mut content = vec![0_u8; bytes as usize];
    let mut rng = base::rng::Rng::new(seed);
    for _ in 0..40 {
        let at = rng.below(bytes - 200_000) as usize;
        let len = 1 + rng.below(150_000) as usize;
        for byte in &mut content[at..at + len] {
            *byte = rng.next_u64() as u8;
        }
    }
    std::fs::write(path, content).unwrap();
}

fn info(nbdinfo: &Path, uri: &str) -> Value {
    let text = run(nbdinfo, &["--json", uri]);
    serde_json::from_str(&text).unwrap()
}

/// Everything that `nbdinfo` reports of a raw file on `qemu-nbd`, it must report of our export.
#[test]
fn nbdinfo_sees_all_that_it_sees_of_qemu_nbd() {
    let (Some(nbdinfo), Some(qemu_nbd)) = (
        find("nbdinfo", "libnbd-bin"),
        find("qemu-nbd", "qemu-utils"),
    ) else {
        return;
    };
    let ours = Fixture::new(Memory::new(16 * MIB), false);
    let raw = ours.file("raw");
    sparse_file(&raw, 16 * MIB, 1);
    for (name, args) in [
        ("vol", &["-f", "raw"][..]),
        ("vol@snap", &["-r", "-f", "raw"]),
    ] {
        let socket = ours.dir.path().join("qemu");
        let qemu = QemuNbd::start(&qemu_nbd, &socket, &[args, &[&raw]].concat());
        let theirs = info(&nbdinfo, &qemu.uri);
        let own = info(&nbdinfo, &ours.uri(name));
        let (theirs, own) = (&theirs["exports"][0], &own["exports"][0]);
        for (key, value) in theirs.as_object().unwrap() {
            if key.starts_with("can_") && value == true {
                assert_eq!(own[key], true, "{name}: {key}");
            }
            if key.starts_with("is_") || key == "export-size" {
                assert_eq!(own[key], *value, "{name}: {key}");
            }
        }
        println!("{name}: qemu-nbd {theirs:#}\n{name}: ours {own:#}");
        assert_eq!(own["can_df"], true);
        assert_eq!(own["contexts"][0], "base:allocation");
        assert_eq!(own["block_size_minimum"], 1);
        assert_eq!(own["block_size_preferred"], 4096);
        assert_eq!(own["block_size_maximum"], 32 << 20);
        assert_eq!(own["description"], "in memory");
    }
    let list = run(&nbdinfo, &["--list", "--json", &ours.uri("")]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let names: Vec<&str> = list["exports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["export-name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["vol", "vol@snap"]);
    let (ok, why) = try_run(&nbdinfo, &[&ours.uri("none")]);
    assert!(!ok && why.contains("No such file"), "{why}");
}

#[test]
fn copies_in_and_out_are_equal_and_sparse() {
    let (Some(nbdcopy), Some(nbdinfo), Some(qemu_img)) = (
        find("nbdcopy", "libnbd-bin"),
        find("nbdinfo", "libnbd-bin"),
        find("qemu-img", "qemu-utils"),
    ) else {
        return;
    };
    for memory in [Memory::new(64 * MIB), Memory::slow(64 * MIB, 1)] {
        let ours = Fixture::new(memory, false);
        let (from, to, uri) = (ours.file("from"), ours.file("to"), ours.uri("vol"));
        sparse_file(&from, 64 * MIB, 2);
        run(&nbdcopy, &["--destination-is-zero", &from, &uri]);
        run(
            &qemu_img,
            &["compare", "-f", "raw", "-F", "raw", &from, &uri],
        );
        run(&nbdcopy, &[&uri, &to]);
        run(
            &qemu_img,
            &["compare", "-f", "raw", "-F", "raw", &from, &to],
        );
        let totals = run(&nbdinfo, &["--map", "--totals", &uri]);
        assert!(totals.contains("hole,zero"), "{totals}");
        // As qemu converts: over existing data, with zeroing and holes, and back.
        sparse_file(&from, 64 * MIB, 3);
        let convert = ["convert", "-n", "-f", "raw", "-O", "raw", "-m", "16", "-W"];
        run(&qemu_img, &[&convert[..], &[&from, &uri]].concat());
        let out = ["convert", "-f", "raw", "-O", "raw", &uri, &to];
        run(&qemu_img, &out);
        run(
            &qemu_img,
            &["compare", "-f", "raw", "-F", "raw", &from, &to],
        );
    }
}

#[test]
fn qemu_io_at_offsets_of_any_kind() {
    let Some(qemu_io) = find("qemu-io", "qemu-utils") else {
        return;
    };
    let ours = Fixture::new(Memory::slow(64 * MIB, 1), false);
    let commands = [
        "write -P 0xab 1234 5000",
        "read -P 0xab 1234 5000",
        "read -P 0 0 1234",
        "read -P 0 6234 1958",
        "write -P 0xcd -f 8191 2",
        "read -P 0xcd 8191 2",
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
        "read -P 0x33 7000001 99999",
        "flush",
    ];
    let uri = ours.uri("vol");
    let mut args = vec!["-f", "raw", "-t", "none"];
    for command in commands {
        args.extend(["-c", command]);
    }
    args.push(&uri);
    let text = run(&qemu_io, &args);
    assert!(
        !text.contains("failed") && !text.contains("error"),
        "{text}"
    );
    let uri = ours.uri("vol@snap");
    let (ok, text) = try_run(&qemu_io, &["-f", "raw", "-c", "write 0 512", &uri]);
    assert!(!ok, "{text}");
}

fn fio_args(uri: &str, name: &str, more: &[&str]) -> Vec<String> {
    let mut args = vec![
        format!("--name={name}"),
        "--ioengine=nbd".to_owned(),
        format!("--uri={uri}"),
        "--group_reporting".to_owned(),
    ];
    args.extend(more.iter().map(|a| (*a).to_owned()));
    args
}

#[test]
fn fio_verifies_what_it_wrote() {
    let Some(fio) = find("fio", "fio") else {
        return;
    };
    for (memory, tcp) in [
        (Memory::new(32 * MIB), true),
        (Memory::slow(32 * MIB, 1), false),
    ] {
        let ours = Fixture::new(memory, tcp);
        let uri = if tcp {
            ours.server.uri().to_owned()
        } else {
            ours.uri("vol")
        };
        for (rw, bs) in [("randwrite", "bsrange=512-64k"), ("write", "bs=4k")] {
            let args = fio_args(
                &uri,
                rw,
                &[
                    &format!("--rw={rw}"),
                    &format!("--{bs}"),
                    "--size=32M",
                    "--iodepth=64",
                    "--verify=crc32c",
                    "--verify_fatal=1",
                    "--verify_backlog=256",
                    "--verify_state_save=0", // it would write a file to the working directory
                    "--time_based=0",
                ],
            );
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let text = run(&fio, &args);
            assert!(text.contains("err= 0"), "{text}");
        }
    }
}

/// libnbd's own shell, for requests that no other tool sends.
#[test]
fn nbdsh_asks_for_what_no_tool_does() {
    let Some(nbdsh) = find("nbdsh", "python3-libnbd") else {
        return;
    };
    let ours = Fixture::new(Memory::new(64 * MIB), false);
    let script = r"
import nbd, errno
h.set_export_name('vol')
h.add_meta_context('base:allocation')
h.connect_uri(uri)
assert h.get_structured_replies_negotiated()
h.set_strict_mode(0)
def refused(want, f, *args):
    try:
        f(*args)
    except nbd.Error as e:
        assert e.errnum == want, (e, want)
    else:
        raise AssertionError('not refused')
size = h.get_size()
refused(errno.EINVAL, h.pread, 1, size)
refused(errno.ENOSPC, h.pwrite, b'ab', size - 1)
refused(errno.EINVAL, h.pread, 512, 0, 1 << 9)
h.pwrite(b'x' * 10000, 777, nbd.CMD_FLAG_FUA)
assert h.pread(10000, 777, nbd.CMD_FLAG_DF) == b'x' * 10000
h.zero(1 << 20, 4096, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO)
h.cache(4096, 0)
seen = []
h.block_status(size, 0, lambda c, o, e, err: seen.extend(e))
assert sum(seen[0::2]) == size and seen[1] == 0 and seen[-1] == 3, seen
one = []
h.block_status(size, 0, lambda c, o, e, err: one.extend(e), nbd.CMD_FLAG_REQ_ONE)
assert one == seen[:2], one
h.shutdown()
print('all is well')
";
    let script = format!("uri = '{}'\n{script}", ours.uri("vol"));
    // The system's Python, which has the library's module.
    let nbdsh = nbdsh.to_string_lossy();
    let env = Path::new("/usr/bin/env");
    let text = run(env, &["PATH=/usr/bin:/bin", &nbdsh, "-c", &script]);
    assert!(text.contains("all is well"), "{text}");
}

/// A server, the CPU time of whose thread is known after its end.
struct Measured {
    uri: String,
    stop: Stop,
    thread: base::sync::thread::JoinHandle<()>,
    nanos: Arc<AtomicU64>,
    requests: Arc<crate::memory::Counts>,
}

fn measured(listener: Listener) -> Measured {
    let memory = Memory::new(10 << 30);
    let (nanos, requests) = (Arc::new(AtomicU64::new(0)), Arc::clone(&memory.counts));
    let clock = SystemClock::shared();
    let server = Server::new(listener, memory, Options::default(), Arc::clone(&clock)).unwrap();
    let (uri, stop, out) = (server.uri(), server.stop_handle(), Arc::clone(&nanos));
    let run = Box::new(move || {
        server.run().unwrap();
        out.store(clock.thread_cpu_nanos(), Ordering::Relaxed);
    });
    Measured {
        uri,
        stop,
        thread: SystemThreads.start("measured", run).unwrap(),
        nanos,
        requests,
    }
}

/// User and system time of a process, in microseconds.
fn cpu_micros(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    let ticks: u64 = fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap();
    ticks * 10_000
}

fn iops(fio: &Path, uri: &str, (depth, rw, bs): (u32, &str, &str)) -> (f64, u64) {
    let args = fio_args(
        uri,
        "m",
        &[
            &format!("--rw={rw}"),
            &format!("--bs={bs}"),
            "--size=64M",
            &format!("--iodepth={depth}"),
            "--time_based=1",
            "--runtime=4",
            "--output-format=json",
        ],
    );
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let text = run(fio, &args);
    let report: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    let side = if rw == "randread" { "read" } else { "write" };
    let job = &report["jobs"][0][side];
    (
        job["iops"].as_f64().unwrap(),
        job["total_ios"].as_u64().unwrap(),
    )
}

/// Not a test: prints requests per second and CPU time per request, compared with `qemu-nbd` without a
/// disk.
#[test]
#[ignore = "a measurement, to be run alone and with --release"]
fn requests_per_second_beside_qemu_nbd() {
    let (Some(fio), Some(qemu_nbd)) = (find("fio", "fio"), find("qemu-nbd", "qemu-utils")) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for case in [
        (128, "randwrite", "4k"),
        (1, "randwrite", "4k"),
        (128, "randread", "4k"),
        (1, "randread", "4k"),
        (16, "randwrite", "512k"),
        (16, "randread", "512k"),
    ] {
        let (depth, rw, bs) = case;
        let image = ["--image-opts", "driver=null-co,size=10G"];
        let qemu = QemuNbd::start(&qemu_nbd, &dir.path().join("qemu"), &image);
        let (theirs, ios) = iops(&fio, &qemu.uri, case);
        let their_cpu = cpu_micros(qemu.pid()) as f64 / ios as f64;
        drop(qemu);
        for tcp in [false, true] {
            let listener = if tcp {
                Listener::tcp("127.0.0.1:0".parse().unwrap(), false).unwrap()
            } else {
                Listener::unix(&dir.path().join("ours")).unwrap()
            };
            let m = measured(listener);
            if rw == "randread" {
                // Data instead of holes, which would not be sent.
                let fill = ["--rw=write", "--bs=1M", "--size=64M"];
                let args = fio_args(&m.uri, "fill", &fill);
                run(&fio, &args.iter().map(String::as_str).collect::<Vec<_>>());
            }
            let (ours, _) = iops(&fio, &m.uri, case);
            m.stop.stop();
            m.thread.join().unwrap();
            let requests = m.requests.submitted.load(Ordering::Relaxed) as f64;
            let cpu = m.nanos.load(Ordering::Relaxed) as f64 / 1000.0 / requests;
            println!(
                "{rw} {bs} QD{depth} {}: {ours:.0}/s, {cpu:.2} us of processor each; qemu-nbd on a Unix \
                 socket {theirs:.0}/s, {their_cpu:.2} us; ours is {:.2} of theirs",
                if tcp { "TCP" } else { "Unix" },
                ours / theirs
            );
        }
    }
}
