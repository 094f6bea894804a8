//! `dump-wal`'s file state, `wal-trim` and `salvage`, on torn or damaged logs, and the result in
//! real RocksDB.

use std::fs;
use std::path::{Path, PathBuf};

use io::posix::Posix;
use io::{FileSystem, OpenHow};
use ironstone::{Db, Options, WriteBatch, WriteOptions};
use tempfile::TempDir;
use tools::librocksdb::RocksDb;

use crate::ldb::{self, ironstone};
use crate::librocksdb::{library, with_each_library};

/// Keys that [`database`] puts, each in a separate synced batch.
const KEYS: u32 = 20;

fn key(n: u32) -> String {
    format!("key{n:04}")
}

/// A database in `db` whose writes are all in its log.
fn database() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let db = Db::open(root.path().join("db"), &one_log()).unwrap();
    put(&db, 1..=KEYS);
    crashed(root.path(), db);
    root
}

/// The database after a crash: all writes are there, but it was not closed.
fn crashed(root: &Path, db: Db) {
    let dir = root.join("db");
    let left = ldb::copy(&dir);
    db.close().unwrap();
    fs::remove_dir_all(&dir).unwrap();
    fs::rename(left.path().join("db"), &dir).unwrap();
}

/// Options with which a few writes stay in one log on every file system: otherwise a direct log
/// would be begun after the first groups.
fn one_log() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.wal_io_mode = ironstone::WalIoMode::Buffered;
    options
}

fn put(db: &Db, keys: impl Iterator<Item = u32>) {
    let synced = WriteOptions {
        sync: true,
        ..WriteOptions::default()
    };
    for n in keys {
        let mut batch = WriteBatch::new();
        batch.put(key(n), format!("value{n}")).unwrap();
        db.with(&synced).write(&mut batch).unwrap();
    }
}

/// The newest log that has records.
fn log_of(root: &Path) -> PathBuf {
    let db = root.join("db");
    let logs = ldb::files(&db, ".log");
    let used = |name: &&String| fs::read(db.join(name)).unwrap().iter().any(|&b| b != 0);
    db.join(logs.iter().rfind(used).unwrap())
}

/// The end of the records of an intact log. Its last byte, which belongs to a checksum, may be
/// zero.
fn end_of(log: &Path) -> usize {
    let file = Posix.open(log, OpenHow::READ).unwrap();
    let number = name(log).trim_end_matches(".log").parse().unwrap();
    let mut reader = log::Reader::new(file, number, log::ReaderOptions::default());
    let mut record = Vec::new();
    while reader.read(&mut record).unwrap() {}
    reader.end().offset() as usize
}

/// The database with a log that ends with an incomplete record.
fn torn(zeros: usize) -> (TempDir, PathBuf, usize) {
    let root = database();
    let log = log_of(root.path());
    let mut bytes = fs::read(&log).unwrap();
    let end = end_of(&log);
    bytes.truncate(end);
    // A header with a length of 300, of which 100 bytes are there.
    bytes.extend([0x11, 0x22, 0x33, 0x44, 0x2c, 0x01, 0x01]);
    bytes.extend([0x55; 100]);
    bytes.resize(bytes.len() + zeros, 0);
    fs::write(&log, &bytes).unwrap();
    (root, log, end)
}

fn ironstone_keys(root: &Path) -> Vec<u32> {
    let db = Db::open(root.join("db"), &Options::default()).unwrap();
    let found = (1..=2 * KEYS)
        .filter(|&n| db.get(key(n)).unwrap().is_some())
        .collect();
    db.close().unwrap();
    found
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn the_state_of_a_log_is_shown() {
    let root = database();
    let log = log_of(root.path());
    let args = ["dump-wal", log.to_str().unwrap()];
    let ran = ironstone(root.path(), &args);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let number = name(&log).trim_end_matches(".log").parse::<u64>().unwrap();
    for line in [
        &format!("FENCE(log {number}: durable through "),
        "file state of ",
        "how it ends   clean: nothing follows",
        "records       legacy",
        "compression   none",
        "durable through ",
        "verdict       sound\n",
    ] {
        assert!(ran.stdout.contains(line), "{line}: {}", ran.stdout);
    }
    assert!(ran.stdout.contains("key0001") || ran.stdout.contains("0x6B657930303031"));
    // ldb's name, ldb's output.
    let old = ironstone(root.path(), &["dump_wal", args[1]]);
    assert!(!old.stdout.contains("FENCE") && !old.stdout.contains("file state"));
    assert_eq!(old.stdout.lines().count(), KEYS as usize);
}

#[test]
fn states_are_told_apart() {
    let state = |log: &Path, flags: &[&str]| {
        let args = [&["dump-wal", log.to_str().unwrap()], flags].concat();
        let ran = ironstone(Path::new("."), &args);
        (ran.code, ran.stdout)
    };
    let (_root, log, _) = torn(4096);
    let (code, text) = state(&log, &[]);
    assert_eq!(code, 1, "a torn record was skipped: {text}");
    assert!(text.contains("torn: checksum mismatch"), "{text}");
    assert!(text.contains("ironstone wal-trim "), "{text}");

    let (_root, log, end) = torn(1 << 20);
    let mut bytes = fs::read(&log).unwrap();
    bytes[end..].fill(0);
    bytes.resize(1 << 20, 0);
    fs::write(&log, &bytes).unwrap();
    let (code, text) = state(&log, &["--physical"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("zero tail: "), "{text}");
    assert!(text.contains("pre-zeroed    yes"), "{text}");
    assert!(text.contains("verdict       sound"), "{text}");

    bytes[40] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let (code, text) = state(&log, &[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("verdict       damaged: Corruption"), "{text}");
    assert!(text.contains("ironstone salvage --db="), "{text}");

    let dir = tempfile::tempdir().unwrap();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../log/tests/data");
    let log = dir.path().join("000004.log");
    fs::copy(Path::new(data).join("compressed-recyclable.log"), &log).unwrap();
    let (code, text) = state(&log, &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("compression   zstd"), "{text}");
    assert!(text.contains("records       recyclable"), "{text}");
    assert!(text.contains("FILLER(3 bytes)"), "{text}");
}

#[test]
fn a_torn_tail_is_trimmed_only_when_told() {
    for (flags, zeros, len) in [
        (&[][..], 0, None),
        (&[], 4096, None),
        (&["--zero"], 4096, Some(4096 + 107)),
        (&["--no-backup"], 100_000, None),
    ] {
        let (root, log, end) = torn(zeros);
        let before = fs::read(&log).unwrap();
        let args = [&["wal-trim", log.to_str().unwrap()], flags].concat();
        let ran = ironstone(root.path(), &args);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(
            ran.stdout.contains(&format!("torn at offset {end}")),
            "{ran:?}"
        );
        assert!(
            ran.stdout.ends_with("Repeat with --yes to do this.\n"),
            "{ran:?}"
        );
        assert_eq!(fs::read(&log).unwrap(), before);
        let kept = log.with_extension("log.trimmed");
        assert!(!kept.exists());

        let ran = ironstone(root.path(), &[&args[..], &["--yes"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let after = fs::read(&log).unwrap();
        assert_eq!(after.len(), end + len.unwrap_or(0));
        assert_eq!(after[..end], before[..end]);
        assert!(after[end..].iter().all(|&b| b == 0));
        if flags == ["--no-backup"] {
            assert!(!kept.exists());
        } else {
            assert_eq!(fs::read(&kept).unwrap(), before[end..end + 107]);
        }
        let again = ironstone(root.path(), &args);
        assert_eq!(again.code, 0, "{again:?}");
        assert!(again.stdout.ends_with("nothing to trim\n"), "{again:?}");
        assert_eq!(ironstone_keys(root.path()), (1..=KEYS).collect::<Vec<_>>());
    }
}

#[test]
fn trim_refuses_what_is_no_torn_tail() {
    let refused = |root: &Path, args: &[&str], says: &str| {
        let ran = ironstone(root, args);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.contains(says), "{says}: {ran:?}");
        ran
    };
    // Damage below a fence of the log itself.
    let root = database();
    let log = log_of(root.path());
    let mut bytes = fs::read(&log).unwrap();
    bytes[40] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let ran = refused(root.path(), &["--db=db", "wal-trim", "--yes"], "durable");
    assert!(ran.stderr.contains("ironstone salvage --db="), "{ran:?}");
    assert_eq!(fs::read(&log).unwrap(), bytes);
    // A name that says no number.
    let other = root.path().join("copy");
    fs::copy(&log, &other).unwrap();
    refused(root.path(), &["wal-trim", "copy"], "not the name of a log");
    refused(root.path(), &["wal-trim", "000099.log"], "no such file");
    refused(root.path(), &["wal-trim", "--db=none"], "not a database");
    // A database that is open.
    let (root, _, _) = torn(512);
    let db = Db::open(root.path().join("db"), &Options::default()).unwrap();
    let active = ldb::files(&root.path().join("db"), ".log").pop().unwrap();
    let (dir, file) = ("--db=db", &*format!("db/{active}"));
    refused(root.path(), &["wal-trim", dir], "lock");
    refused(root.path(), &["wal-trim", file], "lock");
    refused(root.path(), &["salvage", dir], "lock");
    db.close().unwrap();
}

/// Two logs: the second says where the first ended.
fn two_logs() -> (TempDir, PathBuf, PathBuf) {
    let root = database();
    let first = log_of(root.path());
    let number: u64 = name(&first).trim_end_matches(".log").parse().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(key(KEYS + 1), "value").unwrap();
    batch.set_sequence(u64::from(KEYS) + 1);
    let fence = log::Fence {
        log_number: number + 1,
        durable: 0,
        previous_log: number,
        previous_end: fs::metadata(&first).unwrap().len(),
        nonce: 0,
    };
    batch.put_log_data(&fence.encode()).unwrap();
    let second = first.with_file_name(format!("{:06}.log", number + 1));
    let mut new = log::salvage::Rewrite::create(&io::posix::Posix, &second, 0x0d).unwrap();
    new.append(batch.data()).unwrap();
    new.finish(0).unwrap();
    (root, first, second)
}

#[test]
fn a_later_log_tells_that_a_log_was_durable() {
    let (root, first, second) = two_logs();
    let bytes = fs::read(&first).unwrap();
    // The last record is gone: nothing in this log tells.
    fs::write(&first, &bytes[..bytes.len() - 40]).unwrap();
    let ran = ironstone(root.path(), &["wal-trim", first.to_str().unwrap()]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("says that it was durable"), "{ran:?}");
    let ran = ironstone(root.path(), &["salvage", "--db=db"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stdout.contains("missing: sequence number 20\n"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("PUT(0) : 0x6B657930303230"), "{ran:?}");
    for log in [&first, &second] {
        let says = format!("would rewrite db/{}", name(log));
        assert!(ran.stdout.contains(&says), "{says}: {ran:?}");
    }
    let ran = ironstone(root.path(), &["salvage", "--db=db", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let expected: Vec<u32> = (1..=KEYS + 1).filter(|n| *n != 20).collect();
    assert_eq!(ironstone_keys(root.path()), expected);
}

#[test]
fn a_hole_between_logs_is_not_hidden() {
    let (root, first, second) = two_logs();
    // The second log's note is gone, and so is the end of the first.
    let mut batch = WriteBatch::new();
    batch.put(key(KEYS + 1), "value").unwrap();
    batch.set_sequence(u64::from(KEYS) + 1);
    let mut new = log::salvage::Rewrite::create(&io::posix::Posix, &second, 0x0d).unwrap();
    new.append(batch.data()).unwrap();
    new.finish(0).unwrap();
    let bytes = fs::read(&first).unwrap();
    fs::write(&first, &bytes[..bytes.len() - 40]).unwrap();
    let ran = ironstone(root.path(), &["wal-trim", first.to_str().unwrap(), "--yes"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("goes on with 21"), "{ran:?}");
    let ran = ironstone(root.path(), &["salvage", "--db=db", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.contains("missing: sequence number 20\n"),
        "{ran:?}"
    );
    assert_eq!(ironstone_keys(root.path()).len(), KEYS as usize);
}

#[test]
fn salvage_keeps_all_but_what_it_lists() {
    let root = database();
    let log = log_of(root.path());
    let sound = fs::read(&log).unwrap();
    let each = sound.len() / KEYS as usize;
    for place in [each / 2, sound.len() / 2, sound.len() - 3 * each / 2] {
        for bit in [0, 5] {
            let root = ldb::copy(&root.path().join("db"));
            let log = root.path().join("db").join(name(&log));
            let mut bytes = sound.clone();
            bytes[place] ^= 1 << bit;
            fs::write(&log, &bytes).unwrap();
            let lost = salvaged(&root, &log, &bytes);
            let rest: Vec<u32> = (1..=KEYS).filter(|n| !lost.contains(n)).collect();
            assert_eq!(lost.len(), 1, "offset {place}");
            assert_eq!(ironstone_keys(root.path()), rest, "offset {place}");
        }
    }
}

/// For any damage to a log of several blocks: either the database opens and has lost only what a
/// crash may lose, or salvage lists exactly the sequence numbers that are then missing.
#[test]
fn random_damage_is_listed_exactly() {
    let root = tempfile::tempdir().unwrap();
    let db = Db::open(root.path().join("db"), &one_log()).unwrap();
    let count = 120;
    let synced = WriteOptions {
        sync: true,
        ..WriteOptions::default()
    };
    for n in 1..=count {
        let mut batch = WriteBatch::new();
        let value = vec![n as u8; (n as usize * 37) % 1800];
        batch.put(key(n), value).unwrap();
        db.with(&synced).write(&mut batch).unwrap();
    }
    crashed(root.path(), db);
    let log = log_of(root.path());
    let sound = fs::read(&log).unwrap();
    let end = end_of(&log);
    assert!(end > 3 * log::format::BLOCK);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let mut salvaged = 0;
    for case in 0..40 {
        let mut bytes = sound.clone();
        let at = random(end);
        match case % 4 {
            0 => bytes[at] ^= 1 << random(8),
            1 => {
                let at = at / 512 * 512;
                let to = (at + 512 * (1 + random(4))).min(end);
                bytes[at..to].fill(0);
            }
            2 => {
                let from = at / log::format::BLOCK * log::format::BLOCK;
                let to = (from + log::format::BLOCK).min(end);
                bytes[from..to].fill(0);
            }
            _ => {
                for _ in 0..3 {
                    bytes[random(end)] ^= 1 << random(8);
                }
            }
        }
        let root = ldb::copy(&root.path().join("db"));
        fs::write(root.path().join("db").join(name(&log)), &bytes).unwrap();
        salvaged += u32::from(listed_exactly(root.path(), count, case));
    }
    assert!(salvaged > 30, "{salvaged}");
}

/// Salvages if necessary; returns true if it was.
fn listed_exactly(root: &Path, count: u32, case: u32) -> bool {
    let ran = ironstone(root, &["--db=db", "salvage", "--yes"]);
    assert_eq!(ran.code, 0, "case {case}: {ran:?}");
    let mut listed = Vec::new();
    for line in ran.stdout.lines() {
        let Some(rest) = line.strip_prefix("  missing: sequence number") else {
            continue;
        };
        let rest = rest.strip_prefix('s').unwrap_or(rest).trim();
        let (first, last) = rest.split_once(" to ").unwrap_or((rest, rest));
        listed.extend(first.parse::<u32>().unwrap()..=last.parse().unwrap());
    }
    let db = Db::open(root.join("db"), &Options::default()).unwrap();
    let gone: Vec<u32> = (1..=count)
        .filter(|&n| db.get(key(n)).unwrap().is_none())
        .collect();
    db.close().unwrap();
    let last_kept = (1..=count).rfind(|n| !gone.contains(n)).unwrap_or(0);
    let before: Vec<u32> = gone.iter().copied().filter(|n| *n < last_kept).collect();
    assert_eq!(before, listed, "case {case}: {}", ran.stdout);
    let torn = ran.stdout.contains("torn tail, no damage");
    let behind = gone.len() - before.len();
    assert!(
        behind == 0 || torn || ran.stdout.contains("was durable through"),
        "case {case}: {behind} keys at the end: {}",
        ran.stdout
    );
    !ran.stdout.contains("nothing to salvage")
}

/// Salvages, and returns the sequence numbers listed as missing.
fn salvaged(root: &TempDir, log: &Path, damaged: &[u8]) -> Vec<u32> {
    let e = Db::open(root.path().join("db"), &Options::default()).unwrap_err();
    assert!(e.is_corruption(), "{e}");
    let listed = ironstone(root.path(), &["--db=db", "salvage"]);
    assert_eq!(listed.code, 1, "{listed:?}");
    assert!(listed.stdout.contains("  lost: "), "{listed:?}");
    assert!(listed.stdout.ends_with("Repeat with --yes to do this.\n"));
    assert_eq!(fs::read(log).unwrap(), damaged);
    let ran = ironstone(root.path(), &["--db=db", "salvage", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.ends_with("db was salvaged, and opens.\n"),
        "{ran:?}"
    );
    let kept = log.with_extension("log.damaged");
    assert_eq!(fs::read(kept).unwrap(), damaged);
    let again = ironstone(root.path(), &["--db=db", "salvage"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.stdout.contains("nothing to salvage"), "{again:?}");
    let numbers = listed
        .stdout
        .lines()
        .filter_map(|l| l.strip_prefix("  missing: sequence number "));
    numbers.map(|n| n.parse().unwrap()).collect()
}

/// A clean close records the end of the log in the MANIFEST: then no end before it is a torn tail.
#[test]
fn the_lost_end_of_a_closed_database_is_no_torn_tail() {
    for cut in [40, usize::MAX] {
        let root = database();
        let db = Db::open(root.path().join("db"), &one_log()).unwrap();
        put(&db, KEYS + 1..=KEYS + 5);
        db.close().unwrap();
        let log = log_of(root.path());
        let bytes = fs::read(&log).unwrap();
        let left = bytes.len().saturating_sub(cut);
        fs::write(&log, &bytes[..left]).unwrap();
        let e = Db::open(root.path().join("db"), &Options::default()).unwrap_err();
        assert!(e.is_corruption(), "{e}");
        let ran = ironstone(root.path(), &["wal-trim", "--db=db", "--yes"]);
        assert!(ran.code == 1 || left == 0, "{ran:?}");
        let ran = ironstone(root.path(), &["salvage", "--db=db", "--yes"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stdout.contains("the MANIFEST says that"), "{ran:?}");
        let kept = if left == 0 { KEYS } else { KEYS + 4 };
        assert_eq!(ironstone_keys(root.path()), (1..=kept).collect::<Vec<_>>());
    }
}

#[test]
fn a_salvaged_copy_leaves_the_database_as_it_is() {
    let root = database();
    let db = root.path().join("db");
    ironstone(root.path(), &["--db=db", "compact"]);
    let open = Db::open(&db, &one_log()).unwrap();
    put(&open, KEYS + 1..=2 * KEYS);
    open.close().unwrap();
    let log = log_of(root.path());
    let mut bytes = fs::read(&log).unwrap();
    bytes[40] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let names = ldb::files(&db, "");
    let args = ["--db=db", "salvage", "--to=new", "--yes"];
    let ran = ironstone(root.path(), &args);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ldb::files(&db, ""), names);
    assert_eq!(fs::read(&log).unwrap(), bytes);
    let new = Db::open(root.path().join("new"), &Options::default()).unwrap();
    let missing: Vec<u32> = (1..=2 * KEYS)
        .filter(|&n| new.get(key(n)).unwrap().is_none())
        .collect();
    assert_eq!(missing, [KEYS + 1]);
    new.close().unwrap();
    let again = ironstone(root.path(), &args);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stderr.contains("not empty"), "{again:?}");
}

#[test]
fn a_sound_database_has_nothing_to_repair() {
    let root = database();
    for command in ["salvage", "wal-trim"] {
        let ran = ironstone(root.path(), &["--db=db", command, "--yes"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stdout.contains("nothing to"), "{ran:?}");
    }
    // A torn tail is none of salvage's business.
    let (root, _, _) = torn(512);
    let ran = ironstone(root.path(), &["--db=db", "salvage", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.contains("torn tail, no damage: 107 bytes"),
        "{ran:?}"
    );
}

#[test]
fn rocksdb_opens_what_was_repaired() {
    with_each_library("repair::with_library::");
}

/// Run by the test above, one process for each library.
mod with_library {
    use super::*;

    #[test]
    fn strict_modes_refuse_a_torn_tail_and_open_the_trimmed_log() {
        let Some(lib) = library() else { return };
        for flags in [&[][..], &["--zero"]] {
            for mode in [0, 1] {
                let (root, _, _) = torn(4096);
                let db = root.path().join("db");
                let mut options = lib.options();
                options.wal_recovery_mode(mode);
                assert!(RocksDb::open(&options, &db).is_err(), "mode {mode}");
                let args = [&["--db=db", "wal-trim", "--yes"], flags].concat();
                let ran = ironstone(root.path(), &args);
                assert_eq!(ran.code, 0, "{ran:?}");
                let open = RocksDb::open(&options, &db).unwrap();
                for n in 1..=KEYS {
                    assert!(open.get(key(n).as_bytes()).unwrap().is_some(), "{n}");
                }
            }
        }
    }

    #[test]
    fn a_salvaged_database_opens_in_every_mode() {
        let Some(lib) = library() else { return };
        for mode in 0..4 {
            let root = database();
            let db = root.path().join("db");
            let log = log_of(root.path());
            let mut bytes = fs::read(&log).unwrap();
            let place = bytes.len() / 2;
            bytes[place] ^= 4;
            fs::write(&log, &bytes).unwrap();
            let lost = salvaged(&root, &log, &bytes);
            let mut options = lib.options();
            options.wal_recovery_mode(mode);
            let open = RocksDb::open(&options, &db).unwrap();
            for n in 1..=KEYS {
                let there = open.get(key(n).as_bytes()).unwrap().is_some();
                assert_eq!(there, !lost.contains(&n), "mode {mode}, {n}");
            }
        }
    }
}
