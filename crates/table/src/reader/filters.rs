//! The filter of a table, whole or in partitions.
#![deny(clippy::indexing_slicing)]

use crate::block::Target;
use crate::filter::Filter;
use crate::index::Index;

/// What tells which keys are not in the table.
#[derive(Debug)]
pub(super) enum Filters {
    /// Nothing does.
    None,
    /// One filter for all keys.
    Full {
        /// The filter.
        filter: Filter,
        /// Bytes at the end of user keys that are not part of filter keys: a timestamp.
        timestamp: usize,
    },
    /// One filter for each range of keys.
    Partitioned {
        /// Entry i: the last key that filter i covers.
        index: Box<Index>,
        /// The filters; never empty.
        filters: Vec<Filter>,
        /// As above.
        timestamp: usize,
    },
}

impl Filters {
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// False only if no entry has the target's user key.
    #[inline]
    pub(super) fn may_match(&self, target: &Target<'_>) -> bool {
        match self {
            Self::None => true,
            Self::Full { filter, timestamp } => filter.may_match(strip(target.user, *timestamp)),
            Self::Partitioned {
                index,
                filters,
                timestamp,
            } => {
                // A key beyond the last entry belongs to the last partition.
                let i = index.seek(target).min(filters.len().saturating_sub(1));
                filters
                    .get(i)
                    .is_none_or(|f| f.may_match(strip(target.user, *timestamp)))
            }
        }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Full { filter, .. } => filter.memory_usage(),
            Self::Partitioned { index, filters, .. } => {
                index.memory() + filters.iter().map(Filter::memory_usage).sum::<usize>()
            }
        }
    }
}

#[inline]
fn strip(user_key: &[u8], timestamp: usize) -> &[u8] {
    let n = user_key.len().saturating_sub(timestamp);
    user_key.get(..n).unwrap_or(user_key)
}
