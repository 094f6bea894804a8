//! Shares: heavy or slow clients do not block the others.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use base::clock::SystemClock;
use tracks::http::Config;
use tracks::http::tokens::{self, Scope, Tokens, Wanted};
use tracks::service::Options;

use super::whole::{many_points, served};
use super::{T, TIMEOUT, World, line};

/// A call whose answer has begun, and is not read further.
struct Open {
    stream: BufReader<TcpStream>,
    status: u16,
}

impl Open {
    fn new(world: &World, path: &str, token: &str) -> Self {
        Self::over(TcpStream::connect(world.address()).unwrap(), path, token)
    }

    fn over(mut stream: TcpStream, path: &str, token: &str) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let head = format!(
            "GET {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut stream = BufReader::with_capacity(1024, stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        Self { stream, status }
    }

    /// The rest of the answer, until it ends or is cut off.
    fn rest(mut self) -> usize {
        let mut rest = Vec::new();
        drop(self.stream.read_to_end(&mut rest));
        rest.len()
    }
}

const EXPORT: &str = "/v1/fleets/f/export";
const STREAM: &str = "/v1/fleets/f/stream";

fn token(name: &str, scopes: &[Scope], fleets: &[&str]) -> (String, String) {
    tokens::make(Wanted {
        name: name.to_owned(),
        scopes: scopes.to_vec(),
        fleets: fleets.iter().map(|f| (*f).to_owned()).collect(),
        reports_per_second: None,
    })
    .unwrap()
}

/// Slow downloads leave blocking threads for queries.
#[test]
fn downloads_that_wait_leave_threads_for_questions() {
    let config = Config {
        exports: 80,
        ..Config::default()
    };
    let world = served(many_points(), config);
    let open: Vec<Open> = (0..80).map(|_| Open::new(&world, EXPORT, "")).collect();
    assert!(open.iter().all(|one| one.status == 200));
    assert_eq!(world.get("/v1/fleets/f/within?circle=1,2,10").status, 200);
    world.report(&line("another", T, 1.0, 2.0));
}

/// Slow downloads and streams with one token leave places for others.
#[test]
fn a_token_has_half_of_the_exports_and_streams() {
    let (all, a) = token("a", &[Scope::Read, Scope::Ingest], &[]);
    let (other, b) = token("b", &[Scope::Read], &[]);
    let tokens = Tokens::parse(&[a, b].join("\n")).unwrap();
    let config = Config {
        exports: 2,
        streams: 4,
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, Some(tokens));
    let bearer = format!("Bearer {all}");
    // Enough points that an answer does not fit into the buffers.
    for part in 0..40 {
        let times = (0..1000).map(|n| T + f64::from(part * 1000 + n));
        let lines: Vec<String> = times.map(|time| line("car", time, 1.0, 2.0)).collect();
        let headers = [("authorization", bearer.as_str())];
        let body = lines.join("\n");
        let answer = world.send("/v1/fleets/f/reports", &headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    for (path, share) in [(EXPORT, 1), (STREAM, 2)] {
        let its: Vec<Open> = (0..share).map(|_| Open::new(&world, path, &all)).collect();
        assert!(its.iter().all(|one| one.status == 200), "{path}");
        let more = world.get_as(path, &all);
        assert_eq!(more.problem(), (503, "busy".to_owned()));
        assert!(more.detail().contains("its share"), "{}", more.text);
        let others = Open::new(&world, path, &other);
        assert_eq!(others.status, 200, "{path}");
        drop((its, others));
    }
}

/// A download at the least rate ends after the export timeout.
#[test]
fn an_export_ends_after_its_time() {
    let short = |millis| Config {
        exports: 1,
        export_timeout: Duration::from_millis(millis),
        ..Config::default()
    };
    let world = served(many_points(), short(300));
    let slow = Open::new(&world, EXPORT, "");
    assert_eq!(slow.status, 200);
    SystemClock::shared().sleep(Duration::from_millis(300));
    let seen = slow.rest();
    // Of 40 MB.
    assert!(seen < 20_000_000, "{seen}");
    drop(world);
    let world = World::with(&Options::default(), short(0), None);
    world.report(&line("a", T, 1.0, 2.0));
    let answer = world.get(EXPORT);
    assert_eq!(answer.problem(), (503, "query-timeout".to_owned()));
    assert!(
        answer.detail().contains("--export-timeout"),
        "{}",
        answer.text
    );
}

/// A client that takes 80 KB per second is not mistaken for an idle one, although a socket becomes
/// writable only once a third of a large buffer is free.
#[test]
fn who_takes_slowly_is_not_taken_for_idle() {
    let config = Config {
        write_timeout: Duration::from_secs(4),
        rate_min: 1024,
        ..Config::default()
    };
    let world = served(many_points(), config);
    let stream = TcpStream::connect(world.address()).unwrap();
    let socket = socket2::SockRef::from(&stream);
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut slow = Open::over(stream, EXPORT, "");
    assert_eq!(slow.status, 200);
    let (clock, mut piece) = (SystemClock::shared(), [0; 8000]);
    // Twice as long as a client may take nothing.
    for _ in 0..80 {
        slow.stream.read_exact(&mut piece).unwrap();
        clock.sleep(Duration::from_millis(100));
    }
    let socket = socket2::SockRef::from(slow.stream.get_ref());
    socket.set_recv_buffer_size(4 << 20).unwrap();
    // The connection is still open, and the whole answer arrives.
    assert!(slow.rest() > 20_000_000);
}

/// Metrics name all fleets and their webhooks: only tokens for all fleets may read them.
#[test]
fn metrics_are_for_who_may_know_of_all_fleets() {
    let (one, a) = token("one", &[Scope::Read, Scope::Admin], &["f"]);
    let (all, b) = token("all", &[Scope::Admin], &[]);
    let tokens = Tokens::parse(&[a, b].join("\n")).unwrap();
    let world = World::with(&Options::default(), Config::default(), Some(tokens));
    let refused = world.get_as("/metrics", &one);
    assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
    assert_eq!(world.get_as("/metrics", &all).status, 200);
}
