//! Integration tests of the table crate: round trips, real RocksDB's files, and damage.
#![expect(clippy::unwrap_used, reason = "a failed test may panic")]

mod approach;
mod corpus;
mod damage;
mod on_demand;
mod round_trip;
mod sst_dump;
mod util;
mod vectors;
