//! A store that does nothing, to measure the service itself.

use base::Result;
use base::sync::atomic::{AtomicU64, Ordering};
use ironstone::WriteBatch;
use tracks::store::{Family, Rows, Store, Told, View};

/// A store that keeps nothing.
#[derive(Debug, Default)]
pub(crate) struct Null {
    last: AtomicU64,
}

impl Store for Null {
    fn id(&self, family: Family) -> u32 {
        family as u32
    }

    fn get(&self, _family: Family, _key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(Nothing)
    }

    fn write(&self, _batch: WriteBatch, durable: Option<Told>) -> Result<u64> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(told) = durable {
            told(number, Ok(()));
        }
        Ok(number)
    }

    fn last_number(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    fn when_durable(&self, told: Told) {
        told(self.last_number(), Ok(()));
    }

    fn wait_durable(&self, _number: u64) -> Result<()> {
        Ok(())
    }
}

struct Nothing;

impl View for Nothing {
    fn get(&self, _family: Family, _key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn rows(&self, _: Family, _: &[u8], _: Option<&[u8]>) -> Result<Box<dyn Rows + '_>> {
        Ok(Box::new(Self))
    }
}

impl Rows for Nothing {
    fn seek(&mut self, _key: &[u8]) {}

    fn next(&mut self) {}

    fn row(&self) -> Option<(&[u8], &[u8])> {
        None
    }

    fn status(&self) -> Result<()> {
        Ok(())
    }
}
