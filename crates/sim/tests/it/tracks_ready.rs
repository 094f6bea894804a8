//! The tracking service on a full disk, and on one that fails: it reports that it takes no writes, answers the
//! other calls that it can, and reports when it takes writes again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ::tracks::check;
use ::tracks::fleets::Fleets;
use ::tracks::http::{self, Server, Service};
use ::tracks::model::key::PointKey;
use ::tracks::model::name::Name;
use ::tracks::model::time::{SECOND, Time};
use ::tracks::service::{self, Tracks};
use ::tracks::store::{Engine, Family, Store};
use base::clock::SystemClock;
use base::rng::Rng;
use base::threads::SystemThreads;
use ironstone::{Env, Options};
use sim::disk::{Act, Config, CrashKind, Fault, Repeat, SimDisk};

/// The time of the first report.
const T: u32 = 1_700_000_000;

fn engine(disk: &SimDisk) -> Engine {
    let mut options = Options {
        env: Env {
            fs: disk.shared(),
            ..Env::default()
        },
        ..Options::default()
    };
    options.db.stats_dump_period_sec = 0;
    Engine::open_with("/tracks", options).unwrap()
}

fn serve(disk: &SimDisk) -> Server {
    let store: Arc<dyn Store> = Arc::new(engine(disk));
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

/// Reports, and returns the answer's status and text. The answer comes in time, whatever the disk does: the log waits for
/// space for two seconds.
fn report(address: SocketAddr, nth: u32) -> (u16, String) {
    report_with(address, nth, "durable")
}

fn report_with(address: SocketAddr, nth: u32, ack: &str) -> (u16, String) {
    let body = format!(
        "{{\"entity\":\"a\",\"lat\":1,\"lon\":2,\"time\":{}}}",
        T + nth
    );
    let clock = SystemClock::shared();
    let begin = clock.monotonic_nanos();
    let answer = call(
        address,
        &format!("POST /v1/fleets/f/reports?ack={ack}"),
        &body,
    );
    let seconds = (clock.monotonic_nanos() - begin) / 1_000_000_000;
    assert!(seconds < 10, "{seconds} s: {answer:?}");
    answer
}

/// Asserts that the reports are in the database of a disk, and that its rows agree.
fn assert_there(disk: &SimDisk, answered: &[u32]) {
    let engine = engine(disk);
    let how = check::Options { visits: true };
    let findings = check::check(&engine, how, &mut |_| ()).unwrap();
    assert_eq!(findings.problems, []);
    let fleets = Fleets::open(&engine).unwrap();
    let fleet = fleets.get(&Name::new("f").unwrap()).unwrap().fleet;
    for nth in answered {
        let key = PointKey {
            fleet,
            entity: Name::new("a").unwrap().number(0),
            time: Time(i64::from(T + nth) * SECOND),
        };
        let found = engine.get(Family::Default, &key.to_bytes()).unwrap();
        assert!(found.is_some(), "report {nth} was answered, and is lost");
    }
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
    assert_eq!(report(address, 0).0, 200);
    assert!(!refuses());
    disk.fail_on(Fault::NoSpace, Repeat::Forever, |_, _| true);
    let (status, answer) = report(address, 1);
    assert!(
        status == 503 && answer.contains("/problems/no-space"),
        "{answer}"
    );
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
    assert_eq!(report(address, 2).0, 200);
    assert!(!refuses());
    // The same with a device that fails: after that the database needs a new start.
    disk.fail_on(Fault::Eio, Repeat::Forever, |act, _| {
        matches!(act, Act::Write | Act::WriteDsync | Act::Sync | Act::Create)
    });
    assert_eq!(report(address, 3).0, 500);
    let answer = ready(address, 503);
    assert!(answer.contains("start it again"), "{answer}");
    // An error may come from writes that were not durable.
    drop(server.stop());
    disk.clear_faults();
    let server = serve(&disk);
    let address = server.address();
    ready(address, 200);
    assert_eq!(report(address, 4).0, 200);
    server.stop().unwrap();
    // Nothing that was answered is lost, and a power cut does not change that.
    assert_there(&disk.kill_image(), &[0, 2, 4]);
    assert_there(
        &disk.crash_image(&mut Rng::new(3), CrashKind::Nothing),
        &[0, 2, 4],
    );
}

/// Reports that need not be durable wait for space as long as others, and only the first of them.
#[test]
fn visible_reports_on_a_full_disk_are_refused_in_time() {
    let disk = SimDisk::new(Config::default());
    let server = serve(&disk);
    let address = server.address();
    assert_eq!(report_with(address, 0, "visible").0, 200);
    // The system has it.
    assert_there(&disk.kill_image(), &[0]);
    disk.fail_on(Fault::NoSpace, Repeat::Forever, |act, _| {
        matches!(
            act,
            Act::Write | Act::WriteDsync | Act::Allocate | Act::Create
        )
    });
    let clock = SystemClock::shared();
    let begin = clock.monotonic_nanos();
    for nth in 1..6 {
        let (status, answer) = report_with(address, nth, "visible");
        assert!(
            status == 503 && answer.contains("/problems/no-space"),
            "{answer}"
        );
    }
    // More than the log keeps in the process.
    for part in 0..4 {
        let line = |n: u32| {
            let (lat, time) = (n % 80, T + 1000 + part * 2000 + n);
            format!("{{\"entity\":\"b\",\"lat\":{lat},\"lon\":2,\"time\":{time}}}\n")
        };
        let lines: String = (0..2000).map(line).collect();
        let (status, answer) = call(address, "POST /v1/fleets/f/reports?ack=visible", &lines);
        assert_eq!(status, 503, "{answer:.500}");
    }
    let seconds = (clock.monotonic_nanos() - begin) / 1_000_000_000;
    assert!(seconds < 15, "{seconds} s");
    // Of a report that is in the process only, a repetition is no more than that.
    assert_eq!(report(address, 9).0, 503);
    assert_eq!(report_with(address, 9, "visible").0, 503);
    disk.clear_faults();
    ready(address, 200);
    assert_eq!(report_with(address, 6, "visible").0, 200);
    server.stop().unwrap();
    // What is there when the process ends is in the log, and the end has synced that.
    assert_there(&disk.kill_image(), &[0, 6]);
    assert_there(
        &disk.crash_image(&mut Rng::new(3), CrashKind::Nothing),
        &[0, 6],
    );
}
