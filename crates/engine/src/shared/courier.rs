//! Calls the application's code (listeners, callbacks and wakers) when no lock is held.
//!
//! A function that takes locks and may queue such calls begins with a [`Courier`]. When the
//! outermost courier of a thread is dropped, the thread holds no lock any more. The queued calls are then made:
//! letters of the [outbox](crate::outbox) are delivered, and the watermarks' wakers and callbacks are called.
//! Threads that flush or compact leave this to other threads, because the application's code may write,
//! and the write may wait for them.

use crate::background::Background;
use crate::info::Info;
use crate::outbox;
use crate::shared::Shared;

/// See the module.
#[must_use = "it delivers when it is dropped"]
pub(crate) struct Courier<'a>(&'a Shared);

impl Drop for Courier<'_> {
    #[inline]
    fn drop(&mut self) {
        if outbox::is_back() {
            self.0.deliver();
        }
    }
}

impl Shared {
    /// To be called before the first lock is taken.
    #[inline]
    pub(crate) fn courier(&self) -> Courier<'_> {
        outbox::set_out();
        Courier(self)
    }

    /// Delivers this thread's letters, and calls the wakers and callbacks that the watermarks have queued. A thread
    /// that flushes or compacts leaves both to other threads. No lock may be held.
    #[inline]
    pub(crate) fn deliver(&self) {
        if outbox::works() {
            self.info.leave_letters();
            if self.has_undelivered() {
                self.wal.demand.wake();
            }
            return;
        }
        self.hand_out();
    }

    /// Whether wakers and callbacks wait for a thread that may call them.
    pub(crate) fn has_undelivered(&self) -> bool {
        self.writes.order.visible.has_undelivered() || self.wal.durable.has_undelivered()
    }

    fn hand_out(&self) {
        let panicked = self.writes.order.visible.deliver() + self.wal.durable.deliver();
        if panicked > 0 {
            self.info
                .log
                .error(format_args!("{panicked} callbacks of writes panicked"));
        }
        self.info.hand_out();
    }

    /// Delivers the letters of all threads. No thread of the database runs any more.
    pub(crate) fn deliver_the_rest(&self) {
        // Also on a thread that flushes or compacts for another database: no other thread is left.
        self.hand_out();
        self.info.hand_out_all();
    }
}

/// The thread that delivers the letters left by other threads.
pub(crate) fn run(background: &Background, info: &Info) {
    while !background.is_closing() {
        for letter in info.outbox.wait_for_left(|| background.is_closing()) {
            info.tell(|l| letter(l));
        }
    }
}
