//! Keeps a column family free of compactions, for callers that change its files themselves: a concurrent
//! compaction could put its output in the same key range.

use base::Result;

use crate::background::Background;
use crate::background::state::State;
use crate::catalog::family::Family;

/// While this lives, no compaction of the family runs or is picked.
pub(crate) struct Exclusive<'a> {
    background: &'a Background,
    family: u32,
}

impl<'a> Exclusive<'a> {
    /// `None` if a compaction of the family is running, or another thread holds the family.
    pub(crate) fn try_take(background: &'a Background, family: &Family) -> Option<Self> {
        Self::hold(background, &mut background.state(), family.id)
    }

    /// Waits for running compactions of the family. Errors: the database fails or closes; this thread must not wait.
    pub(crate) fn take(background: &'a Background, family: &Family) -> Result<Self> {
        let mut state = background.state();
        loop {
            if let Some(held) = Self::hold(background, &mut state, family.id) {
                return Ok(held);
            }
            state.check_writable()?;
            background.check_may_wait("this call")?;
            state = background.wait(state);
        }
    }

    fn hold(background: &'a Background, state: &mut State, family: u32) -> Option<Self> {
        if state.held.contains(&family) || state.compacting.iter().any(|r| r.family == family) {
            return None;
        }
        state.held.push(family);
        Some(Self { background, family })
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.background.state().held.retain(|&id| id != self.family);
        self.background.notify();
    }
}
