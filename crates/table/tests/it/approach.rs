//! Asking for memory ahead of gets is a hint: it finds where a get will look, and leaves no trace.

use std::sync::Arc;

use base::stats::{Statistics, Ticker};
use table::compress::CompressionType;
use table::filter::FilterPolicy;
use table::{BlockCache, BuilderOptions, Destination, Metadata, Pinning, ReaderOptions, RowCache};

use crate::util::{Entries, build, get_all, ikey, open, seek_key};

fn key(n: u64) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

/// A table of 20 MB without compression.
fn bytes(filter_policy: FilterPolicy) -> Vec<u8> {
    let entries: Entries = (0..5000)
        .map(|n| (ikey(&key(n * 2), 5), vec![7; 4000]))
        .collect();
    let mut options = BuilderOptions {
        compression: CompressionType::None,
        ..BuilderOptions::default()
    };
    options.table.filter_policy = filter_policy;
    build(&entries, options).0
}

fn steps(destination: Destination<'_>, seek: &[u8]) -> bool {
    let (Destination::Here(Some(there)) | Destination::Perhaps(Some(there))) = destination else {
        return false;
    };
    there.entry();
    there.block();
    there.entries(seek);
    true
}

#[test]
fn it_is_a_hint_without_a_trace() {
    let bloom = FilterPolicy::Bloom { bits_per_key: 10.0 };
    let bytes = bytes(bloom);
    let statistics = Arc::new(Statistics::new());
    let cache = Arc::new(BlockCache::new(64 << 20));
    let options = ReaderOptions {
        block_cache: Some(Arc::clone(&cache)),
        statistics: Some(Arc::clone(&statistics)),
        ..ReaderOptions::default()
    };
    let reader = open(bytes, options).unwrap();
    assert!(!reader.is_cached_far());
    let aim_at = |n| {
        steps(
            reader.destination(&seek_key(&key(n), 9)),
            &seek_key(&key(n), 9),
        )
    };
    assert!(aim_at(40) && aim_at(9998), "also what is not cached");
    assert_eq!(cache.len(), 0);
    for n in 0..5000 {
        assert_eq!(get_all(&reader, &key(n * 2), 9).unwrap().len(), 1);
    }
    assert!(reader.is_cached_far());
    let count = || [Ticker::BlockCacheHit, Ticker::BlockCacheMiss].map(|t| statistics.get(t));
    let (before, pinned) = (count(), cache.pinned_usage());
    let found = (0..10_000).filter(|n| aim_at(*n)).count();
    assert!((5000..5300).contains(&found), "{found}: filters are asked");
    assert!(!steps(reader.destination(b"short"), b"short"));
    assert_eq!((count(), cache.pinned_usage()), (before, pinned));
}

#[test]
fn tables_that_give_no_hint() {
    let bytes = bytes(FilterPolicy::None);
    let cache = Arc::new(BlockCache::new(64 << 20));
    let with_cache = ReaderOptions {
        block_cache: Some(Arc::clone(&cache)),
        ..ReaderOptions::default()
    };
    let rows = Arc::new(RowCache::new(1 << 20));
    let seek = seek_key(&key(8), 9);
    let first = open(bytes.clone(), with_cache.clone()).unwrap();
    for n in 0..5000 {
        get_all(&first, &key(n * 2), 9).unwrap();
    }
    let in_cache = ReaderOptions {
        metadata: Metadata::Cached(Pinning::default()),
        ..with_cache.clone()
    };
    let with_rows = ReaderOptions {
        rows: Some(rows.of_table()),
        ..with_cache.clone()
    };
    for (options, gives) in [
        (with_cache, true),
        (ReaderOptions::default(), false),
        (in_cache, false),
        (with_rows, false),
    ] {
        let reader = open(bytes.clone(), options).unwrap();
        assert_eq!(reader.is_cached_far(), gives);
        let destination = reader.destination(&seek);
        assert!(matches!(destination, Destination::Perhaps(_)));
        assert!(steps(destination, &seek) || !gives);
    }
}
