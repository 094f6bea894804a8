//! The wrapper against real libraries. A process can load only one RocksDB, so each library is
//! tested in a separate process: this test binary, run again with the library named in the
//! environment.

use std::path::{Path, PathBuf};
use std::process::Command;

use tools::librocksdb::{
    DEBIAN, LIBRARY_VARIABLE, Library, PEER, RocksDb, RocksOptions, RocksWriteBatch,
};

/// The library under test; `None` in a run that names none: its tests then do nothing.
pub(crate) fn library() -> Option<std::sync::Arc<Library>> {
    std::env::var_os(LIBRARY_VARIABLE)?;
    Some(Library::discover().unwrap())
}

/// Runs the tests of `module` once for the peer and once for the system's RocksDB, if they are
/// available.
pub(crate) fn with_each_library(module: &str) {
    let peer = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(PEER);
    let peer = [peer, PathBuf::from(PEER)]
        .into_iter()
        .find(|p| p.is_file());
    match peer {
        Some(peer) => run_again_with(&peer, module),
        None => eprintln!("skipped: no {PEER} (cargo xtask peers fetches it)"),
    }
    let output = Command::new("ldconfig").arg("-p").output();
    let there = output.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains(DEBIAN));
    if there {
        run_again_with(Path::new(DEBIAN), module);
    } else {
        eprintln!("skipped: no {DEBIAN} on this machine");
    }
}

fn run_again_with(library: &Path, module: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .arg(module)
        .env(LIBRARY_VARIABLE, library)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}: {}\n{}",
        library.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_libraries_work() {
    with_each_library("librocksdb::with_library::");
}

fn options(lib: &std::sync::Arc<Library>) -> RocksOptions {
    let mut options = lib.options();
    options.create_if_missing(true);
    options
}

/// Run by the tests above, one process for each library.
mod with_library {
    use super::*;

    #[test]
    fn keys_families_batches_and_snapshots() {
        let Some(lib) = library() else { return };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let mut options = options(&lib);
        options.set("compression", "kLZ4Compression").unwrap();
        options
            .set("merge_operator", "{id=StringAppendOperator;delimiter=,}")
            .unwrap();
        let mut reverse = lib.options();
        reverse
            .set("comparator", "rocksdb.ReverseBytewiseComparator")
            .unwrap();
        {
            let mut db = RocksDb::open(&options, &path).unwrap();
            db.create_cf("r", &reverse).unwrap();
            db.put(b"a", b"1").unwrap();
            db.put(b"b", b"").unwrap();
            db.put(b"", b"empty key").unwrap();
            let snapshot = db.snapshot();
            let r = db.cf("r").unwrap();
            let mut batch = lib.batch();
            batch.put(b"c", b"3");
            batch.delete(b"a");
            batch.put_cf(r, b"x", b"24");
            batch.put_cf(r, b"y", b"25");
            batch.delete_range_cf(db.default_cf(), b"b", b"bb");
            batch.put_log_data(b"not counted");
            assert_eq!(batch.count(), 5);
            let copy = RocksWriteBatch::from_data(&lib, batch.data());
            assert_eq!(copy.data(), batch.data());
            db.write(&copy).unwrap();

            assert_eq!(db.get(b"a").unwrap(), None);
            assert_eq!(db.get(b"b").unwrap(), None);
            assert_eq!(db.get(b"").unwrap().unwrap(), b"empty key");
            let then = lib.read_options().snapshot(&snapshot);
            let old = db.get_opt(&then, db.default_cf(), b"a").unwrap();
            assert_eq!(old.unwrap(), b"1");
            let mut value = Vec::new();
            let read = lib.read_options();
            assert!(db.get_into(&read, r, b"x", &mut value).unwrap());
            assert_eq!(value, b"24");
            assert!(!db.get_into(&read, r, b"nope", &mut value).unwrap());
            db.merge_cf(db.default_cf(), b"m", b"one").unwrap();
            db.merge_cf(db.default_cf(), b"m", b"two").unwrap();
            assert_eq!(db.get(b"m").unwrap().unwrap(), b"one,two");
            db.flush().unwrap();
            assert_eq!(db.latest_sequence_number(), 10);
        }
        assert!(RocksDb::open(&options, &path).is_err(), "has two families");
        let names = RocksDb::list_column_families(&options, &path).unwrap();
        assert_eq!(names, ["default", "r"]);
        let db = RocksDb::open_cf(&options, &path, &[("default", &options), ("r", &reverse)]);
        let db = db.unwrap();
        let mut iter = db.iterator_cf(db.cf("r").unwrap());
        iter.seek_to_first();
        assert_eq!((iter.key(), iter.value()), (&b"y"[..], &b"25"[..]));
        iter.next();
        assert_eq!(iter.key(), b"x");
        iter.next();
        assert!(!iter.valid());
        assert_eq!(iter.key(), b"");
        iter.seek_to_last();
        assert_eq!(iter.key(), b"x");
        iter.prev();
        assert_eq!(iter.key(), b"y");
        iter.status().unwrap();
    }

    #[test]
    fn read_only_bounds_properties_and_maintenance() {
        let Some(lib) = library() else { return };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let mut options = options(&lib);
        let mut table = lib.table_options();
        let cache = lib.lru_cache(1 << 20);
        table
            .bloom_filter(10.0)
            .block_cache(&cache)
            .format_version(5);
        options.table(&table).enable_statistics().compression(0);
        options.wal_recovery_mode(2);
        let db = RocksDb::open(&options, &path).unwrap();
        let durable = lib.write_options().sync(true);
        for i in 0..1000u32 {
            let key = i.to_be_bytes();
            let options = if i == 999 {
                &durable
            } else {
                &lib.write_options()
            };
            db.put_opt(options, db.default_cf(), &key, &[7; 100])
                .unwrap();
        }
        db.single_delete_cf(db.default_cf(), &5u32.to_be_bytes())
            .unwrap();
        db.flush_wal(true).unwrap();
        db.flush().unwrap();
        db.compact_range(db.default_cf(), None, None);
        db.set_options(db.default_cf(), &[("write_buffer_size", "131072")])
            .unwrap();
        let keys = db.property("rocksdb.estimate-num-keys").unwrap();
        assert_eq!(keys, "999");
        assert_eq!(db.property("rocksdb.no-such-property"), None);
        let statistics = options.statistics().unwrap();
        assert!(statistics.contains("rocksdb.number.keys.written COUNT : 1001"));
        db.close();

        let db = RocksDb::open_read_only(&lib.options(), &path).unwrap();
        assert!(db.put(b"x", b"y").is_err());
        let bounds = lib
            .read_options()
            .lower_bound(&3u32.to_be_bytes())
            .upper_bound(&7u32.to_be_bytes());
        let mut iter = db.iterator_opt(&bounds, db.default_cf());
        let keys: Vec<_> = iter
            .collect_all()
            .unwrap()
            .into_iter()
            .map(|kv| kv.0[3])
            .collect();
        assert_eq!(keys, [3, 4, 6]);
    }

    #[test]
    fn errors_say_what_rocksdb_says() {
        let Some(lib) = library() else { return };
        let dir = tempfile::tempdir().unwrap();
        let e = RocksDb::open(&lib.options(), dir.path()).err().unwrap();
        assert_eq!(e.kind(), base::ErrorKind::InvalidArgument);
        assert!(e.to_string().contains("does not exist"), "{e}");
        let e = lib.options().set("no_such_option", "1").err().unwrap();
        assert_eq!(e.kind(), base::ErrorKind::InvalidArgument, "{e}");
        let e = Library::open("libc.so.6").unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::NotSupported, "{e}");
        assert!(RocksDb::open(&options(&lib), dir.path().join("a\0b")).is_err());
    }

    #[test]
    fn the_version_is_told() {
        let Some(lib) = library() else { return };
        let version = lib.version().unwrap();
        let name = lib.path().to_string_lossy().into_owned();
        if name.contains("11.8.1") {
            assert_eq!(version, "11.8.1");
        } else if name.contains("7.8") {
            assert!(version.starts_with("7.8."), "{version}");
        }
    }
}
