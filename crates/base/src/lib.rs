//! What every Ironstone crate shares: errors, keys, integer coding, checksums, comparators,
//! the `options!{}` table, statistics, time and randomness.
//!
//! A thing enters this crate only when two crates need it. Nothing here does I/O.

pub mod checksum;
pub mod clock;
pub mod coding;
pub mod comparator;
pub mod error;
pub mod key;
pub mod merge;
pub mod options;
pub mod perf;
pub mod rng;
pub mod slice_transform;
pub mod stats;
pub mod sync;

/// Whether what the code states of itself is checked also where that takes time: in debug builds, which
/// is what tests run, and with `--cfg invariants`.
pub const INVARIANTS: bool = cfg!(any(invariants, debug_assertions));

pub use comparator::Comparator;
pub use error::{Error, ErrorKind, Result};
pub use key::{FileNumber, SequenceNumber, ValueType};
pub use slice_transform::SliceTransform;
