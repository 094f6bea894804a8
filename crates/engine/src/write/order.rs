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
    /// Threads that sleep on `changed`.
    sleeping: usize,
}

/// A group's place in the order.
#[derive(Clone, Copy, Debug)]
#[must_use = "later groups wait until this one is over"]
pub(crate) struct Ticket {
    number: u64,
    /// The first sequence number of the group.
    pub(crate) first: u64,
    /// The last one; `first - 1` if the group has none.
    pub(crate) last: u64,
}

/// A group is in while this lives.
pub(crate) struct Inside<'a>(&'a Order);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.inside -= 1;
        if state.closed && state.inside == 0 {
            self.0.changed.notify_all();
        }
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

    /// Goes in; waits while the order is closed. Errors: `Incomplete` if it is and `no_slowdown`.
    pub(crate) fn enter(&self, no_slowdown: bool) -> Result<Inside<'_>> {
        let mut state = self.lock();
        while state.closed {
            if no_slowdown {
                return Err(Error::new(
                    ErrorKind::Incomplete,
                    "write would wait: the WAL is locked or memtables are being rotated",
                ));
            }
            state = self.sleep(state);
        }
        state.inside += 1;
        Ok(Inside(self))
    }

    /// Closes the gate and waits until nobody is in.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        while state.closed {
            state = self.sleep(state);
        }
        state.closed = true;
        while state.inside > 0 {
            state = self.sleep(state);
        }
    }

    /// Opens the gate again.
    pub(crate) fn open(&self) {
        self.lock().closed = false;
        self.changed.notify_all();
    }

    /// Runs `f` while nobody is in, for rotations and changes of the set of families.
    pub(crate) fn alone<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        self.close();
        let result = f();
        self.open();
        result
    }

    /// The next `count` sequence numbers. From here on they are used, whatever happens. For writes
    /// that are logged, the caller holds the log: its order is this one.
    pub(crate) fn begin(&self, count: u64) -> Ticket {
        let mut state = self.lock();
        let first = state.allocated + 1;
        state.allocated += count;
        state.given += 1;
        state.later.push_back(None);
        Ticket {
            number: state.given,
            first,
            last: first + count - 1,
        }
    }

    /// All sequence numbers up to `last` that are not used yet. The gate is closed.
    pub(crate) fn begin_through(&self, last: u64) -> Ticket {
        let allocated = self.lock().allocated;
        self.begin(last.saturating_sub(allocated))
    }

    /// The group is over: what it wrote, if it did, becomes visible once all before it are over.
    pub(crate) fn finish(&self, ticket: Ticket, written: bool) {
        let mut state = self.lock();
        let at = (ticket.number - state.over - 1) as usize;
        // 0 makes nothing visible.
        if let Some(place) = state.later.get_mut(at) {
            *place = Some(if written { ticket.last } else { 0 });
        }
        let mut visible = 0;
        while let Some(&Some(last)) = state.later.front() {
            state.later.pop_front();
            state.over += 1;
            visible = visible.max(last);
        }
        if visible > 0 {
            self.visible.raise(visible);
        }
        if state.sleeping > 0 && at == 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until the group and all before it are over.
    pub(crate) fn wait(&self, ticket: Ticket) {
        let mut state = self.lock();
        while state.over < ticket.number {
            state = self.sleep(state);
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
        let (a, b, c) = (order.begin(2), order.begin(0), order.begin(3));
        assert_eq!(
            (a.first, a.last, b.last, c.first, c.last),
            (11, 12, 12, 13, 15)
        );
        order.finish(c, true);
        order.finish(b, true);
        assert_eq!(order.visible.get(), 10);
        order.finish(a, false);
        order.wait(c);
        assert_eq!(order.visible.get(), 15, "burned numbers are passed over");
    }

    #[test]
    fn the_gate_waits_for_those_inside() {
        let order = Arc::new(Order::after(0));
        let inside = order.enter(false).unwrap();
        let other = Arc::clone(&order);
        let closing = base::sync::thread::Builder::new()
            .spawn(move || other.close())
            .unwrap();
        while order.enter(true).is_ok() {
            base::sync::thread::yield_now();
        }
        assert!(!closing.is_finished());
        drop(inside);
        closing.join().unwrap();
        assert_eq!(
            order.enter(true).err().map(|e| e.kind()),
            Some(ErrorKind::Incomplete)
        );
        order.open();
        order.enter(true).unwrap();
    }
}
