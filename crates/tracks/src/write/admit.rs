//! Admission of reports: places in the queues, and tickets for the answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use base::rounds::Rounds;
use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError};
use base::{Error, ErrorKind, Result};

use super::apply::Of;
use crate::model::key::Entity;
use crate::model::report::Dated;

/// When a report is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// When it survives a power cut.
    #[default]
    Durable,
    /// When reads see it, and it survives the end of the process. A power cut within about a second may
    /// lose it.
    Visible,
}

/// The result of one report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is its entity's newest report now.
    Moved,
    /// The entity has a newer report: this one is history only.
    Late,
    /// The same report was stored already.
    Same,
}

/// The results of all reports of one call.
#[derive(Debug)]
pub struct Answer {
    /// In the order of the reports; an error says why a report was not taken.
    pub outcomes: Vec<Result<Outcome>>,
    /// The greatest sequence number of their writes, for
    /// [`Store::wait_durable`](crate::store::Store::wait_durable); 0 if nothing was written.
    pub number: u64,
}

/// A thread waits for the ends of so many rounds before it asks to be woken by itself.
const ROUNDS_AWAITED: u32 = 2;

/// An answer that comes later. Dropping it does not cancel the reports.
#[derive(Debug)]
pub struct Ticket {
    call: Arc<Call>,
    /// The rounds of the shard that answers, and the one that is expected to do so; `None` if several shards or the
    /// device must have answered.
    rounds: Option<(Arc<Rounds>, u64)>,
}

impl Ticket {
    /// Sets the round of a shard that is expected to answer all.
    pub(super) fn expect(&mut self, rounds: &Arc<Rounds>, number: u64) {
        self.rounds = Some((Arc::clone(rounds), number));
    }

    /// Waits for the answer; not for use in an asynchronous runtime, where the ticket is a future.
    /// A report that was not done when the service stopped has an error as its outcome.
    pub fn wait(mut self) -> Answer {
        if let Some((rounds, mut number)) = self.rounds.take() {
            for _ in 0..ROUNDS_AWAITED {
                number = rounds.wait(number);
                let call = self.call.lock();
                if call.left == 0 || call.waits_for_the_device {
                    break;
                }
            }
        }
        thread_local!(static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current()))));
        WAKER.with(|waker| {
            let mut cx = Context::from_waker(waker);
            loop {
                match Pin::new(&mut self).poll(&mut cx) {
                    Poll::Ready(answer) => return answer,
                    Poll::Pending => thread::park(),
                }
            }
        })
    }
}

impl Future for Ticket {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.call.poll(cx)
    }
}

/// Wakes a waiting thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn stopped() -> Error {
    Error::new(
        ErrorKind::ShutdownInProgress,
        "the service stopped before the reports were answered",
    )
    .hint("send them again: those with a time that is not ahead of the server's clock are not stored twice")
}

/// The places of a shard: a bound on its reports in progress.
#[derive(Debug)]
pub(super) struct Places {
    taken: AtomicUsize,
    most: usize,
}

impl Places {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicUsize::new(0),
            most,
        })
    }

    /// Takes places for some reports. As long as one place is left, any number is taken, so that a
    /// large call is never refused for its size. `None` if no place is left.
    pub(super) fn take(self: &Arc<Self>, count: usize) -> Option<Taken> {
        let add = |taken: usize| (taken < self.most).then_some(taken + count);
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()?;
        Some(Taken {
            places: Arc::clone(self),
            count,
        })
    }

    pub(super) fn has_room(&self) -> bool {
        self.taken() < self.most
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// Places that are given back when this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    places: Arc<Places>,
    count: usize,
}

impl Taken {
    /// Splits off `count` places, or all if there are fewer.
    pub(super) fn split(&mut self, count: usize) -> Self {
        let count = count.min(self.count);
        self.count -= count;
        Self {
            places: Arc::clone(&self.places),
            count,
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// A report of a call.
#[derive(Debug)]
pub(super) struct Item {
    /// Its index in the call.
    pub(super) nth: usize,
    /// The number of its entity, unless another name has that number.
    pub(super) first: Entity,
    pub(super) report: Dated,
    /// Its result, once it is known.
    pub(super) outcome: Option<Result<Outcome>>,
}

/// The reports of one call that one shard handles. Dropping it answers the call: reports without a
/// known write are answered as not stored.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) of: Of,
    pub(super) items: Vec<Item>,
    pub(super) ack: Ack,
    /// The sequence number of their write, once it is visible or durable, as the call demands.
    number: Option<u64>,
    call: Arc<Call>,
    /// `None` once they are given back.
    taken: Option<Taken>,
    /// The round that is expected to take it.
    pub(super) round: u64,
    /// When it was put in the queue, in nanoseconds of the monotonic clock.
    pub(super) since: u64,
}

impl Part {
    pub(super) fn new(
        (of, items): (Of, Vec<Item>),
        ack: Ack,
        call: &Arc<Call>,
        (taken, since): (Taken, u64),
        round: u64,
    ) -> Self {
        Self {
            since,
            round,
            of,
            items,
            ack,
            number: None,
            call: Arc::clone(call),
            taken: Some(taken),
        }
    }

    /// Records that the write of these reports is visible or durable, as the call demands.
    pub(super) fn is_written(&mut self, number: u64) {
        self.number = Some(number);
    }

    /// Records that these reports are not answered at the end of their round, but when they are durable. To be called
    /// before that end.
    pub(super) fn waits_for_the_device(&self) {
        self.call.lock().waits_for_the_device = true;
    }

    /// Records that these reports were not stored.
    pub(super) fn fail(&mut self, e: &Error) {
        let outcomes = self.items.iter_mut().map(|item| &mut item.outcome);
        for outcome in outcomes.filter(|outcome| matches!(outcome, Some(Ok(_)))) {
            *outcome = Some(Err(e.clone()));
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.number.is_none() {
            self.fail(&stopped());
        }
        // Given back first, so that the caller finds them free once it has the answer.
        drop(self.taken.take());
        let items = std::mem::take(&mut self.items);
        self.call.part_is_done(items, self.number.unwrap_or(0));
    }
}

/// A call whose parts are with shards.
#[derive(Debug)]
pub(super) struct Call(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    /// The number of parts that are not done.
    left: usize,
    /// The results that were known before the parts were made.
    outcomes: Vec<Option<Result<Outcome>>>,
    /// The items of the parts that are done. They go back to the thread that waits for the answer,
    /// which frees their memory: a shard's thread, on which all others wait, has no time for that.
    done: Vec<Vec<Item>>,
    number: u64,
    /// A part is answered later than at the end of its round.
    waits_for_the_device: bool,
    waker: Option<Waker>,
}

impl Call {
    /// A call with these results so far, and with this number of parts.
    pub(super) fn new(outcomes: Vec<Option<Result<Outcome>>>, parts: usize) -> (Arc<Self>, Ticket) {
        let call = Arc::new(Self(Mutex::new(Inner {
            left: parts,
            outcomes,
            done: Vec::with_capacity(parts),
            number: 0,
            waits_for_the_device: false,
            waker: None,
        })));
        let ticket = Ticket {
            call: Arc::clone(&call),
            rounds: None,
        };
        (call, ticket)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part_is_done(&self, items: Vec<Item>, number: u64) {
        let waker = {
            let mut inner = self.lock();
            inner.number = inner.number.max(number);
            inner.done.push(items);
            inner.left = inner.left.saturating_sub(1);
            if inner.left == 0 {
                inner.waker.take()
            } else {
                None
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut inner = self.lock();
        if inner.left > 0 {
            if !inner
                .waker
                .as_ref()
                .is_some_and(|w| w.will_wake(cx.waker()))
            {
                inner.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        let mut outcomes = std::mem::take(&mut inner.outcomes);
        let done = std::mem::take(&mut inner.done);
        let number = inner.number;
        drop(inner);
        for item in done.into_iter().flatten() {
            if let Some(place) = outcomes.get_mut(item.nth) {
                *place = item.outcome;
            }
        }
        let outcomes = outcomes.into_iter();
        Poll::Ready(Answer {
            outcomes: outcomes
                .map(|outcome| outcome.unwrap_or_else(|| Err(stopped())))
                .collect(),
            number,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::position::at;
    use crate::model::key::Fleet;
    use crate::model::name::Name;
    use crate::model::point::Point;
    use crate::model::time::Time;

    #[test]
    fn places_come_back_and_are_bounded() {
        let places = Places::new(10);
        let a = places.take(9).unwrap();
        let b = places.take(100).unwrap();
        assert!(places.take(1).is_none());
        assert_eq!(places.taken(), 109);
        drop(b);
        let mut c = places.take(5).unwrap();
        let d = c.split(3);
        drop(c);
        assert_eq!(places.taken(), 12);
        drop((a, d));
        assert_eq!(places.taken(), 0);
    }

    fn item(nth: usize) -> Item {
        let name = Name::new("a").unwrap();
        Item {
            nth,
            first: name.number(0),
            report: Dated {
                entity: name,
                time: Time(1),
                point: Point::at(at(1.0, 2.0)),
            },
            outcome: None,
        }
    }

    #[test]
    fn a_part_that_is_dropped_is_answered() {
        let places = Places::new(10);
        let (call, ticket) = Call::new(vec![None, None, Some(Err(stopped())), None], 3);
        let of = || Of {
            fleet: Fleet(1),
            limits: (0, 0.0),
        };
        let items = |items: &[usize]| items.iter().map(|&nth| item(nth)).collect();
        let part = |n, nths: &[usize]| {
            Part::new(
                (of(), items(nths)),
                Ack::Durable,
                &call,
                (places.take(n).unwrap(), 0),
                1,
            )
        };
        let mut first = part(1, &[0]);
        let second = part(2, &[3]);
        first.items.first_mut().unwrap().outcome = Some(Ok(Outcome::Moved));
        first.is_written(7);
        let mut third = part(1, &[1]);
        third.items.first_mut().unwrap().outcome = Some(Ok(Outcome::Late));
        drop((first, second, third));
        assert_eq!(places.taken(), 0);
        let answer = ticket.wait();
        assert_eq!(answer.number, 7);
        assert_eq!(
            *answer.outcomes.first().unwrap().as_ref().unwrap(),
            Outcome::Moved
        );
        let e = answer.outcomes.get(1).unwrap().as_ref().unwrap_err();
        assert!(e.to_string().contains("send them again"), "{e}");
        assert!(answer.outcomes.get(2).unwrap().is_err());
        assert!(answer.outcomes.get(3).unwrap().is_err());
        assert!(Call::new(vec![], 0).1.wait().outcomes.is_empty());
    }
}
