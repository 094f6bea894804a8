//! Thinning: of points older than a fleet's `thin_days`, only those are kept that are needed to
//! know where its entities were.
//!
//! ```text
//!   meta   "thinned/" fleet 4   8: all points before this time were thinned, big-endian microseconds since 1970
//! ```
//!
//! Each day of an entity, from midnight to midnight UTC, is [simplified](simplify_in_time)
//! separately, so that a day that is thinned again after a crash does not change. A day with more
//! than [`PIECE_MAX`] points is cut, to bound the time. Points that arrive later and are older than
//! that time stay.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use base::{Error, ErrorKind, Result};

use super::DAY;
use super::house::{FAILURES_MAX, Of};
use crate::again::caught;
use crate::fleets::{Info, Settings};
use crate::geo::position::Position;
use crate::geo::simplify::simplify_in_time;
use crate::model::key::{Entity, EntityKey, Fleet, PointKey, behind};
use crate::model::time::Time;
use crate::read::point_rows;
use crate::store::{Batch, Family, damaged};

const KEY: &[u8] = b"thinned/";
/// The most points that are simplified at once.
const PIECE_MAX: usize = 20_000;
/// The most points that a shard drops at once.
const AT_ONCE: usize = 1000;
/// How many entities are read at a time, so that no view is held for long.
const PART: usize = 1000;
/// Where thinning goes on in fleets that one look did not finish.
pub(super) type Left = BTreeMap<Fleet, Place>;

#[derive(Debug)]
pub(super) struct Place {
    /// The time up to which points are thinned.
    to: Time,
    /// The key of the entity with which it goes on.
    next: Vec<u8>,
    /// How far that entity is thinned, so that one that takes longer than a slice is not begun
    /// again each time.
    reached: Option<(Entity, Time)>,
    /// Whether an earlier entity failed: then all are looked at again.
    has_failed: bool,
}

impl Place {
    fn begin(fleet: Fleet, to: Time) -> Self {
        Self {
            to,
            next: fleet.prefix().to_vec(),
            reached: None,
            has_failed: false,
        }
    }
}

/// The thinning of one fleet.
pub(super) struct Thinning<'a> {
    pub(super) of: &'a Of,
    pub(super) info: &'a Info,
    /// Whether to stop: the rest is left to the next look.
    pub(super) stops: &'a dyn Fn() -> bool,
    /// Receives errors of single rows.
    pub(super) wrong: &'a mut dyn FnMut(&Error),
}

/// The midnight before which a fleet's points are thinned. `None` if it is not thinned.
fn end(settings: &Settings, now: Time) -> Option<Time> {
    let days = i64::from(settings.thin_days);
    let before = now.0.saturating_sub(days.saturating_mul(DAY));
    (days > 0).then(|| Time(before.div_euclid(DAY) * DAY))
}

impl Thinning<'_> {
    /// Thins points that have become old enough, except those older than `kept`. Returns the number
    /// of dropped points. Errors: the store's.
    pub(super) fn run(mut self, now: Time, kept: Time, left: &mut Left) -> Result<u64> {
        let fleet = self.info.fleet;
        let Some(to) = end(&self.info.settings, now) else {
            left.remove(&fleet);
            return Ok(0);
        };
        let from = self.mark()?.max(kept);
        // If less is to be thinned than when the last look began, it begins again.
        let begun = left.remove(&fleet).filter(|begun| begun.to <= to);
        let Place {
            to,
            mut next,
            mut reached,
            mut has_failed,
        } = begun.unwrap_or_else(|| Place::begin(fleet, to));
        if from >= to {
            return Ok(0);
        }
        let (mut count, mut failures) = (0, 0);
        loop {
            let (entities, more) = self.entities(&next)?;
            for entity in entities {
                let key = EntityKey { fleet, entity }.to_bytes();
                let behind_it = [&key[..], &[0]].concat();
                let at = |next: &[u8], reached, has_failed| Place {
                    to,
                    next: next.to_vec(),
                    reached,
                    has_failed,
                };
                let begun = reached.take().filter(|(of, _)| *of == entity);
                let from = begun.map_or(from, |(_, time)| from.max(time));
                // A failure of one entity does not affect the others.
                let done = caught("thinning an entity", || {
                    self.entity(entity, (from, to), &mut count)
                });
                match done {
                    Ok(None) => failures = 0,
                    Ok(Some(time)) => {
                        left.insert(fleet, at(&key, Some((entity, time)), has_failed));
                        return Ok(count);
                    }
                    Err(e) => {
                        (self.wrong)(&e);
                        if !matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Aborted) {
                            failures += 1;
                            has_failed = true;
                        }
                    }
                }
                if failures == FAILURES_MAX {
                    left.insert(fleet, at(&behind_it, None, true));
                    let text = format!("{failures} entities one behind the other failed");
                    return Err(Error::aborted(text).hint("the next look goes on"));
                }
                // Checked after the work, so that each slice makes progress, however slow reading
                // is.
                if (self.stops)() {
                    left.insert(fleet, at(&behind_it, None, has_failed));
                    return Ok(count);
                }
            }
            match more {
                Some(more) => next = more,
                None => break,
            }
        }
        if !has_failed {
            self.is_done(to)?;
        }
        Ok(count)
    }

    fn key(&self) -> Vec<u8> {
        [KEY, &self.info.fleet.prefix()].concat()
    }

    fn mark(&self) -> Result<Time> {
        let key = self.key();
        let Some(value) = self.of.store.get(Family::Meta, &key)? else {
            return Ok(Time::MIN);
        };
        let bytes = value.as_slice().try_into();
        let bytes = bytes
            .map_err(|_| damaged(Family::Meta, &key, &Error::corruption("it is no moment")))?;
        Ok(Time(i64::from_be_bytes(bytes)))
    }

    /// Records that the fleet is thinned. The row follows the deletions in the log: if it survives
    /// a crash, so do they.
    fn is_done(&self, to: Time) -> Result<()> {
        let mut batch = Batch::new(&*self.of.store);
        batch.put(Family::Meta, &self.key(), &to.0.to_be_bytes())?;
        batch.write(None).map(drop)
    }

    /// Some entities, and the key at which the next ones begin.
    fn entities(&mut self, from: &[u8]) -> Result<(Vec<Entity>, Option<Vec<u8>>)> {
        let view = self.of.store.view();
        let end = behind(&self.info.fleet.prefix());
        let mut rows = view.rows(Family::Latest, from, end.as_deref())?;
        rows.seek(from);
        let mut out = Vec::with_capacity(PART);
        while let Some((key, _)) = rows.row() {
            if out.len() == PART {
                return Ok((out, Some(key.to_vec())));
            }
            match EntityKey::of_bytes(key) {
                Ok(at) => out.push(at.entity),
                Err(e) => (self.wrong)(&damaged(Family::Latest, key, &e)),
            }
            rows.next();
        }
        rows.status()?;
        Ok((out, None))
    }

    /// Thins an entity's points of a time until it is to stop, but at least one piece. Returns
    /// where it goes on if it is not finished.
    fn entity(
        &self,
        entity: Entity,
        (from, to): (Time, Time),
        count: &mut u64,
    ) -> Result<Option<Time>> {
        let view = self.of.store.view();
        let mut piece = Piece::default();
        let mut next = None;
        point_rows(&*view, (self.info.fleet, entity), from..to, &mut |row| {
            let point = row.point()?;
            if !piece.takes(row.key.time) {
                self.end_of(entity, &mut piece, count)?;
                if (self.stops)() {
                    next = Some(row.key.time);
                    return Ok(ControlFlow::Break(()));
                }
            }
            piece.track.push((row.key.time.0, point.position));
            piece.rows.push((row.key, row.value.to_vec()));
            Ok(ControlFlow::Continue(()))
        })?;
        if next.is_none() {
            self.end_of(entity, &mut piece, count)?;
        }
        Ok(next)
    }

    fn end_of(&self, entity: Entity, piece: &mut Piece, count: &mut u64) -> Result<()> {
        let mut spare = piece.spare(f64::from(self.info.settings.thin_metres));
        while !spare.is_empty() {
            let rest = spare.split_off(spare.len().min(AT_ONCE));
            *count += self.of.shards.thin(entity, spare)?;
            spare = rest;
        }
        Ok(())
    }
}

/// Points of one entity and day.
#[derive(Default)]
struct Piece {
    track: Vec<(i64, Position)>,
    rows: Vec<(PointKey, Vec<u8>)>,
}

impl Piece {
    fn takes(&self, time: Time) -> bool {
        let is_of_day =
            |&(first, _): &(i64, Position)| first.div_euclid(DAY) == time.0.div_euclid(DAY);
        self.track.first().is_none_or(is_of_day) && self.track.len() < PIECE_MAX
    }

    /// Empties the piece, and returns the points that are not needed. The last point is kept: it
    /// may be the entity's newest.
    fn spare(&mut self, metres: f64) -> Vec<(PointKey, Vec<u8>)> {
        let stay = simplify_in_time(&self.track, metres);
        self.track.clear();
        let mut stay = stay.into_iter().peekable();
        let rows = self.rows.drain(..).enumerate();
        rows.filter(|(nth, _)| stay.next_if_eq(nth).is_none())
            .map(|(_, row)| row)
            .collect()
    }
}
