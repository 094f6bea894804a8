//! Writes in flight: padding, several at once, and their records after a failure.

use std::sync::Arc;

use io::File;
use log::{Flight, LogOptions, RecoveryMode, TailPolicy, WalSync, Writer};

use crate::helpers::{Files, content, read_all, wal};

const UNIT: u32 = 512;
/// Header of an empty write batch, which a database uses as padding.
const PAYLOAD_MIN: u32 = 12;

fn padded(depth: u32, recyclable: bool) -> LogOptions {
    LogOptions {
        log_number: 3,
        recyclable,
        direct_unit: Some(UNIT),
        sync: WalSync::Dsync,
        filler: Some(0x0d),
        tail: TailPolicy::Pad {
            payload_min: PAYLOAD_MIN,
        },
        depth,
        ..LogOptions::default()
    }
}

fn pad(w: &mut Writer) -> usize {
    let n = w.padding();
    if n > 0 {
        w.append(&vec![0xaa; n]).unwrap();
    }
    n
}

fn start(w: &mut Writer, record: &[u8]) -> Flight {
    w.append(record).unwrap();
    pad(w);
    w.begin(true).unwrap().unwrap()
}

fn error() -> base::Result<()> {
    let e = std::io::Error::from_raw_os_error(5);
    Err(base::Error::io("write", "log", e))
}

/// Every group ends with a whole unit and not at a block boundary, whatever its size; all of it is
/// read back; and no byte is written twice.
#[test]
fn padding_ends_each_group_with_a_whole_unit() {
    for recyclable in [false, true] {
        let files = Files::new();
        let file = files.create("log");
        let mut w = Writer::new(Arc::clone(&file), padded(1, recyclable));
        let (mut records, mut ends) = (Vec::new(), vec![0]);
        for i in 0..2000usize {
            let record = vec![i as u8; (i * 37) % 1500 + (i % 97 / 96) * 70_000];
            w.append(&record).unwrap();
            records.push(record);
            let n = pad(&mut w);
            if n > 0 {
                assert!(n >= PAYLOAD_MIN as usize);
                records.push(vec![0xaa; n]);
            }
            assert_eq!(w.padding(), 0);
            assert_eq!(w.size() % u64::from(UNIT), 0, "group {i}");
            assert_ne!(w.size() % 32768, 0, "group {i} ends at a block boundary");
            w.sync().unwrap();
            assert_eq!(file.len().unwrap(), w.size());
            ends.push(w.size());
        }
        let (read, reader) = read_all(wal(&file, 3, RecoveryMode::AbsoluteConsistency));
        let reader = reader.unwrap();
        assert_eq!(reader.end().offset(), w.size());
        assert_eq!(read.len(), records.len());
        for (i, (a, b)) in read.iter().zip(&records).enumerate() {
            // A record may be lengthened by filler so that the next does not start a block.
            assert!(a.starts_with(b) && a.len() - b.len() < 12, "record {i}");
        }
    }
}

#[test]
fn flights_that_overtake_each_other_count_in_order() {
    let files = Files::new();
    let file = files.create("log");
    let mut w = Writer::new(Arc::clone(&file), padded(3, false));
    let a = start(&mut w, b"a");
    let b = start(&mut w, b"b");
    let c = start(&mut w, b"c");
    assert!(!w.can_begin(true), "three are out");
    let (a_end, c_end) = (a.end(), c.end());
    for flight in [&c, &b] {
        flight.run().unwrap();
    }
    w.landed(c, Ok(())).unwrap();
    w.landed(b, Ok(())).unwrap();
    assert_eq!(w.durable().0, 0, "the first one is not there yet");
    assert!(a_end < c_end);
    a.run().unwrap();
    w.landed(a, Ok(())).unwrap();
    assert_eq!(w.durable(), c_end);
    assert!(!w.is_flying());
}

/// When a log overwrites an older log, a write ends with zeros. They must not overwrite a later
/// flight that landed earlier: that flight would be lost although it was acknowledged.
#[test]
fn over_old_records_no_flight_overwrites_a_later_one() {
    let files = Files::new();
    let old = {
        let mut w = Writer::new(files.create("old"), padded(1, true));
        for _ in 0..20 {
            start(&mut w, &[7; 900]).run().unwrap();
            w = Writer::resume(w.file().clone(), w.size(), padded(1, true)).unwrap();
        }
        content(w.file())
    };
    for before in [vec![], vec![0; old.len()], old] {
        let file = files.with("log", &before);
        let options = LogOptions {
            log_number: 4,
            ..padded(8, true)
        };
        let mut w = Writer::new(Arc::clone(&file), options);
        let records: Vec<Vec<u8>> = (1..=8).map(|i| vec![i; 1 + usize::from(i) * 300]).collect();
        let mut out: Vec<Flight> = Vec::new();
        for record in &records {
            w.append(record).unwrap();
            pad(&mut w);
            if !w.can_begin(true) {
                land_backwards(&mut w, &mut out);
            }
            out.push(w.begin(true).unwrap().unwrap());
        }
        land_backwards(&mut w, &mut out);
        assert_eq!(w.durable().0, w.size());
        let (read, reader) = read_all(wal(&file, 4, RecoveryMode::PointInTimeRecovery));
        reader.unwrap();
        let read: Vec<_> = read.iter().filter(|r| r[0] != 0xaa).collect();
        assert_eq!(read, records.iter().collect::<Vec<_>>());
    }
}

/// The last flight that was begun lands first.
fn land_backwards(w: &mut Writer, out: &mut Vec<Flight>) {
    while let Some(flight) = out.pop() {
        flight.run().unwrap();
        w.landed(flight, Ok(())).unwrap();
    }
}

/// A flight that landed before an earlier one failed is not durable: it is written again with it.
#[test]
fn what_landed_before_an_earlier_flight_failed_is_still_here() {
    let files = Files::new();
    let mut w = Writer::new(files.create("log"), padded(4, false));
    let lost = start(&mut w, b"lost");
    let early = start(&mut w, b"early");
    early.run().unwrap();
    w.landed(early, Ok(())).unwrap();
    w.landed(lost, error()).unwrap_err();
    let left = w.unacknowledged().unwrap();
    let content: Vec<_> = left.iter().filter(|r| r[0] != 0xaa).collect();
    assert_eq!(content, [b"lost".as_slice(), b"early"]);
}

/// Two flights in one unit would be a race on the device: only padding allows more than one.
#[test]
fn only_padded_logs_have_several_flights() {
    let files = Files::new();
    let options = LogOptions {
        tail: TailPolicy::Rewrite,
        ..padded(8, false)
    };
    let mut w = Writer::new(files.create("log"), options);
    w.append(b"a").unwrap();
    let a = w.begin(true).unwrap().unwrap();
    w.append(b"b").unwrap();
    assert!(!w.can_begin(true) && !w.can_begin(false));
    let outcome = a.run();
    w.landed(a, outcome).unwrap();
    let outcome = w.sync();
    assert_eq!(outcome.unwrap().0, w.size());
}

#[test]
fn what_a_failed_flight_carried_is_still_here() {
    for recyclable in [false, true] {
        let files = Files::new();
        let file: Arc<dyn File> = files.create("log");
        let mut w = Writer::new(Arc::clone(&file), padded(4, recyclable));
        let kept = start(&mut w, b"kept");
        let lost = start(&mut w, &vec![1; 40_000]);
        let after = start(&mut w, b"after");
        w.append(b"not begun").unwrap();
        for flight in [&kept, &after] {
            flight.run().unwrap();
        }
        w.landed(kept, Ok(())).unwrap();
        let durable = w.durable();
        let first = w.landed(lost, error()).unwrap_err().to_string();
        assert!(w.unacknowledged().is_none(), "one flight is still out");
        assert_eq!(w.landed(after, Ok(())).unwrap_err().to_string(), first);
        assert_eq!(w.durable(), durable);
        assert_eq!(w.append(b"x").unwrap_err().to_string(), first);
        let left = w.unacknowledged().unwrap();
        let content: Vec<_> = left.iter().filter(|r| r[0] != 0xaa).collect();
        assert_eq!(content.len(), 3);
        assert_eq!(content[0], &vec![1; 40_000]);
        assert_eq!(
            (&content[1][..], &content[2][..]),
            (&b"after"[..], &b"not begun"[..])
        );
    }
}

/// The pages of a failed `fdatasync` are lost: the log must not treat them as still present in the
/// process.
#[test]
fn what_the_page_cache_lost_is_not_taken_for_what_the_process_has() {
    let files = Files::new();
    let mut w = Writer::new(files.create("log"), LogOptions::default());
    w.append(b"a").unwrap();
    let flight = w.begin(true).unwrap().unwrap();
    assert!(w.landed(flight, error()).is_err());
    assert!(w.unacknowledged().is_none());
}

/// While a flight is running, it owns its bytes: appends do not change them.
#[test]
fn a_buffer_in_flight_is_not_touched() {
    let files = Files::new();
    let file = files.create("log");
    let options = LogOptions {
        direct_unit: Some(UNIT),
        sync: WalSync::Dsync,
        ..LogOptions::default()
    };
    let mut w = Writer::new(Arc::clone(&file), options);
    w.append(b"first").unwrap();
    let flight = w.begin(true).unwrap().unwrap();
    w.append(b"second").unwrap();
    flight.run().unwrap();
    assert!(!content(&file).windows(6).any(|b| b == b"second"));
    w.landed(flight, Ok(())).unwrap();
    w.sync().unwrap();
    let (read, _) = read_all(wal(&file, 0, RecoveryMode::AbsoluteConsistency));
    assert_eq!(read, [b"first".to_vec(), b"second".to_vec()]);
}

/// Blocks are allocated ahead of synced logs; the file length does not change.
#[test]
fn a_sync_reserves_the_blocks_of_those_to_come() {
    use std::os::unix::fs::MetadataExt;
    let files = Files::new();
    let written = |name: &str, allocate_ahead: u64| {
        let file = files.create(name);
        let options = LogOptions {
            allocate_ahead,
            ..LogOptions::default()
        };
        let mut w = Writer::new(Arc::clone(&file), options);
        w.append(b"unsynced").unwrap();
        w.submit().unwrap();
        assert!(!w.has_room_ahead(), "nobody asked for durability");
        for _ in 0..3 {
            w.append(&[7; 1000]).unwrap();
            w.sync().unwrap();
        }
        let found = std::fs::metadata(file.path()).unwrap();
        assert_eq!(found.len(), w.size());
        (w.has_room_ahead(), found.blocks() * 512)
    };
    assert!(!written("plain", 0).0);
    let (ahead, bytes) = written("ahead", 1 << 20);
    assert!(!ahead || bytes > 1 << 20, "{bytes}"); // not every file system reserves
}
