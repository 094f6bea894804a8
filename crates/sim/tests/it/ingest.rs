//! Tables made outside of a database and ingested: Ironstone's into RocksDB and the other way round, which
//! entries hide which, and what is refused.

use std::path::{Path, PathBuf};

use base::rng::Rng;
use ironstone::{
    Comparator, Db, ErrorKind, IngestExternalFileArg, IngestExternalFileOptions, Options,
    ReadOptions, SstFileWriter,
};
use sim::dirs;
use sim::disk::SimDisk;
use sim::oracle::content::{difference, everything, forward};
use sim::oracle::{self, RocksDb, RocksIngest, RocksSstFileWriter, ldb};

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o
}

/// A file with these pairs; a pair without a value deletes the key.
fn file(path: &Path, pairs: &[(&str, Option<&str>)]) -> PathBuf {
    let mut writer = SstFileWriter::new(&options());
    writer.open(path).unwrap();
    for (key, value) in pairs {
        match value {
            Some(value) => writer.put(key, value).unwrap(),
            None => writer.delete(key).unwrap(),
        }
    }
    writer.finish().unwrap();
    path.to_path_buf()
}

fn content(db: &Db) -> Vec<(String, String)> {
    let all = forward(db, &db.default_column_family(), &ReadOptions::default()).unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    all.into_iter().map(|(k, v)| (text(k), text(v))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
    pairs.iter().map(own).collect()
}

/// The levels of all files.
fn levels(db: &Db) -> Vec<usize> {
    let mut all: Vec<_> = db.get_live_files_metadata();
    all.sort_by_key(|f| f.file_number);
    all.iter().map(|f| f.level).collect()
}

fn check_with_rocksdb(what: &str, dir: &Path, want: &[sim::oracle::content::FamilyContent]) {
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

#[test]
fn files_of_each_are_ingested_by_the_other() {
    let Some(lib) = oracle::rocksdb() else { return };
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let mut rng = Rng::new(11);
    let mut value = vec![0; 300];
    let ours = at("ours.sst");
    let mut writer = SstFileWriter::new(&options());
    writer.open(&ours).unwrap();
    let theirs = RocksSstFileWriter::open(&lib.options(), at("theirs.sst")).unwrap();
    for i in 0..3000 {
        rng.fill(&mut value[..100]);
        let key = format!("{:06}", i * 3);
        if i % 10 == 7 {
            writer.delete(&key).unwrap();
            theirs.delete(key.as_bytes()).unwrap();
        } else {
            writer.put(&key, &value).unwrap();
            theirs.put(key.as_bytes(), &value).unwrap();
        }
    }
    let info = writer.finish().unwrap();
    assert_eq!(
        (info.num_entries, info.largest_key.as_slice()),
        (3000, &b"008997"[..])
    );
    theirs.finish().unwrap();
    if ldb::available() {
        ldb::verify_table(&ours).unwrap();
    }
    let mut o = lib.options();
    o.create_if_missing(true);
    for (round, write_global_seqno) in [Some(false), Some(true)].into_iter().enumerate() {
        let (dir, other) = (at(&format!("rocks{round}")), at(&format!("iron{round}")));
        let rocks = RocksDb::open(&o, &dir).unwrap();
        let iron = Db::open(&other, &options()).unwrap();
        for i in 0..900 {
            let key = format!("{:06}", i * 10);
            rocks.put(key.as_bytes(), b"older").unwrap();
            iron.put(&key, "older").unwrap();
        }
        let how = RocksIngest {
            write_global_seqno,
            ..RocksIngest::default()
        };
        rocks.ingest(rocks.default_cf(), &[&ours], how).unwrap();
        let how = IngestExternalFileOptions {
            write_global_seqno: write_global_seqno == Some(true),
            verify_checksums_before_ingest: true,
            ..IngestExternalFileOptions::default()
        };
        iron.ingest_external_file(&[at("theirs.sst")], &how)
            .unwrap();
        rocks.put(b"000003", b"newer").unwrap();
        iron.put("000003", "newer").unwrap();
        let want = everything(&iron).unwrap();
        assert!(want[0].1.len() > 3000);
        drop(rocks);
        iron.close().unwrap();
        let theirs = oracle::scan(&lib, &dir, |_| Ok(lib.options())).unwrap();
        assert_eq!(difference(&want, &theirs), None, "ingested by RocksDB");
        let theirs = oracle::scan(&lib, &other, |_| Ok(lib.options())).unwrap();
        assert_eq!(difference(&want, &theirs), None, "ingested by Ironstone");
        for dir in [dir, other] {
            let db = Db::open(&dir, &Options::default()).unwrap();
            assert_eq!(difference(&want, &everything(&db).unwrap()), None);
            db.compact_range(None, None).unwrap();
            assert_eq!(difference(&want, &everything(&db).unwrap()), None);
        }
    }
}

#[test]
fn ldb_takes_our_files_and_we_take_its() {
    if !ldb::available() {
        return;
    }
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let ours = file(&at("ours.sst"), &[("a", Some("1")), ("c", Some("3"))]);
    drop(Db::open(at("db"), &options()).unwrap());
    ldb::ldb(&at("db"), &["--try_load_options", "put", "b", "2"]).unwrap();
    let name = ours.display().to_string();
    ldb::ldb(
        &at("db"),
        &["--try_load_options", "ingest_extern_sst", &name],
    )
    .unwrap();
    let db = Db::open(at("db"), &Options::default()).unwrap();
    let want = pairs(&[("a", "1"), ("b", "2"), ("c", "3")]);
    assert_eq!(content(&db), want);
    drop(db);
    assert_eq!(ldb::scan(&at("db"), "default").unwrap().len(), 3);
}

#[test]
fn the_newest_wins_wherever_it_lies() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let mut options = options();
    options.cf.disable_auto_compactions = true; // files stay where they are put
    let db = Db::open(at("db"), &options).unwrap();
    let default = IngestExternalFileOptions::default();
    let first = file(&at("1"), &[("b", Some("1")), ("d", Some("1"))]);
    db.ingest_external_file(&[&first], &default).unwrap();
    assert_eq!((levels(&db), db.latest_sequence_number()), (vec![6], 0));
    // The file lies between the keys of the last level and shares none of them, but its range does not fit
    // there.
    let between = file(&at("2"), &[("c", Some("2"))]);
    db.ingest_external_file(&[&between], &default).unwrap();
    assert_eq!((levels(&db), db.latest_sequence_number()), (vec![6, 5], 0));
    db.put("x", "memory").unwrap();
    let over = file(&at("3"), &[("d", None), ("x", Some("3"))]);
    let no_flush = IngestExternalFileOptions {
        allow_blocking_flush: false,
        ..default.clone()
    };
    let e = db.ingest_external_file(&[&over], &no_flush).unwrap_err();
    assert!(e.to_string().contains("requires flush"), "{e}");
    let old = db.snapshot();
    db.ingest_external_file(&[&over], &default).unwrap();
    assert_eq!(content(&db), pairs(&[("b", "1"), ("c", "2"), ("x", "3")]));
    db.put("x", "4").unwrap();
    let read_old = ReadOptions {
        snapshot: Some(old.clone()),
        ..ReadOptions::default()
    };
    let cf = db.default_column_family();
    let get = |key: &str| db.cf(&cf).with(&read_old).get(key).unwrap();
    assert_eq!(get("d").as_deref(), Some(&b"1"[..]));
    assert_eq!(get("x").as_deref(), Some(&b"memory"[..]));
    // A snapshot sees no ingested file, even one that shares no key with it.
    let apart = file(&at("4"), &[("z", Some("4"))]);
    db.ingest_external_file(&[&apart], &default).unwrap();
    assert_eq!((get("z"), db.get("z").unwrap().is_some()), (None, true));
    drop((read_old, old));
    let want = pairs(&[("b", "1"), ("c", "2"), ("x", "4"), ("z", "4")]);
    assert_eq!(content(&db), want);
    let all = everything(&db).unwrap();
    db.close().unwrap();
    check_with_rocksdb("ingested", &at("db"), &all);
    let db = Db::open(at("db"), &Options::default()).unwrap();
    assert_eq!(content(&db), want);
    db.compact_range(None, None).unwrap();
    assert_eq!(content(&db), want);
}

/// Range deletions in ingested files hide older entries, not the file's own; and RocksDB's files give the
/// same results as ours.
#[test]
fn range_deletions_come_along() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    for key in ["a", "b", "c", "d", "x"] {
        db.put(key, "0").unwrap();
    }
    let mut writer = SstFileWriter::new(&options());
    writer.open(at("1")).unwrap();
    writer.delete_range("b", "d").unwrap();
    writer.put("c", "1").unwrap();
    writer.finish().unwrap();
    let default = IngestExternalFileOptions::default();
    db.ingest_external_file(&[at("1")], &default).unwrap();
    let want = pairs(&[("a", "0"), ("c", "1"), ("d", "0"), ("x", "0")]);
    assert_eq!(content(&db), want);
    // A file of range deletions alone, over a range deletion that is still in memory.
    db.delete_range("w", "z").unwrap();
    db.put("x", "1").unwrap();
    writer.open(at("2")).unwrap();
    writer.delete_range("w", "x").unwrap();
    writer.delete_range("a", "b").unwrap();
    writer.finish().unwrap();
    db.ingest_external_file(&[at("2")], &default).unwrap();
    let mut want = pairs(&[("c", "1"), ("d", "0"), ("x", "1")]);
    assert_eq!(content(&db), want);
    let below = file(&at("3"), &[("y", Some("3"))]);
    db.delete_range("y", "z").unwrap();
    db.ingest_external_file(&[&below], &default).unwrap();
    want.extend(pairs(&[("y", "3")]));
    assert_eq!(content(&db), want);
    let all = everything(&db).unwrap();
    db.close().unwrap();
    check_with_rocksdb("range deletions", &at("db"), &all);
    let db = Db::open(at("db"), &Options::default()).unwrap();
    assert_eq!(content(&db), want);
    db.compact_range(None, None).unwrap();
    assert_eq!(content(&db), want);
    let Some(lib) = oracle::rocksdb() else { return };
    let theirs = RocksSstFileWriter::open(&lib.options(), at("4")).unwrap();
    theirs.delete_range(b"d", b"y").unwrap();
    theirs.put(b"e", b"4").unwrap();
    theirs.finish().unwrap();
    db.ingest_external_file(&[at("4")], &default).unwrap();
    assert_eq!(content(&db), pairs(&[("c", "1"), ("e", "4"), ("y", "3")]));
    let mut o = lib.options();
    o.create_if_missing(true);
    let rocks = RocksDb::open(&o, at("rocks")).unwrap();
    for key in ["a", "b", "c", "d"] {
        rocks.put(key.as_bytes(), b"0").unwrap();
    }
    let ingest = |name| rocks.ingest(rocks.default_cf(), &[at(name)], RocksIngest::default());
    ingest("1").unwrap();
    ingest("2").unwrap();
    let have = rocks.iterator_cf(rocks.default_cf()).collect_all().unwrap();
    let keys: Vec<_> = have.iter().map(|(k, _)| k.as_slice()).collect();
    assert_eq!(keys, [b"c", b"d"]);
}

#[test]
fn several_files_and_families_come_together() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    let other = db.create_column_family("other", &options().cf).unwrap();
    db.put("k", "0").unwrap();
    let one = file(&at("1"), &[("a", Some("1")), ("k", Some("1"))]);
    let two = file(&at("2"), &[("b", Some("2")), ("k", Some("2"))]);
    let args = [
        IngestExternalFileArg {
            column_family: db.default_column_family(),
            external_files: vec![one.clone(), two.clone()],
            options: IngestExternalFileOptions::default(),
        },
        IngestExternalFileArg {
            column_family: other,
            external_files: vec![two.clone()],
            options: IngestExternalFileOptions {
                move_files: true,
                ..IngestExternalFileOptions::default()
            },
        },
    ];
    db.ingest_external_files(&args).unwrap();
    assert!(one.exists() && !two.exists(), "the second was moved");
    assert_eq!(content(&db), pairs(&[("a", "1"), ("b", "2"), ("k", "2")]));
    assert_eq!(db.latest_sequence_number(), 3);
    let all = everything(&db).unwrap();
    assert_eq!(all[1].1.len(), 2);
    let twice = [args[0].clone(), args[0].clone()];
    let e = db.ingest_external_files(&twice).unwrap_err();
    assert!(e.to_string().contains("duplicate column families"), "{e}");
    db.close().unwrap();
    check_with_rocksdb("families", &at("db"), &all);
    let db = Db::open_all(at("db"), &Options::default()).unwrap();
    assert_eq!(difference(&all, &everything(&db).unwrap()), None);
}

#[test]
fn behind_everything() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let behind = IngestExternalFileOptions {
        ingest_behind: true,
        ..IngestExternalFileOptions::default()
    };
    let back = file(
        &at("1"),
        &[("a", Some("old")), ("b", Some("old")), ("c", Some("old"))],
    );
    let mut o = options();
    {
        let db = Db::open(at("plain"), &o).unwrap();
        let e = db.ingest_external_file(&[&back], &behind).unwrap_err();
        assert!(e.to_string().contains("allow_ingest_behind"), "{e}");
    }
    o.db.allow_ingest_behind = true;
    let db = Db::open(at("db"), &o).unwrap();
    db.put("b", "new").unwrap();
    db.delete("c").unwrap();
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
    db.ingest_external_file(&[&back], &behind).unwrap();
    assert_eq!(content(&db), pairs(&[("a", "old"), ("b", "new")]));
    let other = file(&at("2"), &[("b", Some("older")), ("x", Some("older"))]);
    let e = db
        .ingest_external_file(&[&back, &other], &behind)
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotSupported);
    assert!(e.to_string().contains("overlapping ranges"), "{e}");
    let e = db.ingest_external_file(&[&back], &behind).unwrap_err();
    assert!(
        e.to_string().contains("doesn't fit at the last level"),
        "{e}"
    );
    assert_eq!(content(&db).len(), 2);
}

/// With two levels of which the last is kept free, level 0 was the only one to compact into: a manual
/// compaction wrote the same table again and again, for ever. In this case a third level is added, as
/// RocksDB does.
#[test]
fn behind_everything_needs_a_level_to_compact_into() {
    let temp = dirs::scratch().unwrap();
    let mut o = options();
    o.db.allow_ingest_behind = true;
    o.cf.num_levels = 2;
    let db = Db::open(temp.path(), &o).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let cf = db.default_column_family();
    db.cf(&cf).compact_range(None, None).unwrap();
    let of_level = |level| db.property(&format!("rocksdb.num-files-at-level{level}"));
    assert_eq!(of_level(1).as_deref(), Some("1"));
    assert_eq!(of_level(2).as_deref(), Some("0"), "kept free");
    let two = db.create_column_family("two", &o.cf).unwrap();
    db.cf(&two).put("k", "v").unwrap();
    db.cf(&two).flush().unwrap();
    db.cf(&two).compact_range(None, None).unwrap();
}

/// The error about a level that is kept free gave a `num_levels` that is one too small.
#[test]
fn the_level_behind_everything_is_named_as_what_it_is() {
    let temp = dirs::scratch().unwrap();
    let mut o = options();
    o.db.allow_ingest_behind = true;
    let db = Db::open(temp.path(), &o).unwrap();
    let cf = db.default_column_family();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let file = db.get_live_files_metadata()[0].file_number;
    let how = ironstone::CompactionOptions::default();
    let refit = ironstone::CompactRangeOptions {
        change_level: true,
        target_level: 6,
        ..Default::default()
    };
    let files = db.cf(&cf).with(&how).compact_files(&[file], 6).unwrap_err();
    let range = db
        .cf(&cf)
        .with(&refit)
        .compact_range(None, None)
        .unwrap_err();
    for e in [files, range] {
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
        let text = e.to_string();
        assert!(text.contains("6, but the lowest level is 5"), "{text}");
        assert!(
            text.contains("num_levels = 7, of which allow_ingest_behind"),
            "{text}"
        );
    }
}

/// A snapshot kept deletions on the lowest level, and was released. Their file was compacted to drop them,
/// but a family that allows ingestion behind everything never drops deletions: the same table was written
/// again and again, for ever. RocksDB marks no such files in this case.
#[test]
fn behind_everything_deletions_stay_when_a_snapshot_goes() {
    let temp = dirs::scratch().unwrap();
    let mut o = options();
    o.db.allow_ingest_behind = true;
    let db = Db::open(temp.path(), &o).unwrap();
    for key in ["a", "b", "c"] {
        db.put(key, "v").unwrap();
    }
    let snapshot = db.snapshot();
    for key in ["a", "b", "c"] {
        db.delete(key).unwrap();
    }
    let family = db.default_column_family();
    db.cf(&family).compact_range(None, None).unwrap();
    drop(snapshot);
    db.put("z", "v").unwrap();
    db.flush().unwrap();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let db = &db;
        scope.spawn(move || done.send(db.wait_for_compact()));
        let ended = ended.recv_timeout(std::time::Duration::from_secs(20));
        db.cancel_all_background_work(false); // ends the thread if the test fails
        ended.expect("compactions end").unwrap();
    });
    assert_eq!(content(&db).len(), 1);
}

/// Waits until the log is deleted, which happens in the background.
fn wait_until_gone(log: &Path) {
    for _ in 0..1000 {
        if !log.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn what_cannot_be_ingested_leaves_nothing() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("db"), &options()).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let good = file(&at("good"), &[("j", Some("1")), ("k", Some("1"))]);
    let bytes = std::fs::read(&good).unwrap();
    wait_until_gone(&at("db/000001.log"));
    let before = dirs::State::of(&at("db")).unwrap();
    let own = dirs::only(&at("db"), "", ".sst");
    let mut rotten = bytes.clone();
    rotten[3] ^= 1;
    std::fs::write(at("torn"), &bytes[..bytes.len() / 2]).unwrap();
    std::fs::write(at("rotten"), rotten).unwrap();
    std::fs::write(at("empty"), "").unwrap();
    std::fs::write(at("text"), "no table at all, just some text ".repeat(10)).unwrap();
    let mut reversed = options();
    reversed.cf.comparator = Comparator::reverse_bytewise();
    let mut writer = SstFileWriter::new(&reversed);
    writer.open(at("reversed")).unwrap();
    writer.put("b", "1").unwrap();
    writer.finish().unwrap();
    let check = IngestExternalFileOptions {
        verify_checksums_before_ingest: true,
        ..IngestExternalFileOptions::default()
    };
    let cases = [
        ("missing", ErrorKind::NotFound, "missing"),
        ("torn", ErrorKind::Corruption, "torn"),
        ("rotten", ErrorKind::Corruption, "checksum"),
        ("empty", ErrorKind::Corruption, "empty"),
        ("text", ErrorKind::Corruption, "text"),
        ("reversed", ErrorKind::InvalidArgument, "comparator"),
    ];
    for (name, kind, words) in cases {
        let e = db
            .ingest_external_file(&[&good, &at(name)], &check)
            .unwrap_err();
        assert_eq!(e.kind(), kind, "{name}: {e}");
        assert!(e.to_string().contains(words), "{name}: {e}");
    }
    let e = db.ingest_external_file(&[&own], &check).unwrap_err();
    assert!(
        e.to_string().contains("External file version not found"),
        "{e}"
    );
    let refused = [
        IngestExternalFileOptions {
            allow_global_seqno: false,
            ..check.clone()
        },
        IngestExternalFileOptions {
            fail_if_not_bottommost_level: true,
            ..check.clone()
        },
    ];
    let kinds = [ErrorKind::InvalidArgument, ErrorKind::TryAgain];
    for (options, kind) in refused.iter().zip(kinds) {
        let e = db.ingest_external_file(&[&good], options).unwrap_err();
        assert_eq!(e.kind(), kind, "{e}");
    }
    let none: [&Path; 0] = [];
    assert!(db.ingest_external_file(&none, &check).is_err());
    let now = dirs::State::of(&at("db")).unwrap();
    assert_eq!(before.changes(&now), None);
    assert_eq!(content(&db), pairs(&[("k", "v")]));
    db.ingest_external_file(&[&good], &check).unwrap();
    assert_eq!(content(&db), pairs(&[("j", "1"), ("k", "1")]));
    let db2 = Db::open_read_only(at("db"), &Options::default()).unwrap();
    assert!(db2.ingest_external_file(&[&good], &check).is_err());
}

/// A file that was ingested before, and got a number written into it, gets a new one.
#[test]
fn a_file_is_ingested_again() {
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let good = file(&at("good"), &[("k", Some("1"))]);
    for write_global_seqno in [true, false] {
        let db = Db::open(at(&format!("{write_global_seqno}")), &options()).unwrap();
        for i in 0..5 {
            db.put("k", "0").unwrap();
            let how = IngestExternalFileOptions {
                write_global_seqno: i < 3,
                move_files: true,
                ..IngestExternalFileOptions::default()
            };
            let copy = at("again");
            std::fs::hard_link(&good, &copy).unwrap();
            db.ingest_external_file(&[&copy], &how).unwrap();
            assert_eq!(content(&db), pairs(&[("k", "1")]), "{i}");
            db.compact_range(None, None).unwrap();
        }
    }
}

/// Power is cut after every event of an ingestion. Afterwards either the files are there with all earlier
/// writes, or none of them is; once the ingestion was acknowledged, they are there.
#[test]
fn a_power_cut_leaves_all_or_nothing() {
    let mut rng = Rng::new(17);
    let (mut absent, mut present) = (0, 0);
    for after in 1.. {
        let disk = SimDisk::new(sim::disk::Config::default());
        let mut o = options();
        o.env.fs = disk.shared();
        let mut writer = SstFileWriter::new(&o);
        for (name, keys) in [("/1", ["a", "k"]), ("/2", ["x", "y"])] {
            writer.open(name).unwrap();
            for key in keys {
                writer.put(key, "file").unwrap();
            }
            writer.finish().unwrap();
        }
        let db = Db::open("/db", &o).unwrap();
        let other = db.create_column_family("other", &o.cf).unwrap();
        let arg = |column_family, file: &str, move_files| IngestExternalFileArg {
            column_family,
            external_files: vec![file.into()],
            options: IngestExternalFileOptions {
                move_files,
                write_global_seqno: move_files,
                ..IngestExternalFileOptions::default()
            },
        };
        let args = [
            arg(db.default_column_family(), "/1", after % 2 == 0),
            arg(other.clone(), "/2", true),
        ];
        for i in 0..3 {
            db.put("k", i.to_string()).unwrap();
            db.cf(&other).put(format!("before {i}"), "").unwrap();
        }
        disk.set_crash_after(after);
        let ingested = db.ingest_external_files(&args);
        let done = ingested.is_ok();
        for kind in sim::disk::CrashKind::ALL {
            let image = disk.crash_image(&mut rng, kind);
            let mut o = Options::default();
            o.env.fs = image.shared();
            let db =
                Db::open_all("/db", &o).unwrap_or_else(|e| panic!("event {after}, {kind:?}: {e}"));
            let other = db.column_family("other").unwrap();
            let both = db.get("a").unwrap().is_some();
            assert_eq!(both, db.cf(&other).get("x").unwrap().is_some(), "{after}");
            if both {
                assert_eq!(db.get("k").unwrap().unwrap(), b"file");
                let last = db.cf(&other).get("before 2").unwrap();
                assert!(
                    last.is_some(),
                    "event {after}, {kind:?}: an older write is lost"
                );
            }
            assert!(
                both || !done,
                "event {after}, {kind:?}: it was acknowledged"
            );
            absent += usize::from(!both);
            present += usize::from(both);
        }
        // The ingestion ended before the event: every event has been tried.
        if done && disk.shared().exists(Path::new("/db")).is_ok() {
            break;
        }
    }
    assert!(absent > 50 && present > 10, "{absent} {present}");
}
