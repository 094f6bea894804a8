//! A watcher, which reads blocks of all volumes from any store, under the attachments of clients.
//!
//! A client asks the leader that it knows, which served its last writes. So it would rarely meet a leader that
//! was replaced without knowing. The watcher does: the answer of such a leader is in the history like any other
//! read.

use std::collections::BTreeMap;

use base::rng::Rng;
use block::group::command::Origin;
use block::ids::{Attachment, Epoch};
use block::wire::client::{Outcome, Piece, Request, Response, Span, What};

use super::super::history::{History, Ticket};
use super::super::node::NodeId;
use super::super::shape::MILLI;
use super::super::values::{self, BLOCK_UNITS, UNIT};
use super::{Due, Packet, World};

/// Its address in the network.
pub(super) const WATCHER: NodeId = NodeId(1_000_000);
/// Mean time between its reads, ns.
const PAUSE: u64 = 40 * MILLI;
const BLOCK: u64 = BLOCK_UNITS * UNIT as u64;

/// The watcher.
pub(super) struct Watcher {
    rng: Rng,
    next: u64,
    asked: BTreeMap<u64, Vec<Ticket>>,
}

impl Watcher {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed ^ 0x3a7c_3e20),
            next: 1,
            asked: BTreeMap::new(),
        }
    }

    /// Records an answer; returns the number of reads that it ends. Errors: it is impossible.
    fn answered(
        &mut self,
        response: Response,
        history: &mut History,
        now: u64,
    ) -> Result<u64, String> {
        let Some(tickets) = self.asked.remove(&response.id) else {
            return Ok(0);
        };
        let Outcome::Data { pieces, .. } = response.outcome else {
            return Ok(0);
        };
        let mut bytes = Vec::with_capacity(BLOCK as usize);
        for piece in pieces {
            match piece {
                Piece::Data(data) => bytes.extend_from_slice(&data),
                Piece::Hole(len) => bytes.resize(bytes.len() + len as usize, 0),
            }
        }
        if bytes.len() as u64 != BLOCK {
            return Err(format!("the watcher got {} bytes of a block", bytes.len()));
        }
        for (ticket, unit) in tickets.into_iter().zip(bytes.chunks_exact(UNIT)) {
            history.returned(ticket, values::value_of(unit)?, now);
        }
        Ok(1)
    }
}

impl World {
    /// Reads a block from a store that has a replica, leader or not.
    pub(super) fn watch(&mut self) {
        if self.is_quiet {
            return;
        }
        let pause = 1 + self.watcher.rng.below(2 * PAUSE);
        self.after(pause, Due::Watch);
        let rng = &mut self.watcher.rng;
        // The newest attachment, or an earlier one: a replaced leader may know only that.
        let told: Vec<_> = self
            .clients
            .iter()
            .rev()
            .filter(|(_, c)| c.told.1)
            .take(4)
            .collect();
        if told.is_empty() {
            return;
        }
        let (&id, client) = told[rng.below(told.len() as u64) as usize];
        let map = &self.shape.volumes[client.volume_nth];
        let block = rng.below(map.size() / BLOCK);
        let Some(piece) = map.pieces(block * BLOCK, BLOCK).next() else {
            return;
        };
        let group = map.group(piece.chunk);
        let stores = &self.shape.groups[&group];
        let store = stores[rng.below(stores.len() as u64) as usize];
        let units = block * BLOCK_UNITS..(block + 1) * BLOCK_UNITS;
        let who = u64::from(WATCHER.0);
        let begin = |unit| self.history.read(who, client.register(unit), self.now);
        let tickets = units.map(begin).collect();
        let request = Request {
            id: self.watcher.next,
            group,
            tree: map.tree(),
            layer: map.layer(),
            origin: Origin {
                epoch: Epoch(client.epoch),
                attachment: Attachment(u64::from(id)),
                seq: 0,
                lowest_open: 0,
            },
            what: What::Read(Span {
                chunk: piece.chunk,
                offset: piece.offset_in_chunk,
                len: BLOCK as u32,
            }),
        };
        self.watcher.asked.insert(request.id, tickets);
        self.watcher.next += 1;
        let to = NodeId(store as u32 - 1);
        self.network
            .send(self.now, WATCHER, to, Packet::Request(request));
    }

    pub(super) fn watched(&mut self, response: Response) {
        let seen = self.watcher.answered(response, &mut self.history, self.now);
        match seen {
            Ok(reads) => self.coverage.watched += reads,
            Err(e) => self.fail(e),
        }
    }
}
