//! Memory whose address and length suit direct I/O.
//!
//! Direct I/O requires address, offset and length to be multiples of the device's block, and a
//! `Vec<u8>` cannot align its address. [`AlignedBuf`] owns such memory: everything above works with
//! slices of it.
//!
//! ```text
//!   ptr (multiple of align)
//!   ├── len bytes of content ──┼── spare, initialised ──┤ cap (multiple of align)
//! ```
//!
//! Invariants: `ptr` points to `cap` initialised bytes, or dangles if `cap` is 0; `len <= cap`;
//! `cap` is a multiple of `align`, which is a power of two. All of the memory is initialised from
//! the start (`alloc_zeroed`), so growing the content never exposes anything but zeros.
#![expect(
    unsafe_code,
    reason = "aligned allocation has no safe interface in std"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use base::{Error, ErrorKind, Result};
use bytes::Bytes;

/// Alignment that every Linux device and file system accepts: the page size.
pub const PAGE: usize = 4096;

/// A growable byte buffer whose address and capacity are multiples of an alignment.
///
/// ```
/// let mut b = io::AlignedBuf::new(4096);
/// b.extend_from_slice(b"tail").unwrap();
/// b.pad_to_alignment().unwrap();
/// assert_eq!(b.len(), 4096);
/// assert_eq!(b.as_ptr() as usize % 4096, 0);
/// ```
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    cap: usize,
    align: usize,
}

// SAFETY: the buffer owns its memory alone, as a `Vec<u8>` does.
unsafe impl Send for AlignedBuf {}
// SAFETY: `&AlignedBuf` gives only `&[u8]`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// An empty buffer; `align` in bytes.
    ///
    /// # Panics
    /// If `align` is not a power of two.
    pub fn new(align: usize) -> Self {
        assert!(
            align.is_power_of_two(),
            "alignment {align} is not a power of two"
        );
        // An aligned address that is never accessed.
        let nowhere = NonZero::new(align).unwrap_or(NonZero::<usize>::MIN);
        Self {
            ptr: NonNull::without_provenance(nowhere),
            len: 0,
            cap: 0,
            align,
        }
    }

    /// A buffer of `len` zeros. Fails with `Aborted` if there is not enough memory.
    pub fn zeroed(len: usize, align: usize) -> Result<Self> {
        let mut b = Self::new(align);
        b.reserve(len)?;
        b.len = len;
        Ok(b)
    }

    /// A buffer of `len` zeros for reads of a file with this [`File::read_alignment`](crate::File::read_alignment). Fails with
    /// `Aborted` if there is not enough memory.
    pub fn for_reads(len: usize, read_alignment: usize) -> Result<Self> {
        Self::zeroed(len, PAGE.max(read_alignment))
    }

    /// The alignment in bytes.
    pub fn align(&self) -> usize {
        self.align
    }

    /// Bytes that fit without a new allocation.
    pub fn capacity(&self) -> usize {
        self.cap
    }

    /// Makes room for `additional` more bytes; a new allocation at least doubles the capacity. If there
    /// is not enough memory, fails and leaves the buffer unchanged.
    #[inline]
    pub fn reserve(&mut self, additional: usize) -> Result<()> {
        match self.len.checked_add(additional) {
            Some(need) if need <= self.cap => Ok(()),
            Some(need) => self.grow(need),
            None => Err(out_of_memory(additional)),
        }
    }

    /// Moves the content to new memory, which has room for `need` bytes, more than the capacity.
    #[cold]
    fn grow(&mut self, need: usize) -> Result<()> {
        let want = need.max(self.cap.saturating_mul(2));
        let cap = want
            .checked_next_multiple_of(self.align)
            .ok_or_else(|| out_of_memory(want))?;
        let layout = Layout::from_size_align(cap, self.align).map_err(|_| out_of_memory(want))?;
        // SAFETY: `cap >= need > self.cap >= 0`, so the layout's size is not zero.
        let new = unsafe { alloc_zeroed(layout) };
        let new = NonNull::new(new).ok_or_else(|| out_of_memory(cap))?;
        // SAFETY: the old memory holds `len` initialised bytes, the new one at least as many, and
        // two live allocations do not overlap. For `len` 0 any non-null pointers will do.
        unsafe { new.copy_from_nonoverlapping(self.ptr, self.len) };
        self.release();
        self.ptr = new;
        self.cap = cap;
        Ok(())
    }

    /// Appends `data`.
    #[inline]
    pub fn extend_from_slice(&mut self, data: &[u8]) -> Result<()> {
        self.reserve(data.len())?;
        let at = self.len;
        self.len += data.len();
        self[at..].copy_from_slice(data);
        Ok(())
    }

    /// Sets the length; new bytes are zero.
    #[inline]
    pub fn resize(&mut self, len: usize) -> Result<()> {
        if len > self.len {
            self.reserve(len - self.len)?;
            let at = self.len;
            self.len = len;
            self[at..].fill(0);
        }
        self.len = len;
        Ok(())
    }

    /// Sets the length. New bytes are zeros or bytes that the buffer had before: for memory that is to be overwritten.
    #[inline]
    pub fn resize_for_overwrite(&mut self, len: usize) -> Result<()> {
        self.reserve(len.saturating_sub(self.len))?;
        self.len = len;
        Ok(())
    }

    /// Appends zeros until the length is a multiple of the alignment.
    #[inline]
    pub fn pad_to_alignment(&mut self) -> Result<()> {
        self.resize(self.len.next_multiple_of(self.align))
    }

    /// Discards the content and keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Removes the first `n` bytes: the bytes after them move to the start.
    ///
    /// # Panics
    /// If `n` is more than the length.
    pub fn drain_front(&mut self, n: usize) {
        let len = self.len;
        self.copy_within(n..len, 0);
        self.len = len - n;
    }

    fn release(&mut self) {
        if self.cap == 0 {
            return;
        }
        // The layout was valid when it was allocated.
        if let Ok(layout) = Layout::from_size_align(self.cap, self.align) {
            // SAFETY: `ptr` came from `alloc_zeroed` with this very layout and is not used again.
            unsafe { dealloc(self.ptr.as_ptr(), layout) };
        }
        self.cap = 0;
    }
}

fn out_of_memory(bytes: usize) -> Error {
    Error::new(
        ErrorKind::Aborted,
        format!("no memory for an I/O buffer of {bytes} bytes"),
    )
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        self.release();
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= cap` bytes at `ptr` are initialised; a dangling pointer has `len` 0.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

/// Makes the buffer shared by any number of owners, without moving it.
impl From<AlignedBuf> for Bytes {
    fn from(buf: AlignedBuf) -> Self {
        Self::from_owner(buf)
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len)
            .field("cap", &self.cap)
            .field("align", &self.align)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_keeps_content_and_stays_aligned() {
        for align in [1, 512, PAGE] {
            let mut b = AlignedBuf::new(align);
            assert!(b.is_empty());
            let mut model = Vec::new();
            for i in 0..2000usize {
                let piece = vec![i as u8; i % 17];
                b.extend_from_slice(&piece).unwrap();
                model.extend_from_slice(&piece);
                assert_eq!(b.as_ptr() as usize % align, 0);
                assert_eq!(b.capacity() % align, 0);
            }
            assert_eq!(&b[..], &model[..]);
            b.drain_front(1000);
            assert_eq!(&b[..], &model[1000..]);
        }
    }

    #[test]
    fn new_bytes_are_zero_even_where_old_content_was() {
        let mut b = AlignedBuf::new(64);
        b.extend_from_slice(&[0xff; 100]).unwrap();
        b.resize(10).unwrap();
        b.resize(100).unwrap();
        assert_eq!(&b[..10], &[0xff; 10]);
        assert!(b[10..].iter().all(|&x| x == 0));
        b.clear();
        b.extend_from_slice(b"x").unwrap();
        b.pad_to_alignment().unwrap();
        assert_eq!(b.len(), 64);
        assert!(b[1..].iter().all(|&x| x == 0));
        assert_eq!(AlignedBuf::zeroed(7, 512).unwrap()[..], [0; 7]);
    }

    #[test]
    fn too_large_is_an_error_not_a_crash() {
        let mut b = AlignedBuf::new(512);
        b.extend_from_slice(b"kept").unwrap();
        assert!(b.reserve(usize::MAX).is_err());
        assert!(b.reserve(isize::MAX as usize).is_err());
        assert_eq!(&b[..], b"kept");
    }

    #[test]
    #[should_panic(expected = "not a power of two")]
    fn odd_alignment_is_refused() {
        let _b = AlignedBuf::new(100);
    }
}
