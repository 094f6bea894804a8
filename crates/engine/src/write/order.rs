//! The one order of writes: sequence numbers are given in it, and writes become visible in it.
//!
//! Groups overlap: while one waits for the device, the next is logged or inserted. A *ticket* is a
//! group's place. Whoever finishes earlier than the group before it waits until that one is visible,
//! so that a reader never sees a write without those before it.
//!
//! The order is also the gate for what must not happen while a group is halfway: rotations of
//! memtables, changes of the set of families, `lock_wal`. [`Order::close`] lets nobody in and waits
//! until all who are in are out.

use std::collections::VecDeque;

use base::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use base::{Error, ErrorKind, Result};

use super::plan::Patience;
use super::watermark::Watermark;

/// See the module.
pub(crate) struct Order {
    state: Mutex<State>,
    changed: Condvar,
    /// The last sequence number that readers see.
    pub(crate) visible: Watermark,
}

#[derive(Default)]
struct State {
    /// The last sequence number that was given to a write, whatever became of it.
    allocated: u64,
    /// Tickets given.
    given: u64,
    /// Tickets of groups that are over, with all before them.
    over: u64,
    /// Groups behind `over`: what they make visible, once they are over.
    later: VecDeque<Option<u64>>,
    /// Groups that are in.
    inside: usize,
    closed: bool,
    /// It is closed until somebody asks to open it.
    kept: bool,
    /// Who comes gets this.
    refusal: Option<Error>,
    /// Threads that sleep on `changed`.
    sleeping: usize,
}

impl State {
    /// Errors: who has this patience does not wait until the gate opens.
    fn check_waits(&self, patience: Patience) -> Result<()> {
        let waits = match patience {
            Patience::None => false,
            Patience::Job => !self.kept,
            Patience::All => true,
        };
        if waits {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Incomplete,
            "write would wait: the WAL is locked or memtables are being rotated",
        ))
    }

    /// Each ticket that was given is over, with all before it, or has its place behind those.
    fn check(&self) {
        base::invariant!(
            self.over + self.later.len() as u64 == self.given,
            "{} tickets were given, {} are over and {} later",
            self.given,
            self.over,
            self.later.len()
        );
    }
}

/// A group's place in the order. When it is dropped, the group is over: it has written nothing, if
/// [`Ticket::end`] did not say otherwise.
#[must_use = "later groups wait until this one is over"]
pub(crate) struct Ticket<'a> {
    order: &'a Order,
    number: u64,
    /// The first sequence number of the group.
    pub(crate) first: u64,
    /// The last one; `first - 1` if the group has none.
    pub(crate) last: u64,
    over: bool,
}

impl Ticket<'_> {
    /// The group is over: what it wrote, if it did, becomes visible once all before it are over.
    pub(crate) fn end(&mut self, written: bool) {
        assert!(!self.over, "a group ends once");
        self.over = true;
        self.order.finish(self.number, written.then_some(self.last));
    }

    /// Waits until the group and all before it are over.
    pub(crate) fn wait(&self) {
        let mut state = self.order.lock();
        while state.over < self.number {
            state = self.order.sleep(state);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.end(false);
        }
    }
}

/// The gate is closed while this lives.
#[must_use = "the gate opens when it is dropped"]
pub(crate) struct Closed<'a>(Option<&'a Order>);

impl Closed<'_> {
    /// Leaves the gate closed: somebody calls [`Order::open`].
    pub(crate) fn keep(mut self) {
        if let Some(order) = self.0.take() {
            order.lock().kept = true;
            order.changed.notify_all();
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        if let Some(order) = self.0 {
            order.open();
        }
    }
}

/// A group is in while this lives.
pub(crate) struct Inside<'a>(&'a Order);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        base::invariant!(state.inside > 0, "somebody leaves twice");
        state.inside -= 1;
        if state.closed && state.inside == 0 {
            self.0.changed.notify_all();
        }
    }
}

/// Tickets, and those inside, borrow the order.
impl Drop for Order {
    fn drop(&mut self) {
        let state = self.lock();
        base::invariant!(
            base::sync::thread::panicking() || state.inside == 0 && state.over == state.given,
            "{} are inside an order that nobody has, {} of {} groups are over",
            state.inside,
            state.over,
            state.given
        );
    }
}

impl Order {
    /// An order that goes on behind `last`.
    pub(crate) fn after(last: u64) -> Self {
        Self {
            state: Mutex::new(State {
                allocated: last,
                ..State::default()
            }),
            changed: Condvar::new(),
            visible: Watermark::at(last),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.sleeping += 1;
        let mut state = self
            .changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
        state.sleeping -= 1;
        state
    }

    /// Goes in; waits while the order is closed, as far as `patience` goes. Errors: `Incomplete`.
    pub(crate) fn enter(&self, patience: Patience) -> Result<Inside<'_>> {
        let mut state = self.lock();
        loop {
            if let Some(e) = &state.refusal {
                return Err(e.clone());
            }
            if !state.closed {
                break;
            }
            state.check_waits(patience)?;
            state = self.sleep(state);
        }
        state.inside += 1;
        Ok(Inside(self))
    }

    /// Closes the gate and waits until nobody is in. Where somebody else has closed it, waits as far as
    /// `patience` goes. Errors: `Incomplete`; while somebody resumes, the same as for who comes.
    pub(crate) fn close(&self, patience: Patience) -> Result<Closed<'_>> {
        let mut state = self.lock();
        while state.closed {
            // A flush may wait for this thread, and whoever resumes for the flush.
            if let Some(e) = &state.refusal {
                return Err(e.clone());
            }
            state.check_waits(patience)?;
            state = self.sleep(state);
        }
        Ok(self.close_now(state))
    }

    /// The same for who resumes: nobody who is refused goes before.
    pub(crate) fn close_to_resume(&self) -> Closed<'_> {
        let mut state = self.lock();
        while state.closed {
            state = self.sleep(state);
        }
        self.close_now(state)
    }

    fn close_now<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Closed<'a> {
        state.closed = true;
        while state.inside > 0 {
            state = self.sleep(state);
        }
        base::invariant!(
            state.closed && state.over == state.given,
            "a group without a place inside is not over"
        );
        Closed(Some(self))
    }

    /// Who waits at the gate, or comes, gets `error` instead, until [`Order::accept`]: also those who were
    /// let through all checks before. A listener may be among them that the closed gate waits for.
    pub(crate) fn refuse(&self, error: &Error) {
        self.lock().refusal = Some(error.clone());
        self.changed.notify_all();
    }

    /// What those get who come now, if they would not wait: see [`Order::refuse`].
    pub(crate) fn check_refusal(&self) -> Result<()> {
        self.lock()
            .refusal
            .as_ref()
            .map_or(Ok(()), |e| Err(e.clone()))
    }

    /// Nobody is refused any more.
    pub(crate) fn accept(&self) {
        self.lock().refusal = None;
    }

    /// Opens a gate that was kept closed.
    pub(crate) fn open(&self) {
        let mut state = self.lock();
        state.closed = false;
        state.kept = false;
        drop(state);
        self.changed.notify_all();
    }

    /// The next `count` sequence numbers. From here on they are used, whatever happens. For writes
    /// that are logged, the caller holds the log: its order is this one.
    pub(crate) fn begin(&self, count: u64) -> Ticket<'_> {
        let mut state = self.lock();
        let first = state.allocated + 1;
        state.allocated += count;
        state.given += 1;
        state.later.push_back(None);
        state.check();
        Ticket {
            order: self,
            number: state.given,
            first,
            last: first + count - 1,
            over: false,
        }
    }

    /// The last sequence number that was given to a write.
    pub(crate) fn allocated(&self) -> u64 {
        self.lock().allocated
    }

    /// All sequence numbers up to `last` that are not used yet. The gate is closed.
    pub(crate) fn begin_through(&self, last: u64) -> Ticket<'_> {
        let allocated = self.lock().allocated;
        self.begin(last.saturating_sub(allocated))
    }

    fn finish(&self, number: u64, visible_through: Option<u64>) {
        let mut state = self.lock();
        let at = (number - state.over - 1) as usize;
        // 0 makes nothing visible.
        let place = state.later.get_mut(at);
        *place.expect("a group that is not over has a place") = Some(visible_through.unwrap_or(0));
        let mut visible = 0;
        while let Some(&Some(last)) = state.later.front() {
            state.later.pop_front();
            state.over += 1;
            visible = visible.max(last);
        }
        state.check();
        base::invariant!(
            visible <= state.allocated,
            "visible through {visible}, but only {} were given",
            state.allocated
        );
        if visible > 0 {
            self.visible.raise(visible);
        }
        if state.sleeping > 0 && at == 0 {
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn later_groups_become_visible_after_earlier_ones() {
        let order = Order::after(10);
        let (a, mut b, mut c) = (order.begin(2), order.begin(0), order.begin(3));
        assert_eq!(
            (a.first, a.last, b.last, c.first, c.last),
            (11, 12, 12, 13, 15)
        );
        c.end(true);
        b.end(true);
        assert_eq!(order.visible.get(), 10);
        drop(a);
        c.wait();
        assert_eq!(order.visible.get(), 15, "burned numbers are passed over");
    }

    #[test]
    fn the_gate_waits_for_those_inside() {
        let order = Arc::new(Order::after(0));
        let inside = order.enter(Patience::All).unwrap();
        let other = Arc::clone(&order);
        let closing = base::sync::thread::Builder::new()
            .spawn(move || other.close(Patience::All).unwrap().keep())
            .unwrap();
        while order.enter(Patience::None).is_ok() {
            base::sync::thread::yield_now();
        }
        assert!(!closing.is_finished());
        drop(inside);
        closing.join().unwrap();
        assert_eq!(
            order.enter(Patience::None).err().map(|e| e.kind()),
            Some(ErrorKind::Incomplete)
        );
        order.open();
        order.enter(Patience::None).unwrap();
    }
}
