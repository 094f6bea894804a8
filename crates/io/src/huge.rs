//! An allocator of huge pages, for large tables with random lookups.
//!
//! With pages of 4 KiB, the addresses of a table of some hundred megabytes do not fit the processor's TLB:
//! each access walks the page tables first, in a virtual machine on two levels.
#![expect(unsafe_code, reason = "an allocator has no safe interface")]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator, Global, Layout};
use rustix::mm::munmap;

use crate::memory::{HUGE_PAGE, MAPPINGS_ARE_USED, Mapping};

/// Allocates huge pages if the system has some; a block smaller than one comes from the general allocator.
///
/// ```
/// use allocator_api2::vec::Vec;
/// let mut table = Vec::with_capacity_in(1 << 20, io::HugeAlloc);
/// table.extend(0..1u64 << 20);
/// assert_eq!(table.as_ptr() as usize % io::HUGE_PAGE, 0);
/// assert_eq!(table[70_000], 70_000);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HugeAlloc;

fn is_huge(layout: Layout) -> bool {
    layout.size() >= HUGE_PAGE && layout.align() <= HUGE_PAGE && MAPPINGS_ARE_USED
}

// SAFETY: a block is at its address until it is given back, whichever copy of the allocator is asked, as there is no state;
// `is_huge` depends on the layout alone, so a block is given back the way it came.
unsafe impl Allocator for HugeAlloc {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if !is_huge(layout) {
            return Global.allocate(layout);
        }
        let memory = ManuallyDrop::new(Mapping::huge(layout.size()).ok_or(AllocError)?);
        Ok(NonNull::slice_from_raw_parts(
            memory.as_ptr(),
            layout.size(),
        ))
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if is_huge(layout) {
            return self.allocate(layout); // a new mapping is zeroed
        }
        Global.allocate_zeroed(layout)
    }

    unsafe fn deallocate(&self, at: NonNull<u8>, layout: Layout) {
        if !is_huge(layout) {
            // SAFETY: the caller's, and `Global` allocated it, as its layout is not huge.
            unsafe { Global.deallocate(at, layout) };
            return;
        }
        let len = layout.size().next_multiple_of(HUGE_PAGE);
        // SAFETY: a layout that is huge was mapped by `allocate`, with these pages.
        let unmapped = unsafe { munmap(at.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocator_api2::vec::Vec;

    #[test]
    fn what_is_in_a_vector_stays_while_it_grows_into_huge_pages_and_back() {
        let mut v = Vec::new_in(HugeAlloc);
        let n = 3 * HUGE_PAGE as u64 / 8;
        for i in 0..n {
            v.push(i);
        }
        assert!(v.iter().copied().eq(0..n));
        assert_eq!(v.as_ptr() as usize % HUGE_PAGE, 0);
        v.truncate(5);
        v.shrink_to_fit();
        assert_eq!(v[..], [0, 1, 2, 3, 4]);
    }

    #[test]
    fn blocks_begin_with_zeros_where_that_is_asked_and_can_be_refused() {
        for size in [100, HUGE_PAGE + 1] {
            let layout = Layout::from_size_align(size, 8).unwrap();
            let block = HugeAlloc.allocate_zeroed(layout).unwrap();
            assert_eq!(block.len(), size);
            // SAFETY: the block has that many bytes, all of them zeroed, and is given back once.
            unsafe {
                assert!(block.as_ref().iter().all(|&b| b == 0));
                HugeAlloc.deallocate(block.cast(), layout);
            }
        }
        let layout = Layout::from_size_align(1 << 60, 8).unwrap();
        assert!(HugeAlloc.allocate(layout).is_err());
    }
}
