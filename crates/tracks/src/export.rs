//! Export: a fleet's points from one state of the store, in the formats of [`files`](crate::files).

use std::io::Write;

use base::Result;

use crate::files::Writer;
use crate::model::key::{Entity, Fleet, PointKey, behind};
use crate::model::name::Name;
use crate::model::point::Point;
use crate::model::time::Time;
use crate::read;
use crate::store::{Family, View, damaged};

/// Which points to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Only this entity. `None` exports all.
    pub entity: Option<Entity>,
    /// The first time.
    pub from: Time,
    /// The last time.
    pub to: Time,
}

/// Progress is reported once for this many rows.
const TOLD_EVERY: u64 = 4096;

/// Writes the points of a fleet, entity by entity, each in the order of time; the file is not
/// finished. Returns the number of points. `told` is called now and then with their number so far,
/// and may stop the export.
///
/// Errors: the store's; Corruption; those of the writer, also for a point that the format cannot
/// express; those of `told`.
pub fn export<W: Write>(
    view: &dyn View,
    fleet: Fleet,
    choice: &Choice,
    writer: &mut Writer<W>,
    told: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<u64> {
    let key = |entity, time| {
        PointKey {
            fleet,
            entity,
            time,
        }
        .to_bytes()
    };
    let first = choice.entity.unwrap_or(Entity(0));
    let mut rows = view.rows(
        Family::Default,
        &fleet.prefix(),
        behind(&fleet.prefix()).as_deref(),
    )?;
    rows.seek(&key(first, choice.from));
    let mut going: Option<(Entity, Option<Name>)> = None;
    let (mut count, mut looked) = (0_u64, 0_u64);
    while let Some((bytes, value)) = rows.row() {
        looked += 1;
        if looked.is_multiple_of(TOLD_EVERY) {
            told(count)?;
        }
        let at = PointKey::of_bytes(bytes)?;
        if choice.entity.is_some_and(|entity| entity != at.entity) {
            break;
        }
        let name = match &going {
            Some((entity, name)) if *entity == at.entity => name,
            _ => {
                let name = read::name_of(view, fleet, at.entity)?;
                &going.insert((at.entity, name)).1
            }
        };
        if at.time < choice.from {
            rows.seek(&key(at.entity, choice.from));
            continue;
        }
        // An entity that is being erased has no name any more.
        let name = name.as_ref().filter(|_| at.time <= choice.to);
        let Some(name) = name else {
            match at.entity.0.checked_add(1) {
                Some(next) => rows.seek(&key(Entity(next), choice.from)),
                None => break,
            }
            continue;
        };
        let point = Point::decode(value).map_err(|e| damaged(Family::Default, bytes, &e))?;
        writer.add(name, at.time, &point)?;
        count += 1;
        rows.next();
    }
    rows.status()?;
    told(count)?;
    Ok(count)
}
