//! The filter of a table, full or partitioned.
//!
//! It contains the table's user keys, their prefixes, or both, as the table's properties say. If it has
//! prefixes only, a key without a prefix always matches.
#![deny(clippy::indexing_slicing)]

use base::SliceTransform;

use crate::block::Target;
use crate::filter::Filter;
use crate::handle::BlockHandle;
use crate::index::Index;

/// The filter of a table, and what it contains.
#[derive(Debug)]
pub(super) struct Filters {
    pub(super) parts: Parts,
    /// Bytes of the timestamp at the end of user keys, which is not part of filter keys.
    pub(super) timestamp: usize,
    /// The filters contain the whole keys.
    pub(super) whole_keys: bool,
    /// The filters contain the prefixes that this transform extracts.
    pub(super) prefixes: Option<SliceTransform>,
}

#[derive(Debug)]
pub(super) enum Parts {
    /// There is no filter.
    None,
    /// One filter for all keys.
    Full(Filter),
    /// One filter for each range of keys.
    Partitioned {
        /// Entry i: the last key that filter i covers.
        index: Box<Index>,
        /// The filters; never empty.
        filters: Vec<Filter>,
    },
    /// They are kept in the block cache.
    OnDemand(FilterAt),
}

/// Where the filter is in the file, or the top level of partitioned filters.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterAt {
    pub(super) handle: BlockHandle,
    pub(super) is_partitioned: bool,
}

impl Filters {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            parts,
            timestamp: 0,
            whole_keys: true,
            prefixes: None,
        }
    }

    /// True if there is no filter.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        matches!(self.parts, Parts::None)
    }

    /// True if there is a filter for each range of keys.
    pub(super) fn is_partitioned(&self) -> bool {
        match &self.parts {
            Parts::OnDemand(at) => at.is_partitioned,
            parts => matches!(parts, Parts::Partitioned { .. }),
        }
    }

    /// Where the filters are, if they are kept in the cache.
    #[inline]
    pub(super) fn on_demand(&self) -> Option<FilterAt> {
        match &self.parts {
            Parts::OnDemand(at) => Some(*at),
            _ => None,
        }
    }

    /// What the filters have of the target's user key; `None` if nothing.
    #[inline]
    pub(super) fn filter_key<'t>(&self, target: &Target<'t>) -> Option<&'t [u8]> {
        let user = strip(target.user, self.timestamp);
        if self.whole_keys {
            return Some(user);
        }
        self.prefixes.as_ref().and_then(|e| e.prefix(user))
    }

    /// False only if no entry has the target's user key. Only for filters in memory.
    #[inline]
    pub(super) fn may_match(&self, target: &Target<'_>) -> bool {
        self.filter_key(target)
            .is_none_or(|what| self.ask(target, what))
    }

    /// False only if `what`, a key or a prefix, is not in the partition of the target. Only for filters in memory.
    #[inline]
    pub(super) fn ask(&self, target: &Target<'_>, what: &[u8]) -> bool {
        match &self.parts {
            Parts::None | Parts::OnDemand(_) => true,
            Parts::Full(filter) => filter.may_match(what),
            Parts::Partitioned { index, filters } => {
                // A key beyond the last entry belongs to the last partition.
                let i = index.seek(target).min(filters.len().saturating_sub(1));
                filters.get(i).is_none_or(|f| f.may_match(what))
            }
        }
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> usize {
        match &self.parts {
            Parts::None | Parts::OnDemand(_) => 0,
            Parts::Full(filter) => filter.memory_usage(),
            Parts::Partitioned { index, filters } => {
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
