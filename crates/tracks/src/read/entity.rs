//! Single entities: number, name and newest point.

use base::{Error, Result};

use crate::geo::cell::Cell;
use crate::model::key::{Entity, EntityKey, Fleet};
use crate::model::name::{Name, TURNS};
use crate::model::newest::Newest;
use crate::model::point::Point;
use crate::model::time::Time;
use crate::store::{Family, View, damaged};

/// An entity's newest point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    /// The number of the entity.
    pub entity: Entity,
    /// When the entity was there.
    pub time: Time,
    /// The cell of its row in the index.
    pub cell: Cell,
    /// The point.
    pub point: Point,
}

/// The number of an entity. `None` if the fleet has none with this name. Errors: the store's.
pub fn find(view: &dyn View, fleet: Fleet, name: &Name) -> Result<Option<Entity>> {
    for turn in 0..TURNS {
        let entity = name.number(turn);
        let key = EntityKey { fleet, entity }.to_bytes();
        match view.get(Family::Entities, &key)? {
            Some(bytes) if bytes == name.as_str().as_bytes() => return Ok(Some(entity)),
            Some(_) => {} // Another name with that number, or an erased one.
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// The erased numbers that an entity with this name may have had; some may have belonged to other
/// names. Errors: the store's.
pub(crate) fn erased(view: &dyn View, fleet: Fleet, name: &Name) -> Result<Vec<Entity>> {
    let mut out = Vec::new();
    for turn in 0..TURNS {
        let entity = name.number(turn);
        let key = EntityKey { fleet, entity }.to_bytes();
        match view.get(Family::Entities, &key)? {
            Some(bytes) if bytes.is_empty() => out.push(entity),
            Some(_) => {}
            None => break,
        }
    }
    Ok(out)
}

/// The name of an entity. `None` if there is none with this number. Errors: the store's;
/// Corruption.
pub fn name_of(view: &dyn View, fleet: Fleet, entity: Entity) -> Result<Option<Name>> {
    let key = EntityKey { fleet, entity }.to_bytes();
    let Some(bytes) = view.get(Family::Entities, &key)?.filter(|b| !b.is_empty()) else {
        return Ok(None);
    };
    let text = str::from_utf8(&bytes).map_err(|e| Error::corruption(e.to_string()));
    let name = text.and_then(Name::new);
    name.map(Some)
        .map_err(|e| damaged(Family::Entities, &key, &e))
}

/// The newest point of an entity. `None` if it has none. Errors: the store's; Corruption.
pub fn latest(view: &dyn View, fleet: Fleet, entity: Entity) -> Result<Option<Latest>> {
    let key = EntityKey { fleet, entity }.to_bytes();
    let Some(bytes) = view.get(Family::Latest, &key)? else {
        return Ok(None);
    };
    let Newest {
        time, cell, point, ..
    } = Newest::decode(&bytes).map_err(|e| damaged(Family::Latest, &key, &e))?;
    Ok(Some(Latest {
        entity,
        time,
        cell,
        point,
    }))
}
