//! What every Ironstone crate shares: errors, keys, integer coding, checksums, comparators,
//! the `options!{}` table, statistics, metrics, time, threads and randomness.
//!
//! A thing enters this crate only when two crates need it. Nothing here does I/O.

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
pub mod rng;
pub mod slice_transform;
pub mod stats;
pub mod sync;
pub mod threads;

/// Whether what the code states of itself is checked also where that takes time: in debug builds, which
/// is what tests run, and with `--cfg invariants`.
pub const INVARIANTS: bool = cfg!(any(invariants, debug_assertions));

/// Panics with a message if a condition does not hold, where [`INVARIANTS`] says that it is checked: a
/// `debug_assert!` that `--cfg invariants` turns on too.
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
