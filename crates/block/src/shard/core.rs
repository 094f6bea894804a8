//! The logic of a store: events in, commands out. It has no thread, clock or socket, and never waits.
//!
//! ```text
//!   Request, Message, Tick ──> groups ──> Log        one batch of all groups: one durable write
//!                                    ├──> Send       to followers, at the same time
//!   Landed ──> committed ──> apply ──┼──> Reply      nothing was written to the data file
//!                                    └──> WriteBack  later, all that is dirty of some groups
//!   WrittenBack ──> tickets ──> checkpoints in the next batch ──> tokens ──> the log is cut
//! ```
//!
//! The caller executes the commands, in any order, and reports each outcome as an event. A store fails if it
//! can neither write its log nor begin a new file, or if a sync of its data file fails: then [`Core::failure`]
//! has the error, and the store does nothing more.

mod admission;
mod write_back;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::rng::Rng;
use base::{Error, Result};
use bytes::Bytes;
use io::AlignedBuf;

use super::held::Held;
use super::layout::Store;
use super::member::{Member, TICK};
use super::pending::Pending;
use super::time::ReadMode;
use crate::group::members::ENCODED_MAX as MEMBERS_MAX;
use crate::group::members::Members;
use crate::group::message::Message;
use crate::group::raft::{Config, Outgoing, Role};
use crate::group::volumes::ENCODED_MAX as VOLUMES_MAX;
use crate::ids::{Group, Index, Uuid};
use crate::memory::pages::Pages;
use crate::raftlog::{Append, BatchId, Checkpoint, RaftLog};
use crate::store::data::Reader;
use crate::store::flush::{Policy, Speed};
use crate::store::in_place::InPlace;
use crate::store::sync::{Failed, Marked, SyncSlot, SyncTicket};
use crate::wire::client::{Request, Response};

/// The most bytes of one batch.
const BATCH_BYTES_MAX: u64 = 8 << 20;
/// Up to this fill level, entries are kept in the log for lagging followers.
const KEPT_FILL_MAX: f64 = 0.5;
/// Up to this fill level, entries are kept in the log for copies.
const PIN_FILL_MAX: f64 = 0.7;
/// After this many ticks without room in its log, a store hands over the leadership of its groups.
const BLOCKED_TICKS_MAX: u32 = 20;
/// The most groups of a store: the states of all must fit into one batch.
const GROUPS_MAX: u64 = 96;
/// The most bytes of a batch without payloads while the log has no room for entries.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// The most bytes of a batch besides its items: its head, and the padding to whole units.
const BATCH_REST: u64 = 8 << 10;

/// An input of the store's logic.
#[derive(Debug)]
pub enum Event {
    /// A tenth of a second has passed.
    Tick,
    /// The clock was found to be wrong: leases that were measured with it are void.
    WrongClock,
    /// The store will stop soon: it hands over the leadership of its groups, so that no election has to be
    /// waited for.
    Leave,
    /// A message of another replica of a group.
    Message {
        /// The group.
        group: Group,
        /// The message.
        message: Message,
        /// The payloads of its entries.
        payloads: Vec<Bytes>,
    },
    /// A request of a client.
    Request {
        /// The client to answer.
        client: u64,
        /// The request.
        request: Request,
    },
    /// A batch of the log is durable, or could not be written.
    Landed(Append, Result<()>),
    /// A read of the data file is done.
    Read(u64, Result<AlignedBuf>),
    /// An in-place write is durable, or has failed.
    InPlace(u64, Result<()>),
    /// A write-back is durable.
    WrittenBack(Vec<(SyncTicket, SyncSlot)>),
    /// A write-back has failed; the blocks are still in memory.
    NotWritten(Failed),
    /// A sync of the data file has failed: its content is unknown.
    NotSynced(Error),
}

/// An output of the store's logic.
#[derive(Debug)]
pub enum Command {
    /// Write a batch of the log, then report [`Event::Landed`].
    Log(Append),
    /// Send a message to another replica.
    Send {
        /// The group.
        group: Group,
        /// The message, its receiver, and its payloads.
        outgoing: Outgoing,
    },
    /// Answer a client.
    Reply {
        /// The client.
        client: u64,
        /// The response.
        response: Response,
    },
    /// Read from the data file, then report [`Event::Read`] with the token.
    Read {
        /// Identifies the read.
        token: u64,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: usize,
    },
    /// Write blocks in place, durably, then report [`Event::InPlace`] with the token.
    InPlace {
        /// Identifies the write.
        token: u64,
        /// The blocks, and where they go.
        place: InPlace,
    },
    /// Write back and sync, then report [`Event::WrittenBack`], [`Event::NotWritten`] or
    /// [`Event::NotSynced`].
    WriteBack(Vec<Marked>, Speed),
}

/// The assignment of a group's replica to a store.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The group.
    pub group: Group,
    /// The id of this replica.
    pub replica: u64,
    /// The members that the group was created with.
    pub members: Members,
    /// The most chunks of the group: the same on all its stores, each of which has this many slots for it.
    pub chunks_max: u32,
}

/// Readies to be reported as persisted when a batch is durable.
type Numbers = Vec<(Group, u64)>;

/// The logic of a store.
#[derive(Debug)]
pub struct Core {
    store: Store,
    log: RaftLog,
    data: Reader,
    policy: Policy,
    members: BTreeMap<Group, Member>,
    /// Checkpoints that are not in a batch yet.
    checkpoints: VecDeque<Checkpoint>,
    held: Held,
    /// Whether the log has no room for entries, so that blocks must be written back.
    is_blocked: bool,
    flying: BTreeMap<BatchId, Numbers>,
    commands: VecDeque<Command>,
    checkpoints_made: u64,
    /// Changes of clients that wait until they may begin.
    pending: Pending,
    /// Bytes of changes received since the last tick, and their rate per second.
    came: u64,
    rate: u64,
    /// When the last round of write-back began, and whether a write-back is under way.
    last_flush: Duration,
    is_flushing: bool,
    /// The number of failed write-backs in a row, and when the next may begin.
    flush_failures: u32,
    flush_after: Duration,
    last_tick: Option<Duration>,
    /// Ticks since the log last had room.
    blocked_ticks: u32,
    failure: Option<Error>,
}

impl Core {
    /// The core of a store with replicas of these groups. Each replica starts at its last checkpoint; committed
    /// entries behind it are applied again before the replica serves anything.
    ///
    /// Errors: the store has too few slots, or too short a log, for these groups; Corruption, if the log lacks
    /// entries that a replica needs.
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

    /// Sets how leaders make sure that they still lead when they serve reads.
    #[must_use]
    pub fn with_read_mode(mut self, mode: ReadMode) -> Self {
        self.members.values_mut().for_each(|m| m.read_by(mode));
        self
    }

    /// The error that the store has failed with.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// A replica, if the store has one of the group.
    pub fn member(&self, group: Group) -> Option<&Member> {
        self.members.get(&group)
    }

    /// Whether this store is handing over the leadership of a group.
    pub fn gives_away(&self) -> bool {
        let gives = |m: &Member| m.node().role() == Role::Leader && m.node().is_transferring();
        self.members.values().any(gives)
    }

    /// Notes the identity of another store; see [`Store::note_peer`].
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

    /// Number of checkpoints that were made.
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints_made
    }

    /// Number of changes of clients that wait.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// The next command, the oldest first.
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Handles an event, and does everything that it makes possible. `now` never goes back (see
    /// [`Time`](super::time::Time)). [`Core::next_command`] returns the resulting commands.
    pub fn step(&mut self, now: Duration, event: Event) {
        self.step_all(now, [event]);
    }

    /// The same for several events at once, which share batches of the log and messages.
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

    /// Delayed ticks arrive all at once. They count as one: a follower that counted each of them would grant
    /// its vote before the leader's lease ends.
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
        // The state at the last append: there may be a little room now, but not enough.
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

    /// Entries are kept for lagging followers while the log is less than half full; beyond that, those
    /// followers get a copy.
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
        // Updated here, because there may be nothing to append, which would find it out.
        self.is_blocked &= !self.log.has_room(BATCH_REST);
        Ok(())
    }

    /// Does everything that has become possible.
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

    /// Collects the items that groups have for the log, and executes everything else in their readies, which
    /// need not wait for the log.
    fn gather(&mut self) -> Result<()> {
        for (&group, member) in &mut self.members {
            // While a checkpoint is not in a batch yet, the log's last checkpoint is outdated.
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

    /// Appends a batch. False: there is nothing to append, or a batch must land first, or the log must be
    /// truncated.
    fn append(&mut self) -> Result<bool> {
        let limit = self.log.batch_bytes_max().min(BATCH_BYTES_MAX) - BATCH_REST;
        let mut bytes = 0;
        let fits = |c: &&Checkpoint| {
            bytes += c.bytes() as u64;
            bytes <= limit / 2
        };
        // At least one checkpoint is taken: it always fits.
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
        // Without payloads, a batch is small and may use reserved files while they last.
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
}

/// The index behind which the log is kept for copies that a leader makes. A copy may take longer than the log
/// can be kept; then another follows, of the blocks that changed since.
fn pin_of(member: &Member, log: &RaftLog) -> Option<Index> {
    member.pinned().filter(|_| log.fill() < PIN_FILL_MAX)
}

/// Errors: the store lacks the room that its groups may need.
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
