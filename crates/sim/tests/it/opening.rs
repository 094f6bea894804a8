//! Opening: what the logs of several families hold is replayed by several threads, and a database with
//! thousands of tables opens, with one thread and with many, and says how long that took beside RocksDB:
//! `cargo test -p ironstone-sim --test it opening -- --nocapture`.

use std::time::Instant;

use base::rng::Rng;
use ironstone::{Db, IngestExternalFileOptions, Options, SstFileWriter, WriteBatch};
use sim::oracle::{self, RocksDb};
use sim::{content, dirs};

const TABLES: usize = 5000;

#[test]
#[expect(clippy::disallowed_methods, reason = "measures time")]
#[expect(clippy::print_stdout, reason = "says what it measured")]
fn five_thousand_tables() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.cf.disable_auto_compactions = true;
    let mut writer = SstFileWriter::new(&options);
    let mut files = Vec::new();
    for i in 0..TABLES {
        let path = temp.path().join(format!("{i}.sst"));
        writer.open(&path).unwrap();
        for j in 0..10 {
            writer.put(format!("{i:06}/{j}"), [b'v'; 100]).unwrap();
        }
        writer.finish().unwrap();
        files.push(path);
    }
    let start = Instant::now();
    let db = Db::open(&dir, &options).unwrap();
    let how = IngestExternalFileOptions {
        move_files: true,
        ..IngestExternalFileOptions::default()
    };
    db.ingest_external_file(&files, &how).unwrap();
    println!("ingest of {TABLES} tables: {:?}", start.elapsed());
    db.close().unwrap();
    for round in 0..3 {
        for threads in [1, 16] {
            options.db.max_file_opening_threads = threads;
            let start = Instant::now();
            let db = Db::open(&dir, &options).unwrap();
            println!(
                "{round}: Ironstone, {threads:2} threads: {:?}",
                start.elapsed()
            );
            assert!(db.get("004999/9").unwrap().is_some());
            db.close().unwrap();
        }
        if let Some(lib) = oracle::rocksdb() {
            let start = Instant::now();
            let db = RocksDb::open(&lib.options(), &dir).unwrap();
            println!("{round}: RocksDB, 16 threads: {:?}", start.elapsed());
            assert!(db.get(b"004999/9").unwrap().is_some());
        }
    }
}

/// Logs of several families, with every kind of record, in batches that go over the families. Some
/// are larger than what is inserted together; in some the memtables become full on the way.
#[test]
fn logs_are_replayed_by_several_threads_as_they_were_written() {
    for (threads, write_buffer_size) in [(16, 64 << 20), (16, 256 << 10), (1, 64 << 20)] {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        let mut options = Options::default();
        options.db.create_if_missing = true;
        options.db.max_file_opening_threads = threads;
        options.cf.merge_operator = base::merge::parse("stringappend").unwrap();
        let db = Db::open(&dir, &options).unwrap();
        let mut families = vec![db.default_column_family()];
        for name in ["a", "b", "c", "d"] {
            families.push(db.create_column_family(name, &options.cf).unwrap());
        }
        let mut rng = Rng::new(7);
        for _ in 0..4000 {
            let mut batch = WriteBatch::new();
            for _ in 0..=rng.below(6) {
                let family = &families[rng.below(5) as usize];
                let key = format!("{:05}", rng.below(3000));
                match rng.below(10) {
                    0 => batch.delete_cf(family, &key).unwrap(),
                    1 => batch.merge_cf(family, &key, b"more").unwrap(),
                    2 if rng.one_in(20) => {
                        let end = format!("{key}~");
                        batch.delete_range_cf(family, &key, &end).unwrap();
                    }
                    _ => batch
                        .put_cf(family, &key, vec![b'v'; rng.below(400) as usize])
                        .unwrap(),
                }
            }
            db.write(batch).unwrap();
        }
        let copy = temp.path().join("killed");
        db.pause_background_work().unwrap(); // the directory stands still
        let wanted = content::everything(&db).unwrap();
        dirs::copy(&dir, &copy).unwrap();
        db.continue_background_work().unwrap();
        drop(families);
        db.close().unwrap();
        options.cf.cf.write_buffer_size = write_buffer_size;
        let db = Db::open_all(&copy, &options).unwrap();
        assert_eq!(content::everything(&db).unwrap(), wanted, "{threads}");
        db.close().unwrap();
    }
}
