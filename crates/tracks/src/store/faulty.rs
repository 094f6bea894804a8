//! A store for tests, which fails, panics or reports durability as its test demands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::sync::atomic::AtomicBool;
use base::{Error, Result};
use ironstone::WriteBatch;

use super::{Engine, Family, Rows, Store, Told, View};
use crate::model::key::Fleet;
use crate::model::time::Time;

/// The number of rows of a family whose keys begin with these bytes.
pub(crate) fn count(view: &dyn View, family: Family, first: &[u8]) -> usize {
    let end = crate::model::key::behind(first);
    let mut rows = view.rows(family, first, end.as_deref()).unwrap();
    rows.seek(first);
    let mut count = 0;
    while rows.row().is_some() {
        count += 1;
        rows.next();
    }
    rows.status().unwrap();
    count
}

/// An operation on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act<'a> {
    /// One row is read, without a view.
    Get(Family, &'a [u8]),
    /// Rows are read from a key on.
    Rows(Family, &'a [u8]),
    /// Reading moves on from the row with this key.
    Row(Family, &'a [u8]),
    Write,
    WaitDurable,
    /// The horizons are passed to the store.
    Keep,
    Reclaim(Family, &'a [u8]),
    Compact(Family, &'a [u8]),
    Tidy,
}

/// Called before each operation; its error or panic is the operation's.
pub(crate) type Rule = dyn Fn(Act<'_>) -> Result<()> + Send + Sync;

/// A store that applies a [`Rule`] to an [`Engine`].
pub(crate) struct Faulty {
    pub(crate) inner: Engine,
    rule: Box<Rule>,
}

impl Faulty {
    pub(crate) fn new(
        inner: Engine,
        rule: impl Fn(Act<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let rule = Box::new(rule);
        Arc::new(Self { inner, rule })
    }
}

impl Store for Faulty {
    fn id(&self, family: Family) -> u32 {
        self.inner.id(family)
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        (self.rule)(Act::Get(family, key))?;
        self.inner.get(family, key)
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(At {
            view: self.inner.view(),
            of: self,
        })
    }

    fn write(&self, batch: WriteBatch, durable: Option<Told>) -> Result<u64> {
        (self.rule)(Act::Write)?;
        self.inner.write(batch, durable)
    }

    fn note_asked(&self) {
        self.inner.note_asked();
    }

    fn is_syncing(&self) -> bool {
        self.inner.is_syncing()
    }

    fn may_lose(&self) -> bool {
        self.inner.may_lose()
    }

    fn last_number(&self) -> u64 {
        self.inner.last_number()
    }

    fn when_durable(&self, told: Told) {
        self.inner.when_durable(told);
    }

    fn wait_durable(&self, number: u64) -> Result<()> {
        (self.rule)(Act::WaitDurable)?;
        self.inner.wait_durable(number)
    }

    fn keep(&self, oldest: BTreeMap<Fleet, Time>, every: Option<Duration>) -> Result<()> {
        (self.rule)(Act::Keep)?;
        self.inner.keep(oldest, every)
    }

    fn reclaim(&self, family: Family, from: &[u8], to: &[u8]) -> Result<()> {
        (self.rule)(Act::Reclaim(family, to))?;
        self.inner.reclaim(family, from, to)
    }

    fn compact(
        &self,
        family: Family,
        range: (&[u8], &[u8]),
        canceled: &Arc<AtomicBool>,
    ) -> Result<()> {
        (self.rule)(Act::Compact(family, range.0))?;
        self.inner.compact(family, range, canceled)
    }

    fn visible_number(&self) -> u64 {
        self.inner.visible_number()
    }

    fn oldest_view(&self) -> Option<u64> {
        self.inner.oldest_view()
    }

    fn tidy(&self) -> Result<()> {
        (self.rule)(Act::Tidy)?;
        self.inner.tidy()
    }
}

struct At<'a> {
    view: Box<dyn View + 'a>,
    of: &'a Faulty,
}

impl View for At<'_> {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.view.get(family, key)
    }

    fn rows(&self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<Box<dyn Rows + '_>> {
        (self.of.rule)(Act::Rows(family, from))?;
        Ok(Box::new(RowsOf {
            rows: self.view.rows(family, from, to)?,
            family,
            of: self.of,
            failed: None,
        }))
    }

    fn has_dead_rows(&self, family: Family, from: &[u8], to: Option<&[u8]>) {
        self.view.has_dead_rows(family, from, to);
    }
}

struct RowsOf<'a> {
    rows: Box<dyn Rows + 'a>,
    family: Family,
    of: &'a Faulty,
    failed: Option<Error>,
}

impl Rows for RowsOf<'_> {
    fn seek(&mut self, key: &[u8]) {
        self.failed = None;
        self.rows.seek(key);
    }

    fn next(&mut self) {
        let told = self.rows.row().map_or(Ok(()), |(key, _)| {
            (self.of.rule)(Act::Row(self.family, key))
        });
        match told {
            Ok(()) => self.rows.next(),
            Err(e) => self.failed = Some(e),
        }
    }

    fn row(&self) -> Option<(&[u8], &[u8])> {
        self.rows.row().filter(|_| self.failed.is_none())
    }

    fn status(&self) -> Result<()> {
        match &self.failed {
            Some(e) => Err(e.clone()),
            None => self.rows.status(),
        }
    }

    fn skipped(&self) -> u64 {
        self.rows.skipped()
    }
}
