//! The OPTIONS file of an open database. It serves people, RocksDB's tools, and applications that open the
//! database with its previous options.
//!
//! The file is written after every change of options and of the set of families. If that fails, the change is
//! still in force, and the file is *stale*. This is reported in LOG, and the file is written again
//! at the next change, at intervals by a thread of the database, and at close.

use base::Result;
use base::sync::MutexGuard;

use crate::catalog::Catalog;
use crate::shared::Shared;
use files::{self, FileKind};
use options::{DbOptions, codec};

/// The number of OPTIONS files that are kept, including the newest.
const KEPT: usize = 2;

/// Writes a new OPTIONS file. Except for one, older OPTIONS files are deleted.
pub(crate) fn write_options_file(db: &Shared) -> Result<()> {
    write_options_file_held(db, &db.live_options.lock())
}

/// [`write_options_file`] for a caller that already holds
/// [`LiveOptions::lock`](crate::shared::live_options::LiveOptions::lock).
pub(crate) fn write_options_file_held(db: &Shared, held: &MutexGuard<'_, ()>) -> Result<()> {
    let written = write(db, held);
    if db.live_options.tried(written.is_ok()) {
        db.background.wake(); // the thread that writes the file again must learn when
    }
    written
}

/// Called after a change, which stays in force even if this fails: writes the OPTIONS file, now or later.
pub(crate) fn follow_change(db: &Shared) {
    if let Err(e) = write_options_file(db) {
        db.info.log.warn(format_args!(
            "Unable to persist options -- {e}; the OPTIONS file is written again later"
        ));
    }
}

/// Writes the OPTIONS file if it is stale. No lock is held.
pub(crate) fn write_if_stale(db: &Shared) {
    if db.live_options.is_stale() {
        follow_change(db);
    }
}

fn write(db: &Shared, _held: &MutexGuard<'_, ()>) -> Result<()> {
    let number = db.catalog.numbers.take();
    let text = options_text(&db.catalog, &db.live_options.get());
    let path = files::options_path(&db.dir, number);
    let temp = path.with_extension("dbtmp");
    let fs = &*db.env().fs;
    io::replace_file(fs, &path, &temp, text.as_bytes()).inspect_err(|_| drop(fs.remove(&temp)))?;
    if let Err(e) = remove_old(db) {
        // The next write of an OPTIONS file deletes them too.
        db.info
            .log
            .warn(format_args!("old OPTIONS files are still there: {e}"));
    }
    Ok(())
}

fn remove_old(db: &Shared) -> Result<()> {
    let fs = &*db.env().fs;
    // Held until the files are gone: a thread that disables deletions must not list a file that is about to be
    // deleted.
    let Some(_held) = db.deletions.begin() else {
        return Ok(()); // another thread may be copying the files
    };
    let mut old: Vec<_> = files::list(fs, &db.dir)?
        .into_iter()
        .filter(|e| e.kind == FileKind::Options)
        .collect();
    old.truncate(old.len().saturating_sub(KEPT));
    for entry in old {
        fs.remove(&db.dir.join(entry.name))?;
    }
    Ok(())
}

/// The text of the OPTIONS file, with these options of the whole database.
pub(crate) fn options_text(catalog: &Catalog, db_options: &DbOptions) -> String {
    let families = catalog.families.load();
    // In order of id, so that `default` is first.
    let sections: Vec<_> = families.iter().map(|f| f.sections()).collect();
    codec::compose(db_options, sections.iter().map(|s| &s.1))
}
