//! Models and oracles that test Ironstone; never a dependency of a product crate.
//!
//! [`oracle`] asks real RocksDB.

pub mod oracle;
