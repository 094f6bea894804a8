//! The locks of this crate, in their order: see `base::sync::Rank`. Most of the engine's come before them.

use base::sync::Rank;

/// A memtable's index, its range deletions, its list of entries.
pub(crate) const MEMTABLE: Rank = Rank::new(42, "memtable");
/// `Arena`: a memtable's memory.
pub(crate) const ARENA: Rank = Rank::new(44, "arena");
/// `Pool`: memory that no memtable uses.
pub(crate) const POOL: Rank = Rank::new(46, "memtable pool");
/// `WriteBuffers`: memtables whose memory is waited for.
pub(crate) const WRITE_BUFFERS: Rank = Rank::new(48, "write buffers");
/// `WriteBuffers`: what memtables have of the block cache.
pub(crate) const CACHE_CHARGE: Rank = Rank::new(50, "charge of the cache");
