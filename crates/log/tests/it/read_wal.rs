//! What the reader reports besides the records.

use std::sync::Arc;

use log::{End, LogOptions, RecoveryMode};

use crate::helpers::{Files, content, read_all, recyclable, wal, write};

fn physical(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut covered = vec![kind];
    covered.extend(payload);
    let crc = base::checksum::mask(base::checksum::crc32c(&covered));
    let mut out = crc.to_le_bytes().to_vec();
    out.extend((payload.len() as u16).to_le_bytes());
    out.extend(covered);
    out
}

#[test]
fn records_about_the_log_are_parsed_and_skipped() {
    let mut bytes = Vec::new();
    bytes.extend(physical(10, &[0, 0, 0, 0, 8, 0, 7, 0, 0, 0, 16, 0]));
    let mut info = Vec::new();
    for n in [41u64, 1234, 99] {
        info.extend(n.to_le_bytes());
    }
    bytes.extend(physical(130, &info));
    bytes.extend(physical(200, b"from the future"));
    let at = bytes.len() as u64;
    bytes.extend(physical(1, b"data"));
    let files = Files::new();
    let mut reader = wal(
        &files.with("log", &bytes),
        0,
        RecoveryMode::AbsoluteConsistency,
    );
    let mut record = Vec::new();
    assert!(reader.read(&mut record).unwrap());
    assert_eq!(record, b"data");
    assert_eq!(reader.record_offset(), at);
    let sizes: Vec<_> = reader.timestamp_sizes().iter().collect();
    assert_eq!(sizes, [(&0, &8), (&7, &16)]);
    let p = reader.predecessor().unwrap();
    assert_eq!((p.log_number, p.size, p.last_sequence), (41, 1234, 99));
    assert!(!reader.read(&mut record).unwrap());
    assert!(!reader.read(&mut record).unwrap());
}

#[test]
fn compressed_records() {
    let frame = |data: &[u8]| zstd::encode_all(data, 3).unwrap();
    let values: [Vec<u8>; 3] = [b"one".to_vec(), vec![7; 300_000], Vec::new()];
    let mut bytes = physical(9, &7u32.to_le_bytes());
    for v in &values {
        bytes.extend(physical(1, &frame(v)));
    }
    let files = Files::new();
    let (read, end) = read_all(wal(
        &files.with("log", &bytes),
        0,
        RecoveryMode::AbsoluteConsistency,
    ));
    assert_eq!(read, values);
    let offset = bytes.len() as u64;
    assert_eq!(end.unwrap().end(), &End::Clean { offset });
    // A frame that is no frame, one that does not end, and one with bytes behind its end.
    let mut behind = frame(b"x");
    behind.push(0);
    let whole = frame(&values[1]);
    for wrong in [&b"not zstd"[..], &whole[..whole.len() - 4], &behind] {
        let mut bytes = physical(9, &7u32.to_le_bytes());
        bytes.extend(physical(1, &frame(b"one")));
        bytes.extend(physical(1, wrong));
        let (read, end) = read_all(wal(
            &files.with("log", &bytes),
            0,
            RecoveryMode::TolerateCorruptedTailRecords,
        ));
        assert_eq!(read, [b"one"]);
        assert!(end.unwrap_err().is_corruption());
    }
}

#[test]
fn ends_say_where_and_why() {
    let files = Files::new();
    let f = files.create("log");
    let records = [vec![1; 100], vec![2; 200]];
    let size = write(&f, LogOptions::default(), &records);
    let bytes = content(&f);
    let end_of = |bytes: &[u8], mode| {
        let (_, reader) = read_all(wal(&files.with("x", bytes), 0, mode));
        reader.unwrap().end().clone()
    };
    let pit = RecoveryMode::PointInTimeRecovery;
    assert_eq!(end_of(&bytes, pit), End::Clean { offset: size });
    let mut zeros = bytes.clone();
    zeros.resize(100_000, 0);
    assert_eq!(end_of(&zeros, pit), End::ZeroTail { offset: size });
    for mode in [
        pit,
        RecoveryMode::TolerateCorruptedTailRecords,
        RecoveryMode::SkipAnyCorruptedRecords,
    ] {
        assert_eq!(
            end_of(&bytes[..200], mode),
            End::Torn {
                offset: 107,
                reason: "truncated record body",
                dropped_bytes: 93
            }
        );
    }
    // A torn record and zeros: resumed at its start, the log is whole again.
    let mut torn = zeros.clone();
    torn[200..400].fill(0);
    let End::Torn { offset, reason, .. } = end_of(&torn, pit) else {
        panic!("not torn");
    };
    assert_eq!((offset, reason), (107, "checksum mismatch"));
    let f = files.with("again", &torn);
    f.zero(offset, 400).unwrap();
    let mut w = log::Writer::resume(Arc::clone(&f), offset, LogOptions::default()).unwrap();
    w.append(b"new").unwrap();
    w.sync().unwrap();
    let (read, end) = read_all(wal(&f, 0, RecoveryMode::AbsoluteConsistency));
    assert_eq!(read, [vec![1; 100], b"new".to_vec()]);
    assert_eq!(end.unwrap().end(), &End::ZeroTail { offset: 117 });
}

#[test]
fn salvage_lists_what_it_skips() {
    let files = Files::new();
    let f = files.create("log");
    let records: Vec<Vec<u8>> = (0..9u8).map(|i| vec![i; 9000]).collect();
    write(&f, LogOptions::default(), &records);
    let mut bytes = content(&f);
    bytes[20_000] ^= 4;
    let mode = RecoveryMode::SkipAnyCorruptedRecords;
    let (read, reader) = read_all(wal(&files.with("x", &bytes), 0, mode));
    assert_eq!(read, [&records[..2], &records[4..]].concat());
    let reader = reader.unwrap();
    let damage = &reader.damages()[0];
    assert_eq!((damage.offset, damage.bytes), (18_014, 32768 - 18_014));
    assert_eq!(damage.reason, "checksum mismatch");
    assert_eq!(reader.damage_totals().0, reader.damages().len() as u64);
}

#[test]
fn rejected_records_follow_the_mode() {
    let files = Files::new();
    let f = files.create("log");
    write(
        &f,
        recyclable(4),
        &[b"good".to_vec(), b"bad".to_vec(), b"good".to_vec()],
    );
    for mode in RecoveryMode::ALL {
        let mut reader = wal(&f, 4, *mode);
        let mut record = Vec::new();
        let mut good = 0;
        let result = loop {
            match reader.read(&mut record) {
                Ok(true) if record == b"bad" => {
                    if let Err(e) = reader.reject("makes no sense") {
                        break Err(e);
                    }
                }
                Ok(true) => good += 1,
                Ok(false) => break Ok(reader.end().clone()),
                Err(e) => break Err(e),
            }
        };
        match mode {
            RecoveryMode::PointInTimeRecovery => {
                assert_eq!(result.unwrap().offset(), 15);
                assert_eq!(good, 1);
            }
            RecoveryMode::SkipAnyCorruptedRecords => {
                assert_eq!(result.unwrap(), End::Clean { offset: 44 });
                assert_eq!(good, 2);
            }
            _ => {
                let e = result.unwrap_err();
                assert_eq!(e.at(), Some(15));
                assert!(reader.read(&mut record).is_err());
            }
        }
    }
}
