//! The locks of this crate, in their order: see `base::sync::Rank`. The engine's come before them.

use base::sync::Rank;

/// `Watermarks`: held while a log's file is synced.
pub(crate) const DEVICE: Rank = Rank::new(100, "log's device");
/// `Names`: held while a directory is synced.
pub(crate) const NAMES_SYNC: Rank = Rank::new(102, "sync of names");
/// `Names`: which names are durable.
pub(crate) const NAMES: Rank = Rank::new(104, "names");
/// `Pool`: who fills it, and who has stopped that.
pub(crate) const POOL_BENCH: Rank = Rank::new(110, "filling of the pool");
/// `Pool`: files that are ready.
pub(crate) const POOL_READY: Rank = Rank::new(112, "ready logs");
/// `Pool`: obsolete logs whose names are not durable yet.
pub(crate) const POOL_RETIRED: Rank = Rank::new(114, "retired logs");
/// `Pool`: obsolete logs to be overwritten.
pub(crate) const POOL_RECYCLED: Rank = Rank::new(116, "recycled logs");
/// `Pool`: what an earlier process has left, the reserve, what could not be removed.
pub(crate) const POOL_FILES: Rank = Rank::new(118, "other files of the pool");
