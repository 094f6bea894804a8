//! What a store does: events in, commands out. No thread, no clock, no socket and no wait.
//!
//! ```text
//!   Request, Message, Tick ──> groups ──> Log        one batch of all groups: one durable write
//!                                    ├──> Send       to followers, at the same time
//!   Landed ──> committed ──> apply ──┼──> Reply      nothing was written to the data file
//!                                    └──> WriteBack  later, all that is dirty of some groups
//!   WrittenBack ──> tickets ──> checkpoints in the next batch ──> tokens ──> the log is cut
//! ```
//!
//! Whoever drives it does the commands in any order and tells how each went. A store that can neither write
//! its log nor begin a new file, or whose data file has failed a sync, is out: it says so in [`Core::failure`]
//! and does nothing more.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::rng::Rng;
use base::{Error, ErrorKind, Result};
use bytes::Bytes;
use io::AlignedBuf;

use super::held::Held;
use super::layout::Store;
use super::member::{Inbox, Member, TICK};
use super::pending::{Open, Pending};
use super::time::ReadMode;
use crate::group::members::ENCODED_MAX as MEMBERS_MAX;
use crate::group::members::Members;
use crate::group::message::{Body, CopyStep, Message};
use crate::group::raft::{Config, Outgoing, Role};
use crate::group::volumes::ENCODED_MAX as VOLUMES_MAX;
use crate::ids::{Group, Index, Uuid};
use crate::memory::pages::Pages;
use crate::raftlog::{Append, BatchId, Checkpoint, RaftLog};
use crate::store::data::Reader;
use crate::store::flush::{Policy, Speed, State};
use crate::store::in_place::InPlace;
use crate::store::sync::{Failed, Marked, SyncSlot, SyncTicket};
use crate::wire::client::{Request, Response, What};

/// The most bytes of one batch.
const BATCH_BYTES_MAX: u64 = 8 << 20;
/// With so many bytes on their way to the log, it takes nothing more from clients and leaders.
const HELD_BYTES_MAX: u64 = 24 << 20;
/// The most writes to their place that wait for others.
const IN_PLACE_MAX: usize = 4096;
/// How full the log may be with entries that are kept for followers that lag.
const KEPT_FILL_MAX: f64 = 0.5;
/// How full the log may be while it is kept for copies.
const PIN_FILL_MAX: f64 = 0.7;
/// Behind so many ticks without room in its log a store gives the groups that it leads to others.
const BLOCKED_TICKS_MAX: u32 = 20;
/// The most groups of a store: all their states go to one batch.
const GROUPS_MAX: u64 = 96;
/// The most bytes of a batch without payloads where the log has no room.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// What a batch has besides its items, at most: its head, and what fills units up.
const BATCH_REST: u64 = 8 << 10;
/// So often in a row blocks may fail to be written back before the store is out.
const WRITE_BACKS_MAX: u32 = 6;
/// How long it waits then before it tries again; twice as long each time.
const WRITE_BACK_PAUSE: Duration = Duration::from_millis(500);

/// What happens to a store.
#[derive(Debug)]
pub enum Event {
    /// A tenth of a second has gone.
    Tick,
    /// The clock was found to be wrong: what was counted by it counts no more.
    WrongClock,
    /// The store will end soon: groups that it leads go to others, so that nobody waits for an election.
    Leave,
    /// Another replica of a group says something.
    Message {
        /// The group.
        group: Group,
        /// What.
        message: Message,
        /// The payloads of its entries.
        payloads: Vec<Bytes>,
    },
    /// A client asks for something.
    Request {
        /// Whom to answer.
        client: u64,
        /// What.
        request: Request,
    },
    /// A batch of the log is durable, or could not be written.
    Landed(Append, Result<()>),
    /// A read of the data file is done.
    Read(u64, Result<AlignedBuf>),
    /// Blocks are in their place, durably, or are not.
    InPlace(u64, Result<()>),
    /// What was to be written back is durable.
    WrittenBack(Vec<(SyncTicket, SyncSlot)>),
    /// It could not be written; the bytes are here still.
    NotWritten(Failed),
    /// What the data file holds is not known any more.
    NotSynced(Error),
}

/// What is to be done.
#[derive(Debug)]
pub enum Command {
    /// Write a batch of the log: then [`Event::Landed`].
    Log(Append),
    /// Send a message to another replica.
    Send {
        /// The group.
        group: Group,
        /// What, to whom, with which payloads.
        outgoing: Outgoing,
    },
    /// Answer a client.
    Reply {
        /// Whom.
        client: u64,
        /// What.
        response: Response,
    },
    /// Read from the data file: then [`Event::Read`] with the token.
    Read {
        /// Names the read.
        token: u64,
        /// Where, bytes.
        offset: u64,
        /// How many bytes.
        len: usize,
    },
    /// Write blocks to their place, durably: then [`Event::InPlace`] with the token.
    InPlace {
        /// Names the write.
        token: u64,
        /// What, and where.
        place: InPlace,
    },
    /// Write back and sync: then [`Event::WrittenBack`], or one of the others.
    WriteBack(Vec<Marked>, Speed),
}

/// A group that a store has a replica of.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The group.
    pub group: Group,
    /// The id of this replica.
    pub replica: u64,
    /// The replicas that the group was made with.
    pub members: Members,
    /// How many chunks the group may have: the same on all its stores, each of which has as many slots for it.
    pub chunks_max: u32,
}

/// What of a batch is told when it is durable: readies of groups.
type Numbers = Vec<(Group, u64)>;

/// See the module.
#[derive(Debug)]
pub struct Core {
    store: Store,
    log: RaftLog,
    data: Reader,
    policy: Policy,
    members: BTreeMap<Group, Member>,
    /// Checkpoints that are in no batch yet.
    checkpoints: VecDeque<Checkpoint>,
    held: Held,
    /// The log has no room for entries: something must be written back.
    is_blocked: bool,
    flying: BTreeMap<BatchId, Numbers>,
    commands: VecDeque<Command>,
    checkpoints_made: u64,
    /// Changes of clients that wait for room.
    pending: Pending,
    /// Bytes that have come since the last tick and in a second.
    came: u64,
    rate: u64,
    /// When the last write-back began; one is out.
    last_flush: Duration,
    is_flushing: bool,
    /// How often in a row it failed, and when it is tried again.
    flush_failures: u32,
    flush_after: Duration,
    last_tick: Option<Duration>,
    /// Ticks since the log has had room.
    blocked_ticks: u32,
    failure: Option<Error>,
}

impl Core {
    /// The core of a store with replicas of these groups. Each begins at its last checkpoint; what was committed
    /// behind it is applied again before anything of it is served.
    ///
    /// Errors: the store has too few slots, or too short a log, for these groups; Corruption, where the log does not
    /// have what a replica needs.
    pub fn open(
        store: Store,
        log: RaftLog,
        data: Reader,
        policy: Policy,
        groups: &[Assignment],
        rng: &mut Rng,
    ) -> Result<Self> {
        policy.check()?;
        check_room(&log, &data, groups)?;
        let mut members = BTreeMap::new();
        let pages = Pages::default();
        for a in groups {
            let config = Config {
                silent_ticks: if log.groups().get(a.group).is_some() {
                    10
                } else {
                    0
                },
                ..Config::new(Rng::new(rng.next_u64()))
            };
            let member = Member::open(a, &log, &data, config, policy.apply_sync, &pages)?;
            members.insert(a.group, member);
        }
        Ok(Self {
            store,
            log,
            data,
            policy,
            members,
            checkpoints: VecDeque::new(),
            held: Held::default(),
            is_blocked: false,
            flying: BTreeMap::new(),
            commands: VecDeque::new(),
            checkpoints_made: 0,
            pending: Pending::default(),
            came: 0,
            rate: 0,
            last_flush: Duration::ZERO,
            is_flushing: false,
            flush_failures: 0,
            flush_after: Duration::ZERO,
            last_tick: None,
            blocked_ticks: 0,
            failure: None,
        })
    }

    /// The same, where leaders know in this way that they lead when they serve reads.
    #[must_use]
    pub fn with_read_mode(mut self, mode: ReadMode) -> Self {
        self.members.values_mut().for_each(|m| m.read_by(mode));
        self
    }

    /// Why the store is out, if it is.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// A replica, if the store has one of the group.
    pub fn member(&self, group: Group) -> Option<&Member> {
        self.members.get(&group)
    }

    /// Whether a group that this store leads is on its way to another.
    pub fn gives_away(&self) -> bool {
        let gives = |m: &Member| m.node().role() == Role::Leader && m.node().is_transferring();
        self.members.values().any(gives)
    }

    /// Notes which store another number is; see [`Store::note_peer`].
    pub fn note_peer(&mut self, number: u64, peer: Uuid) -> Result<()> {
        self.store.note_peer(number, peer)
    }

    /// The log.
    pub fn log(&self) -> &RaftLog {
        &self.log
    }

    /// Bytes of blocks that the data file does not have durably.
    pub fn dirty_bytes(&self) -> u64 {
        self.members.values().map(Member::dirty_bytes).sum()
    }

    /// How many checkpoints of groups were made.
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints_made
    }

    /// Changes of clients that wait for room.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// What there is to do, oldest first.
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Takes an event at a time that never goes back (see [`Time`](super::time::Time)), and does what has become possible; see
    /// [`Core::next_command`] behind it.
    pub fn step(&mut self, now: Duration, event: Event) {
        self.step_all(now, [event]);
    }

    /// The same for several events at once, which share what they have for the log and for other replicas.
    pub fn step_all(&mut self, now: Duration, events: impl IntoIterator<Item = Event>) {
        if self.failure.is_some() {
            return;
        }
        let mut events = events.into_iter();
        let taken = events.try_for_each(|event| self.take(now, event));
        if let Err(e) = taken.and_then(|()| self.pump(now)) {
            self.failure = Some(e);
            self.commands.clear();
        }
    }

    fn take(&mut self, now: Duration, event: Event) -> Result<()> {
        match event {
            Event::Tick => self.tick(now),
            Event::WrongClock => {
                self.members.values_mut().for_each(Member::forget_lease);
                Ok(())
            }
            Event::Leave => {
                self.members.values_mut().for_each(Member::hand_over);
                Ok(())
            }
            Event::Message {
                group,
                message,
                payloads,
            } => self.message(group, message, payloads),
            Event::Request { client, request } => {
                self.request(now, client, request);
                Ok(())
            }
            Event::Landed(append, outcome) => self.landed(append, outcome),
            Event::Read(token, result) => {
                let group = Group(token as u32);
                if let Some(member) = self.members.get_mut(&group) {
                    member.read_done(token, result, &self.data, &mut self.commands);
                }
                Ok(())
            }
            Event::InPlace(token, result) => {
                let group = Group(token as u32);
                if let Some(member) = self.members.get_mut(&group) {
                    member.in_place_done(token, &result, &mut self.commands);
                }
                Ok(())
            }
            Event::WrittenBack(tickets) => self.written_back(tickets),
            Event::NotWritten(failed) => self.not_written(now, failed),
            Event::NotSynced(e) => Err(e),
        }
    }

    /// Ticks that come late come all at once: a follower that counted each of them would give its vote earlier than
    /// the lease of its leader ends.
    fn tick(&mut self, now: Duration) -> Result<()> {
        let earliest = self.last_tick.map(|last| last + TICK * 19 / 20);
        if earliest.is_some_and(|earliest| now < earliest) {
            return Ok(());
        }
        if let Some(last) = self.last_tick.replace(now) {
            let came =
                std::mem::take(&mut self.came) as f64 / now.saturating_sub(last).as_secs_f64();
            self.rate = (self.rate as f64 * 0.95 + came * 0.05) as u64;
        }
        // As it was when something was to be appended last: a little room may be there, and not enough.
        self.blocked_ticks = if self.is_blocked {
            self.blocked_ticks + 1
        } else {
            0
        };
        self.cut_proven()?;
        if self.blocked_ticks > BLOCKED_TICKS_MAX {
            self.blocked_ticks = 0;
            self.members.values_mut().for_each(Member::hand_over);
        }
        let (data, out) = (&self.data, &mut self.commands);
        let mut members = self.members.values_mut();
        members.try_for_each(|m| m.tick(now, data, out))
    }

    /// Nothing is lost, as the blocks are in the log and here. It is tried again, after a pause. Errors: it has
    /// failed too often.
    fn not_written(&mut self, now: Duration, failed: Failed) -> Result<()> {
        self.is_flushing = false;
        self.flush_failures += 1;
        self.flush_after = now + WRITE_BACK_PAUSE * 2_u32.pow(self.flush_failures.min(8));
        for marked in failed.marked {
            if let Some(member) = self.members.get_mut(&marked.group()) {
                member.give_back(marked);
            }
        }
        if self.flush_failures >= WRITE_BACKS_MAX {
            return Err(match failed.error.kind() {
                // It says what to do.
                ErrorKind::NoSpace => failed.error,
                _ => failed
                    .error
                    .hint("the data file cannot be written: replace the disk"),
            });
        }
        Ok(())
    }

    /// Whether clients and leaders must wait until something is written.
    fn is_full(&self) -> bool {
        let in_place: usize = self.members.values().map(Member::waiting_in_place).sum();
        self.is_blocked || self.held.bytes() >= HELD_BYTES_MAX || in_place >= IN_PLACE_MAX
    }

    /// A peer's message. One that cannot be is dropped: the peer is broken, and not this store. Entries for
    /// which there is no room are left out; the leader sends them again. The rest of their message is not: without it
    /// the leader would not know which entries are here, so none of them could be committed, and room never come.
    fn message(
        &mut self,
        group: Group,
        mut message: Message,
        mut payloads: Vec<Bytes>,
    ) -> Result<()> {
        let dirty_max = self.policy.dirty_bytes_max + self.policy.dirty_bytes_max / 8;
        let is_full = self.is_full() || self.dirty_bytes() >= dirty_max;
        match &mut message.body {
            // Those without payloads have always room; among them is a new leader's, which lets others be committed.
            Body::Append { entries, .. } if is_full => {
                let fit = payloads.iter().take_while(|p| p.is_empty()).count();
                entries.truncate(fit);
                payloads.truncate(fit);
            }
            // The leader says it again. Blocks need no room in the log, and a copy makes some when it ends.
            Body::Copy { step, .. } => match step {
                CopyStep::Blocks { .. } if self.dirty_bytes() >= dirty_max => return Ok(()),
                CopyStep::Offer if self.is_blocked => return Ok(()),
                _ => {}
            },
            _ => {}
        }
        self.came += payloads.iter().map(|p| p.len() as u64).sum::<u64>();
        let Some(member) = self.members.get_mut(&group) else {
            return Ok(());
        };
        match member.message(message, payloads, &self.data, &mut self.commands) {
            Err(e) if !e.is_corruption() => Err(e),
            _ => Ok(()),
        }
    }

    fn request(&mut self, now: Duration, client: u64, request: Request) {
        let bytes = request.what.payload_bytes();
        let brings = request.what.is_change() || request.what == What::Attach;
        // Who does not lead says so at once: that needs no room.
        if !brings || !leads(&self.members, request.group) {
            return self.admit(now, client, request);
        }
        self.came += bytes;
        if let Err(id) = self.pending.push(client, request) {
            super::member::refuse_busy(client, id, &mut self.commands);
        }
    }

    /// Lets changes begin that there is room for.
    fn admit_changes(&mut self, now: Duration) {
        // A group that was handed over is not kept waiting here.
        while let Some((client, request)) = self.pending.pop(|g| !leads(&self.members, g)) {
            self.admit(now, client, request);
        }
        let mut open = None;
        while !self.pending.is_empty() && !self.is_full() {
            let max = self.policy.changes_max(&self.state(now));
            if max.is_some() && open.is_none() {
                let counts = self.members.iter().map(|(&g, m)| (g, m.changes()));
                open = Some(Open::new(counts));
            }
            let may = |group| {
                let has_place = |(max, open): (usize, &Open)| open.has_place(group, max);
                !self.members.get(&group).is_some_and(Member::is_crowded)
                    && max.zip(open.as_ref()).is_none_or(has_place)
            };
            let Some((client, request)) = self.pending.pop(may) else {
                return;
            };
            if let Some(open) = &mut open {
                open.begin(request.group);
            }
            self.admit(now, client, request);
        }
    }

    fn admit(&mut self, now: Duration, client: u64, request: Request) {
        let inbox = Inbox {
            now,
            data: &self.data,
            out: &mut self.commands,
        };
        match self.members.get_mut(&request.group) {
            Some(member) => member.request(inbox, client, request),
            None => super::member::refuse_unknown(client, request.id, &mut self.commands),
        }
    }

    fn state(&self, now: Duration) -> State {
        State {
            log_fill: self.log.fill_unproven(),
            dirty_bytes: self.dirty_bytes(),
            since_last: now.saturating_sub(self.last_flush),
            rate: self.rate,
            has_applied: self.members.values().any(Member::has_applied),
        }
    }

    fn landed(&mut self, append: Append, outcome: Result<()>) -> Result<()> {
        let landed = self.log.landed(append, outcome)?;
        for id in landed.durable {
            for (group, number) in self.flying.remove(&id).unwrap_or_default() {
                if let Some(member) = self.members.get_mut(&group) {
                    member.persisted(number, &mut self.commands);
                }
            }
        }
        for token in landed.tokens {
            let group = token.group();
            if let Some(member) = self.members.get_mut(&group) {
                member.checkpoint_is_durable(token.through());
                self.log.prove(token);
            }
        }
        self.cut_proven()?;
        if let Some(again) = landed.again {
            self.commands.push_back(Command::Log(again));
        }
        self.store.note_log_file(&self.log)
    }

    /// Entries are kept for followers that lag while the log is less than half full; beyond that they get a copy.
    fn cut_proven(&mut self) -> Result<()> {
        if self.log.fill() > KEPT_FILL_MAX {
            for (&group, member) in &self.members {
                self.log.keep_behind(group, pin_of(member, &self.log));
            }
            for (group, through) in self.log.truncate_proven(KEPT_FILL_MAX)? {
                if let Some(member) = self.members.get_mut(&group) {
                    member.truncated(through);
                }
            }
        }
        // Nothing may be there to be appended, which would find that out.
        self.is_blocked &= !self.log.has_room(BATCH_REST);
        Ok(())
    }

    fn written_back(&mut self, tickets: Vec<(SyncTicket, SyncSlot)>) -> Result<()> {
        self.is_flushing = false;
        self.flush_failures = 0;
        for (ticket, slot) in tickets {
            if let Some(member) = self.members.get_mut(&ticket.group()) {
                let commit = member.node().commit_item();
                self.held.push(ticket.group(), vec![commit], None);
                let checkpoint = member.settle(ticket, slot)?;
                self.checkpoints_made += u64::from(checkpoint.is_some());
                self.checkpoints.extend(checkpoint);
            }
        }
        Ok(())
    }

    /// Does what has become possible.
    fn pump(&mut self, now: Duration) -> Result<()> {
        loop {
            self.admit_changes(now);
            self.gather()?;
            self.flush(now);
            for member in self.members.values_mut() {
                member.in_place_on(&self.data, &mut self.commands);
            }
            if !self.append()? {
                return Ok(());
            }
        }
    }

    /// Collects what the groups have for the log, and does what else they say: nothing of that waits for the log.
    fn gather(&mut self) -> Result<()> {
        for (&group, member) in &mut self.members {
            // What the log says of a checkpoint is not the last word while one is on its way.
            if !self.checkpoints.iter().any(|c| c.group() == group)
                && let Some((number, item)) =
                    member.copy_on(&self.log, &self.data, &mut self.commands)?
            {
                self.held.push(group, vec![item], Some(number));
            }
            while let Some(ready) = member.ready(&self.log, &self.data, &mut self.commands)? {
                self.held.push(group, ready.items, Some(ready.number));
            }
        }
        Ok(())
    }

    /// Appends a batch, if there is something for one. False: not, or a batch must land before, or the log must be
    /// cut.
    fn append(&mut self) -> Result<bool> {
        let limit = self.log.batch_bytes_max().min(BATCH_BYTES_MAX) - BATCH_REST;
        let mut bytes = 0;
        let fits = |c: &&Checkpoint| {
            bytes += c.bytes() as u64;
            bytes <= limit / 2
        };
        // One has always room.
        let count = self.checkpoints.iter().take_while(fits).count().max(1);
        let count = count.min(self.checkpoints.len());
        let checkpoints = self.checkpoints.iter().take(count);
        let with: u64 = checkpoints.map(|c| c.bytes() as u64).sum();
        let most = (limit - with.min(limit)).min(self.held.bytes());
        if count == 0 && self.held.bytes() == 0 {
            return Ok(false);
        }
        let bytes = with + most + BATCH_REST;
        if !self.log.can_append(bytes) {
            return Ok(false);
        }
        self.is_blocked = !self.log.has_room(bytes);
        // What has no payload is small, and may use what is reserved as long as there is something.
        let most = if self.is_blocked {
            most.min(SMALL_BYTES_MAX)
        } else {
            most
        };
        if !self.log.has_place(with + most + BATCH_REST) {
            return Ok(false);
        }
        let batch = self.held.take(most, !self.is_blocked).unwrap_or_default();
        if batch.items.is_empty() && count == 0 {
            return Ok(false);
        }
        let checkpoints: Vec<Checkpoint> = self.checkpoints.drain(..count).collect();
        let (id, append) = self.log.append(batch.items, &checkpoints)?;
        self.flying.insert(id, batch.numbers);
        self.commands.push_back(Command::Log(append));
        Ok(true)
    }

    /// Begins to write back, if it is time.
    fn flush(&mut self, now: Duration) {
        if self.is_flushing || (self.flush_failures > 0 && now < self.flush_after) {
            return;
        }
        let state = self.state(now);
        let goes_on = |m: &&Member| m.is_in_round() && m.may_mark();
        let in_rounds = self.members.values().filter(goes_on).count();
        let speed = if in_rounds > 0 {
            self.policy.speed(&state)
        } else if let Some(speed) = self.policy.due(&state) {
            self.last_flush = now;
            speed
        } else if self.is_blocked || self.members.values().any(Member::wants_write_back) {
            // Nothing else makes room.
            Speed::Full
        } else {
            return;
        };
        let sharers = if in_rounds > 0 {
            in_rounds
        } else {
            self.members.len()
        };
        let bytes_max = self.policy.part_bytes(speed) / sharers.max(1) as u64;
        let members = self.members.values_mut();
        let marked = members.filter_map(|m| m.mark(bytes_max, in_rounds == 0));
        let marked: Vec<Marked> = marked.collect();
        if !marked.is_empty() {
            self.is_flushing = true;
            self.commands.push_back(Command::WriteBack(marked, speed));
        }
    }
}

fn leads(members: &BTreeMap<Group, Member>, group: Group) -> bool {
    let member = members.get(&group);
    member.is_some_and(|m| m.node().role() == Role::Leader)
}

/// Behind where the log is kept for copies that a leader makes. They may take longer than the log lasts: then there
/// are others, of what has changed since.
fn pin_of(member: &Member, log: &RaftLog) -> Option<Index> {
    member.pinned().filter(|_| log.fill() < PIN_FILL_MAX)
}

/// Errors: the store has not the room that its groups may need.
fn check_room(log: &RaftLog, data: &Reader, groups: &[Assignment]) -> Result<()> {
    let chunks: u64 = groups.iter().map(|a| u64::from(a.chunks_max)).sum();
    if chunks > u64::from(data.slots()) {
        return Err(Error::invalid_argument(format!(
            "the groups of the store may have {chunks} chunks, and it has {} slots",
            data.slots()
        ))
        .hint("give it fewer groups, or make a larger store"));
    }
    let state = (VOLUMES_MAX + MEMBERS_MAX + 1024) as u64;
    let most = (log.batch_bytes_max() / state).min(GROUPS_MAX);
    if groups.len() as u64 > most {
        return Err(Error::invalid_argument(format!(
            "the store has {} groups, and files of its log take the states of {most}",
            groups.len()
        ))
        .hint("give it fewer groups, or make a store with larger files"));
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
