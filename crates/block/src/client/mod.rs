//! The client of volumes: where their bytes are, and how operations on them become requests to stores.
#![deny(clippy::indexing_slicing)]

pub mod map;
