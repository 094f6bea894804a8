//! Memory of dropped memtables, kept for active ones.
//!
//! The first access to a page costs the put that does it 2 µs per 4 KiB on the machine of
//! docs/benchmarks.md, and giving pages back interrupts the other processors. So large memtables take their
//! memory in slabs of huge pages, and a flushed memtable leaves its slabs to the active ones. Entries that are too
//! large for a slab have memory of their own, which is left to the next ones of about their size.
//!
//! New memory is expensive where a hypervisor backs it page by page: 5 ms per slab on that machine.
//!
//! Bounds: new memory is taken only if none that fits is kept, and after as much of what is kept has gone back to the
//! system, so the memory of all memtables and the kept memory together never exceed what memtables have already
//! held at once. At most [`LIKELY`] times the memory of
//! active memtables is kept, and of slabs and of large memory nothing once none has been asked for during [`REST`].

use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use io::Mapping;

use crate::locks;

/// Active memtables are likely to grow to this many times their present size. A flush takes a tenth or more
/// of the time that writers need to fill a memtable, and frees the memory at its end.
const LIKELY: usize = 8;
/// How long memory is kept although none is asked for, in nanoseconds.
const REST: u64 = 30_000_000_000;

/// Slabs that no memtable uses.
#[derive(Debug)]
pub(crate) struct Pool {
    kept: Mutex<Kept>,
}

/// The memory of a memtable that is gone.
#[derive(Debug, Default)]
pub struct Left {
    /// Slabs of huge pages.
    pub slabs: Vec<Mapping>,
    /// The memory of large entries, one by one.
    pub large: Vec<Mapping>,
}

#[derive(Debug, Default)]
struct Kept {
    slabs: Kind,
    large: Kind,
}

/// The kept memory of one kind.
#[derive(Debug, Default)]
struct Kind {
    /// The oldest first.
    memory: Vec<Mapping>,
    /// Whether some was asked for since the last call of [`Pool::rest`], and the time of the last call
    /// that found so.
    asked: bool,
    seen: u64,
}

impl Kind {
    /// The newest that fits.
    fn take(&mut self, fits: impl Fn(usize) -> bool) -> Option<Mapping> {
        self.asked = true;
        let at = self.memory.iter().rposition(|m| fits(m.len()))?;
        Some(self.memory.remove(at))
    }

    /// Takes away at least `bytes`, the oldest first, as far as there are so many. Subtracts them from `bytes`.
    fn release(&mut self, bytes: &mut usize) -> Vec<Mapping> {
        let mut n = 0;
        while *bytes > 0
            && let Some(memory) = self.memory.get(n)
        {
            n += 1;
            *bytes = bytes.saturating_sub(memory.len());
        }
        self.memory.drain(..n).collect()
    }

    /// Adds memory, and takes away what does not fit into `room`, from which the rest is subtracted.
    fn add(&mut self, mut new: Vec<Mapping>, room: &mut usize) -> Vec<Mapping> {
        self.memory.append(&mut new);
        let all = std::mem::take(&mut self.memory);
        let (fits, others) = all.into_iter().partition(|memory| {
            let fits = memory.len() <= *room;
            *room -= if fits { memory.len() } else { 0 };
            fits
        });
        self.memory = fits;
        others
    }

    fn rest(&mut self, now: u64) -> Vec<Mapping> {
        if std::mem::take(&mut self.asked) {
            self.seen = now;
        } else if now.saturating_sub(self.seen) >= REST {
            return std::mem::take(&mut self.memory);
        }
        Vec::new()
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            kept: ranked(locks::POOL, Kept::default()),
        }
    }
}

impl Pool {
    /// A slab of at least `len` bytes, not zeroed; `None` if the system has no memory.
    pub(crate) fn take(&self, len: usize) -> Option<Mapping> {
        self.take_kept(len).or_else(|| {
            self.release(len.checked_next_multiple_of(io::HUGE_PAGE)?);
            Mapping::huge(len)
        })
    }

    /// The same, but `None` if none of this size is kept.
    pub(crate) fn take_kept(&self, len: usize) -> Option<Mapping> {
        let len = len.checked_next_multiple_of(io::HUGE_PAGE)?;
        self.lock().slabs.take(|slab| slab == len)
    }

    /// Memory of at least `len` bytes and at most a quarter more, not zeroed; `None` if the system has no memory.
    pub(crate) fn take_large(&self, len: usize) -> Option<Mapping> {
        let kept = self
            .lock()
            .large
            .take(|large| (len..=len + len / 4).contains(&large));
        kept.or_else(|| {
            self.release(len);
            Mapping::new(len)
        })
    }

    /// Gives as many bytes back to the system as are about to be taken new, if so many are kept.
    fn release(&self, mut bytes: usize) {
        let mut kept = self.lock();
        let large = kept.large.release(&mut bytes);
        let slabs = kept.slabs.release(&mut bytes);
        drop(kept); // giving memory back to the system takes time
        drop((large, slabs));
    }

    /// Keeps memory for active memtables of `active` bytes, within `room` bytes; gives the rest back to the system.
    pub(crate) fn give_back(&self, left: Left, active: usize, room: usize) {
        let mut room = active.saturating_mul(LIKELY).min(room);
        let mut kept = self.lock();
        let slabs = kept.slabs.add(left.slabs, &mut room);
        let large = kept.large.add(left.large, &mut room);
        drop(kept); // giving memory back to the system takes time
        drop((slabs, large));
    }

    /// Gives back what was not asked for lately, slabs and large memory each. To be called from time to time.
    pub(crate) fn rest(&self, now: u64) {
        let mut kept = self.lock();
        let all = (kept.slabs.rest(now), kept.large.rest(now));
        drop(kept);
        drop(all);
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let kept = self.lock();
        let all = kept.slabs.memory.iter().chain(&kept.large.memory);
        all.map(Mapping::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(slabs: Vec<Mapping>) -> Left {
        Left {
            slabs,
            large: Vec::new(),
        }
    }

    fn left_large(large: Vec<Mapping>) -> Left {
        Left {
            slabs: Vec::new(),
            large,
        }
    }

    #[test]
    fn the_memory_of_large_entries_goes_to_those_of_about_their_size() {
        const MIB: usize = 1 << 20;
        let pool = Pool::default();
        let large = [3 * MIB, 10 * MIB, 11 * MIB].map(|len| pool.take_large(len).unwrap());
        let at = large.each_ref().map(Mapping::as_ptr);
        let large = Vec::from(large);
        let slabs = vec![pool.take(MIB).unwrap()];
        pool.give_back(Left { slabs, large }, 100 * MIB, usize::MAX);
        assert_eq!(pool.bytes(), 26 * MIB);
        let again = pool.take_large(9 * MIB).unwrap();
        assert_eq!((again.as_ptr(), pool.bytes()), (at[2], 15 * MIB));
        // Nothing fits: as much as is new goes back, of what is oldest.
        let new = pool.take_large(2 * MIB).unwrap();
        assert_eq!((new.len(), pool.bytes()), (2 * MIB, 12 * MIB));
        let large = vec![again, new];
        pool.give_back(left_large(large), MIB, usize::MAX);
        assert_eq!(
            pool.bytes(),
            4 * MIB,
            "the slab and 2 MiB: the others do not fit into 8"
        );
        // A new slab takes the place of large memory, and large memory that of slabs.
        let slab = pool.take_kept(MIB).unwrap();
        let other = pool.take(MIB).unwrap();
        assert_eq!(pool.bytes(), 0);
        pool.give_back(left(vec![slab, other]), 100 * MIB, usize::MAX);
        assert_eq!(pool.bytes(), 4 * MIB);
        drop(pool.take_large(5 * MIB).unwrap());
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn each_kind_is_kept_while_it_is_asked_for() {
        const MIB: usize = 1 << 20;
        let pool = Pool::default();
        let (slab, large) = (pool.take(MIB).unwrap(), pool.take_large(3 * MIB).unwrap());
        let (slabs, large) = (vec![slab], vec![large]);
        pool.give_back(Left { slabs, large }, 100 * MIB, usize::MAX);
        for i in 1..4 {
            let slab = pool.take_kept(MIB).unwrap();
            pool.give_back(left(vec![slab]), 100 * MIB, usize::MAX);
            pool.rest(i * REST);
        }
        assert_eq!(pool.bytes(), 2 * MIB);
    }

    #[test]
    fn a_slab_comes_back_to_whoever_needs_its_size() {
        const MIB: usize = 1 << 20;
        let slabs = Pool::default();
        let (a, b) = (slabs.take(MIB).unwrap(), slabs.take(3 * MIB).unwrap());
        let at = (a.as_ptr(), b.as_ptr());
        assert_eq!((a.len(), b.len(), slabs.bytes()), (2 * MIB, 4 * MIB, 0));
        slabs.give_back(left(vec![a, b]), MIB, 6 * MIB);
        let b = slabs.take(4 * MIB).unwrap();
        assert_eq!((b.as_ptr(), slabs.bytes()), (at.1, 2 * MIB));
        slabs.give_back(left(vec![b]), MIB, 4 * MIB);
        assert_eq!(slabs.bytes(), 2 * MIB, "the other would be too much");
        assert_eq!(slabs.take_kept(MIB).unwrap().as_ptr(), at.0);
        assert!(slabs.take_kept(MIB).is_none());
    }

    #[test]
    fn nothing_is_kept_for_those_who_do_not_write() {
        let slabs = Pool::default();
        let fill = |active: usize| {
            let four = (0..4).map(|_| slabs.take(1).unwrap()).collect();
            slabs.give_back(left(four), active, usize::MAX);
            slabs.bytes()
        };
        let all = 4 * io::HUGE_PAGE;
        assert_eq!(
            [fill(all), fill(all / LIKELY / 2), fill(0)],
            [all, all / 2, 0]
        );
        fill(all);
        slabs.rest(REST);
        slabs.rest(2 * REST - 1);
        assert_eq!(slabs.bytes(), all, "asked for at the first look");
        slabs.rest(2 * REST);
        assert_eq!(slabs.bytes(), 0);
    }
}
