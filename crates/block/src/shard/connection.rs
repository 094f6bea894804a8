//! Connections of a store: who is on the other side, and what a client waits for.

use std::collections::{HashMap, VecDeque};

use crate::ids::BLOCK;
use crate::wire::client::{BYTES_MAX, Request, What};
use crate::wire::frame::{Frame, Lane};
use crate::wire::link::Link;

/// The most bytes and requests of a client that are open, or whose answers it has not taken: until there are fewer it
/// is not heard.
const OPEN_BYTES_MAX: u64 = 32 << 20;
const OPEN_MAX: usize = 16 << 10;
/// The same of those whose number another has: each answer is looked for among them.
const DOUBLES_MAX: usize = 64;
/// Bytes of an answer about a block, at most.
const STATUS_BYTES: u32 = 8;

/// Who is on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// It has not said so yet.
    Unknown,
    /// Another store.
    Peer(u64),
    /// A client, and by which name it goes.
    Client(u64),
}

/// A request without an answer; times by the clock, 0 where it is not that far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) is_write: bool,
    pub(super) is_read: bool,
    pub(super) bytes: u32,
    pub(super) since: u64,
    pub(super) logged: u64,
    pub(super) landed: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) link: Link,
    pub(super) who: Who,
    /// The store that was dialed.
    pub(super) dialed: Option<u64>,
    /// When it was made.
    pub(super) since: u64,
    /// It was said before why it is refused.
    pub(super) is_told: bool,
    /// Whether it is on the list of those that have something to send.
    pub(super) touched: bool,
    pub(super) open: HashMap<u64, Open>,
    /// Those that have the number of a later one.
    doubles: Vec<(u64, Open)>,
    open_bytes: u64,
    /// What was read, and is not heard yet.
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

    /// Notes a request that came.
    pub(super) fn begin(&mut self, request: &Request, now: u64) {
        let is_write = request.what.is_change();
        let is_read = matches!(request.what, What::Read(_));
        // Zeros and trims carry nothing.
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

    /// A request is answered.
    pub(super) fn end(&mut self, id: u64) -> Option<Open> {
        let double = self.doubles.iter().position(|(double, _)| *double == id);
        let open = match double {
            Some(at) => self.doubles.swap_remove(at).1,
            None => self.open.remove(&id)?,
        };
        self.open_bytes -= u64::from(open.bytes);
        Some(open)
    }

    /// Whether one more frame of it may be heard.
    pub(super) fn is_heard(&self) -> bool {
        let untaken = self.link.session().queued_bytes(Lane::Foreground) as u64;
        let is_client = matches!(self.who, Who::Client(_));
        let is_few = self.open.len() < OPEN_MAX && self.doubles.len() < DOUBLES_MAX;
        !is_client || (self.open_bytes + untaken < OPEN_BYTES_MAX && is_few)
    }

    /// Whether it is read from.
    pub(super) fn wants_input(&self) -> bool {
        self.unheard.is_empty() && self.is_heard()
    }
}
