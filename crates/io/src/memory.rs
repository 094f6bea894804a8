//! Memory mapped directly from the operating system, and returned to it when it is dropped.
//!
//! A general allocator keeps freed memory for later allocations. If much memory is allocated and freed,
//! as by memtables, the process would then stay as large as its largest size so far.
#![expect(unsafe_code, reason = "mappings of memory have no safe interface")]

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a huge page; [`Mapping::huge`] begins at a multiple of it.
pub const HUGE_PAGE: usize = 2 << 20;

/// Whether large allocations are mapped. Not under Miri or the thread sanitizer: they do not see these
/// system calls, and would take a later mapping at the same address for the same memory.
pub const MAPPINGS_ARE_USED: bool = !cfg!(any(miri, tsan));

/// Maps `len` bytes of zeros; `len` is whole pages. `None` if the system has no memory, or `len` is 0.
pub(crate) fn map(len: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new private mapping at an address that the system chooses overlaps nothing.
    let base = unsafe {
        mmap_anonymous(
            ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    NonNull::new(base.ok()?.cast())
}

/// A private mapping of whole pages, zeroed, readable and writable; it does not move.
///
/// ```
/// let memory = io::Mapping::new(1 << 20).unwrap();
/// assert_eq!(memory.len(), 1 << 20);
/// ```
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is this value's own; what is done with its memory is the caller's contract.
unsafe impl Send for Mapping {}
// SAFETY: as above: `&Mapping` gives a pointer, and no access.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes, rounded up to whole pages; `None` if the system has no memory, or `len` is 0.
    pub fn new(len: usize) -> Option<Self> {
        let len = len.checked_next_multiple_of(crate::buffer::PAGE)?;
        Some(Self {
            base: map(len)?,
            len,
        })
    }

    /// `len` bytes, rounded up to whole huge pages, and backed by huge pages if the system has some: random
    /// accesses to large memory then need fewer page-table lookups. `None` as for [`Mapping::new`].
    ///
    /// ```
    /// let memory = io::Mapping::huge(5).unwrap();
    /// assert_eq!(memory.len(), io::HUGE_PAGE);
    /// assert_eq!(memory.as_ptr().as_ptr() as usize % io::HUGE_PAGE, 0);
    /// ```
    pub fn huge(len: usize) -> Option<Self> {
        let len = len.checked_next_multiple_of(HUGE_PAGE)?;
        let mut memory = Self::new(len)?;
        if memory.base.as_ptr().align_offset(HUGE_PAGE) != 0 {
            drop(memory);
            memory = Self::new(len.checked_add(HUGE_PAGE)?)?.aligned(len);
        }
        // SAFETY: the range is this mapping, and the advice does not change what is in it.
        let advised = unsafe { madvise(memory.base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        advised.ok(); // without huge pages the memory is usable too
        Some(memory)
    }

    /// Keeps `len` bytes from the first multiple of [`HUGE_PAGE`] on, and unmaps the others.
    fn aligned(self, len: usize) -> Self {
        let before = self.base.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: `before` is less than a huge page, and the mapping is longer than `len` by one.
        let base = unsafe { self.base.add(before) };
        // SAFETY: as above: this is at most the mapping's end.
        let end = unsafe { base.add(len) };
        let (first, after) = (self.base, self.len - before - len);
        let _whole = ManuallyDrop::new(self); // the three parts own its pages now
        drop(Self {
            base: first,
            len: before,
        });
        drop(Self {
            base: end,
            len: after,
        });
        Self { base, len }
    }

    /// Its first byte. All [`Mapping::len`] bytes are initialised, with 0.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false for a mapping from [`Mapping::new`] or [`Mapping::huge`]: it has at least one page.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: these bytes are this value's alone, and nobody else unmaps them.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_and_can_be_written() {
        assert!(Mapping::new(0).is_none());
        assert!(Mapping::new(usize::MAX).is_none());
        let memory = Mapping::new(5000).unwrap();
        assert_eq!(memory.len(), 8192);
        // SAFETY: the mapping has these bytes, initialised, and nobody else uses them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr().as_ptr(), 8192) };
        assert!(bytes.iter().all(|&b| b == 0));
        bytes.fill(7);
        assert_eq!(bytes[8191], 7);
    }

    #[test]
    fn huge_pages_are_aligned_wherever_the_system_maps_them() {
        assert!(Mapping::huge(0).is_none() && Mapping::huge(usize::MAX).is_none());
        // Between mappings of other sizes, some of which are given back, addresses are odd.
        let all: Vec<_> = (1..9)
            .map(|i| (Mapping::new(i * 4096), Mapping::huge(i << 20).unwrap()))
            .collect();
        for (i, (_, memory)) in all.iter().enumerate() {
            assert_eq!(memory.len(), (i + 1).next_multiple_of(2) << 20);
            assert_eq!(memory.as_ptr().as_ptr() as usize % HUGE_PAGE, 0);
        }
        let memory = Mapping::new(3 * HUGE_PAGE).unwrap().aligned(2 * HUGE_PAGE);
        // SAFETY: the mapping has these bytes, initialised, and nobody else uses them.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(memory.as_ptr().as_ptr(), memory.len()) };
        bytes.fill(7);
        assert_eq!(bytes.last(), Some(&7));
    }
}
