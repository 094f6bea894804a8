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
use base::{Error, Result};
use bytes::Bytes;
use io::AlignedBuf;

use super::layout::Store;
use super::member::{CATCH_UP, Inbox, Member};
use crate::group::members::Members;
use crate::group::message::Message;
use crate::group::raft::{Config, Outgoing};
use crate::ids::{Group, Index};
use crate::raftlog::batch::Item;
use crate::raftlog::{Append, BatchId, Checkpoint, RaftLog, batch};
use crate::store::data::Reader;
use crate::store::flush::{ApplySync, Policy, Speed, State};
use crate::store::sync::{Failed, Marked, SyncSlot, SyncTicket};
use crate::wire::client::{Request, Response};

/// The most bytes of one batch, unless one entry has more.
const BATCH_BYTES_MAX: u64 = 8 << 20;

/// What happens to a store.
#[derive(Debug)]
pub enum Event {
    /// A tenth of a second has gone.
    Tick,
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
}

/// What of a batch is told when it is durable: readies of groups.
type Numbers = Vec<(Group, u64)>;

/// A batch that has no place in the log yet.
#[derive(Debug, Default)]
struct Held {
    items: Vec<Item>,
    checkpoints: Vec<Checkpoint>,
    numbers: Numbers,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.items.is_empty() && self.checkpoints.is_empty()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Core {
    store: Store,
    log: RaftLog,
    data: Reader,
    policy: Policy,
    members: BTreeMap<Group, Member>,
    /// Checkpoints for the next batch.
    checkpoints: Vec<Checkpoint>,
    held: Held,
    flying: BTreeMap<BatchId, Numbers>,
    commands: VecDeque<Command>,
    /// When the last write-back began; one is out.
    last_flush: Duration,
    is_flushing: bool,
    failure: Option<Error>,
}

impl Core {
    /// The core of a store with replicas of these groups. Each begins at its last checkpoint; what was committed
    /// behind it is applied again before anything of it is served.
    ///
    /// Errors: Corruption, where the log does not have what a replica needs; `NotSupported` for a mode that is
    /// not built.
    pub fn open(
        store: Store,
        log: RaftLog,
        data: Reader,
        policy: Policy,
        groups: &[Assignment],
        rng: &mut Rng,
    ) -> Result<Self> {
        policy.check()?;
        if policy.apply_sync == ApplySync::Odsync {
            return Err(Error::not_supported(
                "apply_sync=odsync, where each block is written in place before the answer, is not built yet",
            )
            .hint("choose background or snapshot"));
        }
        let mut members = BTreeMap::new();
        for a in groups {
            let config = Config {
                silent_ticks: if log.groups().get(a.group).is_some() {
                    10
                } else {
                    0
                },
                ..Config::new(Rng::new(rng.next_u64()))
            };
            let member = Member::open(a, &log, config)?;
            members.insert(a.group, member);
        }
        Ok(Self {
            store,
            log,
            data,
            policy,
            members,
            checkpoints: Vec::new(),
            held: Held::default(),
            flying: BTreeMap::new(),
            commands: VecDeque::new(),
            last_flush: Duration::ZERO,
            is_flushing: false,
            failure: None,
        })
    }

    /// Why the store is out, if it is.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// A replica, if the store has one of the group.
    pub fn member(&self, group: Group) -> Option<&Member> {
        self.members.get(&group)
    }

    /// The log.
    pub fn log(&self) -> &RaftLog {
        &self.log
    }

    /// Bytes of blocks that the data file does not have durably.
    pub fn dirty_bytes(&self) -> u64 {
        self.members.values().map(Member::dirty_bytes).sum()
    }

    /// What there is to do, oldest first.
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Takes an event at a time of a clock that never goes back; see [`Core::next_command`] behind it.
    pub fn step(&mut self, now: Duration, event: Event) {
        if self.failure.is_some() {
            return;
        }
        if let Err(e) = self.take(now, event).and_then(|()| self.pump(now)) {
            self.failure = Some(e);
            self.commands.clear();
        }
    }

    /// Takes several events, and looks once for what has become possible: so one batch has what many ask for.
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
            Event::Tick => self.members.values_mut().try_for_each(|m| m.tick(now)),
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
                    member.read_done(token, result, &mut self.commands);
                }
                Ok(())
            }
            Event::WrittenBack(tickets) => self.written_back(tickets),
            Event::NotWritten(failed) => {
                self.is_flushing = false;
                for marked in failed.marked {
                    if let Some(member) = self.members.get_mut(&marked.group()) {
                        member.give_back(marked);
                    }
                }
                // Without space for new chunks, what there is cannot be written back: more must not come.
                Ok(())
            }
            Event::NotSynced(e) => Err(e),
        }
    }

    /// A peer's message. One that cannot be is dropped: the peer is broken, and not this store.
    fn message(&mut self, group: Group, message: Message, payloads: Vec<Bytes>) -> Result<()> {
        let Some(member) = self.members.get_mut(&group) else {
            return Ok(());
        };
        match member.message(message, payloads) {
            Err(e) if !e.is_corruption() => Err(e),
            _ => Ok(()),
        }
    }

    fn request(&mut self, now: Duration, client: u64, request: Request) {
        let is_full = self.log.fill() >= 1.0 || self.dirty_bytes() >= self.policy.dirty_bytes_max;
        let inbox = Inbox {
            now,
            is_full,
            data: &self.data,
            out: &mut self.commands,
        };
        match self.members.get_mut(&request.group) {
            Some(member) => member.request(inbox, client, request),
            None => super::member::refuse_unknown(client, request.id, &mut self.commands),
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
                // Followers that lag get a copy rather than that the log runs full.
                let kept = if self.log.fill() > 0.5 { 0 } else { CATCH_UP };
                let keep_from = Index(token.through().0.saturating_sub(kept) + 1);
                self.log.truncate(token, keep_from)?;
                member.truncated(Index(keep_from.0.saturating_sub(1)));
            }
        }
        if self.log.fill() > 0.5 {
            for (group, through) in self.log.truncate_proven()? {
                if let Some(member) = self.members.get_mut(&group) {
                    member.truncated(through);
                }
            }
        }
        if let Some(again) = landed.again {
            self.commands.push_back(Command::Log(again));
        }
        self.store.note_log_file(&self.log)
    }

    fn written_back(&mut self, tickets: Vec<(SyncTicket, SyncSlot)>) -> Result<()> {
        self.is_flushing = false;
        for (ticket, slot) in tickets {
            if let Some(member) = self.members.get_mut(&ticket.group()) {
                self.checkpoints.push(member.settle(ticket, slot)?);
            }
        }
        Ok(())
    }

    /// Does what has become possible.
    fn pump(&mut self, now: Duration) -> Result<()> {
        self.flush(now);
        loop {
            if self.held.is_empty() {
                self.gather()?;
            }
            if self.held.is_empty() || !self.append_held()? {
                return Ok(());
            }
        }
    }

    /// Collects what the groups have for the log, and does what else they say.
    fn gather(&mut self) -> Result<()> {
        let mut bytes = 0;
        self.held.checkpoints = std::mem::take(&mut self.checkpoints);
        for (&group, member) in &mut self.members {
            if bytes >= BATCH_BYTES_MAX {
                break;
            }
            // Several readies without items may follow each other.
            while let Some(ready) = member.ready(&self.log, &self.data, &mut self.commands)? {
                if ready.items.is_empty() {
                    continue;
                }
                bytes += batch::bytes(&ready.items, 1);
                self.held.numbers.push((group, ready.number));
                self.held.items.extend(ready.items);
                break;
            }
        }
        Ok(())
    }

    /// False: a batch must land before, or the log must be cut.
    fn append_held(&mut self) -> Result<bool> {
        let checkpoints: usize = self.held.checkpoints.iter().map(Checkpoint::bytes).sum();
        let bytes = batch::bytes(&self.held.items, 1) + checkpoints as u64 + 8192;
        if !self.log.can_append(bytes) {
            return Ok(false);
        }
        if self.held.checkpoints.is_empty() && self.log.fill() >= 1.0 && self.log.flying() > 0 {
            return Ok(false);
        }
        match self
            .log
            .append(self.held.items.clone(), &self.held.checkpoints)
        {
            Ok((id, append)) => {
                let held = std::mem::take(&mut self.held);
                self.flying.insert(id, held.numbers);
                self.commands.push_back(Command::Log(append));
                Ok(true)
            }
            // A checkpoint makes room.
            Err(e) if e.kind() == base::ErrorKind::NoSpace => {
                self.held.checkpoints.append(&mut self.checkpoints);
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// Begins to write back, if it is time.
    fn flush(&mut self, now: Duration) {
        let state = State {
            log_fill: self.log.fill(),
            dirty_bytes: self.dirty_bytes(),
            since_last: now.saturating_sub(self.last_flush),
            has_applied: self.members.values().any(Member::has_applied),
        };
        let Some(speed) = self.policy.due(&state).filter(|_| !self.is_flushing) else {
            return;
        };
        let marked: Vec<Marked> = self.members.values_mut().filter_map(Member::mark).collect();
        if !marked.is_empty() {
            self.is_flushing = true;
            self.last_flush = now;
            self.commands.push_back(Command::WriteBack(marked, speed));
        }
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
