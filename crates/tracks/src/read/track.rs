//! Tracks: where an entity has been.

use std::ops::ControlFlow;

use base::Result;

use super::patience::Patience;
use super::points::point_rows;
use crate::geo::simplify::simplify;
use crate::model::key::{Entity, Fleet};
use crate::model::point::Point;
use crate::model::time::Time;
use crate::store::View;

/// Points are simplified in pieces of this size, so that a long track is never in memory as a
/// whole.
const AT_ONCE: usize = 10_000;
/// A piece also ends if its points have more bytes of attributes.
const AT_ONCE_BYTES: usize = 2 << 20;

/// A point and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The time.
    pub time: Time,
    /// The point.
    pub point: Point,
}

/// Which points of a track to return.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The first time.
    pub from: Time,
    /// The last time.
    pub to: Time,
    /// Simplifies the track: dropped points are at most this many metres away from it. `None` keeps
    /// all points.
    pub simplify: Option<f64>,
    /// The least time between two points, microseconds: points that follow earlier are left out. 0
    /// keeps all.
    pub every: i64,
    /// The most points.
    pub max_points: usize,
    /// The track is cut where there is no point for longer than this, microseconds.
    pub gap: i64,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            from: Time::MIN,
            to: Time::MAX,
            simplify: None,
            every: 0,
            max_points: 10_000,
            gap: i64::MAX,
        }
    }
}

/// A track.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Parts without gaps, in the order of time; none is empty.
    pub parts: Vec<Vec<Located>>,
    /// The time from which there are more points. `None` if there are none.
    pub next: Option<Time>,
}

/// Calls `each` with an entity's points of a time, `to` included, in order, until it breaks.
///
/// Errors: the store's; Corruption; `TimedOut`.
pub fn points(
    view: &dyn View,
    of: (Fleet, Entity),
    (from, to): (Time, Time),
    patience: &Patience,
    each: &mut dyn FnMut(Located) -> ControlFlow<()>,
) -> Result<()> {
    point_rows(view, of, from..=to, &mut |row| {
        let (time, point) = (row.key.time, row.point()?);
        if each(Located { time, point }).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        patience.row()?;
        Ok(ControlFlow::Continue(()))
    })
}

/// The chosen points of a track. Errors: the store's; Corruption; `TimedOut`.
pub fn track(
    view: &dyn View,
    of: (Fleet, Entity),
    choice: &Choice,
    patience: &Patience,
) -> Result<Track> {
    track_while(view, of, choice, patience, &mut |_| true)
}

/// Like [`track`], up to the first point for which `fits` is false; the next page begins with that
/// point. `fits` is called with each chosen point, in order.
pub fn track_while(
    view: &dyn View,
    of: (Fleet, Entity),
    choice: &Choice,
    patience: &Patience,
    fits: &mut dyn FnMut(&Located) -> bool,
) -> Result<Track> {
    let mut making = Making {
        fits,
        choice: *choice,
        track: Track::default(),
        part: Vec::new(),
        pending: Vec::new(),
        pending_bytes: 0,
        left: choice.max_points,
        last: None,
        chosen: None,
    };
    let times = (choice.from, choice.to);
    points(view, of, times, patience, &mut |at| making.add(at))?;
    making.end_part();
    Ok(making.track)
}

struct Making<'a> {
    fits: &'a mut dyn FnMut(&Located) -> bool,
    choice: Choice,
    track: Track,
    /// The chosen points of the current part.
    part: Vec<Located>,
    /// The points after these, which are not simplified yet.
    pending: Vec<Located>,
    /// The bytes of their attributes.
    pending_bytes: usize,
    /// How many more points may be chosen.
    left: usize,
    /// The time of the last point, and of the last one that was not too soon.
    last: Option<Time>,
    chosen: Option<Time>,
}

impl Making<'_> {
    fn add(&mut self, at: Located) -> ControlFlow<()> {
        let time = at.time;
        let since = |other: Time| time.0.saturating_sub(other.0);
        if self.last.is_some_and(|last| since(last) > self.choice.gap) {
            self.end_part();
            self.chosen = None;
        }
        self.last = Some(time);
        if self
            .chosen
            .is_some_and(|chosen| since(chosen) < self.choice.every)
        {
            return ControlFlow::Continue(());
        }
        self.chosen = Some(time);
        self.pending_bytes += at.point.attributes.len();
        self.pending.push(at);
        let most = self.choice.simplify.map_or(0, |_| AT_ONCE);
        if self.pending.len() > most || self.pending_bytes > AT_ONCE_BYTES {
            self.choose();
        }
        match self.track.next {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }

    /// Chooses among the pending points. If the track is simplified, the last point stays pending:
    /// the next piece begins with it.
    fn choose(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        if let Some(metres) = self.choice.simplify {
            let positions: Vec<_> = pending.iter().map(|at| at.point.position).collect();
            let mut keep = simplify(&positions, metres).into_iter().peekable();
            let mut nth = 0;
            pending.retain(|_| {
                nth += 1;
                keep.next_if_eq(&(nth - 1)).is_some()
            });
            self.pending.extend(pending.pop());
        }
        self.take(pending);
    }

    fn take(&mut self, points: Vec<Located>) {
        for at in points {
            if self.track.next.is_some() {
                return;
            }
            if self.left == 0 || !(self.fits)(&at) {
                self.track.next = Some(at.time);
                return;
            }
            self.left -= 1;
            self.part.push(at);
        }
    }

    fn end_part(&mut self) {
        self.choose();
        let last = std::mem::take(&mut self.pending);
        self.take(last);
        let part = std::mem::take(&mut self.part);
        if !part.is_empty() {
            self.track.parts.push(part);
        }
    }
}
