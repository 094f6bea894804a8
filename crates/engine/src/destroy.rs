//! Deletes a database: all of its own files and nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use base::Result;
use io::FileSystem;

use crate::files::{self, FileKind};
use crate::options::Options;
use crate::wal::ARCHIVE;
use crate::wal::location::Location;

/// See [`Db::destroy`](crate::Db::destroy).
pub(crate) fn destroy(dir: &Path, options: &Options) -> Result<()> {
    let fs = &*options.env.fs;
    if !fs.exists(dir)? {
        return Ok(());
    }
    let lock = fs.lock(&files::lock_path(dir))?;
    // Only directories that the caller names: the OPTIONS file of a copied database may name the logs of the original.
    let location = Location::of(dir, options)?;
    let log_dirs: BTreeSet<&Path> = [dir, location.dir()].into();
    remove_current(fs, dir)?;
    for logs in &log_dirs {
        let (archive, pool) = (logs.join(ARCHIVE), logs.join(log::pool::DIR));
        remove_files(fs, logs, |kind| kind == FileKind::Wal)?;
        remove_files(fs, &archive, |kind| kind == FileKind::Wal)?;
        remove_pool(fs, &pool)?;
        remove_empty(fs, &archive)?;
        remove_empty(fs, &pool)?;
    }
    remove_files(fs, dir, |kind| kind != FileKind::Lock)?;
    // A process that opens the directory meanwhile finds no database in it.
    drop(lock);
    remove(fs, &files::lock_path(dir))?;
    if location.is_separate() {
        remove_empty(fs, location.dir())?;
    }
    remove_empty(fs, dir)
}

/// Without CURRENT the remaining files are not a database. The directory is synced, so that this survives a power
/// cut.
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

/// Removes the log files that were prepared in advance.
fn remove_pool(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    let names = match fs.list(dir) {
        Err(e) if e.is_not_found() => return Ok(()),
        names => names?,
    };
    for name in names.iter().map(Path::new) {
        if log::pool::is_pool_file(name) {
            remove(fs, &dir.join(name))?;
        }
    }
    Ok(())
}

fn remove(fs: &dyn FileSystem, path: &Path) -> Result<()> {
    match fs.remove(path) {
        Err(e) if !e.is_not_found() => Err(e),
        _ => Ok(()),
    }
}

/// Removes a directory if it is empty.
fn remove_empty(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    match fs.list(dir) {
        Ok(rest) if rest.is_empty() => fs.remove_dir(dir),
        Ok(_) => Ok(()),
        Err(e) if e.is_not_found() => Ok(()),
        Err(e) => Err(e),
    }
}
