//! Queues of reads that are done in a random order and at random moments, as a device with many channels does them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::rng::Rng;
use base::{Error, ErrorKind, Result};
use io::queue::{Act, Backend, Done, Request};

/// The queues of a simulated disk, or of a file system with hooks.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// How many were made: seeds the next one.
    made: AtomicU64,
    /// How many waits succeed before all fail, plus 1; 0 if none fails.
    waits_left: AtomicU64,
    /// How many requests they have done.
    done: AtomicU64,
    /// Whether some ranges of files are in a page cache, so that they are read without a queue.
    cached: AtomicBool,
}

impl Queues {
    pub(crate) fn make(self: &Arc<Self>) -> Box<dyn Backend> {
        let seed = self.made.fetch_add(1, Ordering::Relaxed);
        Box::new(SimQueue {
            of: Arc::clone(self),
            rng: Rng::new(seed),
            requests: Vec::new(),
        })
    }

    /// Makes all waits fail after `waits` more; `None` makes them succeed again.
    pub(crate) fn fail_after(&self, waits: Option<u64>) {
        self.waits_left
            .store(waits.map_or(0, |n| n + 1), Ordering::Relaxed);
    }

    pub(crate) fn set_cached(&self, cached: bool) {
        self.cached.store(cached, Ordering::Relaxed);
    }

    /// Whether the page cache has what is at this offset of any file.
    pub(crate) fn has_cached(&self, offset: u64) -> bool {
        self.cached.load(Ordering::Relaxed) && (offset / 1024).is_multiple_of(3)
    }

    fn is_broken(&self) -> bool {
        self.waits_left.load(Ordering::Relaxed) == 1
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn check(&self) -> Result<()> {
        let used = |left: u64| (left > 1).then(|| left - 1);
        match self
            .waits_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, used)
        {
            Err(1) => Err(broken()),
            _ => Ok(()),
        }
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::IoError, "the simulated queue is broken")
}

#[derive(Debug)]
struct SimQueue {
    of: Arc<Queues>,
    rng: Rng,
    requests: Vec<Request>,
}

impl Backend for SimQueue {
    fn takes_any_file(&self) -> bool {
        true
    }

    fn flying(&self) -> usize {
        self.requests.len()
    }

    fn push(&mut self, request: Request) -> Result<()> {
        if self.of.is_broken() {
            return Err(broken());
        }
        self.requests.push(request);
        Ok(())
    }

    fn submit(&mut self) -> Result<()> {
        Ok(())
    }

    fn wait(&mut self, at_least: usize, out: &mut VecDeque<Done>) -> Result<()> {
        self.of.check()?;
        let flying = self.requests.len();
        let at_least = at_least.min(flying);
        let more = self.rng.below((flying - at_least) as u64 + 1) as usize;
        for _ in 0..at_least + more {
            let next = self.rng.below(self.requests.len() as u64) as usize;
            out.push_back(run(self.requests.swap_remove(next)));
            self.of.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn run(request: Request) -> Done {
    let (token, file, offset) = (request.token, request.file, request.offset);
    let (result, buf) = match request.act {
        Act::Read(mut buf) => (file.read_at(&mut buf, offset), Some(buf)),
        Act::Write(..) | Act::Sync(_) => (
            Err(Error::not_supported("writes in a simulated queue")),
            None,
        ),
    };
    Done { token, result, buf }
}
