//! A client that talks to one store directly, without the NBD server.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use block::group::command::Origin;
use block::ids::{Attachment, BLOCK, Chunk, Epoch, Group, Layer, Tree, Uuid};
use block::wire::client::{Outcome, Piece, Reason, Request, Response, Span, What};
use block::wire::frame::{Frame, HEAD, Head, kind};
use block::wire::hello::{Hello, Role};

/// The cluster's id in the cluster file of the tests.
pub(crate) const CLUSTER: u128 = 0x0d1c_5c2e_9d3a_4f4b_8a64_0d6f_2f0c_7a11;

pub(crate) fn hello(role: Role, id: u64) -> Vec<u8> {
    hello_of(Uuid(CLUSTER.to_be_bytes()), role, id)
}

pub(crate) fn hello_of(cluster: Uuid, role: Role, id: u64) -> Vec<u8> {
    let frame = Hello::new(cluster, role, id).frame();
    frame.encode().unwrap().to_vec()
}

/// A connection to a store.
pub(crate) struct Wire {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Wire {
    pub(crate) fn connect(port: u16, id: u64) -> Self {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let patience = Some(Duration::from_secs(20));
        socket.set_read_timeout(patience).unwrap();
        socket.write_all(&hello(Role::Client, id)).unwrap();
        let mut wire = Self {
            socket,
            bytes: Vec::new(),
        };
        assert_eq!(wire.frame().kind, kind::HELLO);
        wire
    }

    fn frame(&mut self) -> Frame {
        let mut buf = vec![0; 1 << 20];
        loop {
            if let Some(head) = Head::decode(&self.bytes).unwrap() {
                let payload = HEAD + head.fields_bytes;
                let end = payload + head.payload_bytes;
                if self.bytes.len() >= end {
                    let mut frame = head.frame(&self.bytes).unwrap().unwrap();
                    if payload < end {
                        frame.payload = vec![self.bytes[payload..end].to_vec().into()];
                    }
                    self.bytes.drain(..end);
                    return frame;
                }
            }
            let n = self.socket.read(&mut buf).unwrap();
            assert!(n > 0, "it has closed the connection");
            self.bytes.extend_from_slice(&buf[..n]);
        }
    }

    pub(crate) fn send(&mut self, requests: &[Request]) {
        self.socket.write_all(&Self::bytes_of(requests)).unwrap();
    }

    fn bytes_of(requests: &[Request]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for request in requests {
            let frame = request.clone().frame(9, 1);
            bytes.extend_from_slice(&frame.encode().unwrap());
            frame
                .payload
                .iter()
                .for_each(|p| bytes.extend_from_slice(p));
        }
        bytes
    }

    pub(crate) fn answer(&mut self) -> Response {
        Response::of(self.frame()).unwrap()
    }
}

/// A store's responses to reads.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// For each served block the byte that fills it.
    pub(crate) served: Vec<u8>,
    /// Number of reads that were refused.
    pub(crate) refused: usize,
}

/// Reads blocks of the volume's first MiB, which the first group has, from one store.
pub(crate) struct Reader {
    wire: Wire,
    epoch: Epoch,
    next: u64,
}

impl Reader {
    /// Learns the volume's epoch from a store; `None` if the store does not lead the group.
    pub(crate) fn connect(port: u16) -> Option<Self> {
        let mut reader = Self {
            wire: Wire::connect(port, 9),
            epoch: Epoch(0),
            next: 0,
        };
        // Epoch 0 is older than any other, so the refusal names the current one.
        reader.ask(1);
        match reader.wire.answer().outcome {
            Outcome::Refused(Reason::Fenced { epoch }) => reader.epoch = epoch,
            Outcome::Refused(Reason::NotLeader { .. } | Reason::Busy) => return None,
            other => panic!("no epoch, but {other:?}"),
        }
        Some(reader)
    }

    /// Requests this many blocks, without reading the responses.
    pub(crate) fn ask(&mut self, count: u64) {
        let asked = self.ask_in_part(count);
        self.ask_the_rest(&asked);
    }

    /// Sends only the first bytes of requests; returns the rest. So when a stopped store wakes, this connection
    /// is ready before all others that receive something later.
    pub(crate) fn ask_in_part(&mut self, count: u64) -> Vec<u8> {
        let requests: Vec<_> = (self.next..self.next + count)
            .map(|id| self.request(id))
            .collect();
        self.next += count;
        let mut bytes = Wire::bytes_of(&requests);
        let rest = bytes.split_off(HEAD / 2);
        self.wire.socket.write_all(&bytes).unwrap();
        rest
    }

    /// Sends the rest.
    pub(crate) fn ask_the_rest(&mut self, rest: &[u8]) {
        self.wire.socket.write_all(rest).unwrap();
    }

    fn request(&self, id: u64) -> Request {
        Request {
            id,
            group: Group(1),
            tree: Tree(1),
            layer: Layer(1),
            origin: Origin {
                epoch: self.epoch,
                attachment: Attachment(1),
                seq: 0,
                lowest_open: 1,
            },
            what: What::Read(Span {
                chunk: Chunk(0),
                offset: id as u32 % 256 * BLOCK as u32,
                len: BLOCK as u32,
            }),
        }
    }

    /// Reads the responses to the last `count` requests.
    pub(crate) fn hear(&mut self, count: u64) -> Said {
        let mut open: BTreeSet<u64> = (self.next - count..self.next).collect();
        let mut said = Said::default();
        while !open.is_empty() {
            let response = self.wire.answer();
            assert!(open.remove(&response.id), "{response:?} was not asked for");
            match response.outcome {
                Outcome::Data { pieces, .. } => said.served.push(byte_of(&pieces)),
                Outcome::Refused(_) => said.refused += 1,
                other => panic!("{other:?}"),
            }
        }
        said
    }
}

/// The byte that fills a block.
fn byte_of(pieces: &[Piece]) -> u8 {
    let mut bytes = Vec::with_capacity(BLOCK);
    for piece in pieces {
        match piece {
            Piece::Data(data) => bytes.extend_from_slice(data),
            Piece::Hole(len) => bytes.resize(bytes.len() + *len as usize, 0),
        }
    }
    assert_eq!(bytes.len(), BLOCK);
    assert!(bytes.iter().all(|b| *b == bytes[0]), "parts of two writes");
    bytes[0]
}
