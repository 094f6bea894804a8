//! Keeps a column family free of compactions, for callers that choose the level of files themselves: a
//! concurrent compaction could put its output where they put their files.

use base::Result;

use crate::background::state::State;
use crate::catalog::family::Family;
use crate::shared::Shared;

/// While this lives, no compaction of the family runs or is picked.
pub(crate) struct Exclusive<'a> {
    db: &'a Shared,
    family: u32,
}

impl<'a> Exclusive<'a> {
    /// `None` if a compaction is running.
    pub(crate) fn try_take(db: &'a Shared, family: &Family) -> Option<Self> {
        Self::hold(db, &mut db.background.state(), family.id)
    }

    /// Waits for compactions that are running. Errors: the database fails or closes.
    pub(crate) fn take(db: &'a Shared, family: &Family) -> Result<Self> {
        let mut state = db.background.state();
        loop {
            if let Some(held) = Self::hold(db, &mut state, family.id) {
                return Ok(held);
            }
            state.check_writable()?;
            db.check_may_wait("this call")?;
            state = db.background.wait(state);
        }
    }

    fn hold(db: &'a Shared, state: &mut State, family: u32) -> Option<Self> {
        if state.held.contains(&family) || state.compacting.iter().any(|r| r.family == family) {
            return None;
        }
        state.held.push(family);
        Some(Self { db, family })
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.db
            .background
            .state()
            .held
            .retain(|&id| id != self.family);
        self.db.background.notify();
    }
}
