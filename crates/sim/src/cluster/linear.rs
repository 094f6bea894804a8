//! Checks whether the answers of a history are those of a single copy of each block: linearizability
//! (Herlihy, Wing 1990), in O(n log n) by the zones of Gibbons and Korach (Testing shared memories, 1997).
//!
//! A *cluster* is a write and the reads of its value. In any order that a single copy could have followed,
//! the operations of a cluster are adjacent, the write first. Let `f` be the first end in a cluster and `s`
//! its last start. Cluster A must come before B if an operation of A ends before one of B starts, that is,
//! if `f(A) < s(B)`. An order exists unless two clusters must each come before the other:
//!
//! ```text
//!   forward zone, f < s    the value was there all the time between      f├──────┤s
//!   backward zone, s <= f  the value need not have been there but once   s├┄┄┄┄┄┄┤f
//!
//!   forward on forward          ├──────┤          backward in forward   ├────────────┤
//!   overlap: no order               ├──────┤      no order                  ├┄┄┄┤
//! ```
//!
//! Longer cycles need no check: if `f(i) < s(i+1)` all around and no two clusters contradict each other,
//! then `s(i-1) <= f(i) < s(i+1)`, so `s` would grow around a circle.
//!
//! **Convention.** An operation comes before another if it ends before the other starts, but not if both
//! are the same moment: intervals are closed, zones are open. So zones may touch, and an operation may
//! start and end at one moment. [`History`](super::history::History) has no equal moments.
//!
//! **No answer.** A write without an answer ends at the end of time if its value was read; otherwise it is
//! left out. Reads without an answer and refused operations are left out.
//!
//! **Zero** is there from the beginning, as if written before time, and trims write it again. If the reads
//! of a value may belong to several writes, there are no clusters: such a block is left to [`search`]. That
//! is not the case if zero is not read after the block was trimmed, or if trims were not answered before
//! the last such read ended.

use super::history::{Action, Operation, Outcome, ZERO};
use super::search;
use super::shrink::shrink;
use super::violation::{Reason, Violation, Violations};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations that count: answered ones, and writes without an answer.
    pub operations: usize,
    /// Number of blocks that they access.
    pub blocks: usize,
    /// Blocks that were searched because values in them are not unique.
    pub searched: usize,
    /// Those of them whose search was too long, so that nothing is known of them.
    pub undecided: Vec<u64>,
}

/// Checks every block of a history.
///
/// # Errors
/// The blocks whose answers a single copy cannot give.
///
/// # Panics
/// If an operation ends before it starts.
pub fn check(operations: &[Operation]) -> Result<Tally, Violations> {
    check_within(operations, search::WORK_MAX)
}

/// [`check`] with a bound on the work of each search.
///
/// # Errors
/// The blocks whose answers a single copy cannot give.
pub fn check_within(operations: &[Operation], work_max: u64) -> Result<Tally, Violations> {
    let mut sorted: Vec<Key> = Vec::with_capacity(operations.len());
    for (i, o) in operations.iter().enumerate() {
        assert!(o.start <= o.end(), "ends before it starts: {o}");
        let counts = match o.outcome {
            Outcome::Answered(_) => true,
            Outcome::Unanswered => o.action == Action::Write,
            Outcome::Refused => false,
        };
        if counts {
            sorted.push((o.block, o.value, i));
        }
    }
    sorted.sort_unstable();
    let mut tally = Tally {
        operations: sorted.len(),
        ..Tally::default()
    };
    let mut found = Vec::new();
    for keys in sorted.chunk_by(|a, b| a.0 == b.0) {
        tally.blocks += 1;
        let block = Block { operations, keys };
        found.extend(block.check(work_max, &mut tally));
    }
    if found.is_empty() {
        return Ok(tally);
    }
    found.sort_by_key(|v| (v.length(), v.block));
    Err(Violations(found))
}

/// Block, value, and index in the history.
type Key = (u64, u64, usize);

/// A moment; `None` is before time.
type Moment = Option<u64>;

/// A cluster in short form.
#[derive(Clone, Copy, Debug)]
struct Zone<'a> {
    /// `f`: the first end.
    first_end: Moment,
    /// `s`: the last start.
    last_start: Moment,
    /// The keys of its value that count, which are those of its operations.
    keys: &'a [Key],
    /// The index of the write, unless that was before time.
    write: Option<usize>,
}

impl Zone<'_> {
    fn is_forward(&self) -> bool {
        self.first_end < self.last_start
    }

    fn contradicts(&self, other: &Self) -> bool {
        self.first_end < other.last_start && other.first_end < self.last_start
    }
}

/// The operations of one block that count.
#[derive(Clone, Copy)]
struct Block<'a> {
    operations: &'a [Operation],
    keys: &'a [Key],
}

/// The result for the operations of one value.
enum Value {
    /// Their zones have been added.
    Clear,
    /// It is unknown which read belongs to which write.
    Ambiguous,
    /// They are impossible.
    Wrong(Box<Reason>),
}

impl<'a> Block<'a> {
    fn check(&self, work_max: u64, tally: &mut Tally) -> Option<Violation> {
        let (mut zones, mut wrong, mut ambiguous) = (Vec::new(), Vec::new(), false);
        for keys in self.keys.chunk_by(|a, b| a.1 == b.1) {
            match self.add_zones(keys, &mut zones) {
                Value::Clear => {}
                Value::Ambiguous => ambiguous = true,
                Value::Wrong(reason) => wrong.push(self.violation(*reason, Vec::new())),
            }
        }
        // A contradiction without the ambiguous values is also one with them.
        if let Some(shortest) = wrong.into_iter().min_by_key(Violation::length) {
            return Some(shortest);
        }
        if let Some((one, other)) = contradiction(&mut zones) {
            return Some(self.two_orders(&one, &other));
        }
        if ambiguous {
            tally.searched += 1;
            return self.search(work_max, tally);
        }
        None
    }

    fn violation(&self, reason: Reason, writes: Vec<Operation>) -> Violation {
        Violation {
            block: self.keys[0].0,
            reason,
            writes,
        }
    }

    fn of(&self, keys: &'a [Key], action: Action) -> impl Iterator<Item = (usize, &'a Operation)> {
        let operations = self.operations;
        let all = keys.iter().map(move |&(_, _, i)| (i, &operations[i]));
        all.filter(move |(_, o)| o.action == action)
    }

    /// Adds the clusters of one value.
    fn add_zones(&self, keys: &'a [Key], zones: &mut Vec<Zone<'a>>) -> Value {
        let is_zero = keys[0].1 == ZERO;
        let last_read = self.of(keys, Action::Read).map(|(_, o)| o.end()).max();
        let mut sources = usize::from(is_zero && last_read.is_some());
        let mut write = None;
        for (i, o) in self.of(keys, Action::Write) {
            if last_read.is_some_and(|end| o.start <= end) {
                sources += 1;
                write = Some(i);
            } else if o.is_answered() {
                zones.push(Zone {
                    first_end: Some(o.end()),
                    last_start: Some(o.start),
                    keys: &[],
                    write: Some(i),
                });
            }
        }
        match (last_read, sources) {
            (None, _) => Value::Clear,
            (Some(_), 0) => self.without_source(keys),
            (Some(_), 1) => self.add_cluster(keys, write, zones),
            (Some(_), _) => Value::Ambiguous,
        }
    }

    /// The value was read, and no write exists that a read could have seen.
    fn without_source(&self, keys: &'a [Key]) -> Value {
        let reads = self.of(keys, Action::Read);
        let Some((_, &read)) = reads.min_by_key(|(_, o)| o.end()) else {
            return Value::Clear;
        };
        if let Some((_, &write)) = self.of(keys, Action::Write).next() {
            return Value::Wrong(Box::new(Reason::BeforeItsWrite { read, write }));
        }
        let is_refused = |o: &&Operation| {
            (o.block, o.value) == (read.block, read.value)
                && o.action == Action::Write
                && o.outcome == Outcome::Refused
        };
        Value::Wrong(Box::new(match self.operations.iter().find(is_refused) {
            Some(&write) => Reason::OfRefused { read, write },
            None => Reason::NeverWritten { read },
        }))
    }

    /// Adds the cluster of a write, or of the initial value, with all reads of the value.
    fn add_cluster(
        &self,
        keys: &'a [Key],
        write: Option<usize>,
        zones: &mut Vec<Zone<'a>>,
    ) -> Value {
        let own = write.map(|i| &self.operations[i]);
        let mut zone = Zone {
            first_end: own.map(Operation::end),
            last_start: own.map(|o| o.start),
            keys,
            write,
        };
        for (_, &read) in self.of(keys, Action::Read) {
            if let Some(&write) = own.filter(|w| read.end() < w.start) {
                return Value::Wrong(Box::new(Reason::BeforeItsWrite { read, write }));
            }
            zone.first_end = zone.first_end.min(Some(read.end()));
            zone.last_start = zone.last_start.max(Some(read.start));
        }
        zones.push(zone);
        Value::Clear
    }

    /// The operations of a cluster.
    fn members(&self, zone: &Zone<'a>) -> Vec<Operation> {
        let mut members: Vec<Operation> =
            zone.write.map(|i| self.operations[i]).into_iter().collect();
        members.extend(self.of(zone.keys, Action::Read).map(|(_, o)| *o));
        members
    }

    /// Describes why two clusters must each come before the other, with as few operations as possible.
    fn two_orders(&self, one: &Zone<'a>, other: &Zone<'a>) -> Violation {
        let (mut one, mut other) = (one, other);
        let (mut ones, mut others) = (self.members(one), self.members(other));
        let between = |all: &[Operation], zone: &Zone<'_>| {
            let is_between =
                |o: &&Operation| zone.first_end < Some(o.start) && Some(o.end()) < zone.last_start;
            all.iter().find(is_between).copied()
        };
        let mut middle = between(&others, one);
        let turned = between(&ones, other);
        if one.write.is_some() && (other.write.is_none() || middle.is_none() && turned.is_some()) {
            std::mem::swap(&mut one, &mut other);
            std::mem::swap(&mut ones, &mut others);
            middle = turned;
        }
        let first = |all: &[Operation]| all.iter().min_by_key(|o| o.end()).copied();
        let last = |all: &[Operation]| all.iter().max_by_key(|o| o.start).copied();
        let begins = if one.write.is_some() {
            first(&ones)
        } else {
            None
        };
        let parts = (
            middle.or(last(&others)),
            middle.or(first(&others)),
            last(&ones),
        );
        let (Some(forth), Some(back), Some(ends)) = parts else {
            unreachable!("clusters that contradict each other have operations");
        };
        let reason = Reason::TwoOrders {
            forth: (begins, forth),
            back: (back, ends),
        };
        let named = [begins, Some(forth), Some(back), Some(ends)];
        let writes = [one.write, other.write].into_iter().flatten();
        let writes = writes.map(|i| self.operations[i]);
        self.violation(
            reason,
            writes.filter(|&w| !named.contains(&Some(w))).collect(),
        )
    }

    fn search(&self, work_max: u64, tally: &mut Tally) -> Option<Violation> {
        let mut all: Vec<Operation> = self.keys.iter().map(|k| self.operations[k.2]).collect();
        all.sort_by_key(|o| (o.start, o.end()));
        let (found, reached) = search::explore(ZERO, &all, work_max);
        if found == Some(true) {
            return None;
        }
        // A contradiction in a part is also one in the whole, even if the whole was not searched to the
        // end.
        let part = near(&all, reached, work_max / NEAR_WORK).or_else(|| {
            found?;
            let none = |some: &[Operation]| search::linearizable(some, work_max) == Some(false);
            let early = shortest(&all, none);
            near(&early, *answers(&early).last()?, work_max).or(Some((early, None)))
        });
        if part.is_none() && found.is_none() {
            tally.undecided.push(self.keys[0].0);
            return None;
        }
        let (operations, since) = part.unwrap_or((all, None));
        Some(self.violation(Reason::NoOrder { operations, since }, Vec::new()))
    }
}

/// The two clusters of the shortest contradiction. Sorts the zones.
fn contradiction<'a>(zones: &mut [Zone<'a>]) -> Option<(Zone<'a>, Zone<'a>)> {
    zones.sort_unstable_by_key(|z| (z.first_end, z.last_start));
    // The forward zones, by their first end, that last longer than all before them.
    let mut reach: Vec<Zone<'a>> = Vec::new();
    let mut found: Option<(u64, Zone<'a>, Zone<'a>)> = None;
    let mut meet = |one: &Zone<'a>, other: &Zone<'a>| {
        if one.contradicts(other) {
            let to = one.last_start.max(other.last_start).unwrap_or(0);
            let from = one.first_end.min(other.first_end).unwrap_or(0);
            let long = to.saturating_sub(from);
            if found.as_ref().is_none_or(|f| long < f.0) {
                found = Some((long, *one, *other));
            }
        }
    };
    for zone in zones.iter().filter(|z| z.is_forward()) {
        if let Some(longest) = reach.last() {
            meet(longest, zone);
        }
        if reach.last().is_none_or(|r| r.last_start < zone.last_start) {
            reach.push(*zone);
        }
    }
    for zone in zones.iter().filter(|z| !z.is_forward()) {
        let begun = reach.partition_point(|r| r.first_end < zone.last_start);
        if let Some(longest) = begun.checked_sub(1).and_then(|i| reach.get(i)) {
            meet(longest, zone);
        }
    }
    found.map(|(_, one, other)| (one, other))
}

/// The most tries to make a contradiction smaller, for values and for reads.
const TRIES_MAX: usize = 300;
/// The number of answers before and after a moment among which a contradiction is looked for: the first
/// number, an eighth more each time, and less than the end. The steps are small, because trims that are
/// open at the first answer may count as not yet applied for ever after.
const NEAR: std::ops::Range<usize> = 4..2048;
/// After a finished search, each of these searches may do one in so many of its work.
const NEAR_WORK: u64 = 10;

/// The fewest operations around a moment that have no order, and the moment from which on that holds for
/// any content of the block; no moment if it holds from the beginning. `None` if there are none near.
fn near(all: &[Operation], moment: u64, work_max: u64) -> Option<(Vec<Operation>, Option<u64>)> {
    let ends = answers(all);
    let at = ends.partition_point(|&end| end <= moment);
    let mut count = NEAR.start;
    while count < NEAR.end {
        let last = ends.get(at + count).copied();
        let first = at.checked_sub(count).map(|i| ends[i]);
        let early = last.map_or(all.to_vec(), |last| until(all, last));
        let has_none = |some: &[Operation]| match first {
            Some(_) => has_none_from_any(some, work_max),
            None => search::linearizable(some, work_max) == Some(false),
        };
        let part = first.map_or(early.clone(), |first| since(&early, first));
        if has_none(&part) {
            let part = shortest(&part, has_none);
            return Some((without_needless(&part, has_none), first));
        }
        if (first, last) == (None, None) {
            break;
        }
        count += (count / 8).max(1);
    }
    None
}

/// The operations known at the first moment at which there was no order any more. `all` has none.
fn shortest(all: &[Operation], has_none: impl Fn(&[Operation]) -> bool) -> Vec<Operation> {
    let ends = answers(all);
    let enough = ends.partition_point(|&end| !has_none(&until(all, end)));
    ends.get(enough)
        .map_or(all.to_vec(), |&end| until(all, end))
}

/// The moments of the answers, in order.
fn answers(all: &[Operation]) -> Vec<u64> {
    let answered = all.iter().filter(|o| o.is_answered());
    let mut ends: Vec<u64> = answered.map(Operation::end).collect();
    ends.sort_unstable();
    ends
}

/// Removes values and reads as long as the rest has no order.
fn without_needless(all: &[Operation], has_none: impl Fn(&[Operation]) -> bool) -> Vec<Operation> {
    let mut values: Vec<u64> = all.iter().map(|o| o.value).collect();
    values.sort_unstable();
    values.dedup();
    let only = |values: &[u64]| {
        let kept = all.iter().filter(|o| values.contains(&o.value));
        kept.copied().collect::<Vec<_>>()
    };
    let all = only(&shrink(&values, TRIES_MAX, |some| has_none(&only(some))));
    let is_write = |o: &Operation| o.action == Action::Write;
    let (writes, reads): (Vec<_>, Vec<_>) = all.into_iter().partition(is_write);
    let with = |reads: &[Operation]| [&writes, reads].concat();
    let mut left = with(&shrink(&reads, TRIES_MAX, |some| has_none(&with(some))));
    left.sort_by_key(|o| (o.start, o.end()));
    left
}

/// Whether no order gives these answers, for any initial content of the block.
fn has_none_from_any(some: &[Operation], work_max: u64) -> bool {
    let reads = some.iter().filter(|o| o.action == Action::Read);
    let mut initials: Vec<u64> = reads.map(|o| o.value).collect();
    initials.sort_unstable();
    initials.dedup();
    // And a value that is never read.
    let unread = (0..=u64::MAX)
        .rev()
        .find(|v| initials.binary_search(v).is_err());
    initials.extend(unread);
    let has_none = |&v: &u64| search::linearizable_from(v, some, work_max) == Some(false);
    initials.iter().all(has_none)
}

/// The operations after a moment. Writes that were open then may have taken effect before it.
fn since(all: &[Operation], moment: u64) -> Vec<Operation> {
    let open = all.iter().filter(|o| o.end() >= moment);
    let seen = open.map(|&o| {
        let began = o.start > moment;
        let outcome = if began {
            o.outcome
        } else {
            Outcome::Unanswered
        };
        Operation { outcome, ..o }
    });
    seen.filter(|o| o.is_answered() || o.action == Action::Write)
        .collect()
}

/// The operations known at this moment: those that had begun, with the answers so far.
fn until(all: &[Operation], moment: u64) -> Vec<Operation> {
    let begun = all.iter().filter(|o| o.start <= moment);
    let seen = begun.map(|&o| {
        let answered = o.end() <= moment;
        let outcome = if answered {
            o.outcome
        } else {
            Outcome::Unanswered
        };
        Operation { outcome, ..o }
    });
    seen.filter(|o| o.is_answered() || o.action == Action::Write)
        .collect()
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
