//! Lookups of many keys, whose blocks are read at the same time: with io_uring, threads, one after the other, and by a
//! simulated device that does reads in any order and fails.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::rng::Rng;
use base::stats::{HistogramKind, Statistics, Ticker};
use io::FileSystem as _;
use ironstone::{
    BlockCache, ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions, Db, ErrorKind, Options,
    ReadIoMode, ReadOptions, ReadTier, WideColumns,
};
use sim::dirs;
use sim::disk::{Act, Config, Fault, Repeat, SimDisk};
use sim::oracle::content;

mod approach;
mod cursors;
mod meetings;
mod metadata;
mod multi_scan;
mod rows;
mod tasks;
mod tiers;
mod warm;

const KEYS: u64 = 3000;
const MODES: [ReadIoMode; 4] = [
    ReadIoMode::Auto,
    ReadIoMode::Uring,
    ReadIoMode::Pool,
    ReadIoMode::Off,
];

fn key(n: u64) -> String {
    format!("key{n:06}")
}

/// Blocks of a few entries, a cache that holds a few of them.
fn options(cache: usize) -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.db.create_missing_column_families = true;
    o.env.block_cache = Some(Arc::new(BlockCache::new(cache)));
    o.env.statistics = Some(Arc::new(Statistics::new()));
    o.cf.disable_auto_compactions = true;
    o.cf.merge_operator = ironstone::merge_operators::parse("stringappend").unwrap();
    o.cf.table.block_size = 300;
    o.cf.table.no_block_cache = cache == 0;
    o
}

fn families(options: &Options) -> Vec<ColumnFamilyDescriptor> {
    let cf: &ColumnFamilyOptions = &options.cf;
    ["default", "second"]
        .map(|name| ColumnFamilyDescriptor::new(name, cf.clone()))
        .to_vec()
}

fn try_open(dir: &Path, options: &Options) -> Result<(Db, Vec<ColumnFamily>), ironstone::Error> {
    let db = Db::open_cf(dir, options, &families(options))?;
    let all = ["default", "second"].map(|name| db.column_family(name).unwrap());
    Ok((db, all.to_vec()))
}

fn open(dir: &Path, options: &Options) -> (Db, Vec<ColumnFamily>) {
    try_open(dir, options).unwrap()
}

/// Fills a database: values, deletions, merges, entities and range deletions in two families, on level 0, two levels below,
/// and in memtables.
fn fill(dir: &Path, options: &Options, seed: u64) -> (Db, Vec<ColumnFamily>) {
    let (db, families) = open(dir, options);
    let mut rng = Rng::new(seed);
    for round in 0..6 {
        for family in &families {
            let cf = db.cf(family);
            for _ in 0..KEYS / 3 {
                let key = key(rng.below(KEYS));
                let value = format!("{round}-{}", "v".repeat(rng.below(90) as usize));
                match rng.below(12) {
                    0 => cf.delete(&key).unwrap(),
                    1..=3 => cf.merge(&key, &value).unwrap(),
                    4 => {
                        let columns = [("", value.as_str()), ("other", "column")];
                        let columns = WideColumns::new(columns).unwrap();
                        cf.put_entity(&key, &columns).unwrap();
                    }
                    _ => cf.put(&key, &value).unwrap(),
                }
            }
            let at = rng.below(KEYS);
            cf.delete_range(key(at), key(at + rng.below(100))).unwrap();
            if round < 5 {
                cf.flush().unwrap();
            }
            if round == 1 || round == 3 {
                cf.compact_range(None, None).unwrap();
            }
        }
    }
    (db, families)
}

/// Keys to look up: some twice, some missing.
fn wanted(rng: &mut Rng, count: u64) -> Vec<String> {
    (0..count).map(|_| key(rng.below(KEYS + 50))).collect()
}

/// Compares lookups of many keys with gets.
fn check(db: &Db, families: &[ColumnFamily], rng: &mut Rng, rounds: u64) {
    for _ in 0..rounds {
        let count = 1 + rng.below(150);
        let keys = wanted(rng, count);
        let family = &families[rng.below(2) as usize];
        let cf = db.cf(family);
        let expected: Vec<_> = keys.iter().map(|k| cf.get(k).unwrap()).collect();
        let got: Vec<_> = cf
            .multi_get(&keys)
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(got, expected);
        let pinned = cf.multi_get_pinned(&keys).into_iter();
        let pinned: Vec<_> = pinned.map(|v| v.unwrap().map(Vec::from)).collect();
        assert_eq!(pinned, expected);
        let both: Vec<_> = keys
            .iter()
            .map(|k| (&families[rng.below(2) as usize], k))
            .collect();
        let expected: Vec<_> = both.iter().map(|(f, k)| db.cf(f).get(k).unwrap()).collect();
        let got = db.multi_get_families(&both).into_iter();
        assert_eq!(got.map(Result::unwrap).collect::<Vec<_>>(), expected);
    }
}

/// Whether files there can be read directly. Older kernels cannot on tmpfs.
fn has_direct_io(dir: &Path) -> bool {
    let probe = io::posix::Posix.probe(dir).unwrap();
    probe.direct_alignment.is_some()
}

/// Options of a database that reads in this mode; `None` if the kernel has no io_uring, which only that mode refuses.
fn options_in(dir: &Path, mode: ReadIoMode, (cache, direct): (usize, bool)) -> Option<Options> {
    let mut o = options(cache);
    o.db.read_io_mode = mode;
    o.db.use_direct_reads = direct && has_direct_io(dir);
    match try_open(dir, &o) {
        Ok((db, _)) => db.close().unwrap(),
        Err(e) => {
            let refused = (ReadIoMode::Uring, ErrorKind::NotSupported);
            assert_eq!((mode, e.kind()), refused);
            eprintln!("skipped: {e}");
            return None;
        }
    }
    Some(o)
}

/// The same results in all modes, with caches of every size, and in files that are read directly.
#[test]
fn all_modes_agree_with_gets() {
    for mode in MODES {
        for (cache, direct) in [
            (0, false),
            (40_000, false),
            (40_000, true),
            (8 << 20, false),
        ] {
            let dir = dirs::scratch().unwrap();
            let Some(o) = options_in(dir.path(), mode, (cache, direct)) else {
                continue;
            };
            let (db, families) = fill(dir.path(), &o, 7);
            check(&db, &families, &mut Rng::new(1), 12);
            db.close().unwrap();
        }
    }
}

/// A database on a simulated disk, opened again, so that nothing is in memory.
struct Simulated {
    disk: SimDisk,
    options: Options,
    db: Option<Db>,
    families: Vec<ColumnFamily>,
}

impl Simulated {
    fn new(cache: usize, change: impl Fn(&mut Options)) -> Self {
        let disk = SimDisk::new(Config::default());
        let mut options = options(cache);
        options.env.fs = Arc::new(disk.clone());
        change(&mut options);
        let (db, _) = fill(Path::new("/db"), &options, 3);
        db.flush().unwrap();
        db.close().unwrap();
        options.env.block_cache = Some(Arc::new(BlockCache::new(cache)));
        let (db, families) = open(Path::new("/db"), &options);
        Self {
            disk,
            options,
            db: Some(db),
            families,
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn log(&self) -> String {
        let log = io::read_file(&*self.options.env.fs, Path::new("/db/LOG"), 1 << 24).unwrap();
        String::from_utf8_lossy(&log).into_owned()
    }
}

/// Reads come in any order, on direct files and others.
#[test]
fn any_order_of_reads_gives_the_same_values() {
    for (cache, direct) in [(0, false), (60_000, false), (60_000, true)] {
        let s = Simulated::new(cache, |o| o.db.use_direct_reads = direct);
        let before = s.disk.queued_reads();
        check(s.db(), &s.families, &mut Rng::new(5), 40);
        assert!(s.disk.queued_reads() > before + 1000);
    }
}

/// A block that several keys want is read once; what is in the cache is not read.
#[test]
fn a_block_is_read_once() {
    let s = Simulated::new(8 << 20, |_| {});
    let (db, before) = (s.db(), s.disk.queued_reads());
    let keys = vec![key(77); 1000];
    let values = db.multi_get(&keys);
    let expected = db.get(key(77)).unwrap();
    assert!(values.into_iter().all(|v| v.unwrap() == expected));
    let reads = s.disk.queued_reads() - before;
    assert!((1..=10).contains(&reads), "{reads} reads of one key");
    let before = s.disk.queued_reads();
    db.multi_get(&keys)
        .into_iter()
        .for_each(|v| drop(v.unwrap()));
    assert_eq!(s.disk.queued_reads(), before);
}

/// A hundred thousand keys in one call, and more blocks than one queue takes.
#[test]
fn a_call_may_have_any_number_of_keys() {
    let s = Simulated::new(30_000, |_| {});
    let mut rng = Rng::new(9);
    let keys = wanted(&mut rng, 100_000);
    let values = s.db().multi_get(&keys);
    for (key, value) in keys.iter().zip(values).step_by(97) {
        assert_eq!(value.unwrap(), s.db().get(key).unwrap());
    }
    assert!(s.db().multi_get::<&str>(&[]).is_empty());
}

/// The nth read of a table from now on fails.
fn fail_nth(s: &Simulated, nth: u64) {
    let left = std::sync::atomic::AtomicU64::new(nth);
    s.disk.fail_on(Fault::Eio, Repeat::Once, move |act, path| {
        act == Act::Read
            && path.extension().is_some_and(|e| e == "sst")
            && left.fetch_sub(1, Ordering::Relaxed) == 1
    });
}

/// How many of the keys fail if the nth read of a table does; the others have what is expected.
fn fail_nth_read(s: &Simulated, nth: u64, keys: &[String], expected: &[Option<Vec<u8>>]) -> usize {
    fail_nth(s, nth);
    let got = s.db().multi_get(keys);
    let mut failed = 0;
    for (got, expected) in got.into_iter().zip(expected) {
        match got {
            Ok(value) => assert_eq!(value, *expected),
            Err(e) => {
                failed += 1;
                assert_eq!(e.kind(), ErrorKind::IoError);
                assert!(e.to_string().contains(".sst"), "{e}");
            }
        }
    }
    failed
}

/// A read that fails is an error of the keys that need its block, and of no others; the next call reads it again.
#[test]
fn a_failed_read_fails_its_keys_only() {
    for nth in [1, 2, 5, 20] {
        let s = Simulated::new(0, |_| {});
        let keys: Vec<_> = (0..KEYS).step_by(40).map(key).collect();
        let expected: Vec<_> = keys.iter().map(|k| s.db().get(k).unwrap()).collect();
        let failed = fail_nth_read(&s, nth, &keys, &expected);
        assert!((1..=3).contains(&failed), "{failed} keys failed");
        s.disk.clear_faults();
        let again = s.db().multi_get(&keys).into_iter().map(Result::unwrap);
        assert_eq!(again.collect::<Vec<_>>(), expected);
    }
}

/// A queue that breaks in the middle of a call: the blocks are read one after the other, LOG says so, and the next call gets
/// a new queue.
#[test]
fn a_broken_queue_loses_nothing() {
    for waits in 0..6 {
        let s = Simulated::new(0, |_| {});
        let keys: Vec<_> = (0..KEYS).step_by(17).map(key).collect();
        let expected: Vec<_> = keys.iter().map(|k| s.db().get(k).unwrap()).collect();
        s.disk.fail_queues(Some(waits));
        let got = s.db().multi_get(&keys).into_iter().map(Result::unwrap);
        assert_eq!(got.collect::<Vec<_>>(), expected);
        let line = "read one block after the other: IO error: the simulated queue is broken";
        assert!(s.log().contains(line), "{}", s.log());
        s.disk.fail_queues(None);
        let before = s.disk.queued_reads();
        let got = s.db().multi_get(&keys).into_iter().map(Result::unwrap);
        assert_eq!(got.collect::<Vec<_>>(), expected);
        assert!(s.disk.queued_reads() > before);
    }
}

/// The limit of the values' size takes the keys in their order, whatever comes first.
#[test]
fn the_size_limit_takes_the_keys_in_order() {
    let s = Simulated::new(0, |_| {});
    let mut rng = Rng::new(2);
    for limit in [0, 1, 200, 5000, u64::MAX - 1] {
        let read = ReadOptions {
            value_size_soft_limit: limit,
            ..ReadOptions::default()
        };
        let keys = wanted(&mut rng, 200);
        let got = s.db().with(&read).multi_get(&keys);
        let mut order: Vec<_> = (0..keys.len()).collect();
        order.sort_by_key(|&i| &keys[i]);
        let mut left = Some(limit);
        for i in order {
            let Some(before) = left else {
                assert_eq!(got[i].as_ref().unwrap_err().kind(), ErrorKind::Aborted);
                continue;
            };
            let expected = s.db().get(&keys[i]).unwrap();
            assert_eq!(*got[i].as_ref().unwrap(), expected);
            left = before.checked_sub(expected.map_or(0, |v| v.len() as u64));
        }
    }
}

/// Read options hold for queued reads too.
#[test]
fn options_of_reads_hold() {
    let s = Simulated::new(0, |_| {});
    let keys: Vec<_> = (0..50).map(key).collect();
    let late = ReadOptions {
        deadline: Duration::from_micros(1),
        ..ReadOptions::default()
    };
    let cache_only = ReadOptions {
        read_tier: ReadTier::BlockCache,
        ..ReadOptions::default()
    };
    for (options, kind) in [
        (late, ErrorKind::TimedOut),
        (cache_only, ErrorKind::Incomplete),
    ] {
        let before = s.disk.queued_reads();
        let got = s.db().with(&options).multi_get(&keys);
        let failed = got.iter().filter_map(|v| v.as_ref().err());
        let failed: Vec<_> = failed.map(|e| e.kind()).collect();
        assert!(
            failed.len() > 30 && failed.iter().all(|&k| k == kind),
            "{failed:?}"
        );
        assert_eq!(s.disk.queued_reads(), before);
    }
}

/// A damaged block is an error of its keys.
#[test]
fn a_rotten_block_fails_its_keys_only() {
    let dir = dirs::scratch().unwrap();
    let mut o = options(0);
    o.cf.table.checksum = ironstone::ChecksumType::Crc32c;
    let (db, _) = open(dir.path(), &o);
    for n in 0..KEYS {
        db.put(key(n), "v".repeat(50)).unwrap();
    }
    db.flush().unwrap();
    let table = db.get_live_files_metadata()[0].clone();
    db.close().unwrap();
    let path = dir.path().join(format!("{:06}.sst", table.file_number));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[10_000] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    for mode in MODES {
        o.db.read_io_mode = mode;
        let (db, _) = match try_open(dir.path(), &o) {
            Err(e) if mode == ReadIoMode::Uring && e.kind() == ErrorKind::NotSupported => continue,
            opened => opened.unwrap(),
        };
        let keys: Vec<_> = (0..KEYS).map(key).collect();
        let got = db.multi_get(&keys);
        let failed: Vec<_> = got.iter().filter_map(|v| v.as_ref().err()).collect();
        assert!((1..=6).contains(&failed.len()), "{} failed", failed.len());
        for e in failed {
            assert!(e.is_corruption() && e.to_string().contains(".sst"), "{e}");
        }
    }
}

/// Many threads share a few queues; who gets none reads by itself.
#[test]
fn many_threads_share_the_queues() {
    let s = Simulated::new(20_000, |_| {});
    base::sync::thread::scope(|scope| {
        for seed in 0..60 {
            let s = &s;
            scope.spawn(move || check(s.db(), &s.families, &mut Rng::new(seed), 3));
        }
    });
}

/// Statistics say how many reads were queued, from how many files and levels.
#[test]
fn statistics_count_queued_reads() {
    let s = Simulated::new(0, |_| {});
    let statistics = s.options.env.statistics.clone().unwrap();
    let before = s.disk.queued_reads();
    let others = statistics.histogram(HistogramKind::AsyncReadBytes).count();
    let keys: Vec<_> = (0..KEYS).step_by(10).map(key).collect();
    s.db()
        .multi_get(&keys)
        .into_iter()
        .for_each(|v| drop(v.unwrap()));
    let reads = s.disk.queued_reads() - before;
    let bytes = statistics.histogram(HistogramKind::AsyncReadBytes);
    assert_eq!(bytes.count(), others + reads);
    assert!(bytes.sum() > reads * 100);
    let batches = statistics.histogram(HistogramKind::MultigetIoBatchSize);
    assert!(
        batches.sum() == reads && batches.count() < reads,
        "{batches:?}"
    );
    let levels = statistics.histogram(HistogramKind::NumLevelReadPerMultiget);
    assert_eq!((levels.count(), levels.sum() > 1), (1, true), "{levels:?}");
    let files = statistics.histogram(HistogramKind::NumSstReadPerLevel);
    assert_eq!(files.count(), levels.sum(), "{files:?}");
    assert_eq!(statistics.get(Ticker::AsyncReadErrorCount), 0);
    assert!(statistics.histogram(HistogramKind::PollWaitMicros).count() > 0);
}

/// `use_direct_reads` needs a file system that can; the error says what to do.
#[test]
fn direct_reads_are_refused_where_there_are_none() {
    let mut config = Config::default();
    config.probe.direct_alignment = None;
    let mut o = options(1 << 20);
    o.env.fs = Arc::new(SimDisk::new(config));
    o.db.use_direct_reads = true;
    let e = Db::open("/db", &o).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotSupported);
    let text = e.to_string();
    assert!(
        text.contains("use_direct_reads") && text.contains("/db"),
        "{text}"
    );
    o.db.use_direct_reads = false;
    Db::open("/db", &o).unwrap().close().unwrap();
}

/// Blocks of direct files lie anywhere: alignments of 512 and 4096 bytes.
#[test]
fn direct_reads_have_the_alignment_of_the_device() {
    for alignment in [512, 4096] {
        let mut config = Config::default();
        config.probe.direct_alignment = Some(alignment);
        let disk = SimDisk::new(config);
        let mut o = options(50_000);
        o.env.fs = Arc::new(disk.clone());
        o.db.use_direct_reads = true;
        let (db, families) = fill(Path::new("/db"), &o, 11);
        check(&db, &families, &mut Rng::new(6), 20);
        let all = content::forward(&db, &families[0], &ReadOptions::default()).unwrap();
        assert!(all.len() > 500);
        db.compact_range(None, None).unwrap();
        check(&db, &families, &mut Rng::new(7), 5);
    }
}
