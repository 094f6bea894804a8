//! Files for tests and measurements: one in memory, and one whose calls fail as a test wishes.

use std::fmt::{self, Debug, Formatter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{PoisonError, RwLock};
use base::{Error, Result};

use crate::{Advice, File, FileWrapper, SyncKind, WriteSync};

/// A file in memory.
#[derive(Debug)]
pub struct Memory {
    path: PathBuf,
    bytes: RwLock<Vec<u8>>,
}

impl Memory {
    /// A file with this content.
    pub fn new(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            path: path.into(),
            bytes: RwLock::new(bytes),
        })
    }

    /// What it contains.
    pub fn content(&self) -> Vec<u8> {
        self.read(Clone::clone)
    }

    fn read<T>(&self, look: impl FnOnce(&Vec<u8>) -> T) -> T {
        look(&self.bytes.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.bytes.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl File for Memory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read(|all| {
            let rest = all.get(offset as usize..).unwrap_or_default();
            let n = rest.len().min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        })
    }

    fn write_at(&self, data: &[u8], offset: u64, _sync: WriteSync) -> Result<usize> {
        let end = offset as usize + data.len();
        self.change(|all| {
            if all.len() < end {
                all.resize(end, 0);
            }
            all[offset as usize..end].copy_from_slice(data);
        });
        Ok(data.len())
    }

    fn sync(&self, _kind: SyncKind) -> Result<()> {
        Ok(())
    }

    fn start_writeback(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.change(|all| all.resize(len as usize, 0));
        Ok(())
    }

    fn allocate(&self, _offset: u64, _len: u64, _keep_size: bool) -> Result<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        self.write_at(&vec![0; len as usize], offset, WriteSync::None)
            .map(drop)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.read(Vec::len) as u64)
    }

    fn advise(&self, _advice: Advice) {}
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It syncs.
    Sync,
}

/// A call of a [`Faulty`] file.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What it does.
    pub what: What,
    /// The number of this call among the calls of its kind, from 1.
    pub number: u64,
    /// The file's path.
    pub path: &'a Path,
    /// Where it reads or writes.
    pub offset: u64,
    /// The bytes to be written.
    pub data: &'a [u8],
}

impl Call<'_> {
    /// The error of a device.
    pub fn error(&self) -> Error {
        let what = match self.what {
            What::Read => "read",
            What::Write => "write",
            What::Sync => "sync",
        };
        Error::io(what, self.path, std::io::Error::from_raw_os_error(5)) // EIO
    }
}

/// Lets a call do everything: see [`Faulty::new`].
pub const ALL: usize = usize::MAX;

/// Decides about a call.
type Decide = Box<dyn Fn(&Call<'_>) -> Result<usize> + Send + Sync>;

/// A file that counts its calls and fails as a test decides.
pub struct Faulty {
    inner: Arc<dyn File>,
    decide: Decide,
    /// The number of calls of each kind, in the order of [`What`].
    calls: [AtomicU64; 3],
}

impl Faulty {
    /// Asks `decide` before each read, write and sync. A write takes at most as many bytes as it returns; with
    /// an error, the call fails and does not reach `inner`.
    pub fn new(
        inner: Arc<dyn File>,
        decide: impl Fn(&Call<'_>) -> Result<usize> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner,
            decide: Box::new(decide),
            calls: [(); 3].map(|()| AtomicU64::new(0)),
        })
    }

    /// The number of calls of a kind.
    pub fn calls(&self, what: What) -> u64 {
        self.calls[what as usize].load(Ordering::Relaxed)
    }

    fn ask(&self, what: What, data: &[u8], offset: u64) -> Result<usize> {
        let number = self.calls[what as usize].fetch_add(1, Ordering::Relaxed) + 1;
        (self.decide)(&Call {
            what,
            number,
            path: self.inner.path(),
            offset,
            data,
        })
    }
}

impl Debug for Faulty {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faulty").field(&self.inner).finish()
    }
}

impl FileWrapper for Faulty {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.ask(What::Read, &[], offset)?;
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize> {
        let most = self.ask(What::Write, data, offset)?;
        let data = &data[..data.len().min(most)];
        self.inner.write_at(data, offset, sync)
    }

    fn sync(&self, kind: SyncKind) -> Result<()> {
        self.ask(What::Sync, &[], 0)?;
        self.inner.sync(kind)
    }
}
