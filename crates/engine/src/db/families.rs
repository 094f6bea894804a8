//! Creating and dropping column families.

use std::collections::HashSet;
use std::sync::Arc;

use base::{Error, Result};

use crate::catalog::family::Family;
use crate::info::dump;
use crate::info::log::InfoLog;
use crate::shared::change::Change;
use crate::shared::{Shared, persist};
use crate::write::debt;
use manifest::Version;
use options::{ColumnFamilyOptions, sanitize};

/// The family that every database has.
pub(crate) const DEFAULT: &str = "default";

/// Creates families, all or none, except that after a crash only the first ones may be there. From then on batches may
/// write to them. The caller writes the OPTIONS file.
///
/// Errors: a family of such a name exists; two have the same name; invalid options; the MANIFEST fails.
pub(crate) fn create(
    db: &Shared,
    list: &[(&str, &ColumnFamilyOptions)],
) -> Result<Vec<Arc<Family>>> {
    let mut names = HashSet::new();
    let mut all = Vec::with_capacity(list.len());
    for (name, options) in list {
        options.validate_in(&db.options.db)?;
        if !names.insert(name) {
            return Err(exists(name));
        }
        let mut options = ColumnFamilyOptions::clone(options);
        let replaced = sanitize::family(&mut options, &db.options.db);
        all.push((*name, options, replaced));
    }
    db.check_writable()?;
    if all.is_empty() {
        return Ok(Vec::new());
    }
    // The gate is closed, so no group is in progress with the old set of families.
    let families = db.alone(|| {
        let mut change = db.change().refuse_writes_if_it_fails();
        let mut families = Vec::with_capacity(all.len());
        for (name, options, _) in &all {
            let family = prepare(db, &change, name, options)?;
            change.adds_family(&family);
            families.push(family);
        }
        change.log_and_apply()?;
        Ok(families)
    })?;
    db.writes.limit_logs(&db.catalog.families);
    let others = db.catalog.families.load().count() - 1;
    for (family, (_, options, replaced)) in families.iter().zip(&all) {
        report(&db.info.log, others, family, options, replaced);
    }
    Ok(families)
}

#[cold]
fn exists(name: &str) -> Error {
    Error::invalid_argument(format!("Column family already exists: {name}"))
}

/// Prepares a family that does not exist yet. The gate of the order of writes is closed.
///
/// Errors: a family of this name exists.
pub(crate) fn prepare(
    db: &Shared,
    change: &Change<'_>,
    name: &str,
    options: &ColumnFamilyOptions,
) -> Result<Arc<Family>> {
    if change.families().by_name(name).is_some() {
        return Err(exists(name));
    }
    let log_number = db.wal.number()?;
    let levels = options.cf.num_levels.unsigned_abs() as usize;
    let version = Arc::new(Version::empty(
        options.comparator.clone(),
        levels,
        db.options.db.allow_ingest_behind,
    ));
    let family = Arc::new(Family::new(
        change.next_family(),
        name.to_owned(),
        options.clone(),
        version,
        log_number,
        db.instance,
        db.writes.share_buffers(),
    ));
    family.listen(&db.env().listeners);
    Ok(family)
}

/// Reports a family that was created, and which values of its options were replaced.
pub(crate) fn report(
    log: &InfoLog,
    others: usize,
    family: &Family,
    options: &ColumnFamilyOptions,
    replaced: &[String],
) {
    dump::family(log, others, &family.name, options);
    dump::replaced(log, &family.name, replaced, options);
    log.info(format_args!(
        "Created column family [{}] (ID {})",
        family.name, family.id
    ));
}

/// Drops a family: its data is deleted once no handle or iterator uses it.
///
/// Errors: the family is the default one, or was dropped already.
pub(crate) fn drop_family(db: &Shared, family: &Arc<Family>) -> Result<()> {
    if family.id == 0 {
        return Err(Error::invalid_argument("Can't drop default column family"));
    }
    db.check_writable()?;
    db.alone(|| {
        let mut change = db.change().refuse_writes_if_it_fails();
        if change.families().get(family.id).is_none() {
            return Err(Error::invalid_argument(format!(
                "Column family already dropped: {}",
                family.name
            )));
        }
        change.drops_family(family);
        change.log_and_apply()
    })?;
    debt::debt_changed(db);
    db.info.log.info(format_args!(
        "Dropped column family [{}] (ID {})",
        family.name, family.id
    ));
    persist::follow_change(db);
    db.delete_obsolete_files();
    Ok(())
}
