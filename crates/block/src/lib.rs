//! A replicated block store: volumes over NBD whose writes are durable once a quorum has them in its Raft
//! logs. Chunks are written back later, and synced before the log that covers them is dropped.
//!
//! Being built, from the bottom up. What stands:
//!
//! | module | what it has |
//! |---|---|
//! | [`group`] | one replica of a group: consensus over the log |
//! | [`ids`] | what names a store, a group, a layer, a block |
//! | [`raftlog`] | the log that all groups of a store share: its bytes, and what is left of it after a crash |
//! | [`store`] | the bytes of a store: superblock and extent pages |

pub mod group;
pub mod ids;
pub mod raftlog;
pub mod store;
