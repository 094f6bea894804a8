//! Backups of a database.

use base::Result;
use ironstone::{BackupEngine, CreateBackupOptions, Db};

/// Makes a backup, and returns its number. What a failed one has copied is removed, or it would take
/// up space until somebody deletes it.
///
/// Errors: the engine's. The hint says so if the copies could not be removed.
pub fn back_up(db: &Db, backups: &mut BackupEngine) -> Result<u32> {
    let made = backups.create_new_backup(db, CreateBackupOptions::default());
    made.map_err(|e| match backups.garbage_collect() {
        Ok(()) => e,
        Err(left) => e.hint(format!(
            "what was copied takes up space until the next backup, because removing it failed: {left}"
        )),
    })
}

#[cfg(test)]
mod tests {
    use ironstone::{BackupEngineOptions, Env, Options};

    use super::*;

    #[test]
    fn a_failed_backup_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.db.create_if_missing = true;
        let db = Db::open(dir.path().join("db"), &options).unwrap();
        db.put(b"k", b"v").unwrap();
        db.flush().unwrap();
        let to = dir.path().join("backups");
        let options = BackupEngineOptions::new(&to);
        let mut backups = BackupEngine::open(&options, &Env::default()).unwrap();
        let left = |part: &str| std::fs::read_dir(to.join(part)).unwrap().count();
        // The list of its files is the last that is written.
        let list = to.join("meta/.1.tmp");
        std::fs::create_dir(&list).unwrap();
        back_up(&db, &mut backups).unwrap_err();
        assert_eq!((left("shared_checksum"), left("private")), (0, 0));
        std::fs::remove_dir(&list).unwrap();
        back_up(&db, &mut backups).unwrap();
        assert_eq!((left("shared_checksum"), left("private")), (1, 1));
    }
}
