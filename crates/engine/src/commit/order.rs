//! The one order of writes: sequence numbers are assigned in this order, and writes become visible in it.
//!
//! Groups overlap: while one waits for the device, the next is logged or inserted. A *ticket* is a
//! group's place in the order. A group that finishes before its predecessor becomes visible only after
//! it, so that a reader never sees a write without all earlier ones.
//!
//! The order is also a *gate* for operations that must not run while a group is in progress: rotations of
//! memtables, changes of the set of families, `lock_wal`. [`Order::close`] lets no more groups in and
//! waits until the groups inside have left.

use std::collections::VecDeque;

use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, ErrorKind, Result};

use super::plan::Patience;
use crate::locks;
use crate::watermark::Watermark;

/// A bit of [`Order::gate`]: groups wait.
const CLOSED: usize = 1;
/// A bit of [`Order::gate`]: groups are refused, see [`Order::refuse`].
const REFUSES: usize = 2;
/// The amount that each group inside adds to [`Order::gate`].
const INSIDE: usize = 4;

/// See the module.
pub(crate) struct Order {
    /// [`CLOSED`], [`REFUSES`], and [`INSIDE`] for each group inside. The two bits change under the lock of `state`.
    /// While one of them is set, groups enter under that lock. Otherwise groups enter without a lock. Groups always
    /// leave without a lock.
    gate: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
    /// The last sequence number that readers see.
    pub(crate) visible: Watermark,
}

#[derive(Default)]
struct State {
    /// The last sequence number that was assigned to a write, even if the write failed.
    allocated: u64,
    /// Tickets issued.
    given: u64,
    /// Tickets up to this number are over.
    over: u64,
    /// The groups after `over`: `None` until a group is over, then the sequence number up to which it
    /// makes writes visible.
    later: VecDeque<Option<u64>>,
    /// The gate stays closed until [`Order::open`] is called.
    kept: bool,
    /// Threads at the gate get this error: see [`Order::refuse`].
    refusal: Option<Error>,
    /// Threads that sleep on `changed`.
    sleeping: usize,
}

impl State {
    /// Errors: a thread with this patience must not wait until the gate opens.
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

    /// Every issued ticket is counted in `over` or has its place in `later`.
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

/// A group's place in the order. Dropping it ends the group, which then counts as having written nothing,
/// unless [`Ticket::end`] was called before.
#[must_use = "later groups wait until this one is over"]
pub(crate) struct Ticket<'a> {
    order: &'a Order,
    number: u64,
    /// The first sequence number of the group.
    pub(crate) first: u64,
    /// The last sequence number of the group; `first - 1` if the group has none.
    pub(crate) last: u64,
    over: bool,
    /// The group and all before it are over.
    all_over: bool,
}

impl Ticket<'_> {
    /// Ends the group. If it has `written`, its writes become visible once all earlier groups are over.
    pub(crate) fn end(&mut self, written: bool) {
        assert!(!self.over, "a group ends once");
        self.over = true;
        self.all_over = self.order.finish(self.number, written.then_some(self.last));
    }

    /// Waits until the group and all before it are over.
    pub(crate) fn wait(&self) {
        if self.all_over {
            return;
        }
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
    /// Leaves the gate closed until [`Order::open`] is called.
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

/// A group is inside the gate while this lives.
pub(crate) struct Inside<'a>(&'a Order);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let before = self.0.gate.fetch_sub(INSIDE, Ordering::Release);
        base::invariant!(before >= INSIDE, "somebody leaves twice");
        if before & CLOSED != 0 && before < 2 * INSIDE {
            // The thread that closes the gate has counted under the lock, and sleeps by now.
            drop(self.0.lock());
            self.0.changed.notify_all();
        }
    }
}

/// Tickets and [`Inside`] borrow the order, so that none is left here.
impl Drop for Order {
    fn drop(&mut self) {
        let state = self.lock();
        base::invariant!(
            base::sync::thread::panicking() || self.inside() == 0 && state.over == state.given,
            "{} are inside an order that nobody has, {} of {} groups are over",
            self.inside(),
            state.over,
            state.given
        );
    }
}

impl Order {
    /// An order that continues after the sequence number `last`.
    pub(crate) fn after(last: u64) -> Self {
        Self {
            gate: AtomicUsize::new(0),
            state: ranked(
                locks::ORDER,
                State {
                    allocated: last,
                    ..State::default()
                },
            ),
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

    /// How many groups are inside.
    fn inside(&self) -> usize {
        self.gate.load(Ordering::Acquire) / INSIDE
    }

    /// Whether the gate is closed. The caller holds the lock.
    fn is_closed(&self, _: &State) -> bool {
        self.gate.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Enters the gate. Waits while it is closed, if `patience` allows that. Errors: `Incomplete` if `patience`
    /// does not allow it; the error of [`Order::refuse`].
    #[inline]
    pub(crate) fn enter(&self, patience: Patience) -> Result<Inside<'_>> {
        let mut seen = self.gate.load(Ordering::Relaxed);
        while seen & (CLOSED | REFUSES) == 0 {
            let entered = self.gate.compare_exchange_weak(
                seen,
                seen + INSIDE,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match entered {
                Ok(_) => return Ok(Inside(self)),
                Err(now) => seen = now,
            }
        }
        self.enter_slowly(patience)
    }

    #[cold]
    fn enter_slowly(&self, patience: Patience) -> Result<Inside<'_>> {
        let mut state = self.lock();
        loop {
            if let Some(e) = &state.refusal {
                return Err(e.clone());
            }
            if !self.is_closed(&state) {
                break;
            }
            state.check_waits(patience)?;
            state = self.sleep(state);
        }
        self.gate.fetch_add(INSIDE, Ordering::Acquire);
        Ok(Inside(self))
    }

    /// Closes the gate and waits until no group is inside. If another thread has closed it, waits for
    /// that thread first, if `patience` allows that. Errors: `Incomplete` if `patience` does not allow it; while
    /// another thread resumes, the error of [`Order::refuse`].
    pub(crate) fn close(&self, patience: Patience) -> Result<Closed<'_>> {
        let mut state = self.lock();
        while self.is_closed(&state) {
            // A flush may wait for this thread, and the thread that resumes may wait for the flush.
            if let Some(e) = &state.refusal {
                return Err(e.clone());
            }
            state.check_waits(patience)?;
            state = self.sleep(state);
        }
        Ok(self.close_now(state))
    }

    /// [`Order::close`] for the thread that resumes: it is not refused, and waits as long as it takes.
    pub(crate) fn close_to_resume(&self) -> Closed<'_> {
        let mut state = self.lock();
        while self.is_closed(&state) {
            state = self.sleep(state);
        }
        self.close_now(state)
    }

    fn close_now<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Closed<'a> {
        self.gate.fetch_or(CLOSED, Ordering::Relaxed);
        while self.inside() > 0 {
            state = self.sleep(state);
        }
        base::invariant!(
            self.is_closed(&state) && state.over == state.given,
            "a group without a place inside is not over"
        );
        Closed(Some(self))
    }

    /// Until [`Order::accept`], threads that wait at the gate or arrive at it get `error`, even if they
    /// have passed all earlier checks. They must not wait: the thread that closed the gate may wait for a
    /// listener that runs on one of them.
    pub(crate) fn refuse(&self, error: &Error) {
        let mut state = self.lock();
        state.refusal = Some(error.clone());
        self.gate.fetch_or(REFUSES, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }

    /// The error that a thread which arrives now would get, without waiting: see [`Order::refuse`].
    pub(crate) fn check_refusal(&self) -> Result<()> {
        self.lock()
            .refusal
            .as_ref()
            .map_or(Ok(()), |e| Err(e.clone()))
    }

    /// Ends [`Order::refuse`].
    pub(crate) fn accept(&self) {
        let mut state = self.lock();
        state.refusal = None;
        self.gate.fetch_and(!REFUSES, Ordering::Release);
    }

    /// Opens a gate that was kept closed.
    pub(crate) fn open(&self) {
        let mut state = self.lock();
        state.kept = false;
        self.gate.fetch_and(!CLOSED, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// Assigns the next `count` sequence numbers. From here on they are used, whatever happens. For
    /// logged writes the caller holds the log's lock, so that the log has the same order.
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
            all_over: false,
        }
    }

    /// The last sequence number that was assigned to a write.
    pub(crate) fn allocated(&self) -> u64 {
        self.lock().allocated
    }

    /// Assigns all sequence numbers up to `last` that are not used yet. The gate is closed.
    pub(crate) fn begin_through(&self, last: u64) -> Ticket<'_> {
        let allocated = self.lock().allocated;
        self.begin(last.saturating_sub(allocated))
    }

    /// Ends a group; returns whether it and all before it are over.
    fn finish(&self, number: u64, visible_through: Option<u64>) -> bool {
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
        at == 0
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

    #[test]
    fn whoever_is_refused_is_refused_at_an_open_gate_too() {
        let order = Order::after(0);
        let error = |entered: Result<Inside<'_>>| entered.err().map(|e| e.kind());
        let refused = Some(ErrorKind::Busy);
        order.refuse(&Error::busy("a resume"));
        assert_eq!(error(order.enter(Patience::All)), refused);
        drop(order.close_to_resume());
        assert_eq!(
            error(order.enter(Patience::All)),
            refused,
            "the gate was closed"
        );
        order.accept();
        assert_eq!(error(order.enter(Patience::None)), None);
        let closed = order.close(Patience::All).unwrap();
        order.refuse(&Error::busy("a resume"));
        assert_eq!(error(order.enter(Patience::All)), refused);
        order.accept();
        assert_eq!(
            error(order.enter(Patience::None)),
            Some(ErrorKind::Incomplete)
        );
        drop(closed);
        assert_eq!(error(order.enter(Patience::None)), None);
    }
}
