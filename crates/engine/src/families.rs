//! Creating and dropping column families.

use std::sync::Arc;

use base::{Error, Result};

use crate::family::{Family, FamilySet};
use crate::open::Wanted;
use crate::open::write_options_file;
use crate::options::ColumnFamilyOptions;
use crate::options::dump;
use crate::shared::Shared;
use crate::version::Version;
use crate::version::edit::VersionEdit;
use crate::write::admit;

/// The family that every database has.
pub(crate) const DEFAULT: &str = "default";

/// Creates a family; it takes part in writes from then on.
///
/// Errors: a family of this name exists; invalid options.
pub(crate) fn create(
    db: &Shared,
    name: &str,
    options: &ColumnFamilyOptions,
) -> Result<Arc<Family>> {
    options.validate_in(&db.options.db)?;
    db.check_writable()?;
    // Nobody is writing, so that no group is halfway with the old set.
    let family = db.alone(|| {
        let mut versions = db.lock_versions();
        let old = db.families.load();
        if old.by_name(name).is_some() {
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
        versions.log(&db.tables, &db.numbers, &old, db.visible().0, edit)?;
        versions.max_column_family = id;
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
        let mut set = FamilySet::clone(&old);
        set.insert(Arc::clone(&family));
        db.families.store(Arc::new(set));
        Ok(family)
    })?;
    let others = db.families.load().iter().count() - 1;
    dump::family(&db.log, others, name, options);
    db.log.info(format_args!(
        "Created column family [{name}] (ID {})",
        family.id
    ));
    write_options_file(db)?;
    Ok(family)
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
        versions.log(&db.tables, &db.numbers, &old, db.visible().0, edit)?;
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
    write_options_file(db)?;
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
