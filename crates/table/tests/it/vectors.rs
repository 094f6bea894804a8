//! Small tables that RocksDB 7.8.3 wrote.

use std::path::Path;

use table::ReaderOptions;

use crate::util::{MemFile, get_all, ikey, scan, scan_back};

fn open(name: &str) -> std::sync::Arc<table::Reader> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let file = MemFile::load(&path);
    let n = file.contents().len() as u64;
    table::Reader::open(file, n, ReaderOptions::default())
        .map(std::sync::Arc::new)
        .unwrap()
}

#[test]
fn tables_of_one_to_200_keys_with_each_kind_of_filter() {
    for (name, keys) in [
        ("tiny1.sst", 1),
        ("bloom3.sst", 3),
        ("legacybloom3.sst", 3),
        ("hash6.sst", 6),
        ("ribbon200.sst", 200),
    ] {
        let reader = open(name);
        let all = scan(&reader).unwrap();
        assert_eq!(all.len(), keys, "{name}");
        assert_eq!(all[0].0, ikey(b"key000000", 0), "{name}");
        assert_eq!(scan_back(&reader).unwrap(), all);
        for (k, v) in &all {
            let user = base::key::user_key(k);
            assert_eq!(
                get_all(&reader, user, 9).unwrap(),
                vec![(k.clone(), v.clone())]
            );
        }
        let absent = (0..1000).filter(|i| {
            !get_all(&reader, format!("absent{i}").as_bytes(), 9)
                .unwrap()
                .is_empty()
        });
        assert_eq!(absent.count(), 0);
        reader.verify_checksums().unwrap();
    }
}

#[test]
fn a_delta_encoded_index_with_restarts() {
    let reader = open("index_delta.sst");
    assert_eq!(reader.blocks(), 15);
    for i in 0..15 {
        let handle = reader.data_block(i).unwrap();
        assert_eq!((handle.offset, handle.size), (67 * i as u64, 62));
    }
    assert_eq!(reader.approximate_offset_of(&ikey(b"key000002", 1)), 67);
    assert_eq!(reader.approximate_offset_of(&ikey(b"zzz", 1)), 938 + 62);
    assert_eq!(scan(&reader).unwrap(), scan_back(&reader).unwrap());
}
