//! The thread of a shard: it handles reports in rounds, each of which is one batch.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use base::Result;
use base::clock::Clock;
use base::rounds::Rounds;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

use super::admit::{Ack, Part};
use super::apply::{Done, Round};
use super::erase::Erase;
use super::hot::Hot;
use super::thin::Thin;
use crate::fence::{Events, Fences, Ids};
use crate::live::Live;
use crate::model::key::{Entity, Fleet};
use crate::model::name::TURNS;
use crate::model::time::Time;
use crate::store::{Store, Told};

/// A round takes no further part once it has this many reports.
pub(super) const ROUND_MAX: usize = 256;
/// The most reports of a part.
pub(super) const PART_MAX: usize = 256;
/// A round takes no further part once it has this many events.
const EVENTS_MAX: usize = 4096;
/// The entities that a round uses must stay in the cache until its end. Each report may look at as
/// many entities as names may share a hash.
pub(super) const ROUND_HOT_MAX: usize = (ROUND_MAX + PART_MAX) * TURNS as usize;

/// Work for a shard.
pub(super) enum Work {
    Reports(Part),
    Erase(Erase),
    Thin(Thin),
    /// Dropped once all rounds before it are over.
    Mark(oneshot::Sender<()>),
}

/// The thread of a shard.
pub(super) struct Shard {
    pub(super) store: Arc<dyn Store>,
    /// How many entities the cache keeps.
    pub(super) entities: usize,
    pub(super) with_visits: bool,
    pub(super) fences: Arc<Fences>,
    pub(super) events: Arc<Events>,
    pub(super) live: Arc<Live>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) panics: Arc<AtomicU64>,
    /// Since when the oldest work in progress waits, which is older than all work in the queue; 0
    /// if there is none.
    pub(super) oldest: Arc<AtomicU64>,
    pub(super) rounds: Arc<Rounds>,
}

/// Nobody waits for a round of a shard that is gone, even if its thread panicked or never began. `run` answers what it took
/// and what is left in the queue before.
impl Drop for Shard {
    fn drop(&mut self) {
        self.rounds.end_all();
    }
}

impl Shard {
    /// Handles the work in the queue until all senders are gone.
    pub(super) fn run(self, queue: Receiver<Work>) {
        let rounds = Arc::clone(&self.rounds);
        let mut hot = Hot::new(self.entities);
        let mut inbox = Inbox::new(queue, &rounds);
        while let Some(work) = inbox.wait(&hot) {
            let since = match &work {
                Work::Reports(part) => part.since,
                Work::Erase(_) | Work::Thin(_) | Work::Mark(_) => self.clock.monotonic_nanos(),
            };
            self.oldest.store(since.max(1), Ordering::Relaxed);
            let done = catch_unwind(AssertUnwindSafe(|| match work {
                Work::Reports(first) => self.round(&mut hot, first, &mut inbox),
                Work::Erase(erase) => {
                    let fleet = erase.fleet;
                    if let Some(entity) = erase.run(&*self.store, self.events.last()) {
                        hot.forget((fleet, entity));
                    }
                }
                Work::Thin(thin) => thin.run(&self.store),
                Work::Mark(mark) => drop(mark),
            }));
            self.oldest.store(0, Ordering::Relaxed);
            inbox.end_round(); // of a round that panicked
            if done.is_err() {
                // Its parts were answered when they were dropped. The cache may be inconsistent.
                self.panics.fetch_add(1, Ordering::Relaxed);
                hot = Hot::new(self.entities);
            }
        }
    }

    /// Handles one round of parts.
    fn round(&self, hot: &mut Hot, first: Part, inbox: &mut Inbox<'_>) {
        let mut round = Round::new((&*self.store, &self.fences), hot, self.with_visits);
        round.listened(self.live.wanted());
        let mut count = 0;
        let mut parts: Vec<Part> = Vec::new();
        let mut next = Some(first);
        while let Some(mut part) = next {
            count += part.items.len();
            for item in &mut part.items {
                item.outcome = Some(round.add(&part.of, item.first, &item.report));
            }
            parts.push(part);
            let is_full = count >= ROUND_MAX || round.events() >= EVENTS_MAX;
            next = if is_full {
                None
            } else {
                if inbox.fill() {
                    round.warm(inbox.entities());
                }
                inbox.part()
            };
        }
        let is_empty = round.is_empty();
        let fleets = round.fleets_of_events();
        let ids = (!fleets.is_empty()).then(|| {
            let now = i64::try_from(self.clock.wall_micros()).unwrap_or(i64::MAX);
            self.events.take(&fleets, Time(now))
        });
        let Done {
            batch,
            touched,
            moved,
        } = round.finish(ids.iter().flat_map(Ids::iter));
        let (durable, visible) = self.divide(parts, ids, is_empty);
        if is_empty {
            // Reports that were stored already may not be durable yet.
            if let Some(told) = durable.told() {
                self.store.when_durable(told);
            }
            settle(visible, self.store.last_number(), &Ok(()));
            inbox.end_round();
            return;
        }
        match batch.and_then(|batch| batch.write(durable.told())) {
            Ok(number) => {
                settle(visible, number, &Ok(()));
                inbox.end_round();
                self.live.publish(moved);
            }
            Err(e) => {
                for at in touched {
                    hot.forget(at);
                }
                // The batch may be in the log all the same: this is certain only when a later write
                // is durable.
                let result = Err(e);
                settle(visible, 0, &result);
                inbox.end_round();
                durable.settle(self.store.last_number() + 1, &result);
            }
        }
    }

    /// What is answered when it is durable, and what once reads see it. A batch for which somebody waits until it is
    /// durable is in the process until then. So all of its reports are answered then, and so are reports that may have been
    /// stored by such a batch before.
    fn divide(&self, parts: Vec<Part>, ids: Option<Ids>, is_empty: bool) -> (Waiting, Vec<Part>) {
        let is_durable = |part: &Part| part.ack == Ack::Durable;
        let asks = ids.is_some() || self.events.are_held_back() || parts.iter().any(is_durable);
        if asks {
            self.store.note_asked();
        }
        let waits = asks
            || if is_empty {
                self.store.may_lose()
            } else {
                self.store.is_syncing()
            };
        if !waits {
            return (Waiting::new(Vec::new(), ids, &self.events), parts);
        }
        let others = parts.iter().filter(|part| !is_durable(part));
        others.for_each(Part::waits_for_the_device);
        (Waiting::new(parts, ids, &self.events), Vec::new())
    }
}

/// The work that a shard has taken from its queue and not done yet.
struct Inbox<'a> {
    queue: Receiver<Work>,
    taken: VecDeque<Work>,
    rounds: &'a Rounds,
    /// The greatest number of a round in which a part that was handed out since the last end was expected.
    expected: Option<u64>,
}

impl<'a> Inbox<'a> {
    fn new(queue: Receiver<Work>, rounds: &'a Rounds) -> Self {
        Self {
            queue,
            taken: VecDeque::new(),
            rounds,
            expected: None,
        }
    }

    /// Wakes those who wait for the parts that were handed out, all of which are answered.
    fn end_round(&mut self) {
        if let Some(expected) = self.expected.take() {
            self.rounds.end(expected);
        }
    }

    /// Waits for the next work. `None` if all senders are gone.
    fn wait(&mut self, hot: &Hot) -> Option<Work> {
        if self.taken.is_empty() {
            let work = self.queue.recv().ok()?;
            self.taken.push_back(work);
            self.take();
            hot.warm(self.entities());
        }
        let work = self.taken.pop_front()?;
        if let Work::Reports(part) = &work {
            self.expected = self.expected.max(Some(part.round));
        }
        Some(work)
    }

    /// Takes work from the queue, unless some is left. Returns whether it has taken any.
    fn fill(&mut self) -> bool {
        if self.taken.is_empty() {
            self.take();
            return !self.taken.is_empty();
        }
        false
    }

    fn take(&mut self) {
        let reports = |work: &Work| match work {
            Work::Reports(part) => part.items.len(),
            Work::Erase(_) | Work::Thin(_) | Work::Mark(_) => 1,
        };
        self.rounds.begin();
        let mut count: usize = self.taken.iter().map(reports).sum();
        while count < ROUND_MAX {
            let Ok(work) = self.queue.try_recv() else {
                break;
            };
            count += reports(&work);
            self.taken.push_back(work);
        }
    }

    /// The entities of the reports that were taken.
    fn entities(&self) -> impl Iterator<Item = (Fleet, Entity)> {
        let parts = self.taken.iter().filter_map(|work| match work {
            Work::Reports(part) => Some(part),
            Work::Erase(_) | Work::Thin(_) | Work::Mark(_) => None,
        });
        parts.flat_map(|part| part.items.iter().map(|item| (part.of.fleet, item.first)))
    }

    /// The next part, if the next work is a part.
    fn part(&mut self) -> Option<Part> {
        match self.taken.pop_front()? {
            Work::Reports(part) => {
                self.expected = self.expected.max(Some(part.round));
                Some(part)
            }
            other @ (Work::Erase(_) | Work::Thin(_) | Work::Mark(_)) => {
                self.taken.push_front(other);
                None
            }
        }
    }
}

/// Parts that wait for the device, and ids of events. The store's callback answers them, or the
/// shard if the write fails.
struct Waiting {
    inner: Arc<Mutex<(Vec<Part>, Option<Ids>)>>,
    events: Arc<Events>,
}

impl Waiting {
    fn new(parts: Vec<Part>, ids: Option<Ids>, events: &Arc<Events>) -> Self {
        Self {
            inner: Arc::new(Mutex::new((parts, ids))),
            events: Arc::clone(events),
        }
    }

    /// The callback for the store. `None` if nothing waits.
    fn told(&self) -> Option<Told> {
        let waits = {
            let waiting = self.lock();
            !waiting.0.is_empty() || waiting.1.is_some()
        };
        let waiting = Self {
            inner: Arc::clone(&self.inner),
            events: Arc::clone(&self.events),
        };
        waits.then(|| Box::new(move |number, result| waiting.settle(number, &result)) as Told)
    }

    fn settle(&self, number: u64, result: &Result<()>) {
        let (parts, ids) = self.take();
        // The events come first, so that a caller with an answer finds them, unless earlier events
        // are not durable yet.
        match result {
            Ok(()) => {
                drop(ids);
                self.events.is_durable(number);
            }
            // The events are written, and may become durable later or be lost.
            Err(_) => ids
                .into_iter()
                .for_each(|ids| self.events.is_unsure(number, ids)),
        }
        settle(parts, number, result);
    }

    fn take(&self) -> (Vec<Part>, Option<Ids>) {
        let mut waiting = self.lock();
        (std::mem::take(&mut waiting.0), waiting.1.take())
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Part>, Option<Ids>)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers parts whose write has this number, or failed.
fn settle(parts: Vec<Part>, number: u64, result: &Result<()>) {
    for mut part in parts {
        match result {
            Ok(()) => part.is_written(number),
            Err(e) => part.fail(e),
        }
    }
}
