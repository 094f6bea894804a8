//! A store's directory: how it is created and opened.
//!
//! ```text
//!   STORE   what the store is, two copies      written last when a store is made: without it there is none
//!   LOCK    one process at a time
//!   log/    the log's files, all made with the store
//!   data    slots of one chunk each, and whose they are
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use io::{File, FileLock, FileSystem, OpenHow, SyncKind};

use super::doubts;
use crate::ids::Uuid;
use crate::raftlog::files::Files;
use crate::raftlog::{self, RaftLog};
use crate::store::data::{Data, SLOT_BYTES};
use crate::store::superblock::{PEERS_MAX, Superblock};
use crate::store::trailer::{self, Trailer};

/// Name of the superblock's file.
const STORE: &str = "STORE";
/// Name of the lock file.
const LOCK: &str = "LOCK";
/// Name of the log's directory.
const LOG: &str = "log";
/// Name of the data file.
const DATA: &str = "data";
/// Bytes of the log's payloads that stay in memory, for followers that lag a little.
const LOG_MEMORY_BYTES: u64 = 32 << 20;
/// Files of the log that are reserved for checkpoints.
const RESERVED_FILES: u32 = 2;
/// The fewest files of a log.
const LOG_FILES_MIN: u32 = RESERVED_FILES + 2;
/// The fewest bytes of a log file: a batch with a large request, and all groups' states, must fit.
const LOG_FILE_BYTES_MIN: u64 = 4 << 20;

/// The parameters of a new store.
#[derive(Clone, Copy, Debug)]
pub struct Make {
    /// Its id for ever.
    pub store: Uuid,
    /// The cluster that it belongs to.
    pub cluster: Uuid,
    /// The number of chunks that it has slots for.
    pub slots: u32,
    /// The number of files of its log: at least 4.
    pub log_files: u32,
    /// Bytes of each log file: at least 4 MiB, whole MiB.
    pub log_file_bytes: u64,
    /// Whether a file system in memory is accepted, where nothing survives a power cut.
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

    /// Bytes that the store occupies.
    pub fn bytes(&self) -> u64 {
        let log = u64::from(self.log_files) * self.log_file_bytes;
        u64::from(self.slots) * SLOT_BYTES + trailer::LEN + log
    }
}

/// Creates a store in `dir`, which is created too, or must be empty. `said` is called with the bytes of the
/// log written so far.
///
/// Errors: `dir` has a store or a part of one; the file system cannot hold a store. Then nothing stays
/// behind.
pub fn make(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    what: &Make,
    said: &mut dyn FnMut(u64),
) -> Result<()> {
    what.check()?;
    let is_new = !fs.exists(dir)?;
    io::create_dirs(&**fs, dir).map_err(with_remedy)?;
    check_empty(&**fs, dir)?;
    let made = unit_of(&**fs, dir, what.allow_in_memory).and_then(|unit| {
        let made = fill(fs, dir, what, unit, said);
        made.inspect_err(|_| clear(&**fs, dir))
    });
    made.map_err(|e| {
        if is_new {
            drop(fs.remove_dir(dir));
        }
        on_such_a_disk(e, what)
    })
}

/// Errors: `dir` has a store or a part of one. Leftovers of a killed `make` do not count.
fn check_empty(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    if fs.exists(&dir.join(STORE))? {
        return Err(Error::invalid_argument("there is a store already")
            .file(dir.join(STORE))
            .hint("open it, or choose another directory"));
    }
    let (log, data) = (dir.join(LOG), dir.join(DATA));
    let left = if fs.exists(&log)? {
        let names = fs.list(&log)?;
        let used = |n: &&OsString| n.as_encoded_bytes().ends_with(b".log");
        names.iter().find(used).map(|n| log.join(n))
    } else {
        // The log's directory is created before the data file.
        fs.exists(&data)?.then_some(data)
    };
    left.map_or(Ok(()), |file| {
        Err(
            Error::corruption("there is a part of a store whose file STORE is missing")
                .file(file)
                .hint("bring STORE back, or choose another directory"),
        )
    })
}

fn fill(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    what: &Make,
    unit: u32,
    said: &mut dyn FnMut(u64),
) -> Result<()> {
    Files::make(
        fs,
        &dir.join(LOG),
        what.log_files,
        what.log_file_bytes,
        said,
    )?;
    let data = fs.open(&dir.join(DATA), OpenHow::CREATE_TRUNCATE)?;
    let slots = u64::from(what.slots) * SLOT_BYTES;
    data.allocate(0, slots + trailer::LEN, false)?;
    let trailer = Trailer {
        store: what.store,
        openings: 0,
    };
    trailer.write(&*data, slots)?;
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
        openings: 0,
        peers: BTreeMap::new(),
    };
    superblock.write(&*store)?;
    fs.sync_dir(dir)
}

/// Removes the files of a failed `make`. If one cannot be removed, it stays: the first error is the one to
/// report.
fn clear(fs: &dyn FileSystem, dir: &Path) {
    let log = dir.join(LOG);
    let mut files = vec![dir.join(STORE), dir.join(DATA)];
    files.extend(
        fs.list(&log)
            .unwrap_or_default()
            .iter()
            .map(|n| log.join(n)),
    );
    for file in files {
        drop(fs.remove(&file));
    }
    drop(fs.remove_dir(&log));
}

/// An error of `make`, with a hint about the disk.
fn on_such_a_disk(e: Error, what: &Make) -> Error {
    let mib = what.bytes().div_ceil(1 << 20);
    match e.kind() {
        ErrorKind::NoSpace => e.hint(format!(
            "the store takes {mib} MiB: choose a larger disk, or make capacity or log smaller"
        )),
        _ => with_remedy(e),
    }
}

/// Adds a hint to an error that comes from a failed disk or a read-only file system.
pub(super) fn with_remedy(e: Error) -> Error {
    let source = std::error::Error::source(&e).and_then(|s| s.downcast_ref::<std::io::Error>());
    match source.and_then(rustix::io::Errno::from_io_error) {
        Some(rustix::io::Errno::ROFS) => {
            e.hint("the file system is read-only: see dmesg, check it, and mount it for writing")
        }
        // The first error of a file system that is about to become read-only.
        Some(rustix::io::Errno::IO) => e.hint(
            "the disk or its file system has failed: see dmesg, check it, and mount it again, or replace the disk",
        ),
        _ => e,
    }
}

/// The unit that the device under `dir` writes atomically. Errors: the file system cannot hold a store.
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

/// Errors: the log or the data file is missing, although `STORE` is there.
fn check_parts(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    for (name, what) in [(LOG, "log"), (DATA, "data file")] {
        let path = dir.join(name);
        if !fs.exists(&path)? {
            return Err(Error::corruption(format!("the store's {what} is missing"))
                .file(path)
                .hint(
                    "bring it back, or mount its disk: without it the store lacks what it has acknowledged",
                ));
        }
    }
    Ok(())
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    superblock: Superblock,
    superblock_file: Arc<dyn File>,
    _lock: Box<dyn FileLock>,
}

/// The result of [`Store::open`].
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Store,
    /// Its log, as read after the last run.
    pub log: RaftLog,
    /// Its data file.
    pub data: Data,
}

impl Store {
    /// Opens a store. `depth`: the most batches on their way at once; `seed`: seed of the log's nonces.
    ///
    /// Errors: there is no store; another process has it open; it belongs to another cluster, or is
    /// damaged; its files belong to another store.
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
        let lock = fs.lock(&dir.join(LOCK)).map_err(|e| match e.kind() {
            ErrorKind::Busy => e.hint("another process has the store open: end it first"),
            _ => with_remedy(e),
        })?;
        let superblock_file = fs.open(&path, OpenHow::UPDATE)?;
        // A killed process may have left a copy that is written and not durable.
        superblock_file.sync(SyncKind::All)?;
        let superblock = Superblock::read(&*superblock_file)?;
        if superblock.cluster != cluster {
            return Err(Error::invalid_argument(format!(
                "the store is of cluster {}, and not of {cluster}",
                superblock.cluster
            ))
            .file(path)
            .hint("see `cluster` in the cluster file, and the store's directory"));
        }
        check_parts(&**fs, dir)?;
        let data_file = fs.open(&dir.join(DATA), OpenHow::UPDATE.direct())?;
        let mut store = Self {
            dir: dir.to_path_buf(),
            superblock,
            superblock_file,
            _lock: lock,
        };
        // Checked before the log begins a new file, so that files of a newer release or of another store stay
        // unchanged.
        store.check_trailer(&*data_file)?;
        let mut data = Data::open(Arc::clone(&data_file), store.superblock.slots)?;
        let options = store.log_options(depth, seed);
        let newest = store.superblock.log_number;
        let log = RaftLog::open(Arc::clone(fs), &dir.join(LOG), options, newest)?;
        store.check_pages(&log, &data)?;
        data.mend()?;
        store.note_opening(&*data_file, &log)?;
        Ok(Opened { store, log, data })
    }

    fn log_options(&self, depth: u32, seed: u64) -> raftlog::Options {
        let superblock = &self.superblock;
        raftlog::Options {
            store: superblock.store,
            unit: superblock.unit,
            depth,
            file_bytes: superblock.log_bytes,
            reserved_files: RESERVED_FILES as usize,
            memory_bytes: LOG_MEMORY_BYTES,
            seed,
        }
    }

    /// The store's id.
    pub fn uuid(&self) -> Uuid {
        self.superblock.store
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The other stores that it has met, by their numbers.
    pub fn peers(&self) -> &BTreeMap<u64, Uuid> {
        &self.superblock.peers
    }

    /// Notes for ever which store has a number. Errors: those of the disk.
    pub fn note_peer(&mut self, number: u64, peer: Uuid) -> Result<()> {
        let peers = &mut self.superblock.peers;
        if peers.len() >= PEERS_MAX || peers.contains_key(&number) {
            return Ok(());
        }
        peers.insert(number, peer);
        self.superblock.write(&*self.superblock_file)
    }

    /// Notes the number of the newest log file if it has changed, so that the next open notices if that file is
    /// missing.
    pub fn note_log_file(&mut self, log: &RaftLog) -> Result<()> {
        // A file without a durable batch does not count, since its loss does no harm.
        let newest = log.durable_file_number();
        if self.superblock.log_number == newest {
            return Ok(());
        }
        self.superblock.log_number = newest;
        self.superblock.write(&*self.superblock_file)
    }

    /// Errors: the data file belongs to another store, or is of another time.
    fn check_trailer(&self, data: &dyn File) -> Result<()> {
        let block = &self.superblock;
        let trailer = Trailer::read(data, u64::from(block.slots) * SLOT_BYTES)?;
        let checked = trailer.check(block.store, block.openings);
        checked.map_err(|e| e.or_file(data.path()))
    }

    /// Counts this opening, first in the data file; so after a crash the data file may be one ahead.
    fn note_opening(&mut self, data: &dyn File, log: &RaftLog) -> Result<()> {
        let block = &mut self.superblock;
        block.openings += 1;
        let trailer = Trailer {
            store: block.store,
            openings: block.openings,
        };
        trailer.write(data, u64::from(block.slots) * SLOT_BYTES)?;
        block.log_number = log.durable_file_number();
        block.write(&*self.superblock_file)
    }

    /// Errors: a page is newer than the log's end, so the log belongs to another data file or has lost its end;
    /// or a page is damaged, and blocks in it are lost.
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
            .hint("bring both back as of the same time: one comes from another place, or is an older copy"));
        }
        let chunks = reader.chunks();
        let lost = doubts::lost(data.doubtful(), log.groups(), &chunks, &self.dir.join(DATA))?;
        lost.into_iter().next().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
