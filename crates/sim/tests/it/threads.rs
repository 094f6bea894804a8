//! Several threads at once: batches are visible as a whole or not at all, each thread reads its own writes,
//! and nothing is lost over flushes, compactions and a reopen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::rng::Rng;
use ironstone::{ColumnFamily, Db, Options, ReadOptions, WriteBatch, WriteOptions};
use sim::dirs;
use sim::oracle::content::{everything, forward};

const WRITERS: u64 = 4;
const BATCHES: u64 = 4000;

/// Writes the same value to `key` of both families, and to a key of the thread's own.
fn write(db: &Db, ids: [u32; 2], writer: u64, i: u64, rng: &mut Rng) {
    let mut batch = WriteBatch::new();
    let value = format!("{writer}/{i}/{}", "x".repeat((i % 90) as usize));
    let shared = format!("shared{:02}", rng.below(50));
    for id in ids {
        batch
            .cf_id(id)
            .put(shared.as_bytes(), value.as_bytes())
            .unwrap();
    }
    let own = format!("own{writer}/{:03}", i % 200);
    batch
        .cf_id(ids[0])
        .put(own.as_bytes(), value.as_bytes())
        .unwrap();
    if i.is_multiple_of(16) {
        // Enough records for the group's members to insert their batches themselves.
        for n in 0..80 {
            let key = format!("many{writer}/{n:02}");
            batch
                .cf_id(ids[1])
                .put(key.as_bytes(), value.as_bytes())
                .unwrap();
        }
    }
    let options = WriteOptions {
        sync: rng.one_in(100),
        ..WriteOptions::default()
    };
    db.with(&options).write(&mut batch).unwrap();
    assert_eq!(
        db.get(&own).unwrap().unwrap(),
        value.as_bytes(),
        "own write"
    );
}

/// At a snapshot, both families hold the same under the shared keys.
fn compare(db: &Db, cfs: &[ColumnFamily; 2]) {
    let options = ReadOptions {
        snapshot: Some(db.snapshot()),
        iterate_lower_bound: Some(b"shared".to_vec()),
        ..ReadOptions::default()
    };
    let [a, b] = cfs.each_ref().map(|cf| forward(db, cf, &options).unwrap());
    assert_eq!(a, b, "half of a batch is visible");
}

fn run(concurrent: bool) {
    let temp = dirs::scratch().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.allow_concurrent_memtable_write = concurrent;
    options.cf.write_buffer_size = 128 << 10;
    options.cf.level0_file_num_compaction_trigger = 2;
    let db = Db::open(temp.path(), &options).unwrap();
    db.create_column_family("second", &options.cf).unwrap();
    let cfs = ["default", "second"].map(|name| db.column_family(name).unwrap());
    let ids = [cfs[0].id(), cfs[1].id()];
    let (done, comparisons) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    let mut rng = Rng::new(writer);
                    for i in 0..BATCHES {
                        write(db, ids, writer, i, &mut rng);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                compare(&db, &cfs);
                comparisons.fetch_add(1, Ordering::Relaxed);
            }
        });
        let failed = writers.into_iter().any(|w| w.join().is_err());
        done.store(true, Ordering::Relaxed);
        assert!(!failed, "a writer failed");
    });
    compare(&db, &cfs);
    let records = db.latest_sequence_number();
    let many = BATCHES.div_ceil(16) * 80;
    assert_eq!(
        records,
        WRITERS * (BATCHES * 3 + many),
        "every record has its number"
    );
    let content = everything(&db).unwrap();
    drop((cfs, db));
    let db = Db::open_all(temp.path(), &options).unwrap();
    assert_eq!(everything(&db).unwrap(), content);
    eprintln!(
        "threads: {WRITERS} writers, {records} records, {} comparisons, concurrent inserts: {concurrent}",
        comparisons.load(Ordering::Relaxed)
    );
}

#[test]
fn batches_of_several_threads_are_atomic() {
    run(true);
    run(false);
}
