//! The logs of an open database, and the updates in them.

use base::{Error, Result};

use super::Db;
use crate::read::updates::{self, UpdatesIterator};
use crate::wal::WalFile;
/// The logs.
impl Db {
    /// The logs that contain at least one batch, archived ones first, in the order in which they were written. A
    /// log that is damaged at its start counts as empty. Errors: a directory or a log cannot be read.
    pub fn get_sorted_wal_files(&self) -> Result<Vec<WalFile>> {
        updates::sorted(&self.shared.wal)
    }

    /// The log that currently receives writes; its `start_sequence` is 0. Errors: the database is open read-only.
    pub fn get_current_wal_file(&self) -> Result<WalFile> {
        let number = self.shared.wal.logs.newest();
        let number = number.ok_or_else(|| {
            Error::not_supported("the current log of a database that is open for reading only")
        })?;
        self.shared.wal.directory.describe(number)
    }

    /// The writes from sequence number `sequence` on, batch by batch. Iteration begins with the batch that contains
    /// `sequence` or, if the logs do not go back that far, with the first batch in them, whose sequence number is
    /// then larger. `WAL_ttl_seconds` and `WAL_size_limit_MB` keep logs for this purpose. Only writes in the log
    /// files are shown: no write with `disable_wal`, and with `manual_wal_flush` only writes that were flushed.
    ///
    /// Errors: `NotFound` if this sequence number was not written yet; as [`Db::get_sorted_wal_files`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.put("a", "1")?;
    /// let mut updates = db.get_updates_since(1)?;
    /// assert!(updates.valid() && updates.sequence() == 1);
    /// updates.next();
    /// assert!(!updates.valid());
    /// updates.status()?;
    /// db.put("b", "2")?;
    /// updates.next();
    /// assert_eq!(updates.batch().count(), 1);
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn get_updates_since(&self, sequence: u64) -> Result<UpdatesIterator> {
        updates::since(&self.shared, sequence)
    }
}
