//! Tables made outside of the database, and their ingestion.

use std::path::{Path, PathBuf};

use base::{Error, Result};

use super::Worker;
use crate::engine::Engine;
use crate::keys::Values;
use crate::stats::Op;

/// The directory of the tables: inside the database's directory, so that they can be moved.
const FOLDER: &str = "ingest_tmp";

impl<E: Engine> Worker<'_, E> {
    /// Writes `ingest_external_file_batch_size` tables of all keys and ingests them at once, for each
    /// operation. The time is that of both.
    pub(super) fn ingest(&mut self, values: &mut Values) -> Result<()> {
        self.pick_engine();
        let folder = self.on.dir().join(FOLDER);
        let failed = |e| Error::io("create", &folder, e);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let files = self.flags.ingest_external_file_batch_size.max(1);
        for batch in 0..self.plan.operations {
            let paths: Vec<PathBuf> = (0..files)
                .map(|file| folder.join(format!("ingest_{batch}_{file}.sst")))
                .collect();
            for path in &paths {
                self.write_table(path, values)?;
            }
            self.engine.ingest(&paths)?;
            self.stats.finished(1, Op::Write);
            for path in &paths {
                std::fs::remove_file(path).ok(); // it was moved, or its content was linked
            }
        }
        std::fs::remove_dir(&folder).ok(); // what is left says that something failed
        self.stats.add_message(&format!(
            "({} batches x {files} files, {} keys/file)",
            self.plan.operations, self.plan.num
        ));
        Ok(())
    }

    fn write_table(&mut self, path: &Path, values: &mut Values) -> Result<()> {
        let keys = self.keys();
        let mut key = keys.room();
        let mut table = self.engine.table(path)?;
        let mut bytes = 0;
        for number in 0..self.plan.num {
            keys.write(number, &mut key);
            let value = values.next();
            bytes += key.len() + value.len();
            self.engine.table_put(&mut table, &key, value)?;
        }
        self.stats.add_bytes(bytes as u64);
        self.engine.table_finish(table)
    }
}
