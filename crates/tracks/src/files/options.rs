//! How files are read: what they do not say of themselves.

use super::layout::Layout;
use crate::model::name::Name;

/// How files are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The entity of records that name none. Of a GPX file: of all points, whatever the names of their tracks.
    pub entity: Option<Name>,
    /// The columns of a file of [`Format::Csv`](super::Format::Csv).
    pub layout: Layout,
    /// Seconds that local times are ahead of UTC, in CSV files whose times do not say it. `None`: as the layout says.
    pub utc_offset: Option<i32>,
    /// Keys of NDJSON and GeoJSON that are not known are left out, and not refused.
    pub ignore_unknown: bool,
}
