//! A bump allocator that many threads may use at once. All its memory is freed together when it is dropped.
//!
//! Memory comes in chunks that grow up to `arena_block_size`. An allocation larger than a quarter of that
//! gets a chunk of its own, so that little is wasted at the end of the current chunk. The fast path is one
//! `fetch_add` on the current chunk; only a full chunk takes the mutex. Large chunks are cut from
//! [slabs](crate::pool) that earlier memtables have left. If there are none, the operating system
//! provides the memory; a large arena takes it as a new slab.
//!
//! Invariants: memory handed out is aligned to [`ALIGN`], never moves, and lives until the arena is
//! dropped. It is not initialised.

#![expect(unsafe_code, reason = "a part of the unsafe island of memtables")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use base::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use base::sync::{self, Mutex, PoisonError, ranked};
use io::{MAPPINGS_ARE_USED, Mapping};

use crate::locks;
use crate::pool::Left;
use crate::write_buffers::Tracker;

/// Alignment in bytes of every allocation.
pub(crate) const ALIGN: usize = 8;

/// Bytes of the first chunk.
const FIRST_CHUNK: usize = 4096;

/// Chunks of at least this many bytes are memory mappings of their own.
const MAPPED_MIN: usize = 256 << 10;

/// An arena with at least this many bytes takes new slabs.
const SLABS_FROM: usize = 4 << 20;

struct Chunk {
    base: NonNull<u8>,
    size: usize,
    used: AtomicUsize,
    memory: Memory,
    /// Stands for `base` and `size` in models.
    bounds: sync::Memory,
}

/// Where a chunk's memory comes from.
enum Memory {
    Allocator,
    /// Unmapped when the chunk is dropped.
    #[expect(dead_code, reason = "it is there to be dropped")]
    Mapping(Mapping),
    /// Part of a slab of the arena, or its memory for a large entry.
    Slab,
}

impl Chunk {
    fn new(size: usize) -> Self {
        if size >= MAPPED_MIN
            && MAPPINGS_ARE_USED
            && let Some(mapping) = Mapping::new(size)
        {
            let (base, size) = (mapping.as_ptr(), mapping.len());
            return Self::at(base, size, Memory::Mapping(mapping));
        }
        let layout = Self::layout(size);
        // SAFETY: the layout has a size above zero (`Arena::grow` rounds up to at least ALIGN).
        let raw = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(raw) else {
            handle_alloc_error(layout)
        };
        Self::at(base, size, Memory::Allocator)
    }

    fn at(base: NonNull<u8>, size: usize, memory: Memory) -> Self {
        Self {
            base,
            size,
            used: AtomicUsize::new(0),
            memory,
            bounds: sync::Memory::default(),
        }
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, ALIGN).expect("chunk sizes are bounded by the batch size")
    }

    /// `n` bytes of this chunk, or `None` if it is full.
    fn take(&self, n: usize) -> Option<NonNull<u8>> {
        self.bounds.read();
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
        if !matches!(self.memory, Memory::Allocator) {
            return;
        }
        // SAFETY: `base` was allocated in `new` with this same layout and is freed only here.
        unsafe { dealloc(self.base.as_ptr(), Self::layout(self.size)) };
    }
}

#[derive(Default)]
struct Chunks {
    /// Boxed, so that `Arena::current` stays valid while the vector grows.
    #[expect(
        clippy::vec_box,
        reason = "chunks must not move: `current` points at one"
    )]
    all: Vec<Box<Chunk>>,
    slabs: Vec<Mapping>,
    /// The memory of chunks that one large entry has for itself.
    large: Vec<Mapping>,
    /// How many bytes of the last slab have been cut into chunks.
    cut: usize,
}

impl Chunks {
    /// A chunk of this memory.
    fn take_large(&mut self, memory: Mapping) -> Chunk {
        let (base, size) = (memory.as_ptr(), memory.len());
        self.large.push(memory);
        Chunk::at(base, size, Memory::Slab)
    }

    /// A chunk of at least `size` bytes, cut from the slabs; `more` provides another slab if needed. If the
    /// rest of a slab would be too small for the next chunk, this chunk takes it too.
    fn cut_slab(&mut self, size: usize, more: impl FnOnce() -> Option<Mapping>) -> Option<Chunk> {
        let size = size.next_multiple_of(ALIGN);
        if self.slabs.is_empty() || self.cut == self.slabs.last()?.len() {
            self.slabs.push(more()?);
            self.cut = 0;
        }
        let slab = self.slabs.last()?;
        let left = slab.len() - self.cut;
        let size = if left < 2 * size { left } else { size };
        // SAFETY: `cut` is inside the slab, because part of the slab is left.
        let base = unsafe { slab.as_ptr().add(self.cut) };
        self.cut += size;
        Some(Chunk::at(base, size, Memory::Slab))
    }
}

/// The arena.
pub(crate) struct Arena {
    current: AtomicPtr<Chunk>,
    chunks: Mutex<Chunks>,
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
    /// An arena that grows by `block_size` bytes at a time; `tracker` counts its memory.
    pub(crate) fn new(block_size: usize, tracker: Option<Tracker>) -> Self {
        Self {
            current: AtomicPtr::new(std::ptr::null_mut()),
            chunks: ranked(locks::ARENA, Chunks::default()),
            block_size: block_size.max(4096),
            reserved: AtomicUsize::new(0),
            tracker,
        }
    }

    /// After this call nothing is allocated any more.
    pub(crate) fn seal(&self) {
        if let Some(tracker) = &self.tracker {
            tracker.seal();
        }
    }

    /// The sealed memory is kept: no thread should wait for it to be freed.
    pub(crate) fn keep(&self) {
        if let Some(tracker) = &self.tracker {
            tracker.keep();
        }
    }

    /// Memory for `n` bytes, aligned to [`ALIGN`]; not initialised.
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
                return p; // another thread has added a chunk meanwhile
            }
        }
        // Chunks double up to the block size, so that an idle memtable is small.
        let next = self.reserved().clamp(FIRST_CHUNK, self.block_size);
        let size = if alone { n } else { next.max(n) };
        let tracker = self.tracker.as_ref();
        // Small chunks would waste most of a huge page.
        let fits = size >= MAPPED_MIN && MAPPINGS_ARE_USED;
        let chunk = tracker.filter(|_| fits).and_then(|tracker| {
            if alone {
                return tracker.large(size).map(|memory| chunks.take_large(memory));
            }
            chunks.cut_slab(size, || match self.reserved() {
                0..SLABS_FROM => tracker.kept_slab(self.block_size),
                _ => tracker.slab(self.block_size),
            })
        });
        let chunk = Box::new(chunk.unwrap_or_else(|| Chunk::new(size)));
        chunk.bounds.written();
        let p = chunk
            .take(n)
            .expect("a new chunk holds at least the allocation it is made for");
        let size = chunk.size;
        self.reserved.fetch_add(size, Ordering::Relaxed);
        if let Some(tracker) = tracker {
            tracker.reserve(size);
        }
        chunks.all.push(chunk);
        // Take the pointer after the push: moving the box would invalidate an earlier one.
        if !alone && let Some(chunk) = chunks.all.last() {
            let raw = std::ptr::from_ref::<Chunk>(chunk).cast_mut();
            self.current.store(raw, Ordering::Release);
        }
        p
    }

    /// Bytes taken from the system or the pool.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Bytes of [`Arena::reserved`] that are still free in the current chunk.
    pub(crate) fn unused(&self) -> usize {
        // SAFETY: as in `alloc`.
        let current = unsafe { self.current.load(Ordering::Acquire).as_ref() };
        current.map_or(0, |c| {
            c.bounds.read();
            c.size.saturating_sub(c.used.load(Ordering::Relaxed))
        })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let chunks = self.chunks.get_mut();
        let chunks = chunks.unwrap_or_else(PoisonError::into_inner);
        if let Some(tracker) = self.tracker.take() {
            tracker.end(Left {
                slabs: std::mem::take(&mut chunks.slabs),
                large: std::mem::take(&mut chunks.large),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::write_buffers::WriteBuffers;

    #[test]
    fn allocations_are_disjoint_and_aligned_from_many_threads() {
        let arena = Arena::new(4096, None);
        let ranges = Mutex::new(Vec::new());
        base::sync::thread::scope(|s| {
            for t in 0..4u8 {
                let (arena, ranges) = (&arena, &ranges);
                s.spawn(move || {
                    for i in 0..if cfg!(miri) { 20 } else { 2000usize } {
                        let n = 1 + (i * 37) % 300;
                        let p = arena.alloc(n);
                        assert_eq!(p.as_ptr() as usize % ALIGN, 0);
                        // SAFETY: the arena gave these n bytes to this thread alone.
                        unsafe { p.as_ptr().write_bytes(t + 1, n) };
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
            // SAFETY: the arena gave these bytes to this thread alone.
            unsafe { p.as_ptr().write_bytes(1, 1000) };
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
    /// Blocks that fill a slab to the end and blocks that do not, aligned or not.
    #[test]
    #[cfg_attr(any(miri, tsan), ignore = "slabs are mapped")]
    fn large_arenas_use_the_slabs_of_those_that_are_gone() {
        for block in [256 << 10, 300_001, 1 << 20, (1 << 20) + 4096, 5 << 20] {
            let budget = Arc::new(WriteBuffers::new(0, None, false));
            let fill = |bytes: usize| {
                let arena = Arena::new(block, Some(Tracker::new(Arc::clone(&budget))));
                while arena.reserved() < bytes {
                    // SAFETY: the arena gave these bytes to this thread alone.
                    unsafe { arena.alloc(1001).as_ptr().write_bytes(1, 1001) };
                }
                arena
            };
            let slabs = |arena: &Arena| -> Vec<_> {
                let chunks = arena.chunks.lock().unwrap();
                chunks.slabs.iter().map(|s| s.as_ptr()).collect()
            };
            assert_eq!(slabs(&fill(2 << 20)), [], "too small");
            let (first, active) = (fill(20 << 20), fill(20 << 20));
            let old = slabs(&first);
            assert!(old.len() >= 3, "{block}: {old:?}");
            assert_eq!(budget.used(), first.reserved() + active.reserved());
            first.seal();
            drop(first);
            let second = fill(20 << 20);
            assert_eq!(budget.used(), second.reserved() + active.reserved());
            let again = slabs(&second);
            assert!(
                old.iter().all(|s| again.contains(s)),
                "{block}: {old:?}, {again:?}"
            );
            // If slabs are kept, a small arena takes no chunk from the system either.
            drop(second);
            let small = fill(2 << 20);
            assert!(slabs(&small).iter().all(|s| again.contains(s)), "{block}");
            let own = small.chunks.lock().unwrap();
            let mut memory = own.all.iter().map(|c| &c.memory);
            assert!(!memory.any(|m| matches!(m, Memory::Mapping(_))), "{block}");
            assert!(own.slabs.len() == 1, "{block}");
        }
    }
}
