//! Damaged tables: no panic, and no wrong value.

use std::sync::Arc;

use base::rng::Rng;
use table::checksum::ChecksumType;
use table::compress::CompressionType;
use table::filter::FilterPolicy;
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

/// Reads everything in every way; an error is fine, wrong entries are not.
fn read_all(bytes: Vec<u8>, entries: &Entries, what: &str) -> bool {
    let in_memory = read_all_with(ReaderOptions::default(), bytes.clone(), entries, what);
    let on_demand = ReaderOptions {
        block_cache: Some(Arc::new(BlockCache::new(0))),
        metadata: Metadata::Cached(Pinning::default()),
        ..ReaderOptions::default()
    };
    let on_demand = read_all_with(on_demand, bytes, entries, what);
    assert_eq!(in_memory, on_demand, "{what}");
    on_demand
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
    for (compression, checksum) in [
        (CompressionType::None, ChecksumType::Xxh3),
        (CompressionType::Lz4, ChecksumType::Crc32c),
    ] {
        let (entries, bytes) = small_table(compression, checksum);
        let (mut detected, mut harmless) = (0, 0);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if read_all(damaged, &entries, &format!("bit {bit}")) {
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
    for compression in [
        CompressionType::None,
        CompressionType::Snappy,
        CompressionType::Zlib,
    ] {
        let (_, bytes) = small_table(compression, ChecksumType::None);
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
            let Ok(reader) = open(damaged, ReaderOptions::default()) else {
                continue;
            };
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
