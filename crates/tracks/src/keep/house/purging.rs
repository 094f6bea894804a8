//! Compacts tables after erasures, until nothing of the erased entities is left in them.
//!
//! ```text
//!   a row names an erased entity ─> its own tables, at once ─> tables of its fleet with other entities' rows
//!     ─> the row is deleted ─> the tables of such rows, which say where it was
//! ```
//!
//! A compaction is useless while there is a view that is older than the tombstones, because it
//! preserves the deleted rows. Such a row waits, which is not a failure. The tables that are shared
//! with other entities are much larger than the entity's own, so that fleets take turns. Each turn
//! covers all erasures so far, and is followed by a pause ten times as long as the turn.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Result;

use super::{Shared, What, Work};
use crate::again::{Again, caught};
use crate::model::key::{Entity, EntityKey, Fleet};
use crate::store::Family;
use crate::write::{Purge, Range, are_done, purge_rows, purges};

/// How many erased entities are read at a time.
const PURGES: usize = 256;
/// After this time, other tasks have their turn.
const PAGE: Duration = Duration::from_secs(4);
/// With this many failures, new entities are not tried until an old one is done. A restart forgets
/// the failures.
const FAILING_MAX: usize = 10_000;
/// The most rows that are tracked at a time; others have their turn once these are done.
const KNOWN_MAX: usize = 100_000;
/// The pause after a fleet's turn, as a multiple of the turn.
const PAUSES: u64 = 10;

/// The progress through the erased entities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Round {
    /// All are to be looked at.
    #[default]
    Due,
    /// Those after this one are to be looked at.
    Behind((Fleet, Entity)),
    /// All have been looked at.
    Done,
}

/// The state of purging since the start.
#[derive(Debug)]
pub(super) struct Purging {
    pub(super) round: Round,
    /// The rows in progress, by their keys.
    rows: BTreeMap<Vec<u8>, Known>,
    /// The remaining work of fleets.
    fleets: BTreeMap<Fleet, Rest>,
    /// When the next fleet has its turn.
    due: u64,
    /// Rows were deleted up to this write, and may still be in tables, also from before the start.
    rows_gone: Option<u64>,
    /// More rows were deleted up to this write: the former need not wait for views of these.
    more_rows_gone: Option<u64>,
}

impl Default for Purging {
    fn default() -> Self {
        Self {
            round: Round::Due,
            rows: BTreeMap::new(),
            fleets: BTreeMap::new(),
            due: 0,
            rows_gone: Some(0),
            more_rows_gone: None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// A view that is at least this new does not see the erased rows.
    seen: u64,
    /// Whether the entity's own tables are compacted.
    is_merged: bool,
}

/// Ranges of a fleet in which erased rows are among those of others.
#[derive(Debug, Default)]
struct Rest {
    keys: Vec<Vec<u8>>,
    ranges: BTreeMap<Family, (Vec<u8>, Vec<u8>)>,
    /// The end of its last turn.
    last: u64,
}

impl Rest {
    fn add(&mut self, range: Range) {
        let Range {
            family,
            first,
            last,
        } = range;
        let new = (first.clone(), last.clone());
        let all = self.ranges.entry(family).or_insert(new);
        all.0 = std::mem::take(&mut all.0).min(first);
        all.1 = std::mem::take(&mut all.1).max(last);
    }
}

impl Purging {
    /// When the next turn of a fleet is due, failed ones aside. `None` if there is nothing to do.
    pub(super) fn due(&self, again: &Again<What>) -> Option<u64> {
        let is_left = |(fleet, rest): &(&Fleet, &Rest)| {
            !rest.keys.is_empty() && !again.has(&What::Rest(**fleet))
        };
        self.fleets
            .iter()
            .any(|rest| is_left(&rest))
            .then_some(self.due)
    }

    /// Records that a write has deleted rows.
    fn rows_are_gone(&mut self, number: u64) {
        let place = match self.rows_gone {
            None => &mut self.rows_gone,
            Some(_) => &mut self.more_rows_gone,
        };
        *place = Some(number);
    }

    /// The fleet whose turn it is: of those that need not wait, the one whose last turn is longest
    /// ago.
    fn next(&self, is_later: impl Fn(Fleet) -> bool) -> Option<(Fleet, &Rest)> {
        let all = self.fleets.iter().map(|(fleet, rest)| (*fleet, rest));
        let all = all.filter(|(fleet, rest)| !rest.keys.is_empty() && !is_later(*fleet));
        all.min_by_key(|(_, rest)| rest.last)
    }

    /// The write before which no view may remain for a purge to be useful. `None` if too many rows
    /// are tracked.
    fn seen(&mut self, purge: &Purge, now: u64) -> Option<u64> {
        let mut seen = 0;
        for key in &purge.keys {
            if self.rows.len() >= KNOWN_MAX && !self.rows.contains_key(key) {
                return None;
            }
            let row = self.rows.entry(key.clone()).or_insert(Known {
                seen: now,
                is_merged: false,
            });
            seen = seen.max(row.seen);
        }
        Some(seen)
    }

    fn is_merged(&self, purge: &Purge) -> bool {
        let mut all = purge.keys.iter().map(|key| self.rows.get(key));
        all.all(|row| row.is_some_and(|row| row.is_merged))
    }

    /// Records that the entity's own tables are compacted.
    fn merged(&mut self, purge: Purge) {
        let rest = self.fleets.entry(purge.of.0).or_default();
        for key in purge.keys {
            let row = self.rows.get_mut(&key).filter(|row| !row.is_merged);
            if let Some(row) = row {
                row.is_merged = true;
                rest.keys.push(key);
            }
        }
        for range in purge.ranges {
            rest.add(range);
        }
    }
}

impl Shared {
    /// Compacts the own tables of erased entities. One that cannot be compacted now does not delay
    /// the others.
    pub(super) fn purge_some(&self, work: &mut Work) {
        let store = &*self.of.store;
        let after = match work.purging.round {
            Round::Behind(of) => Some(of),
            Round::Due | Round::Done => None,
        };
        work.purging.round = Round::Done;
        // No view is held while tables are compacted: it would preserve the deleted rows.
        let mut wrong = Ok(());
        let found = caught("looking for what was erased", || {
            purges(&*store.view(), after, PURGES, &mut |e| wrong = Err(e))
        });
        let some = match found {
            Ok(some) => some,
            Err(e) => return self.note(work, What::Purges, Err(e)),
        };
        if after.is_none() || wrong.is_err() {
            self.note(work, What::Purges, wrong);
        }
        forget_failures(work, after, &some);
        if let Some(last) = some.last() {
            work.purging.round = Round::Behind(last.of);
        }
        // Read after the rows: every later view sees the deletions that they name.
        let seen = store.visible_number();
        let now = || self.of.clock.monotonic_nanos();
        let end = now().saturating_add(PAGE.as_nanos() as u64);
        for purge in some {
            if self.is_over() {
                return;
            }
            let of = purge.of;
            self.purge_one(work, purge, seen);
            if now() >= end {
                // The other entities of this part are read again.
                work.purging.round = Round::Behind(of);
                return;
            }
        }
    }

    fn purge_one(&self, work: &mut Work, purge: Purge, now: u64) {
        let what = What::Purge(purge.of.0, purge.of.1);
        let is_much = work.again.len() >= FAILING_MAX && !work.again.has(&what);
        if is_much || work.again.waits(&what, self.of.clock.monotonic_nanos()) {
            return;
        }
        let Some(seen) = work.purging.seen(&purge, now) else {
            return;
        };
        if work.purging.is_merged(&purge) || self.is_seen(seen) {
            return;
        }
        let done = caught("merging tables", || self.purge(&purge));
        if self.is_over() {
            return;
        }
        if done.is_ok() {
            work.purging.merged(purge);
        }
        self.note(work, what, done);
    }

    /// Whether there is a view that still sees rows deleted by the write with a number.
    fn is_seen(&self, number: u64) -> bool {
        let oldest = self.of.store.oldest_view();
        oldest.is_some_and(|oldest| oldest < number)
    }

    /// Compacts the tables with the entity's own rows: those with its key as a prefix, and the row
    /// of the index.
    fn purge(&self, purge: &Purge) -> Result<()> {
        let (store, canceled) = (&self.of.store, &self.canceled);
        let (fleet, entity) = purge.of;
        let key = EntityKey { fleet, entity }.to_bytes();
        let end = [&key[..], &[u8::MAX; 32]].concat();
        for family in [
            Family::Default,
            Family::Latest,
            Family::Inside,
            Family::Entities,
        ] {
            store.compact(family, (&key, &end), canceled)?;
        }
        let index = purge.ranges.iter();
        for range in index.filter(|range| range.family == Family::Geohash) {
            store.compact(range.family, (&range.first, &range.last), canceled)?;
        }
        Ok(())
    }

    /// Compacts the remaining tables of fleets, one after the other, until a pause is due.
    pub(super) fn purge_rest(&self, work: &mut Work) {
        if work.purging.round != Round::Done {
            return;
        }
        let now = || self.of.clock.monotonic_nanos();
        while !self.is_over() && now() >= work.purging.due {
            let begin = now();
            let is_later = |fleet| work.again.waits(&What::Rest(fleet), begin);
            let Some((fleet, rest)) = work.purging.next(is_later) else {
                return;
            };
            let done = caught("merging tables", || self.rest_of(fleet, rest));
            if self.is_over() {
                return;
            }
            let last = now();
            let pause = last.saturating_sub(begin).saturating_mul(PAUSES);
            work.purging.due = last.saturating_add(pause);
            if done.is_ok() {
                let next = Rest {
                    last,
                    ..Rest::default()
                };
                let old = work.purging.fleets.insert(fleet, next);
                for key in old.into_iter().flat_map(|rest| rest.keys) {
                    work.purging.rows.remove(&key);
                }
                work.purging.rows_are_gone(self.of.store.visible_number());
            }
            self.note(work, What::Rest(fleet), done);
        }
    }

    /// Compacts the tables of finished rows, once no view sees them.
    pub(super) fn purge_rows(&self, work: &mut Work) {
        let now = self.of.clock.monotonic_nanos();
        let Some(number) = work.purging.rows_gone else {
            return;
        };
        if self.is_over() || self.is_seen(number) || work.again.waits(&What::Rows, now) {
            return;
        }
        let Range {
            family,
            first,
            last,
        } = purge_rows();
        // The later rows are removed as well, unless a view still sees them.
        let more = work.purging.more_rows_gone;
        let more = more.filter(|number| self.is_seen(*number));
        let done = caught("merging tables", || {
            self.of
                .store
                .compact(family, (&first, &last), &self.canceled)
        });
        if self.is_over() {
            return;
        }
        if done.is_ok() {
            (work.purging.rows_gone, work.purging.more_rows_gone) = (more, None);
        }
        self.note(work, What::Rows, done);
    }

    fn rest_of(&self, fleet: Fleet, rest: &Rest) -> Result<()> {
        let store = &*self.of.store;
        for (family, (first, last)) in &rest.ranges {
            if *family != Family::Geohash {
                store.compact(*family, (first, last), &self.canceled)?;
            }
        }
        // The former cells of the entities: no row records them.
        let index = Range::whole(Family::Geohash, fleet);
        store.compact(Family::Geohash, (&index.first, &index.last), &self.canceled)?;
        are_done(store, &rest.keys)
    }
}

/// Forgets failures of entities that need no work any more, among those that this part of the round
/// covers.
fn forget_failures(work: &mut Work, after: Option<(Fleet, Entity)>, some: &[Purge]) {
    let last = some.last().filter(|_| some.len() == PURGES);
    let last = last.map(|last| last.of);
    let is_of_part = |of: (Fleet, Entity)| {
        after.is_none_or(|after| of > after) && last.is_none_or(|last| of <= last)
    };
    work.again.retain(|what| match what {
        What::Purge(fleet, entity) => {
            let of = (*fleet, *entity);
            !is_of_part(of) || some.iter().any(|purge| purge.of == of)
        }
        _ => true,
    });
}
