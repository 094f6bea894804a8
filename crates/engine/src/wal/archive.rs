//! The archive: obsolete logs that are kept, limited by age or by size.
//!
//! The rules are RocksDB's (`db/wal_manager.cc`, release 11.8.1). With a time to live, files that were
//! changed more than `WAL_ttl_seconds` ago are deleted. With a size limit, as many of the newest files
//! stay as would fit if each were as large as the largest; empty files are deleted. The archive is checked
//! whenever obsolete files are removed, and at intervals by a thread, but at most once per half the time to
//! live or per ten minutes, whichever is less. The current time comes from the injected clock; it is compared
//! with the modification times of the files.
//!
//! Purging only deletes files. Archiving cuts a file off at the end of its log, because a file that was prepared
//! in advance is longer than its log, and the size limit needs real sizes. Like any change, that restarts the
//! time to live. A log without records is not archived.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::clock::Clock;
use base::{FileNumber, Result};
use io::{File, FileSystem, NewNames, OpenHow, SyncKind};

use crate::info::log::InfoLog;
use files::{self, FileKind};
use options::Options;

/// Name of the directory of archived logs, beside the logs. RocksDB's.
pub(crate) const ARCHIVE: &str = "archive";

/// The most seconds between two checks of the archive.
const INTERVAL_SECONDS_MAX: u64 = 600;

/// Where archived logs are kept, and for how long.
#[derive(Debug)]
pub(super) struct Archive {
    fs: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    log_dir: PathBuf,
    dir: PathBuf,
    ttl_seconds: u64,
    bytes_max: u64,
    /// When the archive was last checked, in seconds since 1970.
    last_purge: AtomicU64,
}

impl Archive {
    pub(super) fn new(log_dir: &Path, options: &Options) -> Self {
        Self {
            fs: Arc::clone(&options.env.fs),
            clock: Arc::clone(&options.env.clock),
            log_dir: log_dir.to_path_buf(),
            dir: log_dir.join(ARCHIVE),
            ttl_seconds: options.db.wal_ttl_seconds,
            bytes_max: options.db.wal_size_limit_mb.saturating_mul(1 << 20),
            last_purge: AtomicU64::new(0),
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether anything is archived.
    pub(super) fn is_on(&self) -> bool {
        self.ttl_seconds > 0 || self.bytes_max > 0
    }

    /// Moves the log at `path` to the archive; false if it has no record and stays where it is.
    pub(super) fn put(&self, number: FileNumber, path: &Path) -> Result<bool> {
        let Some(end) = self.end_of_log(number, path)? else {
            return Ok(false);
        };
        if !self.fs.exists(&self.dir)? {
            self.fs.create_dir(&self.dir)?;
            self.fs.sync_dir(&self.log_dir)?;
        }
        let to = files::wal_path(&self.dir, number);
        let old = NewNames::begin(&*self.fs, &self.log_dir);
        self.fs.rename(path, &to)?;
        self.fs.sync_dir(&self.dir)?;
        // The file is cut only after its old name is durably gone.
        old.sync(&*self.fs, &self.log_dir)?;
        if end < self.fs.metadata(&to)?.len {
            let file = self.fs.open(&to, OpenHow::UPDATE)?;
            file.truncate(end)?;
            file.sync(SyncKind::All)?;
        }
        Ok(true)
    }

    /// Where the log ends in its file; `None` if it has no record.
    fn end_of_log(&self, number: FileNumber, path: &Path) -> Result<Option<u64>> {
        let file = self.fs.open(path, OpenHow::READ)?;
        let len = file.len()?;
        let mut last = [0];
        if len == 0 {
            return Ok(None);
        }
        file.read_at(&mut last, len - 1)?;
        if last != [0] {
            return Ok(Some(len));
        }
        // The file ends in zeros that were written in advance, or in a record that ends in a zero: read the log to
        // find out.
        let mut reader = plain_reader(file, number);
        let mut record = Vec::new();
        let mut records = 0u64;
        while reader.read(&mut record)? {
            records += 1;
        }
        Ok(match reader.end() {
            log::End::Torn { .. } => Some(len),
            end => (records > 0).then(|| end.offset()),
        })
    }

    pub(super) fn interval_seconds(&self) -> u64 {
        match self.ttl_seconds {
            0 => INTERVAL_SECONDS_MAX,
            ttl => (ttl / 2).clamp(1, INTERVAL_SECONDS_MAX),
        }
    }

    /// Deletes archived logs that are too old or too many, unless the last check was a short time ago.
    /// Returns the deleted logs. Errors are reported in LOG only; the next check tries again.
    pub(super) fn purge(&self, log: &InfoLog) -> Vec<FileNumber> {
        if !self.is_on() {
            return Vec::new();
        }
        let now = self.clock.wall_micros() / 1_000_000;
        let last = self.last_purge.load(Ordering::Relaxed);
        let due = last.saturating_add(self.interval_seconds()) <= now
            && self
                .last_purge
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !due {
            return Vec::new();
        }
        let kept = match self.look() {
            Ok(files) => files,
            Err(e) => {
                log.warn(format_args!("cannot look at archived logs: {e}"));
                return Vec::new();
            }
        };
        let mut gone = Vec::new();
        for number in self.superfluous(&kept, now) {
            let path = files::wal_path(&self.dir, number);
            match self.fs.remove(&path) {
                Ok(()) => {
                    log.info(format_args!("Delete {}", path.display()));
                    gone.push(number);
                }
                Err(e) if e.is_not_found() => {}
                Err(e) => log.warn(format_args!("cannot delete: {e}")),
            }
        }
        gone
    }

    /// The files of the archive, by number.
    fn look(&self) -> Result<Vec<Archived>> {
        let entries = match files::list(&*self.fs, &self.dir) {
            Err(e) if e.is_not_found() => return Ok(Vec::new()),
            other => other?,
        };
        let mut out = Vec::new();
        for entry in entries.into_iter().filter(|e| e.kind == FileKind::Wal) {
            let m = match self.fs.metadata(&self.dir.join(&entry.name)) {
                Err(e) if e.is_not_found() => continue,
                other => other?,
            };
            out.push(Archived {
                number: entry.number,
                bytes: m.len,
                modified: m.modified_micros / 1_000_000,
            });
        }
        Ok(out)
    }

    /// Which of `files`, sorted by number, are to be deleted at the time `now`.
    fn superfluous(&self, files: &[Archived], now: u64) -> Vec<FileNumber> {
        let old = |f: &Archived| {
            // A clock that went back makes nothing old.
            self.ttl_seconds > 0 && now.saturating_sub(f.modified) > self.ttl_seconds
        };
        let (old, young): (Vec<&Archived>, Vec<_>) = files.iter().partition(|f| old(f));
        let mut out: Vec<FileNumber> = old.into_iter().map(|f| f.number).collect();
        if self.bytes_max > 0 {
            let (empty, full): (Vec<&Archived>, Vec<_>) =
                young.into_iter().partition(|f| f.bytes == 0);
            out.extend(empty.into_iter().map(|f| f.number));
            if let Some(largest) = full.iter().map(|f| f.bytes).max() {
                let keep = (self.bytes_max / largest).min(full.len() as u64) as usize;
                out.extend(full.iter().take(full.len() - keep).map(|f| f.number));
            }
        }
        out
    }
}

/// A file in the archive.
#[derive(Clone, Copy, Debug)]
struct Archived {
    number: FileNumber,
    bytes: u64,
    /// Seconds since 1970.
    modified: u64,
}

/// A reader that ends at the first damaged place.
pub(crate) fn plain_reader(file: Arc<dyn File>, number: FileNumber) -> log::Reader {
    let options = log::ReaderOptions {
        mode: log::RecoveryMode::PointInTimeRecovery,
        fences: false,
    };
    log::Reader::new(file, number.0, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn archive(ttl_seconds: u64, limit_mb: u64) -> Archive {
        let mut options = Options::default();
        options.db.wal_ttl_seconds = ttl_seconds;
        options.db.wal_size_limit_mb = limit_mb;
        Archive::new(Path::new("/nowhere"), &options)
    }

    fn superfluous(ttl: u64, limit_mb: u64, files: &[(u64, u64, u64)], now: u64) -> Vec<u64> {
        let files: Vec<_> = files
            .iter()
            .map(|&(number, bytes, modified)| Archived {
                number: FileNumber(number),
                bytes,
                modified,
            })
            .collect();
        let gone = archive(ttl, limit_mb).superfluous(&files, now);
        gone.into_iter().map(|n| n.0).collect()
    }

    #[test]
    fn age_alone() {
        let files = [(4, 10, 100), (5, 0, 150), (6, 10, 900)];
        assert_eq!(superfluous(50, 0, &files, 150), []);
        assert_eq!(superfluous(50, 0, &files, 151), [4]);
        assert_eq!(superfluous(50, 0, &files, 201), [4, 5]);
        assert_eq!(superfluous(50, 0, &files, 10), [], "the clock went back");
    }

    #[test]
    fn size_alone_counts_in_largest_files() {
        let files = [
            (4, MIB, 0),
            (5, 100, 0),
            (6, 0, 0),
            (7, 2 * MIB, 0),
            (8, 1, 0),
        ];
        assert_eq!(superfluous(0, 100, &files, 9), [6], "empty ones go");
        assert_eq!(superfluous(0, 4, &files, 9), [6, 4, 5]);
        assert_eq!(superfluous(0, 1, &files, 9), [6, 4, 5, 7, 8]);
        assert_eq!(superfluous(0, 0, &files, 9), []);
        assert_eq!(superfluous(0, 5, &[], 9), []);
    }

    #[test]
    fn age_and_size() {
        let files = [(4, 3 * MIB, 10), (5, MIB, 90), (6, MIB, 95)];
        // The old file does not count for the size.
        assert_eq!(superfluous(50, 2, &files, 100), [4]);
        assert_eq!(superfluous(50, 1, &files, 100), [4, 5]);
    }

    /// Writes a log of these records into a file of `len` bytes at least; returns its own length.
    fn write_log(path: &Path, records: &[&[u8]], len: u64) -> u64 {
        let file = io::posix::Posix.open(path, OpenHow::CREATE_NEW).unwrap();
        file.truncate(len).unwrap();
        let mut writer = log::Writer::new(file, log::LogOptions::default());
        for record in records {
            writer.append(record).unwrap();
        }
        writer.submit().unwrap();
        writer.size()
    }

    #[test]
    fn a_log_is_cut_to_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.db.wal_ttl_seconds = 9;
        let archive = Archive::new(dir.path(), &options);
        let long = vec![7; 40_000];
        let cases: [(&[&[u8]], u64); 4] = [
            (&[b"grown"], 0),
            (&[b"ends in zeros\0\0\0"], 0),
            (&[b"made ahead", &long], 1 << 20),
            (&[b"ends in zeros, made ahead\0\0"], 1 << 20),
        ];
        for (i, (records, len)) in cases.into_iter().enumerate() {
            let number = FileNumber(i as u64 + 1);
            let path = files::wal_path(dir.path(), number);
            let end = write_log(&path, records, len);
            assert!(archive.put(number, &path).unwrap());
            assert!(!path.exists());
            let archived = std::fs::metadata(files::wal_path(archive.dir(), number)).unwrap();
            assert_eq!(archived.len(), end, "case {i}");
        }
        // Without a record: not archived.
        for (number, len) in [(8, 0), (9, 1 << 20)] {
            let path = files::wal_path(dir.path(), FileNumber(number));
            write_log(&path, &[], len);
            assert!(!archive.put(FileNumber(number), &path).unwrap());
            assert!(path.exists());
        }
    }

    #[test]
    fn the_archive_is_looked_at_every_half_time_to_live_or_ten_minutes() {
        let cases = [
            (0, 1, 600),
            (1, 0, 1),
            (100, 0, 50),
            (100, 9, 50),
            (9000, 0, 600),
        ];
        for (ttl, limit, expected) in cases {
            assert_eq!(archive(ttl, limit).interval_seconds(), expected);
        }
    }
}
