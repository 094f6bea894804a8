//! Vectors that return their memory to the operating system when they are dropped, if they are large.
//!
//! A general allocator keeps freed memory, and glibc raises its threshold for mappings to the largest
//! block ever freed. The buffers of a few flushes and compactions, each in the arena of its thread,
//! then stay with the process for good. Measured with ten memtables of 64 MiB overwritten: 11 of
//! 107 MiB.
//!
//! [`LargeVec`] is a `Vec` for buffers and tables that may become large. From [`MAPPED_MIN`] bytes on
//! its memory is a mapping, which grows by remapping pages instead of copying bytes.
#![expect(unsafe_code, reason = "an allocator has no safe interface")]

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator, Global, Layout};
use allocator_api2::vec::Vec;
use rustix::mm::{MremapFlags, mremap, munmap};

use crate::buffer::PAGE;
use crate::memory::{MAPPINGS_ARE_USED, map};

/// Allocations from this size in bytes on are mappings.
pub const MAPPED_MIN: usize = 128 << 10;

/// A vector for data that may be large.
///
/// ```
/// let mut v = io::LargeVec::new();
/// v.resize(1 << 20, 1u8);
/// assert_eq!(v.iter().map(|&b| u64::from(b)).sum::<u64>(), 1 << 20);
/// ```
#[derive(Debug)]
pub struct LargeVec<T>(Vec<T, LargeAlloc>);

impl<T: Copy> LargeVec<T> {
    /// An empty vector that allocates nothing.
    pub const fn new() -> Self {
        Self(Vec::new_in(LargeAlloc))
    }

    /// An empty vector with room for `n` values.
    pub fn with_capacity(n: usize) -> Self {
        Self(Vec::with_capacity_in(n, LargeAlloc))
    }

    /// How many values fit without a new allocation.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: T) {
        self.0.push(value);
    }

    /// Appends all of `values` with one copy: the underlying vector would append one by one.
    #[inline]
    pub fn extend_from_slice(&mut self, values: &[T]) {
        let (len, n) = (self.0.len(), values.len());
        self.0.reserve(n);
        // SAFETY: there is room for `n` behind the `len` that are there, and nobody else knows of it.
        unsafe {
            let to = self.0.as_mut_ptr().add(len);
            ptr::copy_nonoverlapping(values.as_ptr(), to, n);
        }
        // SAFETY: the `n` values behind `len` were just written.
        unsafe { self.0.set_len(len + n) };
    }

    /// Truncates to `len`, or appends copies of `value` up to it.
    pub fn resize(&mut self, len: usize, value: T) {
        let Some(more) = len.checked_sub(self.0.len()) else {
            return self.truncate(len);
        };
        self.0.reserve(more);
        let spare = self.0.spare_capacity_mut().iter_mut();
        spare.take(more).for_each(|v| *v = MaybeUninit::new(value));
        // SAFETY: there is room for `more`, and all of them were just written.
        unsafe { self.0.set_len(len) };
    }

    /// Truncates to `len`, if it is longer.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Removes all values, and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Frees the memory that is not needed.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }
}

impl LargeVec<u8> {
    /// A vector of `len` zeros; if it is mapped, it takes no memory before it is written. `None` if there
    /// is not enough memory, or `len` is 0.
    ///
    /// ```
    /// let v = io::LargeVec::zeroed(1 << 20).unwrap();
    /// assert!(v.len() == 1 << 20 && v.iter().all(|&b| b == 0));
    /// ```
    pub fn zeroed(len: usize) -> Option<Self> {
        let layout = Layout::array::<u8>(len).ok().filter(|_| len > 0)?;
        let at = LargeAlloc.allocate_zeroed(layout).ok()?;
        // SAFETY: this allocator's, of this layout, and all of it is initialised.
        let all = unsafe { Vec::from_raw_parts_in(at.as_ptr().cast(), len, len, LargeAlloc) };
        Some(Self(all))
    }
}

impl<T: Copy> Default for LargeVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> From<&[T]> for LargeVec<T> {
    fn from(values: &[T]) -> Self {
        let mut all = Self::with_capacity(values.len());
        all.extend_from_slice(values);
        all
    }
}

impl<T: Copy> FromIterator<T> for LargeVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let values = values.into_iter();
        let mut all = Self::with_capacity(values.size_hint().0);
        all.0.extend(values);
        all
    }
}

impl<T> Deref for LargeVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for LargeVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// The allocator of [`LargeVec`].
#[derive(Clone, Copy, Debug, Default)]
struct LargeAlloc;

/// Whether memory of this layout is a mapping.
fn is_mapped(layout: Layout) -> bool {
    layout.size() >= MAPPED_MIN && layout.align() <= PAGE && MAPPINGS_ARE_USED
}

/// The bytes of whole pages that a mapping of `size` bytes occupies; a layout's size cannot overflow.
fn pages(size: usize) -> usize {
    size.next_multiple_of(PAGE)
}

/// Resizes a block by allocating a new one and copying the content.
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

/// Resizes a mapped block to another size that is mapped.
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
        let mut v = LargeVec::new();
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
        assert_eq!(v[..], [0, 1, 2, 3, 4]);
        v.extend_from_slice(&vec![7; MAPPED_MIN / 4]);
        assert_eq!(v.last(), Some(&7));
        v.resize(10, 0);
        v.resize(12, 9);
        assert_eq!(v[..], [0, 1, 2, 3, 4, 7, 7, 7, 7, 7, 9, 9]);
        let same: LargeVec<u64> = v.iter().copied().collect();
        assert_eq!(same[..], LargeVec::from(&v[..])[..]);
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
