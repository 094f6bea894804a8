//! Opening a database.
//!
//! ```text
//!   look      is there a database, may it be opened?            nothing is written
//!   lock      LOCK: only one process may open it                the LOCK file, if missing
//!   recover   CURRENT → MANIFEST → tables → logs → memtables    tables, if memtables overflow
//!   install   new log, new MANIFEST, CURRENT                    the point of no return
//!   tidy      OPTIONS file, obsolete files                      deletions
//! ```
//!
//! Recovered data is flushed before the new MANIFEST is written in four cases: there is little of it, there are many
//! logs, it does not fit into the write buffers, or part of the logs was given up as damaged. Otherwise it is flushed
//! later in the background, and the logs stay until then. With `avoid_flush_during_recovery`, the first two cases do
//! not cause a flush.
//!
//! All problems with existing files are found before the point of no return. A failed open deletes nothing and
//! overwrites nothing.

mod create;
pub(crate) mod destroy;
mod install;
mod replay;
mod secondary;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use base::rng::Rng;
use base::stats::Activity;
use base::sync::ranked;
use base::{Comparator, Error, FileNumber, Result};
use io::FileSystem;
use memtable::WriteBuffers;

use crate::background::compressors::CompressionPool;
use crate::background::parallel::map_parallel;
use crate::catalog::family::{Family, FamilySet};
use crate::catalog::version_set::Tables;
use crate::db::{Db, families};
use crate::info::dump;
use crate::info::log::{InfoLog, Rolling};
use crate::locks;
use crate::shared::new_instance;
use crate::wal::location::Location;
use crate::wal::unit::check_tail_policy;
use files::copies::parent;
use files::{self, FileKind};
use manifest::edit::{NewFile, VersionEdit};
use manifest::janitor::Janitor;
use manifest::table_cache::TableCache;
use manifest::{self, FileNumbers, Recovered, RecoveredFamily, TableFile, Version};
use options::memory::Budget;
use options::{CacheTier, ColumnFamilyDescriptor, ColumnFamilyOptions, Env, Options, sanitize};

pub(crate) use secondary::{catch_up, check_no_logs, open_secondary};

/// The RocksDB version whose formats and options Ironstone follows.
const ROCKSDB_VERSION: &str = "11.8.1";

/// The column families to open.
pub(crate) enum Wanted<'a> {
    /// These families. Unless the open is read-only, all existing families must be listed.
    Listed(&'a [ColumnFamilyDescriptor]),
    /// All existing families, each with the options of the default family.
    All,
}

/// The size in bytes of the block cache if none is configured: RocksDB's default.
const DEFAULT_CACHE_BYTES: usize = 32 << 20;
/// The most threads that compress blocks, over all tables that are being written.
const COMPRESSION_THREADS_MAX: usize = 64;

/// Opening.
impl Db {
    /// Opens a database that has only the default column family, or creates one.
    ///
    /// Errors: the database does not exist and `create_if_missing` is false; it has more column families; another
    /// process or another `Db` has it open (`Busy`, with the holder in the message); its files are damaged.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let default = ColumnFamilyDescriptor::new(families::DEFAULT, options.cf.clone());
        Self::open_cf(path, options, &[default])
    }

    /// Opens a database with these column families. Every family of the database must be listed. Families that do
    /// not exist are created if `create_missing_column_families` is set. Errors: as [`Db::open`]; `InvalidArgument` if
    /// a family is not listed or does not exist.
    pub fn open_cf(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[ColumnFamilyDescriptor],
    ) -> Result<Self> {
        open(path.as_ref(), options, &Wanted::Listed(families), false)
    }

    /// Opens a database with all of its column families, each with `options.cf`. A family that was written with a
    /// built-in comparator is opened with that comparator. Errors: as [`Db::open`], except that the number of column
    /// families does not matter.
    pub fn open_all(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        open(path.as_ref(), options, &Wanted::All, false)
    }

    /// Like [`Db::open_all`], but for reading only: it takes no lock and writes no file, and writes fail. The logs
    /// are replayed into memory. Later writes of another process are not visible.
    pub fn open_read_only(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        open(path.as_ref(), options, &Wanted::All, true)
    }

    /// Like [`Db::open_read_only`], with options for each column family. Families that are not listed are not opened;
    /// the default family must be listed. Errors: also `InvalidArgument` if a listed family does not exist.
    pub fn open_cf_read_only(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[ColumnFamilyDescriptor],
    ) -> Result<Self> {
        open(path.as_ref(), options, &Wanted::Listed(families), true)
    }

    /// The names of the column families of a database, which need not be open.
    pub fn list_column_families(path: impl AsRef<Path>, env: &Env) -> Result<Vec<String>> {
        list_column_families(path.as_ref(), env)
    }

    /// Like [`Db::open_read_only`]. Errors: also `Corruption` if `error_if_wal_file_exists` is set and there is a log,
    /// whose data would have to be replayed into memory.
    pub fn open_for_read_only(
        path: impl AsRef<Path>,
        options: &Options,
        error_if_wal_file_exists: bool,
    ) -> Result<Self> {
        if error_if_wal_file_exists {
            check_no_logs(path.as_ref(), options)?;
        }
        Self::open_read_only(path, options)
    }

    /// Opens a database for reading that another instance, the primary, may have open. All data that the primary
    /// has written is visible, including data that is only in its logs. [`Db::try_catch_up_with_primary`] makes
    /// later writes visible. Messages go to LOG in `secondary_path`; nothing else is written.
    ///
    /// An iterator keeps its view. A snapshot does not keep the primary from deleting old versions: its contents
    /// change when this instance catches up.
    pub fn open_as_secondary(
        path: impl AsRef<Path>,
        secondary_path: impl AsRef<Path>,
        options: &Options,
    ) -> Result<Self> {
        open_secondary(path.as_ref(), secondary_path.as_ref(), options)
    }

    /// Makes the writes visible that the primary has made since this instance was opened or last caught up, including
    /// new column families. Open tables stay open; logs are read from their start.
    ///
    /// Errors: `NotSupported` if the database is open for writing; `TryAgain` if the primary changes its files too
    /// fast. After an error, the previous state stays visible.
    pub fn try_catch_up_with_primary(&self) -> Result<()> {
        catch_up(&self.shared)
    }
}

/// Opens or creates the database in `dir`.
pub(crate) fn open(
    dir: &Path,
    options: &Options,
    wanted: &Wanted<'_>,
    read_only: bool,
) -> Result<Db> {
    options.validate()?;
    if let Wanted::Listed(list) = wanted {
        check_descriptors(list, options)?;
    }
    let mut options = options.clone();
    let replaced = sanitize::whole(&mut options);
    let options = &options;
    let mut exists = look(dir, options, read_only)?;
    if !exists {
        make_dir(&*options.env.fs, dir)?;
    }
    let mut options = options.clone();
    let mut lock = None;
    if !read_only {
        options.env.fs = io::hold(&options.env.fs, dir)?;
        lock = Some(options.env.fs.lock(&files::lock_path(dir))?);
        // Another opener may have created the database, or deleted it, before this one had the lock.
        exists = look(dir, &options, false)?;
    }
    let mut logs = Location::of(dir, &options)?;
    logs.prepare(!exists, read_only)?;
    if !read_only {
        options.env.fs = logs.hold()?;
    }
    let options = &options;
    let opening = Opening::new(dir, options, read_only, logs);
    if !read_only {
        check_tail_policy(&options.db, opening.logs.dir(), opening.probe.as_ref())?;
    }
    let recovered = if exists {
        manifest::read(&*options.env.fs, dir)?
    } else {
        create::blank(options, wanted)
    };
    if exists {
        opening.logs.check(oldest_log(&recovered))?;
    }
    opening.tell(&replaced);
    let shared = opening.run(&recovered, wanted, exists)?;
    Db::started(shared, lock)
}

/// Creates the directory of a new database durably. The directory may already exist, created a moment ago.
fn make_dir(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    if fs.exists(dir)? {
        return fs.sync_dir(parent(dir));
    }
    io::create_dirs(fs, dir)
}

/// The number of the first log that recovery reads.
fn oldest_log(recovered: &Recovered) -> FileNumber {
    let families = recovered.families.values().map(|f| f.log_number);
    FileNumber(
        recovered
            .min_log_number_to_keep
            .max(families.min().unwrap_or(0)),
    )
}

/// Whether there is a database in `dir`.
///
/// Errors: there is no database, and it may not be created; there is a database, and `error_if_exists` is set; there
/// are files of a database, but no CURRENT.
fn look(dir: &Path, options: &Options, read_only: bool) -> Result<bool> {
    let fs = &*options.env.fs;
    if fs.exists(&files::current_path(dir))? {
        if options.db.error_if_exists {
            return Err(Error::invalid_argument("exists (error_if_exists is true)").file(dir));
        }
        return Ok(true);
    }
    let entries = match files::list(fs, dir) {
        Ok(entries) => entries,
        Err(e) if e.is_not_found() => Vec::new(),
        Err(e) => return Err(e),
    };
    // If parts of a database are left, a new database must not be created on top of them. A MANIFEST without data
    // is ignored: a crash while a database is being created leaves one.
    if let Some(left) = entries.iter().find(|e| match e.kind {
        FileKind::Table | FileKind::Blob => true,
        FileKind::Wal => !matches!(fs.metadata(&dir.join(&e.name)), Ok(m) if m.len == 0),
        _ => false,
    }) {
        return Err(Error::corruption(format!(
            "CURRENT is missing, but {} is there",
            left.name.display()
        ))
        .file(dir)
        .hint("write the name of the newest good MANIFEST and a newline to CURRENT, or restore a backup"));
    }
    if read_only || !options.db.create_if_missing {
        return Err(Error::invalid_argument(
            "not a database: it has no CURRENT file (create_if_missing is false)",
        )
        .file(dir)
        .hint("check the path, or set create_if_missing = true to make a new database"));
    }
    Ok(false)
}

fn check_descriptors(list: &[ColumnFamilyDescriptor], options: &Options) -> Result<()> {
    for (i, d) in list.iter().enumerate() {
        d.options.validate_in(&options.db)?;
        if list[..i].iter().any(|other| other.name == d.name) {
            return Err(Error::invalid_argument(format!(
                "column family {:?} is named twice",
                d.name
            )));
        }
    }
    if list.iter().any(|d| d.name == families::DEFAULT) {
        return Ok(());
    }
    Err(
        Error::invalid_argument("the default column family must be opened too")
            .hint("add a descriptor named \"default\""),
    )
}

/// The state of an open in progress.
struct Opening {
    dir: PathBuf,
    options: Options,
    read_only: bool,
    info_log: InfoLog,
    /// The directories of the logs.
    logs: Location,
    tables: Tables,
    session_id: String,
    instance: u64,
    write_buffers: Arc<WriteBuffers>,
    /// Tables that are already open, by file number.
    reused: BTreeMap<u64, Arc<TableFile>>,
    /// The capabilities of the device and the file system; `None` if they could not be determined.
    probe: Option<io::Probe>,
}

impl Opening {
    fn new(dir: &Path, options: &Options, read_only: bool, logs: Location) -> Self {
        let env = options.env.clone();
        let env_fs = Arc::clone(&env.fs);
        let clock = Arc::clone(&env.clock);
        let log = if read_only {
            InfoLog::disabled(clock)
        } else {
            let (fs, rolling) = (Arc::clone(&env.fs), Rolling::of(&options.db));
            match options.db.db_log_dir.as_str() {
                "" => InfoLog::open(fs, dir, clock, rolling),
                log_dir => InfoLog::open_in(log_dir.as_ref(), fs, dir, clock, rolling),
            }
        };
        let budget = Budget::of(&options.db);
        let cache = env.block_cache.clone().unwrap_or_else(|| {
            let bytes = budget.map_or(DEFAULT_CACHE_BYTES, |b| b.cache);
            Arc::new(table::BlockCache::new(bytes))
        });
        let tables = Tables {
            dir: dir.to_path_buf(),
            cache,
            charge_metadata: budget.is_some(),
            janitor: Arc::new(Janitor::default()),
            opened: Arc::new(TableCache::new(&options.db)),
            direct: options.db.use_direct_reads,
            first_tier_only: options.db.lowest_used_cache_tier == CacheTier::Volatile,
            read_queues: Weak::new(),
            verify_unique_id: options.db.verify_sst_unique_id_in_manifest,
            check_sizes: !options.db.skip_checking_sst_file_sizes_on_db_open,
            compressors: Arc::new(CompressionPool::new(
                COMPRESSION_THREADS_MAX,
                Arc::clone(&env.threads),
            )),
            prepopulated: ranked(locks::LEAF, BTreeMap::new()),
            latencies: ranked(locks::LEAF, BTreeMap::new()),
            env,
        };
        let shared = options.env.write_buffer_manager.as_ref();
        let write_buffers = match (shared, budget) {
            (Some(manager), _) => manager.buffers(),
            (None, Some(b)) => {
                let cache = Some(Arc::clone(&tables.cache));
                Arc::new(WriteBuffers::new(b.write_buffers, cache, true))
            }
            (None, None) => {
                let bytes = options.db.db_write_buffer_size as usize;
                Arc::new(WriteBuffers::new(bytes, None, false))
            }
        };
        let session_id = table::unique_id::new_session_id(&mut seeded(&options.env));
        let probe = if read_only {
            None
        } else {
            env_fs.probe(logs.dir()).ok()
        };
        let me = Self {
            probe,
            dir: dir.to_path_buf(),
            options: options.clone(),
            read_only,
            info_log: log,
            logs,
            tables,
            session_id,
            instance: new_instance(),
            write_buffers,
            reused: BTreeMap::new(),
        };
        me.log_header();
        me
    }

    /// Writes the first lines of LOG: the versions, the database and the device.
    fn log_header(&self) {
        let log = &self.info_log;
        log.header(format_args!(
            "Ironstone version {}",
            env!("CARGO_PKG_VERSION")
        ));
        // Tools look for this line in RocksDB's LOG. The commit is known only if the build sets it.
        log.header(format_args!(
            "RocksDB version: {ROCKSDB_VERSION}-ironstone-{}",
            env!("CARGO_PKG_VERSION")
        ));
        let commit = option_env!("IRONSTONE_GIT_SHA").unwrap_or("unknown");
        log.header(format_args!("Git sha {commit}"));
        log.header(format_args!("DB SUMMARY: {}", self.dir.display()));
        log.header(format_args!("DB Session ID: {}", self.session_id));
        if self.read_only {
            return;
        }
        dump::database(log, &self.options.db, &self.options.env);
        match &self.probe {
            Some(probe) => log.header(format_args!("Device: {probe}")),
            None => log.warn(format_args!("Device: cannot be probed; logs are buffered")),
        }
    }

    /// Writes to LOG which option values were replaced and which options have no effect.
    fn tell(&self, replaced: &[String]) {
        for line in replaced {
            self.info_log.warn(format_args!("{line}"));
        }
        dump::kept(&self.info_log, "the database", &self.options.db.kept);
    }

    /// The column families that the caller wants, with their tables open.
    fn families(&self, recovered: &Recovered, wanted: &Wanted<'_>) -> Result<FamilySet> {
        if let Wanted::Listed(list) = wanted {
            self.check_all_listed(recovered, list)?;
        }
        let mut set = FamilySet::default();
        for (&id, family) in &recovered.families {
            let mut options = match wanted {
                Wanted::All => self.options_for_any(family)?,
                Wanted::Listed(list) => match list.iter().find(|d| d.name == family.name) {
                    Some(d) => d.options.clone(),
                    None => continue, // read-only: the caller does not want this family
                },
            };
            let replaced = sanitize::family(&mut options, &self.options.db);
            if !self.read_only {
                dump::family(&self.info_log, set.iter().count(), &family.name, &options);
                dump::replaced(&self.info_log, &family.name, &replaced, &options);
            }
            set.insert(Arc::new(self.family(id, family, options, recovered)?));
        }
        Ok(set)
    }

    fn check_all_listed(
        &self,
        recovered: &Recovered,
        list: &[ColumnFamilyDescriptor],
    ) -> Result<()> {
        let exists = |name: &str| recovered.families.values().any(|f| f.name == name);
        if let Some(unknown) = list.iter().find(|d| !exists(&d.name))
            && (self.read_only || !self.options.db.create_missing_column_families)
        {
            return Err(Error::invalid_argument(format!(
                "Column family not found: {}",
                unknown.name
            ))
            .file(&self.dir)
            .hint("set create_missing_column_families = true to create it"));
        }
        let missing: Vec<&str> = recovered
            .families
            .values()
            .map(|f| f.name.as_str())
            .filter(|name| !list.iter().any(|d| d.name == *name))
            .collect();
        if missing.is_empty() || self.read_only {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "Column families not opened: {}; a writer has to open all column families",
            missing.join(", ")
        ))
        .file(&self.dir)
        .hint("name them with Db::open_cf, or use Db::open_all"))
    }

    /// The default options, with the comparator that the family was written with.
    fn options_for_any(&self, family: &RecoveredFamily) -> Result<ColumnFamilyOptions> {
        let mut options = self.options.cf.clone();
        if !family.comparator.is_empty() && family.comparator != options.comparator.name() {
            options.comparator = Comparator::by_name(&family.comparator).ok_or_else(|| {
                Error::not_supported(format!(
                    "comparator {} of column family {:?}",
                    family.comparator, family.name
                ))
                .file(&self.dir)
                .hint("open the family with this comparator in its options")
            })?;
        }
        Ok(options)
    }

    fn family(
        &self,
        id: u32,
        family: &RecoveredFamily,
        options: ColumnFamilyOptions,
        recovered: &Recovered,
    ) -> Result<Family> {
        let manifest = &recovered.manifest_path;
        if !family.comparator.is_empty() && family.comparator != options.comparator.name() {
            return Err(Error::invalid_argument(format!(
                "column family {:?} was written with comparator {}, not {}",
                family.name,
                family.comparator,
                options.comparator.name()
            ))
            .file(manifest)
            .hint("open it with the comparator that it was written with"));
        }
        if let Some(what) = family.foreign.first() {
            return Err(
                Error::not_supported(format!("{what} (column family {:?})", family.name))
                    .file(manifest),
            );
        }
        let num_levels = options.cf.num_levels.unsigned_abs() as usize;
        let added = self.open_tables((id, family), &options, manifest)?;
        let empty = Version::empty(
            options.comparator.clone(),
            num_levels,
            self.options.db.allow_ingest_behind,
        );
        let version = empty
            .apply(&VersionEdit::default(), added)
            .map_err(|e| e.or_file(manifest))?
            .version;
        // The MANIFEST's log number of the family may be lower, if the family had no data in logs that are deleted
        // now.
        let log_number = family.log_number.max(recovered.min_log_number_to_keep);
        let log_number = FileNumber(log_number);
        let opened = Family::new(
            id,
            family.name.clone(),
            options,
            Arc::new(version),
            log_number,
            self.instance,
            Arc::clone(&self.write_buffers),
        );
        for (&level, key) in &family.cursors {
            opened.compactions.set_cursor(level as usize, key.clone());
        }
        Ok(opened)
    }

    /// Opens the family's tables on several threads, and returns them with their levels.
    fn open_tables(
        &self,
        (id, family): (u32, &RecoveredFamily),
        options: &ColumnFamilyOptions,
        manifest: &Path,
    ) -> Result<Vec<(usize, Arc<TableFile>)>> {
        let threads = self.options.db.max_file_opening_threads.unsigned_abs() as usize;
        let all: Vec<_> = family.files.iter().collect();
        map_parallel("open", threads, &all, |&(&(level, number), meta)| {
            if meta.path_id != 0 {
                return Err(Error::not_supported("table files in a second db_path").file(manifest));
            }
            if let Some(open) = self.reused.get(&number).filter(|f| f.meta == *meta) {
                return Ok((level as usize, Arc::clone(open)));
            }
            let meta = meta.clone();
            let new = NewFile { level, meta };
            let file = self
                .tables
                .open(&new, id, options, Activity::DbOpen, None)?;
            Ok((level as usize, file))
        })
    }

    fn numbers(&self, recovered: &Recovered) -> Result<FileNumbers> {
        let mut next = recovered
            .next_file_number
            .max(recovered.manifest_number + 1);
        for entry in files::list(&*self.options.env.fs, &self.dir)? {
            if entry.kind.is_counted() {
                next = next.max(entry.number.0.saturating_add(1));
            }
        }
        for number in self.logs.used_numbers()? {
            next = next.max(number.0.saturating_add(1));
        }
        Ok(FileNumbers::starting_at(next))
    }
}

/// A generator whose seed differs between processes and over time.
fn seeded(env: &Env) -> Rng {
    let time = env.clock.wall_micros();
    Rng::new(time.rotate_left(24) ^ u64::from(std::process::id()) ^ env.clock.monotonic_nanos())
}

/// A secret from the operating system's random numbers, which a client that only writes values cannot know.
fn new_secret(env: &Env) -> u64 {
    let keyed = std::hash::RandomState::new();
    std::hash::BuildHasher::hash_one(&keyed, seeded(env).next_u64())
}

/// The names of the column families of the database in `dir`, by id.
pub(crate) fn list_column_families(dir: &Path, env: &Env) -> Result<Vec<String>> {
    let recovered = manifest::read(&*env.fs, dir)?;
    Ok(recovered.families.into_values().map(|f| f.name).collect())
}
