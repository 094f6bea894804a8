//! The perf context: the cost of one thread's operations.

use base::options::OptionTable;
use ironstone::perf::{self, PerfCounter, PerfLevel};
use ironstone::{Db, Options, ReadOptions, WriteOptions};

/// Does `work`, which must raise each of these counters.
fn counted(work: &dyn Fn(), what: &[PerfCounter]) {
    perf::reset();
    work();
    for &counter in what {
        assert!(
            perf::get(counter) > 0,
            "{}: {}",
            counter.name(),
            perf::report()
        );
    }
}

#[test]
fn the_parts_of_writes_and_reads_are_timed() {
    let dir = sim::dirs::scratch().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.memtable_prefix_bloom_size_ratio = 0.1;
    options.cf.memtable_whole_key_filtering = true;
    options
        .cf
        .table
        .set("filter_policy", "bloomfilter:10")
        .unwrap();
    let db = Db::open(dir.path(), &options).unwrap();
    let cf = db.default_column_family();
    let sync = WriteOptions {
        sync: true,
        ..WriteOptions::default()
    };
    perf::set_level(PerfLevel::EnableTime);
    counted(
        &|| db.cf(&cf).with(&sync).put("a", "1").unwrap(),
        &[
            PerfCounter::WriteWalTime,
            PerfCounter::WriteMemtableTime,
            PerfCounter::WritePreAndPostProcessTime,
            PerfCounter::IoBytesWritten,
            PerfCounter::IoFsyncNanos,
        ],
    );
    counted(
        &|| assert!(db.get("a").unwrap().is_some()),
        &[
            PerfCounter::GetFromMemtableTime,
            PerfCounter::GetPostProcessTime,
            PerfCounter::GetFromMemtableCount,
            PerfCounter::BloomMemtableHitCount,
        ],
    );
    counted(
        &|| assert!(db.get("b").unwrap().is_none()),
        &[PerfCounter::BloomMemtableMissCount],
    );
    db.put("c", "3").unwrap();
    db.flush().unwrap();
    counted(
        &|| assert!(db.get("a").unwrap().is_some()),
        &[
            PerfCounter::GetFromOutputFilesTime,
            PerfCounter::BloomSstHitCount,
        ],
    );
    counted(
        &|| {
            let mut it = db.cf(&cf).iterator().unwrap();
            it.seek(b"a");
            assert!(it.valid());
        },
        &[
            PerfCounter::SeekInternalSeekTime,
            PerfCounter::FindNextUserEntryTime,
        ],
    );
    perf::set_level(PerfLevel::Disable);
    perf::reset();
    db.put("a", "2").unwrap();
    assert_eq!(perf::report(), "");
}

/// The entries that an iterator skips, and the seeks that it makes.
#[test]
fn the_steps_of_iterators_are_counted() {
    let dir = sim::dirs::scratch().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.merge_operator = base::merge::parse("stringappend").unwrap();
    let db = Db::open(dir.path(), &options).unwrap();
    db.delete_range("b", "c").unwrap();
    db.flush().unwrap();
    for i in 0..100 {
        db.put(format!("b{i:02}"), "1").unwrap();
    }
    db.merge("m", "1").unwrap();
    db.merge("m", "2").unwrap();
    let snapshot = db.snapshot();
    db.put("b00", "2").unwrap();
    perf::set_level(PerfLevel::EnableTime);
    let family = db.default_column_family();
    let at_snapshot = ReadOptions {
        snapshot: Some(snapshot),
        ..ReadOptions::default()
    };
    counted(
        &|| {
            let mut it = db.cf(&family).with(&at_snapshot).iterator().unwrap();
            it.seek(b"b");
            assert_eq!(it.value(), b"1");
            while it.valid() {
                it.next();
            }
            it.seek(b"m");
            it.prev();
        },
        &[
            PerfCounter::SeekOnMemtableCount,
            PerfCounter::NextOnMemtableCount,
            PerfCounter::PrevOnMemtableCount,
            PerfCounter::SeekChildSeekCount,
            PerfCounter::InternalRecentSkippedCount,
            PerfCounter::InternalMergeCount,
            PerfCounter::MergeOperatorTimeNanos,
        ],
    );
    counted(
        &|| assert!(db.get("m").unwrap().is_some()),
        &[PerfCounter::MergeOperatorTimeNanos],
    );
    db.flush().unwrap();
    db.delete_range("b", "c").unwrap();
    counted(
        &|| {
            let mut it = db.iterator().unwrap();
            it.seek(b"a");
            assert_eq!(it.key(), b"m");
        },
        &[PerfCounter::BlockChecksumTime],
    );
    perf::set_level(PerfLevel::Disable);
    perf::reset();
}

/// The cost of opening a table that was closed.
#[test]
fn the_opening_of_tables_is_counted() {
    let dir = sim::dirs::scratch().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.max_open_files = 20;
    options.cf.disable_auto_compactions = true;
    options
        .cf
        .table
        .set("filter_policy", "bloomfilter:10")
        .unwrap();
    let db = Db::open(dir.path(), &options).unwrap();
    for i in 0..20 {
        db.put("a", i.to_string()).unwrap();
        db.put(format!("b{i}"), "1").unwrap();
        db.flush().unwrap();
    }
    perf::set_level(PerfLevel::EnableTime);
    counted(
        &|| assert!(db.get("b0").unwrap().is_some()),
        &[
            PerfCounter::FindTableNanos,
            PerfCounter::IoOpenNanos,
            PerfCounter::IndexBlockReadCount,
            PerfCounter::FilterBlockReadCount,
            PerfCounter::ReadIndexBlockNanos,
            PerfCounter::ReadFilterBlockNanos,
        ],
    );
    perf::set_level(PerfLevel::Disable);
    perf::reset();
}
