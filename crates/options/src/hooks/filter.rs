//! Compaction filters: user code that sees every value that a compaction writes.
//!
//! A filter sees the newest version of each key in the compaction, if that is a value or an entity, and
//! merge operands that no snapshot shows. It does not see deletions. **Snapshots are ignored**, as with
//! RocksDB's filters: a value that the filter removes or changes is also gone for readers of a snapshot. A
//! filter may be called by several threads at once.
//!
//! ```
//! use ironstone::{CompactionFilter, FilterDecision, FilterValue};
//!
//! /// Drops what begins with `tmp/`.
//! struct NoTemporaries;
//!
//! impl CompactionFilter for NoTemporaries {
//!     fn name(&self) -> &str {
//!         "NoTemporaries"
//!     }
//!     fn filter(&self, _level: usize, key: &[u8], _value: FilterValue<'_>) -> FilterDecision {
//!         if key.starts_with(b"tmp/") {
//!             FilterDecision::Remove
//!         } else {
//!             FilterDecision::Keep
//!         }
//!     }
//! }
//! ```

use std::fmt;
use std::sync::Arc;

use base::values::entity::WideColumns;

/// The entry that a filter sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterValue<'a> {
    /// A plain value.
    Value(&'a [u8]),
    /// An operand for the merge operator.
    MergeOperand(&'a [u8]),
    /// A wide-column entity.
    WideColumnEntity(&'a WideColumns),
}

/// What happens to a value or operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterDecision {
    /// It is kept as it is.
    Keep,
    /// It is removed. A value becomes a deletion, which hides older versions as long as there may be any;
    /// an operand is left out.
    Remove,
    /// It is replaced by this plain value, or this operand.
    ChangeValue(Vec<u8>),
    /// It is replaced by this entity. Not for operands.
    ChangeWideColumnEntity(WideColumns),
    /// It is removed, and so are all entries of the compaction's input from here up to this key
    /// (exclusive). No deletions take their place, so older versions in deeper levels may reappear, and
    /// entries that snapshots saw may vanish. The same as `Keep` if the key is not after the current one.
    RemoveAndSkipUntil(Vec<u8>),
}

/// Decides about values during compactions.
pub trait CompactionFilter: Send + Sync {
    /// The name in the OPTIONS file.
    fn name(&self) -> &str;

    /// Decides what happens to the value of `key`. `level` is the lowest level of the compaction's input.
    ///
    /// A panic fails the compaction; the filter is not called again until the database is
    /// reopened.
    fn filter(&self, level: usize, key: &[u8], value: FilterValue<'_>) -> FilterDecision;
}

/// A compaction filter made from a closure, which gets the lowest level of the compaction's input, the key,
/// and the value.
///
/// ```
/// use ironstone::{FilterDecision, Options, compaction_filter};
///
/// let mut options = Options::default();
/// options.cf.compaction_filter = Some(compaction_filter("NoTemporaries", |_level, key, _value| {
///     if key.starts_with(b"tmp/") { FilterDecision::Remove } else { FilterDecision::Keep }
/// }));
/// ```
pub fn compaction_filter<F>(name: impl Into<String>, filter: F) -> Arc<dyn CompactionFilter>
where
    F: Fn(usize, &[u8], FilterValue<'_>) -> FilterDecision + Send + Sync + 'static,
{
    Arc::new(Closure {
        name: name.into(),
        filter,
    })
}

/// See [`compaction_filter`].
struct Closure<F> {
    name: String,
    filter: F,
}

impl<F> CompactionFilter for Closure<F>
where
    F: Fn(usize, &[u8], FilterValue<'_>) -> FilterDecision + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn filter(&self, level: usize, key: &[u8], value: FilterValue<'_>) -> FilterDecision {
        (self.filter)(level, key, value)
    }
}

impl fmt::Debug for dyn CompactionFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a table is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableCreationReason {
    /// Memtables are written.
    Flush,
    /// Tables are merged.
    Compaction,
    /// Logs are recovered into a table.
    Recovery,
    /// Something else.
    Misc,
}

/// The flush or compaction that a filter is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterContext {
    /// Whether all tables of the family take part.
    pub is_full_compaction: bool,
    /// Whether it was requested by a call.
    pub is_manual_compaction: bool,
    /// The lowest level of the input.
    pub input_start_level: usize,
    /// The family's id.
    pub column_family_id: u32,
    /// Why the tables are created.
    pub reason: TableCreationReason,
}

/// Makes a filter for each compaction.
pub trait CompactionFilterFactory: Send + Sync {
    /// The name in the OPTIONS file.
    fn name(&self) -> &str;

    /// Whether tables created for this reason are filtered. Unless overridden, only those of compactions
    /// are.
    fn should_filter_table_file_creation(&self, reason: TableCreationReason) -> bool {
        reason == TableCreationReason::Compaction
    }

    /// The filter of one compaction; `None` if nothing is to be filtered.
    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>>;
}

impl fmt::Debug for dyn CompactionFilterFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
