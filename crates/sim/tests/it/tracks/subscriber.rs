//! A subscriber of server-sent events under power cuts: it reconnects with the last id that it has seen, sees each
//! event once and in order, and what it has seen stays.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::tracks::http::Server;
use base::rng::Rng;
use base::sync::thread::{Builder, JoinHandle};
use sim::disk::{Config, CrashKind, CrashWhen, SimDisk};

use super::hooks::{Others, drive, ids, serve};
use crate::tracks_ready::call;

/// A webhook of `drive` calls nobody.
const NOBODY: &str = "http://127.0.0.1:9/";

/// A client that follows the events of the fleet, with many connections.
struct Subscriber {
    seen: Arc<Mutex<Vec<u64>>>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Subscriber {
    /// Sees the events behind `after`.
    fn new(address: SocketAddr, after: u64, mut rng: Rng) -> Self {
        let (seen, ends) = (
            Arc::<Mutex<Vec<u64>>>::default(),
            Arc::new(AtomicBool::new(false)),
        );
        let (its, is_over) = (Arc::clone(&seen), Arc::clone(&ends));
        let run = move || {
            while !is_over.load(Ordering::Relaxed) {
                let last = its.lock().unwrap().last().copied().unwrap_or(after);
                let most = 1 + rng.below(8);
                // A server that stops refuses the connection, or cuts it.
                drop(follow(address, (last, most), &its));
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let thread = Builder::new().spawn(run).unwrap();
        Self { seen, ends, thread }
    }

    fn last(&self) -> Option<u64> {
        self.seen.lock().unwrap().last().copied()
    }

    /// The ids of all events that it has seen. The server has stopped.
    fn end(self) -> Vec<u64> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

/// Reads at most this many events of a stream that begins behind an id.
fn follow(
    address: SocketAddr,
    (after, most): (u64, u64),
    seen: &Mutex<Vec<u64>>,
) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let head = format!(
        "GET /v1/fleets/f/stream?positions=false HTTP/1.0\r\nhost: localhost\r\nlast-event-id: {after}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut lines = BufReader::new(stream);
    let (mut id, mut count): (Option<u64>, u64) = (None, 0);
    let mut is_event = false;
    while count < most {
        let mut text = String::new();
        if lines.read_line(&mut text)? == 0 || !text.ends_with('\n') {
            break;
        }
        match text.trim().split_once(": ") {
            Some(("id", value)) => id = Some(value.parse().unwrap()),
            Some(("event", kind)) => is_event = matches!(kind, "enter" | "exit"),
            // The end of a message.
            None if text.trim().is_empty() => {
                let event = id.take().filter(|_| is_event);
                count += u64::from(event.is_some());
                seen.lock().unwrap().extend(event);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Drives, and follows the events behind `after`. Returns those that were seen, and the disk after a cut. In the `last`
/// life, it waits until all events were seen.
fn live(
    disk: &SimDisk,
    (life, last): (u32, bool),
    after: u64,
    rng: &mut Rng,
) -> (Vec<u64>, SimDisk) {
    let begun: Option<(Server, Subscriber)> = serve(disk, &[]).ok().map(|server| {
        let seed = Rng::new(rng.next_u64());
        let subscriber = Subscriber::new(server.address(), after, seed);
        (server, subscriber)
    });
    if let Some((server, subscriber)) = &begun {
        let is_all = drive(server.address(), (life, NOBODY), &mut Others::default());
        assert!(is_all || !last, "a report was refused");
        if last {
            let newest = ids(server.address()).last().copied();
            for _ in 0..2000 {
                if subscriber.last() >= newest {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    let kind = CrashKind::any(rng);
    let image = if rng.one_in(3) {
        disk.kill_image()
    } else {
        disk.crash_image(rng, kind)
    };
    let Some((server, subscriber)) = begun else {
        return (Vec::new(), image);
    };
    // An error may come from writes that were not durable.
    drop(server.stop());
    (subscriber.end(), image)
}

fn run(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let mut disk = SimDisk::new(Config::default());
    let server = serve(&disk, &[]).unwrap();
    let area = r#"{"area":{"type":"Circle","center":[18,59],"radius":500}}"#;
    assert_eq!(
        call(server.address(), "PUT /v1/fleets/f/fences/a", area).0,
        200
    );
    server.stop().unwrap();
    // The number of disk events in one life.
    let whole = disk.kill_image();
    let before = whole.events();
    let server = serve(&whole, &[]).unwrap();
    assert!(drive(server.address(), (0, NOBODY), &mut Others::default()));
    server.stop().unwrap();
    let count = whole.events() - before;

    let mut seen = BTreeSet::new();
    for life in 0..4 {
        let last = life == 3;
        if !last {
            let after = 1 + rng.below(count);
            disk.crash_at(disk.events() + after, CrashWhen::During);
        }
        let after = seen.last().copied().unwrap_or(0);
        let (came, image) = live(&disk, (life, last), after, &mut rng);
        assert!(
            came.is_sorted_by(|a, b| a < b) && came.first().is_none_or(|first| *first > after),
            "seed {seed}: not in order, or twice: {came:?} behind {after}"
        );
        seen.extend(came);
        disk = image;
        let copy = serve(&disk.kill_image(), &[]).unwrap();
        let there = ids(copy.address());
        copy.stop().unwrap();
        let newest = seen.last().copied().unwrap_or(0);
        let passed: BTreeSet<u64> = there.range(..=newest).copied().collect();
        assert_eq!(seen, passed, "seed {seed}: lost, or left out");
        assert!(!last || seen == there, "seed {seed}: not all were seen");
    }
    seen.len()
}

/// `IRONSTONE_TRACKS_SEEDS` sets the number of seeds.
#[test]
fn a_subscriber_misses_no_event_through_power_cuts() {
    let seeds = std::env::var("IRONSTONE_TRACKS_SEEDS").map_or(8, |n| n.parse().unwrap());
    let events: usize = (0..seeds).map(run).sum();
    assert!(events > 60 * seeds as usize, "{events}");
}
