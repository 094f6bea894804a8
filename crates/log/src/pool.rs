//! Log files made ahead: zero-filled, so that overwriting them changes no metadata.
//!
//! A durable write that grows a file also costs a journal commit; a durable write into blocks that
//! are allocated and written already costs only itself. So a background job fills the files that
//! will become logs with zeros before they are needed, and they are renamed into place.
//!
//! ```text
//!   dir/N.zeroing    being filled                     deleted at the next open
//!   dir/N.zero       filled durably                   ready to be taken
//!   dir/N.reserve    the same, small: taken only when the file system is full
//!   dir/N.retired    an obsolete log, to be filled with zeros again
//!   dir/N.recycled   an obsolete log, to be overwritten as it is: its records carry its number
//! ```
//!
//! Writing zeros competes with log writes for the device. So zeros are written in small pieces, one
//! for each call of [`Pool::step`], when the caller allows it. The first files are small, each four
//! times as large as the one before: a new database has its first file almost at once, and fills the
//! next ones no faster than the log grows. If a log is needed and no file is ready, the filled part of
//! the file in progress is used.
//!
//! RocksDB ignores the directory. A file gets its `.zero` name only after its content is durable, so
//! a crash leaves usable files under such names. But another program may have written to them since,
//! and bytes other than zero behind the end of a log would be read as a part of it. So a file that an
//! earlier process left is read to its end, in the background, before it counts as ready; that costs
//! a read, which is cheaper than filling it again. Directories are left alone, and symbolic links are
//! not followed.

mod filling;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Condvar, Mutex, PoisonError, ranked};
use base::{Error, ErrorKind, Result};
use io::{FileSystem, NewNames, OpenHow};

use crate::locks;
use filling::{Bench, is_enough, small};

/// Name of the directory beside the logs.
pub const DIR: &str = "log-pool";
/// What stands behind the number in the names of the pool's files.
const KINDS: [&str; 5] = ["zero", "zeroing", "retired", "recycled", "reserve"];

/// Number and kind of a file of the pool, by its name.
fn parse(name: &str) -> Option<(u64, &'static str)> {
    let (number, kind) = name.split_once('.')?;
    let kind = KINDS.into_iter().find(|k| *k == kind)?;
    Some((number.parse().ok()?, kind))
}

/// Removes all files of the pool in `dir`, for a database that is deleted. Does nothing if the directory does not exist.
///
/// # Errors
/// The directory cannot be listed, or a file cannot be removed.
pub fn remove_all(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    let names = match fs.list(dir) {
        Err(e) if e.is_not_found() => return Ok(()),
        names => names?,
    };
    for name in names {
        if parse(&name.to_string_lossy()).is_some() {
            fs.remove(&dir.join(&name))?;
        }
    }
    Ok(())
}

/// Bytes of zeros written per write, and bytes of a file read per read.
pub const PIECE: u64 = 64 << 10;
/// Bytes of a ready file that are checked before it is used.
const PEEK: u64 = 4096;
/// How long to wait before removing a file is tried again.
const UNFIT_AGAIN: Duration = Duration::from_millis(500);

/// Settings of a [`Pool`].
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Bytes of each file: a multiple of the write unit.
    pub file_bytes: u64,
    /// How many files are kept ready.
    pub ready: usize,
    /// Whether files are filled with direct I/O; otherwise through the page cache.
    pub direct: bool,
    /// How many obsolete logs are kept to be overwritten without filling them with zeros.
    pub recycle: usize,
}

/// The kind of file that [`Pool::take`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A file full of zeros.
    Zeroed,
    /// An old log: the records written over it must carry the new log's number.
    Recycled,
}

/// What [`Pool::step`] would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Check a file that an earlier process left, or remove a surplus file.
    Tidy,
    /// Write the next piece of a file.
    Fill {
        /// Size of the finished file in bytes.
        bytes: u64,
        /// Bytes filled so far.
        filled: u64,
        /// No file is ready: the next log needs this one.
        urgent: bool,
    },
}

/// The files made ahead for one log directory.
#[derive(Debug)]
pub struct Pool {
    fs: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    log_dir: PathBuf,
    dir: PathBuf,
    options: PoolOptions,
    next: AtomicU64,
    /// Bytes of the last file that was begun; 0 before the first.
    last_bytes: AtomicU64,
    ready: Mutex<Vec<PathBuf>>,
    /// Each with a check of whether its old name is gone.
    retired: Mutex<Vec<(PathBuf, NewNames)>>,
    /// Files that an earlier process left and that were not checked yet.
    left: Mutex<Vec<PathBuf>>,
    recycled: Mutex<Vec<PathBuf>>,
    reserve: Mutex<Option<PathBuf>>,
    /// Files that cannot become logs and are still to be removed.
    unfit: Mutex<Vec<PathBuf>>,
    /// Monotonic time in nanoseconds from which removing them is tried again.
    unfit_due: AtomicU64,
    bench: Mutex<Bench>,
    /// Signalled when the thread at work is done.
    put_down: Condvar,
    /// The file system had no room for the last file.
    starved: AtomicBool,
}

impl Pool {
    /// The pool beside the logs in `log_dir`. Notes files of the right size that an earlier process
    /// left, for [`Pool::step`] to check, and removes the others.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        log_dir: &Path,
        options: PoolOptions,
    ) -> Result<Self> {
        let dir = log_dir.join(DIR);
        let (mut left, mut reserve, mut next) = (Vec::new(), None, 1);
        let names = if fs.exists(&dir)? {
            fs.list(&dir)?
        } else {
            Vec::new()
        };
        for name in names {
            let path = dir.join(&name);
            let name = name.to_string_lossy();
            let Some((number, kind)) = parse(&name) else {
                continue;
            };
            next = next.max(number + 1);
            // A dangling symbolic link counts as a file of length 0, and is removed.
            let facts = match fs.metadata(&path) {
                Err(e) if !e.is_not_found() => return Err(e),
                facts => facts.ok(),
            };
            if facts.is_some_and(|m| m.is_dir) {
                continue;
            }
            let long = facts.map_or(0, |m| m.len);
            match kind {
                "zero" if left.len() < options.ready && long == options.file_bytes => {
                    left.push(path);
                }
                "reserve" if options.ready > 0 && reserve.is_none() && long == small(&options) => {
                    reserve = Some(path);
                }
                _ => fs.remove(&path)?,
            }
        }
        let last_bytes = if left.is_empty() {
            0
        } else {
            options.file_bytes
        };
        Ok(Self {
            fs,
            clock,
            log_dir: log_dir.to_path_buf(),
            dir,
            options,
            next: AtomicU64::new(next),
            last_bytes: AtomicU64::new(last_bytes),
            ready: ranked(locks::POOL_READY, Vec::new()),
            left: ranked(locks::POOL_FILES, left),
            retired: ranked(locks::POOL_RETIRED, Vec::new()),
            recycled: ranked(locks::POOL_RECYCLED, Vec::new()),
            reserve: ranked(locks::POOL_FILES, reserve),
            unfit: ranked(locks::POOL_FILES, Vec::new()),
            unfit_due: AtomicU64::new(0),
            bench: ranked(locks::POOL_BENCH, Bench::default()),
            put_down: Condvar::new(),
            starved: AtomicBool::new(false),
        })
    }

    /// How many files are ready.
    pub fn ready(&self) -> usize {
        lock(&self.ready).len() + lock(&self.recycled).len()
    }

    /// Whether [`Pool::take`] has a file, or a sufficiently filled part of one.
    pub fn has_some(&self) -> bool {
        let part = || {
            let bench = lock(&self.bench);
            bench.holds == 0 && bench.file.as_ref().is_some_and(is_enough)
        };
        self.ready() > 0 || part()
    }

    /// Until the matching [`Pool::release`], no file that is not ready is removed or renamed, so that
    /// a caller that copies the directory finds the files it has listed. No file is filled meanwhile.
    /// Waits for a step in progress.
    pub fn hold(&self) {
        let mut bench = lock(&self.bench);
        bench.holds += 1;
        while bench.busy {
            bench = self
                .put_down
                .wait(bench)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends one [`Pool::hold`]; after the last one [`Pool::next`] may have work again.
    pub fn release(&self) {
        let mut bench = lock(&self.bench);
        bench.holds = bench.holds.saturating_sub(1);
    }

    fn is_held(&self) -> bool {
        lock(&self.bench).holds > 0
    }

    /// What there is to do.
    pub fn next(&self) -> Option<Next> {
        if self.is_held() {
            return None;
        }
        let ready = self.ready();
        let enough = ready >= self.options.ready;
        let old = enough && !lock(&self.retired).is_empty();
        if old || !lock(&self.left).is_empty() || self.removes_unfit() {
            return Some(Next::Tidy);
        }
        let bench = lock(&self.bench);
        if let Some(making) = self.in_the_making(&bench, enough) {
            return Some(Next::Fill {
                bytes: making.bytes,
                filled: making.filled,
                urgent: ready == 0 && !making.reserve,
            });
        }
        drop(bench);
        if enough && !self.wants_reserve() {
            return None;
        }
        let bytes = if enough {
            small(&self.options)
        } else {
            self.next_bytes()
        };
        Some(Next::Fill {
            bytes,
            filled: 0,
            urgent: !enough && ready == 0,
        })
    }

    /// Whether the file system had no room for the last file.
    pub fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    /// Renames a ready file to `path`, or the filled part of the file in progress; `None` if there is
    /// neither. The new name is not durable before the caller has synced the directory.
    pub fn take(&self, path: &Path) -> Result<Option<Taken>> {
        let recycled = lock(&self.recycled).pop();
        if let Some(old) = recycled {
            self.hand_out(old, path)?;
            return Ok(Some(Taken::Recycled));
        }
        loop {
            let spare = lock(&self.ready).pop();
            // How much to check: the first bytes of a file that this process has checked or filled, all of
            // any other.
            let (spare, bytes) = if spare.is_some() {
                (spare, PEEK)
            } else if self.take_part(path)? {
                return Ok(Some(Taken::Zeroed));
            } else {
                let reserve = &mut *lock(&self.reserve);
                (reserve.take_if(|_| self.is_starved()), u64::MAX)
            };
            let Some(spare) = spare else {
                return Ok(None);
            };
            let blank = self.is_blank(&spare, bytes, &mut |_| true);
            if matches!(blank, Ok(Some(true))) {
                self.hand_out(spare, path)?;
                return Ok(Some(Taken::Zeroed));
            }
            lock(&self.unfit).push(spare);
            blank?;
        }
    }

    /// Renames a file to `path`. If that fails, the file is removed later.
    fn hand_out(&self, file: PathBuf, path: &Path) -> Result<()> {
        let done = self.fs.rename(&file, path);
        if done.is_err() {
            lock(&self.unfit).push(file);
        }
        done
    }

    /// Gives an obsolete log to the pool, which removes, recycles or refills it. `recyclable`: this
    /// process wrote the log, in records that carry its number.
    pub fn retire(&self, log: &Path, recyclable: bool) -> Result<()> {
        let name = |kind| {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            self.dir.join(format!("{n}.{kind}"))
        };
        let fits = !self.options.direct || self.fs.metadata(log)?.len == self.options.file_bytes;
        if recyclable && fits && lock(&self.recycled).len() < self.options.recycle {
            self.fs.create_dir(&self.dir)?;
            let to = name("recycled");
            let old = NewNames::begin(&*self.fs, &self.log_dir);
            self.fs.rename(log, &to)?;
            // The log's old name must be gone for good before anything is written to the file.
            let gone = self.fs.sync_dir(&self.dir);
            let gone = gone.and_then(|()| old.sync(&*self.fs, &self.log_dir));
            // The log is obsolete either way: its file is recycled, or removed later.
            let place = if gone.is_ok() {
                &self.recycled
            } else {
                &self.unfit
            };
            lock(place).push(to);
            return gone;
        }
        let enough = self.ready() + lock(&self.retired).len() >= self.options.ready;
        if enough || !fits {
            return self.fs.remove(log);
        }
        let to = name("retired");
        let old = NewNames::begin(&*self.fs, &self.log_dir);
        self.fs.rename(log, &to)?;
        lock(&self.retired).push((to, old));
        Ok(())
    }

    /// Does what [`Pool::next`] says; returns how many bytes of zeros it wrote. `go` is called with the
    /// number of bytes before each access to the device: it may wait, and ends the step by returning
    /// false.
    pub fn step(&self, go: &mut dyn FnMut(u64) -> bool) -> Result<u64> {
        // `go` may wait: no file is held meanwhile, so that a log may take the one in progress.
        match self.next() {
            None => return Ok(0),
            Some(Next::Fill { bytes, filled, .. }) if !go(PIECE.min(bytes - filled)) => {
                return Ok(0);
            }
            Some(_) => {}
        }
        let enough = self.ready() >= self.options.ready;
        let Some(mut work) = self.pick_up(enough) else {
            return Ok(0);
        };
        if self.tidy(enough, go)? || work.file.is_none() && enough && !self.wants_reserve() {
            return Ok(0);
        }
        let done = self.fill(&mut work.file, enough);
        if let Err(e) = &done {
            if e.kind() == ErrorKind::NoSpace {
                self.starved.store(true, Ordering::Relaxed);
            }
            if let Some(making) = work.file.take() {
                self.give_up(making.path)?;
            }
        }
        done
    }

    /// Checks a file that an earlier process left, or removes a surplus file. False if there is nothing
    /// of that to do.
    fn tidy(&self, enough: bool, go: &mut dyn FnMut(u64) -> bool) -> Result<bool> {
        let unfit = lock(&self.unfit).pop_if(|_| self.is_time_for_unfit());
        if let Some(path) = unfit {
            return self.give_up(path).map(|()| true);
        }
        let left = lock(&self.left).pop();
        if let Some(path) = left {
            let wanted = self.ready() < self.options.ready;
            let mut go = |bytes| go(bytes) && !self.is_held();
            match self.is_blank(&path, u64::MAX, &mut go) {
                Ok(Some(true)) if wanted => lock(&self.ready).push(path),
                Ok(None) => lock(&self.left).push(path),
                Ok(Some(_)) => self.give_up(path)?,
                Err(e) => {
                    lock(&self.unfit).push(path);
                    return Err(e);
                }
            }
            return Ok(true);
        }
        let old = lock(&self.retired).pop_if(|_| enough);
        old.map_or(Ok(false), |(path, _)| self.give_up(path).map(|()| true))
    }

    /// Whether there are unusable files that are still to be removed.
    pub fn has_unfit(&self) -> bool {
        !lock(&self.unfit).is_empty()
    }

    fn removes_unfit(&self) -> bool {
        self.is_time_for_unfit() && self.has_unfit()
    }

    fn is_time_for_unfit(&self) -> bool {
        self.clock.monotonic_nanos() >= self.unfit_due.load(Ordering::Relaxed)
    }

    /// Removes a file of the pool that is not ready. If that fails, it is tried again after
    /// [`UNFIT_AGAIN`]; filling goes on meanwhile.
    fn give_up(&self, path: PathBuf) -> Result<()> {
        match self.fs.remove(&path) {
            Err(e) if !e.is_not_found() => {
                let due = self.clock.monotonic_nanos() + UNFIT_AGAIN.as_nanos() as u64;
                self.unfit_due.store(due, Ordering::Relaxed);
                lock(&self.unfit).insert(0, path); // the others first
                Err(e)
            }
            _ => Ok(()),
        }
    }

    /// Whether the first `bytes` of a file are zeros, or the whole file if it is shorter. False if it
    /// cannot be opened as a plain file, `None` if `go` ends the check.
    fn is_blank(
        &self,
        path: &Path,
        bytes: u64,
        go: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<bool>> {
        // Opened as a log is: not through a symbolic link.
        let Ok(file) = self.fs.open(path, OpenHow::UPDATE) else {
            return Ok(Some(false));
        };
        let mut buf = vec![0; PIECE.min(bytes) as usize];
        let mut at = 0;
        while at < bytes {
            if !go(buf.len() as u64) {
                return Ok(None);
            }
            let n = file.read_at(&mut buf, at)?;
            let Some(read) = buf.get(..n) else {
                return Err(Error::broken("more was read than there is room for").file(path));
            };
            if read.iter().any(|&b| b != 0) {
                return Ok(Some(false));
            }
            at += n as u64;
            if n < buf.len() {
                break;
            }
        }
        if bytes == u64::MAX {
            // These pages will not be read again: drop them from the page cache.
            file.advise(io::Advice::DontNeed);
        }
        Ok(Some(true))
    }
}

fn lock<T>(m: &Mutex<T>) -> base::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The size of pool files for a write buffer of `write_buffer_bytes`: a quarter more, rounded up to a
/// multiple of 64 KiB, but bounded by `max_total_wal_bytes` if that is not 0. The log of a write
/// buffer full of small synced writes is larger than the buffer, by a sixth for writes of 100 bytes.
/// If it did not fit, every memtable would need a second file for the small rest.
pub fn file_bytes_for(write_buffer_bytes: u64, max_total_wal_bytes: u64) -> Result<u64> {
    let wanted = write_buffer_bytes
        .checked_add(write_buffer_bytes / 4)
        .ok_or_else(|| Error::invalid_argument("write_buffer_size is too large for a log file"))?;
    let bounded = if max_total_wal_bytes > 0 {
        wanted.min(max_total_wal_bytes)
    } else {
        wanted
    };
    Ok(bounded.next_multiple_of(64 << 10).max(64 << 10))
}

#[cfg(test)]
mod tests;
