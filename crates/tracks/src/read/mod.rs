//! Queries, each answered from one state of the store.
//!
//! | query | reads |
//! |---|---|
//! | which entities are in an area, which are nearest | `geohash`, in ranges of cells that cover the area |
//! | which were in an area | `visits`, then the points of those |
//! | where one has been | `default` |

mod density;
mod entity;
mod nearby;
mod past;
mod patience;
mod points;
mod scan;
mod summary;
mod track;
mod within;

pub use density::{CELLS_MAX, Density, density};
pub(crate) use entity::erased;
pub use entity::{Latest, find, latest, name_of};
pub use nearby::{K_MAX, nearby};
pub use past::{Visit, Visitors, visitors};
pub use patience::{Asker, Patience, Watch};
pub(crate) use points::{PointRow, point_rows};
pub use summary::{STAYS_MAX, Stay, Summary, summary};
pub use track::{Choice, Located, Track, points, track, track_while};
pub use within::{Cursor, Filter, Hit, Page, within};
