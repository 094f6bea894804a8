//! Where everything is, and was: objects report positions; who is in an area, who is nearest, where one has been.
//!
//! Being built. So far: [`geo`], the geometry; [`model`], what is stored; [`store`], what keeps it; [`write`], taking reports.
#![deny(clippy::indexing_slicing)]

pub mod geo;
pub mod model;
pub mod store;
pub mod write;
