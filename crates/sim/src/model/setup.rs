//! The options of a run, drawn from its seed: small buffers and small files, so that a few
//! thousand operations go through everything.

use base::Comparator;
use base::rng::Rng;
use ironstone::{ColumnFamilyOptions, CompressionType, Options};
use table::ChecksumType;
use table::filter::FilterPolicy;

/// The families that a run begins with: name, and whether it has the reverse order.
pub(super) const FAMILIES: [(&str, bool); 3] =
    [("default", false), ("second", false), ("reverse", true)];

/// A run's options.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The options, without the file system.
    pub options: Options,
    /// Different keys in a family.
    pub keys: u64,
    /// Bytes of a usual value, at most.
    pub value_bytes: u64,
}

impl Setup {
    /// The options of a seed.
    pub fn of(rng: &mut Rng) -> Self {
        let mut o = Options::default();
        let db = &mut o.db;
        db.create_if_missing = true;
        db.max_background_jobs = 2 + rng.below(2) as i32;
        db.manual_wal_flush = rng.one_in(6);
        db.avoid_flush_during_recovery = rng.one_in(3);
        db.allow_concurrent_memtable_write = !rng.one_in(3);
        db.max_total_wal_size = pick(rng, &[0, 0, 64 << 10, 400 << 10]);
        db.max_manifest_file_size = pick(rng, &[1 << 30, 2000, 20_000]);
        o.cf = family_options(rng);
        Self {
            options: o,
            keys: pick(rng, &[40, 400, 400, 4000]),
            value_bytes: pick(rng, &[10, 100, 100, 1000]),
        }
    }
}

fn family_options(rng: &mut Rng) -> ColumnFamilyOptions {
    let mut o = ColumnFamilyOptions::default();
    let cf = &mut o.cf;
    cf.write_buffer_size = pick(rng, &[16 << 10, 64 << 10, 64 << 10, 256 << 10]);
    cf.arena_block_size = 4096;
    cf.max_write_buffer_number = 2 + rng.below(3) as i32;
    cf.min_write_buffer_number_to_merge = 1;
    cf.level0_file_num_compaction_trigger = 2 + rng.below(4) as i32;
    cf.target_file_size_base = pick(rng, &[8 << 10, 32 << 10, 1 << 20]);
    cf.max_bytes_for_level_base = pick(rng, &[32 << 10, 256 << 10, 10 << 20]);
    cf.num_levels = pick(rng, &[2, 4, 7]);
    cf.max_successive_merges = pick(rng, &[0, 0, 1, 4]);
    cf.compression = pick(
        rng,
        &[
            CompressionType::None,
            CompressionType::Snappy,
            CompressionType::Lz4,
            CompressionType::Zstd,
        ],
    );
    let operator = pick(rng, &["stringappend", "stringappendtest", "bytesxor"]);
    o.merge_operator = base::merge::parse(operator).unwrap_or_default();
    let t = &mut o.table;
    t.block_size = pick(rng, &[200, 1000, 4096, 16384]);
    t.block_restart_interval = pick(rng, &[1, 3, 16]);
    t.index_block_restart_interval = pick(rng, &[1, 4]);
    t.format_version = pick(rng, &[2, 3, 4, 5, 5]);
    t.checksum = pick(rng, &[ChecksumType::Crc32c, ChecksumType::Xxh3]);
    t.no_block_cache = rng.one_in(6);
    if rng.one_in(2) {
        t.filter_policy = FilterPolicy::Bloom {
            bits_per_key: pick(rng, &[2.0, 10.0]),
        };
    }
    o
}

/// The same options with the family's order.
pub(super) fn for_family(options: &Options, reverse: bool) -> ColumnFamilyOptions {
    let mut o = options.cf.clone();
    if reverse {
        o.comparator = Comparator::reverse_bytewise();
    }
    o
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}
