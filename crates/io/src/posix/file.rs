//! An open file of the real file system.
//!
//! Positional calls only, so that threads share one descriptor without a lock. For a direct file
//! the alignment of offset, length and address is checked here, because the kernel reports all
//! three mistakes, and others, with the same `EINVAL`.
#![expect(unsafe_code, reason = "sync_file_range has no safe wrapper in rustix")]

use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use base::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use base::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::{kinds, os_error};
use crate::buffer::{AlignedBuf, PAGE};
use crate::{Advice, File, OpenHow, SyncKind, WriteSync};

/// How many bytes of zeros [`PosixFile::zero`] writes per system call: large enough for the device's
/// best throughput, small enough to cost little memory.
const ZERO_CHUNK: usize = 1 << 20;

/// Maximum number of slices in one write: `UIO_MAXIOV`.
const SLICES_MAX: usize = 1024;

/// The flag for an atomic write, from `linux/fs.h`, since Linux 6.11.
const RWF_ATOMIC: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x40);
/// `STATX_WRITE_ATOMIC` of `linux/stat.h`.
const STATX_WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x1_0000);

/// The smallest and the largest atomic write to the file, in bytes; `None` if the kernel, the file
/// system or the device guarantees none.
pub(crate) fn atomic_write_unit(fd: &OwnedFd) -> Option<(u32, u32)> {
    let x = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, STATX_WRITE_ATOMIC).ok()?;
    let known = StatxFlags::from_bits_retain(x.stx_mask).contains(STATX_WRITE_ATOMIC);
    let (min, max) = (x.stx_atomic_write_unit_min, x.stx_atomic_write_unit_max);
    (known && min.is_power_of_two() && max >= min).then_some((min, max))
}

/// Alignments in bytes that direct I/O on a file requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectAlign {
    /// Of offsets and lengths.
    pub(crate) offset: u32,
    /// Of buffer addresses.
    pub(crate) memory: u32,
}

/// The alignments that `statx` reports for direct I/O on the file; `None` if it reports none, or no
/// support for direct I/O.
pub(crate) fn direct_align(fd: &OwnedFd) -> Option<DirectAlign> {
    let x = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let known = StatxFlags::from_bits_retain(x.stx_mask).contains(StatxFlags::DIOALIGN);
    (known && x.stx_dio_offset_align > 0).then_some(DirectAlign {
        offset: x.stx_dio_offset_align,
        memory: x.stx_dio_mem_align.max(1),
    })
}

/// An open file.
#[derive(Debug)]
pub(super) struct PosixFile {
    fd: OwnedFd,
    path: PathBuf,
    /// Set for a direct file whose alignments the kernel reports.
    direct: Option<DirectAlign>,
    /// Opened with `O_DIRECT`.
    is_direct: bool,
    /// The kernel or the file system refused `RWF_DSYNC`: write, then `fdatasync`.
    no_dsync: AtomicBool,
    /// What is known of `RWF_NOWAIT`: [`UNTRIED`], [`REFUSED`] or [`IN_MEMORY`].
    nowait: AtomicU8,
}

/// It works, or was not tried yet.
const UNTRIED: u8 = 0;
/// The kernel or the file system refuses it: nobody knows what the page cache has.
const REFUSED: u8 = 1;
/// The same, and the file system is in memory: no read waits for a device.
const IN_MEMORY: u8 = 2;

impl PosixFile {
    pub(super) fn new(fd: OwnedFd, path: &Path, how: OpenHow) -> Self {
        Self {
            direct: how.direct.then(|| direct_align(&fd)).flatten(),
            is_direct: how.direct,
            fd,
            path: path.to_path_buf(),
            no_dsync: AtomicBool::new(false),
            nowait: AtomicU8::new(UNTRIED),
        }
    }

    fn error(&self, what: &str, errno: Errno) -> Error {
        os_error(what, &self.path, errno)
    }

    fn is_in_memory(&self) -> bool {
        let statfs = rustix::fs::fstatfs(&self.fd);
        let kind = statfs.ok().and_then(|statfs| kinds::of(&statfs).1);
        kind.is_some_and(|kind| kind.in_memory)
    }

    /// `InvalidArgument` if an access to a direct file is not aligned.
    fn check_aligned(&self, buf: &[u8], offset: u64) -> Result<()> {
        let Some(a) = self.direct else {
            return Ok(());
        };
        let wrong = if !offset.is_multiple_of(u64::from(a.offset)) {
            "offset"
        } else if !buf.len().is_multiple_of(a.offset as usize) {
            "length"
        } else if !(buf.as_ptr() as usize).is_multiple_of(a.memory as usize) {
            "buffer address"
        } else {
            return Ok(());
        };
        Err(Error::invalid_argument(format!(
            "direct I/O of {} bytes: the {wrong} is not aligned (offset and length: multiples of {}, address: {})",
            buf.len(),
            a.offset,
            a.memory
        ))
        .file(&self.path)
        .offset(offset))
    }

    /// A write that is durable when it returns.
    fn write_dsync(&self, slices: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        if !self.no_dsync.load(Ordering::Relaxed) {
            let flags = ReadWriteFlags::DSYNC;
            match retry_on_intr(|| rustix::io::pwritev2(&self.fd, slices, offset, flags)) {
                Ok(n) => return Ok(n),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.no_dsync.store(true, Ordering::Relaxed);
                }
                Err(e) => return Err(self.error("write", e).offset(offset)),
            }
        }
        let n = self.write_plain(slices, offset)?;
        self.sync(SyncKind::Data)?;
        Ok(n)
    }

    /// Writes `slices`, which are not all empty, and returns how many bytes were written.
    fn write(&self, slices: &[IoSlice<'_>], offset: u64, sync: WriteSync) -> Result<usize> {
        let n = match sync {
            WriteSync::None => self.write_plain(slices, offset)?,
            WriteSync::Dsync => self.write_dsync(slices, offset)?,
            WriteSync::AtomicDsync => {
                let flags = RWF_ATOMIC | ReadWriteFlags::DSYNC;
                retry_on_intr(|| rustix::io::pwritev2(&self.fd, slices, offset, flags))
                    .map_err(|e| self.error("atomic write", e).offset(offset))?
            }
        };
        if n == 0 {
            return Err(
                Error::new(ErrorKind::IoError, "write: the system took 0 bytes")
                    .file(&self.path)
                    .offset(offset),
            );
        }
        Ok(n)
    }

    /// Writes back dirty pages of the range, as `flags` say.
    fn sync_range(&self, what: &str, offset: u64, len: u64, flags: libc::c_uint) -> Result<()> {
        let (Ok(off), Ok(n)) = (i64::try_from(offset), i64::try_from(len)) else {
            return Err(Error::invalid_argument("range beyond 2^63 bytes").file(&self.path));
        };
        // SAFETY: a system call with no pointers; the descriptor is open as long as `self` lives.
        let rc = unsafe { libc::sync_file_range(self.fd.as_raw_fd(), off, n, flags) };
        if rc == 0 {
            return Ok(());
        }
        let e = std::io::Error::last_os_error();
        match e.raw_os_error() {
            // The call guarantees nothing, so a file system without it is not an error.
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ESPIPE | libc::EINTR) => Ok(()),
            _ => Err(Error::io(what, &self.path, e).offset(offset)),
        }
    }

    fn write_plain(&self, slices: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        let done = match slices {
            [one] => retry_on_intr(|| rustix::io::pwrite(&self.fd, one, offset)),
            all => retry_on_intr(|| rustix::io::pwritev(&self.fd, all, offset)),
        };
        done.map_err(|e| self.error("write", e).offset(offset))
    }
}

impl File for PosixFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.check_aligned(buf, offset)?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let n = retry_on_intr(|| rustix::io::pread(&self.fd, &mut buf[done..], at))
                .map_err(|e| self.error("read", e).offset(at))?;
            done += n;
            // A direct read of an unaligned number of bytes has reached the end of the file.
            let unit = self.direct.map_or(512, |a| a.offset as usize);
            let unaligned = self.is_direct && !n.is_multiple_of(unit);
            if n == 0 || unaligned {
                break;
            }
        }
        Ok(done)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> Result<bool> {
        if self.is_direct {
            return Ok(false);
        }
        let len = buf.len();
        match self.nowait.load(Ordering::Relaxed) {
            UNTRIED => {}
            IN_MEMORY => return Ok(self.read_at(buf, offset)? == len),
            _ => return Ok(false),
        }
        let flags = ReadWriteFlags::NOWAIT;
        let mut slices = [IoSliceMut::new(buf)];
        match retry_on_intr(|| rustix::io::preadv2(&self.fd, &mut slices, offset, flags)) {
            Ok(n) => Ok(n == len),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM | Errno::ACCESS) => {
                let in_memory = self.is_in_memory();
                let found = if in_memory { IN_MEMORY } else { REFUSED };
                self.nowait.store(found, Ordering::Relaxed);
                Ok(in_memory && self.read_at(buf, offset)? == len)
            }
            // The usual one is `AGAIN`. Others are said by the read that follows.
            Err(_) => Ok(false),
        }
    }

    fn read_alignment(&self) -> usize {
        match self.direct {
            Some(a) => a.offset.max(a.memory) as usize,
            None if self.is_direct => PAGE,
            None => 1,
        }
    }

    fn write_at(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        self.check_aligned(data, offset)?;
        self.write(&[IoSlice::new(data)], offset, sync)
    }

    fn write_vectored_at(
        &self,
        slices: &[IoSlice<'_>],
        offset: u64,
        sync: WriteSync,
    ) -> Result<usize> {
        let slices = &slices[..slices.len().min(SLICES_MAX)];
        let mut at = offset;
        for slice in slices {
            self.check_aligned(slice, at)?;
            at += slice.len() as u64;
        }
        if at == offset {
            return Ok(0);
        }
        self.write(slices, offset, sync)
    }

    fn sync(&self, kind: SyncKind) -> Result<()> {
        match kind {
            SyncKind::Data => retry_on_intr(|| rustix::fs::fdatasync(&self.fd)),
            SyncKind::All => retry_on_intr(|| rustix::fs::fsync(&self.fd)),
        }
        .map_err(|e| self.error("sync", e))
    }

    fn start_writeback(&self, offset: u64, len: u64) -> Result<()> {
        self.sync_range("start writeback", offset, len, libc::SYNC_FILE_RANGE_WRITE)
    }

    fn write_back(&self, offset: u64, len: u64) -> Result<()> {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        self.sync_range("write back", offset, len, flags)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        retry_on_intr(|| rustix::fs::ftruncate(&self.fd, len))
            .map_err(|e| self.error("truncate", e).offset(len))
    }

    fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let mode = if keep_size {
            FallocateFlags::KEEP_SIZE
        } else {
            FallocateFlags::empty()
        };
        retry_on_intr(|| rustix::fs::fallocate(&self.fd, mode, offset, len)).map_err(|e| match e {
            Errno::OPNOTSUPP | Errno::NOSYS => {
                Error::not_supported("preallocation (fallocate) on this file system")
                    .file(&self.path)
            }
            _ => self.error("allocate", e).offset(offset),
        })
    }

    /// Writes real zeros and does not use `FALLOC_FL_ZERO_RANGE`, which leaves unwritten extents: the
    /// first write to such an extent changes metadata and costs a journal commit.
    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        let chunk = (ZERO_CHUNK as u64).min(len.next_multiple_of(PAGE as u64)) as usize;
        let zeros = AlignedBuf::zeroed(chunk, PAGE)?;
        let end = offset
            .checked_add(len)
            .ok_or_else(|| Error::invalid_argument("range beyond 2^64 bytes").file(&self.path))?;
        let mut at = offset;
        while at < end {
            let n = (end - at).min(chunk as u64) as usize;
            crate::write_all_at(self, &zeros[..n], at, WriteSync::None)?;
            at += n as u64;
        }
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let s = rustix::fs::fstat(&self.fd).map_err(|e| self.error("stat", e))?;
        Ok(u64::try_from(s.st_size).unwrap_or(0))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn advise(&self, advice: Advice) {
        if self.is_direct {
            return;
        }
        let mut range = (0, None);
        let advice = match advice {
            Advice::Normal => rustix::fs::Advice::Normal,
            Advice::Random => rustix::fs::Advice::Random,
            Advice::Sequential => rustix::fs::Advice::Sequential,
            Advice::DontNeed => rustix::fs::Advice::DontNeed,
            Advice::WillNeed { offset, len } => {
                range = (offset, NonZeroU64::new(len));
                rustix::fs::Advice::WillNeed
            }
        };
        // A hint: errors do not matter.
        rustix::fs::fadvise(&self.fd, range.0, range.1, advice).ok();
    }
}
