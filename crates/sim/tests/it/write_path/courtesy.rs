//! The bytes of other files in the device's cache when a synced write flushes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::stats::Ticker;
use ironstone::CompressionType;
use ironstone::WalIoMode;
use sim::hooked::{Hook, HookedFs, Move, Op, Verdict};

use super::{Machine, SYNC, is_log};

/// The most bytes of other files that one flush should write.
const CARRIED_MAX: u64 = 256 << 10;

/// The least time of a synced write.
const FLUSH_TIME: Duration = Duration::from_micros(100);

/// A device with a volatile cache: a flush writes everything that was handed over to the medium.
#[derive(Debug, Default)]
struct Device(Mutex<Cache>);

#[derive(Debug, Default)]
struct Cache {
    /// For each file, the bytes that are written, and those of them that were handed over.
    files: BTreeMap<PathBuf, (u64, u64)>,
    /// Bytes that were handed over since the last flush of a synced write.
    piled: u64,
    handed_over: u64,
    /// The bytes that flushes wrote beyond [`CARRIED_MAX`].
    too_much: u64,
    flushes: u64,
}

impl Cache {
    fn pile(&mut self, bytes: u64) {
        self.piled += bytes;
        self.handed_over += bytes;
    }

    /// The pages of a file up to `end` go to the device.
    fn hand_over(&mut self, path: &Path, end: u64) {
        let (written, done) = self.files.entry(path.to_owned()).or_default();
        let more = end.min(*written).saturating_sub(*done);
        *done += more;
        self.pile(more);
    }

    fn flush(&mut self) {
        self.too_much += self.piled.saturating_sub(CARRIED_MAX);
        self.piled = 0;
        self.flushes += 1;
    }
}

impl Hook for Device {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        if op == Op::Write && is_log(path) {
            // Real devices are slower than the simulated one.
            std::thread::sleep(FLUSH_TIME);
        }
        Verdict::Go
    }

    fn moved(&self, path: &Path, what: Move) {
        let mut cache = self.0.lock().unwrap();
        match what {
            Move::Write { durable: true, .. } if is_log(path) => cache.flush(),
            Move::Write {
                len, direct: true, ..
            } => cache.pile(len),
            Move::Write { offset, len, .. } => {
                let file = cache.files.entry(path.to_owned()).or_default();
                file.0 = file.0.max(offset + len);
            }
            Move::WriteBack { offset, len } => cache.hand_over(path, offset + len),
            // A synced write that comes now has to flush all of it.
            Move::Sync => cache.hand_over(path, u64::MAX),
        }
    }
}

/// Synced puts into a new database took a millisecond and more as long as the next log's file was filled
/// with zeros: 128 MiB a second, a mebibyte at a time, and each flush of a put had to write the accumulated
/// bytes to the medium. So did puts beside a flush or a compaction, whose tables were handed over as a
/// whole by the sync at their end.
#[test]
fn no_more_than_a_few_pieces_lie_between_two_synced_writes() {
    let mut machine = Machine::new(WalIoMode::Auto);
    let device = Arc::new(Device::default());
    machine.options.env.fs = HookedFs::over(machine.disk.shared(), Arc::clone(&device) as _);
    machine.options.cf.disable_auto_compactions = false;
    machine.options.cf.level0_file_num_compaction_trigger = 3;
    machine.options.cf.compression = CompressionType::None;
    let db = machine.open();
    let cf = db.default_column_family();
    for i in 0..9_000_u64 {
        let key = (i * 7_919 % 9_000).to_be_bytes();
        db.cf(&cf).with(&SYNC).put(key, vec![i as u8; 700]).unwrap();
    }
    let hits = machine.count(Ticker::WalPrecreateHit);
    let misses = machine.count(Ticker::WalPrecreateMiss);
    // The first logs are small. After them one file is made ahead for each memtable.
    let sealed = machine.log_text().matches("flush_started").count() as u64;
    assert!(
        sealed > 4 && hits > sealed / 2 && hits + misses <= sealed + 6 && misses <= 2,
        "{sealed} memtables, {hits} logs from the pool, {misses} others"
    );
    let flushed = machine.count(Ticker::FlushWriteBytes);
    let compacted = machine.count(Ticker::CompactWriteBytes);
    assert!(
        flushed > 4 << 20 && compacted > 2 << 20,
        "{flushed}, {compacted}"
    );
    let cache = device.0.lock().unwrap();
    assert!(cache.flushes > 8_000, "{cache:?}");
    assert!(cache.handed_over > flushed + compacted, "{cache:?}");
    // On a busy machine the writing thread may be paused for so long that the filling does not wait for it.
    assert!(cache.too_much < cache.handed_over / 10, "{cache:?}");
}
