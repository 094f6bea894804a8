//! A queue on io_uring.
//!
//! The kernel accesses the memory of a request until it reports the completion. A [`Flight`] owns that
//! memory, and stays in its slot until then.
#![expect(unsafe_code, reason = "io_uring takes addresses")]

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use base::{Error, Result};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};

use super::{Act, Backend, DEPTH_MAX, Done, Request, run, system, write_from};
use crate::{SyncKind, WriteSync};

pub(super) struct Ring {
    kernel: IoUring,
    slots: Vec<Option<Flight>>,
    free: Vec<usize>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} of {} fly)", self.flying(), self.slots.len())
    }
}

/// A request in flight, with the memory that the kernel accesses.
struct Flight {
    request: Request,
    /// The slices of a write.
    slices: Vec<libc::iovec>,
}

// SAFETY: the addresses in `slices` are those of the request's own bytes, which are `Send`.
unsafe impl Send for Flight {}

/// Errors by which the kernel says that it has not tried: the file's own method is used then.
const NOT_TRIED: [i32; 5] = [
    libc::EAGAIN,
    libc::EINTR,
    libc::EINVAL,
    libc::ENOSYS,
    libc::EOPNOTSUPP,
];

impl Flight {
    /// The submission entry of the request. `None`: io_uring cannot do it.
    fn entry(&mut self) -> Option<squeue::Entry> {
        let fd = Fd(self.request.file.descriptor()?.as_raw_fd());
        let offset = self.request.offset;
        Some(match &mut self.request.act {
            Act::Read(buf) => {
                let len = u32::try_from(buf.len()).ok()?;
                opcode::Read::new(fd, buf.as_mut_ptr(), len)
                    .offset(offset)
                    .build()
            }
            Act::Write(slices, sync) => {
                let flags = match sync {
                    WriteSync::None => 0,
                    WriteSync::Dsync => libc::RWF_DSYNC,
                    WriteSync::AtomicDsync => return None,
                };
                if slices.len() > libc::UIO_MAXIOV as usize {
                    return None;
                }
                self.slices = slices
                    .iter()
                    .map(|s| libc::iovec {
                        iov_base: s.as_ptr().cast_mut().cast(),
                        iov_len: s.len(),
                    })
                    .collect();
                opcode::Writev::new(fd, self.slices.as_ptr(), self.slices.len() as u32)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
            Act::Sync(kind) => {
                let flags = match kind {
                    SyncKind::Data => FsyncFlags::DATASYNC,
                    SyncKind::All => FsyncFlags::empty(),
                };
                opcode::Fsync::new(fd).flags(flags).build()
            }
        })
    }

    /// Completes the request, for which the kernel returned `n`.
    fn done(self, n: i32) -> Done {
        let request = self.request;
        let Ok(n) = usize::try_from(n) else {
            return failed(request, -n);
        };
        let (token, file, offset) = (request.token, &request.file, request.offset);
        match request.act {
            // A short read is usually the end of the file; reading again makes sure.
            Act::Read(ref buf) if n < buf.len() => run(request),
            Act::Read(buf) => Done {
                token,
                result: Ok(n),
                buf: Some(buf),
            },
            Act::Write(ref slices, sync) => {
                let all: usize = slices.iter().map(|s| s.len()).sum();
                let result = if n < all {
                    write_from(&**file, slices, n, offset, sync)
                } else {
                    Ok(n)
                };
                Done {
                    token,
                    result,
                    buf: None,
                }
            }
            Act::Sync(_) => Done {
                token,
                result: Ok(0),
                buf: None,
            },
        }
    }
}

fn failed(request: Request, errno: i32) -> Done {
    if NOT_TRIED.contains(&errno) {
        return run(request);
    }
    let (what, buf) = match request.act {
        Act::Read(buf) => ("read", Some(buf)),
        Act::Write(..) => ("write", None),
        Act::Sync(_) => ("sync", None),
    };
    let e = std::io::Error::from_raw_os_error(errno);
    Done {
        token: request.token,
        result: Err(Error::io(what, request.file.path(), e).offset(request.offset)),
        buf,
    }
}

impl Ring {
    /// Errors: `NotSupported` if the kernel has no io_uring, does not allow it, or is older than 5.6, which reads and writes
    /// without a list of buffers; `IoError` if it has no descriptor or memory left.
    pub(super) fn new(depth: u32, event: Option<BorrowedFd<'_>>) -> Result<Self> {
        let no = |e: std::io::Error| {
            if let Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN) =
                e.raw_os_error()
            {
                return system("make an io_uring", e);
            }
            Error::not_supported(format!("io_uring: {e}"))
                .hint("let queues use threads, or allow it (kernel.io_uring_disabled, seccomp)")
        };
        let entries = depth.next_power_of_two().min(DEPTH_MAX);
        let ring = Self::kernel(entries, event.is_none()).map_err(no)?;
        let mut known = io_uring::Probe::new();
        ring.submitter().register_probe(&mut known).map_err(no)?;
        if !known.is_supported(opcode::Read::CODE) {
            return Err(no(std::io::ErrorKind::Unsupported.into()));
        }
        // A system call may be forbidden that the first one does not need.
        ring.submit_and_wait(0).map_err(no)?;
        if let Some(event) = event {
            ring.submitter()
                .register_eventfd(event.as_raw_fd())
                .map_err(no)?;
        }
        Ok(Self {
            kernel: ring,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth as usize).rev().collect(),
        })
    }

    /// A ring of the kernel. If its thread `polls` it, the kernel need not interrupt the thread when a request completes.
    fn kernel(entries: u32, polls: bool) -> std::io::Result<IoUring> {
        if polls {
            let mut builder = IoUring::builder();
            // Since Linux 5.19.
            match builder.setup_coop_taskrun().build(entries) {
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
                made => return made,
            }
        }
        IoUring::new(entries)
    }

    fn enter(&mut self, entry: squeue::Entry) -> Result<()> {
        // SAFETY: what the entry points to is in its slot, which is emptied only when the kernel says that it
        // is done with it; the slot's own heap memory does not move.
        while unsafe { self.kernel.submission().push(&entry) }.is_err() {
            self.send(0)?;
            base::sync::thread::yield_now();
        }
        Ok(())
    }

    /// Sends the pushed requests, and waits until `at_least` completions are available.
    fn send(&mut self, at_least: usize) -> Result<()> {
        loop {
            match self.kernel.submit_and_wait(at_least) {
                Ok(_) => return Ok(()),
                Err(e) => match e.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Completions must be taken first, or the kernel is short of memory for a moment.
                    Some(libc::EAGAIN | libc::EBUSY) if at_least == 0 => return Ok(()),
                    Some(libc::EAGAIN | libc::EBUSY) => base::sync::thread::yield_now(),
                    _ => return Err(system("enter io_uring", e)),
                },
            }
        }
    }

    fn take(&mut self, out: &mut VecDeque<Done>) -> usize {
        let mut taken = 0;
        let done: Vec<(u64, i32)> = self
            .kernel
            .completion()
            .map(|c| (c.user_data(), c.result()))
            .collect();
        for (data, n) in done {
            let at = (data & !NOP) as usize;
            let Some(flight) = self.slots.get_mut(at).and_then(Option::take) else {
                continue;
            };
            self.free.push(at);
            taken += 1;
            let token = flight.request.token;
            let done = catch_unwind(AssertUnwindSafe(|| {
                if data & NOP == 0 {
                    flight.done(n)
                } else {
                    run(flight.request)
                }
            }));
            out.push_back(done.unwrap_or_else(|_| Done {
                token,
                result: Err(Error::aborted("a file panicked")),
                buf: None,
            }));
        }
        taken
    }
}

impl Backend for Ring {
    fn flying(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn push(&mut self, request: Request) -> Result<()> {
        let mut flight = Flight {
            request,
            slices: Vec::new(),
        };
        // Before it has a slot, because this calls the file. What the entry points to does not move with the flight.
        let entry = flight.entry();
        let at = self
            .free
            .pop()
            .ok_or_else(|| Error::broken("a queue took more requests than it has room for"))?;
        self.slots[at] = Some(flight);
        // What io_uring cannot do is executed with the file's own method when its completion is taken.
        let entry = match entry {
            Some(entry) => entry.user_data(at as u64),
            None => opcode::Nop::new().build().user_data(NOP | at as u64),
        };
        self.enter(entry).inspect_err(|_| {
            self.slots[at] = None; // the kernel has not got the entry
            self.free.push(at);
        })
    }

    fn submit(&mut self) -> Result<()> {
        self.send(0)
    }

    fn wait(&mut self, at_least: usize, out: &mut VecDeque<Done>) -> Result<()> {
        let mut taken = self.take(out);
        loop {
            let missing = at_least.saturating_sub(taken);
            self.send(missing.min(self.flying()))?;
            taken += self.take(out);
            if taken >= at_least || self.flying() == 0 {
                return Ok(());
            }
        }
    }
}

/// Marks a no-op entry, which stands for a request that io_uring cannot do.
const NOP: u64 = 1 << 63;

/// Waits for all requests in flight, because the kernel may still use their memory.
impl Drop for Ring {
    fn drop(&mut self) {
        let mut out = VecDeque::new();
        while self.flying() > 0 {
            if let Err(e) = self.wait(1, &mut out) {
                // The kernel may use the memory at any later time, so it is leaked.
                let lost = std::mem::take(&mut self.slots);
                let count = lost.iter().flatten().count();
                Box::leak(Box::new(lost));
                self.free.clear();
                debug_assert!(false, "{count} requests are lost: {e}");
                return;
            }
        }
    }
}
