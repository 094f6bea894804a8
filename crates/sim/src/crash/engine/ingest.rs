//! Ingestion of files by a workload.

use std::path::{Path, PathBuf};

use base::Result;
use ironstone::{Db, IngestExternalFileArg, IngestExternalFileOptions, SstFileWriter};

use super::super::model::{Change, LOGGED, Op, Outside, is_unlogged};
use super::workload::{Workload, handle, key};
use super::{OUTSIDE, Plant, lock};
use crate::disk::Lie;

impl Workload {
    /// Ingests a file into a family, or two files into two families at once. When it returns, it is
    /// durable, and so is everything before it; a moved file is always in one of its places.
    pub(super) fn ingest(&mut self, db: &Db) -> Result<()> {
        let mut families = vec![self.any_family()];
        if self.rng.one_in(2) {
            families.push(self.any_family());
        }
        families.sort();
        families.dedup();
        families.retain(|(name, _)| !is_unlogged(name));
        let Some(first) = families.first().cloned() else {
            return Ok(());
        };
        let move_files = self.plant == Plant::Disk(Lie::MoveEarly) || self.rng.one_in(2);
        let options = IngestExternalFileOptions {
            move_files,
            write_global_seqno: self.rng.one_in(3),
            ..IngestExternalFileOptions::default()
        };
        let mark = format!("mark{:08x}", self.rng.next_u64() as u32).into_bytes();
        let (mut args, mut changes) = (Vec::new(), Vec::new());
        for (name, family) in families {
            let (path, file) = self.outside_file(family, &mark)?;
            changes.extend(file);
            args.push(IngestExternalFileArg {
                column_family: handle(db, &name)?,
                external_files: vec![path],
                options: options.clone(),
            });
        }
        let files: Vec<PathBuf> = args
            .iter()
            .flat_map(|a| a.external_files.iter().cloned())
            .collect();
        {
            let mut history = lock(&self.history);
            history.start(LOGGED, &changes);
            history.now.outside = Some(Outside {
                files: files.clone(),
                mark: (first.0, mark),
            });
        }
        let result = db.ingest_external_files(&args);
        let mut history = lock(&self.history);
        history.now.outside = None;
        match &result {
            Ok(()) => history.acknowledge(LOGGED, true, true),
            Err(_) => history.fail_last(),
        }
        drop(history);
        result?;
        let fs = &self.options.env.fs;
        for path in files.iter().filter(|_| !move_files) {
            fs.remove(path)?;
        }
        Ok(())
    }

    /// Creates a file with a range deletion, a few keys and the mark; returns it with the changes that it
    /// makes.
    fn outside_file(&mut self, family: usize, mark: &[u8]) -> Result<(PathBuf, Vec<Change>)> {
        let fs = &self.options.env.fs;
        if !fs.exists(Path::new(OUTSIDE))? {
            fs.create_dir(Path::new(OUTSIDE))?;
        }
        // Even if the directory exists: a killed process may have created it without syncing its parent.
        fs.sync_dir(Path::new("/"))?;
        let path = Path::new(OUTSIDE).join(format!("{:016x}.sst", self.rng.next_u64()));
        let mut writer = SstFileWriter::new(&self.options);
        writer.open(&path)?;
        let mut changes = Vec::new();
        let mut change = |key: Vec<u8>, op: Op| changes.push(Change { family, key, op });
        if self.rng.one_in(3) {
            let at = self.rng.below(50);
            writer.delete_range(key(at), key(at + 5))?;
            change(key(at), Op::DeleteTo(key(at + 5)));
        }
        let mut at = self.rng.below(20);
        for _ in 0..self.rng.below(6) {
            match self.rng.below(6) {
                0 => {
                    writer.delete(key(at))?;
                    change(key(at), Op::Delete);
                }
                1 => {
                    writer.merge(key(at), "m")?;
                    change(key(at), Op::Merge(b"m".to_vec()));
                }
                _ => {
                    let value = self.value();
                    writer.put(key(at), &value)?;
                    change(key(at), Op::Put(value));
                }
            }
            at += 1 + self.rng.below(8);
        }
        // The mark sorts after all other keys.
        writer.put(mark, "")?;
        change(mark.to_vec(), Op::Put(Vec::new()));
        writer.finish()?;
        // The caller must make the file's name durable before it is moved.
        self.options.env.fs.sync_dir(Path::new(OUTSIDE))?;
        Ok((path, changes))
    }
}
