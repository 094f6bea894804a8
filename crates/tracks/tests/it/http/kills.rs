//! The real binary is killed repeatedly while it is used: answered reports are there, the rows are
//! consistent, each crossing has one event, a stream that resumes with the last id misses none, and
//! a webhook gets each.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use base::rng::Rng;
use base::sync::Mutex;
use base::sync::atomic::{AtomicBool, Ordering};
use serde_json::{Value, json};
use tracks::fence::Event;
use tracks::model::key::{Entity, EntityKey, Fleet, PointKey};
use tracks::model::name::Name;
use tracks::model::point::Point;
use tracks::service::{Options, Tracks};
use tracks::store::{Engine, Family, Store, View};

use super::process::{Process, binary, serve_with};
use super::receiver::{Came, Receiver};
use super::{Joined, T, agent, eventually, line, thread};
use crate::world::check;

/// The number of writers, and of entities of each.
const WRITERS: u32 = 4;
const EACH: u32 = 5;
/// West of the fences, inside, and east of them.
const LONS: [f64; 3] = [17.9, 18.0, 18.1];
const DWELL: i64 = 150;

type Seen = Vec<(u64, String)>;

/// The state that all threads share.
#[derive(Default)]
struct Shared {
    /// The address of the server; `None` after it was killed.
    address: Mutex<Option<SocketAddr>>,
    ended: AtomicBool,
    /// Answered reports: the entity and the second.
    answered: Mutex<Vec<(String, i64)>>,
    /// Entities whose erasure was answered.
    erased: Mutex<Vec<String>>,
    /// The ids that streams have given, in order, with their entities.
    seen: Mutex<Seen>,
    streams: Mutex<u32>,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The last id that was seen.
    fn newest(&self) -> u64 {
        self.seen.lock().unwrap().last().map_or(0, |(id, _)| *id)
    }

    fn address(&self) -> Option<SocketAddr> {
        *self.address.lock().unwrap()
    }

    /// Repeats a call until it is answered with one of these statuses; returns the number of calls.
    /// `None` if the test is over.
    fn call(&self, method: &str, path: &str, body: &str, taken: &[u16]) -> Option<(u16, u32)> {
        for calls in 1.. {
            if let Some(address) = self.address() {
                let url = format!("http://{address}/v1/fleets/f{path}");
                let agent = agent();
                let done = match method {
                    "POST" => agent.post(url).send(body),
                    "PUT" => agent.put(url).send(body),
                    _ => agent.delete(url).call(),
                };
                if let Ok(answer) = done {
                    let status = answer.status().as_u16();
                    assert!(taken.contains(&status), "{method} {path}: {status}");
                    return Some((status, calls));
                }
            }
            if self.is_over() {
                return None;
            }
            pause(5);
        }
        None
    }
}

fn pause(millis: u64) {
    SystemClock::shared().sleep(Duration::from_millis(millis));
}

/// Sends reports of some entities, each newer than the one before. Unanswered reports are sent
/// again. Half of the writers do not wait for the device: that is for power cuts.
fn write(shared: &Shared, seed: u32) {
    let ack = ["durable", "visible"][seed as usize % 2];
    let path = format!("/reports?ack={ack}");
    let mut rng = Rng::new(u64::from(seed));
    for nth in 0_u32.. {
        let time = T + 60.0 * f64::from(nth);
        let names: Vec<_> = (0..EACH).map(|n| format!("e{}", seed * EACH + n)).collect();
        let one = |name: &String| line(name, time, 59.0, LONS[rng.below(3) as usize]);
        let body: Vec<_> = names.iter().map(one).collect();
        if shared.is_over() {
            return;
        }
        if shared
            .call("POST", &path, &body.join("\n"), &[200])
            .is_some()
        {
            let mut answered = shared.answered.lock().unwrap();
            answered.extend(names.into_iter().map(|name| (name, time as i64)));
        }
        pause(10);
    }
}

/// Makes entities that enter and leave, and erases them; makes fences, and deletes them.
fn erase(shared: &Shared) {
    for nth in 0_u32.. {
        let (name, entity) = (format!("gone{nth}"), format!("/entities/gone{nth}"));
        let lines = (0..3).map(|n| {
            let lon = LONS[n as usize % 2];
            line(&name, T + 60.0 * f64::from(n), 59.0, lon)
        });
        let body = lines.collect::<Vec<_>>().join("\n");
        let area = json!({"type": "Circle", "center": [10.0, 10.0], "radius": 500});
        let fence = format!("/fences/other{nth}");
        let steps = [
            ("POST", "/reports", body),
            ("PUT", &fence, json!({ "area": area }).to_string()),
            ("DELETE", &fence, String::new()),
            ("DELETE", &entity, String::new()),
        ];
        for (method, path, body) in steps {
            let taken: &[u16] = if method == "DELETE" {
                &[204, 404]
            } else {
                &[200]
            };
            let Some((status, calls)) = shared.call(method, path, &body, taken) else {
                return;
            };
            // Answered reports are there before the erasure.
            assert!(status != 404 || calls > 1, "{path} is lost");
        }
        shared.erased.lock().unwrap().push(name);
        if shared.is_over() {
            return;
        }
    }
}

/// Reads one stream after an id until it ends: each event that arrives whole.
fn follow(address: SocketAddr, after: u64, seen: &Mutex<Seen>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let head = format!(
        "GET /v1/fleets/f/stream?positions=false HTTP/1.0\r\nHost: localhost\r\nLast-Event-ID: {after}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut lines = BufReader::new(stream);
    let (mut id, mut is_event, mut data) = (None, false, Value::Null);
    loop {
        let mut text = String::new();
        if lines.read_line(&mut text)? == 0 || !text.ends_with('\n') {
            return Ok(());
        }
        match text.trim_end().split_once(':') {
            Some(("id", value)) => id = Some(value.trim().parse().unwrap()),
            Some(("event", value)) => {
                is_event = matches!(value.trim(), "enter" | "exit" | "dwell" | "cross");
            }
            Some(("data", value)) => data = serde_json::from_str(value.trim()).unwrap(),
            // The end of a message.
            None if text.trim().is_empty() => {
                if let (Some(id), true) = (id.take(), is_event) {
                    let entity = data["entity"].as_str().unwrap().to_owned();
                    seen.lock().unwrap().push((id, entity));
                }
                is_event = false;
            }
            _ => {}
        }
    }
}

/// Resumes with the last id that was seen, as a browser does.
fn listen(shared: &Shared) {
    while !shared.is_over() {
        if let Some(address) = shared.address() {
            let after = shared.newest();
            *shared.streams.lock().unwrap() += 1;
            // The server was killed, or was silent for a while.
            drop(follow(address, after, &shared.seen));
        }
        pause(5);
    }
}

fn start(dir: &Path) -> (Process, SocketAddr) {
    let mut command = binary();
    command.env("IRONSTONE_TRACKS_WEBHOOK_HOST", "127.0.0.1");
    serve_with(dir, command)
}

/// All points by entity: the second, and the longitude.
fn points(view: &dyn View) -> BTreeMap<(Fleet, Entity), BTreeMap<i64, f64>> {
    let mut out: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let mut rows = view.rows(Family::Default, &[], None).unwrap();
    rows.seek(&[]);
    while let Some((key, value)) = rows.row() {
        let (key, point) = (
            PointKey::of_bytes(key).unwrap(),
            Point::decode(value).unwrap(),
        );
        let of = out.entry((key.fleet, key.entity)).or_default();
        of.insert(key.time.0 / 1_000_000, point.position.degrees().1);
        rows.next();
    }
    rows.status().unwrap();
    out
}

/// Reports that were answered before the kill are there, and the rows are consistent, as seen by
/// another process and by this one.
fn assert_there(dir: &Path, shared: &Shared) {
    let checked = binary()
        .args(["check", "--json", "--dir"])
        .arg(dir)
        .output()
        .unwrap();
    let found: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(
        (checked.status.code(), &found["wrong"]),
        (Some(0), &json!(0))
    );
    let engine = Engine::open(dir).unwrap();
    assert_eq!(check(&engine).problems, []);
    let view = engine.view();
    let all = points(&*view);
    let of = |name: &str| (Fleet(1), Name::new(name).unwrap().number(0));
    assert!(all.keys().all(|(fleet, _)| *fleet == Fleet(1)));
    for (name, second) in shared.answered.lock().unwrap().iter() {
        let is_there = all
            .get(&of(name))
            .is_some_and(|points| points.contains_key(second));
        assert!(is_there, "{name} at {second}");
    }
    let mut with_events = BTreeSet::new();
    let mut events = view.rows(Family::Events, &[], None).unwrap();
    events.seek(&[]);
    while let Some((_, value)) = events.row() {
        let event: Event = serde_json::from_slice(value).unwrap();
        with_events.insert(event.entity);
        events.next();
    }
    for name in shared.erased.lock().unwrap().iter() {
        let (fleet, entity) = of(name);
        let key = EntityKey { fleet, entity }.to_bytes();
        let latest = view.get(Family::Latest, &key).unwrap();
        let has_points = all.contains_key(&(fleet, entity));
        assert!(
            latest.is_none() && !has_points && !with_events.contains(name),
            "{name} was erased"
        );
    }
}

/// The expected events of one entity's points at one fence.
fn right_events(points: &BTreeMap<i64, f64>, dwell: i64) -> Vec<(&'static str, i64)> {
    let mut out = Vec::new();
    let mut since: Option<(i64, bool)> = None;
    let mut before: Option<f64> = None;
    for (&second, &lon) in points {
        let is_in = (lon - 18.0).abs() < 1e-6;
        match (&mut since, is_in) {
            (None, true) => {
                out.push(("Enter", second));
                since = Some((second, false));
            }
            (Some((from, has_dwelled)), true) => {
                if dwell > 0 && !*has_dwelled && second - *from >= dwell {
                    *has_dwelled = true;
                    out.push(("Dwell", second));
                }
            }
            (Some(_), false) => {
                out.push(("Exit", second));
                since = None;
            }
            // From one side to the other.
            (None, false) if before.is_some_and(|b| (b - lon).abs() > 0.1) => {
                out.push(("Cross", second));
            }
            (None, false) => {}
        }
        before = Some(lon);
    }
    out
}

/// Checks that each crossing of the stored points has exactly one event. Returns all ids.
fn assert_events(dir: &Path) -> Vec<u64> {
    let tracks = Tracks::open(dir, &Options::default()).unwrap();
    let of = |fleet| {
        tracks
            .events()
            .read(&**tracks.store(), fleet, 0, usize::MAX)
    };
    let events = of(Fleet(1)).unwrap();
    let ids = events.iter().map(|event| event.id).collect();
    let said = |e: Event| (e.entity, e.fence, format!("{:?}", e.kind), e.time);
    let mut found: Vec<_> = events.into_iter().map(said).collect();
    let all = points(&*tracks.view());
    let mut right = Vec::new();
    let mut names: BTreeSet<String> = (0..WRITERS * EACH).map(|n| format!("e{n}")).collect();
    // The last one may not be erased yet.
    let gone = found.iter().map(|(entity, ..)| entity.clone());
    names.extend(gone.filter(|entity| entity.starts_with("gone")));
    for name in names {
        let number = Name::new(&name).unwrap().number(0);
        for (fence, dwell) in [("depot", 0), ("zone", DWELL)] {
            let events = right_events(&all[&(Fleet(1), number)], dwell);
            let one = |(kind, second): (&str, i64)| {
                (
                    name.clone(),
                    fence.to_owned(),
                    kind.to_owned(),
                    second * 1_000_000,
                )
            };
            right.extend(events.into_iter().map(one));
        }
    }
    found.sort_unstable();
    right.sort_unstable();
    for kind in ["Enter", "Exit", "Dwell", "Cross"] {
        assert!(right.iter().any(|(_, _, of, _)| of == kind), "{kind}");
    }
    assert!(found == right, "{} and {}", found.len(), right.len());
    ids
}

/// Each event was seen, once and in order, and was sent to the webhook; all seen events are stored,
/// except those of erased entities.
fn assert_seen(shared: &Shared, ids: &[u64], hooked: &BTreeSet<u64>) {
    let seen = shared.seen.lock().unwrap();
    assert!(
        seen.is_sorted_by(|a, b| a.0 < b.0),
        "an event came twice, or late"
    );
    let ids: BTreeSet<u64> = ids.iter().copied().collect();
    for (id, entity) in seen.iter() {
        assert!(
            ids.contains(id) || entity.starts_with("gone"),
            "{entity}: it was given out and is lost"
        );
    }
    let seen: BTreeSet<u64> = seen.iter().map(|(id, _)| *id).collect();
    assert!(ids.is_subset(&seen), "a stream missed one");
    assert!(ids.is_subset(hooked), "a webhook missed one");
}

fn make_fences(shared: &Shared, receiver: &Receiver) {
    let circle = json!({"type": "Circle", "center": [18.0, 59.0], "radius": 500});
    let corners = [
        [17.99, 58.99],
        [18.01, 58.99],
        [18.01, 59.01],
        [17.99, 59.01],
        [17.99, 58.99],
    ];
    let polygon = json!({"type": "Polygon", "coordinates": [corners]});
    let puts = [
        ("/fences/depot", json!({ "area": circle })),
        ("/fences/zone", json!({"area": polygon, "dwell": DWELL})),
        ("/webhooks/h", json!({ "url": receiver.url() })),
    ];
    for (path, body) in puts {
        shared.call("PUT", path, &body.to_string(), &[200]).unwrap();
    }
}

/// `IRONSTONE_TRACKS_KILLS` sets the number of kills.
#[test]
fn what_was_answered_survives_sigkill_and_who_listens_misses_nothing() {
    let kills = std::env::var("IRONSTONE_TRACKS_KILLS").map_or(6, |n| n.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::new(&[]);
    let shared = Arc::new(Shared::default());
    let (process, address) = start(dir.path());
    *shared.address.lock().unwrap() = Some(address);
    make_fences(&shared, &receiver);
    let run = |work: Box<dyn FnOnce(&Shared) + Send>| {
        let shared = Arc::clone(&shared);
        thread(move || work(&shared))
    };
    let mut threads: Vec<Joined<()>> = (0..WRITERS)
        .map(|seed| run(Box::new(move |shared: &Shared| write(shared, seed))))
        .collect();
    threads.push(run(Box::new(erase)));
    let listener = run(Box::new(listen));
    let (mut process, mut rng) = (process, Rng::new(77));
    for _ in 0..kills {
        pause(300 + rng.below(700));
        *shared.address.lock().unwrap() = None;
        // SIGKILL, in the middle of it.
        drop(process);
        assert_there(dir.path(), &shared);
        let (again, address) = start(dir.path());
        process = again;
        *shared.address.lock().unwrap() = Some(address);
    }
    shared.ended.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    listener.join().unwrap();
    drop(process);
    assert_there(dir.path(), &shared);
    let ids = assert_events(dir.path());

    // The remaining events are delivered after the last id, and to the webhook.
    let (process, address) = start(dir.path());
    let last = *ids.last().unwrap();
    // A stream ends two seconds after the last event, or earlier if the machine stalls.
    for _ in 0..10 {
        if shared.newest() < last {
            drop(follow(address, shared.newest(), &shared.seen));
        }
    }
    assert!(shared.newest() >= last, "{} of {last}", shared.newest());
    let hooked = || -> BTreeSet<u64> { receiver.came().iter().flat_map(Came::ids).collect() };
    eventually("the webhook has all", || hooked().contains(&last));
    drop(process);

    assert_seen(&shared, &ids, &hooked());
    let (count, streams) = (
        shared.answered.lock().unwrap().len(),
        *shared.streams.lock().unwrap(),
    );
    let erased = shared.erased.lock().unwrap().len();
    eprintln!(
        "{kills} kills, {count} reports, {} events, {erased} erased",
        ids.len()
    );
    assert!(
        count > 200 && ids.len() > 200 && streams >= kills && erased > 3,
        "{count} {streams} {erased}"
    );
}

/// Where nobody waits for the device, an answered report is in the log, which the system has.
#[test]
fn visible_reports_survive_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let shared = Arc::new(Shared::default());
    let mut answered = 0;
    for kill in 0..3 {
        let (process, address) = start(dir.path());
        *shared.address.lock().unwrap() = Some(address);
        let threads: Vec<Joined<()>> = (0..WRITERS)
            .map(|writer| {
                let shared = Arc::clone(&shared);
                thread(move || visible(&shared, (kill, writer)))
            })
            .collect();
        pause(400);
        *shared.address.lock().unwrap() = None;
        drop(process);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_there(dir.path(), &shared);
        let count = shared.answered.lock().unwrap().len();
        assert!(count > answered + 20, "{count} reports");
        answered = count;
    }
}

/// Sends visible reports until the server is gone.
fn visible(shared: &Shared, (kill, writer): (u32, u32)) {
    let agent = agent();
    let name = format!("v{writer}");
    for nth in 0_u32.. {
        let Some(address) = shared.address() else {
            return;
        };
        let time = T + f64::from(kill * 1_000_000 + nth);
        let url = format!("http://{address}/v1/fleets/f/reports?ack=visible");
        if let Ok(answer) = agent.post(url).send(line(&name, time, 59.0, 18.0)) {
            assert_eq!(answer.status(), 200);
            let mut all = shared.answered.lock().unwrap();
            all.push((name.clone(), time as i64));
        }
    }
}
