//! Files, directories and devices, behind traits that a simulator can implement completely.
//!
//! Every operation that matters for durability is a separate call: write with or without `DSYNC`,
//! `fdatasync`, `fsync`, directory sync, rename, unlink, truncate, allocate, zero. No layer above
//! calls the operating system for a file in any other way, so only these calls determine what a crash
//! may leave behind.
//!
//! ```text
//!   FileSystem ── open ──> File      read_at · write_at(WriteSync) · sync · truncate · allocate · zero
//!       │                            (positional only: no shared cursor)
//!       ├── rename, remove, hard_link, create_dir, sync_dir, list, metadata
//!       ├── hold, check_held         works in a directory even if its name changes
//!       ├── lock   ──> FileLock      one opener per database
//!       └── probe  ──> Probe         what this file system and device can do
//! ```
//!
//! [`posix::Posix`] is the real file system. [`FileWrapper`] and [`FileSystemWrapper`] are for types that change
//! a few methods of an inner file or file system. Positions and lengths are bytes.

pub mod buffer;
mod dirs;
pub mod huge;
pub mod large;
pub mod limiter;
mod locks;
pub mod mapped;
pub mod memory;
pub mod posix;
pub mod queue;
mod queue_maker;
mod read_queues;
mod read_thread;
#[doc(hidden)]
pub mod testing;
mod wrapper;

use std::cell::Cell;
use std::ffi::OsString;
use std::fmt::Debug;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use base::{Error, Result};

pub use buffer::AlignedBuf;
pub use dirs::{NewNames, create_dirs, hold};
pub use huge::HugeAlloc;
pub use large::{LargeVec, MAPPED_MIN};
pub use limiter::{IoPriority, RateLimiter, RateLimiterMode, RateLimiterOptions};
pub use mapped::MappedFile;
pub use memory::{HUGE_PAGE, MAPPINGS_ARE_USED, Mapping};
pub use posix::probe::{self, Probe};
pub use queue::{Queue, QueueKind};
pub use queue_maker::READS_MAX;
pub use read_queues::{Lent, ReadIoMode, ReadQueues};
pub use read_thread::AsyncReads;
pub use wrapper::{FileSystemWrapper, FileWrapper};

/// What a write guarantees when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteSync {
    /// The bytes are in the operating system: they survive the end of the process, but not a power cut.
    None,
    /// The bytes, and the metadata needed to read them back, are durable: `RWF_DSYNC`.
    Dsync,
    /// As `Dsync`, and atomic: after a crash the range holds either all of the old bytes or all of
    /// the new ones (`RWF_ATOMIC`). The file must be direct, the length a power of two that
    /// [`Probe::atomic_write_unit`] allows, and the offset a multiple of the length. The write is
    /// never split: if the device cannot do it, it fails.
    AtomicDsync,
}

/// What [`File::sync`] makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// Content and size: `fdatasync`.
    Data,
    /// Everything about the file: `fsync`.
    All,
}

/// What to do when the file does or does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// It must exist.
    Never,
    /// Create it if it does not exist; keep its content if it does.
    IfMissing,
    /// It must not exist.
    New,
    /// Create it, or truncate an existing one to length 0.
    Truncate,
}

/// How to open a file.
#[derive(Clone, Copy, Debug)]
pub struct OpenHow {
    /// Whether the file is opened for writing; it is always opened for reading.
    pub write: bool,
    /// What to do when the file does or does not exist.
    pub create: Create,
    /// Bypass the page cache (`O_DIRECT`): offsets, lengths and buffers must be aligned to
    /// [`Probe::direct_alignment`]. Refused with `NotSupported` if the file system does not have it.
    pub direct: bool,
}

impl OpenHow {
    /// An existing file, for reading.
    pub const READ: Self = Self {
        write: false,
        create: Create::Never,
        direct: false,
    };
    /// An existing file, for reading and writing.
    pub const UPDATE: Self = Self {
        write: true,
        create: Create::Never,
        direct: false,
    };
    /// A file that must not exist yet.
    pub const CREATE_NEW: Self = Self {
        write: true,
        create: Create::New,
        direct: false,
    };
    /// A file that is created or truncated to length 0.
    pub const CREATE_TRUNCATE: Self = Self {
        write: true,
        create: Create::Truncate,
        direct: false,
    };

    /// The same, with `O_DIRECT`.
    #[must_use]
    pub const fn direct(mut self) -> Self {
        self.direct = true;
        self
    }
}

/// How a file will be read; the operating system may read ahead accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No pattern known.
    Normal,
    /// Single blocks here and there: do not read ahead.
    Random,
    /// From front to back: read ahead.
    Sequential,
    /// Not needed again soon: the page cache may drop it.
    DontNeed,
    /// These bytes will be read soon: the system starts to read them in the background.
    WillNeed {
        /// Where they begin.
        offset: u64,
        /// How many there are.
        len: u64,
    },
}

/// An open file. All methods may be called from several threads at once.
pub trait File: Send + Sync + Debug {
    /// The path under which it was opened, for messages.
    fn path(&self) -> &Path;

    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;

    /// Fills `buf` from `offset` if that does not wait for the device, and returns whether it did: the page cache has the
    /// bytes. False also if the system cannot tell, or if the file ends before; the content of `buf` is then undefined.
    fn read_cached_at(&self, _buf: &mut [u8], _offset: u64) -> Result<bool> {
        Ok(false)
    }

    /// What offsets, lengths and addresses of reads must be multiples of, in bytes: more than 1 for a direct file.
    fn read_alignment(&self) -> usize {
        1
    }

    /// Writes at `offset` and returns how many bytes were written, which may be fewer than
    /// `data.len()` and is never 0 for non-empty data. Use [`write_all_at`] to write all of it.
    fn write_at(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize>;

    /// Like [`File::write_at`], for several slices that are contiguous in the file. The default copies
    /// them to one buffer.
    fn write_vectored_at(
        &self,
        slices: &[IoSlice<'_>],
        offset: u64,
        sync: WriteSync,
    ) -> Result<usize> {
        let mut all = AlignedBuf::new(buffer::PAGE);
        for slice in slices {
            all.extend_from_slice(slice)?;
        }
        self.write_at(&all, offset, sync)
    }

    /// Makes everything written before durable. After an error it is unknown what is durable: the
    /// caller must never take a later success as proof for the earlier writes.
    fn sync(&self, kind: SyncKind) -> Result<()>;

    /// Starts to write back the dirty pages of the range, without waiting and without any guarantee.
    fn start_writeback(&self, offset: u64, len: u64) -> Result<()>;

    /// Writes the dirty pages of the range to the device and waits for that, so that a later
    /// [`File::sync`] has less to do. No guarantee of durability: the bytes may be in the device's
    /// volatile cache only. As for `sync`, an error is reported only once; treat the file as failed.
    fn write_back(&self, offset: u64, len: u64) -> Result<()> {
        self.start_writeback(offset, len)
    }

    /// Sets the length; bytes beyond the old length read as zero.
    fn truncate(&self, len: u64) -> Result<()>;

    /// Reserves space for the range. With `keep_size` the length does not change.
    fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()>;

    /// Writes zeros to the range as real data, not as unwritten extents, so that later overwrites
    /// change no metadata.
    fn zero(&self, offset: u64, len: u64) -> Result<()>;

    /// The current length.
    fn len(&self) -> Result<u64>;

    /// True if the length is 0.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The file's descriptor, for a [`Queue`]; `None` if the methods of this type do anything else than
    /// plain system calls on it.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Tells the operating system how the file will be read. A hint: errors are ignored.
    fn advise(&self, advice: Advice);
}

/// Facts about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Length in bytes.
    pub len: u64,
    /// True for a directory.
    pub is_dir: bool,
    /// Time of the last change, microseconds since 1970.
    pub modified_micros: u64,
}

/// Held while a database is open; dropping it releases the lock.
pub trait FileLock: Send + Sync + Debug {}

/// A file system.
pub trait FileSystem: Send + Sync + Debug {
    /// Opens a file.
    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn File>>;

    /// Facts about a path; `NotFound` if nothing exists there.
    fn metadata(&self, path: &Path) -> Result<Metadata>;

    /// The names in a directory, unsorted, without `.` and `..`.
    fn list(&self, dir: &Path) -> Result<Vec<OsString>>;

    /// Creates a directory; not an error if it exists. `NotFound` if its parent does not exist: see
    /// [`create_dirs`].
    fn create_dir(&self, dir: &Path) -> Result<()>;

    /// Renames a file, replacing `to`. Durable only after [`FileSystem::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file. Durable only after [`FileSystem::sync_dir`].
    fn remove(&self, path: &Path) -> Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> Result<()>;

    /// Creates a second name for a file.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;

    /// Makes the entries of a directory durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Locks the lock file `path`, creating it if missing. `Busy`, naming the holder if it is known, if
    /// another opener in this process or another holds the lock.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;

    /// Finds out what the file system and the device under `dir` can do. May create and remove a
    /// small file there; `dir` must exist.
    fn probe(&self, dir: &Path) -> Result<Probe>;

    /// True if both paths exist and lead to the same file or directory, even under different names.
    /// The default only compares the paths, ignoring `.` and doubled slashes.
    fn same_file(&self, a: &Path, b: &Path) -> Result<bool> {
        Ok(self.exists(a)? && self.exists(b)? && a.components().eq(b.components()))
    }

    /// The same file system with `dir` held: every path below `dir` keeps leading into the directory that
    /// has the name now, even if it is renamed, removed or replaced later. `None`: the file system
    /// cannot hold directories. Called by [`hold`].
    fn hold(&self, _dir: &Path) -> Result<Option<Arc<dyn FileSystem>>> {
        Ok(None)
    }

    /// Errors: a held directory was removed, or its path leads to another one, or nowhere. An opener of
    /// that path will not find the held directory's content. Must be cheap: called before each synced
    /// write is acknowledged.
    fn check_held(&self) -> Result<()> {
        Ok(())
    }

    /// What executes many reads of this file system's files at once, instead of io_uring or threads; `None`: those. For reads of
    /// futures and read-ahead, one thread waits in it for one read at a time before it pushes the next ones.
    fn queue(&self) -> Option<Box<dyn queue::Backend>> {
        None
    }

    /// How many syncs of the directory have failed since [`hold`]; 0 if it is not held. See [`NewNames`].
    fn failed_syncs(&self, _dir: &Path) -> u64 {
        0
    }

    /// True if `path` exists.
    fn exists(&self, path: &Path) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Writes all of `data` at `offset`, continuing after short writes. With
/// [`WriteSync::Dsync`], everything is durable when it returns.
pub fn write_all_at(file: &dyn File, data: &[u8], offset: u64, sync: WriteSync) -> Result<()> {
    let mut done = 0usize;
    while done < data.len() {
        let at = offset + done as u64;
        done += some(file.write_at(&data[done..], at, sync)?, file, at)?;
    }
    Ok(())
}

/// Like [`write_all_at`], for several slices, which are consumed. Empty slices are allowed.
pub fn write_all_vectored_at(
    file: &dyn File,
    mut slices: &mut [IoSlice<'_>],
    offset: u64,
    sync: WriteSync,
) -> Result<()> {
    let mut at = offset;
    IoSlice::advance_slices(&mut slices, 0); // skips leading empty slices
    while !slices.is_empty() {
        let n = some(file.write_vectored_at(slices, at, sync)?, file, at)?;
        IoSlice::advance_slices(&mut slices, n);
        at += n as u64;
    }
    Ok(())
}

/// Passes on the number of bytes that a write took. Errors: it is 0.
fn some(n: usize, file: &dyn File, offset: u64) -> Result<usize> {
    if n > 0 {
        return Ok(n);
    }
    Err(
        Error::new(base::ErrorKind::IoError, "write: the device took 0 bytes")
            .file(file.path())
            .offset(offset),
    )
}

thread_local! {
    /// The buffer of this thread for direct reads of ranges that are not aligned.
    static ALIGNED: Cell<Option<AlignedBuf>> = const { Cell::new(None) };
}

/// Maximum size in bytes of the buffer that a thread keeps.
const ALIGNED_BYTES_MAX: usize = 4 << 20;

/// Fills `buf` from `offset`; Corruption if the file ends before. Neither has to be aligned, even if the file is direct.
pub fn read_exact_at(file: &dyn File, buf: &mut [u8], offset: u64) -> Result<()> {
    let unit = file.read_alignment();
    let n = if unit > 1 {
        read_aligned_at(file, buf, offset, unit)?
    } else {
        file.read_at(buf, offset)?
    };
    if n < buf.len() {
        return Err(Error::corruption(format!(
            "the file ends after {n} of the {} bytes wanted here",
            buf.len()
        ))
        .file(file.path())
        .offset(offset));
    }
    Ok(())
}

/// [`File::read_at`] through an aligned buffer.
fn read_aligned_at(file: &dyn File, buf: &mut [u8], offset: u64, unit: usize) -> Result<usize> {
    let skip = (offset % unit as u64) as usize;
    let len = (skip + buf.len()).next_multiple_of(unit);
    let kept = ALIGNED.take().filter(|kept| kept.align() >= unit);
    let mut aligned = kept.unwrap_or_else(|| AlignedBuf::new(unit.max(buffer::PAGE)));
    aligned.resize_for_overwrite(0)?; // so that nothing is copied to new memory
    aligned.resize_for_overwrite(len)?;
    let n = file.read_at(&mut aligned, offset - skip as u64)?;
    let n = n.saturating_sub(skip).min(buf.len());
    buf[..n].copy_from_slice(&aligned[skip..skip + n]);
    if aligned.capacity() <= ALIGNED_BYTES_MAX {
        ALIGNED.set(Some(aligned));
    }
    Ok(n)
}

/// Reads a whole file of at most `max` bytes; Corruption if it is longer.
pub fn read_file(fs: &dyn FileSystem, path: &Path, max: u64) -> Result<Vec<u8>> {
    let file = fs.open(path, OpenHow::READ)?;
    let len = file.len()?;
    if len > max {
        return Err(
            Error::corruption(format!("{len} bytes long, expected at most {max}")).file(path),
        );
    }
    let mut buf = vec![0; len as usize];
    let n = file.read_at(&mut buf, 0)?;
    buf.truncate(n);
    Ok(buf)
}

/// Creates or replaces `path` with `data` so that a crash leaves the old content or the new:
/// writes `temp`, syncs it, renames it, syncs the directory.
pub fn replace_file(fs: &dyn FileSystem, path: &Path, temp: &Path, data: &[u8]) -> Result<()> {
    let file = fs.open(temp, OpenHow::CREATE_TRUNCATE)?;
    write_all_at(&*file, data, 0, WriteSync::None)?;
    file.sync(SyncKind::Data)?;
    drop(file);
    let dir = path.parent().unwrap_or(Path::new("."));
    let names = NewNames::begin(fs, dir);
    fs.rename(temp, path)?;
    names.sync(fs, dir)
}
