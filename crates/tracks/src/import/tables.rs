//! The tables that an import makes for one family.

use std::path::{Path, PathBuf};

use base::Result;
use ironstone::SstFileWriter;

use crate::store::{Engine, Family};

/// A table ends once it has this many bytes.
const TABLE_BYTES: u64 = 64 << 20;

/// The tables of one family. Keys must be added in order.
pub(super) struct Tables {
    writer: SstFileWriter,
    dir: PathBuf,
    family: Family,
    files: Vec<PathBuf>,
    is_open: bool,
    pub(super) rows: u64,
}

impl Tables {
    pub(super) fn new(engine: &Engine, dir: &Path, family: Family) -> Self {
        Self {
            writer: SstFileWriter::new(&engine.options_of(family)),
            dir: dir.to_path_buf(),
            family,
            files: Vec::new(),
            is_open: false,
            rows: 0,
        }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.begin()?;
        self.writer.put(key, value)
    }

    pub(super) fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.begin()?;
        self.writer.delete(key)
    }

    /// Ensures that a table is open.
    fn begin(&mut self) -> Result<()> {
        self.rows += 1;
        if self.is_open && self.writer.file_size() > TABLE_BYTES {
            self.end()?;
        }
        if !self.is_open {
            let name = format!("{}-{}.sst", self.family.name(), self.files.len());
            let path = self.dir.join(name);
            self.writer.open(&path)?;
            self.files.push(path);
            self.is_open = true;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.is_open = false;
        self.writer.finish().map(drop)
    }

    /// The family and its tables, which are durable.
    pub(super) fn finish(mut self) -> Result<(Family, Vec<PathBuf>)> {
        if self.is_open {
            self.end()?;
        }
        Ok((self.family, self.files))
    }
}
