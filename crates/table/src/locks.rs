//! The locks of this crate, in their order: see `base::sync::Rank`. The engine's come before them.

use base::sync::Rank;

/// A shard of the block cache.
pub(crate) const CACHE_SHARD: Rank = Rank::new(80, "shard of the block cache");
/// A block that another thread compresses.
pub(crate) const COMPRESSED: Rank = Rank::new(82, "compressed block");
