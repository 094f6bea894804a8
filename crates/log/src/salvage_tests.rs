//! Tests of `salvage`: every kind of damage at every place of a log.

use io::posix::Posix;

use super::*;
use crate::{LogOptions, Writer};

/// The bytes of a log with records 0, 1, 2, …; record `n` holds its number and `len(n)` bytes.
fn log(count: u32, options: LogOptions, len: impl Fn(u32) -> usize) -> (Vec<u8>, Vec<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let file = Posix
        .open(&dir.path().join("log"), OpenHow::CREATE_NEW)
        .unwrap();
    let mut writer = Writer::new(Arc::clone(&file), options);
    let starts = (0..count)
        .map(|n| {
            let mut record = n.to_le_bytes().to_vec();
            record.resize(4 + len(n), n as u8 | 1);
            writer.append(&record).unwrap().start.0
        })
        .collect();
    writer.submit().unwrap();
    (std::fs::read(dir.path().join("log")).unwrap(), starts)
}

fn scanned(bytes: &[u8], log_number: u64) -> (Vec<Piece>, Summary) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    std::fs::write(&path, bytes).unwrap();
    let file = Posix.open(&path, OpenHow::READ).unwrap();
    let mut pieces = Vec::new();
    let summary = scan(&file, log_number, &mut |p| {
        pieces.push(p);
        Ok(())
    })
    .unwrap();
    (pieces, summary)
}

fn numbers(pieces: &[Piece]) -> Vec<u32> {
    pieces
        .iter()
        .filter(|p| p.lost.is_none())
        .map(|p| base::coding::u32_at(&p.bytes, 0).unwrap())
        .collect()
}

fn both() -> [LogOptions; 2] {
    [false, true].map(|recyclable| LogOptions {
        log_number: 4,
        recyclable,
        ..LogOptions::default()
    })
}

#[test]
fn a_sound_log_is_whole() {
    for options in both() {
        let (mut bytes, _) = log(40, options, |n| n as usize * 700);
        let end = bytes.len() as u64;
        bytes.resize(1 << 20, 0);
        let (pieces, summary) = scanned(&bytes, 4);
        assert_eq!(numbers(&pieces), (0..40).collect::<Vec<_>>());
        assert_eq!(pieces.len(), 40);
        assert_eq!((summary.end, summary.content_end), (end, end));
        assert_eq!(summary.file_len, 1 << 20);
        assert!(summary.tail.is_empty());
        assert_eq!(summary.recyclable, options.recyclable);
    }
}

/// One flipped bit anywhere costs the record in which it lies, and no other.
#[test]
fn a_flipped_bit_costs_one_record() {
    for options in both() {
        let (bytes, starts) = log(30, options, |n| if n == 20 { 70_000 } else { 40 });
        let all: Vec<u32> = (0..30).collect();
        let step = if cfg!(debug_assertions) { 331 } else { 7 };
        for bit in (0..bytes.len() * 8).step_by(step) {
            let mut bad = bytes.clone();
            if let Some(b) = bad.get_mut(bit / 8) {
                *b ^= 1 << (bit % 8);
            }
            let (pieces, summary) = scanned(&bad, 4);
            let hit = starts.partition_point(|&s| s <= (bit / 8) as u64) - 1;
            let mut expected = all.clone();
            expected.remove(hit);
            let got = numbers(&pieces);
            if got == all {
                continue; // in the unused end of a block
            }
            assert_eq!(got, expected, "bit {bit}");
            let lost: Vec<&Piece> = pieces
                .iter()
                .chain(&summary.tail)
                .filter(|p| p.lost.is_some())
                .collect();
            assert!(!lost.is_empty(), "bit {bit}");
            for p in lost {
                let next = starts.get(hit + 1).copied().unwrap_or(bytes.len() as u64);
                let start = starts.get(hit).copied().unwrap();
                assert!(p.range.start >= start, "bit {bit}: {:?}", p.range);
                assert!(p.range.end <= next, "bit {bit}: {:?}", p.range);
            }
        }
    }
}

#[test]
fn zeros_are_told_from_damage() {
    let options = LogOptions::default();
    let (mut bytes, starts) = log(200, options, |_| 1000);
    // A whole block: records 97 to 129 or so are gone or cut.
    bytes.get_mut(3 * BLOCK..4 * BLOCK).unwrap().fill(0);
    let (pieces, summary) = scanned(&bytes, 0);
    let lost: Vec<&Piece> = pieces.iter().filter(|p| p.lost.is_some()).collect();
    let from = lost.first().unwrap().range.start;
    let to = lost.last().unwrap().range.end;
    assert!(starts.contains(&from) && starts.contains(&to), "{lost:?}");
    assert!(from <= 3 * BLOCK as u64 && to >= 4 * BLOCK as u64);
    assert!(summary.tail.is_empty());
    let gone = starts.iter().filter(|&&s| s >= from && s < to).count();
    assert_eq!(numbers(&pieces).len(), 200 - gone);
}

#[test]
fn a_torn_tail_is_the_tail() {
    let (mut bytes, starts) = log(3, LogOptions::default(), |_| 1000);
    let last = starts.last().copied().unwrap();
    bytes.truncate(last as usize + 500);
    bytes.resize(100_000, 0);
    let (pieces, summary) = scanned(&bytes, 0);
    assert_eq!(numbers(&pieces), [0, 1]);
    assert_eq!(summary.end, last);
    assert_eq!(summary.content_end, last + 500);
    let tail = summary.tail.first().unwrap();
    assert_eq!(tail.range.start, last);
    assert_eq!(tail.lost, Some("checksum mismatch"));
    assert!(tail.bytes.starts_with(&2u32.to_le_bytes()));
}

#[test]
fn records_of_another_log_are_none() {
    let options = both();
    let (mut bytes, _) = log(5, options[1], |_| 100);
    let end = bytes.len() as u64;
    let old = LogOptions {
        log_number: 3,
        ..options[1]
    };
    let (older, _) = log(9, old, |_| 100);
    bytes.extend_from_slice(older.get(end as usize..).unwrap());
    let (pieces, summary) = scanned(&bytes, 4);
    assert_eq!(numbers(&pieces), [0, 1, 2, 3, 4]);
    assert_eq!(summary.end, end);
    let reasons: Vec<_> = summary.tail.iter().filter_map(|p| p.lost).collect();
    assert_eq!(reasons, ["a record of another log"]);
}

#[test]
fn a_log_written_anew_is_read_and_takes_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("000004.log"), b"old").unwrap();
    let mut new = Rewrite::create(&Posix, &at("new"), 0x0d).unwrap();
    let records: Vec<Vec<u8>> = (0..300u32).map(|n| vec![n as u8; 9000]).collect();
    for r in &records {
        new.append(r).unwrap();
    }
    let end = new.finish(4 << 20).unwrap();
    replace(&Posix, &at("000004.log"), &at("new"), &at("kept")).unwrap();
    assert_eq!(std::fs::read(at("kept")).unwrap(), b"old");
    assert!(!at("new").exists());
    let bytes = std::fs::read(at("000004.log")).unwrap();
    assert_eq!(bytes.len(), 4 << 20);
    let (pieces, summary) = scanned(&bytes, 4);
    assert_eq!(summary.end, end);
    assert!(
        pieces
            .iter()
            .zip(&records)
            .all(|(p, r)| p.bytes.starts_with(r))
    );
    assert_eq!(pieces.len(), records.len());
}
