//! Tests of the block store from the outside.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking and prints what it skips"
)]

mod client;
mod clocks;
mod memory;
mod nbd;
mod nbd_tools;
mod tools;
