//! A replica on a store: its Raft and its blocks, who waits for an entry, and who may read.
//!
//! **Reads** are served by a leader that knows that it is one: within its lease, or behind a round of heartbeats.
//! The lease is the start of a round that a quorum has answered, and nine tenths of what an election takes from
//! there on. In both cases what was committed when the read came is applied first.
//!
//! **Parts of blocks** are read, changed and written as whole blocks by the leader, which takes no other write to
//! those blocks meanwhile: it answers Busy, and the client comes again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use base::checksum::crc32c;
use base::{Error, Result};
use bytes::Bytes;
use io::{AlignedBuf, buffer::PAGE};

use super::core::{Assignment, Command};
use crate::group::apply::{Found, Replica};
use crate::group::command::{self, Op, Range};
use crate::group::message::{Body, Entry, Message};
use crate::group::raft::{Config, Node, Ready, Refused, Role};
use crate::group::volumes::Verdict;
use crate::ids::{BLOCK, Block, Group, Index, Term};
use crate::raftlog::{Checkpoint, RaftLog};
use crate::store::data::{Held, Reader};
use crate::store::dirty::{Content, Key};
use crate::store::sync::{Marked, SyncSlot, SyncTicket};
use crate::wire::client::{Outcome, Piece, Reason, Request, Response, Run, Span, What, crcs_at};

/// Time between two ticks.
pub const TICK: Duration = Duration::from_millis(100);
/// Ticks of an election, at least.
const ELECTION_TICKS: u32 = 10;
/// Entries that are kept for followers that lag, behind the checkpoint.
pub(super) const CATCH_UP: u64 = 4096;

/// What a request comes with.
pub(super) struct Inbox<'a> {
    pub(super) now: Duration,
    /// The log or the map has no room.
    pub(super) is_full: bool,
    pub(super) data: &'a Reader,
    pub(super) out: &'a mut VecDeque<Command>,
}

/// Who waits for an entry.
#[derive(Debug)]
struct Waiting {
    term: Term,
    client: u64,
    id: u64,
    locked: Vec<Key>,
}

/// A request that waits until it may be served.
#[derive(Debug)]
struct Asked {
    client: u64,
    request: Request,
}

/// A part of what is read.
#[derive(Debug)]
enum Part {
    Hole,
    Here(Bytes),
    /// From the data file, with the crc that it must have.
    Coming(u32),
}

/// Blocks that are being read.
#[derive(Debug)]
struct Reading {
    client: u64,
    request: Request,
    first: u32,
    parts: Vec<Part>,
    left: usize,
    failed: Option<Reason>,
}

/// See the module.
#[derive(Debug)]
pub struct Member {
    group: Group,
    node: Node,
    replica: Replica,
    waiting: BTreeMap<Index, Waiting>,
    /// Blocks of writes that are not applied.
    locked: BTreeSet<Key>,
    /// Reads that came since the last question for an index, and those behind each question.
    new_reads: Vec<Asked>,
    asked: BTreeMap<u64, Vec<Asked>>,
    /// Reads that wait until an entry is applied.
    due: BTreeMap<Index, Vec<Asked>>,
    next_context: u64,
    /// When each round of heartbeats began.
    rounds: VecDeque<(u64, Duration)>,
    round: u64,
    reading: BTreeMap<u64, Reading>,
    /// Where the answers of a read go: its reading and part.
    tokens: BTreeMap<u64, (u64, usize)>,
    next_token: u64,
    has_applied: bool,
}

fn reply(out: &mut VecDeque<Command>, client: u64, id: u64, outcome: Outcome) {
    let response = Response { id, outcome };
    out.push_back(Command::Reply { client, response });
}

fn refuse(out: &mut VecDeque<Command>, client: u64, id: u64, reason: Reason) {
    reply(out, client, id, Outcome::Refused(reason));
}

/// The store has no replica of the group.
pub(super) fn refuse_unknown(client: u64, id: u64, out: &mut VecDeque<Command>) {
    refuse(out, client, id, Reason::NotLeader { hint: None });
}

impl Member {
    pub(super) fn open(a: &Assignment, log: &RaftLog, config: Config) -> Result<Self> {
        let found = log.groups().get(a.group);
        let synced = found.map_or_else(Default::default, crate::raftlog::groups::GroupLog::synced);
        let state = found.map_or_else(Bytes::new, |g| g.state().clone());
        let replica = Replica::at(a.group, synced, &state, &a.members)?;
        let node = Node::open(a.group, a.replica, replica.members(), log, synced.0, config)?;
        Ok(Self {
            group: a.group,
            node,
            replica,
            waiting: BTreeMap::new(),
            locked: BTreeSet::new(),
            new_reads: Vec::new(),
            asked: BTreeMap::new(),
            due: BTreeMap::new(),
            next_context: 1,
            rounds: VecDeque::new(),
            round: 0,
            reading: BTreeMap::new(),
            tokens: BTreeMap::new(),
            next_token: 1,
            has_applied: false,
        })
    }

    /// Its Raft.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its blocks.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    pub(super) fn dirty_bytes(&self) -> u64 {
        self.replica.dirty_bytes()
    }

    pub(super) fn has_applied(&self) -> bool {
        self.has_applied
    }

    pub(super) fn tick(&mut self, now: Duration) -> Result<()> {
        self.round += 1;
        self.rounds.push_back((self.round, now));
        if self.rounds.len() > 4 * ELECTION_TICKS as usize {
            self.rounds.pop_front();
        }
        self.node.heartbeat_round(self.round);
        self.node.tick()
    }

    pub(super) fn message(&mut self, message: Message, payloads: Vec<Bytes>) -> Result<()> {
        if let Body::Append { entries, .. } = &message.body {
            let is_whole = |(entry, payload): (&Entry, &Bytes)| {
                entry.is_change || command::is_whole(&entry.inline, payload)
            };
            if !entries.iter().zip(&payloads).all(is_whole) {
                return Err(Error::corruption(
                    "an entry's bytes have another checksum than the entry says",
                ));
            }
        }
        self.node.step(message, payloads)
    }

    pub(super) fn persisted(&mut self, number: u64, out: &mut VecDeque<Command>) {
        for outgoing in self.node.persisted(number) {
            let group = self.group;
            out.push_back(Command::Send { group, outgoing });
        }
    }

    pub(super) fn mark(&mut self) -> Option<Marked> {
        if !self.has_applied {
            return None;
        }
        let marked = self.replica.mark()?;
        self.has_applied = false;
        Some(marked)
    }

    pub(super) fn settle(&mut self, ticket: SyncTicket, slot: SyncSlot) -> Result<Checkpoint> {
        self.replica.settle(ticket, slot)
    }

    pub(super) fn give_back(&mut self, marked: Marked) {
        self.replica.give_back(marked);
        self.has_applied = true;
    }

    pub(super) fn truncated(&mut self, through: Index) {
        self.node.truncated(through);
    }

    /// Whether this replica surely leads at this moment.
    fn has_lease(&self, now: Duration) -> bool {
        let acked = self.node.quorum_acked_round();
        let begun = acked.and_then(|acked| {
            let of = self.rounds.iter().find(|(round, _)| *round == acked);
            of.map(|(_, begun)| *begun)
        });
        let lease = TICK * (ELECTION_TICKS - 1) * 9 / 10;
        let is_within = begun.is_some_and(|begun| now < begun + lease);
        is_within && self.node.has_applied_own_term() && !self.node.is_transferring()
    }

    /// What is to be done next; `None`: nothing. Applies what is committed.
    pub(super) fn ready(
        &mut self,
        log: &RaftLog,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) -> Result<Option<Ready>> {
        self.ask_for_reads();
        let Some(mut ready) = self.node.ready(log)? else {
            return Ok(None);
        };
        let group = self.group;
        for outgoing in ready.now.drain(..) {
            out.push_back(Command::Send { group, outgoing });
        }
        if ready.role.is_some() && self.node.role() != Role::Leader {
            self.resign(out);
        }
        for entry in std::mem::take(&mut ready.committed) {
            self.apply(&entry, out)?;
        }
        for (context, index) in std::mem::take(&mut ready.reads) {
            let reads = self.asked.remove(&context).unwrap_or_default();
            self.due.entry(index).or_default().extend(reads);
        }
        self.serve_due(data, out);
        Ok(Some(ready))
    }

    fn apply(
        &mut self,
        entry: &crate::group::raft::Committed,
        out: &mut VecDeque<Command>,
    ) -> Result<()> {
        let applied = self.replica.apply(entry)?;
        self.has_applied = true;
        self.node.applied(entry.index)?;
        let Some(waiting) = self.waiting.remove(&entry.index) else {
            return Ok(());
        };
        for key in &waiting.locked {
            self.locked.remove(key);
        }
        let outcome = if waiting.term == entry.term {
            match applied.verdict {
                Verdict::Apply | Verdict::Again => Outcome::Done,
                Verdict::Fenced => Outcome::Refused(Reason::Fenced {
                    epoch: self.replica.epoch(applied.range.tree),
                }),
                Verdict::OutOfWindow => Outcome::Refused(Reason::TooFar),
            }
        } else {
            Outcome::Refused(self.not_leader())
        };
        reply(out, waiting.client, waiting.id, outcome);
        Ok(())
    }

    fn not_leader(&self) -> Reason {
        let hint = self.node.leader().filter(|&id| id != self.node.id());
        Reason::NotLeader { hint }
    }

    /// Another replica leads: whoever waits here asks there.
    fn resign(&mut self, out: &mut VecDeque<Command>) {
        let reason = self.not_leader();
        for (_, w) in std::mem::take(&mut self.waiting) {
            refuse(out, w.client, w.id, reason.clone());
        }
        self.locked.clear();
        let asked = std::mem::take(&mut self.asked).into_values().flatten();
        let due = std::mem::take(&mut self.due).into_values().flatten();
        let new = std::mem::take(&mut self.new_reads);
        for a in asked.chain(due).chain(new) {
            refuse(out, a.client, a.request.id, reason.clone());
        }
        // What was read to be merged may be written over before this replica leads again.
        let (merges, reads) = std::mem::take(&mut self.reading)
            .into_iter()
            .partition(|(_, r)| r.request.what.is_change());
        let merges: BTreeMap<u64, Reading> = merges;
        self.reading = reads;
        for (_, r) in merges {
            refuse(out, r.client, r.request.id, reason.clone());
        }
    }

    pub(super) fn request(&mut self, inbox: Inbox<'_>, client: u64, request: Request) {
        let Inbox {
            now,
            is_full,
            data,
            out,
        } = inbox;
        let id = request.id;
        if self.node.role() != Role::Leader {
            return refuse(out, client, id, self.not_leader());
        }
        let epoch = self.replica.epoch(request.tree);
        match request.what {
            What::Attach => {}
            // A higher one has not come here yet.
            _ if request.origin.epoch > epoch => return refuse(out, client, id, Reason::Busy),
            _ if request.origin.epoch < epoch => {
                return refuse(out, client, id, Reason::Fenced { epoch });
            }
            _ => {}
        }
        match request.what {
            What::Read(_) | What::Status(_) => {
                let asked = Asked { client, request };
                if self.has_lease(now) && self.replica.applied() >= self.node.commit() {
                    self.serve(asked, data, out);
                } else {
                    self.new_reads.push(asked);
                }
            }
            _ if is_full => refuse(out, client, id, Reason::Busy),
            What::Attach => {
                self.propose(
                    client,
                    &request,
                    Op::Epoch,
                    Range::default(),
                    &[],
                    Bytes::new(),
                    vec![],
                    out,
                );
            }
            What::Write { .. } | What::Zero(_) | What::Trim(_) => {
                self.change(client, request, data, out);
            }
        }
    }

    /// A write, or zeros: as it is where it is whole blocks, else behind a read of the blocks at its ends.
    fn change(
        &mut self,
        client: u64,
        request: Request,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) {
        let span = request.what.span();
        let range = range_of(&request, span);
        let keys: Vec<Key> = range.keys().collect();
        if keys.iter().any(|k| self.locked.contains(k)) {
            return refuse(out, client, request.id, Reason::Busy);
        }
        if let What::Write { crcs, payload, .. } = &request.what
            && !crcs_at(span.offset, payload).eq(crcs.iter().copied())
        {
            let text = "the bytes have another checksum than the request".to_owned();
            return refuse(out, client, request.id, Reason::Io(text));
        }
        let aligned = (span.offset as usize).is_multiple_of(BLOCK)
            && (span.len as usize).is_multiple_of(BLOCK);
        if !aligned {
            if !self.node.has_applied_own_term() {
                return refuse(out, client, request.id, Reason::Busy);
            }
            self.locked.extend(keys.iter().copied());
            return self.serve(Asked { client, request }, data, out);
        }
        let (op, crcs, payload) = match &request.what {
            What::Write { crcs, payload, .. } => (Op::Write, crcs.to_vec(), payload.clone()),
            What::Trim(_) => (Op::Trim, vec![], Bytes::new()),
            _ => (Op::Zero, vec![], Bytes::new()),
        };
        self.locked.extend(keys.iter().copied());
        self.propose(client, &request, op, range, &crcs, payload, keys, out);
    }

    #[expect(clippy::too_many_arguments, reason = "an entry is made of them")]
    fn propose(
        &mut self,
        client: u64,
        request: &Request,
        op: Op,
        range: Range,
        crcs: &[u32],
        payload: Bytes,
        locked: Vec<Key>,
        out: &mut VecDeque<Command>,
    ) {
        let range = Range {
            tree: request.tree,
            ..range
        };
        let command = command::Command {
            op,
            origin: request.origin,
            range,
        };
        match self.node.propose(command.encode(crcs), payload) {
            Ok((index, term)) => {
                let waiting = Waiting {
                    term,
                    client,
                    id: request.id,
                    locked,
                };
                self.waiting.insert(index, waiting);
            }
            Err(refused) => {
                for key in &locked {
                    self.locked.remove(key);
                }
                let reason = match refused {
                    Refused::NotLeader { leader } => Reason::NotLeader { hint: leader },
                    Refused::Busy => Reason::Busy,
                    Refused::Invalid(why) => Reason::Io(why.to_owned()),
                };
                refuse(out, client, request.id, reason);
            }
        }
    }

    /// One question for an index, for all reads that came since the last.
    fn ask_for_reads(&mut self) {
        // Raft forgets a question that comes before the leader's first entry is committed.
        let is_early = !self.node.has_applied_own_term();
        if self.new_reads.is_empty() || !self.asked.is_empty() || is_early {
            return;
        }
        let context = self.next_context;
        self.next_context += 1;
        self.asked
            .insert(context, std::mem::take(&mut self.new_reads));
        self.node.read_index(context);
    }

    /// Serves the reads whose entry is applied.
    fn serve_due(&mut self, data: &Reader, out: &mut VecDeque<Command>) {
        let later = self.due.split_off(&Index(self.replica.applied().0 + 1));
        let due = std::mem::replace(&mut self.due, later);
        for asked in due.into_values().flatten() {
            self.serve(asked, data, out);
        }
    }

    /// Looks where the blocks are, and asks for those in the data file.
    fn serve(&mut self, asked: Asked, data: &Reader, out: &mut VecDeque<Command>) {
        let Asked { client, request } = asked;
        let span = request.what.span();
        let range = range_of(&request, span);
        if let What::Status(_) = request.what {
            let runs = self.runs(range, span, data);
            return reply(out, client, request.id, Outcome::Status(runs));
        }
        self.next_token += 1;
        let reading_id = self.next_token;
        let mut reading = Reading {
            client,
            request,
            first: range.first.0,
            parts: Vec::new(),
            left: 0,
            failed: None,
        };
        for key in range.keys() {
            let part = match self.replica.find(&key, data) {
                Found::Here(Content::Data { bytes, .. }) => Part::Here(bytes),
                Found::Here(Content::Zero) | Found::File(Held::Zero | Held::Absent) => Part::Hole,
                Found::File(Held::There { offset, crc }) => {
                    self.next_token += 1;
                    let token = self.next_token << 32 | u64::from(self.group.0);
                    self.tokens.insert(token, (reading_id, reading.parts.len()));
                    let len = BLOCK;
                    out.push_back(Command::Read { token, offset, len });
                    reading.left += 1;
                    Part::Coming(crc)
                }
            };
            reading.parts.push(part);
        }
        if reading.left == 0 {
            self.has_read(reading, out);
        } else {
            self.reading.insert(reading_id, reading);
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

    /// A block has come from the data file, or has not.
    pub(super) fn read_done(
        &mut self,
        token: u64,
        result: Result<AlignedBuf>,
        out: &mut VecDeque<Command>,
    ) {
        let Some((id, nth)) = self.tokens.remove(&token) else {
            return;
        };
        let Some(reading) = self.reading.get_mut(&id) else {
            return;
        };
        reading.left -= 1;
        if let Some(part) = reading.parts.get_mut(nth) {
            match (result, &*part) {
                (Ok(buf), Part::Coming(crc)) if crc32c(&buf) == *crc => {
                    *part = Part::Here(buf.into());
                }
                (Ok(_), _) => reading.failed = Some(Reason::Corrupt),
                (Err(e), _) => reading.failed = Some(Reason::Io(e.to_string())),
            }
        }
        if reading.left == 0
            && let Some(reading) = self.reading.remove(&id)
        {
            self.has_read(reading, out);
        }
    }

    /// All blocks are there.
    fn has_read(&mut self, reading: Reading, out: &mut VecDeque<Command>) {
        let Reading {
            client,
            request,
            first,
            parts,
            failed,
            ..
        } = reading;
        let span = request.what.span();
        if let Some(reason) = failed {
            for key in range_of(&request, span).keys() {
                self.locked.remove(&key);
            }
            return refuse(out, client, request.id, reason);
        }
        if request.what.is_change() {
            return self.merge(client, &request, parts, out);
        }
        let (from, to) = (span.offset as usize, (span.offset + span.len) as usize);
        let mut pieces: Vec<Piece> = Vec::new();
        for (nth, part) in parts.into_iter().enumerate() {
            let at = (first as usize + nth) * BLOCK;
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

    /// Puts a change of parts of blocks into what they hold, and proposes whole blocks.
    fn merge(
        &mut self,
        client: u64,
        request: &Request,
        parts: Vec<Part>,
        out: &mut VecDeque<Command>,
    ) {
        let span = request.what.span();
        let range = range_of(request, span);
        let keys: Vec<Key> = range.keys().collect();
        let merged = merged(request, &parts, span);
        match merged {
            Ok(bytes) => {
                let payload = Bytes::from(bytes);
                let crcs = command::crcs_of(&payload);
                self.propose(client, request, Op::Write, range, &crcs, payload, keys, out);
            }
            Err(e) => {
                for key in &keys {
                    self.locked.remove(key);
                }
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

/// The blocks that a span touches.
fn range_of(request: &Request, span: Span) -> Range {
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
