//! Small tables that RocksDB 7.8.3 wrote.

use std::path::Path;

use table::{InternalIterator, ReadOptions, ReaderOptions};

use crate::util::{get_all, ikey, load, scan, scan_back, seek_key};

fn open(name: &str) -> std::sync::Arc<table::Reader> {
    open_with(name, ReaderOptions::default()).unwrap()
}

fn open_with(name: &str, options: ReaderOptions) -> base::Result<std::sync::Arc<table::Reader>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let file = load(&path);
    let n = file.content().len() as u64;
    table::Reader::open(file, n, options).map(std::sync::Arc::new)
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
    assert_eq!(reader.data_blocks().unwrap().len(), 15);
    for i in 0..15 {
        let handle = reader.data_blocks().unwrap()[i].handle;
        assert_eq!((handle.offset, handle.size), (67 * i as u64, 62));
    }
    assert_eq!(
        reader
            .approximate_offset_of(&ikey(b"key000002", 1))
            .unwrap(),
        67
    );
    assert_eq!(
        reader.approximate_offset_of(&ikey(b"zzz", 1)).unwrap(),
        938 + 62
    );
    assert_eq!(scan(&reader).unwrap(), scan_back(&reader).unwrap());
}

#[test]
fn an_ingested_table_has_the_sequence_that_the_manifest_says() {
    let at = |largest_seqno| {
        let options = ReaderOptions {
            largest_seqno,
            ..ReaderOptions::default()
        };
        open_with("ribbon200.sst", options)
    };
    let reader = at(77).unwrap();
    let all = scan(&reader).unwrap();
    assert_eq!(all[100].0, ikey(b"key000100", 77));
    assert_eq!(scan_back(&reader).unwrap(), all);
    assert!(get_all(&reader, b"key000100", 76).unwrap().is_empty());
    assert_eq!(get_all(&reader, b"key000100", 77).unwrap().len(), 1);
    let mut it = reader.iter(ReadOptions::default());
    it.seek(&seek_key(b"key000100", 76));
    assert_eq!(it.key(), ikey(b"key000101", 77));
    it.seek_for_prev(&seek_key(b"key000100", 77));
    assert_eq!(it.key(), ikey(b"key000099", 77));
    reader.verify_checksums().unwrap();
}

#[test]
fn a_sequence_written_into_an_ingested_table_is_not_damage() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ribbon200.sst");
    let mut bytes = std::fs::read(path).unwrap();
    let name = b"global_seqno";
    let at = bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len();
    bytes[at..at + 8].copy_from_slice(&55u64.to_le_bytes());
    let open = |bytes: &[u8], largest_seqno| {
        let options = ReaderOptions {
            largest_seqno,
            ..ReaderOptions::default()
        };
        crate::util::open(bytes.to_vec(), options)
    };
    let reader = open(&bytes, u64::MAX).unwrap();
    assert_eq!(scan(&reader).unwrap()[0].0, ikey(b"key000000", 55));
    reader.verify_checksums().unwrap();
    open(&bytes, 55).unwrap();
    let e = open(&bytes, 56).unwrap_err().to_string();
    assert!(
        e.contains("global sequence number 55, the MANIFEST 56"),
        "{e}"
    );
    // Any other change is damage.
    bytes[at + 20] ^= 1;
    assert!(open(&bytes, 55).unwrap_err().is_corruption());
}
