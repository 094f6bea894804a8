//! Iterators: seeks that read the blocks of all levels at once, and reading ahead while blocks are used.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use base::sync::thread::JoinHandle;
use base::threads::{Run, SystemThreads, Threads};
use ironstone::{CompressionType, DbIterator};

use super::*;

pub(super) type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a family has, by gets.
pub(super) fn content(db: &Db, family: &ColumnFamily) -> Content {
    let keys = (0..KEYS + 50).map(key);
    keys.filter_map(|k| {
        let value = db.cf(family).get(&k).unwrap()?;
        Some((k.into_bytes(), value))
    })
    .collect()
}

fn check_at<'a>(it: &DbIterator, expected: Option<(&'a Vec<u8>, &'a Vec<u8>)>) {
    it.status().unwrap();
    let got = it.valid().then(|| (it.key(), it.value()));
    assert_eq!(got, expected.map(|(k, v)| (k.as_slice(), v.as_slice())));
}

/// How often tables were read, and how many bytes.
pub(super) fn reads(options: &Options) -> (u64, u64) {
    let s = options.env.statistics.as_ref().unwrap();
    (
        s.get(Ticker::NonLastLevelReadCount) + s.get(Ticker::LastLevelReadCount),
        s.get(Ticker::NonLastLevelReadBytes) + s.get(Ticker::LastLevelReadBytes),
    )
}

/// Moves an iterator at random, and compares it with the content.
fn wander(it: &mut DbIterator, content: &Content, rng: &mut Rng, moves: u64) {
    for _ in 0..moves {
        let target = key(rng.below(KEYS + 60)).into_bytes();
        let steps = rng.below(30) as usize;
        match rng.below(6) {
            0 => {
                it.seek_to_first();
                let mut all = content.iter();
                for _ in 0..steps {
                    check_at(it, all.next());
                    it.next();
                }
            }
            1 => {
                it.seek_to_last();
                let mut all = content.iter().rev();
                for _ in 0..steps {
                    check_at(it, all.next());
                    it.prev();
                }
            }
            2 | 3 => {
                it.seek_for_prev(&target);
                let mut all = content.range(..=target).rev();
                for _ in 0..steps {
                    check_at(it, all.next());
                    it.prev();
                }
            }
            _ => {
                it.seek(&target);
                let mut all = content.range(target..);
                for _ in 0..steps {
                    check_at(it, all.next());
                    it.next();
                }
            }
        }
    }
}

fn kinds_of_reads() -> Vec<ReadOptions> {
    let ahead = |readahead_size, adaptive_readahead| ReadOptions {
        readahead_size,
        adaptive_readahead,
        ..ReadOptions::default()
    };
    vec![
        ahead(0, false),
        ahead(0, true),
        ahead(3000, false),
        ahead(1 << 20, true),
    ]
}

#[test]
fn iterators_agree_with_gets_in_all_modes() {
    for mode in MODES {
        for (cache, direct) in [(0, false), (40_000, true), (0, true)] {
            let dir = dirs::scratch().unwrap();
            let Some(o) = options_in(dir.path(), mode, (cache, direct)) else {
                continue;
            };
            let (db, families) = fill(dir.path(), &o, 13);
            let content = content(&db, &families[0]);
            let mut rng = Rng::new(3);
            for read in kinds_of_reads() {
                let mut it = db.cf(&families[0]).with(&read).iterator().unwrap();
                wander(&mut it, &content, &mut rng, 60);
            }
        }
    }
}

/// Bounds end the cursors of tables early; what an iterator shows is the same, in both directions.
#[test]
fn bounded_iterators_agree_with_gets() {
    for (mode, parts, auto_readahead_size) in [
        (ReadIoMode::Auto, false, true),
        (ReadIoMode::Auto, true, true),
        (ReadIoMode::Auto, false, false),
        (ReadIoMode::Off, false, true),
        (ReadIoMode::Off, true, true),
    ] {
        let dir = dirs::scratch().unwrap();
        let mut o = options_in(dir.path(), mode, (20_000, false)).unwrap();
        o.cf.target_file_size_base = 8_000;
        o.cf.compression = CompressionType::None;
        if parts {
            o.cf.table.index_type = ironstone::IndexType::TwoLevel;
            o.cf.table.metadata_block_size = 200;
            o.cf.table.cache_index_and_filter_blocks = true;
        }
        let (db, families) = fill(dir.path(), &o, 17);
        let files = db.get_live_files_metadata().len();
        assert!(files > 20, "{files}");
        let all = content(&db, &families[1]);
        let mut rng = Rng::new(9);
        for _ in 0..60 {
            let from = rng.below(KEYS);
            let bounds = key(from).into_bytes()..key(from + rng.below(200)).into_bytes();
            let read = ReadOptions {
                iterate_lower_bound: Some(bounds.start.clone()).filter(|_| rng.one_in(2)),
                iterate_upper_bound: Some(bounds.end.clone()),
                auto_readahead_size,
                ..ReadOptions::default()
            };
            let within: Content = all
                .range(..bounds.end)
                .filter(|(k, _)| read.iterate_lower_bound.as_ref().is_none_or(|l| *k >= l))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            let mut it = db.cf(&families[1]).with(&read).iterator().unwrap();
            wander(&mut it, &within, &mut rng, 10);
            // There and back again.
            let at = bounds.start;
            it.seek(&at);
            let ahead: Vec<_> = within.range(at..).collect();
            for entry in &ahead {
                check_at(&it, Some(*entry));
                it.next();
            }
            check_at(&it, None);
            it.seek_to_last();
            for entry in ahead.iter().rev() {
                check_at(&it, Some(*entry));
                it.prev();
            }
        }
    }
}

/// A scan that ends at a bound reads nothing behind it.
#[test]
fn a_bounded_scan_reads_no_block_behind_its_end() {
    let s = Simulated::new(0, |o| {
        o.cf.target_file_size_base = 8_000;
        o.cf.compression = CompressionType::None;
        o.db.read_io_mode = ReadIoMode::Off;
    });
    let mut rng = Rng::new(5);
    let (mut bounded, mut free) = (0, 0);
    for _ in 0..100 {
        let from = rng.below(KEYS - 100);
        let end = key(from + 20).into_bytes();
        let read = ReadOptions {
            iterate_upper_bound: Some(end.clone()),
            ..ReadOptions::default()
        };
        let before = reads(&s.options).0;
        let mut it = s.db().with(&read).iterator().unwrap();
        it.seek(key(from).as_bytes());
        while it.valid() {
            it.next();
        }
        it.status().unwrap();
        bounded += reads(&s.options).0 - before;
        let before = reads(&s.options).0;
        let mut it = s.db().iterator().unwrap();
        it.seek(key(from).as_bytes());
        while it.valid() && it.key() < end.as_slice() {
            it.next();
        }
        free += reads(&s.options).0 - before;
    }
    assert!(
        bounded < free,
        "{bounded} reads with a bound, {free} without"
    );
}

/// The blocks of all levels are read at the same time, and none of them twice.
#[test]
fn a_seek_reads_the_blocks_of_all_levels_at_once() {
    for (direct, cached) in [(false, false), (true, false), (false, true)] {
        let s = Simulated::new(0, |o| o.db.use_direct_reads = direct);
        s.disk.set_page_cache(cached);
        let content = content(s.db(), &s.families[1]);
        let mut it = s.db().cf(&s.families[1]).iterator().unwrap();
        let mut rng = Rng::new(8);
        let (mut seeks, mut alone) = (0, 0);
        for _ in 0..200 {
            let target = key(rng.below(KEYS - 100)).into_bytes();
            let (queued, before) = (s.disk.queued_reads(), reads(&s.options).0);
            it.seek(&target);
            let reads = reads(&s.options).0 - before;
            let queued = s.disk.queued_reads() - queued;
            check_at(&it, content.range(target..).next());
            assert!(queued <= reads && reads <= 16, "{queued} of {reads}");
            seeks += u64::from(queued > 1);
            alone += reads - queued;
        }
        assert!(
            cached || seeks > 150,
            "{seeks} seeks read several blocks at once"
        );
        assert!(cached || alone < 300, "{alone} blocks were read alone");
    }
}

/// A scan of files that are read directly reads every byte about once, most of it while other blocks are used.
#[test]
fn a_scan_reads_ahead_meanwhile() {
    for read in kinds_of_reads() {
        let disk = SimDisk::new(Config::default());
        let mut o = options(0);
        o.env.fs = Arc::new(disk.clone());
        o.db.use_direct_reads = true;
        o.cf.target_file_size_base = 100_000;
        o.cf.compression = CompressionType::None;
        let statistics = o.env.statistics.clone().unwrap();
        let (db, _) = open(Path::new("/db"), &o);
        let value = |n: u64| format!("{n:04}").repeat(40);
        for round in 0..2 {
            for n in (round..KEYS).step_by(2) {
                db.put(key(n), value(n)).unwrap();
            }
            db.flush().unwrap();
        }
        db.compact_range(None, None).unwrap();
        let files = db.get_live_files_metadata();
        assert!(files.len() > 3);
        let bytes: u64 = files.iter().map(|f| f.size).sum();
        let (queued, before) = (disk.queued_reads(), reads(&o));
        let mut it = db.with(&read).iterator().unwrap();
        it.seek_to_first();
        for n in 0..KEYS {
            assert_eq!(
                (it.key(), it.value()),
                (key(n).as_bytes(), value(n).as_bytes())
            );
            it.next();
        }
        assert!(!it.valid() && it.status().is_ok());
        drop(it);
        let after = reads(&o);
        let (reads, read_bytes) = (after.0 - before.0, after.1 - before.1);
        let queued = disk.queued_reads() - queued;
        // These small files are read at once with a mebibyte, and once the size has grown.
        let at_once = read.readahead_size > bytes || read.adaptive_readahead;
        assert!(
            queued * 5 > reads * 2 || at_once,
            "{queued} of {reads} reads, {read:?}"
        );
        assert!(
            read_bytes < bytes * 11 / 10,
            "{read_bytes} of {bytes} bytes"
        );
        assert!(statistics.get(Ticker::PrefetchHits) > KEYS / 10);
        let useful = statistics.get(Ticker::PrefetchBytesUseful);
        assert!(useful <= statistics.get(Ticker::PrefetchBytes));
    }
}

/// With `adaptive_readahead`, the next file begins with as much as the one before has come to.
#[test]
fn adaptive_read_ahead_goes_on_in_the_next_file() {
    let disk = SimDisk::new(Config::default());
    let mut o = options(0);
    o.env.fs = Arc::new(disk.clone());
    o.cf.target_file_size_base = 60_000;
    o.cf.compression = CompressionType::None;
    let (db, _) = open(Path::new("/db"), &o);
    for round in 0..2 {
        for n in (round..KEYS).step_by(2) {
            db.put(key(n), "v".repeat(100)).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact_range(None, None).unwrap();
    let reads_with = |adaptive_readahead| {
        let before = reads(&o).0;
        let read = ReadOptions {
            adaptive_readahead,
            ..ReadOptions::default()
        };
        let mut it = db.with(&read).iterator().unwrap();
        it.seek_to_first();
        let mut count = 0;
        while it.valid() {
            count += 1;
            it.next();
        }
        assert_eq!(count, KEYS);
        reads(&o).0 - before
    };
    let (anew, adaptive) = (reads_with(false), reads_with(true));
    assert!(adaptive * 2 < anew, "{adaptive} reads, {anew} without");
}

/// With `auto_readahead_size`, nothing beyond the upper bound is read ahead.
#[test]
fn reading_ahead_ends_at_the_upper_bound() {
    let s = Simulated::new(0, |o| o.db.use_direct_reads = true);
    let statistics = s.options.env.statistics.clone().unwrap();
    let bytes = |auto_readahead_size, readahead_size| {
        let read = ReadOptions {
            auto_readahead_size,
            readahead_size,
            iterate_upper_bound: Some(key(300).into_bytes()),
            ..ReadOptions::default()
        };
        let before = reads(&s.options).1;
        let mut it = s.db().with(&read).iterator().unwrap();
        it.seek_to_first();
        let mut count = 0;
        while it.valid() {
            assert!(it.key() < key(300).as_bytes());
            count += 1;
            it.next();
        }
        it.status().unwrap();
        (count, reads(&s.options).1 - before)
    };
    for size in [0, 100_000] {
        let trimmed = statistics.get(Ticker::ReadaheadTrimmed);
        let (all, beyond) = bytes(false, size);
        assert_eq!(statistics.get(Ticker::ReadaheadTrimmed), trimmed);
        let (count, within) = bytes(true, size);
        assert_eq!(count, all);
        assert!(within * 3 < beyond * 2, "{within} bytes, {beyond} without");
        assert!(statistics.get(Ticker::ReadaheadTrimmed) > trimmed);
    }
}

/// Queues that break, and reads that fail: a read that fails once is done again; one that fails always ends the iteration with
/// an error.
#[test]
fn iterators_live_through_failures() {
    for waits in [0, 1, 2, 5, 20] {
        let s = Simulated::new(0, |o| o.db.use_direct_reads = true);
        let content = content(s.db(), &s.families[0]);
        let mut rng = Rng::new(waits);
        for read in kinds_of_reads() {
            s.disk.fail_queues(Some(waits));
            let mut it = s.db().with(&read).iterator().unwrap();
            wander(&mut it, &content, &mut rng, 30);
            s.disk.fail_queues(None);
            wander(&mut it, &content, &mut rng, 30);
        }
    }
    for nth in [1, 3, 10] {
        let s = Simulated::new(0, |o| o.db.use_direct_reads = true);
        let content = content(s.db(), &s.families[0]);
        for read in kinds_of_reads() {
            let mut it = s.db().with(&read).iterator().unwrap();
            let left = Arc::new(AtomicU64::new(nth));
            let due = Arc::clone(&left);
            s.disk
                .fail_on(Fault::Eio, Repeat::Forever, move |act, path| {
                    let table = path.extension().is_some_and(|e| e == "sst");
                    let before = |n: u64| n.checked_sub(1);
                    let is_due = || due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, before);
                    act == Act::Read && table && !matches!(is_due(), Ok(2..))
                });
            it.seek_to_first();
            let mut seen = content.iter();
            while it.valid() {
                assert_eq!(
                    Some((it.key(), it.value())),
                    seen.next().map(|(k, v)| (&**k, &**v))
                );
                it.next();
            }
            if left.load(Ordering::Relaxed) > 0 {
                it.status().unwrap(); // there were fewer reads
                assert_eq!(seen.next(), None);
            } else {
                let e = it.status().unwrap_err();
                assert!(
                    e.kind() == ErrorKind::IoError && e.to_string().contains(".sst"),
                    "{e}"
                );
            }
            s.disk.clear_faults();
            wander(&mut it, &content, &mut Rng::new(nth), 20);
        }
    }
}

/// Many threads' iterators, dropped while something is on its way; and one that outlives the database.
#[test]
fn iterators_are_dropped_while_reads_are_on_their_way() {
    let mut s = Simulated::new(20_000, |o| o.db.use_direct_reads = true);
    let all = content(s.db(), &s.families[0]);
    base::sync::thread::scope(|scope| {
        for seed in 0..12 {
            let (s, all) = (&s, &all);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for read in kinds_of_reads().iter().cycle().take(12) {
                    let mut it = s.db().with(read).iterator().unwrap();
                    wander(&mut it, all, &mut rng, 4);
                }
            });
        }
    });
    let read = &kinds_of_reads()[3];
    let mut it = s.db().with(read).iterator().unwrap();
    it.seek_to_first();
    for _ in 0..100 {
        it.next();
    }
    s.db.take().unwrap().close().unwrap();
    s.families.clear();
    wander(&mut it, &all, &mut Rng::new(1), 20);
}

/// One table, in which every key has a block of its own.
fn one_table(change: impl Fn(&mut Options)) -> (Options, Db) {
    let mut o = options(0);
    o.env.fs = Arc::new(SimDisk::new(Config::default()));
    o.cf.compression = CompressionType::None;
    change(&mut o);
    let (db, _) = open(Path::new("/db"), &o);
    for n in 0..KEYS {
        db.put(key(n), "v".repeat(300)).unwrap();
    }
    db.flush().unwrap();
    (o, db)
}

/// Seeks to one block after the other read ahead, as a scan does.
#[test]
fn seeks_in_a_row_read_ahead() {
    for direct in [false, true] {
        let (o, db) = one_table(|o| o.db.use_direct_reads = direct);
        let mut it = db.iterator().unwrap();
        let before = reads(&o).0;
        for n in 0..KEYS {
            it.seek(key(n).as_bytes());
            assert!(it.valid() && it.key() == key(n).as_bytes());
        }
        let reads = reads(&o).0 - before;
        assert!(reads < KEYS / 20, "{reads} reads");
    }
}

/// Reverse scans and seeks at random read no more because of what comes next, which is not asked for then.
#[test]
fn what_comes_next_is_not_asked_for_at_random() {
    let (o, db) = one_table(|o| o.db.use_direct_reads = true);
    let read = ReadOptions {
        readahead_size: 4096,
        ..ReadOptions::default()
    };
    let mut it = db.with(&read).iterator().unwrap();
    let mut rng = Rng::new(1);
    let before = reads(&o);
    for _ in 0..300 {
        it.seek(key(rng.below(KEYS)).as_bytes());
        assert!(it.valid());
    }
    let count = reads(&o).0 - before.0;
    assert!(count <= 310, "{count} reads of 300 seeks");
    it.seek_to_last();
    let before = reads(&o).0;
    for n in (0..KEYS).rev() {
        assert_eq!(it.key(), key(n).as_bytes());
        it.prev();
    }
    let count = reads(&o).0 - before;
    assert!(count <= KEYS + 10, "{count} reads of {KEYS} blocks");
}

/// Without read-ahead, there is none of any kind.
#[test]
fn read_ahead_can_be_turned_off() {
    let (o, db) = one_table(|o| {
        o.db.use_direct_reads = true;
        o.cf.table.max_auto_readahead_size = 0;
    });
    let statistics = o.env.statistics.clone().unwrap();
    let before = reads(&o).0;
    let mut it = db.iterator().unwrap();
    it.seek_to_first();
    for n in 0..KEYS {
        assert_eq!(it.key(), key(n).as_bytes());
        it.next();
    }
    assert_eq!(reads(&o).0 - before, KEYS);
    assert_eq!(statistics.get(Ticker::PrefetchBytes), 0);
}

/// A file system whose files have no descriptor, and which has no queue of its own: everything reads by itself.
#[test]
fn files_without_a_descriptor_are_read_by_themselves() {
    #[derive(Debug)]
    struct Wrapped(SimDisk);
    impl io::FileSystemWrapper for Wrapped {
        fn inner(&self) -> &dyn io::FileSystem {
            &self.0
        }
        fn queue(&self) -> Option<Box<dyn io::queue::Backend>> {
            None
        }
    }
    for mode in [ReadIoMode::Auto, ReadIoMode::Pool] {
        let disk = SimDisk::new(Config::default());
        let mut o = options(0);
        o.env.fs = Arc::new(Wrapped(disk.clone()));
        o.db.use_direct_reads = true;
        o.db.read_io_mode = mode;
        let (db, families) = fill(Path::new("/db"), &o, 5);
        let content = content(&db, &families[0]);
        for read in kinds_of_reads() {
            let mut it = db.with(&read).iterator().unwrap();
            wander(&mut it, &content, &mut Rng::new(2), 40);
        }
        for (k, v) in content.iter().step_by(37) {
            let value = futures::executor::block_on(db.get_async(k));
            assert_eq!(value.unwrap().as_ref(), Some(v));
        }
        assert_eq!(disk.queued_reads(), 0);
    }
}

/// Counts the threads that run.
#[derive(Debug, Default)]
struct Running(Arc<AtomicU64>);

impl Threads for Running {
    fn start(&self, name: &str, run: Run) -> std::io::Result<JoinHandle<()>> {
        let count = Arc::clone(&self.0);
        count.fetch_add(1, Ordering::SeqCst);
        let run = move || {
            run();
            count.fetch_sub(1, Ordering::SeqCst);
        };
        SystemThreads.start(name, Box::new(run))
    }
}

/// The handles of families that outlive the database, and iterators that read nothing ahead, keep no thread of it.
#[test]
fn no_thread_outlives_the_database() {
    for mode in MODES {
        let dir = dirs::scratch().unwrap();
        let Some(mut o) = options_in(dir.path(), mode, (0, true)) else {
            continue;
        };
        let running = Arc::new(AtomicU64::new(0));
        o.env.threads = Arc::new(Running(Arc::clone(&running)));
        let (db, families) = fill(dir.path(), &o, 1);
        db.flush().unwrap();
        let mut late = db.iterator().unwrap();
        let mut it = db.iterator().unwrap();
        it.seek_to_first();
        while it.valid() {
            it.next();
        }
        check(&db, &families, &mut Rng::new(1), 2);
        drop(it);
        db.close().unwrap();
        assert_eq!(running.load(Ordering::SeqCst), 0, "{mode:?}");
        late.seek_to_first();
        while late.valid() {
            late.next();
        }
        late.status().unwrap();
        assert_eq!(
            running.load(Ordering::SeqCst),
            0,
            "{mode:?}, after an iterator"
        );
        drop(families);
    }
}
