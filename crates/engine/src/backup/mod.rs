//! The backup engine: copies of a database in a separate directory, where unchanged tables are stored only once.
//! The layout is RocksDB's, so RocksDB's backup engine can read it:
//!
//! ```text
//!   meta/<id>                                   the list of files; it makes the backup exist
//!   shared_checksum/<number>_s<session>_<size>.sst    tables, each used by any number of backups
//!   private/<id>/                               CURRENT, MANIFEST, OPTIONS and logs
//! ```
//!
//! A backup is written in this order: files, directories, list. Each step is durable before the next one. A crash
//! leaves either a complete backup or remains that [`BackupEngine::garbage_collect`] removes. A backup is deleted
//! in the opposite order.

pub(crate) mod checkpoint;
mod create;
pub(crate) mod export;
pub(crate) mod live_files;
mod meta;
mod restore;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::sync::atomic::{AtomicBool, Ordering};
use base::{Error, ErrorKind, Result};
use io::FileSystem;

use files::copies;
use meta::{File, Meta};
use options::Env;

pub use restore::RestoreOptions;

/// The largest list of files that is read, in bytes.
const META_BYTES_MAX: u64 = 1 << 30;

/// Where backups are, and how they are made. Names and defaults are RocksDB's.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "RocksDB's options, each a switch of its own"
)]
pub struct BackupEngineOptions {
    /// The directory of the backups; created if missing.
    pub backup_dir: PathBuf,
    /// Whether backups share tables. If not, each backup has copies of all its tables.
    pub share_table_files: bool,
    /// Whether the name of a shared table contains its session id or checksum, and its size. If not, the name
    /// contains only the file number: then only one database may be backed up to the directory, and it must never
    /// have been restored.
    pub share_files_with_checksum: bool,
    /// Whether files are synced. Without it, a power cut may damage backups.
    pub sync: bool,
    /// Whether all existing backups are deleted when the engine is opened.
    pub destroy_old_data: bool,
    /// Whether logs are backed up. If not, data that is only in memtables and logs is not in the backup, unless it
    /// is flushed first.
    pub backup_log_files: bool,
    /// The most bytes per second that a backup copies; 0 means no limit.
    pub backup_rate_limit: u64,
    /// The most bytes per second that a restore copies; 0 means no limit.
    pub restore_rate_limit: u64,
    /// How many bytes are copied between two calls of the progress callback.
    pub callback_trigger_interval_size: u64,
}

impl BackupEngineOptions {
    /// The defaults, for backups in `backup_dir`.
    pub fn new(backup_dir: impl Into<PathBuf>) -> Self {
        Self {
            backup_dir: backup_dir.into(),
            share_table_files: true,
            share_files_with_checksum: true,
            sync: true,
            destroy_old_data: false,
            backup_log_files: true,
            backup_rate_limit: 0,
            restore_rate_limit: 0,
            callback_trigger_interval_size: 4 << 20,
        }
    }
}

/// Called while a backup makes progress.
pub type Callback = dyn FnMut() + Send + 'static;

/// How one backup is made.
#[derive(Default)]
pub struct CreateBackupOptions {
    /// Whether memtables are flushed first, so that no log needs to be copied.
    pub flush_before_backup: bool,
    /// Called regularly while bytes are copied. If it panics, the backup fails.
    pub progress_callback: Option<Box<Callback>>,
}

impl fmt::Debug for CreateBackupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateBackupOptions")
            .field("flush_before_backup", &self.flush_before_backup)
            .field("progress_callback", &self.progress_callback.is_some())
            .finish()
    }
}

/// Describes a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// Its id. Newer backups have larger ids.
    pub backup_id: u32,
    /// When it was made, in seconds since 1970.
    pub timestamp: i64,
    /// The total size of its files in bytes, including shared ones.
    pub size: u64,
    /// The number of its files.
    pub number_files: u32,
    /// The application metadata that was stored with it.
    pub app_metadata: Vec<u8>,
}

/// A complete backup, with the sizes of its files.
#[derive(Clone, Debug)]
struct Backup {
    meta: Meta,
    sizes: Vec<u64>,
}

/// Makes, restores and deletes backups.
///
/// Only one engine at a time may have a backup directory open for changes.
///
/// ```
/// use ironstone::{BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, Env, Options};
/// use ironstone::RestoreOptions;
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = Options::default();
/// # options.db.create_if_missing = true;
/// let db = Db::open(dir.path().join("db"), &options)?;
/// db.put("key", "value")?;
/// let backups = BackupEngineOptions::new(dir.path().join("backups"));
/// let mut engine = BackupEngine::open(&backups, &Env::default())?;
/// let id = engine.create_new_backup(&db, CreateBackupOptions::default())?;
/// db.close()?;
///
/// engine.verify_backup(id, true)?;
/// let to = dir.path().join("restored");
/// engine.restore_db_from_latest_backup(&to, &to, &RestoreOptions::default())?;
/// let db = Db::open(&to, &options)?;
/// assert_eq!(db.get("key")?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), ironstone::Error>(())
/// ```
#[derive(Debug)]
pub struct BackupEngine {
    options: BackupEngineOptions,
    env: Env,
    backups: BTreeMap<u32, Backup>,
    /// Backups that cannot be used, each with the reason.
    corrupt: BTreeMap<u32, Error>,
    stop: Arc<AtomicBool>,
}

/// Stops backups that are being made; may be used from any thread.
#[derive(Clone, Debug)]
pub struct BackupStopper(Arc<AtomicBool>);

impl BackupStopper {
    /// Makes the running backup, and every later one of this engine, fail with `Incomplete`.
    pub fn stop_backup(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl BackupEngine {
    /// Opens the backup directory and checks each backup: it is corrupted if its list is damaged or a file is
    /// missing. Errors: the directory cannot be created or read.
    pub fn open(options: &BackupEngineOptions, env: &Env) -> Result<Self> {
        let mut env = env.clone();
        env.clock = base::clock::guarded(&env.clock);
        let mut me = Self {
            options: options.clone(),
            env,
            backups: BTreeMap::new(),
            corrupt: BTreeMap::new(),
            stop: Arc::default(),
        };
        let fs = Arc::clone(&me.env.fs);
        if options.destroy_old_data {
            for part in ["meta", "private", "shared", "shared_checksum"] {
                copies::remove_tree(&*fs, &me.path(part))?;
            }
        }
        io::create_dirs(&*fs, &options.backup_dir)?;
        for part in ["meta", "private", "shared", "shared_checksum"] {
            fs.create_dir(&me.path(part))?;
        }
        me.sync_dir(&options.backup_dir)?;
        for name in fs.list(&me.path("meta"))? {
            let Some(id) = name.to_str().and_then(|n| n.parse().ok()) else {
                continue; // not a backup list, or that of an unfinished backup
            };
            match me.load(id) {
                Ok(backup) => drop(me.backups.insert(id, backup)),
                Err(e) => drop(me.corrupt.insert(id, e)),
            }
        }
        Ok(me)
    }

    /// The usable backups, oldest first.
    pub fn get_backup_info(&self) -> Vec<BackupInfo> {
        let info = |(&backup_id, backup): (&u32, &Backup)| BackupInfo {
            backup_id,
            timestamp: backup.meta.timestamp,
            size: backup.sizes.iter().sum(),
            number_files: backup.meta.files.len() as u32,
            app_metadata: backup.meta.app_metadata.clone(),
        };
        self.backups.iter().map(info).collect()
    }

    /// The backups that cannot be used, each with the reason.
    pub fn get_corrupted_backups(&self) -> Vec<(u32, Error)> {
        let entry = |(&id, e): (&u32, &Error)| (id, e.clone());
        self.corrupt.iter().map(entry).collect()
    }

    /// Checks that all files of a backup exist, have the right size and, with `verify_with_checksum`, the right
    /// checksum. Errors: `NotFound` if there is no such backup; `Corruption`, naming the first bad file.
    pub fn verify_backup(&self, id: u32, verify_with_checksum: bool) -> Result<()> {
        let backup = self.backup(id)?;
        for (file, &size) in backup.meta.files.iter().zip(&backup.sizes) {
            self.verify_file(file, size, verify_with_checksum)?;
        }
        Ok(())
    }

    fn verify_file(&self, file: &File, size: u64, with_checksum: bool) -> Result<()> {
        let path = self.path(&file.path);
        let now = self.env.fs.metadata(&path)?.len;
        if now != size {
            return Err(Error::corruption(format!(
                "File corrupted: File size mismatch: {size} bytes expected, the file has {now}"
            ))
            .file(path));
        }
        if let (true, Some(expected)) = (with_checksum, file.crc32c) {
            let found = copies::checksum(&*self.env.fs, &path, &mut copies::at_once)?;
            check_crc(expected, found.crc32c, &path)?;
        }
        Ok(())
    }

    /// Deletes a backup, usable or corrupted, and the files that no other backup needs. Errors: `NotFound` if there is
    /// no such backup; a file cannot be removed.
    pub fn delete_backup(&mut self, id: u32) -> Result<()> {
        if !self.backups.contains_key(&id) && !self.corrupt.contains_key(&id) {
            return Err(Error::not_found(format!("Backup not found: {id}")));
        }
        self.remove_meta(id)?;
        self.sync_dir(&self.path("meta"))?;
        self.garbage_collect()
    }

    /// Deletes all usable backups except the newest `num_backups_to_keep`.
    pub fn purge_old_backups(&mut self, num_backups_to_keep: u32) -> Result<()> {
        let keep = num_backups_to_keep as usize;
        let old = self.backups.len().saturating_sub(keep);
        let ids: Vec<u32> = self.backups.keys().copied().take(old).collect();
        for &id in &ids {
            self.remove_meta(id)?;
        }
        if ids.is_empty() {
            return Ok(());
        }
        self.sync_dir(&self.path("meta"))?;
        self.garbage_collect()
    }

    /// Removes a backup's list, if there is one.
    fn remove_list(&self, id: u32) -> Result<()> {
        match self.env.fs.remove(&self.meta_path(id)) {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }

    /// Removes the list of a backup. Without the list, the backup does not exist. If this fails, the backup stays and
    /// keeps its files.
    fn remove_meta(&mut self, id: u32) -> Result<()> {
        self.remove_list(id)?;
        self.backups.remove(&id);
        self.corrupt.remove(&id);
        Ok(())
    }

    /// Deletes files that no backup needs, such as remains of unfinished backups. While the list of a corrupted
    /// backup cannot be read, shared files are kept.
    pub fn garbage_collect(&mut self) -> Result<()> {
        let fs = &*self.env.fs;
        let known = |id: &u32| self.backups.contains_key(id) || self.corrupt.contains_key(id);
        // First, durably, remove the lists of failed backups, so that their remaining files are not taken for a backup.
        let lists = fs.list(&self.path("meta"))?;
        let ids = lists.iter().filter_map(|name| name.to_str()?.parse().ok());
        let left: Vec<u32> = ids.filter(|id| !known(id)).collect();
        left.iter().try_for_each(|&id| self.remove_list(id))?;
        if !left.is_empty() {
            self.sync_dir(&self.path("meta"))?;
        }
        let mut needed: BTreeSet<PathBuf> = BTreeSet::new();
        let mut unknown = false;
        for meta in self.backups.values().map(|b| &b.meta) {
            needed.extend(meta.files.iter().map(|f| self.path(&f.path)));
        }
        for &id in self.corrupt.keys() {
            match self.read_meta(id) {
                Ok(meta) => needed.extend(meta.files.iter().map(|f| self.path(&f.path))),
                Err(_) => unknown = true,
            }
        }
        for part in ["shared", "shared_checksum"] {
            let dir = self.path(part);
            for name in fs.list(&dir)? {
                let path = dir.join(name);
                if !unknown && !needed.contains(&path) {
                    fs.remove(&path)?;
                }
            }
        }
        let private = self.path("private");
        for name in fs.list(&private)? {
            let id: Option<u32> = name.to_str().and_then(|n| n.parse().ok());
            if !id.is_some_and(|id| known(&id)) {
                copies::remove_tree(fs, &private.join(name))?;
            }
        }
        Ok(())
    }

    /// A handle that can stop running backups.
    pub fn stopper(&self) -> BackupStopper {
        BackupStopper(Arc::clone(&self.stop))
    }

    fn backup(&self, id: u32) -> Result<&Backup> {
        if let Some(e) = self.corrupt.get(&id) {
            return Err(e.clone());
        }
        self.backups
            .get(&id)
            .ok_or_else(|| Error::not_found(format!("Backup not found: {id}")))
    }

    fn load(&self, id: u32) -> Result<Backup> {
        let meta = self.read_meta(id)?;
        let mut sizes = Vec::with_capacity(meta.files.len());
        for file in &meta.files {
            let path = self.path(&file.path);
            let size = match self.env.fs.metadata(&path) {
                Ok(m) => m.len,
                Err(e) if e.is_not_found() => {
                    return Err(
                        Error::corruption(format!("File missing: backup {id} needs it")).file(path),
                    );
                }
                Err(e) => return Err(e),
            };
            if let Some(named) = size_in_name(file)
                && named != size
            {
                return Err(Error::corruption(format!(
                    "File corrupted: its name says {named} bytes, it has {size}"
                ))
                .file(path));
            }
            sizes.push(size);
        }
        Ok(Backup { meta, sizes })
    }

    fn read_meta(&self, id: u32) -> Result<Meta> {
        let path = self.meta_path(id);
        let bytes = io::read_file(&*self.env.fs, &path, META_BYTES_MAX)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::corruption("backup meta file: it is not text"));
        text.and_then(|t| Meta::decode(&t))
            .map_err(|e| e.or_file(&path))
    }

    fn meta_path(&self, id: u32) -> PathBuf {
        self.path("meta").join(id.to_string())
    }

    /// A path inside the backup directory.
    fn path(&self, below: &str) -> PathBuf {
        self.options.backup_dir.join(below)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        if self.options.sync {
            self.env.fs.sync_dir(dir)
        } else {
            Ok(())
        }
    }

    fn fs(&self) -> &dyn FileSystem {
        &*self.env.fs
    }
}

/// The size in bytes that a shared file's name contains.
fn size_in_name(file: &File) -> Option<u64> {
    let name = file.path.strip_prefix("shared_checksum/")?;
    let (name, _) = name.rsplit_once('.')?;
    name.split('_').nth(2)?.parse().ok()
}

fn check_crc(expected: u32, found: u32, path: &Path) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::corruption(format!(
        "File corrupted: Checksum mismatch: the backup says {expected}, the file has {found}"
    ))
    .file(path))
}

/// Limits the copy rate, reports progress, and ends the copy when it is stopped.
struct Pace<'a> {
    clock: &'a dyn Clock,
    bytes_per_second: u64,
    started: u64,
    copied: u64,
    /// Bytes between two calls, bytes since the last call, and the callback.
    callback: Option<(u64, u64, &'a mut Callback)>,
    stop: &'a AtomicBool,
}

impl Pace<'_> {
    fn take(&mut self, bytes: u64) -> Result<()> {
        if self.stop.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Incomplete, "Backup stopped"));
        }
        self.copied += bytes;
        if let Some((every, since, call)) = &mut self.callback {
            *since += bytes;
            if *since >= *every {
                *since = 0;
                catch_unwind(AssertUnwindSafe(call))
                    .map_err(|_| Error::aborted("the progress callback of the backup panicked"))?;
            }
        }
        let due = u128::from(self.copied) * 1_000_000_000;
        if let Some(due) = due.checked_div(u128::from(self.bytes_per_second)) {
            let passed = u128::from(self.clock.monotonic_nanos() - self.started);
            let wait = due.saturating_sub(passed).min(10_000_000_000) as u64;
            self.clock.sleep(Duration::from_nanos(wait));
        }
        Ok(())
    }
}
