//! Creation of a new database, and of missing families.

use base::Result;

use crate::db::families;
use crate::open::Wanted;
use crate::shared::Shared;
use manifest::{Recovered, RecoveredFamily};
use options::Options;

/// The recovered state of a new database: only the default family, without any tables.
pub(super) fn blank(options: &Options, wanted: &Wanted<'_>) -> Recovered {
    let comparator = match wanted {
        Wanted::Listed(list) => list.iter().find(|d| d.name == families::DEFAULT),
        Wanted::All => None,
    }
    .map_or(&options.cf.comparator, |d| &d.options.comparator);
    let mut out = Recovered {
        next_file_number: 1,
        ..Recovered::default()
    };
    let default = RecoveredFamily {
        name: families::DEFAULT.to_owned(),
        comparator: comparator.name().to_owned(),
        ..RecoveredFamily::default()
    };
    out.families.insert(0, default);
    out
}

/// Creates the listed families that do not exist.
pub(super) fn create_missing(db: &Shared, wanted: &Wanted<'_>) -> Result<()> {
    let Wanted::Listed(list) = wanted else {
        return Ok(());
    };
    for d in *list {
        if db.catalog.families.load().by_name(&d.name).is_none() {
            families::create(db, &d.name, &d.options)?;
        }
    }
    Ok(())
}
