//! A database with thousands of tables opens, with one thread and with many, and says how long that
//! took beside RocksDB: `cargo test -p ironstone-sim --test it opening -- --nocapture`.

use std::time::Instant;

use ironstone::{Db, IngestExternalFileOptions, Options, SstFileWriter};
use sim::dirs;
use sim::oracle::{self, RocksDb};

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
