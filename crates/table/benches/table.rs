//! How long the hot operations of a table take: `cargo bench -p ironstone-table`.
//!
//! One table of 16-byte keys and 100-byte values in memory, all of it in the block cache, one
//! thread. Prints nanoseconds of processor time per operation, the best of five rounds.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(clippy::unwrap_used, reason = "a failed benchmark may panic")]

#[path = "../tests/it/util.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod util;

use std::hint::black_box;
use std::sync::Arc;

use base::rng::Rng;
use table::compress::CompressionType;
use table::filter::FilterPolicy;
use table::{
    BlockCache, Builder, BuilderOptions, InternalIterator, ReadOptions, Reader, ReaderOptions,
    TableOptions,
};

const ENTRIES: u64 = 500_000;

fn user_key(i: u64) -> [u8; 16] {
    let mut key = *b"0000000000000000";
    key[..8].copy_from_slice(&i.to_be_bytes());
    key
}

/// Nanoseconds that this thread has spent on a processor, so that what else the machine does
/// counts less.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Runs `round` five times and prints the best time per operation.
fn measure(name: &str, operations: u64, mut round: impl FnMut()) {
    // `cargo bench --bench table -- get` runs only what has "get" in its name.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    if !wanted.is_empty() && !wanted.iter().any(|w| name.contains(w.as_str())) {
        return;
    }
    let mut best = u64::MAX;
    for _ in 0..5 {
        let start = cpu_nanos();
        round();
        best = best.min(cpu_nanos() - start);
    }
    println!("{name:<28} {:>9.1} ns", best as f64 / operations as f64);
}

fn table(bits_per_key: f64) -> Vec<u8> {
    let mut rng = Rng::new(1);
    let entries = (0..ENTRIES)
        .map(|i| {
            let mut value = vec![0; 100];
            rng.fill(&mut value);
            (util::ikey(&user_key(i), i), value)
        })
        .collect();
    let options = BuilderOptions {
        table: TableOptions {
            filter_policy: FilterPolicy::Bloom { bits_per_key },
            ..TableOptions::default()
        },
        ..BuilderOptions::default()
    };
    util::build(&entries, options).0
}

fn gets(name: &str, reader: &Reader, first: u64) {
    const OPERATIONS: u64 = 500_000;
    let mut rng = Rng::new(2);
    let options = ReadOptions::default();
    measure(name, OPERATIONS, || {
        for _ in 0..OPERATIONS {
            let key = util::seek_key(&user_key(first + rng.below(ENTRIES)), 1 << 50);
            let mut seen = 0;
            let mut visit = |_: &[u8], v: table::Value<'_>| {
                seen += v.bytes().len();
                false
            };
            reader.get(&options, &key, &mut visit).unwrap();
            black_box(seen);
        }
    });
}

fn builds() {
    let mut value = vec![0; 100];
    Rng::new(1).fill(&mut value[..50]);
    for compression in [
        CompressionType::None,
        CompressionType::Lz4,
        CompressionType::Zstd,
    ] {
        for bits_per_key in [0.0, 10.0] {
            let name = format!("build, {compression:?}, {bits_per_key} bits");
            measure(&name, ENTRIES, || {
                let options = BuilderOptions {
                    table: TableOptions {
                        filter_policy: FilterPolicy::Bloom { bits_per_key },
                        ..TableOptions::default()
                    },
                    compression,
                    ..BuilderOptions::default()
                };
                let file = io::testing::Memory::new("000001.sst", Vec::new());
                let mut b = Builder::new(file, options).unwrap();
                for i in 0..ENTRIES {
                    b.add(&util::ikey(&user_key(i), i), &value).unwrap();
                }
                b.finish().unwrap();
            });
        }
    }
}

fn main() {
    builds();
    for (what, bits) in [("no filter", 0.0), ("bloom", 10.0)] {
        let bytes = table(bits);
        let open = |cache: Option<Arc<BlockCache>>| {
            let options = ReaderOptions {
                block_cache: cache,
                ..ReaderOptions::default()
            };
            util::open(bytes.clone(), options).unwrap()
        };
        let cache = Arc::new(BlockCache::new(256 << 20));
        let reader = open(Some(Arc::clone(&cache)));
        measure(&format!("scan, {what}"), ENTRIES, || {
            let mut it = reader.iter(ReadOptions::default());
            it.seek_to_first();
            while it.valid() {
                black_box(it.value());
                it.next();
            }
        });
        measure(&format!("scan back, {what}"), ENTRIES, || {
            let mut it = reader.iter(ReadOptions::default());
            it.seek_to_last();
            while it.valid() {
                black_box(it.value());
                it.prev();
            }
        });
        gets(&format!("get, {what}"), &reader, 0);
        gets(&format!("get absent, {what}"), &reader, ENTRIES);
        gets(&format!("get uncached, {what}"), &open(None), 0);
        cache_hits(&cache, &reader);
    }
}

/// The cache alone, with keys that the reader above put there.
fn cache_hits(cache: &BlockCache, reader: &Reader) {
    const OPERATIONS: u64 = 2_000_000;
    let offsets: Vec<u64> = reader
        .data_blocks()
        .unwrap()
        .iter()
        .map(|block| block.handle.offset)
        .collect();
    let few = &offsets[..1000];
    for (name, offsets) in [("cache hit", &offsets[..]), ("cache hit, 1000 blocks", few)] {
        let mut rng = Rng::new(3);
        measure(name, OPERATIONS, || {
            for _ in 0..OPERATIONS {
                let offset = offsets[rng.below(offsets.len() as u64) as usize];
                let key = table::cache::CacheKey { id: 1, offset };
                black_box(cache.get(key).is_some());
            }
        });
    }
    println!("{cache:?}");
}
