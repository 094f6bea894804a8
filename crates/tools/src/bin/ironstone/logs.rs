//! The logs of a closed database, for `wal-trim` and `salvage`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::FileNumber;
use files::FileKind;
use io::{File, FileLock, FileSystem, OpenHow, posix::Posix};
use ironstone::Result;

use crate::state::State;

/// A log file, open for reading.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
}

/// The facts about logs in the MANIFEST.
#[derive(Debug, Default)]
pub(crate) struct Tracked {
    /// Logs with a smaller number are not needed.
    pub(crate) first: u64,
    /// The last sequence number in table files.
    pub(crate) last_sequence: u64,
    /// The durable bytes of logs, if the MANIFEST states them.
    pub(crate) sizes: BTreeMap<u64, u64>,
}

/// Takes the database's lock: no process can open the database until the lock is dropped.
pub(crate) fn lock(dir: &Path) -> Result<Box<dyn FileLock>> {
    Posix.lock(&files::lock_path(dir))
}

/// Reads the MANIFEST.
pub(crate) fn tracked(dir: &Path) -> Result<Tracked> {
    let manifest = files::manifest_path(dir, files::read_current(&Posix, dir)?);
    let mut sizes = BTreeMap::new();
    let state = State::read(&manifest, &mut |edit| {
        for wal in &edit.wal_additions {
            let size = wal.synced_size.unwrap_or(0);
            let known: &mut u64 = sizes.entry(wal.log_number).or_default();
            *known = size.max(*known);
        }
        for log in &edit.log_ends {
            let known: &mut u64 = sizes.entry(log.number.0).or_default();
            *known = log.end.0.max(*known);
        }
        if let Some(below) = edit.wal_deletion {
            sizes = sizes.split_off(&below);
        }
    })?;
    let oldest = state.families.values().map(|f| f.log_number).min();
    let first = oldest.unwrap_or(0).max(state.min_log_number_to_keep);
    Ok(Tracked {
        first,
        last_sequence: state.last_sequence,
        sizes,
    })
}

/// The logs in `dir` with this number or a larger one, in order.
pub(crate) fn list(dir: &Path, first: u64) -> Result<Vec<LogFile>> {
    files::list(&Posix, dir)?
        .into_iter()
        .filter(|e| e.kind == FileKind::Wal && e.number >= FileNumber(first))
        .map(|e| {
            let path = dir.join(e.name);
            Ok(LogFile {
                number: e.number.0,
                file: Posix.open(&path, OpenHow::READ)?,
                path,
            })
        })
        .collect()
}

/// `<path>.<suffix>`, or `<path>.<suffix>.1` and so on: the first name that is free.
pub(crate) fn free_name(path: &Path, suffix: &str) -> Result<PathBuf> {
    let mut number = 0;
    loop {
        let mut name = OsString::from(path);
        name.push(match number {
            0 => format!(".{suffix}"),
            n => format!(".{suffix}.{n}"),
        });
        let name = PathBuf::from(name);
        if !Posix.exists(&name)? {
            return Ok(name);
        }
        number += 1;
    }
}
