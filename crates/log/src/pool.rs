//! Log files made ahead: zero-filled, so that overwriting them changes no metadata.
//!
//! A durable write into a file that grows costs the device a journal commit besides; into blocks
//! that are allocated and written already it costs the write alone. So the files that become logs
//! are filled with zeros before they are needed, by a background job, and renamed into place.
//!
//! ```text
//!   dir/N.zeroing    being filled                     deleted at the next open
//!   dir/N.zero       filled, and that is durable      ready to be taken
//!   dir/N.reserve    the same, small: taken only when the file system is full
//!   dir/N.retired    a log that is not needed any more, to be filled again
//!   dir/N.recycled   the same, to be overwritten as it is: its records carry their log's number
//! ```
//!
//! The directory is one that RocksDB leaves alone. A `.zero` name is given only after the content
//! is durable, so what a crash leaves under it can be used. But what lies there may have been written
//! by anybody since: bytes that are not zero behind the end of a log would be read as a part of it. So
//! a file that an earlier process left is read to its end, in the background, before it counts as
//! ready; that costs a read of the file, where filling it again would cost a write. What is not a
//! plain file is left alone, and no symbolic link is followed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, PoisonError};
use base::{Error, ErrorKind, Result};
use io::{FileSystem, NewNames, OpenHow, SyncKind};

/// Name of the directory beside the logs.
pub const DIR: &str = "log-pool";
/// Bytes filled between two looks at the pace.
const STEP: u64 = 1 << 20;
/// Bytes of the first file.
const STARTER: u64 = 4 << 20;
/// Bytes of a ready file that are looked at before it is used.
const PEEK: u64 = 4096;

/// Settings of a [`Pool`].
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Bytes of each file: a multiple of the write unit.
    pub file_bytes: u64,
    /// How many files are kept ready.
    pub ready: usize,
    /// Fill through the page cache (`false`) or past it.
    pub direct: bool,
    /// How many old logs are kept to be overwritten as they are.
    pub recycle: usize,
}

/// What [`Pool::take`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A file full of zeros.
    Zeroed,
    /// An old log: what is written over it must carry its log's number.
    Recycled,
}

/// The files made ahead for one log directory.
#[derive(Debug)]
pub struct Pool {
    fs: Arc<dyn FileSystem>,
    log_dir: PathBuf,
    dir: PathBuf,
    options: PoolOptions,
    next: AtomicU64,
    /// The small first file was made.
    started: AtomicBool,
    ready: Mutex<Vec<PathBuf>>,
    /// With what tells whether their old names are gone.
    retired: Mutex<Vec<(PathBuf, NewNames)>>,
    /// Files that an earlier process left, not looked at yet.
    left: Mutex<Vec<PathBuf>>,
    recycled: Mutex<Vec<PathBuf>>,
    reserve: Mutex<Option<PathBuf>>,
    /// The file system had no room for the last file.
    starved: AtomicBool,
}

impl Pool {
    /// The pool beside the logs in `log_dir`. Notes files of the right size that an earlier process
    /// left, for [`Pool::fill_one`] to look at, and removes what it did not finish.
    pub fn open(fs: Arc<dyn FileSystem>, log_dir: &Path, options: PoolOptions) -> Result<Self> {
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
            let Some((number, kind)) = name.split_once('.') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            next = next.max(number + 1);
            // A link that leads nowhere is one to be removed.
            let facts = match fs.metadata(&path) {
                Err(e) if !e.is_not_found() => return Err(e),
                facts => facts.ok(),
            };
            if facts.is_some_and(|m| m.is_dir) {
                continue;
            }
            let long = facts.map_or(0, |m| m.len);
            let small = options.file_bytes.min(STARTER);
            match kind {
                "zero" if left.len() < options.ready && long == options.file_bytes => {
                    left.push(path);
                }
                "reserve" if options.ready > 0 && reserve.is_none() && long == small => {
                    reserve = Some(path);
                }
                "zero" | "zeroing" | "retired" | "recycled" | "reserve" => fs.remove(&path)?,
                _ => {}
            }
        }
        Ok(Self {
            fs,
            log_dir: log_dir.to_path_buf(),
            dir,
            options,
            next: AtomicU64::new(next),
            started: AtomicBool::new(!left.is_empty()),
            ready: Mutex::default(),
            left: Mutex::new(left),
            retired: Mutex::default(),
            recycled: Mutex::default(),
            reserve: Mutex::new(reserve),
            starved: AtomicBool::new(false),
        })
    }

    /// Bytes of each file.
    pub fn file_bytes(&self) -> u64 {
        self.options.file_bytes
    }

    /// How many files are ready.
    pub fn ready(&self) -> usize {
        lock(&self.ready).len() + lock(&self.recycled).len()
    }

    /// Whether [`Pool::fill_one`] has something to do.
    pub fn wants_more(&self) -> bool {
        self.ready() < self.options.ready
            || !lock(&self.retired).is_empty()
            || !lock(&self.left).is_empty()
            || self.wants_reserve()
    }

    fn wants_reserve(&self) -> bool {
        self.options.ready > 0 && lock(&self.reserve).is_none()
    }

    /// Whether the file system had no room for the last file.
    pub fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    /// Renames a ready file to `path`; `None` if none is ready. The new name is not durable before
    /// the caller has synced the directory.
    pub fn take(&self, path: &Path) -> Result<Option<Taken>> {
        let recycled = lock(&self.recycled).pop();
        if let Some(old) = recycled {
            self.fs.rename(&old, path)?;
            return Ok(Some(Taken::Recycled));
        }
        loop {
            let spare = lock(&self.ready).pop();
            // The first bytes of a file that this process has read or filled, all of another.
            let (spare, bytes) = if spare.is_some() {
                (spare, PEEK)
            } else {
                let reserve = &mut *lock(&self.reserve);
                (reserve.take_if(|_| self.is_starved()), u64::MAX)
            };
            let Some(spare) = spare else {
                return Ok(None);
            };
            if !self.is_blank(&spare, bytes, &mut |_| true)? {
                self.fs.remove(&spare)?;
                continue;
            }
            self.fs.rename(&spare, path)?;
            return Ok(Some(Taken::Zeroed));
        }
    }

    /// Gives back a log that is not needed any more. Its content is gone after this, unless it is
    /// `recyclable`: this process wrote it, in records that carry its number.
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
            self.fs.sync_dir(&self.dir)?;
            old.sync(&*self.fs, &self.log_dir)?;
            lock(&self.recycled).push(to);
            return Ok(());
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

    /// Makes one more file ready, unless there are enough, and then the reserve. `pace` is called
    /// after each step with the bytes just written: it may sleep, and ends the work by returning
    /// false. The first file is one step, and ready before the sleep: until it is there each synced
    /// group pays for a log that grows, which takes more of the device than the file does.
    pub fn fill_one(&self, pace: &mut dyn FnMut(u64) -> bool) -> Result<bool> {
        let left = lock(&self.left).pop();
        if let Some(path) = left {
            if self.ready() < self.options.ready && self.is_blank(&path, u64::MAX, pace)? {
                lock(&self.ready).push(path);
            } else {
                self.fs.remove(&path)?;
            }
            return Ok(true);
        }
        let old = lock(&self.retired).pop();
        let reserve = self.ready() >= self.options.ready;
        if reserve {
            if let Some((path, _)) = old {
                return self.fs.remove(&path).map(|()| true);
            }
            if !self.wants_reserve() {
                return Ok(false);
            }
        }
        // The first file is small, so that there is one at once; and so is the reserve.
        let small = self.options.file_bytes.min(STARTER);
        let (bytes, step) = if reserve {
            (small, STEP)
        } else if self.started.swap(true, Ordering::Relaxed) {
            (self.options.file_bytes, STEP)
        } else {
            (small, small)
        };
        self.fs.create_dir(&self.dir)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let temp = self.dir.join(format!("{number}.zeroing"));
        let done = self.fill(&temp, old, (bytes, step), pace);
        let full = matches!(&done, Err(e) if e.kind() == ErrorKind::NoSpace);
        self.starved.store(full, Ordering::Relaxed);
        if !matches!(done, Ok(true)) {
            // Nobody misses it: the file is the pool's own and not ready.
            self.fs
                .remove(&temp)
                .or_else(|e| if e.is_not_found() { Ok(()) } else { Err(e) })?;
            return done;
        }
        let kind = if reserve { "reserve" } else { "zero" };
        let path = self.dir.join(format!("{number}.{kind}"));
        self.fs.rename(&temp, &path)?;
        self.fs.sync_dir(&self.dir)?;
        if reserve {
            *lock(&self.reserve) = Some(path);
        } else {
            lock(&self.ready).push(path);
        }
        // The pause after the last step keeps nobody waiting for the file.
        pace((bytes - 1) % step + 1);
        Ok(true)
    }

    /// Fills a file by steps, with a call of `pace` between two.
    fn fill(
        &self,
        temp: &Path,
        old: Option<(PathBuf, NewNames)>,
        (bytes, step): (u64, u64),
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool> {
        let mut how = OpenHow::CREATE_TRUNCATE;
        if let Some((old, name)) = old {
            // Its blocks are allocated already: they are overwritten in place. Not before the log's
            // old name is gone for good: a recovery would read zeros there.
            self.fs.rename(&old, temp)?;
            self.fs.sync_dir(&self.dir)?;
            name.sync(&*self.fs, &self.log_dir)?;
            how = OpenHow::UPDATE;
        }
        let how = if self.options.direct {
            how.direct()
        } else {
            how
        };
        let file = self.fs.open(temp, how)?;
        let mut at = 0;
        while at < bytes {
            let n = step.min(bytes - at);
            file.zero(at, n)?;
            at += n;
            if at < bytes && !pace(n) {
                return Ok(false);
            }
        }
        file.sync(SyncKind::All)?;
        Ok(true)
    }

    /// Whether the first `bytes` of a file, or all of it, are zeros. False for what is no plain file,
    /// or if `pace` ends the work.
    fn is_blank(&self, path: &Path, bytes: u64, pace: &mut dyn FnMut(u64) -> bool) -> Result<bool> {
        // Opened as a log is: not through a symbolic link.
        let Ok(file) = self.fs.open(path, OpenHow::UPDATE) else {
            return Ok(false);
        };
        let mut buf = vec![0; STEP.min(bytes) as usize];
        let mut at = 0;
        while at < bytes {
            let n = file.read_at(&mut buf, at)?;
            let Some(read) = buf.get(..n) else {
                return Err(Error::broken("more was read than there is room for").file(path));
            };
            if read.iter().any(|&b| b != 0) {
                return Ok(false);
            }
            at += n as u64;
            if n < buf.len() {
                break;
            }
            // A read is not counted as filling.
            if !pace(0) {
                return Ok(false);
            }
        }
        if bytes == u64::MAX {
            // Nobody will read these pages: the log is written past them.
            file.advise(io::Advice::DontNeed);
        }
        Ok(true)
    }
}

fn lock<T>(m: &Mutex<T>) -> base::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The size of pool files for a write buffer of `write_buffer_bytes`: a tenth more, in whole units
/// of 64 KiB, so that a full write buffer's log fits.
pub fn file_bytes_for(write_buffer_bytes: u64, max_total_wal_bytes: u64) -> Result<u64> {
    let wanted = write_buffer_bytes
        .checked_add(write_buffer_bytes / 10)
        .ok_or_else(|| Error::invalid_argument("write_buffer_size is too large for a log file"))?;
    let bounded = if max_total_wal_bytes > 0 {
        wanted.min(max_total_wal_bytes)
    } else {
        wanted
    };
    Ok(bounded.next_multiple_of(64 << 10).max(64 << 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::posix::Posix;

    const OPTIONS: PoolOptions = PoolOptions {
        file_bytes: 128 << 10,
        ready: 1,
        direct: false,
        recycle: 0,
    };

    #[test]
    fn files_are_filled_taken_retired_and_filled_again() {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::open(Posix::shared(), dir.path(), OPTIONS).unwrap();
        let log = dir.path().join("000004.log");
        assert_eq!(pool.take(&log).unwrap(), None);
        assert!(pool.fill_one(&mut |_| true).unwrap());
        assert!(pool.fill_one(&mut |_| true).unwrap(), "the reserve");
        assert!(!pool.fill_one(&mut |_| true).unwrap(), "that is enough");
        assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
        assert_eq!(std::fs::read(&log).unwrap(), vec![0; 128 << 10]);
        std::fs::write(&log, vec![1; 128 << 10]).unwrap();
        pool.retire(&log, false).unwrap();
        assert!(!log.exists() && pool.wants_more());
        assert!(pool.fill_one(&mut |_| true).unwrap());
        assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
        assert_eq!(std::fs::read(&log).unwrap(), vec![0; 128 << 10]);
    }

    #[test]
    fn what_an_earlier_process_left_is_used_only_if_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join(DIR);
        std::fs::create_dir(&sub).unwrap();
        std::fs::write(sub.join("1.zeroing"), vec![0; 100]).unwrap();
        std::fs::write(sub.join("2.zero"), vec![0; 100]).unwrap();
        std::fs::write(sub.join("note.txt"), b"mine").unwrap();
        let pool = Pool::open(Posix::shared(), dir.path(), OPTIONS).unwrap();
        assert_eq!(pool.ready(), 0);
        assert!(!sub.join("1.zeroing").exists() && sub.join("note.txt").exists());
        drop(pool);
        std::fs::write(sub.join("3.zero"), vec![9; 128 << 10]).unwrap();
        let log = dir.path().join("000004.log");
        let size = 128 << 10;
        let mut late = vec![0; size];
        late[size - 1] = 1;
        for (content, taken) in [
            (vec![9; size], None),
            (late, None),
            (vec![0; size], Some(Taken::Zeroed)),
        ] {
            std::fs::write(sub.join("3.zero"), content).unwrap();
            let pool = Pool::open(Posix::shared(), dir.path(), OPTIONS).unwrap();
            assert_eq!(pool.take(&log).unwrap(), None, "not looked at yet");
            assert!(pool.wants_more() && pool.fill_one(&mut |_| true).unwrap());
            assert_eq!(pool.ready(), usize::from(taken.is_some()));
            assert_eq!(pool.take(&log).unwrap(), taken, "foreign content is no log");
            assert!(!sub.join("3.zero").exists());
        }
    }

    #[test]
    fn what_is_no_plain_file_is_neither_followed_nor_used() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join(DIR);
        std::fs::create_dir(&sub).unwrap();
        let mine = dir.path().join("mine");
        std::fs::write(&mine, vec![0; 128 << 10]).unwrap();
        std::fs::create_dir(sub.join("1.zero")).unwrap();
        std::fs::create_dir(sub.join("2.reserve")).unwrap();
        std::os::unix::fs::symlink(&mine, sub.join("3.zero")).unwrap();
        std::os::unix::fs::symlink(&mine, sub.join("4.reserve")).unwrap();
        std::os::unix::fs::symlink("nowhere", sub.join("5.zero")).unwrap();
        let pool = Pool::open(Posix::shared(), dir.path(), OPTIONS).unwrap();
        let log = dir.path().join("000004.log");
        assert_eq!(pool.take(&log).unwrap(), None);
        pool.fill_one(&mut |_| true).unwrap();
        assert_eq!(pool.take(&log).unwrap(), None);
        // As if the file system were full: the reserve is all there is.
        pool.starved.store(true, Ordering::Relaxed);
        assert_eq!(pool.take(&log).unwrap(), None);
        assert!(sub.join("1.zero").is_dir() && sub.join("2.reserve").is_dir());
        assert_eq!(std::fs::read(&mine).unwrap(), vec![0; 128 << 10]);
        assert!(pool.fill_one(&mut |_| true).unwrap());
        assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
        assert!(!log.is_symlink());
    }

    #[test]
    fn recycled_logs_are_taken_as_they_are_and_not_by_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let options = PoolOptions {
            ready: 0,
            recycle: 1,
            ..OPTIONS
        };
        let pool = Pool::open(Posix::shared(), dir.path(), options).unwrap();
        let [a, b] = ["000004.log", "000005.log"].map(|n| dir.path().join(n));
        for log in [&a, &b] {
            std::fs::write(log, b"old").unwrap();
            pool.retire(log, true).unwrap();
            assert!(!log.exists());
        }
        assert_eq!(pool.take(&a).unwrap(), Some(Taken::Recycled));
        assert_eq!(std::fs::read(&a).unwrap(), b"old");
        assert_eq!(pool.take(&b).unwrap(), None, "one was kept");
        pool.retire(&a, true).unwrap();
        let pool = Pool::open(Posix::shared(), dir.path(), options).unwrap();
        assert_eq!(pool.take(&b).unwrap(), None);
    }

    /// The directory of the logs was removed under an open database. The pool made it again with its own,
    /// and the next log went there.
    #[test]
    fn a_directory_that_is_gone_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("logs");
        std::fs::create_dir(&logs).unwrap();
        let pool = Pool::open(Posix::shared(), &logs, OPTIONS).unwrap();
        std::fs::remove_dir(&logs).unwrap();
        assert!(pool.fill_one(&mut |_| true).unwrap_err().is_not_found());
        assert!(!logs.exists());
    }

    #[test]
    fn filling_that_is_given_up_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let options = PoolOptions {
            file_bytes: 8 << 20,
            ..OPTIONS
        };
        let pool = Pool::open(Posix::shared(), dir.path(), options).unwrap();
        assert!(pool.fill_one(&mut |_| false).unwrap());
        assert!(pool.take(&dir.path().join("4.log")).unwrap().is_some());
        assert!(!pool.fill_one(&mut |_| false).unwrap());
        assert_eq!(std::fs::read_dir(dir.path().join(DIR)).unwrap().count(), 0);
    }

    #[test]
    fn the_first_file_is_ready_before_the_first_pause() {
        let dir = tempfile::tempdir().unwrap();
        let options = PoolOptions {
            file_bytes: 16 << 20,
            ..OPTIONS
        };
        let pool = Pool::open(Posix::shared(), dir.path(), options).unwrap();
        let mut pauses = Vec::new();
        let mut pace = |bytes| {
            pauses.push((bytes, pool.ready()));
            true
        };
        assert!(pool.fill_one(&mut pace).unwrap());
        assert_eq!(pauses, [(STARTER, 1)]);
        // A later one is written with pauses, its bytes are all told, and it too is ready at the last.
        assert!(pool.take(&dir.path().join("4.log")).unwrap().is_some());
        pauses.clear();
        let mut pace = |bytes| {
            pauses.push((bytes, pool.ready()));
            true
        };
        assert!(pool.fill_one(&mut pace).unwrap());
        assert_eq!(pauses[..15], [(STEP, 0); 15]);
        assert_eq!(pauses[15..], [(STEP, 1)]);
    }
}
