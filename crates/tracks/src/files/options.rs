//! Options for reading files: defaults for what the files do not contain.

use super::layout::Layout;
use crate::model::name::Name;

/// Options for reading files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The entity of records that name none. In a GPX file: of all points, whatever the names of
    /// their tracks.
    pub entity: Option<Name>,
    /// The columns of a file of [`Format::Csv`](super::Format::Csv).
    pub layout: Layout,
    /// Seconds by which local times are ahead of UTC, in CSV files whose times have no offset.
    /// `None` means that of the layout.
    pub utc_offset: Option<i32>,
    /// Whether unknown keys of NDJSON and GeoJSON are ignored instead of refused.
    pub ignore_unknown: bool,
}
