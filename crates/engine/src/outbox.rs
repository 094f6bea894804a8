//! Calls of listeners that are queued until no lock is held.
//!
//! A thread that has to call listeners may hold locks, and a listener is the application's code: it may
//! call the database, or panic. So the thread puts a *letter* here, and delivers it as soon as it has
//! released its locks ([`crate::shared::courier`]). A thread that is about to wait, or that flushes or compacts,
//! leaves its letters to the *letter thread*: a listener that writes may have to wait for a flush.

use std::cell::Cell;

use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::thread::{self, ThreadId};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked, thread_local};

use crate::locks;
use options::hooks::listener::EventListener;

/// A call to make on each listener.
type Text = Box<dyn Fn(&dyn EventListener) + Send>;

struct Letter {
    /// The thread that delivers the letter; `None` means the letter thread.
    by: Option<ThreadId>,
    text: Text,
}

/// See the module.
pub(crate) struct Outbox {
    letters: Mutex<Vec<Letter>>,
    count: AtomicUsize,
    /// Signaled when letters were left to the letter thread.
    left: Condvar,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            letters: ranked(locks::LEAF, Vec::new()),
            count: AtomicUsize::new(0),
            left: Condvar::new(),
        }
    }
}

thread_local! {
    /// How many couriers of this thread are alive: the outermost one delivers.
    static COURIERS: Cell<u32> = const { Cell::new(0) };
    /// The database that this thread flushes or compacts for, if any, and the job. Writers may wait for such a thread.
    static JOB: Cell<Option<(u64, Job)>> = const { Cell::new(None) };
    /// The database that this thread belongs to, if any.
    static HOME: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes this thread a thread of the database with this number.
pub(crate) fn belong_to(instance: u64) {
    HOME.with(|h| h.set(Some(instance)));
}

/// Whether this is a thread of that database. Such a thread goes on with its work when a listener on it
/// closes the database.
pub(crate) fn belongs_to(instance: u64) -> bool {
    HOME.with(Cell::get) == Some(instance) || job_for(instance).is_some()
}

/// Counts one more courier on this thread.
pub(crate) fn set_out() {
    COURIERS.with(|c| c.set(c.get() + 1));
}

/// Counts one courier fewer on this thread; returns true for the outermost one.
pub(crate) fn is_back() -> bool {
    COURIERS.with(|c| {
        c.set(c.get() - 1);
        c.get() == 0
    })
}

/// The kind of work of a background thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Flush,
    Compact,
}

/// From now on this thread does `job` for the database with this number.
pub(crate) fn begin_work(instance: u64, job: Job) {
    JOB.with(|j| j.set(Some((instance, job))));
}

/// The job of this thread. A thread that does a part of the job gets the same job.
pub(crate) fn work() -> Option<(u64, Job)> {
    JOB.with(Cell::get)
}

/// Whether this thread flushes or compacts, so that it must not run code that may write.
pub(crate) fn works() -> bool {
    JOB.with(Cell::get).is_some()
}

/// The job of this thread for that database, if any.
pub(crate) fn job_for(instance: u64) -> Option<Job> {
    JOB.with(Cell::get)
        .and_then(|(of, job)| (of == instance).then_some(job))
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Letter>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, text: Text) {
        let mine = COURIERS.with(Cell::get) > 0;
        let mut letters = self.lock();
        letters.push(Letter {
            by: mine.then(|| thread::current().id()),
            text,
        });
        self.count.store(letters.len(), Ordering::Release);
        drop(letters);
        if !mine {
            self.left.notify_all();
        }
    }

    /// Leaves this thread's letters to the letter thread.
    #[inline]
    pub(crate) fn leave(&self) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let me = thread::current().id();
        let mut letters = self.lock();
        let mine = letters.iter_mut().filter(|l| l.by == Some(me));
        mine.for_each(|letter| letter.by = None);
        drop(letters);
        self.left.notify_all();
    }

    /// This thread's letters.
    #[inline]
    pub(crate) fn take_mine(&self) -> Vec<Text> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let me = thread::current().id();
        self.take(self.lock(), |by| by == Some(me))
    }

    /// All letters.
    pub(crate) fn take_all(&self) -> Vec<Text> {
        self.take(self.lock(), |_| true)
    }

    fn take(
        &self,
        mut letters: MutexGuard<'_, Vec<Letter>>,
        which: impl Fn(Option<ThreadId>) -> bool,
    ) -> Vec<Text> {
        let taken = letters.extract_if(.., |l| which(l.by));
        let taken = taken.map(|l| l.text).collect();
        self.count.store(letters.len(), Ordering::Release);
        taken
    }

    /// Waits for letters that were left to the letter thread, and takes them. Returns no letters once `ended` returns
    /// true.
    pub(crate) fn wait_for_left(&self, ended: impl Fn() -> bool) -> Vec<Text> {
        let mut letters = self.lock();
        while !ended() {
            if letters.iter().any(|l| l.by.is_none()) {
                return self.take(letters, |by| by.is_none());
            }
            letters = self
                .left
                .wait(letters)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Vec::new()
    }

    /// Wakes the letter thread, so that it checks again whether the wait has ended.
    pub(crate) fn wake(&self) {
        drop(self.lock());
        self.left.notify_all();
    }
}
