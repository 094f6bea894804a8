//! Drops points that are older than their fleets keep, when tables are merged.
//!
//! The key says how old a point is. What is behind a fleet's horizon is skipped up to the first point that is not: no
//! tombstone is left of it. A filter has the horizons of the moment at which its merge began, and asks nobody.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::sync::{Mutex, PoisonError};
use ironstone::{
    CompactionFilter, CompactionFilterFactory, FilterContext, FilterDecision, FilterValue,
};

use crate::model::key::{Fleet, PointKey};
use crate::model::time::Time;

const NAME: &str = "ironstone.tracks.Oldest";

/// The oldest points of fleets that are kept, where a filter of compactions finds them. Asking never waits for long, and
/// changing neither.
#[derive(Clone, Debug, Default)]
pub(super) struct Oldest(Arc<Mutex<Arc<BTreeMap<Fleet, Time>>>>);

impl Oldest {
    /// As they are now.
    fn now(&self) -> Arc<BTreeMap<Fleet, Time>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on they are these.
    pub(super) fn set(&self, all: BTreeMap<Fleet, Time>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
    }
}

/// Makes a filter for each merge.
pub(super) struct Factory(pub(super) Oldest);

impl CompactionFilterFactory for Factory {
    fn name(&self) -> &str {
        NAME
    }

    fn create(&self, _: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        let oldest = self.0.now();
        if oldest.is_empty() {
            return None;
        }
        Some(Box::new(Filter(oldest)))
    }
}

struct Filter(Arc<BTreeMap<Fleet, Time>>);

impl CompactionFilter for Filter {
    fn name(&self) -> &str {
        NAME
    }

    fn filter(&self, _: usize, key: &[u8], _: FilterValue<'_>) -> FilterDecision {
        let Ok(at) = PointKey::of_bytes(key) else {
            return FilterDecision::Keep;
        };
        match self.0.get(&at.fleet) {
            Some(&oldest) if at.time < oldest => {
                let next = PointKey { time: oldest, ..at };
                FilterDecision::RemoveAndSkipUntil(next.to_bytes().to_vec())
            }
            _ => FilterDecision::Keep,
        }
    }
}
