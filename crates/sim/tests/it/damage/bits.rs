//! Flipped bits and cut files.

use base::rng::Rng;
use ironstone::{CompressionType, Db};
use log::RecoveryMode;
use sim::oracle::content::{FamilyContent, difference, everything};
use table::ChecksumType;

use super::{BOTH, How, Small, flip, guarded, has_extension, names};

/// How many damaged databases were refused, and how many showed no effect.
#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    without_effect: usize,
    prefix: usize,
}

impl Tally {
    fn print(&self, what: &str) {
        eprintln!(
            "{what}: {} refused, {} without effect, {} cut back to a prefix",
            self.refused, self.without_effect, self.prefix
        );
    }
}

/// Every bit of CURRENT and of the MANIFEST: refused with the file's name, or without effect.
#[test]
fn no_flipped_bit_of_current_or_manifest_goes_unnoticed() {
    let small = Small::new(ChecksumType::Xxh3, CompressionType::None);
    for file in ["CURRENT".to_owned(), small.file("MANIFEST-", "")] {
        let mut tally = Tally::default();
        let bytes = small.state.get(&file).unwrap().to_vec();
        for bit in 0..bytes.len() * 8 {
            for how in BOTH {
                let what = format!("bit {bit} of {file}, {how:?}");
                let damaged = small.state.with(&file, flip(&bytes, bit));
                match guarded(&what, || small.read(&damaged, how)) {
                    Ok(have) => {
                        let d = difference(&small.content, &have);
                        assert_eq!(d, None, "{what}: other data");
                        tally.without_effect += 1;
                    }
                    Err(e) => {
                        assert!(names(&e, &file), "{what}: the file is not named: {e}");
                        tally.refused += 1;
                    }
                }
            }
        }
        tally.print(&format!("bits of {file}"));
    }
}

/// CURRENT and MANIFEST cut at every length. A MANIFEST that ends in the middle of a record is what a crash
/// leaves; the state before that record is the one that its writer had made durable.
#[test]
fn cut_current_and_manifest_are_refused_or_an_earlier_state() {
    let small = Small::new(ChecksumType::Xxh3, CompressionType::None);
    let file = "CURRENT".to_owned();
    let bytes = small.state.get(&file).unwrap().to_vec();
    for len in 0..bytes.len() {
        let damaged = small.state.with(&file, bytes[..len].to_vec());
        let e = guarded(&file, || small.read(&damaged, How::Writer)).unwrap_err();
        assert!(names(&e, &file), "cut at {len}: {e}");
    }
    let file = small.file("MANIFEST-", "");
    let bytes = small.state.get(&file).unwrap().to_vec();
    let mut tally = Tally::default();
    for len in 0..bytes.len() {
        let what = format!("{file} cut at {len}");
        let damaged = small.state.with(&file, bytes[..len].to_vec());
        match guarded(&what, || small.read(&damaged, How::Reader)) {
            Ok(have) => {
                // Never a key that was not written, never another value.
                assert!(is_part(&have, &small.content), "{what}: {have:?}");
                tally.prefix += 1;
            }
            Err(e) => {
                assert!(e.path().is_some(), "{what}: no file is named: {e}");
                tally.refused += 1;
            }
        }
    }
    tally.print("lengths of the MANIFEST");
}

/// Whether each entry of `part` is in `whole`, except entries whose deletion is cut off.
fn is_part(part: &[FamilyContent], whole: &[FamilyContent]) -> bool {
    part.iter().all(|(name, pairs)| {
        let all = whole.iter().find(|(n, _)| n == name);
        let deleted = |key: &[u8]| key == b"key007" || key == b"key008";
        all.is_some_and(|(_, all)| pairs.iter().all(|p| deleted(&p.0) || all.contains(p)))
    })
}

/// A log of one family, and the content after each of its records.
struct Logged {
    small: Small,
    file: String,
    states: Vec<Vec<FamilyContent>>,
}

fn logged() -> Logged {
    let mut small = Small::new(ChecksumType::Xxh3, CompressionType::None);
    small.state.restore(&small.dir()).unwrap();
    let db = Db::open_all(small.dir(), &small.options).unwrap();
    let mut states = vec![everything(&db).unwrap()];
    for i in 0..12 {
        let cf = db.column_family(if i % 3 == 0 { "reverse" } else { "default" });
        let cf = cf.unwrap();
        if i == 5 {
            db.cf(&cf).delete("key020").unwrap();
        } else {
            let value = vec![b'v'; [1, 7, 30, 600][i % 4]];
            db.cf(&cf).put(format!("wal{i:02}"), value).unwrap();
        }
        states.push(everything(&db).unwrap());
    }
    small.content = everything(&db).unwrap();
    // The state that a crash leaves: the MANIFEST of a closed database says where the log ends.
    small.state = sim::dirs::State::of(&small.dir()).unwrap();
    db.close().unwrap();
    let file = small.file("", ".log");
    Logged {
        small,
        file,
        states,
    }
}

impl Logged {
    /// The number of records after which the database has this content.
    fn prefix(&self, have: &[FamilyContent]) -> Option<usize> {
        self.states
            .iter()
            .position(|s| difference(s, have).is_none())
    }

    /// Reads with a damaged log and checks what is allowed in this mode.
    fn check(&self, bytes: Vec<u8>, what: &str, how: How, mode: RecoveryMode, tally: &mut Tally) {
        let mut small_options = self.small.options.clone();
        small_options.db.wal_recovery_mode = mode;
        let damaged = self.small.state.with(&self.file, bytes);
        let dir = self.small.dir();
        damaged.restore(&dir).unwrap();
        match guarded(what, || super::read(&dir, &small_options, how)) {
            Err(e) => {
                assert!(names(&e, &self.file), "{what}: the file is not named: {e}");
                tally.refused += 1;
            }
            Ok(have) => match self.prefix(&have) {
                Some(n) if n + 1 == self.states.len() => tally.without_effect += 1,
                Some(_) => tally.prefix += 1,
                None => {
                    let skips = mode == RecoveryMode::SkipAnyCorruptedRecords;
                    assert!(skips && is_part(&have, &self.small.content), "{what}");
                    tally.prefix += 1;
                }
            },
        }
    }
}

/// Flipped bits anywhere in a log: point-in-time recovery gives a prefix of the writes, the absolute mode
/// refuses, and no mode invents anything.
#[test]
fn a_flipped_bit_in_a_log_never_invents_or_reorders_writes() {
    let logged = logged();
    let bytes = logged.small.state.get(&logged.file).unwrap().to_vec();
    let modes = [
        (RecoveryMode::PointInTimeRecovery, 3),
        (RecoveryMode::AbsoluteConsistency, 7),
        (RecoveryMode::TolerateCorruptedTailRecords, 7),
        (RecoveryMode::SkipAnyCorruptedRecords, 7),
    ];
    for (mode, every) in modes {
        let mut tally = Tally::default();
        for bit in (0..bytes.len() * 8).step_by(every) {
            let what = format!("bit {bit} of {}, {mode:?}", logged.file);
            let how = BOTH[bit / every % 2];
            let before = tally.prefix;
            logged.check(flip(&bytes, bit), &what, how, mode, &mut tally);
            if mode == RecoveryMode::AbsoluteConsistency && tally.prefix > before {
                // Type 1 becomes 5, a recyclable record. Its log number is checked before its checksum: a
                // record of another log ends this one. RocksDB has the same rule.
                assert_eq!((bytes[bit / 8], bit % 8), (1, 2), "{what}: not refused");
            }
        }
        assert_eq!(tally.without_effect, 0, "{mode:?}: each bit counts");
        tally.print(&format!("bits of the log, {mode:?}"));
    }
}

/// A log cut at every length: the records before the cut are there.
#[test]
fn a_cut_log_is_a_prefix() {
    let logged = logged();
    let bytes = logged.small.state.get(&logged.file).unwrap().to_vec();
    let mut tally = Tally::default();
    for len in 0..bytes.len() {
        let what = format!("{} cut at {len}", logged.file);
        let mode = RecoveryMode::PointInTimeRecovery;
        let how = BOTH[len % 2];
        logged.check(bytes[..len].to_vec(), &what, how, mode, &mut tally);
        let mut zeros = bytes[..len].to_vec();
        zeros.resize(bytes.len() + 512, 0);
        logged.check(zeros, &what, how, mode, &mut tally);
    }
    assert_eq!(
        tally.refused, 0,
        "point-in-time recovery opens every cut log"
    );
    tally.print("lengths of the log, cut and zeroed");
}

/// A flipped bit in each byte of a table, and cuts at many lengths: the table is refused by name, at open
/// or at a read, or there is no effect.
#[test]
fn no_flipped_bit_of_a_table_gives_other_data() {
    let kinds = [
        (ChecksumType::Crc32c, CompressionType::None),
        (ChecksumType::Xxh3, CompressionType::None),
        (ChecksumType::Xxh3, CompressionType::Lz4),
        (ChecksumType::Crc32c, CompressionType::Zstd),
        (ChecksumType::Xxh3, CompressionType::Snappy),
    ];
    let mut rng = Rng::new(1);
    for (checksum, compression) in kinds {
        let small = Small::new(checksum, compression);
        let file = small
            .state
            .names()
            .find(|n| has_extension(n, "sst"))
            .unwrap()
            .to_owned();
        let bytes = small.state.get(&file).unwrap().to_vec();
        let mut tally = Tally::default();
        let mut check = |damaged: Vec<u8>, what: &str, how: How| {
            let damaged = small.state.with(&file, damaged);
            match guarded(what, || small.read(&damaged, how)) {
                Ok(have) => {
                    let d = difference(&small.content, &have);
                    assert_eq!(d, None, "{what}: other data");
                    tally.without_effect += 1;
                }
                Err(e) => {
                    assert!(names(&e, &file), "{what}: the file is not named: {e}");
                    tally.refused += 1;
                }
            }
        };
        for at in 0..bytes.len() {
            let bit = at * 8 + rng.below(8) as usize;
            let what = format!("bit {bit} of {file}, {checksum:?}, {compression:?}");
            check(flip(&bytes, bit), &what, BOTH[at % 2]);
        }
        for len in (0..bytes.len()).step_by(7) {
            let what = format!("{file} cut at {len}");
            check(bytes[..len].to_vec(), &what, BOTH[len % 2]);
        }
        tally.print(&format!(
            "a bit of each byte of a table, {checksum:?}, {compression:?}"
        ));
    }
}

/// A compaction of a damaged table fails, and the database keeps what it has.
#[test]
fn a_compaction_of_a_damaged_table_installs_nothing() {
    let small = Small::new(ChecksumType::Xxh3, CompressionType::None);
    let file = small
        .state
        .names()
        .find(|n| has_extension(n, "sst"))
        .unwrap()
        .to_owned();
    let bytes = small.state.get(&file).unwrap().to_vec();
    let (mut refused, mut worked) = (0, 0);
    for at in (0..bytes.len()).step_by(13) {
        let what = format!("bit {} of {file}", at * 8 + at % 8);
        let damaged = small.state.with(&file, flip(&bytes, at * 8 + at % 8));
        damaged.restore(&small.dir()).unwrap();
        let Ok(db) = Db::open_all(small.dir(), &small.options) else {
            refused += 1;
            continue;
        };
        let compact = || {
            for cf in db.column_families() {
                db.cf(&cf).compact_range(None, None)?;
            }
            everything(&db)
        };
        match guarded(&what, compact) {
            Ok(have) => {
                assert_eq!(difference(&small.content, &have), None, "{what}");
                worked += 1;
            }
            Err(e) => {
                assert!(names(&e, &file), "{what}: {e}");
                refused += 1;
                drop(db);
                // The input is still there, as it was.
                let kept = std::fs::read(small.dir().join(&file)).unwrap();
                assert_eq!(kept, damaged.get(&file).unwrap(), "{what}");
            }
        }
    }
    eprintln!("compactions of a damaged table: {refused} refused, {worked} worked");
}

/// Damage in a log that is not the last. The MANIFEST's last sequence number was the one at the end of the
/// damaged log, and the next log begins behind that number. Recovery took the next log for one that
/// continues where it had stopped: the writes between were missing, later ones were there.
#[test]
fn a_hole_before_another_log_is_not_stepped_over() {
    let temp = sim::dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let mut options = super::creating();
    options.db.avoid_flush_during_recovery = true;
    let mut state = None;
    for name in ["a", "b", "c"] {
        let db = Db::open(&dir, &options).unwrap();
        for i in 0..10 {
            db.put(format!("{name}{i}"), "value").unwrap();
        }
        state = Some(sim::dirs::State::of(&dir).unwrap());
        db.close().unwrap();
    }
    let state = state.unwrap(); // the last one was not closed
    let logs: Vec<String> = state
        .names()
        .filter(|n| has_extension(n, "log"))
        .map(str::to_owned)
        .collect();
    assert_eq!(logs.len(), 3, "the logs are kept");
    let mut tried = 0;
    for (at, log) in logs.iter().enumerate().take(2) {
        let bytes = state.get(log).unwrap();
        let mut next = 0;
        for n in 0..10 {
            let start = next;
            next += 7 + usize::from(u16::from_le_bytes([bytes[start + 4], bytes[start + 5]]));
            let mut legacy_to_recyclable = bytes.to_vec();
            assert_eq!(legacy_to_recyclable[start + 6], 1, "type full");
            legacy_to_recyclable[start + 6] = 5;
            let damages = [
                flip(bytes, start * 8),           // checksum
                flip(bytes, (start + 4) * 8 + 3), // length
                flip(bytes, (start + 5) * 8),     // length, beyond the file
                flip(bytes, (start + 20) * 8),    // payload
                bytes[..start + 9].to_vec(),      // cut
                legacy_to_recyclable,
            ];
            for (kind, damaged) in damages.into_iter().enumerate() {
                state.with(log, damaged).restore(&dir).unwrap();
                let how = BOTH[(n + kind) % 2];
                let content = super::read(&dir, &options, how).unwrap();
                let have: Vec<&[u8]> = content[0].1.iter().map(|(k, _)| &k[..]).collect();
                let all = ["a", "b"].into_iter().take(at + 1);
                let mut want: Vec<String> = all
                    .flat_map(|name| (0..10).map(move |i| format!("{name}{i}")))
                    .collect();
                want.truncate(at * 10 + n);
                let want: Vec<&[u8]> = want.iter().map(String::as_bytes).collect();
                assert_eq!(have, want, "log {at}, record {n}, damage {kind}");
                tried += 1;
            }
        }
    }
    eprintln!("damage before another log: {tried} prefixes");
}
