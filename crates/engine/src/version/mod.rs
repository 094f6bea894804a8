//! What the database consists of: which files are on which level of which column family.
//!
//! ```text
//!   VersionEdit  one change, as the MANIFEST stores it            edit
//!   MANIFEST     the log of edits; read at open, appended to      manifest
//!   Version      the files of one column family, immutable        version
//!   VersionSet   the only writer of the MANIFEST                  set
//!   TableCache   which tables are open                            table_cache
//! ```

pub mod edit;
pub(crate) mod manifest;
pub(crate) mod table_cache;
#[expect(
    clippy::module_inception,
    reason = "Version is the thing this directory is about"
)]
pub(crate) mod version;

pub(crate) use version::{TableFile, Version};
