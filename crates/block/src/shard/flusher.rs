//! The write-back thread, the only owner of the data file.
//!
//! ```text
//!   begin(marked, speed) ──> write, paced ──> sync ──> WrittenBack, or why not
//! ```
//!
//! Each [`Flusher::begin`] gets exactly one answer, whatever happens. If writing panics, the content of the
//! data file is unknown; this answer and all later ones report that.
//!
//! **Pace.** A paced write-back keeps to its rate, and gives way to writes of the log: before each write it
//! waits until none is on its way, for at most 2 ms. A write-back at full speed does not wait.

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use base::clock::Clock;
use base::sync::thread::JoinHandle;
use base::sync::{Mutex, PoisonError};
use base::threads::Threads;
use base::{Error, ErrorKind, Result};
use io::{IoPriority, RateLimiter, RateLimiterOptions};

use super::core::Event;
use crate::stats::Counter;
use crate::store::data::Data;
use crate::store::flush::Speed;
use crate::store::sync::Marked;
use crate::wake::Wake;

/// How long a paced write waits for writes of the log, at most, and how often it checks for them.
const YIELD: Duration = Duration::from_millis(2);
const YIELD_STEP: Duration = Duration::from_micros(100);

/// The state that the thread shares with its owner.
#[derive(Debug)]
struct Shared {
    answers: Mutex<Vec<Event>>,
    wake: Wake,
    /// Number of log writes on their way.
    foreground: AtomicU32,
    /// Whether the flusher is being dropped, so that pacing is of no use.
    is_stopping: AtomicBool,
    clock: Arc<dyn Clock>,
    written: Arc<Counter>,
}

impl Shared {
    fn answer(&self, event: Event) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push(event);
        drop(answers);
        self.wake.wake();
    }
}

type Job = (Vec<Marked>, Speed);

/// The write-back thread.
#[derive(Debug)]
pub struct Flusher {
    shared: Arc<Shared>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    /// Starts the thread. `written` counts the bytes. Errors: no more threads can be created.
    pub fn start(
        data: Data,
        clock: Arc<dyn Clock>,
        threads: &dyn Threads,
        written: Arc<Counter>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            answers: Mutex::new(Vec::new()),
            wake: Wake::new()?,
            foreground: AtomicU32::new(0),
            is_stopping: AtomicBool::new(false),
            clock,
            written,
        });
        let (jobs, todo) = channel();
        let theirs = Arc::clone(&shared);
        let run = Box::new(move || run(data, &todo, &theirs));
        let thread = threads.start("flusher", run).map_err(|e| {
            Error::new(base::ErrorKind::IoError, format!("no flusher: {e}")).because(e)
        })?;
        Ok(Self {
            shared,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Begins a write-back. Its outcome comes from [`Flusher::answers`].
    pub fn begin(&self, marked: Vec<Marked>, speed: Speed) {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send((marked, speed)));
        if !matches!(sent, Some(Ok(()))) {
            self.shared.answer(Event::NotSynced(ended()));
        }
    }

    /// Appends the outcomes of write-backs.
    pub fn answers(&self, out: &mut Vec<Event>) {
        self.shared.wake.clear();
        let answers = self.shared.answers.lock();
        out.append(&mut answers.unwrap_or_else(PoisonError::into_inner));
    }

    /// Sets the number of log writes on their way.
    pub fn foreground(&self, writes: usize) {
        let writes = u32::try_from(writes).unwrap_or(u32::MAX);
        self.shared.foreground.store(writes, Ordering::Relaxed);
    }

    /// A descriptor that is readable while there are answers.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported as an answer.
            drop(thread.join());
        }
    }
}

fn ended() -> Error {
    Error::broken("the thread that writes back has ended")
}

/// The thread survives a panic: a job sent while it ended would never be answered.
fn run(mut data: Data, todo: &Receiver<Job>, shared: &Shared) {
    let mut is_spoilt = false;
    while let Ok((marked, speed)) = todo.recv() {
        let write = AssertUnwindSafe(|| write_back(&mut data, marked, speed, shared));
        let done = if is_spoilt {
            None
        } else {
            catch_unwind(write).ok()
        };
        is_spoilt = done.is_none();
        shared.answer(done.unwrap_or_else(|| Event::NotSynced(ended())));
    }
}

fn write_back(data: &mut Data, marked: Vec<Marked>, speed: Speed, shared: &Shared) -> Event {
    let pace = Pace {
        shared,
        limiter: match speed {
            Speed::Full => None,
            Speed::Paced(rate) => {
                let options = RateLimiterOptions {
                    refill_period_us: 10_000,
                    ..RateLimiterOptions::new(rate)
                };
                Some(RateLimiter::new(options, Arc::clone(&shared.clock)))
            }
        },
    };
    match data.write_back(marked, &mut |bytes| pace.before(bytes)) {
        Err(mut failed) => {
            // All slots were allocated with the store, but copying the file sparsely loses that. If the error
            // has no source, no slot is free, which is another matter.
            let is_the_disk = std::error::Error::source(&failed.error).is_some();
            if failed.error.kind() == ErrorKind::NoSpace && is_the_disk {
                let hint = "the data file has holes: make room on its disk";
                failed.error = failed.error.hint(hint);
            }
            Event::NotWritten(failed)
        }
        Ok(written) => match written.sync() {
            Ok(tickets) => Event::WrittenBack(tickets),
            Err(e) => Event::NotSynced(e),
        },
    }
}

/// Paces each write.
struct Pace<'a> {
    shared: &'a Shared,
    limiter: Option<RateLimiter>,
}

impl Pace<'_> {
    fn before(&self, bytes: u64) {
        self.shared.written.add(bytes);
        let is_quick = || self.shared.is_stopping.load(Ordering::Relaxed);
        let Some(limiter) = self.limiter.as_ref().filter(|_| !is_quick()) else {
            return;
        };
        limiter.request(bytes, IoPriority::Low);
        let begun = self.shared.clock.monotonic_nanos();
        while self.shared.foreground.load(Ordering::Relaxed) > 0 && !is_quick() {
            let waited = self.shared.clock.monotonic_nanos().saturating_sub(begun);
            if waited >= YIELD.as_nanos() as u64 {
                return;
            }
            self.shared.clock.sleep(YIELD_STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::clock::SystemClock;
    use base::threads::SystemThreads;
    use io::posix::Posix;
    use io::testing::{ALL, Faulty, What};
    use io::{FileSystem as _, OpenHow};

    use super::*;

    fn answer(flusher: &Flusher) -> Event {
        let clock = SystemClock::shared();
        let mut out = Vec::new();
        for _ in 0..2000 {
            flusher.answers(&mut out);
            if let Some(event) = out.pop() {
                return event;
            }
            clock.sleep(Duration::from_millis(5));
        }
        panic!("it does not answer");
    }

    /// Each job is answered: if there is nothing to do, if the thread panics, and after that.
    #[test]
    fn whatever_happens_it_answers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let syncs_panic = Arc::new(AtomicBool::new(false));
        let panics = Arc::clone(&syncs_panic);
        let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
        let file = Faulty::new(file, move |call| {
            let panics = call.what == What::Sync && panics.load(Ordering::SeqCst);
            assert!(!panics, "a part of the test");
            Ok(ALL)
        });
        let data = Data::open(file, 0).unwrap();
        let written = Arc::new(Counter::default());
        let flusher = Flusher::start(data, SystemClock::shared(), &SystemThreads, written).unwrap();
        for speed in [Speed::Full, Speed::Paced(1)] {
            flusher.begin(Vec::new(), speed);
            let done = answer(&flusher);
            assert!(
                matches!(&done, Event::WrittenBack(t) if t.is_empty()),
                "{done:?}"
            );
        }
        for is_broken in [true, false] {
            syncs_panic.store(is_broken, Ordering::SeqCst);
            flusher.begin(Vec::new(), Speed::Paced(1));
            let failed = answer(&flusher);
            assert!(matches!(failed, Event::NotSynced(_)), "{failed:?}");
        }
    }
}
