//! Many slow clients at once, and some with wrong tokens: clients that ask for much and take nothing, or a byte now and
//! then, and clients whose heads trickle in. The server's memory is bounded, and a neighbour is answered in time.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use base::sync::atomic::{AtomicBool, Ordering};
use serde_json::json;

use super::neighbour::{MEMORY_MAX, WAIT_MAX, neighbour};
use super::process::{Process, binary, memory_of, serve_with, terminate};
use super::{Joined, T, agent, answer, thread};

/// How many slow clients there are of each kind.
const SLOW: usize = 200;
/// How long they are there.
const TURNS: u32 = 80;
const TURN: Duration = Duration::from_millis(100);

/// A server with two tokens, which are returned with it.
fn server(dir: &Path) -> (Process, SocketAddr, [String; 2]) {
    let mut file = Vec::new();
    let tokens = ["slow", "neighbour"].map(|name| {
        let out = binary()
            .args(["token", "--scope=read", "--scope=ingest", "--name", name])
            .output()
            .unwrap();
        file.extend_from_slice(&out.stdout);
        file.push(b'\n');
        let said = String::from_utf8(out.stderr).unwrap();
        said.trim().strip_prefix("token: ").unwrap().to_owned()
    });
    let tokens_file = dir.join("tokens.toml");
    std::fs::write(&tokens_file, file).unwrap();
    let mut command = binary();
    command.env("IRONSTONE_TRACKS_TOKENS", tokens_file);
    let (process, address) = serve_with(&dir.join("tracks"), command);
    (process, address, tokens)
}

/// Opens a connection and sends the beginning of a call.
fn begun(address: SocketAddr, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// Calls with a wrong token until the end. Returns how many.
fn unknown(address: SocketAddr, is_over: &Arc<AtomicBool>) -> Joined<u32> {
    let is_over = Arc::clone(is_over);
    thread(move || {
        let agent = agent();
        for nth in 0.. {
            if is_over.load(Ordering::SeqCst) {
                return nth;
            }
            let call = agent
                .get(format!("http://{address}/v1/fleets"))
                .header("authorization", format!("Bearer istk_{nth}"));
            assert_eq!(answer(call.call()).status, 401);
        }
        0
    })
}

/// 2,000 points of some 500 bytes each: an answer of a megabyte.
fn many(address: SocketAddr, token: &str) {
    let pad = "x".repeat(500);
    let mut lines = String::new();
    for n in 0..2000 {
        let (time, attributes) = (T + f64::from(n), json!({ "pad": pad }));
        let report =
            json!({"entity": "a", "lat": 1, "lon": 2, "time": time, "attributes": attributes});
        writeln!(lines, "{report}").unwrap();
    }
    let sent = agent()
        .post(format!("http://{address}/v1/fleets/f/reports"))
        .header("authorization", format!("Bearer {token}"))
        .send(&lines);
    assert_eq!(answer(sent).json()["stored"], 2000);
}

#[test]
fn slow_and_unknown_clients_disturb_no_neighbour() {
    let dir = tempfile::tempdir().unwrap();
    let (mut process, address, [slow, own]) = server(dir.path());
    many(address, &slow);
    let before = memory_of(&process, "VmRSS:");
    let is_over = Arc::new(AtomicBool::new(false));
    let beside = neighbour(address, &own, &is_over);
    let unknown = [(); 2].map(|()| unknown(address, &is_over));

    let ask = format!(
        "GET /v1/fleets/f/entities/a/track?max_points=10000 HTTP/1.1\r\nhost: localhost\r\n\
         authorization: Bearer {slow}\r\n\r\n"
    );
    let head = "POST /v1/fleets/f/reports HTTP/1.1\r\nhost: ";
    let of = |text: &str| -> Vec<TcpStream> { (0..SLOW).map(|_| begun(address, text)).collect() };
    let (deaf, mut sipping, mut trickling) = (of(&ask), of(&ask), of(head));
    let clock = SystemClock::shared();
    for _ in 0..TURNS {
        clock.sleep(TURN);
        // Those that were cut off return errors, and so do those whose bytes are not there yet.
        for stream in &mut sipping {
            drop(stream.read(&mut [0]));
        }
        for stream in &mut trickling {
            drop(stream.write(b"a"));
        }
    }
    is_over.store(true, Ordering::SeqCst);
    let refused: u32 = unknown.into_iter().map(|its| its.join().unwrap()).sum();
    let mut times = beside.join().unwrap();
    times.sort();
    let (worst, median) = (times[times.len() - 1], times[times.len() / 2]);
    let most = memory_of(&process, "VmHWM:");
    eprintln!(
        "{} calls of the neighbour: median {median:?}, worst {worst:?}; {refused} calls with wrong tokens; memory {} MiB \
         before, {} MiB at most",
        times.len(),
        before >> 20,
        most >> 20
    );
    assert!(refused > 0 && times.len() > 10);
    assert!(worst < WAIT_MAX, "{worst:?}");
    assert!(
        most - before < MEMORY_MAX,
        "{} MiB more",
        (most - before) >> 20
    );
    // Slow clients do not keep the server from ending.
    assert_eq!(terminate(&mut process), Some(0));
    drop((deaf, sipping, trickling));
}
