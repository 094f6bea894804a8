//! The real binary: start, settings, reload and end.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base::clock::SystemClock;
use ironstone::WriteBatch;
use serde_json::{Value, json};
use tracks::http::tokens::Tokens;
use tracks::store::{Engine, Family, Store};

use super::{T, agent, line, tls};
use crate::world::check;

/// The real binary, which is killed when this is dropped.
pub(super) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub(super) fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ironstone-tracks"))
}

pub(super) fn serve(dir: &Path) -> (Process, SocketAddr) {
    serve_with(dir, binary())
}

pub(super) fn serve_with(dir: &Path, mut binary: Command) -> (Process, SocketAddr) {
    let child = binary
        .args(["serve", "--listen", "127.0.0.1:0", "--dir"])
        .arg(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut process = Process(child.unwrap());
    let mut first = String::new();
    let out = process.0.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut first).unwrap();
    let (_, address) = first.trim().split_once("://").unwrap();
    let address = address.parse().unwrap();
    (process, address)
}

/// Sends SIGTERM. Returns the exit code.
pub(super) fn terminate(process: &mut Process) -> Option<i32> {
    let pid = process.0.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    process.0.wait().unwrap().code()
}

#[test]
fn sigterm_ends_in_order_and_what_was_durable_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (mut process, address) = serve(dir.path());
    let senders: Vec<_> = (0..4)
        .map(|n| {
            let send = move || {
                let agent = agent();
                let url = format!("http://{address}/v1/fleets/f/reports");
                let mut durable = 0;
                for nth in 0..1_000_000 {
                    let body = line(&format!("e{n}"), T + f64::from(nth), 1.0, 2.0);
                    match agent.post(&url).send(body) {
                        Ok(answer) if answer.status() == 200 => durable = nth + 1,
                        _ => break,
                    }
                }
                durable
            };
            base::sync::thread::Builder::new().spawn(send).unwrap()
        })
        .collect();
    SystemClock::shared().sleep(Duration::from_millis(500));
    // A second server, or a check, cannot open the folder meanwhile.
    for args in [["serve", "--listen=127.0.0.1:0"], ["check", "--json"]] {
        let second = binary()
            .args(args)
            .arg("--dir")
            .arg(dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8(second.stderr).unwrap();
        assert!(
            !second.status.success() && text.contains("error: Resource busy"),
            "{text}"
        );
    }
    assert_eq!(terminate(&mut process), Some(0));
    let durable: Vec<u32> = senders
        .into_iter()
        .map(|sender| sender.join().unwrap())
        .collect();
    assert!(durable.iter().all(|n| *n > 0), "{durable:?}");

    let checked = binary()
        .args(["check", "--json", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    let found: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(
        (checked.status.code(), &found["wrong"]),
        (Some(0), &json!(0)),
        "{found}"
    );
    assert!(found["points"].as_u64().unwrap() >= durable.iter().map(|n| u64::from(*n)).sum());
    let store = Engine::open(dir.path()).unwrap();
    assert_eq!(check(&store).entities, 4);
}

#[test]
fn the_command_line_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let open = binary()
        .args(["serve", "--listen", "0.0.0.0:0", "--dir"])
        .arg(dir.path())
        .output();
    let open = open.unwrap();
    let text = String::from_utf8(open.stderr).unwrap();
    assert!(
        !open.status.success() && text.contains("--insecure-http"),
        "{text}"
    );
    let none = binary()
        .args(["check", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8(none.stderr).unwrap();
    assert!(
        !none.status.success() && text.contains("no database"),
        "{text}"
    );
    let token = binary()
        .args(["token", "--name=a", "--scope=read", "--fleet=f"])
        .output()
        .unwrap();
    assert!(token.status.success());
    Tokens::parse(str::from_utf8(&token.stdout).unwrap()).unwrap();
    assert!(
        str::from_utf8(&token.stderr)
            .unwrap()
            .starts_with("token: istk_")
    );
}

#[test]
fn settings_come_from_the_command_line_the_environment_and_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tracks.toml");
    std::fs::write(
        &file,
        "max_queries = 3\nmemory = \"1M\"\nmax_body = \"2M\"\nno_visits = true\n",
    )
    .unwrap();
    let print = |args: &[&str]| {
        let out = binary()
            .args(["serve", "--print-config", "--dir=/somewhere", "--config"])
            .arg(&file)
            .args(args)
            .env("IRONSTONE_TRACKS_MEMORY", "3M")
            .env("IRONSTONE_TRACKS_MAX_BODY", "4M")
            .env("IRONSTONE_TRACKS_MISTAKE", "1")
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (out.status.success(), text(&out.stdout), text(&out.stderr))
    };
    let (ok, out, err) = print(&["--max-body=5M"]);
    assert!(ok, "{err}");
    for part in [
        "dir = \"/somewhere\"",
        "max_queries = 3",
        "memory = \"3M\"",
        "max_body = \"5M\"",
        "no_visits = true",
        "max_connections = 10240",
        "# from IRONSTONE_TRACKS_MEMORY",
        "tracks.toml, line 1",
        "# default: 256M",
        "# tokens =",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(
        err.contains("IRONSTONE_TRACKS_MISTAKE is no setting"),
        "{err}"
    );
    // The output is a valid file of settings.
    std::fs::write(&file, &out).unwrap();
    let (ok, again, _) = print(&["--max-body=5M"]);
    assert!(ok && again.contains("max_queries = 3"), "{again}");
    std::fs::write(&file, "memory = \"1M\"\n\nmemry = \"1M\"\n").unwrap();
    let (ok, _, err) = print(&[]);
    assert!(
        !ok && err.contains("line 3") && err.contains("memry"),
        "{err}"
    );
}

fn hup(process: &Process) {
    let pid = process.0.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-HUP", &pid])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn sighup_reads_certificate_and_tokens_again() {
    let dir = tempfile::tempdir().unwrap();
    let old = tls::write_certificate(dir.path());
    let make = |name: &str| {
        let out = binary()
            .args(["token", "--scope=read", "--name", name])
            .output()
            .unwrap();
        std::fs::write(dir.path().join("tokens.toml"), &out.stdout).unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        said.trim().strip_prefix("token: ").unwrap().to_owned()
    };
    let first = make("first");
    let mut command = binary();
    // From the environment, because `serve_with` sets the rest on the command line.
    for (name, file) in [
        ("TLS_CERT", "cert.pem"),
        ("TLS_KEY", "key.pem"),
        ("TOKENS", "tokens.toml"),
    ] {
        command.env(format!("IRONSTONE_TRACKS_{name}"), dir.path().join(file));
    }
    let (process, address) = serve_with(&dir.path().join("tracks"), command);
    let status = |agent: &ureq::Agent, token: &str| {
        let url = format!("https://localhost:{}/v1/fleets", address.port());
        let call = agent
            .get(url)
            .header("authorization", format!("Bearer {token}"))
            .call();
        call.ok().map(|answer| answer.status().as_u16())
    };
    assert_eq!(status(&tls::trusting(&old), &first), Some(200));
    // With both files invalid, nothing changes.
    std::fs::write(dir.path().join("cert.pem"), "nothing").unwrap();
    std::fs::write(dir.path().join("tokens.toml"), "nothing").unwrap();
    hup(&process);
    SystemClock::shared().sleep(Duration::from_millis(300));
    assert_eq!(status(&tls::trusting(&old), &first), Some(200));
    let (new, second) = (tls::write_certificate(dir.path()), make("second"));
    hup(&process);
    let changed = (0..100).any(|_| {
        SystemClock::shared().sleep(Duration::from_millis(50));
        status(&tls::trusting(&new), &second) == Some(200)
    });
    assert!(changed);
    assert_eq!(status(&tls::trusting(&new), &first), Some(401));
    assert_eq!(status(&tls::trusting(&old), &second), None);
}

#[test]
fn rows_of_a_newer_release_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    {
        let engine = Engine::open(dir.path()).unwrap();
        let mut batch = WriteBatch::new();
        batch
            .cf_id(engine.id(Family::Meta))
            .put(b"schema", 99_u32.to_be_bytes())
            .unwrap();
        engine.write(batch, None).unwrap();
    }
    let lines = tempfile::NamedTempFile::with_suffix(".ndjson").unwrap();
    std::fs::write(lines.path(), line("a", T, 1.0, 2.0)).unwrap();
    let (there, file) = (dir.path().to_str().unwrap(), lines.path().to_str().unwrap());
    let commands: [&[&str]; 4] = [
        &["serve", "--listen=127.0.0.1:0"],
        &["check"],
        &["import", "--fleet=f", "--format=ndjson", file],
        &["export", "--fleet=f", "--format=ndjson"],
    ];
    for command in commands {
        let out = binary().args(command).args(["--dir", there]).output();
        let out = out.unwrap();
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(
            !out.status.success() && text.contains("version 99") && text.contains("newer release"),
            "{command:?}: {text}"
        );
    }
}

/// Resident memory of a process, bytes.
fn memory(process: &Process) -> u64 {
    memory_of(process, "VmRSS:")
}

/// A line of its status; `VmHWM:` is the peak of its resident memory.
pub(super) fn memory_of(process: &Process, which: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(which))
        .unwrap();
    let kib = line.trim().strip_suffix(" kB").unwrap();
    kib.parse::<u64>().unwrap() << 10
}

#[test]
fn ten_thousand_idle_connections_disturb_nobody() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, most).unwrap();
    let room = limit.maximum.map_or(u64::MAX, |n| n.saturating_sub(1000));
    let count = room.min(10_000);
    if count < 10_000 {
        let is_ci = std::env::var("CI").as_deref() == Ok("true");
        assert!(
            !is_ci,
            "no more than {limit:?} files may be open: raise the hard limit"
        );
        eprintln!("note: {count} connections only, as no more files may be open");
    }
    let dir = tempfile::tempdir().unwrap();
    let (process, address) = serve(dir.path());
    let url = format!("http://{address}/v1/fleets/f/reports");
    let send = |time: f64| {
        let clock = SystemClock::shared();
        let since = clock.monotonic_nanos();
        let answer = agent().post(&url).send(line("a", time, 1.0, 2.0)).unwrap();
        assert_eq!(answer.status(), 200);
        clock.monotonic_nanos() - since
    };
    send(T);
    let before = memory(&process);
    let idle: Vec<TcpStream> = (0..count)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let longest = (0..20).map(|n| send(T + 1.0 + f64::from(n))).max().unwrap();
    let more = memory(&process).saturating_sub(before);
    assert!(longest < 2_000_000_000, "a report took {longest} ns");
    assert!(
        more < 200 << 20,
        "{} MiB for {count} connections",
        more >> 20
    );
    let text = agent()
        .get(format!("http://{address}/metrics"))
        .call()
        .unwrap();
    let text = text.into_body().read_to_string().unwrap();
    let open = text
        .lines()
        .find_map(|line| line.strip_prefix("tracks_connections "))
        .unwrap();
    assert!(open.parse::<u64>().unwrap() >= count, "{open}");
    drop(idle);
}
