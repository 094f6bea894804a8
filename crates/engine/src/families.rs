//! Creating and dropping column families.

use std::sync::Arc;

use base::{Error, Result};

use crate::family::{Family, FamilySet};
use crate::open::Wanted;
use crate::options::ColumnFamilyOptions;
use crate::options::{dump, sanitize};
use crate::persist;
use crate::shared::Shared;
use crate::version::edit::VersionEdit;
use crate::version::{Version, VersionSet};
use crate::write::admit;

/// The family that every database has.
pub(crate) const DEFAULT: &str = "default";

/// Creates a family; it takes part in writes from then on.
///
/// Errors: a family of this name exists; invalid options; the MANIFEST fails.
pub(crate) fn create(
    db: &Shared,
    name: &str,
    options: &ColumnFamilyOptions,
) -> Result<Arc<Family>> {
    options.validate_in(&db.options.db)?;
    db.check_writable()?;
    let mut options = options.clone();
    let replaced = sanitize::family(&mut options, &db.options.db);
    let options = &options;
    // Nobody is writing, so that no group is halfway with the old set.
    let family = db.alone(|| {
        let mut versions = db.lock_versions();
        let (family, edit) = prepare(db, &versions, name, options)?;
        let last = db.visible().0;
        record(db, &mut versions, last, vec![edit])?;
        join(db, &mut versions, &family);
        Ok(family)
    })?;
    created(db, &family, options, &replaced);
    Ok(family)
}

/// A family that is not there yet, and the edit that makes it one of the database's. Nobody is inside
/// the order of writes.
///
/// Errors: a family of this name exists.
pub(crate) fn prepare(
    db: &Shared,
    versions: &VersionSet,
    name: &str,
    options: &ColumnFamilyOptions,
) -> Result<(Arc<Family>, VersionEdit)> {
    if db.families.load().by_name(name).is_some() {
        return Err(Error::invalid_argument(format!(
            "Column family already exists: {name}"
        )));
    }
    let id = versions.max_column_family + 1;
    let log_number = db.active_log_number()?;
    let edit = VersionEdit {
        column_family: id,
        add_column_family: Some(name.to_owned()),
        comparator: Some(options.comparator.name().to_owned()),
        log_number: Some(log_number.0),
        ..Default::default()
    };
    let levels = options.cf.num_levels.unsigned_abs() as usize;
    let version = Arc::new(Version::empty(
        options.comparator.clone(),
        levels,
        db.options.db.allow_ingest_behind,
    ));
    let family = Arc::new(Family::new(
        id,
        name.to_owned(),
        options.clone(),
        version,
        log_number,
        db.instance,
        db.share_write_buffers(),
    ));
    family.listen(&db.env().listeners);
    Ok((family, edit))
}

/// Makes edits durable, all of them or none; `last` is the last sequence number that is used. Where the
/// MANIFEST fails, they may be in it or not: nobody must be told of anything durable until another one
/// says which, so that the database refuses writes.
pub(crate) fn record(
    db: &Shared,
    versions: &mut VersionSet,
    last: u64,
    edits: Vec<VersionEdit>,
) -> Result<()> {
    let families = db.families.load();
    let recorded = versions.log_all(&db.tables, &db.numbers, &families, last, edits);
    recorded.inspect_err(|e| {
        if versions.has_failed() {
            db.fail("MANIFEST", e);
        }
    })
}

/// The MANIFEST has the family: now everybody has.
pub(crate) fn join(db: &Shared, versions: &mut VersionSet, family: &Arc<Family>) {
    versions.max_column_family = versions.max_column_family.max(family.id);
    let mut set = FamilySet::clone(&db.families.load());
    set.insert(Arc::clone(family));
    db.families.store(Arc::new(set));
}

/// Tells of a family that was created, and which values of its options were replaced.
pub(crate) fn created(
    db: &Shared,
    family: &Family,
    options: &ColumnFamilyOptions,
    replaced: &[String],
) {
    let others = db.families.load().iter().count() - 1;
    dump::family(&db.log, others, &family.name, options);
    dump::replaced(&db.log, &family.name, replaced, options);
    db.log.info(format_args!(
        "Created column family [{}] (ID {})",
        family.name, family.id
    ));
    persist::follow_change(db);
}

/// Drops a family: its data goes away once no handle or iterator uses it.
///
/// Errors: the default family; one that is dropped already.
pub(crate) fn drop_family(db: &Shared, family: &Arc<Family>) -> Result<()> {
    if family.id == 0 {
        return Err(Error::invalid_argument("Can't drop default column family"));
    }
    db.check_writable()?;
    db.alone(|| {
        let mut versions = db.lock_versions();
        let old = db.families.load();
        if old.get(family.id).is_none() {
            return Err(Error::invalid_argument(format!(
                "Column family already dropped: {}",
                family.name
            )));
        }
        let edit = VersionEdit {
            column_family: family.id,
            drop_column_family: true,
            max_column_family: Some(versions.max_column_family),
            ..Default::default()
        };
        let last = db.visible().0;
        record(db, &mut versions, last, vec![edit])?;
        family.mark_dropped();
        let mut set = FamilySet::clone(&old);
        set.remove(family.id);
        db.families.store(Arc::new(set));
        Ok(())
    })?;
    for (_, file) in family.view.load().version.files() {
        file.mark_obsolete();
    }
    admit::debt_changed(db);
    db.log.info(format_args!(
        "Dropped column family [{}] (ID {})",
        family.name, family.id
    ));
    persist::follow_change(db);
    db.delete_obsolete_files();
    Ok(())
}

/// Creates the families that the caller named and that do not exist.
pub(crate) fn create_missing(db: &Shared, wanted: &Wanted<'_>) -> Result<()> {
    let Wanted::Listed(list) = wanted else {
        return Ok(());
    };
    for d in *list {
        if db.families.load().by_name(&d.name).is_none() {
            create(db, &d.name, &d.options)?;
        }
    }
    Ok(())
}
