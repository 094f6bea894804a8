//! Summaries of an entity's movement: distance, duration and stays.

use std::ops::ControlFlow;

use base::{Error, Result};

use super::patience::Patience;
use super::track::points;
use crate::geo::distance::distance;
use crate::geo::position::Position;
use crate::geo::surface::Surface;
use crate::model::key::{Entity, Fleet};
use crate::model::time::{SECOND, Time};
use crate::store::View;

/// An entity stays as long as it is within this distance from where it came to rest, metres.
const STAY_RADIUS: f64 = 75.0;
/// The shortest stay, microseconds.
const STAY_MIN: i64 = 300 * SECOND;
/// The most stays of a summary: those of a year with a stay every five minutes.
pub const STAYS_MAX: usize = 100_000;

/// A place where an entity stayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stay {
    /// The first point of the stay.
    pub position: Position,
    /// The time of the first point.
    pub from: Time,
    /// The time of the last point.
    pub to: Time,
}

impl Stay {
    /// Microseconds. Damaged rows can have any times.
    fn length(&self) -> i64 {
        self.to.0.saturating_sub(self.from.0)
    }
}

/// A summary of an entity's movement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The number of points.
    pub points: u64,
    /// The times of the first and the last point.
    pub times: Option<(Time, Time)>,
    /// The distance from point to point, metres, gaps included.
    pub metres: f64,
    /// The highest reported speed, cm/s.
    pub speed_max: Option<u16>,
    /// Places where it was within 75 m for at least five minutes, in the order of time.
    pub stays: Vec<Stay>,
}

impl Summary {
    /// Microseconds outside of stays.
    pub fn moving(&self) -> i64 {
        let (from, to) = self.times.unwrap_or((Time(0), Time(0)));
        let stays: i64 = self
            .stays
            .iter()
            .fold(0, |sum, stay| sum.saturating_add(stay.length()));
        to.0.saturating_sub(from.0).saturating_sub(stays)
    }
}

/// Summarizes the movement of an entity during a time, `to` included, with distances on a surface.
///
/// Errors: `InvalidArgument` if there are more than [`STAYS_MAX`] stays; the store's; Corruption;
/// `TimedOut`.
pub fn summary(
    view: &dyn View,
    of: (Fleet, Entity),
    (from, to, surface): (Time, Time, Surface),
    patience: &Patience,
) -> Result<Summary> {
    let mut out = Summary::default();
    let mut last: Option<Position> = None;
    let mut rest: Option<Stay> = None;
    points(view, of, (from, to), patience, &mut |at| {
        let (time, position) = (at.time, at.point.position);
        out.points += 1;
        out.times = Some((out.times.map_or(time, |t| t.0), time));
        out.metres += last.map_or(0.0, |last| surface.distance(last, position));
        out.speed_max = out.speed_max.max(at.point.speed);
        last = Some(position);
        match &mut rest {
            Some(stay) if distance(stay.position, position) <= STAY_RADIUS => stay.to = time,
            _ => {
                let new = Stay {
                    position,
                    from: time,
                    to: time,
                };
                out.stays.extend(rest.replace(new).filter(is_long));
            }
        }
        if out.stays.len() > STAYS_MAX {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    out.stays.extend(rest.filter(is_long));
    if out.stays.len() > STAYS_MAX {
        let text = format!("it has stayed more than {STAYS_MAX} times in that time");
        return Err(Error::invalid_argument(text).hint("ask for a shorter time, with from and to"));
    }
    Ok(out)
}

fn is_long(stay: &Stay) -> bool {
    stay.length() >= STAY_MIN
}
