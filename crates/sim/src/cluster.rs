//! A simulated cluster of block stores, and the judge of what its clients saw.
//!
//! ```text
//!   plan ──faults──> network, clocks, disks ──> stores ──> clients
//!                                                             │ every operation
//!                              linear <── history <───────────┘
//! ```
//!
//! - [`clocks`] is what time each node believes it is, and who stands still.
//! - [`history`] is what clients asked for, and when, and what they were told.
//! - [`linear`] says whether one copy of each block could have answered so; [`search`] does it where
//!   values are not unique, and [`violation`] is what it says if not.
//! - [`network`] loses, delays and reorders messages, and breaks connections.
//! - [`plan`] is what goes wrong and when, drawn from a seed; [`apply`] does it.
//! - [`shrink`] leaves out what a failure does not need.
//! - [`shape`] is what a cluster is made of, drawn from a seed; [`store`] is one of its stores, [`client`] an
//!   attachment of a volume, [`values`] what it writes.
//! - [`run`] lets it all happen, and [`coverage`] is how often what has.
//!
//! Nothing here has threads, sleeps, or asks the machine for the time: the same seed and the same
//! calls give the same run.

pub mod apply;
pub mod client;
pub mod clocks;
pub mod coverage;
pub mod history;
pub mod linear;
pub mod network;
pub mod node;
pub mod plan;
pub mod run;
pub mod search;
pub mod shape;
pub mod shrink;
pub mod store;
pub mod values;
pub mod violation;
mod world;
