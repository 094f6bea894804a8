//! Settings of writers and readers: plain data.

/// How a sync makes the log durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WalSync {
    /// Write, then `fdatasync`. Right for a file that still grows: growing costs a journal commit
    /// either way.
    #[default]
    Fdatasync,
    /// One write with `RWF_DSYNC`: one device write for a group in a pre-zeroed file.
    Dsync,
}

/// How a log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// The log's file number; recyclable records carry it.
    pub log_number: u64,
    /// Writes recyclable records: the file may hold an older log's bytes after the tail. Never
    /// for a MANIFEST.
    pub recyclable: bool,
    /// For a file that was opened with [`io::OpenHow::direct`]: the unit in bytes in which it is
    /// written, a power of two, as [`io::Probe::write_unit`] says. The partial last unit is written again with each
    /// group, filled up with zeros, so the file is longer than the log by up to one unit.
    pub direct_unit: Option<u32>,
    /// How a sync makes the log durable.
    pub sync: WalSync,
    /// A byte that may be appended to any record without changing what it means. With it, no
    /// record begins exactly at a block boundary (the start of the file aside): one that would
    /// end so that the next does is lengthened to spill over. Otherwise a block of zeros could
    /// hide a hole: readers skip it and go on with the next record.
    pub filler: Option<u8>,
}

base::option_enum! {
    /// What recovery does with damage in a WAL. The names are RocksDB's, and so is the behaviour
    /// (`docs/formats.md`, "How readers treat the tail").
    #[derive(Default)]
    pub enum RecoveryMode {
        /// An incomplete record at the end of the file is dropped; anything else is refused.
        TolerateCorruptedTailRecords = "kTolerateCorruptedTailRecords",
        /// Any damage is refused.
        AbsoluteConsistency = "kAbsoluteConsistency",
        /// Recovery stops at the first damage: what is before it is kept. The default.
        #[default]
        PointInTimeRecovery = "kPointInTimeRecovery",
        /// What is damaged is skipped, and whatever can be read is kept. For salvage.
        SkipAnyCorruptedRecords = "kSkipAnyCorruptedRecords",
    }
}

/// How a WAL is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderOptions {
    /// What to do with damage.
    pub mode: RecoveryMode,
    /// Whether damage below a [`Fence`](crate::Fence) is refused as Corruption, in every mode but
    /// [`RecoveryMode::SkipAnyCorruptedRecords`].
    pub fences: bool,
}
