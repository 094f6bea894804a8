//! A group: the batches that one leader writes.

use std::sync::Arc;

use base::Result;

use super::queue::{Follower, Followers, Request};
use crate::batch::WriteBatch;

/// The batches that one leader writes: its own, and those of its followers.
pub(crate) struct Group {
    pub(crate) lead: Request,
    pub(crate) followers: Followers,
}

impl Group {
    /// Takes the followers that `check` refuses out of the group; they get its error.
    pub(crate) fn refuse(&mut self, check: impl Fn(&Request) -> Result<()>) {
        self.followers
            .retain(|f| match f.with_request(|r| check(r)) {
                Some(Err(e)) => {
                    f.finish(Err(e));
                    false
                }
                _ => true,
            });
    }

    /// Bytes of all batches.
    pub(crate) fn bytes(&self) -> u64 {
        let size = |f: &Arc<Follower>| f.with_batch(|b| b.data().len() as u64).unwrap_or(0);
        self.lead.batch.data().len() as u64 + self.followers.iter().map(size).sum::<u64>()
    }

    /// Counted records of all batches.
    pub(crate) fn count(&self) -> u64 {
        let count = |f: &Arc<Follower>| f.with_batch(|b| u64::from(b.count())).unwrap_or(0);
        u64::from(self.lead.batch.count()) + self.followers.iter().map(count).sum::<u64>()
    }

    /// Gives the batches consecutive sequence numbers.
    pub(crate) fn number(&mut self, first: u64) {
        let mut next = first;
        let mut number = |batch: &mut WriteBatch| {
            batch.set_sequence(next);
            next += u64::from(batch.count());
        };
        number(&mut self.lead.batch);
        for f in self.followers.iter() {
            f.with_batch(&mut number);
        }
    }

    /// Gives the followers the result.
    pub(crate) fn finish(&mut self, result: &Result<()>) {
        self.followers.finish(result);
    }
}
