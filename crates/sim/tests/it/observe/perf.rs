//! The perf context: what one thread's operations cost.

use base::options::OptionTable;
use ironstone::perf::{self, PerfCounter, PerfLevel};
use ironstone::{Db, Options, ReadOptions, WriteOptions};

#[test]
fn the_parts_of_writes_and_reads_are_timed() {
    let dir = sim::dirs::scratch().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.cf.memtable_prefix_bloom_size_ratio = 0.1;
    options.cf.cf.memtable_whole_key_filtering = true;
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
    let counted = |work: &dyn Fn(), what: &[PerfCounter]| {
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
    };
    counted(
        &|| db.put_opt(&sync, &cf, "a", "1").unwrap(),
        &[PerfCounter::WriteWalTime, PerfCounter::WriteMemtableTime],
    );
    counted(
        &|| assert!(db.get("a").unwrap().is_some()),
        &[
            PerfCounter::GetFromMemtableTime,
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
            let mut it = db.iterator_cf(&ReadOptions::default(), &cf).unwrap();
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
