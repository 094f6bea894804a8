//! An operation on a volume, split into requests to the groups that hold its bytes, and the order of
//! operations.
//!
//! Changes of overlapping blocks are applied one after the other, in the order in which they were submitted: a
//! change waits until all older changes of its blocks are settled. So the last submitted change of a block
//! wins, even if requests are sent again.

use std::collections::BTreeMap;

use crate::client::map::Map;
use crate::ids::{BLOCK, Group};
use crate::nbd::command::{Extent, Op, Piece, Reply};
use crate::nbd::exports::Token;
use crate::wire::client::{self as wire, Outcome, Run, Span, What, crcs_at};

/// The most stripe units of a block status.
const STATUS_UNITS_MAX: u64 = 64;

/// The result of one request of an operation.
#[derive(Debug)]
enum Part {
    Missing,
    Pieces(Vec<wire::Piece>),
    Runs(Vec<Run>),
}

/// An operation until it is settled.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) token: Token,
    /// When it was submitted, ns.
    pub(super) since: u64,
    /// Whether it was answered. It stays until all its requests are closed.
    pub(super) is_answered: bool,
    /// Number of its requests that are not closed.
    pub(super) jobs: u32,
    op: Op,
    offset: u64,
    len: u64,
    /// How many of its bytes have requests already.
    made: u64,
    /// The results of its requests, in order: of reads and block statuses only.
    parts: Vec<Part>,
    /// Number of older operations that it waits for.
    waits: u32,
    /// Newer operations that wait for this one.
    waiting: Vec<u64>,
}

impl Operation {
    pub(super) fn new(token: Token, op: Op, map: &Map, since: u64) -> Self {
        let (offset, mut len) = range(&op);
        if let Op::BlockStatus { one, .. } = op {
            let units = if one { 1 } else { STATUS_UNITS_MAX };
            let most = map.pieces(offset, len).take(units as usize);
            len = most.map(|p| u64::from(p.len)).sum();
        }
        Self {
            token,
            since,
            is_answered: false,
            jobs: 0,
            op,
            offset,
            len,
            made: 0,
            parts: Vec::new(),
            waits: 0,
            waiting: Vec::new(),
        }
    }

    /// Whether it waits for no older operation.
    pub(super) fn is_free(&self) -> bool {
        self.waits == 0
    }

    /// Whether requests remain to be made.
    pub(super) fn has_more(&self) -> bool {
        !self.is_answered && self.made < self.len
    }

    /// The next request: the number of the part, the group, and the request itself.
    pub(super) fn next(&mut self, map: &Map) -> Option<(usize, Group, What)> {
        if !self.has_more() {
            return None;
        }
        let left = self.len - self.made;
        let piece = map.pieces(self.offset + self.made, left).next()?;
        let span = Span {
            chunk: piece.chunk,
            offset: piece.offset_in_chunk,
            len: piece.len,
        };
        let what = match &self.op {
            Op::Read { .. } => What::Read(span),
            Op::Write { bytes, .. } => {
                let from = self.made as usize;
                let payload = bytes.slice(from..from + span.len as usize);
                What::Write {
                    span,
                    crcs: crcs_at(span.offset, &payload).collect(),
                    payload,
                }
            }
            Op::Trim { .. } => What::Trim(span),
            Op::BlockStatus { .. } => What::Status(span),
            Op::Zero { .. } | Op::Flush | Op::Cache { .. } => What::Zero(span),
        };
        self.made += u64::from(span.len);
        self.jobs += 1;
        if !what.is_change() {
            self.parts.push(Part::Missing);
        }
        Some((self.parts.len().saturating_sub(1), piece.group, what))
    }

    /// Stores the result of a request.
    pub(super) fn put(&mut self, part: usize, outcome: Outcome) {
        if let Some(part) = self.parts.get_mut(part) {
            *part = match outcome {
                Outcome::Data { pieces, .. } => Part::Pieces(pieces),
                Outcome::Status(runs) => Part::Runs(runs),
                Outcome::Done | Outcome::Refused(_) => return,
            };
        }
    }

    /// The reply, once all parts are there.
    pub(super) fn reply(&mut self) -> Reply {
        let (mut pieces, mut extents) = (Vec::new(), Vec::new());
        for part in self.parts.drain(..) {
            match part {
                Part::Missing => {}
                Part::Pieces(more) => more.into_iter().for_each(|p| push_piece(&mut pieces, p)),
                Part::Runs(runs) => runs.iter().for_each(|&r| push_run(&mut extents, r)),
            }
        }
        match &self.op {
            Op::Read { .. } => match pieces.as_slice() {
                [Piece::Data(bytes)] => Reply::Data(bytes.clone()),
                _ => Reply::Pieces(pieces),
            },
            Op::BlockStatus { .. } => Reply::Status(extents),
            _ => Reply::Done,
        }
    }

    /// The range of blocks that it changes: the first, and the one after the last.
    fn changes(&self) -> Option<(u64, u64)> {
        let block = BLOCK as u64;
        let is_change = matches!(
            self.op,
            Op::Write { .. } | Op::Zero { .. } | Op::Trim { .. }
        );
        let end = self.offset + self.len;
        is_change.then_some((self.offset / block, end.div_ceil(block)))
    }
}

/// Offset and length of the bytes that an operation is about.
pub(super) fn range(op: &Op) -> (u64, u64) {
    match op {
        Op::Write { offset, bytes, .. } => (*offset, bytes.len() as u64),
        Op::Read { offset, len, .. }
        | Op::Trim { offset, len, .. }
        | Op::Zero { offset, len, .. }
        | Op::Cache { offset, len }
        | Op::BlockStatus { offset, len, .. } => (*offset, u64::from(*len)),
        Op::Flush => (0, 0),
    }
}

fn push_piece(out: &mut Vec<Piece>, piece: wire::Piece) {
    match (piece, out.last_mut()) {
        // Cannot overflow: a read has at most 32 MiB.
        (wire::Piece::Hole(len), Some(Piece::Hole(last))) => *last += len,
        (wire::Piece::Hole(len), _) => out.push(Piece::Hole(len)),
        (wire::Piece::Data(bytes), _) => out.push(Piece::Data(bytes)),
    }
}

fn push_run(out: &mut Vec<Extent>, run: Run) {
    let len = u64::from(run.len);
    match out.last_mut() {
        Some(last) if (last.hole, last.zero) == (run.hole, run.zero) => last.len += len,
        _ => out.push(Extent {
            len,
            hole: run.hole,
            zero: run.zero,
        }),
    }
}

/// Operations that are not settled, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Operations {
    next: u64,
    all: BTreeMap<u64, Operation>,
    /// The blocks that each of the changes covers.
    changes: BTreeMap<u64, (u64, u64)>,
}

impl Operations {
    /// Adds an operation and returns its id.
    pub(super) fn insert(&mut self, mut operation: Operation) -> u64 {
        let id = self.next;
        self.next += 1;
        if let Some((first, end)) = operation.changes() {
            for (older, _) in self
                .changes
                .iter()
                .filter(|(_, r)| r.0 < end && first < r.1)
            {
                if let Some(older) = self.all.get_mut(older) {
                    older.waiting.push(id);
                    operation.waits += 1;
                }
            }
            self.changes.insert(id, (first, end));
        }
        self.all.insert(id, operation);
        id
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Operation> {
        self.all.get_mut(&id)
    }

    /// Removes a settled operation. Returns those that may begin now.
    pub(super) fn remove(&mut self, id: u64) -> Vec<u64> {
        self.changes.remove(&id);
        let waiting = self.all.remove(&id).map(|o| o.waiting).unwrap_or_default();
        let mut free = Vec::new();
        for id in waiting {
            if let Some(newer) = self.all.get_mut(&id) {
                newer.waits -= 1;
                if newer.is_free() {
                    free.push(id);
                }
            }
        }
        free
    }

    /// All, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Operation)> {
        self.all.iter().map(|(&id, o)| (id, o))
    }
}
