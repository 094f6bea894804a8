//! The compaction filter that drops points older than their fleets keep.
//!
//! The key tells the age of a point. All keys of a fleet before its horizon are skipped up to the
//! first point that is kept: no tombstones are left. A filter uses the horizons as of the beginning
//! of its compaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::sync::{Mutex, PoisonError};
use ironstone::{
    CompactionFilter, CompactionFilterFactory, FilterContext, FilterDecision, FilterValue,
};

use crate::model::key::{Fleet, PointKey};
use crate::model::time::Time;

const NAME: &str = "ironstone.tracks.Oldest";

/// The horizons of fleets: the oldest points that are kept. The lock is only held to copy or
/// replace a pointer.
#[derive(Clone, Debug, Default)]
pub(super) struct Oldest(Arc<Mutex<Arc<BTreeMap<Fleet, Time>>>>);

impl Oldest {
    /// The current horizons.
    fn now(&self) -> Arc<BTreeMap<Fleet, Time>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the horizons.
    pub(super) fn set(&self, all: BTreeMap<Fleet, Time>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
    }
}

/// Makes a filter for each compaction.
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
