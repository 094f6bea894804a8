//! Options of a write and of a flush. Names and defaults are RocksDB's.

/// Options of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Whether the write returns only after it is durable.
    pub sync: bool,
    /// Whether the write goes only to the memtable, so that a crash loses it.
    pub disable_wal: bool,
    /// Whether the write fails with `Incomplete` instead of waiting for a stall to end.
    pub no_slowdown: bool,
    /// Whether the write yields to others while compactions lag behind.
    pub low_pri: bool,
}

/// Options of a manual flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushOptions {
    /// Whether the call waits for the end of the flush.
    pub wait: bool,
    /// Whether the flush starts at once, even if this stalls writers.
    pub allow_write_stall: bool,
}

impl Default for FlushOptions {
    fn default() -> Self {
        Self {
            wait: true,
            allow_write_stall: false,
        }
    }
}
