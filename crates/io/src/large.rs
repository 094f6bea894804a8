//! Vectors whose memory goes back to the system when they are dropped, once they are large.
//!
//! A general allocator keeps what is freed in the place where it was, and glibc's moves its limit for
//! mappings up to the largest block that was ever freed: the buffers of a few flushes and
//! compactions, each in the arena of its thread, then stay with the process for good. Measured
//! with ten memtables of 64 MiB overwritten: 11 of 107 MiB.
//!
//! [`LargeVec`] is a `Vec` for buffers and tables that may reach [`MAPPED_MIN`]; from there on it is
//! a mapping, which grows by moving pages instead of bytes.
#![expect(unsafe_code, reason = "an allocator has no safe interface")]

use std::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator, Global, Layout};
use rustix::mm::{MremapFlags, mremap, munmap};

use crate::buffer::PAGE;
use crate::memory::map;

/// Allocations from this size in bytes on are mappings.
pub const MAPPED_MIN: usize = 128 << 10;

/// A vector for what may be large.
///
/// ```
/// let mut v: io::LargeVec<u8> = io::LargeVec::new_in(io::LargeAlloc);
/// v.resize(1 << 20, 1);
/// assert_eq!(v.iter().map(|&b| u64::from(b)).sum::<u64>(), 1 << 20);
/// ```
pub type LargeVec<T> = allocator_api2::vec::Vec<T, LargeAlloc>;

/// The allocator of [`LargeVec`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LargeAlloc;

/// A copy of `bytes`.
pub fn large_copy(bytes: &[u8]) -> LargeVec<u8> {
    let mut copy = LargeVec::with_capacity_in(bytes.len(), LargeAlloc);
    copy.extend_from_slice(bytes);
    copy
}

/// Whether memory of this layout is a mapping.
fn is_mapped(layout: Layout) -> bool {
    layout.size() >= MAPPED_MIN && layout.align() <= PAGE && !cfg!(miri)
}

/// What a mapping of `size` bytes occupies; sizes of layouts are far from overflowing.
fn pages(size: usize) -> usize {
    size.next_multiple_of(PAGE)
}

/// The other way to resize: new memory, and a copy of the shorter of both.
///
/// # Safety
/// As for [`Allocator::grow`].
unsafe fn moved(at: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
    let to = LargeAlloc.allocate(new)?;
    let len = old.size().min(new.size());
    // SAFETY: both blocks are live, apart, and hold at least `len` bytes.
    unsafe { ptr::copy_nonoverlapping(at.as_ptr(), to.cast().as_ptr(), len) };
    // SAFETY: the caller's: `at` is a block of this allocator with the layout `old`.
    unsafe { LargeAlloc.deallocate(at, old) };
    Ok(to)
}

/// Resizes a mapping to another size of a mapping.
///
/// # Safety
/// As for [`Allocator::grow`]; both layouts are mapped.
unsafe fn remapped(at: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
    let (from, to) = (pages(old.size()), pages(new.size()));
    // SAFETY: `from` bytes at `at` are one mapping of ours, whose address the caller gives up.
    let moved = unsafe { mremap(at.as_ptr().cast(), from, to, MremapFlags::MAYMOVE) };
    let base = NonNull::new(moved.map_err(|_| AllocError)?.cast()).ok_or(AllocError)?;
    Ok(NonNull::slice_from_raw_parts(base, new.size()))
}

// SAFETY: a block is at its address until it is given back or resized, whichever copy of the
// allocator is asked, as there is no state; `is_mapped` depends on the layout alone, so a block is
// given back the way it came.
unsafe impl Allocator for LargeAlloc {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if !is_mapped(layout) {
            return Global.allocate(layout);
        }
        let base = map(pages(layout.size())).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(base, layout.size()))
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if is_mapped(layout) {
            return self.allocate(layout);
        }
        Global.allocate_zeroed(layout)
    }

    #[inline]
    unsafe fn deallocate(&self, at: NonNull<u8>, layout: Layout) {
        if !is_mapped(layout) {
            // SAFETY: the caller's, and `Global` allocated it, as its layout is not mapped.
            unsafe { Global.deallocate(at, layout) };
            return;
        }
        // SAFETY: a layout that is mapped was mapped by `allocate`, with these pages.
        let unmapped = unsafe { munmap(at.as_ptr().cast(), pages(layout.size())) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }

    #[inline]
    unsafe fn grow(
        &self,
        at: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's, handed on to the one of these whose conditions hold.
        unsafe {
            match (is_mapped(old), is_mapped(new)) {
                (false, false) => Global.grow(at, old, new),
                (true, true) => remapped(at, old, new),
                _ => moved(at, old, new),
            }
        }
    }

    #[inline]
    unsafe fn shrink(
        &self,
        at: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's, handed on to the one of these whose conditions hold.
        unsafe {
            match (is_mapped(old), is_mapped(new)) {
                (false, false) => Global.shrink(at, old, new),
                (true, true) => remapped(at, old, new),
                _ => moved(at, old, new),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_vector_stays_while_it_becomes_a_mapping_and_back() {
        let mut v: LargeVec<u64> = LargeVec::new_in(LargeAlloc);
        let n = 4 * MAPPED_MIN as u64 / 8;
        for i in 0..n {
            v.push(i);
        }
        assert!(v.iter().copied().eq(0..n));
        v.truncate(3 * v.len() / 4);
        v.shrink_to_fit();
        assert!(v.iter().copied().eq(0..n * 3 / 4));
        v.truncate(5);
        v.shrink_to_fit();
        assert_eq!(v.as_slice(), [0, 1, 2, 3, 4]);
        v.extend_from_slice(&vec![7; MAPPED_MIN]);
        assert_eq!(v[5 + MAPPED_MIN - 1], 7);
    }

    #[test]
    fn a_mapping_begins_with_zeros_and_can_be_refused() {
        let layout = Layout::from_size_align(MAPPED_MIN + 1, 8).unwrap();
        let block = LargeAlloc.allocate_zeroed(layout).unwrap();
        assert_eq!(block.len(), MAPPED_MIN + 1);
        // SAFETY: the block has that many bytes, all of them zeroed, and is given back once.
        unsafe {
            assert!(block.as_ref().iter().all(|&b| b == 0));
            LargeAlloc.deallocate(block.cast(), layout);
        }
        let huge = Layout::from_size_align(1 << 60, 8).unwrap();
        assert!(LargeAlloc.allocate(huge).is_err());
    }
}
