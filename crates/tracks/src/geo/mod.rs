//! The geometry of the Earth's surface: pure functions, independent of the store.

pub mod cell;
pub mod corridor;
pub mod cover;
pub mod distance;
mod plane;
pub mod polygon;
pub mod position;
pub mod shape;
pub mod simplify;
pub mod surface;
