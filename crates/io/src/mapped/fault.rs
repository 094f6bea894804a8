//! What happens when a page of a mapped file cannot be written: the kernel raises SIGBUS, in the thread that stores
//! into it.
//!
//! A handler for the whole process knows the addresses of all windows. For a fault in one of them, it puts a page of
//! anonymous memory in the place of the failing one and marks the window as failed; the store is then repeated, and
//! succeeds, and its thread looks at the mark. Every other fault goes to the handler that was there before, or ends the
//! process as without this one.
//!
//! A program that installs its own handler later replaces this one, unless it passes signals on. The handler of Rust's
//! runtime does so too, when somebody sends the signal to the process: it restores the default, with which the next
//! signal ends the process. A thread that blocks the signal writes by calls.
#![expect(
    unsafe_code,
    reason = "a signal handler, and memory at fixed addresses"
)]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::buffer::PAGE;

/// The most windows at once in the process. Files beyond that are written by calls.
const WINDOWS_MAX: usize = 256;

/// The addresses of a window; `begin` is 0 if the place is free.
struct Place {
    begin: AtomicUsize,
    len: AtomicUsize,
    failed: AtomicBool,
}

static PLACES: [Place; WINDOWS_MAX] = [const {
    Place {
        begin: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    }
}; WINDOWS_MAX];

/// An access to memory that is broken.
const BUS_MCEERR_AR: libc::c_int = 4;
/// The codes of a signal that an access of this thread caused. It is caused again when the handler returns.
const FAULTS: [libc::c_int; 4] = [
    libc::BUS_ADRALN,
    libc::BUS_ADRERR,
    libc::BUS_OBJERR,
    BUS_MCEERR_AR,
];

/// A begin that no window has: the place is being filled.
const FILLING: usize = 1;

/// The handler that was there before. Set once, before ours is installed.
static BEFORE: OnceLock<Before> = OnceLock::new();

struct Before(libc::sigaction);

/// A window that the handler knows, from [`Known::begin`] until this is dropped. The window must be unmapped later than
/// that.
#[derive(Debug)]
pub(super) struct Known(usize);

impl Known {
    /// A place for a window. `None`: there is none left, or no handler can be installed.
    pub(super) fn reserve() -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let nth = PLACES.iter().position(|place| {
            let taken =
                place
                    .begin
                    .compare_exchange(0, FILLING, Ordering::Acquire, Ordering::Relaxed);
            taken.is_ok()
        })?;
        Some(Self(nth))
    }

    /// Makes the window with these addresses known.
    pub(super) fn begin(&mut self, begin: usize, len: usize) {
        let place = &PLACES[self.0];
        place.failed.store(false, Ordering::Relaxed);
        place.len.store(len, Ordering::Relaxed);
        place.begin.store(begin, Ordering::Release);
    }

    /// Whether a store into the window has failed. Stores of this thread before the call are included.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        // The handler runs in the thread that stores; the fence keeps the compiler from looking earlier.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        PLACES[self.0].failed.load(Ordering::Acquire)
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        PLACES[self.0].begin.store(0, Ordering::Release);
    }
}

/// Whether this thread takes the signal. If it blocks it, a fault ends the process. Threads set their masks when they
/// begin, so it is looked at once in a thread.
#[inline]
pub(super) fn is_taken_here() -> bool {
    thread_local! {
        static TAKEN: bool = !is_blocked();
    }
    TAKEN.with(|taken| *taken)
}

fn is_blocked() -> bool {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: without a new mask, the call only writes the present one.
    let known = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr()) };
    // SAFETY: the call has succeeded, so the mask was written.
    known != 0 || unsafe { libc::sigismember(mask.as_ptr(), libc::SIGBUS) } != 0
}

/// Installs the handler, the first time.
fn is_installed() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(|| {
        let mut before = MaybeUninit::uninit();
        // SAFETY: without a new action, the call only writes the present one.
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) } != 0 {
            return false;
        }
        // SAFETY: the call has succeeded, so it was written.
        let before: libc::sigaction = unsafe { before.assume_init() };
        drop(BEFORE.set(Before(before)));
        // SAFETY: an action of zeros is valid: the default, with an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            on_sigbus;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler calls nothing that a signal handler must not call.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0 }
    })
}

/// The handler. It only loads and stores atomics, and makes system calls.
extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: with SA_SIGINFO, the kernel passes a valid one.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if !FAULTS.contains(&code) || !mend(address) {
        pass_on(signal, info, context);
    }
}

/// Replaces the page of a window at this address. Returns whether there is such a window, and it worked.
fn mend(address: usize) -> bool {
    let of = |place: &&Place| {
        let begin = place.begin.load(Ordering::Acquire);
        begin > FILLING && address >= begin && address - begin < place.len.load(Ordering::Relaxed)
    };
    let Some(place) = PLACES.iter().find(of) else {
        return false;
    };
    place.failed.store(true, Ordering::Release);
    let page = (address & !(PAGE - 1)) as *mut libc::c_void;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the page belongs to a window of this module, whose memory is only stored into. What was stored into
    // it is in the page cache, if at all, and the window counts as failed.
    let mapped = unsafe { mmap_anonymous(page, PAGE, access, MapFlags::PRIVATE | MapFlags::FIXED) };
    mapped.is_ok()
}

/// Does what would have been done without this handler.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(Before(before)) = BEFORE.get() else {
        return;
    };
    // SAFETY: as in the caller.
    let is_fault = FAULTS.contains(&unsafe { (*info).si_code });
    match before.sa_sigaction {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // A fault happens again when this returns; other signals are sent again. Both then end the process, as they
            // would have at first.
            // SAFETY: an action of zeros is the default.
            unsafe {
                let action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                if !is_fault {
                    libc::raise(signal);
                }
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the kernel would have called it with the same arguments.
            unsafe {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
        }
        handler => {
            // SAFETY: as above, for a handler of the older form.
            unsafe {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
