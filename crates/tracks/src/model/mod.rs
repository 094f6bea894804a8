//! What is stored: keys and values, byte for byte.
//!
//! ```text
//!   family      key                            value
//!   default     fleet 4  entity 8  time 8      the point
//!   geohash     fleet 4  cell 5    entity 8    the newest point, in short
//!   latest      fleet 4  entity 8              the newest point, and its cell
//! ```
//!
//! Numbers in keys are unsigned and big-endian, so that the order of bytes is that of meaning. A time is microseconds since
//! 1970, signed, with its sign flipped. Values are little-endian.

pub mod key;
pub mod point;
