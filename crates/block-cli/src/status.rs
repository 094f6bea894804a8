//! The status of processes, as JSON under `/status`.

use block::group::raft::Role;
use block::shard::stats::Stats as StoreStats;
use block::stats::Histogram;
use serde::{Deserialize, Serialize};

/// The number of operations, and the sum of their durations.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) seconds: f64,
}

impl Times {
    pub(crate) fn of(h: &Histogram) -> Self {
        Self {
            count: h.count(),
            seconds: h.sum().as_secs_f64(),
        }
    }

    /// The mean duration since an earlier status, µs.
    pub(crate) fn mean_us_since(self, before: Self) -> f64 {
        let count = self.count.saturating_sub(before.count);
        if count == 0 {
            return 0.0;
        }
        (self.seconds - before.seconds) * 1e6 / count as f64
    }
}

/// The status of a replica.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Replica {
    pub(crate) group: u32,
    pub(crate) role: String,
    pub(crate) leader: Option<u64>,
    pub(crate) term: u64,
    pub(crate) last: u64,
    pub(crate) committed: u64,
    pub(crate) applied: u64,
    pub(crate) synced: u64,
}

/// The status of a store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Chunk {
    pub(crate) store: u64,
    pub(crate) pid: u32,
    pub(crate) address: String,
    pub(crate) leaders: u64,
    pub(crate) peers: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) refusals: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) queue: Times,
    pub(crate) log: Times,
    pub(crate) peers_time: Times,
    pub(crate) apply: Times,
    pub(crate) log_batches: u64,
    pub(crate) log_bytes: u64,
    pub(crate) log_fill: f64,
    pub(crate) dirty_bytes: u64,
    pub(crate) flusher_bytes: u64,
    pub(crate) flusher_failures: u64,
    pub(crate) checkpoints: u64,
    pub(crate) dropped_messages: u64,
    pub(crate) free_slots: u64,
    pub(crate) slots: u64,
    pub(crate) groups: Vec<Replica>,
}

impl Chunk {
    pub(crate) fn of(store: u64, address: &str, s: &StoreStats) -> Self {
        let role = |role| match role {
            Role::Leader => "leader",
            Role::Follower => "follower",
            Role::Candidate => "candidate",
        };
        let groups = s.groups().into_iter().map(|g| Replica {
            group: g.group.0,
            role: role(g.role).to_owned(),
            leader: g.leader,
            term: g.term,
            last: g.last,
            committed: g.committed,
            applied: g.applied,
            synced: g.synced,
        });
        Self {
            store,
            pid: std::process::id(),
            address: address.to_owned(),
            leaders: s.leaders.get(),
            peers: s.peers.get(),
            reads: s.reads.get(),
            writes: s.writes.get(),
            refusals: s.refusals.get(),
            read_bytes: s.read_bytes.get(),
            written_bytes: s.written_bytes.get(),
            queue: Times::of(&s.queue_time),
            log: Times::of(&s.log_time),
            peers_time: Times::of(&s.peers_time),
            apply: Times::of(&s.apply_time),
            log_batches: s.log_batches.get(),
            log_bytes: s.log_bytes.get(),
            log_fill: s.log_fill_ppm.get() as f64 / 1e6,
            dirty_bytes: s.dirty_bytes.get(),
            flusher_bytes: s.flusher_bytes.get(),
            flusher_failures: s.flusher_failures.get(),
            checkpoints: s.checkpoints.get(),
            dropped_messages: s.dropped_messages.get(),
            free_slots: s.free_slots.get(),
            slots: s.slots.get(),
            groups: groups.collect(),
        }
    }
}

/// The status of an NBD server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Nbd {
    pub(crate) pid: u32,
    pub(crate) uri: String,
    pub(crate) attached: u64,
    pub(crate) stores: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) failures: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) read_time: Times,
    pub(crate) write_time: Times,
}

impl Nbd {
    pub(crate) fn of(uri: &str, s: &block::client::stats::Stats) -> Self {
        Self {
            pid: std::process::id(),
            uri: uri.to_owned(),
            attached: s.attached.get(),
            stores: s.stores.get(),
            reads: s.reads.get(),
            writes: s.writes.get(),
            failures: s.failures.get(),
            read_bytes: s.read_bytes.get(),
            written_bytes: s.written_bytes.get(),
            read_time: Times::of(&s.read_time),
            write_time: Times::of(&s.write_time),
        }
    }
}
