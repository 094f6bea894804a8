//! The exact bytes that the writer writes, and reading them back.

use std::sync::Arc;

use io::posix::Posix;
use io::{FileSystem, OpenHow};
use log::{End, LogOptions, Lsn, RecoveryMode, WalSync, Writer};
use proptest::prelude::*;

use crate::helpers::{Files, content, read_all, recyclable, wal, write};

/// Two batches, and the WAL of log 4 that RocksDB 7.8.3 wrote for them (`docs/formats.md`, "Test
/// vectors").
const BATCHES: [&str; 2] = [
    "0100000000000000020000000103666f6f03626172000362617a",
    "030000000000000003000000 01026b32027632 07027364 0f01610163 03036c6f67",
];
const LEGACY_WAL: &str = "9488b99f 1a00 01 0100000000000000 02000000 01 03666f6f 03626172 00 0362617a \
    a3fa76a8 2100 01 0300000000000000 03000000 01 026b32 027632 07 027364 0f 0161 0163 03 036c6f67";
const RECYCLABLE_HEADERS: [&str; 2] = ["312e595f1a000504000000", "d5cc90e621000504000000"];

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn vectors_of_real_rocksdb() {
    let files = Files::new();
    let batches = BATCHES.map(hex);
    let f = files.create("legacy");
    write(&f, LogOptions::default(), &batches);
    assert_eq!(content(&f), hex(LEGACY_WAL));
    let f = files.create("recyclable");
    write(&f, recyclable(4), &batches);
    let mut expected = Vec::new();
    for (header, batch) in RECYCLABLE_HEADERS.iter().zip(&batches) {
        expected.extend(hex(header));
        expected.extend(batch);
    }
    assert_eq!(content(&f), expected);
}

#[test]
fn marks_and_sizes() {
    let files = Files::new();
    let f = files.create("log");
    let mut w = Writer::new(Arc::clone(&f), LogOptions::default());
    assert_eq!(w.append(b"one").unwrap(), Lsn(0)..Lsn(10));
    assert_eq!(w.append_parts(&[b"t", b"wo"]).unwrap(), Lsn(10)..Lsn(20));
    let marks = Arc::clone(w.marks());
    let now = || (marks.appended().0, marks.submitted().0, marks.durable().0);
    assert_eq!((w.size(), f.len().unwrap()), (20, 0));
    assert_eq!(now(), (20, 0, 0));
    assert_eq!(w.submit().unwrap(), Lsn(20));
    assert_eq!(now(), (20, 20, 0));
    assert_eq!(f.len().unwrap(), 20);
    w.append(b"x").unwrap();
    // A syncer takes what is submitted, the writer everything.
    assert_eq!(w.syncer().sync().unwrap(), Lsn(20));
    assert_eq!(now(), (28, 20, 20));
    assert_eq!(w.sync().unwrap(), Lsn(28));
    assert_eq!(now(), (28, 28, 28));
    assert_eq!(w.sync().unwrap(), Lsn(28));
    assert_eq!(w.durable(), Lsn(28));
}

/// Records of sizes around block boundaries, in groups, with the given options.
fn records() -> impl Strategy<Value = Vec<(usize, bool)>> {
    let size = prop_oneof![
        0usize..200,
        (0usize..40).prop_map(|d| 32768 - 30 + d),
        (0usize..40).prop_map(|d| 2 * 32768 - 40 + d),
        0usize..150_000,
    ];
    proptest::collection::vec((size, any::<bool>()), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn round_trip(sizes in records(), recycle: bool, dsync: bool, direct: bool, resume_at in 0usize..12) {
        let files = Files::new();
        let mut options = LogOptions {
            log_number: 0x1_0000_0007,
            recyclable: recycle,
            sync: if dsync { WalSync::Dsync } else { WalSync::Fdatasync },
            ..LogOptions::default()
        };
        let plain = files.create("plain");
        let how = OpenHow::CREATE_NEW;
        let unit = Posix.probe(files.root()).unwrap().direct_alignment.filter(|_| direct);
        options.direct_unit = unit;
        let how = if unit.is_some() { how.direct() } else { how };
        let file = Posix.open(&files.path("log"), how).unwrap();
        let mut writer = Writer::new(Arc::clone(&file), options);
        let mut all = Vec::new();
        for (i, &(size, sync)) in sizes.iter().enumerate() {
            let record: Vec<u8> = (0..size).map(|b| (b * 7 + i) as u8).collect();
            let range = writer.append(&record).unwrap();
            prop_assert_eq!(range.end.0, writer.size());
            if sync {
                writer.sync().unwrap();
            } else if i % 2 == 0 {
                writer.submit().unwrap();
            }
            all.push(record);
            if i == resume_at {
                writer.submit().unwrap();
                let size = writer.size();
                writer = Writer::resume(Arc::clone(&file), size, options).unwrap();
            }
        }
        writer.sync().unwrap();
        let size = write(&plain, LogOptions { direct_unit: None, ..options }, &all);
        prop_assert_eq!(size, writer.size());
        // Direct or not, resumed or not: the same bytes, zeros behind.
        let file = Posix.open(&files.path("log"), OpenHow::READ).unwrap();
        let written = content(&file);
        prop_assert!(written[..size as usize] == content(&plain)[..]);
        prop_assert!(written[size as usize..].iter().all(|&b| b == 0));
        for mode in RecoveryMode::ALL {
            let (read, reader) = read_all(wal(&file, options.log_number, *mode));
            prop_assert!(read == all);
            prop_assert_eq!(reader.unwrap().end().offset(), size);
        }
        if !recycle {
            let (read, _) = read_all(log::Reader::manifest(Arc::clone(&plain)));
            prop_assert!(read == all);
        }
    }

    /// For any changed bytes, point-in-time recovery returns a prefix, every other mode terminates,
    /// and a MANIFEST is either refused or read completely.
    #[test]
    fn changed_bytes_never_make_up_records(
        sizes in proptest::collection::vec(0usize..20_000, 1..8),
        recycle: bool,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..6),
    ) {
        let files = Files::new();
        let f = files.create("log");
        let records: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &n)| vec![i as u8 + 1; n]).collect();
        let options = if recycle { recyclable(4) } else { LogOptions::default() };
        write(&f, options, &records);
        let mut bytes = content(&f);
        for (at, change) in &changes {
            let at = at.index(bytes.len());
            bytes[at] ^= change;
        }
        let changed = bytes != content(&f);
        let f = files.with("log", &bytes);
        for mode in RecoveryMode::ALL {
            let (read, end) = read_all(wal(&f, 4, *mode));
            if *mode == RecoveryMode::SkipAnyCorruptedRecords {
                prop_assert!(end.is_ok() && read.iter().all(|r| records.contains(r)));
            } else {
                prop_assert!(records.starts_with(&read));
            }
        }
        if !recycle {
            let (read, end) = read_all(log::Reader::manifest(Arc::clone(&f)));
            prop_assert!(records.starts_with(&read));
            prop_assert!(!changed || end.is_err() || read.len() < records.len());
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes: Vec<u8>, mode in 0usize..4) {
        let files = Files::new();
        let f = files.with("log", &bytes);
        let (_, _) = read_all(wal(&f, 4, RecoveryMode::ALL[mode]));
        let (_, _) = read_all(log::Reader::manifest(Arc::clone(&f)));
        prop_assert!(log::PhysicalRecords::new(f, 4).count() <= bytes.len());
    }
}

#[test]
fn resuming_behind_the_end_of_the_file_is_refused() {
    let files = Files::new();
    let f = files.with("log", b"1234567890");
    let e = Writer::resume(f, 11, LogOptions::default()).unwrap_err();
    assert!(e.to_string().contains("10 bytes"), "{e}");
}

#[test]
fn a_recycled_file_ends_at_the_older_records() {
    let files = Files::new();
    let f = files.create("log");
    let old: Vec<Vec<u8>> = (0..3000u32).map(|i| i.to_le_bytes().repeat(9)).collect();
    write(&f, recyclable(7), &old);
    let new: Vec<Vec<u8>> = (0..1000u32).map(|i| i.to_be_bytes().repeat(9)).collect();
    let size = write(&f, recyclable(12), &new);
    for mode in RecoveryMode::ALL {
        let (read, reader) = read_all(wal(&f, 12, *mode));
        assert_eq!(read, new);
        assert_eq!(reader.unwrap().end(), &End::OldRecord { offset: size });
    }
}

#[test]
fn physical_records_for_tools() {
    let files = Files::new();
    let f = files.create("log");
    write(
        &f,
        LogOptions::default(),
        &[vec![1; 100], vec![2; 40_000], b"x".to_vec()],
    );
    let rows = |f: &Arc<dyn io::File>| -> Vec<_> {
        log::PhysicalRecords::new(Arc::clone(f), 0)
            .map(|r| r.unwrap())
            .map(|r| (r.offset, r.kind.0, r.length, r.problem))
            .collect()
    };
    assert_eq!(
        rows(&f),
        [
            (0, 1, 100, None),
            (107, 2, 32654, None),
            (32768, 4, 7346, None),
            (40121, 1, 1, None),
        ]
    );
    let mut bytes = content(&f);
    bytes[200] ^= 1;
    bytes.truncate(40_125);
    let f = files.with("log", &bytes);
    assert_eq!(
        rows(&f),
        [
            (0, 1, 100, None),
            (107, 2, 32661, Some("checksum mismatch")),
            (32768, 4, 7346, None),
            (40121, 0, 4, Some("the file ends inside a header")),
        ]
    );
}
