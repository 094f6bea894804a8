//! Models and oracles that test Ironstone; never a dependency of a product crate.
//!
//! - [`oracle`] asks real RocksDB: its C API ([`oracle::rocksdb`]) and its tools
//!   ([`oracle::ldb`]).
//! - [`chaos`] does everything at once from many threads while everything goes wrong.
//! - [`corpus`] is a folder of databases that real RocksDB wrote, with what they contain.
//! - [`cluster`] has what a simulated cluster is made of, and judges what its clients saw.
//! - [`content`] reads everything in a database in every way that there is, and compares.
//! - [`crash`] ends a simulated machine at every event and checks what comes back.
//! - [`disk`] is a disk in memory that knows what a power cut may take.
//! - [`dirs`] copies directories and tells whether they changed.
//! - [`frozen`] is files in memory that nobody can change.
//! - [`hooked`] is a file system between the engine and the real one, where a test stops time or
//!   makes operations fail.
//! - [`model`] runs random operations against a `BTreeMap`.
//! - [`turns`] lets Ironstone and RocksDB take turns on one directory.

pub mod chaos;
pub mod cluster;
pub mod content;
pub mod corpus;
pub mod crash;
pub mod dirs;
pub mod disk;
pub mod frozen;
pub mod hooked;
pub mod model;
pub mod oracle;
pub mod turns;
