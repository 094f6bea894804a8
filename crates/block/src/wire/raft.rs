//! Messages between replicas, in frames.
//!
//! ```text
//!   fields:  message message …                           payload: the blocks of all entries, in order
//!   message: 0+1 what  1+1 flags  2+2 zero  4+4 group  8+8 from  16+8 to  24+8 term, then by what it is
//!     1 append              8 index  8 its term  8 commit  4 entries, then each of them:
//!                             8 term  4 bytes inline, with bit 31 in a change of the members
//!                             4 bytes of the payload, then what is inline
//!     2 append response     8 index  8 commit; flag 1: 8 index  8 term where the logs may agree
//!     3 vote                8 index  8 its term  8 commit  8 its term; flag 1: asks only, flag 2: transfer
//!     4 vote response       8 commit  8 its term; flag 1: was asked only, flag 2: refused
//!     5 heartbeat           8 commit  8 round; flag 1: 8 replica  8 context of a read
//!     6 heartbeat response  the same
//!     7 read index          8 replica  8 context
//!     8 read index response 8 replica  8 context  8 index
//!     9 leader now          nothing
//!    11 ask, 12 have        8 tree  8 layer  4 chunk  4 block  4 crc  4 bytes of the payload
//!    10 copy                8 through  8 its term  4 step  4 bytes of the payload, then
//!                             step 1 offer, 6 done: nothing; 2 ready: 8 from  8 attempt; 4 taken: 8 number
//!                             5 end, 7 gone: 8 attempt; 3 blocks: 8 attempt  8 number  8 tree  8 layer  4 chunk
//!                             4 first block  4 blocks, then of each block 1 is there  3 zero  4 crc
//! ```
//!
//! The messages of one turn to one peer share frames, a frame for each lane. Heartbeats and elections have
//! their own, so that no append delays them. An append that is too long for a frame is split into several, each
//! continuing after the last entry of the one before, which is the same for Raft. A payload of
//! [`OWN_BYTES_MIN`] or more is the only one of its frame.

use base::coding::{Decoder, put_u32, put_u64};
use base::{Error, Result};
use bytes::Bytes;
use io::AlignedBuf;
use io::buffer::PAGE;

use super::frame::{FIELDS_BYTES_MAX, Frame, Lane, PAYLOAD_BYTES_MAX, kind};
use super::remedy;
use crate::group::command::Range;
use crate::group::message::{Body, Copy, CopyStep, Entry, Message, Read};
use crate::ids::{Block, Chunk, Group, Index, Layer, Term, Tree};
use crate::memory::buffers::OWN_BYTES_MIN;
use crate::store::dirty::Key;

/// Marks an entry that changes the members.
const CHANGE: u32 = 1 << 31;
/// Bytes of a message before the part that depends on its kind.
const HEAD: usize = 32;
/// The most bytes of a message without entries.
const PLAIN_BYTES_MAX: usize = HEAD + 40;
/// Bytes that identify a block and its content.
const KEYED: usize = 32;
/// Bytes of an entry before its inline bytes.
const ENTRY: usize = 16;

/// The lane of a message.
pub fn lane_of(body: &Body) -> Lane {
    match body {
        Body::Heartbeat { .. }
        | Body::HeartbeatResponse { .. }
        | Body::Vote { .. }
        | Body::VoteResponse { .. }
        | Body::TimeoutNow => Lane::Heartbeat,
        Body::Append { .. }
        | Body::AppendResponse { .. }
        | Body::ReadIndex { .. }
        | Body::ReadIndexResponse { .. } => Lane::Foreground,
        Body::Copy { .. } | Body::Ask { .. } | Body::Have { .. } => Lane::Repair,
    }
}

/// Gathers messages to one peer, in frames of one lane.
#[derive(Debug)]
pub struct Gather {
    lane: Lane,
    fields: Vec<u8>,
    payload: Vec<Bytes>,
    payload_bytes: usize,
}

impl Gather {
    /// An empty one.
    pub fn new(lane: Lane) -> Self {
        Self {
            lane,
            fields: Vec::new(),
            payload: Vec::new(),
            payload_bytes: 0,
        }
    }

    /// Whether nothing was added since the last frame.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The gathered messages, as a frame from one store to another; `None`: there are none.
    pub fn frame(&mut self, sender: u64, receiver: u64) -> Option<Frame> {
        if self.fields.is_empty() {
            return None;
        }
        self.payload_bytes = 0;
        Some(Frame {
            sender,
            receiver,
            payload: std::mem::take(&mut self.payload),
            ..Frame::new(kind::RAFT, self.lane, std::mem::take(&mut self.fields))
        })
    }

    /// Adds a message with the payloads of its entries; full frames are appended to `out`. Errors: an entry
    /// exceeds the limits of frames, or has no payload.
    pub fn add(
        &mut self,
        ends: (u64, u64),
        group: Group,
        message: &Message,
        payloads: &[Bytes],
        out: &mut Vec<Frame>,
    ) -> Result<()> {
        if !self.has_room(PLAIN_BYTES_MAX, 0) {
            out.extend(self.frame(ends.0, ends.1));
        }
        if let Body::Ask { key, crc } | Body::Have { key, crc } = &message.body {
            return self.add_block(ends, group, message, (key, *crc), payloads, out);
        }
        if let Body::Copy { copy, step } = &message.body {
            return self.add_copy(ends, group, message, (copy, step), payloads, out);
        }
        let Body::Append {
            index,
            log_term,
            commit,
            entries,
        } = &message.body
        else {
            put_plain(&mut self.fields, group, message);
            return Ok(());
        };
        if entries.len() != payloads.len() {
            return Err(Error::broken("an append whose entries lack payloads"));
        }
        let (mut before, mut rest) = ((*index, *log_term), entries.iter().zip(payloads).peekable());
        // Otherwise this frame would end with an append without entries.
        if rest.peek().is_some_and(|(e, p)| !self.takes(e, p)) {
            out.extend(self.frame(ends.0, ends.1));
        }
        loop {
            put_head(&mut self.fields, 1, 0, group, message);
            put_u64(&mut self.fields, before.0.0);
            put_u64(&mut self.fields, before.1.0);
            put_u64(&mut self.fields, commit.0);
            let count_at = self.fields.len();
            put_u32(&mut self.fields, 0);
            let mut count = 0_u32;
            while let Some((entry, payload)) =
                rest.next_if(|(e, p)| self.has_room(ENTRY + e.inline.len(), p.len()))
            {
                self.put_entry(entry, payload);
                before = (entry.index, entry.term);
                count += 1;
            }
            if let Some(place) = self.fields.get_mut(count_at..count_at + 4) {
                place.copy_from_slice(&count.to_le_bytes());
            }
            let Some((entry, payload)) = rest.peek() else {
                return Ok(());
            };
            let bytes = PLAIN_BYTES_MAX + ENTRY + entry.inline.len();
            if bytes > FIELDS_BYTES_MAX || payload.len() > PAYLOAD_BYTES_MAX {
                return Err(Error::broken(format!(
                    "entry {} of group {group} with {} + {} bytes does not fit a frame",
                    entry.index,
                    entry.inline.len(),
                    payload.len()
                )));
            }
            out.extend(self.frame(ends.0, ends.1));
        }
    }

    fn add_block(
        &mut self,
        ends: (u64, u64),
        group: Group,
        message: &Message,
        (key, crc): (&Key, u32),
        payloads: &[Bytes],
        out: &mut Vec<Frame>,
    ) -> Result<()> {
        let code = if matches!(message.body, Body::Ask { .. }) {
            11
        } else {
            12
        };
        let mut fields = Vec::with_capacity(HEAD + KEYED);
        put_head(&mut fields, code, 0, group, message);
        put_u64(&mut fields, key.tree.0);
        put_u64(&mut fields, key.layer.0);
        put_u32(&mut fields, key.chunk.0);
        put_u32(&mut fields, key.block.0);
        put_u32(&mut fields, crc);
        put_u32(
            &mut fields,
            payloads.iter().map(Bytes::len).sum::<usize>() as u32,
        );
        self.add_with(ends, &fields, payloads, out)
    }

    fn add_copy(
        &mut self,
        (sender, receiver): (u64, u64),
        group: Group,
        message: &Message,
        (copy, step): (&Copy, &CopyStep),
        payloads: &[Bytes],
        out: &mut Vec<Frame>,
    ) -> Result<()> {
        let mut fields = Vec::new();
        let payload_bytes = payloads.iter().map(Bytes::len).sum::<usize>();
        put_head(&mut fields, 10, 0, group, message);
        put_u64(&mut fields, copy.through.0);
        put_u64(&mut fields, copy.term.0);
        put_u32(&mut fields, step_code(step));
        put_u32(&mut fields, payload_bytes as u32);
        match step {
            CopyStep::Offer | CopyStep::Done => {}
            CopyStep::End { attempt } | CopyStep::Gone { attempt } => {
                put_u64(&mut fields, *attempt);
            }
            CopyStep::Ready { from, attempt } => {
                put_u64(&mut fields, from.0);
                put_u64(&mut fields, *attempt);
            }
            CopyStep::Taken { number } => put_u64(&mut fields, *number),
            CopyStep::Blocks {
                attempt,
                number,
                range,
                crcs,
            } => {
                put_u64(&mut fields, *attempt);
                put_u64(&mut fields, *number);
                put_u64(&mut fields, range.tree.0);
                put_u64(&mut fields, range.layer.0);
                put_u32(&mut fields, range.chunk.0);
                put_u32(&mut fields, range.first.0);
                put_u32(&mut fields, crcs.len() as u32);
                for crc in crcs {
                    fields.extend_from_slice(&[u8::from(crc.is_some()), 0, 0, 0]);
                    put_u32(&mut fields, crc.unwrap_or_default());
                }
            }
        }
        self.add_with((sender, receiver), &fields, payloads, out)
    }

    /// Adds an unsplit message, to this frame or the next.
    fn add_with(
        &mut self,
        (sender, receiver): (u64, u64),
        fields: &[u8],
        payloads: &[Bytes],
        out: &mut Vec<Frame>,
    ) -> Result<()> {
        let payload_bytes = payloads.iter().map(Bytes::len).sum();
        if fields.len() > FIELDS_BYTES_MAX || payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(Error::broken(format!(
                "a message with {} + {payload_bytes} bytes does not fit a frame",
                fields.len()
            )));
        }
        if !self.has_room(fields.len(), payload_bytes) {
            out.extend(self.frame(sender, receiver));
        }
        self.fields.extend_from_slice(fields);
        self.payload_bytes += payload_bytes;
        let with = payloads.iter().filter(|p| !p.is_empty());
        self.payload.extend(with.cloned());
        Ok(())
    }

    /// Whether there is room for an append that begins with this entry.
    fn takes(&self, entry: &Entry, payload: &Bytes) -> bool {
        self.has_room(PLAIN_BYTES_MAX + ENTRY + entry.inline.len(), payload.len())
    }

    fn has_room(&self, fields: usize, payload: usize) -> bool {
        // A large payload is the only one of its frame.
        let first = self.payload.first().map_or(0, Bytes::len);
        let is_alone = first == 0 || payload == 0;
        self.fields.len() + fields <= FIELDS_BYTES_MAX
            && self.payload_bytes + payload <= PAYLOAD_BYTES_MAX
            && (is_alone || first.max(payload) < OWN_BYTES_MIN)
    }

    fn put_entry(&mut self, entry: &Entry, payload: &Bytes) {
        put_u64(&mut self.fields, entry.term.0);
        let flag = if entry.is_change { CHANGE } else { 0 };
        put_u32(&mut self.fields, entry.inline.len() as u32 | flag);
        put_u32(&mut self.fields, payload.len() as u32);
        self.fields.extend_from_slice(&entry.inline);
        if !payload.is_empty() {
            self.payload_bytes += payload.len();
            self.payload.push(payload.clone());
        }
    }
}

fn put_head(out: &mut Vec<u8>, what: u8, flags: u8, group: Group, message: &Message) {
    out.extend_from_slice(&[what, flags, 0, 0]);
    put_u32(out, group.0);
    put_u64(out, message.from);
    put_u64(out, message.to);
    put_u64(out, message.term.0);
}

/// A message without entries.
fn put_plain(out: &mut Vec<u8>, group: Group, message: &Message) {
    let mut put = |what: u8, flags: u8, numbers: &[u64]| {
        put_head(out, what, flags, group, message);
        for &number in numbers {
            put_u64(out, number);
        }
    };
    let bits = |first: bool, second: bool| u8::from(first) | (u8::from(second) << 1);
    match &message.body {
        // These have more than numbers: see `Gather::add`.
        Body::Append { .. } | Body::Copy { .. } | Body::Ask { .. } | Body::Have { .. } => {}
        Body::AppendResponse {
            index,
            commit,
            reject,
        } => match reject {
            Some((at, term)) => put(2, 1, &[index.0, commit.0, at.0, term.0]),
            None => put(2, 0, &[index.0, commit.0]),
        },
        Body::Vote {
            pre,
            transfer,
            index,
            log_term,
            commit,
            commit_term,
        } => {
            let numbers = [index.0, log_term.0, commit.0, commit_term.0];
            put(3, bits(*pre, *transfer), &numbers);
        }
        Body::VoteResponse {
            pre,
            reject,
            commit,
            commit_term,
        } => put(4, bits(*pre, *reject), &[commit.0, commit_term.0]),
        Body::Heartbeat {
            commit,
            round,
            read,
        } => match read {
            Some(read) => put(5, 1, &[commit.0, *round, read.replica, read.context]),
            None => put(5, 0, &[commit.0, *round]),
        },
        Body::HeartbeatResponse {
            commit,
            round,
            read,
        } => match read {
            Some(read) => put(6, 1, &[commit.0, *round, read.replica, read.context]),
            None => put(6, 0, &[commit.0, *round]),
        },
        Body::ReadIndex { read } => put(7, 0, &[read.replica, read.context]),
        Body::ReadIndexResponse { read, index } => {
            put(8, 0, &[read.replica, read.context, index.0]);
        }
        Body::TimeoutNow => put(9, 0, &[]),
    }
}

/// A message with its group and the payloads of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The group.
    pub group: Group,
    /// The message.
    pub message: Message,
    /// The payload of each entry of an append.
    pub payloads: Vec<Bytes>,
}

/// Decodes the messages of a frame. Errors: Corruption; then no message of the frame is returned. The
/// checksums of entries are not compared with their payloads: the store does that.
pub fn decode(frame: Frame) -> Result<Vec<Received>> {
    let (sender, bytes) = (frame.sender, frame.fields.len());
    read(frame).ok_or_else(|| {
        Error::corruption(format!(
            "wire: {bytes} bytes of store {sender} are no messages of replicas"
        ))
        .hint(remedy::SAME_RELEASE)
    })
}

fn read(frame: Frame) -> Option<Vec<Received>> {
    let fields = (frame.kind == kind::RAFT).then_some(frame.fields)?;
    // Received payloads are in one piece.
    let mut payload = match frame.payload.len() {
        0 | 1 => frame.payload.into_iter().next().unwrap_or_default(),
        _ => frame.payload.concat().into(),
    };
    let mut d = Decoder::new(&fields);
    let mut out: Vec<Received> = Vec::new();
    let all = payload.len();
    while !d.is_empty() {
        out.push(read_message(&fields, &mut d, &mut payload)?);
    }
    // Only a faulty sender makes several payloads share a frame with a large one: the kept ones would keep
    // all of it in memory.
    let payloads = out.iter_mut().flat_map(|r| &mut r.payloads);
    for shared in payloads.filter(|p| p.len() >= OWN_BYTES_MIN && p.len() < all) {
        let mut own = AlignedBuf::new(PAGE);
        own.extend_from_slice(shared).ok()?;
        *shared = own.into();
    }
    (payload.is_empty() && !out.is_empty()).then_some(out)
}

fn read_message(fields: &Bytes, d: &mut Decoder<'_>, payload: &mut Bytes) -> Option<Received> {
    let (what, flags, zero, group) = (d.u8()?, d.u8()?, d.u16()?, Group(d.u32()?));
    let (from, to, term) = (d.u64()?, d.u64()?, Term(d.u64()?));
    let mut payloads = Vec::new();
    let body = match what {
        1 => {
            let (index, log_term, commit) = (Index(d.u64()?), Term(d.u64()?), Index(d.u64()?));
            let count = d.u32()? as usize;
            let mut entries = Vec::with_capacity(count.min(d.len() / ENTRY));
            for nth in 0..count {
                let (entry, bytes) = read_entry(fields, d, payload)?;
                let index = Index(index.0.checked_add(1 + nth as u64)?);
                entries.push(Entry { index, ..entry });
                payloads.push(bytes);
            }
            Body::Append {
                index,
                log_term,
                commit,
                entries,
            }
        }
        11 | 12 => {
            let (tree, layer) = (Tree(d.u64()?), Layer(d.u64()?));
            let (chunk, block) = (Chunk(d.u32()?), Block(d.u32()?));
            let key = Key {
                tree,
                layer,
                chunk,
                block,
            };
            let (crc, bytes) = (d.u32()?, d.u32()? as usize);
            let bytes = (bytes <= payload.len()).then(|| payload.split_to(bytes))?;
            payloads.extend((!bytes.is_empty()).then_some(bytes));
            if what == 11 {
                Body::Ask { key, crc }
            } else {
                Body::Have { key, crc }
            }
        }
        10 => {
            let (body, bytes) = read_copy(d, payload)?;
            payloads.extend((!bytes.is_empty()).then_some(bytes));
            body
        }
        _ => read_plain(what, flags, d)?,
    };
    let known = match what {
        2 | 5 | 6 => 1,
        3 | 4 => 3,
        _ => 0,
    };
    let message = Message {
        from,
        to,
        term,
        body,
    };
    (zero == 0 && flags & !known == 0).then_some(Received {
        group,
        message,
        payloads,
    })
}

fn step_code(step: &CopyStep) -> u32 {
    match step {
        CopyStep::Offer => 1,
        CopyStep::Ready { .. } => 2,
        CopyStep::Blocks { .. } => 3,
        CopyStep::Taken { .. } => 4,
        CopyStep::End { .. } => 5,
        CopyStep::Done => 6,
        CopyStep::Gone { .. } => 7,
    }
}

fn read_copy(d: &mut Decoder<'_>, payload: &mut Bytes) -> Option<(Body, Bytes)> {
    let copy = Copy {
        through: Index(d.u64()?),
        term: Term(d.u64()?),
    };
    let (code, bytes) = (d.u32()?, d.u32()? as usize);
    let bytes = (bytes <= payload.len()).then(|| payload.split_to(bytes))?;
    let step = match code {
        1 => CopyStep::Offer,
        2 => CopyStep::Ready {
            from: Index(d.u64()?),
            attempt: d.u64()?,
        },
        3 => {
            let (attempt, number) = (d.u64()?, d.u64()?);
            let (tree, layer) = (Tree(d.u64()?), Layer(d.u64()?));
            let (chunk, first) = (Chunk(d.u32()?), Block(d.u32()?));
            let blocks = u16::try_from(d.u32()?).ok()?;
            let range = Range {
                tree,
                layer,
                chunk,
                first,
                blocks,
            };
            let mut crcs = Vec::with_capacity(usize::from(blocks).min(d.len() / 8));
            for _ in 0..blocks {
                let (is_there, zero, crc) = (d.u8()?, d.bytes(3)?, d.u32()?);
                let possible = zero == [0; 3] && (is_there == 1 || (is_there == 0 && crc == 0));
                crcs.push(possible.then(|| (is_there == 1).then_some(crc))?);
            }
            CopyStep::Blocks {
                attempt,
                number,
                range,
                crcs,
            }
        }
        4 => CopyStep::Taken { number: d.u64()? },
        5 => CopyStep::End { attempt: d.u64()? },
        6 => CopyStep::Done,
        7 => CopyStep::Gone { attempt: d.u64()? },
        _ => return None,
    };
    Some((Body::Copy { copy, step }, bytes))
}

/// Decodes a message without entries.
fn read_plain(what: u8, flags: u8, d: &mut Decoder<'_>) -> Option<Body> {
    let (first, second) = (flags & 1 != 0, flags & 2 != 0);
    Some(match what {
        2 => Body::AppendResponse {
            index: Index(d.u64()?),
            commit: Index(d.u64()?),
            reject: if first {
                Some((Index(d.u64()?), Term(d.u64()?)))
            } else {
                None
            },
        },
        3 => Body::Vote {
            pre: first,
            transfer: second,
            index: Index(d.u64()?),
            log_term: Term(d.u64()?),
            commit: Index(d.u64()?),
            commit_term: Term(d.u64()?),
        },
        4 => Body::VoteResponse {
            pre: first,
            reject: second,
            commit: Index(d.u64()?),
            commit_term: Term(d.u64()?),
        },
        5 => Body::Heartbeat {
            commit: Index(d.u64()?),
            round: d.u64()?,
            read: if first { Some(read_read(d)?) } else { None },
        },
        6 => Body::HeartbeatResponse {
            commit: Index(d.u64()?),
            round: d.u64()?,
            read: if first { Some(read_read(d)?) } else { None },
        },
        7 => Body::ReadIndex {
            read: read_read(d)?,
        },
        8 => Body::ReadIndexResponse {
            read: read_read(d)?,
            index: Index(d.u64()?),
        },
        9 => Body::TimeoutNow,
        _ => return None,
    })
}

fn read_entry(fields: &Bytes, d: &mut Decoder<'_>, payload: &mut Bytes) -> Option<(Entry, Bytes)> {
    let (term, word, bytes) = (Term(d.u64()?), d.u32()?, d.u32()? as usize);
    let at = fields.len() - d.len();
    let inline = d.bytes((word & !CHANGE) as usize)?;
    let inline = fields.slice(at..at + inline.len());
    let payload = (bytes <= payload.len()).then(|| payload.split_to(bytes))?;
    let entry = Entry {
        index: Index(0),
        term,
        is_change: word & CHANGE != 0,
        inline,
    };
    Some((entry, payload))
}

fn read_read(d: &mut Decoder<'_>) -> Option<Read> {
    let (replica, context) = (d.u64()?, d.u64()?);
    Some(Read { replica, context })
}

#[cfg(test)]
mod tests;
