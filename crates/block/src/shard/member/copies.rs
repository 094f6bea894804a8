//! A follower that the log does not reach any more gets a copy of what has changed since its checkpoint.
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
//! Blocks are sent as they are when their turn comes, so they may be newer than I. That is of no account: every
//! block that an entry behind I has written is written again by that entry, before anything is served. Until its
//! checkpoint is at I the follower is what it was, a replica whose log ends early: nothing that it lacks can be
//! committed without others that have it, so it cannot lead. A copy that is broken off leaves blocks that are too
//! new, which the log or the next copy covers; the note says up to where such blocks may be.
//!
//! Each step is said again until it is answered. Regions of 64 KiB that have not changed since S are left out.
//!
//! A follower that begins anew has lost the blocks that it had taken. Each time has its number, which the steps bear:
//! those of another time are answered by Gone, and the leader begins another copy.

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
/// Steps on their way.
const PIECES_MAX: usize = 4;
/// Ticks behind which a step is said again.
const AGAIN_TICKS: u32 = 5;
/// Ticks without an answer behind which a copy is given up.
const GIVE_UP_TICKS: u32 = 100;
/// Bytes that a follower keeps in memory; beyond that it answers nothing.
const TAKEN_BYTES_MAX: u64 = 32 << 20;
/// The numbers under which notes of copies are told to be durable begin here.
pub(super) const NOTE: u64 = 1 << 63;
/// Bytes of a copy behind which they are written back.
const WRITTEN_BACK_BYTES: u64 = 8 << 20;

/// A copy that a leader makes for a follower.
#[derive(Debug)]
pub(super) struct Giving {
    copy: Copy,
    state: Bytes,
    /// The follower's checkpoint, once it is ready, and its attempt.
    from: Option<(Index, u64)>,
    chunks: VecDeque<ChunkKey>,
    ranges: VecDeque<Range>,
    next: u64,
    /// What is not answered, and for how many ticks; `None`: it is being read.
    open: BTreeMap<u64, (Range, Option<u32>)>,
    /// Ticks since the last answer, and since the last step that has no number.
    silent: u32,
    said: u32,
}

/// A copy that a follower gets.
#[derive(Debug)]
pub(super) struct Taking {
    leader: u64,
    copy: Copy,
    /// No other has this number, of this process or another. 0: it has not begun.
    attempt: u64,
    stage: Stage,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Something is on its way to the data file, or the note to the log.
    Offered { note: Option<u64> },
    /// Blocks come.
    Open,
    /// All have come: the state at the end.
    Ended(Bytes),
    /// The checkpoint is on its way.
    Closing,
    /// It is durable: the replica goes on behind it.
    Durable,
    /// The log reaches this follower after all, or another leads: it goes on at its checkpoint.
    Off,
}

impl Taking {
    fn is_off(&self) -> bool {
        self.stage == Stage::Off
    }

    /// All of it is here, and its checkpoint is on its way to the log or there.
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
    /// Up to where the log must be kept behind, for copies that are being made.
    pub(in super::super) fn pinned(&self) -> Option<Index> {
        self.giving.values().map(|g| g.copy.through).min()
    }

    /// Whether what comes from the log is not applied now.
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

    /// Begins a copy of what is applied now.
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
            // Late answers to an earlier one mean nothing.
            next: (self.copies_begun << 32) + 1,
            open: BTreeMap::new(),
            silent: 0,
            said: 0,
        };
        self.giving.insert(to, giving);
        self.copies_begun += 1;
        self.say(to, copy, CopyStep::Offer, vec![], out);
    }

    /// A step of a copy, from the other side.
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
            // What it had taken is gone.
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

    /// The copy is not made; Raft may ask for another.
    fn give_up(&mut self, to: u64) {
        self.giving.remove(&to);
        self.node.copied(to, false);
    }

    /// Reads the next blocks, as many as may be on their way, or says that there are no more.
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

    /// Blocks of a copy are read, or could not be.
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
        // An earlier copy may have had a step of this number.
        let attempt = giving.from.map_or(0, |(_, attempt)| attempt);
        let open = giving.open.get_mut(&number);
        let Some((_, since)) = open.filter(|(r, _)| *r == range) else {
            return;
        };
        *since = Some(0);
        let copy = giving.copy;
        // A chunk has its place on each replica, also where nothing is left of what was written.
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

    /// Blocks of a copy could not be read: they are read again, after a while.
    pub(super) fn give_again(&mut self, to: u64, number: u64) {
        let giving = self.giving.get_mut(&to);
        if let Some((_, since)) = giving.and_then(|g| g.open.get_mut(&number)) {
            *since = Some(0);
        }
    }

    /// Says again what is not answered.
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

    /// Another replica leads.
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
            // It has been durable for long, and the answer was lost.
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
        // Nothing that it lacks.
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

    /// Another than the copy's leader speaks, or the log reaches this follower: the copy is over.
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

    /// Goes on with a copy as far as that is possible; what is for the log is returned, with its number.
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
                // All that it has is in the data file, and its checkpoint keeps little of the log.
                let is_idle = self.replica.is_clean() || self.replica.is_copying();
                if !is_idle || !self.in_place.is_idle() {
                    return Ok(None);
                }
                // It has written back more than the copy is of: the state at the copy's end would be an older one.
                if copy.through <= self.replica.synced() {
                    taking.stage = Stage::Off;
                    return Ok(None);
                }
                if !self.replica.begin_copy() {
                    return Ok(None);
                }
                self.notes += 1;
                let number = NOTE | self.notes;
                // The log begins a new file when it is opened.
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

    /// Whether write-back may take what is dirty.
    pub(in super::super) fn may_mark(&self) -> bool {
        let may = |t: &Taking| {
            matches!(
                t.stage,
                Stage::Offered { note: None } | Stage::Open | Stage::Closing
            )
        };
        self.taking.as_ref().is_none_or(may)
    }

    /// Whether a copy waits for what is dirty to be written back.
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

    /// The leader of the copy that this follower gets.
    pub(super) fn takes_from(&self) -> Option<u64> {
        self.taking.as_ref().map(|t| t.leader)
    }
}

/// Runs of blocks, each of at most so many as one step has.
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

/// The blocks that have bytes, one behind the other.
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

/// What a step has of each block. Errors: Corruption, where the bytes are not what it says.
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

/// What the log says of a copy that has begun: the data file may have blocks up to there.
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
