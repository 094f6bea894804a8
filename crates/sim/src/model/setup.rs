//! The options of a run, drawn from its seed: small buffers and small files, so that a few thousand
//! operations use every part of the database.
//!
//! Options are text, `name=value;…`, as in RocksDB's `GetOptionsFromString`: a failure prints the options
//! of its run, and another program can use the same. Contradictory values are drawn again. Options in
//! [`IN_TURNS`] are chosen by the seed in turns, so that a few sets have each of their values.

use std::sync::{Arc, OnceLock};

use base::Comparator;
use base::rng::Rng;
use io::FileSystem as _;
use ironstone::{
    BlockCache, ColumnFamilyOptions, CompressedSecondaryCacheOptions, Options, RowCache,
};

use crate::dirs;

/// The initial families: name, and whether it has the reverse order.
pub(crate) const FAMILIES: [(&str, bool); 3] =
    [("default", false), ("second", false), ("reverse", true)];

/// The most draws until the options fit together.
const DRAWS_MAX: u32 = 10_000;

/// Option names with the values that they are drawn from; a value that is listed twice is twice as likely.
type Draws = &'static [(&'static str, &'static [&'static str])];

/// Options that a database keeps for its life, with each value in turn, by the seed.
const IN_TURNS: Draws = &[
    (
        "compaction_style",
        &[
            "kCompactionStyleLevel",
            "kCompactionStyleUniversal",
            "kCompactionStyleLevel",
            "kCompactionStyleLevel",
            "kCompactionStyleFIFO",
        ],
    ),
    (
        "merge_operator",
        &[
            "stringappend",
            "stringappendtest",
            "bytesxor",
            "uint64add",
            "put",
            "max",
            "stringappend",
        ],
    ),
    (
        "memtable_factory",
        &["skip_list", "skip_list", "vector", "skip_list"],
    ),
];

/// Options that a database keeps for its life.
const KEPT: Draws = &[
    ("num_levels", &["2", "4", "7"]),
    ("allow_ingest_behind", &["false", "false", "false", "true"]),
    (
        "level_compaction_dynamic_level_bytes",
        &["true", "true", "false"],
    ),
    (
        "prefix_extractor",
        &["nullptr", "nullptr", "fixed:4", "capped:8"],
    ),
    ("atomic_flush", &["false", "false", "true"]),
];

/// Options of the database that may differ each time it is opened.
const DATABASE: Draws = &[
    ("max_background_jobs", &["2", "3", "4"]),
    ("max_open_files", &["-1", "-1", "20"]),
    ("max_subcompactions", &["1", "2", "3"]),
    ("read_io_mode", &["auto", "auto", "pool", "off"]),
    ("use_direct_reads", &["false", "false", "true"]),
    (
        "lowest_used_cache_tier",
        &["kNonVolatileBlockTier", "kVolatileTier"],
    ),
    ("manual_wal_flush", &["false", "false", "false", "true"]),
    ("avoid_flush_during_recovery", &["false", "false", "true"]),
    (
        "allow_concurrent_memtable_write",
        &["true", "true", "false"],
    ),
    ("enable_pipelined_write", &["false", "false", "true"]),
    ("two_write_queues", &["false", "false", "true"]),
    ("max_total_wal_size", &["0", "0", "65536", "400000"]),
    ("max_manifest_file_size", &["1073741824", "2000", "20000"]),
    ("wal_io_mode", &["auto", "direct", "buffered"]),
    ("wal_pool_files", &["0", "1", "2"]),
    ("wal_tail_policy", &["rewrite", "rewrite", "pad"]),
    ("wal_pipeline_depth", &["1", "1", "2", "8"]),
    (
        "wal_compression",
        &["kNoCompression", "kNoCompression", "kZSTD"],
    ),
    ("recycle_log_file_num", &["0", "0", "2"]),
    ("WAL_ttl_seconds", &["0", "0", "0", "1"]),
    (
        "track_and_verify_wals_in_manifest",
        &["false", "false", "true"],
    ),
    ("db_write_buffer_size", &["0", "0", "200000"]),
    ("max_write_batch_group_size_bytes", &["1048576", "1000"]),
    ("bytes_per_sync", &["0", "4096"]),
    ("wal_bytes_per_sync", &["0", "4096"]),
    ("delayed_write_rate", &["16777216", "1000000000"]),
];

/// The same for families.
const FAMILY: Draws = &[
    ("write_buffer_size", &["16384", "65536", "65536", "262144"]),
    ("max_write_buffer_number", &["2", "3", "4"]),
    ("min_write_buffer_number_to_merge", &["1", "1", "1", "2"]),
    ("max_write_buffer_size_to_maintain", &["0", "0", "100000"]),
    ("memtable_prefix_bloom_size_ratio", &["0", "0.1"]),
    ("memtable_whole_key_filtering", &["false", "true"]),
    ("level0_file_num_compaction_trigger", &["2", "3", "4", "5"]),
    ("target_file_size_base", &["8192", "32768", "1048576"]),
    ("target_file_size_multiplier", &["1", "1", "2"]),
    ("max_bytes_for_level_base", &["32768", "262144", "10485760"]),
    ("max_bytes_for_level_multiplier", &["2", "10"]),
    ("max_compaction_bytes", &["0", "0", "100000"]),
    ("max_successive_merges", &["0", "0", "1", "4"]),
    (
        "compaction_pri",
        &[
            "kByCompensatedSize",
            "kOldestLargestSeqFirst",
            "kOldestSmallestSeqFirst",
            "kMinOverlappingRatio",
            "kRoundRobin",
        ],
    ),
    (
        "compaction_options_universal",
        &[
            "{allow_trivial_move=false}",
            "{allow_trivial_move=true}",
            "{size_ratio=20;max_size_amplification_percent=50}",
            "{max_merge_width=3;stop_style=kCompactionStopStyleSimilarSize}",
        ],
    ),
    (
        // So large that FIFO never deletes anything, because the model cannot know what it deletes.
        "compaction_options_fifo",
        &["{max_table_files_size=1000000000000;allow_compaction=true}"],
    ),
    ("level_compaction_dynamic_file_size", &["true", "false"]),
    ("ignore_max_compaction_bytes_for_input", &["true", "false"]),
    (
        "compression",
        &[
            "kNoCompression",
            "kNoCompression",
            "kSnappyCompression",
            "kLZ4Compression",
            "kLZ4HCCompression",
            "kZSTD",
            "kZlibCompression",
            "kBZip2Compression",
        ],
    ),
    (
        "compression_opts",
        &[
            "{level=32767}",
            "{level=32767}",
            "{parallel_threads=3}",
            "{max_dict_bytes=1000}",
            "{max_dict_bytes=1000;zstd_max_train_bytes=20000}",
        ],
    ),
    (
        "bottommost_compression",
        &[
            "kDisableCompressionOption",
            "kDisableCompressionOption",
            "kZSTD",
        ],
    ),
    (
        "compression_per_level",
        &["", "", "kNoCompression:kLZ4Compression:kZSTD"],
    ),
];

/// Options that may change while the database is open.
const MUTABLE: Draws = &[
    ("write_buffer_size", &["16384", "65536", "262144"]),
    ("max_write_buffer_number", &["2", "3", "4"]),
    ("level0_file_num_compaction_trigger", &["2", "4"]),
    ("target_file_size_base", &["8192", "32768", "1048576"]),
    ("max_bytes_for_level_base", &["32768", "262144", "10485760"]),
    ("max_compaction_bytes", &["0", "100000"]),
    ("max_successive_merges", &["0", "1", "4"]),
    ("memtable_prefix_bloom_size_ratio", &["0", "0.1"]),
    (
        "compression",
        &["kNoCompression", "kLZ4Compression", "kZSTD"],
    ),
    ("disable_auto_compactions", &["true", "false", "false"]),
    (
        "block_based_table_factory",
        &[
            "{block_size=512}",
            "{block_size=4096}",
            "{block_restart_interval=2}",
        ],
    ),
];

/// Options of tables that may differ each time the database is opened.
const TABLE: Draws = &[
    ("block_size", &["256", "1024", "4096", "16384"]),
    ("block_restart_interval", &["1", "3", "16"]),
    ("index_block_restart_interval", &["1", "4"]),
    ("format_version", &["2", "3", "4", "5", "5", "6", "7"]),
    (
        "checksum",
        &["kCRC32c", "kXXH3", "kxxHash", "kxxHash64", "kNoChecksum"],
    ),
    (
        "filter_policy",
        &[
            "nullptr",
            "bloomfilter:10:false",
            "bloomfilter:2:false",
            "ribbonfilter:10:-1",
            "ribbonfilter:5:2",
        ],
    ),
    ("whole_key_filtering", &["true", "true", "false"]),
    (
        "index_type",
        &[
            "kBinarySearch",
            "kHashSearch",
            "kTwoLevelIndexSearch",
            "kTwoLevelIndexSearch",
            "kBinarySearchWithFirstKey",
        ],
    ),
    ("metadata_block_size", &["100", "4096"]),
    ("partition_filters", &["false", "true"]),
    (
        "data_block_index_type",
        &["kDataBlockBinarySearch", "kDataBlockBinaryAndHash"],
    ),
    (
        "index_shortening",
        &[
            "kNoShortening",
            "kShortenSeparators",
            "kShortenSeparatorsAndSuccessor",
        ],
    ),
    ("enable_index_compression", &["true", "false"]),
    (
        "flush_block_policy_factory",
        &[
            "FlushBlockBySizePolicyFactory",
            "FlushBlockBySizePolicyFactory",
            "FlushBlockBySizePolicyFactory",
            "FlushBlockEveryKeyPolicyFactory",
        ],
    ),
    ("block_align", &["false", "false", "false", "true"]),
    ("cache_index_and_filter_blocks", &["false", "true"]),
    (
        "cache_index_and_filter_blocks_with_high_priority",
        &["false", "true"],
    ),
    (
        "pin_l0_filter_and_index_blocks_in_cache",
        &["false", "true"],
    ),
    ("pin_top_level_index_and_filter", &["false", "true"]),
    (
        "metadata_cache_options",
        &[
            "{}",
            "{}",
            "{partition_pinning=kAll;unpartitioned_pinning=kNone;}",
            "{top_level_index_pinning=kFlushedAndSimilar;unpartitioned_pinning=kAll;}",
        ],
    ),
    ("no_block_cache", &["false", "false", "false", "true"]),
    ("prepopulate_block_cache", &["kDisable", "kFlushOnly"]),
    ("verify_compression", &["false", "false", "true"]),
];

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The options, without the file system.
    pub options: Options,
    /// Number of different keys in a family.
    pub keys: u64,
    /// The most bytes of a usual value.
    pub value_bytes: u64,
    /// The options that the database keeps for its life, as text.
    kept: String,
    /// The options that were not drawn.
    fixed: String,
    /// All options, as text.
    text: String,
}

impl Setup {
    /// The options of a seed. `rng` is the run's generator.
    pub fn of(seed: u64, rng: &mut Rng) -> Self {
        Self::with(seed, rng, "")
    }

    /// The same, with some options given by `fixed`.
    pub(crate) fn with(seed: u64, rng: &mut Rng, fixed: &str) -> Self {
        let in_turns = IN_TURNS
            .iter()
            .map(|(name, values)| format!("{name}={};", values[seed as usize % values.len()]));
        let in_turns: String = in_turns.collect();
        let (keys, value_bytes) = (
            pick(rng, &[40, 400, 400, 4000]),
            pick(rng, &[10, 100, 100, 1000]),
        );
        for _ in 0..DRAWS_MAX {
            let kept = in_turns.clone() + &draw(rng, KEPT);
            if let Some((options, text)) = Self::draw_rest(&kept, fixed, rng) {
                return Self {
                    options,
                    keys,
                    value_bytes,
                    kept,
                    fixed: fixed.to_owned(),
                    text,
                };
            }
        }
        panic!("no options go together with {in_turns}");
    }

    /// Draws anew the options that may change when the database is opened again.
    pub(crate) fn vary(&mut self, rng: &mut Rng) {
        for _ in 0..DRAWS_MAX {
            if let Some((mut options, text)) = Self::draw_rest(&self.kept, &self.fixed, rng) {
                options.env = self.options.env.clone();
                (self.options, self.text) = (options, text);
                return;
            }
        }
    }

    /// One draw; `None` if some options contradict others.
    fn draw_rest(kept: &str, fixed: &str, rng: &mut Rng) -> Option<(Options, String)> {
        let mut text = format!(
            "{kept}create_if_missing=true;arena_block_size=4096;stats_dump_period_sec=0;\
             keep_log_file_num=2;info_log_level=WARN_LEVEL;level0_slowdown_writes_trigger=1000;\
             level0_stop_writes_trigger=2000;{}{}block_based_table_factory={{{}}};",
            draw(rng, DATABASE),
            draw(rng, FAMILY),
            draw(rng, TABLE)
        );
        if text.contains("StyleFIFO") {
            // Every table is kept, so there should be fewer.
            text += "write_buffer_size=1000000;";
        }
        text += fixed;
        let cache = rng.one_in(2).then(|| 100_000 << rng.below(5));
        let mut options = match Options::default().with_text(&text) {
            Ok(options) => options,
            Err(e) if e.kind() == ironstone::ErrorKind::InvalidArgument && is_rule(&e) => {
                return None;
            }
            Err(e) => panic!("{e}: {text}"),
        };
        if options.db.use_direct_reads && !has_direct_io() {
            options.db.use_direct_reads = false;
            text += " without direct reads";
        }
        if let Some(bytes) = cache {
            let second = CompressedSecondaryCacheOptions {
                capacity: if rng.one_in(2) {
                    50_000 << rng.below(5)
                } else {
                    0
                },
                ..CompressedSecondaryCacheOptions::default()
            };
            text += &format!(" a block cache of {bytes} and {} bytes", second.capacity);
            let cache = BlockCache::with_secondary(bytes, &second);
            options.env.block_cache = Some(Arc::new(cache));
        }
        if rng.one_in(3) {
            let bytes = 20_000 << rng.below(6);
            text += &format!(" a row cache of {bytes} bytes");
            options.env.row_cache = Some(Arc::new(RowCache::new(bytes)));
        }
        options.validate().is_ok().then_some((options, text))
    }

    /// A few of the options that may change while the database is open, with new values.
    pub(crate) fn changes(rng: &mut Rng) -> Vec<(&'static str, &'static str)> {
        let some = (0..=rng.below(3)).map(|_| {
            let (name, values) = pick(rng, MUTABLE);
            (name, pick(rng, values))
        });
        some.collect()
    }

    /// The options of the current life, as text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Whether the file system of the databases can read directly.
fn has_direct_io() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let probed = dirs::scratch().map(|dir| io::posix::Posix.probe(dir.path()));
        matches!(probed, Ok(Ok(probe)) if probe.direct_alignment.is_some())
    })
}

/// Whether the error says that options contradict each other, not that one is unknown.
fn is_rule(e: &ironstone::Error) -> bool {
    !e.to_string().contains("unknown")
}

/// One of the values of each option, as text.
fn draw(rng: &mut Rng, of: Draws) -> String {
    let each = of
        .iter()
        .map(|(name, values)| format!("{name}={};", pick(rng, values)));
    each.collect()
}

/// The family options, with the family's order.
pub(crate) fn for_family(options: &Options, reverse: bool) -> ColumnFamilyOptions {
    let mut o = options.cf.clone();
    if reverse {
        o.comparator = Comparator::reverse_bytewise();
    }
    o
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn twenty_sets_have_every_value_that_goes_in_turns() {
        let sets: Vec<Setup> = (0..20).map(|n| Setup::of(n, &mut Rng::new(n))).collect();
        for (name, values) in IN_TURNS {
            for value in *values {
                let one = format!("{name}={value};");
                assert!(sets.iter().any(|s| s.text().contains(&one)), "{one}");
            }
        }
        let different: BTreeSet<&str> = sets.iter().map(Setup::text).collect();
        assert_eq!(different.len(), 20);
    }

    #[test]
    fn every_value_is_met_and_goes_with_others() {
        let mut met = String::new();
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let mut setup = Setup::of(seed, &mut rng);
            met += setup.text();
            setup.vary(&mut rng);
            met += setup.text();
        }
        for (name, values) in [KEPT, DATABASE, FAMILY, TABLE].concat() {
            for value in values {
                assert!(met.contains(&format!("{name}={value};")), "{name}={value}");
            }
        }
    }
}
