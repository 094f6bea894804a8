//! The log that all groups of a store share.
//!
//! ```text
//!   log/000007.log   head  batch batch batch …      direct, filled with zeros ahead (log::Pool)
//!                    │     └ one durable write each; batches share no unit of the device
//!                    └ 4 KiB: of which store, which number, what came before
//! ```
//!
//! A new file is begun at each open, so nothing that lies behind a cut ever comes back.
#![deny(clippy::indexing_slicing)]

pub mod batch;
pub mod file_head;
pub mod groups;
pub mod scan;
