//! Write-backs of a store: when one begins and what it takes, and what follows once it is durable or has failed.

use std::time::Duration;

use base::{ErrorKind, Result};

use super::super::member::Member;
use super::{Command, Core};
use crate::store::flush::{Speed, State};
use crate::store::sync::{Failed, Marked, SyncSlot, SyncTicket};

/// After this many failed write-backs in a row the store fails.
pub(super) const WRITE_BACKS_MAX: u32 = 6;
/// The base of the pause after a failed write-back, which doubles each time.
const WRITE_BACK_PAUSE: Duration = Duration::from_millis(500);

impl Core {
    /// Nothing is lost, because the blocks are in the log and in memory. The write-back is tried again after a
    /// pause. Errors: too many have failed in a row.
    pub(super) fn not_written(&mut self, now: Duration, failed: Failed) -> Result<()> {
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
                // This error has a hint of its own.
                ErrorKind::NoSpace => failed.error,
                _ => failed
                    .error
                    .hint("the data file cannot be written: replace the disk"),
            });
        }
        Ok(())
    }

    pub(super) fn state(&self, now: Duration) -> State {
        State {
            log_fill: self.log.fill_unproven(),
            dirty_bytes: self.dirty_bytes(),
            since_last: now.saturating_sub(self.last_flush),
            rate: self.rate,
            has_applied: self.members.values().any(Member::has_applied),
        }
    }

    pub(super) fn written_back(&mut self, tickets: Vec<(SyncTicket, SyncSlot)>) -> Result<()> {
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

    /// Begins a write-back, if one is due.
    pub(super) fn flush(&mut self, now: Duration) {
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
            // Nothing but a write-back makes room.
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
