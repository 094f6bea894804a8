//! The counters of a client of volumes.

use base::metrics::{Kind, Metrics};

use crate::stats::{Counter, Histogram};

/// Counters that the client's thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Stats {
    /// Reads that are done.
    pub reads: Counter,
    /// Writes, zeros and trims that are done.
    pub writes: Counter,
    /// All other operations that are done.
    pub others: Counter,
    /// Operations that failed.
    pub failures: Counter,
    /// Bytes that were read.
    pub read_bytes: Counter,
    /// Bytes that were written.
    pub written_bytes: Counter,
    /// Time from the submission of a read to its completion.
    pub read_time: Histogram,
    /// Time from the submission of a write to its completion.
    pub write_time: Histogram,
    /// Volumes that are attached.
    pub attached: Counter,
    /// Stores that are connected.
    pub stores: Counter,
}

impl Stats {
    /// Writes all metrics in Prometheus' format.
    pub fn write(&self, m: &mut Metrics) {
        m.family(
            "ironstone_block_nbd_requests_total",
            Kind::Counter,
            "Operations that are done",
        );
        m.sample(&[("kind", "read")], self.reads.get());
        m.sample(&[("kind", "write")], self.writes.get());
        m.sample(&[("kind", "other")], self.others.get());
        m.family(
            "ironstone_block_nbd_failures_total",
            Kind::Counter,
            "Operations that failed",
        );
        m.sample(&[], self.failures.get());
        m.family(
            "ironstone_block_nbd_bytes_total",
            Kind::Counter,
            "Bytes of operations",
        );
        m.sample(&[("kind", "read")], self.read_bytes.get());
        m.sample(&[("kind", "write")], self.written_bytes.get());
        m.family(
            "ironstone_block_nbd_request_seconds",
            Kind::Histogram,
            "From an operation to its end",
        );
        self.read_time.write(&[("kind", "read")], m);
        self.write_time.write(&[("kind", "write")], m);
        m.family(
            "ironstone_block_nbd_attached",
            Kind::Gauge,
            "Volumes that are attached",
        );
        m.sample(&[], self.attached.get());
        m.family(
            "ironstone_block_nbd_stores",
            Kind::Gauge,
            "Stores that it is connected with",
        );
        m.sample(&[], self.stores.get());
    }
}
