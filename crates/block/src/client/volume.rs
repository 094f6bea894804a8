//! An attached volume, without sockets: operations in, requests to stores out; responses in, replies out.
//!
//! ```text
//!   submit(token, op) ──> operations ──> requests by stripe unit ──> next_send()
//!                             │               │  ^ again, under the same number
//!   completed() <─────────────┘               └──┴── response(), disconnected(), tick()
//! ```
//!
//! **Attaching.** The epoch is raised in all groups first; operations wait until all have it.
//!
//! **Retries.** A request stays open until it is answered. After a timeout, after a lost connection, or if the
//! store is not the leader or is busy, it is sent again to the presumed leader. Once all replicas were asked,
//! there are pauses between the tries, which grow. A change keeps its number, so the group applies it once. A
//! store that did not answer in time is not asked again for the same time, even if others name it as the
//! leader, unless it answers meanwhile.
//!
//! **Failure.** An operation fails if a leader refuses it for good, or after [`Options::give_up_nanos`]. A
//! change of a failed operation may still be on its way, and must not be applied after a newer change of the
//! same block. So its number is used up by an empty change without a payload, and newer changes of its blocks
//! wait until that is answered.
//!
//! **Fencing.** Once a group has a newer epoch, all operations end with `ESHUTDOWN`.
//!
//! A flush completes at once, because every acknowledged change is durable. At most [`JOBS_MAX`] requests of an
//! operation are open at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::rng::Rng;
use base::{Error, Result};

use super::map::Map;
use super::operation::{Operation, Operations, range};
use super::target::Target;
use crate::group::command::Origin;
use crate::ids::{Attachment, Epoch, Group};
use crate::nbd::codec::Errno;
use crate::nbd::command::{Op, Reply};
use crate::nbd::exports::Token;
use crate::wire::client::{Outcome, Reason, Request, Response, Span, What, is_intact};

/// The most open requests of one operation.
pub const JOBS_MAX: u32 = 16;
/// How often the bytes of a read may not match their crcs until the read fails.
const DAMAGED_MAX: u32 = 3;

/// Timeouts and pauses, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When an unanswered request is sent again.
    pub timeout_nanos: u64,
    /// The first pause; each pause is twice as long as the one before.
    pub pause_nanos: u64,
    /// The longest pause.
    pub pause_nanos_max: u64,
    /// When an operation fails with `EIO`; `None`: never.
    pub give_up_nanos: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout_nanos: 2_000_000_000,
            pause_nanos: 20_000_000,
            pause_nanos_max: 1_000_000_000,
            give_up_nanos: None,
        }
    }
}

/// A request to be sent to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// The store.
    pub store: u64,
    /// The request.
    pub request: Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for room in its group's window.
    Waiting,
    /// Was sent to this store; its timer is the timeout.
    Sent { store: u64 },
    /// Is sent again when its timer is due.
    Paused,
}

/// A request until it is closed; its id is the request's id.
#[derive(Debug)]
struct Job {
    /// `None`: the request attaches the volume.
    operation: Option<u64>,
    part: usize,
    group: Group,
    what: What,
    seq: u64,
    state: State,
    since: u64,
    due: u64,
    /// Number of stores asked since the last pause.
    asked: usize,
    pauses: u32,
    damaged: u32,
}

/// An attached volume.
#[derive(Debug)]
pub struct Volume {
    map: Map,
    options: Options,
    epoch: Epoch,
    attachment: Attachment,
    now: u64,
    rng: Rng,
    targets: BTreeMap<Group, Target>,
    operations: Operations,
    next_job: u64,
    jobs: BTreeMap<u64, Job>,
    timers: BTreeSet<(u64, u64)>,
    sends: VecDeque<Send>,
    completed: Vec<(Token, Result<Reply, Errno>)>,
    fenced: Option<Epoch>,
}

impl Volume {
    /// Begins to attach a volume. `replicas`: the stores of each of its groups. Errors: a group has no replica.
    pub fn new(
        map: Map,
        replicas: &BTreeMap<Group, Vec<u64>>,
        (epoch, attachment): (Epoch, Attachment),
        options: Options,
        now_nanos: u64,
    ) -> Result<Self> {
        let mut targets = BTreeMap::new();
        for group in map.groups() {
            let stores = replicas.get(group).filter(|s| !s.is_empty());
            let stores = stores.ok_or_else(|| {
                Error::invalid_argument(format!("group {group} of a volume has no replicas"))
            })?;
            targets.insert(*group, Target::new(stores.clone()));
        }
        let groups: Vec<Group> = targets.keys().copied().collect();
        let mut volume = Self {
            map,
            options,
            epoch,
            attachment,
            now: now_nanos,
            rng: Rng::new(attachment.0),
            targets,
            operations: Operations::default(),
            next_job: 1,
            jobs: BTreeMap::new(),
            timers: BTreeSet::new(),
            sends: VecDeque::new(),
            completed: Vec::new(),
            fenced: None,
        };
        for group in groups {
            volume.add_job(None, 0, group, What::Attach);
        }
        Ok(volume)
    }

    /// Whether all groups have the epoch.
    pub fn is_attached(&self) -> bool {
        self.targets.values().all(|t| t.attached)
    }

    /// Whether a newer attachment of the volume exists.
    pub fn is_fenced(&self) -> bool {
        self.fenced.is_some()
    }

    /// The epoch of the newer attachment of the volume.
    pub fn fenced(&self) -> Option<Epoch> {
        self.fenced
    }

    /// Begins an operation; it completes exactly once, at any later time.
    pub fn submit(&mut self, token: Token, op: Op) {
        let (offset, len) = range(&op);
        let end = offset.checked_add(len);
        let is_inside = end.is_some_and(|end| end <= self.map.size());
        let at_once = if self.is_fenced() {
            Some(Err(Errno::Shutdown))
        } else if !is_inside {
            Some(Err(Errno::Invalid))
        } else if len == 0 || matches!(op, Op::Flush | Op::Cache { .. }) {
            Some(Ok(Reply::Done))
        } else {
            None
        };
        if let Some(how) = at_once {
            self.completed.push((token, how));
            return;
        }
        let operation = Operation::new(token, op, &self.map, self.now);
        let id = self.operations.insert(operation);
        self.go_on(id);
    }

    /// The next request to send.
    pub fn next_send(&mut self) -> Option<Send> {
        self.sends.pop_front()
    }

    /// Appends the operations that have completed since the last call.
    pub fn completed(&mut self, out: &mut Vec<(Token, Result<Reply, Errno>)>) {
        out.append(&mut self.completed);
    }

    /// When [`Volume::tick`] is due next.
    pub fn next_due(&self) -> Option<u64> {
        let limit = self.options.give_up_nanos;
        let mut open = self.operations.iter().filter(|(_, o)| !o.is_answered);
        let oldest = limit.and_then(|limit| Some(open.next()?.1.since.saturating_add(limit)));
        let timer = self.timers.first().map(|&(due, _)| due);
        timer.into_iter().chain(oldest).min()
    }

    /// Since when the oldest open request that was sent more than once is open.
    pub fn stuck_since(&self) -> Option<u64> {
        let again = |j: &&Job| j.asked > 1 || j.pauses > 0;
        self.jobs.values().filter(again).map(|j| j.since).min()
    }

    /// Advances the time and runs the timers that are due.
    pub fn tick(&mut self, now_nanos: u64) {
        self.now = self.now.max(now_nanos);
        while let Some(&(due, id)) = self.timers.first().filter(|t| t.0 <= self.now) {
            self.timers.remove(&(due, id));
            match self.jobs.get_mut(&id) {
                Some(job) if job.state == State::Paused => self.send(id),
                Some(job) => {
                    let target = self.targets.get_mut(&job.group);
                    if let (Some(target), Some(store)) = (target, job.state.store()) {
                        target.no_answer(store, self.now, self.now + self.options.timeout_nanos);
                    }
                    self.retry(id);
                }
                None => {}
            }
        }
        if let Some(limit) = self.options.give_up_nanos {
            let late = |o: &Operation| o.since.saturating_add(limit) <= self.now;
            let all = self.operations.iter().take_while(|(_, o)| late(o));
            let late: Vec<u64> = all
                .filter(|(_, o)| !o.is_answered)
                .map(|(id, _)| id)
                .collect();
            for id in late {
                self.give_up(id);
            }
        }
    }

    /// The connection to a store is lost, or there is none: requests that were sent to it will not be
    /// answered.
    pub fn disconnected(&mut self, store: u64) {
        self.sends.retain(|s| s.store != store);
        let sent = |j: &Job| j.state == State::Sent { store };
        let jobs = self.jobs.iter().filter(|(_, j)| sent(j));
        let ids: Vec<u64> = jobs.map(|(&id, _)| id).collect();
        for target in self.targets.values_mut() {
            target.leave(store, None, self.now);
        }
        for id in ids {
            self.retry(id);
        }
    }

    /// Handles the response of a store.
    pub fn response(&mut self, store: u64, response: Response) {
        let id = response.id;
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.state == State::Waiting {
            return;
        }
        if let Some(target) = self.targets.get_mut(&job.group) {
            target.answered(store);
        }
        let span = job.what.span();
        let len = u64::from(span.len);
        let is_good = match (&job.what, &response.outcome) {
            (_, Outcome::Refused(Reason::Fenced { epoch })) => return self.fence(*epoch),
            (_, Outcome::Refused(reason)) => {
                // The answer to an older copy of the request: the answer to the newer one decides.
                if job.state == (State::Sent { store }) {
                    self.refused(id, store, reason);
                }
                return;
            }
            (What::Read(_), Outcome::Data { pieces, crcs }) => {
                let all: u64 = pieces.iter().map(|p| u64::from(p.len())).sum();
                all == len && is_intact(span.offset, pieces, crcs)
            }
            (What::Status(_), Outcome::Status(runs)) => {
                runs.iter().map(|r| u64::from(r.len)).sum::<u64>() == len
            }
            (What::Read(_) | What::Status(_), _) => false,
            (_, outcome) => *outcome == Outcome::Done,
        };
        if is_good {
            return self.close(id, response.outcome);
        }
        job.damaged += 1;
        if job.damaged >= DAMAGED_MAX {
            self.fail(id, Errno::Io);
        } else {
            self.pause(id);
        }
    }

    fn refused(&mut self, id: u64, store: u64, reason: &Reason) {
        match reason {
            Reason::NotLeader { hint } => self.leave_and_retry(id, store, *hint),
            Reason::NoSpace => self.fail(id, Errno::NoSpace),
            Reason::Corrupt | Reason::Io(_) | Reason::TooFar => self.fail(id, Errno::Io),
            Reason::Busy | Reason::Fenced { .. } => self.pause(id),
        }
    }

    /// Makes the requests of an operation that may be opened now; settles the operation if none remain.
    fn go_on(&mut self, id: u64) {
        let is_attached = self.is_attached();
        while let Some(operation) = self.operations.get_mut(id) {
            let may_begin = is_attached && operation.is_free();
            if operation.has_more() && (!may_begin || operation.jobs >= JOBS_MAX) {
                return;
            }
            if let Some((part, group, what)) = operation.next(&self.map) {
                self.add_job(Some(id), part, group, what);
                continue;
            }
            if operation.jobs > 0 {
                return;
            }
            if !operation.is_answered {
                let reply = operation.reply();
                self.completed.push((operation.token, Ok(reply)));
            }
            for free in self.operations.remove(id) {
                self.go_on(free);
            }
        }
    }

    fn add_job(&mut self, operation: Option<u64>, part: usize, group: Group, what: What) {
        let id = self.next_job;
        self.next_job += 1;
        let job = Job {
            operation,
            part,
            group,
            what,
            seq: 0,
            state: State::Waiting,
            since: self.now,
            due: 0,
            asked: 0,
            pauses: 0,
            damaged: 0,
        };
        self.jobs.insert(id, job);
        if let Some(target) = self.targets.get_mut(&group) {
            target.waiting.push_back(id);
        }
        self.admit(group);
    }

    /// Sends the waiting requests of a group for which there is room now.
    fn admit(&mut self, group: Group) {
        while let Some(target) = self.targets.get_mut(&group)
            && let Some(&id) = target.waiting.front()
        {
            if let Some(job) = self.jobs.get_mut(&id) {
                let is_change = job.what.is_change();
                if !target.has_room(is_change) {
                    return;
                }
                job.seq = target.open(is_change);
            }
            target.waiting.pop_front();
            self.send(id);
        }
    }

    /// Sends a request to the presumed leader of its group.
    fn send(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(target) = self.targets.get(&job.group) else {
            return;
        };
        let store = target.leader();
        self.timers.remove(&(job.due, id));
        job.state = State::Sent { store };
        job.due = self.now + self.options.timeout_nanos;
        job.asked += 1;
        self.timers.insert((job.due, id));
        let request = Request {
            id,
            group: job.group,
            tree: self.map.tree(),
            layer: self.map.layer(),
            origin: Origin {
                epoch: self.epoch,
                attachment: self.attachment,
                seq: job.seq,
                lowest_open: target.lowest_open(),
            },
            what: job.what.clone(),
        };
        self.sends.push_back(Send { store, request });
    }

    fn leave_and_retry(&mut self, id: u64, store: u64, hint: Option<u64>) {
        let group = self.jobs.get(&id).map(|j| j.group);
        if let Some(target) = group.and_then(|g| self.targets.get_mut(&g)) {
            target.leave(store, hint, self.now);
        }
        self.retry(id);
    }

    /// Sends a request again: at once while some replica was not asked, else after a pause.
    fn retry(&mut self, id: u64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let replicas = self.targets.get(&job.group).map_or(0, Target::replicas);
        if job.asked < replicas {
            self.send(id);
        } else {
            self.pause(id);
        }
    }

    fn pause(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let wait = self.options.pause_nanos << job.pauses.min(16);
        let wait = wait.min(self.options.pause_nanos_max).max(1);
        self.timers.remove(&(job.due, id));
        job.pauses += 1;
        job.asked = 0;
        job.state = State::Paused;
        job.due = self.now + wait + self.rng.below(wait / 4 + 1);
        self.timers.insert((job.due, id));
    }

    /// Closes a request with its final answer.
    fn close(&mut self, id: u64, outcome: Outcome) {
        let Some(job) = self.jobs.remove(&id) else {
            return;
        };
        self.timers.remove(&(job.due, id));
        if let Some(target) = self.targets.get_mut(&job.group) {
            match job.state {
                State::Waiting => target.waiting.retain(|&w| w != id),
                State::Sent { .. } | State::Paused => target.close(job.seq),
            }
            target.attached |= job.what == What::Attach;
        }
        match job.operation {
            Some(operation) => {
                if let Some(o) = self.operations.get_mut(operation) {
                    o.jobs -= 1;
                    o.put(job.part, outcome);
                }
                self.go_on(operation);
            }
            None if self.is_attached() => {
                let held: Vec<u64> = self.operations.iter().map(|(id, _)| id).collect();
                for id in held {
                    self.go_on(id);
                }
            }
            None => {}
        }
        self.admit(job.group);
    }

    /// A request failed for good, and so does its operation.
    fn fail(&mut self, id: u64, errno: Errno) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let (operation, is_change) = (job.operation, job.what.is_change());
        if let Some(operation) = operation {
            self.answer(operation, errno);
        }
        if is_change || operation.is_none() {
            self.use_up(id);
            self.pause(id);
        } else {
            self.close(id, Outcome::Done);
        }
    }

    /// Turns a change into an empty one that uses up its number.
    fn use_up(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id).filter(|j| j.what.is_change()) {
            job.what = What::Zero(Span {
                chunk: job.what.span().chunk,
                ..Span::default()
            });
        }
    }

    fn answer(&mut self, operation: u64, errno: Errno) {
        if let Some(o) = self.operations.get_mut(operation)
            && !o.is_answered
        {
            o.is_answered = true;
            self.completed.push((o.token, Err(errno)));
        }
    }

    fn give_up(&mut self, operation: u64) {
        self.answer(operation, Errno::Io);
        let jobs = self.jobs.iter();
        let of = jobs.filter(|(_, j)| j.operation == Some(operation));
        let of: Vec<(u64, bool)> = of
            .map(|(&id, j)| (id, j.what.is_change() && j.state != State::Waiting))
            .collect();
        for (id, may_be_applied) in of {
            if may_be_applied {
                self.use_up(id);
            } else {
                self.close(id, Outcome::Done);
            }
        }
        self.go_on(operation);
    }

    /// The volume has a newer attachment.
    fn fence(&mut self, epoch: Epoch) {
        self.fenced = Some(epoch);
        let open: Vec<u64> = self.operations.iter().map(|(id, _)| id).collect();
        for id in open {
            self.answer(id, Errno::Shutdown);
        }
        self.operations = Operations::default();
        self.jobs.clear();
        self.timers.clear();
        self.sends.clear();
    }
}

impl State {
    fn store(self) -> Option<u64> {
        match self {
            Self::Sent { store } => Some(store),
            Self::Waiting | Self::Paused => None,
        }
    }
}

#[cfg(test)]
mod tests;
