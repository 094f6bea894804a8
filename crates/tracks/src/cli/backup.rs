//! `backup` and `restore`, for a folder that is not open. A running service has `POST /v1/backups`.

use std::process::ExitCode;

use base::{Error, Result};
use ironstone::{BackupEngine, BackupEngineOptions, CreateBackupOptions, Env, RestoreOptions};
use tracks::backups::Making;
use tracks::store::Engine;

use super::args;
use super::print;

pub(crate) fn make(args: &args::Backup) -> Result<ExitCode> {
    super::check_is_there(&args.dir)?;
    let engine = Engine::open(&args.dir)?;
    let mut making = Making::begin(&args.to)?;
    if let Err(e) = making.tidy() {
        super::say(&format!("warning: what an earlier backup left: {e}"));
    }
    let backups = making.engine();
    let id = backups.create_new_backup(engine.db(), CreateBackupOptions::default())?;
    print(&format!("backup {id}"));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn restore(args: &args::Restore) -> Result<ExitCode> {
    if !args.from.join("meta").exists() {
        let text = "there are no backups in this folder";
        return Err(Error::not_found(text).file(&args.from));
    }
    if args.dir.join("CURRENT").exists() && !args.replace {
        let text = "there is a database in this folder already";
        return Err(Error::invalid_argument(text)
            .hint("give another folder, or say --replace, which deletes it")
            .file(&args.dir));
    }
    let options = BackupEngineOptions::new(&args.from);
    let backups = BackupEngine::open(&options, &Env::default())?;
    let how = RestoreOptions::default();
    match args.id {
        Some(id) => backups.restore_db_from_backup(id, &args.dir, &args.dir, &how)?,
        None => backups.restore_db_from_latest_backup(&args.dir, &args.dir, &how)?,
    }
    Ok(ExitCode::SUCCESS)
}
