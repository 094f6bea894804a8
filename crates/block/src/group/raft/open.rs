//! Opening a node from its group's log, after a restart or after a copy.

use std::collections::{BTreeMap, VecDeque};

use base::{Error, Result};
use bytes::Bytes;
use raft::eraftpb;
use raft::{RaftState, RawNode, StateRole};

use super::super::members::Members;
use super::heads::{self, Heads};
use super::ready::{FLAG_CHANGE, RoleChange};
use super::{Config, Node, broken, convert};
use crate::ids::{Group, Index};
use crate::raftlog::RaftLog;
use crate::raftlog::groups::{GroupLog, HardState};

impl Node {
    /// A replica of `group` that has applied everything up to `applied`, where its members are `members`. A
    /// new replica has applied nothing; its members are those that the group was created with.
    ///
    /// Errors: Corruption, if the log lacks entries that the replica has applied, or that it knows to be
    /// committed.
    pub fn open(
        group: Group,
        id: u64,
        members: &Members,
        log: &RaftLog,
        applied: Index,
        config: Config,
    ) -> Result<Self> {
        members.check()?;
        let none = GroupLog::default();
        let found = log.groups().get(group).unwrap_or(&none);
        let hard = hard_state(group, found, applied)?;
        let heads = heads_of(found, &hard, members, applied);
        let raft_config = raft::Config {
            id,
            election_tick: config.election_ticks,
            heartbeat_tick: config.heartbeat_ticks,
            applied: applied.0,
            max_size_per_msg: config.append_inline_bytes,
            max_inflight_msgs: config.appends_max,
            check_quorum: true,
            pre_vote: true,
            max_committed_size_per_ready: config.committed_inline_bytes,
            batch_append: true,
            // Followers learn of a commit with the next entries or a heartbeat. Otherwise each write would wake
            // them, and through their answers this leader, a second time.
            skip_bcast_commit: true,
            ..raft::Config::default()
        };
        if id == 0 {
            return Err(Error::invalid_argument("0 is no replica"));
        }
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&raft_config, heads, &logger).map_err(|e| broken(&e))?;
        let told = RoleChange {
            term: hard.term,
            ..RoleChange::default()
        };
        let mut node = Self {
            group,
            silent: config.silent_ticks,
            config,
            raw,
            members: members.clone(),
            stash: BTreeMap::new(),
            uncommitted: VecDeque::new(),
            uncommitted_bytes: 0,
            hard,
            waiting: VecDeque::new(),
            first_number: 0,
            given: 0,
            transfer_term: 0,
            timeout: (0, 0, StateRole::Follower, 0),
            round: 0,
            rounds: BTreeMap::new(),
            unheard: super::Unheard::default(),
            told,
            is_broken: false,
        };
        node.settled();
        Ok(node)
    }

    /// Whether all readies are durable, so that [`Node::reopen`] can be called.
    pub fn may_reopen(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the log no longer has the next entry to apply: it starts anew, behind a copy that is not durable
    /// yet.
    pub fn is_behind(&self, log: &RaftLog) -> bool {
        let applied = self.raw.raft.raft_log.applied;
        let found = log.groups().get(self.group);
        found.is_some_and(|g| g.first().0 > applied + 1)
    }

    /// Continues at the log's durable checkpoint, after a copy from a peer was completed or given up. The
    /// replica is as after a restart, and grants no votes for a while. False: some readies are not durable yet.
    ///
    /// Errors: Corruption as in [`Node::open`].
    pub fn reopen(&mut self, log: &RaftLog, members: &Members) -> Result<bool> {
        if !self.may_reopen() {
            return Ok(false);
        }
        let found = log.groups().get(self.group);
        let applied = found.map_or(Index(0), |g| g.synced().0);
        let numbers = self.first_number + self.given;
        let id = self.id();
        // This holds also if the group was new when the store was opened.
        self.config.silent_ticks = self.config.election_ticks;
        let mut next = Self::open(self.group, id, members, log, applied, self.config.clone())?;
        next.first_number = numbers;
        next.told = self.told;
        *self = next;
        Ok(true)
    }
}

/// The first hard state. Errors: it contradicts the entries.
fn hard_state(group: Group, found: &GroupLog, applied: Index) -> Result<HardState> {
    let mut hard = found.hard();
    let (first, last) = (found.first(), found.last());
    let missing = |what: &str, index: Index| {
        let why = format!("group {group} has {what} {index}, and its log ends at {last}");
        Err(Error::corruption(why).hint("bring its own files back, or leave the store out"))
    };
    if hard.commit > last {
        return missing("committed entry", hard.commit);
    }
    if applied > last {
        return missing("applied entry", applied);
    }
    if applied.0 + 1 < first.0 {
        return Err(Error::corruption(format!(
            "group {group} has applied entry {applied}, and its log begins at {first}"
        )));
    }
    hard.commit = hard.commit.max(applied);
    // The entries were durable, but the hard state that was appended with them was not: so no message about
    // them was sent.
    let last_term = found.term(last).unwrap_or_default();
    if hard.term < last_term {
        (hard.term, hard.vote) = (last_term, 0);
    }
    Ok(hard)
}

fn heads_of(found: &GroupLog, hard: &HardState, members: &Members, applied: Index) -> Heads {
    let first = found.first().0;
    let truncated = first - 1;
    let truncated_term = found.term(Index(truncated)).unwrap_or_default();
    let entries = (first..=found.last().0).filter_map(|index| {
        let entry = found.entry(Index(index))?;
        let mut out = eraftpb::Entry {
            index,
            term: entry.term.0,
            // A copy, because a slice of the log's bytes would keep a whole batch in memory.
            data: Bytes::copy_from_slice(&entry.inline),
            ..eraftpb::Entry::default()
        };
        if entry.flags & FLAG_CHANGE != 0 {
            out.set_entry_type(eraftpb::EntryType::EntryConfChangeV2);
        }
        Some(out)
    });
    Heads {
        truncated: (truncated, truncated_term.0),
        entries: entries.collect(),
        initial: RaftState::new(
            heads::hard_state(hard.term.0, hard.vote, hard.commit.0),
            convert::conf_state(members),
        ),
        applied: applied.0,
    }
}
