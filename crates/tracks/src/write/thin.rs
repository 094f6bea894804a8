//! Dropping points of the past, by the shard of their entity: none goes that was reported anew since it was looked at.

use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use crate::model::key::PointKey;
use crate::store::{Batch, Family, Store};

/// Points of one entity that a shard is to drop, as far as they are still these. Dropping it tells who waits that it is not done.
#[derive(Debug)]
pub(super) struct Thin {
    /// None of them is its entity's newest.
    pub(super) points: Vec<(PointKey, Vec<u8>)>,
    /// How many were dropped.
    pub(super) answer: oneshot::Sender<Result<u64>>,
}

impl Thin {
    /// Does it, and answers when it is visible: what is lost is done again.
    pub(super) fn run(self, store: &Arc<dyn Store>) {
        let done = drop_points(&**store, &self.points);
        // Nobody waits any more: that is their matter.
        drop(self.answer.send(done));
    }
}

fn drop_points(store: &dyn Store, points: &[(PointKey, Vec<u8>)]) -> Result<u64> {
    let mut batch = Batch::new(store);
    let mut count = 0;
    for (key, value) in points {
        let key = key.to_bytes();
        if store.get(Family::Default, &key)?.as_ref() == Some(value) {
            batch.delete(Family::Default, &key)?;
            count += 1;
        }
    }
    if count > 0 {
        batch.write(None)?;
    }
    Ok(count)
}

/// What waits for a shard.
pub(super) fn gone() -> Error {
    Error::new(
        ErrorKind::ShutdownInProgress,
        "the service stopped before points were dropped",
    )
    .hint("housekeeping does it again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::key::{Entity, Fleet};
    use crate::model::time::Time;
    use crate::store::Engine;

    #[test]
    fn what_was_reported_anew_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let key = |nth| PointKey {
            fleet: Fleet(1),
            entity: Entity(2),
            time: Time(nth),
        };
        let mut batch = Batch::new(&store);
        for nth in 0..3 {
            let key = key(nth).to_bytes();
            batch.put(Family::Default, &key, &[nth as u8]).unwrap();
        }
        batch.write(None).unwrap();
        let old = [(key(0), vec![0]), (key(1), vec![7]), (key(9), vec![9])];
        assert_eq!(drop_points(&store, &old).unwrap(), 1);
        assert_eq!(drop_points(&store, &old).unwrap(), 0);
        let is_there = |nth| {
            store
                .get(Family::Default, &key(nth).to_bytes())
                .unwrap()
                .is_some()
        };
        assert_eq!([0, 1, 2].map(is_there), [false, true, true]);
    }
}
