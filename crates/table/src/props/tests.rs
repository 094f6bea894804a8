//! Properties of tables that RocksDB 7.8.3 wrote, in and out again.

use super::*;
use crate::footer::Footer;
use base::coding::u32_at;
use proptest::prelude::*;

/// Entries of an uncompressed block, by the shortest way.
fn entries(file: &[u8], offset: u64, size: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let block = &file[offset as usize..(offset + size) as usize];
    let restarts = u32_at(block, block.len() - 4).unwrap() as usize;
    let mut from = Decoder::new(&block[..block.len() - 4 - 4 * restarts]);
    let (mut out, mut key) = (Vec::new(), Vec::new());
    while !from.is_empty() {
        let shared = from.varint32().unwrap() as usize;
        let suffix = from.varint32().unwrap() as usize;
        let value = from.varint32().unwrap() as usize;
        key.truncate(shared);
        key.extend_from_slice(from.bytes(suffix).unwrap());
        out.push((key.clone(), from.bytes(value).unwrap().to_vec()));
    }
    out
}

fn of_file(file: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let footer = Footer::decode(&file[file.len() - 53..], file.len() as u64).unwrap();
    let meta = entries(file, footer.metaindex.offset, footer.metaindex.size);
    let (_, handle) = meta
        .iter()
        .find(|(k, _)| k == b"rocksdb.properties")
        .unwrap();
    let handle = crate::handle::BlockHandle::decode(&mut Decoder::new(handle)).unwrap();
    entries(file, handle.offset, handle.size)
}

fn parse(entries: &[(Vec<u8>, Vec<u8>)]) -> Result<Properties> {
    Properties::from_entries(entries.iter().map(|(k, v)| (&k[..], &v[..])))
}

#[test]
fn what_rocksdb_wrote_is_written_again() {
    let tables: [&[u8]; 2] = [
        include_bytes!("../../tests/data/bloom3.sst"),
        include_bytes!("../../tests/data/index_delta.sst"),
    ];
    for file in tables {
        let stored = of_file(file);
        let props = parse(&stored).unwrap();
        assert_eq!(props.to_entries(), stored);
        assert!(props.other.is_empty(), "{:?}", props.other);
        assert_eq!(props.external_sst_file_version, Some(2));
        assert_eq!(props.comparator, "leveldb.BytewiseComparator");
        assert_eq!(
            props.compression_options,
            Properties::for_new_table().compression_options
        );
    }
}

#[test]
fn rows_are_those_of_sst_dump() {
    let props = parse(&of_file(include_bytes!("../../tests/data/index_delta.sst"))).unwrap();
    let rows = props.rows().into_iter();
    let rows: Vec<String> = rows
        .map(|(name, value)| format!("  {name}: {value}"))
        .collect();
    let want = "  # data blocks: 15
  # entries: 30
  # deletions: 0
  # merge operands: 0
  # range deletions: 0
  raw key size: 510
  raw average key size: 17.000000
  raw value size: 330
  raw average value size: 11.000000
  data block size: 1005
  index block size (user-key? 1, delta-value? 1): 123
  filter block size: 0
  # entries for filter: 0
  (estimated) table size: 1128
  filter policy name: N/A
  prefix extractor name: nullptr
  column family ID: N/A
  column family name: N/A
  comparator name: leveldb.BytewiseComparator
  merge operator name: nullptr
  property collectors names: []
  SST file compression algo: NoCompression
  SST file compression options: window_bits=-14; level=32767; strategy=0; max_dict_bytes=0; zstd_max_train_bytes=0; enabled=0; max_dict_buffer_bytes=0; use_zstd_dict_trainer=1; 
  creation time: 0
  time stamp of earliest key: 0
  file creation time: 0
  slow compression estimated data size: 0
  fast compression estimated data size: 0
  DB identity: SST Writer
  DB session identity: GXC3PQQYFRHBHV9UG0YZ
  DB host id: vm
  original file number: 1";
    assert_eq!(rows.join("\n"), want);
}

#[test]
fn absent_unknown_and_malformed() {
    let empty = Properties::from_entries([]).unwrap();
    assert_eq!(empty, Properties::default());
    assert!(empty.user_defined_timestamps_persisted);
    assert_eq!((empty.index_type, empty.whole_key_filtering), (0, None));

    let own = (&b"my.\xff.property"[..], &b"\x01"[..]);
    let props = Properties::from_entries([own]).unwrap();
    assert_eq!(props.other[own.0], own.1);
    assert!(
        props
            .to_entries()
            .iter()
            .any(|(k, v)| k == own.0 && v == own.1)
    );

    for name in [
        INDEX_TYPE,
        GLOBAL_SEQNO,
        "rocksdb.num.entries",
        INDEX_KEY_IS_USER_KEY,
    ] {
        let e = Properties::from_entries([(name.as_bytes(), &b"\xff"[..])]).unwrap_err();
        assert!(e.is_corruption() && e.to_string().contains(name), "{e}");
    }
}

#[test]
fn every_field_survives() {
    let mut props = Properties::for_new_table();
    props.index_type = 3;
    props.index_key_is_user_key = true;
    props.user_defined_timestamps_persisted = false;
    props.whole_key_filtering = Some(false);
    props.prefix_filtering = Some(true);
    props.external_sst_file_version = Some(2);
    props.global_seqno = Some(u64::MAX);
    props.num_entries = 77;
    props.tail_start_offset = 1 << 40;
    props.index_partitions = 4;
    props.column_family_id = 9;
    props.db_id = "id".to_owned();
    let entries = props.to_entries();
    assert!(entries.is_sorted());
    assert_eq!(parse(&entries).unwrap(), props);
    assert!(
        props
            .rows()
            .contains(&("# index partitions".into(), "4".to_owned()))
    );
}

proptest! {
    #[test]
    fn any_values_are_properties_or_an_error(
        values in proptest::collection::vec((0usize..40, any::<Vec<u8>>()), 0..20),
    ) {
        let names: Vec<Vec<u8>> = Properties::for_new_table().to_entries().into_iter().map(|e| e.0).collect();
        let entries: Vec<_> = values.into_iter().map(|(i, v)| (names[i % names.len()].clone(), v)).collect();
        if let Ok(props) = parse(&entries) {
            prop_assert!(!props.rows().is_empty());
        }
    }
}
