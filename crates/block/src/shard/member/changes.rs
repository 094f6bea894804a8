//! Changes of blocks: which may begin, and the entries that are proposed for them.
//!
//! **Partial blocks**: the leader reads such a block, changes it, and writes it as a whole. Meanwhile, other
//! changes of the block wait.
//!
//! **Space**: the number of a group's chunks is limited, and each of its stores has a slot for each of them.
//! The leader refuses a write that would create one more chunk. So every entry in the log has its place on all
//! replicas, and is applied without a check.

use std::collections::VecDeque;

use bytes::Bytes;

use super::super::core::Command;
use super::locks::Lock;
use super::{Asked, Member, Waiting, refuse};
use crate::group::command::{self, Op, Range};
use crate::group::raft::Refused;
use crate::ids::{BLOCK, Block, Index, Term};
use crate::store::data::{ChunkKey, Reader};
use crate::wire::client::{Reason, Request, Span, What, crcs_at};

/// The most blocks of one write: 1 MiB.
const WRITE_BLOCKS_MAX: u16 = 256;

/// What an entry is made of, besides its request.
pub(super) struct Proposal<'a> {
    pub(super) op: Op,
    /// Of the blocks that it changes, if it changes any: it ends when the entry is applied.
    pub(super) lock: Option<Lock>,
    /// Of the blocks in `payload`.
    pub(super) crcs: &'a [u32],
    pub(super) payload: Bytes,
}

impl Member {
    /// A write, or zeros: begins when no earlier change conflicts with it.
    pub(super) fn change(
        &mut self,
        client: u64,
        request: Request,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) {
        let id = request.id;
        let span = request.what.span();
        let range = range_of(&request, span);
        let is_merge = !(span.offset as usize).is_multiple_of(BLOCK)
            || !(span.len as usize).is_multiple_of(BLOCK);
        // Zeros that cover blocks partly become a write of whole blocks.
        let brings = is_merge || matches!(request.what, What::Write { .. });
        if brings && range.blocks > WRITE_BLOCKS_MAX {
            let text = format!(
                "a write to {} blocks: {WRITE_BLOCKS_MAX} at most",
                range.blocks
            );
            return refuse(out, client, id, Reason::Io(text));
        }
        if let What::Write { crcs, payload, .. } = &request.what
            && !crcs_at(span.offset, payload).eq(crcs.iter().copied())
        {
            let text = "the bytes have another checksum than the request".to_owned();
            return refuse(out, client, id, Reason::Io(text));
        }
        if is_merge && !self.node.has_applied_own_term() {
            return refuse(out, client, id, Reason::Busy);
        }
        let lock = Lock { range, is_merge };
        let asked = Asked { client, request };
        if self.locks.begin(lock) {
            self.begin_change(asked, lock, data, out);
        } else if self.locks.is_crowded() {
            refuse(out, client, id, Reason::Busy);
        } else {
            self.locks.wait(asked, lock);
        }
    }

    /// Proposes a change of whole blocks at once; otherwise reads the blocks first.
    pub(super) fn begin_change(
        &mut self,
        asked: Asked,
        lock: Lock,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) {
        if lock.is_merge {
            return self.serve(asked, data, out);
        }
        let Asked { client, request } = asked;
        let (op, crcs, payload) = match &request.what {
            What::Write { crcs, payload, .. } => (Op::Write, crcs.to_vec(), payload.clone()),
            What::Trim(_) => (Op::Trim, vec![], Bytes::new()),
            _ => (Op::Zero, vec![], Bytes::new()),
        };
        let change = Proposal {
            op,
            lock: Some(lock),
            crcs: &crcs,
            payload,
        };
        self.propose(client, &request, change, out);
    }

    /// Accounts for the chunk of a write if the chunk is new, and returns it then. So space never runs out when
    /// entries are applied, on any replica. Errors: the chunk cannot be created.
    fn count_chunk(&mut self, range: Range) -> Result<Option<ChunkKey>, Reason> {
        let Some(key) = range.keys().next() else {
            return Ok(None);
        };
        let chunk = ChunkKey::of(self.group, &key);
        if self.chunks.contains(&chunk) {
            return Ok(None);
        }
        if let Some(count) = self.new_chunks.get_mut(&chunk) {
            *count += 1;
            return Ok(Some(chunk));
        }
        // Then all chunks that earlier leaders have granted are known.
        if !self.node.has_applied_own_term() {
            return Err(Reason::Busy);
        }
        if self.chunks.len() + self.new_chunks.len() >= self.chunks_max as usize {
            return Err(Reason::NoSpace);
        }
        self.new_chunks.insert(chunk, 1);
        Ok(Some(chunk))
    }

    /// A write that would have created a chunk is not on its way any more.
    pub(super) fn uncount_chunk(&mut self, chunk: ChunkKey) {
        if let Some(count) = self.new_chunks.get_mut(&chunk) {
            *count -= 1;
            if *count == 0 {
                self.new_chunks.remove(&chunk);
            }
        }
    }

    fn propose_entry(
        &mut self,
        command: command::Command,
        crcs: &[u32],
        payload: Bytes,
    ) -> Result<(Index, Term), Reason> {
        let new = if command.op == Op::Write {
            self.count_chunk(command.range)?
        } else {
            None
        };
        let proposed = self.node.propose(command.encode(crcs), payload);
        if let (Err(_), Some(chunk)) = (&proposed, new) {
            self.uncount_chunk(chunk);
        }
        proposed.map_err(|refused| match refused {
            Refused::NotLeader { leader } => Reason::NotLeader { hint: leader },
            Refused::Busy => Reason::Busy,
            Refused::Invalid(why) => Reason::Io(why.to_owned()),
        })
    }

    /// Proposes what the request asks for. If that fails, the client is told, and the lock ends.
    pub(super) fn propose(
        &mut self,
        client: u64,
        request: &Request,
        proposal: Proposal<'_>,
        out: &mut VecDeque<Command>,
    ) {
        let Proposal {
            op,
            lock,
            crcs,
            payload,
        } = proposal;
        let range = Range {
            tree: request.tree,
            ..lock.map_or_else(Range::default, |l| l.range)
        };
        let command = command::Command {
            op,
            origin: request.origin,
            range,
        };
        match self.propose_entry(command, crcs, payload) {
            Ok((index, term)) => {
                let waiting = Waiting {
                    term,
                    client,
                    id: request.id,
                    lock,
                };
                self.waiting.insert(index, waiting);
            }
            Err(reason) => {
                if let Some(lock) = lock {
                    self.locks.end(lock);
                }
                refuse(out, client, request.id, reason);
            }
        }
    }
}

/// The blocks that a span touches.
pub(super) fn range_of(request: &Request, span: Span) -> Range {
    let block = BLOCK as u32;
    let first = span.offset / block;
    let end = (span.offset + span.len).div_ceil(block);
    Range {
        tree: request.tree,
        layer: request.layer,
        chunk: span.chunk,
        first: Block(first),
        blocks: (end - first) as u16,
    }
}
