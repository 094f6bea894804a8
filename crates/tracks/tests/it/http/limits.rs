//! Limits: sizes, times, connections, memory, tokens.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use base::clock::SystemClock;
use tracks::http::Config;
use tracks::http::tokens::{self, Scope, Tokens, Wanted};
use tracks::service::Options;

use super::{T, World, answer, line, rest, timed};

#[test]
fn what_is_too_large_is_refused_with_the_limit() {
    let config = Config {
        body_max: 256 * 1024,
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    let large = |headers: &[(&str, &str)], body: &[u8], limit: u64| {
        let answer = world.send("/v1/fleets/f/reports", headers, body);
        assert_eq!(answer.problem(), (413, "too-large".to_owned()));
        assert_eq!(answer.json()["limit"], limit, "{}", answer.text);
    };
    let report = line("a", T, 1.0, 2.0);
    let body = format!("{report}\n").repeat(256 * 1024 / report.len() + 1);
    large(&[], body.as_bytes(), 256 * 1024);
    let long = format!("{{\"entity\":\"{}\"}}", "x".repeat(65_537));
    large(&[], long.as_bytes(), 65_536);
    large(
        &[],
        format!(
            "{report}
{long}"
        )
        .as_bytes(),
        65_536,
    );
    assert_eq!(world.report(&report)["stored"], 1);
}

/// With the default limit of 64 MiB. Six such bodies exceed the memory for bodies, so that each
/// must give its own back.
#[test]
fn what_inflates_a_thousand_times_is_refused_at_the_limit() {
    let world = World::new();
    let report = line("a", T, 1.0, 2.0);
    let good = format!("{report}\n");
    // Lines that could be parsed, too: none of them is taken.
    let bombs = [
        vec![b' '; 80 << 20],
        vec![b'['; 80 << 20],
        good.repeat((80 << 20) / good.len()).into_bytes(),
    ];
    let least = [1000, 1000, 100];
    for (plain, least) in bombs.iter().zip(least) {
        let packed = [
            ("gzip", super::hostile::gzip(plain)),
            ("zstd", zstd::encode_all(&plain[..], 3).unwrap()),
        ];
        for (coding, body) in packed {
            let ratio = plain.len() / body.len();
            assert!(ratio >= least, "{coding}: only {ratio} times");
            assert!(
                body.len() < Config::default().body_max,
                "{coding}: {}",
                body.len()
            );
            let headers = [("content-encoding", coding)];
            let (answer, time) = timed(|| world.send("/v1/fleets/f/reports", &headers, &body));
            assert_eq!(
                answer.problem(),
                (413, "too-large".to_owned()),
                "{}",
                answer.text
            );
            assert_eq!(answer.json()["limit"], 64 << 20, "{}", answer.text);
            assert!(time < Duration::from_secs(10), "{coding}: {time:?}");
        }
    }
    assert_eq!(
        world.get("/v1/fleets/f").problem(),
        (404, "no-such-fleet".to_owned())
    );
    assert_eq!(world.report(&report)["stored"], 1);
}

#[test]
fn tokens_allow_what_they_say() {
    let make = |name: &str, scopes: &[Scope], fleets: &[&str], rate| {
        tokens::make(Wanted {
            name: name.to_owned(),
            scopes: scopes.to_vec(),
            fleets: fleets.iter().map(|f| (*f).to_owned()).collect(),
            reports_per_second: rate,
        })
        .unwrap()
    };
    let (gateway, a) = make("gateway", &[Scope::Ingest], &["f"], Some(10));
    let (reader, b) = make("reader", &[Scope::Read], &["f"], None);
    let (admin, c) = make("admin", &[Scope::Read, Scope::Admin], &[], None);
    let tokens = Tokens::parse(&[a, b, c].join("\n")).unwrap();
    let world = World::with(&Options::default(), Config::default(), Some(tokens));
    let send = |token: &str, fleet: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        let path = format!("/v1/fleets/{fleet}/reports");
        world.send(&path, &[("authorization", &bearer)], body.as_bytes())
    };
    let report = line("a", T, 1.0, 2.0);
    assert_eq!(send(&gateway, "f", &report).status, 200);
    assert_eq!(
        send(&gateway, "g", &report).problem(),
        (403, "forbidden".to_owned())
    );
    assert_eq!(
        send(&reader, "f", &report).problem(),
        (403, "forbidden".to_owned())
    );
    let wrong = send("istk_wrong", "f", &report);
    assert_eq!(wrong.problem(), (401, "unauthorized".to_owned()));
    assert_eq!(wrong.header("www-authenticate"), "Bearer");
    assert_eq!(world.get("/v1/fleets").problem().0, 401);
    assert_eq!(world.get_as("/v1/fleets/f/entities/a", &reader).status, 200);
    assert_eq!(
        world
            .get_as("/v1/fleets/f/entities/a", &gateway)
            .problem()
            .0,
        403
    );
    let put = world.agent.put(world.url("/v1/fleets/g"));
    let put = answer(
        put.header("authorization", format!("Bearer {admin}"))
            .send("{}"),
    );
    assert_eq!(put.status, 200);
    let fleets = |token: &str| {
        world.get_as("/v1/fleets", token).json()["fleets"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((fleets(&admin), fleets(&reader)), (2, 1));
    assert_eq!(world.get_as("/metrics", &reader).problem().0, 403);
    assert_eq!(world.get_as("/metrics", &admin).status, 200);
    assert_eq!(world.get("/healthz").status, 200);
    // Above the rate, a whole call is taken, and the next ones are refused.
    let lines: Vec<String> = (0..100)
        .map(|n| line("a", T + f64::from(n), 1.0, 2.0))
        .collect();
    assert_eq!(send(&gateway, "f", &lines.join("\n")).status, 200);
    let over = send(&gateway, "f", &report);
    assert_eq!(over.problem(), (429, "rate-exceeded".to_owned()));
    let seconds: u64 = over.header("retry-after").parse().unwrap();
    assert!((5..=10).contains(&seconds), "{seconds}");
}

#[test]
fn idle_and_slow_connections_hold_nobody_up() {
    let short = Duration::from_millis(300);
    let config = Config {
        connections: 210,
        head_timeout: short,
        body_timeout: short,
        ..Config::default()
    };
    let mut world = World::with(&Options::default(), config, None);
    let connect = || TcpStream::connect(world.address()).unwrap();
    let mut idle: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    world.report(&line("a", T, 1.0, 2.0));
    assert_eq!(world.get("/v1/fleets/f/entities/a").status, 200);
    // A head that never ends is cut off.
    let mut slow = connect();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: a").unwrap();
    assert_eq!(rest(&mut slow), "");
    // So is a body.
    let mut slow = connect();
    let head =
        "POST /v1/fleets/f/reports HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{";
    slow.write_all(head.as_bytes()).unwrap();
    let answer = rest(&mut slow);
    assert!(
        answer.starts_with("HTTP/1.1 408") && answer.contains("slow-body"),
        "{answer}"
    );
    // Idle connections that have never sent a request are closed by now.
    for stream in &mut idle {
        assert_eq!(rest(stream), "");
    }
    // A surplus connection gets an error.
    let more: Vec<TcpStream> = (0..220).map(|_| connect()).collect();
    let mut refused = connect();
    let answer = rest(&mut refused);
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"),
        "{answer}"
    );
    drop(more);
    idle = (0..20).map(|_| connect()).collect();
    // Stopping does not wait for idle connections.
    let clock = SystemClock::shared();
    let before = clock.monotonic_nanos();
    world.server.take().unwrap().stop().unwrap();
    assert!(clock.monotonic_nanos() - before < 5_000_000_000);
    drop(idle);
}

/// A head whose bytes trickle in is cut off, although each arrives in time, and others are answered meanwhile.
#[test]
fn a_head_that_trickles_in_is_cut_off() {
    let config = Config {
        head_timeout: Duration::from_secs(2),
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    let clock = SystemClock::shared();
    let mut slow = TcpStream::connect(world.address()).unwrap();
    let begin = clock.monotonic_nanos();
    let head = format!(
        "GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n",
        "a".repeat(1000)
    );
    let mut sent = 0;
    for byte in head.bytes() {
        if slow.write_all(&[byte]).is_err() {
            break;
        }
        sent += 1;
        assert_eq!(world.get("/healthz").status, 200);
        clock.sleep(Duration::from_millis(20));
    }
    assert!(sent < head.len(), "all of the head was taken");
    assert!(clock.monotonic_nanos() - begin < 10_000_000_000);
    assert_eq!(rest(&mut slow), "");
}

/// A body whose bytes trickle in is refused, although each arrives in time.
#[test]
fn a_body_that_trickles_in_is_refused() {
    let config = Config {
        rate_min: 1000,
        body_lag: Duration::from_millis(500),
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    let connect = || TcpStream::connect(world.address()).unwrap();
    let clock = SystemClock::shared();
    let body = format!("{}\n", line("a", T, 1.0, 2.0)).repeat(40);
    let mut slow = connect();
    let head = format!(
        "POST /v1/fleets/f/reports HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    slow.write_all(head.as_bytes()).unwrap();
    let begin = clock.monotonic_nanos();
    for byte in body.bytes() {
        if slow.write_all(&[byte]).is_err() || clock.monotonic_nanos() - begin > 3_000_000_000 {
            break;
        }
        clock.sleep(Duration::from_millis(20));
    }
    let answer = rest(&mut slow);
    assert!(
        answer.starts_with("HTTP/1.1 408") && answer.contains("1000 a second"),
        "{answer}"
    );
    // A faster body may take longer than that.
    let mut fast = connect();
    fast.write_all(head.as_bytes()).unwrap();
    for piece in body.as_bytes().chunks(100) {
        fast.write_all(piece).unwrap();
        clock.sleep(Duration::from_millis(25));
    }
    let answer = rest(&mut fast);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn with_no_memory_left_calls_are_told_to_come_again() {
    let config = Config {
        memory: 64 * 1024,
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    world.report(&line("a", T, 1.0, 2.0));
    let lines = format!("{}\n", line("a", T, 1.0, 2.0)).repeat(2000);
    let busy = world.post("/v1/fleets/f/reports", &lines);
    assert_eq!(busy.problem(), (503, "busy".to_owned()));
    assert_eq!(busy.header("retry-after"), "1");
    world.report(&line("a", T, 1.0, 2.0));
}

/// The head of an answer on a connection that stays open, and its body.
fn next_answer(stream: &mut TcpStream) -> (String, String) {
    let limit = Some(Duration::from_secs(10));
    stream.set_read_timeout(limit).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let mut len = head
        .lines()
        .filter_map(|l| l.strip_prefix("content-length: "));
    let mut body = vec![0; len.next().unwrap().parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// A call that is refused before its body is read: the body arrives late, or never, or the client waits for leave to
/// send it. A connection either takes the next request, or the answer says that it ends.
#[test]
fn a_refused_call_whose_body_is_late_keeps_its_connection() {
    let fixed = Options {
        fixed_fleets: true,
        ..Options::default()
    };
    let world = World::with(&fixed, Config::default(), None);
    let begun = |more: &str| {
        let mut stream = TcpStream::connect(world.address()).unwrap();
        let head = format!("POST /v1/fleets/f/reports HTTP/1.1\r\nhost: localhost\r\n{more}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        SystemClock::shared().sleep(Duration::from_millis(100));
        stream
    };
    let bodies = [
        ("content-length: 7\r\n", "{\"a\":1}"),
        (
            "transfer-encoding: chunked\r\n",
            "7\r\n{\"a\":1}\r\n0\r\n\r\n",
        ),
    ];
    for (kind, body) in bodies {
        let mut stream = begun(kind);
        for turn in 0..2 {
            stream.write_all(body.as_bytes()).unwrap();
            let (head, problem) = next_answer(&mut stream);
            assert!(head.starts_with("http/1.1 404"), "{turn}: {head}");
            assert!(!head.contains("connection: close") && problem.contains("no-such-fleet"));
            let again = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
            stream.write_all(again.as_bytes()).unwrap();
            assert!(next_answer(&mut stream).0.starts_with("http/1.1 200"));
            let head =
                format!("POST /v1/fleets/f/reports HTTP/1.1\r\nhost: localhost\r\n{kind}\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            SystemClock::shared().sleep(Duration::from_millis(100));
        }
    }
    // A body that breaks off: nothing behind it can be read.
    let mut broken = begun("transfer-encoding: chunked\r\n");
    broken.write_all(b"zz\r\n").unwrap();
    let (head, _) = next_answer(&mut broken);
    assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
    assert_eq!(rest(&mut broken), "");
    let never = [
        "content-length: 7\r\n",
        "content-length: 900000000000\r\n",
        "transfer-encoding: chunked\r\n",
        "content-length: 7\r\nexpect: 100-continue\r\n",
    ];
    for kind in never {
        let mut stream = begun(kind);
        let (head, _) = next_answer(&mut stream);
        assert!(head.starts_with("http/1.1 404"), "{kind}: {head}");
        assert!(head.contains("\r\nconnection: close\r\n"), "{kind}: {head}");
        assert_eq!(rest(&mut stream), "");
    }
}
