//! Backups that fail.

use ironstone::backup::{BackupEngine, BackupEngineOptions, CreateBackupOptions};
use ironstone::{Db, Env, Options};

fn open(dir: &std::path::Path) -> Db {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    Db::open(dir.join("db"), &options).unwrap()
}

/// On a full disk, what a failed backup has copied would take up space until somebody deletes it.
#[test]
fn a_failed_backup_leaves_no_tables_and_touches_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let to = dir.path().join("backups");
    let options = BackupEngineOptions::new(&to);
    let mut backups = BackupEngine::open(&options, &Env::default()).unwrap();
    let mut make = |key: &[u8]| {
        db.put(key, b"v").unwrap();
        db.flush().unwrap();
        backups.create_new_backup(&db, CreateBackupOptions::default())
    };
    let left = |part: &str| std::fs::read_dir(to.join(part)).unwrap().count();
    make(b"a").unwrap();
    // Files that no backup of this engine has: another process may be making one.
    std::fs::write(to.join("shared_checksum/000099_other.sst"), "x").unwrap();
    // The list of files is the last that is written.
    let list = to.join("meta/.2.tmp");
    std::fs::create_dir(&list).unwrap();
    make(b"b").unwrap_err();
    assert_eq!((left("shared_checksum"), left("private")), (2, 1));
    std::fs::remove_dir(&list).unwrap();
    make(b"c").unwrap();
    assert_eq!((left("shared_checksum"), left("private")), (4, 2));
    for backup in backups.get_backup_info() {
        backups.verify_backup(backup.backup_id, true).unwrap();
    }
}

/// Two engines on one directory are not supported; but neither takes the other's number or removes its backup.
#[test]
fn a_backup_of_another_engine_stays() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    db.put(b"a", b"v").unwrap();
    let to = dir.path().join("backups");
    let options = BackupEngineOptions::new(&to);
    let engine = || BackupEngine::open(&options, &Env::default()).unwrap();
    let make =
        |engine: &mut BackupEngine| engine.create_new_backup(&db, CreateBackupOptions::default());
    let (mut first, mut second) = (engine(), engine());
    assert_eq!(make(&mut second).unwrap(), 1);
    std::fs::create_dir(to.join("meta/.2.tmp")).unwrap();
    make(&mut first).unwrap_err();
    std::fs::remove_dir(to.join("meta/.2.tmp")).unwrap();
    assert_eq!(make(&mut first).unwrap(), 2);
    let all = engine();
    for id in [1, 2] {
        all.verify_backup(id, true).unwrap();
    }
}
