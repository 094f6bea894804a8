//! Webhooks, to a receiver on this machine.

use std::path::Path;
use std::time::Duration;

use base::clock::SystemClock;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tracks::http::{Config, Host, Hosts, Server, WebhookOptions};
use tracks::service::Options;

use super::receiver::{Act, Came, Receiver};
use super::{Answer, T, World, agent, eventually, line, start, thread, timed};

/// Allows these hosts, and retries soon.
pub(super) fn config(hosts: &[&str], private: &[&str]) -> Config {
    let public = hosts.iter().map(|h| Host::new(h, false).unwrap());
    let private = private.iter().map(|h| Host::new(h, true).unwrap());
    let millis = Duration::from_millis;
    Config {
        webhooks: WebhookOptions {
            hosts: Hosts::new(public.chain(private).collect()),
            timeout: millis(400),
            retry: (millis(20), millis(100)),
        },
        ..Config::default()
    }
}

fn world() -> World {
    let world = World::with(&Options::default(), config(&["127.0.0.1"], &[]), None);
    world.fence("depot", 18.0);
    world.report(&line("x", T, 59.0, 17.0));
    world
}

const HOOK: &str = "/v1/fleets/f/webhooks/h";

impl World {
    fn hook(&self, name: &str, body: Value) -> Value {
        let answer = self.put(&format!("/v1/fleets/f/webhooks/{name}"), &body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    /// Makes an entity enter and leave `count` times.
    fn cross(&self, entity: &str, from: u32, count: u32) {
        let lon = |nth| if nth % 2 == 0 { 18.0 } else { 17.0 };
        let time = |nth| T + 600.0 * f64::from(nth);
        let lines = (from..from + count).map(|nth| line(entity, time(nth), 59.0, lon(nth)));
        self.report(&lines.collect::<Vec<_>>().join("\n"));
    }

    fn ids(&self) -> Vec<u64> {
        self.events()
            .iter()
            .map(|e| e["id"].as_u64().unwrap())
            .collect()
    }

    /// Stops the server, and starts another one on its folder.
    fn again(&mut self, config: Config) {
        self.server.take().unwrap().stop().unwrap();
        self.server = Some(again(self.dir.path(), config));
    }
}

fn again(dir: &Path, config: Config) -> Server {
    start(dir, &Options::default(), config, None)
}

/// Verifies a signature as a receiver does.
fn check(came: &Came, secret: &str) {
    let signature = came.header("x-ironstone-signature");
    let (time, hex) = signature
        .strip_prefix("t=")
        .unwrap()
        .split_once(",v1=")
        .unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{time}.{}", came.body).as_bytes());
    let right = mac.finalize().into_bytes();
    let pairs = hex
        .as_bytes()
        .chunks(2)
        .map(|pair| str::from_utf8(pair).unwrap());
    let given: Vec<u8> = pairs.map(|p| u8::from_str_radix(p, 16).unwrap()).collect();
    assert_eq!(given, right.to_vec());
    let now = SystemClock::shared().wall_micros() / 1_000_000;
    assert!(now.abs_diff(time.parse().unwrap()) < 30);
}

/// A delivery that fails, hangs, is redirected or not answered is repeated until it is taken; each
/// batch is signed and in order.
#[test]
fn events_are_sent_until_they_are_taken() {
    let world = world();
    let receiver = Receiver::new(&[
        Act::Status(500),
        Act::Hang(900),
        Act::Redirect,
        Act::Close,
        Act::Rubbish,
        Act::Status(404),
        Act::Status(200),
        Act::Status(503),
    ]);
    let before = world.ids();
    let made = world.hook("h", json!({"url": receiver.url()}));
    let secret = made["secret"].as_str().unwrap();
    assert_eq!(
        (&made["name"], &made["url"]),
        (&json!("h"), &json!(receiver.url()))
    );
    assert!(secret.starts_with("whsec_") && secret.len() > 40);
    assert!(made["after"].as_u64().unwrap() >= before.last().copied().unwrap_or(0));
    world.cross("a", 0, 250);
    let right = world.ids();
    eventually("all are there", || receiver.ids() == right);
    let came = receiver.came();
    assert!(came.len() >= 9, "{}", came.len());
    for one in &came {
        check(one, secret);
        assert!(
            one.head.starts_with("POST /hook?a=b HTTP/1.1\r\n"),
            "{}",
            one.head
        );
        assert_eq!(one.header("host"), receiver.address.to_string());
        assert_eq!(one.header("content-type"), "application/json");
        let (json, ids) = (one.json(), one.ids());
        assert_eq!(
            (&json["fleet"], &json["webhook"]),
            (&json!("f"), &json!("h"))
        );
        assert!((1..=100).contains(&ids.len()));
        let delivery = format!("{}-{}", ids[0], ids[ids.len() - 1]);
        assert_eq!(one.header("x-ironstone-delivery"), delivery);
    }
    // Failed deliveries are repeated with the same first event; events that were taken are never
    // sent again.
    assert!(came[..7].iter().all(|one| one.ids()[0] == right[0]));
    assert!(came[7..].iter().all(|one| one.ids()[0] != right[0]));
    assert_eq!(came[0].json()["events"][0], world.events()[0]);
    eventually("the cursor is there", || {
        world.get(HOOK).json()["cursor"].as_u64().unwrap() >= right[right.len() - 1]
    });
    let shown = world.get(HOOK).json();
    assert_eq!(
        (&shown["state"], &shown["failures"], &shown["secret"]),
        (&json!("active"), &json!(0), &Value::Null)
    );
    assert!(
        shown["last_failure"]["error"]
            .as_str()
            .unwrap()
            .contains("503")
    );
    assert!(shown["last_delivery"].is_number() && shown["next_attempt"].is_null());
    let list = world.get("/v1/fleets/f/webhooks").json();
    assert_eq!(list["webhooks"], json!([shown]));
    let metrics = world.get("/metrics").text;
    for text in [
        "tracks_webhook_deliveries_total{outcome=\"failed\"} 7",
        "tracks_webhook_lag_seconds{fleet=\"f\",webhook=\"h\"} 0",
    ] {
        assert!(metrics.contains(text), "{text}: {metrics}");
    }
}

#[test]
fn a_webhook_gets_what_it_asked_for_and_no_more_when_it_is_deleted() {
    let world = world();
    world.fence("rank", 18.0);
    let receiver = Receiver::new(&[]);
    let secret = "a secret of my own";
    let body =
        json!({"url": receiver.url(), "events": ["exit"], "fences": ["rank"], "secret": secret});
    assert_eq!(world.hook("h", body)["secret"], secret);
    world.cross("a", 0, 6);
    let right: Vec<u64> = world
        .events()
        .iter()
        .filter(|e| e["kind"] == "exit" && e["fence"] == "rank")
        .map(|e| e["id"].as_u64().unwrap())
        .collect();
    assert_eq!(right.len(), 3);
    eventually("they are there", || receiver.ids() == right);
    check(&receiver.came()[0], secret);
    // A webhook that is replaced during a delivery keeps its cursor.
    receiver.acts(&[Act::Hang(300)]);
    world.cross("a", 6, 1);
    world.cross("a", 7, 1);
    eventually("it hangs", || receiver.ids().len() == 4);
    let other = Receiver::new(&[]);
    world.hook(
        "h",
        json!({"url": other.url(), "events": ["exit"], "fences": ["rank"]}),
    );
    let last = receiver.ids()[3];
    eventually("the other one gets it", || other.ids() == [last]);
    // A webhook that is deleted during a delivery.
    other.acts(&[Act::Hang(300)]);
    world.cross("a", 8, 2);
    eventually("it hangs", || other.ids().len() == 2);
    assert_eq!(world.delete(HOOK).status, 204);
    assert_eq!(
        world.delete(HOOK).problem(),
        (404, "no-such-webhook".to_owned())
    );
    let counts = (other.came().len(), receiver.came().len());
    world.cross("a", 10, 2);
    SystemClock::shared().sleep(Duration::from_millis(400));
    assert_eq!((other.came().len(), receiver.came().len()), counts);
    assert_eq!(
        world.get("/v1/fleets/f/webhooks").json()["webhooks"],
        json!([])
    );
}

#[test]
fn cursors_are_kept_when_the_server_is_started_again() {
    let mut world = world();
    let receiver = Receiver::new(&[]);
    world.hook("h", json!({"url": receiver.url()}));
    world.cross("a", 0, 150);
    let first = world.ids();
    eventually("the first are there", || receiver.ids() == first);
    eventually("the cursor is there", || {
        world.get(HOOK).json()["cursor"].as_u64().unwrap() >= first[149]
    });
    let count = receiver.came().len();
    // From now on nothing is taken.
    receiver.acts(&[Act::Status(500); 1000]);
    world.cross("a", 150, 30);
    eventually("it is tried", || receiver.came().len() > count + 2);
    world.again(config(&[], &[]));
    eventually("it may not", || {
        let shown = world.get(HOOK).json();
        let error = shown["last_failure"]["error"].as_str().unwrap_or_default();
        error.contains("--webhook-host") && shown["state"] == "retrying"
    });
    receiver.acts(&[]);
    let tried = receiver.came().len();
    world.again(config(&["127.0.0.1"], &[]));
    let all = world.ids();
    eventually("the rest is there", || receiver.ids() == all);
    let came = receiver.came();
    assert!(came[tried..].iter().all(|one| one.ids()[0] > first[149]));
}

#[test]
fn who_is_gone_gets_no_more_until_it_is_put_again() {
    let mut world = world();
    let receiver = Receiver::new(&[Act::Status(410)]);
    let body = json!({"url": receiver.url()});
    world.hook("h", body.clone());
    world.cross("a", 0, 2);
    eventually("it is gone", || {
        world.get(HOOK).json()["state"] == "disabled"
    });
    world.cross("a", 2, 2);
    world.again(config(&["127.0.0.1"], &[]));
    let shown = world.get(HOOK).json();
    assert!(
        shown["disabled"].as_str().unwrap().contains("410"),
        "{shown}"
    );
    SystemClock::shared().sleep(Duration::from_millis(300));
    assert_eq!(receiver.came().len(), 1);
    assert!(
        world
            .get("/metrics")
            .text
            .contains("tracks_webhook_disabled{fleet=\"f\",webhook=\"h\"} 1")
    );
    world.hook("h", body);
    let all = world.ids();
    eventually("it goes on where it was", || receiver.ids() == all);
}

#[test]
fn one_that_hangs_holds_back_neither_others_nor_the_end() {
    let mut world = world();
    let slow = Receiver::new(&[Act::Hang(3000); 1000]);
    let quick = Receiver::new(&[]);
    for nth in 0..99 {
        world.hook(&format!("slow{nth}"), json!({"url": slow.url()}));
    }
    world.hook("quick", json!({"url": quick.url()}));
    let full = world.put(
        "/v1/fleets/f/webhooks/more",
        &json!({"url": quick.url()}).to_string(),
    );
    assert!(
        full.status == 400 && full.detail().contains("100"),
        "{}",
        full.text
    );
    for nth in 0..5 {
        world.cross("a", nth * 2, 2);
        let all = world.ids();
        let ((), time) = timed(|| eventually("they are there", || quick.ids() == all));
        // The 64 places are first taken by deliveries that hang for 400 ms; later by half as many.
        assert!(time < Duration::from_secs(8), "{time:?}");
    }
    let (stopped, time) = timed(|| world.server.take().unwrap().stop());
    stopped.unwrap();
    assert!(time < Duration::from_secs(8), "{time:?}");
    // The folder is not open any more.
    world.server = Some(again(world.dir.path(), config(&[], &[])));
    assert_eq!(
        world.get("/v1/fleets/f/webhooks").json()["webhooks"]
            .as_array()
            .unwrap()
            .len(),
        100
    );
}

#[test]
fn a_stop_waits_for_a_delivery_only_a_little() {
    let mut world = world();
    let mut with = config(&["127.0.0.1"], &[]);
    with.webhooks.timeout = Duration::from_secs(60);
    world.again(with);
    let receiver = Receiver::new(&[Act::Hang(20_000)]);
    world.hook("h", json!({"url": receiver.url()}));
    world.cross("a", 0, 1);
    eventually("it hangs", || receiver.came().len() == 1);
    let ((), time) = timed(|| world.again(config(&["127.0.0.1"], &[])));
    assert!(time < Duration::from_secs(8), "{time:?}");
    eventually("it comes again", || receiver.came().len() == 2);
}

/// Webhooks that are none, and a part of the error.
fn bad_webhooks() -> Vec<(Value, &'static str)> {
    let long = format!("http://localhost/{}", "x".repeat(10_000));
    let with = |name: &str, value: Value| json!({"url": "http://localhost/", name: value});
    vec![
        (json!({"url": "http://user:word@localhost/"}), "password"),
        (json!({"url": "http://localhost/\u{0}"}), "U+0000"),
        (json!({ "url": long }), "2048"),
        (json!({"url": "ftp://localhost/"}), "http"),
        (json!({"url": "localhost"}), "http"),
        (with("events", json!(["left"])), "events"),
        (with("fences", json!([".."])), "fences"),
        (with("secret", json!("short")), "secret"),
        (with("header", json!("x")), "header"),
        (json!({}), "url"),
    ]
}

#[test]
fn webhooks_that_are_none_or_go_where_they_may_not_are_refused() {
    let none = World::new();
    none.report(&line("x", T, 59.0, 17.0));
    let put = |world: &World, body: Value| -> Answer { world.put(HOOK, &body.to_string()) };
    let answer = put(&none, json!({"url": "https://example.org/"}));
    assert_eq!(answer.problem(), (403, "webhook-forbidden".to_owned()));
    assert!(
        answer.detail().contains("--webhook-host"),
        "{}",
        answer.text
    );

    let receiver = Receiver::new(&[]);
    let world = World::with(
        &Options::default(),
        config(&["localhost", "::1"], &[]),
        None,
    );
    world.fence("depot", 18.0);
    for url in [
        receiver.url(),
        "http://169.254.169.254/latest".to_owned(),
        "http://[::]/".to_owned(),
    ] {
        let answer = put(&world, json!({"url": url}));
        assert_eq!(
            answer.problem(),
            (403, "webhook-forbidden".to_owned()),
            "{url}"
        );
    }
    for (body, why) in bad_webhooks() {
        let answer = put(&world, body);
        assert_eq!(
            answer.problem(),
            (400, "invalid-body".to_owned()),
            "{}",
            answer.text
        );
        assert!(answer.detail().contains(why), "{why}: {}", answer.text);
    }
}

#[test]
fn an_allowed_name_may_resolve_to_private_addresses_only_if_that_is_allowed_too() {
    let receiver = Receiver::new(&[]);
    let port = receiver.address.port();
    let local = format!("http://localhost:{port}/");
    let world = World::with(
        &Options::default(),
        config(&["localhost", "::1"], &[]),
        None,
    );
    world.fence("depot", 18.0);
    world.hook("h", json!({"url": local}));
    world.cross("a", 0, 1);
    eventually("it says why", || {
        let shown = world.get(HOOK).json();
        let error = shown["last_failure"]["error"].as_str().unwrap_or_default();
        error.contains("--webhook-private localhost")
    });
    assert!(receiver.came().is_empty());
    let world = World::with(&Options::default(), config(&[], &["localhost"]), None);
    world.fence("depot", 18.0);
    world.hook("h", json!({"url": local}));
    // A failing TLS handshake delays no other webhook.
    world.hook("tls", json!({"url": format!("https://localhost:{port}/")}));
    world.cross("a", 0, 1);
    eventually("it is there", || receiver.ids() == world.ids());
    eventually("it says why", || {
        let shown = world.get("/v1/fleets/f/webhooks/tls").json();
        shown["last_failure"]["error"]
            .as_str()
            .unwrap_or_default()
            .contains("TLS")
    });
}

/// Reports, webhooks that come and go, and pages, all at once: no event after the last answer is
/// missed.
#[test]
fn webhooks_may_be_changed_while_events_come() {
    let world = world();
    let receiver = Receiver::new(&[]);
    world.hook("h", json!({"url": receiver.url()}));
    let (agent, url) = (agent(), world.url(HOOK));
    let body = json!({"url": receiver.url()}).to_string();
    let changes = thread(move || {
        for _ in 0..20 {
            assert_eq!(agent.put(&url).send(&body).unwrap().status(), 200);
        }
    });
    for nth in 0..40 {
        world.cross("a", nth * 4, 4);
    }
    changes.join().unwrap();
    let all = world.ids();
    assert_eq!(all.len(), 160);
    eventually("all are there", || {
        let mut ids: Vec<u64> = receiver.came().iter().flat_map(Came::ids).collect();
        ids.sort_unstable();
        ids.dedup();
        ids == all
    });
}
