//! The rows of an entity's points.

use std::ops::{Bound, ControlFlow, RangeBounds};

use base::Result;

use crate::model::key::{Entity, EntityKey, Fleet, PointKey, behind};
use crate::model::point::Point;
use crate::model::time::Time;
use crate::store::{Family, View, damaged};

/// A row of `default`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointRow<'a> {
    pub(crate) key: PointKey,
    pub(crate) value: &'a [u8],
}

impl PointRow<'_> {
    /// Decodes the point. Errors: Corruption, with the row's key.
    pub(crate) fn point(&self) -> Result<Point> {
        Point::decode(self.value).map_err(|e| damaged(Family::Default, &self.key.to_bytes(), &e))
    }
}

/// Calls `each` with an entity's points of a time, in order, until it breaks. Errors: the store's;
/// those of `each`.
pub(crate) fn point_rows(
    view: &dyn View,
    (fleet, entity): (Fleet, Entity),
    times: impl RangeBounds<Time>,
    each: &mut dyn FnMut(PointRow<'_>) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let key = |time: &Time| {
        let time = *time;
        PointKey {
            fleet,
            entity,
            time,
        }
        .to_bytes()
        .to_vec()
    };
    let next = |time| [&*key(time), &[0]].concat(); // The next possible key.
    let all = || EntityKey { fleet, entity }.to_bytes();
    let first = match times.start_bound() {
        Bound::Included(time) => key(time),
        Bound::Excluded(time) => next(time),
        Bound::Unbounded => all().to_vec(),
    };
    let end = match times.end_bound() {
        Bound::Included(time) => Some(next(time)),
        Bound::Excluded(time) => Some(key(time)),
        Bound::Unbounded => behind(&all()),
    };
    let mut rows = view.rows(Family::Default, &first, end.as_deref())?;
    rows.seek(&first);
    while let Some((key, value)) = rows.row() {
        let key = PointKey::of_bytes(key)?;
        if each(PointRow { key, value })?.is_break() {
            return Ok(());
        }
        rows.next();
    }
    rows.status()
}
