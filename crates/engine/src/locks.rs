//! The locks of a database, in their order: a thread that holds one may wait only for those below it.
//!
//! Debug builds check the order at every lock ([`base::sync::ranked`]). ARCHITECTURE.md has the same table, which
//! `cargo xtask gen` makes of this file and of `locks.rs` of the crates below the engine, whose ranks come after these.
//!
//! Reads take none of the first ones: they load a family's View and the last sequence number. Two things that are no
//! mutexes have a place too. The lead of a queue of writers comes before [`LOG_SWITCH`]. The gate of the order, closed
//! while memtables are rotated, comes before [`VERSIONS`].

use base::sync::Rank;

/// `LiveOptions`: held while options change, and while an OPTIONS file is written.
pub(crate) const OPTIONS: Rank = Rank::new(12, "options");
/// `Db`: its threads, when there are to be more or fewer.
pub(crate) const THREADS: Rank = Rank::new(13, "threads");
/// `Deletions`: held while logs are deleted; how often deletions are disabled, and who deletes tables.
pub(crate) const DELETIONS: Rank = Rank::new(14, "deletions");
/// `Writes`: how often the log is locked; held while that begins or ends.
pub(crate) const WAL_LOCKS: Rank = Rank::new(15, "locks of the log");
/// `Writes`: without `allow_concurrent_memtable_write`, held while a group is inserted.
pub(crate) const MEMTABLE_WRITER: Rank = Rank::new(16, "memtable writer");
/// `Catalog`: the set of versions and the MANIFEST.
pub(crate) const VERSIONS: Rank = Rank::new(18, "versions");
/// `SnapshotList`: the snapshots. An ingestion holds it while its files become visible. Whoever drops the last clone of a
/// snapshot takes the state lock behind it.
pub(crate) const SNAPSHOTS: Rank = Rank::new(19, "snapshots");
/// `Wal`: held while the next log is made.
pub(crate) const LOG_SWITCH: Rank = Rank::new(20, "log switch");
/// `Directory`: logs that must not be deleted while they are read.
pub(crate) const LOG_PINS: Rank = Rank::new(22, "log pins");
/// `Directory`: the first sequence numbers of logs that were read.
pub(crate) const LOG_SEQUENCES: Rank = Rank::new(24, "log sequences");
/// `Wal`: the active log.
pub(crate) const LOG: Rank = Rank::new(26, "log");
/// `Queue`: the writers that wait.
pub(crate) const QUEUE: Rank = Rank::new(28, "queue of writers");
/// `Follower`: a waiting writer's batch, its task and its result.
pub(crate) const WRITER: Rank = Rank::new(30, "waiting writer");
/// `Order`: the tickets, and the gate.
pub(crate) const ORDER: Rank = Rank::new(32, "order of writes");
/// `Demand`: how far the log is to become durable, and whether somebody waits for that.
pub(crate) const WANTED: Rank = Rank::new(34, "wanted log");
/// `Background`: which jobs run, the failure.
pub(crate) const STATE: Rank = Rank::new(36, "state");
/// `Stall`: what holds writers back. Views may be dropped while it is held.
pub(crate) const STALLS: Rank = Rank::new(37, "stalls");
/// `ManualCompaction`: how far a call has come, and its result.
pub(crate) const MANUAL: Rank = Rank::new(38, "manual compaction");
/// `Family`: memtables that are kept as history.
pub(crate) const HISTORY: Rank = Rank::new(40, "memtable history");
/// `Run`: the files that a compaction has made.
pub(crate) const OUTPUTS: Rank = Rank::new(52, "outputs of a compaction");
/// Small ones. Whoever holds one takes no other of these, but may write to LOG.
pub(crate) const LEAF: Rank = Rank::new(70, "leaf of the engine");
/// `InfoLog`: the file LOG.
pub(crate) const INFO_LOG: Rank = Rank::new(72, "LOG");
