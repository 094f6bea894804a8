//! Other shapes of the same writes: only the point, or each operation as a separate call.

use std::sync::Arc;

use base::Result;
use ironstone::WriteBatch;
use ironstone::batch::Record;
use tracks::store::{Family, Store, Told, View};

/// The part of a batch that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Only the puts in `default`.
    Points,
    /// All operations, each in a batch of its own.
    Single,
}

/// A store that reshapes the writes of another one.
pub(crate) struct Shaped {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) shape: Shape,
}

impl Shaped {
    fn each(&self, batch: &WriteBatch) -> Result<Vec<WriteBatch>> {
        let default = self.store.id(Family::Default);
        let mut points = WriteBatch::new();
        let mut out = Vec::new();
        for record in batch.records() {
            let mut one = WriteBatch::new();
            match record? {
                Record::Put { cf, key, value } => {
                    if self.shape == Shape::Points && cf == default {
                        points.cf_id(cf).put(key, value)?;
                    }
                    one.cf_id(cf).put(key, value)?;
                }
                Record::Delete { cf, key } => one.cf_id(cf).delete(key)?,
                _ => continue,
            }
            out.push(one);
        }
        Ok(match self.shape {
            Shape::Points => vec![points],
            Shape::Single => out,
        })
    }
}

impl Store for Shaped {
    fn id(&self, family: Family) -> u32 {
        self.store.id(family)
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.store.get(family, key)
    }

    fn view(&self) -> Box<dyn View + '_> {
        self.store.view()
    }

    fn write(&self, batch: WriteBatch, durable: Option<Told>) -> Result<u64> {
        let mut number = 0;
        let batches = self.each(&batch)?;
        for one in batches {
            number = self.store.write(one, None)?;
        }
        if let Some(told) = durable {
            self.store.when_durable(told);
        }
        Ok(number)
    }

    fn last_number(&self) -> u64 {
        self.store.last_number()
    }

    fn when_durable(&self, told: Told) {
        self.store.when_durable(told);
    }

    fn wait_durable(&self, number: u64) -> Result<()> {
        self.store.wait_durable(number)
    }
}
