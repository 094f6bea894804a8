//! A simulated cluster of block stores, and a check of everything that its clients saw.
//!
//! ```text
//!   plan ──faults──> network, clocks, disks ──> stores ──> clients
//!                                                             │ every operation
//!                              linear <── history <───────────┘
//! ```
//!
//! - [`clocks`]: each node's clocks, and paused nodes.
//! - [`history`]: the operations of clients, their times, and their answers.
//! - [`linear`] checks whether a single copy of each block could have given these answers; [`search`] does so if
//!   values are not unique, and [`violation`] describes a failure.
//! - [`network`] loses, delays and reorders messages, and breaks connections.
//! - [`plan`]: the faults and their times, drawn from a seed; [`apply`] applies them.
//! - [`shrink`] removes faults that a failure does not need.
//! - [`shape`]: the parameters of a cluster, drawn from a seed; [`store`] is one of its stores, [`client`] an
//!   attachment of a volume, [`values`] the values that it writes.
//! - [`run`] runs a simulation, and [`coverage`] counts what has happened.
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
