//! Calls compaction filters. A panic in a filter becomes an error of that compaction only.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, Ordering};
use base::{Error, Result};

use crate::catalog::family::Family;
use options::hooks::filter::{
    CompactionFilter, FilterContext, FilterDecision, FilterValue, TableCreationReason,
};

/// The filter of one flush or compaction.
pub(crate) struct Filter {
    user: Arc<dyn CompactionFilter>,
    /// The lowest level of the input.
    level: usize,
    /// Set once a filter of the family has panicked.
    failed: Arc<AtomicBool>,
}

impl Filter {
    /// The filter that the family's options set, if any. `None` after a filter of the family has panicked.
    pub(crate) fn of(family: &Family, context: &FilterContext) -> Result<Option<Self>> {
        let options = family.options();
        if !options.has_compaction_filter() || family.filter_failed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let make = || -> Option<Arc<dyn CompactionFilter>> {
            if let Some(filter) = &options.compaction_filter {
                let compaction = context.reason == TableCreationReason::Compaction;
                return compaction.then(|| Arc::clone(filter));
            }
            let factory = options.compaction_filter_factory.as_ref()?;
            if !factory.should_filter_table_file_creation(context.reason) {
                return None;
            }
            factory.create(context).map(Arc::from)
        };
        let failed = &family.filter_failed;
        let made = catch_unwind(AssertUnwindSafe(make)).map_err(|_| {
            let factory = options.compaction_filter_factory.as_ref();
            panicked(failed, factory.map_or("factory", |f| f.name()))
        })?;
        Ok(made.map(|filter| Self::new(filter, context.input_start_level, failed)))
    }

    pub(crate) fn new(
        user: Arc<dyn CompactionFilter>,
        level: usize,
        failed: &Arc<AtomicBool>,
    ) -> Self {
        Self {
            user,
            level,
            failed: Arc::clone(failed),
        }
    }

    /// The filter's decision. Errors: `Aborted` with the filter's name if it panics.
    pub(crate) fn decide(&self, user_key: &[u8], value: FilterValue<'_>) -> Result<FilterDecision> {
        let call = || self.user.filter(self.level, user_key, value);
        catch_unwind(AssertUnwindSafe(call)).map_err(|_| panicked(&self.failed, self.user.name()))
    }
}

#[cold]
fn panicked(failed: &AtomicBool, name: &str) -> Error {
    failed.store(true, Ordering::Relaxed);
    Error::aborted(format!("compaction filter {name} panicked"))
        .hint("it is not called again until the database is reopened")
}
