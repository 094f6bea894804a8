//! The database's end of the log: the active file, and older ones that are not durable yet.

use base::{FileNumber, Result};

/// The active log and what must be durable before it counts as durable.
pub(crate) struct ActiveLog {
    pub(crate) writer: log::Writer,
    pub(crate) number: FileNumber,
    /// Logs that were left behind with bytes that are not durable yet, oldest first. They are
    /// synced before anything in the active log is acknowledged as durable.
    unsynced: Vec<log::Syncer>,
    dirty: bool,
    /// `wal_bytes_per_sync`, and up to where writeback of the active file was started.
    bytes_per_sync: u64,
    writeback_from: u64,
}

impl ActiveLog {
    pub(crate) fn new(writer: log::Writer, number: FileNumber, bytes_per_sync: u64) -> Self {
        let unsynced = Vec::new();
        Self {
            writer,
            number,
            unsynced,
            dirty: false,
            bytes_per_sync,
            writeback_from: 0,
        }
    }

    /// Makes `writer` the active log. What the old one holds stays to be synced.
    pub(crate) fn switch(&mut self, writer: log::Writer, number: FileNumber) -> Result<()> {
        self.writer.submit()?;
        if self.dirty {
            self.unsynced.push(self.writer.syncer());
        }
        self.writer = writer;
        self.number = number;
        self.dirty = false;
        self.writeback_from = 0;
        Ok(())
    }

    pub(crate) fn append(&mut self, record: &[u8]) -> Result<()> {
        self.dirty = true;
        self.writer.append(record)?;
        Ok(())
    }

    /// Hands everything appended to the operating system.
    pub(crate) fn submit(&mut self) -> Result<()> {
        self.writer.submit()?;
        let (from, size) = (self.writeback_from, self.writer.size());
        if self.bytes_per_sync > 0 && size - from >= self.bytes_per_sync {
            self.writer.file().start_writeback(from, size - from)?;
            self.writeback_from = size;
        }
        Ok(())
    }

    /// Makes the logs durable that were left behind.
    pub(crate) fn sync_closed(&mut self) -> Result<()> {
        // One that failed stays, and fails again without being tried.
        while let Some(log) = self.unsynced.first() {
            log.sync()?;
            self.unsynced.remove(0);
        }
        Ok(())
    }

    /// Makes everything appended durable, older logs first.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.sync_closed()?;
        self.writer.sync()?;
        self.dirty = false;
        Ok(())
    }
}
