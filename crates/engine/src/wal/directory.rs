//! The files of the logs: where they are, how they are listed, and how obsolete logs are archived, deleted or reused.
//!
//! ```text
//!   <wal_dir>/000008.log            alive: recovery may need it, or the next pass removes it
//!   <wal_dir>/archive/000005.log    archived: kept for readers of updates (module `archive`)
//!   <wal_dir>/log-pool/             files prepared in advance (crate `log`)
//! ```
//!
//! A log may be archived, deleted, or given back to the pool and overwritten while a reader uses
//! it. Readers therefore *pin* it ([`Directory::open_log`]): a pinned log is deleted instead of given to
//! the pool, so that the open file keeps its content.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, FileNumber, Result};
use io::{File, FileSystem, OpenHow};

use super::archive::{ARCHIVE, Archive, plain_reader};
use crate::batch::HEADER_LEN;
use crate::info::log::InfoLog;
use crate::locks;
use files::{self, FileKind};
use options::Options;

/// Where a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WalFileKind {
    /// In `archive/`: only readers of updates need it.
    Archived,
    /// Among the logs: recovery may need it.
    Alive,
}

/// A log of a database. RocksDB's `WalFile`, formerly `LogFile`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalFile {
    kind: WalFileKind,
    log_number: u64,
    start_sequence: u64,
    size_bytes: u64,
}

impl WalFile {
    /// The path of the log below the directory of the logs: `/000008.log` or `/archive/000005.log`.
    pub fn path_name(&self) -> String {
        let name = format!("{}.log", FileNumber(self.log_number));
        match self.kind {
            WalFileKind::Archived => format!("/{ARCHIVE}/{name}"),
            WalFileKind::Alive => format!("/{name}"),
        }
    }

    /// The number of the log.
    pub fn log_number(&self) -> u64 {
        self.log_number
    }

    /// Where the log is.
    pub fn kind(&self) -> WalFileKind {
        self.kind
    }

    /// The sequence number of the first batch; 0 if the log was not read, as by
    /// [`Db::get_current_wal_file`](crate::Db::get_current_wal_file).
    pub fn start_sequence(&self) -> u64 {
        self.start_sequence
    }

    /// The size of the file in bytes. The file of a log that is alive may have been prepared in advance; the size
    /// then includes its unused part.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

/// The logs of an open database, as files.
#[derive(Debug)]
pub(crate) struct Directory {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    archive: Archive,
    /// The logs that are being read, with the number of readers.
    pins: Mutex<BTreeMap<FileNumber, usize>>,
    /// The first sequence numbers of logs that were read. The number of a log never changes.
    first_sequences: Mutex<BTreeMap<FileNumber, u64>>,
}

/// The outcome for a log that is not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The log is in the archive.
    Archived,
    /// The log is gone.
    Gone,
}

/// A log that is open for reading and keeps its content while this lives.
pub(crate) struct Pinned {
    directory: Arc<Directory>,
    number: FileNumber,
    pub(crate) file: Arc<dyn File>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.directory.unpin(self.number);
    }
}

impl Directory {
    /// The logs in `dir`.
    pub(crate) fn new(dir: PathBuf, options: &Options) -> Arc<Self> {
        Arc::new(Self {
            fs: Arc::clone(&options.env.fs),
            archive: Archive::new(&dir, options),
            dir,
            pins: ranked(locks::LOG_PINS, BTreeMap::new()),
            first_sequences: ranked(locks::LOG_SEQUENCES, BTreeMap::new()),
        })
    }

    /// The directory of the logs.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of the log while it is alive.
    pub(crate) fn path(&self, number: FileNumber) -> PathBuf {
        files::wal_path(&self.dir, number)
    }

    /// Whether logs that are not needed any more are kept.
    pub(crate) fn archives(&self) -> bool {
        self.archive.is_on()
    }

    /// Archives a log that is not needed any more, or removes it: with `discard`, which may keep the file to be
    /// overwritten, or by deletion if the log is being read.
    pub(crate) fn obsolete(
        &self,
        number: FileNumber,
        discard: impl FnOnce() -> Result<()>,
    ) -> Result<Fate> {
        let path = self.path(number);
        if self.archive.is_on() && self.archive.put(number, &path)? {
            return Ok(Fate::Archived);
        }
        lock(&self.first_sequences).remove(&number);
        // Locked until the name of the file is gone: a reader pins a log before it opens it.
        let pins = lock(&self.pins);
        if pins.contains_key(&number) {
            self.fs.remove(&path)?;
        } else {
            discard()?;
        }
        drop(pins);
        Ok(Fate::Gone)
    }

    /// Deletes archived logs that are too old or too many, if the last check was long enough ago.
    pub(crate) fn purge(&self, log: &InfoLog) {
        for number in self.archive.purge(log) {
            lock(&self.first_sequences).remove(&number);
        }
    }

    /// The time between two checks of the archive, in seconds.
    pub(crate) fn purge_interval_seconds(&self) -> u64 {
        self.archive.interval_seconds()
    }

    /// Opens a log for reading, alive or archived. Errors: `NotFound` if it is gone.
    pub(crate) fn open_log(self: &Arc<Self>, number: FileNumber) -> Result<Pinned> {
        *lock(&self.pins).entry(number).or_default() += 1;
        // The pin is given back when the result is dropped, or if the log cannot be opened.
        let pin = |file| Pinned {
            directory: Arc::clone(self),
            number,
            file,
        };
        let alive = self.fs.open(&self.path(number), OpenHow::READ);
        let opened = match alive {
            // A log moves into the archive, never back.
            Err(e) if e.is_not_found() => self
                .fs
                .open(&files::wal_path(self.archive.dir(), number), OpenHow::READ),
            other => other,
        };
        opened.map(pin).inspect_err(|_| self.unpin(number))
    }

    fn unpin(&self, number: FileNumber) {
        let mut pins = lock(&self.pins);
        base::invariant!(
            pins.get(&number).is_some_and(|n| *n > 0),
            "a pin of log {number} is given back twice"
        );
        if let Some(n) = pins.get_mut(&number) {
            *n -= 1;
            if *n == 0 {
                pins.remove(&number);
            }
        }
    }

    /// The numbers of all logs, alive or archived, in order.
    pub(crate) fn numbers(&self) -> Result<BTreeMap<FileNumber, WalFileKind>> {
        // Live logs first: a log that moves in between is then seen twice rather than not at all.
        let mut all = BTreeMap::new();
        let archived = [
            (&*self.dir, WalFileKind::Alive),
            (self.archive.dir(), WalFileKind::Archived),
        ];
        for (dir, kind) in archived {
            let entries = match files::list(&*self.fs, dir) {
                Err(e) if e.is_not_found() && kind == WalFileKind::Archived => continue,
                other => other?,
            };
            let logs = entries.into_iter().filter(|e| e.kind == FileKind::Wal);
            all.extend(logs.map(|e| (e.number, kind)));
        }
        Ok(all)
    }

    /// Every log that contains a batch, in the order of their numbers.
    pub(crate) fn sorted(self: &Arc<Self>) -> Result<Vec<WalFile>> {
        let mut out = Vec::new();
        for (number, kind) in self.numbers()? {
            let pinned = match self.open_log(number) {
                Err(e) if e.is_not_found() => continue, // gone since
                other => other?,
            };
            if let Some(start_sequence) = self.first_sequence(&pinned)? {
                out.push(WalFile {
                    kind,
                    log_number: number.0,
                    start_sequence,
                    size_bytes: pinned.file.len()?,
                });
            }
        }
        Ok(out)
    }

    /// Describes a live log without reading it.
    pub(crate) fn describe(self: &Arc<Self>, number: FileNumber) -> Result<WalFile> {
        Ok(WalFile {
            kind: WalFileKind::Alive,
            log_number: number.0,
            start_sequence: 0,
            size_bytes: self.open_log(number)?.file.len()?,
        })
    }

    /// The sequence number of the log's first batch; `None` if it has no batch. A log that begins with damage
    /// counts as empty: a failed first write leaves half a record, and none of it was acknowledged. The next log
    /// shows whether something is missing.
    fn first_sequence(&self, log: &Pinned) -> Result<Option<u64>> {
        if let Some(&known) = lock(&self.first_sequences).get(&log.number) {
            return Ok(Some(known));
        }
        let mut reader = plain_reader(Arc::clone(&log.file), log.number);
        let mut record = Vec::new();
        if !reader.read(&mut record)? {
            return Ok(None);
        }
        let sequence = sequence_of(&record)
            .ok_or_else(|| Error::corruption("log record too small").file(log.file.path()))?;
        lock(&self.first_sequences).insert(log.number, sequence);
        Ok(Some(sequence))
    }
}

/// The sequence number of a batch.
fn sequence_of(record: &[u8]) -> Option<u64> {
    if record.len() < HEADER_LEN {
        return None;
    }
    base::coding::u64_at(record, 0)
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pool overwrites logs that are given to it. So a log is not given to the pool while it is being read.
    #[test]
    fn a_log_that_is_read_is_not_given_to_the_pool() {
        let dir = tempfile::tempdir().unwrap();
        let wal = Directory::new(dir.path().to_path_buf(), &Options::default());
        let number = FileNumber(4);
        let path = wal.path(number);
        let pool = dir.path().join("in the pool");
        let retire = || {
            std::fs::rename(&path, &pool).unwrap();
            Ok(())
        };
        std::fs::write(&path, "mine").unwrap();
        let (one, two) = (wal.open_log(number).unwrap(), wal.open_log(number).unwrap());
        drop(two);
        assert_eq!(wal.obsolete(number, retire).unwrap(), Fate::Gone);
        assert!(!path.exists() && !pool.exists());
        let mut bytes = [0; 4];
        assert_eq!(one.file.read_at(&mut bytes, 0).unwrap(), 4);
        assert_eq!(&bytes, b"mine");
        drop(one);
        assert!(wal.open_log(number).is_err_and(|e| e.is_not_found()));
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(wal.obsolete(number, retire).unwrap(), Fate::Gone);
        assert!(pool.exists(), "nobody reads it any more");
    }
}
