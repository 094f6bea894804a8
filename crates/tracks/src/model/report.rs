//! Reports: the positions that devices send.

use base::{Error, Result};

use super::name::Name;
use super::point::Point;
use super::time::{SECOND, Time};

/// The most that a device's clock may be ahead of the server's, microseconds.
pub const AHEAD_MAX: i64 = 300 * SECOND;

/// The position of an entity, and what else the device reported with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The name of the entity.
    pub entity: Name,
    /// When the entity was there. `None` means when the report arrives.
    pub time: Option<Time>,
    /// The position and the other fields; its lag is ignored.
    pub point: Point,
}

/// The treatment of reports whose time is more than [`AHEAD_MAX`] ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ahead {
    /// They are refused.
    #[default]
    Refuse,
    /// Their time becomes the time of their arrival.
    Clamp,
}

/// A report with its final time and lag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dated {
    /// The name of the entity.
    pub entity: Name,
    /// When the entity was there.
    pub time: Time,
    /// The position and the other fields.
    pub point: Point,
}

impl Report {
    /// Whether the report can be stored if it arrives at `arrival`. Errors: `InvalidArgument` if
    /// its time or its point is invalid.
    pub fn check(&self, arrival: Time, ahead: Ahead) -> Result<()> {
        self.time_at(arrival, ahead)?;
        self.point.check()
    }

    fn time_at(&self, arrival: Time, ahead: Ahead) -> Result<Time> {
        let time = self.time.unwrap_or(arrival).check()?;
        let lead = time.0.saturating_sub(arrival.0);
        if lead <= AHEAD_MAX {
            return Ok(time);
        }
        match ahead {
            Ahead::Clamp => Ok(arrival),
            Ahead::Refuse => Err(Error::invalid_argument(format!(
                "a time of {} s ahead of the server's clock",
                lead / SECOND
            ))
            .hint("correct the device's clock, or let the fleet clamp such times")),
        }
    }

    /// The report as it is stored if it arrived at `arrival`. Errors: `InvalidArgument` if its time
    /// is too far ahead or cannot be stored.
    pub fn dated(self, arrival: Time, ahead: Ahead) -> Result<Dated> {
        let time = self.time_at(arrival, ahead)?;
        let mut point = self.point;
        point.lag = arrival.0.saturating_sub(time.0) / 1000;
        Ok(Dated {
            entity: self.entity,
            time,
            point,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::position::at;

    #[test]
    fn times_ahead_are_refused_or_clamped() {
        let now = Time(1_700_000_000 * SECOND);
        let report = |time| Report {
            entity: Name::new("a").unwrap(),
            time,
            point: Point::at(at(1.0, 2.0)),
        };
        let dated = |by: i64, ahead| report(Some(Time(now.0 + by))).dated(now, ahead);
        let ok = dated(AHEAD_MAX, Ahead::Refuse).unwrap();
        assert_eq!((ok.time.0 - now.0, ok.point.lag), (AHEAD_MAX, -300_000));
        let e = dated(AHEAD_MAX + SECOND, Ahead::Refuse)
            .unwrap_err()
            .to_string();
        assert!(e.contains("301 s ahead") && e.contains("clamp"), "{e}");
        let clamped = dated(AHEAD_MAX + 1, Ahead::Clamp).unwrap();
        assert_eq!((clamped.time, clamped.point.lag), (now, 0));
        let late = dated(-7_654_321, Ahead::Refuse).unwrap();
        assert_eq!((late.time.0, late.point.lag), (now.0 - 7_654_321, 7654));
        let now_then = report(None).dated(now, Ahead::Refuse).unwrap();
        assert_eq!((now_then.time, now_then.point.lag), (now, 0));
        assert!(report(Some(Time::MIN)).dated(now, Ahead::Clamp).is_err());
        assert!(report(Some(Time::MAX)).dated(now, Ahead::Clamp).is_err());
    }
}
