//! Copies of an open database: a checkpoint by hard links, and backups that have each table once.
//!
//! ```text
//! cargo run --example copies
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it does")]

use ironstone::{
    BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, Env, Options, RestoreOptions,
    Result,
};

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("ironstone-copies-{}", std::process::id()));
    let options = Options::default().with_db(|db| db.create_if_missing = true);
    let db = Db::open(dir.join("db"), &options)?;
    for i in 0..1000 {
        db.put(format!("key{i:04}"), "first")?;
    }

    // A checkpoint is a database of its own, made at once where it is on the same file system.
    db.create_checkpoint(dir.join("checkpoint"), 0)?;

    let mut backups = BackupEngine::open(
        &BackupEngineOptions::new(dir.join("backups")),
        &Env::default(),
    )?;
    let first = backups.create_new_backup(&db, CreateBackupOptions::default())?;
    for i in 0..10 {
        db.put(format!("key{i:04}"), "second")?;
    }
    let second = backups.create_new_backup(&db, CreateBackupOptions::default())?;
    backups.verify_backup(second, true)?;
    for backup in backups.get_backup_info() {
        println!(
            "backup {}: {} bytes in {} files",
            backup.backup_id, backup.size, backup.number_files
        );
    }
    db.close()?;

    backups.restore_db_from_backup(
        first,
        dir.join("db"),
        dir.join("db"),
        &RestoreOptions::default(),
    )?;
    for (name, which) in [("restored", "db"), ("checkpoint", "checkpoint")] {
        let db = Db::open(dir.join(which), &options)?;
        let value = db.get("key0000")?;
        println!("{name}: {} entries", db.range(..)?.count());
        assert_eq!(value.as_deref(), Some(&b"first"[..]));
        db.close()?;
    }
    std::fs::remove_dir_all(&dir).map_err(|e| ironstone::Error::io("remove", &dir, e))
}
