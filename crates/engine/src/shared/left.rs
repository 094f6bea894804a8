//! Work that is left to the first of the database's threads that ends, because there is no other to do it.

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

    /// Called at the end of each of the database's threads: does what [`Left::leave`] left to them.
    pub(crate) fn finish(&self, db: &D) {
        let left = self.0.lock();
        let rest = left.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(rest) = rest {
            rest(db);
        }
    }
}
