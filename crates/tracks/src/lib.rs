//! Where everything is, and was: objects report positions; who is in an area, who is nearest, where one has been.
//!
//! ```text
//!   geo      cells, covers, shapes, distances: pure
//!   model    what is stored, byte for byte
//!   store    what keeps it: the engine, or another one in benchmarks
//!   write    taking reports            read     answering questions      fence    who goes in and out of areas
//!   service  all of it together        live     where entities are now, for who listens
//!   import   files into a store        export   and out of it            keep     how old points may be
//!   devices  what phones send          mqtt     from a broker            check    whether the rows agree with each other
//!   http     the service over HTTP
//! ```
#![deny(clippy::indexing_slicing)]

mod again;
pub mod check;
pub mod devices;
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
pub mod mqtt;
pub mod notices;
pub mod read;
pub mod service;
pub mod sim;
pub mod store;
pub mod write;
