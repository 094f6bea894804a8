//! Secondary instances, which read a database that another instance, the primary, writes: how they are opened, and
//! how they catch up with the primary.
//!
//! The primary does not know about secondary instances. It may delete a table, a log or the MANIFEST after a
//! secondary instance has found the file and before it opens the file. Each such deletion comes after a record in a
//! MANIFEST. So a state that was read counts only if the MANIFEST did not change meanwhile, except by compactions. An
//! error counts only if it occurs several times in a row while the MANIFEST does not change. Otherwise the state is
//! read again. An open table stays readable even if its name is deleted, so all tables are kept open, whatever the
//! value of `max_open_files`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ErrorKind, FileNumber, Result};

use super::{Opening, Wanted, look};
use crate::catalog::Catalog;
use crate::catalog::family::FamilySet;
use crate::db::Db;
use crate::info::log::{InfoLog, Rolling};
use crate::shared::Shared;
use crate::wal::location::Location;
use files::{self, FileKind};
use manifest::{self, Recovered, RecoveredFamily};
use options::Options;

/// The least number of attempts to read a state, and their least total time in nanoseconds, before the instance gives
/// up because the primary changes its files too fast.
const ATTEMPTS_MIN: usize = 50;
const ATTEMPTS_NANOS: u64 = 10_000_000_000;
/// The most attempts, even if the clock advances slowly.
const ATTEMPTS_MAX: usize = 10_000;
/// How many times in a row the same error must occur while the MANIFEST does not change, before it counts. The
/// primary writes to its log meanwhile, so the end of a log may be read in a mixture of two states. The next
/// attempt then finds no error, or an error at another place.
const ERRORS: usize = 4;

/// Opens a database that another instance may have open. Messages go to LOG in `own`.
pub(crate) fn open_secondary(dir: &Path, own: &Path, options: &Options) -> Result<Db> {
    options.validate()?;
    let (mut options, _) = options.sanitized();
    options.db.max_open_files = -1; // a closed table may have been deleted when it is needed again
    let options = &options;
    look(dir, options, true)?;
    io::create_dirs(&*options.env.fs, own)?;
    let shared = settled(dir, options, || {
        let logs = Location::of(dir, options)?;
        logs.prepare(false, true)?;
        let mut opening = Opening::new(dir, options, true, logs);
        let (fs, clock) = (&options.env.fs, Arc::clone(&options.env.clock));
        let rolling = Rolling::of(&options.db);
        opening.info_log = InfoLog::open(Arc::clone(fs), own, clock, rolling);
        let recovered = manifest::read(&**fs, dir)?;
        opening.run(&recovered, &Wanted::All, true)
    })?;
    Db::started(shared, None)
}

/// Makes the writes visible that the primary has made since the database was opened or last caught up.
pub(crate) fn catch_up(db: &Shared) -> Result<()> {
    if !db.read_only {
        return Err(Error::not_supported(
            "try_catch_up_with_primary of a database that is open for writing",
        ));
    }
    // Only one thread catches up at a time.
    let _versions = db.catalog.lock_versions();
    let mut options = db.options.clone();
    options.env.block_cache = Some(Arc::clone(&db.catalog.tables.cache));
    let (families, last) = settled(&db.dir, &options, || read(db, &options))?;
    // This order matters, because a reader first loads the tables, then the sequence number. With new tables and an
    // old number it would miss keys whose older versions are gone.
    db.writes.order.visible.raise(last);
    install(&db.catalog, &families);
    db.info.log.info(format_args!(
        "caught up: last sequence {}",
        db.writes.visible()
    ));
    Ok(())
}

/// Reads the current families and the last sequence number. Open tables are reused.
fn read(db: &Shared, options: &Options) -> Result<(FamilySet, u64)> {
    let logs = Location::of(&db.dir, options)?;
    let mut opening = Opening::new(&db.dir, options, true, logs);
    opening.instance = db.instance;
    for family in db.catalog.families.load().iter() {
        let version = Arc::clone(&family.view.load().version);
        let open = version.files().map(|(_, f)| (f.number().0, Arc::clone(f)));
        opening.reused.extend(open);
    }
    let recovered: Recovered = manifest::read(&*options.env.fs, &db.dir)?;
    let families = opening.families(&recovered, &Wanted::All)?;
    let replayed = opening.replay(&recovered, &families, &mut || Ok(()))?;
    Ok((families, replayed.last_sequence))
}

/// Makes the families visible to readers. Families that already exist keep their handles.
fn install(catalog: &Catalog, new: &FamilySet) {
    let old = catalog.families.load();
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
    catalog.families.store(Arc::new(set));
}

/// The state of the primary that must not change while its files are read.
#[derive(PartialEq)]
struct Stand {
    /// The number of the MANIFEST and its length in bytes.
    manifest: (FileNumber, u64),
    /// For each family, the first log that it needs and the largest epoch of its tables; and the first log that any
    /// family needs. `None` if the MANIFEST cannot be read.
    came: Option<(Came, u64)>,
}

/// By family id: the first log and the largest epoch.
type Came = BTreeMap<u32, (u64, u64)>;

impl Stand {
    fn of(dir: &Path, options: &Options) -> Result<Self> {
        let fs = &*options.env.fs;
        let number = files::read_current(fs, dir)?;
        let len = fs.metadata(&files::manifest_path(dir, number))?.len;
        let came = manifest::read(fs, dir).ok().map(|recovered| {
            let epoch = |f: &RecoveredFamily| f.files.values().filter_map(|f| f.epoch_number).max();
            let of = |f: &RecoveredFamily| (f.log_number, epoch(f).unwrap_or(0));
            let families = recovered.families.iter();
            let each: Came = families.map(|(&id, f)| (id, of(f))).collect();
            (each, recovered.min_log_number_to_keep)
        });
        Ok(Self {
            manifest: (number, len),
            came,
        })
    }

    /// Whether the files read between the two states are consistent: at most, compactions have replaced tables.
    fn has_what_came_to(&self, other: &Self) -> bool {
        self.came.is_some() && self.came == other.came
    }
}

/// The place of the last error, and how many times in a row it occurred.
#[derive(Default)]
struct Wrong {
    place: Option<(ErrorKind, Option<PathBuf>, Option<u64>)>,
    times: usize,
}

impl Wrong {
    /// Counts an error, and returns how many times in a row it occurred at the same place.
    fn again(&mut self, e: &Error) -> usize {
        let place = (e.kind(), e.path().map(Path::to_path_buf), e.at());
        if self.place.as_ref() != Some(&place) {
            self.times = 0;
        }
        self.place = Some(place);
        self.times += 1;
        self.times
    }
}

/// Calls `read` until the primary does not interfere, and returns the result.
fn settled<T>(dir: &Path, options: &Options, read: impl Fn() -> Result<T>) -> Result<T> {
    let clock = &options.env.clock;
    let began = clock.monotonic_nanos();
    let mut last = None;
    let mut wrong = Wrong::default();
    for attempt in 0..ATTEMPTS_MAX {
        let before = Stand::of(dir, options);
        let outcome = read();
        let after = Stand::of(dir, options);
        if let (Ok(before), Ok(after)) = (&before, &after)
            && (before == after || outcome.is_ok() && before.has_what_came_to(after))
        {
            match &outcome {
                Err(e) if wrong.again(e) < ERRORS => {}
                _ => return outcome,
            }
        }
        let changes = before.is_ok() || after.is_ok();
        last = outcome.err().or(before.err()).or(after.err());
        let took = clock.monotonic_nanos().saturating_sub(began);
        if attempt >= ATTEMPTS_MIN && !changes {
            break;
        }
        if attempt >= ATTEMPTS_MIN && took >= ATTEMPTS_NANOS {
            let last = last.map_or_else(String::new, |e| format!("; the last time: {e}"));
            return Err(Error::new(
                ErrorKind::TryAgain,
                format!("the primary changed its files all the time while they were read{last}"),
            )
            .file(dir));
        }
    }
    Err(last.unwrap_or_else(|| Error::aborted("nothing was read")))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: four errors at four places of a log that was being written were taken for damage. Found by chaos,
    /// seed 9349.
    #[test]
    fn only_what_stays_wrong_is_believed() {
        let at = |offset| Error::corruption("zeros").file("000004.log").offset(offset);
        let mut wrong = Wrong::default();
        for offset in 0..10 {
            assert_eq!(wrong.again(&at(offset)), 1);
        }
        let times: Vec<usize> = (0..ERRORS).map(|_| wrong.again(&at(7))).collect();
        assert_eq!(times, [1, 2, 3, 4]);
        assert_eq!(wrong.again(&at(7).hint("more is durable now")), 5);
        let other = Error::corruption("zeros").file("000005.log").offset(7);
        assert_eq!(wrong.again(&other), 1);
    }
}
