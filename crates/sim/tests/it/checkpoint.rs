//! Checkpoints made while writers run; live files; export and import; sizes; files deleted by range.
#![expect(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "RocksDB's file names are in lower case"
)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ironstone::{
    Db, ExportImportFilesMetaData, ImportColumnFamilyOptions, LiveFileMetaData,
    LiveFilesStorageInfoOptions, Options, SizeApproximationOptions, WriteBatch, WriteOptions,
};
use sim::dirs;
use sim::oracle::content::{FamilyContent, difference, everything};
use sim::oracle::{self, RocksDb, RocksExport, ldb};

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o
}

fn check_with_rocksdb(what: &str, dir: &Path, want: &[FamilyContent]) {
    if let Some(lib) = oracle::rocksdb() {
        let have = oracle::scan(&lib, dir, |_| Ok(lib.options())).unwrap();
        assert_eq!(difference(want, &have), None, "{what}: librocksdb");
    }
    if ldb::available() {
        let names: Vec<_> = want.iter().map(|(name, _)| name.as_str()).collect();
        let have = ldb::scan_all(dir, &names).unwrap();
        assert_eq!(difference(want, &have), None, "{what}: ldb");
        ldb::check_consistency(dir).unwrap();
    }
}

/// Tables on several levels, and something in the log.
fn fill(db: &Db) {
    let other = db.create_column_family("other", &options().cf).unwrap();
    for round in 0..3 {
        for i in 0..2000 {
            let key = format!("{:05}", i * 7 % 4001 + round);
            db.put(&key, format!("{round}/{i}").repeat(10)).unwrap();
            if i % 5 == 0 {
                db.cf(&other).put(&key, "other").unwrap();
            }
        }
        db.flush().unwrap();
        if round == 0 {
            db.compact_range(None, None).unwrap();
        }
    }
    db.put("in the log", "1").unwrap();
}

#[test]
fn a_checkpoint_is_the_database_at_a_moment() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let mut o = options();
    o.db.wal_dir = at("logs").display().to_string();
    for (name, o) in [("one", options()), ("two", o)] {
        let db = Db::open(at(name), &o).unwrap();
        fill(&db);
        let want = everything(&db).unwrap();
        for (kind, flush) in [("flushed", 0), ("logged", u64::MAX)] {
            let copy = at(&format!("{name} {kind}"));
            let last = db.create_checkpoint(&copy, flush).unwrap();
            assert_eq!(last, db.latest_sequence_number());
            let logged = dirs::files(&copy).unwrap();
            let logged = logged
                .iter()
                .filter(|(n, p)| n.ends_with(".log") && p.metadata().unwrap().len() > 0);
            assert_eq!(logged.count() > 0, flush > 0, "{kind}");
            db.put("later", "x").unwrap();
            check_with_rocksdb(&format!("{name}, {kind}"), &copy, &want);
            let of_copy = Db::open_all(&copy, &Options::default()).unwrap();
            assert_eq!(difference(&want, &everything(&of_copy).unwrap()), None);
            of_copy.put("k", "v").unwrap();
            of_copy.compact_range(None, None).unwrap();
            of_copy.close().unwrap();
            db.delete("later").unwrap();
            assert_eq!(difference(&want, &everything(&db).unwrap()), None);
        }
        // A checkpoint works also while the logs are locked.
        db.lock_wal().unwrap();
        let copy = at(&format!("{name} locked"));
        db.create_checkpoint(&copy, 0).unwrap();
        db.unlock_wal().unwrap();
        check_with_rocksdb(&format!("{name}, locked"), &copy, &want);
        let e = db.create_checkpoint(at("one"), 0).unwrap_err();
        assert!(e.to_string().contains("Directory exists"), "{e}");
    }
}

/// Writers put batches of two keys that must stay equal; each checkpoint has a prefix of them.
#[test]
fn checkpoints_are_consistent_while_writers_run() {
    const WRITERS: u64 = 3;
    let temp = dirs::scratch().unwrap();
    let mut o = options();
    o.cf.write_buffer_size = 64 << 10;
    o.cf.level0_file_num_compaction_trigger = 2;
    let db = Db::open(temp.path().join("db"), &o).unwrap();
    let other = db.create_column_family("other", &o.cf).unwrap();
    let done = AtomicBool::new(false);
    let written: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|s| {
        for (w, written) in written.iter().enumerate() {
            let (db, done, other) = (&db, &done, &other);
            s.spawn(move || {
                for i in 1u64.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut batch = WriteBatch::new();
                    batch.put(format!("w{w}"), i.to_string()).unwrap();
                    batch.cf(other).put(format!("w{w}"), i.to_string()).unwrap();
                    let filler = format!("{w}/{}", i % 500);
                    batch.cf(other).put(filler, [b'x'; 200]).unwrap();
                    let sync = WriteOptions {
                        sync: w == 0,
                        ..WriteOptions::default()
                    };
                    db.with(&sync).write(&mut batch).unwrap();
                    written.store(i, Ordering::Release);
                }
            });
        }
        for round in 0..6 {
            std::thread::sleep(std::time::Duration::from_millis(60));
            let before: Vec<u64> = written.iter().map(|w| w.load(Ordering::Acquire)).collect();
            let copy = temp.path().join(format!("copy{round}"));
            let flush = if round % 3 == 0 { 0 } else { u64::MAX };
            let last = db.create_checkpoint(&copy, flush).unwrap();
            let of_copy = Db::open_read_only(&copy, &Options::default()).unwrap();
            assert!(of_copy.latest_sequence_number() >= last);
            let other = of_copy.column_family("other").unwrap();
            for (w, before) in before.iter().enumerate() {
                let key = format!("w{w}");
                let (a, b) = (
                    of_copy.get(&key).unwrap(),
                    of_copy.cf(&other).get(&key).unwrap(),
                );
                assert_eq!(a, b, "round {round}");
                let number = a.map_or(0, |v| String::from_utf8(v).unwrap().parse::<u64>().unwrap());
                assert!(number >= *before, "round {round}: {number} after {before}");
            }
            let content = everything(&of_copy).unwrap();
            drop(of_copy);
            check_with_rocksdb(&format!("round {round}"), &copy, &content);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn live_files_make_a_copy() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    fill(&db);
    let want = everything(&db).unwrap();
    db.disable_file_deletions();
    let how = LiveFilesStorageInfoOptions {
        wal_size_for_flush: u64::MAX,
    };
    let files = db.get_live_files_storage_info(&how).unwrap();
    let (names, manifest_size) = db.get_live_files(false).unwrap();
    assert_eq!(
        names.len(),
        files
            .iter()
            .filter(|f| !f.relative_filename.ends_with(".log"))
            .count()
    );
    // No file of the copy is deleted, though all tables are replaced.
    db.put("00000", "later").unwrap();
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
    std::fs::create_dir(at("copy")).unwrap();
    for file in &files {
        let to = at("copy").join(&file.relative_filename);
        if file.replacement_contents.is_empty() {
            let mut bytes = std::fs::read(file.path()).unwrap();
            assert!(bytes.len() as u64 >= file.size);
            assert!(file.trim_to_size || bytes.len() as u64 == file.size);
            bytes.truncate(file.size as usize);
            std::fs::write(to, bytes).unwrap();
        } else {
            std::fs::write(to, &file.replacement_contents).unwrap();
        }
    }
    let manifest = files
        .iter()
        .find(|f| f.relative_filename.starts_with("MANIFEST"));
    assert_eq!(manifest.unwrap().size, manifest_size);
    let tables = |dir: &Path| {
        dirs::files(dir)
            .unwrap()
            .keys()
            .filter(|n| n.ends_with(".sst"))
            .count()
    };
    let kept = tables(&at("db"));
    db.enable_file_deletions();
    db.wait_for_compact().unwrap();
    assert!(tables(&at("db")) < kept);
    check_with_rocksdb("live files", &at("copy"), &want);
    let copy = Db::open_all(at("copy"), &Options::default()).unwrap();
    assert_eq!(difference(&want, &everything(&copy).unwrap()), None);
}

fn export(db: &Db, to: &Path) -> ExportImportFilesMetaData {
    db.cf(&db.default_column_family()).export(to).unwrap()
}

/// The content of a database with an imported family; RocksDB must find the same.
fn close_and_check(db: Db, path: &Path) -> Vec<FamilyContent> {
    let all = everything(&db).unwrap();
    db.close().unwrap();
    check_with_rocksdb("imported", path, &all);
    all
}

#[test]
fn a_family_is_exported_and_imported() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    fill(&db);
    let want = &everything(&db).unwrap()[0].1.clone();
    let metadata = export(&db, &at("export"));
    assert!(metadata.files.iter().map(|f| f.level).max() > Some(0));
    let second = Db::open(at("second"), &options()).unwrap();
    let how = ImportColumnFamilyOptions::default();
    let import =
        |name: &str| second.create_column_family_with_import(name, &options().cf, &how, &metadata);
    let cf = import("imported").unwrap();
    assert_eq!(&sim::oracle::content::family(&second, &cf).unwrap(), want);
    assert!(import("imported").is_err());
    second.cf(&cf).put("00000", "newer").unwrap();
    assert_eq!(second.cf(&cf).get("00000").unwrap().unwrap(), b"newer");
    second.cf(&cf).delete("00000").unwrap();
    second.cf(&cf).compact_range(None, None).unwrap();
    close_and_check(second, &at("second"));
    // A damaged export leaves no family and no files.
    let third = Db::open(at("third"), &options()).unwrap();
    let before = dirs::files(&at("third")).unwrap().len();
    std::fs::write(at("export").join(&metadata.files[0].name[1..]), "damage").unwrap();
    let e = third
        .create_column_family_with_import("x", &options().cf, &how, &metadata)
        .unwrap_err();
    assert!(e.is_corruption(), "{e}");
    assert!(third.column_family("x").is_none());
    assert_eq!(dirs::files(&at("third")).unwrap().len(), before);
}

/// Metadata with a sequence number that no reader accepts was imported, and the database never opened
/// again.
#[test]
fn an_import_with_impossible_numbers_is_refused() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    fill(&db);
    let good = export(&db, &at("export"));
    let second = Db::open(at("second"), &options()).unwrap();
    let how = ImportColumnFamilyOptions::default();
    for (smallest, largest) in [(0, 1 << 56), (0, u64::MAX), (9, 8)] {
        let mut metadata = good.clone();
        let file = &mut metadata.files[0];
        (file.smallest_seqno, file.largest_seqno) = (smallest, largest);
        let e = second
            .create_column_family_with_import("x", &options().cf, &how, &metadata)
            .unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::InvalidArgument, "{e}");
        assert!(e.to_string().contains("sequence numbers from"), "{e}");
    }
    second.put("k", "v").unwrap();
    second.flush().unwrap();
    close_and_check(second, &at("second"));
}

/// An import took two edits. When a new MANIFEST was begun between them, because the old one was large, the
/// new one did not have the family, and the second edit was about an unknown family: the database did not
/// open any more.
#[test]
fn an_import_may_begin_a_new_manifest() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    fill(&db);
    let metadata = export(&db, &at("export"));
    let mut small = options();
    small.db.max_manifest_file_size = 1;
    let second = Db::open(at("second"), &small).unwrap();
    let how = ImportColumnFamilyOptions::default();
    second
        .create_column_family_with_import("imported", &options().cf, &how, &metadata)
        .unwrap();
    let all = close_and_check(second, &at("second"));
    let again = Db::open_all(at("second"), &small).unwrap();
    assert_eq!(difference(&all, &everything(&again).unwrap()), None);
}

#[test]
fn rocksdb_imports_our_export_and_we_import_its() {
    let Some(lib) = oracle::rocksdb() else { return };
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    fill(&db);
    let want = everything(&db).unwrap()[0].1.clone();
    let metadata = export(&db, &at("export"));
    let files = oracle::exported_files(&metadata);
    let mut o = lib.options();
    o.create_if_missing(true);
    let mut rocks = RocksDb::open(&o, at("rocks")).unwrap();
    let export = RocksExport::of(&lib, &metadata.db_comparator_name, &files).unwrap();
    rocks.import("imported", &lib.options(), &export).unwrap();
    let have = rocks
        .iterator_cf(rocks.cf("imported").unwrap())
        .collect_all()
        .unwrap();
    assert_eq!(sim::oracle::content::pair_difference(&want, &have), None);
    // And back again, with the files that RocksDB exports.
    let cf = rocks.cf("imported").unwrap();
    rocks.put_cf(cf, b"00000", b"newer").unwrap();
    let theirs = rocks.export(cf, at("theirs")).unwrap();
    let want = rocks.iterator_cf(cf).collect_all().unwrap();
    let files = theirs
        .files()
        .unwrap()
        .into_iter()
        .map(|f| LiveFileMetaData {
            level: f.level as usize,
            name: f.name,
            directory: f.directory.into(),
            size: f.size as u64,
            smallest_seqno: f.smallest_seqno,
            largest_seqno: f.largest_seqno,
            ..LiveFileMetaData::default()
        });
    let metadata = ExportImportFilesMetaData {
        db_comparator_name: metadata.db_comparator_name,
        files: files.collect(),
    };
    assert!(metadata.files.len() > 1);
    let how = ImportColumnFamilyOptions { move_files: true };
    let cf = db
        .create_column_family_with_import("back", &options().cf, &how, &metadata)
        .unwrap();
    let have = sim::oracle::content::family(&db, &cf).unwrap();
    assert_eq!(sim::oracle::content::pair_difference(&want, &have), None);
}

#[test]
fn sizes_are_near_rocksdbs() {
    let Some(lib) = oracle::rocksdb() else { return };
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let mut o = options();
    o.cf.target_file_size_base = 64 << 10;
    let db = Db::open(&dir, &o).unwrap();
    for i in 0..20_000 {
        let value = format!("{:0>1$}", i, 50 + i % 100);
        db.put(format!("{i:06}"), value).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
    for i in 0..200 {
        db.put(format!("{:06}", i * 100), [b'v'; 500]).unwrap();
    }
    db.flush().unwrap();
    let ranges: Vec<(String, String)> =
        [(0, 20_000), (0, 10), (5000, 6000), (13, 19_000), (300, 200)]
            .iter()
            .map(|(a, b)| (format!("{a:06}"), format!("{b:06}")))
            .collect();
    let cf = db.default_column_family();
    let asked: Vec<_> = ranges
        .iter()
        .map(|(a, b)| (a.as_bytes(), b.as_bytes()))
        .collect();
    let ours = db
        .cf(&cf)
        .get_approximate_sizes(&SizeApproximationOptions::default(), &asked)
        .unwrap();
    for i in 0..100 {
        db.put(format!("{i:06}"), [b'm'; 1000]).unwrap();
    }
    let (count, bytes) = db
        .cf(&cf)
        .get_approximate_memtable_stats((b"000010", b"000020"))
        .unwrap();
    assert!(
        count == 10 && (10_000..11_000).contains(&bytes),
        "{count} {bytes}"
    );
    let memory = SizeApproximationOptions {
        include_memtables: true,
        include_files: false,
        files_size_error_margin: -1.0,
    };
    let sizes = db
        .cf(&cf)
        .get_approximate_sizes(&memory, &[(b"000010", b"000020")])
        .unwrap();
    assert_eq!(sizes, [bytes]);
    db.close().unwrap();
    let rocks = RocksDb::open_read_only(&lib.options(), &dir).unwrap();
    for (ours, (a, b)) in ours.iter().zip(&ranges) {
        let theirs = rocks
            .approximate_size(rocks.default_cf(), a.as_bytes(), b.as_bytes())
            .unwrap();
        let near = ours.abs_diff(theirs) * 50 <= theirs + 200_000;
        assert!(near, "{a}..{b}: {ours}, RocksDB says {theirs}");
    }
}

#[test]
fn files_are_deleted_by_range() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let mut o = options();
    o.cf.target_file_size_base = 16 << 10;
    let db = Db::open(&dir, &o).unwrap();
    let (mut rng, mut value) = (base::rng::Rng::new(5), [0; 100]);
    for half in 0..2 {
        for i in 0..1000 {
            rng.fill(&mut value);
            db.put(format!("{:06}", 2 * i + half), value).unwrap();
        }
        db.flush().unwrap();
    }
    let cf = db.default_column_family();
    db.cf(&cf).compact_range(None, None).unwrap();
    let before = db.cf(&cf).get_column_family_metadata().unwrap();
    assert!(before.file_count > 5);
    db.cf(&cf)
        .delete_files_in_ranges(&[(Some(b"000500"), Some(b"001500"))], true)
        .unwrap();
    let after = db.cf(&cf).get_column_family_metadata().unwrap();
    assert!(after.file_count < before.file_count - 2 && after.file_count > 2);
    let tables = dirs::files(&dir)
        .unwrap()
        .into_keys()
        .filter(|n| n.ends_with(".sst"));
    assert_eq!(tables.count(), after.file_count);
    assert!(db.get("000100").unwrap().is_some() && db.get("001900").unwrap().is_some());
    assert!(db.get("001000").unwrap().is_none());
    let want = everything(&db).unwrap();
    db.close().unwrap();
    check_with_rocksdb("files deleted", &dir, &want);
}

/// The last family that needed a log was dropped, and the MANIFEST did not say yet that the log may go. A
/// checkpoint left the log out and did not open, since the next log proves that it was there.
#[test]
fn a_log_that_only_a_dropped_family_needed_comes_along() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let mut o = ironstone::Options::default();
    o.db.create_if_missing = true;
    let db = Db::open(at("db"), &o).unwrap();
    let synced = ironstone::WriteOptions {
        sync: true,
        ..Default::default()
    };
    let (default, gone) = (
        db.default_column_family(),
        db.create_column_family("gone", &o.cf).unwrap(),
    );
    db.cf(&gone).with(&synced).put("a", "1").unwrap();
    db.cf(&default).with(&synced).put("b", "2").unwrap();
    db.cf(&default).flush().unwrap();
    db.cf(&default).with(&synced).put("c", "3").unwrap();
    db.disable_file_deletions(); // or the MANIFEST says at once that the log may go
    db.drop_column_family(&gone).unwrap();
    db.create_checkpoint(at("copy"), u64::MAX).unwrap();
    db.enable_file_deletions();
    let copy = Db::open(at("copy"), &o).unwrap();
    assert_eq!(copy.get("b").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(copy.get("c").unwrap().as_deref(), Some(&b"3"[..]));
}
