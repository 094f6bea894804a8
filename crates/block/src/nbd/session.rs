//! A connection without its socket: bytes in, requests out; replies in, bytes out.
//!
//! ```text
//!   read into space() → filled(n) → next_event() … ─→ Ask, Request       (to the exports)
//!   writev of output() ← sent(n)  ←  reply(handle, …), answer(…), names(…)   (from them, in any order)
//! ```
//!
//! Small requests are read many at a time into a stage of 64 KiB. A payload has an aligned buffer of its own
//! from the start: its bytes in the stage are copied there, and the socket reads the rest directly into it. So
//! a write of 4 KiB costs a copy of 4 KiB instead of a system call, and the overhead of a large one is small.
//!
//! Limits: a request and the bytes that it makes the server hold (its payload, or the data of its reply)
//! count until the last byte of its reply is sent. At the limit no further request is taken, and soon no
//! byte is read. So a connection occupies at most `bytes_max`, one more request, and the stage.
//!
//! A client may use the same cookie for two requests. So requests are identified by a [`Handle`] of our
//! own, which is not reused for the next request in the same slot.
//!
//! ```
//! use std::io::IoSlice;
//! use block::nbd::session::{Options, Session};
//!
//! let mut session = Session::new(Options::default());
//! let mut slices = [IoSlice::new(&[]); 8];
//! assert_eq!(session.output(&mut slices), 1);
//! assert_eq!(&slices[0][..8], b"NBDMAGIC");
//! session.sent(18);
//! assert!(session.wants_input());
//! // The client's flags, and the option LIST.
//! let said = b"\0\0\0\x03IHAVEOPT\0\0\0\x03\0\0\0\0";
//! session.space()[..said.len()].copy_from_slice(said);
//! session.filled(said.len());
//! assert!(session.next_event()?.is_some());
//! session.names(Ok(vec!["vol".to_owned()]));
//! assert!(session.has_output());
//! # Ok::<(), base::Error>(())
//! ```

use std::io::IoSlice;
use std::mem;

use base::{Error, Result};
use bytes::Bytes;

use super::codec::{self, Errno, Head, REQUEST_LEN};
use super::command::{Admitted, Agreed, ExportInfo, Op, Piece, Refused, Reply, admit};
use super::handshake::{Ask, Handshake, Outcome, Step};
use super::output::{Output, Weight};
use super::payload::Payload;
use super::replies::{EXTENTS_MAX, ONE};
use crate::memory::buffers::Buffers;

/// Bytes of the stage.
const STAGE_BYTES: usize = 64 << 10;
/// The refusal of a write for which memory is short.
const NO_MEMORY: Refused = (Errno::NoMemory, "no memory");
/// The bytes that count for a request of extents.
const STATUS_BYTES: u64 = EXTENTS_MAX as u64 * 8;

/// Limits of one connection.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most requests on their way, from 1 to 65,535.
    pub requests_max: u32,
    /// The most bytes on their way, of payloads and of read data; one request may go beyond.
    pub bytes_max: u64,
    /// The source of payload buffers; ideally all connections share it.
    pub buffers: Buffers,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            requests_max: 256,
            bytes_max: 16 << 20,
            buffers: Buffers::default(),
        }
    }
}

/// Identifies a request of a session until it is replied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

/// The next question or request of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A question about exports: see [`Session::names`] and [`Session::answer`].
    Ask(Ask),
    /// An operation on the attached export: see [`Session::reply`].
    Request(Handle, Op),
}

/// The state of a request on its way.
#[derive(Clone, Copy, Debug)]
struct Live {
    cookie: u64,
    kind: Kind,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read { offset: u64, len: u32, df: bool },
    Status { len: u32, one: bool },
    Other,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u16,
    live: Option<Live>,
}

/// What the next bytes of the transmission phase are.
#[derive(Debug)]
enum Input {
    Request,
    Payload(Payload),
    /// The rest of a refused write's payload; the refusal is sent after it.
    Dropped {
        left: u64,
        cookie: u64,
        refused: Refused,
    },
}

#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    Transmission(ExportInfo, Agreed, Input),
    /// No more input is taken.
    Ending,
}

/// A connection without its socket.
#[derive(Debug)]
pub struct Session {
    options: Options,
    phase: Phase,
    stage: Vec<u8>,
    /// Start of the stage's bytes that are not consumed yet.
    from: usize,
    to: usize,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Number of questions and requests that are not answered.
    out: u32,
    held: Weight,
    output: Output,
}

impl Session {
    /// A new connection; its output is the greeting.
    pub fn new(options: Options) -> Self {
        let mut session = Self {
            options,
            phase: Phase::Handshake(Handshake::default()),
            stage: vec![0; STAGE_BYTES],
            from: 0,
            to: 0,
            slots: Vec::new(),
            free: Vec::new(),
            out: 0,
            held: Weight::default(),
            output: Output::default(),
        };
        session.say(codec::greet());
        session
    }

    /// Whether more input is wanted now.
    pub fn wants_input(&self) -> bool {
        match &self.phase {
            Phase::Handshake(_) => self.out == 0 && self.output.is_empty(),
            Phase::Transmission(_, _, Input::Request) => self.has_room(),
            Phase::Transmission(..) => true,
            Phase::Ending => false,
        }
    }

    /// The space for the next input. To be used when [`Session::next_event`] returns nothing and
    /// [`Session::wants_input`] is true; empty otherwise.
    pub fn space(&mut self) -> &mut [u8] {
        if let Phase::Transmission(_, _, Input::Payload(p)) = &mut self.phase
            && self.from == self.to
        {
            return p.space();
        }
        if self.from > 0 {
            self.stage.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        self.stage.get_mut(self.to..).unwrap_or_default()
    }

    /// The first `n` bytes of [`Session::space`] are filled.
    pub fn filled(&mut self, n: usize) {
        if let Phase::Transmission(_, _, Input::Payload(p)) = &mut self.phase
            && self.from == self.to
        {
            if p.filled(n).is_err() {
                self.give_up();
            }
        } else {
            self.to = (self.to + n).min(self.stage.len());
        }
    }

    /// The next question or request in the input. To be called again after each [`Session::filled`] and
    /// [`Session::sent`], until it returns nothing. Errors: the connection must be closed at once.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        loop {
            let staged = self.stage.get(self.from..self.to).unwrap_or_default();
            let went_on = match &mut self.phase {
                Phase::Handshake(handshake) => {
                    if !self.output.is_empty() {
                        return Ok(None);
                    }
                    let (taken, step) = handshake.step(staged)?;
                    self.from += taken;
                    match step {
                        Some(Step::Say(bytes)) => self.say(bytes),
                        Some(Step::End(bytes)) => {
                            self.say(bytes);
                            self.phase = Phase::Ending;
                        }
                        Some(Step::Ask(ask)) => {
                            self.out += 1;
                            return Ok(Some(Event::Ask(ask)));
                        }
                        None => {}
                    }
                    taken > 0
                }
                Phase::Transmission(_, _, Input::Request) => match self.request()? {
                    (_, Some(event)) => return Ok(Some(event)),
                    (taken, None) => taken,
                },
                Phase::Transmission(_, _, Input::Payload(p)) => match p.take(staged) {
                    Ok(n) => {
                        self.from += n;
                        return Ok(self.payload());
                    }
                    Err(_) => self.give_up(),
                },
                Phase::Transmission(_, _, Input::Dropped { .. }) => self.dropped(),
                Phase::Ending => return Ok(None),
            };
            if !went_on {
                return Ok(None);
            }
        }
    }

    fn has_room(&self) -> bool {
        self.held.requests < self.options.requests_max && self.held.bytes < self.options.bytes_max
    }

    /// Takes a request from the stage. Returns whether there was one, and its event.
    fn request(&mut self) -> Result<(bool, Option<Event>)> {
        if !self.has_room() {
            return Ok((false, None));
        }
        let staged = self.stage.get(self.from..self.to).unwrap_or_default();
        let (Some(request), Phase::Transmission(export, agreed, input)) =
            (codec::Request::decode(staged), &mut self.phase)
        else {
            return Ok((false, None));
        };
        if request.magic != codec::REQUEST {
            return Err(
                Error::invalid_argument("NBD: a request without its magic").hint(
                    "the client is broken, or sent more or less data than it had said: use another",
                ),
            );
        }
        self.from += REQUEST_LEN;
        self.held.requests += 1;
        let cookie = request.cookie;
        let has_payload = request.command == codec::Command::Write as u16;
        let len = request.len as usize;
        match admit(&request, export, *agreed) {
            Ok(Admitted::Op(op)) => return Ok((true, Some(self.begin(cookie, op)))),
            Ok(Admitted::Write { offset, fua }) => {
                let fields = (cookie, offset, fua);
                *input = match Payload::new(fields, len, &self.options.buffers) {
                    Ok(payload) => {
                        self.held.bytes += len as u64;
                        Input::Payload(payload)
                    }
                    Err(_) => Input::Dropped {
                        left: len as u64,
                        cookie,
                        refused: NO_MEMORY,
                    },
                };
            }
            Ok(Admitted::Nothing) => self.output.push_done(cookie, request.command, ONE),
            Ok(Admitted::Disconnect) => {
                self.held.requests -= 1;
                self.phase = Phase::Ending;
            }
            Err(refused) if has_payload && len > 0 => {
                *input = Input::Dropped {
                    left: len as u64,
                    cookie,
                    refused,
                };
            }
            Err(refused) => self.output.push_error(cookie, refused, ONE),
        }
        Ok((true, None))
    }

    /// The write whose payload is complete, if there is one.
    fn payload(&mut self) -> Option<Event> {
        let Phase::Transmission(_, _, input) = &mut self.phase else {
            return None;
        };
        match mem::replace(input, Input::Request) {
            Input::Payload(p) if p.left() == 0 => {
                let cookie = p.cookie;
                let op = Op::Write {
                    offset: p.offset,
                    fua: p.fua,
                    bytes: p.into_bytes(),
                };
                Some(self.begin(cookie, op))
            }
            other => {
                *input = other;
                None
            }
        }
    }

    /// Memory ran short within a payload: its received bytes are freed, and the rest will be dropped.
    fn give_up(&mut self) -> bool {
        if let Phase::Transmission(_, _, input) = &mut self.phase
            && let Input::Payload(p) = input
        {
            self.held.bytes -= p.len() as u64;
            let (left, cookie) = (p.left() as u64, p.cookie);
            *input = Input::Dropped {
                left,
                cookie,
                refused: NO_MEMORY,
            };
        }
        true
    }

    /// Drops the available bytes of a refused write's payload; returns whether there were any.
    fn dropped(&mut self) -> bool {
        let Phase::Transmission(_, _, input) = &mut self.phase else {
            return false;
        };
        let Input::Dropped {
            left,
            cookie,
            refused,
        } = input
        else {
            return false;
        };
        let n = ((self.to - self.from) as u64).min(*left);
        self.from += n as usize;
        *left -= n;
        if *left == 0 {
            let (cookie, refused) = (*cookie, *refused);
            *input = Input::Request;
            self.output.push_error(cookie, refused, ONE);
        }
        n > 0
    }

    /// Registers an operation for the exports. A write's bytes are counted already.
    fn begin(&mut self, cookie: u64, op: Op) -> Event {
        let (kind, bytes) = match &op {
            &Op::Read { offset, len, df } => (Kind::Read { offset, len, df }, u64::from(len)),
            &Op::BlockStatus { len, one, .. } => (Kind::Status { len, one }, STATUS_BYTES),
            Op::Write { bytes, .. } => (Kind::Other, bytes.len() as u64),
            _ => (Kind::Other, 0),
        };
        if !matches!(op, Op::Write { .. }) {
            self.held.bytes += bytes;
        }
        self.out += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u16
        });
        let mut handle = Handle(u32::from(index));
        if let Some(slot) = self.slots.get_mut(usize::from(index)) {
            slot.generation = slot.generation.wrapping_add(1);
            handle.0 |= u32::from(slot.generation) << 16;
            slot.live = Some(Live {
                cookie,
                kind,
                bytes,
            });
        }
        Event::Request(handle, op)
    }

    /// Replies to a request. Errors: no request with this handle is on its way.
    pub fn reply(&mut self, handle: Handle, result: Result<Reply, Errno>) -> Result<()> {
        let index = handle.0 as u16;
        let live = self
            .slots
            .get_mut(usize::from(index))
            .filter(|s| s.generation == (handle.0 >> 16) as u16)
            .and_then(|s| s.live.take());
        let Some(live) = live else {
            return Err(Error::broken(format!("a reply to no request: {handle:?}")));
        };
        self.free.push(index);
        self.out -= 1;
        let weight = Weight {
            requests: 1,
            bytes: live.bytes,
        };
        match (live.kind, result) {
            (_, Err(errno)) => self.output.push_error(live.cookie, (errno, ""), weight),
            (Kind::Read { offset, len, df }, Ok(Reply::Data(bytes)))
                if bytes.len() == len as usize =>
            {
                let pieces = [Piece::Data(bytes)];
                self.output
                    .push_read(live.cookie, (offset, len, df), &pieces, weight);
            }
            (Kind::Read { offset, len, df }, Ok(Reply::Pieces(pieces)))
                if pieces.iter().map(Piece::len).sum::<u64>() == u64::from(len) =>
            {
                self.output
                    .push_read(live.cookie, (offset, len, df), &pieces, weight);
            }
            (Kind::Status { len, one }, Ok(Reply::Status(extents))) => {
                self.output
                    .push_status(live.cookie, (len, one), &extents, weight);
            }
            (Kind::Other, Ok(Reply::Done)) => {
                let head = codec::simple_reply(live.cookie, 0);
                self.output.push(head, Bytes::new(), weight);
            }
            (kind, Ok(reply)) => {
                base::invariant!(false, "{reply:?} for {kind:?}");
                let why = "internal error: a reply of another form";
                self.output
                    .push_error(live.cookie, (Errno::Io, why), weight);
            }
        }
        Ok(())
    }

    /// The answer to [`Ask::List`]: the names of all exports.
    pub fn names(&mut self, names: Result<Vec<String>>) {
        self.out = 0;
        if let Phase::Handshake(handshake) = &mut self.phase {
            let bytes = handshake.names(names);
            self.say(bytes);
        }
    }

    /// The answer to [`Ask::Describe`] and [`Ask::Attach`]: information about an export. Errors: the
    /// connection must be closed at once.
    pub fn answer(&mut self, found: Result<ExportInfo>) -> Result<()> {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return Err(Error::broken("an answer after the handshake"));
        };
        self.out = 0;
        let (bytes, outcome) = handshake.answer(found)?;
        self.say(bytes);
        if let Outcome::Begin(export, agreed) = outcome {
            self.output.structured = agreed.structured;
            self.phase = Phase::Transmission(export, agreed, Input::Request);
        }
        Ok(())
    }

    /// Whether the client is still negotiating options.
    pub fn in_handshake(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }

    /// Number of questions and requests that wait for the exports.
    pub fn waiting(&self) -> u32 {
        self.out
    }

    /// Bytes that requests occupy.
    pub fn held_bytes(&self) -> u64 {
        self.held.bytes
    }

    /// Takes no more requests; those on their way are finished.
    pub fn end(&mut self) {
        self.phase = Phase::Ending;
    }

    /// Whether the connection has ended: everything is answered and sent.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Ending) && self.out == 0 && self.output.is_empty()
    }

    /// Whether there is output to send.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Fills `out` with slices of the output, as many as it has room for; returns their number.
    pub fn output<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        self.output.slices(out)
    }

    /// The first `n` bytes of the output are sent.
    pub fn sent(&mut self, n: usize) {
        let back = self.output.sent(n);
        self.held.requests -= back.requests;
        self.held.bytes -= back.bytes;
    }

    fn say(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            let none = Weight::default();
            self.output.push(Head::default(), bytes.into(), none);
        }
    }
}

#[cfg(test)]
mod tests;
