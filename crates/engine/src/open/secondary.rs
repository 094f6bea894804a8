//! Instances that only read what another instance, the primary, writes: opening one, and seeing
//! what the primary has written since.
//!
//! Nothing holds the primary back: it may delete a table, a log or the MANIFEST between the moment
//! in which it is found and the one in which it is opened. Every such deletion comes after a record
//! in a MANIFEST. So a state is taken only if the MANIFEST is the same after it was read; otherwise
//! it is read again.

use std::path::Path;
use std::sync::Arc;

use base::{Error, ErrorKind, Result};

use super::{Opening, Wanted, look};
use crate::db::Db;
use crate::events::{InfoLog, Rolling};
use crate::family::FamilySet;
use crate::files::{self, FileKind};
use crate::options::Options;
use crate::shared::Shared;
use crate::version::manifest::{self, Recovered};
use crate::wal::location::Location;

/// How often a state is read before it is given up, because the primary changes it too fast.
const ATTEMPTS: usize = 50;

/// Opens a database that another instance may have open, with messages to `own`.
pub(crate) fn open_secondary(dir: &Path, own: &Path, options: &Options) -> Result<Db> {
    options.validate()?;
    look(dir, options, true)?;
    options.env.fs.create_dir(own)?;
    let shared = settled(dir, options, || {
        let logs = Location::of(dir, options)?;
        logs.prepare(false, true)?;
        let mut opening = Opening::new(dir, options, true, logs);
        let (fs, clock) = (&options.env.fs, Arc::clone(&options.env.clock));
        let rolling = Rolling::of(&options.db);
        opening.log = InfoLog::open(Arc::clone(fs), own, clock, rolling);
        let recovered = manifest::read(&**fs, dir)?;
        opening.run(&recovered, &Wanted::All, true)
    })?;
    Db::started(shared, None)
}

/// Shows what the primary has written since the database was opened or last caught up.
pub(crate) fn catch_up(db: &Shared) -> Result<()> {
    if !db.read_only {
        return Err(Error::not_supported(
            "try_catch_up_with_primary of a database that is open for writing",
        ));
    }
    // One at a time.
    let _versions = db.lock_versions();
    let mut options = db.options.clone();
    options.env.block_cache = Some(Arc::clone(&db.tables.cache));
    let (families, last) = settled(&db.dir, &options, || read(db, &options))?;
    install(db, &families);
    db.order.visible.raise(last);
    db.log
        .info(format_args!("caught up: last sequence {}", db.visible()));
    Ok(())
}

/// The families as they are now, and the last sequence number. Tables that are open are used again.
fn read(db: &Shared, options: &Options) -> Result<(FamilySet, u64)> {
    let logs = Location::of(&db.dir, options)?;
    let mut opening = Opening::new(&db.dir, options, true, logs);
    opening.instance = db.instance;
    for family in db.families.load().iter() {
        let version = Arc::clone(&family.view.load().version);
        let open = version.files().map(|(_, f)| (f.number().0, Arc::clone(f)));
        opening.reused.extend(open);
    }
    let recovered: Recovered = manifest::read(&*options.env.fs, &db.dir)?;
    let families = opening.families(&recovered, &Wanted::All)?;
    let replayed = opening.replay(&recovered, &families, &mut || Ok(()))?;
    Ok((families, replayed.last_sequence))
}

/// Lets readers see the families. Those that are there keep their handles.
fn install(db: &Shared, new: &FamilySet) {
    let old = db.families.load();
    let mut set = FamilySet::default();
    for family in new.iter() {
        match old.get(family.id) {
            Some(known) => {
                known.view.store(family.view.load_full());
                set.insert(Arc::clone(known));
            }
            None => set.insert(Arc::clone(family)),
        }
    }
    for family in old.iter().filter(|f| new.get(f.id).is_none()) {
        family.mark_dropped();
    }
    db.families.store(Arc::new(set));
}

/// What `read` gives, once the MANIFEST stays as it is meanwhile.
fn settled<T>(dir: &Path, options: &Options, read: impl Fn() -> Result<T>) -> Result<T> {
    let fs = &*options.env.fs;
    let state = || {
        let number = files::read_current(fs, dir)?;
        let len = fs.metadata(&files::manifest_path(dir, number))?.len;
        Ok::<_, Error>((number, len))
    };
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let before = state();
        let outcome = read();
        let same = match (&before, state()) {
            (Ok(before), Ok(after)) => *before == after,
            _ => false,
        };
        if same {
            return outcome;
        }
        last = outcome.err().or(before.err());
    }
    let busy = || {
        Error::new(
            ErrorKind::TryAgain,
            "the primary changed its files all the time while they were read",
        )
        .file(dir)
    };
    Err(last.unwrap_or_else(busy))
}

/// Errors: the database has a log.
pub(crate) fn check_no_logs(dir: &Path, options: &Options) -> Result<()> {
    let logs = Location::of(dir, options)?;
    let all = match files::list(&*options.env.fs, logs.dir()) {
        Err(e) if e.is_not_found() => Vec::new(),
        all => all?,
    };
    match all.iter().find(|e| e.kind == FileKind::Wal) {
        None => Ok(()),
        Some(log) => Err(Error::corruption(
            "The db was opened in readonly mode with error_if_wal_file_exists but a WAL file \
             already exists",
        )
        .file(logs.dir().join(&log.name))),
    }
}
