//! A bump allocator that many threads may use at once and that frees everything at its end.
//!
//! Memory comes in chunks that grow to `arena_block_size`; an allocation larger than a quarter of that gets
//! a chunk of its own, so that little is wasted at the end of the current one. The fast path is
//! one `fetch_add` on the current chunk; only a full chunk takes the mutex. Large chunks come from the
//! operating system and go back there, so that a flushed memtable leaves no memory behind.
//!
//! Invariants: memory handed out is zeroed, aligned to [`ALIGN`], never moves, and lives until
//! the arena is dropped.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use io::Mapping;

use crate::write_buffer_manager::Tracker;

/// Alignment in bytes of every allocation.
pub(crate) const ALIGN: usize = 8;

/// Bytes of the first chunk.
const FIRST_CHUNK: usize = 4096;

/// Chunks from this size on are mappings of their own.
const MAPPED_MIN: usize = 256 << 10;

struct Chunk {
    base: NonNull<u8>,
    size: usize,
    used: AtomicUsize,
    /// What `base` points into; `None` if it is from the allocator.
    mapping: Option<Mapping>,
}

impl Chunk {
    fn new(size: usize) -> Self {
        if size >= MAPPED_MIN
            && !cfg!(miri)
            && let Some(mapping) = Mapping::new(size)
        {
            return Self {
                base: mapping.as_ptr(),
                size: mapping.len(),
                used: AtomicUsize::new(0),
                mapping: Some(mapping),
            };
        }
        let layout = Self::layout(size);
        // SAFETY: the layout has a size above zero (`Arena::grow` rounds up to at least ALIGN).
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(raw) else {
            handle_alloc_error(layout)
        };
        Self {
            base,
            size,
            used: AtomicUsize::new(0),
            mapping: None,
        }
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, ALIGN).expect("chunk sizes are bounded by the batch size")
    }

    /// `n` bytes of this chunk, or `None` if it is full.
    fn take(&self, n: usize) -> Option<NonNull<u8>> {
        let at = self.used.fetch_add(n, Ordering::Relaxed);
        if at.checked_add(n)? > self.size {
            return None;
        }
        // SAFETY: at + n <= size, so the result lies inside the chunk's allocation.
        Some(unsafe { self.base.add(at) })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.mapping.is_some() {
            return; // it unmaps itself
        }
        // SAFETY: `base` was allocated in `new` with this same layout and is freed only here.
        unsafe { dealloc(self.base.as_ptr(), Self::layout(self.size)) };
    }
}

/// The allocator.
pub(crate) struct Arena {
    current: AtomicPtr<Chunk>,
    /// Boxed, so that `current` stays valid while the vector grows.
    #[expect(
        clippy::vec_box,
        reason = "chunks must not move: `current` points at one"
    )]
    chunks: Mutex<Vec<Box<Chunk>>>,
    block_size: usize,
    reserved: AtomicUsize,
    tracker: Option<Tracker>,
}

// SAFETY: chunks are only reached through atomics and the mutex; the memory handed out is
// disjoint, and what is done with it is the caller's contract.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena that grows by `block_size` bytes at a time; `tracker` counts them.
    pub(crate) fn new(block_size: usize, tracker: Option<Tracker>) -> Self {
        Self {
            current: AtomicPtr::new(std::ptr::null_mut()),
            chunks: Mutex::new(Vec::new()),
            block_size: block_size.max(4096),
            reserved: AtomicUsize::new(0),
            tracker,
        }
    }

    /// Nothing is allocated any more.
    pub(crate) fn seal(&self) {
        if let Some(tracker) = &self.tracker {
            tracker.seal();
        }
    }

    /// Zeroed memory for `n` bytes, aligned to [`ALIGN`].
    #[inline]
    pub(crate) fn alloc(&self, n: usize) -> NonNull<u8> {
        let n = n.next_multiple_of(ALIGN).max(ALIGN);
        if n <= self.block_size / 4 {
            // SAFETY: `current` is null or points at a boxed chunk that lives as long as `self`.
            if let Some(chunk) = unsafe { self.current.load(Ordering::Acquire).as_ref() }
                && let Some(p) = chunk.take(n)
            {
                return p;
            }
        }
        self.grow(n)
    }

    #[cold]
    fn grow(&self, n: usize) -> NonNull<u8> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = n > self.block_size / 4;
        if !alone {
            // SAFETY: as in `alloc`.
            if let Some(chunk) = unsafe { self.current.load(Ordering::Acquire).as_ref() }
                && let Some(p) = chunk.take(n)
            {
                return p; // another thread was here first
            }
        }
        // Chunks double up to the block size, so that an idle memtable is small.
        let next = self.reserved().clamp(FIRST_CHUNK, self.block_size);
        let size = if alone { n } else { next.max(n) };
        let chunk = Box::new(Chunk::new(size));
        let p = chunk
            .take(n)
            .expect("a new chunk holds at least the allocation it is made for");
        let size = chunk.size;
        self.reserved.fetch_add(size, Ordering::Relaxed);
        if let Some(tracker) = &self.tracker {
            tracker.reserve(size);
        }
        let raw = std::ptr::from_ref::<Chunk>(&chunk).cast_mut();
        chunks.push(chunk);
        if !alone {
            self.current.store(raw, Ordering::Release);
        }
        p
    }

    /// Bytes taken from the system.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Bytes of [`Arena::reserved`] that are still free in the current chunk.
    pub(crate) fn unused(&self) -> usize {
        // SAFETY: as in `alloc`.
        let current = unsafe { self.current.load(Ordering::Acquire).as_ref() };
        current.map_or(0, |c| c.size.saturating_sub(c.used.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_disjoint_aligned_and_zeroed_from_many_threads() {
        let arena = Arena::new(4096, None);
        let ranges = Mutex::new(Vec::new());
        std::thread::scope(|s| {
            for t in 0..4u8 {
                let (arena, ranges) = (&arena, &ranges);
                s.spawn(move || {
                    for i in 0..if cfg!(miri) { 20 } else { 2000usize } {
                        let n = 1 + (i * 37) % 300;
                        let p = arena.alloc(n);
                        assert_eq!(p.as_ptr() as usize % ALIGN, 0);
                        // SAFETY: the arena gave these n bytes to this thread alone.
                        let bytes = unsafe { std::slice::from_raw_parts_mut(p.as_ptr(), n) };
                        assert!(bytes.iter().all(|&b| b == 0));
                        bytes.fill(t + 1);
                        ranges.lock().unwrap().push((p.as_ptr() as usize, n));
                    }
                });
            }
        });
        let mut ranges = ranges.into_inner().unwrap();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
        assert!(arena.reserved() > arena.unused());
    }

    /// A mapping has whole pages; chunks of the allocator end where they were asked to.
    #[test]
    fn large_chunks_are_full_to_their_last_byte() {
        let arena = Arena::new(1 << 20, None);
        let mut last = 0;
        while arena.reserved() < if cfg!(miri) { 32 << 10 } else { 3 << 20 } {
            let p = arena.alloc(1000);
            // SAFETY: the arena gave these bytes, zeroed, to this thread alone.
            let bytes = unsafe { std::slice::from_raw_parts_mut(p.as_ptr(), 1000) };
            assert!(bytes.iter().all(|&b| b == 0));
            bytes.fill(1);
            last = arena.unused();
        }
        assert!(last < arena.reserved());
    }

    #[test]
    fn large_allocations_get_their_own_chunk() {
        let arena = Arena::new(4096, None);
        arena.alloc(100);
        let before = arena.unused();
        arena.alloc(1 << 20);
        assert_eq!(arena.unused(), before);
    }
}
