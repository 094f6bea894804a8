//! The block device that holds a directory, and its counters.
//!
//! The counters are those of the whole device (`/sys/block/<device>/stat`), so that other programs
//! count as well. Write requests include empty flushes; see `crate::device` for exact counts on a
//! device of its own.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::data::Device;

/// Bytes of a sector in the kernel's counters, whatever the device's block size.
const SECTOR: u64 = 512;

/// A block device.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Its directory under `/sys/block`.
    sys: PathBuf,
}

impl Block {
    /// The device that holds `dir`; for a partition, its disk. `None` if the file system has no
    /// device, such as tmpfs.
    pub(super) fn of(dir: &Path) -> Option<Self> {
        let number = fs::metadata(dir).ok()?.dev();
        // The layout of dev_t on Linux.
        let major = (number >> 8 & 0xfff) | (number >> 32 & !0xfff);
        let minor = (number & 0xff) | (number >> 12 & !0xff);
        let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let mut sys = fs::canonicalize(link).ok()?;
        if sys.join("partition").exists() {
            sys.pop();
        }
        Some(Self { sys })
    }

    pub(super) fn name(&self) -> String {
        let name = self.sys.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// A file that describes the device, such as `queue/rotational`.
    pub(super) fn fact(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.sys.join(file)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The counters so far.
    pub(super) fn counters(&self) -> Option<Device> {
        parse(&self.fact("stat")?)
    }
}

/// The relevant fields of a `stat` file; flushes are there since Linux 5.5.
fn parse(stat: &str) -> Option<Device> {
    let fields: Vec<u64> = stat
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    Some(Device {
        reads: *fields.first()?,
        read_bytes: fields.get(2)? * SECTOR,
        writes: *fields.get(4)?,
        written_bytes: fields.get(6)? * SECTOR,
        flushes: *fields.get(15)?,
    })
}

/// The operations between two readings.
pub(super) fn between(before: Device, after: Device) -> Device {
    Device {
        reads: after.reads.saturating_sub(before.reads),
        read_bytes: after.read_bytes.saturating_sub(before.read_bytes),
        writes: after.writes.saturating_sub(before.writes),
        written_bytes: after.written_bytes.saturating_sub(before.written_bytes),
        flushes: after.flushes.saturating_sub(before.flushes),
    }
}

/// Syncs the file system of `dir`, so that no run pays for the writes of another.
pub(super) fn settle(dir: &Path) -> Result<(), String> {
    let done = Command::new("sync").arg("-f").arg(dir).status();
    match done {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("sync -f {}: {status}", dir.display())),
        Err(e) => Err(format!("sync: {e}")),
    }
}

/// The space that the files of a directory take on the device, bytes.
pub(super) fn size(dir: &Path) -> Option<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).ok()? {
        let entry = entry.ok()?;
        let about = entry.metadata().ok()?;
        bytes += if about.is_dir() {
            size(&entry.path())?
        } else {
            // In units of 512 bytes, whatever the block size of the file system.
            about.blocks() * 512
        };
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_subtracted() {
        let before = parse("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n").unwrap();
        let after = parse("2 2 5 4 8 6 17 8 9 10 11 12 13 14 15 20 17").unwrap();
        let done = between(before, after);
        assert_eq!((done.reads, done.writes, done.flushes), (1, 3, 4));
        assert_eq!((done.read_bytes, done.written_bytes), (1024, 5120));
        assert_eq!(parse("1 2 3"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn sizes_are_those_on_the_device() {
        let dir = xtask::root().join("target");
        fs::create_dir_all(&dir).unwrap();
        let dir = dir.join(format!("bench-size-{}", std::process::id()));
        fs::create_dir_all(dir.join("inner")).unwrap();
        fs::write(dir.join("inner/a"), vec![7; 100_000]).unwrap();
        settle(&dir).unwrap();
        let found = size(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert!(found.unwrap() >= 100_000, "{found:?}");
        assert_eq!(size(&dir), None);
    }
}
