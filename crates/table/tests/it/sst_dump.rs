//! RocksDB's `sst_dump` accepts the tables that the builder writes.

use std::path::Path;
use std::process::Command;

use base::options::OptionValue;
use base::{SequenceNumber, SliceTransform, ValueType, key};
use io::{FileSystem, OpenHow, posix::Posix};
use table::checksum::ChecksumType;
use table::compress::CompressionType;
use table::filter::FilterPolicy;
use table::{Builder, BuilderOptions, Reader, ReaderOptions, TableOptions};

use crate::util::{ikey, load};

fn sst_dump(command: &str, file: &Path) -> Option<(bool, String)> {
    let out = Command::new("sst_dump")
        .arg(format!("--file={}", file.display()))
        .arg(format!("--command={command}"))
        .arg("--show_properties")
        .output();
    let out = match out {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: sst_dump is not installed");
            return None;
        }
        out => out.unwrap(),
    };
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    Some((out.status.success(), text))
}

fn write(file: &Path, options: BuilderOptions) -> table::Finished {
    let file = Posix.open(file, OpenHow::CREATE_TRUNCATE).unwrap();
    let mut b = Builder::new(file, options).unwrap();
    for i in 0..2000u64 {
        let user = format!("key{i:06}");
        let word = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let value = format!("value {i} {word:016x} {}", "x".repeat(40));
        b.add(&ikey(user.as_bytes(), i + 10), value.as_bytes())
            .unwrap();
        if i % 100 == 0 {
            let old = key::encode(user.as_bytes(), SequenceNumber(3), ValueType::Deletion);
            b.add(&old, b"").unwrap();
        }
    }
    let start = key::encode(b"key000500", SequenceNumber(5), ValueType::RangeDeletion);
    b.add_range_tombstone(&start, b"key000600").unwrap();
    b.finish().unwrap()
}

/// Writes a table that `sst_dump` verifies, checks and scans, and returns its output; `None` if it
/// is not installed.
fn accepted(file: &Path, options: BuilderOptions, what: &str) -> Option<String> {
    let done = write(file, options);
    let (ok, text) = sst_dump("verify", file)?;
    assert!(ok && text.contains("The file is ok"), "{what}: {text}");
    let entries = done.properties.num_entries;
    let (ok, text) = sst_dump("check", file)?;
    assert!(ok && !text.contains("orruption"), "{what}: {text}");
    assert!(
        text.contains(&format!("# entries: {entries}\n")),
        "{what}: {text}"
    );
    let (_, rows) = sst_dump("scan", file)?;
    let rows = rows.lines().filter(|l| l.contains("' seq:")).count();
    assert_eq!(rows as u64, entries - 1, "{what}");
    // And so do we.
    let mem = load(file);
    let reader = Reader::open(mem, done.file_size, ReaderOptions::default()).unwrap();
    reader.verify_checksums().unwrap();
    Some(text)
}

/// Table options, and the tool's output for them.
const KINDS: &[(&str, &str)] = &[
    ("index_type=kTwoLevelIndexSearch", "# index partitions: "),
    (
        "index_type=kTwoLevelIndexSearch;metadata_block_size=200;format_version=3",
        "",
    ),
    (
        "index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=300",
        "",
    ),
    (
        "index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=300;\
             whole_key_filtering=false;format_version=2",
        "",
    ),
    ("index_type=kHashSearch;index_block_restart_interval=4", ""),
    ("index_type=kBinarySearchWithFirstKey", ""),
    (
        "index_type=kBinarySearchWithFirstKey;index_block_restart_interval=4",
        "",
    ),
    ("index_type=kBinarySearchWithFirstKey;format_version=2", ""),
    (
        "filter_policy=ribbonfilter:10:0",
        "filter policy name: ribbonfilter",
    ),
    ("data_block_index_type=kDataBlockBinaryAndHash", ""),
    (
        "data_block_index_type=kDataBlockBinaryAndHash;data_block_hash_table_util_ratio=0.1",
        "",
    ),
    ("block_align=true", "delta-value? 0)"),
    (
        "block_align=true;block_size=16384;index_type=kTwoLevelIndexSearch",
        "",
    ),
    (
        "flush_block_policy_factory=FlushBlockEveryKeyPolicyFactory",
        "# data blocks: 2020",
    ),
    ("detect_filter_construct_corruption=true", ""),
];

#[test]
fn sst_dump_verifies_every_kind_of_index_and_block() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("000009.sst");
    for (text, shown) in KINDS {
        for prefixes in [false, true] {
            let mut table = TableOptions::default();
            table.apply("filter_policy", "bloomfilter:10").unwrap();
            for option in text.split(';') {
                let (name, value) = option.split_once('=').unwrap();
                table.apply(name, value).unwrap();
            }
            if !prefixes && text.contains("kHashSearch") {
                continue;
            }
            let compression = if table.block_align {
                CompressionType::None
            } else {
                CompressionType::Lz4
            };
            let options = BuilderOptions {
                table,
                compression,
                prefix_extractor: prefixes.then(|| SliceTransform::fixed_prefix(7)),
                ..BuilderOptions::default()
            };
            let Some(out) = accepted(&file, options, text) else {
                return;
            };
            assert!(out.contains(shown), "{text}: {out}");
            if prefixes {
                let name = "prefix extractor name: rocksdb.FixedPrefix.7";
                assert!(out.contains(name), "{text}: {out}");
            }
        }
    }
}

#[test]
fn sst_dump_reads_blocks_compressed_with_dictionaries() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("000009.sst");
    for &compression in CompressionType::ALL {
        let mut plain_size = 0;
        for (max_dict, train, trainer, buffer) in [
            (0, 0, true, 0),
            (4096, 0, true, 0),
            (4096, 100_000, true, 0),
            (4096, 100_000, false, 0),
            (4096, 0, true, 20_000),
            (100, 1000, true, 1),
        ] {
            let mut options = BuilderOptions {
                compression,
                ..BuilderOptions::default()
            };
            let o = &mut options.compression_opts;
            o.max_dict_bytes = max_dict;
            o.zstd_max_train_bytes = train;
            o.use_zstd_dict_trainer = trainer;
            o.max_dict_buffer_bytes = buffer;
            let what = format!("{} {o:?}", compression.print());
            if accepted(&file, options, &what).is_none() {
                return;
            }
            let size = std::fs::metadata(&file).unwrap().len();
            if max_dict == 0 {
                plain_size = size;
            } else if compression == CompressionType::Zstd && max_dict == 4096 {
                eprintln!("{what}: {size} of {plain_size} bytes");
            }
        }
    }
}

#[test]
fn sst_dump_inflates_every_window_and_strategy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("000009.sst");
    for window_bits in [-9, -12, -14] {
        for strategy in 0..=4 {
            let mut options = BuilderOptions {
                compression: CompressionType::Zlib,
                ..BuilderOptions::default()
            };
            options.compression_opts.window_bits = window_bits;
            options.compression_opts.strategy = strategy;
            let what = format!("window_bits={window_bits} strategy={strategy}");
            if accepted(&file, options, &what).is_none() {
                return;
            }
        }
    }
}

#[test]
fn sst_dump_verifies_every_compression_checksum_and_filter() {
    let dir = tempfile::tempdir().unwrap();
    let mut combinations = 0;
    for &compression in CompressionType::ALL {
        for &checksum in ChecksumType::ALL {
            for bits in [0.0, 10.0] {
                for format_version in [2, 5] {
                    let options = BuilderOptions {
                        table: TableOptions {
                            checksum,
                            format_version,
                            filter_policy: FilterPolicy::Bloom { bits_per_key: bits },
                            ..TableOptions::default()
                        },
                        compression,
                        db_id: "f6047002-e844-458d-98ff-af9e0766b771".to_owned(),
                        db_session_id: "GXC3PQQYFRHBHV9UG0Z2".to_owned(),
                        file_number: 9,
                        column_family_name: "default".to_owned(),
                        column_family_id: 0,
                        ..BuilderOptions::default()
                    };
                    let file = dir.path().join("000009.sst");
                    let what = format!("{} {}", compression.print(), checksum.print());
                    if accepted(&file, options, &what).is_none() {
                        return;
                    }
                    combinations += 1;
                }
            }
        }
    }
    eprintln!("{combinations} tables verified by sst_dump");
}
