//! Tests of `dev` on a terminal, with a load, until Ctrl-C.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, SystemTime};

use base::clock::SystemClock;
use serde_json::Value;

use crate::cluster::{BIN, find, folder, run, tool, wait_for};

/// `dev` on a terminal that `script` creates.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    shown: PathBuf,
}

impl Terminal {
    fn start(script: &Path, dir: &Path) -> Self {
        let shown = dir.with_extension("shown");
        // Clears the output of an earlier run.
        std::fs::write(&shown, "").unwrap();
        let command = format!(
            "exec {BIN} dev --size 64M --log 32M --groups 2 --port 0 --dir {}",
            dir.display()
        );
        let mut child = Command::new("timeout")
            .args(["-k", "5", "120"])
            .arg(script)
            .args(["--quiet", "--return", "--flush", "--command", &command])
            .arg(&shown)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let keys = child.stdin.take().unwrap();
        Self { child, keys, shown }
    }

    /// The output so far.
    fn text(&self) -> String {
        let bytes = std::fs::read(&self.shown).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The URI in the output.
    fn uri(&self) -> String {
        let mut uri = None;
        wait_for("dev prints the URI", || {
            let text = self.text();
            // It follows the bytes that erase the progress of creating stores.
            let uris = text.match_indices("nbd://127.0.0.1:");
            let lines = uris.filter_map(|(at, _)| text[at..].split_once("\r\n"));
            uri = lines.map(|(line, _)| line.to_owned()).next();
            uri.is_some()
        });
        uri.unwrap()
    }

    /// Presses Ctrl-C; returns the exit code.
    fn interrupt(mut self) -> Option<i32> {
        self.keys.write_all(b"\x03").unwrap();
        let mut status = None;
        wait_for("dev ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already. If this does not end it, `timeout` does.
        drop(self.keys.write_all(b"\x03"));
        let clock = SystemClock::shared();
        for _ in 0..600 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                break;
            }
            clock.sleep(Duration::from_millis(50));
        }
    }
}

/// The numbers in a line of `dev`: writes per second, their latency in µs, fill level of the log, and
/// checkpoints.
fn numbers(line: &str) -> Option<[f64; 3]> {
    let behind = |word: &str| line.split_once(word).map(|(_, rest)| rest);
    let before = |rest: &str, word: &str| rest.split_once(word).map(|(n, _)| n.to_owned());
    let writes = before(behind("writes ")?, "/s, ")?;
    let micros = before(behind("/s, ")?, " µs, ")?;
    let checkpoints = before(line.rsplit_once("%, ")?.1, " checkpoints")?;
    let all = [writes, micros, checkpoints].map(|n| n.parse().ok());
    Some([all[0]?, all[1]?, all[2]?])
}

/// The processes of a cluster, the NBD server first.
fn pids(file: &Path) -> Vec<u64> {
    let args = ["ctl", "status", "--json", "--cluster"];
    let out = run(&[&args[..], &[file.to_str().unwrap()]].concat());
    let status: Value = serde_json::from_slice(&out.stdout).unwrap();
    let chunks = status["chunks"].as_array().unwrap();
    let all = [&status["nbd"]].into_iter().chain(chunks);
    all.map(|p| p["pid"].as_u64().unwrap()).collect()
}

fn is_there(pid: u64) -> bool {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
    exe.is_ok_and(|exe| exe == Path::new(BIN))
}

/// The last line of a process, and when it was written.
fn last_word(dir: &Path, name: &str) -> (String, SystemTime) {
    let log = dir.join(format!("{name}.log"));
    let when = std::fs::metadata(&log).unwrap().modified().unwrap();
    let text = std::fs::read_to_string(&log).unwrap();
    (text.lines().last().unwrap().to_owned(), when)
}

/// A line each second shows the write rate. Ctrl-C ends the NBD server before the stores, and nothing is left
/// but the data.
#[test]
fn dev_on_a_terminal_shows_a_load_and_ends_in_order() {
    let (Some(script), Some(fio), Some(qemu_io)) = (
        find("script", "bsdutils"),
        find("fio", "fio"),
        find("qemu-io", "qemu-utils"),
    ) else {
        return;
    };
    let folder = folder();
    let dir = folder.path().join("dev");
    let terminal = Terminal::start(&script, &dir);
    let uri = terminal.uri();
    let mut load = Command::new("timeout")
        .args(["-k", "5", "60"])
        .arg(&fio)
        .args(["--name=load", "--ioengine=nbd", "--rw=randwrite", "--bs=4k"])
        .args(["--iodepth=8", "--offset=16M", "--size=48M"])
        .args(["--time_based=1", "--runtime=50"])
        .arg(format!("--uri={uri}"))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("a line shows writes and checkpoints", || {
        let text = terminal.text();
        let lines = text.split('\r').filter_map(numbers);
        lines.into_iter().any(|n| n.iter().all(|n| *n > 0.0))
    });
    let load_pid = load.id().to_string();
    tool(Path::new("/bin/kill"), &["-TERM", &load_pid]);
    load.wait().unwrap();
    let io = |uri: &str, command: &str| tool(&qemu_io, &["-f", "raw", "-c", command, uri]);
    io(&uri, "write -P 9 1000 200000");
    let all = pids(&dir.join("cluster.toml"));
    assert!(all.len() == 4 && all.iter().all(|pid| is_there(*pid)));
    assert_eq!(terminal.interrupt(), Some(0));
    assert!(!all.iter().any(|pid| is_there(*pid)), "{all:?}");
    let (nbd, nbd_ended) = last_word(&dir, "nbd");
    assert!(nbd.contains("ended"), "{nbd}");
    for id in 1..=3 {
        let (chunk, ended) = last_word(&dir, &format!("chunk-{id}"));
        assert!(chunk.contains("ended") && ended >= nbd_ended, "{chunk}");
        let store = dir.join(format!("store-{id}"));
        let check = ["ctl", "store", "check", "--dir", store.to_str().unwrap()];
        let out = run(&check);
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{said}");
    }
    let terminal = Terminal::start(&script, &dir);
    io(&terminal.uri(), "read -P 9 1000 200000");
    assert_eq!(terminal.interrupt(), Some(0));
}
