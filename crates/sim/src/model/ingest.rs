//! Ingestion of tables that are created outside of the database.

use std::path::PathBuf;

use ironstone::{IngestExternalFileArg, IngestExternalFileOptions};

use super::runner::{Runner, Step};
use super::setup::for_family;
use super::store::{Change, FileContent};

impl Runner {
    /// Draws the content of a file: some keys in order, and some ranges.
    fn file_content(&mut self, f: usize) -> FileContent {
        let mut file = FileContent::default();
        for _ in 0..self.rng.below(40) {
            let key = self.some_key();
            let change = match self.rng.below(10) {
                0..2 => Change::Delete,
                2..4 => Change::Merge(self.operand()),
                _ => Change::Put(self.value()),
            };
            file.points.push((key, change));
        }
        if file.points.is_empty() || self.rng.one_in(3) {
            for _ in 0..=self.rng.below(2) {
                file.ranges.push(self.range(f));
            }
        }
        let family = &self.model[f];
        file.ranges.retain(|(a, b)| family.before(a, b));
        file.points.sort_by(|(a, _), (b, _)| family.order(a, b));
        file.points.dedup_by(|(a, _), (b, _)| a == b);
        file
    }

    /// Writes the file; `None` if it would be empty.
    fn write_file(&mut self, f: usize, file: &FileContent) -> Result<Option<PathBuf>, String> {
        if file.points.is_empty() && file.ranges.is_empty() {
            return Ok(None);
        }
        let path = self.new_path("table");
        let mut options = self.setup.options.clone();
        options.cf = for_family(&options, self.model[f].reverse);
        let info = file
            .write(&options, &path)
            .map_err(|e| format!("SstFileWriter: {e}"))?;
        let (have, want) = (info.num_entries, file.points.len() as u64);
        if have != want {
            return Err(format!("a table of {have} entries instead of {want}"));
        }
        Ok(Some(path))
    }

    /// Ingests some files into some families at once.
    pub(super) fn ingest(&mut self) -> Step {
        let mut families = vec![self.family()];
        if self.rng.one_in(3) {
            let other = self.family();
            if !families.contains(&other) {
                families.push(other);
            }
        }
        let (mut args, mut contents) = (Vec::new(), Vec::new());
        for f in families {
            let mut paths = Vec::new();
            for _ in 0..=self.rng.below(3) {
                let file = self.file_content(f);
                if let Some(path) = self.write_file(f, &file)? {
                    paths.push(path);
                    contents.push((f, file));
                }
            }
            if !paths.is_empty() {
                args.push(self.argument(f, paths)?);
            }
        }
        if args.is_empty() {
            return Ok(());
        }
        self.note(format!("ingestion of {args:?}"));
        let strict = args.iter().any(|a| !a.options.allow_global_seqno);
        match self.db().ingest_external_files(&args) {
            Ok(()) => {}
            // Without sequence numbers of their own the files may not fit; then none was ingested.
            Err(e) if strict && e.to_string().contains("Global seqno") => contents.clear(),
            Err(e) => return Err(format!("ingest: {e}")),
        }
        let operator = self.setup.options.cf.merge_operator.clone();
        let operator = operator.expect("every run has one");
        for (f, file) in contents {
            self.model[f].ingest(&*operator, file);
        }
        for path in args.iter().flat_map(|a| &a.external_files) {
            // If the file was moved, it is gone.
            if path.exists() {
                std::fs::remove_file(path).map_err(|e| format!("remove: {e}"))?;
            }
        }
        Ok(())
    }

    fn argument(
        &mut self,
        f: usize,
        external_files: Vec<PathBuf>,
    ) -> Result<IngestExternalFileArg, String> {
        Ok(IngestExternalFileArg {
            column_family: self.handle(f)?,
            external_files,
            options: IngestExternalFileOptions {
                move_files: self.rng.one_in(2),
                write_global_seqno: self.rng.one_in(4),
                verify_checksums_before_ingest: self.rng.one_in(3),
                allow_global_seqno: !self.rng.one_in(10),
                ..IngestExternalFileOptions::default()
            },
        })
    }

    /// Puts and deletes keys of the last family, which is new, and ingests a file behind them: its entries
    /// are visible where nothing was written.
    pub(super) fn ingest_behind(&mut self) -> Step {
        let f = self.model.len() - 1;
        let mut file = FileContent::default();
        let mut hidden = Vec::new();
        let cf = self.handle(f)?;
        for n in 0..60 {
            let key = format!("key{n:06}").into_bytes();
            let failed = |e| format!("write: {e}");
            match self.rng.below(4) {
                0 => {
                    let value = self.value();
                    self.db().cf(&cf).put(&key, &value).map_err(failed)?;
                    hidden.push((key.clone(), Change::Put(value)));
                }
                1 => {
                    self.db().cf(&cf).delete(&key).map_err(failed)?;
                    hidden.push((key.clone(), Change::Delete));
                }
                _ => {}
            }
            if self.rng.one_in(2) {
                file.points.push((key, Change::Put(self.value())));
            }
        }
        let family = &self.model[f];
        file.points.sort_by(|(a, _), (b, _)| family.order(a, b));
        let Some(path) = self.write_file(f, &file)? else {
            return Ok(());
        };
        if self.rng.one_in(2) {
            self.db()
                .cf(&cf)
                .flush()
                .map_err(|e| format!("flush: {e}"))?;
        }
        self.note(format!("ingestion behind {:?}", self.model[f].name));
        let options = IngestExternalFileOptions {
            ingest_behind: true,
            move_files: true,
            ..IngestExternalFileOptions::default()
        };
        self.db()
            .cf(&cf)
            .ingest_external_file(&[&path], &options)
            .map_err(|e| format!("ingest behind: {e}"))?;
        for (key, change) in file.points.into_iter().chain(hidden) {
            self.apply(f, key, change);
        }
        Ok(())
    }
}
