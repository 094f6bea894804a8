//! A replicated block store: volumes over NBD whose writes are durable once a quorum has them in its Raft
//! logs. Chunks are written back later, and synced before the log that covers them is dropped.
//!
//! Being built, from the bottom up. What stands:
//!
//! | module | what it has |
//! |---|---|
//! | [`ids`] | what names a store, a group, a layer, a block |
//! | [`store`] | superblock, data file, dirty map, and tickets for what is durable in the data file |
//! | [`raftlog`] | the log that all groups of a store share, and what is left of it after a crash |
//! | [`group`] | one replica of a group: consensus over the log, what entries ask for, and how they are applied |
//! | [`wire`] | what processes say to each other: frames, connections, a client's requests |
//! | [`client`] | where a volume's bytes are, and the client of an attached volume |
//! | [`shard`] | a store in a process: its directory, and what it does |
//! | [`nbd`] | the NBD server: the protocol's bytes, connections, sockets |

pub mod client;
pub mod group;
pub mod ids;
pub mod memory;
pub mod nbd;
pub mod raftlog;
mod sealed;
pub mod shard;
pub mod stats;
pub mod store;
pub mod wake;
pub mod wire;
