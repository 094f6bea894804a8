//! Mistakes that other engines make in the recovery of logs, each as a test of its own. Cuts at record
//! boundaries are in `rot`; the record types 130 and 131 in the log crate's `recovery_cases`.

use std::path::Path;
use std::sync::Arc;

use base::ValueType;
use base::coding::put_slice;
use io::{FileSystem, OpenHow, posix::Posix};
use ironstone::{Db, Options};
use log::{End, Fence, LogOptions, Note, Reader, ReaderOptions, Writer};
use sim::dirs::{self, State};
use sim::frozen::{self, Frozen};
use sim::oracle::content::everything;
use sim::oracle::{self, RocksDb};

use crate::rot::{Logs, PUTS, Tally, open_and_judge, options};

/// A batch that puts `key`, with entries around it that mean nothing to a reader.
fn batch(sequence: u64, key: &str, value: &[u8], log_data: &[&[u8]]) -> Vec<u8> {
    let mut b = sequence.to_le_bytes().to_vec();
    b.extend(1u32.to_le_bytes());
    for data in log_data {
        b.push(ValueType::LogData as u8);
        put_slice(&mut b, data);
    }
    b.push(ValueType::Value as u8);
    put_slice(&mut b, key.as_bytes());
    put_slice(&mut b, value);
    b
}

/// The bytes of a log with these records, written over the old bytes of the file; and the end of each
/// record.
fn log_over(old: &[u8], options: LogOptions, records: &[Vec<u8>]) -> (Vec<u8>, Vec<u64>) {
    let temp = dirs::scratch().unwrap();
    let path = temp.path().join("log");
    std::fs::write(&path, old).unwrap();
    let mut writer = Writer::new(Posix.open(&path, OpenHow::UPDATE).unwrap(), options);
    let ends = records
        .iter()
        .map(|r| writer.append(r).unwrap().end.0)
        .collect();
    writer.submit().unwrap();
    (std::fs::read(&path).unwrap(), ends)
}

fn plain() -> LogOptions {
    LogOptions::default()
}

fn recyclable(log_number: u64) -> LogOptions {
    LogOptions {
        log_number,
        recyclable: true,
        ..plain()
    }
}

/// An empty database, and the number of its first log.
fn empty() -> (State, u64) {
    let temp = dirs::scratch().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    Db::open(temp.path(), &options).unwrap().close().unwrap();
    let state = State::of(temp.path()).unwrap();
    let log = state.names().find_map(|n| n.strip_suffix(".log"));
    let number = log.unwrap().parse().unwrap();
    (state, number)
}

fn name(number: u64) -> String {
    format!("{number:06}.log")
}

/// Everything in a frozen database.
fn read(fs: Frozen) -> base::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let db = Db::open_read_only(frozen::DIR, &options(fs))?;
    Ok(everything(&db)?.remove(0).1)
}

fn keys(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<String> {
    let key = |(k, _): &(Vec<u8>, _)| String::from_utf8(k.clone()).unwrap();
    pairs.iter().map(key).collect()
}

fn open(dir: &Path) -> base::Result<Db> {
    Db::open(dir, &Options::default())
}

/// A whole block of zeros, with records behind it.
#[test]
fn hole_in_the_zero_tail() {
    for (synced, what) in [(true, "synced"), (false, "unsynced")] {
        let logs = Logs::write(1, if synced { |_| true } else { |_| false });
        let (log, _) = &logs.names[0];
        let block = log::format::BLOCK;
        let mut bytes = logs.bytes(log).to_vec();
        assert!(bytes.len() > block + 1000);
        bytes[..block].fill(0);
        let tally = Tally::default();
        let fs = logs.frozen.with(log, bytes);
        // Unsynced: the fragment behind the zeros has no first part, and nothing is found.
        open_and_judge(fs, 0, what, &tally);
        assert_eq!(tally.refused(), usize::from(synced));
    }
}

#[test]
fn torn_record_then_zeros() {
    let logs = Logs::write(1, |_| true);
    let (log, _) = &logs.names[0];
    let mut bytes = logs.bytes(log).to_vec();
    let len = bytes.len();
    bytes[len - 60..].fill(0);
    bytes.resize(len + 100_000, 0);
    let state = logs.state.with(log, bytes);
    open_and_judge(
        Frozen::of(&state),
        PUTS - 1,
        "torn, then zeros",
        &Tally::default(),
    );
    // After Ironstone's recovery, RocksDB opens it in every mode.
    let temp = dirs::scratch().unwrap();
    state.restore(temp.path()).unwrap();
    open(temp.path()).unwrap().close().unwrap();
    let Some(lib) = oracle::rocksdb() else { return };
    for mode in 0..4 {
        let mut o = lib.options();
        o.wal_recovery_mode(mode);
        let db = RocksDb::open(&o, temp.path()).unwrap();
        let found = db.iterator().collect_all().unwrap().len() as u64;
        assert_eq!(found, PUTS - 1, "mode {mode}");
    }
}

/// The fences of the older log do not count, and its records are not replayed.
#[test]
fn stale_tail_in_a_recycled_file() {
    // The nonce is the same in both logs: only their numbers tell them apart.
    const NONCE: u64 = 5;
    let fence = |log_number, durable| {
        let fence = Fence {
            log_number,
            durable,
            nonce: NONCE,
            ..Fence::default()
        };
        fence.encode()
    };
    let note = Note {
        log_number: 7,
        nonce: NONCE,
        ..Note::default()
    };
    let note = note.encode();
    let old: Vec<Vec<u8>> = (0..50)
        .map(|i| batch(i, "old", b"value", &[&fence(5, 64 * i)]))
        .collect();
    let (bytes, _) = log_over(&[], recyclable(5), &old);
    let new: Vec<Vec<u8>> = (0..5)
        .map(|i| batch(100 + i, "new", &[b'x'; 31], &[&note, &fence(7, 0)]))
        .collect();
    let (bytes, ends) = log_over(&bytes, recyclable(7), &new);
    let (state, _) = empty();
    let fs = Frozen::of(&state).with("000007.log", bytes);
    let options = ReaderOptions {
        fences: true,
        ..ReaderOptions::default()
    };
    let mut reader = Reader::new(fs.file("000007.log").unwrap(), 7, options);
    let mut record = Vec::new();
    for want in &new {
        assert!(reader.read(&mut record).unwrap());
        assert_eq!(&record, want);
    }
    assert!(!reader.read(&mut record).unwrap());
    assert_eq!(reader.end().offset(), ends[4]);
    assert!(!matches!(reader.end(), End::Clean { .. }));
}

/// A closed log whose file is longer than the log is complete. A log that was cut and then filled up with
/// zeros to its old length is not.
#[test]
fn preallocated_length_taken_for_record_end() {
    for (synced, what) in [(true, "synced"), (false, "unsynced")] {
        let logs = Logs::write(3, if synced { |_| true } else { |_| false });
        let (log, _) = &logs.names[0];
        let mut bytes = logs.bytes(log).to_vec();
        let len = bytes.len();
        bytes.resize(len + 70_000, 0);
        let longer = logs.frozen.with(log, bytes.clone());
        open_and_judge(longer, PUTS, what, &Tally::default());
        let cut = logs.puts[90].end as usize;
        bytes[cut..].fill(0);
        let tally = Tally::default();
        let shorter = logs.frozen.with(log, bytes);
        open_and_judge(shorter, if synced { PUTS } else { 91 }, what, &tally);
        assert_eq!(tally.refused(), usize::from(synced));
    }
}

/// The records behind the noted end of a log were written again to the next log. They are there once, as
/// the later log has them.
#[test]
fn duplicates_after_recovery() {
    let (state, number) = empty();
    let (older, ends) = log_over(
        &[],
        plain(),
        &[
            batch(1, "a", b"1", &[]),
            batch(2, "b", b"1", &[]),
            batch(3, "stale", b"1", &[]),
            batch(4, "stale too", b"1", &[]),
        ],
    );
    let note = Note {
        log_number: number + 1,
        previous_log: number,
        previous_end: ends[1],
        nonce: 5,
    };
    let newer = [
        batch(3, "c", b"2", &[&note.encode()]),
        batch(4, "d", b"2", &[]),
    ];
    let (newer, _) = log_over(&[], plain(), &newer);
    let state = state
        .with(&name(number), older)
        .with(&name(number + 1), newer);
    let found = read(Frozen::of(&state)).unwrap();
    assert_eq!(keys(&found), ["a", "b", "c", "d"]);
    let temp = dirs::scratch().unwrap();
    state.restore(temp.path()).unwrap();
    for _ in 0..3 {
        let db = open(temp.path()).unwrap();
        assert_eq!(everything(&db).unwrap()[0].1, found);
        let entries = db.property("rocksdb.estimate-num-keys").unwrap();
        assert_eq!(entries, "4");
        assert_eq!(db.latest_sequence_number(), 4);
        db.close().unwrap();
    }
}

/// Logs of both record formats follow each other; one of them is in a file with an older log's records.
#[test]
fn recycling_switched_off_and_on_across_reopens() {
    let (state, number) = empty();
    let records = |from: u64| -> Vec<Vec<u8>> {
        (from..from + 3)
            .map(|n| batch(n, &format!("k{n}"), b"v", &[]))
            .collect()
    };
    let (stale, _) = log_over(&[], recyclable(1), &records(50));
    let (first, _) = log_over(&stale, recyclable(number), &records(1)[..2]);
    let (second, _) = log_over(&[], plain(), &records(3));
    let (third, _) = log_over(&first, recyclable(number + 2), &records(6)[..1]);
    let state = state
        .with(&name(number), first)
        .with(&name(number + 1), second)
        .with(&name(number + 2), third);
    let found = read(Frozen::of(&state)).unwrap();
    assert_eq!(keys(&found), ["k1", "k2", "k3", "k4", "k5", "k6"]);
}

/// Recovery that stops between two logs drops the later ones for good.
#[test]
fn logs_behind_a_hole_do_not_come_back() {
    let logs = Logs::write(3, |_| false);
    let (log, _) = &logs.names[1];
    let cut = logs.puts[149].end as usize;
    let state = logs.state.with(log, logs.bytes(log)[..cut].to_vec());
    let temp = dirs::scratch().unwrap();
    state.restore(temp.path()).unwrap();
    for reopen in 0..3 {
        let mut o = Options::default();
        o.db.avoid_flush_during_recovery = true;
        let db = Db::open(temp.path(), &o).unwrap();
        let found = everything(&db).unwrap()[0].1.len();
        assert_eq!(found, 150 + reopen);
        db.put(format!("new{reopen}"), "v").unwrap();
        db.close().unwrap();
    }
    let Some(lib) = oracle::rocksdb() else { return };
    let db = RocksDb::open(&lib.options(), temp.path()).unwrap();
    assert_eq!(db.iterator().collect_all().unwrap().len(), 153);
}

/// Each mode has its answer to a log that lost its end.
#[test]
fn a_short_log_in_every_mode() {
    use log::RecoveryMode::{
        AbsoluteConsistency, PointInTimeRecovery, SkipAnyCorruptedRecords,
        TolerateCorruptedTailRecords,
    };
    for synced in [true, false] {
        let logs = Logs::write(3, if synced { |_| true } else { |_| false });
        let (log, _) = &logs.names[0];
        let cut = logs.bytes(log)[..logs.puts[49].end as usize].to_vec();
        for (mode, proven, unproven) in [
            (TolerateCorruptedTailRecords, None, Some(50)),
            (AbsoluteConsistency, None, None),
            (PointInTimeRecovery, None, Some(50)),
            (SkipAnyCorruptedRecords, Some(250), Some(250)),
        ] {
            for fs in [logs.frozen.with(log, cut.clone()), logs.frozen.without(log)] {
                let missing = fs.file(log).is_err();
                let mut o = options(fs);
                o.db.wal_recovery_mode = mode;
                let found = Db::open_read_only(frozen::DIR, &o);
                let found = found.map(|db| everything(&db).unwrap()[0].1.len());
                let want = if synced { proven } else { unproven };
                let want = want.map(|n| if missing { n - 50 } else { n });
                assert_eq!(found.ok(), want, "{mode:?}, synced: {synced}");
            }
        }
    }
}

#[test]
fn a_frozen_file_system_refuses_changes() {
    let (state, number) = empty();
    let fs: Arc<dyn FileSystem> = Arc::new(Frozen::of(&state));
    let path = Path::new(frozen::DIR).join(name(number));
    assert!(fs.remove(&path).is_err());
    assert!(fs.open(&path, OpenHow::UPDATE).is_err());
    assert_eq!(fs.metadata(&path).unwrap().len, 0);
}
