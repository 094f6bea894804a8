//! Threads that wait for a worker, woken together: once for each round of its work.
//!
//! A worker that takes what was sent to it, works on all of it and then answers, would otherwise wake each thread by
//! itself. Each such wake is a system call, and often an interrupt to another processor. They can take longer
//! than the work. So a thread waits for the end of the round that is expected to take what it sent, and looks then
//! whether it has its answer. If it has none, a later round takes what it sent, and it waits for that one's end.
//!
//! Rounds are counted from 1. What is sent after `n` rounds have begun is expected in round `n + 1`. This may be wrong
//! by one in both directions, because sending and taking are not one step: a thread is then woken in vain once,
//! and the worker says by [`Rounds::end`] that it took something early. Where more waits than a round takes, threads are
//! woken in vain again and again: they should wait in another way.
//!
//! ```
//! use base::rounds::Rounds;
//! use base::sync::atomic::{AtomicBool, Ordering};
//! use std::sync::mpsc::channel;
//!
//! let (rounds, answered) = (&Rounds::default(), &AtomicBool::new(false));
//! let (sender, queue) = channel();
//! std::thread::scope(|s| {
//!     s.spawn(move || {
//!         rounds.begin();
//!         let expected: u64 = queue.recv().unwrap();
//!         answered.store(true, Ordering::SeqCst);
//!         rounds.end(expected);
//!     });
//!     let mut round = rounds.next();
//!     sender.send(round).unwrap();
//!     while !answered.load(Ordering::SeqCst) {
//!         round = rounds.wait(round);
//!     }
//! });
//! ```

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// So many rounds that follow each other can be waited for without a thread being woken by the end of another.
const SLOTS: u64 = 4;

/// The rounds of a worker. One thread begins and ends them; any number may wait.
#[derive(Debug, Default)]
pub struct Rounds {
    begun: AtomicU64,
    /// The number of the last round that has ended.
    ended: Mutex<u64>,
    ends: [Condvar; SLOTS as usize],
}

impl Rounds {
    /// The round that is expected to take what is sent after this call.
    pub fn next(&self) -> u64 {
        self.begun.load(Ordering::SeqCst) + 1
    }

    /// A round begins, or goes on with what was sent meanwhile. To be called before anything is taken.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// All that was taken is answered. `expected` is the greatest number that [`Rounds::next`] had given for any of
    /// it.
    pub fn end(&self, expected: u64) {
        let mut ended = self.lock();
        let before = *ended;
        let begun = self.begun.load(Ordering::SeqCst);
        // At least one more than before: whoever waits for the next round must be woken by each end, because what it
        // sent may have been taken in an earlier round and answered in this one.
        *ended = begun.max(expected).max(before.saturating_add(1));
        let number = *ended;
        self.begun.fetch_max(number, Ordering::SeqCst);
        drop(ended);
        let new = (number - before).min(SLOTS);
        for number in number - new + 1..=number {
            self.slot(number).notify_all();
        }
    }

    /// There are no more rounds: nobody waits from now on.
    pub fn end_all(&self) {
        self.begun.store(u64::MAX - 1, Ordering::SeqCst);
        *self.lock() = u64::MAX;
        self.ends.iter().for_each(Condvar::notify_all);
    }

    /// Waits until a round has ended. Returns the number of the round after the last that has ended, for which a
    /// thread waits next if it has no answer.
    pub fn wait(&self, round: u64) -> u64 {
        let mut ended = self.lock();
        while *ended < round {
            let woken = self.slot(round).wait(ended);
            ended = woken.unwrap_or_else(PoisonError::into_inner);
        }
        ended.saturating_add(1)
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, round: u64) -> &Condvar {
        &self.ends[(round % SLOTS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_another_round() {
        let rounds = Rounds::default();
        assert_eq!(rounds.next(), 1);
        rounds.begin();
        assert_eq!(rounds.next(), 2);
        rounds.end(1);
        assert_eq!((rounds.wait(0), rounds.wait(1)), (2, 2));
        // Nothing was taken anew, and what was left is answered.
        rounds.end(1);
        assert_eq!((rounds.wait(2), rounds.next()), (3, 3));
        // It took what was expected in the round after it.
        rounds.begin();
        rounds.end(4);
        assert_eq!((rounds.wait(4), rounds.next()), (5, 5));
        rounds.end_all();
        assert_eq!(rounds.wait(rounds.next()), u64::MAX);
        assert_eq!(rounds.wait(u64::MAX), u64::MAX);
    }
}
