//! Calls the application's code (listeners, callbacks and wakers) when no lock is held.
//!
//! A function that takes locks and may have something to tell begins with a [`Courier`]. When the
//! outermost courier of a thread is dropped, the thread holds no lock any more, and what was put aside is
//! delivered: letters of the [outbox](crate::outbox), and calls of the watermarks' wakers and callbacks.
//! Threads that flush or compact leave that to other threads, because the application's code may write,
//! and the write may wait for them.

use std::sync::Arc;

use base::{Error, Result};

use crate::outbox::{self, Job};
use crate::shared::Shared;
use options::hooks::listener::EventListener;

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

    /// Errors: this thread flushes or compacts for the database and runs a listener, and `what` would
    /// wait for a flush or a compaction. Each may wait for the other: a flush for room that a compaction
    /// makes, a compaction's listener for a flush, and both for a thread that pauses them.
    pub(crate) fn check_may_wait(&self, what: &str) -> Result<()> {
        let does = match outbox::job_for(self.instance) {
            None => return Ok(()),
            Some(Job::Flush) => "flushes",
            Some(Job::Compact) => "compacts",
        };
        let message = format!("{what}: it would wait for this thread, which {does}");
        Err(Error::busy(message).hint("a listener may leave it to a thread of its own"))
    }

    /// Tells the listeners, as soon as this thread holds no lock.
    pub(crate) fn tell_later(&self, f: impl Fn(&dyn EventListener) + Send + 'static) {
        if !self.env().listeners.is_empty() {
            self.outbox.put(Box::new(f));
        }
    }

    /// Called before this thread waits: leaves its letters to another thread.
    pub(crate) fn leave_letters(&self) {
        self.outbox.leave();
    }

    /// Delivers this thread's letters, and calls the wakers and callbacks that the watermarks have put
    /// aside. No lock may be held.
    #[inline]
    pub(crate) fn deliver(&self) {
        if outbox::works() {
            self.outbox.leave();
            if self.writes.order.visible.has_undelivered() || self.wal.durable.has_undelivered() {
                self.wal.wake();
            }
            return;
        }
        self.hand_out();
    }

    fn hand_out(&self) {
        let panicked = self.writes.order.visible.deliver() + self.wal.durable.deliver();
        if panicked > 0 {
            self.info_log
                .error(format_args!("{panicked} callbacks of writes panicked"));
        }
        for letter in self.outbox.take_mine() {
            self.tell(|l| letter(l));
        }
    }

    /// Delivers the letters of all threads. No thread of the database runs any more.
    pub(crate) fn deliver_the_rest(&self) {
        // Also on a thread that flushes or compacts for another database: no other thread is left.
        self.hand_out();
        for letter in self.outbox.take_all() {
            self.tell(|l| letter(l));
        }
    }
}

/// The thread that delivers the letters left by other threads.
pub(crate) fn run(db: &Arc<Shared>) {
    while !db.background.is_closing() {
        for letter in db.outbox.wait_for_left(|| db.background.is_closing()) {
            db.tell(|l| letter(l));
        }
    }
}
