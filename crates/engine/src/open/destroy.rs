//! Deletes a database: all of its own files and nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use base::{Error, Result};
use io::FileSystem;

use crate::db::Db;
use crate::wal::{ARCHIVE, location};
use files::{self, FileKind};
use options::Options;

/// Deleting a database.
impl Db {
    /// Deletes a database: its files in `path`, its logs there and in `options.db.wal_dir`, and the directories that
    /// are then empty. Other files stay, also those in `options.db.db_log_dir`. Does nothing if there is no database.
    /// If `wal_dir` is also the `wal_dir` of another database, the logs of that database are deleted too.
    ///
    /// Errors: the database is open (`Busy`); a file cannot be removed. After a failed removal the remaining files are
    /// no longer a database, unless CURRENT itself could not be removed. The call may be repeated.
    pub fn destroy(path: impl AsRef<Path>, options: &Options) -> Result<()> {
        destroy(path.as_ref(), options)
    }

    /// Always fails with `NotSupported`. Use `ironstone salvage` to list and save the readable data of damaged logs.
    pub fn repair(path: impl AsRef<Path>, _options: &Options) -> Result<()> {
        Err(Error::not_supported("Db::repair")
            .file(path)
            .hint("`ironstone salvage` lists and saves what can be read of damaged logs"))
    }
}

/// See [`Db::destroy`](crate::Db::destroy).
pub(crate) fn destroy(dir: &Path, options: &Options) -> Result<()> {
    let fs = &*options.env.fs;
    if !is_database(fs, dir)? {
        return Ok(());
    }
    let lock = fs.lock(&files::lock_path(dir))?;
    // Only directories that the caller names. The OPTIONS file of a copied database may name the logs of the original.
    let wal_dir = location::resolve(fs, dir, &options.db)?;
    let log_dirs: BTreeSet<&Path> = [dir, &wal_dir].into();
    remove_current(fs, dir)?;
    for logs in &log_dirs {
        let (archive, pool) = (logs.join(ARCHIVE), logs.join(log::pool::DIR));
        remove_files(fs, logs, |kind| kind == FileKind::Wal)?;
        remove_files(fs, &archive, |kind| kind == FileKind::Wal)?;
        log::pool::remove_all(fs, &pool)?;
        remove_empty(fs, &archive);
        remove_empty(fs, &pool);
    }
    let last = |kind| matches!(kind, FileKind::Lock | FileKind::Identity);
    remove_files(fs, dir, |kind| !last(kind))?;
    // IDENTITY is removed after the other files: it marks the directory as a database for a repeated call.
    remove_files(fs, dir, |kind| kind == FileKind::Identity)?;
    // Remove LOCK before the lock is released: a process that then takes the lock finds that LOCK is gone, and is
    // refused. Otherwise it would hold a file without a name, and another process could lock a new file.
    remove(fs, &files::lock_path(dir))?;
    drop(lock);
    if wal_dir != dir {
        remove_empty(fs, &wal_dir);
    }
    remove_empty(fs, dir);
    Ok(())
}

/// Whether a directory has a database, or the remains of one after a failed [`destroy`].
fn is_database(fs: &dyn FileSystem, dir: &Path) -> Result<bool> {
    let entries = match files::list(fs, dir) {
        Err(e) if e.is_not_found() => return Ok(false),
        entries => entries?,
    };
    Ok(entries.iter().any(|entry| {
        matches!(
            entry.kind,
            FileKind::Current | FileKind::Manifest | FileKind::Identity
        )
    }))
}

/// Removes CURRENT. Without it the remaining files are not a database. The directory is synced, so that this
/// survives a power cut.
pub(crate) fn remove_current(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    remove(fs, &files::current_path(dir))?;
    fs.sync_dir(dir)
}

/// Removes the database files of some kinds. Does nothing if the directory does not exist.
pub(crate) fn remove_files(
    fs: &dyn FileSystem,
    dir: &Path,
    goes: impl Fn(FileKind) -> bool,
) -> Result<()> {
    let entries = match files::list(fs, dir) {
        Err(e) if e.is_not_found() => return Ok(()),
        entries => entries?,
    };
    for entry in entries.iter().filter(|entry| goes(entry.kind)) {
        remove(fs, &dir.join(&entry.name))?;
    }
    Ok(())
}

fn remove(fs: &dyn FileSystem, path: &Path) -> Result<()> {
    match fs.remove(path) {
        Err(e) if !e.is_not_found() => Err(e),
        _ => Ok(()),
    }
}

/// Removes a directory if it is empty and can be removed. A mount point or a link to another directory may stay.
fn remove_empty(fs: &dyn FileSystem, dir: &Path) {
    if fs.list(dir).is_ok_and(|rest| rest.is_empty()) {
        let _stays = fs.remove_dir(dir);
    }
}
