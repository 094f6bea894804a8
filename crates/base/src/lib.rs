//! Code that all Ironstone crates share: errors, keys, integer coding, checksums, comparators,
//! prefixes, merge operators, stored values, the `options!{}` table, statistics, metrics, time, locks,
//! threads and random numbers.
//!
//! Code is added to this crate only when two crates need it. Nothing here does I/O.

pub mod checksum;
pub mod clock;
pub mod coding;
pub mod comparator;
pub mod error;
pub mod key;
pub mod merge;
pub mod metrics;
pub mod options;
pub mod perf;
pub mod prefetch;
pub mod rng;
pub mod rounds;
pub mod slice_transform;
pub mod stats;
pub mod sync;
pub mod threads;
pub mod values;

/// Whether expensive checks of invariants are enabled: in debug builds, which include tests, and with
/// `--cfg invariants`.
pub const INVARIANTS: bool = cfg!(any(invariants, debug_assertions));

/// Panics with a message if a condition does not hold and [`INVARIANTS`] is true: a `debug_assert!` that
/// `--cfg invariants` enables too.
///
/// ```
/// let level = [1, 4, 9];
/// base::invariant!(level.is_sorted(), "a level out of order: {level:?}");
/// ```
#[macro_export]
macro_rules! invariant {
    ($($condition:tt)*) => {
        if $crate::INVARIANTS {
            assert!($($condition)*);
        }
    };
}

pub use comparator::Comparator;
pub use error::{Error, ErrorKind, Result};
pub use key::{FileNumber, SequenceNumber, ValueType};
pub use slice_transform::SliceTransform;
