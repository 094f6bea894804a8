//! Reading blocks: where they are, what is read from the data file, and for which purpose.

use std::collections::VecDeque;

use base::{Error, Result};
use bytes::Bytes;
use io::{AlignedBuf, buffer::PAGE};

use super::super::core::Command;
use super::changes::{Proposal, range_of};
use super::locks::Lock;
use super::repair::is_block;
use super::{Asked, Member, refuse, reply};
use crate::group::apply::Found;
use crate::group::command::{self, Op, Range};
use crate::ids::BLOCK;
use crate::memory::buffers::OWN_BYTES_MIN;
use crate::store::data::{Held, Reader};
use crate::store::dirty::{Content, Key};
use crate::wire::client::{Outcome, Piece, Reason, Request, Response, Run, Span, What};

/// The most blocks of one read of the data file: 1 MiB.
const READ_BLOCKS: usize = 256;

/// A part of a reading: one block.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Hole,
    Here(Bytes),
    /// To be read from the data file at this offset, with the crc that it must have.
    Coming {
        offset: u64,
        crc: u32,
    },
}

impl Part {
    fn bytes(self) -> Option<Bytes> {
        match self {
            Self::Here(bytes) => Some(bytes),
            Self::Hole | Self::Coming { .. } => None,
        }
    }
}

/// The purpose of a reading.
#[derive(Debug)]
pub(super) enum Purpose {
    /// A client reads the blocks, or changes parts of them.
    Client(Asked),
    /// Another replica, which has lost the block, asked for it.
    Other {
        /// That replica.
        to: u64,
        /// The crc of the lost content.
        crc: u32,
    },
    /// A copy of the group needs the blocks.
    Copy {
        /// The follower.
        to: u64,
        /// The number of the step.
        number: u64,
    },
}

/// Blocks that are being read for one purpose.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) purpose: Purpose,
    range: Range,
    parts: Vec<Part>,
    /// Number of reads of the data file and questions to replicas that are pending.
    left: usize,
    failed: Option<Reason>,
}

impl Reading {
    /// Whether parts of the blocks will be changed.
    pub(super) fn is_merge(&self) -> bool {
        matches!(&self.purpose, Purpose::Client(a) if a.request.what.is_change())
    }
}

impl Member {
    /// Serves a read or a status, or reads the blocks of a partial change.
    pub(super) fn serve(&mut self, asked: Asked, data: &Reader, out: &mut VecDeque<Command>) {
        let span = asked.request.what.span();
        let range = range_of(&asked.request, span);
        if let What::Status(_) = asked.request.what {
            let runs = self.runs(range, span, data);
            return reply(out, asked.client, asked.request.id, Outcome::Status(runs));
        }
        self.read_for(Purpose::Client(asked), range, data, out);
    }

    /// Locates the blocks, and requests those in the data file.
    pub(super) fn read_for(
        &mut self,
        purpose: Purpose,
        range: Range,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) {
        let parts = range.keys().map(|key| self.part(&key, range, data));
        let parts: Vec<Part> = parts.collect();
        self.next_token += 1;
        let id = self.next_token;
        let mut reading = Reading {
            purpose,
            range,
            parts,
            left: 0,
            failed: None,
        };
        let all = reading.parts.len();
        self.ask_for(id, &mut reading, 0..all, out);
        if reading.left == 0 {
            self.has_read(reading, out);
        } else {
            self.reading.insert(id, reading);
        }
    }

    /// Where a block of a range is.
    fn part(&self, key: &Key, range: Range, data: &Reader) -> Part {
        // A response may be queued for long, and only its own bytes count then; so a small one must not
        // keep a larger buffer.
        let is_small = usize::from(range.blocks) * BLOCK < OWN_BYTES_MIN;
        match self.replica.find(key, data) {
            Found::Here(Content::Data { bytes, .. }) if is_small => {
                Part::Here(self.replica.alone(key, bytes))
            }
            Found::Here(Content::Data { bytes, .. }) => Part::Here(bytes),
            Found::Here(Content::Zero) | Found::File(Held::Zero | Held::Absent) => Part::Hole,
            Found::File(Held::There { offset, crc }) => Part::Coming { offset, crc },
        }
    }

    /// Requests the blocks of these parts that are in the data file; adjacent ones in one read.
    fn ask_for(
        &mut self,
        id: u64,
        reading: &mut Reading,
        nths: std::ops::Range<usize>,
        out: &mut VecDeque<Command>,
    ) {
        let mut run: Option<(u64, usize, usize)> = None;
        let mut runs = Vec::new();
        for nth in nths {
            let Some(&Part::Coming { offset, .. }) = reading.parts.get(nth) else {
                runs.extend(run.take());
                continue;
            };
            match &mut run {
                Some((from, _, count))
                    if *from + (*count * BLOCK) as u64 == offset && *count < READ_BLOCKS =>
                {
                    *count += 1;
                }
                _ => runs.extend(run.replace((offset, nth, 1))),
            }
        }
        runs.extend(run);
        for (offset, first, count) in runs {
            self.next_token += 1;
            let token = self.next_token << 32 | u64::from(self.group.0);
            self.tokens.insert(token, (id, first, count));
            let len = count * BLOCK;
            out.push_back(Command::Read { token, offset, len });
            reading.left += 1;
        }
    }

    fn runs(&self, range: Range, span: Span, data: &Reader) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let (from, to) = (span.offset, span.offset + span.len);
        for key in range.keys() {
            let (hole, zero) = match self.replica.find(&key, data) {
                Found::Here(Content::Data { .. }) | Found::File(Held::There { .. }) => {
                    (false, false)
                }
                Found::Here(Content::Zero) | Found::File(Held::Zero | Held::Absent) => (true, true),
            };
            let at = key.block.0 * BLOCK as u32;
            let len = (at + BLOCK as u32).min(to) - at.max(from);
            match runs.last_mut().filter(|r| r.hole == hole) {
                Some(run) => run.len += len,
                None => runs.push(Run { len, hole, zero }),
            }
        }
        runs
    }

    /// Handles the outcome of a read of the data file.
    pub(in super::super) fn read_done(
        &mut self,
        token: u64,
        result: Result<AlignedBuf>,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) {
        let Some((id, first, count)) = self.tokens.remove(&token) else {
            return;
        };
        let Some(mut reading) = self.reading.remove(&id) else {
            return;
        };
        reading.left -= 1;
        match result {
            Ok(buf) => {
                let all = Bytes::from(buf);
                for nth in first..first + count {
                    let at = (nth - first) * BLOCK;
                    let block = if all.len() >= at + BLOCK {
                        all.slice(at..at + BLOCK)
                    } else {
                        Bytes::new()
                    };
                    self.block_read(id, &mut reading, nth, block, data, out);
                }
            }
            // Another replica may have the blocks that cannot be read here.
            Err(e) if !self.can_ask() => reading.failed = Some(Reason::Io(e.to_string())),
            Err(_) => {
                for nth in first..first + count {
                    self.block_read(id, &mut reading, nth, Bytes::new(), data, out);
                }
            }
        }
        self.go_on(id, reading, out);
    }

    fn go_on(&mut self, id: u64, reading: Reading, out: &mut VecDeque<Command>) {
        if reading.left == 0 {
            self.has_read(reading, out);
        } else {
            self.reading.insert(id, reading);
        }
    }

    fn can_ask(&self) -> bool {
        self.node.members().voters.len() > 1
    }

    /// Another replica has sent the block of part `nth`, or none has it.
    pub(super) fn part_is_here(
        &mut self,
        id: u64,
        nth: usize,
        bytes: Option<Bytes>,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) {
        let Some(mut reading) = self.reading.remove(&id) else {
            return;
        };
        reading.left -= 1;
        let now = reading
            .range
            .keys()
            .nth(nth)
            .map(|key| self.part(&key, reading.range, data));
        match (bytes, reading.parts.get_mut(nth), now) {
            (Some(bytes), Some(part), _) => *part = Part::Here(bytes),
            // The block was written meanwhile.
            (None, Some(part), Some(now)) if *part != now => {
                *part = now;
                self.ask_for(id, &mut reading, nth..nth + 1, out);
            }
            _ => reading.failed = Some(Reason::Corrupt),
        }
        self.go_on(id, reading, out);
    }

    fn block_read(
        &mut self,
        id: u64,
        reading: &mut Reading,
        nth: usize,
        block: Bytes,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) {
        let (Some(part), Some(key)) = (reading.parts.get_mut(nth), reading.range.keys().nth(nth))
        else {
            return;
        };
        match *part {
            Part::Coming { crc, .. } if is_block(&block, crc) => *part = Part::Here(block),
            _ => {
                // The block may have been written back during the read: then it is elsewhere, or has another
                // crc.
                let now = self.part(&key, reading.range, data);
                let is_same = now == *part;
                *part = now;
                match *part {
                    Part::Coming { crc, .. } if is_same => {
                        // A replica that asks for a block asks others too, so the question is not passed
                        // on.
                        if matches!(reading.purpose, Purpose::Other { .. }) || !self.can_ask() {
                            reading.failed = Some(Reason::Corrupt);
                            return;
                        }
                        reading.left += 1;
                        self.ask_for_block(key, crc, (id, nth), data, out);
                    }
                    _ => self.ask_for(id, reading, nth..nth + 1, out),
                }
            }
        }
    }

    /// All blocks of a reading are there, or it has failed.
    fn has_read(&mut self, reading: Reading, out: &mut VecDeque<Command>) {
        let Reading {
            purpose,
            range,
            parts,
            failed,
            ..
        } = reading;
        let Asked { client, request } = match purpose {
            Purpose::Client(asked) => asked,
            // The asking replica repeats its question until it gives up.
            Purpose::Other { .. } if failed.is_some() => return,
            Purpose::Other { to, crc } => {
                let block = parts.into_iter().next().and_then(Part::bytes);
                return self.answer_block((to, crc), range, block, out);
            }
            Purpose::Copy { to, number } if failed.is_some() => {
                return self.give_again(to, number);
            }
            Purpose::Copy { to, number } => {
                let blocks: Vec<Option<Bytes>> = parts.into_iter().map(Part::bytes).collect();
                return self.give_blocks((to, number), range, &blocks, out);
            }
        };
        let span = request.what.span();
        if let Some(reason) = failed {
            if request.what.is_change() {
                self.locks.end(Lock {
                    range,
                    is_merge: true,
                });
            }
            return refuse(out, client, request.id, reason);
        }
        if request.what.is_change() {
            return self.merge(client, &request, parts, out);
        }
        let (from, to) = (span.offset as usize, (span.offset + span.len) as usize);
        let mut pieces: Vec<Piece> = Vec::new();
        for (nth, part) in parts.into_iter().enumerate() {
            let at = (range.first.0 as usize + nth) * BLOCK;
            let (start, end) = (from.max(at) - at, (to - at).min(BLOCK));
            match (part, pieces.last_mut()) {
                (Part::Here(bytes), _) => pieces.push(Piece::Data(bytes.slice(start..end))),
                (_, Some(Piece::Hole(len))) => *len += (end - start) as u32,
                _ => pieces.push(Piece::Hole((end - start) as u32)),
            }
        }
        let response = Response::data(request.id, span.offset, pieces);
        out.push_back(Command::Reply { client, response });
    }

    /// Merges a change of parts of blocks with their content, and proposes whole blocks.
    fn merge(
        &mut self,
        client: u64,
        request: &Request,
        parts: Vec<Part>,
        out: &mut VecDeque<Command>,
    ) {
        let span = request.what.span();
        let lock = Lock {
            range: range_of(request, span),
            is_merge: true,
        };
        match merged(request, &parts, span) {
            Ok(bytes) => {
                let payload = Bytes::from(bytes);
                let crcs = command::crcs_of(&payload);
                let change = Proposal {
                    op: Op::Write,
                    lock: Some(lock),
                    crcs: &crcs,
                    payload,
                };
                self.propose(client, request, change, out);
            }
            Err(e) => {
                self.locks.end(lock);
                refuse(out, client, request.id, Reason::Io(e.to_string()));
            }
        }
    }
}

fn merged(request: &Request, parts: &[Part], span: Span) -> Result<AlignedBuf> {
    let mut all = AlignedBuf::zeroed(parts.len() * BLOCK, PAGE)?;
    for (block, part) in all.chunks_exact_mut(BLOCK).zip(parts) {
        if let Part::Here(bytes) = part {
            block.copy_from_slice(bytes);
        }
    }
    let start = span.offset as usize % BLOCK;
    let into = all.get_mut(start..start + span.len as usize);
    let into = into.ok_or_else(|| Error::broken("a change reaches beyond its blocks"))?;
    match &request.what {
        What::Write { payload, .. } => into.copy_from_slice(payload),
        _ => into.fill(0),
    }
    Ok(all)
}
