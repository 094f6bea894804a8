//! The engine itself stops writes, because level 0 is full and nothing is compacted. The service
//! answers that it is busy, answers queries, and takes reports again when the engine does.

use std::sync::Arc;
use std::time::Duration;

use base::sync::{Condvar, Mutex};
use ironstone::listener::CompactionJobInfo;
use ironstone::{Db, EventListener, Options as EngineOptions};
use serde_json::json;
use tracks::http::Config;
use tracks::service::Options;
use tracks::store::{Engine, Store};

use super::{Answer, T, World, eventually, line, timed};
use crate::world::check;

/// Compactions block while the gate is closed.
#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn close(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.changed.notify_all();
    }
}

impl EventListener for Gate {
    fn on_compaction_begin(&self, _: &CompactionJobInfo) {
        let mut is_closed = self.is_closed.lock().unwrap();
        while *is_closed {
            is_closed = self.changed.wait(is_closed).unwrap();
        }
    }
}

/// Opens the gate even if the test fails, because closing the engine waits for compactions.
struct Closed(Arc<Gate>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.close(false);
    }
}

/// An engine with small buffers, and few files allowed in level 0.
fn small(gate: &Arc<Gate>) -> (tempfile::TempDir, Engine) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = EngineOptions::default();
    options.env.listeners.add(Arc::<Gate>::clone(gate));
    let family = &mut options.cf.cf;
    family.write_buffer_size = 64 << 10;
    family.level0_file_num_compaction_trigger = 2;
    family.level0_slowdown_writes_trigger = 4;
    family.level0_stop_writes_trigger = 4;
    let engine = Engine::open_with(dir.path(), options).unwrap();
    (dir, engine)
}

fn is_stopped(db: &Db) -> bool {
    db.int_property("rocksdb.is-write-stopped") == Some(1)
}

/// Sends twenty reports of a kilobyte each.
fn send(world: &World, nth: u32) -> Answer {
    let report = |n: u32| {
        let (time, attributes) = (T + f64::from(n), json!({ "pad": "x".repeat(1000) }));
        json!({"entity": "a", "lat": 1, "lon": 2, "time": time, "attributes": attributes})
            .to_string()
    };
    let lines: Vec<String> = (nth * 20..(nth + 1) * 20).map(report).collect();
    world.post("/v1/fleets/f/reports", &lines.join("\n"))
}

/// What the service does with reports while the engine takes no writes.
struct Stalled {
    /// Sent so far.
    sent: u32,
    /// Answered with 200.
    taken: u64,
    /// Accepted, but not durable in time.
    waited: u64,
    /// The answer of the first one that was refused because others wait.
    busy: Answer,
}

/// Sends reports until the service refuses them. One was sent, and taken, before.
fn send_until_busy(world: &World, db: &Db) -> Stalled {
    let (mut sent, mut taken, mut waited) = (1, 1, 0);
    loop {
        let answer = send(world, sent);
        sent += 1;
        if answer.status == 200 {
            taken += 1;
        } else if is_stopped(db) && answer.detail().contains("on their way already") {
            return Stalled {
                sent,
                taken,
                waited,
                busy: answer,
            };
        } else {
            // It was accepted, but did not become durable in time.
            waited += 1;
            assert_eq!(
                answer.problem(),
                (503, "busy".to_owned()),
                "{}",
                answer.text
            );
        }
        assert!(sent < 500, "the engine takes all");
    }
}

#[test]
fn an_engine_that_stops_writes_is_said_and_questions_are_answered() {
    let gate = Arc::new(Gate::default());
    let (dir, engine) = small(&gate);
    let db = Arc::clone(engine.db());
    let mut options = Options::default();
    (options.write.shards, options.write.reports_in_flight) = (1, 100);
    let config = Config {
        durable_timeout: Duration::from_millis(300),
        ..Config::default()
    };
    let store: Arc<dyn Store> = Arc::new(engine);
    let mut world = World::over(dir, store, &options, (config, None));
    let open = Closed(Arc::clone(&gate));
    assert_eq!(send(&world, 0).json()["stored"], 20);

    gate.close(true);
    let Stalled {
        sent,
        taken,
        waited,
        busy,
    } = send_until_busy(&world, &db);
    assert_eq!(busy.problem(), (503, "busy".to_owned()));
    assert!((1..=60).contains(&busy.header("retry-after").parse::<u32>().unwrap()));
    // At most as many wait as may be in progress, and all others are refused at once.
    assert!((1..=5).contains(&waited), "{waited}");
    for _ in 0..50 {
        let (answer, time) = timed(|| send(&world, sent));
        assert_eq!(
            answer.problem(),
            (503, "busy".to_owned()),
            "{}",
            answer.text
        );
        assert!(time < Duration::from_secs(2), "{time:?}");
    }
    let device = world.get("/osmand?fleet=f&id=b&lat=1&lon=2&timestamp=1700000000");
    assert_eq!(device.problem(), (503, "busy".to_owned()));
    for question in [
        "entities/a",
        "within?circle=1,2,10",
        "entities/a/track?max_points=10",
        "nearby?lat=1&lon=2",
    ] {
        let (answer, time) = timed(|| world.get(&format!("/v1/fleets/f/{question}")));
        assert_eq!(answer.status, 200, "{question}: {}", answer.text);
        assert!(time < Duration::from_secs(2), "{question}: {time:?}");
    }
    assert!(is_stopped(&db));

    drop(open);
    eventually("the engine takes writes again", || !is_stopped(&db));
    eventually("the service takes reports again", || {
        send(&world, sent).status == 200
    });
    let last = line("a", T + 1e6, 1.0, 2.0);
    assert_eq!(world.report(&last)["stored"], 1);
    // All answered reports are there, and so are those that waited: they were in progress.
    let points = world.get("/v1/fleets/f/entities/a/summary").json()["points"]
        .as_u64()
        .unwrap();
    assert_eq!(points, 20 * (taken + waited + 1) + 1);
    drop(db);
    world.server.take().unwrap().stop().unwrap();
    let engine = Engine::open(world.dir.path()).unwrap();
    assert_eq!(check(&engine).problems, []);
}
