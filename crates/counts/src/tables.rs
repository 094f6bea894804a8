//! Kernels over tables and their parts: filters, blocks, the block cache.

use std::hint::black_box;
use std::sync::Arc;

use base::{Comparator, Result};
use table::block::{Block, BlockBuilder, Cursor, Keys, Target};
use table::cache::CacheKey;
use table::filter::{Filter, FilterBuilder, FilterPolicy};
use table::{
    BlockCache, Builder, BuilderOptions, CompressionType, InternalIterator, ReadOptions, Reader,
    ReaderOptions, TableOptions,
};

use crate::{Kernel, inputs, measured};

pub(crate) const KERNELS: &[Kernel] = &[
    Kernel::new("filter_build", 10_000, filter_build),
    Kernel::new("filter_probe_hit", 10_000, |n| filter_probe(n, 0)),
    Kernel::new("filter_probe_miss", 10_000, |n| filter_probe(n, n)),
    Kernel::new("block_build", 10_000, block_build),
    Kernel::new("block_seek", 10_000, block_seek),
    Kernel::new("block_next", 10_000, block_next),
    Kernel::new("cache_hit", 10_000, cache_hit),
    Kernel::new("table_build", 10_000, table_build),
    Kernel::new("table_get", 10_000, table_get),
    Kernel::new("table_next", 10_000, table_next),
];

const BITS_PER_KEY: f64 = 10.0;
/// Approximate number of entries in 4 KiB.
const BLOCK_ENTRIES: u64 = 32;
const RESTART_INTERVAL: u32 = 16;

fn filter_build(operations: u64) -> Result<()> {
    let mut builder = FilterBuilder::bloom(BITS_PER_KEY);
    measured(&mut || {
        for i in 0..operations {
            builder.add_key(&inputs::user_key(i));
        }
        black_box(builder.finish());
        Ok(())
    })
}

/// Builds a filter of this many keys, and probes it with as many from `first` on.
fn filter_probe(operations: u64, first: u64) -> Result<()> {
    let mut builder = FilterBuilder::bloom(BITS_PER_KEY);
    for i in 0..operations {
        builder.add_key(&inputs::user_key(i));
    }
    let filter = Filter::new(&builder.finish());
    measured(&mut || {
        for i in first..first + operations {
            black_box(filter.may_match(&inputs::user_key(i)));
        }
        Ok(())
    })
}

fn block_of(keys: impl Iterator<Item = u64>) -> Vec<u8> {
    let (mut builder, value) = (BlockBuilder::new(RESTART_INTERVAL), inputs::value());
    for i in keys {
        builder.add(&inputs::internal_key(i), &value);
    }
    builder.finish()
}

fn block_build(operations: u64) -> Result<()> {
    let (mut builder, value) = (BlockBuilder::new(RESTART_INTERVAL), inputs::value());
    let keys: Vec<_> = (0..operations).map(inputs::internal_key).collect();
    measured(&mut || {
        for block in keys.chunks(BLOCK_ENTRIES as usize) {
            for key in block {
                builder.add(key, &value);
            }
            black_box(builder.finish());
        }
        Ok(())
    })
}

fn block_seek(operations: u64) -> Result<()> {
    let comparator = Comparator::bytewise();
    let block = Block::searchable(&block_of(0..BLOCK_ENTRIES), &comparator)?;
    let order = inputs::shuffled(BLOCK_ENTRIES);
    let keys: Vec<_> = order.into_iter().map(inputs::seek_key).collect();
    let mut cursor = Cursor::new(Keys::Internal);
    measured(&mut || {
        for key in keys.iter().cycle().take(operations as usize) {
            let target = Target::new(black_box(key))?;
            black_box(cursor.seek(&block, &comparator, &target)?);
        }
        Ok(())
    })
}

fn block_next(operations: u64) -> Result<()> {
    let block = Block::searchable(&block_of(0..operations), &Comparator::bytewise())?;
    let mut cursor = Cursor::new(Keys::Internal);
    cursor.seek_to_first(&block)?;
    measured(&mut || {
        while cursor.next(&block)? {
            black_box((cursor.key(), cursor.value(&block)));
        }
        Ok(())
    })
}

fn cache_hit(operations: u64) -> Result<()> {
    const BLOCKS: u64 = 1000;
    let cache = BlockCache::new(64 << 20);
    let id = cache.new_id();
    let at = |i: u64| CacheKey {
        id,
        offset: i * 4096,
    };
    for i in 0..BLOCKS {
        cache.insert(at(i), &Block::new(&block_of(i..=i))?);
    }
    let order = inputs::shuffled(BLOCKS);
    measured(&mut || {
        for &i in order.iter().cycle().take(operations as usize) {
            black_box(cache.get(at(i)).is_some());
        }
        Ok(())
    })
}

/// Writes a table of these keys, without compression and with a Bloom filter.
fn build(keys: &[Vec<u8>], value: &[u8], file: Arc<io::testing::Memory>) -> Result<u64> {
    let options = BuilderOptions {
        table: TableOptions {
            filter_policy: FilterPolicy::Bloom {
                bits_per_key: BITS_PER_KEY,
            },
            ..TableOptions::default()
        },
        compression: CompressionType::None,
        ..BuilderOptions::default()
    };
    let mut builder = Builder::new(file, options)?;
    for key in keys {
        builder.add(key, value)?;
    }
    Ok(builder.finish()?.file_size)
}

fn table_build(operations: u64) -> Result<()> {
    let keys: Vec<_> = (0..operations).map(inputs::internal_key).collect();
    let (value, file) = (inputs::value(), inputs::zeros(operations * 160));
    measured(&mut || build(&keys, &value, file.clone()).map(|_| ()))
}

/// A table of this many keys, all of it in the block cache.
fn warm_table(entries: u64) -> Result<Arc<Reader>> {
    let keys: Vec<_> = (0..entries).map(inputs::internal_key).collect();
    let file = inputs::file();
    let size = build(&keys, &inputs::value(), file.clone())?;
    let options = ReaderOptions {
        block_cache: Some(Arc::new(BlockCache::new(64 << 20))),
        ..ReaderOptions::default()
    };
    let reader = Arc::new(Reader::open(file, size, options)?);
    for key in &keys {
        reader.get(&ReadOptions::default(), key, &mut |_, _| false)?;
    }
    Ok(reader)
}

fn table_get(operations: u64) -> Result<()> {
    let (reader, options) = (warm_table(operations)?, ReadOptions::default());
    let order = inputs::shuffled(operations);
    let keys: Vec<_> = order.into_iter().map(inputs::seek_key).collect();
    measured(&mut || {
        for key in &keys {
            reader.get(&options, key, &mut |_, value| {
                black_box(value.bytes());
                false
            })?;
        }
        Ok(())
    })
}

fn table_next(operations: u64) -> Result<()> {
    let mut iter = warm_table(operations)?.iter(ReadOptions::default());
    iter.seek_to_first();
    measured(&mut || {
        while iter.valid() {
            black_box((iter.key(), iter.value()));
            iter.next();
        }
        iter.status()
    })
}
