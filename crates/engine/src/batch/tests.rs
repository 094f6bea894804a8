//! Tests of the batch codec against bytes of RocksDB.

use super::*;
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let text = |c: &[u8]| String::from_utf8(c.to_vec()).unwrap();
    digits
        .chunks(2)
        .map(|c| u8::from_str_radix(&text(c), 16).unwrap())
        .collect()
}

/// The two batches of docs/formats.md, "Test vectors", as RocksDB 7.8.3 wrote them.
#[test]
fn bytes_are_rocksdbs() {
    let mut b = WriteBatch::new();
    b.put("foo", "bar").unwrap();
    b.delete("baz").unwrap();
    b.set_sequence(1);
    let want = "0100000000000000 02000000 01 03666f6f 03626172 00 0362617a";
    assert_eq!(b.data(), bytes(want));
    let mut b = WriteBatch::new();
    b.put("k2", "v2").unwrap();
    b.single_delete_cf_id(0, b"sd").unwrap();
    b.delete_range_cf_id(0, b"a", b"c").unwrap();
    b.put_log_data(b"log").unwrap();
    b.set_sequence(3);
    let want = "0300000000000000 03000000 01 026b32 027632 07 027364 0f 0161 0163 03 036c6f67";
    assert_eq!(b.data(), bytes(want));
    let again = WriteBatch::from_data(bytes(want)).unwrap();
    assert_eq!((again.sequence(), again.count()), (3, 3));
    let records: Vec<_> = again.records().map(Result::unwrap).collect();
    assert_eq!(
        records,
        [
            Record::Put {
                cf: 0,
                key: b"k2",
                value: b"v2"
            },
            Record::SingleDelete { cf: 0, key: b"sd" },
            Record::DeleteRange {
                cf: 0,
                begin: b"a",
                end: b"c"
            },
            Record::LogData(b"log"),
        ]
    );
}

#[test]
fn every_tag_is_read() {
    let body = "05 05 016b 0176  04 05 016b  08 05 016b  06 05 016b 016f  0e 05 0161 0162 \
                10 05 016b 0169  17 05 016b 0165  19 05 016b 09 76 0700000000000000 \
                0d 09 12 13  0a 0178 0b 0178 0c 0178 15 0174 0178";
    let data = bytes(&format!("0900000000000000 08000000 {body}"));
    let b = WriteBatch::from_data(data).unwrap();
    let (cf, key) = (5, &b"k"[..]);
    let records: Vec<_> = b.records().map(Result::unwrap).collect();
    assert_eq!(
        records,
        [
            Record::Put {
                cf,
                key,
                value: b"v"
            },
            Record::Delete { cf, key },
            Record::SingleDelete { cf, key },
            Record::Merge {
                cf,
                key,
                operand: b"o"
            },
            Record::DeleteRange {
                cf,
                begin: b"a",
                end: b"b"
            },
            Record::BlobIndex {
                cf,
                key,
                index: b"i"
            },
            Record::PutEntity {
                cf,
                key,
                entity: b"e"
            },
            Record::TimedPut {
                cf,
                key,
                value: b"v",
                write_time: 7
            },
            Record::Noop,
            Record::BeginPrepare,
            Record::BeginPersistedPrepare,
            Record::BeginUnprepare,
            Record::EndPrepare(b"x"),
            Record::Commit(b"x"),
            Record::Rollback(b"x"),
            Record::CommitWithTimestamp {
                timestamp: b"t",
                xid: b"x"
            },
        ]
    );
}

#[test]
fn damage_is_found_and_located() {
    let header = "0100000000000000 01000000";
    let cases = [
        ("01 03666f6f 0462", "Value is cut off (byte 12"),
        ("01 016b 0176 1a", "unknown tag 0x1a (byte 17"),
        ("14 016b", "unknown tag 0x14 (byte 12"),
        ("01 016b 0176 0d 00 016b", "counts 1 records, there are 2"),
        ("18 016b 03010203", "ValuePreferredSeqno is cut off"),
        ("0d", "counts 1 records, there are 0"),
    ];
    for (body, want) in cases {
        let e = WriteBatch::from_data(bytes(&format!("{header} {body}"))).unwrap_err();
        assert!(e.is_corruption());
        assert!(e.to_string().contains(want), "{body}: {e}");
    }
    let e = WriteBatch::from_data(vec![0; 11]).unwrap_err().to_string();
    assert!(e.contains("write batch of 11 bytes"), "{e}");
}

#[test]
fn save_points_nest() {
    let mut b = WriteBatch::new();
    b.put("a", "1").unwrap();
    b.set_save_point();
    b.put("b", "2").unwrap();
    b.set_save_point();
    b.put("c", "3").unwrap();
    b.pop_save_point().unwrap();
    assert_eq!(b.count(), 3);
    b.rollback_to_save_point().unwrap();
    assert_eq!((b.count(), b.records().count()), (1, 1));
    assert!(b.rollback_to_save_point().unwrap_err().is_not_found());
    b.clear();
    assert!(b.is_empty());
}

type Op = (u8, u32, Vec<u8>, Vec<u8>);

fn add(b: &mut WriteBatch, (kind, cf, k, v): &Op) {
    match kind {
        0 => b.put_cf_id(*cf, k, v),
        1 => b.delete_cf_id(*cf, k),
        2 => b.single_delete_cf_id(*cf, k),
        3 => b.merge_cf_id(*cf, k, v),
        4 => b.delete_range_cf_id(*cf, k, v),
        _ => b.put_log_data(v),
    }
    .unwrap();
}

proptest! {
    #[test]
    fn batches_round_trip(
        ops in proptest::collection::vec((0u8..6, 0u32..300, any::<Vec<u8>>(), any::<Vec<u8>>()), 0..20),
        cut in 0usize..20,
    ) {
        let mut whole = WriteBatch::new();
        let (mut left, mut right) = (WriteBatch::new(), WriteBatch::new());
        for (i, op) in ops.iter().enumerate() {
            add(&mut whole, op);
            add(if i < cut { &mut left } else { &mut right }, op);
        }
        left.append(&right).unwrap();
        prop_assert_eq!(whole.data(), left.data());
        let again = WriteBatch::from_data(whole.data().to_vec()).unwrap();
        prop_assert_eq!(again.records().count(), ops.len());
        let cfs: Vec<_> = again.records().filter_map(|r| r.unwrap().column_family()).collect();
        let want: Vec<_> = ops.iter().filter(|o| o.0 < 5).map(|o| o.1).collect();
        prop_assert_eq!(cfs, want);
    }

    #[test]
    fn any_bytes_decode_without_panic(b: Vec<u8>) {
        if let Ok(records) = Records::new(&b) {
            prop_assert!(records.count() <= b.len());
        }
        drop(WriteBatch::from_data(b));
    }
}
