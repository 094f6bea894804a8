//! The content of a database: which files are on which level of which column family.
//!
//! ```text
//!   VersionEdit  one change, as the MANIFEST stores it            edit
//!   MANIFEST     the log of edits; read at open, appended to      edit_log
//!   Version      the files of one column family, immutable        version
//!   TableCache   the open tables                                  table_cache
//!   FileNumbers  the numbers of new files                         numbers
//!   Janitor      the files that nothing needs any more            janitor
//! ```
//!
//! The engine's `VersionSet` is the only writer of the MANIFEST.

pub mod edit;
mod edit_log;
pub mod janitor;
mod locks;
mod numbers;
pub mod table_cache;
pub mod version;

pub use edit_log::{Recovered, RecoveredFamily, Writer, read};
pub use numbers::FileNumbers;
pub use table_cache::Opened;
pub use version::{Files, TableFile, Version};
