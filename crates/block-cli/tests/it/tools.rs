//! Tests with other projects' NBD clients on a volume of three stores: what they see of it, and whether
//! their bytes come back.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use base::rng::Rng;
use serde_json::Value;

use crate::cluster::{Cluster, find, tool, wait_for};

const VOLUME: usize = 64 << 20;

/// Another project's server on a Unix socket; ended when dropped.
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
        // `timeout` passes SIGTERM on to its command, and ends with it.
        let pid = self.child.id().to_string();
        drop(Command::new("/bin/kill").args(["-TERM", &pid]).status());
        drop(self.child.wait());
    }
}

/// Writes a file with holes, and with data that differs everywhere.
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

/// Everything that `nbdinfo` reports of a raw file on `qemu-nbd`, it must report of a volume.
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

/// `nbdcopy` and `qemu-img` copy in and out, over existing data; `qemu-img` compares.
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

/// Reads and writes of `qemu-io` at any offset and length: within blocks, over stripe units, more than 32
/// MiB.
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

/// `nbdkit` as a client of the volume, with delayed replies and failing requests: a client that retries them
/// has written and read the right bytes.
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

/// libnbd's own shell on a volume: flags and commands that no other tool sends, and whether another connection
/// sees their effects.
#[test]
fn nbdsh_asks_a_volume_for_what_no_tool_does() {
    let Some(nbdsh) = find("nbdsh", "python3-libnbd") else {
        return;
    };
    let cluster = Cluster::start();
    let script = format!(
        "uri = '{}'\nsocket_path = '{}'\n{NBDSH}",
        cluster.uri(),
        cluster.dir.path().join("nbd").display()
    );
    // The system's Python, which has the library's module.
    let nbdsh = nbdsh.to_string_lossy();
    let env = Path::new("/usr/bin/env");
    let text = tool(env, &["PATH=/usr/bin:/bin", &nbdsh, "-c", &script]);
    assert!(text.contains("all is well"), "{text}");
    assert_eq!(cluster.status()["nbd"]["failures"], 0);
}

/// The script of the test above. `RESIZE`, which libnbd does not have, is sent by hand.
const NBDSH: &str = r"
import errno, nbd, socket, struct
M = 1 << 20

def refused(want, f, *args):
    try:
        f(*args)
    except nbd.Error as e:
        assert e.errnum == want, (e, want)
    else:
        raise AssertionError('not refused')

h.set_opt_mode(True)
h.set_full_info(True)
h.connect_uri(uri)
names = []
assert h.opt_list(lambda name, text: names.append((name, text))) == 1
assert names[0][0] == 'vol0', names
h.set_export_name('none')
refused(errno.ENOENT, h.opt_info)
h.set_export_name('vol0')
h.add_meta_context('base:allocation')
h.opt_go()
assert h.get_structured_replies_negotiated() and h.can_meta_context('base:allocation')
can = [h.can_df, h.can_cache, h.can_fast_zero, h.can_flush, h.can_fua, h.can_multi_conn, h.can_trim, h.can_zero]
assert all(f() for f in can), [f() for f in can]
assert not h.is_read_only() and not h.is_rotational()
assert '64M in 2 groups' in h.get_export_description()
size = h.get_size()
assert size == 64 * M
h.set_strict_mode(0)
refused(errno.EINVAL, h.pread, 1, size)
refused(errno.ENOSPC, h.pwrite, b'ab', size - 1)
refused(errno.ENOSPC, h.zero, 2, size - 1)
refused(errno.EINVAL, h.trim, 2, size - 1)
refused(errno.EINVAL, h.pread, 512, 0, 1 << 9)

def extents(at, count, flags=0):
    seen = []
    h.block_status(count, at, lambda c, o, e, err: seen.extend(e), flags)
    return list(zip(seen[0::2], seen[1::2]))

HOLE, ZERO = nbd.STATE_HOLE, nbd.STATE_ZERO
# Nothing was written; REQ_ONE is answered by one extent, within what was asked for.
assert sum(n for n, _ in extents(0, size)) == size
assert {f for _, f in extents(0, size)} == {HOLE | ZERO}
data = bytes(range(251)) * 500
h.pwrite(data, 2 * M - 777, nbd.CMD_FLAG_FUA)
h.pwrite(b'x' * 4096, 8192)
assert extents(0, 16384) == [(8192, HOLE | ZERO), (4096, 0), (4096, HOLE | ZERO)], extents(0, 16384)
assert extents(0, 16384, nbd.CMD_FLAG_REQ_ONE) == [(8192, HOLE | ZERO)]
assert extents(9000, 7384, nbd.CMD_FLAG_REQ_ONE) == [(3288, 0)]
assert extents(9000, 100) == [(100, 0)]

# Data between holes: with DF it comes in one chunk.
def chunks(flags):
    seen = []
    whole = h.pread_structured(16384, 0, lambda b, at, what, err: seen.append((at, len(b), what)), flags)
    assert whole == b'\0' * 8192 + b'x' * 4096 + b'\0' * 4096
    return seen
assert chunks(nbd.CMD_FLAG_DF) == [(0, 16384, nbd.READ_DATA)], chunks(nbd.CMD_FLAG_DF)
without = chunks(0)
assert len(without) == 3 and without[0][2] == nbd.READ_HOLE, without

# Zeros and trims, in whole blocks and parts of them.
h.pwrite(b'y' * 5 * M, 8 * M)
h.zero(M, 8 * M, nbd.CMD_FLAG_NO_HOLE)
h.zero(M, 9 * M, nbd.CMD_FLAG_FAST_ZERO)
h.zero(M, 10 * M, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
h.trim(M, 11 * M, nbd.CMD_FLAG_FUA)
h.zero(1000, 12 * M + 100)
assert all(f & ZERO for _, f in extents(8 * M, 4 * M))
assert extents(12 * M, M) == [(M, 0)], extents(12 * M, M)
h.cache(4 * M, 8 * M)
h.cache(1000, 12 * M + 1)
h.flush()

other = nbd.NBD()
other.connect_uri(uri)
assert other.pread(len(data), 2 * M - 777, 0) == data
assert other.pread(4 * M, 8 * M) == bytes(4 * M)
assert other.pread(4096, 12 * M) == b'y' * 100 + bytes(1000) + b'y' * 2996
other.shutdown()
h.shutdown()

s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(socket_path)
def take(n):
    b = b''
    while len(b) < n:
        more = s.recv(n - len(b))
        assert more, 'closed'
        b += more
    return b
take(18)
s.sendall(struct.pack('>I', 3))
s.sendall(b'IHAVEOPT' + struct.pack('>III', 7, 10, 4) + b'vol0' + struct.pack('>H', 0))
flags, kind = None, None
while kind != 1:
    _, _, kind, n = struct.unpack('>QIII', take(20))
    body = take(n)
    if kind == 3 and body[:2] == b'\0\0':
        flags = struct.unpack('>HQH', body)[2]
# Bit 9 is SEND_RESIZE.
assert flags is not None and not flags & 1 << 9, flags
s.sendall(struct.pack('>IHHQQI', 0x25609513, 0, 8, 5, 2 * size, 0))
magic, why, cookie = struct.unpack('>IIQ', take(16))
assert (magic, cookie) == (0x67446698, 5) and why in (errno.EINVAL, errno.EOPNOTSUPP), why
s.sendall(struct.pack('>IHHQQI', 0x25609513, 0, 0, 6, 8192, 4096))
assert struct.unpack('>IIQ', take(16)) == (0x67446698, 0, 6) and take(4096) == b'x' * 4096
s.close()
print('all is well')
";
