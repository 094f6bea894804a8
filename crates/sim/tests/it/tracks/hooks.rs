//! Webhooks under power cuts: a cursor is durable before more events are sent, sent events stay, and each event
//! is delivered.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::tracks::http::{self, Host, Hosts, Server, Service, WebhookOptions};
use ::tracks::service::{self, Tracks};
use ::tracks::store::Store;
use base::clock::SystemClock;
use base::rng::Rng;
use base::sync::thread::{Builder, JoinHandle};
use base::threads::SystemThreads;
use serde_json::Value;
use sim::disk::{Config, CrashKind, CrashWhen, SimDisk};

use crate::tracks_ready::call;

/// The hosts that webhooks may call.
const OWN: [&str; 1] = ["127.0.0.1"];

/// Accepts everything, and remembers the event ids of each delivery.
struct Receiver {
    address: SocketAddr,
    came: Arc<Mutex<Vec<Vec<u64>>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (came, ends) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (its, is_over) = (
            Arc::<Mutex<Vec<Vec<u64>>>>::clone(&came),
            Arc::<AtomicBool>::clone(&ends),
        );
        let run = move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // If the delivery is cut off, the service sends it again.
                drop(stream.and_then(|stream| take(stream, &its)));
            }
        };
        Self {
            address,
            came,
            ends,
            thread: Some(Builder::new().spawn(run).unwrap()),
        }
    }

    /// The deliveries since the last call. The receiver takes one connection after another, so those before
    /// this one are done.
    fn came(&self) -> Vec<Vec<u64>> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut nothing = Vec::new();
        drop(stream.read_to_end(&mut nothing));
        std::mem::take(&mut *self.came.lock().unwrap())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        self.thread.take().unwrap().join().unwrap();
    }
}

fn take(mut stream: TcpStream, came: &Mutex<Vec<Vec<u64>>>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut length = 0;
    loop {
        let mut text = String::new();
        if lines.read_line(&mut text)? == 0 {
            return Ok(());
        }
        let text = text.trim_end().to_ascii_lowercase();
        if let Some(value) = text.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if text.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body)?;
    let ids = body["events"].as_array().unwrap().iter();
    let ids = ids.map(|event| event["id"].as_u64().unwrap()).collect();
    came.lock().unwrap().push(ids);
    stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
}

pub(super) fn serve(disk: &SimDisk, hosts: &[&str]) -> base::Result<Server> {
    let store: Arc<dyn Store> = Arc::new(super::engine(disk)?);
    let mut options = service::Options::default();
    options.write.shards = 2;
    let tracks = Tracks::over(store, &options, SystemClock::shared(), &SystemThreads)?;
    let service = Service {
        tracks: Arc::new(tracks),
        db: None,
        tokens: None,
    };
    let millis = Duration::from_millis;
    let config = http::Config {
        webhooks: WebhookOptions {
            hosts: Hosts::new(hosts.iter().map(|h| Host::new(h, false).unwrap()).collect()),
            timeout: millis(2000),
            retry: (millis(5), millis(20)),
        },
        ..http::Config::default()
    };
    Server::start("127.0.0.1:0".parse().unwrap(), service, config)
}

/// All ids of events of the fleet.
pub(super) fn ids(address: SocketAddr) -> BTreeSet<u64> {
    let (status, answer) = call(address, "GET /v1/fleets/f/events?after=0&limit=10000", "");
    assert_eq!(status, 200, "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let all = body["events"].as_array().unwrap().iter();
    all.map(|event| event["id"].as_u64().unwrap()).collect()
}

/// The webhooks whose creation or deletion was answered.
#[derive(Default)]
pub(super) struct Others {
    there: BTreeSet<String>,
    gone: BTreeSet<String>,
}

/// Moves some entities in and out of the fence. Returns whether all was accepted.
pub(super) fn drive(address: SocketAddr, (life, url): (u32, &str), others: &mut Others) -> bool {
    let mut is_all = true;
    for nth in 0..20_u32 {
        let time = 1_700_000_000 + 100_000 * life + 600 * nth;
        let lon = [18.0, 17.9][nth as usize % 2];
        let line =
            |e: u32| format!("{{\"entity\":\"e{e}\",\"lat\":59,\"lon\":{lon},\"time\":{time}}}\n");
        let body: String = (0..4).map(line).collect();
        is_all &= call(address, "POST /v1/fleets/f/reports", &body).0 == 200;
        let path = format!("/v1/fleets/f/webhooks/other{life}-{}", nth / 4);
        if nth % 4 == 1 {
            let body = format!("{{\"url\":\"{url}\",\"events\":[\"dwell\"]}}");
            if call(address, &format!("PUT {path}"), &body).0 == 200 {
                others.there.insert(path);
            }
        } else if nth % 8 == 3 && others.there.remove(&path) {
            let (status, _) = call(address, &format!("DELETE {path}"), "");
            if status == 204 {
                others.gone.insert(path);
            }
        }
    }
    is_all
}

fn run(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let receiver = Receiver::new();
    let url = format!("http://{}/", receiver.address);
    let mut disk = SimDisk::new(Config::default());
    let server = serve(&disk, &OWN).unwrap();
    let address = server.address();
    let area = r#"{"area":{"type":"Circle","center":[18,59],"radius":500}}"#;
    assert_eq!(call(address, "PUT /v1/fleets/f/fences/a", area).0, 200);
    let hook = format!("{{\"url\":\"{url}\"}}");
    assert_eq!(call(address, "PUT /v1/fleets/f/webhooks/h", &hook).0, 200);
    server.stop().unwrap();
    // The number of disk events in one life.
    let whole = disk.kill_image();
    let before = whole.events();
    let server = serve(&whole, &OWN).unwrap();
    assert!(drive(server.address(), (0, &url), &mut Others::default()));
    server.stop().unwrap();
    let count = whole.events() - before;
    drop(receiver.came());

    let (mut taken, mut others) = (0, Others::default());
    let mut seen = BTreeSet::new();
    for life in 0..4 {
        if life < 3 {
            let after = 1 + rng.below(count);
            disk.crash_at(disk.events() + after, CrashWhen::During);
        }
        let server = serve(&disk, &OWN);
        if let Ok(server) = &server {
            let is_all = drive(server.address(), (life, &url), &mut others);
            assert!(is_all || life < 3, "seed {seed}");
            if life == 3 {
                let all = ids(server.address());
                let mut last = Vec::new();
                for _ in 0..2000 {
                    last.extend(receiver.came());
                    if last.iter().flatten().max() >= all.last() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                check_life(seed, &last, &mut taken, &mut seen);
                // The receiver saw exactly the events that are there.
                assert_eq!(seen, all, "seed {seed}");
            }
        }
        let kind = CrashKind::any(&mut rng);
        let image = if rng.one_in(3) {
            disk.kill_image()
        } else {
            disk.crash_image(&mut rng, kind)
        };
        // An error may come from writes that were not durable.
        drop(server.map(Server::stop));
        check_life(seed, &receiver.came(), &mut taken, &mut seen);
        disk = image;
        // A second service on a copy, which may send nothing.
        let copy = serve(&disk.kill_image(), &[]).unwrap();
        let there = ids(copy.address());
        assert!(there.is_superset(&seen), "seed {seed}: it was not durable");
        for (paths, status) in [(&others.there, 200), (&others.gone, 404)] {
            for path in paths {
                let found = call(copy.address(), &format!("GET {path}"), "").0;
                assert_eq!(found, status, "seed {seed}: {path}");
            }
        }
        copy.stop().unwrap();
    }
    seen.len()
}

/// Checks the deliveries of one life: they are in order, and come after all accepted events whose cursor
/// was durable.
fn check_life(seed: u64, came: &[Vec<u64>], taken: &mut u64, seen: &mut BTreeSet<u64>) {
    let ids: Vec<u64> = came.iter().flatten().copied().collect();
    assert!(
        ids.is_sorted_by(|a, b| a < b),
        "seed {seed}: not in order, or twice"
    );
    if let Some(first) = ids.first() {
        assert!(first > taken, "seed {seed}: a cursor is lost");
    }
    // The last delivery may have been answered, and its cursor lost.
    if let [before @ .., _] = came {
        let last = before.iter().flatten().max();
        *taken = last.copied().unwrap_or(0).max(*taken);
    }
    seen.extend(ids);
}

/// `IRONSTONE_TRACKS_SEEDS` sets the number of seeds.
#[test]
fn power_cuts_lose_no_cursor_of_a_webhook_and_no_event() {
    let seeds = std::env::var("IRONSTONE_TRACKS_SEEDS").map_or(8, |n| n.parse().unwrap());
    let events: usize = (0..seeds).map(run).sum();
    assert!(events > 60 * seeds as usize, "{events}");
}
