//! Operations that run while the gate of the order of writes is closed, so that no group is in progress.

use base::{ErrorKind, Result};

use crate::background::Background;
use crate::commit::plan::Patience;
use crate::shared::Shared;

impl Shared {
    /// Runs `f` while the gate of the order of writes is closed, for rotations and changes of the set of
    /// families. Listeners are called afterwards. Errors: also `Incomplete` if another thread keeps the gate closed
    /// and this thread must not wait for it.
    pub(crate) fn alone<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let _courier = self.courier();
        let _closed = self.writes.order.close(patience(&self.background))?;
        f()
    }

    /// [`Shared::alone`] for a caller that must not wait for the thread that keeps the gate closed, because that
    /// thread may wait for the caller. If the gate is kept closed, returns `None` and does not run `f`. See
    /// [`Shared::wait_for_gate`].
    pub(crate) fn alone_unless_kept<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        let _courier = self.courier();
        let _closed = match self.writes.order.close(Patience::Job) {
            Err(e)
                if e.kind() == ErrorKind::Incomplete
                    && patience(&self.background) > Patience::Job =>
            {
                return Ok(None);
            }
            closed => closed?,
        };
        f().map(Some)
    }

    /// Waits until no thread keeps the gate closed, if this thread may wait for that.
    pub(crate) fn wait_for_gate(&self) -> Result<()> {
        self.writes
            .order
            .close(patience(&self.background))
            .map(drop)
    }
}

/// What this thread may wait for at the gate.
pub(crate) fn patience(background: &Background) -> Patience {
    match background.job_of_this_thread() {
        Some(_) => Patience::Job,
        None => Patience::All,
    }
}
