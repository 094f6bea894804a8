//! A store's directory: how it is made, and what opening finds.
//!
//! ```text
//!   STORE   what the store is, two copies      written last when a store is made: without it there is none
//!   LOCK    one process at a time
//!   log/    the log's files, all made with the store
//!   data    slots of one chunk each
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use io::{File, FileLock, FileSystem, OpenHow, SyncKind};

use crate::ids::Uuid;
use crate::raftlog::files::Files;
use crate::raftlog::{self, RaftLog};
use crate::store::data::{Data, SLOT_BYTES};
use crate::store::superblock::Superblock;

/// Name of the superblock's file.
const STORE: &str = "STORE";
/// Name of the lock file.
const LOCK: &str = "LOCK";
/// Name of the log's directory.
const LOG: &str = "log";
/// Name of the data file.
const DATA: &str = "data";
/// Bytes of payloads of the log that stay in memory, for followers that are a little behind.
const LOG_MEMORY_BYTES: u64 = 64 << 20;
/// Files of the log that are for checkpoints only.
const RESERVED_FILES: u32 = 2;
/// The fewest files of a log.
const LOG_FILES_MIN: u32 = RESERVED_FILES + 2;
/// The fewest bytes of one: a batch with a large request, and all groups' states.
const LOG_FILE_BYTES_MIN: u64 = 4 << 20;

/// What a new store is.
#[derive(Clone, Copy, Debug)]
pub struct Make {
    /// Its name for ever.
    pub store: Uuid,
    /// The cluster that it belongs to.
    pub cluster: Uuid,
    /// How many chunks it has place for.
    pub slots: u32,
    /// How many files its log has: at least 4.
    pub log_files: u32,
    /// Bytes of each: at least 4 MiB, whole MiB.
    pub log_file_bytes: u64,
    /// Takes a file system that lives in memory too, where nothing survives a power cut.
    pub allow_in_memory: bool,
}

impl Make {
    fn check(&self) -> Result<()> {
        let mib = 1 << 20;
        let wrong = if self.slots == 0 {
            Some("slots must be at least 1".to_owned())
        } else if self.log_files < LOG_FILES_MIN {
            Some(format!("log_files must be at least {LOG_FILES_MIN}"))
        } else if self.log_file_bytes < LOG_FILE_BYTES_MIN
            || !self.log_file_bytes.is_multiple_of(mib)
        {
            Some("log_file_bytes must be whole MiB, at least 4".to_owned())
        } else {
            None
        };
        wrong.map_or(Ok(()), |w| Err(Error::invalid_argument(w)))
    }

    /// Bytes that the store takes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.slots) * SLOT_BYTES + u64::from(self.log_files) * self.log_file_bytes
    }
}

/// Makes a store in `dir`, which is made too, or is empty. `said` is told the bytes of the log that are
/// written so far.
///
/// Errors: something is there; the file system cannot hold a store.
pub fn make(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    what: &Make,
    said: &mut dyn FnMut(u64),
) -> Result<()> {
    what.check()?;
    io::create_dirs(&**fs, dir)?;
    if fs.exists(&dir.join(STORE))? {
        return Err(Error::invalid_argument("there is a store already").file(dir.join(STORE)));
    }
    let unit = unit_of(&**fs, dir, what.allow_in_memory)?;
    Files::make(
        fs,
        &dir.join(LOG),
        what.log_files,
        what.log_file_bytes,
        said,
    )?;
    let data = fs.open(&dir.join(DATA), OpenHow::CREATE_TRUNCATE)?;
    data.allocate(0, u64::from(what.slots) * SLOT_BYTES, false)?;
    data.sync(SyncKind::All)?;
    let store = fs.open(&dir.join(STORE), OpenHow::CREATE_TRUNCATE)?;
    let mut superblock = Superblock {
        unit,
        generation: 0,
        store: what.store,
        cluster: what.cluster,
        log_bytes: what.log_file_bytes,
        slots: what.slots,
        needed: 0,
        optional: 0,
        log_number: 0,
    };
    superblock.write(&*store)?;
    fs.sync_dir(dir)
}

/// What the device under `dir` writes as a whole. Errors: no store can be there.
fn unit_of(fs: &dyn FileSystem, dir: &Path, allow_in_memory: bool) -> Result<u32> {
    let probe = fs.probe(dir)?;
    let no = |what: &str, hint: &str| {
        let what = format!("{} {what}", probe.file_system);
        Err(Error::not_supported(what).file(dir).hint(hint))
    };
    if probe.in_memory && !allow_in_memory {
        return no(
            "lives in memory: nothing of a store would survive a power cut",
            "choose a directory on a disk",
        );
    }
    if probe.copy_on_write {
        return no(
            "writes each block to a new place, which a store's overwrites in place cannot bear",
            "choose a directory on ext4 or xfs",
        );
    }
    let Some(unit) = probe.write_unit().filter(|u| (512..=4096).contains(u)) else {
        return no(
            "takes no direct writes of 4096 bytes or less",
            "choose a directory on ext4 or xfs",
        );
    };
    Ok(unit)
}

/// A store that is open.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    superblock: Superblock,
    superblock_file: Arc<dyn File>,
    _lock: Box<dyn FileLock>,
}

/// What [`Store::open`] gives.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Store,
    /// Its log, with what a crash has left of it.
    pub log: RaftLog,
    /// Its data file.
    pub data: Data,
}

impl Store {
    /// Opens a store. `depth`: how many batches may be on their way at once; `seed`: what nonces are drawn from.
    ///
    /// Errors: there is none; another process has it; it is of another cluster, or damaged; its files are
    /// another store's.
    pub fn open(
        fs: &Arc<dyn FileSystem>,
        dir: &Path,
        cluster: Uuid,
        depth: u32,
        seed: u64,
    ) -> Result<Opened> {
        let path = dir.join(STORE);
        if !fs.exists(&path)? {
            return Err(Error::new(ErrorKind::NotFound, "there is no store")
                .file(dir)
                .hint("make one, or mount its disk"));
        }
        let lock = fs.lock(&dir.join(LOCK))?;
        let superblock_file = fs.open(&path, OpenHow::UPDATE)?;
        let superblock = Superblock::read(&*superblock_file)?;
        if superblock.cluster != cluster {
            return Err(Error::invalid_argument(format!(
                "the store is of cluster {}, and not of {cluster}",
                superblock.cluster
            ))
            .file(path));
        }
        let options = raftlog::Options {
            store: superblock.store,
            unit: superblock.unit,
            depth,
            file_bytes: superblock.log_bytes,
            reserved_files: RESERVED_FILES as usize,
            memory_bytes: LOG_MEMORY_BYTES,
            seed,
        };
        let newest = superblock.log_number;
        let log = RaftLog::open(Arc::clone(fs), &dir.join(LOG), options, newest)?;
        let data = fs.open(&dir.join(DATA), OpenHow::UPDATE.direct())?;
        let data = Data::open(data, superblock.slots)?;
        let mut store = Self {
            dir: dir.to_path_buf(),
            superblock,
            superblock_file,
            _lock: lock,
        };
        store.note_log_file(&log)?;
        store.check_pages(&log, &data)?;
        Ok(Opened { store, log, data })
    }

    /// The store's name.
    pub fn uuid(&self) -> Uuid {
        self.superblock.store
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Notes which file of the log is the newest, when that has changed: should it be missing at the next open,
    /// that is found.
    pub fn note_log_file(&mut self, log: &RaftLog) -> Result<()> {
        // One without a batch may go again unnoticed.
        let newest = log.durable_file_number();
        if self.superblock.log_number == newest {
            return Ok(());
        }
        self.superblock.log_number = newest;
        self.superblock.write(&*self.superblock_file)
    }

    /// Errors: a page is newer than the log's end, so the log is not this data file's, or has lost its end.
    fn check_pages(&self, log: &RaftLog, data: &Data) -> Result<()> {
        let reader = data.reader();
        for (group, last) in reader.last_indices() {
            let found = log.groups().get(group);
            let known = found.map(raftlog::groups::GroupLog::last_in_data);
            if known.is_some_and(|known| known >= last) {
                continue;
            }
            let known = known.map_or("has nothing of it".to_owned(), |k| format!("ends at {k}"));
            return Err(Error::corruption(format!(
                "the data file has entry {last} of group {group}, and the log {known}"
            ))
            .file(self.dir.join(DATA))
            .hint("was one of both brought from another place, or an older copy?"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
