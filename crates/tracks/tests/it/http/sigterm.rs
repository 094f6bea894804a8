//! SIGTERM with open streams, in the real binary: each stream ends with its last message, and no
//! event is missed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use base::sync::atomic::{AtomicBool, Ordering};
use serde_json::{Value, json};

use super::process::{serve, terminate};
use super::{Joined, T, TIMEOUT, agent, answer, line, thread, timed};

/// The messages of a stream.
#[derive(Debug, Default)]
struct Seen {
    events: BTreeSet<u64>,
    /// The id in its last message.
    bye: Option<u64>,
}

/// Reads a stream to its end, and reports each event to `told`.
fn listen(address: SocketAddr, query: &str, told: Sender<()>) -> Joined<Seen> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let head = format!("GET /v1/fleets/f/stream?{query} HTTP/1.0\r\nhost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    thread(move || {
        let (mut seen, mut event) = (Seen::default(), String::new());
        // The lines of an event come in this order: id, event, data.
        for line in BufReader::new(stream).lines() {
            let line = line.expect("a stream ends, and does not break off");
            assert!(
                seen.bye.is_none() || line.is_empty(),
                "behind the last message: {line}"
            );
            if let Some(kind) = line.strip_prefix("event: ") {
                kind.clone_into(&mut event);
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).unwrap();
                match event.as_str() {
                    "hello" => told.send(()).unwrap_or_default(),
                    "bye" => seen.bye = data["after"].as_u64(),
                    "enter" | "exit" => {
                        let id = data["id"].as_u64().unwrap();
                        seen.events.insert(id);
                        told.send(()).unwrap_or_default();
                    }
                    _ => {}
                }
            }
        }
        seen
    })
}

/// An entity that enters and leaves all the time, until it is over or the server is gone.
fn drive(reports: String, is_over: &Arc<AtomicBool>) -> Joined<()> {
    let is_over = Arc::clone(is_over);
    thread(move || {
        for nth in 0_u32.. {
            let lat = if nth % 2 == 0 { 1.0 } else { 1.1 };
            let body = line("a", T + 1000.0 * f64::from(nth), lat, 2.0);
            let sent = agent().post(&reports).send(body);
            if is_over.load(Ordering::SeqCst) || !sent.is_ok_and(|a| a.status() == 200) {
                return;
            }
        }
    })
}

/// The numbers of the events after `after`.
fn events(address: SocketAddr, after: u64) -> BTreeSet<u64> {
    let path = format!("events?after={after}&limit=10000");
    let page = answer(agent().get(url(address, &path)).call()).json();
    let events = page["events"].as_array().unwrap().iter();
    events.map(|event| event["id"].as_u64().unwrap()).collect()
}

fn url(address: SocketAddr, path: &str) -> String {
    format!("http://{address}/v1/fleets/f/{path}")
}

#[test]
fn sigterm_says_bye_to_streams_and_who_comes_back_misses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut process, address) = serve(dir.path());
    let area = json!({"type": "Circle", "center": [2, 1], "radius": 500});
    let fence = agent()
        .put(url(address, "fences/x"))
        .send(json!({ "area": area }).to_string());
    assert_eq!(answer(fence).status, 200);

    let listeners: Vec<_> = ["", "positions=false", "after=0", "events=true&bbox=0,0,3,3"]
        .into_iter()
        .map(|query| {
            let (told, telling) = channel();
            (listen(address, query, told), telling)
        })
        .collect();
    // Waits for this many messages of each; the first one is `hello`.
    let have_come = |count: usize| {
        for (_, telling) in &listeners {
            for _ in 0..count {
                telling.recv_timeout(TIMEOUT).expect("a stream says it");
            }
        }
    };
    have_come(1);
    let is_over = Arc::new(AtomicBool::new(false));
    let sender = drive(url(address, "reports"), &is_over);
    have_come(10);
    let (code, time) = timed(|| terminate(&mut process));
    is_over.store(true, Ordering::SeqCst);
    sender.join().unwrap();
    assert_eq!(code, Some(0));
    // Far less than the drain timeout of calls: streams are not waited for.
    assert!(time.as_secs() < 8, "{time:?}");
    let seen: Vec<Seen> = listeners
        .into_iter()
        .map(|(seen, _)| seen.join().unwrap())
        .collect();

    // All events are there after a restart; those that a stream has not sent are after the id in
    // its last message.
    let (mut process, address) = serve(dir.path());
    let all = events(address, 0);
    assert!(all.len() >= 10, "{all:?}");
    for seen in seen {
        let bye = seen.bye.expect("a stream ends with bye");
        let before: BTreeSet<u64> = all.iter().copied().filter(|id| *id <= bye).collect();
        assert_eq!(seen.events, before, "{bye}");
        let both: BTreeSet<u64> = seen
            .events
            .into_iter()
            .chain(events(address, bye))
            .collect();
        assert_eq!(both, all);
    }
    assert_eq!(terminate(&mut process), Some(0));
}
