//! `metadata_cache_options`: which blocks of indexes and filters stay in memory although they are kept in the block cache.

use base::options::OptionValue;

base::option_enum! {
    /// For which tables blocks stay in memory.
    pub enum PinningTier {
        /// For those that older options say.
        Fallback = "kFallback",
        /// For none.
        None = "kNone",
        /// For tables of level 0 that are not much larger than a memtable.
        FlushedAndSimilar = "kFlushedAndSimilar",
        /// For all.
        All = "kAll",
    }
}

/// Which blocks of indexes and filters stay in memory: `metadata_cache_options={…}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataCacheOptions {
    /// Top levels of what is partitioned; `kFallback` is `pin_top_level_index_and_filter`.
    pub top_level_index_pinning: PinningTier,
    /// Partitions; `kFallback` is `pin_l0_filter_and_index_blocks_in_cache`.
    pub partition_pinning: PinningTier,
    /// What is not partitioned; `kFallback` is `pin_l0_filter_and_index_blocks_in_cache`.
    pub unpartitioned_pinning: PinningTier,
}

impl Default for MetadataCacheOptions {
    fn default() -> Self {
        Self {
            top_level_index_pinning: PinningTier::Fallback,
            partition_pinning: PinningTier::Fallback,
            unpartitioned_pinning: PinningTier::Fallback,
        }
    }
}

impl OptionValue for MetadataCacheOptions {
    fn kind() -> String {
        format!("{{partition_pinning={};…}}", PinningTier::kind())
    }

    fn parse(text: &str) -> Option<Self> {
        Self::default().parse_onto(text)
    }

    fn parse_onto(&self, text: &str) -> Option<Self> {
        base::parse_struct!(
            self,
            text,
            [
                top_level_index_pinning,
                partition_pinning,
                unpartitioned_pinning
            ],
            accepted: &[]
        )
    }

    /// Prints the members in the order in which RocksDB writes them.
    fn print(&self) -> String {
        format!(
            "{{unpartitioned_pinning={};partition_pinning={};top_level_index_pinning={};}}",
            self.unpartitioned_pinning.print(),
            self.partition_pinning.print(),
            self.top_level_index_pinning.print(),
        )
    }
}
