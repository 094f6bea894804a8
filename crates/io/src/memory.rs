//! Memory straight from the operating system, which has it back when it is dropped.
//!
//! A general allocator keeps what is freed, for the next one who asks; where much memory comes and
//! goes, as that of memtables, the process then stays as large as it has ever been.
#![expect(unsafe_code, reason = "mappings of memory have no safe interface")]

use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// `len` bytes of zeros, whole pages; `None` if the system has none, or `len` is 0.
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

/// Zeroed memory of whole pages, readable and writable; it does not move.
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
    /// `len` bytes, rounded up to whole pages; `None` if the system has none, or `len` is 0.
    pub fn new(len: usize) -> Option<Self> {
        let len = len.checked_next_multiple_of(crate::buffer::PAGE)?;
        Some(Self {
            base: map(len)?,
            len,
        })
    }

    /// Its first byte. All [`Mapping::len`] bytes are initialised: they are 0.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// False: there is always a page.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly these bytes, and nobody else unmaps them.
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
}
