//! Appended ≤ submitted ≤ durable: how far a log has come.
//!
//! A position in the log ([`Lsn`]) passes three marks. *Appended*: framed in the process. *Submitted*:
//! in the hands of the operating system, so that it survives the process. *Durable*: on the device.
//! The marks only rise, in that order; readers of them need no lock.
//!
//! The error of the first failed write or sync is kept here and ends the log: every later operation
//! returns it. Syncs run one at a time under `device`, because the kernel reports a write-back error
//! to one caller only: of two concurrent syncs, one would see success.
//!
//! The first operation that makes bytes of a log durable makes its name durable too
//! ([`Writer::named`](crate::Writer::named)). Each such operation also checks that the log's directory
//! is still at its path: whoever opens the path again does not find what lies in a directory that was
//! removed or replaced.

use std::fmt;
use std::sync::{Arc, OnceLock};

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, FileNumber, Result};
use io::{File, SyncKind};

use crate::locks;
use crate::names::Names;

/// A position in one log file: bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A log and where it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogEnd {
    /// The number of the log; 0 stands for no log.
    pub number: FileNumber,
    /// The end: all bytes before it belong to the log.
    pub end: Lsn,
}

impl LogEnd {
    /// No log, or none that is needed.
    pub const NONE: Self = Self {
        number: FileNumber(0),
        end: Lsn(0),
    };

    /// Whether the log holds nothing.
    pub fn is_empty(self) -> bool {
        self.end == Lsn(0)
    }
}

/// How far one log has come, and whether it failed.
#[derive(Debug)]
pub struct Watermarks {
    appended: AtomicU64,
    submitted: AtomicU64,
    durable: AtomicU64,
    failure: OnceLock<Error>,
    /// The names of the directory where the file lies, if they are tracked.
    names: OnceLock<Arc<Names>>,
    device: Mutex<Device>,
}

/// State of the file that is guarded by the lock that is held during each sync.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// File offset up to which blocks are known to be allocated.
    pub(crate) allocated: u64,
    /// The file's place in [`Names`], until its name is known to be durable.
    unnamed: Option<u64>,
}

impl Watermarks {
    /// A log whose first `offset` bytes are durable.
    pub(crate) fn new(offset: u64) -> Self {
        Self {
            appended: AtomicU64::new(offset),
            submitted: AtomicU64::new(offset),
            durable: AtomicU64::new(offset),
            failure: OnceLock::new(),
            names: OnceLock::new(),
            device: ranked(locks::DEVICE, Device::default()),
        }
    }

    /// Everything before this position is framed in the process.
    pub fn appended(&self) -> Lsn {
        Lsn(self.appended.load(Ordering::Acquire))
    }

    /// Everything before this position survives the process.
    pub fn submitted(&self) -> Lsn {
        Lsn(self.submitted.load(Ordering::Acquire))
    }

    /// Everything before this position survives a power cut.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// The error that ended the log, if one did.
    pub fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    /// Errors: the marks are not in their order.
    pub(crate) fn check_order(&self) -> Result<()> {
        // Read from the lowest to the highest: the others may rise meanwhile, and the order still holds.
        let durable = self.durable();
        let submitted = self.submitted();
        let appended = self.appended();
        if durable <= submitted && submitted <= appended {
            return Ok(());
        }
        Err(Error::broken(format!(
            "of a log {appended} bytes are appended, {submitted} submitted, {durable} durable"
        )))
    }

    pub(crate) fn set_appended(&self, to: u64) {
        self.appended.store(to, Ordering::Release);
    }

    pub(crate) fn set_submitted(&self, to: u64) {
        self.submitted.store(to, Ordering::Release);
    }

    pub(crate) fn raise_durable(&self, to: Lsn) {
        self.durable.fetch_max(to.0, Ordering::AcqRel);
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    /// Ends the log with `error` unless it has ended already; returns the error that ended it.
    pub(crate) fn poison(&self, error: Error) -> Error {
        self.failure.get_or_init(|| error).clone()
    }

    /// The lock that is held during each sync.
    pub(crate) fn device(&self) -> MutexGuard<'_, Device> {
        // The guarded state changes only after an operation is complete, so a panic leaves it consistent.
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the directory of the file: `names`. If the file's name is not durable, `unnamed` is its
    /// place there.
    pub(crate) fn set_names(&self, names: Arc<Names>, unnamed: Option<u64>) {
        self.names.get_or_init(|| names);
        self.device().unnamed = unnamed;
    }

    /// Makes the content of `file` durable, and its name.
    pub(crate) fn sync(&self, device: &mut Device, file: &dyn File) -> Result<()> {
        file.sync(SyncKind::Data)?;
        if let (Some(names), Some(nth)) = (self.names.get(), device.unnamed) {
            names.make_durable(nth)?;
            device.unnamed = None;
        }
        self.check_held()
    }

    /// Errors: the directory is not where it was.
    pub(crate) fn check_held(&self) -> Result<()> {
        self.names.get().map_or(Ok(()), |names| names.check_held())
    }
}

/// Makes submitted bytes durable without holding the [`Writer`](crate::Writer), so that others may
/// append meanwhile.
#[derive(Clone, Debug)]
pub struct Syncer {
    file: Arc<dyn File>,
    marks: Arc<Watermarks>,
}

impl Syncer {
    pub(crate) fn new(file: Arc<dyn File>, marks: Arc<Watermarks>) -> Self {
        Self { file, marks }
    }

    /// Makes durable everything that is submitted at the time of the call, and returns that position.
    /// A failure ends the log.
    pub fn sync(&self) -> Result<Lsn> {
        let mut device = self.marks.device();
        self.marks.check()?;
        let target = self.marks.submitted();
        if target > self.marks.durable() {
            self.marks
                .sync(&mut device, &*self.file)
                .map_err(|e| self.marks.poison(e))?;
            self.marks.raise_durable(target);
            self.marks
                .check_order()
                .map_err(|e| self.marks.poison(e.or_file(self.file.path())))?;
        }
        Ok(target)
    }

    /// How far the log has come.
    pub fn marks(&self) -> &Watermarks {
        &self.marks
    }
}
