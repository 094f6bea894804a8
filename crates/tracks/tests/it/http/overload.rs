//! Overload, and stores that fail: each error is named, in bounded time, and other calls go on.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use base::sync::thread::Builder;
use base::sync::{Condvar, Mutex};
use base::{Error, ErrorKind, Result};
use ironstone::WriteBatch;
use serde_json::json;
use tracks::http::Config;
use tracks::http::tokens::{self, Scope, Tokens, Wanted};
use tracks::service::Options;
use tracks::store::{Engine, Family, Stall, Store, Told, View};

use super::receiver::Receiver;
use super::{Answer, T, World, agent, eventually, line};

/// The fault of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ill {
    /// Nothing.
    No,
    /// Writes fail with this kind.
    Writes(ErrorKind),
    /// Writes become visible, but the device fails afterwards.
    Device,
    /// Writes block.
    Stalled,
    /// Reads block.
    Blind,
    /// Waiting for durability blocks.
    Deaf,
}

#[derive(Debug)]
struct State {
    ill: Mutex<Ill>,
    changed: Condvar,
}

impl State {
    fn set(&self, ill: Ill) {
        *self.ill.lock().unwrap() = ill;
        self.changed.notify_all();
    }

    /// Blocks while the store has this fault. Returns the fault afterwards.
    fn wait_while(&self, ill: Ill) -> Ill {
        let mut now = self.ill.lock().unwrap();
        while *now == ill {
            now = self.changed.wait(now).unwrap();
        }
        *now
    }
}

/// An engine with injected faults.
struct Patient(Engine, Arc<State>);

impl Store for Patient {
    fn id(&self, family: Family) -> u32 {
        self.0.id(family)
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(family, key)
    }

    fn view(&self) -> Box<dyn View + '_> {
        self.1.wait_while(Ill::Blind);
        self.0.view()
    }

    fn write(&self, batch: WriteBatch, durable: Option<Told>) -> Result<u64> {
        match (self.1.wait_while(Ill::Stalled), durable) {
            (Ill::Writes(kind), _) => Err(Error::new(kind, "the disk of this test")),
            (Ill::Device, Some(told)) => {
                let number = self.0.write(batch, None)?;
                told(
                    number,
                    Err(Error::new(
                        ErrorKind::IoError,
                        "the device of this test is gone",
                    )),
                );
                Ok(number)
            }
            (_, durable) => self.0.write(batch, durable),
        }
    }

    fn last_number(&self) -> u64 {
        self.0.last_number()
    }

    fn stall(&self) -> Option<Stall> {
        let is_stalled = *self.1.ill.lock().unwrap() == Ill::Stalled;
        is_stalled.then(|| Stall {
            is_stopped: true,
            family: "geohash".to_owned(),
            cause: "l0-file-count-limit",
            option: "level0_stop_writes_trigger",
        })
    }

    fn when_durable(&self, told: Told) {
        self.0.when_durable(told);
    }

    fn wait_durable(&self, number: u64) -> Result<()> {
        self.1.wait_while(Ill::Deaf);
        self.0.wait_durable(number)
    }
}

fn patient(options: &Options, config: Config) -> (World, Arc<State>) {
    patient_of(options, (config, None))
}

fn patient_of(options: &Options, config: (Config, Option<Tokens>)) -> (World, Arc<State>) {
    let dir = tempfile::tempdir().unwrap();
    let state = Arc::new(State {
        ill: Mutex::new(Ill::No),
        changed: Condvar::new(),
    });
    let store = Patient(Engine::open(dir.path()).unwrap(), Arc::clone(&state));
    (World::over(dir, Arc::new(store), options, config), state)
}

const REPORTS: &str = "/v1/fleets/f/reports";

fn send(world: &World, nth: u32) -> Answer {
    world.post(REPORTS, &line("a", T + f64::from(nth), 1.0, 2.0))
}

fn queue_age(world: &World) -> f64 {
    let text = world.get("/metrics").text;
    let mut lines = text.lines();
    let age = lines.find_map(|line| line.strip_prefix("tracks_queue_age_seconds "));
    age.unwrap().parse().unwrap()
}

fn reads_go_on(world: &World) {
    assert_eq!(world.get("/v1/fleets/f/entities/a").status, 200);
    assert_eq!(world.get("/v1/fleets/f/within?circle=1,2,10").status, 200);
    assert_eq!(world.get("/readyz").status, 200);
    assert_eq!(world.get("/metrics").status, 200);
}

#[test]
fn a_full_disk_and_a_dead_device_are_said_and_reads_go_on() {
    let (world, state) = patient(&Options::default(), Config::default());
    assert_eq!(send(&world, 0).status, 200);
    assert_eq!(
        world
            .get("/osmand?fleet=f&id=b&lat=1&lon=2&timestamp=1700000000")
            .status,
        200
    );
    let cases = [
        (Ill::Writes(ErrorKind::NoSpace), 503, "no-space", "60"),
        (Ill::Writes(ErrorKind::IoError), 500, "storage", ""),
        (Ill::Device, 500, "storage", ""),
    ];
    for (nth, (ill, status, kind, again)) in (1..).zip(cases) {
        state.set(ill);
        let answer = send(&world, nth);
        assert_eq!(
            answer.problem(),
            (status, kind.to_owned()),
            "{}",
            answer.text
        );
        assert_eq!(answer.header("retry-after"), again);
        // The reason of a storage failure is in the log: it may contain more than callers should
        // know.
        let said = if status == 500 {
            "log says why"
        } else {
            "of this test"
        };
        assert!(answer.detail().contains(said), "{}", answer.text);
        // The device will send it again, because it is not acknowledged.
        let device = world.get(&format!(
            "/osmand?fleet=f&id=b&lat=1&lon=2&timestamp={}",
            1_700_000_000 + nth
        ));
        assert_eq!(device.problem(), (status, kind.to_owned()));
        // Reports that cannot be written do not make fleets and tags either.
        if ill != Ill::Device {
            let other = world.post("/v1/fleets/g/reports", &line("a", T, 1.0, 2.0));
            assert_eq!(other.problem(), (status, kind.to_owned()));
            let tagged = json!({"entity": "a", "lat": 1, "lon": 2, "tags": ["new"]}).to_string();
            assert_eq!(
                world.post(REPORTS, &tagged).problem(),
                (status, kind.to_owned())
            );
        }
        reads_go_on(&world);
    }
    state.set(Ill::No);
    for nth in 1..4 {
        assert_eq!(send(&world, nth).status, 200);
    }
    let track = world.get("/v1/fleets/f/entities/a/track").json();
    assert_eq!(track["parts"][0].as_array().unwrap().len(), 4);
}

/// Whether an answer of a stalled store says that there is no room; otherwise the call has waited
/// in vain.
fn is_full(busy: &Answer) -> bool {
    assert_eq!(busy.problem(), (503, "busy".to_owned()), "{}", busy.text);
    let seconds: u64 = busy.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&seconds));
    // The operator learns what to change.
    assert_eq!(busy.json()["stall"]["option"], "level0_stop_writes_trigger");
    let detail = busy.detail();
    assert!(detail.contains("geohash is at its l0-file-count-limit"));
    detail.contains("on their way already")
}

#[test]
fn a_stalled_store_is_said_and_nothing_piles_up() {
    let mut options = Options::default();
    (options.write.shards, options.write.reports_in_flight) = (1, 20);
    let config = Config {
        durable_timeout: Duration::from_millis(400),
        ..Config::default()
    };
    let (world, state) = patient(&options, config);
    assert_eq!(send(&world, 0).status, 200);
    state.set(Ill::Stalled);
    let clock = SystemClock::shared();
    let since = clock.monotonic_nanos();
    let mut seen = [0, 0];
    for nth in 1..40 {
        let address = world.address();
        let ask = move || {
            let body = line("a", T + f64::from(nth), 1.0, 2.0);
            super::answer(
                agent()
                    .post(format!("http://{address}{REPORTS}"))
                    .send(body),
            )
        };
        let asked = Builder::new().spawn(ask).unwrap();
        if nth < 21 {
            // These wait in vain; later ones are refused at once.
            clock.sleep(Duration::from_millis(5));
            drop(asked);
            seen[0] += 1;
            continue;
        }
        let busy = asked.join().unwrap();
        seen[1] += u32::from(is_full(&busy));
    }
    assert!(seen[1] > 10, "{seen:?}");
    assert!(queue_age(&world) > 0.1);
    // Refused reports make no fleet and no tag, which would have to be written.
    let new = world.post("/v1/fleets/new/reports", &line("a", T, 1.0, 2.0));
    assert_eq!(new.problem(), (503, "busy".to_owned()), "{}", new.text);
    let tagged = json!({"entity": "a", "lat": 1, "lon": 2, "tags": ["new"]}).to_string();
    assert_eq!(
        world.post(REPORTS, &tagged).problem(),
        (503, "busy".to_owned())
    );
    let device = world.get("/osmand?fleet=new&id=a&lat=1&lon=2&timestamp=1700000099");
    assert_eq!(device.problem(), (503, "busy".to_owned()));
    assert_eq!(world.get("/v1/fleets/new").status, 404);
    reads_go_on(&world);
    let device = world.get("/osmand?fleet=f&id=a&lat=1&lon=2&timestamp=1700000099");
    assert_eq!(device.problem(), (503, "busy".to_owned()));
    assert!(clock.monotonic_nanos() - since < 10_000_000_000);
    state.set(Ill::No);
    // All reports that were taken are there, and so are those that are sent again.
    let mut done = send(&world, 99);
    for _ in 0..50 {
        if done.status == 200 {
            break;
        }
        clock.sleep(Duration::from_millis(50));
        done = send(&world, 99);
    }
    assert_eq!(done.status, 200);
    assert!(done.json().get("stall").is_none());
    eventually("the queue is empty", || queue_age(&world) == 0.0);
    let points = world.get("/v1/fleets/f/entities/a/summary").json()["points"]
        .as_u64()
        .unwrap();
    assert!((20..=42).contains(&points), "{points}");
}

/// Cursors and devices of new fleets that wait for the device leave blocking threads for queries.
#[test]
fn what_waits_for_the_store_leaves_threads_for_questions() {
    const MANY: u32 = 80;
    let mut config = super::webhooks::config(&["127.0.0.1"], &[]);
    config.webhooks.timeout = Duration::from_secs(10);
    let (world, state) = patient(&Options::default(), config);
    let receiver = Receiver::new(&[]);
    assert_eq!(send(&world, 0).status, 200);
    world.fence("depot", 18.0);
    let hook = json!({"url": receiver.url()}).to_string();
    for nth in 0..MANY {
        let put = world.put(&format!("/v1/fleets/f/webhooks/h{nth}"), &hook);
        assert_eq!(put.status, 200, "{}", put.text);
    }
    state.set(Ill::Deaf);
    world.report(&[line("b", T, 59.0, 17.0), line("b", T + 600.0, 59.0, 18.0)].join("\n"));
    eventually("each has been sent the event", || {
        let came = receiver.came();
        let hooks: BTreeSet<String> = came
            .iter()
            .map(|c| c.json()["webhook"].to_string())
            .collect();
        hooks.len() == MANY as usize
    });
    reads_go_on(&world);
    state.set(Ill::Stalled);
    let devices = (0..MANY).map(|nth| {
        let address = world.address();
        let ask = move || {
            let path = format!("/osmand?fleet=new{nth}&id=a&lat=1&lon=2&timestamp=1700000000");
            super::answer(agent().get(format!("http://{address}{path}")).call()).status
        };
        Builder::new().spawn(ask).unwrap()
    });
    let devices: Vec<_> = devices.collect();
    for _ in 0..20 {
        reads_go_on(&world);
    }
    state.set(Ill::No);
    for device in devices {
        assert!([200, 503].contains(&device.join().unwrap()));
    }
}

#[test]
fn questions_end_in_time_and_wait_for_their_turn_in_vain() {
    let config = Config {
        query_timeout: Duration::ZERO,
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    let lines: Vec<String> = (0..3000)
        .map(|n| line(&format!("e{n}"), T, 1.0, 2.0))
        .collect();
    assert_eq!(world.post(REPORTS, &lines.join("\n")).status, 200);
    for path in [
        "within?bbox=0,0,3,3&limit=10000",
        "nearby?lat=1&lon=2&k=5000",
        "density?bbox=0,0,3,3",
    ] {
        let late = world.get(&format!("/v1/fleets/f/{path}"));
        assert_eq!(
            late.problem(),
            (503, "query-timeout".to_owned()),
            "{path}: {:.200}",
            late.text
        );
    }
    let config = Config {
        queries: 2,
        queue_timeout: Duration::from_millis(300),
        ..Config::default()
    };
    let (world, state) = patient(&Options::default(), config);
    assert_eq!(send(&world, 0).status, 200);
    state.set(Ill::Blind);
    let asked: Vec<_> = (0..2)
        .map(|_| {
            let url = world.url("/v1/fleets/f/within?circle=1,2,10");
            Builder::new()
                .spawn(move || super::answer(agent().get(url).call()))
                .unwrap()
        })
        .collect();
    SystemClock::shared().sleep(Duration::from_millis(200));
    let busy = world.get("/v1/fleets/f/within?circle=1,2,10");
    assert_eq!(busy.problem(), (503, "busy".to_owned()));
    assert!(
        busy.detail().contains("2 queries run already"),
        "{}",
        busy.text
    );
    assert_eq!(busy.header("retry-after"), "1");
    // Reports and the state of the server do not count as queries.
    assert_eq!(send(&world, 1).status, 200);
    assert_eq!(world.get("/readyz").status, 200);
    state.set(Ill::No);
    for one in asked {
        assert_eq!(one.join().unwrap().status, 200);
    }
}

/// Slow queries with one token leave places for others.
#[test]
fn slow_questions_of_one_token_leave_places_for_others() {
    let make = |name: &str, scopes: &[Scope]| {
        tokens::make(Wanted {
            name: name.to_owned(),
            scopes: scopes.to_vec(),
            fleets: Vec::new(),
            reports_per_second: None,
        })
        .unwrap()
    };
    let (slow, a) = make("slow", &[Scope::Read, Scope::Ingest]);
    let (other, b) = make("other", &[Scope::Read, Scope::Admin]);
    let tokens = Tokens::parse(&[a, b].join("\n")).unwrap();
    let config = Config {
        queries: 4,
        queue_timeout: Duration::from_millis(700),
        ..Config::default()
    };
    let (world, state) = patient_of(&Options::default(), (config, Some(tokens)));
    let bearer = format!("Bearer {slow}");
    let report = line("a", T, 1.0, 2.0);
    let sent = world.send(REPORTS, &[("authorization", &bearer)], report.as_bytes());
    assert_eq!(sent.status, 200);
    state.set(Ill::Blind);
    let asked: Vec<_> = (0..8)
        .map(|_| {
            let (url, bearer) = (
                world.url("/v1/fleets/f/within?circle=1,2,10"),
                bearer.clone(),
            );
            let ask = move || {
                let request = agent().get(url).header("authorization", bearer);
                super::answer(request.call())
            };
            Builder::new().spawn(ask).unwrap()
        })
        .collect();
    SystemClock::shared().sleep(Duration::from_millis(200));
    // It needs a place, but nothing for which the others wait.
    let metrics = world.get_as("/metrics", &other);
    assert_eq!(metrics.status, 200, "{}", metrics.text);
    SystemClock::shared().sleep(Duration::from_millis(700));
    state.set(Ill::No);
    let answers: Vec<Answer> = asked.into_iter().map(|one| one.join().unwrap()).collect();
    let busy = answers.iter().filter(|answer| answer.status == 503);
    let told: Vec<String> = busy.map(Answer::detail).collect();
    assert_eq!(told.len(), 6, "{told:?}");
    assert!(
        told.iter().all(|detail| detail.contains("\"slow\"")),
        "{told:?}"
    );
}

fn connections(world: &World) -> i64 {
    let text = world.get("/metrics").text;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("tracks_connections "));
    value.unwrap().parse().unwrap()
}

#[test]
fn who_takes_nothing_of_an_answer_is_cut_off() {
    let config = Config {
        write_timeout: Duration::from_millis(500),
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    let pad = "x".repeat(1000);
    let report = |n: u32| {
        let (time, attributes) = (T + f64::from(n), json!({ "pad": pad }));
        json!({"entity": "a", "lat": 1, "lon": 2, "time": time, "attributes": attributes})
            .to_string()
    };
    for part in 0..4 {
        let lines: Vec<String> = (0..2500).map(|n| report(part * 2500 + n)).collect();
        assert_eq!(
            world.post(REPORTS, &lines.join("\n")).json()["stored"],
            2500
        );
    }
    let before = connections(&world);
    let mut slow: Vec<TcpStream> = (0..5)
        .map(|_| TcpStream::connect(world.address()).unwrap())
        .collect();
    for stream in &mut slow {
        let ask = "GET /v1/fleets/f/entities/a/track?max_points=10000 HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(ask.as_bytes()).unwrap();
    }
    let clock = SystemClock::shared();
    let gone = (0..100).any(|_| {
        clock.sleep(Duration::from_millis(100));
        connections(&world) <= before
    });
    assert!(gone, "slow readers are still there");
    assert_eq!(world.get("/v1/fleets/f/entities/a").status, 200);
    let mut bytes = Vec::new();
    // Only a part of the answer was sent.
    drop(slow[0].read_to_end(&mut bytes));
    assert!(bytes.len() < 10_000_000, "{}", bytes.len());
}

#[test]
fn stopping_waits_for_calls_for_a_time() {
    let config = Config {
        drain_timeout: Duration::from_millis(500),
        ..Config::default()
    };
    let mut world = World::with(&Options::default(), config, None);
    let mut half = TcpStream::connect(world.address()).unwrap();
    let head =
        "POST /v1/fleets/f/reports HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{";
    half.write_all(head.as_bytes()).unwrap();
    SystemClock::shared().sleep(Duration::from_millis(100));
    let clock = SystemClock::shared();
    let since = clock.monotonic_nanos();
    world.server.take().unwrap().stop().unwrap();
    assert!(clock.monotonic_nanos() - since < 5_000_000_000);
}
