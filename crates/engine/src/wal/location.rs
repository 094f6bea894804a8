//! The directory of the logs of a database, and a check that the logs are in it.
//!
//! RocksDB looks for logs in `wal_dir` alone (measured, 7.8.3 and 11.8.1). If a database is opened
//! without its former `wal_dir`, or with another `wal_dir`, the open succeeds, and the data in the logs is
//! missing; a missing directory is created. Ironstone returns an error where it can detect this: if logs that
//! the MANIFEST needs are in the database's own directory, or in the directory that the newest OPTIONS file
//! names; or if the directory named there is gone, or lacks the log that Ironstone left in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ErrorKind, FileNumber, Result};
use io::{FileSystem, OpenHow};

use super::archive::{ARCHIVE, plain_reader};
use files::{self, FileKind};
use options::{DbOptions, Options, codec, latest};

/// The beginning of the OPTIONS files that Ironstone writes.
const OWN_OPTIONS: &str = "# Options of an Ironstone database";

/// Where a database that is being opened has its logs.
#[derive(Debug)]
pub(crate) struct Location {
    fs: Arc<dyn FileSystem>,
    db_dir: PathBuf,
    /// The directory of the logs. It equals `db_dir` if the logs are in the database's own directory.
    dir: PathBuf,
    /// The place of the logs according to the newest OPTIONS file.
    before: Option<Before>,
}

/// The place of the logs when the database was last opened.
#[derive(Debug)]
struct Before {
    dir: PathBuf,
    /// Whether Ironstone opened the database then: if so, a log is there, and its directory entry is durable.
    own: bool,
}

impl Location {
    /// The place of the logs for the database in `db_dir`, which must exist, according to `options`.
    pub(crate) fn of(db_dir: &Path, options: &Options) -> Result<Self> {
        let fs = Arc::clone(&options.env.fs);
        let dir = resolve(&*fs, db_dir, &options.db)?;
        let before = before(&*fs, db_dir)?;
        Ok(Self {
            fs,
            db_dir: db_dir.to_path_buf(),
            dir,
            before,
        })
    }

    /// The directory of the logs.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the logs are in a directory of their own.
    pub(crate) fn is_separate(&self) -> bool {
        self.dir != self.db_dir
    }

    /// Makes sure that the directory exists. `new`: the database does not exist yet. `read_only`: nothing
    /// is created.
    pub(crate) fn prepare(&self, new: bool, read_only: bool) -> Result<()> {
        if !self.is_separate() {
            return Ok(());
        }
        match self.fs.metadata(&self.dir) {
            Ok(m) if m.is_dir => {}
            Ok(_) => return Err(self.error(ErrorKind::IoError, "wal_dir is no directory")),
            Err(e) if !e.is_not_found() => return Err(self.named(e)),
            Err(_) if read_only || self.was_here() => {
                return Err(self
                    .error(
                        ErrorKind::IoError,
                        "wal_dir is gone; the database's logs were in it",
                    )
                    .hint(
                        "mount or restore it. What is only in the logs is lost without them: to \
                         go on with the rest, make an empty directory and open once without wal_dir",
                    ));
            }
            Err(_) => self.create()?,
        }
        let logs = || self.logs(&self.dir, FileNumber(0));
        if new && let Some(log) = logs().map_err(|e| self.named(e))?.first() {
            return Err(self
                .error(
                    ErrorKind::Corruption,
                    format!(
                        "wal_dir of a new database holds a log already: {}",
                        log.display()
                    ),
                )
                .hint("each database needs a wal_dir of its own"));
        }
        Ok(())
    }

    fn create(&self) -> Result<()> {
        let parent = match self.dir.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        if !self.fs.exists(parent).map_err(|e| self.named(e))? {
            return Err(self.error(
                ErrorKind::IoError,
                format!(
                    "wal_dir cannot be created: {} does not exist",
                    parent.display()
                ),
            ));
        }
        io::create_dirs(&*self.fs, &self.dir).map_err(|e| self.named(e))
    }

    /// Holds the directory open from now on. Returns the file system that holds it.
    pub(crate) fn hold(&mut self) -> Result<Arc<dyn FileSystem>> {
        if self.is_separate() {
            self.fs = io::hold(&self.fs, &self.dir).map_err(|e| self.named(e))?;
        }
        Ok(Arc::clone(&self.fs))
    }

    /// Errors: logs that are needed, from `oldest` on, are in another directory or missing.
    pub(crate) fn check(&self, oldest: FileNumber) -> Result<()> {
        if self.is_separate()
            && let Some(log) = self.logs(&self.db_dir, oldest)?.first()
        {
            return Err(self
                .error(
                    ErrorKind::Corruption,
                    format!(
                        "wal_dir is not where the database's logs are: {} is needed",
                        log.display()
                    ),
                )
                .hint("open without wal_dir, or move the logs into it"));
        }
        let Some(before) = &self.before else {
            return Ok(());
        };
        if self.was_here() {
            let none = self.is_separate()
                && before.own
                && !self.numbers(&self.dir)?.iter().any(|n| *n >= oldest);
            if none {
                return Err(self
                    .error(
                        ErrorKind::Corruption,
                        format!("wal_dir holds no log, but {oldest}.log or a later one was in it"),
                    )
                    .hint(
                        "mount or restore it. What is only in the logs is lost without them: to \
                         go on with the rest, open once without wal_dir",
                    ));
            }
            return Ok(());
        }
        if before.dir == self.db_dir || !self.logs(&self.dir, oldest)?.is_empty() {
            return Ok(());
        }
        match self.logs(&before.dir, oldest)?.first() {
            None => Ok(()),
            Some(log) => Err(self
                .error(
                    ErrorKind::Corruption,
                    format!(
                        "the database's logs are elsewhere: {} is needed",
                        log.display()
                    ),
                )
                .hint(format!(
                    "open with wal_dir = {}. If this is a copy of a database without its logs, \
                     delete the line wal_dir from its newest OPTIONS file",
                    before.dir.display()
                ))),
        }
    }

    /// The numbers of the logs here and in the archive. Files that are created later get larger numbers.
    pub(crate) fn used_numbers(&self) -> Result<Vec<FileNumber>> {
        let mut all = self.numbers(&self.dir)?;
        all.extend(self.numbers(&self.dir.join(ARCHIVE))?);
        Ok(all)
    }

    /// Whether the logs were in the same place when the database was last opened.
    fn was_here(&self) -> bool {
        self.before.as_ref().is_some_and(|b| b.dir == self.dir)
    }

    fn numbers(&self, dir: &Path) -> Result<Vec<FileNumber>> {
        let entries = match files::list(&*self.fs, dir) {
            Err(e) if e.is_not_found() => return Ok(Vec::new()),
            other => other?,
        };
        let logs = entries.into_iter().filter(|e| e.kind == FileKind::Wal);
        Ok(logs.map(|e| e.number).collect())
    }

    /// The logs in `dir` from `oldest` on that have a record.
    fn logs(&self, dir: &Path, oldest: FileNumber) -> Result<Vec<PathBuf>> {
        let mut out = Vec::new();
        for number in self.numbers(dir)?.into_iter().filter(|n| *n >= oldest) {
            let path = files::wal_path(dir, number);
            let mut reader = plain_reader(self.fs.open(&path, OpenHow::READ)?, number);
            if reader.read(&mut Vec::new())? {
                out.push(path);
            }
        }
        Ok(out)
    }

    fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, message).file(&self.dir)
    }

    /// An error of the file system, with the option's name.
    fn named(&self, e: Error) -> Error {
        e.or_file(&self.dir)
            .hint(format!("wal_dir is {}", self.dir.display()))
    }
}

/// The directory that the option names; `db_dir` itself if the option names the database's directory in any way.
pub(crate) fn resolve(fs: &dyn FileSystem, db_dir: &Path, options: &DbOptions) -> Result<PathBuf> {
    if options.wal_dir.is_empty() {
        return Ok(db_dir.to_path_buf());
    }
    // Without doubled or trailing slashes.
    let dir: PathBuf = Path::new(&options.wal_dir).components().collect();
    if fs.same_file(db_dir, &dir).map_err(|e| {
        e.or_file(&dir)
            .hint(format!("wal_dir is {}", dir.display()))
    })? {
        return Ok(db_dir.to_path_buf());
    }
    Ok(dir)
}

/// The place of the logs according to the newest OPTIONS file; `None` if there is no readable OPTIONS file.
fn before(fs: &dyn FileSystem, db_dir: &Path) -> Result<Option<Before>> {
    let Some(newest) = latest::path(fs, db_dir)? else {
        return Ok(None);
    };
    // Nothing else needs this file to open the database: it may be unreadable.
    let Ok(text) = latest::text(fs, &newest) else {
        return Ok(None);
    };
    let own = text.starts_with(OWN_OPTIONS);
    // The file may have options that Ironstone refuses; only one line counts here.
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("wal_dir="))
        .map(codec::unescape)
        .unwrap_or_default();
    let options = DbOptions {
        wal_dir: value,
        ..DbOptions::default()
    };
    let dir = resolve(fs, db_dir, &options)?;
    Ok(Some(Before { dir, own }))
}
