//! Unique keys that are written again, or deleted again: `filluniquerandom` with
//! `--overwrite_probability`, and `fillanddeleteuniquerandom` with sets of disposable entries.
//!
//! ```text
//!   a set      d disposable keys   p persistent keys      neighbours in the shuffled order
//!   is written when it begins      after the delay, and then the disposable ones are deleted
//! ```
//!
//! The next set begins while the previous one waits.

use std::collections::VecDeque;
use std::time::Duration;

use base::Result;
use base::rng::Rng;

use super::{Limit, Worker};
use crate::engine::Engine;
use crate::flags::Flags;
use crate::keys::{Shuffled, Values};
use crate::say;
use crate::stats::Op;

/// The next write; numbers are positions in the shuffled order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// A put, with a value of this size or of the size in the flags.
    Put(u64, Option<usize>),
    Delete(u64),
    /// Wait this many microseconds.
    Wait(u64),
    /// There are no more keys.
    End,
}

/// The way in which keys are chosen.
#[derive(Debug)]
pub(super) enum Choice {
    Overwrites(Overwrites),
    Sets(Sets),
}

impl Choice {
    /// The choice that the flags ask for; `None` means each key once.
    pub(super) fn of(flags: &Flags, num: u64) -> Option<Self> {
        if flags.disposable_entries_batch_size > 0 {
            return Some(Self::Sets(Sets::new(flags, num)));
        }
        (flags.overwrite_probability > 0.0).then(|| Self::Overwrites(Overwrites::new(flags, num)))
    }

    fn next(&mut self, rng: &mut Rng, now_micros: u64) -> Next {
        match self {
            Self::Overwrites(overwrites) => overwrites.next(rng),
            Self::Sets(sets) => sets.next(now_micros),
        }
    }

    fn told(&self) -> String {
        match self {
            Self::Overwrites(o) => format!(
                "Number of unique keys inserted: {}.\nNumber of overwrites: {}\n",
                o.unique, o.again
            ),
            Self::Sets(s) => format!(
                "Number of unique keys inserted (disposable+persistent): {}.\n\
                 Number of 'disposable entry delete': {}\n",
                s.puts, s.deletions
            ),
        }
    }
}

/// New keys, or one of the newest keys again.
#[derive(Debug)]
pub(super) struct Overwrites {
    probability: f64,
    window: VecDeque<u64>,
    window_max: u64,
    num: u64,
    unique: u64,
    again: u64,
}

impl Overwrites {
    fn new(flags: &Flags, num: u64) -> Self {
        Self {
            probability: flags.overwrite_probability.min(1.0),
            window: VecDeque::new(),
            window_max: flags.overwrite_window_size,
            num,
            unique: 0,
            again: 0,
        }
    }

    /// After the last new key, every write is an overwrite.
    fn next(&mut self, rng: &mut Rng) -> Next {
        let old = self.window.len() as u64;
        let wanted = (rng.next_u64() as f64) < self.probability * 2f64.powi(64);
        if old > 0 && (wanted || self.unique == self.num) {
            self.again += 1;
            return Next::Put(self.window[rng.below(old) as usize], None);
        }
        if self.unique == self.num {
            return Next::End;
        }
        if old == self.window_max {
            self.window.pop_front();
        }
        self.window.push_back(self.unique);
        self.unique += 1;
        Next::Put(self.unique - 1, None)
    }
}

/// Sets of disposable and persistent entries.
#[derive(Debug)]
pub(super) struct Sets {
    disposable: u64,
    persistent: u64,
    /// Value sizes of both, in bytes.
    sizes: (usize, usize),
    delay_micros: u64,
    num: u64,
    /// The first key of the current set, and the number of its entries that are written.
    first: u64,
    begun: u64,
    /// The times at which sets must be completed, and their first keys.
    due: VecDeque<(u64, u64)>,
    /// Completed steps of the first of these sets.
    completed: u64,
    puts: u64,
    deletions: u64,
}

impl Sets {
    fn new(flags: &Flags, num: u64) -> Self {
        let size = |size: i32| size.unsigned_abs() as usize;
        Self {
            disposable: flags.disposable_entries_batch_size,
            persistent: flags.persistent_entries_batch_size,
            sizes: (
                size(flags.disposable_entries_value_size),
                size(flags.persistent_entries_value_size),
            ),
            delay_micros: flags.disposable_entries_delete_delay,
            num,
            first: 0,
            begun: 0,
            due: VecDeque::new(),
            completed: 0,
            puts: 0,
            deletions: 0,
        }
    }

    /// A set that is due comes before new sets. If there are not enough keys for a new set, the
    /// waiting sets are completed.
    fn next(&mut self, now_micros: u64) -> Next {
        let len = self.disposable + self.persistent;
        match self.due.front() {
            Some(&(due, first)) if due <= now_micros => {
                let step = self.completed;
                self.completed += 1;
                if self.completed == len {
                    self.due.pop_front();
                    self.completed = 0;
                }
                if step < self.persistent {
                    self.puts += 1;
                    return Next::Put(first + self.disposable + step, Some(self.sizes.1));
                }
                self.deletions += 1;
                return Next::Delete(first + step - self.persistent);
            }
            Some(&(due, _)) if self.first + len > self.num => return Next::Wait(due - now_micros),
            None if self.first + len > self.num => return Next::End,
            _ => {}
        }
        let number = self.first + self.begun;
        self.begun += 1;
        self.puts += 1;
        if self.begun == self.disposable {
            self.due
                .push_back((now_micros + self.delay_micros, self.first));
            self.first += len;
            self.begun = 0;
        }
        Next::Put(number, Some(self.sizes.0))
    }
}

impl<E: Engine> Worker<'_, E> {
    /// Writes what `choice` chooses, in batches.
    pub(super) fn write_chosen(
        &mut self,
        mut choice: Choice,
        values: &mut Values,
        mut limit: Limit,
    ) -> Result<()> {
        let plan = self.plan;
        let options = self.engine.write_options(plan.sync, self.flags.disable_wal);
        let places = Shuffled::new(plan.num, &mut self.rng);
        let (keys, mut batch) = (self.keys(), self.engine.batch());
        let (mut key, mut deletions) = (keys.room(), self.range_deletions());
        let (mut done, mut bytes, mut ended) = (0, 0, false);
        while !ended && limit.take(plan.batch_size, &self.stats) {
            let (done_before, bytes_before) = (done, bytes);
            while done < done_before + plan.batch_size {
                let now = self.stats.elapsed() / 1000;
                match choice.next(&mut self.rng, now) {
                    Next::Put(place, size) => {
                        keys.write(places.at(place), &mut key);
                        let value = match size {
                            Some(size) => values.take(size),
                            None => values.next(),
                        };
                        bytes += key.len() + value.len();
                        self.engine.batch_put(&mut batch, &key, value)?;
                    }
                    Next::Delete(place) => {
                        keys.write(places.at(place), &mut key);
                        bytes += key.len();
                        self.engine.batch_delete(&mut batch, &key)?;
                    }
                    Next::Wait(micros) => {
                        std::thread::sleep(Duration::from_micros(micros));
                        continue;
                    }
                    Next::End => {
                        ended = true;
                        break;
                    }
                }
                done += 1;
            }
            self.engine.write(&options, &mut batch)?;
            self.stats.finished(done - done_before, Op::Write);
            self.pace_writes(bytes - bytes_before);
            if let Some(deletions) = &mut deletions {
                self.delete_ranges(deletions, &options, &keys, done_before..done, 0)?;
            }
        }
        say(&choice.told());
        self.stats.add_bytes(bytes as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_again_only_while_it_is_among_the_last() {
        let flags = Flags {
            overwrite_probability: 0.5,
            overwrite_window_size: 3,
            ..Flags::default()
        };
        let (mut overwrites, mut rng) = (Overwrites::new(&flags, 100), Rng::new(5));
        let mut newest = 0;
        for _ in 0..150 {
            match overwrites.next(&mut rng) {
                Next::Put(place, None) => {
                    assert!(
                        place + 3 > newest && place <= newest + 1,
                        "{place} {newest}"
                    );
                    newest = newest.max(place);
                }
                other => panic!("{other:?}"),
            }
        }
        let (unique, again) = (overwrites.unique, overwrites.again);
        assert!(unique + again == 150 && (50..=100).contains(&unique));
    }

    #[test]
    fn sets_wait_and_lose_their_disposable_entries() {
        let flags = Flags {
            disposable_entries_batch_size: 2,
            persistent_entries_batch_size: 1,
            disposable_entries_value_size: 5,
            persistent_entries_value_size: 9,
            disposable_entries_delete_delay: 10,
            ..Flags::default()
        };
        let mut sets = Sets::new(&flags, 7); // two sets, and a key that is never written
        let mut at = |now| sets.next(now);
        let (new, kept) = (|n| Next::Put(n, Some(5)), |n| Next::Put(n, Some(9)));
        assert_eq!([at(0), at(0), at(4)], [new(0), new(1), new(3)]);
        // The first set is due; the second one waits in the middle of its beginning.
        assert_eq!(
            [at(10), at(10), at(10)],
            [kept(2), Next::Delete(0), Next::Delete(1)]
        );
        assert_eq!([at(11), at(12)], [new(4), Next::Wait(9)]);
        assert_eq!(
            [at(21), at(21), at(21)],
            [kept(5), Next::Delete(3), Next::Delete(4)]
        );
        assert_eq!(at(22), Next::End);
        assert_eq!((sets.puts, sets.deletions), (6, 4));
    }
}
