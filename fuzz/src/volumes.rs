//! The block store: what NBD clients, other processes and disks say.

use base::checksum::crc32c;
use block::group::command::{Command, Range};
use block::group::members::{Change, Members};
use block::group::message::{Body, Copy, CopyStep, Entry, Message, Read};
use block::group::volumes::Volumes;
use block::ids::{Block, Chunk, Epoch, Group, Index, Layer, Term, Tree, Uuid};
use block::nbd::codec::Errno;
use block::nbd::command::{ExportId, ExportInfo, Extent, Op, Reply};
use block::nbd::handshake::Ask;
use block::nbd::session::{Event, Options, Session};
use block::raftlog::batch;
use block::raftlog::file_head::FileHead;
use block::store::dirty::Key;
use block::store::page::{self, Owner, Page};
use block::store::superblock::Superblock;
use block::wire::client::{Outcome, Request, Response, Span, What};
use block::wire::frame::{FIELDS_BYTES_MAX, Frame, HEAD, Head, kind};
use block::wire::hello::{Hello, Role};
use block::wire::{raft, session};
use bytes::Bytes;

/// Bytes of the volume.
const SIZE: u64 = 64 << 20;
/// What is read is not made larger than this.
const READ_MAX: u32 = 1 << 20;
/// Where the covered bytes of frames and sealed blocks begin.
const COVERED: usize = 8;
const CLUSTER: Uuid = Uuid([7; 16]);

/// The bytes of an NBD client, which come in pieces as the last byte says; its questions are answered, and its requests
/// in the order in which they came or the other way round.
pub fn nbd(data: &[u8]) {
    let Some((how, mut rest)) = super::split(data) else {
        return;
    };
    let step = usize::from(how >> 1) * 64 + 1;
    let mut session = Session::new(Options::default());
    let mut open = Vec::new();
    loop {
        while let Ok(Some(event)) = session.next_event() {
            match event {
                Event::Ask(Ask::List) => session.names(Ok(vec!["vol".to_owned()])),
                Event::Ask(_) => drop(session.answer(Ok(export()))),
                Event::Request(handle, op) => open.push((handle, op)),
            }
        }
        if how & 1 == 1 {
            open.reverse();
        }
        for (handle, op) in open.drain(..) {
            session
                .reply(handle, answer(&op))
                .expect("it was asked for");
        }
        drain(&mut session);
        if !session.wants_input() || rest.is_empty() {
            return;
        }
        let space = session.space();
        let n = space.len().min(rest.len()).min(step);
        assert!(n > 0, "a session that wants bytes has room for some");
        let (now, later) = rest.split_at(n);
        space[..n].copy_from_slice(now);
        session.filled(n);
        rest = later;
    }
}

fn export() -> ExportInfo {
    ExportInfo {
        id: ExportId(1),
        name: "vol".to_owned(),
        description: String::new(),
        size: SIZE,
        read_only: false,
        fast_zero: true,
    }
}

fn answer(op: &Op) -> Result<Reply, Errno> {
    match op {
        Op::Read { len, offset, .. } => {
            assert!(offset + u64::from(*len) <= SIZE);
            if *len > READ_MAX {
                return Err(Errno::Io);
            }
            Ok(Reply::Data(vec![1; *len as usize].into()))
        }
        Op::Write { offset, bytes, .. } => {
            assert!(offset + bytes.len() as u64 <= SIZE);
            Ok(Reply::Done)
        }
        Op::BlockStatus { .. } => Ok(Reply::Status(vec![Extent {
            len: 4096,
            hole: true,
            zero: true,
        }])),
        _ => Ok(Reply::Done),
    }
}

fn drain(session: &mut Session) {
    while session.has_output() {
        let n = {
            let mut out = [std::io::IoSlice::new(&[]); 16];
            let count = session.output(&mut out);
            out[..count].iter().map(|s| s.len()).sum()
        };
        session.sent(n);
    }
}

/// What another process sends, behind its hello: requests, answers, messages of replicas. The checksums of frames are
/// mended, if the last byte says so.
pub fn wire(data: &[u8]) {
    let Some((how, content)) = super::split(data) else {
        return;
    };
    let me = Hello::new(CLUSTER, Role::Chunk, 2);
    let mut session = session::Session::new(me, session::Options::default()).expect("a hello");
    let mut bytes = hello();
    bytes.extend_from_slice(content);
    if how & 1 == 1 {
        mend_frames(&mut bytes);
    }
    let mut rest = &bytes[..];
    loop {
        while let Ok(Some(frame)) = session.next_frame() {
            frame_of(frame);
        }
        if !session.wants_input() || rest.is_empty() {
            return;
        }
        let space = session.space();
        let n = space.len().min(rest.len());
        assert!(n > 0, "a session that wants bytes has room for some");
        let (now, later) = rest.split_at(n);
        space[..n].copy_from_slice(now);
        session.filled(n);
        rest = later;
    }
}

fn frame_of(frame: Frame) {
    match frame.kind {
        kind::REQUEST => {
            if let Ok(request) = Request::of(frame) {
                let again = Request::of(request.clone().frame(1, 2));
                assert_eq!(again.expect("what was written is read"), request);
            }
        }
        kind::RESPONSE => drop(Response::of(frame)),
        _ => {
            let received = raft::decode(frame).unwrap_or_default();
            received.into_iter().for_each(message_of);
        }
    }
}

/// What another replica says is the same when it is written and read again.
fn message_of(received: raft::Received) {
    let raft::Received {
        group,
        message,
        payloads,
    } = &received;
    let mut gather = raft::Gather::new(raft::lane_of(&message.body));
    let mut frames = Vec::new();
    if gather.add((1, 2), *group, message, payloads, &mut frames).is_ok() {
        frames.extend(gather.frame(1, 2));
        let again = frames.into_iter().flat_map(|frame| {
            let bytes = frame.payload.concat();
            let payload = if bytes.is_empty() { vec![] } else { vec![bytes.into()] };
            raft::decode(Frame { payload, ..frame }).expect("what was written is read")
        });
        assert_eq!(again.collect::<Vec<_>>(), [received]);
    }
}

fn hello() -> Vec<u8> {
    let hello = Hello::new(CLUSTER, Role::Chunk, 1).frame();
    hello.encode().expect("it is short").to_vec()
}

/// Gives the frames of a stream their checksums.
fn mend_frames(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(Ok(Some(head))) = bytes.get(at..).map(Head::decode) {
        let end = at + HEAD + head.fields_bytes.min(FIELDS_BYTES_MAX);
        let Some(covered) = bytes.get(at + COVERED..end) else {
            return;
        };
        let crc = crc32c(covered).to_le_bytes();
        bytes[at + 4..at + COVERED].copy_from_slice(&crc);
        at = end + head.payload_bytes;
    }
}

/// What a store's files hold: the last byte says of which.
pub fn store(data: &[u8]) {
    let Some((how, content)) = super::split(data) else {
        return;
    };
    let mut bytes = content.to_vec();
    match how % 6 {
        0 | 1 => {
            bytes.resize(page::LEN, 0);
            let crc = crc32c(&bytes[COVERED..]).to_le_bytes();
            bytes[4..COVERED].copy_from_slice(&crc);
            if let Ok(page) = Page::decode(&bytes) {
                let again = Page::decode(&page.encode());
                assert_eq!(again.expect("what was written is read"), page);
            }
            drop(Superblock::decode(&bytes));
            drop(FileHead::decode(&bytes));
        }
        2 => batch_of(bytes),
        3 => {
            if let Ok(volumes) = Volumes::decode(&bytes) {
                let again = Volumes::decode(&volumes.encode());
                assert_eq!(
                    again.expect("what was written is read").encode(),
                    volumes.encode()
                );
            }
        }
        4 => {
            let mut d = base::coding::Decoder::new(&bytes);
            if let Ok(members) = Members::decode(&mut d) {
                let _ = (members.check(), members.is_joint());
            }
            drop(Change::decode(&bytes));
        }
        _ => {
            for payload in [0, 4096, 1 << 20] {
                if let Ok((command, crcs)) = Command::decode(&bytes, payload) {
                    let again = Command::decode(&command.encode(&crcs), payload);
                    assert_eq!(again.expect("what was written is read"), (command, crcs));
                }
            }
        }
    }
}

/// A batch of the log, with its checksum mended.
fn batch_of(mut bytes: Vec<u8>) {
    const UNIT: usize = 512;
    /// Where the bytes begin that the crc of a batch covers, which stands before them.
    const CRC_FROM: usize = 8;
    let whole = bytes.len().next_multiple_of(UNIT);
    bytes.resize(whole, 0);
    let Some(sizes) = batch::sizes(&bytes, UNIT) else {
        return;
    };
    if let Some(covered) = bytes.get(CRC_FROM..sizes.head_bytes) {
        let crc = crc32c(covered).to_le_bytes();
        bytes[4..CRC_FROM].copy_from_slice(&crc);
    }
    let bytes = Bytes::from(bytes);
    if batch::place(&bytes, sizes).is_some() {
        for item in batch::items(&bytes, sizes, UNIT).into_iter().flatten() {
            let _ = item.payload_is_whole();
        }
    }
}

/// What a client, a peer and a store would say.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut out = vec![("nbd", nbd_seed())];
    let whats = [
        What::Attach,
        What::Read(span(0, 8192)),
        What::Zero(span(4096, 4096)),
        What::Trim(span(0, 512)),
        What::Status(span(0, 1 << 20)),
        What::Write {
            span: span(100, 200),
            crcs: block::wire::client::crcs_at(100, &[3; 200]).collect(),
            payload: Bytes::from(vec![3; 200]),
        },
    ];
    let mut stream = Vec::new();
    for what in whats {
        let request = Request {
            id: 5,
            group: Group(1),
            tree: Tree(1),
            layer: Layer(1),
            origin: block::group::command::Origin {
                epoch: Epoch(1),
                ..Default::default()
            },
            what,
        };
        let frame = request.frame(1, 2);
        stream.extend_from_slice(&frame.encode().expect("it is short"));
        frame
            .payload
            .iter()
            .for_each(|p| stream.extend_from_slice(p));
    }
    let response = Response {
        id: 5,
        outcome: Outcome::Done,
    };
    stream.extend_from_slice(&response.frame(2, 1).encode().expect("it is short"));
    stream.push(1);
    out.push(("wire", stream));
    out.push(("wire", replicas_seed()));
    let owner = Owner {
        group: Group(1),
        tree: Tree(1),
        layer: Layer(1),
        ..Owner::default()
    };
    out.push(("store", [Page::empty(owner).encode(), vec![0]].concat()));
    let volumes = Volumes::default().encode();
    out.push(("store", [&volumes[..], &[3]].concat()));
    let mut members = Vec::new();
    Members::of(&[1, 2, 3]).encode(&mut members);
    members.push(4);
    out.push(("store", members));
    let nothing = Command::nothing().encode(&[]);
    out.push(("store", [&nothing[..], &[5]].concat()));
    out
}

/// One message of each kind from another replica.
fn replicas_seed() -> Vec<u8> {
    let read = Read {
        replica: 1,
        context: 9,
    };
    let key = Key {
        tree: Tree(1),
        layer: Layer(1),
        chunk: Chunk(0),
        block: Block(3),
    };
    let block = Bytes::from(vec![7; 4096]);
    let crc = crc32c(&block);
    let range = Range {
        tree: Tree(1),
        layer: Layer(1),
        blocks: 2,
        ..Range::default()
    };
    let entry = Entry {
        index: Index(6),
        term: Term(2),
        is_change: false,
        inline: Command::nothing().encode(&[]).into(),
    };
    let steps = [
        (CopyStep::Offer, None),
        (
            CopyStep::Ready {
                attempt: 3,
                from: Index(2),
            },
            None,
        ),
        (
            CopyStep::Blocks {
                attempt: 3,
                number: 1,
                range,
                crcs: vec![Some(crc), None],
            },
            Some(block.clone()),
        ),
        (CopyStep::Taken { number: 1 }, None),
        (
            CopyStep::End { attempt: 3 },
            Some(Volumes::default().encode().into()),
        ),
        (CopyStep::Done, None),
    ];
    let copy = Copy {
        through: Index(5),
        term: Term(2),
    };
    let steps = steps.map(|(step, payload)| (Body::Copy { copy, step }, payload));
    let bodies = [
        (
            Body::Append {
                index: Index(5),
                log_term: Term(2),
                commit: Index(5),
                entries: vec![entry],
            },
            Some(Bytes::new()),
        ),
        (
            Body::AppendResponse {
                index: Index(5),
                commit: Index(4),
                reject: Some((Index(3), Term(1))),
            },
            None,
        ),
        (
            Body::Vote {
                pre: true,
                transfer: false,
                index: Index(5),
                log_term: Term(2),
                commit: Index(4),
                commit_term: Term(2),
            },
            None,
        ),
        (
            Body::VoteResponse {
                pre: false,
                reject: true,
                commit: Index(4),
                commit_term: Term(2),
            },
            None,
        ),
        (
            Body::Heartbeat {
                commit: Index(4),
                round: 3,
                read: Some(read),
            },
            None,
        ),
        (
            Body::HeartbeatResponse {
                commit: Index(4),
                round: 3,
                read: None,
            },
            None,
        ),
        (Body::ReadIndex { read }, None),
        (
            Body::ReadIndexResponse {
                read,
                index: Index(4),
            },
            None,
        ),
        (Body::TimeoutNow, None),
        (Body::Ask { key, crc }, None),
        (Body::Have { key, crc }, Some(block)),
    ];
    let mut stream = Vec::new();
    for (body, payload) in bodies.into_iter().chain(steps) {
        let term = match body {
            Body::ReadIndex { .. } => Term(0),
            _ => Term(2),
        };
        let mut gather = raft::Gather::new(raft::lane_of(&body));
        let message = Message {
            from: 1,
            to: 2,
            term,
            body,
        };
        let payloads: Vec<Bytes> = payload.into_iter().collect();
        let mut frames = Vec::new();
        let added = gather.add((1, 2), Group(1), &message, &payloads, &mut frames);
        added.expect("it is short");
        for frame in frames.into_iter().chain(gather.frame(1, 2)) {
            stream.extend_from_slice(&frame.encode().expect("it is short"));
            frame
                .payload
                .iter()
                .for_each(|p| stream.extend_from_slice(p));
        }
    }
    stream.push(1);
    stream
}

fn span(offset: u32, len: u32) -> Span {
    Span {
        chunk: Chunk(0),
        offset,
        len,
    }
}

/// A handshake, a write, a read and an end.
fn nbd_seed() -> Vec<u8> {
    let mut out = 3_u32.to_be_bytes().to_vec();
    let mut option = |number: u32, data: &[u8]| {
        out.extend_from_slice(b"IHAVEOPT");
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(data);
    };
    option(8, b"");
    option(7, b"\0\0\0\x03vol\0\0");
    let mut request = |command: u16, offset: u64, len: u32, payload: &[u8]| {
        out.extend_from_slice(&0x2560_9513_u32.to_be_bytes());
        out.extend_from_slice(&0_u16.to_be_bytes());
        out.extend_from_slice(&command.to_be_bytes());
        out.extend_from_slice(&9_u64.to_be_bytes());
        out.extend_from_slice(&offset.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(payload);
    };
    request(1, 4096, 512, &[5; 512]);
    request(0, 0, 8192, b"");
    request(3, 0, 0, b"");
    request(6, 0, 4096, b"");
    request(2, 0, 0, b"");
    out.push(254);
    out
}
