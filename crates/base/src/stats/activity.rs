//! The purpose for which a file is read or written.

use super::HistogramKind;

/// The purpose for which a table file is read or written: each has histograms of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activity {
    /// Any other purpose.
    #[default]
    Unknown,
    /// A flush that opens its table.
    Flush,
    /// A compaction.
    Compaction,
    /// The opening of a database.
    DbOpen,
    /// A lookup of a key.
    Get,
    /// A lookup of several keys.
    MultiGet,
    /// An iterator.
    DbIterator,
    /// A check of the checksums of all tables.
    VerifyDbChecksum,
    /// A check of checksums of whole files.
    VerifyFileChecksums,
}

impl Activity {
    /// The histogram for the times of reads, besides `rocksdb.sst.read.micros`.
    pub fn read_histogram(self) -> Option<HistogramKind> {
        Some(match self {
            Self::Unknown => return None,
            Self::Flush => HistogramKind::FileReadFlushMicros,
            Self::Compaction => HistogramKind::FileReadCompactionMicros,
            Self::DbOpen => HistogramKind::FileReadDbOpenMicros,
            Self::Get => HistogramKind::FileReadGetMicros,
            Self::MultiGet => HistogramKind::FileReadMultigetMicros,
            Self::DbIterator => HistogramKind::FileReadDbIteratorMicros,
            Self::VerifyDbChecksum => HistogramKind::FileReadVerifyDbChecksumMicros,
            Self::VerifyFileChecksums => HistogramKind::FileReadVerifyFileChecksumsMicros,
        })
    }

    /// The histogram for the times of writes, besides `rocksdb.sst.write.micros`.
    pub fn write_histogram(self) -> Option<HistogramKind> {
        match self {
            Self::Flush => Some(HistogramKind::FileWriteFlushMicros),
            Self::Compaction => Some(HistogramKind::FileWriteCompactionMicros),
            Self::DbOpen => Some(HistogramKind::FileWriteDbOpenMicros),
            _ => None,
        }
    }
}
