//! Damaged logs: bits flipped, every sector zeroed, cut at every record, each closed log removed. Either
//! the open is refused with Corruption that names file and offset, or nothing below the last fence is lost
//! and the content is a prefix of the writes.
//!
//! RocksDB opens a sample of the same damage, for comparison. `IRONSTONE_ROT_STRIDE=1` flips every bit; by
//! default one in seven is flipped, to save time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ironstone::{Db, Env, Options, WriteOptions};
use log::{Chain, End, Reader, ReaderOptions, Secrets, fence, note};
use sim::dirs::{self, State};
use sim::frozen::{self, Frozen};
use sim::oracle::{self, RocksDb};

pub(crate) const PUTS: u64 = 300;
const SECTOR: usize = 512;

/// Which puts are synced.
pub(crate) type Synced = fn(u64) -> bool;

/// A record of one put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put {
    /// The log that has it.
    pub(crate) log: usize,
    /// The offset of its end there.
    pub(crate) end: u64,
}

/// A database whose puts are all in logs.
pub(crate) struct Logs {
    pub(crate) state: State,
    pub(crate) frozen: Frozen,
    /// Names and numbers of the logs, oldest first.
    pub(crate) names: Vec<(String, u64)>,
    /// The puts in the order of their sequence numbers.
    pub(crate) puts: Vec<Put>,
}

impl Logs {
    /// `PUTS` puts of 100 bytes in `logs` logs, the last of which is not closed.
    pub(crate) fn write(logs: u64, synced: Synced) -> Self {
        Self::write_and(logs, synced, false)
    }

    /// The same; with `closed` the last one is closed cleanly too.
    fn write_and(logs: u64, synced: Synced, closed: bool) -> Self {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        let mut options = Options::default();
        options.db.create_if_missing = true;
        options.db.avoid_flush_during_recovery = true;
        let (mut n, mut state) = (0, None);
        for log in 1..=logs {
            let db = Db::open(&dir, &options).unwrap();
            while n < PUTS * log / logs {
                let sync = WriteOptions {
                    sync: synced(n),
                    ..WriteOptions::default()
                };
                n += 1;
                let cf = db.default_column_family();
                let value = [n as u8; 100];
                db.cf(&cf)
                    .with(&sync)
                    .put(format!("key{n:06}"), value)
                    .unwrap();
            }
            // Not closed cleanly: the state after a power cut that lost nothing.
            state = Some(State::of(&dir).unwrap());
            db.close().unwrap();
        }
        let state = if closed {
            State::of(&dir).unwrap()
        } else {
            state.unwrap()
        };
        Self::of(state, logs as usize)
    }

    fn of(state: State, logs: usize) -> Self {
        let number = |n: &str| Some((n.to_owned(), n.strip_suffix(".log")?.parse().ok()?));
        let mut me = Self {
            frozen: Frozen::of(&state),
            names: state.names().filter_map(number).collect(),
            puts: Vec::new(),
            state,
        };
        me.names
            .retain(|(name, _)| me.state.get(name).is_some_and(|b| !b.is_empty()));
        assert_eq!(me.names.len(), logs);
        for log in 0..logs {
            let mut reader = me.reader(&me.frozen, log);
            let mut record = Vec::new();
            while reader.read(&mut record).unwrap() {
                let end = reader.end().offset();
                me.puts.push(Put { log, end });
            }
        }
        assert_eq!(me.puts.len() as u64, PUTS);
        me
    }

    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        self.state.get(name).unwrap()
    }

    fn reader(&self, fs: &Frozen, log: usize) -> Reader {
        let (name, number) = &self.names[log];
        Reader::new(fs.file(name).unwrap(), *number, ReaderOptions::default())
    }

    /// The number of puts that the remaining fences prove to be durable.
    fn proven(&self, fs: &Frozen) -> u64 {
        let mut proven = 0;
        let mut all_of = None;
        for (log, (name, number)) in self.names.iter().enumerate().rev() {
            let fence = fs.file(name).ok().and_then(|f| {
                let trust = note::trust(&f, *number, None).unwrap();
                fence::strongest(&f, *number, 0, trust).unwrap()
            });
            let durable = all_of.or(fence.map(|f| f.durable)).unwrap_or(0);
            let below = |p: &&Put| p.log == log && p.end <= durable;
            proven += self.puts.iter().filter(below).count() as u64;
            if fence.is_some() || all_of.is_some() {
                all_of = Some(u64::MAX);
            }
        }
        proven
    }
}

/// What became of damaged databases.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    refused: AtomicUsize,
    nothing_lost: AtomicUsize,
    above_the_fences: AtomicUsize,
}

fn add(n: &AtomicUsize) {
    n.fetch_add(1, Ordering::Relaxed);
}

impl Tally {
    pub(crate) fn print(&self, what: &str) {
        eprintln!(
            "{what}: {:?} refused, {:?} lost nothing, {:?} lost only what no fence covers",
            self.refused, self.nothing_lost, self.above_the_fences
        );
    }

    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

pub(crate) fn options(fs: Frozen) -> Options {
    let mut o = Options {
        env: Env {
            fs: Arc::new(fs),
            ..Env::default()
        },
        ..Options::default()
    };
    o.cf.write_buffer_size = 1 << 20;
    o.cf.arena_block_size = 64 << 10;
    o.cf.table.no_block_cache = true;
    o
}

/// Opens the database and checks the result; `floor` is the number of puts that must be there.
pub(crate) fn open_and_judge(fs: Frozen, floor: u64, what: &str, tally: &Tally) {
    match Db::open_read_only(frozen::DIR, &options(fs)) {
        Err(e) => {
            assert!(e.is_corruption(), "{what}: {e}");
            let named = e.path().is_some_and(|p| p.starts_with(frozen::DIR));
            assert!(named && e.at().is_some(), "{what}: names no place: {e}");
            add(&tally.refused);
        }
        Ok(db) => {
            let entries = db.property("rocksdb.num-entries-active-mem-table");
            let found: u64 = entries.unwrap().parse().unwrap();
            assert!(found >= floor, "{what}: {found} of {floor} synced puts");
            // The number of keys and the last key are right: these are the first puts.
            let mut it = db.iterator().unwrap();
            it.seek_to_last();
            let last = (found > 0).then(|| format!("key{found:06}").into_bytes());
            let have = it.valid().then(|| it.key().to_vec());
            assert_eq!(have, last, "{what}: no prefix");
            add(if found == PUTS {
                &tally.nothing_lost
            } else {
                &tally.above_the_fences
            });
        }
    }
}

/// Runs `f` with every number below `n`, on two threads.
fn all(n: usize, f: impl Fn(usize) + Sync) {
    std::thread::scope(|s| {
        for half in 0..2 {
            let f = &f;
            s.spawn(move || (half..n).step_by(2).for_each(f));
        }
    });
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[bit / 8] ^= 1 << (bit % 8);
    out
}

/// The result of the log crate's rules for the logs: the number of puts found. The engine's recovery has
/// the same rules; it runs for a part of the damage only, because it takes longer.
fn by_the_rules(logs: &Logs, fs: &Frozen) -> base::Result<u64> {
    let there = logs.names.iter().filter_map(|(name, number)| {
        let file = fs.file(name).ok()?;
        Some((*number, file))
    });
    let chain = Chain::read(there, &Secrets::default())?;
    let options = ReaderOptions {
        fences: true,
        ..ReaderOptions::default()
    };
    let mut found = 0;
    let mut record = Vec::new();
    for stage in chain.stages(1) {
        let file = stage.file.expect("no log is removed here");
        let path = file.path().to_owned();
        let mut reader = Reader::new(file, stage.number, options);
        reader = reader.ending_at(stage.end.unwrap_or(u64::MAX));
        while reader.read(&mut record)? {
            found += 1;
        }
        let end = reader.end().offset();
        if stage.end.is_some_and(|noted| end < noted) {
            return match chain.proof(stage.number)? {
                Some(_) => Err(base::Error::corruption("short").file(path).offset(end)),
                None => Ok(found),
            };
        }
        if matches!(reader.end(), End::Torn { .. }) {
            break;
        }
    }
    Ok(found)
}

/// The engine itself opens the database for one flipped bit in so many.
const ENGINE_STRIDE: usize = 41;

/// The environment variable that, set to 1, flips every bit; by default one in [`STRIDE`] is flipped.
const STRIDE_VARIABLE: &str = "IRONSTONE_ROT_STRIDE";
/// Not a divisor of a byte's bits: every bit of every field is flipped somewhere.
const STRIDE: usize = 7;

fn every_bit(what: &str, logs: &Logs) -> Tally {
    let (tally, engine) = (Tally::default(), Tally::default());
    let floor = logs.proven(&logs.frozen);
    let stride = std::env::var(STRIDE_VARIABLE).ok();
    let stride = stride.and_then(|s| s.parse().ok()).unwrap_or(STRIDE);
    for (name, _) in &logs.names {
        let bytes = logs.bytes(name);
        all((bytes.len() * 8).div_ceil(stride), |i| {
            let bit = i * stride;
            let fs = logs.frozen.with(name, flipped(bytes, bit));
            match by_the_rules(logs, &fs) {
                Err(e) => {
                    let place = e.path().is_some() && e.at().is_some();
                    assert!(e.is_corruption() && place, "{what}, bit {bit}: {e}");
                    add(&tally.refused);
                }
                Ok(PUTS) => add(&tally.nothing_lost),
                Ok(found) => {
                    assert!(found >= floor, "{what}, bit {bit} of {name}: {found}");
                    add(&tally.above_the_fences);
                }
            }
            if i % ENGINE_STRIDE == 0 {
                let what = format!("{what}, bit {bit} of {name}");
                open_and_judge(fs, floor, &what, &engine);
            }
        });
    }
    tally.print(&format!(
        "{what}, one bit in {stride}, {floor} puts below fences"
    ));
    engine.print(&format!(
        "{what}, one bit in {}, opened",
        stride * ENGINE_STRIDE
    ));
    tally
}

#[test]
fn no_flipped_bit_of_a_synced_log_loses_what_a_fence_covers() {
    let logs = Logs::write(1, |_| true);
    assert_eq!(logs.proven(&logs.frozen), PUTS - 1);
    let tally = every_bit("one log", &logs);
    assert!(tally.refused() > 400_000 / STRIDE);
}

#[test]
fn no_flipped_bit_of_three_logs_loses_what_a_fence_covers() {
    let logs = Logs::write(3, |n| n % 3 == 0);
    assert!(logs.proven(&logs.frozen) > 290);
    let tally = every_bit("three logs", &logs);
    assert!(tally.refused() > 300_000 / STRIDE);
}

/// No fence covers anything; the content must still be a prefix.
#[test]
fn no_flipped_bit_of_unsynced_logs_leaves_a_hole() {
    let logs = Logs::write(3, |_| false);
    let tally = Tally::default();
    for (log, (name, _)) in logs.names.iter().enumerate() {
        let bytes = logs.bytes(name);
        let first = logs.puts.iter().find(|p| p.log == log).unwrap().end as usize;
        all(bytes.len() * 8, |bit| {
            // The first record may be taken for another log's.
            if bit % ENGINE_STRIDE == 0 || bit < first * 8 {
                let fs = logs.frozen.with(name, flipped(bytes, bit));
                open_and_judge(fs, 0, &format!("bit {bit} of {name}"), &tally);
            }
        });
    }
    tally.print("three unsynced logs, bits of each first record and some of the others");
}

/// Three databases: all synced, some synced, none synced.
fn three() -> [(&'static str, Logs); 3] {
    [
        ("one log, synced", Logs::write(1, |_| true)),
        ("three logs, mixed", Logs::write(3, |n| n % 3 == 0)),
        ("three logs, unsynced", Logs::write(3, |_| false)),
    ]
}

#[test]
fn no_zeroed_sector_loses_what_a_fence_covers() {
    for (what, logs) in three() {
        let tally = Tally::default();
        for (name, _) in &logs.names {
            let bytes = logs.bytes(name);
            all(bytes.len().div_ceil(SECTOR), |sector| {
                let mut zeroed = bytes.to_vec();
                let to = bytes.len().min((sector + 1) * SECTOR);
                zeroed[sector * SECTOR..to].fill(0);
                let fs = logs.frozen.with(name, zeroed);
                let floor = logs.proven(&fs);
                let what = format!("{what}, sector {sector} of {name}");
                open_and_judge(fs, floor, &what, &tally);
            });
        }
        tally.print(&format!("{what}, zeroed sectors"));
    }
}

/// Logs cut at every record, and at every byte of the last three records. A cut in a log whose successor
/// has a fence is always noticed.
#[test]
fn no_cut_log_loses_what_a_fence_covers() {
    for (what, logs) in three() {
        let tally = Tally::default();
        for (log, (name, _)) in logs.names.iter().enumerate() {
            let bytes = logs.bytes(name);
            let of_log = logs.puts.iter().filter(|p| p.log == log);
            let ends: Vec<usize> = of_log.map(|p| p.end as usize).collect();
            let last_three = ends[ends.len() - 4]..bytes.len();
            let mut cuts: Vec<usize> = [0].into_iter().chain(ends).chain(last_three).collect();
            cuts.retain(|&c| c < bytes.len());
            let before = tally.refused();
            all(cuts.len(), |i| {
                let fs = logs.frozen.with(name, bytes[..cuts[i]].to_vec());
                let floor = logs.proven(&fs);
                let what = format!("{what}, {name} cut at {}", cuts[i]);
                open_and_judge(fs, floor, &what, &tally);
            });
            if what.ends_with("mixed") && log < 2 {
                assert_eq!(tally.refused() - before, cuts.len(), "{name}");
            }
        }
        tally.print(&format!("{what}, cut"));
    }
}

/// A database was closed and copied, and the end of its last log was lost on the way: every cut at a
/// record's end opened without an error. The MANIFEST has held the end since.
#[test]
fn no_cut_of_a_closed_databases_last_log_is_silent() {
    let some: Synced = |n| n % 3 == 0;
    for (count, synced) in [(1, some), (1, |_| false), (3, |_| false)] {
        let logs = Logs::write_and(count, synced, true);
        let tally = Tally::default();
        open_and_judge(logs.frozen.clone(), PUTS, "uncut", &tally);
        assert_eq!(tally.refused(), 0);
        let mut damaged = Vec::new();
        for (log, (name, _)) in logs.names.iter().enumerate() {
            let bytes = logs.bytes(name);
            let of_log = logs.puts.iter().filter(|p| p.log == log);
            // The last put of a log ends where the log does.
            let ends: Vec<usize> = of_log.map(|p| p.end as usize).collect();
            for &end in [0].iter().chain(&ends[..ends.len() - 1]) {
                damaged.push((
                    format!("{name} cut at {end}"),
                    logs.frozen.with(name, &bytes[..end]),
                ));
                let mut zeroed = bytes.to_vec();
                zeroed[end..].fill(0);
                damaged.push((
                    format!("{name} zeroed from {end}"),
                    logs.frozen.with(name, zeroed),
                ));
            }
            damaged.push((format!("without {name}"), logs.frozen.without(name)));
        }
        all(damaged.len(), |i| {
            let (what, fs) = &damaged[i];
            open_and_judge(fs.clone(), PUTS, what, &tally);
        });
        assert_eq!(tally.refused(), damaged.len(), "{count} logs");
        tally.print("closed cleanly, cut");
    }
}

#[test]
fn no_closed_log_is_missed_in_silence() {
    for (what, logs) in three() {
        let tally = Tally::default();
        for (log, (name, _)) in logs.names.iter().enumerate() {
            let fs = logs.frozen.without(name);
            let floor = if log + 1 < logs.names.len() {
                logs.proven(&fs)
            } else {
                0
            };
            open_and_judge(fs, floor, &format!("{what} without {name}"), &tally);
        }
        tally.print(&format!("{what}, a log removed"));
        let refused = if what.ends_with("mixed") { 2 } else { 0 };
        assert_eq!(tally.refused(), refused, "{what}");
    }
}

/// RocksDB opens the database with the same flipped bits, and has lost writes that a fence covers.
#[test]
fn real_rocksdb_loses_synced_writes_in_silence() {
    let Some(lib) = oracle::rocksdb() else { return };
    let logs = Logs::write(1, |_| true);
    let (name, _) = &logs.names[0];
    let bytes = logs.bytes(name);
    let temp = dirs::scratch().unwrap();
    let read = |state: &State| -> base::Result<u64> {
        state.restore(temp.path())?;
        let db = RocksDb::open_read_only(&lib.options(), temp.path())?;
        Ok(db.iterator().collect_all()?.len() as u64)
    };
    // In an undamaged log, RocksDB ignores notes and fences.
    assert_eq!(read(&logs.state).unwrap(), PUTS);
    let (mut lost, mut refused, mut opened) = (0, 0, 0);
    for bit in (0..bytes.len() * 8).step_by(bytes.len() * 8 / 200) {
        match read(&logs.state.with(name, flipped(bytes, bit))) {
            Ok(found) if found < PUTS - 1 => lost += 1,
            Ok(_) => opened += 1,
            Err(_) => refused += 1,
        }
    }
    eprintln!(
        "RocksDB {}: of 200 flipped bits {lost} lost synced puts in silence, {refused} were \
         refused, {opened} lost nothing below the last",
        lib.version().unwrap()
    );
    assert!(lost > 100);
}
