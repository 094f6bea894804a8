//! Fences that count, and fences that are only bytes of a value.

use std::sync::Arc;

use base::ValueType;
use io::File;
use log::{End, Fence, LogOptions, Note, Reader, ReaderOptions, Writer};

use crate::helpers::{Files, content};

const NUMBER: u64 = 9;
const NONCE: u64 = 0x5eed;
/// The bytes in which a device tears writes.
const SECTOR: usize = 512;

/// A batch with these entries that are not applied.
fn batch(entries: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![0; 12];
    for entry in entries {
        out.push(ValueType::LogData as u8);
        base::coding::put_slice(&mut out, entry);
    }
    out
}

fn fence(durable: u64, nonce: u64) -> Vec<u8> {
    let fence = Fence {
        log_number: NUMBER,
        durable,
        nonce,
        ..Fence::default()
    };
    fence.encode()
}

fn note(nonce: u64) -> Vec<u8> {
    let note = Note {
        log_number: NUMBER,
        nonce,
        ..Note::default()
    };
    note.encode()
}

/// A log: a first batch with `first`, a second one, and a third with `value`, of which the first sector
/// was not written. Returns the file and where the third begins.
fn torn(files: &Files, first: &[&[u8]], value: &[u8]) -> (Arc<dyn File>, u64) {
    let file = files.create("000009.log");
    let mut writer = Writer::new(Arc::clone(&file), LogOptions::default());
    writer.append(&batch(first)).unwrap();
    writer.append(&batch(&[b"second"])).unwrap();
    let at = writer.size();
    let value = [&[7; 2 * SECTOR], value].concat();
    writer.append(&batch(&[&value])).unwrap();
    writer.submit().unwrap();
    let zeros = [0; SECTOR];
    let sector = at.next_multiple_of(SECTOR as u64);
    io::write_all_at(&*file, &zeros, sector, io::WriteSync::None).unwrap();
    (file, at)
}

/// Where the log ends, or that it is refused.
fn end(file: &Arc<dyn File>, nonce: Option<u64>) -> Option<u64> {
    let options = ReaderOptions {
        fences: true,
        ..ReaderOptions::default()
    };
    let mut reader = Reader::new(Arc::clone(file), NUMBER, options).with_nonce(nonce);
    let mut record = Vec::new();
    loop {
        match reader.read(&mut record) {
            Ok(true) => {}
            Ok(false) => {
                assert!(!matches!(reader.end(), End::Clean { .. }));
                return Some(reader.end().offset());
            }
            Err(e) => {
                assert!(e.is_corruption(), "{e}");
                return None;
            }
        }
    }
}

/// Regression test: a value held fences of another log with the same number, in either form. The log's
/// torn tail was then treated as damage to durable data, and the database did not open.
#[test]
fn a_fence_in_a_value_proves_nothing() {
    let far = 1 << 40;
    for (first, own) in [(note(NONCE), NONCE), (note(0), 0)] {
        for (nonce, counts) in [(own, true), (0, own == 0), (0xbad, false)] {
            let files = Files::new();
            let (file, at) = torn(&files, &[&first], &fence(far, nonce));
            let expect = (!counts).then_some(at);
            assert_eq!(end(&file, None), expect, "{nonce:x} in a log of {own:x}");
        }
    }
    // RocksDB's logs have no notes, nor fences, whatever their values hold.
    let value = [fence(far, 0), fence(far, NONCE), note(NONCE)].concat();
    let files = Files::new();
    let (file, at) = torn(&files, &[b"no note", &note(NONCE)], &value);
    assert_eq!(end(&file, None), Some(at));
}

/// If the note itself is damaged or torn, the MANIFEST says which fences belong to the log. If it
/// does not, all fences count: refusing a torn log is better than losing durable data silently.
#[test]
fn a_damaged_note_does_not_take_the_fences_along() {
    for (nonce, known, refused) in [
        (NONCE, Some(NONCE), true),
        (0xbad, Some(NONCE), false),
        (0, Some(NONCE), false),
        (NONCE, None, true),
        (0xbad, None, true),
    ] {
        let files = Files::new();
        let (file, _) = torn(&files, &[&note(NONCE)], &fence(1 << 40, nonce));
        for bit in [19 * 8, 30 * 8, 60 * 8] {
            let mut bytes = content(&file);
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1;
            }
            let damaged = files.with("damaged.log", &bytes);
            let expect = (!refused).then_some(0);
            assert_eq!(end(&damaged, known), expect, "{nonce:x} {known:?} {bit}");
        }
    }
}
