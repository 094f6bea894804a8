//! A replicated block store: volumes over NBD whose writes are durable once a quorum has them in its Raft
//! logs. Chunks are written back later, and synced before the log that covers them is dropped.
//!
//! Being built, from the bottom up. What stands:
//!
//! | module | what it has |
//! |---|---|
//! | [`ids`] | what names a store, a group, a layer, a block |
//! | [`nbd`] | the NBD server: the protocol's bytes, connections, sockets |
//! | [`raftlog`] | the log that all groups of a store share: its bytes, and what is left of it after a crash |
//! | [`store`] | the bytes of a store: superblock and extent pages |

pub mod ids;
pub mod nbd;
pub mod raftlog;
pub mod store;
