//! Asks for memory before it is read: much of a search is waiting for memory, and the processor can wait for several
//! lines at a time.
#![expect(unsafe_code, reason = "an instruction without a safe wrapper")]

/// The size of a cache line in bytes.
pub const LINE: usize = 64;

/// Asks for the cache line at an address, which need not be one of any memory.
#[inline]
pub fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Asks for the first `lines` cache lines of some bytes.
#[inline]
pub fn prefetch_bytes(bytes: &[u8], lines: usize) {
    for line in bytes.chunks(LINE).take(lines) {
        prefetch(line.as_ptr());
    }
}
