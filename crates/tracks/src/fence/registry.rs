//! All fences of a store, in memory, by fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::sync::{Mutex, PoisonError, RwLock};
use base::{Error, Result};
use serde::{Deserialize, Serialize};

use super::definition::{Definition, FENCES_MAX, Fence, POSITIONS_MAX};
use super::index::Index;
use crate::fleets::Info;
use crate::model::key::Fleet;
use crate::model::name::Name;
use crate::model::time::Time;
use crate::store::{Batch, Family, Store, damaged};

/// The key in `meta` of the greatest number that any fence has had, big-endian.
const NUMBER_KEY: &[u8] = b"fence-number";

/// A fence, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    number: u64,
    tags: u32,
    definition: Definition,
}

/// The fences of all fleets.
#[derive(Debug, Default)]
pub struct Fences {
    all: RwLock<BTreeMap<Fleet, Arc<Index>>>,
    /// The greatest number so far. Locked while a fence is changed.
    changes: Mutex<u64>,
}

impl Fences {
    /// Reads all fences of the store. Errors: Corruption; the store's.
    pub fn open(store: &dyn Store) -> Result<Self> {
        let view = store.view();
        let mut rows = view.rows(Family::Fences, &[], None)?;
        rows.seek(&[]);
        let mut found: BTreeMap<Fleet, Vec<Arc<Fence>>> = BTreeMap::new();
        while let Some((key, value)) = rows.row() {
            let (fleet, fence) =
                decode(key, value).map_err(|e| damaged(Family::Fences, key, &e))?;
            found.entry(fleet).or_default().push(Arc::new(fence));
            rows.next();
        }
        rows.status()?;
        let index = |(fleet, fences)| (fleet, Arc::new(Index::new(fences)));
        let all: BTreeMap<Fleet, Arc<Index>> = found.into_iter().map(index).collect();
        let number = store
            .get(Family::Meta, NUMBER_KEY)?
            .map_or(Ok(0), |bytes| {
                let bytes = bytes.try_into().map(u64::from_be_bytes);
                bytes.map_err(|_| Error::corruption("meta: a number of fences that is none"))
            })?;
        Ok(Self {
            all: RwLock::new(all),
            changes: Mutex::new(number),
        })
    }

    /// The fences of a fleet. `None` if it has none.
    pub fn of(&self, fleet: Fleet) -> Option<Arc<Index>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&fleet).cloned()
    }

    /// Makes a fence, or replaces the one with this name. An entity that is already in its area has
    /// not entered it.
    ///
    /// Errors: `InvalidArgument` if the area is invalid, or the fleet has too many fences, or they
    /// have too many positions together;
    /// `NotFound` names a tag that the fleet does not have; the store's. On an error, nothing is
    /// changed.
    pub fn put(
        &self,
        store: &dyn Store,
        info: &Info,
        (name, definition): (&Name, Definition),
        now: Time,
    ) -> Result<Arc<Fence>> {
        let tags = info.settings.bits(&definition.tags)?;
        // Not for stored ones: the store must open whatever it has.
        let positions = definition.area.check_positions()?;
        // The slow part is done before the lock is taken.
        let mut fence = Fence::new((0, name.clone()), definition.clone(), tags)?;
        let mut newest = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        // A number is never used twice.
        let number = u64::try_from(now.0).unwrap_or(0).max(*newest + 1);
        fence.number = number;
        let mut fences = self.list(info.fleet);
        let of = |fence: &Arc<Fence>| fence.definition.area.positions();
        let replaced = fences
            .iter()
            .find(|other| other.name == *name)
            .map_or(0, of);
        fences.retain(|other| other.name != *name);
        if fences.len() >= FENCES_MAX {
            return Err(Error::invalid_argument(format!(
                "fleet {} has {FENCES_MAX} fences, which is the most",
                info.name
            )));
        }
        let others: usize = fences.iter().map(of).sum();
        // If the others have too many already, a fence can still be replaced by one that has fewer.
        if positions > replaced && others + positions > POSITIONS_MAX {
            return Err(Error::invalid_argument(format!(
                "fence {name} has {positions} positions, and the others of fleet {} have {others}: together, \
                 {POSITIONS_MAX} are the most",
                info.name
            ))
            .hint("simplify the areas, or spread them over several fleets"));
        }
        let stored = Stored {
            number,
            tags,
            definition,
        };
        let value = serde_json::to_vec(&stored).map_err(|e| Error::broken(e.to_string()))?;
        let mut batch = Batch::new(store);
        batch.put(Family::Fences, &key(info.fleet, name), &value)?;
        batch.put(Family::Meta, NUMBER_KEY, &number.to_be_bytes())?;
        batch.write(None)?;
        *newest = number;
        let fence = Arc::new(fence);
        fences.push(Arc::clone(&fence));
        self.set(info.fleet, fences);
        Ok(fence)
    }

    /// Deletes a fence, without exit events. Errors: `NotFound`; the store's.
    pub fn delete(&self, store: &dyn Store, info: &Info, name: &Name) -> Result<()> {
        let _newest = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fences = self.list(info.fleet);
        let count = fences.len();
        fences.retain(|other| other.name != *name);
        if fences.len() == count {
            let text = format!("fleet {} has no fence {name}", info.name);
            return Err(Error::not_found(text));
        }
        let mut batch = Batch::new(store);
        batch.delete(Family::Fences, &key(info.fleet, name))?;
        batch.write(None)?;
        self.set(info.fleet, fences);
        Ok(())
    }

    /// The fences of a fleet, by number.
    pub fn list(&self, fleet: Fleet) -> Vec<Arc<Fence>> {
        let index = self.of(fleet);
        index.map_or_else(Vec::new, |index| index.all().cloned().collect())
    }

    /// The number of fences of all fleets.
    pub fn count(&self) -> usize {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.values().map(|index| index.all().count()).sum()
    }

    fn set(&self, fleet: Fleet, fences: Vec<Arc<Fence>>) {
        let index = Arc::new(Index::new(fences));
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(fleet, index);
    }
}

fn key(fleet: Fleet, name: &Name) -> Vec<u8> {
    [&fleet.prefix()[..], name.as_str().as_bytes()].concat()
}

fn decode(key: &[u8], value: &[u8]) -> Result<(Fleet, Fence)> {
    let parts = key.split_first_chunk();
    let (fleet, name) = parts.ok_or_else(|| Error::corruption("a key that is too short"))?;
    let name = str::from_utf8(name).map_err(|e| Error::corruption(e.to_string()))?;
    let stored: Stored =
        serde_json::from_slice(value).map_err(|e| Error::corruption(e.to_string()))?;
    let named = (stored.number, Name::new(name)?);
    let fence = Fence::new(named, stored.definition, stored.tags)?;
    Ok((Fleet(u32::from_be_bytes(*fleet)), fence))
}
