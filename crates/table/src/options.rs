//! The options of block-based tables, under RocksDB's names (section
//! `TableOptions/BlockBasedTable` of the OPTIONS file).
//!
//! Only options that have an effect are declared here. RocksDB's other options are listed in
//! [`WITHOUT_EFFECT`]: [`TableOptions::apply`] accepts those of their values that require no feature,
//! and refuses every other value, naming the option.

mod pinning;

use base::options::OptionTable;
use base::{Error, Result};

use crate::checksum::ChecksumType;
use crate::filter::FilterPolicy;
pub use pinning::{MetadataCacheOptions, PinningTier};

base::option_enum! {
    /// The kind of index that a new table gets.
    pub enum IndexType {
        /// One index block, searched by bisection.
        BinarySearch = "kBinarySearch",
        /// One index block, and which of its entries belong to a prefix; needs a prefix extractor.
        Hash = "kHashSearch",
        /// Partitions, and an index of them.
        TwoLevel = "kTwoLevelIndexSearch",
        /// One index block that also has each data block's first key.
        BinarySearchWithFirstKey = "kBinarySearchWithFirstKey",
    }
}

base::option_enum! {
    /// How far the separators of an index are shortened.
    pub enum IndexShortening {
        /// Not: each separator is the last key of its block.
        None = "kNoShortening",
        /// Those between two blocks.
        Separators = "kShortenSeparators",
        /// Also the one behind the last block.
        SeparatorsAndSuccessor = "kShortenSeparatorsAndSuccessor",
    }
}

base::option_enum! {
    /// What helps to find a key in a data block.
    pub enum DataBlockIndexType {
        /// The restart points.
        BinarySearch = "kDataBlockBinarySearch",
        /// Also a hash index, which RocksDB's `Get` uses.
        BinaryAndHash = "kDataBlockBinaryAndHash",
    }
}

base::option_enum! {
    /// When a data block ends.
    pub enum FlushBlockPolicy {
        /// When it has `block_size` bytes.
        BySize = "FlushBlockBySizePolicyFactory",
        /// After each key.
        EveryKey = "FlushBlockEveryKeyPolicyFactory",
    }
}

base::option_enum! {
    /// Which data blocks are put into the block cache when they are written.
    pub enum PrepopulateBlockCache {
        /// None.
        Disable = "kDisable",
        /// Those of flushes.
        FlushOnly = "kFlushOnly",
    }
}

base::options! {
    /// How tables are written and read.
    pub struct TableOptions ["TableOptions/BlockBasedTable"] {
        /// Uncompressed bytes of a data block, approximately; more than 256 MiB are used as 256 MiB.
        block_size: u64 = 4096, in 0..=u64::from(u32::MAX), [Mutable, Strict];
        /// A block is closed early, when the next entry would exceed `block_size` and less than
        /// this percentage of the block is still free.
        block_size_deviation: i32 = 10, in 0..=100, [Mutable];
        /// Every how many entries of a data block a key is stored whole.
        block_restart_interval: i32 = 16, in 1..=1 << 20, [Mutable];
        /// The same for the index block.
        index_block_restart_interval: i32 = 1, in 1..=1 << 20, [Mutable];
        /// Version of the file format. RocksDB reads 6 from 8.6 on, and 7 from 10.4 on.
        format_version: u32 = 5, in 2..=7, [Mutable, Strict];
        /// Checksum of each block.
        checksum: ChecksumType = ChecksumType::Xxh3, [Mutable];
        /// `bloomfilter:10:false` writes a Bloom filter of 10 bits per key, `ribbonfilter:10:0` a
        /// smaller one that lets as few absent keys through (before the level named last, a Bloom
        /// filter); `nullptr` none.
        filter_policy: FilterPolicy = FilterPolicy::None, [Mutable];
        /// Whether whole keys are put into the filter, or only their prefixes.
        whole_key_filtering: bool = true, [Mutable];
        /// The kind of index.
        index_type: IndexType = IndexType::BinarySearch, [Mutable];
        /// Bytes of a partition of an index or a filter, approximately.
        metadata_block_size: u64 = 4096, in 1..=1 << 30, [Mutable];
        /// Whether the filter is written in partitions; needs `index_type=kTwoLevelIndexSearch`.
        partition_filters: bool = false, [Mutable];
        /// Whether each filter is asked for all its keys before it is written.
        detect_filter_construct_corruption: bool = false, [Mutable];
        /// What helps to find a key in a data block.
        data_block_index_type: DataBlockIndexType = DataBlockIndexType::BinarySearch, [Mutable];
        /// Keys for each bucket of a data block's hash index; more than 0 where there is one.
        data_block_hash_table_util_ratio: f64 = 0.75, [Mutable];
        /// When a data block ends.
        flush_block_policy_factory: FlushBlockPolicy = FlushBlockPolicy::BySize, [Mutable];
        /// Whether data blocks start at multiples of the smaller of `block_size` and 4096 bytes.
        /// Not with compression; `block_size` must be a power of two.
        block_align: bool = false, [Mutable];
        /// How far separators are shortened.
        index_shortening: IndexShortening = IndexShortening::Separators, [Mutable];
        /// Whether the index block is compressed like the data blocks.
        enable_index_compression: bool = true, [Mutable];
        /// Whether each compressed block is decompressed and compared before it is written.
        verify_compression: bool = false, [Mutable];
        /// Whether indexes and filters are kept in the block cache, and read again when they were evicted. Otherwise they
        /// stay in memory as long as the table is open. A block that is larger than the cache is read for each lookup:
        /// use `index_type=kTwoLevelIndexSearch` and `partition_filters` if the cache is small.
        cache_index_and_filter_blocks: bool = false, [Mutable];
        /// Whether they stay in the cache as long as blocks that were asked for, although nobody has asked for them yet.
        cache_index_and_filter_blocks_with_high_priority: bool = true, [Mutable];
        /// Whether those of tables of level 0 that are not much larger than a memtable stay in memory nevertheless.
        pin_l0_filter_and_index_blocks_in_cache: bool = false, [Mutable];
        /// Whether the top levels of partitioned indexes and filters stay in memory nevertheless.
        pin_top_level_index_and_filter: bool = true, [Mutable];
        /// The same for each kind of block; with `kFallback` the two options above decide.
        metadata_cache_options: MetadataCacheOptions = MetadataCacheOptions::default(), [Mutable];
        /// Which data blocks are put into the block cache when they are written; with `cache_index_and_filter_blocks`, those
        /// of indexes and filters too.
        prepopulate_block_cache: PrepopulateBlockCache = PrepopulateBlockCache::Disable, [Mutable];
        /// Whether blocks are read without the block cache.
        no_block_cache: bool = false, [Mutable];
        /// Bytes of the first read-ahead of an iterator; it doubles from there. 0 turns
        /// reading ahead off.
        initial_auto_readahead_size: u64 = 8192, in 0..=1 << 30, [Mutable];
        /// Largest read-ahead of an iterator in bytes. 0 turns reading ahead off.
        max_auto_readahead_size: u64 = 262_144, in 0..=1 << 30, [Mutable];
        /// After how many consecutive reads an iterator starts to read ahead, unless the last scans of the table had about
        /// the same length: then the first read is as long as they were.
        num_file_reads_for_auto_readahead: u64 = 2, in 0..=1 << 30, [Mutable];
    }
}

/// Options of RocksDB (7.8 to 11.8) that have no effect in Ironstone, each with the values that are
/// accepted because nothing depends on them here.
pub const WITHOUT_EFFECT: &[(&str, &[&str])] = &[
    ("read_amp_bytes_per_bit", &["0"]),
    ("use_delta_encoding", &["true"]),
    ("separate_key_value_in_data_block", &["false"]),
    ("super_block_alignment_size", &["0"]),
    ("uniform_cv_threshold", &["-1.000000", "-1"]),
    ("index_block_search_type", &["kBinary"]),
    ("user_defined_index_factory", &["nullptr"]),
    ("use_udi_as_primary_index", &["false"]),
    ("fail_if_no_udi_on_open", &["false"]),
    // The options below only tune features that are absent while those above have these values.
    ("optimize_filters_for_memory", &["false", "true"]),
    ("decouple_partitioned_filters", &["false", "true"]),
    ("super_block_alignment_space_overhead_ratio", &["128"]),
    ("hash_index_allow_collision", &["true", "false"]),
    ("skip_table_builder_flush", &["true", "false"]),
];

impl TableOptions {
    /// Sets an option by RocksDB's name.
    ///
    /// # Errors
    /// `NotSupported` for an option without effect in Ironstone, if the value is not one of the
    /// accepted ones; `InvalidArgument` for unknown names and values of the wrong type.
    pub fn apply(&mut self, name: &str, text: &str) -> Result<()> {
        let Some((_, accepted)) = WITHOUT_EFFECT.iter().find(|(n, _)| *n == name) else {
            return self.set(name, text);
        };
        let text = text.trim();
        if accepted.contains(&text) || accepted == &["0"] && text.parse() == Ok(0u64) {
            return Ok(());
        }
        Err(Error::not_supported(format!("option {name}={text}"))
            .hint(format!("only {name}={} works", accepted.join(" or "))))
    }

    /// Checks the range of each option.
    ///
    /// # Errors
    /// `InvalidArgument` for values out of range.
    pub fn check_writable(&self) -> Result<()> {
        self.validate()
    }

    /// Checks the rules between options, for tables of a family whose blocks are `compressed` and
    /// that has a prefix extractor or not.
    ///
    /// # Errors
    /// `InvalidArgument` for options that exclude one another; `NotSupported` for a hash index
    /// without a prefix extractor.
    pub fn check_together(&self, compressed: bool, has_prefix_extractor: bool) -> Result<()> {
        if self.index_type == IndexType::Hash && !has_prefix_extractor {
            return Err(
                Error::not_supported("index_type=kHashSearch without a prefix_extractor")
                    .hint("set prefix_extractor, or index_type=kBinarySearch"),
            );
        }
        if self.data_block_index_type == DataBlockIndexType::BinaryAndHash
            && self.data_block_hash_table_util_ratio <= 0.0
        {
            return Err(Error::invalid_argument(format!(
                "data_block_hash_table_util_ratio={} with data_block_index_type=\
                 kDataBlockBinaryAndHash",
                self.data_block_hash_table_util_ratio
            ))
            .hint("RocksDB refuses it too: it must be greater than 0"));
        }
        if self.cache_index_and_filter_blocks && self.no_block_cache {
            return Err(Error::invalid_argument(
                "cache_index_and_filter_blocks=true with no_block_cache=true",
            )
            .hint("RocksDB refuses it too: set one of them only"));
        }
        if self.pin_l0_filter_and_index_blocks_in_cache && self.no_block_cache {
            return Err(Error::invalid_argument(
                "pin_l0_filter_and_index_blocks_in_cache=true with no_block_cache=true",
            )
            .hint("RocksDB refuses it too: set one of them only"));
        }
        if self.block_align && compressed {
            return Err(Error::invalid_argument("block_align=true with compression")
                .hint("set compression=kNoCompression"));
        }
        if self.block_align && !self.block_size.is_power_of_two() {
            return Err(Error::invalid_argument(
                "block_align=true with a block_size that is no power of two",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;

    #[test]
    fn what_has_no_effect_is_refused_unless_it_asks_for_nothing() {
        let mut t = TableOptions::default();
        t.apply("read_amp_bytes_per_bit", "0").unwrap();
        let e = t.apply("read_amp_bytes_per_bit", "8").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported);
        let text = e.to_string();
        assert!(text.contains("option read_amp_bytes_per_bit=8"), "{e}");
        t.apply("block_size", "16384").unwrap();
        assert_eq!(t.block_size, 16384);
        t.apply("filter_policy", "bloomfilter:10:false").unwrap();
        assert_eq!(
            t.get("filter_policy").as_deref(),
            Some("bloomfilter:10:false")
        );
        let e = t.apply("no_such_option", "1").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
        let tiers = "metadata_cache_options";
        for bad in [
            "{partition_pinning=kSome}",
            "{pinning=kAll}",
            "{partition_pinning",
        ] {
            let e = t.apply(tiers, bad).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidArgument);
            assert!(e.to_string().contains(tiers), "{e}");
        }
        t.apply(tiers, "{partition_pinning=kAll;}").unwrap();
        let printed = t.get(tiers).unwrap();
        assert!(
            printed.contains("partition_pinning=kAll;top_level"),
            "{printed}"
        );
    }

    #[test]
    fn options_that_exclude_one_another() {
        let with = |text: &[(&str, &str)], compressed, prefixes| {
            let mut t = TableOptions::default();
            for (name, value) in text {
                t.apply(name, value).unwrap();
            }
            t.check_writable().unwrap();
            t.check_together(compressed, prefixes)
        };
        let hash = [("index_type", "kHashSearch")];
        with(&hash, true, true).unwrap();
        let e = with(&hash, true, false).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported);
        let parts = ("partition_filters", "true");
        with(&[parts, ("index_type", "kTwoLevelIndexSearch")], true, true).unwrap();
        let hash = ("data_block_index_type", "kDataBlockBinaryAndHash");
        let empty = ("data_block_hash_table_util_ratio", "0");
        with(&[empty], true, false).unwrap();
        assert!(with(&[hash, empty], true, false).is_err());
        let cached = ("cache_index_and_filter_blocks", "true");
        with(&[cached], true, false).unwrap();
        assert!(with(&[cached, ("no_block_cache", "true")], true, false).is_err());
        let align = ("block_align", "true");
        with(&[align], false, false).unwrap();
        assert!(with(&[align], true, false).is_err());
        assert!(with(&[align, ("block_size", "5000")], false, false).is_err());
    }
}
