//! What a store takes in: messages of other replicas and requests of clients, and which of them wait until there is
//! room.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Result;
use bytes::Bytes;

use super::super::member::{Inbox, Member, refuse_busy, refuse_unknown};
use super::super::pending::Open;
use super::Core;
use crate::group::message::{Body, CopyStep, Message};
use crate::group::raft::Role;
use crate::ids::Group;
use crate::wire::client::{Request, What};

/// If this many bytes wait for the log, changes of clients and entries of leaders are not taken.
const HELD_BYTES_MAX: u64 = 24 << 20;
/// The most in-place writes that may wait for others.
const IN_PLACE_MAX: usize = 4096;

impl Core {
    /// Whether changes of clients and entries of leaders must wait until something is written.
    pub(super) fn is_full(&self) -> bool {
        let in_place: usize = self.members.values().map(Member::waiting_in_place).sum();
        self.is_blocked || self.held.bytes() >= HELD_BYTES_MAX || in_place >= IN_PLACE_MAX
    }

    /// Handles a peer's message. An invalid one is dropped: the fault is the peer's, not this store's. Entries
    /// for which there is no room are cut off; the leader sends them again. The rest of the message is handled:
    /// otherwise the leader would not learn which entries are here, so none of them could be committed, and no
    /// room would ever be made.
    pub(super) fn message(
        &mut self,
        group: Group,
        mut message: Message,
        mut payloads: Vec<Bytes>,
    ) -> Result<()> {
        let dirty_max = self.policy.dirty_bytes_max + self.policy.dirty_bytes_max / 8;
        let is_full = self.is_full() || self.dirty_bytes() >= dirty_max;
        match &mut message.body {
            // Entries without payloads always have room; among them is a new leader's empty entry, without
            // which older ones cannot be committed.
            Body::Append { entries, .. } if is_full => {
                let fit = payloads.iter().take_while(|p| p.is_empty()).count();
                entries.truncate(fit);
                payloads.truncate(fit);
            }
            // The leader repeats the step. Blocks of a copy need no room in the log, and the end of a copy
            // makes room.
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

    pub(super) fn request(&mut self, now: Duration, client: u64, request: Request) {
        let bytes = request.what.payload_bytes();
        let brings = request.what.is_change() || request.what == What::Attach;
        // A store that is not the leader answers at once, which needs no room.
        if !brings || !leads(&self.members, request.group) {
            return self.admit(now, client, request);
        }
        self.came += bytes;
        if let Err(id) = self.pending.push(client, request) {
            refuse_busy(client, id, &mut self.commands);
        }
    }

    /// Begins waiting changes for which there is room.
    pub(super) fn admit_changes(&mut self, now: Duration) {
        // Changes of a group that was handed over must not wait here.
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
            None => refuse_unknown(client, request.id, &mut self.commands),
        }
    }
}

fn leads(members: &BTreeMap<Group, Member>, group: Group) -> bool {
    let member = members.get(&group);
    member.is_some_and(|m| m.node().role() == Role::Leader)
}
