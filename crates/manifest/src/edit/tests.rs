//! Tests of the edit's codec against bytes and output of RocksDB.

use std::path::{Path, PathBuf};
use std::process::Command;

use base::{SequenceNumber, ValueType, key};
use proptest::prelude::*;

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let text = |c: &[u8]| String::from_utf8(c.to_vec()).unwrap();
    digits
        .chunks(2)
        .map(|c| u8::from_str_radix(&text(c), 16).unwrap())
        .collect()
}

fn ikey(user: &[u8], seq: u64, t: ValueType) -> Vec<u8> {
    key::encode(user, SequenceNumber(seq), t)
}

/// docs/formats.md, "Test vectors": the three records of a MANIFEST that RocksDB 7.8.3 made.
#[test]
fn edits_of_a_fresh_database_are_rocksdbs() {
    let names = VersionEdit {
        comparator: Some("leveldb.BytewiseComparator".to_owned()),
        ..VersionEdit::default()
    };
    let mut want = bytes("01 1a");
    want.extend_from_slice(b"leveldb.BytewiseComparator");
    assert_eq!(names.encode().unwrap(), want);
    let family = VersionEdit {
        log_number: Some(0),
        last_sequence: Some(0),
        ..VersionEdit::default()
    };
    assert_eq!(family.encode().unwrap(), bytes("0200 0400"));
    let numbers = VersionEdit {
        prev_log_number: Some(0),
        next_file_number: Some(6),
        last_sequence: Some(0),
        ..VersionEdit::default()
    };
    assert_eq!(numbers.encode().unwrap(), bytes("0900 0306 0400"));
    for edit in [names, family, numbers] {
        assert_eq!(VersionEdit::decode(&edit.encode().unwrap()).unwrap(), edit);
    }
}

fn flush_edit() -> (VersionEdit, Vec<u8>) {
    let want = bytes(
        "0208 0900 030b 0402 67 00 09 fb07 0b 626b31 1101000000000000 0b 626b32 1102000000000000 \
         01 02 05 05 bce287d806 06 05 bce287d806 07 00 08 07 556e6b6e6f776e 04 01 0a \
         0c 10 ee3a00c0522ccb9c30f20216abe86247 01 9003 0a 02 56 00 00 00",
    );
    let id = bytes("ee3a00c0522ccb9c30f20216abe86247");
    let time = 1_795_289_404; // bce287d806
    let mut edit = VersionEdit {
        log_number: Some(8),
        prev_log_number: Some(0),
        next_file_number: Some(11),
        last_sequence: Some(2),
        blob_file_additions: vec![BlobAddition {
            number: FileNumber(10),
            blob_count: 2,
            blob_bytes: 86,
            ..BlobAddition::default()
        }],
        ..VersionEdit::default()
    };
    let meta = FileMetaData {
        number: FileNumber(9),
        file_size: 1019,
        smallest: ikey(b"bk1", 1, ValueType::BlobIndex),
        largest: ikey(b"bk2", 2, ValueType::BlobIndex),
        smallest_seqno: 1,
        largest_seqno: 2,
        oldest_ancestor_time: time,
        file_creation_time: time,
        file_checksum_func_name: "Unknown".to_owned(),
        oldest_blob_file_number: Some(10),
        unique_id: Some(id.try_into().unwrap()),
        ..FileMetaData::default()
    };
    edit.add_file(0, meta);
    (edit, want)
}

#[test]
fn a_flush_edit_is_rocksdbs() {
    let (edit, want) = flush_edit();
    assert_eq!(edit.encode().unwrap(), want);
    assert_eq!(VersionEdit::decode(&want).unwrap(), edit);
}

#[test]
fn every_part_is_read() {
    let boundary = "09 61 0101000000000000";
    let edit = VersionEdit::decode(&bytes(&format!(
        "05 03 {boundary}  06 02 07  07 01 08 64 {boundary} {boundary} \
         64 01 09 64 {boundary} {boundary} 01 05  66 01 0a 02 64 {boundary} {boundary} 01 05 \
         67 00 0b 64 {boundary} {boundary} 01 05 \
           02 01 01  03 08 2100000000000000  09 01 0c  0a 01 74  0b 01 75  0d 01 07  0e 01 63 \
           0f 01 20  10 01 00  11 03 616263  41 01 02  01 \
         c801 05 c901 026366 ca01 cb01 09 ac02 03 \
         9103 0a 01 02 00  8240 0b 01 02 00 00 05 01 78 00  8340 0b 01 02 00 \
         8140 03 616263  8440 0c 02 8001 01  8740 02 0d 01  8540 04  8840 01 05 \
         8640 01 07  8940 01 01  8b40 01 09  ffff01 02 0102  0a 20 0a 11"
    )))
    .unwrap();
    assert_eq!(edit.compact_cursors[0].level, 3);
    assert_eq!(edit.deleted_files, [(2, FileNumber(7))]);
    let numbers: Vec<_> = edit.new_files.iter().map(|f| f.meta.number.0).collect();
    assert_eq!(numbers, [8, 9, 10, 11]);
    assert_eq!(edit.new_files[2].meta.path_id, 2);
    let m = &edit.new_files[3].meta;
    assert!(m.marked_for_compaction && !m.user_defined_timestamps_persisted);
    assert_eq!(
        (m.temperature, m.epoch_number, m.tail_size),
        (12, Some(7), Some(32))
    );
    assert_eq!((m.compensated_range_deletion_size, m.path_id), (99, 2));
    assert_eq!(m.min_timestamp.as_deref(), Some(&b"t"[..]));
    assert_eq!(edit.min_log_number_to_keep, Some(0x21));
    assert_eq!((edit.column_family, edit.max_column_family), (5, Some(9)));
    assert_eq!(edit.add_column_family.as_deref(), Some("cf"));
    assert!(edit.drop_column_family && edit.is_wal_edit());
    assert_eq!(edit.atomic_group_remaining, Some(3));
    assert_eq!(
        (edit.blob_file_additions.len(), edit.blob_file_garbage.len()),
        (1, 2)
    );
    let logs: Vec<_> = edit
        .wal_additions
        .iter()
        .map(|w| (w.log_number, w.synced_size))
        .collect();
    assert_eq!(logs, [(12, Some(128)), (13, None)]);
    assert_eq!(edit.wal_deletion, Some(5));
    assert_eq!(edit.db_id.as_deref(), Some("abc"));
    assert_eq!(edit.persist_user_defined_timestamps, Some(true));
    assert!(edit.full_history_ts_low.is_some());
    let e = edit.encode().unwrap_err();
    assert_eq!(e.kind(), base::ErrorKind::NotSupported);
}

#[test]
fn tracked_logs_are_written_as_rocksdb_writes_them() {
    let edit = VersionEdit {
        wal_additions: vec![
            WalAddition {
                log_number: 12,
                synced_size: Some(128),
            },
            WalAddition {
                log_number: 13,
                synced_size: None,
            },
        ],
        wal_deletion: Some(5),
        ..Default::default()
    };
    let encoded = edit.encode().unwrap();
    assert_eq!(
        encoded,
        bytes("8740 05 0c 02 8001 01  8740 02 0d 01  8840 01 05")
    );
    assert_eq!(VersionEdit::decode(&encoded).unwrap(), edit);
}

#[test]
fn damage_is_found_and_located() {
    let cases = [
        (
            "0208 0b 00",
            "tag 11 (byte 2 of the record): it is not known",
        ),
        ("0208 02", "tag 2 (byte 2 of the record): cut off"),
        ("ff", "tag ? (byte 0 of the record): cut off"),
        ("0640 07", "tag 6 (byte 0 of the record): level 64"),
        (
            "07 01 08 64 01 61",
            "tag 7 (byte 0 of the record): a boundary of 1 bytes",
        ),
        (
            "01 02 ffff",
            "tag 1 (byte 0 of the record): a name that is not UTF-8",
        ),
        (
            "04 ffffffffffffffffff01",
            "tag 4 (byte 0 of the record): 18446744073709551615",
        ),
        (
            "67 00 0b 64 09 61 0101000000000000 09 61 0101000000000000 01 05 42 00 01",
            "tag 103 (byte 0 of the record): file 000011: field 66: it is not known",
        ),
        (
            "67 00 0b 64 09 61 0101000000000000 09 61 0101000000000000 01 05 0c 02 0102 01",
            "field 12: 2 bytes, not 16",
        ),
        ("9003 0a 02 56 00 00 40 00 00", "field 64 is not known"),
    ];
    for (hex, want) in cases {
        let e = VersionEdit::decode(&bytes(hex)).unwrap_err();
        assert!(e.is_corruption());
        assert!(e.to_string().contains(want), "{hex}: {e}");
    }
}

fn meta() -> impl Strategy<Value = FileMetaData> {
    let keys = (
        any::<Vec<u8>>(),
        any::<Vec<u8>>(),
        0..1u64 << 56,
        0..1u64 << 56,
    );
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    let options = (
        any::<Option<u64>>(),
        any::<Option<u64>>(),
        any::<Option<[u8; 16]>>(),
        any::<Vec<u8>>(),
    );
    (keys, numbers, options).prop_map(
        |((a, b, s, t), (n, size, t1, t2), (blob, epoch, id, sum))| FileMetaData {
            number: FileNumber(n),
            file_size: size,
            smallest: ikey(&a, s, ValueType::Value),
            largest: ikey(&b, t, ValueType::RangeDeletion),
            smallest_seqno: s,
            largest_seqno: t,
            oldest_ancestor_time: t1,
            file_creation_time: t2,
            oldest_blob_file_number: blob,
            epoch_number: epoch,
            unique_id: id,
            tail_size: epoch.map(|e| e.min(size)),
            file_checksum_func_name: if sum.is_empty() { "" } else { "F" }.to_owned(),
            file_checksum: sum,
            ..FileMetaData::default()
        },
    )
}

proptest! {
    #[test]
    fn edits_round_trip(
        files in proptest::collection::vec((0..LEVELS_MAX, meta()), 0..4),
        deleted in proptest::collection::vec((0..LEVELS_MAX, any::<u64>()), 0..4),
        (log, next, min) in any::<(Option<u64>, Option<u64>, Option<u64>)>(),
        seq in proptest::option::of(0..1u64 << 56),
        (family, add, drop) in any::<(u32, Option<String>, bool)>(),
        (group, max, id) in any::<(Option<u32>, Option<u32>, Option<String>)>(),
        blobs in proptest::collection::vec(any::<(u64, u64, u64, String, Vec<u8>)>(), 0..3),
    ) {
        let mut edit = VersionEdit {
            column_family: family,
            db_id: id,
            log_number: log,
            next_file_number: next,
            min_log_number_to_keep: min,
            last_sequence: seq,
            max_column_family: max,
            add_column_family: add,
            drop_column_family: drop,
            atomic_group_remaining: group,
            ..VersionEdit::default()
        };
        for (level, meta) in files {
            edit.add_file(level, meta);
        }
        for (level, number) in deleted {
            edit.delete_file(level, FileNumber(number));
        }
        for (n, blob_count, blob_bytes, checksum_method, checksum) in blobs {
            let number = FileNumber(n);
            edit.blob_file_garbage.push(BlobGarbage { number, blob_count, blob_bytes });
            edit.blob_file_additions.push(BlobAddition {
                number, blob_count, blob_bytes, checksum_method, checksum,
            });
        }
        let record = edit.encode().unwrap();
        prop_assert_eq!(VersionEdit::decode(&record).unwrap(), edit);
    }

    #[test]
    fn any_bytes_decode_without_panic(b: Vec<u8>) {
        if let Ok(edit) = VersionEdit::decode(&b) {
            let shown = edit.to_string();
            prop_assert!(shown.len() > 10);
        }
    }

    #[test]
    fn damaged_edits_decode_without_panic(at in 0usize..200, byte: u8, cut in 0usize..200) {
        let (_, mut record) = flush_edit();
        let at = at % record.len();
        record[at] = byte;
        record.truncate(cut.max(1));
        drop(VersionEdit::decode(&record));
    }
}

/// The logical records of a MANIFEST: 32 KiB blocks of `crc, u16 length, type` and payload.
fn manifest_records(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut records, mut open) = (Vec::new(), Vec::new());
    for block in file.chunks(32 << 10) {
        let mut rest = block;
        while let [_, _, _, _, a, b, kind @ 1..=4, body @ ..] = rest {
            let len = usize::from(u16::from_le_bytes([*a, *b]));
            let Some((payload, next)) = body.split_at_checked(len) else {
                return records;
            };
            rest = next;
            open.extend_from_slice(payload);
            if matches!(kind, 1 | 4) {
                records.push(std::mem::take(&mut open));
            }
        }
    }
    records
}

fn corpus_manifests() -> Vec<PathBuf> {
    let corpus = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/corpus"
    ));
    let Ok(databases) = std::fs::read_dir(corpus) else {
        println!("skipped: {} is missing", corpus.display());
        return Vec::new();
    };
    let mut out = Vec::new();
    for db in databases {
        let Ok(names) = std::fs::read_dir(db.unwrap().path().join("db")) else {
            continue;
        };
        let paths = names.map(|e| e.unwrap().path());
        out.extend(paths.filter(|p| {
            let name = p.file_name().unwrap().to_string_lossy();
            name.starts_with("MANIFEST-")
        }));
    }
    out.sort();
    out
}

#[test]
fn every_manifest_of_the_corpus_decodes() {
    let manifests = corpus_manifests();
    let (mut edits, mut files) = (0, 0);
    for path in &manifests {
        let records = manifest_records(&std::fs::read(path).unwrap());
        assert!(records.len() > 2, "{}", path.display());
        for record in records {
            let edit =
                VersionEdit::decode(&record).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            edits += 1;
            files += edit.new_files.len();
        }
    }
    println!(
        "{} MANIFESTs, {edits} edits, {files} files",
        manifests.len()
    );
}

/// `ldb manifest_dump --verbose` prints each edit in the same way.
#[test]
fn edits_are_shown_as_ldb_shows_them() {
    let mut compared = 0;
    for path in corpus_manifests() {
        if !path.to_string_lossy().contains("/r78_") {
            continue;
        }
        let arg = format!("--path={}", path.display());
        let Ok(out) = Command::new("ldb")
            .args(["manifest_dump", "--verbose", &arg])
            .output()
        else {
            println!("skipped: RocksDB's ldb is not installed");
            return;
        };
        let theirs = String::from_utf8_lossy(&out.stdout).into_owned();
        let theirs: Vec<_> = theirs
            .split_inclusive("\n}\n")
            .filter_map(|s| s.find("VersionEdit {").map(|i| s[i..].to_owned()))
            .collect();
        let records = manifest_records(&std::fs::read(&path).unwrap());
        let ours: Vec<_> = records
            .iter()
            .map(|r| VersionEdit::decode(r).unwrap().to_string())
            .collect();
        assert!(!theirs.is_empty());
        for (t, o) in theirs.iter().zip(&ours) {
            assert_eq!(t, o, "{}", path.display());
            compared += 1;
        }
    }
    println!("{compared} edits compared with ldb");
}
