//! Tests of sessions with the bytes of clients, and with bytes that no client would send.
#![expect(clippy::indexing_slicing, reason = "a test may panic")]

use std::collections::VecDeque;

use io::buffer::PAGE;
use proptest::prelude::*;

use super::*;
use crate::nbd::codec::{Command, Opt, REQUEST_BYTES_MAX, flags};
use crate::nbd::command::{ExportId, Extent};

const SIZE: u64 = 64 << 20;

fn export() -> ExportInfo {
    ExportInfo {
        id: ExportId(1),
        name: "vol".to_owned(),
        description: String::new(),
        size: SIZE,
        read_only: false,
        fast_zero: false,
    }
}

fn option(number: Opt, data: &[u8]) -> Vec<u8> {
    [
        &codec::IHAVEOPT.to_be_bytes()[..],
        &(number as u32).to_be_bytes(),
        &(data.len() as u32).to_be_bytes(),
        data,
    ]
    .concat()
}

fn request(command: Command, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    [
        &codec::REQUEST.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &(command as u16).to_be_bytes(),
        &cookie.to_be_bytes(),
        &offset.to_be_bytes(),
        &len.to_be_bytes(),
    ]
    .concat()
}

fn write(cookie: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
    let len = bytes.len() as u32;
    [&request(Command::Write, 0, cookie, offset, len)[..], bytes].concat()
}

/// The bytes that a client sends before its first request.
fn hello(structured: bool) -> Vec<u8> {
    let name = [&3_u32.to_be_bytes()[..], b"vol"].concat();
    let query = [
        &1_u32.to_be_bytes()[..],
        &15_u32.to_be_bytes(),
        b"base:allocation",
    ]
    .concat();
    let mut out = 3_u32.to_be_bytes().to_vec();
    if structured {
        out.extend(option(Opt::StructuredReply, b""));
        out.extend(option(Opt::SetMetaContext, &[&name[..], &query].concat()));
    }
    out.extend(option(Opt::Go, &[&name[..], &[0, 0]].concat()));
    out
}

/// A session, the bytes for it, and its output.
struct Client {
    session: Session,
    unsent: VecDeque<u8>,
    requests: Vec<(Handle, Op)>,
    said: Vec<u8>,
}

impl Client {
    fn new(options: Options) -> Self {
        Self {
            session: Session::new(options),
            unsent: VecDeque::new(),
            requests: Vec::new(),
            said: Vec::new(),
        }
    }

    /// A client in the transmission phase, with its output so far discarded.
    fn ready(structured: bool, options: Options) -> Self {
        let mut client = Self::new(options);
        client.send(&hello(structured)).unwrap();
        client.said.clear();
        assert!(!client.session.in_handshake());
        client
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.unsent.extend(bytes);
        self.turn(usize::MAX)
    }

    /// Lets the session read, `step` bytes at a time, until it wants no more; answers its questions.
    fn turn(&mut self, step: usize) -> Result<()> {
        loop {
            self.drain();
            while let Some(event) = self.session.next_event()? {
                match event {
                    Event::Ask(Ask::List) => self.session.names(Ok(vec!["vol".to_owned()])),
                    Event::Ask(_) => self.session.answer(Ok(export()))?,
                    Event::Request(handle, op) => self.requests.push((handle, op)),
                }
                self.drain();
            }
            if self.session.has_output() {
                continue;
            }
            if !self.session.wants_input() || self.unsent.is_empty() {
                return Ok(());
            }
            let space = self.session.space();
            assert!(!space.is_empty());
            let n = space.len().min(step).min(self.unsent.len());
            for (to, from) in space.iter_mut().zip(self.unsent.drain(..n)) {
                *to = from;
            }
            self.session.filled(n);
        }
    }

    fn drain(&mut self) {
        while self.session.has_output() {
            let mut slices = [IoSlice::new(&[]); 7];
            let count = self.session.output(&mut slices);
            let there: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
            self.said.extend_from_slice(&there);
            self.session.sent(there.len());
        }
    }

    fn reply(&mut self, at: usize, result: Result<Reply, Errno>) {
        let (handle, _) = self.requests.remove(at);
        self.session.reply(handle, result).unwrap();
        self.drain();
    }

    fn take_said(&mut self) -> Vec<u8> {
        mem::take(&mut self.said)
    }
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

/// The chunks in `bytes`: whether each is the last, its kind, cookie and data.
fn chunks(mut bytes: &[u8]) -> Vec<(bool, u16, u64, Vec<u8>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(be32(bytes), codec::CHUNK);
        let len = be32(&bytes[16..]) as usize;
        let kind = u16::from_be_bytes([bytes[6], bytes[7]]);
        let data = bytes[20..20 + len].to_vec();
        out.push((bytes[5] == 1, kind, be64(&bytes[8..]), data));
        bytes = &bytes[20 + len..];
    }
    out
}

/// The errno and cookie of a simple reply without data.
fn simple(bytes: &[u8]) -> (u32, u64) {
    assert_eq!((be32(bytes), bytes.len()), (codec::SIMPLE_REPLY, 16));
    (be32(&bytes[4..]), be64(&bytes[8..]))
}

#[test]
fn payloads_are_aligned_and_whole_however_the_bytes_come() {
    for step in [27, 28, 29, 4096, usize::MAX] {
        let mut client = Client::ready(true, Options::default());
        let big: Vec<u8> = (0..3_000_000_u32).map(|i| (i / 7) as u8).collect();
        for (i, bytes) in [&big[..], b"x", &big[..4096], &big[..65_000]]
            .iter()
            .enumerate()
        {
            client
                .unsent
                .extend(write(i as u64, i as u64 * 1000, bytes));
        }
        client.turn(step).unwrap();
        assert_eq!(client.requests.len(), 4, "{step}");
        for ((_, op), want) in client.requests.iter().zip([3_000_000, 1, 4096, 65_000]) {
            let Op::Write { bytes, .. } = op else {
                panic!("{op:?}");
            };
            assert_eq!(bytes.as_ptr() as usize % PAGE, 0);
            assert!(bytes[..] == big[..want] || &bytes[..] == b"x");
        }
    }
}

#[test]
fn replies_come_in_any_order_and_with_equal_cookies() {
    let mut client = Client::ready(false, Options::default());
    client.send(&request(Command::Read, 0, 5, 0, 2)).unwrap();
    client.send(&request(Command::Read, 0, 5, 9, 3)).unwrap();
    client.send(&request(Command::Flush, 0, 6, 0, 0)).unwrap();
    client.reply(2, Ok(Reply::Done));
    assert_eq!(simple(&client.take_said()), (0, 6));
    let handle = client.requests[1].0;
    client.reply(1, Ok(Reply::Data(Bytes::from_static(b"abc"))));
    assert_eq!(client.take_said()[16..], *b"abc");
    assert!(
        client.session.reply(handle, Ok(Reply::Done)).is_err(),
        "twice"
    );
    client.send(&request(Command::Trim, 0, 7, 9, 3)).unwrap();
    assert!(
        client.session.reply(handle, Ok(Reply::Done)).is_err(),
        "its place is another's"
    );
    client.reply(0, Err(Errno::Io));
    assert_eq!(simple(&client.take_said()), (5, 5));
    client.reply(0, Ok(Reply::Done));
    assert_eq!(simple(&client.take_said()), (0, 7));
    assert_eq!(
        (client.session.waiting(), client.session.held_bytes()),
        (0, 0)
    );
}

fn pieces() -> Reply {
    Reply::Pieces(vec![
        Piece::Data(Bytes::from_static(b"ab")),
        Piece::Data(Bytes::from_static(b"cd")),
        Piece::Hole(70_000),
        Piece::Hole(0),
        Piece::Hole(30_000),
        Piece::Data(Bytes::from_static(b"ef")),
    ])
}

#[test]
fn reads_with_holes() {
    let len = 100_006;
    let mut client = Client::ready(true, Options::default());
    client.send(&request(Command::Read, 0, 1, 50, len)).unwrap();
    client.reply(0, Ok(pieces()));
    let told = chunks(&client.take_said());
    let hole = [&54_u64.to_be_bytes()[..], &100_000_u32.to_be_bytes()].concat();
    let at = |offset: u64, data: &[u8]| [&offset.to_be_bytes()[..], data].concat();
    let want = [
        (false, 1, 1, at(50, b"abcd")),
        (false, 2, 1, hole),
        (true, 1, 1, at(100_054, b"ef")),
    ];
    assert_eq!(told, want);
    // A single chunk, or a simple reply, has the zeros as bytes.
    let plain = [&b"abcd"[..], &vec![0; 100_000], b"ef"].concat();
    client
        .send(&request(Command::Read, flags::DF, 1, 50, len))
        .unwrap();
    client.reply(0, Ok(pieces()));
    assert_eq!(chunks(&client.take_said()), [(true, 1, 1, at(50, &plain))]);
    client
        .send(&request(Command::Read, flags::DF, 1, 50, 9))
        .unwrap();
    client.reply(0, Ok(Reply::Pieces(vec![Piece::Hole(4), Piece::Hole(5)])));
    let told = chunks(&client.take_said());
    assert_eq!((told.len(), told[0].1, told[0].0), (1, 2, true));
    let mut client = Client::ready(false, Options::default());
    client.send(&request(Command::Read, 0, 1, 50, len)).unwrap();
    client.reply(0, Ok(pieces()));
    assert_eq!(client.take_said()[16..], plain[..]);
}

#[test]
fn extents_are_merged_cut_and_bounded() {
    let extent = |len, hole| Extent {
        len,
        hole,
        zero: hole,
    };
    let ask = |flags, extents: Vec<Extent>| {
        let mut client = Client::ready(true, Options::default());
        client
            .send(&request(Command::BlockStatus, flags, 1, 0, 1000))
            .unwrap();
        client.reply(0, Ok(Reply::Status(extents)));
        let told = chunks(&client.take_said());
        assert_eq!((told.len(), told[0].0, told[0].1), (1, true, 5));
        assert_eq!(be32(&told[0].3), 1);
        let pairs = told[0].3[4..].chunks(8);
        pairs.map(|p| (be32(p), be32(&p[4..]))).collect::<Vec<_>>()
    };
    let all = vec![extent(100, false), extent(50, false), extent(1 << 40, true)];
    assert_eq!(ask(0, all.clone()), [(150, 0), (850, 3)]);
    assert_eq!(ask(flags::REQ_ONE, all), [(150, 0)]);
    let many = (0..20_000).map(|i| extent(1, i % 2 == 0)).collect();
    assert_eq!(ask(0, many).len(), 1000);
}

#[test]
fn refused_requests_are_answered_and_the_connection_goes_on() {
    for structured in [false, true] {
        let mut client = Client::ready(structured, Options::default());
        let mib = 33 << 20;
        let mut unknown = request(Command::Read, 0, 4, 0, 1);
        unknown[7] = 99;
        for (bytes, payload, errno) in [
            (request(Command::Read, 0, 1, 0, mib), 0, 22),
            (request(Command::Write, 0, 2, 0, mib), mib, 22),
            (request(Command::Write, 0, 3, SIZE - 1, 2), 2, 28),
            (unknown, 0, 22),
            (request(Command::Write, 1 << 9, 5, 0, 512), 512, 22),
            (request(Command::Write, 0, 6, u64::MAX - 1, 4096), 4096, 28),
            (request(Command::Read, 0, 7, u64::MAX, 4096), 0, 22),
            (
                request(Command::WriteZeroes, flags::FAST_ZERO, 8, 0, 512),
                0,
                95,
            ),
        ] {
            let cookie = be64(&bytes[8..]);
            client.send(&bytes).unwrap();
            // A request inside of the dropped payload must not be taken for one.
            let mut left = payload as usize;
            let part = request(Command::Disc, 0, 0, 0, 0).repeat(1 << 13);
            while left > 0 {
                assert_eq!(client.said, b"", "said before its payload is gone");
                let n = left.min(part.len());
                client.send(&part[..n]).unwrap();
                left -= n;
            }
            let said = client.take_said();
            if structured {
                let told = chunks(&said);
                assert_eq!((told.len(), told[0].0, told[0].1), (1, true, 0x8001));
                assert_eq!((be32(&told[0].3), told[0].2), (errno, cookie));
                let text = u16::from_be_bytes([told[0].3[4], told[0].3[5]]);
                assert_eq!(told[0].3.len(), 6 + usize::from(text));
            } else {
                assert_eq!(simple(&said), (errno, cookie));
            }
        }
        client.send(&write(9, 0, b"still")).unwrap();
        client.reply(0, Ok(Reply::Done));
        assert_eq!(simple(&client.take_said()), (0, 9));
        assert_eq!(client.session.held, Weight::default());
        let mut bad = request(Command::Read, 0, 1, 0, 1);
        bad[0] = 0;
        assert!(client.send(&bad).is_err());
    }
}

#[test]
fn no_bytes_are_asked_for_and_given() {
    let mut client = Client::ready(true, Options::default());
    client.send(&request(Command::Read, 0, 1, 0, 0)).unwrap();
    assert_eq!(chunks(&client.take_said()), [(true, 0, 1, vec![])]);
    client.send(&write(2, 0, b"")).unwrap();
    assert_eq!(simple(&client.take_said()), (0, 2));
    assert!(client.requests.is_empty());
}

#[test]
fn over_its_bounds_a_connection_takes_nothing_until_replies_have_left() {
    let options = Options {
        requests_max: 8,
        bytes_max: 1 << 20,
        ..Options::default()
    };
    let mut client = Client::ready(true, options.clone());
    for cookie in 0..100_000 {
        client
            .unsent
            .extend(request(Command::Flush, 0, cookie, 0, 0));
    }
    client.turn(usize::MAX).unwrap();
    assert_eq!(client.requests.len(), 8);
    assert!(!client.session.wants_input());
    // A reply that is not sent yet still counts.
    let (handle, _) = client.requests.remove(0);
    client.session.reply(handle, Ok(Reply::Done)).unwrap();
    assert_eq!(client.session.next_event().unwrap(), None);
    client.turn(usize::MAX).unwrap();
    assert_eq!(client.requests.len(), 8);
    // So do errors: a client that sends rubbish and reads nothing is not read from either.
    let mut client = Client::ready(true, options.clone());
    let rubbish = request(Command::Read, 1 << 9, 1, 0, 1).repeat(2000);
    let space = client.session.space();
    space[..rubbish.len()].copy_from_slice(&rubbish);
    client.session.filled(rubbish.len());
    assert_eq!(client.session.next_event().unwrap(), None);
    assert_eq!(client.session.held.requests, 8);
    // And bytes: the request that exceeds the limit is the last.
    let mut client = Client::ready(true, options);
    for cookie in 0..5 {
        client
            .send(&request(Command::Read, 0, cookie, 0, 600 << 10))
            .unwrap();
    }
    assert_eq!(client.requests.len(), 2);
    client.reply(0, Err(Errno::Io));
    client.turn(usize::MAX).unwrap();
    assert_eq!(client.requests.len(), 2);
}

#[test]
fn disconnecting_lets_what_is_on_its_way_finish() {
    let mut client = Client::ready(true, Options::default());
    client.send(&write(1, 0, b"x")).unwrap();
    client.send(&request(Command::Disc, 0, 0, 0, 0)).unwrap();
    client.send(&write(2, 0, b"not any more")).unwrap();
    assert!(!client.session.wants_input() && !client.session.is_finished());
    client.reply(0, Ok(Reply::Done));
    assert!(client.session.is_finished() && client.requests.is_empty());
    let mut client = Client::new(Options::default());
    let bytes = [&3_u32.to_be_bytes()[..], &option(Opt::Abort, b"")].concat();
    client.send(&bytes).unwrap();
    assert!(client.session.is_finished());
}

/// A reply of the exports, for the tests with hostile bytes.
fn any_reply(op: &Op, how: u8) -> Result<Reply, Errno> {
    if how % 5 == 4 {
        return Err(Errno::Io);
    }
    Ok(match *op {
        Op::Read { len, .. } if how.is_multiple_of(2) => Reply::Pieces(vec![Piece::Hole(len)]),
        Op::Read { len, .. } => Reply::Data(vec![7; len as usize].into()),
        Op::BlockStatus { len, .. } => Reply::Status(vec![Extent {
            len: u64::from(len),
            hole: how.is_multiple_of(2),
            zero: false,
        }]),
        _ => Reply::Done,
    })
}

/// Feeds `bytes`. Whatever they are: nothing panics, memory stays within its limits, operations lie within
/// the export, and each request that was taken is answered.
fn survive(bytes: &[u8], step: usize, how: u8) {
    let options = Options {
        requests_max: 4,
        bytes_max: 1 << 20,
        ..Options::default()
    };
    let mut client = Client::new(options.clone());
    client.unsent.extend(bytes);
    loop {
        let ended = client.turn(step).is_err();
        let session = &client.session;
        assert!(session.held_bytes() <= options.bytes_max + u64::from(REQUEST_BYTES_MAX));
        assert!(session.held.requests <= options.requests_max);
        assert!(session.stage.len() == STAGE_BYTES && session.slots.len() <= 4);
        for (_, op) in &client.requests {
            let (offset, len) = match op {
                Op::Write { offset, bytes, .. } => (*offset, bytes.len() as u64),
                Op::Read { offset, len, .. }
                | Op::Trim { offset, len, .. }
                | Op::Zero { offset, len, .. }
                | Op::Cache { offset, len }
                | Op::BlockStatus { offset, len, .. } => (*offset, u64::from(*len)),
                Op::Flush => continue,
            };
            assert!(len > 0 && offset + len <= SIZE);
        }
        if ended || client.requests.is_empty() {
            break;
        }
        let at = usize::from(how) % client.requests.len();
        let reply = any_reply(&client.requests[at].1, how);
        client.reply(at, reply);
        client.said.clear();
    }
}

/// A stream that a client could send.
fn valid(ops: &[(u8, u32, u16)]) -> Vec<u8> {
    let mut out = hello(ops.len().is_multiple_of(2));
    for (i, &(command, offset, len)) in ops.iter().enumerate() {
        let Some(command) = Command::of(u16::from(command % 8)) else {
            continue;
        };
        if command == Command::Write {
            let bytes = vec![i as u8; usize::from(len % 3000)];
            out.extend(write(i as u64, u64::from(offset), &bytes));
        } else if command != Command::Disc {
            out.extend(request(
                command,
                0,
                i as u64,
                u64::from(offset),
                u32::from(len),
            ));
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_bytes(bytes: Vec<u8>, greeted: bool, step in 1..5000_usize, how: u8) {
        let mut all = if greeted { hello(how % 2 == 0) } else { Vec::new() };
        all.extend(bytes);
        survive(&all, step, how);
    }

    #[test]
    fn valid_streams_with_flipped_and_lost_bytes(
        ops in proptest::collection::vec((any::<u8>(), 0..SIZE as u32 + 9000, any::<u16>()), 0..30),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 0..6),
        step in 1..100_000_usize,
        how: u8,
    ) {
        let mut bytes = valid(&ops);
        for (at, byte, lost) in changes {
            let at = at.index(bytes.len());
            if lost {
                bytes.remove(at);
            } else {
                bytes[at] = byte;
            }
        }
        survive(&bytes, step, how);
    }
    /// Changes only the few bytes of a handshake, which the other tests seldom hit.
    #[test]
    fn handshakes_with_flipped_and_lost_bytes(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..4),
        step in 1..200_usize,
        how: u8,
    ) {
        let mut bytes = hello(true);
        for (at, byte, lost) in changes {
            let at = at.index(bytes.len());
            if lost {
                bytes.remove(at);
            } else {
                bytes[at] = byte;
            }
        }
        bytes.extend(valid(&[(0, 0, 512), (1, 4096, 100)]));
        survive(&bytes, step, how);
    }
}
