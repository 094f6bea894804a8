//! A client that reads from one store directly, not through the NBD server: does the store answer
//! reads although it is cut off?
//!
//! Its reads are part of the history, so that a stale answer is found there, too.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::clock::Clock;
use base::rng::Rng;
use block::client::map::{Map, Striping};
use block::group::command::Origin;
use block::ids::{Attachment, BLOCK, Epoch, Group, Layer, Tree, Uuid};
use block::wire::client::{Outcome, Piece, Reason, Request, Response, Span, What};
use block::wire::hello::{Hello, Role};
use block::wire::session::{Options, Session};
use sim::cluster::history::Ticket;

use super::client::number;
use super::cluster::UUID;
use super::load::{BLOCKS, Shared};

/// The interval between two reads.
const PERIOD: Duration = Duration::from_millis(20);
/// The longest time for an answer of a healthy store.
const PATIENCE: Duration = Duration::from_secs(5);
const ID: u64 = 0x0064_7269_6c6c;

/// An answer with data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// The time of the request, and that of the answer.
    pub(super) asked: u64,
    pub(super) answered: u64,
    pub(super) block: u64,
    pub(super) value: u64,
}

/// The results of a probe.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) asked: u64,
    pub(super) refused: u64,
    pub(super) served: Vec<Served>,
}

/// A direct client of one store.
pub(super) struct Probe {
    clock: Arc<dyn Clock>,
    stream: TcpStream,
    session: Session,
    map: Map,
    epoch: Epoch,
    next_id: u64,
}

impl Probe {
    /// Connects to a store; the caller must be in a namespace where that is possible. Learns the
    /// volume's epoch.
    pub(super) fn connect(
        clock: &Arc<dyn Clock>,
        address: SocketAddr,
        volume_bytes: u64,
    ) -> Result<Self, String> {
        let text = |e: &dyn std::fmt::Display| format!("a direct client of {address}: {e}");
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|e| text(&e))?;
        stream
            .set_read_timeout(Some(PERIOD / 4))
            .map_err(|e| text(&e))?;
        let me = Hello::new(Uuid(UUID.to_be_bytes()), Role::Client, ID);
        let ids = (Tree(1), Layer(1));
        let map = Map::new(volume_bytes, ids, Striping::default(), vec![Group(1)]);
        let mut probe = Self {
            clock: Arc::clone(clock),
            stream,
            session: Session::new(me, Options::default()).map_err(|e| text(&e))?,
            map: map.map_err(|e| text(&e))?,
            epoch: Epoch(0),
            next_id: 1,
        };
        // Epoch 0 is too old in any case: the refusal tells the current one.
        match probe.read(0)? {
            Outcome::Refused(Reason::Fenced { epoch }) => probe.epoch = epoch,
            other => return Err(text(&format!("no epoch, but {other:?}"))),
        }
        match probe.read(0)? {
            Outcome::Data { .. } => Ok(probe),
            other => Err(text(&format!("no data before the cut, but {other:?}"))),
        }
    }

    /// Reads blocks until it is told to stop.
    pub(super) fn run(
        mut self,
        shared: &Shared,
        seed: u64,
        is_ended: &AtomicBool,
        last_asked: &AtomicU64,
    ) -> Result<Found, String> {
        let mut rng = Rng::new(seed);
        let mut found = Found::default();
        let mut open: Vec<(u64, Ticket, Served)> = Vec::new();
        let mut next = 0;
        while !is_ended.load(Ordering::SeqCst) {
            let now = self.clock.monotonic_nanos();
            if now >= next {
                next = now + PERIOD.as_nanos() as u64;
                let block = rng.below(BLOCKS);
                let ticket = shared.begin_probe(block);
                let id = self.ask(shared.offset(block))?;
                let served = Served {
                    asked: now,
                    answered: 0,
                    block,
                    value: 0,
                };
                open.push((id, ticket, served));
                found.asked += 1;
                last_asked.store(now, Ordering::SeqCst);
            }
            for response in self.answers()? {
                let Some(at) = open.iter().position(|o| o.0 == response.id) else {
                    continue;
                };
                let (_, ticket, mut served) = open.swap_remove(at);
                let Outcome::Data { pieces, .. } = response.outcome else {
                    found.refused += 1;
                    continue;
                };
                served.value = value(&pieces)
                    .ok_or_else(|| format!("block {} holds parts of two writes", served.block))?;
                shared.end_probe(ticket, served.value);
                served.answered = self.clock.monotonic_nanos();
                found.served.push(served);
            }
        }
        Ok(found)
    }

    /// One read, and its answer.
    fn read(&mut self, offset: u64) -> Result<Outcome, String> {
        let id = self.ask(offset)?;
        let until = self.clock.monotonic_nanos() + PATIENCE.as_nanos() as u64;
        while self.clock.monotonic_nanos() < until {
            let answer = self.answers()?.into_iter().find(|r| r.id == id);
            if let Some(response) = answer {
                return Ok(response.outcome);
            }
        }
        Err("a store does not answer a direct client".to_owned())
    }

    fn ask(&mut self, offset: u64) -> Result<u64, String> {
        let id = self.next_id;
        self.next_id += 1;
        let piece = self.map.pieces(offset, BLOCK as u64).next();
        let piece = piece.ok_or("a block beyond the volume")?;
        let span = Span {
            chunk: piece.chunk,
            offset: piece.offset_in_chunk,
            len: piece.len,
        };
        let origin = Origin {
            epoch: self.epoch,
            attachment: Attachment(1),
            seq: 0,
            lowest_open: 1,
        };
        let request = Request {
            id,
            group: piece.group,
            tree: self.map.tree(),
            layer: self.map.layer(),
            origin,
            what: What::Read(span),
        };
        let sent = self.session.send(request.frame(ID, 0));
        sent.map_err(|e| e.to_string())?;
        self.flush()?;
        Ok(id)
    }

    fn flush(&mut self) -> Result<(), String> {
        while self.session.has_output() {
            let mut slices = [IoSlice::new(&[]); 16];
            let count = self.session.output(&mut slices);
            let slices = slices.get(..count).unwrap_or_default();
            let sent = self.stream.write_vectored(slices);
            let sent = sent.map_err(|e| format!("a store takes no requests: {e}"))?;
            self.session.sent(sent);
        }
        Ok(())
    }

    /// The answers that have arrived, after a short wait.
    fn answers(&mut self) -> Result<Vec<Response>, String> {
        let mut all = Vec::new();
        match self.stream.read(self.session.space()) {
            Ok(0) => return Err("a store has closed the connection of a direct client".to_owned()),
            Ok(n) => self.session.filled(n),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(format!("a store is gone for a direct client: {e}")),
        }
        while let Some(frame) = self.session.next_frame().map_err(|e| e.to_string())? {
            all.push(Response::of(frame).map_err(|e| e.to_string())?);
        }
        // Data that had to wait for the other side's hello.
        self.flush()?;
        Ok(all)
    }
}

/// The number that a block holds.
fn value(pieces: &[Piece]) -> Option<u64> {
    let mut bytes = Vec::with_capacity(BLOCK);
    for piece in pieces {
        match piece {
            Piece::Data(data) => bytes.extend_from_slice(data),
            Piece::Hole(len) => bytes.resize(bytes.len() + *len as usize, 0),
        }
    }
    number(&bytes)
}
