//! A growing file that is written by stores into memory, where a window of it is mapped, and by calls elsewhere.
//!
//! A store costs a tenth of a call, and guarantees the same: the bytes are in the page cache, so that they survive the
//! end of the process. The windows are made ahead by another thread, with blocks and pages, so that no writer waits for
//! them:
//!
//! ```text
//!   file    |───── written ─────|·· window ··|·· next window ··|
//!                               ^ stores     ^ made by `prepare`, when the window before is half full
//! ```
//!
//! The file is longer than what was written as long as there is a window: zeros follow. A page that cannot be written is an
//! error of the write, as with calls.
#![expect(
    unsafe_code,
    reason = "shared mappings of files have no safe interface"
)]

mod fault;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, ErrorKind, Result};
use rustix::mm::{Advice as MemoryAdvice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::{Advice, File, MAPPINGS_ARE_USED, SyncKind, WriteSync, locks};
use fault::Known;

/// Bytes of a window: whole pages.
const WINDOW: u64 = 4 << 20;

/// A file with windows; see the module.
///
/// ```
/// use io::{File, FileSystem, MappedFile, OpenHow, SyncKind, WriteSync, posix::Posix, write_all_at};
///
/// let dir = tempfile::tempdir()?;
/// let file = Posix.open(&dir.path().join("000007.log"), OpenHow::CREATE_NEW)?;
/// let file = MappedFile::new(&file).expect("a plain file of the system");
/// file.prepare()?; // by another thread, whenever `is_due`
/// write_all_at(&*file, b"a record", 0, WriteSync::None)?;
/// file.sync(SyncKind::Data)?;
/// file.truncate(8)?; // before, zeros follow
/// assert_eq!(std::fs::read(file.path()).unwrap(), b"a record");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MappedFile {
    file: Arc<dyn File>,
    /// Another descriptor of the file, for mapping it.
    fd: OwnedFd,
    windows: Mutex<Windows>,
    /// Where the last write ended.
    end: AtomicU64,
    /// No window can be made any more.
    given_up: AtomicBool,
}

#[derive(Default)]
struct Windows {
    now: Option<Window>,
    next: Option<Window>,
    /// Left behind; unmapped by [`MappedFile::prepare`], because that takes long.
    old: Vec<Window>,
    /// Where the next window to be made begins.
    upto: u64,
    /// Raised when windows are dropped, so that one that is being made is not used.
    version: u64,
}

/// A piece of a file in memory.
struct Window {
    known: Option<Known>,
    base: NonNull<u8>,
    /// Where it begins in the file.
    from: u64,
}

// SAFETY: the mapping is this value's own, and is written under the lock of its file alone.
unsafe impl Send for Window {}

impl Window {
    /// Maps bytes of the file, which has them, with all pages.
    fn new(fd: BorrowedFd<'_>, from: u64) -> rustix::io::Result<Self> {
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
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        let mut window = Self {
            known: None,
            base,
            from,
        };
        // SAFETY: the range is this mapping; its pages are made, with their content.
        unsafe { madvise(base.as_ptr().cast(), len, MemoryAdvice::LinuxPopulateWrite)? };
        window.known = Known::new(base.as_ptr() as usize, len);
        match window.known {
            Some(_) => Ok(window),
            None => Err(rustix::io::Errno::NOBUFS),
        }
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
    /// A file that is written through windows, once [`MappedFile::prepare`] has made some. `None` if that is impossible:
    /// the file is no plain file of the system.
    pub fn new(file: &Arc<dyn File>) -> Option<Arc<Self>> {
        if !MAPPINGS_ARE_USED {
            return None;
        }
        let fd = file.descriptor()?.try_clone_to_owned().ok()?;
        let end = file.len().ok()?;
        Some(Arc::new(Self {
            file: Arc::clone(file),
            fd,
            windows: ranked(
                locks::WINDOWS,
                Windows {
                    upto: end,
                    ..Windows::default()
                },
            ),
            end: AtomicU64::new(end),
            given_up: AtomicBool::new(false),
        }))
    }

    fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether [`MappedFile::prepare`] has something to do.
    pub fn is_due(&self) -> bool {
        if self.given_up.load(Ordering::Relaxed) {
            return false;
        }
        let windows = self.windows();
        windows.is_due(self.end.load(Ordering::Relaxed))
    }

    /// Makes no windows any more: the file is written by calls from now on.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Makes the next window, if it is due, and unmaps those that are not needed any more. Errors: the system does not make
    /// one, so that [`MappedFile::give_up`] was called.
    pub fn prepare(&self) -> Result<()> {
        let (old, begin) = {
            let mut windows = self.windows();
            let old = std::mem::take(&mut windows.old);
            let end = self.end.load(Ordering::Relaxed);
            let is_due = windows.is_due(end) && !self.given_up.load(Ordering::Relaxed);
            // From the page that is written now; what is before is in no window.
            windows.upto = windows.upto.max(end / PAGE * PAGE);
            (old, is_due.then_some((windows.upto, windows.version)))
        };
        drop(old);
        let Some((from, version)) = begin else {
            return Ok(());
        };
        let made = self.file.allocate(from, WINDOW, false).and_then(|()| {
            let made = Window::new(self.fd.as_fd(), from);
            made.map_err(|e| Error::io("map", self.file.path(), e.into()))
        });
        let window = made.inspect_err(|_| self.give_up())?;
        let mut windows = self.windows();
        if windows.version != version {
            // The file was cut meanwhile.
            windows.old.push(window);
            return Ok(());
        }
        windows.upto = from + WINDOW;
        if windows.now.is_none() {
            windows.now = Some(window);
        } else {
            windows.next = Some(window);
        }
        Ok(())
    }
}

const PAGE: u64 = crate::buffer::PAGE as u64;

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

    /// Leaves all windows, because the file ends at `len` now.
    fn leave(&mut self, len: u64) {
        self.old
            .extend(self.now.take().into_iter().chain(self.next.take()));
        self.version += 1;
        self.upto = len;
    }

    /// Whether a window is to be made, or an old one unmapped, if the last write ended at `end`.
    fn is_due(&self, end: u64) -> bool {
        match &self.now {
            None => true,
            Some(now) => {
                (self.next.is_none() && end >= now.from + WINDOW / 2) || !self.old.is_empty()
            }
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
        if sync == WriteSync::None {
            let mut windows = self.windows();
            let stored = windows.store(data, offset);
            if stored.is_none() {
                windows.leave(offset);
                self.give_up();
            }
            drop(windows);
            match stored {
                Some(0) => {}
                Some(len) => {
                    self.end.fetch_max(offset + len as u64, Ordering::Relaxed);
                    return Ok(len);
                }
                None => {
                    let text = "write: the system could not write a page of the mapped file";
                    return Err(Error::new(ErrorKind::IoError, text)
                        .file(self.path())
                        .offset(offset));
                }
            }
        }
        let len = self.file.write_at(data, offset, sync)?;
        self.end.fetch_max(offset + len as u64, Ordering::Relaxed);
        Ok(len)
    }

    fn sync(&self, kind: SyncKind) -> Result<()> {
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
        // A store behind the end of a file fails.
        let mut windows = self.windows();
        windows.leave(len);
        self.file.truncate(len)?;
        self.end.store(len, Ordering::Relaxed);
        Ok(())
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
mod tests {
    use std::os::unix::fs::FileExt as _;

    use crate::posix::Posix;
    use crate::{FileSystem, OpenHow, write_all_at};

    use super::*;

    struct World {
        dir: tempfile::TempDir,
        file: Arc<MappedFile>,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let file = Posix
                .open(&dir.path().join("f"), OpenHow::CREATE_NEW)
                .unwrap();
            let file = MappedFile::new(&file).unwrap();
            Self { dir, file }
        }

        fn content(&self) -> Vec<u8> {
            std::fs::read(self.dir.path().join("f")).unwrap()
        }

        fn has_window(&self) -> bool {
            self.file.windows().now.is_some()
        }
    }

    /// Records of odd lengths, over many windows, with and without a thread that keeps up.
    #[test]
    fn what_is_stored_is_in_the_file() {
        for every in [1, 7, 50, usize::MAX] {
            let world = World::new();
            let (mut all, mut at) = (Vec::new(), 0);
            for n in 0..150_usize {
                let record: Vec<u8> = (0..(n * 7919) % 200_000).map(|i| (i + n) as u8).collect();
                write_all_at(&*world.file, &record, at, WriteSync::None).unwrap();
                all.extend_from_slice(&record);
                at += record.len() as u64;
                if n % every == every - 1 {
                    world.file.prepare().unwrap();
                }
            }
            let content = world.content();
            assert!(content.starts_with(&all));
            assert!(content[all.len()..].iter().all(|b| *b == 0));
            assert_eq!(world.has_window(), every != usize::MAX);
            world.file.truncate(at).unwrap();
            assert!(world.content() == all);
            // It goes on behind that, by calls and in new windows.
            for n in 0..3_u8 {
                write_all_at(&*world.file, &[n; 5000], at, WriteSync::None).unwrap();
                all.extend([n; 5000]);
                at += 5000;
                world.file.prepare().unwrap();
            }
            world.file.sync(SyncKind::Data).unwrap();
            assert!(world.content().starts_with(&all));
        }
    }

    #[test]
    fn windows_are_made_when_they_are_due_and_old_ones_go() {
        let world = World::new();
        assert!(world.file.is_due());
        world.file.prepare().unwrap();
        assert!(!world.file.is_due());
        let piece = vec![1; 1 << 20];
        let mut at = 0;
        for _ in 0..20 {
            write_all_at(&*world.file, &piece, at, WriteSync::None).unwrap();
            at += piece.len() as u64;
            if world.file.is_due() {
                world.file.prepare().unwrap();
            }
            let windows = world.file.windows();
            assert!(windows.old.len() < 2 && windows.now.is_some());
            assert!(windows.upto <= at + 2 * WINDOW);
        }
    }

    /// The file is cut behind the back of its windows, so that a store finds no page: the write fails, and nothing else.
    #[test]
    fn a_page_that_cannot_be_written_is_an_error() {
        let world = World::new();
        world.file.prepare().unwrap();
        write_all_at(&*world.file, b"first", 0, WriteSync::None).unwrap();
        let other = Posix
            .open(&world.dir.path().join("f"), OpenHow::UPDATE)
            .unwrap();
        other.truncate(5).unwrap();
        // The first page has the end of the file in it.
        let e = write_all_at(&*world.file, &[7; 10_000], 5, WriteSync::None).unwrap_err();
        assert!(
            e.to_string().contains("mapped") && e.path().is_some(),
            "{e}"
        );
        assert!(!world.file.is_due(), "no window is made any more");
        // Calls work; a database does not make them after a failure.
        write_all_at(&*world.file, b"third", 5, WriteSync::None).unwrap();
        assert!(world.content().starts_with(b"firstthird"));
        // Other files have their windows.
        let another = World::new();
        another.file.prepare().unwrap();
        write_all_at(&*another.file, &[7; 10_000], 0, WriteSync::None).unwrap();
        assert!(another.has_window());
    }

    /// A fault elsewhere ends the process as it would without the handler.
    #[test]
    fn other_faults_are_passed_on() {
        const CHILD: &str = "IRONSTONE_TEST_SIGBUS";
        if std::env::var_os(CHILD).is_some() {
            let world = World::new();
            world.file.prepare().unwrap();
            let path = world.dir.path().join("other");
            let file = std::fs::File::create_new(&path).unwrap();
            file.write_all_at(&[1; 4096], 0).unwrap();
            // SAFETY: a new mapping; reading it faults, on purpose.
            unsafe {
                let flags = MapFlags::SHARED;
                let base = mmap(ptr::null_mut(), 8192, ProtFlags::READ, flags, &file, 0);
                let base: *const u8 = base.unwrap().cast();
                std::hint::black_box(base.add(4096).read_volatile());
            }
            unreachable!("the process has ended");
        }
        let me = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new(me);
        let name = "mapped::tests::other_faults_are_passed_on";
        child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
        let ended = child.output().unwrap().status;
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
        assert!(
            signal == Some(libc::SIGBUS) || signal == Some(libc::SIGABRT),
            "{ended:?}"
        );
    }

    #[test]
    fn files_of_no_descriptor_have_no_windows() {
        #[derive(Debug)]
        struct Wrapped(Arc<dyn File>);
        impl crate::FileWrapper for Wrapped {
            fn inner(&self) -> &dyn File {
                &*self.0
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let file = Posix
            .open(&dir.path().join("f"), OpenHow::CREATE_NEW)
            .unwrap();
        let file: Arc<dyn File> = Arc::new(Wrapped(file));
        assert!(MappedFile::new(&file).is_none());
    }
}
