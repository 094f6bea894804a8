//! The engine's options that the flags ask for, in the form of OPTIONS files, which both engines read.

use base::options::OptionValue;
use base::{Error, Result};

use crate::flags::{FLAGS, Flags, Place};

/// An option that a flag sets.
pub(crate) struct EngineOption {
    pub(crate) place: Place,
    pub(crate) name: &'static str,
    /// As OPTIONS files write it.
    pub(crate) value: String,
    /// Whether the value is db_bench's default.
    pub(crate) is_default: bool,
}

/// The options of all flags. Errors: a flag has a value that means nothing.
pub(crate) fn options(flags: &Flags) -> Result<Vec<EngineOption>> {
    let mut all: Vec<EngineOption> = FLAGS
        .iter()
        .filter_map(|flag| {
            let (place, name) = flag.option?;
            let value = (flag.get)(flags);
            (!value.is_empty()).then(|| EngineOption {
                place,
                name,
                is_default: value == (flag.default)(),
                value,
            })
        })
        .collect();
    let derived = [
        compression(flags)?,
        compaction(flags)?,
        tables(flags)?,
        others(flags)?,
    ];
    let derived = derived.into_iter().flatten();
    all.extend(derived.map(|(place, name, value)| EngineOption {
        place,
        name,
        value,
        is_default: false,
    }));
    Ok(all)
}

/// A kind of block compression.
pub(crate) use table::CompressionType as Compression;

/// The kind that `--compression_type` names.
pub(crate) fn block_compression(flags: &Flags) -> Result<Compression> {
    let name = compression_name("compression_type", &flags.compression_type)?;
    Compression::parse(name)
        .ok_or_else(|| Error::not_supported(format!("compression_type {}", flags.compression_type)))
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
    let changed: Vec<String> = changed.map(|(n, v, _)| format!("{n}={v}")).collect();
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
    ];
    let switches = [
        ("allow_trivial_move", flags.universal_allow_trivial_move),
        ("incremental", flags.universal_incremental),
    ];
    let numbers = numbers
        .iter()
        .filter(|(_, value, default)| value != default);
    let on = switches.iter().filter(|(_, on)| *on);
    let universal: Vec<String> = numbers
        .map(|(name, value, _)| format!("{name}={value}"))
        .chain(on.map(|(name, _)| format!("{name}=true")))
        .collect();
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

fn tables(flags: &Flags) -> Result<Derived> {
    const SHORTENING: [&str; 3] = [
        "kNoShortening",
        "kShortenSeparators",
        "kShortenSeparatorsAndSuccessor",
    ];
    let mut all = Vec::new();
    let mode = flags.index_shortening_mode;
    let shortening = numbered("index_shortening_mode", mode, &SHORTENING)?;
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
    if flags.partition_index_and_filters || flags.partition_index {
        add("index_type", "kTwoLevelIndexSearch");
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

/// The name that OPTIONS files use for a kind of compression; the error lists what there is.
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
