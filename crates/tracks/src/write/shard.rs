//! A shard's thread: rounds of reports, each one batch.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use base::Result;
use base::clock::Clock;
use base::sync::{Mutex, MutexGuard, PoisonError};

use super::admit::{Ack, Part};
use super::apply::Round;
use super::hot::Hot;
use crate::fence::{Events, Ids};
use crate::model::time::Time;
use crate::store::{Store, Told};

/// So many reports are one batch, and a part more.
pub(super) const ROUND_MAX: usize = 256;
/// The most reports of a part.
pub(super) const PART_MAX: usize = 256;

/// See the module.
pub(super) struct Shard {
    pub(super) store: Arc<dyn Store>,
    pub(super) hot: Hot,
    pub(super) with_visits: bool,
    pub(super) events: Arc<Events>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Shard {
    /// Does what comes, until nobody sends any more.
    pub(super) fn run(mut self, queue: &Receiver<Part>) {
        while let Ok(first) = queue.recv() {
            let mut count = first.reports.len();
            let mut parts = vec![first];
            while count < ROUND_MAX
                && let Ok(part) = queue.try_recv()
            {
                count += part.reports.len();
                parts.push(part);
            }
            self.round(parts);
        }
    }

    fn round(&mut self, mut parts: Vec<Part>) {
        let mut round = Round::new(&*self.store, &mut self.hot, self.with_visits);
        for part in &mut parts {
            for (nth, report) in std::mem::take(&mut part.reports) {
                let outcome = round.add(&part.of, &report);
                part.set(nth, outcome);
            }
        }
        let is_empty = round.is_empty();
        let ids = match round.events() {
            0 => None,
            count => {
                let now = i64::try_from(self.clock.wall_micros()).unwrap_or(i64::MAX);
                Some(self.events.take(count, Time(now)))
            }
        };
        let finished = round.finish(ids.iter().flat_map(Ids::iter));
        let (durable, visible): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| part.ack == Ack::Durable);
        let durable = Waiting::new(durable, ids, &self.events);
        if is_empty {
            // What was there already may not be durable yet.
            if let Some(told) = durable.told() {
                self.store.when_durable(told);
            }
            return settle(visible, 0, &Ok(()));
        }
        let (written, touched) = match finished {
            Ok((batch, touched)) => (batch.write(durable.told()), touched),
            Err(e) => (Err(e), Vec::new()),
        };
        match written {
            Ok(number) => settle(visible, number, &Ok(())),
            Err(e) => {
                for at in touched {
                    self.hot.forget(at);
                }
                // Nothing was written: their ids are nobody's.
                let (parts, ids) = durable.take();
                drop(ids);
                let result = Err(e);
                settle(parts, 0, &result);
                settle(visible, 0, &result);
            }
        }
    }
}

/// Parts that wait for the device, and events. They are answered by what the store calls, or by who learns that it will not.
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

    /// For the store. `None`: nobody waits.
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
        settle(parts, number, result);
        match result {
            Ok(()) => {
                drop(ids);
                self.events.is_durable(number);
            }
            // It is there, and may be durable later, or be lost.
            Err(_) => ids
                .into_iter()
                .for_each(|ids| self.events.is_unsure(number, ids)),
        }
    }

    fn take(&self) -> (Vec<Part>, Option<Ids>) {
        let mut waiting = self.lock();
        (std::mem::take(&mut waiting.0), waiting.1.take())
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Part>, Option<Ids>)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers parts, whose write has this number, or failed.
fn settle(parts: Vec<Part>, number: u64, result: &Result<()>) {
    for mut part in parts {
        match result {
            Ok(()) => part.is_written(number),
            Err(e) => part.fail(e),
        }
    }
}
