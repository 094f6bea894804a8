//! The tracking service: objects report positions; it answers which are in an area, which are
//! nearest, and where one has been.
//!
//! ```text
//!   geo      cells, covers, shapes, distances: pure functions
//!   model    the stored keys and values, byte for byte
//!   store    the engine that keeps them, or another one in benchmarks
//!   write    taking reports               read     answering questions        fence    areas with events
//!   service  all of it together           live     positions for listeners    keep     retention and thinning
//!   import   files into a store           export   a store into files         check    consistency of the rows
//!   devices  messages of phones           mqtt     messages from a broker     http     the service over HTTP
//! ```
#![deny(clippy::indexing_slicing)]

mod again;
pub mod backups;
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
