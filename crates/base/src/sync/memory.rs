//! Stands for memory that is not atomic where it is handed from one thread to another.

/// Who reads the memory must come after who wrote it, by an order that atomics or locks make, and who
/// writes it again after all who read it. Models check that; elsewhere this is nothing, without a size.
#[derive(Debug, Default)]
pub struct Memory {
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<()>,
}

impl Memory {
    /// It is read here.
    #[inline(always)]
    #[cfg_attr(loom, track_caller)]
    pub fn read(&self) {
        #[cfg(loom)]
        self.cell.with(|_| ());
    }

    /// It was written here.
    #[inline(always)]
    #[cfg_attr(loom, track_caller)]
    pub fn written(&self) {
        #[cfg(loom)]
        self.cell.with_mut(|_| ());
    }
}
