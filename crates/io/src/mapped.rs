//! A growing file that is written by stores into memory, where a window of it is mapped, and by calls elsewhere.
//!
//! A store takes a fifth to a seventh of the time of a call. As with a call, the bytes are in the page cache then, so that
//! they survive the end of the process; but a process that is killed in the middle of a store leaves half of a write. The
//! windows are made ahead by another thread, with blocks and pages:
//!
//! ```text
//!   file    |───── written ─────|·· window ··|·· next window ··|
//!                               ^ stores     ^ made by `prepare`, when the window before is half full
//! ```
//!
//! With windows, the file is longer than what was written, and zeros follow, until [`MappedFile::end`] or
//! [`MappedFile::leave`] cuts it. A page that cannot be written is an error of the write, as with calls, but always an I/O
//! error, never that the device is full.
//!
//! A sync writes all pages of the windows, also those that are still zeros, and so does the system after some time. So
//! windows are made only while much is written without a sync. Writes above 4 KiB are calls: to make a page of a window
//! costs as much as to write it by a call.
#![expect(
    unsafe_code,
    reason = "shared mappings of files have no safe interface"
)]

mod fault;

use std::fmt;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, ErrorKind, Result};
use rustix::fs::{OFlags, fcntl_getfl, fstatfs};
use rustix::io::Errno;
use rustix::mm::{Advice as MemoryAdvice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::param::page_size;

use crate::{Advice, File, MAPPINGS_ARE_USED, SyncKind, WriteSync, locks};
use fault::Known;

/// Bytes of a window: whole blocks.
const WINDOW: u64 = 4 << 20;
/// Windows begin and end at multiples of this: a block of RocksDB's logs, in which no header crosses an end. So a file
/// that its writer did not end has no half header at its end.
const BLOCK: u64 = 32 << 10;
/// Bytes of a window whose pages are made by one call, a divisor of [`WINDOW`]. Meanwhile the kernel lets no other thread
/// change the process's mappings.
const PAGES_AT_ONCE: usize = 128 << 10;
/// The only size of pages with which files are mapped.
const PAGE: u64 = crate::buffer::PAGE as u64;
/// The largest write that is a store.
const STORE_MAX: usize = 4 << 10;
/// So many bytes must have been written since the last sync before a window is made. So a sync writes at most as many zeros
/// as bytes were written before it.
const UNSYNCED_MIN: u64 = 2 * WINDOW;
/// The file systems on which a store into allocated blocks needs no further space, unless somebody clones the file (XFS):
/// ext4, XFS, tmpfs. (Linux, `include/uapi/linux/magic.h`.)
const FILE_SYSTEMS: [u64; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];
/// So many windows in a row may be behind the writer when they are made. Then the file is written by calls.
const LATE_MAX: u32 = 8;

/// A file with windows; see the module.
///
/// ```
/// use io::{File, FileSystem, MappedFile, OpenHow, SyncKind, WriteSync, posix::Posix, write_all_at};
///
/// let dir = tempfile::tempdir()?;
/// let file = Posix.open(&dir.path().join("000007.log"), OpenHow::CREATE_NEW)?;
/// // `None` on a file system where this is not safe.
/// if let Some(file) = MappedFile::new(&file, u64::MAX) {
///     write_all_at(&*file, b"a call, ", 0, WriteSync::None)?;
///     file.prepare()?; // by another thread, whenever `is_due`
///     write_all_at(&*file, b"a store", 8, WriteSync::None)?;
///     file.sync(SyncKind::Data)?;
///     file.end(15)?; // before, zeros follow
///     assert_eq!(std::fs::read(file.path()).unwrap(), b"a call, a store");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MappedFile {
    file: Arc<dyn File>,
    written: Written,
    windows: Mutex<Windows>,
    /// There may be a window; if not, a write takes no lock.
    may_store: AtomicBool,
    /// A window was made, or could not be made.
    made: Condvar,
}

/// What was written so far. One thread writes at a time.
#[derive(Debug, Default)]
struct Written {
    /// Where the last write ended.
    end: AtomicU64,
    /// How many bytes were written since the last sync, at most [`UNSYNCED_MIN`]. Those of large writes are subtracted.
    unsynced: AtomicU64,
    /// Something was written that a window would have taken.
    is_storable: AtomicBool,
}

impl Written {
    /// Takes note of a write.
    fn note(&self, offset: u64, len: usize) {
        let (is_large, len) = (len > STORE_MAX, len as u64);
        let end = self.end().max(offset + len);
        self.end.store(end, Ordering::Relaxed);
        let unsynced = if is_large {
            self.unsynced().saturating_sub(len)
        } else {
            self.unsynced().saturating_add(len).min(UNSYNCED_MIN)
        };
        self.unsynced.store(unsynced, Ordering::Relaxed);
    }

    fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    fn unsynced(&self) -> u64 {
        self.unsynced.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Windows {
    now: Option<Window>,
    next: Option<Window>,
    /// Left behind; unmapped by [`MappedFile::prepare`], because that takes long.
    old: Vec<Window>,
    /// Where the next window to be made begins, at least.
    upto: u64,
    /// [`MappedFile::prepare`] makes a window now.
    is_making: bool,
    /// How much was written while the last window was made, but at most a window.
    lead: u64,
    /// Where the file ends, once the window that is being made is there.
    cut_to: Option<u64>,
    /// Windows in a row that were behind the writer when they were made.
    late: u32,
    /// No window is made any more.
    given_up: bool,
}

/// A piece of a file in memory.
struct Window {
    /// Forgotten before the memory is unmapped.
    known: Option<Known>,
    base: NonNull<u8>,
    /// Where it begins in the file.
    from: u64,
}

// SAFETY: the mapping is this value's own, and is written under the lock of its file alone.
unsafe impl Send for Window {}

impl Window {
    /// Maps bytes of the file, which has them, with all pages.
    fn new(mut known: Known, fd: BorrowedFd<'_>, from: u64) -> Result<Self, Errno> {
        let len = WINDOW as usize;
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                from,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let mut window = Self {
            known: None,
            base,
            from,
        };
        for at in (0..len).step_by(PAGES_AT_ONCE) {
            // SAFETY: the range is a part of this mapping; its pages are made, with their content.
            unsafe {
                let part = base.as_ptr().add(at);
                madvise(part.cast(), PAGES_AT_ONCE, MemoryAdvice::LinuxPopulateWrite)?;
            }
        }
        known.begin(base.as_ptr() as usize, len);
        window.known = Some(known);
        Ok(window)
    }

    /// Stores the part of `data`, which is at `offset` of the file, that is in the window. Returns how much that is.
    /// `None`: a page could not be written.
    fn store(&self, data: &[u8], offset: u64) -> Option<usize> {
        let Some(at) = offset.checked_sub(self.from).filter(|at| *at < WINDOW) else {
            return Some(0);
        };
        let len = data.len().min((WINDOW - at) as usize);
        // SAFETY: `at + len` is at most the window's length, and nobody else reads or writes the memory meanwhile.
        unsafe {
            let to = self.base.as_ptr().add(at as usize);
            ptr::copy_nonoverlapping(data.as_ptr(), to, len);
        }
        let failed = self.known.as_ref().is_none_or(Known::has_failed);
        (!failed).then_some(len)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.known = None;
        // SAFETY: these bytes are this value's alone, and nobody else unmaps them.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), WINDOW as usize) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

impl MappedFile {
    /// A file that is written through windows, once [`MappedFile::prepare`] has made some. `unsynced`: how many bytes were
    /// written without a sync before, to files that this one continues. `None` if windows are impossible: the file is no
    /// plain file of a file system that is known to be fit, or is direct, or the system's pages have another size.
    pub fn new(file: &Arc<dyn File>, unsynced: u64) -> Option<Arc<Self>> {
        if !MAPPINGS_ARE_USED || page_size() as u64 != PAGE {
            return None;
        }
        let fd = file.descriptor()?;
        if fcntl_getfl(fd).ok()?.contains(OFlags::DIRECT) {
            return None;
        }
        if !FILE_SYSTEMS.contains(&(fstatfs(fd).ok()?.f_type as u64)) {
            return None;
        }
        let end = file.len().ok()?;
        let written = Written {
            end: AtomicU64::new(end),
            unsynced: AtomicU64::new(unsynced.min(UNSYNCED_MIN)),
            ..Written::default()
        };
        let windows = Windows {
            upto: end / BLOCK * BLOCK,
            ..Windows::default()
        };
        Some(Arc::new(Self {
            file: Arc::clone(file),
            written,
            may_store: AtomicBool::new(false),
            windows: ranked(locks::WINDOWS, windows),
            made: Condvar::new(),
        }))
    }

    fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether [`MappedFile::prepare`] has something to do that nobody does yet.
    pub fn is_due(&self) -> bool {
        let windows = self.windows();
        (windows.is_due(&self.written) && !windows.is_making) || !windows.old.is_empty()
    }

    /// Whether nothing but writes changes the file any more, and no memory is left to be unmapped.
    pub fn is_finished(&self) -> bool {
        let windows = self.windows();
        windows.given_up && !windows.is_making && windows.old.is_empty()
    }

    /// How many bytes were written since the last sync, for [`MappedFile::new`].
    pub fn unsynced(&self) -> u64 {
        self.written.unsynced()
    }

    /// Makes the next window, if it is due, and unmaps those that are not needed any more. Errors: the system does not make
    /// one, so that the file is written by calls from now on.
    pub fn prepare(&self) -> Result<()> {
        let mut windows = self.windows();
        let old = std::mem::take(&mut windows.old);
        let before = self.written.end();
        let due = windows.is_due(&self.written) && !windows.is_making;
        // Ends after the locks below are released.
        let making = due.then(|| (windows.begin(before), Making(self)));
        drop(windows);
        drop(old);
        let Some((from, _making)) = making else {
            return Ok(());
        };
        let made = self.make(from);
        let mut windows = self.windows();
        match made {
            Ok(Some(window)) => {
                windows.take(window, before, self.written.end());
                self.may_store.store(true, Ordering::Release);
                Ok(())
            }
            other => {
                windows.give_up();
                other.map(drop)
            }
        }
    }

    /// Stores the first part of `data` that is in one window. Returns how much that is. Errors: a page could not be written.
    fn store(&self, data: &[u8], offset: u64) -> Result<usize> {
        if !self.may_store.load(Ordering::Acquire) {
            return Ok(0);
        }
        let mut windows = self.windows();
        if windows.now.is_none() {
            self.may_store.store(false, Ordering::Release);
            return Ok(0);
        }
        windows.store(data, offset).ok_or_else(|| {
            windows.give_up();
            let text = "write: the system could not write a page of the mapped file";
            Error::new(ErrorKind::IoError, text)
                .file(self.path())
                .offset(offset)
        })
    }

    /// Makes a window from this byte of the file on. `None`: the process has as many as it can have.
    fn make(&self, from: u64) -> Result<Option<Window>> {
        let Some((known, fd)) = Known::reserve().zip(self.file.descriptor()) else {
            return Ok(None);
        };
        self.file.allocate(from, WINDOW, false)?;
        let made = Window::new(known, fd, from);
        made.map(Some)
            .map_err(|e| Error::io("map", self.file.path(), e.into()))
    }

    /// Leaves the windows for good: the file is written by calls from now on. With `len`, ends the file there; this does not
    /// wait for a window that is being made, but happens when that is there, so that nothing must be written any more.
    /// If it fails, zeros remain.
    pub fn leave(&self, len: Option<u64>) {
        let mut windows = self.windows();
        windows.give_up();
        let Some(len) = len else {
            return;
        };
        if windows.is_making {
            windows.cut_to = Some(len);
        } else {
            drop(windows);
            drop(self.file.truncate(len));
        }
    }

    /// Leaves the windows for good, and waits for one that is being made. Afterwards, nothing but writes changes the file.
    pub fn finish(&self) {
        self.windows_left().given_up = true;
    }

    /// Ends the file at `len`, and leaves the windows for good: what follows is written by calls. Waits for a window that is
    /// being made. Errors: those of [`File::truncate`].
    pub fn end(&self, len: u64) -> Result<()> {
        self.cut(len, true)
    }

    /// Leaves the windows, after a window that is being made: that one makes the file longer.
    fn windows_left(&self) -> MutexGuard<'_, Windows> {
        let mut windows = self.windows();
        while windows.is_making {
            windows = self
                .made
                .wait(windows)
                .unwrap_or_else(PoisonError::into_inner);
        }
        windows.leave();
        windows
    }

    fn cut(&self, len: u64, for_good: bool) -> Result<()> {
        // Before: a store behind the end of a file fails.
        let mut windows = self.windows_left();
        windows.given_up |= for_good;
        self.file.truncate(len)?;
        self.written.end.store(len, Ordering::Relaxed);
        windows.upto = len / BLOCK * BLOCK;
        Ok(())
    }
}

/// A window is being made, until this is dropped. Then the file is cut, if it was ended meanwhile.
struct Making<'a>(&'a MappedFile);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        loop {
            let mut windows = self.0.windows();
            let Some(len) = windows.cut_to.take() else {
                windows.is_making = false;
                break;
            };
            drop(windows);
            drop(self.0.file.truncate(len));
        }
        self.0.made.notify_all();
    }
}

impl Windows {
    /// Stores the first part of `data` that is in one window. Returns how much that is; `None`: it failed.
    fn store(&mut self, data: &[u8], offset: u64) -> Option<usize> {
        let Some(now) = &self.now else {
            return Some(0);
        };
        let stored = now.store(data, offset);
        if stored != Some(0) || offset < now.from + WINDOW {
            return stored;
        }
        // Behind the window: the next one takes its place.
        let next = self.next.take();
        self.old.extend(std::mem::replace(&mut self.now, next));
        self.now
            .as_ref()
            .map_or(Some(0), |now| now.store(data, offset))
    }

    fn leave(&mut self) {
        self.old
            .extend(self.now.take().into_iter().chain(self.next.take()));
    }

    fn give_up(&mut self) {
        self.given_up = true;
        self.leave();
    }

    /// Whether a window is to be made.
    fn is_due(&self, written: &Written) -> bool {
        if self.given_up || written.unsynced() < UNSYNCED_MIN {
            return false;
        }
        match &self.now {
            None => written.is_storable.load(Ordering::Relaxed),
            Some(now) => self.next.is_none() && written.end() >= now.from + WINDOW / 2,
        }
    }

    /// Begins to make a window when the last write ended at `end`. Returns where it begins: if it is the first one, behind
    /// what is written meanwhile.
    fn begin(&mut self, end: u64) -> u64 {
        self.is_making = true;
        let lead = self.now.as_ref().map_or(self.lead, |_| 0);
        self.upto.max(end.saturating_add(lead) / BLOCK * BLOCK)
    }

    /// Takes a new window. When it was begun, the last write had ended at `before`, and ends at `end` now.
    fn take(&mut self, window: Window, before: u64, end: u64) {
        self.upto = window.from + WINDOW;
        self.lead = end.saturating_sub(before).min(WINDOW);
        if self.given_up || end >= self.upto {
            self.late += 1;
            self.given_up |= self.late >= LATE_MAX;
            self.old.push(window);
            return;
        }
        self.late = 0;
        if self.now.is_none() {
            self.now = Some(window);
        } else {
            self.next = Some(window);
        }
    }
}

impl File for MappedFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize> {
        if sync == WriteSync::None && data.len() <= STORE_MAX && fault::is_taken_here() {
            self.written.is_storable.store(true, Ordering::Relaxed);
            let stored = self.store(data, offset)?;
            if stored > 0 {
                self.written.note(offset, stored);
                return Ok(stored);
            }
        }
        let len = self.file.write_at(data, offset, sync)?;
        self.written.note(offset, len);
        Ok(len)
    }

    /// Several slices are always a call: they are large.
    fn write_vectored_at(
        &self,
        slices: &[IoSlice<'_>],
        offset: u64,
        sync: WriteSync,
    ) -> Result<usize> {
        let len = self.file.write_vectored_at(slices, offset, sync)?;
        self.written.note(offset, len);
        Ok(len)
    }

    fn sync(&self, kind: SyncKind) -> Result<()> {
        self.written.unsynced.store(0, Ordering::Relaxed);
        // Also writes what was stored into the windows.
        self.file.sync(kind)
    }

    fn start_writeback(&self, offset: u64, len: u64) -> Result<()> {
        self.file.start_writeback(offset, len)
    }

    fn write_back(&self, offset: u64, len: u64) -> Result<()> {
        self.file.write_back(offset, len)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.cut(len, false)
    }

    fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.file.allocate(offset, len, keep_size)
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        self.file.zero(offset, len)
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn advise(&self, advice: Advice) {
        self.file.advise(advice);
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedFile")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(any(miri, tsan)))]
mod tests;
