//! A simulated client: one attachment of one volume, with several open operations, all of them in the history.
//!
//! A replaced client goes on for a while, because it does not know. Operations that it submitted before the
//! newer attachment was answered may have taken effect by then, and not later; operations that it submits
//! afterwards never do. [`History::end_by`] records that.

use std::collections::BTreeMap;

use base::rng::Rng;
use block::client::volume::{Options, Send, Volume};
use block::ids::{Attachment, Epoch};
use block::nbd::codec::Errno;
use block::nbd::command::{Extent, Op, Piece, Reply};
use block::nbd::exports::Token;
use block::wire::client::Response;
use io::AlignedBuf;

use super::coverage::Coverage;
use super::history::{History, Ticket, ZERO};
use super::node::NodeId;
use super::shape::Shape;
use super::values::{self, BLOCK_UNITS, UNIT};

/// The most units of an operation: 16 blocks; now and then four times as many.
const UNITS_MAX: u64 = 16 * BLOCK_UNITS;
/// Separates the registers of different volumes.
const VOLUME_SHIFT: u32 = 32;

/// An operation without an answer.
#[derive(Debug)]
struct Pending {
    what: What,
    tickets: Vec<Ticket>,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Read,
    Status,
    Change,
    Nothing,
}

/// A simulated client.
pub struct Client {
    /// Its address in the network.
    pub node: NodeId,
    /// Number of its volume.
    pub volume_nth: usize,
    /// The epoch of its attachment.
    pub epoch: u32,
    /// Whether a newer attachment of the volume exists.
    pub is_replaced: bool,
    /// Whether it was counted as fenced, and as attached.
    pub told: (bool, bool),
    /// When it is woken next.
    pub wakes_at: Option<u64>,
    volume: Volume,
    units: u64,
    rng: Rng,
    next_token: u64,
    next_value: u64,
    pending: BTreeMap<u64, Pending>,
    ended: Vec<(Token, Result<Reply, Errno>)>,
    /// Its changes: the unanswered ones may be superseded.
    changes: Vec<Ticket>,
}

impl Client {
    /// A client that attaches a volume.
    pub fn new(
        shape: &Shape,
        nth: usize,
        epoch: u32,
        node: NodeId,
        now: u64,
    ) -> Result<Self, String> {
        let map = shape.volumes[nth].clone();
        let options = Options {
            give_up_nanos: shape.give_up_nanos,
            ..Options::default()
        };
        let attachment = u64::from(node.0);
        let who = (Epoch(epoch), Attachment(attachment));
        let volume =
            Volume::new(map, &shape.groups, who, options, now).map_err(|e| e.to_string())?;
        Ok(Self {
            node,
            volume_nth: nth,
            epoch,
            is_replaced: false,
            told: (false, false),
            wakes_at: None,
            volume,
            units: shape.units(nth),
            rng: Rng::new(shape.seed ^ attachment << 40 ^ 0xc11e),
            next_token: 1,
            next_value: attachment << 32 | 1,
            pending: BTreeMap::new(),
            ended: Vec::new(),
            changes: Vec::new(),
        })
    }

    /// Operations without an answer.
    pub fn open(&self) -> usize {
        self.pending.len()
    }

    /// Whether all groups have its epoch.
    pub fn is_attached(&self) -> bool {
        self.volume.is_attached()
    }

    /// Whether it knows that it was replaced.
    pub fn is_fenced(&self) -> bool {
        self.volume.is_fenced()
    }

    /// When it has to be woken.
    pub fn next_due(&self) -> Option<u64> {
        self.volume.next_due()
    }

    /// Since when its oldest request is stuck.
    pub fn stuck_since(&self) -> Option<u64> {
        self.volume.stuck_since()
    }

    /// The next request to send.
    pub fn next_send(&mut self) -> Option<Send> {
        self.volume.next_send()
    }

    /// Advances its time.
    pub fn tick(&mut self, now: u64) {
        self.volume.tick(now);
    }

    /// Handles the loss of the connection to a store.
    pub fn disconnected(&mut self, store: u64) {
        self.volume.disconnected(store);
    }

    /// Handles a response of a store.
    pub fn response(&mut self, store: u64, response: Response) {
        self.volume.response(store, response);
    }

    /// The register of a unit of its volume.
    pub fn register(&self, unit: u64) -> u64 {
        (self.volume_nth as u64) << VOLUME_SHIFT | unit
    }

    /// A random range of units: often short, often whole blocks, often the same ones.
    fn range(&mut self) -> (u64, u64) {
        let most = if self.rng.one_in(20) {
            4 * UNITS_MAX
        } else {
            UNITS_MAX
        };
        let doublings = self.rng.below(u64::from(most.ilog2()) + 1);
        let len = 1 + self.rng.below(1 << doublings);
        let first = if self.rng.one_in(3) {
            self.rng.below(self.units.min(4 * BLOCK_UNITS))
        } else {
            self.rng.below(self.units)
        };
        if self.rng.one_in(2) {
            let first = first / BLOCK_UNITS * BLOCK_UNITS;
            let len = len.next_multiple_of(BLOCK_UNITS).min(self.units - first);
            return (first, len);
        }
        (first, len.min(self.units - first))
    }

    /// Submits a random operation.
    pub fn ask(&mut self, history: &mut History, now: u64, coverage: &mut Coverage) {
        coverage.asked += 1;
        let (first, len) = self.range();
        match self.rng.below(100) {
            0..40 => self.read(first, len, history, now, coverage),
            40..44 => {
                let (offset, bytes) = (first * UNIT as u64, (len * UNIT as u64) as u32);
                let op = Op::BlockStatus {
                    offset,
                    len: bytes,
                    one: self.rng.one_in(4),
                };
                let tickets = self.begin_reads(first, len, history, now);
                self.submit(op, What::Status, tickets);
            }
            44..46 => self.submit(Op::Flush, What::Nothing, Vec::new()),
            46..54 => {
                coverage.zeros += 1;
                let tickets = self.begin_changes(first, &vec![ZERO; len as usize], history, now);
                let (offset, len) = (first * UNIT as u64, (len * UNIT as u64) as u32);
                let op = if self.rng.one_in(2) {
                    Op::Trim {
                        offset,
                        len,
                        fua: false,
                    }
                } else {
                    Op::Zero {
                        offset,
                        len,
                        no_hole: false,
                        fast: false,
                        fua: false,
                    }
                };
                self.submit(op, What::Change, tickets);
            }
            _ => self.write(first, len, history, now, coverage),
        }
    }

    /// Reads some units.
    pub fn read(
        &mut self,
        first: u64,
        len: u64,
        history: &mut History,
        now: u64,
        coverage: &mut Coverage,
    ) {
        coverage.reads += 1;
        let tickets = self.begin_reads(first, len, history, now);
        let (offset, len) = (first * UNIT as u64, (len * UNIT as u64) as u32);
        self.submit(
            Op::Read {
                offset,
                len,
                df: false,
            },
            What::Read,
            tickets,
        );
    }

    fn write(
        &mut self,
        first: u64,
        len: u64,
        history: &mut History,
        now: u64,
        coverage: &mut Coverage,
    ) {
        let is_whole = first.is_multiple_of(BLOCK_UNITS) && len.is_multiple_of(BLOCK_UNITS);
        coverage.partial += u64::from(!is_whole);
        let values: Vec<u64> = (self.next_value..self.next_value + len).collect();
        self.next_value += len;
        let tickets = self.begin_changes(first, &values, history, now);
        let mut bytes = Vec::with_capacity(len as usize * UNIT);
        for value in values {
            values::put(&mut bytes, value);
        }
        let mut aligned = AlignedBuf::new(4096);
        if aligned.extend_from_slice(&bytes).is_err() {
            return;
        }
        let op = Op::Write {
            offset: first * UNIT as u64,
            bytes: aligned.into(),
            fua: false,
        };
        self.submit(op, What::Change, tickets);
    }

    fn begin_reads(&self, first: u64, len: u64, history: &mut History, now: u64) -> Vec<Ticket> {
        let who = u64::from(self.node.0);
        let units = first..first + len;
        units
            .map(|unit| history.read(who, self.register(unit), now))
            .collect()
    }

    fn begin_changes(
        &mut self,
        first: u64,
        values: &[u64],
        history: &mut History,
        now: u64,
    ) -> Vec<Ticket> {
        let who = u64::from(self.node.0);
        let all = (first..).zip(values);
        let tickets: Vec<Ticket> = all
            .map(|(unit, &value)| history.write(who, self.register(unit), value, now))
            .collect();
        self.changes.extend(&tickets);
        tickets
    }

    fn submit(&mut self, op: Op, what: What, tickets: Vec<Ticket>) {
        let token = self.next_token;
        self.next_token += 1;
        self.pending.insert(token, Pending { what, tickets });
        self.volume.submit(Token(token), op);
    }

    /// Records the operations that have completed; returns their number. Errors: an impossible answer.
    pub fn take_answers(
        &mut self,
        history: &mut History,
        now: u64,
        coverage: &mut Coverage,
    ) -> Result<u64, String> {
        let mut ended = std::mem::take(&mut self.ended);
        self.volume.completed(&mut ended);
        let count = ended.len() as u64;
        for (token, how) in ended.drain(..) {
            let Some(pending) = self.pending.remove(&token.0) else {
                return Err(format!(
                    "client {}: {token:?} is answered twice",
                    self.node.0
                ));
            };
            match how {
                Ok(reply) => {
                    coverage.answered += 1;
                    answered(&pending, reply, history, now)
                        .map_err(|e| format!("client {}: {e}", self.node.0))?;
                }
                Err(Errno::Invalid) => return Err(format!("EINVAL for {pending:?}")),
                Err(_) => coverage.failed += 1,
            }
        }
        self.ended = ended;
        Ok(count)
    }

    /// Its changes, for [`History::end_by`] when a newer attachment is answered.
    pub fn changes(&self) -> &[Ticket] {
        &self.changes
    }
}

/// Records an answer. Errors: it is impossible.
fn answered(
    pending: &Pending,
    reply: Reply,
    history: &mut History,
    now: u64,
) -> Result<(), String> {
    let len = pending.tickets.len() * UNIT;
    match (pending.what, reply) {
        (What::Nothing, Reply::Done) => Ok(()),
        (What::Change, Reply::Done) => {
            for &ticket in &pending.tickets {
                history.answered(ticket, now);
            }
            Ok(())
        }
        (What::Read, Reply::Data(bytes)) => returned(pending, &bytes, len, history, now),
        (What::Read, Reply::Pieces(pieces)) => {
            let mut all = Vec::with_capacity(len);
            for piece in pieces {
                match piece {
                    Piece::Data(bytes) => all.extend_from_slice(&bytes),
                    Piece::Hole(n) => all.resize(all.len() + n as usize, 0),
                }
            }
            returned(pending, &all, len, history, now)
        }
        (What::Status, Reply::Status(extents)) => {
            zeros(pending, &extents, history, now);
            Ok(())
        }
        (what, reply) => Err(format!("{what:?} is answered by {reply:?}")),
    }
}

fn returned(
    pending: &Pending,
    bytes: &[u8],
    len: usize,
    history: &mut History,
    now: u64,
) -> Result<(), String> {
    if bytes.len() != len {
        return Err(format!("{} bytes were read instead of {len}", bytes.len()));
    }
    for (&ticket, unit) in pending.tickets.iter().zip(bytes.chunks_exact(UNIT)) {
        history.returned(ticket, values::value_of(unit)?, now);
    }
    Ok(())
}

/// Records a status: units that it reports as zero read as zero; nothing is known of the others.
fn zeros(pending: &Pending, extents: &[Extent], history: &mut History, now: u64) {
    let mut at = 0;
    for extent in extents {
        let end = at + extent.len;
        if extent.zero {
            let first = at.div_ceil(UNIT as u64);
            for unit in first..end / UNIT as u64 {
                if let Some(&ticket) = pending.tickets.get(unit as usize) {
                    history.returned(ticket, ZERO, now);
                }
            }
        }
        at = end;
    }
}
