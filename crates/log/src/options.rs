//! Settings of writers and readers: plain data.

/// How a sync makes the log durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WalSync {
    /// Write, then `fdatasync`. Right for a file that still grows: growing costs a journal commit
    /// either way.
    #[default]
    Fdatasync,
    /// One write with `RWF_DSYNC`. In a pre-zeroed file a group costs one device write.
    Dsync,
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The log's file number; recyclable records carry it.
    pub log_number: u64,
    /// Writes recyclable records, so that the file may hold an older log's bytes after the tail.
    /// Never set for a MANIFEST.
    pub recyclable: bool,
    /// For a file that was opened with [`io::OpenHow::direct`]: the write unit in bytes, a power of
    /// two, from [`io::Probe::write_unit`]. The partial last unit is padded with zeros and written
    /// again with each group, so the file is longer than the log by up to one unit.
    pub direct_unit: Option<u32>,
    /// How a sync makes the log durable.
    pub sync: WalSync,
    /// A byte that may be appended to any record without changing its meaning. If set, no record
    /// begins exactly at a block boundary, except at the start of the file: a record that would end
    /// at a boundary is lengthened to spill over it. Otherwise a lost block that reads as zeros could
    /// hide a hole, because readers skip zeros and continue with the next record.
    pub filler: Option<u8>,
    /// Compresses each record with zstd, as RocksDB does. A file is either compressed throughout or
    /// not at all: set this only for a new log, or to continue a compressed one. With `filler`, the
    /// content of some records is lengthened by that byte.
    pub compressed: bool,
    /// What becomes of the partial last unit of a direct file.
    pub tail: TailPolicy,
    /// For a buffered log with [`TailPolicy::Pad`]: the unit in bytes in which the page cache is written
    /// back, a power of two smaller than a block. Each sync ends at a multiple of it: otherwise the next
    /// write would write already synced bytes again.
    pub sync_unit: Option<u32>,
    /// How many durable writes may be in flight at once, at least 1. More than one needs
    /// [`TailPolicy::Pad`], because two writes in flight must not touch the same unit.
    pub depth: u32,
    /// Whether a buffered log survives a write that fails because the file system is full: the file is
    /// truncated to its length before the write, and the group is pending again. The caller retries it
    /// or discards it ([`Writer::cut_back`](crate::Writer::cut_back)).
    pub outlives_full_disk: bool,
    /// For a buffered log whose readers refuse every torn record: the size in bytes of the sectors at
    /// which a device may tear a write. A group is written in steps: first everything after its first
    /// sector, which is synced; then the rest of the first sector; its first header last. A crash, an
    /// error or a short write in between leaves either that header with the whole group behind it, or
    /// zeros for length and type in its place, which readers skip. No header straddles two sectors: if
    /// the next header would, the record is split into one more fragment (not possible for a record
    /// of a single byte).
    pub head_last: Option<u32>,
    /// For a buffered log: how many bytes of disk blocks to allocate behind its end before a sync, unless
    /// some are allocated there already; 0 never allocates.
    pub allocate_ahead: u64,
}

/// The options of a log that do not concern its framing: see [`LogOptions`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendOptions {
    /// See [`LogOptions::direct_unit`].
    pub(crate) direct_unit: Option<u32>,
    /// See [`LogOptions::sync`].
    pub(crate) sync: WalSync,
    /// See [`LogOptions::tail`].
    pub(crate) tail: TailPolicy,
    /// See [`LogOptions::depth`].
    pub(crate) depth: u32,
    /// See [`LogOptions::outlives_full_disk`].
    pub(crate) outlives_full_disk: bool,
    /// See [`LogOptions::allocate_ahead`].
    pub(crate) allocate_ahead: u64,
}

impl From<LogOptions> for AppendOptions {
    fn from(o: LogOptions) -> Self {
        Self {
            direct_unit: o.direct_unit,
            sync: o.sync,
            tail: o.tail,
            depth: o.depth,
            outlives_full_disk: o.outlives_full_disk,
            allocate_ahead: o.allocate_ahead,
        }
    }
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            log_number: 0,
            recyclable: false,
            direct_unit: None,
            sync: WalSync::default(),
            filler: None,
            compressed: false,
            tail: TailPolicy::default(),
            sync_unit: None,
            depth: 1,
            outlives_full_disk: false,
            head_last: None,
            allocate_ahead: 0,
        }
    }
}

/// What happens to the partial last unit of a direct file when the next group is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TailPolicy {
    /// It is written again with the next group. Safe if the device writes a unit atomically.
    #[default]
    Rewrite,
    /// It is written again in a separate atomic write: `direct_unit` must be a size that the device
    /// can write atomically.
    Atomic,
    /// It is never written again: the caller pads each group to a whole unit with a no-op record,
    /// see [`Writer::padding`](crate::Writer::padding).
    Pad {
        /// The shortest payload in bytes that the padding record can have.
        payload_min: u32,
    },
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
    /// If true, damage below a [`Fence`](crate::Fence) is refused as Corruption, and a format unknown
    /// to this version as `NotSupported`, in every mode but
    /// [`RecoveryMode::SkipAnyCorruptedRecords`].
    pub fences: bool,
}
