//! The databases of a run: one, or several with `--num_multi_db`, and their shared state.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use base::{Error, Result};

use crate::destroy::destroy;
use crate::engine::{Bounds, Cursor as _, Engine};
use crate::families::Families;
use crate::flags::Flags;

/// Open databases.
pub(crate) struct Databases<E: Engine> {
    settings: E::Settings,
    dir: PathBuf,
    open: Vec<Arc<E>>,
    pub(crate) families: Families,
    /// The existing keys, with `--use_existing_keys`.
    pub(crate) keys: Option<Arc<Vec<Vec<u8>>>>,
    follows: Option<Follows>,
    /// The number of these updates.
    caught_up: Arc<AtomicU64>,
}

impl<E: Engine> Databases<E> {
    /// Nothing is open yet.
    pub(crate) fn new(flags: &Flags, dir: PathBuf) -> Result<Self> {
        Ok(Self {
            settings: E::settings(flags)?,
            dir,
            open: Vec::new(),
            families: Families::new(flags)?,
            keys: None,
            follows: None,
            caught_up: Arc::default(),
        })
    }

    /// The directory of the database, or of all databases.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The open databases.
    pub(crate) fn all(&self) -> &[Arc<E>] {
        &self.open
    }

    /// The open databases with their directories.
    pub(crate) fn named(&self, flags: &Flags) -> impl Iterator<Item = (PathBuf, &E)> {
        let dirs: Vec<PathBuf> = (0..self.open.len())
            .map(|i| part(&self.dir, flags, i))
            .collect();
        dirs.into_iter().zip(self.open.iter().map(Arc::as_ref))
    }

    /// The first, or only, database. Errors: none is open.
    pub(crate) fn first(&self) -> Result<&E> {
        let first = self.open.first().map(Arc::as_ref);
        first.ok_or_else(|| Error::aborted("the database is not open"))
    }

    /// Opens all databases. If the flags ask for it, begins to catch up with a primary.
    pub(crate) fn open(&mut self, flags: &Flags) -> Result<()> {
        self.families.restart();
        for i in 0..count(flags) {
            let dir = part(&self.dir, flags, i);
            if !flags.readonly && !flags.use_secondary_db {
                std::fs::create_dir_all(&dir).map_err(|e| Error::io("create", &dir, e))?;
            }
            let mut own = flags.clone();
            if count(flags) > 1 && !flags.wal_dir.is_empty() {
                let logs = Path::new(&flags.wal_dir).join(i.to_string());
                std::fs::create_dir_all(&logs).map_err(|e| Error::io("create", &logs, e))?;
                own.wal_dir = logs.display().to_string();
            }
            let opened = E::open(&own, &self.settings, &dir)?;
            self.open.push(Arc::new(opened));
        }
        let seconds = flags.secondary_update_interval.max(0).unsigned_abs();
        if flags.use_secondary_db && seconds > 0 {
            let every = Duration::from_secs(u64::from(seconds));
            let engine = Arc::clone(&self.open[0]);
            self.follows = Some(Follows::start(engine, every, Arc::clone(&self.caught_up))?);
        }
        Ok(())
    }

    /// Opens the database in `dir` read-only.
    pub(crate) fn open_other(&self, flags: &Flags, dir: &Path) -> Result<E> {
        E::open_read_only(flags, &self.settings, dir)
    }

    /// Reads all keys, for [`Databases::keys`], and returns their number.
    pub(crate) fn read_keys(&mut self) -> Result<usize> {
        let engine = self.first()?;
        let mut cursor = engine.cursor(Bounds::default())?;
        let mut keys = Vec::new();
        cursor.seek_to_first();
        while cursor.valid() {
            keys.push(cursor.key().to_vec());
            cursor.next();
        }
        cursor.status()?;
        drop(cursor);
        let count = keys.len();
        self.keys = Some(Arc::new(keys));
        Ok(count)
    }

    /// Closes all databases. Errors: also those of the last background work.
    pub(crate) fn close(&mut self) -> Result<()> {
        drop(self.follows.take());
        let mut outcome = Ok(());
        for engine in self.open.drain(..) {
            let closed = Arc::try_unwrap(engine).map_or_else(
                |_| Err(Error::aborted("a thread still has the database")),
                E::close,
            );
            outcome = outcome.and(closed);
        }
        outcome
    }

    /// Deletes the databases and their LOG files.
    pub(crate) fn destroy(&self, flags: &Flags) -> Result<()> {
        if count(flags) > 1 {
            for i in 0..count(flags) {
                destroy(&part(&self.dir, flags, i))?;
                if !flags.wal_dir.is_empty() {
                    destroy(&Path::new(&flags.wal_dir).join(i.to_string()))?;
                }
            }
            return Ok(());
        }
        destroy(&self.dir)?;
        let wal_dir = Path::new(&flags.wal_dir);
        if flags.wal_dir.is_empty() || wal_dir == self.dir {
            return Ok(());
        }
        destroy(wal_dir)
    }

    /// How many times a secondary instance caught up.
    pub(crate) fn caught_up(&self) -> u64 {
        self.caught_up.load(Ordering::Relaxed)
    }
}

/// How many databases the flags ask for.
pub(crate) fn count(flags: &Flags) -> usize {
    flags.num_multi_db.max(1).unsigned_abs() as usize
}

/// The directory of database number `i`.
fn part(dir: &Path, flags: &Flags, i: usize) -> PathBuf {
    if count(flags) > 1 {
        dir.join(i.to_string())
    } else {
        dir.to_path_buf()
    }
}

/// A thread that periodically lets a secondary instance catch up with its primary, until it is dropped.
struct Follows {
    ended: Arc<AtomicBool>,
    thread: Thread,
    handle: Option<JoinHandle<()>>,
}

impl Follows {
    fn start<E: Engine>(engine: Arc<E>, every: Duration, count: Arc<AtomicU64>) -> Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let run = move || {
            // Once at least: a benchmark may be over before this thread has its turn.
            loop {
                if let Err(e) = engine.catch_up() {
                    eprintln!("Failed to catch up with primary: {e}");
                    return;
                }
                count.fetch_add(1, Ordering::Relaxed);
                if end.load(Ordering::Acquire) {
                    return;
                }
                std::thread::park_timeout(every);
            }
        };
        let handle = std::thread::Builder::new()
            .name("bench-follows".to_owned())
            .spawn(run)
            .map_err(|e| Error::aborted(format!("starting a thread: {e}")))?;
        Ok(Self {
            ended,
            thread: handle.thread().clone(),
            handle: Some(handle),
        })
    }
}

impl Drop for Follows {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.thread.unpark();
        if let Some(handle) = self.handle.take() {
            handle.join().ok(); // it was told why it ended, if it failed
        }
    }
}
