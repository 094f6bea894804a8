//! Models and oracles that test Ironstone; never a dependency of a product crate.
//!
//! - [`oracle`] asks real RocksDB: its C API ([`oracle::rocksdb`]) and its tools
//!   ([`oracle::ldb`]).
//! - [`chaos`] does everything at once from many threads, with faults all the time.
//! - [`corpus`] is a directory of databases that real RocksDB wrote, with their expected content.
//! - [`cluster`] simulates clusters of block stores, and checks what their clients saw.
//! - [`oracle::content`] reads everything in a database in every possible way, and compares.
//! - [`crash`] ends a simulated machine at every event, and checks the recovered state.
//! - [`disk`] is a disk in memory that models what a power cut may lose.
//! - [`dirs`] copies directories and detects changes of them.
//! - [`frozen`] is a read-only file system in memory.
//! - [`hooked`] is a file system between the engine and the real one, through which a test stops time or
//!   makes operations fail.
//! - [`model`] runs random operations against a `BTreeMap`.
//! - [`turns`] lets Ironstone and RocksDB take turns on one directory.

#[cfg(feature = "all")]
pub mod chaos;
#[cfg(feature = "all")]
pub mod cluster;
#[cfg(feature = "all")]
pub mod corpus;
#[cfg(feature = "all")]
pub mod crash;
pub mod dirs;
pub mod disk;
pub mod frozen;
pub mod hooked;
#[cfg(feature = "all")]
pub mod model;
#[cfg(feature = "all")]
pub mod oracle;
mod queues;
#[cfg(feature = "all")]
pub mod turns;
