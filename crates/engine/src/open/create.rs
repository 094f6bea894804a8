//! Creating a new database.

use crate::families;
use crate::open::Wanted;
use crate::options::Options;
use crate::version::manifest::{Recovered, RecoveredFamily};

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
