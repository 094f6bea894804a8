//! Checkpoints: a copy of an open database that can be opened on its own, made while writers run.
//!
//! Tables are hard-linked where possible; everything else is copied. The copy is built in `<dir>.tmp` and renamed
//! when all of it is durable: either a complete checkpoint exists or none.

use std::path::{Path, PathBuf};

use base::{Error, Result};
use io::{FileSystem, SyncKind, WriteSync, write_all_at};

use crate::backup::live_files::{self, LiveFileStorageInfo, NoDeletions};
use crate::db::Db;
use crate::shared::Shared;
use files::copies::{self, parent};
use files::{self, FileKind};

/// Checkpoints.
impl Db {
    /// Makes a copy of the current database in the new directory `dir`. The copy can be opened on its own. Tables are
    /// hard-linked; on another file system they are copied. Writers continue meanwhile. Returns the sequence number
    /// of the last write in the copy.
    ///
    /// Memtables are flushed first if the logs have `log_size_for_flush` bytes or more (0 means always, `u64::MAX`
    /// never), or if they have writes that are in no log. While [`Db::lock_wal`] is in force, memtables are never
    /// flushed.
    ///
    /// Errors: `InvalidArgument` if `dir` exists; `NotSupported` if the database is open for reading only; the
    /// database refuses writes; those of the file system.
    pub fn create_checkpoint(&self, dir: impl AsRef<Path>, log_size_for_flush: u64) -> Result<u64> {
        create(&self.shared, dir.as_ref(), log_size_for_flush)
    }
}

/// Makes a checkpoint in `dir`, which must not exist. Returns the sequence number of the last write in it.
pub(crate) fn create(db: &Shared, dir: &Path, log_size_for_flush: u64) -> Result<u64> {
    let fs = &*db.env().fs;
    let sequence = in_new_dir(fs, dir, |temp| {
        let guard = NoDeletions::begin(db);
        let captured = live_files::capture(db, log_size_for_flush, &guard)?;
        for file in &captured.files {
            add(fs, file, &temp.join(&file.relative_filename))?;
        }
        Ok(captured.sequence)
    })?;
    db.info.log.info(format_args!(
        "Checkpoint in {}: sequence {sequence}",
        dir.display()
    ));
    Ok(sequence)
}

fn add(fs: &dyn FileSystem, file: &LiveFileStorageInfo, to: &Path) -> Result<()> {
    let nothing = &mut copies::at_once;
    if file.file_type == FileKind::Table {
        copies::link_or_copy(fs, &file.path(), to, nothing)?;
    } else if file.replacement_contents.is_empty() {
        copies::copy(fs, &file.path(), to, Some(file.size), nothing)?;
    } else {
        write(fs, to, &file.replacement_contents)?;
    }
    Ok(())
}

/// Writes a new file and syncs it.
pub(crate) fn write(fs: &dyn FileSystem, path: &Path, data: &[u8]) -> Result<()> {
    let file = fs.open(path, io::OpenHow::CREATE_NEW)?;
    write_all_at(&*file, data, 0, WriteSync::None)?;
    file.sync(SyncKind::Data)
}

/// Creates the new directory `dir`, which `fill` fills, and makes it durable. After an error `dir` does not exist,
/// unless only the sync of its parent failed.
pub(crate) fn in_new_dir<T>(
    fs: &dyn FileSystem,
    dir: &Path,
    fill: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    let dir: PathBuf = dir.components().collect(); // without a trailing slash
    if dir.as_os_str().is_empty() {
        return Err(Error::invalid_argument("invalid checkpoint directory name"));
    }
    if fs.exists(&dir)? {
        return Err(Error::invalid_argument("Directory exists").file(&dir));
    }
    let mut temp = dir.clone().into_os_string();
    temp.push(".tmp");
    let temp = PathBuf::from(temp);
    remove_left_over(fs, &temp)?;
    if !fs.exists(parent(&dir))? {
        io::create_dirs(fs, parent(&dir))?;
    }
    let filled = fs.create_dir(&temp).and_then(|()| {
        let out = fill(&temp)?;
        fs.sync_dir(&temp)?;
        fs.rename(&temp, &dir)?;
        fs.sync_dir(parent(&dir))?;
        Ok(out)
    });
    filled.inspect_err(|_| drop(copies::remove_tree(fs, &temp)))
}

/// Removes the remains in `temp` of an attempt that a crash interrupted. If `temp` is a symbolic link, only the link
/// is removed. Errors: an entry is no file of a database; then nothing is removed.
fn remove_left_over(fs: &dyn FileSystem, temp: &Path) -> Result<()> {
    let foreign = |what: String| {
        Error::invalid_argument(format!("exists and is not a checkpoint's: {what}"))
            .file(temp)
            .hint("remove it, or choose another directory for the checkpoint")
    };
    let found = match fs.metadata(temp) {
        Err(e) if e.is_not_found() => return Ok(()),
        found => found?,
    };
    if !found.is_dir {
        return Err(foreign("it is no directory".to_owned()));
    }
    if fs.remove(temp).is_ok() {
        return Ok(()); // a link to a directory
    }
    let names = fs.list(temp)?;
    for name in &names {
        let is_dir = fs.metadata(&temp.join(name)).is_ok_and(|m| m.is_dir);
        if is_dir || files::parse_name(name).is_none() {
            return Err(foreign(format!("it has {}", name.display())));
        }
    }
    names.iter().try_for_each(|n| fs.remove(&temp.join(n)))?;
    fs.remove_dir(temp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_whole_or_not_at_all() {
        let top = tempfile::tempdir().unwrap();
        let fs = io::posix::Posix;
        let dir = top.path().join("new/");
        std::fs::create_dir(top.path().join("new.tmp")).unwrap();
        std::fs::write(top.path().join("new.tmp/000009.sst"), "").unwrap();
        let failed: Result<()> = in_new_dir(&fs, &dir, |temp| {
            write(&fs, &temp.join("x"), b"1")?;
            Err(Error::aborted("no"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 0);
        in_new_dir(&fs, &dir, |temp| write(&fs, &temp.join("x"), b"1")).unwrap();
        assert_eq!(std::fs::read(dir.join("x")).unwrap(), b"1");
        assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 1);
        let again = in_new_dir(&fs, &dir, |_| Ok(()));
        assert!(again.unwrap_err().to_string().contains("Directory exists"));
        assert!(in_new_dir(&fs, Path::new(""), |_| Ok(())).is_err());
    }

    #[test]
    fn what_is_not_a_checkpoints_is_left_alone() {
        let top = tempfile::tempdir().unwrap();
        let fs = io::posix::Posix;
        let (dir, temp) = (top.path().join("new"), top.path().join("new.tmp"));
        let refused = |foreign: &Path| {
            let e = in_new_dir(&fs, &dir, |_| Ok(())).unwrap_err().to_string();
            assert!(e.contains("is not a checkpoint's"), "{e}");
            assert!(foreign.exists() && !dir.exists(), "{e}");
        };
        std::fs::write(&temp, "mine").unwrap();
        refused(&temp);
        std::fs::remove_file(&temp).unwrap();
        for foreign in ["notes.txt", "sub/f", "000010.sst/f"] {
            let foreign = temp.join(foreign);
            std::fs::create_dir_all(parent(&foreign)).unwrap();
            std::fs::write(temp.join("000009.sst"), "").unwrap();
            std::fs::write(&foreign, "mine").unwrap();
            refused(&foreign);
            assert!(temp.join("000009.sst").exists());
            std::fs::remove_dir_all(&temp).unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let fs = io::posix::Posix;
        let (dir, kept) = (top.path().join("new"), top.path().join("kept"));
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("000009.sst"), "1").unwrap();
        std::os::unix::fs::symlink(&kept, top.path().join("new.tmp")).unwrap();
        in_new_dir(&fs, &dir, |temp| write(&fs, &temp.join("x"), b"1")).unwrap();
        assert_eq!(std::fs::read(kept.join("000009.sst")).unwrap(), b"1");
        assert!(dir.join("x").exists());
    }
}
