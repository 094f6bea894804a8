//! What is on its way: places in the queues, and tickets for answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::{Mutex, PoisonError};
use base::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::apply::Of;
use crate::model::report::Dated;

/// When a report is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// When it survives a power cut.
    #[default]
    Durable,
    /// When reads see it. It is lost where the process or the power fails before the next device write.
    Visible,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is its entity's newest.
    Moved,
    /// There is a newer one: it is history.
    Late,
    /// The same was there already.
    Same,
}

/// What became of all reports that were given together.
#[derive(Debug)]
pub struct Answer {
    /// In their order; an error says why one was not taken.
    pub outcomes: Vec<Result<Outcome>>,
    /// The greatest number of their writes, for [`Store::wait_durable`](crate::store::Store::wait_durable); 0: none was written.
    pub number: u64,
}

/// An answer that comes later. Dropping it changes nothing: the reports go on.
#[derive(Debug)]
pub struct Ticket(oneshot::Receiver<Answer>);

impl Ticket {
    /// Waits for it; not within an asynchronous runtime, where it is a future. Errors: the service was stopped meanwhile.
    pub fn wait(mut self) -> Result<Answer> {
        // One system call to sleep and one to wake, where the channel's own way takes two each.
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
    type Output = Result<Answer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.map_err(|_| stopped()))
    }
}

/// Wakes a thread that waits.
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
    .hint("send them again: what was stored already is not stored twice")
}

/// The places of a shard: so many reports may be on their way.
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

    /// Takes places for some reports. What comes when there is one left is taken whole, however much it is. `None`: there is
    /// none.
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
    /// So many of them, of which there are as many at least.
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

/// The reports of one call that a shard has to do. Dropping it answers: that they are not stored, as far as it was not told
/// better.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) of: Of,
    /// With their places in the call.
    pub(super) reports: Vec<(usize, Dated)>,
    pub(super) ack: Ack,
    /// What became of them, as far as that is known.
    done: Vec<(usize, Result<Outcome>)>,
    /// The number of the write that has them, once it is as the call wants it.
    number: Option<u64>,
    call: Arc<Call>,
    _taken: Taken,
}

impl Part {
    pub(super) fn new(
        (of, reports): (Of, Vec<(usize, Dated)>),
        ack: Ack,
        call: &Arc<Call>,
        taken: Taken,
    ) -> Self {
        Self {
            of,
            done: Vec::with_capacity(reports.len()),
            reports,
            ack,
            number: None,
            call: Arc::clone(call),
            _taken: taken,
        }
    }

    /// What became of one.
    pub(super) fn set(&mut self, nth: usize, outcome: Result<Outcome>) {
        self.done.push((nth, outcome));
    }

    /// The write that has them is visible, or durable, as the call wants it.
    pub(super) fn is_written(&mut self, number: u64) {
        self.number = Some(number);
    }

    /// Nothing of it came to be.
    pub(super) fn fail(&mut self, e: &Error) {
        for (_, outcome) in self.done.iter_mut().filter(|(_, outcome)| outcome.is_ok()) {
            *outcome = Err(e.duplicate());
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.number.is_none() {
            self.fail(&stopped());
        }
        let done = std::mem::take(&mut self.done);
        self.call.part_is_done(done, self.number.unwrap_or(0));
    }
}

/// A call of which parts are with shards.
#[derive(Debug)]
pub(super) struct Call {
    parts: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    outcomes: Vec<Option<Result<Outcome>>>,
    number: u64,
    answer: Option<oneshot::Sender<Answer>>,
}

impl Call {
    /// Of so many reports, in so many parts.
    pub(super) fn new(outcomes: Vec<Option<Result<Outcome>>>, parts: usize) -> (Arc<Self>, Ticket) {
        let (sender, receiver) = oneshot::channel();
        let call = Self {
            parts: AtomicUsize::new(parts),
            inner: Mutex::new(Inner {
                outcomes,
                number: 0,
                answer: Some(sender),
            }),
        };
        if parts == 0 {
            call.end();
        }
        (Arc::new(call), Ticket(receiver))
    }

    fn part_is_done(&self, done: Vec<(usize, Result<Outcome>)>, number: u64) {
        {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.number = inner.number.max(number);
            for (nth, outcome) in done {
                if let Some(place) = inner.outcomes.get_mut(nth) {
                    *place = Some(outcome);
                }
            }
        }
        if self.parts.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end();
        }
    }

    fn end(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let outcomes = std::mem::take(&mut inner.outcomes);
        let answer = Answer {
            outcomes: outcomes
                .into_iter()
                .map(|outcome| outcome.unwrap_or_else(|| Err(stopped())))
                .collect(),
            number: inner.number,
        };
        let sender = inner.answer.take();
        drop(inner);
        if let Some(sender) = sender {
            // Nobody waits any more: that is their matter.
            drop(sender.send(answer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::key::Fleet;

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

    #[test]
    fn a_part_that_is_dropped_is_answered() {
        let places = Places::new(10);
        let (call, ticket) = Call::new(vec![None, None, Some(Err(stopped()))], 3);
        let of = || Of {
            fleet: Fleet(1),
            limits: (0, 0.0),
        };
        let part = |n| Part::new((of(), vec![]), Ack::Durable, &call, places.take(n).unwrap());
        let (mut first, second) = (part(1), part(2));
        first.set(0, Ok(Outcome::Moved));
        first.is_written(7);
        let mut third = part(1);
        third.set(1, Ok(Outcome::Late));
        drop((first, second, third));
        assert_eq!(places.taken(), 0);
        let answer = ticket.wait().unwrap();
        assert_eq!(answer.number, 7);
        assert_eq!(
            *answer.outcomes.first().unwrap().as_ref().unwrap(),
            Outcome::Moved
        );
        let e = answer.outcomes.get(1).unwrap().as_ref().unwrap_err();
        assert!(e.to_string().contains("send them again"), "{e}");
        assert!(answer.outcomes.get(2).unwrap().is_err());
        assert!(Call::new(vec![], 0).1.wait().unwrap().outcomes.is_empty());
    }
}
