//! A file system between the engine and another one, through which a test can interfere.
//!
//! Before each operation, a [`Hook`] decides whether it is executed, fails, or writes too little. And time
//! can be stopped: while [`HookedFs::frozen`] runs, no operation changes anything, so a copy of a directory
//! is what a crash at that instant would have left in the page cache.

use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::sync::{PoisonError, RwLock, RwLockReadGuard};
use base::{Error, Result};
use io::queue::Backend;
use io::{
    File, FileLock, FileSystem, FileSystemWrapper, FileWrapper, Metadata, OpenHow, Probe, SyncKind,
    WriteSync,
};

use crate::queues::Queues;

/// An operation of a file or a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A file is opened for reading.
    Open,
    /// A file is opened for writing, and perhaps created.
    OpenWrite,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file is made durable.
    Sync,
    /// A directory's entries are made durable.
    SyncDir,
    /// A file's length is changed.
    Truncate,
    /// Space is reserved or zeroed.
    Allocate,
    /// A file gets another name.
    Rename,
    /// A file is removed.
    Remove,
    /// A directory is created.
    CreateDir,
    /// A directory is listed, or a file's metadata are read.
    Look,
}

impl Op {
    /// Whether the operation changes anything.
    pub fn changes(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::Look)
    }
}

/// The fate of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is executed.
    Go,
    /// It fails without an effect, with this error number of the operating system.
    Fail(i32),
    /// A write takes only half of the bytes (one, if there is only one); other operations are executed.
    Short,
}

/// A movement of a file's bytes towards the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Written to the page cache, or directly to the device.
    Write {
        /// Offset in the file.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Whether the page cache is bypassed.
        direct: bool,
        /// Whether the bytes are durable when the write returns.
        durable: bool,
    },
    /// The cached bytes of a range are written to the device.
    WriteBack {
        /// Start of the range.
        offset: u64,
        /// Length of the range.
        len: u64,
    },
    /// All cached bytes are written to the device, and are durable.
    Sync,
}

/// Decides about each operation.
pub trait Hook: Send + Sync + Debug {
    /// Called before the operation; may be called by several threads at once.
    fn before(&self, op: Op, path: &Path) -> Verdict;

    /// Called when bytes of the file that was opened as `path` have moved.
    fn moved(&self, path: &Path, what: Move) {
        let _ = (path, what);
    }
}

/// Lets every operation be executed.
#[derive(Debug)]
pub struct Free;

impl Hook for Free {
    fn before(&self, _: Op, _: &Path) -> Verdict {
        Verdict::Go
    }
}

#[derive(Debug)]
struct Gate {
    hook: Arc<dyn Hook>,
    time: RwLock<()>,
    /// Their requests are the hooked files' own calls, in any order.
    queues: Arc<Queues>,
}

impl Gate {
    /// Asks the hook; while the result is held, time does not stop.
    fn pass(&self, op: Op, path: &Path) -> Result<(RwLockReadGuard<'_, ()>, bool)> {
        let moving = self.time.read().unwrap_or_else(PoisonError::into_inner);
        match self.hook.before(op, path) {
            Verdict::Go => Ok((moving, false)),
            Verdict::Short => Ok((moving, true)),
            Verdict::Fail(errno) => Err(Error::io(
                &format!("{op:?}, injected"),
                path,
                std::io::Error::from_raw_os_error(errno),
            )),
        }
    }
}

/// The file system.
#[derive(Debug)]
pub struct HookedFs {
    inner: Arc<dyn FileSystem>,
    gate: Arc<Gate>,
}

impl HookedFs {
    /// A file system that asks `hook` and uses the machine's file system.
    pub fn new(hook: Arc<dyn Hook>) -> Arc<Self> {
        Self::over(io::posix::Posix::shared(), hook)
    }

    /// A file system that asks `hook` and uses `inner`.
    pub fn over(inner: Arc<dyn FileSystem>, hook: Arc<dyn Hook>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            gate: Arc::new(Gate {
                hook,
                time: RwLock::new(()),
                queues: Arc::default(),
            }),
        })
    }

    /// Runs `f` while no operation of this file system is in progress.
    pub fn frozen<T>(&self, f: impl FnOnce() -> T) -> T {
        let _stopped = self
            .gate
            .time
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        f()
    }
}

impl FileSystemWrapper for HookedFs {
    fn inner(&self) -> &dyn FileSystem {
        &*self.inner
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn File>> {
        let op = if how.write { Op::OpenWrite } else { Op::Open };
        let _moving = self.gate.pass(op, path)?;
        Ok(Arc::new(HookedFile {
            inner: self.inner.open(path, how)?,
            gate: Arc::clone(&self.gate),
            path: path.to_path_buf(),
            direct: how.direct,
        }))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let _moving = self.gate.pass(Op::Look, path)?;
        self.inner.metadata(path)
    }

    fn same_file(&self, a: &Path, b: &Path) -> Result<bool> {
        let _moving = self.gate.pass(Op::Look, a)?;
        self.inner.same_file(a, b)
    }

    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        let _moving = self.gate.pass(Op::Look, dir)?;
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        let _moving = self.gate.pass(Op::CreateDir, dir)?;
        self.inner.create_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let _moving = self.gate.pass(Op::Rename, to)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let _moving = self.gate.pass(Op::Remove, path)?;
        self.inner.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        let _moving = self.gate.pass(Op::Remove, dir)?;
        self.inner.remove_dir(dir)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let _moving = self.gate.pass(Op::Rename, to)?;
        self.inner.hard_link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let _moving = self.gate.pass(Op::SyncDir, dir)?;
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let _moving = self.gate.pass(Op::OpenWrite, path)?;
        self.inner.lock(path)
    }

    fn queue(&self) -> Option<Box<dyn Backend>> {
        Some(self.gate.queues.make())
    }

    fn probe(&self, dir: &Path) -> Result<Probe> {
        let _moving = self.gate.pass(Op::Look, dir)?;
        self.inner.probe(dir)
    }

    fn hold(&self, dir: &Path) -> Result<Option<Arc<dyn FileSystem>>> {
        let _moving = self.gate.pass(Op::Look, dir)?;
        let held = self.inner.hold(dir)?.map(|inner| {
            let gate = Arc::clone(&self.gate);
            Arc::new(Self { inner, gate }) as _
        });
        Ok(held)
    }
}

#[derive(Debug)]
struct HookedFile {
    inner: Arc<dyn File>,
    gate: Arc<Gate>,
    path: PathBuf,
    direct: bool,
}

impl HookedFile {
    fn moved(&self, what: Move) {
        self.gate.hook.moved(&self.path, what);
    }

    fn written(&self, offset: u64, len: u64, durable: bool) {
        self.moved(Move::Write {
            offset,
            len,
            direct: self.direct,
            durable,
        });
    }
}

impl FileWrapper for HookedFile {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let _moving = self.gate.pass(Op::Read, &self.path)?;
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize> {
        let (_moving, short) = self.gate.pass(Op::Write, &self.path)?;
        let len = if short && !data.is_empty() {
            (data.len() / 2).max(1)
        } else {
            data.len()
        };
        let n = self.inner.write_at(&data[..len], offset, sync)?;
        self.written(offset, n as u64, sync != WriteSync::None);
        Ok(n)
    }

    fn sync(&self, kind: SyncKind) -> Result<()> {
        let _moving = self.gate.pass(Op::Sync, &self.path)?;
        self.inner.sync(kind)?;
        self.moved(Move::Sync);
        Ok(())
    }

    fn start_writeback(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.start_writeback(offset, len)?;
        self.moved(Move::WriteBack { offset, len });
        Ok(())
    }

    fn write_back(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.write_back(offset, len)?;
        self.moved(Move::WriteBack { offset, len });
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let _moving = self.gate.pass(Op::Truncate, &self.path)?;
        self.inner.truncate(len)
    }

    fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let _moving = self.gate.pass(Op::Allocate, &self.path)?;
        self.inner.allocate(offset, len, keep_size)
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        let _moving = self.gate.pass(Op::Allocate, &self.path)?;
        self.inner.zero(offset, len)?;
        self.written(offset, len, false);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let _moving = self.gate.pass(Op::Look, &self.path)?;
        self.inner.len()
    }
}
