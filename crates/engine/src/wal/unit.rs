//! The unit in which direct logs are written on a device, and options that the device does not support.

use std::path::Path;

use base::{Error, Result};
use io::Probe;

use options::{DbOptions, WalIoMode, WalTailPolicy};

/// The write unit of direct logs in bytes; `None` if every log is buffered.
pub(super) fn direct_unit(db: &DbOptions, probe: &Probe) -> Option<u32> {
    let wanted = db.wal_mode() != WalIoMode::Buffered && db.wal_pool_files > 0;
    let unit = match db.wal_tail_policy {
        WalTailPolicy::Atomic => probe.atomic_unit(),
        WalTailPolicy::Rewrite | WalTailPolicy::Pad => probe.write_unit(),
    };
    unit.filter(|_| wanted && !probe.copy_on_write && !probe.in_memory)
}

/// Refuses `wal_tail_policy = atomic` if direct logs are asked for and `dir` cannot have them with atomic
/// writes. A promise about torn writes must not be broken silently.
pub(crate) fn check_tail_policy(db: &DbOptions, dir: &Path, probe: Option<&Probe>) -> Result<()> {
    let direct = db.wal_mode() != WalIoMode::Buffered && db.wal_pool_files > 0;
    if db.wal_tail_policy != WalTailPolicy::Atomic || !direct {
        return Ok(());
    }
    let why = match probe {
        Some(p) if direct_unit(db, p).is_some() => return Ok(()),
        None => "the device cannot be probed".to_owned(),
        Some(p) if p.copy_on_write => format!("{} copies on write", p.file_system),
        Some(p) if p.in_memory => format!("{} is in memory", p.file_system),
        Some(p) => match (p.direct_alignment, p.atomic_write_unit) {
            (None, _) => format!("no direct I/O on {}", p.file_system),
            (_, None) => {
                "the device does no atomic writes (statx: stx_atomic_write_unit_max = 0)".to_owned()
            }
            (Some(n), Some((min, max))) => format!(
                "the device does atomic writes of {min} to {max} bytes, and a log needs one of at most 4096 that is a multiple of {n}"
            ),
        },
    };
    Err(
        Error::not_supported(format!("wal_tail_policy = atomic here: {why}"))
            .file(dir)
            .hint("set wal_tail_policy = pad, which needs no atomic writes, or wal_io_mode = buffered"),
    )
}
