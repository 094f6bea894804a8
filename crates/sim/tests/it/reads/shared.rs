//! Tables that share user keys, and merges in databases with a time to live.

use super::*;
use futures::executor::block_on;

/// A table of these versions: user key, sequence, kind and value.
fn write_table(path: &Path, entries: &[(&str, u64, base::ValueType, &str)]) -> u64 {
    let file = io::posix::Posix::shared();
    let file = file.open(path, io::OpenHow::CREATE_NEW).unwrap();
    let mut builder = table::Builder::new(file, table::BuilderOptions::default()).unwrap();
    for (key, sequence, kind, value) in entries {
        let internal = base::key::encode(key.as_bytes(), base::SequenceNumber(*sequence), *kind);
        builder.add(&internal, value.as_bytes()).unwrap();
    }
    builder.finish().unwrap().file_size
}

#[test]
fn files_of_a_level_that_share_a_user_key() {
    use base::ValueType::{Deletion, Merge, Value};
    let temp = dirs::scratch().unwrap();
    // Operands of one key are in three files of a level, as RocksDB releases before 5 could leave them.
    let contents: [&[_]; 3] = [
        &[
            ("a", 30, Value, "a"),
            ("k", 29, Merge, "4"),
            ("k", 28, Merge, "3"),
        ],
        &[("k", 20, Merge, "2")],
        &[
            ("k", 10, Merge, "1"),
            ("k", 9, Value, "0"),
            ("k", 8, Deletion, ""),
            ("z", 7, Value, "z"),
        ],
    ];
    let ours = Db::open(temp.path().join("ours"), &options()).unwrap();
    let mut files = Vec::new();
    for (i, entries) in contents.iter().enumerate() {
        let name = format!("/00000{}.sst", i + 1);
        let size = write_table(&temp.path().join(&name[1..]), entries);
        files.push(LiveFileMetaData {
            level: 3,
            name,
            directory: temp.path().to_path_buf(),
            size,
            smallest_seqno: entries.last().unwrap().1,
            largest_seqno: entries[0].1,
            smallestkey: entries[0].0.into(),
            largestkey: entries.last().unwrap().0.into(),
            ..LiveFileMetaData::default()
        });
    }
    let metadata = ExportImportFilesMetaData {
        db_comparator_name: "leveldb.BytewiseComparator".to_owned(),
        files,
    };
    let how = ImportColumnFamilyOptions::default();
    let cf = ours
        .create_column_family_with_import("imported", &options().cf, &how, &metadata)
        .unwrap();
    let get = |key: &str| ours.cf(&cf).get(key).unwrap();
    assert_eq!(get("k").unwrap(), b"0,1,2,3,4");
    assert_eq!(get("a").unwrap(), b"a");
    assert_eq!(get("z").unwrap(), b"z");
    let found = ours
        .cf(&cf)
        .get_merge_operands("k", GetMergeOperandsOptions::up_to(5))
        .unwrap();
    assert_eq!(found, [b"0", b"1", b"2", b"3", b"4"]);
    let pairs = sim::oracle::content::family(&ours, &cf).unwrap();
    assert_eq!(pairs.len(), 3);
    check_with_rocksdb(&metadata, temp.path(), &pairs);
}

fn check_with_rocksdb(
    metadata: &ExportImportFilesMetaData,
    dir: &Path,
    want: &sim::oracle::content::Pairs,
) {
    let Some(lib) = oracle::rocksdb() else { return };
    let files = oracle::exported_files(metadata);
    let mut rocks = RocksDb::open(&rocks_options(&lib), dir.join("theirs")).unwrap();
    let export = RocksExport::of(&lib, &metadata.db_comparator_name, &files).unwrap();
    rocks
        .import("imported", &rocks_options(&lib), &export)
        .unwrap();
    let cf = rocks.cf("imported").unwrap();
    assert_eq!(rocks.get_cf(cf, b"k").unwrap().unwrap(), b"0,1,2,3,4");
    assert_eq!(rocks.iterator_cf(cf).collect_all().unwrap(), *want);
}

#[test]
fn merges_of_values_with_times_are_rocksdbs() {
    let Some(lib) = oracle::rocksdb() else { return };
    let temp = dirs::scratch().unwrap();
    let dir = temp.path();
    let mut want = String::new();
    for turn in 0..6 {
        let with = turn.to_string();
        want = if want.is_empty() {
            with.clone()
        } else {
            format!("{want},{with}")
        };
        if turn % 2 == 0 {
            let db = Db::open_with_ttl(dir, &options(), 3600).unwrap();
            db.merge("k", &with).unwrap();
            db.put("p", "0").unwrap();
            db.merge("p", &with).unwrap();
            assert_eq!(db.get("k").unwrap().unwrap(), want.as_bytes());
            let value = block_on(db.get_async("k")).unwrap();
            assert_eq!(value.unwrap(), want.as_bytes());
            let cf = db.base().default_column_family();
            if turn == 2 {
                db.base().cf(&cf).compact_range(None, None).unwrap();
            }
            let mut it = db.cf(&cf).iterator().unwrap();
            it.inner().seek(b"k");
            assert_eq!(it.value(), want.as_bytes());
            assert!(it.ttl_timestamp().unwrap() > 1_700_000_000);
            // A value without a time cannot be merged.
            db.base().put("short", "x").unwrap();
            db.merge("short", "y").unwrap();
            assert!(db.get("short").unwrap_err().is_corruption());
            let [k, short]: [_; 2] = block_on(db.multi_get_async(&["k", "short"]))
                .try_into()
                .unwrap();
            assert_eq!(k.unwrap().unwrap(), want.as_bytes());
            assert!(short.unwrap_err().is_corruption());
            db.delete("short").unwrap();
            db.close().unwrap();
        } else {
            let db = RocksDb::open_with_ttl(&rocks_options(&lib), dir, 3600).unwrap();
            let cf = db.default_cf();
            let their = db.get(b"k").unwrap().unwrap();
            assert_eq!(their.len() + 2, want.len());
            let p = format!("0,{}", turn - 1);
            assert_eq!(db.get(b"p").unwrap().unwrap(), p.as_bytes());
            db.merge_cf(cf, b"k", with.as_bytes()).unwrap();
            if turn == 3 {
                db.flush().unwrap();
                db.compact_range(cf, None, None);
            }
            assert_eq!(db.get(b"k").unwrap().unwrap(), want.as_bytes());
        }
    }
    // An expired value is gone; operands on it are not.
    let db = Db::open_with_ttl(dir, &options(), 10).unwrap();
    let old = [&b"old"[..], &1_400_000_000_i32.to_le_bytes()].concat();
    db.base().put("e", &old).unwrap();
    db.base().flush().unwrap();
    db.base().merge("e2", &old).unwrap();
    db.base().flush().unwrap();
    let cf = db.base().default_column_family();
    db.base().cf(&cf).compact_range(None, None).unwrap();
    assert_eq!(db.get("e").unwrap(), None);
    assert_eq!(db.get("e2").unwrap().unwrap(), b"old");
}
