//! Options of a column family, without its table options. Names are RocksDB's. Defaults are those of 7.8.3, except
//! that `level_compaction_dynamic_level_bytes` is true, as it has been since 8.4.

use base::options::OptionValue;
use base::{Error, Result};
use memtable::MemtableFactory;
use table::CompressionType;

use super::compaction::{
    BottommostCompression, CompactionOptionsFifo, CompactionOptionsUniversal, CompactionPri,
    CompactionStyle, PerLevel,
};

/// How blocks are compressed: the nested `compression_opts={…}` of an OPTIONS file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionOptions {
    /// zlib's window size as a power of two; negative for data without a header. Only for zlib.
    pub window_bits: i32,
    /// The compression level. [`CompressionOptions::DEFAULT_LEVEL`] selects the algorithm's default.
    pub level: i32,
    /// zlib's strategy. Only for zlib.
    pub strategy: i32,
    /// The size in bytes of the dictionary of a table; 0 means no dictionary.
    pub max_dict_bytes: u32,
    /// How many bytes of samples a ZSTD dictionary is trained from; 0 uses the samples themselves as the
    /// dictionary.
    pub zstd_max_train_bytes: u32,
    /// The number of threads that compress the blocks of one table.
    pub parallel_threads: u32,
    /// In `bottommost_compression_opts`: whether these settings are used.
    pub enabled: bool,
    /// How many bytes of data may be buffered until the dictionary is made; 0 means one table.
    pub max_dict_buffer_bytes: u64,
    /// Whether ZSTD's trainer creates the dictionary.
    pub use_zstd_dict_trainer: bool,
}

impl CompressionOptions {
    /// The level that selects the algorithm's default.
    pub const DEFAULT_LEVEL: i32 = 32767;

    /// The level, or `None` for the algorithm's default.
    pub fn chosen_level(&self) -> Option<i32> {
        (self.level != Self::DEFAULT_LEVEL).then_some(self.level)
    }

    /// Sets the members of `{a=1;b=2;}`. The second result lists unknown members and values. Errors: a
    /// malformed text or an invalid value.
    pub fn parse_members<'t>(&self, text: &'t str) -> Result<(Self, Vec<(&'t str, &'t str)>)> {
        let (mut out, mut unknown) = (self.clone(), Vec::new());
        let members = match by_position(text) {
            Some(members) => members,
            None => super::codec::members(text)?,
        };
        for (name, value) in members {
            let bad = || base::options::bad_value(name, value, "compression option");
            macro_rules! set {
                ($($field:ident),*) => {
                    match name {
                        $( stringify!($field) => {
                            out.$field = OptionValue::parse(value).ok_or_else(bad)?;
                        } )*
                        _ if LATER_MEMBERS.contains(&(name, value)) => {}
                        _ => unknown.push((name, value)),
                    }
                };
            }
            set!(
                window_bits,
                level,
                strategy,
                max_dict_bytes,
                zstd_max_train_bytes,
                parallel_threads,
                enabled,
                max_dict_buffer_bytes,
                use_zstd_dict_trainer
            );
        }
        Ok((out, unknown))
    }

    /// The only supported value of a member that RocksDB has and this struct lacks.
    pub(super) fn only_value(member: &str) -> Option<&'static str> {
        let row = LATER_MEMBERS.iter().find(|(name, _)| *name == member);
        row.map(|(_, value)| *value)
    }

    /// The name of a member whose value Ironstone does not support, if there is one.
    pub fn unsupported(&self) -> Option<&'static str> {
        [
            // RocksDB cannot read data with wider windows or with headers.
            ("window_bits", !(-14..=-9).contains(&self.window_bits)),
            ("strategy", !(0..=4).contains(&self.strategy)),
        ]
        .into_iter()
        .find_map(|(name, differs)| differs.then_some(name))
    }

    /// A copy with the members that [`CompressionOptions::unsupported`] checks at their defaults.
    #[must_use]
    pub fn supported_part(&self) -> Self {
        let default = Self::default();
        Self {
            window_bits: default.window_bits,
            strategy: default.strategy,
            ..self.clone()
        }
    }

    /// The settings that a table builder needs.
    pub fn settings(&self) -> table::CompressionSettings {
        table::CompressionSettings {
            level: self.level,
            window_bits: self.window_bits,
            strategy: self.strategy,
            max_dict_bytes: self.max_dict_bytes,
            zstd_max_train_bytes: self.zstd_max_train_bytes,
            max_dict_buffer_bytes: self.max_dict_buffer_bytes,
            use_zstd_dict_trainer: self.use_zstd_dict_trainer,
            parallel_threads: self.parallel_threads,
        }
    }
}

/// The members of the old form `-14:32767:0`: three to nine values without names. If there are six, the last one is
/// `enabled`.
fn by_position(text: &str) -> Option<Vec<(&'static str, &str)>> {
    const NAMES: [&str; 9] = [
        "window_bits",
        "level",
        "strategy",
        "max_dict_bytes",
        "zstd_max_train_bytes",
        "parallel_threads",
        "enabled",
        "max_dict_buffer_bytes",
        "use_zstd_dict_trainer",
    ];
    let values: Vec<&str> = text.trim().split(':').collect();
    if text.contains(['{', '=']) || !(3..=NAMES.len()).contains(&values.len()) {
        return None;
    }
    let without_threads = values.len() == 6;
    let names = NAMES.iter().copied();
    let names = names.filter(|n| !(without_threads && *n == "parallel_threads"));
    Some(names.zip(values).collect())
}

/// Members of releases after 7.8.3, with the only supported value, which is RocksDB's default.
const LATER_MEMBERS: &[(&str, &str)] = &[
    ("checksum", "false"),
    ("max_compressed_bytes_per_kb", "896"),
];

impl Default for CompressionOptions {
    fn default() -> Self {
        Self {
            window_bits: -14,
            level: Self::DEFAULT_LEVEL,
            strategy: 0,
            max_dict_bytes: 0,
            zstd_max_train_bytes: 0,
            parallel_threads: 1,
            enabled: false,
            max_dict_buffer_bytes: 0,
            use_zstd_dict_trainer: true,
        }
    }
}

impl OptionValue for CompressionOptions {
    fn kind() -> String {
        "{level=…;…}".to_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        Self::default().parse_onto(text)
    }

    fn parse_onto(&self, text: &str) -> Option<Self> {
        let (value, unknown) = self.parse_members(text).ok()?;
        unknown.is_empty().then_some(value)
    }

    /// Prints the members in the order in which RocksDB 7.8.3 writes them.
    fn print(&self) -> String {
        format!(
            "{{max_dict_buffer_bytes={};enabled={};max_dict_bytes={};parallel_threads={};\
             zstd_max_train_bytes={};level={};use_zstd_dict_trainer={};strategy={};\
             window_bits={};}}",
            self.max_dict_buffer_bytes,
            self.enabled,
            self.max_dict_bytes,
            self.parallel_threads,
            self.zstd_max_train_bytes,
            self.level,
            self.use_zstd_dict_trainer,
            self.strategy,
            self.window_bits,
        )
    }
}

/// RocksDB's value for "the default of the compaction style" in options that are seconds.
const UNSET: u64 = u64::MAX - 1;

base::options! {
    /// Options of a column family.
    pub struct CfOptions ["CFOptions"] {
        /// Bytes of a memtable at which it is closed and flushed.
        write_buffer_size: u64 = 64 << 20, in 4096..=64 << 30, [Mutable];
        /// Memtables, the active one included, that may be in memory before writers wait.
        max_write_buffer_number: i32 = 2, in 2..=i32::MAX, [Mutable];
        /// Closed memtables that are merged into one table file, at least.
        min_write_buffer_number_to_merge: i32 = 1, in 1..=i32::MAX;
        /// Memtables, those in memory included, that are kept after their flush for checks of
        /// transactions; -1 is `max_write_buffer_number`. Without effect if
        /// `max_write_buffer_size_to_maintain` is not 0.
        max_write_buffer_number_to_maintain: i32 = 0, in -1..=i32::MAX;
        /// Bytes of memtables, those in memory included, that are kept after their flush for
        /// checks of transactions; -1 is `max_write_buffer_number` times `write_buffer_size`.
        max_write_buffer_size_to_maintain: i64 = 0, in -1..=i64::MAX;
        /// How a memtable holds its entries: `SkipListFactory`, or `VectorRepFactory` for bulk
        /// loads.
        memtable_factory: MemtableFactory = MemtableFactory::SkipList;
        /// Bytes of a memtable's Bloom filter as a part of `write_buffer_size`; 0 is no filter. It
        /// has the prefixes of keys, if there is a `prefix_extractor`.
        memtable_prefix_bloom_size_ratio: f64 = 0.0, in 0.0..=0.25, [Mutable];
        /// Whether a memtable's Bloom filter has whole keys.
        memtable_whole_key_filtering: bool = false, [Mutable];
        /// Range deletions in a memtable at which it is closed and flushed; 0 is no limit.
        memtable_max_range_deletions: u32 = 0, in 0..=u32::MAX, [Mutable];
        /// Bytes in which a memtable asks for memory; 0 is an eighth of `write_buffer_size`, and 1 MiB
        /// at most.
        arena_block_size: u64 = 1 << 20, in 4096..=1 << 32, [Mutable];
        /// Level 0 files at which a compaction starts.
        level0_file_num_compaction_trigger: i32 = 4, in 1..=i32::MAX, [Mutable];
        /// Level 0 files at which writers are slowed down.
        level0_slowdown_writes_trigger: i32 = 20, in 1..=i32::MAX, [Mutable];
        /// Level 0 files at which writers wait.
        level0_stop_writes_trigger: i32 = 36, in 1..=i32::MAX, [Mutable];
        /// Bytes that compactions have to write at which writers are slowed down, at most
        /// `hard_pending_compaction_bytes_limit`; 0 is that limit.
        soft_pending_compaction_bytes_limit: u64 = 64 << 30, in 0..=u64::MAX, [Mutable];
        /// Bytes that compactions have to write at which writers wait; 0 is no limit.
        hard_pending_compaction_bytes_limit: u64 = 256 << 30, in 0..=u64::MAX, [Mutable];
        /// Bytes that level 1 should hold.
        max_bytes_for_level_base: u64 = 256 << 20, in 1..=u64::MAX, [Mutable];
        /// How many times more bytes each deeper level should hold.
        max_bytes_for_level_multiplier: f64 = 10.0, in 1.0..=1000.0, [Mutable];
        /// Bytes of a table file in level 1.
        target_file_size_base: u64 = 64 << 20, in 1..=u64::MAX, [Mutable];
        /// How many times larger table files are in each deeper level.
        target_file_size_multiplier: i32 = 1, in 1..=i32::MAX, [Mutable];
        /// Whether the levels' targets follow from the size of the lowest level, so that most data is
        /// there: level 0 is compacted into the base level, and levels between are empty.
        level_compaction_dynamic_level_bytes: bool = true;
        /// Multiplied into each level's target, from level 1 on.
        max_bytes_for_level_multiplier_additional: PerLevel<i32> = PerLevel(vec![1; 7]), [Mutable];
        /// Levels. Level compaction needs two.
        num_levels: i32 = 7, in 1..=64;
        /// How tables are arranged.
        compaction_style: CompactionStyle = CompactionStyle::Level;
        /// Which file of a level is compacted first.
        compaction_pri: CompactionPri = CompactionPri::MinOverlappingRatio;
        /// Settings of universal compaction.
        compaction_options_universal: CompactionOptionsUniversal =
            CompactionOptionsUniversal::default(), [Mutable];
        /// Settings of FIFO compaction.
        compaction_options_fifo: CompactionOptionsFifo = CompactionOptionsFifo::default(), [Mutable];
        /// Whether files are cut a little early where a file of the level after the next ends, so
        /// that later compactions overlap less.
        level_compaction_dynamic_file_size: bool = true;
        /// Whether files of the upper level may join a compaction beyond `max_compaction_bytes` if
        /// the lower level's files stay the same.
        ignore_max_compaction_bytes_for_input: bool = true, [Mutable];
        /// Seconds after which data is compacted one level down (FIFO: deleted); 0 is never. 2^64 - 2
        /// is the default of the style: 30 days, with FIFO never.
        ttl: u64 = UNSET, in 0..=u64::MAX, [Mutable];
        /// Seconds after which a file is compacted again; 0 is never. 2^64 - 2 is the default of the
        /// style: never; with universal compaction 30 days, or `ttl` if that is less.
        periodic_compaction_seconds: u64 = UNSET, in 0..=u64::MAX, [Mutable];
        /// How blocks of new table files are compressed. Files of any type are read.
        compression: CompressionType = CompressionType::Snappy, [Mutable];
        /// Level and other settings of the compression.
        compression_opts: CompressionOptions = CompressionOptions::default(), [Mutable];
        /// How each level's files are compressed, from level 0 (with dynamic levels: level 0, then
        /// the base level and below); empty uses `compression` for all.
        compression_per_level: PerLevel<CompressionType> = PerLevel(Vec::new()), [Mutable];
        /// How the files of the lowest level that has any are compressed.
        bottommost_compression: BottommostCompression = BottommostCompression::Disable, [Mutable];
        /// Settings of the lowest level's compression, if `enabled` is set in them.
        bottommost_compression_opts: CompressionOptions = CompressionOptions::default(), [Mutable];
        /// Merge operands of a key that the memtable may hold on one another before a write merges
        /// them with what they lie on; 0 is no limit. Only what is in memory is merged.
        max_successive_merges: u64 = 0, in 0..=u64::MAX, [Mutable];
        /// Versions of one key that an iterator passes over one by one before it seeks.
        max_sequential_skip_in_iterations: u64 = 8, in 0..=u64::MAX, [Mutable];
        /// Whether compactions start only by call.
        disable_auto_compactions: bool = false, [Mutable];
        /// Bytes of one compaction's input above which it takes in no more files;
        /// 0 is 25 times `target_file_size_base`.
        max_compaction_bytes: u64 = 0, in 0..=u64::MAX, [Mutable];
    }
}

impl CfOptions {
    /// [`UNSET`], for other modules.
    pub(super) const UNSET: u64 = UNSET;

    /// [`CfOptions::max_compaction_bytes`], with 0 replaced by the value that it stands for.
    pub fn compaction_bytes_max(&self) -> u64 {
        match self.max_compaction_bytes {
            0 => self.target_file_size_base.saturating_mul(25),
            n => n,
        }
    }

    /// [`CfOptions::ttl`] in seconds; 0 means never. RocksDB's value for "the default" is 2^64 - 2.
    #[doc(hidden)]
    pub fn ttl_seconds(&self) -> u64 {
        match self.ttl {
            UNSET if self.compaction_style == CompactionStyle::Fifo => 0,
            UNSET => 2_592_000,
            u64::MAX => 0,
            n => n,
        }
    }

    /// [`CfOptions::periodic_compaction_seconds`] in seconds; 0 means never.
    #[doc(hidden)]
    pub fn periodic_seconds(&self) -> u64 {
        match self.periodic_compaction_seconds {
            UNSET | u64::MAX => 0,
            n => n,
        }
    }

    /// The compression of the files of a level. `lowest`: no level below has files.
    #[doc(hidden)]
    pub fn compression_of(
        &self,
        level: usize,
        base_level: usize,
        lowest: bool,
    ) -> (CompressionType, table::CompressionSettings) {
        if lowest && let Some(codec) = self.bottommost_compression.codec() {
            let own = &self.bottommost_compression_opts;
            let opts = if own.enabled {
                own
            } else {
                &self.compression_opts
            };
            return (codec, opts.settings());
        }
        let by_level = &self.compression_per_level.0;
        let at = match level {
            0 => 0,
            l => (l + 1).saturating_sub(base_level.max(1)),
        };
        let codec = by_level.get(at).or(by_level.last());
        let codec = codec.copied().unwrap_or(self.compression);
        (codec, self.compression_opts.settings())
    }

    /// Checks the rules between options; [`base::options::OptionTable::validate`] checks each option alone. Errors:
    /// `InvalidArgument`, naming both options and their values.
    pub fn validate_together(&self) -> Result<()> {
        for (name, opts) in [
            ("compression_opts", &self.compression_opts),
            (
                "bottommost_compression_opts",
                &self.bottommost_compression_opts,
            ),
        ] {
            if let Some(member) = opts.unsupported() {
                return Err(Error::not_supported(format!(
                    "option {name}: {member} that RocksDB does not read"
                )));
            }
        }
        let opts = &self.compression_opts;
        if opts.zstd_max_train_bytes > 0 && opts.max_dict_bytes == 0 {
            return Err(Error::invalid_argument(format!(
                "option compression_opts: zstd_max_train_bytes = {} with max_dict_bytes = 0",
                opts.zstd_max_train_bytes
            ))
            .hint("RocksDB refuses it too: set max_dict_bytes, or zstd_max_train_bytes = 0"));
        }
        Ok(())
    }
}
