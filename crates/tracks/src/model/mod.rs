//! The stored keys and values, byte for byte.
//!
//! ```text
//!   family      key                            value
//!   default     fleet 4  entity 8  time 8               the point
//!   geohash     fleet 4  cell 5    entity 8             the newest point, in short, and the name
//!   latest      fleet 4  entity 8                       the newest point, its cell, and the name
//!   visits      fleet 4  bucket 4  cell 4  entity 8     nothing: it was there in these ten minutes
//!   entities    fleet 4  entity 8                       the name
//! ```
//!
//! Numbers in keys are unsigned and big-endian, so that keys sort by their numeric values. A time
//! is microseconds since 1970, signed, with its sign bit flipped. Values are little-endian. The
//! number of an entity is a hash of its name.

pub mod key;
pub mod name;
pub mod newest;
pub mod point;
pub mod report;
pub mod time;
