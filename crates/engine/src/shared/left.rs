//! Work that is left to the first of the database's threads that ends, because no other thread can do it.

use base::sync::{Mutex, PoisonError, ranked};

use crate::locks;

/// A piece of work on a database `D`.
type Rest<D> = Box<dyn FnOnce(&D) + Send>;

/// See the module.
pub(crate) struct Left<D>(Mutex<Option<Rest<D>>>);

impl<D> Default for Left<D> {
    fn default() -> Self {
        Self(ranked(locks::LEAF, None))
    }
}

impl<D> Left<D> {
    /// Leaves `rest` to the first of the database's threads that ends. The database is closing.
    pub(crate) fn leave(&self, rest: Rest<D>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rest);
    }

    /// Called at the end of each of the database's threads: does the work that [`Left::leave`] stored, if any.
    pub(crate) fn finish(&self, db: &D) {
        let left = self.0.lock();
        let rest = left.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(rest) = rest {
            rest(db);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn the_first_thread_that_ends_does_it_and_no_other() {
        let left = Left::<AtomicU32>::default();
        let done = AtomicU32::new(0);
        left.finish(&done);
        let rest = |done: &AtomicU32| {
            done.fetch_add(1, Ordering::Relaxed);
        };
        left.leave(Box::new(rest));
        assert_eq!(done.load(Ordering::Relaxed), 0);
        left.finish(&done);
        left.finish(&done);
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }
}
