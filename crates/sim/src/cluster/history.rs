//! A history: the operations of clients, their times, and their answers.
//!
//! ```text
//!   write(client, block, value) ─┬─ answered    it has happened, between start and end
//!                                ├─ refused     it has not happened and never will
//!                                └─ (nothing)   it may happen at any time after its start, or never
//!   read(client, block) ─────────┬─ returned(value)
//!                                └─ (nothing)   says nothing
//! ```
//!
//! Each block is a register of its own. A request over several blocks is one operation for each of them:
//! nothing is stated about their order. A block holds zero before anything is written, and after trims and
//! writes of zeros.
//!
//! **Time.** The simulation has one thread, so the order of the calls of [`History`] is the order of
//! events, even if several happen in one nanosecond. An operation starts and ends at the number of its
//! call; the time of the simulation is kept for people. A history with equal times would be a weaker one:
//! an operation that starts when another ends counts as concurrent with it.

use std::collections::BTreeSet;
use std::fmt;

/// The content of a block before anything is written, and after a trim.
pub const ZERO: u64 = 0;

/// What an operation does to its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Writes a value.
    Write,
    /// Reads the value.
    Read,
}

/// The answer that the client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has taken effect; answered at this moment.
    Answered(u64),
    /// No answer.
    Unanswered,
    /// It has not taken effect and never will.
    Refused,
}

/// One operation on one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The client. It may have many open operations.
    pub client: u64,
    /// The block.
    pub block: u64,
    /// Read or write.
    pub action: Action,
    /// The value that was written or that the read returned; meaningless for reads without an answer.
    pub value: u64,
    /// The moment of its start.
    pub start: u64,
    /// Its outcome.
    pub outcome: Outcome,
    /// Nanoseconds of the simulation at the start and at the end, for people.
    pub nanos: [u64; 2],
}

impl Operation {
    /// The moment by which it has taken effect; the end of time if there is no answer.
    pub fn end(&self) -> u64 {
        match self.outcome {
            Outcome::Answered(end) => end,
            Outcome::Unanswered | Outcome::Refused => u64::MAX,
        }
    }

    /// Whether its client was told that it has taken effect.
    pub fn is_answered(&self) -> bool {
        matches!(self.outcome, Outcome::Answered(_))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Write => "write",
            Action::Read => "read",
        };
        write!(f, "client {} {action} {} ", self.client, self.value)?;
        match self.outcome {
            Outcome::Answered(end) => write!(f, "[{}, {end}]", self.start)?,
            Outcome::Unanswered => write!(f, "[{}, unanswered]", self.start)?,
            Outcome::Refused => write!(f, "[{}, refused]", self.start)?,
        }
        match (self.nanos, self.outcome) {
            ([0, 0], _) => Ok(()),
            ([from, to], Outcome::Answered(_)) => write!(f, " at {from}..{to} ns"),
            ([from, _], _) => write!(f, " at {from} ns"),
        }
    }
}

/// Identifies an operation of a [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "the operation ends by it"]
pub struct Ticket(usize);

/// Records the operations of clients. Times are nanoseconds of the simulation.
///
/// ```
/// use sim::cluster::{history::History, linear};
/// let mut history = History::default();
/// let write = history.write(1, 0, 77, 1000);
/// history.answered(write, 2000);
/// let read = history.read(2, 0, 3000);
/// history.returned(read, 0, 4000);
/// let lost = linear::check(history.operations()).unwrap_err();
/// assert!(lost.to_string().contains("block 0"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
    /// Indices of operations, and the moment by which they have taken effect or never will.
    ended_by: Vec<(usize, u64)>,
    moments: u64,
    last_nanos: u64,
}

impl History {
    /// A client starts to write a value. Except for [`ZERO`], a value should be written only once to a
    /// block: others are checked too, by a search that may be too long.
    pub fn write(&mut self, client: u64, block: u64, value: u64, now: u64) -> Ticket {
        self.begin(client, block, Action::Write, value, now)
    }

    /// A client starts to read a block.
    pub fn read(&mut self, client: u64, block: u64, now: u64) -> Ticket {
        self.begin(client, block, Action::Read, ZERO, now)
    }

    /// The write is acknowledged.
    pub fn answered(&mut self, ticket: Ticket, now: u64) {
        let at = self.moment(now);
        let operation = self.open(ticket);
        assert_eq!(operation.action, Action::Write, "{operation}");
        operation.outcome = Outcome::Answered(at);
        operation.nanos[1] = now;
    }

    /// The read returns this value.
    pub fn returned(&mut self, ticket: Ticket, value: u64, now: u64) {
        let at = self.moment(now);
        let operation = self.open(ticket);
        assert_eq!(operation.action, Action::Read, "{operation}");
        operation.value = value;
        operation.outcome = Outcome::Answered(at);
        operation.nanos[1] = now;
    }

    /// The operation failed in a way that promises that it has no effect, now or later. Any other failure
    /// counts as no answer.
    pub fn refused(&mut self, ticket: Ticket, now: u64) {
        self.moment(now);
        let operation = self.open(ticket);
        operation.outcome = Outcome::Refused;
        operation.nanos[1] = now;
    }

    /// The moment of this call: operations that ended before have ended before it.
    pub fn mark(&mut self, now: u64) -> u64 {
        self.moment(now)
    }

    /// Records what is known of unanswered operations: those that began before `moment` have taken effect
    /// by then or never will, and the others never will.
    ///
    /// If some client has read such a write's value, it has taken effect; otherwise that is unknown.
    pub fn end_by(&mut self, tickets: &[Ticket], moment: u64) {
        for ticket in tickets {
            self.ended_by.push((ticket.0, moment));
        }
    }

    /// All operations so far, like [`History::operations`], with the outcomes that [`History::end_by`]
    /// implies.
    pub fn judged(&self) -> Vec<Operation> {
        let mut all = self.operations.clone();
        let answered = all.iter().filter(|o| o.is_answered());
        let reads = answered.filter(|o| o.action == Action::Read);
        let read: BTreeSet<(u64, u64)> = reads.map(|o| (o.block, o.value)).collect();
        for &(nth, moment) in &self.ended_by {
            let Some(o) = all.get_mut(nth) else { continue };
            if o.action != Action::Write || o.value == ZERO {
                continue;
            }
            if o.start > moment {
                o.outcome = Outcome::Refused;
            } else if o.outcome == Outcome::Unanswered && read.contains(&(o.block, o.value)) {
                o.outcome = Outcome::Answered(moment);
            }
        }
        all
    }

    /// All operations so far, in the order of their starts.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    fn begin(&mut self, client: u64, block: u64, action: Action, value: u64, now: u64) -> Ticket {
        let start = self.moment(now);
        self.operations.push(Operation {
            client,
            block,
            action,
            value,
            start,
            outcome: Outcome::Unanswered,
            nanos: [now, now],
        });
        Ticket(self.operations.len() - 1)
    }

    fn moment(&mut self, now: u64) -> u64 {
        assert!(now >= self.last_nanos, "time went back to {now} ns");
        self.last_nanos = now;
        self.moments += 1;
        self.moments
    }

    fn open(&mut self, ticket: Ticket) -> &mut Operation {
        let operation = &mut self.operations[ticket.0];
        let open = operation.outcome == Outcome::Unanswered;
        assert!(open, "ended twice: {operation}");
        operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::linear;

    /// Operations of a replaced client: one before it was replaced, one after, with and without a read.
    fn history(reads_at_once: bool, late: bool) -> History {
        let mut history = History::default();
        let old = [history.write(1, 0, 5, 1)];
        if reads_at_once {
            let read = history.read(2, 0, 2);
            history.returned(read, 5, 3);
        }
        let moment = history.mark(4);
        let new = [history.write(1, 0, 6, 5)];
        history.end_by(&old, moment);
        history.end_by(&new, moment);
        let read = history.read(2, 0, 6);
        history.returned(read, if late { 6 } else { ZERO }, 7);
        history
    }

    #[test]
    fn a_replaced_client_changes_nothing_later() {
        let check = |h: &History| linear::check(&h.judged());
        assert!(check(&history(false, false)).is_ok());
        let e = check(&history(false, true)).unwrap_err().to_string();
        assert!(e.contains("refused"), "{e}");
        let e = check(&history(true, false)).unwrap_err().to_string();
        assert!(e.contains("block 0"), "{e}");

        let mut history = History::default();
        let old = [history.write(1, 0, 5, 1)];
        let moment = history.mark(2);
        history.end_by(&old, moment);
        let read = history.read(2, 0, 3);
        history.returned(read, ZERO, 4);
        let read = history.read(2, 0, 5);
        history.returned(read, 5, 6);
        assert!(linear::check(history.operations()).is_ok());
        let e = check(&history).unwrap_err().to_string();
        assert!(
            e.contains("value 5"),
            "applied behind the newer attachment: {e}"
        );
    }
}
