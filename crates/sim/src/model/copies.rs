//! Copies of the database, and other instances of it, which are opened and compared.

use std::path::Path;

use ironstone::{
    BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, ImportColumnFamilyOptions,
    RestoreOptions,
};

use super::runner::{Runner, Step, compare, remove};
use super::setup::{FAMILIES, for_family};
use super::store::{Family, Model};

/// Number of backups that are kept.
const BACKUPS_MAX: usize = 3;
/// The most families at a time, so that comparisons stay short.
const FAMILIES_MAX: usize = 6;

impl Runner {
    /// Opens a copy in one of several ways, and compares it with a model.
    fn open_copy(&mut self, dir: &Path, model: &Model) -> Step {
        let families = self.descriptors(model);
        let mut options = self.setup.options.clone();
        options.db.avoid_flush_during_recovery = self.rng.one_in(2);
        let writable = self.rng.one_in(2);
        let db = if writable {
            Db::open_cf(dir, &options, &families)
        } else {
            Db::open_cf_read_only(dir, &options, &families)
        };
        let db = db.map_err(|e| format!("open the copy, writable {writable}: {e}"))?;
        compare(&db, model).map_err(|e| format!("the copy, writable {writable}: {e}"))?;
        if writable {
            let put = db.put(b"only in the copy", b"");
            put.map_err(|e| format!("a put into the copy: {e}"))?;
        }
        db.close().map_err(|e| format!("close the copy: {e}"))
    }

    /// Creates a checkpoint; at times the run continues with it.
    pub(super) fn checkpoint(&mut self) -> Step {
        let log_size = [0, 0, 10_000, u64::MAX][self.rng.below(4) as usize];
        if log_size > 0 {
            self.settle()?;
        }
        let dir = self.new_path("checkpoint");
        self.note(format!("checkpoint, logs flushed from {log_size} bytes"));
        let made = self.db().create_checkpoint(&dir, log_size);
        let sequence = made.map_err(|e| format!("checkpoint: {e}"))?;
        let last = self.db().latest_sequence_number();
        if sequence != last {
            return Err(format!(
                "the checkpoint ends at {sequence} instead of {last}"
            ));
        }
        if self.rng.one_in(4) {
            return self.go_on_in(dir);
        }
        let model = self.model.clone();
        self.open_copy(&dir, &model)?;
        remove(&dir)
    }

    /// Creates a backup, and restores some backup; at times the run continues with it.
    pub(super) fn back_up(&mut self) -> Step {
        let flush_before_backup = self.rng.one_in(2);
        if !flush_before_backup {
            self.settle()?;
        }
        self.note(format!("backup, flushed before {flush_before_backup}"));
        let env = self.setup.options.env.clone();
        let mut options = BackupEngineOptions::new(self.temp.path().join("backups"));
        options.sync = self.rng.one_in(2);
        let failed = |e| format!("backup: {e}");
        let mut engine = BackupEngine::open(&options, &env).map_err(failed)?;
        let how = CreateBackupOptions {
            flush_before_backup,
            progress_callback: None,
        };
        let id = engine.create_new_backup(self.db(), how).map_err(failed)?;
        engine.verify_backup(id, true).map_err(failed)?;
        self.backups.insert(id, self.model.clone());
        if self.backups.len() > BACKUPS_MAX {
            let purged = engine.purge_old_backups(BACKUPS_MAX as u32);
            purged.map_err(failed)?;
            self.backups.pop_first();
        }
        let (have, want) = (engine.get_backup_info().len(), self.backups.len());
        if have != want {
            return Err(format!("{have} backups instead of {want}"));
        }
        let nth = self.rng.below(want as u64) as usize;
        let chosen = self.backups.iter().nth(nth);
        let (id, model) = chosen.map(|(id, m)| (*id, m.clone())).unwrap_or_default();
        let dir = self.new_path("restored");
        let restored = engine.restore_db_from_backup(id, &dir, &dir, &RestoreOptions::default());
        restored.map_err(|e| format!("restore: {e}"))?;
        if self.rng.one_in(4) {
            self.note(format!("on with backup {id}"));
            self.model = model;
            return self.go_on_in(dir);
        }
        self.open_copy(&dir, &model)
            .map_err(|e| format!("backup {id}: {e}"))?;
        remove(&dir)
    }

    /// Exports a family and imports it under another name.
    pub(super) fn export(&mut self) -> Step {
        let f = self.family();
        let Some(name) = self.new_name().filter(|_| self.model.len() < FAMILIES_MAX) else {
            return Ok(());
        };
        self.note(format!("export of {f}, import as {name:?}"));
        self.snapshots.clear();
        let dir = self.new_path("export");
        let cf = self.handle(f)?;
        let exported = self.db().cf(&cf).export(&dir);
        let exported = exported.map_err(|e| format!("export: {e}"))?;
        let mut family: Family = self.model[f].clone();
        family.name.clone_from(&name);
        let options = for_family(&self.setup.options, family.reverse);
        let import = ImportColumnFamilyOptions {
            move_files: self.rng.one_in(2),
        };
        if exported.files.is_empty() {
            // There is nothing to import.
            return remove(&dir);
        }
        let db = self.db();
        db.create_column_family_with_import(&name, &options, &import, &exported)
            .map_err(|e| format!("import: {e}"))?;
        self.model.push(family);
        remove(&dir)
    }

    /// Opens a read-only instance while this one has the directory open.
    pub(super) fn read_only(&mut self) -> Step {
        self.settle()?;
        self.note("an instance for reading".to_owned());
        // The files that it opens must not be deleted.
        self.db().disable_file_deletions();
        let families = self.descriptors(&self.model);
        let some = self.rng.one_in(2);
        let options = &self.setup.options;
        let opened = if some {
            // Only the initial families: a reader need not open all.
            Db::open_cf_read_only(&self.dir, options, &families[..FAMILIES.len()])
        } else {
            Db::open_cf_read_only(&self.dir, options, &families)
        };
        let model = if some {
            &self.model[..FAMILIES.len()]
        } else {
            &self.model[..]
        };
        let result = opened
            .map_err(|e| format!("open for reading: {e}"))
            .and_then(|db| compare(&db, model).map_err(|e| format!("for reading: {e}")));
        self.db().enable_file_deletions();
        result
    }

    /// Opens a secondary instance, or lets it catch up.
    pub(super) fn secondary(&mut self) -> Step {
        self.settle()?;
        self.note("a secondary instance".to_owned());
        if self.rng.one_in(5) {
            self.secondary = None;
        }
        let db = if let Some(db) = self.secondary.take() {
            let caught = db.try_catch_up_with_primary();
            caught.map_err(|e| format!("catch up: {e}"))?;
            db
        } else {
            let own = self.temp.path().join("secondary");
            Db::open_as_secondary(&self.dir, own, &self.setup.options)
                .map_err(|e| format!("open as secondary: {e}"))?
        };
        compare(&db, &self.model).map_err(|e| format!("secondary: {e}"))?;
        self.secondary = Some(db);
        Ok(())
    }
}
