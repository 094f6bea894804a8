//! The files of the pool that are being filled: one at a time, by the thread that has the right to
//! it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::Result;
use base::clock;
use base::sync::atomic::Ordering;
use io::{File, NewNames, OpenHow, SyncKind};

use super::{PEEK, PIECE, Pool, PoolOptions, lock};

/// Bytes of the first file.
const STARTER: u64 = 256 << 10;
/// How many times larger each file is than the one before, up to the full size.
const GROWTH: u64 = 4;
/// Bytes of the reserve.
pub(super) const RESERVE: u64 = 4 << 20;
/// How long [`Pool::take`] waits for a piece that is being written, to take the file in progress.
const PIECE_WAIT: Duration = Duration::from_millis(5);

/// A file that is being filled.
#[derive(Debug)]
pub(super) struct Making {
    file: Arc<dyn File>,
    number: u64,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) filled: u64,
    pub(super) reserve: bool,
}

/// The file in progress, if nobody is working on it at the moment.
#[derive(Debug, Default)]
pub(super) struct Bench {
    pub(super) file: Option<Making>,
    /// A reserve that waits until a file is ready.
    aside: Option<Making>,
    /// A thread works on the files that are not ready.
    pub(super) busy: bool,
    /// The thread that is at work holds a file that is filled enough to become a log.
    has_enough: bool,
    /// Calls of [`Pool::hold`] without a matching [`Pool::release`] so far.
    pub(super) holds: usize,
}

/// The exclusive right to work on the files that are not ready, until it is dropped.
pub(super) struct AtWork<'a> {
    pool: &'a Pool,
    pub(super) file: Option<Making>,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut bench = lock(&self.pool.bench);
        bench.file = self.file.take();
        (bench.busy, bench.has_enough) = (false, false);
        self.pool.put_down.notify_all();
    }
}

impl Pool {
    /// The file to continue filling. A reserve waits while a log needs a file.
    pub(super) fn in_the_making<'a>(&self, bench: &'a Bench, enough: bool) -> Option<&'a Making> {
        let file = bench.file.as_ref().filter(|f| enough || !f.reserve);
        let wants_reserve = enough && file.is_none() && self.wants_reserve();
        file.or_else(|| bench.aside.as_ref().filter(|_| wants_reserve))
    }

    pub(super) fn wants_reserve(&self) -> bool {
        self.options.ready > 0 && lock(&self.reserve).is_none()
    }

    pub(super) fn next_bytes(&self) -> u64 {
        let last = self.last_bytes.load(Ordering::Relaxed);
        let next = if last == 0 { STARTER } else { last * GROWTH };
        next.min(self.options.file_bytes)
    }

    /// Renames the file in progress to `path`, cut to its filled part, if that is large enough for a log.
    /// Waits at most [`PIECE_WAIT`] for a piece that is being written.
    pub(super) fn take_part(&self, path: &Path) -> Result<bool> {
        let mut bench = lock(&self.bench);
        if bench.busy && bench.has_enough {
            bench = clock::wait_timeout(&*self.clock, &self.put_down, bench, PIECE_WAIT);
        }
        if bench.busy || bench.holds > 0 {
            return Ok(false);
        }
        let Some(part) = bench.file.take_if(|f| is_enough(f)) else {
            return Ok(false);
        };
        bench.busy = true;
        drop(bench);
        let _work = AtWork {
            pool: self,
            file: None,
        };
        let cut = || -> Result<()> {
            // An old log's records may lie behind the filled part.
            if part.file.len()? > part.filled {
                part.file.truncate(part.filled)?;
            }
            part.file.sync(SyncKind::All)
        };
        self.last_bytes.store(part.filled, Ordering::Relaxed);
        let fit = cut().and_then(|()| self.is_blank(&part.path, PEEK, &mut |_| true));
        let taken = match fit {
            Ok(Some(true)) => self.fs.rename(&part.path, path).map(|()| true),
            // Counts as no file; the next attempt to make one will meet the cause.
            _ => Ok(false),
        };
        if !matches!(taken, Ok(true)) {
            lock(&self.unfit).push(part.path);
        }
        taken
    }

    pub(super) fn pick_up(&self, enough: bool) -> Option<AtWork<'_>> {
        let mut bench = lock(&self.bench);
        if bench.busy || bench.holds > 0 {
            return None;
        }
        if let Some(reserve) = bench.file.take_if(|f| f.reserve && !enough) {
            // A log was begun meanwhile: the file for the next log goes first.
            bench.aside = Some(reserve);
        }
        let mut file = bench.file.take();
        if file.is_none() && enough && self.wants_reserve() {
            file = bench.aside.take();
        }
        bench.busy = true;
        bench.has_enough = file.as_ref().is_some_and(is_enough);
        Some(AtWork { pool: self, file })
    }

    /// Writes the next piece of a file, which is created first if there is none; makes it ready after
    /// the last piece.
    pub(super) fn fill(&self, slot: &mut Option<Making>, reserve: bool) -> Result<u64> {
        let making = match slot {
            Some(making) => making,
            None => slot.insert(self.begin(reserve)?),
        };
        let n = PIECE.min(making.bytes - making.filled);
        making.file.zero(making.filled, n)?;
        making.filled += n;
        if making.filled < making.bytes {
            return Ok(n);
        }
        making.file.sync(SyncKind::All)?;
        let kind = if making.reserve { "reserve" } else { "zero" };
        let path = self.dir.join(format!("{}.{kind}", making.number));
        self.fs.rename(&making.path, &path)?;
        let reserve = making.reserve;
        *slot = None;
        if let Err(e) = self.fs.sync_dir(&self.dir) {
            lock(&self.unfit).push(path);
            return Err(e);
        }
        self.starved.store(false, Ordering::Relaxed);
        if reserve {
            *lock(&self.reserve) = Some(path);
        } else {
            lock(&self.ready).push(path);
        }
        Ok(n)
    }

    fn begin(&self, reserve: bool) -> Result<Making> {
        let bytes = if reserve {
            small(&self.options)
        } else {
            self.next_bytes()
        };
        let whole = bytes == self.options.file_bytes && !reserve;
        self.fs.create_dir(&self.dir)?;
        let old = lock(&self.retired).pop_if(|_| whole);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("{number}.zeroing"));
        let file = match self.open_to_fill(&path, old) {
            Ok(file) => file,
            Err(e) => {
                self.give_up(path)?;
                return Err(e);
            }
        };
        if !reserve {
            self.last_bytes.store(bytes, Ordering::Relaxed);
        }
        Ok(Making {
            file,
            number,
            path,
            bytes,
            filled: 0,
            reserve,
        })
    }

    /// Opens a new file to fill, or an obsolete log to overwrite with zeros.
    fn open_to_fill(&self, path: &Path, old: Option<(PathBuf, NewNames)>) -> Result<Arc<dyn File>> {
        let mut how = OpenHow::CREATE_TRUNCATE;
        if let Some((old, name)) = old {
            // Its blocks are allocated already and are overwritten in place, but only once the log's
            // old name is durably gone: otherwise a recovery could read zeros under it.
            self.hand_out(old, path)?;
            self.fs.sync_dir(&self.dir)?;
            name.sync(&*self.fs, &self.log_dir)?;
            how = OpenHow::UPDATE;
        }
        if self.options.direct {
            how = how.direct();
        }
        self.fs.open(path, how)
    }
}

/// Bytes of the reserve.
pub(super) fn small(options: &PoolOptions) -> u64 {
    options.file_bytes.min(RESERVE)
}

/// Whether enough of a file is filled to use that part as a log.
pub(super) fn is_enough(making: &Making) -> bool {
    !making.reserve && making.filled >= STARTER.min(making.bytes)
}
