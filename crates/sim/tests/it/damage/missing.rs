//! Missing files, and directories that are no database.

use ironstone::{CompressionType, Db, ErrorKind, Options};
use sim::dirs::{self, State};
use sim::oracle::RocksDb;
use sim::oracle::content::difference;
use table::ChecksumType;

use super::{BOTH, How, Small, creating, has_extension, names, read};

#[test]
fn a_missing_file_is_named_and_nothing_is_touched() {
    let small = Small::new(ChecksumType::Xxh3, CompressionType::None);
    let mut counts = (0, 0);
    for file in small.state.names().map(str::to_owned).collect::<Vec<_>>() {
        for how in BOTH {
            let result = small.read(&small.state.without(&file), how);
            let needed = ["CURRENT", "MANIFEST-"].iter().any(|n| file.starts_with(n));
            if needed || has_extension(&file, "sst") {
                let e = result.expect_err(&file);
                assert!(names(&e, &file), "{file} missing, {how:?}: {e}");
                assert_eq!(e.kind(), ErrorKind::Corruption, "{file} missing: {e}");
                counts.0 += 1;
            } else if !has_extension(&file, "log") {
                // OPTIONS and IDENTITY: not needed to open.
                let have = result.unwrap_or_else(|e| panic!("{file} missing: {e}"));
                assert_eq!(difference(&small.content, &have), None, "{file} missing");
                counts.1 += 1;
            }
        }
    }
    eprintln!(
        "missing files: {} refused, {} not needed",
        counts.0, counts.1
    );
}

/// With `track_and_verify_wals_in_manifest`, RocksDB writes the closed logs with their durable sizes into
/// the MANIFEST: they must be there.
#[test]
fn a_tracked_log_that_is_missing_or_short_is_refused() {
    let Some(lib) = sim::oracle::rocksdb() else {
        return;
    };
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let mut options = lib.options();
    options.create_if_missing(true);
    options
        .set("track_and_verify_wals_in_manifest", "true")
        .unwrap();
    let mut db = RocksDb::open(&options, &dir).unwrap();
    db.create_cf("other", &options).unwrap();
    let other = db.cf("other").unwrap();
    for i in 0..50u32 {
        db.put(&i.to_be_bytes(), b"value").unwrap();
        db.put_cf(other, &i.to_be_bytes(), b"value").unwrap();
    }
    // The first log is closed, and still holds data that is only in the other family's memtable.
    db.flush_cf(db.default_cf()).unwrap();
    db.put(b"last", b"value").unwrap();
    db.close();
    let whole = State::of(&dir).unwrap();
    let log = whole.names().find(|n| has_extension(n, "log")).unwrap();
    let bytes = whole.get(log).unwrap();
    let cases = [
        whole.without(log),
        whole.with(log, bytes[..bytes.len() - 1].to_vec()),
        whole.with(log, Vec::new()),
    ];
    for state in cases {
        for how in BOTH {
            state.restore(&dir).unwrap();
            let e = read(&dir, &Options::default(), how).unwrap_err();
            assert!(names(&e, log), "{e}");
            assert_eq!(e.kind(), ErrorKind::Corruption, "{e}");
        }
    }
    whole.restore(&dir).unwrap();
    let content = read(&dir, &Options::default(), How::Writer).unwrap();
    assert_eq!(content[0].1.len(), 51);
    assert_eq!(content[1].1.len(), 50);
}

/// A database whose CURRENT is lost is not overwritten by a new one.
#[test]
fn creating_does_not_overwrite_a_database_without_current() {
    let small = Small::new(ChecksumType::Xxh3, CompressionType::None);
    let manifest = small.file("MANIFEST-", "");
    for state in [
        small.state.without("CURRENT"),
        small.state.without("CURRENT").without(&manifest),
    ] {
        state.restore(&small.dir()).unwrap();
        let e = Db::open(small.dir(), &creating()).unwrap_err();
        assert!(names(&e, "CURRENT"), "{e}");
        let now = State::of(&small.dir()).unwrap();
        assert_eq!(state.changes(&now), None);
    }
}

#[test]
fn what_is_no_database_is_refused_and_left_alone() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("photos");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("cat.jpg"), "not a table").unwrap();
    let options = Options::default();
    let before = State::of(&dir).unwrap();
    for how in BOTH {
        let e = read(&dir, &options, how).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
        assert!(names(&e, "photos"), "{e}");
    }
    let e = Db::list_column_families(&dir, &options.env).unwrap_err();
    assert!(names(&e, "CURRENT"), "{e}");
    let now = State::of(&dir).unwrap();
    assert_eq!(before.changes(&now), None);
    let lock = dir.join("LOCK");
    assert!(!lock.exists(), "no lock is left in a directory of others");

    // A path that does not exist, and one that is a file.
    let nowhere = temp.path().join("nowhere");
    let file = dir.join("cat.jpg");
    for path in [&nowhere, &file] {
        for how in BOTH {
            let opened = match how {
                How::Reader => Db::open_read_only(path, &options),
                How::Writer => Db::open(path, &options),
            };
            let e = opened.unwrap_err();
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(names(&e, name), "{e}");
        }
        let e = Db::open_read_only(path, &creating()).unwrap_err();
        assert_ne!(e.kind(), ErrorKind::NotSupported, "{e}");
    }
    assert!(!nowhere.exists(), "a failed open creates nothing");
    let e = Db::open(&file, &creating()).unwrap_err();
    assert!(names(&e, "cat.jpg"), "{e}");
}

/// Ironstone reads no OPTIONS file to open a database, so garbage in one does no harm.
#[test]
fn garbage_in_the_options_file_does_no_harm() {
    let small = Small::new(ChecksumType::Xxh3, CompressionType::None);
    let names: Vec<String> = small.state.names().map(str::to_owned).collect();
    for file in names.iter().filter(|n| n.starts_with("OPTIONS-")) {
        for garbage in [
            &b""[..],
            b"[",
            b"\xff\xfe\0\0garbage",
            b"[DBOptions]\nx=y\n",
        ] {
            for how in BOTH {
                let state = small.state.with(file, garbage.to_vec());
                let have = small.read(&state, how).unwrap();
                assert_eq!(difference(&small.content, &have), None, "{file}");
            }
        }
    }
}
