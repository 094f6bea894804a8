//! Streams of server-sent events.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use base::rng::Rng;

use base::sync::atomic::{AtomicBool, Ordering};
use serde_json::{Value, json};
use tracks::http::Config;
use tracks::service::Options;
use tracks::store::{Engine, Family, Store};

use super::{T, TIMEOUT, World, eventually, line, thread, timed};

/// A message, or a comment, which has the event ":".
#[derive(Debug, Default)]
struct Message {
    event: String,
    id: Option<u64>,
    data: Value,
}

/// A client. It speaks HTTP/1.0, so that the answer is not chunked.
struct Client {
    lines: BufReader<TcpStream>,
}

impl Client {
    fn try_new(address: SocketAddr, query: &str, headers: &str) -> Result<Self, String> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let head =
            format!("GET /v1/fleets/f/stream?{query} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(lines.read_line(&mut head).unwrap(), 0, "{head}");
        }
        if head.contains(" 200 ") {
            assert!(
                head.contains("content-type: text/event-stream\r\n"),
                "{head}"
            );
            return Ok(Self { lines });
        }
        lines.read_to_string(&mut head).unwrap();
        Err(head)
    }

    fn new(world: &World, query: &str, headers: &str) -> Self {
        Self::try_new(world.address(), query, headers).unwrap()
    }

    /// The next message. `None` at the end.
    fn next(&mut self) -> Option<Message> {
        let mut message = Message::default();
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).ok()? == 0 || !line.ends_with('\n') {
                return None;
            }
            let line = line.trim_end_matches('\n');
            match line.split_once(": ") {
                None if line.is_empty() => return Some(message),
                Some(("", "")) => ":".clone_into(&mut message.event),
                Some(("retry", millis)) => assert_eq!(millis, "2000"),
                Some(("event", event)) => event.clone_into(&mut message.event),
                Some(("id", id)) => message.id = Some(id.parse().unwrap()),
                Some(("data", data)) => message.data = serde_json::from_str(data).unwrap(),
                _ => panic!("{line:?}"),
            }
        }
    }

    /// The id in the first message.
    fn hello(&mut self) -> u64 {
        let hello = self.next().unwrap();
        assert_eq!(hello.event, "hello");
        let after = hello.data["after"].as_u64().unwrap();
        assert_eq!(hello.id, Some(after));
        after
    }

    /// Reads events until there are `count`, or the stream ends; comments and positions are
    /// skipped.
    fn events(&mut self, count: usize) -> Vec<Value> {
        let mut all = Vec::new();
        while all.len() < count {
            let Some(message) = self.next() else {
                return all;
            };
            if message.event == "bye" {
                return all;
            }
            if !matches!(message.event.as_str(), ":" | "position" | "gone") {
                assert_eq!(message.data["kind"], message.event.as_str());
                assert_eq!(message.id, message.data["id"].as_u64());
                all.push(message.data);
            }
        }
        all
    }
}

/// A short form, such as `position a 18`.
fn said(message: &Message) -> String {
    let data = &message.data;
    let entity = data["entity"].as_str().unwrap();
    match message.event.as_str() {
        "position" => format!("position {entity} {}", data["lon"]),
        other => format!("{other} {entity}"),
    }
}

#[test]
fn events_and_positions_come_as_they_happen() {
    let world = World::new();
    world.fence("depot", 18.0);
    world.report(&line("a", T, 59.0, 17.9));
    let mut all = Client::new(&world, "", "");
    let mut near = Client::new(&world, "bbox=17.95,58.9,18.05,59.1&events=false", "");
    let mut free = Client::new(&world, "circle=59,18,1000&events=false", "");
    let mut only = Client::new(&world, "positions=false", "");
    let after = all.hello();
    for client in [&mut near, &mut free, &mut only] {
        assert!(client.hello() >= after);
    }
    let report = json!({"entity": "a", "lat": 59.0, "lon": 18.0, "time": T + 60.0, "speed": 13.9, "course": 90, "tags": ["free"]});
    world.report(&report.to_string());
    let mut both = [all.next().unwrap(), all.next().unwrap()];
    both.sort_unstable_by_key(|m| m.event.clone());
    let [enter, position] = both;
    assert_eq!((said(&enter).as_str(), position.id), ("enter a", None));
    assert_eq!(
        position.data,
        json!({"entity": "a", "lat": 59.0, "lon": 18.0, "time": T + 60.0, "speed": 13.9, "course": 90.0, "tags": ["free"]})
    );
    assert_eq!(said(&only.next().unwrap()), "enter a");
    for client in [&mut near, &mut free] {
        assert_eq!(said(&client.next().unwrap()), "position a 18.0");
    }
    // A late report does not move an entity, and one far away is not in the area.
    world.report(&line("a", T + 30.0, 59.0, 18.01));
    world.report(&line("b", T, 10.0, 10.0));
    world.report(&line("a", T + 120.0, 59.0, 18.04));
    assert_eq!(said(&near.next().unwrap()), "position a 18.04");
    assert_eq!(said(&free.next().unwrap()), "gone a");
    world.report(&line("a", T + 180.0, 59.0, 18.2));
    assert_eq!(said(&near.next().unwrap()), "gone a");
    world.report(&line("a", T + 240.0, 59.0, 18.3));
    world.report(&line("a", T + 400.0, 59.0, 18.0));
    assert_eq!(said(&near.next().unwrap()), "position a 18.0");
    assert_eq!(said(&only.next().unwrap()), "exit a");
    assert_eq!(said(&only.next().unwrap()), "enter a");
    // The entity is erased: streams that show it are told so, and those that were told before are
    // not told again.
    assert_eq!(said(&free.next().unwrap()), "position a 18.0");
    world.report(&line("a", T + 460.0, 59.0, 18.04));
    assert_eq!(said(&free.next().unwrap()), "gone a");
    assert_eq!(said(&near.next().unwrap()), "position a 18.04");
    assert_eq!(world.delete("/v1/fleets/f/entities/a").status, 204);
    assert_eq!(said(&near.next().unwrap()), "gone a");
    world.report(&line("a", T, 59.0, 18.0));
    for client in [&mut near, &mut free] {
        assert_eq!(said(&client.next().unwrap()), "position a 18.0");
    }
}

/// A stream survives a silence longer than the idle timeout, and then delivers an event.
#[test]
fn a_quiet_stream_is_not_idle() {
    let config = Config {
        idle_timeout: Duration::from_millis(200),
        head_timeout: Duration::from_millis(200),
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    world.fence("depot", 18.0);
    let mut client = Client::new(&world, "", "");
    client.hello();
    SystemClock::shared().sleep(Duration::from_millis(900));
    world.report(&line("a", T, 59.0, 18.0));
    assert_eq!(client.events(1).len(), 1);
}

#[test]
fn streams_are_bounded_and_what_is_wrong_is_named() {
    let config = Config {
        streams: 2,
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    world.report(&line("a", T, 1.0, 2.0));
    let refused = |query: &str, headers: &str| {
        Client::try_new(world.address(), query, headers)
            .err()
            .unwrap()
    };
    for (query, headers, why) in [
        ("bbox=1,2,3", "", "bbox"),
        ("bbox=1,2,3,4&circle=1,2,3", "", "bbox"),
        ("tag=none", "", "none"),
        ("positions=maybe", "", "positions"),
        ("positions=false&events=false", "", "nothing would come"),
        ("after=x", "", "after"),
        ("", "Last-Event-ID: x\r\n", "Last-Event-ID"),
        ("", "Last-Event-ID: -1\r\n", "Last-Event-ID"),
        ("x=1", "", "no parameter"),
    ] {
        let answer = refused(query, headers);
        assert!(
            answer.contains(" 400 ") && answer.contains(why),
            "{query}: {answer}"
        );
    }
    let (first, second) = (Client::new(&world, "", ""), Client::new(&world, "", ""));
    let answer = refused("", "");
    assert!(
        answer.contains(" 503 ")
            && answer.contains("--max-streams")
            && answer.contains("retry-after: 5"),
        "{answer}"
    );
    assert!(world.get("/metrics").text.contains("\ntracks_streams 2\n"));
    drop((first, second));
    eventually("places are given back", || {
        Client::try_new(world.address(), "", "").is_ok()
    });
    // Streams do not take places from queries, whatever their number.
    assert_eq!(world.get("/v1/fleets/f/entities/a").status, 200);
}

/// Sends reports of some entities that enter and leave, until it is told to stop.
fn drive(
    world: &World,
    ended: &Arc<AtomicBool>,
    entities: std::ops::Range<u32>,
) -> super::Joined<()> {
    let (agent, url) = (world.agent.clone(), world.url("/v1/fleets/f/reports"));
    let ended = Arc::clone(ended);
    thread(move || {
        for nth in 0_u32.. {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            let lon = if nth % 2 == 0 { 18.0 } else { 17.9 };
            let time = T + 60.0 * f64::from(nth);
            let lines = entities
                .clone()
                .map(|e| line(&format!("e{e}"), time, 59.0, lon));
            let body = lines.collect::<Vec<_>>().join("\n");
            assert_eq!(agent.post(&url).send(body).unwrap().status(), 200);
        }
    })
}

/// What a client has received that came and went.
struct Received {
    /// The number that it began after.
    start: u64,
    seen: Vec<u64>,
    /// The number that it ended with.
    end: u64,
}

/// A client that comes and goes, and resumes after the last id it has seen. It comes for the last time when `ended`.
fn come_and_go(address: SocketAddr, ended: &AtomicBool, seed: u64) -> Received {
    let mut rng = Rng::new(seed);
    let (mut seen, mut after, mut start) = (Vec::new(), 0, None);
    loop {
        let is_last = ended.load(Ordering::Relaxed);
        let headers = format!("Last-Event-ID: {after}\r\n");
        let (query, headers) = match (start, rng.below(2)) {
            (None, _) => (String::new(), String::new()),
            (_, 0) => (format!("after={after}"), String::new()),
            // The header has priority.
            _ => ("after=1".to_owned(), headers),
        };
        let mut client = Client::try_new(address, &query, &headers).unwrap();
        let hello = client.hello();
        assert!(start.is_none() || hello == after);
        let start = *start.get_or_insert(hello);
        after = hello;
        if is_last {
            return Received {
                start,
                seen,
                end: after,
            };
        }
        for event in client.events(1 + rng.below(300) as usize) {
            after = event["id"].as_u64().unwrap();
            seen.push(after);
        }
    }
}

/// Clients that come and go get each event once.
#[test]
fn who_comes_again_misses_no_event_and_gets_none_twice() {
    let world = World::new();
    world.fence("a", 18.0);
    world.fence("b", 18.0);
    world.report(&line("x", T, 1.0, 2.0));
    let ended = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|n| drive(&world, &ended, n * 5..n * 5 + 5))
        .collect();
    let clients: Vec<_> = (0..6_u64)
        .map(|seed| {
            let (address, ended) = (world.address(), Arc::clone(&ended));
            thread(move || come_and_go(address, &ended, seed))
        })
        .collect();
    SystemClock::shared().sleep(Duration::from_secs(3));
    ended.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().unwrap();
    }
    // Events for the clients that still wait.
    for nth in 0..400 {
        let lon = if nth % 2 == 0 { 18.0 } else { 17.9 };
        world.report(&line("last", T + 60.0 * f64::from(nth), 59.0, lon));
    }
    let all: Vec<u64> = world
        .events()
        .iter()
        .map(|e| e["id"].as_u64().unwrap())
        .collect();
    assert!(all.len() > 1000 && all.is_sorted(), "{}", all.len());
    for client in clients {
        let Received { start, seen, end } = client.join().unwrap();
        let right = all.iter().filter(|id| **id > start && **id <= end);
        assert!(
            right.copied().eq(seen.iter().copied()),
            "{} seen",
            seen.len()
        );
    }
    // Once more, from the beginning, and from an id whose later events are still in memory.
    let count = all.len();
    for from in [0, all[count - 20], all[count - 400]] {
        let mut client = Client::new(&world, &format!("after={from}&positions=false"), "");
        assert_eq!(client.hello(), from);
        let right: Vec<u64> = all.iter().copied().filter(|id| *id > from).collect();
        let found = client.events(right.len());
        let found: Vec<u64> = found.iter().map(|e| e["id"].as_u64().unwrap()).collect();
        assert_eq!(found, right);
    }
}

/// Long names, and many fences in one place: 1.7 MB of events in each round except the first.
fn many_events(world: &World, rounds: u32) -> usize {
    let (fences, entities) = (40, 100);
    for nth in 0..fences {
        world.fence(&format!("{}{nth}", "f".repeat(100)), 18.0);
    }
    for nth in 0..rounds {
        let lon = if nth % 2 == 0 { 17.9 } else { 18.0 };
        let time = T + 60.0 * f64::from(nth);
        let name = |e: usize| format!("{}{e}", "e".repeat(100));
        let lines = (0..entities).map(|e| line(&name(e), time, 59.0, lon));
        world.report(&lines.collect::<Vec<_>>().join("\n"));
    }
    (rounds as usize - 1) * fences * entities
}

#[test]
fn a_slow_reader_is_cut_off_and_goes_on() {
    let config = Config {
        write_timeout: Duration::from_millis(400),
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    world.report(&line("x", T, 1.0, 2.0));
    let mut slow = Client::new(&world, "after=0", "");
    let mut quick = Client::new(&world, "after=0&positions=false", "");
    slow.hello();
    quick.hello();
    let reader = thread(move || quick.events(36_000).len());
    let count = many_events(&world, 10);
    assert_eq!(count, 36_000);
    // The slow client does not hold up the others.
    assert_eq!(reader.join().unwrap(), count);
    eventually("it is cut off", || {
        world.get("/metrics").text.contains("\ntracks_streams 0\n")
    });
    // Buffered bytes still arrive; the last message may be incomplete.
    let mut seen = slow.events(usize::MAX);
    assert!(!seen.is_empty() && seen.len() < count, "{}", seen.len());
    let last = seen.last().unwrap()["id"].as_u64().unwrap();
    let mut again = Client::new(
        &world,
        "positions=false",
        &format!("Last-Event-ID: {last}\r\n"),
    );
    assert_eq!(again.hello(), last);
    seen.extend(again.events(count - seen.len()));
    assert_eq!(seen, world.events());
}

#[test]
fn who_reads_slowly_gets_the_newest_of_each_entity() {
    let world = World::new();
    world.report(&line("x", T, 1.0, 2.0));
    let mut client = Client::new(&world, "events=false", "");
    client.hello();
    let total = 300;
    for nth in 0..total {
        let all =
            ["a", "b"].map(|e| line(e, T + 60.0 * f64::from(nth), 59.0, f64::from(nth) / 100.0));
        world.report(&all.join("\n"));
    }
    let (mut newest, mut count) = (BTreeMap::new(), 0);
    while newest
        .values()
        .filter(|lon| **lon > f64::from(total - 2) / 100.0 + 0.005)
        .count()
        < 2
    {
        let message = client.next().unwrap();
        let lon = message.data["lon"].as_f64().unwrap();
        let before = newest.insert(said(&message).chars().nth(9).unwrap(), lon);
        assert!(before.is_none_or(|before| before < lon));
        count += 1;
    }
    assert!(count < total, "{count}");
    let metrics = world.get("/metrics").text;
    let of = "\ntracks_stream_positions_coalesced_total ";
    let coalesced = metrics.split_once(of).unwrap().1.lines().next().unwrap();
    assert_eq!(
        coalesced.parse::<u32>().unwrap() + count as u32,
        2 * total as u32
    );
}

#[test]
fn streams_end_in_order_when_the_server_stops() {
    let mut world = World::new();
    world.report(&line("x", T, 1.0, 2.0));
    let mut idle: Vec<Client> = (0..8).map(|_| Client::new(&world, "", "")).collect();
    let mut stuck = Client::new(&world, "after=0", "");
    let after = stuck.hello();
    many_events(&world, 10);
    let all = world.events();
    let ids: Vec<u64> = all.iter().map(|e| e["id"].as_u64().unwrap()).collect();
    let readers: Vec<_> = idle
        .drain(..)
        .map(|mut client| {
            thread(move || {
                let start = client.hello();
                let mut last = start;
                loop {
                    let message = client.next().expect("the end comes with a message");
                    last = message.id.unwrap_or(last);
                    if message.event == "bye" {
                        assert!(client.next().is_none());
                        return (last, message.data["after"].as_u64().unwrap());
                    }
                }
            })
        })
        .collect();
    SystemClock::shared().sleep(Duration::from_millis(700));
    let (stopped, time) = timed(|| world.server.take().unwrap().stop());
    stopped.unwrap();
    // Far less than a drain or a write may take.
    assert!(time < Duration::from_secs(8), "{time:?}");
    for reader in readers {
        let (seen, said) = reader.join().unwrap();
        // Events that were not sent are after the id in the last message.
        let between = ids.iter().filter(|id| **id > seen && **id <= said);
        assert!(said >= seen && between.count() == 0, "{seen} {said}");
    }
    // The client that read nothing was cut off.
    let seen = stuck.events(usize::MAX);
    assert!(after == 0 && seen.len() < ids.len(), "{}", seen.len());
}

/// Events that are too old are hidden at once, not only after the next housekeeping.
#[test]
fn events_are_hidden_once_they_are_older_than_the_fleet_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Engine::open(dir.path()).unwrap());
    let old = SystemClock::shared().wall_micros() - 3 * 86_400_000_000;
    let event = json!({
        "kind": "enter", "fence": "depot", "entity": "secret", "time": 1, "lat": 59.0, "lon": 18.0,
    });
    let key = [&1_u32.to_be_bytes()[..], &old.to_be_bytes()].concat();
    let mut batch = ironstone::WriteBatch::new();
    let family = store.id(Family::Events);
    let value = event.to_string();
    batch.cf_id(family).put(&key, value.as_bytes()).unwrap();
    store.write(batch, None).unwrap();
    let configs = (Config::default(), None);
    let world = World::over(dir, store, &Options::default(), configs);
    world.fence("depot", 18.0);
    world.report(&line("a", T, 59.0, 17.9));
    world.report(&line("a", T + 60.0, 59.0, 18.0));
    assert_eq!(whose(&world.events()), ["secret", "a"]);
    assert_eq!(world.put("/v1/fleets/f", r#"{"keep_days":1}"#).status, 200);
    assert_eq!(whose(&world.events()), ["a"]);
    let mut client = Client::new(&world, "positions=false", "Last-Event-ID: 0\r\n");
    assert_eq!(client.hello(), 0);
    assert_eq!(whose(&client.events(1)), ["a"]);
    // Hidden events are skipped, also if there are no others.
    assert_eq!(world.put("/v1/fleets/f", r#"{"keep_days":2}"#).status, 200);
    let found = world.get(&format!("/v1/fleets/f/events?after={}&limit=1", old - 1));
    assert_eq!(whose(found.json()["events"].as_array().unwrap()), ["a"]);
}

fn whose(events: &[Value]) -> Vec<&str> {
    let all = events.iter();
    all.map(|event| event["entity"].as_str().unwrap()).collect()
}

/// A slow stream is not sent a position of an entity after the answer to its erasure.
#[test]
fn no_position_is_sent_behind_the_answer_to_its_erasure() {
    let world = World::new();
    world.report(&line("first", T, 59.0, 17.9));
    let mut slow = Client::new(&world, "events=false", "");
    slow.hello();
    // More than the buffers hold for a client that reads nothing, and less than may wait in its
    // queue.
    let socket = socket2::SockRef::from(slow.lines.get_ref());
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let long = "x".repeat(110);
    for part in 0..12 {
        let lines = (0..1000).map(|n| line(&format!("{long}-{part}-{n}"), T, 59.0, 17.9));
        world.report(&lines.collect::<Vec<_>>().join("\n"));
    }
    world.report(&[line("secret", T, 59.0, 17.9), line("kept", T, 59.0, 17.9)].join("\n"));
    assert_eq!(world.delete("/v1/fleets/f/entities/secret").status, 204);
    world.report(&line("last", T, 59.0, 17.9));
    let socket = socket2::SockRef::from(slow.lines.get_ref());
    socket.set_recv_buffer_size(4 << 20).unwrap();
    let mut names = Vec::new();
    let mut until = |last: &[&str]| {
        let is_left = |names: &[String]| last.iter().any(|last| !names.iter().any(|n| n == last));
        while is_left(&names) {
            let message = slow.next().unwrap();
            if message.event == "position" {
                names.push(message.data["entity"].as_str().unwrap().to_owned());
            }
        }
    };
    // Positions that the pump takes together come in any order; later ones come after them.
    until(&["kept", "last"]);
    world.report(&line("end", T, 59.0, 17.9));
    until(&["end"]);
    let has = |name: &str| names.iter().any(|other| other == name);
    assert_eq!((has("kept"), has("secret")), (true, false));
}
