//! The entries of several ranges, whose blocks are read at the same time; and scans of the same length again and again.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicI64;

use ironstone::{
    Comparator, CompressionType, Entries, FilterPolicy, IndexType, SliceTransform, UserComparator,
};

use super::cursors::{Content, content, reads};
use super::*;

type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn collected(entries: Entries) -> Vec<(Vec<u8>, Vec<u8>)> {
    entries.map(Result::unwrap).collect()
}

/// Ranges of every form: some empty, some overlapping, in any order.
fn ranges(rng: &mut Rng, count: u64, longest: u64) -> Vec<Range> {
    let draw = |_| {
        let from = rng.below(KEYS + 20);
        let to = from + rng.below(longest);
        let start = match rng.below(8) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(key(from).into_bytes()),
            _ => Bound::Included(key(from).into_bytes()),
        };
        let end = match rng.below(8) {
            0 => Bound::Unbounded,
            1 => Bound::Included(key(to).into_bytes()),
            _ => Bound::Excluded(key(to).into_bytes()),
        };
        (start, end)
    };
    (0..count).map(draw).collect()
}

/// What a range has.
fn of_range(content: &Content, range: &Range) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_in = |key: &&Vec<u8>| {
        let behind = match &range.0 {
            Bound::Unbounded => true,
            Bound::Included(start) => *key >= start,
            Bound::Excluded(start) => *key > start,
        };
        behind
            && match &range.1 {
                Bound::Unbounded => true,
                Bound::Included(end) => *key <= end,
                Bound::Excluded(end) => *key < end,
            }
    };
    let all = content.iter().filter(|(key, _)| is_in(key));
    all.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Compares ranges with what gets find: forward, backward, from both sides, and without copies.
fn check(db: &Db, (family, read): (&ColumnFamily, &ReadOptions), content: &Content, rng: &mut Rng) {
    for count in [0, 1, 2, 15, 16, 17, 40] {
        let wanted = ranges(rng, count, 60);
        let scan = db.cf(family).with(read).multi_scan(wanted.clone()).unwrap();
        assert_eq!(scan.len() as u64, count);
        let mut seen = 0;
        for (mut entries, range) in scan.zip(&wanted) {
            let mut expected = of_range(content, range);
            seen += 1;
            match rng.below(4) {
                0 => {
                    expected.reverse();
                    let got: Vec<_> = entries.rev().map(Result::unwrap).collect();
                    assert_eq!(got, expected, "{range:?}");
                }
                1 => {
                    let (mut front, mut back) = (Vec::new(), Vec::new());
                    while let Some(entry) = entries.next() {
                        front.push(entry.unwrap());
                        back.extend(entries.next_back().map(Result::unwrap));
                    }
                    back.reverse();
                    front.extend(back);
                    assert_eq!(front, expected, "{range:?}");
                }
                2 => {
                    let mut left = expected.iter();
                    while let Some(entry) = entries.next_ref() {
                        let (key, value) = entry.unwrap();
                        let (k, v) = left.next().unwrap();
                        assert_eq!((key, value), (k.as_slice(), v.as_slice()));
                    }
                    assert!(left.next().is_none() && entries.next_ref().is_none());
                }
                _ => assert_eq!(collected(entries), expected, "{range:?}"),
            }
        }
        assert_eq!(seen, count);
    }
}

#[test]
fn ranges_agree_with_gets_in_all_modes() {
    for mode in MODES {
        for (cache, direct) in [(0, false), (40_000, true), (0, true)] {
            let dir = dirs::scratch().unwrap();
            let Some(mut o) = options_in(dir.path(), mode, (cache, direct)) else {
                continue;
            };
            o.cf.table.cache_index_and_filter_blocks = cache > 0;
            o.cf.table.metadata_block_size = 200;
            o.cf.table.index_type = IndexType::TwoLevel;
            let (db, families) = fill(dir.path(), &o, 13);
            let content = content(&db, &families[0]);
            let mut rng = Rng::new(3);
            for (readahead_size, auto_readahead_size) in
                [(0, true), (0, false), (3000, true), (1 << 20, false)]
            {
                let read = ReadOptions {
                    readahead_size,
                    auto_readahead_size,
                    ..ReadOptions::default()
                };
                check(&db, (&families[0], &read), &content, &mut rng);
            }
        }
    }
}

/// A prefix extractor, whose filters are asked, and the comparator that sorts backwards.
#[test]
fn ranges_with_prefixes_and_other_orders() {
    let s = Simulated::new(0, |o| {
        o.cf.prefix_extractor = Some(SliceTransform::fixed_prefix(7));
        o.cf.table.filter_policy = FilterPolicy::Bloom { bits_per_key: 10.0 };
    });
    let all = content(s.db(), &s.families[0]);
    let mut rng = Rng::new(6);
    for auto_prefix_mode in [false, true] {
        let read = ReadOptions {
            auto_prefix_mode,
            ..ReadOptions::default()
        };
        check(s.db(), (&s.families[0], &read), &all, &mut rng);
    }
    let dir = dirs::scratch().unwrap();
    let mut o = options(0);
    o.cf.comparator = Comparator::reverse_bytewise();
    let db = Db::open(dir.path(), &o).unwrap();
    for n in 0..100 {
        db.put(key(n), "v").unwrap();
    }
    db.flush().unwrap();
    let found: Vec<usize> = db
        .multi_scan([key(50)..key(40), key(10)..key(90), key(3)..key(0)])
        .unwrap()
        .map(|entries| collected(entries).len())
        .collect();
    assert_eq!(found, [10, 0, 3]);
    let closed = db.multi_scan([key(50)..=key(40), key(3)..=key(3)]).unwrap();
    let found: Vec<usize> = closed.map(|entries| collected(entries).len()).collect();
    assert_eq!(found, [11, 1]);
}

/// The state is that of the call, whatever is written, flushed, compacted and closed meanwhile.
#[test]
fn ranges_show_the_state_of_the_call() {
    let mut s = Simulated::new(0, |_| {});
    let all = content(s.db(), &s.families[0]);
    let wanted = ranges(&mut Rng::new(9), 60, 100);
    let mut scan = s.db().multi_scan(wanted.clone()).unwrap();
    let snapshot = s.db().snapshot();
    let mut old = s.db().with(&snapshot).multi_scan(wanted.clone()).unwrap();
    drop(snapshot);
    for (nth, range) in wanted.iter().enumerate() {
        if nth == 20 {
            for n in 0..KEYS {
                s.db().put(key(n), "new").unwrap();
            }
            s.db().compact_range(None, None).unwrap();
        }
        if nth == 40 {
            s.db.take().unwrap().close().unwrap();
        }
        let expected = of_range(&all, range);
        for scan in [&mut scan, &mut old] {
            assert_eq!(collected(scan.next().unwrap()), expected, "range {nth}");
        }
    }
    assert!(scan.next().is_none() && old.next().is_none());
}

/// Bounds in the options contradict the ranges.
#[test]
fn options_that_contradict_are_refused() {
    let s = Simulated::new(0, |_| {});
    let bounds = ReadOptions {
        iterate_upper_bound: Some(b"k".to_vec()),
        ..ReadOptions::default()
    };
    let tailing = ReadOptions {
        tailing: true,
        ..ReadOptions::default()
    };
    for read in [bounds, tailing] {
        let refused = s.db().with(&read).multi_scan(["a".."b"]);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let cached = ReadOptions {
        read_tier: ReadTier::BlockCache,
        ..ReadOptions::default()
    };
    let mut scan = s.db().with(&cached).multi_scan([key(5)..key(9)]).unwrap();
    let e = scan.next().unwrap().next().unwrap().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Incomplete);
}

/// Sixteen ranges wait for the device about as often as one does.
#[test]
fn the_blocks_of_ranges_are_read_at_once() {
    for direct in [false, true] {
        let s = Simulated::new(0, |o| o.db.use_direct_reads = direct);
        s.disk.set_page_cache(false);
        let all = content(s.db(), &s.families[0]);
        let statistics = s.options.env.statistics.clone().unwrap();
        let mut rng = Rng::new(8);
        for _ in 0..10 {
            let wanted: Vec<Range> = (0..16)
                .map(|_| {
                    let from = rng.below(KEYS - 100);
                    let bound = |n| key(n).into_bytes();
                    (
                        Bound::Included(bound(from)),
                        Bound::Excluded(bound(from + 40)),
                    )
                })
                .collect();
            let (queued, before) = (s.disk.queued_reads(), reads(&s.options).0);
            let requests = statistics.get(Ticker::MultiscanIoRequests);
            let scan = s.db().multi_scan(wanted.clone()).unwrap();
            for (entries, range) in scan.zip(&wanted) {
                assert_eq!(collected(entries), of_range(&all, range));
            }
            let reads = reads(&s.options).0 - before;
            let queued = s.disk.queued_reads() - queued;
            // Some six sorted runs, which are read once for each range.
            assert!(
                queued > reads * 9 / 10,
                "{queued} of {reads} reads, direct: {direct}"
            );
            assert!((16..16 * 8).contains(&reads), "{reads}");
            assert!(statistics.get(Ticker::MultiscanIoRequests) >= requests + queued);
        }
        assert_eq!(statistics.get(Ticker::MultiscanPrepareCalls), 10);
        let created = statistics.get(Ticker::NoIteratorCreated);
        assert_eq!(created, statistics.get(Ticker::NoIteratorDeleted));
    }
}

/// A read that fails is an error of its range, and of no other.
#[test]
fn a_failed_read_fails_its_range_only() {
    let s = Simulated::new(0, |o| o.db.use_direct_reads = true);
    let all = content(s.db(), &s.families[0]);
    let statistics = s.options.env.statistics.clone().unwrap();
    let mut rng = Rng::new(4);
    let (mut failed, mut again) = (0, 0);
    for nth in 1..40 {
        let wanted = ranges(&mut rng, 10, 50);
        let before = statistics.get(Ticker::AsyncReadErrorCount);
        fail_nth(&s, nth);
        let scan = s.db().multi_scan(wanted.clone()).unwrap();
        for (entries, range) in scan.zip(&wanted) {
            let got: Result<Vec<_>, _> = entries.collect();
            match got {
                Ok(got) => assert_eq!(got, of_range(&all, range)),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::IoError, "{e}");
                    failed += 1;
                }
            }
        }
        s.disk.clear_faults();
        again += statistics.get(Ticker::AsyncReadErrorCount) - before;
    }
    // What could not be read with others is read again alone, and so is what was to be read as a whole.
    assert!(failed <= 10 && again >= 20, "{failed}, {again}");
}

/// The order of bytes; panics once so many comparisons are over.
struct Fragile(Arc<AtomicI64>);

impl UserComparator for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        assert_ne!(
            self.0.fetch_sub(1, Ordering::SeqCst),
            0,
            "a bug in a comparator"
        );
        a.cmp(b)
    }
}

/// A panic of the user's code while ranges are begun loses none of them, wherever it comes; one while they are read ends that
/// range, and shows no entry that is not there.
#[test]
fn a_panic_loses_no_range() {
    let left = Arc::new(AtomicI64::new(-1));
    let mut o = options(0);
    o.env.fs = Arc::new(SimDisk::new(Config::default()));
    o.db.use_direct_reads = true;
    o.cf.target_file_size_base = 2_000;
    o.cf.compression = CompressionType::None;
    o.cf.comparator = Comparator::user(Arc::new(Fragile(Arc::clone(&left))));
    let (db, _) = open(Path::new("/db"), &o);
    for round in 0..3 {
        for n in (round..300).step_by(2) {
            db.put(key(n), "v".repeat(40)).unwrap();
        }
        db.flush().unwrap();
        if round < 2 {
            db.compact_range(None, None).unwrap();
        }
    }
    let (mut begun, mut broken) = (0, 0);
    for nth in (0..).step_by(7) {
        let wanted = (0..20).map(|n| key(15 * n)..key(15 * n + 15));
        let mut scan = db.multi_scan(wanted).unwrap();
        left.store(nth, Ordering::SeqCst);
        let caught = catch_unwind(AssertUnwindSafe(|| scan.next()));
        let mut first = if let Ok(first) = caught {
            first.unwrap()
        } else {
            begun += 1;
            assert_eq!(scan.len(), 20);
            scan.next().unwrap()
        };
        let mut keys = 0;
        loop {
            let next = catch_unwind(AssertUnwindSafe(|| first.next()));
            match next {
                Ok(Some(entry)) => {
                    let (key, value) = (key(keys).into(), "v".repeat(40).into());
                    assert_eq!(entry.unwrap(), (key, value));
                }
                Ok(None) => break,
                Err(_) => {
                    broken += 1;
                    let e = first.next().unwrap().unwrap_err();
                    assert_eq!(e.kind(), ErrorKind::Aborted);
                    assert!(first.next().is_none() && first.next_back().is_none());
                    break;
                }
            }
            keys += 1;
        }
        let is_over = left.swap(-1, Ordering::SeqCst) >= 0;
        for entries in scan {
            assert_eq!(collected(entries).len(), 15);
        }
        if is_over {
            assert_eq!(keys, 15);
            break;
        }
    }
    assert!(begun > 50 && broken > 0, "{begun}, {broken}");
}

/// A range from its end on reads each block about once.
#[test]
fn a_range_backwards_reads_no_more_than_forward() {
    let mut o = options(0);
    o.env.fs = Arc::new(SimDisk::new(Config::default()));
    o.db.use_direct_reads = true;
    o.cf.compression = CompressionType::None;
    let (db, _) = open(Path::new("/db"), &o);
    for n in 0..KEYS {
        db.put(key(n), "v".repeat(100)).unwrap();
    }
    db.flush().unwrap();
    let read = |backwards: bool| {
        let before = reads(&o).1;
        for entries in db
            .multi_scan([key(100)..key(1900), key(2000)..key(2900)])
            .unwrap()
        {
            let count = if backwards {
                entries.rev().count()
            } else {
                entries.count()
            };
            assert!(count >= 900);
        }
        reads(&o).1 - before
    };
    let (forward, backwards) = (read(false), read(true));
    // The first blocks of both ranges were read ahead in vain.
    assert!(backwards < 3 * forward, "{backwards} and {forward} bytes");
}

/// Scans of about the same length: once a table has seen four in a row, they are read at once, by every iterator.
#[test]
fn scans_of_one_length_are_read_at_once() {
    let disk = SimDisk::new(Config::default());
    let mut o = options(0);
    o.env.fs = Arc::new(disk);
    o.db.use_direct_reads = true;
    o.cf.target_file_size_base = 60_000;
    o.cf.table.block_size = 1000;
    o.cf.compression = CompressionType::None;
    let (db, _) = open(Path::new("/db"), &o);
    for round in 0..2 {
        for n in (round..KEYS).step_by(2) {
            db.put(key(n), format!("{n:04}").repeat(40)).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact_range(None, None).unwrap();
    let files = db.get_live_files_metadata().len();
    assert!(files > 5);
    let mut rng = Rng::new(2);
    // The reads and their bytes of one scan of so many entries; five of them are in a block.
    let mut scan = |entries: u64| {
        let at = rng.below(KEYS - 200);
        let mut it = db.iterator().unwrap();
        let before = reads(&o);
        it.seek(key(at).as_bytes());
        for n in at..at + entries {
            assert_eq!(it.key(), key(n).as_bytes());
            it.next();
        }
        let after = reads(&o);
        (after.0 - before.0, after.1 - before.1)
    };
    let alone: Vec<u64> = (0..3).map(|_| scan(120).0).collect();
    assert!(alone.iter().all(|reads| *reads >= 4), "{alone:?}");
    for _ in 0..100 {
        scan(120);
    }
    // One more where the scan goes into the next file, and one where it needs a block more than those before.
    let at_once: Vec<u64> = (0..50).map(|_| scan(120).0).collect();
    assert!(at_once.iter().sum::<u64>() <= 90, "{at_once:?}");
    // A table reads too much for one shorter scan, and no more.
    let short: Vec<u64> = (0..100).map(|_| scan(1).1).collect();
    let long = short.iter().filter(|bytes| **bytes > 3 * 1024).count();
    assert!(
        (1..=files).contains(&long),
        "{long} of {files} files: {short:?}"
    );
    // A long scan now and then is no habit: four in a row of one table are rare.
    let mixed = (0..200).map(|n| (n % 3 == 0, scan(if n % 3 == 0 { 120 } else { 1 }).1));
    let wasted = mixed.filter(|(is_long, bytes)| !is_long && *bytes > 3 * 1024);
    let wasted = wasted.count();
    assert!(wasted <= 10, "{wasted}");
}
