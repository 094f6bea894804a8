//! What Ironstone's command-line tools share.
//!
//! [`librocksdb`] drives real RocksDB, loaded at run time, for comparison.

pub mod librocksdb;
