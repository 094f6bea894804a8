//! Creates backups.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, Result};

use super::meta::{File, Meta};
use super::{Backup, BackupEngine, CreateBackupOptions, Pace};
use crate::backup::checkpoint;
use crate::backup::live_files::{self, LiveFileStorageInfo, NoDeletions};
use crate::db::Db;
use files::FileKind;
use files::copies::{self, Copied};

impl BackupEngine {
    /// Makes a backup of an open database, which keeps accepting writes, and returns its id. Tables that an earlier
    /// backup contains are not copied again.
    ///
    /// Errors: `Incomplete` if it was stopped; those of the file system. A failed backup leaves no tables, unless
    /// removing them fails too: then the next [`BackupEngine::garbage_collect`] does it.
    pub fn create_new_backup(&mut self, db: &Db, options: CreateBackupOptions) -> Result<u32> {
        self.create_new_backup_with_metadata(db, &[], options)
    }

    /// [`BackupEngine::create_new_backup`] with application metadata, which [`BackupEngine::get_backup_info`]
    /// returns.
    pub fn create_new_backup_with_metadata(
        &mut self,
        db: &Db,
        app_metadata: &[u8],
        mut options: CreateBackupOptions,
    ) -> Result<u32> {
        let id = self.unused_id()?;
        let private = self.path("private").join(id.to_string());
        let mut left = Left::default();
        let made = self.make(db, (id, &private), app_metadata, &mut options, &mut left);
        match made {
            Ok(backup) => {
                self.backups.insert(id, backup);
                Ok(id)
            }
            Err(e) => {
                // The list may exist although it is not known to be durable. It goes before the files, durably.
                let unlist = || {
                    self.remove_list(id)?;
                    self.sync_dir(&self.path("meta"))
                };
                if !left.may_be_listed || unlist().is_ok() {
                    drop(copies::remove_tree(self.fs(), &private));
                    for path in left.added {
                        drop(self.fs().remove(&path));
                    }
                }
                Err(e)
            }
        }
    }

    /// The next number that no list has, not even one that this engine does not know. Another process may have made
    /// that one.
    fn unused_id(&self) -> Result<u32> {
        let newest = self.backups.keys().chain(self.corrupt.keys()).max();
        let mut id = newest.map_or(1, |id| id + 1);
        while self.fs().exists(&self.meta_path(id))? {
            id += 1;
        }
        Ok(id)
    }

    /// Makes a backup with this number and folder. `left` gets what it leaves if it fails.
    fn make(
        &self,
        db: &Db,
        (id, private): (u32, &Path),
        app_metadata: &[u8],
        options: &mut CreateBackupOptions,
        left: &mut Left,
    ) -> Result<Backup> {
        let fs = self.fs();
        copies::remove_tree(fs, private)?; // left by an unfinished backup
        fs.create_dir(private)?;
        let guard = NoDeletions::begin(&db.shared);
        let flush = if options.flush_before_backup {
            0
        } else {
            u64::MAX
        };
        let captured = live_files::capture(&db.shared, flush, &guard)?;
        let clock = &*self.env.clock;
        let every = self.options.callback_trigger_interval_size.max(1);
        let mut copying = Copying {
            engine: self,
            id,
            known: self.known(),
            added: &mut left.added,
            pace: Pace {
                clock,
                bytes_per_second: self.options.backup_rate_limit,
                started: clock.monotonic_nanos(),
                copied: 0,
                callback: options
                    .progress_callback
                    .as_mut()
                    .map(|call| (every, 0, &mut **call)),
                stop: &self.stop,
            },
        };
        let mut meta = Meta {
            timestamp: (clock.wall_micros() / 1_000_000) as i64,
            sequence: captured.sequence,
            app_metadata: app_metadata.to_vec(),
            files: Vec::with_capacity(captured.files.len()),
        };
        let mut sizes = Vec::with_capacity(captured.files.len());
        let sessions = captured.sessions();
        for file in &captured.files {
            if file.file_type == FileKind::Wal && !self.options.backup_log_files {
                continue;
            }
            let is_table = file.file_type == FileKind::Table;
            let session = sessions.get(&file.file_number).filter(|_| is_table);
            let (file, size) = copying.add(file, session.map(String::as_str))?;
            meta.files.push(file);
            sizes.push(size);
        }
        drop(guard);
        // Files were copied by path: the paths must still lead to the directories that this database opened.
        db.shared.env().fs.check_held()?;
        for dir in [
            private,
            &self.path("private"),
            &self.path("shared"),
            &self.path("shared_checksum"),
        ] {
            self.sync_dir(dir)?;
        }
        let temp = self.path("meta").join(format!(".{id}.tmp"));
        let text = meta.encode();
        left.may_be_listed = true;
        io::replace_file(fs, &self.meta_path(id), &temp, text.as_bytes())?;
        Ok(Backup { meta, sizes })
    }

    /// The shared files of all complete backups, with size and checksum.
    fn known(&self) -> BTreeMap<String, (u64, Option<u32>)> {
        let mut out = BTreeMap::new();
        for backup in self.backups.values() {
            for (file, &size) in backup.meta.files.iter().zip(&backup.sizes) {
                if file.is_shared() {
                    out.insert(file.path.clone(), (size, file.crc32c));
                }
            }
        }
        out
    }
}

/// What a failed backup leaves.
#[derive(Default)]
struct Left {
    /// The shared files that it has added.
    added: Vec<PathBuf>,
    /// Whether its list may exist. Before, a list of this number is somebody else's.
    may_be_listed: bool,
}

/// The state of a backup that is being made.
struct Copying<'a> {
    engine: &'a BackupEngine,
    id: u32,
    known: BTreeMap<String, (u64, Option<u32>)>,
    /// The shared files that this backup has added: no other one has them.
    added: &'a mut Vec<PathBuf>,
    pace: Pace<'a>,
}

impl Copying<'_> {
    /// Copies a file, unless an earlier backup already has it.
    fn add(&mut self, file: &LiveFileStorageInfo, session: Option<&str>) -> Result<(File, u64)> {
        let options = &self.engine.options;
        if file.file_type != FileKind::Table || !options.share_table_files {
            let path = format!("private/{}/{}", self.id, file.relative_filename);
            return self.copy(file, path);
        }
        let path = if options.share_files_with_checksum {
            self.shared_name(file, session)?
        } else {
            format!("shared/{}", file.relative_filename)
        };
        match self.known.get(&path) {
            Some(&(size, crc32c)) if size == file.size => Ok((File { path, crc32c }, size)),
            Some((size, _)) => Err(Error::corruption(format!(
                "a backup has a table of this name and {size} bytes, the database one of {}",
                file.size
            ))
            .file(self.engine.path(&path))
            .hint("back different databases up to different directories")),
            None => self.copy_shared(file, path),
        }
    }

    /// A file name that no other table has.
    fn shared_name(&mut self, file: &LiveFileStorageInfo, session: Option<&str>) -> Result<String> {
        let number = file.relative_filename.split('.').next().unwrap_or_default();
        let what = if let Some(session) = session {
            format!("s{session}")
        } else {
            let fs = self.engine.fs();
            let pace = &mut self.pace;
            let sum = copies::checksum(fs, &file.path(), &mut |n| pace.take(n))?;
            sum.crc32c.to_string()
        };
        Ok(format!("shared_checksum/{number}_{what}_{}.sst", file.size))
    }

    fn copy_shared(&mut self, file: &LiveFileStorageInfo, path: String) -> Result<(File, u64)> {
        let fs = Arc::clone(&self.engine.env.fs);
        let to = self.engine.path(&path);
        let (dir, name) = path.split_once('/').unwrap_or(("", &path));
        let temp = self.engine.path(&format!("{dir}/.{name}.tmp"));
        drop(fs.remove(&temp)); // left by an unfinished backup
        let is_new = !fs.exists(&to)?;
        let copied = self.transfer(file, &temp);
        let copied = copied.and_then(|copied| fs.rename(&temp, &to).map(|()| copied));
        let copied = copied.inspect_err(|_| drop(fs.remove(&temp)))?;
        if is_new {
            self.added.push(to);
        }
        let crc32c = Some(copied.crc32c);
        Ok((File { path, crc32c }, copied.bytes))
    }

    fn copy(&mut self, file: &LiveFileStorageInfo, path: String) -> Result<(File, u64)> {
        let to = self.engine.path(&path);
        let copied = if file.replacement_contents.is_empty() {
            self.transfer(file, &to)?
        } else {
            let data = &file.replacement_contents;
            checkpoint::write(self.engine.fs(), &to, data)?;
            Copied {
                bytes: data.len() as u64,
                crc32c: base::checksum::crc32c(data),
            }
        };
        let crc32c = Some(copied.crc32c);
        Ok((File { path, crc32c }, copied.bytes))
    }

    fn transfer(&mut self, file: &LiveFileStorageInfo, to: &Path) -> Result<Copied> {
        let pace = &mut self.pace;
        let fs = self.engine.fs();
        copies::copy(fs, &file.path(), to, Some(file.size), &mut |n| pace.take(n))
    }
}
