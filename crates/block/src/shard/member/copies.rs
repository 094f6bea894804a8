//! Copies: a follower whose next entry is no longer in the leader's log gets all blocks that changed since
//! its checkpoint.
//!
//! ```text
//!   leader, at I               follower, at its checkpoint S
//!     Offer ──────────────────> notes I in its log, forgets what is dirty
//!           <────────────────── Ready: S, the attempt
//!     Blocks ─────────────────> dirty blocks, written back when there are many
//!           <────────────────── Taken            a few are on their way at once
//!     End, the state at I ────> written back: ticket, checkpoint at I
//!           <────────────────── Done             the log goes on at I + 1
//! ```
//!
//! Blocks are sent with their content at the time of sending, so they may be newer than I. That does no harm:
//! an entry behind I that has written such a block writes it again before anything is served. Until its
//! checkpoint is at I, the follower remains a replica whose log ends early: entries that it lacks were
//! committed by others that have them, so it cannot become the leader. A copy that is given up leaves blocks
//! that are too new, which the log or the next copy covers; the note in the log says up to which entry.
//!
//! Each step is repeated until it is answered. Regions of 64 KiB that have not changed since S are left out.
//!
//! A follower that starts the copy anew has lost the blocks that it had taken. Each attempt has a number, which
//! the steps carry. The follower answers steps of another attempt with Gone, and the leader begins another
//! copy.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::checksum::crc32c;
use base::{Error, Result};
use bytes::Bytes;
use io::{AlignedBuf, buffer::PAGE};

use super::super::core::Command;
use super::Member;
use super::reads::Purpose;
use crate::group::command::Range;
use crate::group::message::{Body, Copy, CopyStep, Message};
use crate::group::raft::Role;
use crate::ids::{BLOCK, Block, Group, Index, Term};
use crate::raftlog::RaftLog;
use crate::raftlog::batch::{Item, Kind};
use crate::store::data::{ChunkKey, Reader};
use crate::store::dirty::{Content, Key};

/// The most blocks of one step: 512 KiB.
const PIECE_BLOCKS: usize = 128;
/// The most steps on their way.
const PIECES_MAX: usize = 4;
/// Ticks after which an unanswered step is repeated.
const AGAIN_TICKS: u32 = 5;
/// Ticks without an answer after which a copy is given up.
const GIVE_UP_TICKS: u32 = 100;
/// If a follower has this many bytes in memory, it ignores further blocks.
const TAKEN_BYTES_MAX: u64 = 32 << 20;
/// Numbers from here on report notes of copies as durable, not readies.
pub(super) const NOTE: u64 = 1 << 63;
/// Bytes of a copy at which they are written back.
const WRITTEN_BACK_BYTES: u64 = 8 << 20;

/// A copy that a leader sends to a follower.
#[derive(Debug)]
pub(super) struct Giving {
    copy: Copy,
    state: Bytes,
    /// The follower's checkpoint and attempt, once it is ready.
    from: Option<(Index, u64)>,
    chunks: VecDeque<ChunkKey>,
    ranges: VecDeque<Range>,
    next: u64,
    /// Unanswered steps, with the ticks since they were sent; `None`: the blocks are being read.
    open: BTreeMap<u64, (Range, Option<u32>)>,
    /// Ticks since the last answer, and since the last step without a number was sent.
    silent: u32,
    said: u32,
}

/// A copy that a follower receives.
#[derive(Debug)]
pub(super) struct Taking {
    leader: u64,
    copy: Copy,
    /// The attempt, whose number is unique over all runs of the process. 0: it has not begun.
    attempt: u64,
    stage: Stage,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Waits until the data file is settled, or until the note is durable.
    Offered { note: Option<u64> },
    /// Receives blocks.
    Open,
    /// Has all blocks, and the state at the end.
    Ended(Bytes),
    /// Waits until the checkpoint is durable.
    Closing,
    /// The checkpoint is durable: the replica continues behind it.
    Durable,
    /// Given up, because the log reaches this follower after all, or the leader changed: the replica
    /// continues at its checkpoint.
    Off,
}

impl Taking {
    fn is_off(&self) -> bool {
        self.stage == Stage::Off
    }

    /// Whether all of it is received, and its checkpoint is on its way to the log or durable.
    fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Closing | Stage::Durable)
    }
}

impl Giving {
    fn has_more(&self) -> bool {
        !self.chunks.is_empty() || !self.ranges.is_empty()
    }
}

impl Member {
    /// The entry behind which the log must be kept, for the copies that are being sent.
    pub(in super::super) fn pinned(&self) -> Option<Index> {
        self.giving.values().map(|g| g.copy.through).min()
    }

    /// Whether a copy is being received, so that entries of the log are not applied.
    pub fn is_taking(&self) -> bool {
        self.taking.is_some()
    }

    fn say(
        &self,
        to: u64,
        copy: Copy,
        step: CopyStep,
        payloads: Vec<Bytes>,
        out: &mut VecDeque<Command>,
    ) {
        self.send(to, Body::Copy { copy, step }, payloads, out);
    }

    /// Begins a copy of the current state.
    pub(super) fn give(&mut self, to: u64, out: &mut VecDeque<Command>) {
        let copy = Copy {
            through: self.replica.applied(),
            term: self.replica.term(),
        };
        let giving = Giving {
            copy,
            state: self.replica.state(),
            from: None,
            chunks: VecDeque::new(),
            ranges: VecDeque::new(),
            // A range of its own, so that late answers to an earlier copy are ignored.
            next: (self.copies_begun << 32) + 1,
            open: BTreeMap::new(),
            silent: 0,
            said: 0,
        };
        self.giving.insert(to, giving);
        self.copies_begun += 1;
        self.say(to, copy, CopyStep::Offer, vec![], out);
    }

    /// Handles a step of a copy.
    pub(super) fn copy_step(
        &mut self,
        message: Message,
        payloads: Vec<Bytes>,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) -> Result<()> {
        let Body::Copy { copy, step } = message.body else {
            return Ok(());
        };
        if message.term != self.node.term() || message.to != self.node.id() {
            return Ok(());
        }
        let from = message.from;
        match step {
            CopyStep::Offer | CopyStep::Blocks { .. } | CopyStep::End { .. } => {
                if self.node.leader() == Some(from) && self.node.role() == Role::Follower {
                    let payload = payloads.into_iter().next().unwrap_or_default();
                    self.take_step(from, copy, step, payload, out)?;
                }
            }
            CopyStep::Ready { .. }
            | CopyStep::Taken { .. }
            | CopyStep::Done
            | CopyStep::Gone { .. } => {
                self.give_step(from, copy, &step, data, out);
            }
        }
        Ok(())
    }

    fn give_step(
        &mut self,
        to: u64,
        copy: Copy,
        step: &CopyStep,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) {
        let Some(giving) = self.giving.get_mut(&to).filter(|g| g.copy == copy) else {
            return;
        };
        giving.silent = 0;
        let known = giving.from.map(|(_, attempt)| attempt);
        match *step {
            CopyStep::Ready { from, attempt } if giving.from.is_none() => {
                giving.from = Some((from, attempt));
                let chunks = data.chunks_of(self.group).into_iter();
                let chunks: BTreeSet<ChunkKey> =
                    chunks.chain(self.replica.dirty_chunks()).collect();
                giving.chunks = chunks.into_iter().collect();
            }
            // The follower has lost the blocks that it had taken.
            CopyStep::Ready { attempt, .. } if Some(attempt) > known => return self.give_up(to),
            CopyStep::Gone { attempt } if known == Some(attempt) => return self.give_up(to),
            CopyStep::Taken { number } => drop(giving.open.remove(&number)),
            CopyStep::Done => {
                self.giving.remove(&to);
                self.copies_done += 1;
                self.node.copied(to, true);
                return;
            }
            _ => {}
        }
        self.give_more(to, data, out);
    }

    /// Gives the copy up; Raft may ask for another.
    fn give_up(&mut self, to: u64) {
        self.giving.remove(&to);
        self.node.copied(to, false);
    }

    /// Reads the next blocks, as many as may be on their way, or sends the end.
    fn give_more(&mut self, to: u64, data: &Reader, out: &mut VecDeque<Command>) {
        let group = self.group;
        while let Some(giving) = self.giving.get_mut(&to)
            && let Some((from, attempt)) = giving.from
        {
            if giving.open.len() >= PIECES_MAX {
                return;
            }
            if let Some(range) = giving.ranges.pop_front() {
                let number = giving.next;
                giving.next += 1;
                giving.open.insert(number, (range, None));
                self.read_for(Purpose::Copy { to, number }, range, data, out);
                continue;
            }
            let Some(chunk) = giving.chunks.pop_front() else {
                if giving.open.is_empty() {
                    (giving.said, giving.silent) = (0, 0);
                    let (copy, state) = (giving.copy, giving.state.clone());
                    self.say(to, copy, CopyStep::End { attempt }, vec![state], out);
                }
                return;
            };
            let mut blocks: BTreeSet<u32> = data.changed_after(&chunk, from).into_iter().collect();
            blocks.extend(self.replica.dirty_blocks(&chunk));
            giving.ranges = ranges(group, &chunk, &blocks);
        }
    }

    /// The blocks of a step were read.
    pub(super) fn give_blocks(
        &mut self,
        (to, number): (u64, u64),
        range: Range,
        blocks: &[Option<Bytes>],
        out: &mut VecDeque<Command>,
    ) {
        let Some(giving) = self.giving.get_mut(&to) else {
            return;
        };
        // An earlier copy may have used the same number.
        let attempt = giving.from.map_or(0, |(_, attempt)| attempt);
        let open = giving.open.get_mut(&number);
        let Some((_, since)) = open.filter(|(r, _)| *r == range) else {
            return;
        };
        *since = Some(0);
        let copy = giving.copy;
        // A chunk that exists must exist on each replica, even if nothing of it is left but zeros.
        let zeros;
        let mut blocks = blocks.to_vec();
        if blocks.iter().all(Option::is_none)
            && let Ok(zero) = AlignedBuf::zeroed(BLOCK, PAGE)
            && let Some(first) = blocks.first_mut()
        {
            zeros = Bytes::from(zero);
            *first = Some(zeros);
        }
        let Ok(payload) = joined(&blocks) else {
            return;
        };
        let step = CopyStep::Blocks {
            attempt,
            number,
            range,
            crcs: blocks.iter().map(|b| b.as_deref().map(crc32c)).collect(),
        };
        self.copied_bytes += payload.len() as u64;
        self.say(to, copy, step, vec![payload], out);
    }

    /// The blocks of a step could not be read: they are read again after a while.
    pub(super) fn give_again(&mut self, to: u64, number: u64) {
        let giving = self.giving.get_mut(&to);
        if let Some((_, since)) = giving.and_then(|g| g.open.get_mut(&number)) {
            *since = Some(0);
        }
    }

    /// Repeats unanswered steps.
    pub(super) fn copies_tick(&mut self, data: &Reader, out: &mut VecDeque<Command>) {
        let all: Vec<u64> = self.giving.keys().copied().collect();
        for to in all {
            let Some(giving) = self.giving.get_mut(&to) else {
                continue;
            };
            giving.silent += 1;
            giving.said += 1;
            if giving.silent > GIVE_UP_TICKS {
                self.give_up(to);
                continue;
            }
            let mut again = Vec::new();
            for (&number, (range, since)) in &mut giving.open {
                let Some(ticks) = since else { continue };
                *ticks += 1;
                if *ticks > AGAIN_TICKS {
                    *since = None;
                    again.push((number, *range));
                }
            }
            let says = giving.said > AGAIN_TICKS;
            let (copy, from) = (giving.copy, giving.from);
            let is_over = !giving.has_more() && giving.open.is_empty();
            if says {
                giving.said = 0;
            }
            let state = giving.state.clone();
            for (number, range) in again {
                self.read_for(Purpose::Copy { to, number }, range, data, out);
            }
            match from {
                None if says => self.say(to, copy, CopyStep::Offer, vec![], out),
                Some((_, attempt)) if says && is_over => {
                    self.say(to, copy, CopyStep::End { attempt }, vec![state], out);
                }
                _ => {}
            }
        }
    }

    /// Another replica is the leader.
    pub(super) fn give_no_more(&mut self) {
        self.giving.clear();
    }

    fn take_step(
        &mut self,
        leader: u64,
        copy: Copy,
        step: CopyStep,
        payload: Bytes,
        out: &mut VecDeque<Command>,
    ) -> Result<()> {
        let (CopyStep::Blocks { attempt, .. } | CopyStep::End { attempt }) = step else {
            self.offered(leader, copy, out);
            return Ok(());
        };
        let dirty = self.replica.dirty_bytes();
        let is_this = |t: &&mut Taking| {
            (t.leader, t.copy, t.attempt) == (leader, copy, attempt) && !t.is_off()
        };
        let is_closing = self.taking.as_ref().is_some_and(Taking::is_closing);
        let Some(taking) = self.taking.as_mut().filter(is_this) else {
            if is_closing {
                return Ok(());
            }
            // The checkpoint may have been durable before, and the answer was lost.
            let is_done = self.replica.synced() >= copy.through;
            let step = if is_done {
                CopyStep::Done
            } else {
                CopyStep::Gone { attempt }
            };
            self.say(leader, copy, step, vec![], out);
            return Ok(());
        };
        if taking.stage != Stage::Open {
            return Ok(());
        }
        match step {
            CopyStep::Blocks {
                number,
                range,
                crcs,
                ..
            } => {
                if dirty >= TAKEN_BYTES_MAX {
                    return Ok(());
                }
                let blocks = contents(&range, &crcs, &payload)?;
                self.replica.take_copied(blocks, copy.through, copy.term);
                self.has_applied = true;
                self.say(leader, copy, CopyStep::Taken { number }, vec![], out);
            }
            CopyStep::End { .. } => {
                crate::group::apply::check_state(&payload)?;
                taking.stage = Stage::Ended(payload);
            }
            _ => {}
        }
        Ok(())
    }

    fn offered(&mut self, leader: u64, copy: Copy, out: &mut VecDeque<Command>) {
        if let Some(taking) = &self.taking
            && taking.copy == copy
            && taking.leader == leader
        {
            if taking.stage == Stage::Open {
                self.say(leader, copy, self.is_ready(taking.attempt), vec![], out);
            }
            return;
        }
        if self.taking.as_ref().is_some_and(Taking::is_closing) {
            return;
        }
        // The follower has everything already.
        if copy.through <= self.replica.synced() {
            return self.say(leader, copy, CopyStep::Done, vec![], out);
        }
        if !self.node.may_reopen() {
            return;
        }
        self.taking = Some(Taking {
            leader,
            copy,
            attempt: 0,
            stage: Stage::Offered { note: None },
        });
    }

    fn is_ready(&self, attempt: u64) -> CopyStep {
        let from = self.replica.synced();
        CopyStep::Ready { from, attempt }
    }

    /// The note of a copy is durable.
    pub(super) fn noted(&mut self, number: u64) {
        if let Some(taking) = &mut self.taking
            && taking.stage == (Stage::Offered { note: Some(number) })
        {
            taking.stage = Stage::Open;
            self.answers
                .push((taking.leader, taking.copy, taking.attempt));
        }
    }

    /// The leader changed, or the log reaches this follower: the copy is given up.
    pub(super) fn take_no_more(&mut self) {
        if let Some(taking) = &mut self.taking
            && !taking.is_closing()
        {
            taking.stage = Stage::Off;
        }
    }

    /// The checkpoint at the end of the copy is durable.
    pub(in super::super) fn checkpoint_is_durable(&mut self, through: Index) {
        if let Some(taking) = &mut self.taking
            && taking.stage == Stage::Closing
            && taking.copy.through == through
        {
            taking.stage = Stage::Durable;
        }
    }

    /// Continues the copy as far as possible; returns an item for the log, with the number under which to
    /// report it as durable.
    pub(super) fn take_on(
        &mut self,
        log: &RaftLog,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) -> Result<Option<(u64, Item)>> {
        for (leader, copy, attempt) in std::mem::take(&mut self.answers) {
            self.say(leader, copy, self.is_ready(attempt), vec![], out);
        }
        let Some(taking) = &mut self.taking else {
            return Ok(None);
        };
        let copy = taking.copy;
        match &mut taking.stage {
            Stage::Offered { note: None } => {
                // Everything before is in the data file, and its checkpoint needs little of the log.
                let is_idle = self.replica.is_clean() || self.replica.is_copying();
                if !is_idle || !self.in_place.is_idle() {
                    return Ok(None);
                }
                // The follower has written back more than the copy contains: the state at the copy's end would
                // be older.
                if copy.through <= self.replica.synced() {
                    taking.stage = Stage::Off;
                    return Ok(None);
                }
                if !self.replica.begin_copy() {
                    return Ok(None);
                }
                self.notes += 1;
                let number = NOTE | self.notes;
                // Unique over restarts too, because each opening of the log begins a new file.
                taking.attempt = (log.file_number() << 32) | self.notes;
                taking.stage = Stage::Offered { note: Some(number) };
                self.has_applied = false;
                return Ok(Some((number, note(self.group, copy))));
            }
            Stage::Ended(state) => {
                if self.replica.end_copy((copy.through, copy.term), state)? {
                    taking.stage = Stage::Closing;
                    self.has_applied = true;
                }
            }
            Stage::Durable => {
                let (members, leader) = (self.replica.members().clone(), taking.leader);
                if self.node.reopen(log, &members)? {
                    self.taking = None;
                    self.chunks = data.chunks_of(self.group).into_iter().collect();
                    self.say(leader, copy, CopyStep::Done, vec![], out);
                }
            }
            Stage::Off => {
                let is_idle = self.replica.is_settled() && self.in_place.is_idle();
                if !is_idle || !self.node.may_reopen() {
                    return Ok(None);
                }
                let again = Self::replica_of(self.group, &self.first_members, log)?;
                if self.node.reopen(log, again.members())? {
                    self.replica = again.lies_in(self.replica.pages());
                    self.taking = None;
                    self.has_applied = false;
                    self.chunks = data.chunks_of(self.group).into_iter().collect();
                }
            }
            Stage::Offered { .. } | Stage::Open | Stage::Closing => {}
        }
        Ok(None)
    }

    /// Whether write-back may take dirty blocks.
    pub(in super::super) fn may_mark(&self) -> bool {
        let may = |t: &Taking| {
            matches!(
                t.stage,
                Stage::Offered { note: None } | Stage::Open | Stage::Closing
            )
        };
        self.taking.as_ref().is_none_or(may)
    }

    /// Whether a copy waits until dirty blocks are written back.
    pub(in super::super) fn wants_write_back(&self) -> bool {
        let Some(taking) = &self.taking else {
            return false;
        };
        let most = match taking.stage {
            Stage::Offered { note: None } | Stage::Closing => 0,
            _ => WRITTEN_BACK_BYTES,
        };
        self.has_applied && self.may_mark() && self.replica.dirty_bytes() >= most
    }

    /// The leader that sends the copy which this follower receives.
    pub(super) fn takes_from(&self) -> Option<u64> {
        self.taking.as_ref().map(|t| t.leader)
    }
}

/// Runs of blocks, each of at most as many as a step may have.
fn ranges(group: Group, chunk: &ChunkKey, blocks: &BTreeSet<u32>) -> VecDeque<Range> {
    debug_assert_eq!(group, chunk.group);
    let mut out: VecDeque<Range> = VecDeque::new();
    for &block in blocks {
        match out.back_mut() {
            Some(run)
                if run.first.0 + u32::from(run.blocks) == block
                    && usize::from(run.blocks) < PIECE_BLOCKS =>
            {
                run.blocks += 1;
            }
            _ => out.push_back(Range {
                tree: chunk.tree,
                layer: chunk.layer,
                chunk: chunk.chunk,
                first: Block(block),
                blocks: 1,
            }),
        }
    }
    out
}

/// The bytes of the blocks that have some, concatenated.
fn joined(blocks: &[Option<Bytes>]) -> Result<Bytes> {
    let mut with = blocks.iter().flatten();
    let count = with.clone().count();
    if count == 1
        && let Some(one) = with.next()
    {
        return Ok(one.clone());
    }
    let mut all = AlignedBuf::zeroed(count * BLOCK, PAGE)?;
    for (into, block) in all.chunks_exact_mut(BLOCK).zip(with) {
        into.copy_from_slice(block);
    }
    Ok(all.into())
}

/// The content of each block of a step. Errors: Corruption, if the bytes do not match the crcs.
fn contents(range: &Range, crcs: &[Option<u32>], payload: &Bytes) -> Result<Vec<(Key, Content)>> {
    let bad = || Error::corruption("blocks of a copy are not what it says of them");
    let with = crcs.iter().flatten().count();
    if crcs.len() != usize::from(range.blocks)
        || payload.len() != with * BLOCK
        || !range.is_possible()
    {
        return Err(bad());
    }
    let mut nth = 0;
    range
        .keys()
        .zip(crcs)
        .map(|(key, crc)| {
            let Some(crc) = *crc else {
                return Ok((key, Content::Zero));
            };
            let bytes = payload.slice(nth * BLOCK..(nth + 1) * BLOCK);
            nth += 1;
            let content = Content::Data { bytes, crc };
            (crc32c(
                payload
                    .get((nth - 1) * BLOCK..nth * BLOCK)
                    .unwrap_or_default(),
            ) == crc)
                .then_some((key, content))
                .ok_or_else(bad)
        })
        .collect()
}

/// The item that notes in the log that a copy has begun: the data file may have blocks up to its end.
fn note(group: Group, copy: Copy) -> Item {
    let Copy { through, term } = copy;
    Item {
        kind: Kind::Copying,
        flags: 0,
        group,
        index: through,
        term: Term(term.0),
        inline: Bytes::new(),
        payload: Bytes::new(),
    }
}
