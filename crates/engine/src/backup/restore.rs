//! Restores backups.

use std::path::Path;

use base::{Error, Result};
use io::FileSystem;

use super::meta::File;
use super::{Backup, BackupEngine, Pace, check_crc};
use crate::open::destroy;
use crate::wal::ARCHIVE;
use files::{self, FileKind, copies};

/// How a backup is restored. RocksDB's `RestoreOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Whether existing logs are kept, including archived ones. The next open then replays them on top of the
    /// backup.
    pub keep_log_files: bool,
}

impl BackupEngine {
    /// Restores the newest usable backup; see [`BackupEngine::restore_db_from_backup`].
    pub fn restore_db_from_latest_backup(
        &self,
        db_dir: impl AsRef<Path>,
        wal_dir: impl AsRef<Path>,
        options: &RestoreOptions,
    ) -> Result<()> {
        let newest = self.backups.keys().next_back();
        let id = newest.ok_or_else(|| Error::not_found("Backup not found: there is none"))?;
        self.restore_db_from_backup(*id, db_dir, wal_dir, options)
    }

    /// Replaces the database in `db_dir`, with its logs in `wal_dir`, by a backup. The files of an existing
    /// database are deleted, but only after the whole backup has been verified. Other files stay.
    ///
    /// Errors: the database is open (`Busy`); the backup is damaged, and nothing was deleted. After an error during
    /// the restore there is no database; repeat the restore.
    pub fn restore_db_from_backup(
        &self,
        id: u32,
        db_dir: impl AsRef<Path>,
        wal_dir: impl AsRef<Path>,
        options: &RestoreOptions,
    ) -> Result<()> {
        let (db_dir, wal_dir) = (db_dir.as_ref(), wal_dir.as_ref());
        let fs = self.fs();
        let backup = self.backup(id)?;
        io::create_dirs(fs, db_dir)?;
        io::create_dirs(fs, wal_dir)?;
        let _lock = fs.lock(&files::lock_path(db_dir))?;
        // Verify checksums if there is a database to lose, so that a damaged backup deletes nothing.
        let all_of_it = fs.exists(&files::current_path(db_dir))?;
        self.verify_backup(id, all_of_it)?;
        clear(fs, db_dir, wal_dir, options)?;
        self.bring_back(backup, db_dir, wal_dir, options)
    }

    fn bring_back(
        &self,
        backup: &Backup,
        db_dir: &Path,
        wal_dir: &Path,
        options: &RestoreOptions,
    ) -> Result<()> {
        let fs = self.fs();
        let clock = &*self.env.clock;
        let mut pace = Pace {
            clock,
            bytes_per_second: self.options.restore_rate_limit,
            started: clock.monotonic_nanos(),
            copied: 0,
            callback: None,
            stop: &self.stop,
        };
        let mut current = None;
        for (file, &size) in backup.meta.files.iter().zip(&backup.sizes) {
            let name = file.name_in_database();
            let kind = files::parse_name(name.as_ref()).map(|(kind, _)| kind);
            let to = match kind {
                Some(FileKind::Current) => {
                    current = Some(file);
                    continue;
                }
                Some(FileKind::Wal) => wal_dir.join(&name),
                Some(_) => db_dir.join(&name),
                None => {
                    return Err(Error::corruption(format!(
                        "backup meta file: {name:?} is no file of a database"
                    ))
                    .file(self.path(&file.path)));
                }
            };
            let longer = |m: &io::Metadata| m.len >= size;
            if options.keep_log_files && fs.metadata(&to).as_ref().is_ok_and(longer) {
                continue; // the existing log is longer than the one in the backup
            }
            drop(fs.remove(&to));
            self.copy_back(file, &to, &mut pace)?;
        }
        let current = current.ok_or_else(|| {
            Error::corruption("the backup has no CURRENT").file(&self.options.backup_dir)
        })?;
        // CURRENT makes this a database, so it comes last.
        fs.sync_dir(wal_dir)?;
        fs.sync_dir(db_dir)?;
        let temp = files::temp_path(db_dir, base::FileNumber(0));
        self.copy_back(current, &temp, &mut pace)?;
        fs.rename(&temp, &files::current_path(db_dir))?;
        fs.sync_dir(db_dir)
    }

    fn copy_back(&self, file: &File, to: &Path, pace: &mut Pace<'_>) -> Result<()> {
        let from = self.path(&file.path);
        let copied = copies::copy(self.fs(), &from, to, None, &mut |n| pace.take(n))?;
        match file.crc32c {
            Some(expected) => check_crc(expected, copied.crc32c, &from)
                .inspect_err(|_| drop(self.fs().remove(to))),
            None => Ok(()),
        }
    }
}

/// Deletes the files of an existing database. CURRENT goes first: without it, the rest is not a database.
fn clear(
    fs: &dyn FileSystem,
    db_dir: &Path,
    wal_dir: &Path,
    options: &RestoreOptions,
) -> Result<()> {
    destroy::remove_current(fs, db_dir)?;
    let stays = |kind| matches!(kind, FileKind::Lock | FileKind::InfoLog | FileKind::Wal);
    destroy::remove_files(fs, db_dir, |kind| !stays(kind))?;
    let archive = wal_dir.join(ARCHIVE);
    for dir in [db_dir, wal_dir, &archive] {
        let logs = match files::list(fs, dir) {
            Err(e) if e.is_not_found() => continue,
            logs => logs?,
        };
        for log in logs.iter().filter(|e| e.kind == FileKind::Wal) {
            let path = dir.join(&log.name);
            if !options.keep_log_files {
                fs.remove(&path)?;
            } else if dir == archive {
                fs.rename(&path, &wal_dir.join(&log.name))?;
            }
        }
    }
    Ok(())
}
