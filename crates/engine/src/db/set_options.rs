//! Options that change while the database is open: RocksDB's `SetOptions` and `SetDBOptions`.
//!
//! ```text
//!   change     a copy of the options, checked as at open         after an error nothing has changed
//!   apply      the copy replaces the options                     running jobs keep their old options
//!   check      stalls, full memtables, logs, threads             with the new limits
//!   persist    writes a new OPTIONS file                         after an error the change stays in force;
//!                                                                the file is written again later
//! ```
//!
//! The options that can change are the same as in RocksDB ([`options::rocksdb::Key::mutable`]).

use std::sync::Arc;

use base::options::OptionTable;
use base::sync::MutexGuard;
use base::{Error, Result};

use crate::catalog::family::Family;
use crate::db::Db;
use crate::db::cf::Cf;
use crate::shared::Shared;
use crate::shared::persist::write_options_file_held;
use crate::write::{debt, rotate};
use options::memory::Budget;
use options::{ColumnFamilyOptions, DbOptions, text};

/// Options of one column family while the database is open.
impl Cf<'_> {
    /// Changes options of the family, given by name and in the syntax of OPTIONS files: all of them or none.
    /// When this returns, the options are in force, except for flushes and compactions that are already running,
    /// and are stored in a new OPTIONS file.
    ///
    /// `block_based_table_factory` with `{name=value;…}` changes the options of tables that are created or opened
    /// from now on. Members of a struct that are not named keep their values.
    ///
    /// Errors: `InvalidArgument` if an option is unknown, cannot be changed while the database is open, or gets a
    /// value that is invalid or contradicts other options; `NotSupported` for an option that Ironstone does not
    /// support. After any other error the options are in force, but the OPTIONS file could not be written or a
    /// thread could not be started. The database writes the file again later.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.set_options(&[("write_buffer_size", "128M"), ("ttl", "3600")])?;
    /// assert_eq!(db.options().cf.write_buffer_size, 128 << 20);
    /// let e = db.set_options(&[("num_levels", "5")]).unwrap_err();
    /// assert!(e.to_string().contains("Option not changeable: num_levels"));
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn set_options(&self, options: &[(&str, &str)]) -> Result<()> {
        self.check()?;
        set_options(self.shared, self.family, options)
    }

    /// The current options of the family.
    pub fn options(&self) -> ColumnFamilyOptions {
        ColumnFamilyOptions::clone(&self.family.options())
    }
}

/// Options while the database is open.
impl Db {
    /// Changes options of the default column family: see [`Cf::set_options`].
    pub fn set_options(&self, options: &[(&str, &str)]) -> Result<()> {
        self.default_cf().set_options(options)
    }

    /// The current options of the default column family.
    pub fn options(&self) -> ColumnFamilyOptions {
        self.default_cf().options()
    }

    /// Changes options of the whole database. Otherwise like [`Db::set_options`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.set_db_options(&[("max_background_jobs", "8"), ("bytes_per_sync", "1M")])?;
    /// assert_eq!(db.db_options().max_background_jobs, 8);
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn set_db_options(&self, options: &[(&str, &str)]) -> Result<()> {
        set_db_options(self, options)
    }

    /// The current options of the whole database.
    pub fn db_options(&self) -> DbOptions {
        DbOptions::clone(&self.shared.live_options.get())
    }
}

/// One change of options, reported in LOG in RocksDB's words.
struct Told<'a> {
    db: &'a Shared,
    /// The call and its target, for LOG.
    what: String,
    /// The name of the call, as RocksDB's message about a failure has it.
    failed: &'static str,
}

impl Told<'_> {
    /// Logs the call. Errors: the list of changes is empty; the database is open read-only.
    fn begin(&self, changes: &[(&str, &str)]) -> Result<()> {
        let (log, what) = (&self.db.info.log, &self.what);
        if self.db.read_only {
            return Err(crate::wal::read_only());
        }
        if changes.is_empty() {
            log.warn(format_args!("{what}, empty input"));
            return Err(Error::invalid_argument("empty input"));
        }
        log.info(format_args!("{what}, inputs:"));
        for (name, value) in changes {
            log.info(format_args!("{name}: {value}"));
        }
        Ok(())
    }

    fn failed(&self, e: &Error) {
        let failed = self.failed;
        self.db.info.log.warn(format_args!("{failed} failed: {e}"));
    }

    fn done<'v>(&self, values: impl Iterator<Item = (&'v str, String)>, no_effect: &[String]) {
        let (log, what) = (&self.db.info.log, &self.what);
        log.info(format_args!("{what} succeeded"));
        for (name, value) in values {
            log.info(format_args!("Options.{name}: {value}"));
        }
        for message in no_effect {
            log.warn(format_args!("{message}"));
        }
    }

    /// Starts as many threads as the options set. If a thread cannot be started, the running threads do the work.
    fn start_threads(&self, db: &Db) -> Result<()> {
        let started = db.lock_running().jobs.follow_options(&db.shared);
        started.map_err(|e| {
            let (log, failed) = (&self.db.info.log, self.failed);
            log.warn(format_args!("{failed}: fewer threads than asked for: {e}"));
            e.hint(
                "the options are in force, but fewer threads work than they ask for; the same call \
                 tries again",
            )
        })
    }

    /// Writes the OPTIONS file. The change is in force even if this fails, and the file is written again later.
    fn persist(&self, held: &MutexGuard<'_, ()>) -> Result<()> {
        write_options_file_held(self.db, held).map_err(|e| {
            let log = &self.db.info.log;
            log.warn(format_args!("Unable to persist options -- {e}"));
            e.hint("the options are in force, but the OPTIONS file could not be written")
        })
    }
}

/// The options of a table that can be changed at run time, with their values.
fn changeable<T: OptionTable>(table: &T) -> impl Iterator<Item = (&'static str, String)> + '_ {
    let mutable = |i: &&base::options::OptionInfo| i.has(base::options::OptionFlag::Mutable);
    let infos = T::infos().iter().filter(mutable);
    infos.filter_map(|i| Some((i.name, table.get(i.name)?)))
}

fn set_options(db: &Shared, family: &Family, changes: &[(&str, &str)]) -> Result<()> {
    let told = Told {
        db,
        what: format!("Set options on column family [{}]", family.name),
        failed: "SetOptions()",
    };
    if !changes.is_empty() && !db.read_only {
        let log = &db.info.log;
        log.info(format_args!("SetOptions() on [1] column families, inputs:"));
    }
    told.begin(changes)?;
    let held = db.live_options.lock();
    let changed = text::change_family(&family.options(), &db.live_options.get(), changes);
    let (options, no_effect) = changed.inspect_err(|e| told.failed(e))?;
    family.set_options(options);
    told.done(changeable(&family.options().cf), &no_effect);
    // With the new limits a memtable may be full, and waiting writers or jobs may go on.
    debt::debt_changed(db);
    rotate::note_full_memtables(db);
    told.persist(&held)
}

fn set_db_options(db: &Db, changes: &[(&str, &str)]) -> Result<()> {
    let shared = &db.shared;
    let told = Told {
        db: shared,
        what: "SetDBOptions()".to_owned(),
        failed: "SetDBOptions",
    };
    told.begin(changes)?;
    let held = shared.live_options.lock();
    let now = shared.live_options.get();
    let rate = shared.env().background_rate();
    let changed = text::change_db(&now, rate, changes)
        .and_then(|changed| check_memory(&now, &changed.0).map(|()| changed));
    let (options, no_effect) = changed.inspect_err(|e| told.failed(e))?;
    if options == **now {
        shared.info.log.info(format_args!(
            "SetDBOptions(), input option value is not changed, skipping updating."
        ));
        // An earlier call may have failed to start threads or to write the OPTIONS file: try again.
        let started = told.start_threads(db);
        let persisted = if shared.live_options.is_stale() {
            told.persist(&held)
        } else {
            Ok(())
        };
        return started.and(persisted);
    }
    drop(now);
    shared.live_options.set(options, &shared.writes);
    shared.writes.limit_logs(&shared.catalog.families);
    told.done(changeable(&**shared.live_options.get()), &no_effect);
    follow(shared)?;
    let started = told.start_threads(db);
    let persisted = told.persist(&held);
    // The following steps wait for writers and call listeners, which may change options themselves.
    drop(held);
    debt::debt_changed(shared);
    if rotate::logs_too_large(&shared.wal, &shared.writes) {
        // An error here also reaches the next writer, which reports it.
        rotate::look_closer_soon(shared);
    }
    started.and(persisted)
}

/// Refuses to switch `memory_limit` on or off: it needs components that are created at open.
fn check_memory(old: &DbOptions, new: &DbOptions) -> Result<()> {
    if (old.memory_limit == 0) == (new.memory_limit == 0) {
        return Ok(());
    }
    Err(
        Error::invalid_argument("Option not changeable: memory_limit")
            .hint("it can be changed where it was set at open, and not to 0"),
    )
}

/// Updates the components that keep a copy of an option.
fn follow(shared: &Shared) -> Result<()> {
    let options = Arc::clone(&shared.live_options.get());
    shared.catalog.lock_versions().max_manifest_file_size = options.max_manifest_file_size;
    shared
        .wal
        .log_files()?
        .set_bytes_per_sync(options.wal_bytes_per_sync);
    shared
        .writes
        .stall
        .set_delayed_write_rate(options.delayed_rate());
    shared.catalog.tables.opened.follow(&options);
    if let Some(budget) = Budget::of(&options) {
        shared.catalog.tables.cache.set_capacity(budget.cache);
        let manager = shared.writes.share_buffers();
        manager.set_limit(budget.write_buffers);
    }
    Ok(())
}
