//! Holds a column family free of compactions, for those who choose the place of files by hand: a
//! compaction that ran meanwhile could put its output where they put theirs.

use base::Result;

use crate::family::Family;
use crate::shared::Shared;

/// While this lives, no compaction of the family runs or is picked.
pub(crate) struct Exclusive<'a> {
    db: &'a Shared,
    family: u32,
}

impl<'a> Exclusive<'a> {
    /// `None` if a compaction is running.
    pub(crate) fn try_take(db: &'a Shared, family: &Family) -> Option<Self> {
        let mut state = db.state();
        if state.compacting.contains(&family.id) {
            return None;
        }
        state.compacting.push(family.id);
        Some(Self {
            db,
            family: family.id,
        })
    }

    /// Waits for a compaction that is running. Errors: the database fails or closes.
    pub(crate) fn take(db: &'a Shared, family: &Family) -> Result<Self> {
        let mut state = db.state();
        while state.compacting.contains(&family.id) {
            state.check_writable()?;
            state = db.wait(state);
        }
        state.compacting.push(family.id);
        Ok(Self {
            db,
            family: family.id,
        })
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.db.state().compacting.retain(|&id| id != self.family);
        self.db.notify();
    }
}
