//! A store's connections: the peer, and a client's open requests.

use std::collections::{HashMap, VecDeque};

use crate::ids::BLOCK;
use crate::wire::client::{BYTES_MAX, Request, What};
use crate::wire::frame::{Frame, Lane};
use crate::wire::link::Link;

/// The limits of a client's open requests, and of responses that it has not received: at the limit, no further
/// request of it is handled.
const OPEN_BYTES_MAX: u64 = 32 << 20;
const OPEN_MAX: usize = 16 << 10;
/// The most open requests whose id a later one has reused: each response is looked up among them.
const DOUBLES_MAX: usize = 64;
/// The most bytes of a response about one block.
const STATUS_BYTES: u32 = 8;

/// The other side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// It has not sent its hello yet.
    Unknown,
    /// Another store.
    Peer(u64),
    /// A client, with its name.
    Client(u64),
}

/// An unanswered request. Times are by the clock; 0: not reached yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) is_write: bool,
    pub(super) is_read: bool,
    pub(super) bytes: u32,
    pub(super) since: u64,
    pub(super) logged: u64,
    pub(super) landed: u64,
}

/// A connection of a store.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) link: Link,
    pub(super) who: Who,
    /// The number of the store that this one has dialed.
    pub(super) dialed: Option<u64>,
    /// When the connection was made.
    pub(super) since: u64,
    /// Whether the reason for its refusal was printed.
    pub(super) is_told: bool,
    /// Whether it is in the list of connections with output.
    pub(super) touched: bool,
    pub(super) open: HashMap<u64, Open>,
    /// Open requests whose id a later one has reused.
    doubles: Vec<(u64, Open)>,
    open_bytes: u64,
    /// Frames that were read and are not handled yet.
    pub(super) unheard: VecDeque<Frame>,
}

impl Connection {
    pub(super) fn new(link: Link, dialed: Option<u64>, since: u64) -> Self {
        Self {
            link,
            who: Who::Unknown,
            dialed,
            since,
            is_told: false,
            touched: false,
            open: HashMap::new(),
            doubles: Vec::new(),
            open_bytes: 0,
            unheard: VecDeque::new(),
        }
    }

    /// Notes a new request.
    pub(super) fn begin(&mut self, request: &Request, now: u64) {
        let is_write = request.what.is_change();
        let is_read = matches!(request.what, What::Read(_));
        // Zeros and trims have no payload.
        let bytes = match &request.what {
            What::Write { payload, .. } => payload.len() as u32,
            What::Read(span) => span.len.min(BYTES_MAX),
            What::Status(span) => span.len.min(BYTES_MAX) / BLOCK as u32 * STATUS_BYTES,
            _ => 0,
        };
        let open = Open {
            is_write,
            is_read,
            bytes,
            since: now,
            logged: 0,
            landed: 0,
        };
        self.open_bytes += u64::from(bytes);
        if let Some(older) = self.open.insert(request.id, open) {
            self.doubles.push((request.id, older));
        }
    }

    /// Removes an answered request.
    pub(super) fn end(&mut self, id: u64) -> Option<Open> {
        let double = self.doubles.iter().position(|(double, _)| *double == id);
        let open = match double {
            Some(at) => self.doubles.swap_remove(at).1,
            None => self.open.remove(&id)?,
        };
        self.open_bytes -= u64::from(open.bytes);
        Some(open)
    }

    /// Whether another frame may be handled.
    pub(super) fn is_heard(&self) -> bool {
        let untaken = self.link.session().queued_bytes(Lane::Foreground) as u64;
        let is_client = matches!(self.who, Who::Client(_));
        let is_few = self.open.len() < OPEN_MAX && self.doubles.len() < DOUBLES_MAX;
        !is_client || (self.open_bytes + untaken < OPEN_BYTES_MAX && is_few)
    }

    /// Whether the socket is to be read.
    pub(super) fn wants_input(&self) -> bool {
        self.unheard.is_empty() && self.is_heard()
    }
}
