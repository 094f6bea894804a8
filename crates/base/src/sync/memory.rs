//! A marker for non-atomic memory that is handed from one thread to another.

/// Each read of the memory must happen after the write before it, and each write after all reads before
/// it, ordered by atomics or locks. Models check that; otherwise this type is empty and does nothing.
#[derive(Debug, Default)]
pub struct Memory {
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<()>,
}

impl Memory {
    /// Call this where the memory is read.
    #[inline(always)]
    #[cfg_attr(loom, track_caller)]
    pub fn read(&self) {
        #[cfg(loom)]
        self.cell.with(|_| ());
    }

    /// Call this where the memory was written.
    #[inline(always)]
    #[cfg_attr(loom, track_caller)]
    pub fn written(&self) {
        #[cfg(loom)]
        self.cell.with_mut(|_| ());
    }
}
