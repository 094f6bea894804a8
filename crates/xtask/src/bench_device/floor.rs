//! The device's own floor: what a durable 4 KiB write costs without any engine.
//!
//! A file is filled with zeros once and then overwritten block by block with `O_DIRECT` and
//! `RWF_DSYNC`: nothing is allocated, no metadata changes, one write is in flight. The kernel makes
//! of each a write with FUA, or a write and a flush, or a write alone, as the device needs it.

use std::path::Path;

use base::clock::Clock;
use io::{AlignedBuf, FileSystem, OpenHow, SyncKind, WriteSync};

use super::run::{Figures, Jobs};
use super::stat::{Counters, Each, Stat};

/// Bytes of a write; more where the device's own block is larger.
const BLOCK: u32 = 4096;

/// Blocks of the file; the writes go round in it.
const BLOCKS: u64 = 4096;

/// Raw writes: the time of each, and what one cost the device.
pub(crate) struct Floor {
    nanos: Vec<u64>,
    each: Each,
}

impl Floor {
    /// Both together.
    pub(crate) fn with(mut self, other: Self) -> Self {
        let share = self.nanos.len() as f64 / (self.nanos.len() + other.nanos.len()).max(1) as f64;
        self.each = self.each.mixed(share, other.each);
        self.nanos.extend(other.nanos);
        self
    }

    pub(crate) fn figures(&self) -> Figures {
        figures(&mut self.nanos.clone(), self.each)
    }
}

/// Measures `writes` writes on the file system at `mount`, for at most `seconds`.
pub(crate) fn measure(
    mount: &Path,
    counters: &Counters,
    writes: u64,
    seconds: u64,
    clock: &dyn Clock,
) -> Result<Floor, String> {
    let path = mount.join("floor");
    let mut nanos = Vec::new();
    let fs = io::posix::Posix::shared();
    prepare(&*fs, mount, &path).map_err(|e| e.to_string())?;
    let mut before = counters.read()?;
    let run = |before: &mut Stat, nanos: &mut Vec<u64>| -> Result<(), String> {
        let text = |e: base::Error| e.to_string();
        let block = block_size(&*fs, mount).map_err(text)?;
        let mut data = AlignedBuf::zeroed(block, block).map_err(text)?;
        let file = fs.open(&path, OpenHow::UPDATE.direct()).map_err(text)?;
        *before = counters.read()?;
        let begun = clock.monotonic_nanos();
        let mut last = begun;
        for i in 0..writes {
            data.fill(i as u8 | 1);
            let offset = i % BLOCKS * block as u64;
            io::write_all_at(&*file, &data, offset, WriteSync::Dsync).map_err(text)?;
            let now = clock.monotonic_nanos();
            nanos.push(now - last);
            last = now;
            if now - begun > seconds * 1_000_000_000 {
                break;
            }
        }
        Ok(())
    };
    run(&mut before, &mut nanos)?;
    let each = counters.read()?.each_since(before, nanos.len() as u64);
    fs.remove(&path).map_err(|e| e.to_string())?;
    Ok(Floor { nanos, each })
}

fn prepare(fs: &dyn FileSystem, mount: &Path, path: &Path) -> base::Result<()> {
    let block = block_size(fs, mount)?;
    let file = fs.open(path, OpenHow::CREATE_TRUNCATE)?;
    file.zero(0, BLOCKS * block as u64)?;
    file.sync(SyncKind::All)?;
    fs.sync_dir(mount)
}

fn block_size(fs: &dyn FileSystem, mount: &Path) -> base::Result<usize> {
    let unit = fs.probe(mount)?.write_unit().ok_or_else(|| {
        base::Error::not_supported("direct I/O (O_DIRECT) on this file system").file(mount)
    })?;
    Ok(unit.max(BLOCK) as usize)
}

/// Sorts the times of the writes and sums them up.
fn figures(nanos: &mut [u64], each: Each) -> Figures {
    nanos.sort_unstable();
    let sum: u64 = nanos.iter().sum();
    let mean = sum as f64 / 1000.0 / nanos.len().max(1) as f64;
    let rank = |share: f64| {
        let at = (nanos.len() as f64 * share).ceil() as usize;
        let at = at.clamp(1, nanos.len().max(1)) - 1;
        nanos.get(at).copied().unwrap_or_default() as f64 / 1000.0
    };
    Figures {
        each,
        micros: mean,
        per_second: if mean > 0.0 { 1e6 / mean } else { 0.0 },
        p50: rank(0.5),
        p99: rank(0.99),
        p999: rank(0.999),
        p9999: rank(0.9999),
        jobs: Jobs::default(),
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "figures that are exact in binary")]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact() {
        let mut nanos: Vec<u64> = (1..=1000).rev().map(|n| n * 1000).collect();
        let f = figures(&mut nanos, Each::default());
        assert_eq!((f.p50, f.p99, f.p999), (500.0, 990.0, 999.0));
        assert_eq!(f.p9999, 1000.0);
        assert_eq!(f.micros, 500.5);
        assert!((f.per_second - 1998.0).abs() < 0.1);
        assert_eq!(figures(&mut [], Each::default()).per_second, 0.0);
        assert_eq!(figures(&mut [2000], Each::default()).p999, 2.0);
    }
}
