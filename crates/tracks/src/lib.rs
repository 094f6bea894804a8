//! Where everything is, and was: objects report positions; who is in an area, who is nearest, where one has been.
//!
//! Being built. So far: [`geo`], the geometry, and [`model`], what is stored.
#![deny(clippy::indexing_slicing)]

pub mod geo;
pub mod model;
