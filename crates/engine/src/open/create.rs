//! Creation of a new database, and of missing families.

use std::collections::HashSet;

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
    let there = db.catalog.families.load();
    let there: HashSet<&str> = there.iter().map(|f| f.name.as_str()).collect();
    let missing = list.iter().filter(|d| !there.contains(d.name.as_str()));
    let missing: Vec<_> = missing.map(|d| (d.name.as_str(), &d.options)).collect();
    families::create(db, &missing).map(drop)
}
