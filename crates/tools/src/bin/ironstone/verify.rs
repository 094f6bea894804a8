//! `verify`: every checksum of a database, without changing it.
//!
//! The database is opened read-only, with the checks of every open. Then the MANIFEST, every live
//! table and every needed log are verified separately, so that one problem does not hide another.
//! If the database uses a feature that the engine lacks, that is not damage, and causes only a
//! note. But data that cannot be verified, such as blob files without a checksum in the MANIFEST,
//! is a problem: "OK" means that everything was verified.

use std::io::Write;
use std::path::{Path, PathBuf};

use base::checksum::Crc32c;
use base::{Comparator, FileNumber};
use files::FileKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use io::{FileSystem, OpenHow, posix::Posix};
use ironstone::batch::Records;
use ironstone::{Error, ErrorKind, Result};
use log::{End, RecoveryMode};
use manifest::edit::FileMetaData;
use table::Reader;
use table::reader::ReaderOptions;

use crate::cli::Global;
use crate::fail::{Failure, Outcome};
use crate::open;
use crate::state::{Family, State};
use crate::text::Hex;
use crate::wal;

/// The problems and counts so far.
#[derive(Default)]
struct Report {
    problems: u64,
    /// The reason why the database does not open, until the same problem is found in its file.
    opening: Option<Error>,
    notes: Vec<String>,
    tables: u64,
    table_bytes: u64,
    blocks: u64,
    entries: u64,
    blobs: u64,
    logs: u64,
    log_bytes: u64,
    batches: u64,
}

/// A problem of a table.
enum Wrong {
    /// Something in it.
    Table(Error),
    /// The checksum of the whole file.
    File(Error),
}

impl From<Error> for Wrong {
    fn from(e: Error) -> Self {
        Self::Table(e)
    }
}

/// Verifies the database.
pub(crate) fn verify(global: &Global, out: &mut dyn Write) -> Outcome {
    let dir = global.dir()?;
    let mut report = Report::default();
    match open::read_only(global) {
        Ok(db) => db.close()?,
        Err(Failure::Status(e)) if e.kind() == ErrorKind::NotSupported => report
            .notes
            .push(format!("Ironstone cannot open this database: {e}")),
        Err(Failure::Status(e)) => report.opening = Some(e.or_file(dir)),
        Err(other) => return Err(other),
    }
    let manifest = files::read_current(&Posix, dir).map(|n| files::manifest_path(dir, n));
    let state = match manifest.and_then(|path| State::read(&path, &mut |_| {})) {
        Ok(state) => state,
        Err(e) => {
            // Opening it has met that first.
            let e = report.opening.take().unwrap_or(e);
            report.problem(&e, out)?;
            return report.finish(None, out);
        }
    };
    report.blobs(dir, &state, out)?;
    let logs = needed_logs(&open::log_dir(global, dir)?, &state)?;
    let bar = progress(&state, &logs)?;
    for (family, meta) in state.tables() {
        bar.set_message(meta.number.to_string());
        let mut wrong = Vec::new();
        match report.table(dir, family, meta, &mut wrong) {
            Ok(()) => {}
            // A file with a damaged block has another checksum: that says nothing new.
            Err(Wrong::File(_)) if !wrong.is_empty() => {}
            Err(Wrong::File(e) | Wrong::Table(e)) => wrong.push(e),
        }
        for e in &wrong {
            bar.suspend(|| report.problem(e, out))?;
        }
        bar.inc(meta.file_size);
    }
    for (path, bytes) in &logs {
        if let Err(e) = report.log(path, *bytes) {
            bar.suspend(|| report.damages(path, &e, out))?;
        }
        bar.inc(*bytes);
    }
    bar.finish_and_clear();
    report.finish(Some(&state), out)
}

/// A progress bar on standard error; none if that is not a terminal.
fn progress(state: &State, logs: &[(PathBuf, u64)]) -> Outcome<ProgressBar> {
    let tables = state.tables().map(|(_, meta)| meta.file_size);
    let all = tables.chain(logs.iter().map(|(_, bytes)| *bytes));
    let total = all.fold(0, u64::saturating_add);
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("[{bar:40}] {bytes}/{total_bytes} {eta} {msg}")
        .map_err(|e| Failure::message(e.to_string()))?;
    bar.set_style(style.progress_chars("=> "));
    Ok(bar)
}

/// The logs that recovery reads, with their sizes.
fn needed_logs(dir: &Path, state: &State) -> Result<Vec<(PathBuf, u64)>> {
    let oldest = state.families.values().map(|f| f.log_number).min();
    let oldest = oldest.unwrap_or(0).max(state.min_log_number_to_keep);
    files::list(&Posix, dir)?
        .into_iter()
        .filter(|e| e.kind == FileKind::Wal && e.number >= FileNumber(oldest))
        .map(|e| {
            let path = dir.join(e.name);
            let bytes = Posix.metadata(&path)?.len;
            Ok((path, bytes))
        })
        .collect()
}

impl Report {
    /// The problem that prevented the open is found again in its file. It is reported once, with the
    /// engine's message, which says what to do.
    fn problem(&mut self, e: &Error, out: &mut dyn Write) -> Outcome {
        let same = |o: &mut Error| o.path() == e.path() && o.at() == e.at();
        let opening = self.opening.take_if(same);
        self.problems += 1;
        writeln!(out, "problem: {}", opening.as_ref().unwrap_or(e))?;
        Ok(())
    }

    /// The checksums inside blob files cannot be verified here, but the MANIFEST may have a
    /// checksum of the whole file.
    fn blobs(&mut self, dir: &Path, state: &State, out: &mut dyn Write) -> Outcome {
        let all = state.families.values().flat_map(|f| f.blobs.values());
        for blob in all.filter(|b| b.garbage_count < b.added.blob_count) {
            let path = files::blob_path(dir, blob.added.number);
            let (method, expected) = (&blob.added.checksum_method, &blob.added.checksum);
            match verify_file(&path, method, expected) {
                Ok(true) => self.blobs += 1,
                Ok(false) => {
                    let e = Error::not_supported("a blob file without a checksum in the MANIFEST");
                    self.problem(&e.file(path), out)?;
                }
                Err(e) => self.problem(&e, out)?,
            }
        }
        Ok(())
    }

    /// Verifies a table; `wrong` gets the problems after which verification continues.
    fn table(
        &mut self,
        dir: &Path,
        family: &Family,
        meta: &FileMetaData,
        wrong: &mut Vec<Error>,
    ) -> Result<(), Wrong> {
        self.tables += 1;
        let mut path = files::table_path(dir, meta.number);
        let old = files::leveldb_table_path(dir, meta.number);
        if !Posix.exists(&path)? && Posix.exists(&old)? {
            path = old;
        }
        let file = Posix.open(&path, OpenHow::READ)?;
        let size = file.len()?;
        if size != meta.file_size {
            return Err(Error::corruption(format!(
                "{size} bytes long, {} in the MANIFEST",
                meta.file_size
            ))
            .file(path)
            .into());
        }
        let name = &family.comparator;
        let comparator = Comparator::by_name(name)
            .ok_or_else(|| Error::not_supported(format!("comparator {name}")).file(&path))?;
        let options = ReaderOptions {
            comparator,
            expected_unique_id: meta.unique_id,
            largest_seqno: meta.largest_seqno,
            ..ReaderOptions::default()
        };
        let reader = Reader::open(file, size, options)?;
        reader.verify_blocks(&mut |e| {
            wrong.push(e);
            Ok(())
        })?;
        verify_file(&path, &meta.file_checksum_func_name, &meta.file_checksum)
            .map_err(Wrong::File)?;
        self.table_bytes += size;
        self.blocks += reader.data_blocks()?.len() as u64;
        self.entries += reader.properties().num_entries;
        Ok(())
    }

    fn log(&mut self, path: &Path, bytes: u64) -> Result<()> {
        self.logs += 1;
        self.log_bytes += bytes;
        let mode = RecoveryMode::TolerateCorruptedTailRecords;
        let mut reader = log_reader(path, mode)?;
        let mut record = Vec::new();
        while reader.read(&mut record)? {
            let offset = reader.record_offset();
            Records::new(&record)
                .and_then(|mut all| all.try_for_each(|r| r.map(|_| ())))
                .map_err(|e| e.or_file(path).offset(offset))?;
            self.batches += 1;
        }
        if let End::Torn { offset, reason, .. } = reader.end() {
            self.notes.push(format!(
                "{}: ends at offset {offset}: {reason} (normal after a crash)",
                path.display()
            ));
        }
        Ok(())
    }

    /// All problems of a log whose reading ended with `first`.
    fn damages(&mut self, path: &Path, first: &Error, out: &mut dyn Write) -> Outcome {
        let mut reader = log_reader(path, RecoveryMode::SkipAnyCorruptedRecords)?;
        let mut record = Vec::new();
        while reader.read(&mut record)? {}
        if reader.damages().is_empty() {
            return self.problem(first, out);
        }
        for d in reader.damages() {
            let e = Error::corruption(format!("{}, {} bytes", d.reason, d.bytes));
            self.problem(&e.file(path).offset(d.offset), out)?;
        }
        Ok(())
    }

    fn finish(mut self, state: Option<&State>, out: &mut dyn Write) -> Outcome {
        if let Some(e) = self.opening.take() {
            self.problem(&e, out)?;
        }
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        if let Some(state) = state {
            let (families, edits) = (state.families.len(), state.edits);
            writeln!(out, "manifest: {edits} edits, {families} column families")?;
            writeln!(
                out,
                "tables: {}, {} bytes, {} blocks, {} entries",
                self.tables, self.table_bytes, self.blocks, self.entries
            )?;
            if self.blobs > 0 {
                writeln!(out, "blob files: {}", self.blobs)?;
            }
            writeln!(
                out,
                "logs: {}, {} bytes, {} batches",
                self.logs, self.log_bytes, self.batches
            )?;
        }
        if self.problems == 0 {
            return Ok(writeln!(out, "OK")?);
        }
        writeln!(out, "{} problems", self.problems)?;
        Err(Failure::Reported)
    }
}

/// Verifies the checksum of a whole file against the MANIFEST; returns false if the MANIFEST has
/// none, or one of an unknown kind. Source of name and encoding: docs/formats.md, "Checksums of
/// whole files".
fn verify_file(path: &Path, method: &str, expected: &[u8]) -> Result<bool> {
    if method != "FileChecksumCrc32c" {
        return Ok(false);
    }
    let file = Posix.open(path, OpenHow::READ)?;
    file.advise(io::Advice::Sequential);
    let mut crc = Crc32c::new();
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let n = file.read_at(&mut piece, at)?;
        if n == 0 {
            break;
        }
        crc.update(&piece[..n]);
        at += n as u64;
    }
    let found = crc.value().to_be_bytes();
    if found == *expected {
        return Ok(true);
    }
    let (found, expected) = (Hex(&found), Hex(expected));
    let what = format!("the whole file's checksum is {found}, {expected} in the MANIFEST");
    Err(Error::corruption(what).file(path))
}

fn log_reader(path: &Path, mode: RecoveryMode) -> Result<log::Reader> {
    let (file, number) = wal::open(path)?;
    Ok(log::Reader::new(
        file,
        number,
        log::ReaderOptions { mode, fences: true },
    ))
}
