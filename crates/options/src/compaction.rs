//! Options of compactions: the styles, and the nested structs of an OPTIONS file for compactions. Names, members
//! and defaults are RocksDB's.

use std::sync::Arc;

use base::options::OptionValue;
use base::sync::atomic::AtomicBool;
use table::CompressionType;

base::option_enum! {
    /// How the tables of a column family are arranged.
    pub enum CompactionStyle {
        /// Levels that are each a multiple of the one above: little space, more writing.
        Level = "kCompactionStyleLevel",
        /// Sorted runs that are merged when they are of similar size: less writing, more space.
        Universal = "kCompactionStyleUniversal",
        /// The oldest tables are deleted: a cache with a size or an age.
        Fifo = "kCompactionStyleFIFO",
        /// Nothing is compacted but by call.
        None = "kCompactionStyleNone",
    }
}

base::option_enum! {
    /// Which file of a level is compacted first.
    pub enum CompactionPri {
        /// The largest, where deletions count as the data that they remove.
        ByCompensatedSize = "kByCompensatedSize",
        /// The one whose newest entry is oldest.
        OldestLargestSeqFirst = "kOldestLargestSeqFirst",
        /// The one whose oldest entry is oldest.
        OldestSmallestSeqFirst = "kOldestSmallestSeqFirst",
        /// The one that overlaps least in the next level, for its size.
        MinOverlappingRatio = "kMinOverlappingRatio",
        /// One after the other, by key.
        RoundRobin = "kRoundRobin",
    }
}

base::option_enum! {
    /// When a universal compaction takes in no more sorted runs.
    pub enum CompactionStopStyle {
        /// When the next is not of the size of the last one taken in.
        SimilarSize = "kCompactionStopStyleSimilarSize",
        /// When the next is larger than all taken in together.
        TotalSize = "kCompactionStopStyleTotalSize",
    }
}

base::option_enum! {
    /// How the files of the lowest level are compressed.
    pub enum BottommostCompression {
        /// As the other levels' are.
        Disable = "kDisableCompressionOption",
        /// Not at all.
        None = "kNoCompression",
        /// Snappy.
        Snappy = "kSnappyCompression",
        /// Deflate without a header.
        Zlib = "kZlibCompression",
        /// bzip2.
        BZip2 = "kBZip2Compression",
        /// LZ4.
        Lz4 = "kLZ4Compression",
        /// LZ4 with the slower, stronger compressor.
        Lz4hc = "kLZ4HCCompression",
        /// Zstandard.
        Zstd = "kZSTD",
    }
}

impl BottommostCompression {
    /// The codec; `None` if the lowest level has no codec of its own.
    pub fn codec(self) -> Option<CompressionType> {
        Some(match self {
            Self::Disable => return None,
            Self::None => CompressionType::None,
            Self::Snappy => CompressionType::Snappy,
            Self::Zlib => CompressionType::Zlib,
            Self::BZip2 => CompressionType::BZip2,
            Self::Lz4 => CompressionType::Lz4,
            Self::Lz4hc => CompressionType::Lz4hc,
            Self::Zstd => CompressionType::Zstd,
        })
    }
}

/// Settings of universal compaction: `compaction_options_universal={…}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionOptionsUniversal {
    /// A sorted run is merged with the newer ones before it if it is larger than all of them together by at most
    /// this many percent.
    pub size_ratio: u32,
    /// The least number of sorted runs in one compaction.
    pub min_merge_width: u32,
    /// The largest number of sorted runs in one compaction.
    pub max_merge_width: u32,
    /// All sorted runs are merged if the newer ones reach this percentage of the size of the oldest one.
    pub max_size_amplification_percent: u32,
    /// The percentage of the data, counted from the oldest, that is compressed; -1 compresses everything.
    pub compression_size_percent: i32,
    /// When a compaction stops adding sorted runs.
    pub stop_style: CompactionStopStyle,
    /// Whether files that overlap no others are moved instead of being rewritten.
    pub allow_trivial_move: bool,
}

impl Default for CompactionOptionsUniversal {
    fn default() -> Self {
        Self {
            size_ratio: 1,
            min_merge_width: 2,
            max_merge_width: u32::MAX,
            max_size_amplification_percent: 200,
            compression_size_percent: -1,
            stop_style: CompactionStopStyle::TotalSize,
            allow_trivial_move: false,
        }
    }
}

/// Accepted values of members of later releases, and of members of which only the default is implemented.
const UNIVERSAL_ACCEPTED: &[(&str, &str)] = &[
    ("incremental", "false"),
    ("max_read_amp", "-1"),
    ("reduce_file_locking", "false"),
    ("reduce_file_locking", "true"),
];

impl OptionValue for CompactionOptionsUniversal {
    fn kind() -> String {
        "{size_ratio=…;…}".to_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        Self::default().parse_onto(text)
    }

    fn parse_onto(&self, text: &str) -> Option<Self> {
        base::parse_struct!(
            self,
            text,
            [
                size_ratio,
                min_merge_width,
                max_merge_width,
                max_size_amplification_percent,
                compression_size_percent,
                stop_style,
                allow_trivial_move
            ],
            accepted: UNIVERSAL_ACCEPTED
        )
    }

    /// Prints the members in the order in which RocksDB 7.8.3 writes them.
    fn print(&self) -> String {
        format!(
            "{{incremental=false;compression_size_percent={};allow_trivial_move={};\
             max_size_amplification_percent={};max_merge_width={};stop_style={};\
             min_merge_width={};size_ratio={};}}",
            self.compression_size_percent,
            self.allow_trivial_move,
            self.max_size_amplification_percent,
            self.max_merge_width,
            self.stop_style.print(),
            self.min_merge_width,
            self.size_ratio,
        )
    }
}

/// Settings of FIFO compaction: `compaction_options_fifo={…}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionOptionsFifo {
    /// The total size in bytes of the tables above which the oldest ones are deleted.
    pub max_table_files_size: u64,
    /// Whether small tables are merged into larger ones.
    pub allow_compaction: bool,
}

impl Default for CompactionOptionsFifo {
    fn default() -> Self {
        Self {
            max_table_files_size: 1 << 30,
            allow_compaction: false,
        }
    }
}

/// Like [`UNIVERSAL_ACCEPTED`].
const FIFO_ACCEPTED: &[(&str, &str)] = &[
    ("age_for_warm", "0"),
    ("ttl", "0"),
    ("file_temperature_age_thresholds", "{}"),
    ("file_temperature_age_thresholds", ""),
    ("allow_trivial_copy_when_change_temperature", "false"),
    ("trivial_copy_buffer_size", "4096"),
    ("max_data_files_size", "0"),
    ("use_kv_ratio_compaction", "false"),
];

impl OptionValue for CompactionOptionsFifo {
    fn kind() -> String {
        "{max_table_files_size=…;…}".to_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        Self::default().parse_onto(text)
    }

    /// Also accepts a single number, which is `max_table_files_size`.
    fn parse_onto(&self, text: &str) -> Option<Self> {
        if let Some(max_table_files_size) = OptionValue::parse(text) {
            return Some(Self {
                max_table_files_size,
                ..self.clone()
            });
        }
        base::parse_struct!(self, text, [max_table_files_size, allow_compaction], accepted: FIFO_ACCEPTED)
    }

    /// Prints the members in the order in which RocksDB 7.8.3 writes them.
    fn print(&self) -> String {
        format!(
            "{{allow_compaction={};age_for_warm=0;max_table_files_size={};}}",
            self.allow_compaction, self.max_table_files_size
        )
    }
}

/// One value per level, written `a:b:c` in an OPTIONS file; empty means no values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerLevel<T>(pub Vec<T>);

impl<T: OptionValue> OptionValue for PerLevel<T> {
    fn kind() -> String {
        format!("{}:…", T::kind())
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let parts = text.split(':').filter(|_| !text.is_empty());
        parts.map(T::parse).collect::<Option<Vec<T>>>().map(Self)
    }

    fn print(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(OptionValue::print).collect();
        parts.join(":")
    }
}

/// What a manual compaction does with files that are already on the lowest level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BottommostLevelCompaction {
    /// Leave them unchanged.
    Skip,
    /// Compact them if the column family has a compaction filter.
    #[default]
    IfHaveCompactionFilter,
    /// Compact them.
    Force,
    /// Compact them, except those that this call has just written.
    ForceOptimized,
}

/// Options of `Cf::compact_range`.
#[derive(Clone, Debug)]
pub struct CompactRangeOptions {
    /// Whether no other compaction of the database may run at the same time.
    pub exclusive_manual_compaction: bool,
    /// Whether the files are moved to `target_level` at the end.
    pub change_level: bool,
    /// The level for `change_level`; -1 selects the uppermost level that can hold the files.
    pub target_level: i32,
    /// What to do with files that are already on the lowest level.
    pub bottommost_level_compaction: BottommostLevelCompaction,
    /// The number of threads that share one compaction; 0 uses the database's option.
    pub max_subcompactions: u32,
    /// When this becomes true, the call ends with `Incomplete`.
    pub canceled: Option<Arc<AtomicBool>>,
}

impl Default for CompactRangeOptions {
    fn default() -> Self {
        Self {
            exclusive_manual_compaction: false,
            change_level: false,
            target_level: -1,
            bottommost_level_compaction: BottommostLevelCompaction::default(),
            max_subcompactions: 0,
            canceled: None,
        }
    }
}

/// Options of `Cf::compact_files`.
#[derive(Clone, Debug)]
pub struct CompactionOptions {
    /// The size limit of an output file in bytes.
    pub output_file_size_limit: u64,
    /// The number of threads that share the compaction; 0 uses the database's option.
    pub max_subcompactions: u32,
    /// When this becomes true, the call ends with `Incomplete`.
    pub canceled: Option<Arc<AtomicBool>>,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        Self {
            output_file_size_limit: u64::MAX,
            max_subcompactions: 0,
            canceled: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_options_are_read_as_rocksdb_writes_them() {
        let u = CompactionOptionsUniversal {
            size_ratio: 7,
            stop_style: CompactionStopStyle::SimilarSize,
            ..Default::default()
        };
        assert_eq!(CompactionOptionsUniversal::parse(&u.print()), Some(u));
        let newer = "{max_read_amp=-1;size_ratio=3;}";
        assert_eq!(
            CompactionOptionsUniversal::parse(newer).unwrap().size_ratio,
            3
        );
        assert_eq!(
            CompactionOptionsUniversal::parse("{incremental=true;}"),
            None
        );
        let f = CompactionOptionsFifo {
            allow_compaction: true,
            max_table_files_size: 9,
        };
        assert_eq!(CompactionOptionsFifo::parse(&f.print()), Some(f));
        assert_eq!(CompactionOptionsFifo::parse("{age_for_warm=5;}"), None);
    }

    #[test]
    fn lists_by_level_are_read() {
        assert_eq!(PerLevel::<i32>::parse("1:2:3").unwrap().0, [1, 2, 3]);
        assert_eq!(PerLevel::<i32>::parse("").unwrap().0, [] as [i32; 0]);
        assert_eq!(PerLevel::<i32>::parse("1:x"), None);
        let c = PerLevel(vec![CompressionType::None, CompressionType::Zstd]);
        assert_eq!(c.print(), "kNoCompression:kZSTD");
    }
}
