//! `checkpoint`, `backup`, `restore`: copies of whole databases.

use std::io::Write;
use std::path::{Path, PathBuf};

use io::{FileSystem, posix::Posix};
use ironstone::{BackupEngine, BackupEngineOptions, CreateBackupOptions, Env, RestoreOptions};

use crate::cli::Global;
use crate::cli_writes::{Backup, Checkpoint};
use crate::fail::{Failure, Outcome, note};
use crate::open;

/// Upper bound of RocksDB's log levels; the default is its `WARN_LEVEL`.
const LOG_LEVELS: i32 = 6;
const LOG_LEVEL_INFO: i32 = 1;
const LOG_LEVEL_WARN: i32 = 2;

/// Copies the database into a new directory.
pub(crate) fn checkpoint(global: &Global, args: &Checkpoint, out: &mut dyn Write) -> Outcome {
    let to = named(args.dir.as_ref()).ok_or_else(|| {
        Failure::message(
            "Invalid argument: invalid checkpoint directory name (--checkpoint_dir=NEW is missing)",
        )
    })?;
    let db = open::writable(global, false)?;
    db.create_checkpoint(to, 0)?;
    db.close()?;
    Ok(writeln!(out, "OK")?)
}

/// Adds a backup to a backup directory.
pub(crate) fn backup(global: &Global, args: &Backup, out: &mut dyn Write) -> Outcome {
    let dir = backup_dir(args)?;
    let db = open::writable(global, false)?;
    writeln!(out, "open db OK")?;
    let mut engine = BackupEngine::open(&BackupEngineOptions::new(dir), &Env::default())?;
    writeln!(out, "open backup engine OK")?;
    let id = engine.create_new_backup(&db, CreateBackupOptions::default())?;
    db.close()?;
    if is_told(args)
        && let Some(info) = engine.get_backup_info().iter().find(|i| i.backup_id == id)
    {
        let (files, bytes) = (info.number_files, info.size);
        note(format_args!(
            "backup {id} in {}: {files} files, {bytes} bytes",
            dir.display()
        ));
    }
    Ok(writeln!(out, "create new backup OK")?)
}

/// Replaces the database by its newest usable backup.
pub(crate) fn restore(global: &Global, args: &Backup, out: &mut dyn Write) -> Outcome {
    let from = backup_dir(args)?;
    let db = global.dir()?;
    // The engine makes a directory that is not there into an empty backup directory.
    let meta = from.join("meta");
    if !Posix.exists(&meta)? {
        return Err(Failure::message(format!(
            "NotFound: {} is missing: {} is no backup directory",
            meta.display(),
            from.display()
        )));
    }
    let engine = BackupEngine::open(&BackupEngineOptions::new(from), &Env::default())?;
    writeln!(out, "open restore engine OK")?;
    for (id, e) in engine.get_corrupted_backups() {
        note(format_args!("backup {id} is damaged, and not used: {e}"));
    }
    let logs = logs_to_restore(global, db)?;
    engine.restore_db_from_latest_backup(db, &logs, &RestoreOptions::default())?;
    if is_told(args)
        && let Some(info) = engine.get_backup_info().last()
    {
        let (id, files) = (info.backup_id, info.number_files);
        note(format_args!(
            "backup {id} was restored to {}: {files} files",
            db.display()
        ));
    }
    tell_logs(global, db, &logs);
    Ok(writeln!(out, "restore from backup OK")?)
}

/// The directory that the logs are restored to. Fails if the logs of the replaced database are in
/// another directory that was not named: they would be replayed onto the backup.
fn logs_to_restore(global: &Global, db: &Path) -> Outcome<PathBuf> {
    let logs = open::log_dir(global, db)?;
    if global.wal_dir.is_some() {
        return Ok(logs);
    }
    if !Posix.exists(&logs)? || Posix.same_file(&logs, db)? {
        return Ok(db.to_path_buf());
    }
    let shown = logs.display();
    Err(Failure::message(format!(
        "the logs of the database that is replaced are in {shown}: repeat with --wal_dir={shown}, \
         which deletes them"
    )))
}

/// Prints the directory of the logs, unless an open finds them anyway.
fn tell_logs(global: &Global, db: &Path, logs: &Path) {
    let here = |dir: &Path| Posix.same_file(dir, logs).unwrap_or(false);
    // The OPTIONS file came with the backup: Ironstone's names no directory of logs, RocksDB's may.
    let looked_for = open::log_dir_of_options(global, db);
    if !here(db) || looked_for.is_ok_and(|dir| !here(&dir)) {
        let shown = logs.display();
        note(format_args!(
            "the logs are in {shown}: open the database with wal_dir = {shown}"
        ));
    }
}

/// The directory of the backups; also checks the other flags.
fn backup_dir(args: &Backup) -> Outcome<&PathBuf> {
    let level = args.stderr_log_level.unwrap_or(LOG_LEVEL_WARN);
    if !(0..LOG_LEVELS).contains(&level) {
        return Err(Failure::message("stderr_log_level must be >= 0 and < 6."));
    }
    named(args.dir.as_ref())
        .ok_or_else(|| Failure::message("--backup_dir: missing backup directory"))
}

fn is_told(args: &Backup) -> bool {
    args.stderr_log_level.unwrap_or(LOG_LEVEL_WARN) <= LOG_LEVEL_INFO
}

/// A path that was given and is not empty.
fn named(path: Option<&PathBuf>) -> Option<&PathBuf> {
    path.filter(|p| !p.as_os_str().is_empty())
}
