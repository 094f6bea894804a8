//! An event that wakes a thread which waits for descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use base::{Error, Result};
use rustix::event::{EventfdFlags, eventfd};

/// Readable from the first [`Wake::wake`] on until it is cleared. Clones share the event.
#[derive(Clone, Debug)]
pub struct Wake(Arc<OwnedFd>);

impl Wake {
    /// A new event. Errors: the system has no descriptor left.
    pub fn new() -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags).map_err(|e| {
            let why = format!("cannot make an eventfd: {e}");
            Error::new(base::ErrorKind::IoError, why).because(std::io::Error::from(e))
        })?;
        Ok(Self(Arc::new(fd)))
    }

    /// Wakes the waiting thread; may be called from any thread.
    pub fn wake(&self) {
        // The write fails only if the counter is full, and then the event is readable already.
        rustix::io::write(&*self.0, &1_u64.to_ne_bytes()).unwrap_or_default();
    }

    /// Makes the event unreadable until it is woken again.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // The read fails if the event was not woken.
        rustix::io::read(&*self.0, &mut count).unwrap_or_default();
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
