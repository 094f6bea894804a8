//! What a client of volumes counts.

use base::metrics::{Kind, Metrics};

use crate::stats::{Counter, Histogram};

/// Written by the client's thread, read by whoever asks.
#[derive(Debug, Default)]
pub struct Stats {
    /// Operations that are done, by kind.
    pub reads: Counter,
    /// Writes, zeros and trims.
    pub writes: Counter,
    /// All other operations.
    pub others: Counter,
    /// Operations that failed.
    pub failures: Counter,
    /// Bytes that were read.
    pub read_bytes: Counter,
    /// Bytes that were written.
    pub written_bytes: Counter,
    /// From a read to its end.
    pub read_time: Histogram,
    /// From a write to its end.
    pub write_time: Histogram,
    /// Volumes that are attached.
    pub attached: Counter,
    /// Stores that it is connected with.
    pub stores: Counter,
}

impl Stats {
    /// Everything, as Prometheus collects it.
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
