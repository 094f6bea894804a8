//! Damaged tables: no panic, and no wrong value.

use std::sync::Arc;

use base::rng::Rng;
use table::checksum::ChecksumType;
use table::compress::CompressionType;
use table::filter::FilterPolicy;
use table::options::IndexType;
use table::{BlockCache, BuilderOptions, Metadata, Pinning, ReaderOptions, TableOptions};

use crate::util::{Entries, build, get_all, ikey, open, scan, scan_back};

fn small_table(compression: CompressionType, checksum: ChecksumType) -> (Entries, Vec<u8>) {
    let entries: Entries = (0..60u32)
        .map(|i| {
            (
                ikey(format!("key{i:04}").as_bytes(), 7),
                vec![b'a' + (i % 26) as u8; 20],
            )
        })
        .collect();
    let options = BuilderOptions {
        table: TableOptions {
            block_size: 400,
            checksum,
            filter_policy: FilterPolicy::Bloom { bits_per_key: 10.0 },
            ..TableOptions::default()
        },
        compression,
        ..BuilderOptions::default()
    };
    let (bytes, _) = build(&entries, options);
    (entries, bytes)
}

/// The same entries with indexes and filters in partitions, of which most separators need the one before.
fn partitioned_table(compression: CompressionType, checksum: ChecksumType) -> (Entries, Vec<u8>) {
    let (entries, _) = small_table(compression, checksum);
    let options = BuilderOptions {
        table: TableOptions {
            block_size: 100,
            checksum,
            filter_policy: FilterPolicy::Bloom { bits_per_key: 10.0 },
            index_type: IndexType::TwoLevel,
            partition_filters: true,
            metadata_block_size: 60,
            index_block_restart_interval: 3,
            ..TableOptions::default()
        },
        compression,
        ..BuilderOptions::default()
    };
    let (bytes, _) = build(&entries, options);
    (entries, bytes)
}

/// Index and filters in memory; in a cache that holds nothing; pinned.
fn all_ways() -> [ReaderOptions; 3] {
    let cached = |pins| ReaderOptions {
        block_cache: Some(Arc::new(BlockCache::new(0))),
        metadata: Metadata::Cached(Pinning {
            top_level: pins,
            partitions: pins,
            unpartitioned: pins,
            high_priority: false,
        }),
        ..ReaderOptions::default()
    };
    [ReaderOptions::default(), cached(false), cached(true)]
}

/// Reads everything in every way; an error is fine, wrong entries are not.
fn read_all(bytes: Vec<u8>, entries: &Entries, bit: usize) -> bool {
    let what = &format!("bit {bit}");
    let [in_memory, cached, pinned] = all_ways();
    let other = if bit.is_multiple_of(2) {
        cached
    } else {
        pinned
    };
    let failed = read_all_with(in_memory, bytes.clone(), entries, what);
    assert_eq!(read_all_with(other, bytes, entries, what), failed, "{what}");
    failed
}

fn read_all_with(options: ReaderOptions, bytes: Vec<u8>, entries: &Entries, what: &str) -> bool {
    let Ok(reader) = open(bytes, options) else {
        return true;
    };
    let mut failed = reader.verify_checksums().is_err();
    match scan(&reader) {
        Ok(all) => assert_eq!(&all, entries, "{what}"),
        Err(_) => failed = true,
    }
    match scan_back(&reader) {
        Ok(all) => assert_eq!(&all, entries, "{what}"),
        Err(_) => failed = true,
    }
    for (k, v) in entries {
        match get_all(&reader, base::key::user_key(k), 9) {
            Ok(found) => assert_eq!(found, vec![(k.clone(), v.clone())], "{what}"),
            Err(_) => failed = true,
        }
    }
    failed
}

#[test]
fn every_flipped_bit_is_detected_or_harmless() {
    type Make = fn(CompressionType, ChecksumType) -> (Entries, Vec<u8>);
    for (make, compression, checksum) in [
        (
            small_table as Make,
            CompressionType::None,
            ChecksumType::Xxh3,
        ),
        (small_table, CompressionType::Lz4, ChecksumType::Crc32c),
        (partitioned_table, CompressionType::None, ChecksumType::Xxh3),
    ] {
        let (entries, bytes) = make(compression, checksum);
        let (mut detected, mut harmless) = (0, 0);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if read_all(damaged, &entries, bit) {
                detected += 1;
            } else {
                harmless += 1;
            }
        }
        // What is not detected lies in the footer: padding, or a checksum type of "none".
        eprintln!(
            "{} bytes: {detected} detected, {harmless} harmless",
            bytes.len()
        );
        assert!(harmless <= 53 * 8, "{harmless}");
    }
}

#[test]
fn every_truncation_is_an_error() {
    let (_, bytes) = small_table(CompressionType::Zstd, ChecksumType::Xxh3);
    for n in 0..bytes.len() {
        let e = open(bytes[..n].to_vec(), ReaderOptions::default()).unwrap_err();
        assert!(e.to_string().contains("000007.sst"), "{e}");
    }
}

#[test]
fn without_checksums_random_damage_never_panics() {
    // With checksum "none" damage reaches the decoders. Values may then be wrong, but nothing
    // panics, loops or eats memory.
    let none = ChecksumType::None;
    for (_, bytes) in [
        small_table(CompressionType::None, none),
        small_table(CompressionType::Snappy, none),
        small_table(CompressionType::Zlib, none),
        partitioned_table(CompressionType::None, none),
        partitioned_table(CompressionType::Zlib, none),
    ] {
        let mut rng = Rng::new(1);
        for _ in 0..6000 {
            let mut damaged = bytes.clone();
            for _ in 0..=rng.below(4) {
                let at = rng.below(damaged.len() as u64) as usize;
                damaged[at] = match rng.below(4) {
                    0 => 0xff,
                    1 => 0,
                    _ => rng.next_u64() as u8,
                };
            }
            let how = all_ways()[rng.below(3) as usize].clone();
            let Ok(reader) = open(damaged, how) else {
                continue;
            };
            drop(reader.data_blocks());
            drop(reader.anchors(5));
            drop(scan(&reader));
            drop(scan_back(&reader));
            drop(reader.range_tombstones());
            drop(reader.verify_checksums());
            for i in (0..60u32).step_by(7) {
                drop(get_all(&reader, format!("key{i:04}").as_bytes(), 9));
            }
        }
    }
}

#[test]
fn keys_that_share_too_much_are_refused_before_they_take_memory() {
    // A metaindex of 500 KiB whose 64,000 names of 64 KiB each would take 4 GiB.
    let mut block = Vec::new();
    let name = vec![b'n'; 1 << 16];
    base::coding::put_varint(&mut block, 0);
    base::coding::put_varint(&mut block, name.len() as u64);
    base::coding::put_varint(&mut block, 2);
    block.extend_from_slice(&name);
    block.extend_from_slice(&[0, 0]);
    for _ in 0..64_000 {
        base::coding::put_varint(&mut block, name.len() as u64);
        block.extend_from_slice(&[0, 2, 0, 0]);
    }
    block.extend_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0]);
    let handle = table::BlockHandle {
        offset: 0,
        size: block.len() as u64,
    };
    block.extend_from_slice(&[0; 5]);
    let footer = table::Footer {
        checksum_type: ChecksumType::None,
        metaindex: handle,
        index: Some(handle),
        format_version: 5,
        base_context: 0,
    };
    block.extend_from_slice(&footer.encode(0));
    let e = open(block, ReaderOptions::default())
        .unwrap_err()
        .to_string();
    assert!(e.contains("names share more than is believable"), "{e}");
}
