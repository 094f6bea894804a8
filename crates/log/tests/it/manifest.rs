//! The strict rules for a MANIFEST: a torn tail is ignored, any other change is refused.

use std::sync::{Arc, Mutex};

use io::WriteSync;
use io::testing::{Faulty, What};
use log::{End, LogOptions, Reader, Writer};

use crate::helpers::{Files, content, read_all, recyclable, write};

/// Edits as a MANIFEST has them: small ones, one that spans blocks, ones that end in zeros.
fn edits() -> Vec<Vec<u8>> {
    vec![
        b"\x01\x1aleveldb.BytewiseComparator".to_vec(),
        vec![2, 0, 4, 0],
        vec![9, 0, 3, 6, 4, 0],
        (0..700u32).map(|i| (i * 31) as u8).collect(),
        vec![0; 64],
        vec![9, 0, 3, 9, 4, 7],
    ]
}

/// A MANIFEST with these edits; the bytes and where each record ends.
fn manifest(edits: &[Vec<u8>]) -> (Vec<u8>, Vec<u64>) {
    let files = Files::new();
    let f = files.create("m");
    let mut w = Writer::new(Arc::clone(&f), LogOptions::default());
    let ends = edits.iter().map(|e| w.append(e).unwrap().end.0).collect();
    w.submit().unwrap();
    (content(&f), ends)
}

fn read(files: &Files, bytes: &[u8]) -> (Vec<Vec<u8>>, base::Result<Reader>) {
    read_all(Reader::manifest(files.with("MANIFEST-000005", bytes)))
}

/// RocksDB 7.8.3 opens an empty database for 10 of the 1440 flips of a small MANIFEST, because the
/// length of a record is outside its checksum. Here every flip is detected.
#[test]
fn every_flipped_bit_is_refused() {
    let files = Files::new();
    let (bytes, _) = manifest(&edits());
    let (all, end) = read(&files, &bytes);
    assert_eq!(all, edits());
    let offset = bytes.len() as u64;
    assert_eq!(end.unwrap().end(), &End::Clean { offset });
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let (before, result) = read(&files, &flipped);
        let e = result.expect_err(&format!("bit {} of byte {}", bit % 8, bit / 8));
        assert!(e.is_corruption(), "{e}");
        assert!(e.to_string().contains("MANIFEST-000005"), "{e}");
        assert!(e.at().is_some_and(|at| at as usize <= bit / 8), "{e}");
        assert!(edits().starts_with(&before));
    }
}

#[test]
fn every_flipped_bit_is_refused_across_blocks_and_before_zeros() {
    let files = Files::new();
    // The second edit has three fragments; blocks end in padding of six and zero bytes.
    let long: Vec<u8> = (0..80_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
    for first in [32768 - 13, 32768 - 7, 32768 - 14, 100] {
        let (bytes, ends) = manifest(&[vec![5; first - 7], long.clone(), vec![2, 0, 4, 0]]);
        for zeros in [0, 1000, 40_000] {
            let mut bytes = bytes.clone();
            let len = bytes.len();
            bytes.resize(len + zeros, 0);
            let near = |p: u64| p.saturating_sub(20)..p + 20;
            let interesting = ends
                .iter()
                .flat_map(|&e| near(e))
                .chain([32768, 65536, 98304].into_iter().flat_map(near))
                .chain((0..(len + zeros) as u64).step_by(4001));
            let end = bytes.len() as u64;
            let f = files.with("m", &bytes);
            for at in interesting.filter(|&at| at < end) {
                for bit in 0..8 {
                    let was = bytes[at as usize];
                    let put = |b| io::write_all_at(&*f, &[b], at, WriteSync::None).unwrap();
                    put(was ^ 1 << bit);
                    let (found, result) = read_all(Reader::manifest(Arc::clone(&f)));
                    put(was);
                    // In the zeros behind the last record it may look like the beginning of a
                    // record that was torn at once: nothing is lost then.
                    let harmless = at >= len as u64 && found.len() == 3;
                    assert!(
                        result.is_err() || harmless,
                        "first {first}, zeros {zeros}: bit {bit} of byte {at}"
                    );
                }
            }
        }
    }
}

/// After a cut anywhere, the edits before the cut are read, and the end reports the cut.
#[test]
fn every_cut_is_a_torn_tail() {
    let files = Files::new();
    let (bytes, ends) = manifest(&edits());
    for cut in 0..=bytes.len() {
        let (read, reader) = read(&files, &bytes[..cut]);
        let whole = ends.iter().filter(|&&e| e <= cut as u64).count();
        assert_eq!(read, edits()[..whole], "cut at {cut}");
        let reader = reader.unwrap();
        let offset = if whole == 0 { 0 } else { ends[whole - 1] };
        assert_eq!(reader.end().offset(), offset);
        let torn = matches!(reader.end(), End::Torn { .. });
        assert_eq!(torn, offset != cut as u64, "cut at {cut}");
    }
}

/// A device wrote some sectors, but not the following ones.
#[test]
fn zeros_from_a_sector_on_are_a_torn_tail() {
    let files = Files::new();
    let edits: Vec<Vec<u8>> = (0..20u8).map(|i| vec![i + 1; 150]).collect();
    let (bytes, ends) = manifest(&edits);
    for tail in [0, 300, 70_000] {
        for sector in (0..bytes.len()).step_by(512) {
            let mut torn = bytes[..sector].to_vec();
            torn.resize(bytes.len() + tail, 0);
            let (read, reader) = read(&files, &torn);
            let whole = ends.iter().filter(|&&e| e <= sector as u64).count();
            assert_eq!(read, edits[..whole], "sector at {sector}");
            let reader = reader.unwrap();
            assert_ne!(reader.end().offset(), bytes.len() as u64);
        }
    }
    // Zeros behind the last record.
    let mut padded = bytes.clone();
    padded.resize(5000, 0);
    let (read, reader) = read(&files, &padded);
    assert_eq!(read, edits);
    let offset = bytes.len() as u64;
    assert_eq!(reader.unwrap().end(), &End::ZeroTail { offset });
}

#[test]
fn what_a_crash_cannot_have_made_is_refused() {
    let files = Files::new();
    let (bytes, ends) = manifest(&edits());
    let mut cases: Vec<(&str, Vec<u8>)> = Vec::new();
    let mut zeroed = bytes.clone();
    zeroed[ends[0] as usize..ends[1] as usize].fill(0);
    cases.push(("a record of zeros, then records", zeroed));
    let mut garbage = bytes.clone();
    garbage.extend(b"something else entirely");
    cases.push(("garbage behind the last record", garbage));
    let mut late = bytes.clone();
    late.resize(40_000, 0);
    late.push(1);
    cases.push(("data after zeros", late));
    let f = files.create("r");
    write(&f, recyclable(0), &edits());
    cases.push(("recyclable records", content(&f)));
    let mut headless = bytes.clone();
    headless.drain(..ends[0] as usize);
    headless[6] = 4;
    let crc = base::checksum::crc32c(&headless[6..11]);
    headless[..4].copy_from_slice(&base::checksum::mask(crc).to_le_bytes());
    cases.push(("last without first", headless));
    for (name, bytes) in cases {
        let (_, result) = read(&files, &bytes);
        let e = result.expect_err(name);
        assert!(e.is_corruption() && e.at().is_some(), "{name}: {e}");
    }
}

#[test]
fn an_error_is_returned_again() {
    let files = Files::new();
    let (mut bytes, _) = manifest(&edits());
    bytes[40] ^= 1;
    let mut reader = Reader::manifest(files.with("m", &bytes));
    let mut record = Vec::new();
    assert!(reader.read(&mut record).unwrap());
    let first = reader.read(&mut record).unwrap_err().to_string();
    assert_eq!(reader.read(&mut record).unwrap_err().to_string(), first);
    assert!(record.is_empty());
}

/// Regression test: the power failed during an append, and the device had written the second sector
/// of the record but not the first. The database could not be opened any more ("zeros followed by
/// data"), although the edit was never acknowledged.
#[test]
fn a_last_record_that_lacks_sectors_is_torn() {
    let files = Files::new();
    let mut all = edits();
    all.push((0..1400u32).map(|i| (i % 255) as u8 + 1).collect());
    let (bytes, ends) = manifest(&all);
    let start = ends[ends.len() - 2] as usize;
    let sectors: Vec<_> = (start / 512..bytes.len().div_ceil(512))
        .map(|s| start.max(s * 512)..bytes.len().min((s + 1) * 512))
        .collect();
    assert!(sectors.len() >= 3);
    for lost in 1..1u32 << sectors.len() {
        let mut torn = bytes.clone();
        for (i, sector) in sectors.iter().enumerate() {
            if lost >> i & 1 == 1 {
                torn[sector.clone()].fill(0);
            }
        }
        let (records, reader) = read(&files, &torn);
        assert_eq!(reader.unwrap().end().offset(), start as u64, "{lost:b}");
        assert_eq!(records, all[..all.len() - 1], "{lost:b}");
    }
}

/// The same zeros in a record that is followed by others are damage.
#[test]
fn a_zeroed_sector_before_other_records_is_refused() {
    let files = Files::new();
    let mut all = edits();
    all.push((0..1400u32).map(|i| (i % 255) as u8 + 1).collect());
    all.push(vec![9, 0, 3, 9, 4, 8]);
    let (bytes, ends) = manifest(&all);
    let last = ends[ends.len() - 2] as usize;
    for sector in 0..last / 512 {
        let mut damaged = bytes.clone();
        damaged[sector * 512..(sector + 1) * 512].fill(0);
        let (_, result) = read(&files, &damaged);
        assert!(result.unwrap_err().is_corruption(), "sector {sector}");
    }
}

/// RocksDB 7.8.3 and 11.8.1 refuse a MANIFEST if the first bytes of its last record are missing, and
/// Ironstone refuses one if a few bytes of its last record are missing. So the first header of a record
/// is written last, when everything else is there: before that, or after an error that left half of the
/// header, there is at most a checksum, which every reader skips.
#[test]
fn a_header_becomes_valid_in_one_write_within_a_sector() {
    let files = Files::new();
    let options = LogOptions {
        head_last: Some(512),
        ..LogOptions::default()
    };
    for left in 0..100 {
        // The first record would end `left` bytes before the end of its sector.
        for payload in [20, 600, 2000] {
            let f = files.create("m");
            let mut w = Writer::new(Arc::clone(&f), options);
            let edits = [vec![7; 512 - 7 - left], vec![9; payload], vec![5; 30]];
            let mut ends = Vec::new();
            for edit in &edits {
                ends.push(w.append(edit).unwrap().end.0 as usize);
                w.sync().unwrap();
            }
            let bytes = content(&f);
            let (all, end) = read(&files, &bytes);
            assert_eq!(all, edits, "{left} {payload}");
            assert!(matches!(end.unwrap().end(), End::Clean { .. }));
            let moved = matches!(left, 1..=6);
            let head = 512 - left + if moved { 7 } else { 0 };
            assert_eq!(ends[0], head);
            for checksum_bytes in 0..=4 {
                let mut before = bytes[..ends[1]].to_vec();
                before[head + checksum_bytes..head + 7].fill(0);
                let (all, end) = read(&files, &before);
                assert_eq!(all, edits[..1], "{left} {payload} {checksum_bytes}");
                end.unwrap();
            }
        }
    }
}

/// Regression test, found by the schedules: the system wrote an edit in pieces, and the power failed. The
/// first pieces were on the device, with zeros after them up to the file's new length. The database refused
/// to open.
#[test]
fn an_edit_that_was_written_in_pieces_is_there_or_not() {
    let files = Files::new();
    let options = LogOptions {
        head_last: Some(512),
        ..LogOptions::default()
    };
    for (before, payload) in [(250, 47), (250, 200), (505, 30), (400, 105), (480, 1400)] {
        let file = files.create("m");
        let states: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        // Notes what the file has before each write, which takes half of it, or as much as a header has.
        let (inner, seen) = (Arc::clone(&file), Arc::clone(&states));
        let pieces = Faulty::new(Arc::clone(&file), move |call| {
            if call.what == What::Write {
                seen.lock().unwrap().push(content(&inner));
            }
            Ok((call.data.len() / 2).max(7))
        });
        let mut w = Writer::new(pieces, options);
        let edits = [vec![7; before], vec![9; payload]];
        w.append(&edits[0]).unwrap();
        w.sync().unwrap();
        states.lock().unwrap().clear();
        w.append(&edits[1]).unwrap();
        w.sync().unwrap();
        let mut states = std::mem::take(&mut *states.lock().unwrap());
        states.push(content(&file));
        assert!(states.len() > 4);
        for mut state in states {
            state.resize(w.size() as usize, 0);
            let (found, end) = read(&files, &state);
            end.unwrap();
            assert!(found == edits || found == edits[..1], "{before} {payload}");
        }
    }
}
