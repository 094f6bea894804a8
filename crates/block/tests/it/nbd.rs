//! Tests of the server through its sockets: order, limits, lost connections, silent clients, stopping.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::clock::SystemClock;
use base::threads::SystemThreads;
use block::nbd::codec::{Command, Opt};
use block::nbd::serve::{Options, Running, Server};
use block::nbd::session;
use block::nbd::socket::Listener;

use crate::client::{Client, request};
use crate::memory::{Counts, Memory};

const SIZE: u64 = 256 << 20;

fn start(memory: Memory, options: Options) -> (Running, Arc<Counts>) {
    let counts = Arc::clone(&memory.counts);
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let server = Server::new(listener, memory, options, SystemClock::shared()).unwrap();
    (server.start(&SystemThreads).unwrap(), counts)
}

/// Waits until the condition holds, at most some seconds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let clock = SystemClock::shared();
    let start = clock.monotonic_nanos();
    while !holds() {
        let waited = Duration::from_nanos(clock.monotonic_nanos() - start);
        assert!(waited < Duration::from_secs(20), "never: {what}");
        clock.sleep(Duration::from_millis(5));
    }
}

fn get(counter: &std::sync::atomic::AtomicI64) -> i64 {
    counter.load(Ordering::Relaxed)
}

#[test]
fn bytes_come_back_whatever_the_order_of_replies() {
    let (server, _) = start(Memory::slow(SIZE, 1), Options::default());
    let mut client = Client::attached(server.uri(), "vol");
    for cookie in 0..100_u64 {
        let bytes = vec![cookie as u8; 5000];
        client.send(Command::Write, cookie, cookie * 5000, 5000, &bytes);
    }
    let mut seen: Vec<u64> = (0..100).map(|_| client.reply().1).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..100));
    let many: Vec<u8> = (0..100)
        .flat_map(|cookie| request(Command::Read, cookie, cookie * 5000 + 1, 4000, b""))
        .collect();
    client.stream.write_all(&many).unwrap();
    let mut order = Vec::new();
    for _ in 0..100 {
        let (errno, cookie) = client.reply();
        let mut bytes = [0; 4000];
        client.stream.read_exact(&mut bytes).unwrap();
        assert!(errno == 0 && bytes.iter().all(|&b| u64::from(b) == cookie));
        order.push(cookie);
    }
    assert!(!order.is_sorted(), "the exports did not shuffle");
    server.stop().unwrap();
}

/// The requests of a lost connection complete later: nobody gets the replies, and the export is detached
/// afterwards.
#[test]
fn the_dead_leave_nothing_behind() {
    let (server, counts) = start(Memory::slow(SIZE, usize::MAX), Options::default());
    let mut dead = Client::attached(server.uri(), "vol");
    for cookie in 0..8 {
        dead.send(Command::Read, 1000 + cookie, 0, 4096, b"");
    }
    until("8 are out", || get(&counts.out) == 8);
    drop(dead);
    let mut client = Client::attached(server.uri(), "vol");
    for cookie in 0..8 {
        client.send(Command::Flush, cookie, 0, 0, b"");
    }
    until("16 are out", || get(&counts.out) == 16);
    assert_eq!(get(&counts.attached), 2, "detached under its operations");
    counts.least.store(1, Ordering::Relaxed);
    client.send(Command::Flush, 8, 0, 0, b"");
    let mut seen: Vec<_> = (0..9).map(|_| client.reply()).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..9).map(|cookie| (0, cookie))));
    until("the dead are detached", || get(&counts.attached) == 1);
    assert_eq!(get(&counts.out), 0);
    drop(client);
    until("all are detached", || get(&counts.attached) == 0);
    server.stop().unwrap();
}

#[test]
fn a_slow_reader_is_not_read_from() {
    let options = Options {
        session: session::Options {
            requests_max: 16,
            bytes_max: 8 << 20,
            ..session::Options::default()
        },
        ..Options::default()
    };
    let (server, counts) = start(Memory::new(SIZE), options);
    let mut slow = Client::attached(server.uri(), "vol");
    slow.send(Command::Write, 0, 0, 1 << 20, &vec![1; 1 << 20]);
    assert_eq!(slow.reply(), (0, 0));
    // Requests without reading a reply, until the sockets are full. The system's buffers for the server are
    // limited too.
    let short = Some(Duration::from_millis(500));
    slow.stream.set_write_timeout(short).unwrap();
    let asked = request(Command::Read, 1, 0, 1 << 20, b"").repeat(1000);
    let mut sent = 0;
    for _ in 0..4000 {
        match slow.stream.write(&asked[sent % 28..]) {
            Ok(n) => sent += n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(sent / 28 > 1000, "{sent}");
    let taken = get(&counts.submitted);
    assert!(taken < 100, "{taken} reads of 1 MiB were taken");
    // Other clients are served meanwhile, and this one goes on when it reads.
    let mut other = Client::attached(server.uri(), "vol");
    other.send(Command::Flush, 3, 0, 0, b"");
    assert_eq!(other.reply(), (0, 3));
    let mut bytes = vec![0; 1 << 20];
    for _ in 0..200 {
        assert_eq!(slow.reply(), (0, 1));
        slow.stream.read_exact(&mut bytes).unwrap();
        assert!(bytes.iter().all(|&b| b == 1));
    }
    drop(slow);
    server.stop().unwrap();
}

#[test]
fn the_silent_are_closed_and_the_attached_are_not() {
    let options = Options {
        handshake_timeout: Duration::from_millis(300),
        ..Options::default()
    };
    let (server, _) = start(Memory::new(SIZE), options);
    let mut attached = Client::attached(server.uri(), "vol");
    let mut silent = Client::connect(server.uri());
    let mut half = Client::connect(server.uri());
    half.stream.write_all(&[0, 0, 0, 3, b'I']).unwrap();
    assert!(silent.is_closed() && half.is_closed());
    attached.send(Command::Flush, 3, 0, 0, b"");
    assert_eq!(attached.reply(), (0, 3));
    server.stop().unwrap();
}

#[test]
fn connections_are_bounded_and_the_next_waits() {
    let options = Options {
        connections_max: 2,
        ..Options::default()
    };
    let (server, _) = start(Memory::new(SIZE), options);
    let first = Client::attached(server.uri(), "vol");
    let _second = Client::attached(server.uri(), "vol");
    let uri = server.uri().to_owned();
    let third = std::net::TcpStream::connect(uri.strip_prefix("nbd://").unwrap()).unwrap();
    third
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let waits = (&third).read(&mut [0; 18]).unwrap_err().kind();
    assert!(matches!(waits, ErrorKind::WouldBlock | ErrorKind::TimedOut));
    drop(first);
    third
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    (&third).read_exact(&mut [0; 18]).unwrap();
    server.stop().unwrap();
}

#[test]
fn stopping_finishes_what_is_on_its_way() {
    let (server, counts) = start(Memory::slow(SIZE, usize::MAX), Options::default());
    let mut client = Client::attached(server.uri(), "vol");
    let mut idle = Client::attached(server.uri(), "vol@snap");
    let mut greeted = Client::connect(server.uri());
    for cookie in 0..3 {
        client.send(Command::Flush, cookie, 0, 0, b"");
    }
    until("3 are out", || get(&counts.out) == 3);
    assert_eq!(get(&counts.attached), 2);
    counts.least.store(1, Ordering::Relaxed);
    server.stop().unwrap();
    let mut seen: Vec<_> = (0..3).map(|_| client.reply()).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(0, 0), (0, 1), (0, 2)]);
    assert!(client.is_closed() && idle.is_closed() && greeted.is_closed());
    assert_eq!((get(&counts.attached), get(&counts.out)), (0, 0));
}

#[test]
fn what_never_ends_does_not_keep_a_server_from_stopping() {
    let options = Options {
        stop_timeout: Duration::from_millis(100),
        ..Options::default()
    };
    let (server, counts) = start(Memory::slow(SIZE, usize::MAX), options);
    let mut client = Client::attached(server.uri(), "vol");
    client.send(Command::Flush, 1, 0, 0, b"");
    until("it is out", || get(&counts.out) == 1);
    server.stop().unwrap();
    assert!(client.is_closed());
    assert_eq!(get(&counts.attached), 0);
}

#[test]
fn refusals_over_a_socket() {
    let (server, counts) = start(Memory::new(SIZE), Options::default());
    let mut client = Client::attached(server.uri(), "vol@snap");
    client.send(Command::Write, 1, 0, 4096, &[1; 4096]);
    assert_eq!(client.reply(), (1, 1));
    client.send(Command::Write, 2, 0, 33 << 20, &vec![1; 33 << 20]);
    assert_eq!(client.reply(), (1, 2));
    client.send(Command::Read, 3, SIZE, 1, b"");
    assert_eq!(client.reply(), (22, 3));
    client.send(Command::Disc, 4, 0, 0, b"");
    assert!(client.is_closed());
    let mut client = Client::attached(server.uri(), "vol");
    client.send(Command::Write, 2, 0, 33 << 20, &vec![1; 33 << 20]);
    assert_eq!(client.reply(), (22, 2));
    client.send(Command::Write, 3, SIZE - 1, 2, b"ab");
    assert_eq!(client.reply(), (28, 3));
    client.stream.write_all(&[0; 28]).unwrap();
    assert!(client.is_closed(), "a wrong magic");
    let mut client = Client::connect(server.uri());
    client.stream.write_all(&3_u32.to_be_bytes()).unwrap();
    client.option(Opt::StartTls, b"");
    assert_eq!(client.option_reply(), 0x8000_0001);
    client.option(Opt::ExportName, b"no such export");
    assert!(client.is_closed());
    until("all are detached", || get(&counts.attached) == 0);
    server.stop().unwrap();
}

/// The data of `INFO` and `GO`.
fn info(name: &str) -> Vec<u8> {
    let len = (name.len() as u32).to_be_bytes();
    [&len[..], name.as_bytes(), &[0, 0]].concat()
}

/// Each refusal names the fault and the remedy; the connection and the server go on.
#[test]
fn refusals_name_the_thing_and_the_remedy() {
    let (server, _) = start(Memory::new(SIZE), Options::default());
    let mut client = Client::connect(server.uri());
    client.stream.write_all(&3_u32.to_be_bytes()).unwrap();
    let (unsup, too_big) = (0x8000_0001, 0x8000_0009);
    for (option, data, kind, words) in [
        (
            Opt::Go as u32,
            info(&"x".repeat(4097)),
            too_big,
            ["a name of more than 4096 bytes", "ask for the list"],
        ),
        (
            77,
            b"abc".to_vec(),
            unsup,
            ["option 77 is not known here", "go on without it"],
        ),
        (
            Opt::StartTls as u32,
            Vec::new(),
            unsup,
            ["TLS is not built", "connect without it"],
        ),
        (
            Opt::SetMetaContext as u32,
            vec![0; 33 << 10],
            too_big,
            ["more than 32768 bytes", "say less"],
        ),
    ] {
        client.option_of(option, &data);
        let (found, text) = client.option_answer();
        assert_eq!(found, kind, "{text}");
        assert!(words.iter().all(|w| text.contains(w)), "{words:?}: {text}");
    }
    client.option(Opt::StructuredReply, b"");
    assert_eq!(client.option_reply(), 1);
    client.option(Opt::Go, &info("vol"));
    while client.option_reply() != 1 {}
    let end = ["beyond the end of the export", "ask for its size"];
    let much = ["more than 32 MiB", "ask for less"];
    for (cookie, (command, offset, len, errno, words)) in (1..).zip([
        (Command::Write, SIZE - 1, 2, 28, end),
        (Command::Write, u64::MAX - 1, 4096, 28, end),
        (Command::Read, u64::MAX, 4096, 22, end),
        (Command::Write, 0, 33 << 20, 22, much),
        (Command::Read, 0, 33 << 20, 22, much),
    ]) {
        let payload = if command == Command::Write { len } else { 0 };
        client.send(command, cookie, offset, len, &vec![1; payload as usize]);
        let (found, whose, text) = client.refusal();
        assert_eq!((found, whose), (errno, cookie), "{text}");
        assert!(words.iter().all(|w| text.contains(w)), "{words:?}: {text}");
    }
    let mut other = Client::attached(server.uri(), "vol");
    other.send(Command::Flush, 9, 0, 0, b"");
    assert_eq!(other.reply(), (0, 9));
    server.stop().unwrap();
}

/// Clients that disconnect at any moment, even within a payload or an option, do not disturb the server and the
/// client that stays.
#[test]
fn clients_come_and_go() {
    let (server, counts) = start(Memory::slow(SIZE, 1), Options::default());
    let mut stays = Client::attached(server.uri(), "vol");
    let mut rng = base::rng::Rng::new(11);
    for round in 0..200_u64 {
        let mut stream = request(Command::Write, 7, 0, 9000, &[5; 9000]);
        stream.extend(request(Command::Read, 8, 0, 100_000, b"").repeat(3));
        stream.extend(request(Command::Write, 9, 9000, 8 << 20, &vec![6; 300_000]));
        let mut goes = if round % 4 == 0 {
            Client::connect(server.uri())
        } else {
            Client::attached(server.uri(), "vol")
        };
        let cut = rng.below(stream.len() as u64) as usize;
        let cut = if round % 4 == 0 { cut % 20 } else { cut };
        goes.stream.write_all(&stream[..cut]).unwrap_or_default();
        drop(goes);
        let offset = (128 << 20) + round * 4096;
        stays.send(Command::Write, round, offset, 4096, &[round as u8; 4096]);
        assert_eq!(stays.reply(), (0, round));
        stays.send(Command::Read, round, offset, 4096, b"");
        assert_eq!(stays.reply(), (0, round));
        let mut bytes = [0; 4096];
        stays.stream.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [round as u8; 4096]);
    }
    until("one is attached", || get(&counts.attached) == 1);
    until("nothing is out", || get(&counts.out) == 0);
    server.stop().unwrap();
}
