//! The tracking service on a full disk, and on one that fails: it reports that it takes no writes, answers the
//! other calls that it can, and reports when it takes writes again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ::tracks::http::{self, Server, Service};
use ::tracks::service::{self, Tracks};
use ::tracks::store::{Engine, Store};
use base::clock::SystemClock;
use base::threads::SystemThreads;
use ironstone::{Env, Options};
use sim::disk::{Act, Config, Fault, Repeat, SimDisk};

fn serve(disk: &SimDisk) -> Server {
    let mut options = Options {
        env: Env {
            fs: disk.shared(),
            ..Env::default()
        },
        ..Options::default()
    };
    options.db.stats_dump_period_sec = 0;
    let store: Arc<dyn Store> = Arc::new(Engine::open_with("/tracks", options).unwrap());
    let clock = SystemClock::shared();
    let tracks = Tracks::over(store, &service::Options::default(), clock, &SystemThreads);
    let service = Service {
        tracks: Arc::new(tracks.unwrap()),
        db: None,
        tokens: None,
    };
    let address = "127.0.0.1:0".parse().unwrap();
    Server::start(address, service, http::Config::default()).unwrap()
}

/// A call's status, and its answer.
pub(crate) fn call(address: SocketAddr, what: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let timeout = Some(Duration::from_secs(30));
    stream.set_read_timeout(timeout).unwrap();
    let head = format!(
        "{what} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.get(9..12).unwrap().parse().unwrap();
    (status, answer)
}

fn report(address: SocketAddr, nth: u32) -> u16 {
    let body = format!(
        "{{\"entity\":\"a\",\"lat\":1,\"lon\":2,\"time\":{}}}",
        1_700_000_000 + nth
    );
    call(address, "POST /v1/fleets/f/reports", &body).0
}

/// Asks until the status of `/readyz` is `status`.
fn ready(address: SocketAddr, status: u16) -> String {
    for _ in 0..600 {
        let (is, answer) = call(address, "GET /readyz", "");
        if is == status {
            return answer;
        }
        SystemClock::shared().sleep(Duration::from_millis(50));
    }
    panic!("/readyz is not {status} within 30 s");
}

/// It was always ready, so a load balancer sent it reports that it could not take.
#[test]
fn a_service_that_takes_no_writes_is_not_ready() {
    let disk = SimDisk::new(Config::default());
    let server = serve(&disk);
    let address = server.address();
    let refuses = || {
        let (_, metrics) = call(address, "GET /metrics", "");
        metrics.contains("\ntracks_store_refuses_writes 1\n")
    };
    ready(address, 200);
    assert_eq!(report(address, 0), 200);
    assert!(!refuses());
    disk.fail_on(Fault::NoSpace, Repeat::Forever, |_, _| true);
    assert_eq!(report(address, 1), 503);
    let answer = ready(address, 503);
    assert!(
        answer.contains("/problems/refuses-writes") && answer.contains("is full"),
        "{answer}"
    );
    assert!(answer.contains("retry-after: 5"), "{answer}");
    assert!(refuses());
    assert_eq!(call(address, "GET /v1/fleets/f/entities/a", "").0, 200);
    assert_eq!(call(address, "GET /healthz", "").0, 200);
    // There is room again: the service resumes by itself.
    disk.clear_faults();
    ready(address, 200);
    assert_eq!(report(address, 2), 200);
    assert!(!refuses());
    // The same with a device that fails: after that the database needs a new start.
    disk.fail_on(Fault::Eio, Repeat::Forever, |act, _| {
        matches!(act, Act::Write | Act::WriteDsync | Act::Sync | Act::Create)
    });
    assert_eq!(report(address, 3), 500);
    let answer = ready(address, 503);
    assert!(answer.contains("start it again"), "{answer}");
    // An error may come from writes that were not durable.
    drop(server.stop());
    disk.clear_faults();
    let server = serve(&disk);
    let address = server.address();
    ready(address, 200);
    assert_eq!(report(address, 4), 200);
    server.stop().unwrap();
}
