//! A store's counters and status: written by its thread, read by any thread.

use std::sync::Arc;

use base::metrics::{Kind, Metrics};
use base::sync::{Mutex, PoisonError};

use super::core::Core;
use crate::group::raft::Role;
use crate::ids::Group;
use crate::stats::{Counter, Histogram};

/// The status of a replica at the last tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// The group.
    pub group: Group,
    /// Its role.
    pub role: Role,
    /// The leader, if known.
    pub leader: Option<u64>,
    /// Its term.
    pub term: u64,
    /// The last entry of its log.
    pub last: u64,
    /// The last entry that is known to be committed.
    pub committed: u64,
    /// The last entry that it has applied.
    pub applied: u64,
    /// The entry up to which its data file has everything durably.
    pub synced: u64,
}

/// A store's counters and status.
#[derive(Debug, Default)]
pub struct Stats {
    /// Reads of clients that were served.
    pub reads: Counter,
    /// Writes, zeros and trims that were served.
    pub writes: Counter,
    /// All other requests that were served.
    pub others: Counter,
    /// Requests that were not served.
    pub refusals: Counter,
    /// How often the machine's clock went back or stood still.
    pub wrong_clocks: Counter,
    /// Bytes that clients have read.
    pub read_bytes: Counter,
    /// Bytes that clients have written.
    pub written_bytes: Counter,
    /// Time from a read to its response.
    pub read_time: Histogram,
    /// Time from a write to its response.
    pub write_time: Histogram,
    /// Part of a write's time: until it was on its way to the log.
    pub queue_time: Histogram,
    /// Part of a write's time: until it was durable here.
    pub log_time: Histogram,
    /// Part of a write's time: until a quorum had it.
    pub peers_time: Histogram,
    /// Part of a write's time: until it was applied and answered.
    pub apply_time: Histogram,
    /// Writes of the log.
    pub log_batches: Counter,
    /// Bytes of the log's writes.
    pub log_bytes: Counter,
    /// Bytes that were written back to the data file.
    pub flusher_bytes: Arc<Counter>,
    /// Write-backs that failed.
    pub flusher_failures: Counter,
    /// Checkpoints of groups.
    pub checkpoints: Counter,
    /// Messages that were dropped because a slow peer's queue was full.
    pub dropped_messages: Counter,
    /// Bytes of blocks that the data file does not have durably.
    pub dirty_bytes: Counter,
    /// Changes of clients that wait until they may begin.
    pub waiting: Counter,
    /// Fill level of the log, in millionths.
    pub log_fill_ppm: Counter,
    /// Slots of the data file that no chunk uses.
    pub free_slots: Counter,
    /// Slots of the data file.
    pub slots: Counter,
    /// Groups that this store leads.
    pub leaders: Counter,
    /// Other stores that are connected.
    pub peers: Counter,
    groups: Mutex<Vec<GroupStatus>>,
}

impl Stats {
    /// The replicas' status at the last tick.
    pub fn groups(&self) -> Vec<GroupStatus> {
        let groups = self.groups.lock();
        groups.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Updates the store's status.
    pub(super) fn look_at(&self, core: &Core, groups: &[Group]) {
        self.dirty_bytes.set(core.dirty_bytes());
        self.checkpoints.set(core.checkpoints());
        self.waiting.set(core.waiting() as u64);
        self.log_fill_ppm.set((core.log().fill() * 1e6) as u64);
        let mut all = Vec::with_capacity(groups.len());
        for &group in groups {
            let Some(member) = core.member(group) else {
                continue;
            };
            let (node, replica) = (member.node(), member.replica());
            all.push(GroupStatus {
                group,
                role: node.role(),
                leader: node.leader(),
                term: node.term().0,
                last: node.last().0,
                committed: node.commit().0,
                applied: replica.applied().0,
                synced: replica.synced().0,
            });
        }
        let leaders = all.iter().filter(|g| g.role == Role::Leader).count();
        self.leaders.set(leaders as u64);
        *self.groups.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// Writes all metrics in Prometheus' format. `store`: the label of all samples.
    pub fn write(&self, store: &str, m: &mut Metrics) {
        let labels = [("store", store)];
        let with = |name: &'static str, value: &'static str| [labels[0], (name, value)];
        m.family(
            "ironstone_block_requests_total",
            Kind::Counter,
            "Requests of clients",
        );
        m.sample(&with("kind", "read"), self.reads.get());
        m.sample(&with("kind", "write"), self.writes.get());
        m.sample(&with("kind", "other"), self.others.get());
        m.family(
            "ironstone_block_bytes_total",
            Kind::Counter,
            "Bytes of clients",
        );
        m.sample(&with("kind", "read"), self.read_bytes.get());
        m.sample(&with("kind", "write"), self.written_bytes.get());
        m.family(
            "ironstone_block_request_seconds",
            Kind::Histogram,
            "From a request to its answer",
        );
        self.read_time.write(&with("kind", "read"), m);
        self.write_time.write(&with("kind", "write"), m);
        m.family(
            "ironstone_block_write_part_seconds",
            Kind::Histogram,
            "Parts of the time of a write",
        );
        self.queue_time.write(&with("part", "queue"), m);
        self.log_time.write(&with("part", "log"), m);
        self.peers_time.write(&with("part", "peers"), m);
        self.apply_time.write(&with("part", "apply"), m);
        for (name, help, counter) in self.counters() {
            m.family(name, Kind::Counter, help);
            m.sample(&labels, counter.get());
        }
        for (name, help, gauge) in self.gauges() {
            m.family(name, Kind::Gauge, help);
            m.sample(&labels, gauge.get());
        }
        m.family(
            "ironstone_block_log_fill_ratio",
            Kind::Gauge,
            "How full the log is, 0 to 1",
        );
        m.sample(&labels, self.log_fill_ppm.get() as f64 / 1e6);
    }

    fn counters(&self) -> [(&'static str, &'static str, &Counter); 8] {
        [
            (
                "ironstone_block_wrong_clocks_total",
                "Times that the machine's clock went back or stood still",
                &self.wrong_clocks,
            ),
            (
                "ironstone_block_refusals_total",
                "Requests that were not served",
                &self.refusals,
            ),
            (
                "ironstone_block_log_batches_total",
                "Writes of the log",
                &self.log_batches,
            ),
            (
                "ironstone_block_log_bytes_total",
                "Bytes written to the log",
                &self.log_bytes,
            ),
            (
                "ironstone_block_flusher_bytes_total",
                "Bytes written back to the data file",
                &self.flusher_bytes,
            ),
            (
                "ironstone_block_flusher_failures_total",
                "Write-backs that failed",
                &self.flusher_failures,
            ),
            (
                "ironstone_block_checkpoints_total",
                "Checkpoints of groups",
                &self.checkpoints,
            ),
            (
                "ironstone_block_dropped_messages_total",
                "Messages that a slow peer had no room for",
                &self.dropped_messages,
            ),
        ]
    }

    fn gauges(&self) -> [(&'static str, &'static str, &Counter); 6] {
        [
            (
                "ironstone_block_dirty_bytes",
                "Bytes of blocks that the data file does not have durably",
                &self.dirty_bytes,
            ),
            (
                "ironstone_block_waiting_requests",
                "Changes of clients that wait for room",
                &self.waiting,
            ),
            (
                "ironstone_block_free_slots",
                "Slots of the data file that no chunk has",
                &self.free_slots,
            ),
            (
                "ironstone_block_slots",
                "Slots of the data file",
                &self.slots,
            ),
            (
                "ironstone_block_leaders",
                "Groups that this store leads",
                &self.leaders,
            ),
            (
                "ironstone_block_peers",
                "Stores that this one is connected with",
                &self.peers,
            ),
        ]
    }
}
