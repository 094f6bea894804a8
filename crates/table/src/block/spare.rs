//! Memory of large blocks that are gone, for the next blocks of the same thread. It need not be allocated, filled with
//! zeros and touched for the first time again, which takes longer than reading a block from the page cache.

use std::cell::RefCell;
use std::sync::Arc;

/// Smaller blocks are left to the allocator.
const BYTES_MIN: usize = 32 << 10;
/// Larger memory is a multiple of this, so that blocks of nearly the same size can follow each other in it.
const STEP: usize = 512;
/// The most bytes that a thread keeps.
const BYTES_MAX: usize = 4 << 20;

thread_local! {
    static SPARE: RefCell<Vec<Arc<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Memory of at least `len` bytes and hardly more than a quarter more, which nobody else has. Its content is anything.
pub(super) fn take(len: usize) -> Arc<[u8]> {
    let len = match len {
        0..BYTES_MIN => len,
        _ => len.next_multiple_of(STEP),
    };
    let found = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        let fits = |memory: &Arc<[u8]>| (len..=len + len / 4).contains(&memory.len());
        let at = spare.iter().position(fits)?;
        Some(spare.swap_remove(at))
    });
    found
        .ok()
        .flatten()
        .unwrap_or_else(|| std::iter::repeat_n(0, len).collect())
}

/// Keeps the memory, if it is worth it and nobody else has it.
pub(super) fn keep(mut memory: Arc<[u8]>) {
    let fits = (BYTES_MIN..=BYTES_MAX).contains(&memory.len());
    if !fits || Arc::get_mut(&mut memory).is_none() {
        return;
    }
    let kept = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        let mut room = BYTES_MAX - memory.len();
        // The newest fits best.
        spare.retain(|old| {
            let fits = old.len() <= room;
            room -= if fits { old.len() } else { 0 };
            fits
        });
        spare.insert(0, memory);
    });
    kept.unwrap_or_default(); // while the thread ends, there may be nothing left to keep it in
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Vec<usize> {
        SPARE.with_borrow(|spare| spare.iter().map(|m| m.len()).collect())
    }

    #[test]
    fn memory_comes_back_if_it_fits_and_is_nobody_elses() {
        let len = 1 << 20;
        let (a, b) = (take(len), take(len));
        let at = a.as_ptr();
        let shared = Arc::clone(&b);
        keep(a);
        keep(b);
        assert_eq!(kept(), [len], "the other is in use");
        assert_eq!(take(len / 2).len(), len / 2, "too large for this");
        let again = take(len - 10 * STEP - 1);
        assert_eq!((again.as_ptr(), again.len()), (at, len));
        drop(shared);
        keep(take(100));
        keep(take(BYTES_MAX + 1));
        assert!(kept().is_empty());
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_share() {
        for i in 0..10 {
            keep(std::iter::repeat_n(0, (1 << 20) + i).collect());
        }
        assert_eq!(kept(), [9, 8, 7].map(|i| (1 << 20) + i));
        keep(std::iter::repeat_n(0, BYTES_MAX).collect());
        assert_eq!(kept(), [BYTES_MAX]);
        drop(take(BYTES_MAX));
    }
}
