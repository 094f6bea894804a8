//! Memory of dropped memtables, kept for active ones.
//!
//! The first access to a page costs the put that does it 2 µs per 4 KiB on the machine of
//! docs/benchmarks.md, and giving pages back interrupts the other processors. So large memtables take their
//! memory in slabs of huge pages, and a flushed memtable leaves its slabs to the active ones. Entries that are too
//! large for a slab have memory of their own, which is left to the next ones of about their size.
//!
//! New memory is expensive where a hypervisor backs it page by page: 5 ms per slab on that machine.
//!
//! Bounds: a new slab is taken only if none is kept, and other memory only after as much of what is kept has gone back
//! to the system, so the memory of all memtables and the kept memory together never exceed what memtables have already
//! held at once. At most [`LIKELY`] times the memory of
//! active memtables is kept, and nothing once no slab has been asked for during [`REST`].

use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use io::Mapping;

use crate::locks;

/// Active memtables are likely to grow to this many times their present size. A flush takes a tenth or more
/// of the time that writers need to fill a memtable, and frees the memory at its end.
const LIKELY: usize = 8;
/// How long slabs are kept although none is asked for, in nanoseconds.
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
    slabs: Vec<Mapping>,
    large: Vec<Mapping>,
    /// Whether a slab was asked for since the last call of [`Pool::rest`], and the time of the last
    /// call that found so.
    asked: bool,
    seen: u64,
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
        self.take_kept(len).or_else(|| Mapping::huge(len))
    }

    /// The same, but `None` if none of this size is kept.
    pub(crate) fn take_kept(&self, len: usize) -> Option<Mapping> {
        let len = len.checked_next_multiple_of(io::HUGE_PAGE)?;
        let mut kept = self.lock();
        kept.asked = true;
        let same = kept.slabs.iter().rposition(|slab| slab.len() == len)?;
        Some(kept.slabs.swap_remove(same))
    }

    /// Memory of at least `len` bytes and at most a quarter more, not zeroed; `None` if the system has no memory. If
    /// what is kept does not fit, as much of it goes back to the system.
    pub(crate) fn take_large(&self, len: usize) -> Option<Mapping> {
        let mut kept = self.lock();
        kept.asked = true;
        let fits = |m: &Mapping| (len..=len + len / 4).contains(&m.len());
        if let Some(at) = kept.large.iter().position(fits) {
            return Some(kept.large.swap_remove(at));
        }
        let enough = kept.large.iter().scan(0, |sum, m| {
            let before = *sum;
            *sum += m.len();
            (before < len).then_some(())
        });
        let n = enough.count();
        let others: Vec<Mapping> = kept.large.drain(..n).collect();
        drop(kept); // giving memory back to the system takes time
        drop(others);
        Mapping::new(len)
    }

    /// Keeps memory for active memtables of `active` bytes, within `room` bytes; gives the rest back to the system.
    pub(crate) fn give_back(&self, left: Left, active: usize, room: usize) {
        let at_most = active.saturating_mul(LIKELY).min(room);
        let mut kept = self.lock();
        kept.slabs.extend(left.slabs);
        kept.large.extend(left.large);
        let mut sum = 0;
        let mut too_much = |all: &mut Vec<Mapping>| {
            let fits = all.iter().take_while(|memory| {
                sum += memory.len();
                sum <= at_most
            });
            let n = fits.count();
            all.split_off(n)
        };
        let others = (too_much(&mut kept.slabs), too_much(&mut kept.large));
        drop(kept); // giving memory back to the system takes time
        drop(others);
    }

    /// Gives everything back if no slab was asked for lately. To be called from time to time.
    pub(crate) fn rest(&self, now: u64) {
        let mut kept = self.lock();
        if std::mem::take(&mut kept.asked) {
            kept.seen = now;
        } else if now.saturating_sub(kept.seen) >= REST {
            let all = (
                std::mem::take(&mut kept.slabs),
                std::mem::take(&mut kept.large),
            );
            drop(kept);
            drop(all);
        }
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let kept = self.lock();
        kept.slabs.iter().chain(&kept.large).map(Mapping::len).sum()
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
        assert_eq!((again.as_ptr(), pool.bytes()), (at[1], 16 * MIB));
        // Nothing fits: as much as is new goes back, the oldest first.
        let new = pool.take_large(2 * MIB).unwrap();
        assert_eq!((new.len(), pool.bytes()), (2 * MIB, 13 * MIB));
        let large = vec![again, new];
        pool.give_back(
            Left {
                slabs: Vec::new(),
                large,
            },
            MIB,
            usize::MAX,
        );
        assert_eq!(
            pool.bytes(),
            2 * MIB,
            "the slab; the next one would be too much"
        );
        assert!(pool.take_kept(MIB).is_some());
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
