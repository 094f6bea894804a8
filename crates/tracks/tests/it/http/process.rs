//! The real binary.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base::clock::SystemClock;
use serde_json::{Value, json};
use tracks::http::tokens::Tokens;
use tracks::store::Engine;

use super::{T, agent, line};
use crate::world::check;

/// The real binary, which is killed where a test leaves it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ironstone-tracks"))
}

fn serve(dir: &Path) -> (Process, SocketAddr) {
    let child = binary()
        .args(["serve", "--listen", "127.0.0.1:0", "--dir"])
        .arg(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut process = Process(child.unwrap());
    let mut first = String::new();
    let out = process.0.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut first).unwrap();
    let address = first.trim().strip_prefix("listening on http://").unwrap();
    let address = address.parse().unwrap();
    (process, address)
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
    // Another server, or a check, has nothing to do there meanwhile.
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
    let pid = process.0.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    let status = process.0.wait().unwrap();
    assert_eq!(status.code(), Some(0));
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
