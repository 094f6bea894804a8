//! Groups of settings for a purpose.
//!
//! The functions with RocksDB's names set what RocksDB 11.8.1 sets (measured: the OPTIONS files of databases opened
//! with each). Options without effect in Ironstone are left out. A [`Profile`] is Ironstone's own, for users who
//! prefer to describe their workload instead of tuning options.

use table::CompressionType;
use table::filter::FilterPolicy;
use table::options::DataBlockIndexType;

use super::compaction::PerLevel;
use super::{CompactionStyle, MemtableFactory, Options, WalTailPolicy};

/// The purpose of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Small writes that must survive a power failure, even on devices that destroy a sector while it is being
    /// written: padded logs, and logs that are verified against the MANIFEST.
    Durable,
    /// Filling a database from one thread before it is used: [`Options::prepare_for_bulk_load`], with memtables
    /// that are sorted only once. Compact the database manually afterwards.
    BulkLoad,
    /// Mostly point reads: filters in tables and memtables, hash indexes in blocks.
    ReadHeavy,
    /// 16 MiB of memory in total: small memtables and tables as in RocksDB's `OptimizeForSmallDb`, with a
    /// `memory_limit` instead of its 16 MiB cache.
    SmallMemory,
}

impl Profile {
    /// The name: `durable`, `bulk_load`, `read_heavy` or `small_memory`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::BulkLoad => "bulk_load",
            Self::ReadHeavy => "read_heavy",
            Self::SmallMemory => "small_memory",
        }
    }

    /// The profile with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        [
            Self::Durable,
            Self::BulkLoad,
            Self::ReadHeavy,
            Self::SmallMemory,
        ]
        .into_iter()
        .find(|p| p.name() == name)
    }
}

impl Options {
    /// The default options, changed by a profile.
    ///
    /// ```
    /// use ironstone::{Options, Profile};
    /// let options = Options::for_profile(Profile::BulkLoad);
    /// assert!(options.cf.disable_auto_compactions);
    /// options.validate().unwrap();
    /// ```
    pub fn for_profile(profile: Profile) -> Self {
        let mut o = Self::default();
        match profile {
            Profile::Durable => {
                o.db.wal_tail_policy = WalTailPolicy::Pad;
                o.db.track_and_verify_wals_in_manifest = true;
            }
            Profile::BulkLoad => {
                o.prepare_for_bulk_load();
                o.cf.memtable_factory = MemtableFactory::Vector;
                o.db.allow_concurrent_memtable_write = false;
            }
            Profile::ReadHeavy => o.optimize_for_point_lookup(),
            Profile::SmallMemory => {
                o.optimize_for_small_db();
                o.db.memory_limit = 16 << 20;
            }
        }
        o
    }

    /// Uses `total_threads` threads for flushes and compactions. One per processor is a good choice.
    pub fn increase_parallelism(&mut self, total_threads: i32) {
        self.db.max_background_jobs = total_threads.max(2);
    }

    /// For filling a database as fast as possible: nothing is compacted, and writers are never stalled by the
    /// number of files.
    pub fn prepare_for_bulk_load(&mut self) {
        const NEVER: i32 = 1 << 30;
        let cf = &mut self.cf.cf;
        cf.level0_file_num_compaction_trigger = NEVER;
        cf.level0_slowdown_writes_trigger = NEVER;
        cf.level0_stop_writes_trigger = NEVER;
        cf.soft_pending_compaction_bytes_limit = 0;
        cf.hard_pending_compaction_bytes_limit = 0;
        cf.disable_auto_compactions = true;
        cf.max_compaction_bytes = 1 << 60;
        cf.num_levels = 2;
        cf.max_write_buffer_number = 6;
        cf.min_write_buffer_number_to_merge = 1;
        cf.target_file_size_base = 256 << 20;
    }

    /// Level compaction with `memtable_memory_budget` bytes of memtables.
    pub fn optimize_level_style_compaction(&mut self, memtable_memory_budget: u64) {
        let cf = &mut self.cf.cf;
        cf.write_buffer_size = (memtable_memory_budget / 4).max(4096);
        cf.min_write_buffer_number_to_merge = 2;
        cf.max_write_buffer_number = 6;
        cf.level0_file_num_compaction_trigger = 2;
        cf.target_file_size_base = (memtable_memory_budget / 8).max(4096);
        cf.max_bytes_for_level_base = memtable_memory_budget.max(4096);
        cf.compaction_style = CompactionStyle::Level;
        let levels = cf.num_levels.unsigned_abs() as usize;
        let codec = |level| {
            if level < 2 {
                CompressionType::None
            } else {
                CompressionType::Lz4
            }
        };
        cf.compression_per_level = PerLevel((0..levels).map(codec).collect());
    }

    /// Universal compaction with `memtable_memory_budget` bytes of memtables.
    pub fn optimize_universal_style_compaction(&mut self, memtable_memory_budget: u64) {
        let cf = &mut self.cf.cf;
        cf.write_buffer_size = (memtable_memory_budget / 4).max(4096);
        cf.min_write_buffer_number_to_merge = 2;
        cf.max_write_buffer_number = 6;
        cf.compaction_style = CompactionStyle::Universal;
        cf.compaction_options_universal.compression_size_percent = 80;
    }

    /// For gets of single keys: filters, and hash indexes in data blocks. The size of the block cache is set by
    /// `env.block_cache`.
    pub fn optimize_for_point_lookup(&mut self) {
        self.cf.table.data_block_index_type = DataBlockIndexType::BinaryAndHash;
        self.cf.table.filter_policy = FilterPolicy::Bloom { bits_per_key: 10.0 };
        self.cf.memtable_prefix_bloom_size_ratio = 0.02;
        self.cf.memtable_whole_key_filtering = true;
    }

    /// For a database smaller than 1 GiB in little memory.
    pub fn optimize_for_small_db(&mut self) {
        let cf = &mut self.cf.cf;
        cf.write_buffer_size = 2 << 20;
        cf.target_file_size_base = 2 << 20;
        cf.max_bytes_for_level_base = 10 << 20;
        cf.soft_pending_compaction_bytes_limit = 256 << 20;
        cf.hard_pending_compaction_bytes_limit = 1 << 30;
        self.db.max_file_opening_threads = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_valid_and_have_names() {
        for name in ["durable", "bulk_load", "read_heavy", "small_memory"] {
            let profile = Profile::by_name(name).unwrap();
            assert_eq!(profile.name(), name);
            Options::for_profile(profile).validate().unwrap();
        }
        assert_eq!(Profile::by_name("fast"), None);
        let mut o = Options::default();
        o.optimize_level_style_compaction(512 << 20);
        o.increase_parallelism(8);
        o.validate().unwrap();
        assert_eq!(o.cf.max_bytes_for_level_base, 512 << 20);
        o.optimize_universal_style_compaction(512 << 20);
        o.validate().unwrap();
    }
}
