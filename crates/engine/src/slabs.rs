//! Memory of memtables that are gone, for those that grow.
//!
//! A page that is touched first costs the put that does it: 2 µs for each 4 KiB on the machine of
//! docs/benchmarks.md, and pages given back interrupt the other processors. So large memtables take
//! their memory in slabs of huge pages, and one that was flushed leaves its slabs to the active ones.
//!
//! Two bounds: a slab is new only if none is kept, so the memory of all memtables and of what is kept is
//! never more than memtables held at once already; and what is kept is at most twice what active
//! memtables hold, so that it goes when writers have gone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use io::Mapping;

/// Slabs that nobody uses.
#[derive(Debug, Default)]
pub(crate) struct Slabs {
    kept: Mutex<Vec<Mapping>>,
}

impl Slabs {
    /// A slab of at least `len` bytes, not zeroed; `None` if the system has no memory.
    pub(crate) fn take(&self, len: usize) -> Option<Mapping> {
        let len = len.checked_next_multiple_of(io::HUGE_PAGE)?;
        let mut kept = self.lock();
        let same = kept.iter().rposition(|slab| slab.len() == len);
        let found = same.map(|i| kept.swap_remove(i));
        drop(kept);
        found.or_else(|| Mapping::huge(len))
    }

    /// Keeps slabs, in all at most so many bytes; gives the others to the system.
    pub(crate) fn give_back(&self, slabs: Vec<Mapping>, at_most: usize) {
        let mut kept = self.lock();
        kept.extend(slabs);
        let fits = kept.iter().scan(0, |sum, slab| {
            *sum += slab.len();
            (*sum <= at_most).then_some(())
        });
        let n = fits.count();
        let others = kept.split_off(n);
        drop(kept); // the system takes its time with what comes back
        drop(others);
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.lock().iter().map(Mapping::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mapping>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_comes_back_to_whoever_needs_its_size() {
        const MIB: usize = 1 << 20;
        let slabs = Slabs::default();
        let (a, b) = (slabs.take(MIB).unwrap(), slabs.take(3 * MIB).unwrap());
        let at = (a.as_ptr(), b.as_ptr());
        assert_eq!((a.len(), b.len(), slabs.bytes()), (2 * MIB, 4 * MIB, 0));
        slabs.give_back(vec![a, b], 6 * MIB);
        let b = slabs.take(4 * MIB).unwrap();
        assert_eq!((b.as_ptr(), slabs.bytes()), (at.1, 2 * MIB));
        slabs.give_back(vec![b], 4 * MIB);
        assert_eq!(slabs.bytes(), 2 * MIB, "the other would be too much");
        assert_eq!(slabs.take(MIB).unwrap().as_ptr(), at.0);
        slabs.give_back(Vec::new(), 0);
        assert_eq!(slabs.bytes(), 0);
    }
}
