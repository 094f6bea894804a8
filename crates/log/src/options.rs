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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Compresses each record with zstd, as RocksDB does. Only for a log from its start, or one that
    /// goes on compressed: a file never holds both. With `filler`, some content is lengthened by it.
    pub compressed: bool,
    /// What becomes of the partial last unit of a direct file.
    pub tail: TailPolicy,
    /// For a buffered log with [`TailPolicy::Pad`]: the bytes that go from the page cache to the device
    /// as a whole, a power of two below a block. What is synced shares none of them with what comes
    /// later, or a write of that would write it again.
    pub sync_unit: Option<u32>,
    /// How many durable writes may be on their way at once, at least 1. More than one needs
    /// [`TailPolicy::Pad`]: two of them must not touch one unit.
    pub depth: u32,
    /// Whether a buffered log outlives a full file system: its file is cut back to what was there
    /// before, and the group is pending again, to be tried later or forgotten
    /// ([`Writer::cut_back`](crate::Writer::cut_back)).
    pub outlives_full_disk: bool,
    /// For a buffered log whose readers refuse every torn record: the sector in bytes in which a
    /// device may tear a write. A group is written in steps: what lies behind the end of its first
    /// sector, which is made durable, then the rest, and its first header last. Whatever ends in
    /// between, a crash, an error or a short write, leaves that header whole with all behind it, or
    /// length and type zero in its place, which readers skip. No header lies in two sectors: a record
    /// that would end so that the next one does has a fragment more (one of a single byte cannot).
    pub head_last: Option<u32>,
    /// For a buffered log: before a sync, the file system is asked for blocks for so many bytes
    /// behind its end, unless it has some there; 0 never asks.
    pub allocate_ahead: u64,
}

/// What of a log's options is not its framing's: see [`LogOptions`].
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

/// What becomes of the partial last unit of a direct file when the next group comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TailPolicy {
    /// It is written again with the next group. Right where the device writes a unit as a whole or
    /// not at all.
    #[default]
    Rewrite,
    /// It is written again, in a write of its own that the device does as a whole or not at all:
    /// `direct_unit` is one that the device can write so.
    Atomic,
    /// It is never touched again: the caller fills each group up to a whole unit with a record that
    /// means nothing, see [`Writer::padding`](crate::Writer::padding).
    Pad {
        /// The shortest payload that such a record can have, bytes.
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
    /// Whether damage below a [`Fence`](crate::Fence) is refused as Corruption, and a format that this
    /// version does not know as `NotSupported`, in every mode but
    /// [`RecoveryMode::SkipAnyCorruptedRecords`].
    pub fences: bool,
}
