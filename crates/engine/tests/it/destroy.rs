//! `Db::destroy`: all files of a database go, and nothing else.

use std::path::Path;

use ironstone::{Db, ErrorKind, Options};

fn all_under(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(at) = left.pop() {
        for entry in std::fs::read_dir(&at).unwrap().map(Result::unwrap) {
            let path = entry.path();
            names.push(path.strip_prefix(dir).unwrap().display().to_string());
            if path.is_dir() {
                left.push(path);
            }
        }
    }
    names.sort();
    names
}

fn used(dir: &Path, options: &Options) {
    let db = Db::open(dir, options).unwrap();
    let synced = ironstone::WriteOptions {
        sync: true,
        ..ironstone::WriteOptions::default()
    };
    for i in 0..100u32 {
        let cf = db.default_column_family();
        db.cf(&cf).with(&synced).put(i.to_be_bytes(), "v").unwrap();
        if i % 30 == 0 {
            db.flush().unwrap();
        }
    }
    db.close().unwrap();
}

#[test]
fn all_of_a_database_goes_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.wal_ttl_seconds = 1000; // an archive
    for (apart, strangers) in [(false, false), (false, true), (true, false), (true, true)] {
        let path = dir.path().join("db");
        options.db.wal_dir = if apart {
            dir.path().join("logs").display().to_string()
        } else {
            String::new()
        };
        used(&path, &options);
        let busy = Db::open(&path, &options).unwrap();
        let e = Db::destroy(&path, &options).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
        busy.close().unwrap();
        if strangers {
            std::fs::write(path.join("notes.txt"), "mine").unwrap();
        }
        let logs = if apart {
            dir.path().join("logs")
        } else {
            path.clone()
        };
        for kind in ["zero", "zeroing", "retired", "recycled", "reserve"] {
            std::fs::create_dir_all(logs.join("log-pool")).unwrap();
            std::fs::write(logs.join(format!("log-pool/77.{kind}")), "old").unwrap();
        }
        Db::destroy(&path, &options).unwrap();
        let left = all_under(dir.path());
        let wanted: &[&str] = if strangers {
            &["db", "db/notes.txt"]
        } else {
            &[]
        };
        assert_eq!(left, wanted, "logs apart: {apart}");
        Db::destroy(&path, &options).unwrap();
        if strangers {
            std::fs::remove_dir_all(&path).unwrap();
        }
    }
    // The OPTIONS file of a copy names the logs of the original: nobody but the caller says which go.
    options.db.wal_dir = dir.path().join("logs").display().to_string();
    used(&dir.path().join("original"), &options);
    let logs = all_under(&dir.path().join("logs"));
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(dir.path().join("original")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    Db::destroy(&copy, &Options::default()).unwrap();
    assert!(!copy.exists());
    assert_eq!(all_under(&dir.path().join("logs")), logs);
    Db::open(dir.path().join("original"), &options).unwrap();
    // Where there is no database, files that look like parts of one stay.
    let none = dir.path().join("none");
    std::fs::create_dir(&none).unwrap();
    std::fs::write(none.join("20240101.log"), "mine").unwrap();
    Db::destroy(&none, &Options::default()).unwrap();
    assert_eq!(all_under(&none), ["20240101.log"]);
    let e = Db::repair(dir.path(), &options).unwrap_err();
    assert!(
        e.kind() == ErrorKind::NotSupported && e.to_string().contains("salvage"),
        "{e}"
    );
}
