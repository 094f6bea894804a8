//! The options of block-based tables, under RocksDB's names (section
//! `TableOptions/BlockBasedTable` of the OPTIONS file).
//!
//! An option stands here only if it has an effect. Those that RocksDB has beyond that are listed
//! in [`WITHOUT_EFFECT`]: [`TableOptions::apply`] accepts the values that ask for nothing, and
//! refuses every other by name.

use base::options::OptionTable;
use base::{Error, Result};

use crate::checksum::ChecksumType;
use crate::filter::FilterPolicy;

base::option_enum! {
    /// The kind of index that a new table gets.
    pub enum IndexType {
        /// One index block, searched by bisection.
        BinarySearch = "kBinarySearch",
        /// Read, not written.
        Hash = "kHashSearch",
        /// Read, not written.
        TwoLevel = "kTwoLevelIndexSearch",
        /// Read, not written.
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

base::options! {
    /// How tables are written and read.
    pub struct TableOptions ["TableOptions/BlockBasedTable"] {
        /// Uncompressed bytes of a data block, approximately.
        block_size: u64 = 4096, in 1..=1 << 28, [Mutable];
        /// A block is closed early, when the next entry would exceed `block_size` and less than
        /// this percentage of the block is still free.
        block_size_deviation: i32 = 10, in 0..=100, [Mutable];
        /// Every how many entries of a data block a key is stored whole.
        block_restart_interval: i32 = 16, in 1..=1 << 20, [Mutable];
        /// The same for the index block.
        index_block_restart_interval: i32 = 1, in 1..=1 << 20, [Mutable];
        /// Version of the file format: 2 to 5 are written, 2 to 7 read.
        format_version: u32 = 5, in 2..=7, [Mutable];
        /// Checksum of each block.
        checksum: ChecksumType = ChecksumType::Xxh3, [Mutable];
        /// `bloomfilter:10:false` writes a Bloom filter of 10 bits per key; `nullptr` none.
        filter_policy: FilterPolicy = FilterPolicy::None, [Mutable];
        /// Whether whole keys are put into the filter.
        whole_key_filtering: bool = true, [Mutable];
        /// The kind of index; only `kBinarySearch` is written.
        index_type: IndexType = IndexType::BinarySearch, [Mutable];
        /// How far separators are shortened.
        index_shortening: IndexShortening = IndexShortening::Separators, [Mutable];
        /// Whether the index block is compressed like the data blocks.
        enable_index_compression: bool = true, [Mutable];
        /// Whether each compressed block is decompressed and compared before it is written.
        verify_compression: bool = false, [Mutable];
        /// Whether the memory of indexes and filters is charged to the block cache.
        cache_index_and_filter_blocks: bool = false, [Mutable];
        /// Whether blocks are read without the block cache.
        no_block_cache: bool = false;
        /// Bytes of the first read-ahead of an iterator; it doubles from there. 0 turns
        /// reading ahead off.
        initial_auto_readahead_size: u64 = 8192, in 0..=1 << 30, [Mutable];
        /// Largest read-ahead of an iterator in bytes. 0 turns reading ahead off.
        max_auto_readahead_size: u64 = 262_144, in 0..=1 << 30, [Mutable];
        /// After how many consecutive reads an iterator starts to read ahead.
        num_file_reads_for_auto_readahead: u64 = 2, in 0..=1 << 30, [Mutable];
    }
}

/// Options that RocksDB (7.8 to 11.8) has and Ironstone gives no effect to, each with the values
/// that are accepted because nothing depends on them here.
pub const WITHOUT_EFFECT: &[(&str, &[&str])] = &[
    ("block_align", &["false"]),
    ("data_block_hash_table_util_ratio", &["0.750000", "0.75"]),
    ("data_block_index_type", &["kDataBlockBinarySearch"]),
    ("partition_filters", &["false"]),
    ("prepopulate_block_cache", &["kDisable"]),
    ("read_amp_bytes_per_bit", &["0"]),
    ("use_delta_encoding", &["true"]),
    ("separate_key_value_in_data_block", &["false"]),
    ("super_block_alignment_size", &["0"]),
    ("uniform_cv_threshold", &["-1.000000", "-1"]),
    ("index_block_search_type", &["kBinary"]),
    ("user_defined_index_factory", &["nullptr"]),
    ("use_udi_as_primary_index", &["false"]),
    ("fail_if_no_udi_on_open", &["false"]),
    ("detect_filter_construct_corruption", &["false"]),
    // What follows only tunes something that is absent while the above have these values.
    ("optimize_filters_for_memory", &["false", "true"]),
    ("decouple_partitioned_filters", &["false", "true"]),
    ("metadata_block_size", &["4096"]),
    ("super_block_alignment_space_overhead_ratio", &["128"]),
    ("pin_top_level_index_and_filter", &["true", "false"]),
    (
        "pin_l0_filter_and_index_blocks_in_cache",
        &["true", "false"],
    ),
    (
        "cache_index_and_filter_blocks_with_high_priority",
        &["true", "false"],
    ),
    (
        "metadata_cache_options",
        &[
            "{unpartitioned_pinning=kFallback;partition_pinning=kFallback;top_level_index_pinning=kFallback;}",
        ],
    ),
    (
        "flush_block_policy_factory",
        &["FlushBlockBySizePolicyFactory"],
    ),
    ("hash_index_allow_collision", &["true", "false"]),
    ("skip_table_builder_flush", &["true", "false"]),
];

impl TableOptions {
    /// Sets an option by RocksDB's name.
    ///
    /// # Errors
    /// `NotSupported` for an option that RocksDB has and Ironstone does not, set to anything that
    /// asks for an effect; `InvalidArgument` for unknown names and values of the wrong type.
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

    /// Checks that tables can be written with these options.
    ///
    /// # Errors
    /// `InvalidArgument` for values out of range, `NotSupported` for formats that are only read.
    pub fn check_writable(&self) -> Result<()> {
        self.validate()?;
        if self.format_version > 5 {
            let v = self.format_version;
            return Err(
                Error::not_supported(format!("writing tables with format_version={v}"))
                    .hint("2 to 5 are written, 2 to 7 are read"),
            );
        }
        if self.index_type != IndexType::BinarySearch {
            use base::options::OptionValue;
            let kind = self.index_type.print();
            return Err(
                Error::not_supported(format!("writing tables with index_type={kind}"))
                    .hint("kBinarySearch is written, all types are read"),
            );
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
        t.apply("block_align", "false").unwrap();
        let e = t.apply("block_align", "true").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported);
        assert!(e.to_string().contains("option block_align=true"), "{e}");
        t.apply("block_size", "16384").unwrap();
        assert_eq!(t.block_size, 16384);
        t.apply("filter_policy", "bloomfilter:10:false").unwrap();
        assert_eq!(
            t.get("filter_policy").as_deref(),
            Some("bloomfilter:10:false")
        );
        let e = t.apply("no_such_option", "1").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn formats_that_are_only_read_are_refused_for_writing() {
        let mut t = TableOptions::default();
        t.check_writable().unwrap();
        t.apply("format_version", "6").unwrap();
        t.validate().unwrap();
        let e = t.check_writable().unwrap_err();
        assert!(
            e.to_string()
                .contains("writing tables with format_version=6"),
            "{e}"
        );
        t.apply("format_version", "5").unwrap();
        t.apply("index_type", "kTwoLevelIndexSearch").unwrap();
        assert_eq!(
            t.check_writable().unwrap_err().kind(),
            ErrorKind::NotSupported
        );
    }
}
