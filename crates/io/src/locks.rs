//! The locks of this crate, in their order: see `base::sync::Rank`. Those of the crates that use it come before them.

use base::sync::Rank;

/// `NewNames` and `Dirs`: held while a directory is synced.
pub(crate) const DIRECTORY: Rank = Rank::new(150, "sync of a directory");
/// `RateLimiter`: bytes that may be written.
pub(crate) const LIMITER: Rank = Rank::new(152, "rate limiter");
/// `ReadQueues`: the queues that nobody has; the threads for reads, when they are started.
pub(crate) const READ_QUEUES: Rank = Rank::new(153, "queues for reads");
/// The threads of queues: what they are to do; the requests that a queue, or a task, has completed.
pub(crate) const QUEUE: Rank = Rank::new(154, "queue of requests");
/// `MappedFile`: the windows.
pub(crate) const WINDOWS: Rank = Rank::new(156, "windows of a mapped file");
