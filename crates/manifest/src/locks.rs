//! The locks of this crate, in their order: see `base::sync::Rank`. Most of the engine's come before them.

use base::sync::Rank;

/// `TableCache`: the tables that are open.
pub(crate) const OPEN_TABLES: Rank = Rank::new(54, "open tables");
/// `OnDemand`: one table's reader, held while it is opened.
pub(crate) const READER: Rank = Rank::new(56, "reader of a table");
/// `Janitor`: the files that nothing refers to any more.
pub(crate) const JANITOR: Rank = Rank::new(71, "janitor");
