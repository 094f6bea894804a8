//! A warm start: the blocks that were in the cache are read before they are asked for.

use ironstone::CompressionType;

use super::tiers::{two_tiers, with_metadata};
use super::*;

const DUMP: &str = "/cache.dump";

/// A database opened again with an empty cache, after what was in the cache has been written down.
fn cold(mut s: Simulated, cache: &Arc<BlockCache>) -> Simulated {
    s.db().dump_cache(DUMP).unwrap();
    s.db.take().unwrap().close().unwrap();
    s.options.env.block_cache = Some(Arc::clone(cache));
    let (db, families) = open(Path::new("/db"), &s.options);
    (s.db, s.families) = (Some(db), families);
    s
}

fn get_all(s: &Simulated) -> Vec<Option<Vec<u8>>> {
    let cf = &s.families[1];
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let values = s.db().cf(cf).multi_get(&keys).into_iter();
    values.map(Result::unwrap).collect()
}

fn table_reads(s: &Simulated) -> u64 {
    let s = s.options.env.statistics.as_ref().unwrap();
    s.get(Ticker::LastLevelReadCount) + s.get(Ticker::NonLastLevelReadCount)
}

/// After a warm start, nothing is read that was read before; many blocks were read at once.
#[test]
fn what_was_in_the_cache_is_there_again() {
    for mode in [ReadIoMode::Auto, ReadIoMode::Off] {
        for (direct, metadata) in [(false, false), (true, false), (false, true)] {
            let s = Simulated::new(8 << 20, |o| {
                o.db.read_io_mode = mode;
                o.db.use_direct_reads = direct;
                o.cf.compression = CompressionType::None;
                if metadata {
                    with_metadata(o);
                }
            });
            for family in &s.families {
                s.db().cf(family).compact_range(None, None).unwrap();
            }
            let expected = get_all(&s);
            let blocks = s.db().dump_cache(DUMP).unwrap();
            assert!(blocks > 300, "{blocks}");
            let cache = Arc::new(BlockCache::new(8 << 20));
            let s = cold(s, &cache);
            let (queued, before) = (s.disk.queued_reads(), table_reads(&s));
            let mut progress = Vec::new();
            let loaded = s.db().load_cache_with(DUMP, |p| {
                progress.push((p.done, p.total));
                true
            });
            let loaded = loaded.unwrap();
            assert_eq!((loaded.blocks, loaded.skipped), (blocks, 0));
            assert!(loaded.bytes as usize <= cache.usage());
            assert!(progress.is_sorted() && progress.last() == Some(&(blocks, blocks)));
            let read = table_reads(&s) - before;
            assert!(read < blocks / 3, "{read} reads for {blocks} blocks");
            let queued = s.disk.queued_reads() - queued;
            assert_eq!(
                queued > 0,
                mode == ReadIoMode::Auto,
                "{queued} of {read} for {blocks}"
            );
            let before = table_reads(&s);
            assert_eq!(get_all(&s), expected);
            let read = table_reads(&s) - before;
            assert!(
                read == 0 || metadata && read < 100,
                "{read} reads afterwards"
            );
            // All are there already.
            let again = s.db().load_cache(DUMP).unwrap();
            assert_eq!((again.blocks, again.skipped), (0, blocks));
        }
    }
}

/// Blocks go to the tier that they were in. A smaller cache takes what it has room for.
#[test]
fn each_tier_gets_its_blocks() {
    let mut s = Simulated::new(60_000, |o| {
        o.env.block_cache = Some(two_tiers(60_000, 4 << 20));
    });
    s.db.take().unwrap().close().unwrap();
    s.options.env.block_cache = Some(two_tiers(60_000, 4 << 20));
    let (db, families) = open(Path::new("/db"), &s.options);
    (s.db, s.families) = (Some(db), families);
    for _ in 0..4 {
        get_all(&s);
    }
    let before = s.options.env.block_cache.clone().unwrap();
    let cache = two_tiers(60_000, 4 << 20);
    let s = cold(s, &cache);
    let loaded = s.db().load_cache(DUMP).unwrap();
    let lens = |cache: &BlockCache| [cache.len(), cache.secondary().unwrap().len()];
    let ([first, second], [was_first, was_second]) = (lens(&cache), lens(&before));
    assert_eq!(loaded.blocks, (first + second) as u64);
    assert!(first * 10 >= was_first * 8 && second * 10 >= was_second * 8);
    assert!(was_second > 300 && cache.usage() <= cache.capacity());

    let small = two_tiers(20_000, 30_000);
    let s = cold(s, &small);
    let loaded = s.db().load_cache(DUMP).unwrap();
    assert!(
        loaded.blocks > 20 && loaded.skipped > loaded.blocks,
        "{loaded:?}"
    );
    let second = small.secondary().unwrap();
    assert!(small.usage() <= 20_000 && second.usage() <= 30_000);
    assert!(!small.is_empty() && !second.is_empty());
}

/// A full cache is left as it is, by the blocks of indexes too, and little is read in vain.
#[test]
fn a_full_cache_is_left_alone() {
    let s = Simulated::new(8 << 20, with_metadata);
    get_all(&s);
    let cache = Arc::new(BlockCache::new(60_000));
    let s = cold(s, &cache);
    let before = table_reads(&s);
    let filled = s.db().load_cache(DUMP).unwrap();
    assert!(
        filled.blocks > 10 && filled.skipped > filled.blocks,
        "{filled:?}"
    );
    // What has no room is read in one group at most, and no block was evicted for it.
    let first = table_reads(&s) - before;
    assert!(filled.bytes as usize <= cache.usage() - cache.reserved());
    get_all(&s); // evicts
    let (before, len) = (table_reads(&s), cache.len());
    let charge = cache.reserve(cache.capacity().saturating_sub(cache.usage() + 100));
    let loaded = s.db().load_cache(DUMP).unwrap();
    let read = table_reads(&s) - before;
    assert_eq!((loaded.blocks, cache.len()), (0, len));
    assert!(
        read < 150 && first < 300,
        "{read} reads in vain, {first} before"
    );
    drop(charge);
}

/// What fails is said, and what was read before stays; a queue that breaks costs nothing but time; whoever is told of the
/// progress may end it.
#[test]
fn failures_are_said() {
    let s = Simulated::new(8 << 20, |_| {});
    let expected = get_all(&s);
    let cache = Arc::new(BlockCache::new(8 << 20));
    let s = cold(s, &cache);
    let table = |act, path: &Path| act == Act::Read && path.extension().is_some_and(|e| e == "sst");
    s.disk.fail_on(Fault::Eio, Repeat::Forever, table);
    let e = s.db().load_cache(DUMP).unwrap_err();
    assert!(
        e.kind() == ErrorKind::IoError && e.to_string().contains(".sst"),
        "{e}"
    );
    s.disk.clear_faults();

    let mut calls = 0;
    let ended = s.db().load_cache_with(DUMP, |_| {
        calls += 1;
        false
    });
    let ended = ended.unwrap();
    assert!(
        calls <= 2 && ended.blocks > 0 && ended.skipped > 0,
        "{ended:?}"
    );

    s.disk.fail_queues(Some(0));
    let loaded = s.db().load_cache(DUMP).unwrap();
    assert!(loaded.blocks > 300, "{loaded:?}");
    s.disk.fail_queues(None);
    assert_eq!(get_all(&s), expected);

    let fs = &*s.options.env.fs;
    io::replace_file(fs, Path::new(DUMP), Path::new("/t"), b"something else").unwrap();
    let e = s.db().load_cache(DUMP).unwrap_err();
    let said = e.to_string();
    assert!(
        e.is_corruption() && said.contains(DUMP) && said.contains("delete it"),
        "{e}"
    );
    assert!(s.db().load_cache("/nowhere").is_err());
}

/// Tables that compactions have replaced are passed over; a list of another database gives no wrong values.
#[test]
fn an_old_list_costs_reads_only() {
    let s = Simulated::new(8 << 20, |_| {});
    get_all(&s);
    let blocks = s.db().dump_cache(DUMP).unwrap();
    for family in &s.families {
        s.db().cf(family).compact_range(None, None).unwrap();
    }
    let expected = get_all(&s);
    let loaded = s.db().load_cache(DUMP).unwrap();
    assert!(loaded.skipped > blocks / 2, "{loaded:?}");
    assert_eq!(get_all(&s), expected);

    let other = Simulated::new(8 << 20, |o| o.cf.table.block_size = 200);
    let fs = &*s.options.env.fs;
    let list = io::read_file(fs, Path::new(DUMP), 1 << 20).unwrap();
    let fs = &*other.options.env.fs;
    io::replace_file(fs, Path::new(DUMP), Path::new("/t"), &list).unwrap();
    let expected = get_all(&other);
    other.db().load_cache(DUMP).unwrap();
    assert_eq!(get_all(&other), expected);
}
