//! The engine's options that the flags ask for, in the form of OPTIONS files, which both engines read.

mod file;

use std::path::Path;

use base::options::OptionValue;
use base::{Error, Result};

use crate::flags::{FLAGS, Flags, Place};

/// An option that a flag sets.
pub(crate) struct EngineOption {
    pub(crate) place: Place,
    pub(crate) name: String,
    /// The flag that sets it; empty if it comes from an OPTIONS file or from several flags.
    pub(crate) flag: &'static str,
    /// The value in the form of OPTIONS files.
    pub(crate) value: String,
    /// Whether the value is db_bench's default.
    pub(crate) is_default: bool,
    /// Whether only Ironstone has the option.
    pub(crate) own: bool,
}

/// The options of all flags, or of `--options_file`. Errors: a flag has an invalid value, or the file
/// cannot be read.
pub(crate) fn options(flags: &Flags) -> Result<Vec<EngineOption>> {
    if !flags.options_file.is_empty() {
        let mut all = file::options(Path::new(&flags.options_file))?;
        all.extend(own(flags));
        return Ok(all);
    }
    let mut all: Vec<EngineOption> = FLAGS
        .iter()
        .filter_map(|flag| {
            let (place, name) = flag.option?;
            let value = (flag.get)(flags);
            (!value.is_empty()).then(|| EngineOption {
                place,
                name: name.to_owned(),
                flag: flag.name,
                is_default: value == (flag.default)(),
                own: false,
                value,
            })
        })
        .collect();
    let derived = [
        compression(flags)?,
        compaction(flags)?,
        levels(flags)?,
        fifo(flags),
        tables(flags)?,
        memtables(flags),
        others(flags)?,
    ];
    let derived = derived.into_iter().flatten();
    all.extend(derived.map(|(place, name, value)| EngineOption {
        place,
        name: name.to_owned(),
        flag: "",
        value,
        is_default: false,
        own: false,
    }));
    all.extend(own(flags));
    Ok(all)
}

/// The options that are set among those that only Ironstone has. OPTIONS files do not have them.
fn own(flags: &Flags) -> impl Iterator<Item = EngineOption> {
    let set = flags.own.iter();
    set.map(|(place, name, value, is_default)| EngineOption {
        place,
        name: name.to_owned(),
        flag: name,
        value: value.to_owned(),
        is_default,
        own: true,
    })
}

/// A kind of block compression.
pub(crate) use table::CompressionType as Compression;

/// The kind that `--compression_type` names.
pub(crate) fn block_compression(flags: &Flags) -> Result<Compression> {
    compression_kind("compression_type", &flags.compression_type)
}

/// The kind that the value of a flag names.
pub(crate) fn compression_kind(flag: &str, value: &str) -> Result<Compression> {
    Compression::parse(compression_name(flag, value)?)
        .ok_or_else(|| Error::not_supported(format!("{flag} {value}")))
}

/// Whether the flags enable counters. Errors: an unknown set of counters.
pub(crate) fn statistics(flags: &Flags) -> Result<bool> {
    const FORMS: [&str; 3] = [
        "BasicStatistics",
        "id=BasicStatistics",
        "{id=BasicStatistics}",
    ];
    let wanted = flags.statistics_string.as_str();
    if !wanted.is_empty() && !FORMS.contains(&wanted) {
        return Err(Error::invalid_argument(format!(
            "statistics_string {wanted}: must be BasicStatistics"
        )));
    }
    Ok(flags.statistics || !wanted.is_empty())
}

type Derived = Vec<(Place, &'static str, String)>;

fn compression(flags: &Flags) -> Result<Derived> {
    let kind = compression_name("compression_type", &flags.compression_type)?;
    let mut all = vec![(Place::Cf, "compression", kind.to_owned())];
    if let Ok(from) = usize::try_from(flags.min_level_to_compress) {
        let of_level = |l| if l < from { "kNoCompression" } else { kind };
        let levels: Vec<_> = (0..flags.num_levels as usize).map(of_level).collect();
        all.push((Place::Cf, "compression_per_level", levels.join(":")));
    }
    let settings = [
        ("level", i64::from(flags.compression_level), 32767),
        (
            "max_dict_bytes",
            i64::from(flags.compression_max_dict_bytes),
            0,
        ),
        (
            "zstd_max_train_bytes",
            i64::from(flags.compression_zstd_max_train_bytes),
            0,
        ),
        (
            "parallel_threads",
            i64::from(flags.compression_parallel_threads),
            1,
        ),
        (
            "max_dict_buffer_bytes",
            flags.compression_max_dict_buffer_bytes as i64,
            0,
        ),
    ];
    let changed = settings
        .iter()
        .filter(|(_, value, default)| value != default);
    let mut changed: Vec<String> = changed.map(|(n, v, _)| format!("{n}={v}")).collect();
    if !flags.compression_use_zstd_dict_trainer {
        changed.push("use_zstd_dict_trainer=false".to_owned());
    }
    if !changed.is_empty() {
        all.push((Place::Cf, "compression_opts", braces(&changed)));
    }
    Ok(all)
}

fn compaction(flags: &Flags) -> Result<Derived> {
    const STYLES: [&str; 4] = [
        "kCompactionStyleLevel",
        "kCompactionStyleUniversal",
        "kCompactionStyleFIFO",
        "kCompactionStyleNone",
    ];
    const PRIORITIES: [&str; 5] = [
        "kByCompensatedSize",
        "kOldestLargestSeqFirst",
        "kOldestSmallestSeqFirst",
        "kMinOverlappingRatio",
        "kRoundRobin",
    ];
    let style = numbered("compaction_style", flags.compaction_style, &STYLES)?;
    let pri = numbered("compaction_pri", flags.compaction_pri, &PRIORITIES)?;
    let mut all = vec![
        (Place::Cf, "compaction_style", style.to_owned()),
        (Place::Cf, "compaction_pri", pri.to_owned()),
    ];
    let universal = universal(flags)?;
    if !universal.is_empty() {
        all.push((
            Place::Cf,
            "compaction_options_universal",
            braces(&universal),
        ));
    }
    if flags.compaction_measure_io_stats {
        all.push((Place::Cf, "report_bg_io_stats", "true".to_owned()));
    }
    Ok(all)
}

/// The settings of universal compaction that are not at RocksDB's default.
fn universal(flags: &Flags) -> Result<Vec<String>> {
    let numbers = [
        ("size_ratio", flags.universal_size_ratio, 0),
        ("min_merge_width", flags.universal_min_merge_width, 0),
        ("max_merge_width", flags.universal_max_merge_width, 0),
        (
            "max_size_amplification_percent",
            flags.universal_max_size_amplification_percent,
            0,
        ),
        (
            "compression_size_percent",
            flags.universal_compression_size_percent,
            -1,
        ),
        ("max_read_amp", flags.universal_max_read_amp, -1),
    ];
    let stop = numbered(
        "universal_stop_style",
        flags.universal_stop_style,
        &[
            "kCompactionStopStyleSimilarSize",
            "kCompactionStopStyleTotalSize",
        ],
    )?;
    let switches = [
        ("allow_trivial_move", flags.universal_allow_trivial_move),
        ("incremental", flags.universal_incremental),
    ];
    let numbers = numbers
        .iter()
        .filter(|(_, value, default)| value != default);
    let on = switches.iter().filter(|(_, on)| *on);
    let mut universal: Vec<String> = numbers
        .map(|(name, value, _)| format!("{name}={value}"))
        .chain(on.map(|(name, _)| format!("{name}=true")))
        .collect();
    if flags.universal_stop_style != 1 {
        universal.push(format!("stop_style={stop}"));
    }
    if !flags.universal_reduce_file_locking {
        universal.push("reduce_file_locking=false".to_owned());
    }
    Ok(universal)
}

/// The additional size factors of the levels. Errors: there is not one number for each level.
fn levels(flags: &Flags) -> Result<Derived> {
    let list = &flags.max_bytes_for_level_multiplier_additional;
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let numbers: Option<Vec<i32>> = list.split(',').map(|n| n.trim().parse().ok()).collect();
    let numbers = numbers.filter(|n| n.len() == flags.num_levels.unsigned_abs() as usize);
    let Some(numbers) = numbers else {
        return Err(Error::invalid_argument(format!(
            "max_bytes_for_level_multiplier_additional {list}: must be num_levels numbers, {}, \
             separated by commas",
            flags.num_levels
        )));
    };
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    let name = "max_bytes_for_level_multiplier_additional";
    Ok(vec![(Place::Cf, name, numbers.join(":"))])
}

fn fifo(flags: &Flags) -> Derived {
    const STYLE: i32 = 2;
    const MIB: u64 = 1 << 20;
    let (tables, all) = (
        flags.fifo_compaction_max_table_files_size_mb,
        flags.fifo_compaction_max_data_files_size_mb,
    );
    let (warm, kv_ratio) = (
        flags.fifo_age_for_warm,
        flags.fifo_compaction_use_kv_ratio_compaction,
    );
    let merges = flags.fifo_compaction_allow_compaction;
    let is_default = (tables, all, warm, kv_ratio, merges) == (0, 0, 0, false, true);
    if is_default && flags.compaction_style != STYLE {
        return Vec::new();
    }
    let mut settings = vec![
        format!("max_table_files_size={}", tables.saturating_mul(MIB)),
        format!("allow_compaction={merges}"),
    ];
    if warm > 0 {
        settings.push(format!("age_for_warm={warm}"));
    }
    if all > 0 {
        settings.push(format!("max_data_files_size={}", all.saturating_mul(MIB)));
    }
    if kv_ratio {
        settings.push("use_kv_ratio_compaction=true".to_owned());
    }
    vec![(Place::Cf, "compaction_options_fifo", braces(&settings))]
}

/// The options of memtables and their entries.
fn memtables(flags: &Flags) -> Derived {
    let mut all = Vec::new();
    let mut add = |name, value: String| all.push((Place::Cf, name, value));
    let kind = flags.memtablerep.as_str();
    if kind == "skip_list" && flags.skip_list_lookahead > 0 {
        let lookahead = flags.skip_list_lookahead;
        add("memtable_factory", format!("skip_list:{lookahead}"));
    }
    if ["prefix_hash", "hash_linkedlist"].contains(&kind) {
        let buckets = flags.hash_bucket_count;
        add("memtable_factory", format!("{kind}:{buckets}"));
    }
    if flags.memtable_use_huge_page {
        add("memtable_huge_page_size", "2048".to_owned());
    }
    if flags.memtable_insert_with_hint_prefix_size > 0 {
        let prefix = flags.memtable_insert_with_hint_prefix_size;
        let name = "memtable_insert_with_hint_prefix_extractor";
        add(name, format!("rocksdb.CappedPrefix.{prefix}"));
    }
    if flags.prepopulate_blob_cache == 1 {
        add("prepopulate_blob_cache", "kFlushOnly".to_owned());
    }
    all
}

/// The index type. Errors: it needs a prefix, but there is none.
fn index(flags: &Flags) -> Result<Option<&'static str>> {
    if flags.use_hash_search && flags.prefix_size == 0 {
        let error = "use_hash_search needs a prefix_size";
        return Err(Error::invalid_argument(error));
    }
    Ok(
        if flags.partition_index_and_filters || flags.partition_index {
            Some("kTwoLevelIndexSearch")
        } else if flags.index_with_first_key {
            Some("kBinarySearchWithFirstKey")
        } else if flags.use_hash_search {
            Some("kHashSearch")
        } else {
            None
        },
    )
}

fn tables(flags: &Flags) -> Result<Derived> {
    const CHECKSUMS: [&str; 5] = ["kNoChecksum", "kCRC32c", "kxxHash", "kxxHash64", "kXXH3"];
    const SEARCHES: [(&str, &str); 3] = [
        ("binary_search", "kBinary"),
        ("interpolation_search", "kInterpolation"),
        ("auto_search", "kAuto"),
    ];
    const SHORTENING: [&str; 3] = [
        "kNoShortening",
        "kShortenSeparators",
        "kShortenSeparatorsAndSuccessor",
    ];
    let mut all = Vec::new();
    let mode = flags.index_shortening_mode;
    let shortening = numbered("index_shortening_mode", mode, &SHORTENING)?;
    let checksum = numbered("checksum_type", flags.checksum_type, &CHECKSUMS)?;
    let search = &flags.index_block_search_type;
    let Some((_, search)) = SEARCHES.iter().find(|(name, _)| name == search) else {
        return Err(Error::invalid_argument(format!(
            "index_block_search_type {search}: must be binary_search, interpolation_search or \
             auto_search"
        )));
    };
    let index = index(flags)?;
    let mut add = |name, value: &str| all.push((Place::Table, name, value.to_owned()));
    if flags.bloom_bits > 0 && flags.use_ribbon_filter {
        add(
            "filter_policy",
            &format!("ribbonfilter:{}", flags.bloom_bits),
        );
    } else if flags.bloom_bits > 0 {
        let bits = flags.bloom_bits;
        add("filter_policy", &format!("bloomfilter:{bits}:false"));
    }
    if let Some(index) = index {
        add("index_type", index);
    }
    if flags.checksum_type != 4 {
        add("checksum", checksum);
    }
    if *search != "kBinary" {
        add("index_block_search_type", search);
    }
    if flags.partition_index_and_filters {
        add("partition_filters", "true");
    }
    if flags.use_data_block_hash_index {
        add("data_block_index_type", "kDataBlockBinaryAndHash");
    }
    if flags.prepopulate_block_cache == 1 {
        add("prepopulate_block_cache", "kFlushOnly");
    }
    add("index_shortening", shortening);
    Ok(all)
}

fn others(flags: &Flags) -> Result<Derived> {
    let mut all = Vec::new();
    if flags.prefix_size > 0 {
        let fixed = format!("rocksdb.FixedPrefix.{}", flags.prefix_size);
        all.push((Place::Cf, "prefix_extractor", fixed));
    }
    let wal = compression_name("wal_compression", &flags.wal_compression)?;
    if wal != "kNoCompression" {
        all.push((Place::Db, "wal_compression", wal.to_owned()));
    }
    if flags.file_checksum {
        let generator = "FileChecksumGenCrc32cFactory".to_owned();
        all.push((Place::Db, "file_checksum_gen_factory", generator));
    }
    let blobs = compression_name("blob_compression_type", &flags.blob_compression_type)?;
    if flags.enable_blob_files {
        all.push((Place::Cf, "blob_compression_type", blobs.to_owned()));
    }
    Ok(all)
}

fn braces(settings: &[String]) -> String {
    format!("{{{}}}", settings.join(";"))
}

fn numbered<'a>(flag: &str, value: i32, names: &[&'a str]) -> Result<&'a str> {
    let name = usize::try_from(value).ok().and_then(|i| names.get(i));
    name.copied().ok_or_else(|| {
        Error::invalid_argument(format!(
            "{flag} {value}: must be from 0 to {} ({})",
            names.len() - 1,
            names.join(", ")
        ))
    })
}

/// The name that OPTIONS files use for a compression type; the error lists the known types.
fn compression_name(flag: &str, kind: &str) -> Result<&'static str> {
    Ok(match kind.to_ascii_lowercase().as_str() {
        "none" => "kNoCompression",
        "snappy" => "kSnappyCompression",
        "zlib" => "kZlibCompression",
        "bzip2" => "kBZip2Compression",
        "lz4" => "kLZ4Compression",
        "lz4hc" => "kLZ4HCCompression",
        "zstd" => "kZSTD",
        other => {
            return Err(Error::invalid_argument(format!(
                "{flag} {other}: must be none, snappy, zlib, bzip2, lz4, lz4hc or zstd"
            )));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(flags: &Flags, name: &str) -> Option<String> {
        let all = options(flags).unwrap();
        let found = all.into_iter().rev().find(|o| o.name == name)?;
        Some(found.value)
    }

    #[test]
    fn flags_with_a_form_of_their_own() {
        let flags = Flags {
            compression_type: "zstd".to_owned(),
            min_level_to_compress: 2,
            num_levels: 4,
            compaction_style: 1,
            universal_size_ratio: 5,
            universal_allow_trivial_move: true,
            compression_max_dict_bytes: 4096,
            bloom_bits: 10,
            prefix_size: 8,
            ..Flags::default()
        };
        let of = |name| value(&flags, name).unwrap();
        assert_eq!(
            of("compression_per_level"),
            "kNoCompression:kNoCompression:kZSTD:kZSTD"
        );
        assert_eq!(of("compaction_style"), "kCompactionStyleUniversal");
        assert_eq!(
            of("compaction_options_universal"),
            "{size_ratio=5;allow_trivial_move=true}"
        );
        assert_eq!(of("compression_opts"), "{max_dict_bytes=4096}");
        assert_eq!(of("filter_policy"), "bloomfilter:10:false");
        assert_eq!(of("prefix_extractor"), "rocksdb.FixedPrefix.8");
        let plain = Flags::default();
        assert_eq!(value(&plain, "compaction_options_universal"), None);
        assert_eq!(value(&plain, "wal_compression"), None);
    }

    #[test]
    fn values_that_mean_nothing_are_refused() {
        let flags = Flags {
            compaction_style: 4,
            ..Flags::default()
        };
        let e = options(&flags).err().unwrap().to_string();
        assert!(e.contains("compaction_style 4: must be from 0 to 3"), "{e}");
    }
}
