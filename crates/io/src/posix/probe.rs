//! What a file system and a device can do.
//!
//! Three sources, none of which is trusted alone: `statx` for the alignment of direct I/O, sysfs
//! for the device's cache, and a real direct write to a small file. That file has no name if the
//! file system supports `O_TMPFILE`; otherwise it is removed at once.

use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use base::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::buffer::{AlignedBuf, PAGE};
use crate::posix::{atomic_write_unit, direct_align, kinds};

/// Facts about the file system and device under a directory.
///
/// Displays as one line for the LOG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Name of the file system: `ext4`, `xfs`, `btrfs`, `tmpfs`, …
    pub file_system: String,
    /// Alignment in bytes of offsets, lengths and buffers for direct I/O; `None` if direct I/O
    /// does not work here.
    pub direct_alignment: Option<u32>,
    /// The device's physical block size in bytes: the largest block that it writes as a unit.
    pub physical_block: u32,
    /// The smallest and the largest direct write in bytes, powers of two, that the device guarantees to
    /// be atomic, even if the power fails; `None` if it guarantees nothing.
    pub atomic_write_unit: Option<(u32, u32)>,
    /// Whether the device has a volatile write cache; `None` if unknown.
    pub volatile_cache: Option<bool>,
    /// Whether the device does FUA writes; `None` if unknown.
    pub fua: Option<bool>,
    /// True if overwriting a block allocates a new one (btrfs, zfs, …): pre-zeroing is then useless.
    pub copy_on_write: bool,
    /// True if data is in memory only (tmpfs): nothing survives a power cut.
    pub in_memory: bool,
}

impl Probe {
    /// Unit in bytes for direct writes whose partial last unit is rewritten: a multiple of the
    /// alignment for direct I/O and of the device's physical block. `None` if direct I/O does not
    /// work here.
    pub fn write_unit(&self) -> Option<u32> {
        self.direct_alignment.map(|n| n.max(self.physical_block))
    }

    /// The largest unit in bytes, at most a page, for atomic direct writes
    /// ([`WriteSync::AtomicDsync`](crate::WriteSync::AtomicDsync)); `None` if there is none.
    pub fn atomic_unit(&self) -> Option<u32> {
        let (min, max) = self.atomic_write_unit?;
        let align = self.direct_alignment?;
        let unit = 1 << max.min(PAGE as u32).checked_ilog2()?;
        (unit >= min && unit >= align).then_some(unit)
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file system {}", self.file_system)?;
        match self.direct_alignment {
            Some(n) => write!(f, ", direct I/O aligned to {n}")?,
            None => write!(f, ", no direct I/O")?,
        }
        write!(f, ", physical block {}", self.physical_block)?;
        if let Some((min, max)) = self.atomic_write_unit {
            write!(f, ", atomic writes of {min} to {max}")?;
        }
        f.write_str(match self.volatile_cache {
            Some(true) => ", write-back cache",
            Some(false) => ", write-through cache",
            None => ", write cache unknown",
        })?;
        f.write_str(match self.fua {
            Some(true) => " with FUA",
            Some(false) => " without FUA",
            None => "",
        })?;
        if self.copy_on_write {
            f.write_str(", copy on write")?;
        }
        if self.in_memory {
            f.write_str(", in memory: NOT durable")?;
        }
        Ok(())
    }
}

/// Probes the file system of this machine under `dir`.
pub(crate) fn probe(dir: &Path) -> Result<Probe> {
    let meta = fs::metadata(dir).map_err(|e| Error::io("stat", dir, e))?;
    let statfs = retry_on_intr(|| rustix::fs::statfs(dir))
        .map_err(|e| Error::io("statfs", dir, e.into()))?;
    let (magic, known) = kinds::of(&statfs);
    let queue = queue_of(meta.dev());
    let read = |name: &str| queue.as_deref().and_then(|q| read_trimmed(&q.join(name)));
    let physical_block = read("physical_block_size")
        .and_then(|s| s.parse().ok())
        .filter(|n: &u32| n.is_power_of_two())
        .unwrap_or(PAGE as u32);
    let (direct_alignment, atomic_write_unit) = direct_facts(dir);
    Ok(Probe {
        file_system: known.map_or_else(|| format!("{magic:#x}"), |k| k.name.to_owned()),
        direct_alignment,
        physical_block,
        atomic_write_unit,
        volatile_cache: read("write_cache").and_then(|s| match s.as_str() {
            "write back" => Some(true),
            "write through" => Some(false),
            _ => None,
        }),
        fua: read("fua").and_then(|s| match s.as_str() {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        }),
        copy_on_write: known.is_some_and(|k| k.copy_on_write),
        in_memory: known.is_some_and(|k| k.in_memory),
    })
}

/// The sysfs queue directory of a block device. A partition has none; its disk, one level up, has one.
fn queue_of(dev: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let base = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    [base.join("queue"), base.join("../queue")]
        .into_iter()
        .find(|q| q.is_dir())
}

fn read_trimmed(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|s| s.trim().to_owned())
}

/// The alignment for direct I/O in `dir`, proven by a write, and which direct writes are atomic. Each is
/// `None` if it does not work, or if no file can be created (a read-only directory).
fn direct_facts(dir: &Path) -> (Option<u32>, Option<(u32, u32)>) {
    let Ok(fd) = scratch_file(dir) else {
        return (None, None);
    };
    let alignment = direct_alignment(&fd);
    (alignment, alignment.and_then(|_| atomic_write_unit(&fd)))
}

fn direct_alignment(fd: &OwnedFd) -> Option<u32> {
    let told = direct_align(fd).map(|a| a.offset.max(a.memory));
    // If statx reports none (before Linux 6.1): the smallest that works.
    let candidates = match told {
        Some(n) => vec![n],
        None => vec![512, 1024, 2048, PAGE as u32],
    };
    candidates
        .into_iter()
        .find(|&n| n.is_power_of_two() && direct_write_works(fd, n as usize))
}

fn direct_write_works(fd: &OwnedFd, align: usize) -> bool {
    let Ok(mut block) = AlignedBuf::zeroed(align, align) else {
        return false;
    };
    block.fill(0xa5);
    // Writes at two offsets: some file systems accept only one at the start of a file.
    [0, align as u64].into_iter().all(|offset| {
        let wrote = retry_on_intr(|| rustix::io::pwrite(fd, &block, offset));
        wrote == Ok(align)
    })
}

/// A new file in `dir` opened with `O_DIRECT`, without a name or already unlinked.
fn scratch_file(dir: &Path) -> std::result::Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(0o600);
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
    if let Ok(fd) = retry_on_intr(|| rustix::fs::open(dir, flags | OFlags::TMPFILE, mode)) {
        return Ok(fd);
    }
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        ".ironstone-probe-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let path = dir.join(name);
    let create = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let fd = retry_on_intr(|| rustix::fs::open(&path, create, mode));
    // The file exists even if the open failed because O_DIRECT is not supported.
    fs::remove_file(&path).ok();
    fd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_as_one_line() {
        let mut p = Probe {
            file_system: "ext4".to_owned(),
            direct_alignment: Some(512),
            physical_block: 4096,
            atomic_write_unit: None,
            volatile_cache: Some(true),
            fua: Some(false),
            copy_on_write: false,
            in_memory: false,
        };
        assert_eq!(
            p.to_string(),
            "file system ext4, direct I/O aligned to 512, physical block 4096, \
             write-back cache without FUA"
        );
        p.atomic_write_unit = Some((512, 65536));
        assert!(p.to_string().contains(", atomic writes of 512 to 65536, "));
        assert_eq!(p.atomic_unit(), Some(4096));
        for (range, align, unit) in [
            ((512, 2048), 512, Some(2048)),
            ((8192, 65536), 512, None),
            ((512, 512), 4096, None),
            ((4096, 4096), 4096, Some(4096)),
        ] {
            p.atomic_write_unit = Some(range);
            p.direct_alignment = Some(align);
            assert_eq!(p.atomic_unit(), unit, "{range:?} {align}");
        }
        p.atomic_write_unit = None;
        p.file_system = "tmpfs".to_owned();
        p.direct_alignment = None;
        p.volatile_cache = None;
        p.fua = None;
        p.in_memory = true;
        assert_eq!(
            p.to_string(),
            "file system tmpfs, no direct I/O, physical block 4096, write cache unknown, \
             in memory: NOT durable"
        );
    }
}
