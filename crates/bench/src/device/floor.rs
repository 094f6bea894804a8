//! The device's own floor: the cost of a durable 4 KiB write without any engine.
//!
//! A file is filled with zeros once, and then overwritten block by block with `O_DIRECT` and
//! `RWF_DSYNC`: nothing is allocated, no metadata changes, and one write is in flight. The kernel
//! turns each into a write with FUA, a write and a flush, or a plain write, depending on the
//! device.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::clock::Clock;
use io::{AlignedBuf, FileSystem, OpenHow, SyncKind, WriteSync};

use super::run::Figures;
use super::stat::{Counters, Stat};

/// Bytes of a write; more if the device's block is larger.
const BLOCK: u32 = 4096;

/// Blocks of the file; the writes wrap around.
const BLOCKS: u64 = 4096;

/// Raw writes to one file, in any number of slices: a device's speed changes from second to second,
/// so that the runs to be compared are measured between slices. The file is removed when this is
/// dropped.
pub(crate) struct Floor<'a> {
    counters: &'a Counters,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    file: Arc<dyn io::File>,
    data: AlignedBuf,
    nanos: Vec<u64>,
    /// The index in `nanos` at which each slice begins.
    slices: Vec<usize>,
    /// The device operations of all slices.
    spent: Stat,
}

impl<'a> Floor<'a> {
    /// Makes the file on the file system at `mount`.
    pub(crate) fn make(
        mount: &Path,
        counters: &'a Counters,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let path = mount.join("floor");
        let fs = io::posix::Posix::shared();
        let made = || -> base::Result<_> {
            prepare(&*fs, mount, &path)?;
            let block = block_size(&*fs, mount)?;
            let data = AlignedBuf::zeroed(block, block)?;
            Ok((data, fs.open(&path, OpenHow::UPDATE.direct())?))
        };
        let (data, file) = made().map_err(|e| e.to_string())?;
        let now = counters.read()?;
        Ok(Self {
            counters,
            clock,
            path,
            file,
            data,
            nanos: Vec::new(),
            slices: Vec::new(),
            spent: now.since(now),
        })
    }

    /// Does one slice: `writes` writes, for at most `seconds`. Returns the device operations.
    pub(crate) fn slice(&mut self, writes: u64, seconds: u64) -> Result<Stat, String> {
        self.slices.push(self.nanos.len());
        let before = self.counters.read()?;
        let begun = self.clock.monotonic_nanos();
        let mut last = begun;
        for _ in 0..writes {
            let number = self.nanos.len() as u64;
            self.data.fill(number as u8 | 1);
            let offset = number % BLOCKS * self.data.len() as u64;
            io::write_all_at(&*self.file, &self.data, offset, WriteSync::Dsync)
                .map_err(|e| e.to_string())?;
            let now = self.clock.monotonic_nanos();
            self.nanos.push(now - last);
            last = now;
            if now - begun > seconds * 1_000_000_000 {
                break;
            }
        }
        let spent = self.counters.read()?.since(before);
        self.spent = self.spent.plus(spent);
        Ok(spent)
    }

    /// The figures of all slices.
    pub(crate) fn figures(&self) -> Figures {
        figures(&mut self.nanos.clone(), self.spent)
    }

    /// The figures of the first half of the slices and of the second: how much the device itself
    /// varies.
    pub(crate) fn halves(&self) -> [Figures; 2] {
        let middle = self.slices.get(self.slices.len() / 2);
        let (first, second) = self.nanos.split_at(middle.copied().unwrap_or(0));
        [first, second].map(|part| figures(&mut part.to_vec(), self.spent))
    }
}

impl Drop for Floor<'_> {
    fn drop(&mut self) {
        // If this fails, the file is removed with the device or overwritten by the next run.
        std::fs::remove_file(&self.path).ok();
    }
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

/// The figures of the writes' times.
fn figures(nanos: &mut [u64], spent: Stat) -> Figures {
    let sum: u64 = nanos.iter().sum();
    let mean = sum as f64 / 1000.0 / nanos.len().max(1) as f64;
    let mut figures = Figures {
        each: spent.each_since(spent.since(spent), nanos.len() as u64),
        micros: mean,
        per_second: if mean > 0.0 { 1e6 / mean } else { 0.0 },
        ..Figures::default()
    };
    figures.rank(nanos);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_summed_up() {
        let f = figures(&mut [3000, 1000, 2000], Stat::default());
        assert!((f.micros - 2.0).abs() < 1e-9 && (f.per_second - 500_000.0).abs() < 1e-3);
        assert!((f.p50 - 2.0).abs() < 1e-9);
        assert!(figures(&mut [], Stat::default()).per_second.abs() < 1e-9);
    }
}
