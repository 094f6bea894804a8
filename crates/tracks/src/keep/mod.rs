//! Retention: how old a fleet's points may be, and how long a silent entity stays in the index.
//!
//! ```text
//!   settings ─> horizons ─┬─ reads hide all rows before them at once        hide
//!                         ├─ a durable mark in `meta`                       for check
//!                         └─ housekeeping drops the rows before them        house
//!                              points: by a compaction filter               visits, events: by ranges
//!                              entities: through their shards
//!
//!                              days of entities: simplified                 thin
//!
//!   meta   "kept/" fleet 4   8 points, 8 index: the horizons so far, big-endian microseconds since 1970
//! ```
//!
//! Horizons never go back, because some of the rows before them may be gone.

mod hide;
mod house;
mod thin;

use std::collections::BTreeMap;

use base::{Error, Result};

pub(crate) use self::hide::hidden;
pub use self::house::Kept;
pub(crate) use self::house::{House, Of};

use crate::fleets::{Fleets, Settings};
use crate::model::key::{Fleet, behind};
use crate::model::time::{SECOND, Time};
use crate::store::{Family, Store, View, damaged};

const KEY: &[u8] = b"kept/";
const DAY: i64 = 86_400 * SECOND;

/// The times before which a fleet's rows may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// For points, and for the visits and events of their time.
    pub points: Time,
    /// For rows of the index: entities that are silent since this time have none.
    pub index: Time,
}

impl Default for Horizon {
    fn default() -> Self {
        Self {
            points: Time::MIN,
            index: Time::MIN,
        }
    }
}

/// The horizons of all fleets that have one.
pub(crate) type Horizons = BTreeMap<Fleet, Horizon>;

impl Horizon {
    /// The horizon of these settings now.
    fn of(settings: &Settings, now: Time) -> Self {
        let before = |days: u32| match days {
            0 => Time::MIN,
            days => Time(now.0.saturating_sub(i64::from(days).saturating_mul(DAY))),
        };
        Self {
            points: before(settings.keep_days),
            index: before(settings.silent_days),
        }
    }

    /// The later of each time.
    fn max(self, other: Self) -> Self {
        let points = self.points.max(other.points);
        Self {
            points,
            index: self.index.max(other.index).max(points),
        }
    }

    fn row(self, fleet: Fleet) -> (Vec<u8>, Vec<u8>) {
        let key = [KEY, &fleet.prefix()].concat();
        let value = [self.points.0.to_be_bytes(), self.index.0.to_be_bytes()].concat();
        (key, value)
    }
}

/// A view of a store that is not served, without rows that are older than their fleets keep.
/// Errors: the store's; Corruption.
pub fn kept<'a>(store: &'a dyn Store, fleets: &Fleets, now: Time) -> Result<Box<dyn View + 'a>> {
    let view = store.view();
    let marks = marks(&*view)?;
    Ok(hidden(view, with_settings(marks, fleets, now), None))
}

/// The horizons, moved forward by the current settings of fleets.
fn with_settings(mut horizons: Horizons, fleets: &Fleets, now: Time) -> Horizons {
    for info in fleets.all() {
        let horizon = Horizon::of(&info.settings, now);
        if horizon != Horizon::default() {
            let old = horizons.entry(info.fleet).or_default();
            *old = old.max(horizon);
        }
    }
    horizons
}

/// The marks of a store: the times before which rows of each fleet may be gone. Errors: the
/// store's; Corruption.
pub fn marks(view: &dyn View) -> Result<BTreeMap<Fleet, Horizon>> {
    let mut out = BTreeMap::new();
    let end = behind(KEY);
    let mut rows = view.rows(Family::Meta, KEY, end.as_deref())?;
    rows.seek(KEY);
    while let Some((key, value)) = rows.row() {
        let read = || {
            let fleet = key.strip_prefix(KEY)?.try_into().ok()?;
            let (points, index) = value.split_first_chunk::<8>()?;
            let index = index.try_into().ok()?;
            let horizon = Horizon {
                points: Time(i64::from_be_bytes(*points)),
                index: Time(i64::from_be_bytes(index)),
            };
            Some((Fleet(u32::from_be_bytes(fleet)), horizon))
        };
        let (fleet, horizon) = read()
            .ok_or_else(|| damaged(Family::Meta, key, &Error::corruption("it is no mark")))?;
        out.insert(fleet, horizon);
        rows.next();
    }
    rows.status()?;
    Ok(out)
}
