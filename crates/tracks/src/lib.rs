//! Where everything is, and was: objects report positions; who is in an area, who is nearest, where one has been.
//!
//! ```text
//!   geo      cells, covers, shapes, distances: pure
//!   model    what is stored, byte for byte
//!   store    what keeps it: the engine, or another one in benchmarks
//!   write    taking reports            read     answering questions      fence    who goes in and out of areas
//!   live     where entities are now, for who listens
//!   service  all of it together        check    whether the rows agree with each other
//!   import   files into a store at once  http     the service over HTTP
//! ```
#![deny(clippy::indexing_slicing)]

pub mod check;
pub mod export;
pub mod fence;
pub mod files;
pub mod fleets;
pub mod geo;
pub mod http;
pub mod import;
pub mod keep;
pub mod live;
pub mod model;
pub mod read;
pub mod service;
pub mod sim;
pub mod store;
pub mod write;
