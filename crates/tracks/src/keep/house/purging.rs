//! Merging tables where entities were erased, until nothing of them is left there.
//!
//! ```text
//!   a row says that one was erased ─> its own tables, at once ─> those of its fleet, where it was among others ─> the row goes
//!     ─> the tables of such rows, which say where it was
//! ```
//!
//! Merging does nothing while a view is there that is older than the deletions: it has what is to go. Such a row waits, which is no
//! failure. What lies among the rows of others is much more than the entity's, so fleets have turns, each for all that were erased
//! meanwhile, and behind each there is a pause that is ten times as long as that took.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Result;

use super::{Shared, What, Work};
use crate::again::{Again, caught};
use crate::model::key::{Entity, EntityKey, Fleet};
use crate::store::Family;
use crate::write::{Purge, Range, are_done, purge_rows, purges};

/// So many that were erased are read at a time.
const PURGES: usize = 256;
/// Where merging them takes longer, others have their turn between.
const PAGE: Duration = Duration::from_secs(4);
/// Where so much fails, what is new is not tried before something of it is done. A restart knows nothing of it.
const FAILING_MAX: usize = 10_000;
/// So many rows are known at a time; others have their turn once these are done.
const KNOWN_MAX: usize = 100_000;
/// The pause behind a fleet's turn is so many times as long.
const PAUSES: u64 = 10;

/// How far it is with those that were erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Round {
    /// All are to be looked at.
    #[default]
    Due,
    /// There may be some behind this one.
    Behind((Fleet, Entity)),
    /// All were looked at.
    Done,
}

/// What is known of the rows, since the start.
#[derive(Debug)]
pub(super) struct Purging {
    pub(super) round: Round,
    /// By their keys.
    rows: BTreeMap<Vec<u8>, Known>,
    /// What is left to do of fleets.
    fleets: BTreeMap<Fleet, Rest>,
    /// None has its turn before.
    due: u64,
    /// Rows are deleted up to this write, and may be in tables still: from before the start as well.
    rows_gone: Option<u64>,
    /// Others were deleted since, up to this write: those before do not wait for views of these.
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
    /// Views that are not older than this have nothing of it.
    seen: u64,
    /// Its own tables are merged.
    is_merged: bool,
}

/// Where rows of those lay that were erased in a fleet.
#[derive(Debug, Default)]
struct Rest {
    keys: Vec<Vec<u8>>,
    ranges: BTreeMap<Family, (Vec<u8>, Vec<u8>)>,
    /// When it had a turn last.
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
    /// When something of a fleet is to be done that has not failed. `None`: there is nothing.
    pub(super) fn due(&self, again: &Again<What>) -> Option<u64> {
        let is_left = |(fleet, rest): &(&Fleet, &Rest)| {
            !rest.keys.is_empty() && !again.has(&What::Rest(**fleet))
        };
        self.fleets
            .iter()
            .any(|rest| is_left(&rest))
            .then_some(self.due)
    }

    /// Rows are deleted by a write.
    fn rows_are_gone(&mut self, number: u64) {
        let place = match self.rows_gone {
            None => &mut self.rows_gone,
            Some(_) => &mut self.more_rows_gone,
        };
        *place = Some(number);
    }

    /// The fleet whose turn it is: of those that are not left to later, that which waits for the longest.
    fn next(&self, is_later: impl Fn(Fleet) -> bool) -> Option<(Fleet, &Rest)> {
        let all = self.fleets.iter().map(|(fleet, rest)| (*fleet, rest));
        let all = all.filter(|(fleet, rest)| !rest.keys.is_empty() && !is_later(*fleet));
        all.min_by_key(|(_, rest)| rest.last)
    }

    /// Up to which write views must be gone before a purge is worth it. `None`: too much is known.
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

    /// Its own tables are merged.
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
    /// Merges tables that have what was erased. One that cannot be merged now keeps no other waiting.
    pub(super) fn purge_some(&self, work: &mut Work) {
        let store = &*self.of.store;
        let after = match work.purging.round {
            Round::Behind(of) => Some(of),
            Round::Due | Round::Done => None,
        };
        work.purging.round = Round::Done;
        // No state is held while they are merged: it would keep what is to go.
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
        // Behind the rows: what they say is deleted is, for whoever looks from then on.
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
                // The others of it are read again.
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

    /// Whether a view is there that has what is deleted by the write of a number.
    fn is_seen(&self, number: u64) -> bool {
        let oldest = self.of.store.oldest_view();
        oldest.is_some_and(|oldest| oldest < number)
    }

    /// Merges the tables that have what an entity had, where that lies together, or says where it is now.
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

    /// Merges what is left of fleets, one after the other, until there is to be a pause.
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

    /// Merges the tables of rows that are done, once no view has them.
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
        // The others go with them, unless a view has those.
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
        // Where they were before: nothing says in which cells.
        let index = Range::whole(Family::Geohash, fleet);
        store.compact(Family::Geohash, (&index.first, &index.last), &self.canceled)?;
        are_done(store, &rest.keys)
    }
}

/// What failed and is no longer to be done, of those that this part of the round would have.
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
