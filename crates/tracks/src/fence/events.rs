//! Events: their ids, and giving them out.
//!
//! Ids are microseconds since 1970, each greater than the one before. Shards take them when they write; a reader sees those
//! below the lowest that is not durable yet. So nobody who has read up to an id misses one that comes below it later, and what
//! was read stays.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use base::sync::{Mutex, MutexGuard, PoisonError};
use base::{Error, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::model::key::{Fleet, behind};
use crate::model::name::Name;
use crate::model::time::Time;
use crate::store::{Batch, Family, Store, View, damaged};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Outside before, inside now.
    Enter,
    /// Inside before, outside now.
    Exit,
    /// Inside for as long as the fence asks.
    Dwell,
    /// Outside before and now, and inside between.
    Cross,
}

/// What happened, when, where and to whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Greater than that of each event before. Not part of what is stored.
    #[serde(default)]
    pub id: u64,
    /// What happened.
    pub kind: Kind,
    /// Of which fence.
    pub fence: String,
    /// To whom.
    pub entity: String,
    /// The time of the report that showed it, microseconds since 1970.
    pub time: i64,
    /// Where it was then, degrees.
    pub lat: f64,
    /// Where it was then, degrees.
    pub lon: f64,
}

/// Events of a fleet behind an id, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// They.
    pub events: Vec<Event>,
    /// All events up to this id were looked at: what comes is behind it.
    pub next: u64,
}

/// The key of an event: fleet 4, id 8, big-endian.
pub(crate) fn key(fleet: Fleet, id: u64) -> [u8; 12] {
    let mut out = [0; 12];
    let bytes = fleet.prefix().into_iter().chain(id.to_be_bytes());
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    out
}

/// The ids of all events.
#[derive(Debug)]
pub struct Events {
    inner: Mutex<Inner>,
    /// The greatest id when the store was opened.
    opened: u64,
    /// Up to which id events are given out.
    through: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    last: u64,
    /// The greatest id of each fleet that has had events since the store was opened.
    last_of: HashMap<Fleet, u64>,
    /// Ids whose writes are not durable: the first, and how many.
    open: BTreeMap<u64, u64>,
    /// The greatest number of a write that is durable, as far as was told.
    durable: u64,
    /// Those of writes that may not become durable, by the numbers of the writes.
    unsure: Vec<(u64, Ids)>,
}

impl Events {
    /// Those of a store: what is there is durable. Errors: the store's.
    pub fn open(store: &dyn Store) -> Result<Self> {
        let view = store.view();
        let mut last = 0;
        // The last of each fleet.
        let mut from: Vec<u8> = Vec::new();
        let mut rows = view.rows(Family::Events, &[], None)?;
        loop {
            rows.seek(&from);
            let Some((key, _)) = rows.row() else {
                rows.status()?;
                break;
            };
            let (fleet, _) = parts(key)?;
            last = last.max(last_of(&*view, fleet)?);
            match behind(&fleet.prefix()) {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(Self {
            opened: last,
            inner: Mutex::new(Inner {
                last,
                last_of: HashMap::new(),
                open: BTreeMap::new(),
                durable: 0,
                unsure: Vec::new(),
            }),
            through: watch::Sender::new(last),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ids for events of these fleets, at `now` or later, which are given back when they are dropped: when their write is
    /// durable, or failed.
    pub(crate) fn take(self: &Arc<Self>, fleets: &[Fleet], now: Time) -> Ids {
        let count = fleets.len() as u64;
        let mut inner = self.lock();
        let first = u64::try_from(now.0).unwrap_or(0).max(inner.last + 1);
        if count > 0 {
            inner.last = first + count - 1;
            inner.open.insert(first, count);
            for (id, fleet) in (first..).zip(fleets) {
                inner.last_of.insert(*fleet, id);
            }
        }
        Ids {
            events: Arc::downgrade(self),
            first,
            count,
        }
    }

    /// The greatest id that was taken.
    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    /// The write of this number may be lost: its events are held back, until a later write is durable.
    pub(crate) fn is_unsure(&self, number: u64, ids: Ids) {
        let mut inner = self.lock();
        // What is told by several threads may be told in another order.
        if number <= inner.durable {
            drop(inner);
            drop(ids);
            return;
        }
        // While the store fails, each write has the same number: the lowest ids hold all others of it back.
        let known = inner.unsure.iter_mut().find(|(n, _)| *n == number);
        let held = match known {
            None => {
                inner.unsure.push((number, ids));
                return;
            }
            Some((_, lowest)) if lowest.first <= ids.first => ids,
            Some((_, lowest)) => std::mem::replace(lowest, ids),
        };
        drop(inner);
        drop(held);
    }

    /// Whether events are held back: then somebody should ask when what is there is durable.
    pub(crate) fn are_held_back(&self) -> bool {
        !self.lock().unsure.is_empty()
    }

    /// The write of this number, and all before it, are durable.
    pub(crate) fn is_durable(&self, number: u64) {
        let sure: Vec<(u64, Ids)> = {
            let mut inner = self.lock();
            inner.durable = inner.durable.max(number);
            inner.unsure.extract_if(.., |(n, _)| *n <= number).collect()
        };
        drop(sure);
    }

    /// Up to which id events are given out, now and whenever that changes.
    pub fn through(&self) -> watch::Receiver<u64> {
        self.through.subscribe()
    }

    /// Up to which id events are given out now.
    pub fn given_out(&self) -> u64 {
        *self.through.borrow()
    }

    /// The id of the first event that is not given out yet. `None`: all are.
    pub fn first_waiting(&self) -> Option<u64> {
        let inner = self.lock();
        inner.open.first_key_value().map(|(first, _)| *first)
    }

    /// No event of the fleet has a greater id, given out or not. It is not known of which fleets the events are that were there when
    /// the store was opened.
    pub fn last_of(&self, fleet: Fleet) -> u64 {
        let last = self.lock().last_of.get(&fleet).copied();
        last.unwrap_or(self.opened)
    }

    /// The events of a fleet behind an id, in their order, `limit` at most, as they are stored: some may be older than the fleet
    /// keeps. Errors: the store's; Corruption.
    pub fn read(
        &self,
        store: &dyn Store,
        fleet: Fleet,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>> {
        Ok(self.page(|| store.view(), fleet, after, limit)?.events)
    }

    /// The same of a view, which is taken once it is known what is given out; and behind which id to go on: where there are no more,
    /// that up to which events are given out.
    pub fn page<'v>(
        &self,
        view: impl FnOnce() -> Box<dyn View + 'v>,
        fleet: Fleet,
        after: u64,
        limit: usize,
    ) -> Result<Page> {
        // First, as what is durable now is in the view.
        let through = self.given_out();
        let events = Self::between(&*view(), fleet, (after, through), limit)?;
        let last = events.last().map_or(after, |event| event.id);
        let next = if events.len() < limit {
            after.max(through)
        } else {
            last
        };
        Ok(Page { events, next })
    }

    fn between(
        view: &dyn View,
        fleet: Fleet,
        (after, through): (u64, u64),
        limit: usize,
    ) -> Result<Vec<Event>> {
        let start = key(fleet, after.saturating_add(1));
        let end = key(fleet, through.saturating_add(1));
        let mut out = Vec::new();
        if start >= end {
            return Ok(out);
        }
        let mut rows = view.rows(Family::Events, &start, Some(&end))?;
        rows.seek(&start);
        while let Some((key, value)) = rows.row().filter(|_| out.len() < limit) {
            let event: Result<Event, _> = serde_json::from_slice(value);
            let mut event = event
                .map_err(|e| damaged(Family::Events, key, &Error::corruption(e.to_string())))?;
            (_, event.id) = parts(key)?;
            out.push(event);
            rows.next();
        }
        rows.status()?;
        Ok(out)
    }
}

/// What is written together with deletions of events, of which these keys are the first and the last.
type Also<'a> = dyn Fn(&mut Batch<'_>, (&[u8], &[u8])) -> Result<()> + 'a;

/// Erases the events of an entity, up to an id, with what `also` puts in each batch, given the first and the last key. Returns whether
/// there were any. Errors: the store's.
pub(crate) fn erase_events(
    store: &dyn Store,
    fleet: Fleet,
    (entity, last): (&Name, u64),
    also: &Also<'_>,
) -> Result<bool> {
    /// So many are deleted by a batch.
    const PART: usize = 1000;
    let view = store.view();
    let (start, end) = (key(fleet, 0), key(fleet, last.saturating_add(1)));
    let mut rows = view.rows(Family::Events, &start, Some(&end))?;
    rows.seek(&start);
    let mut batch = Batch::new(store);
    let mut count = 0;
    let mut were_any = false;
    let mut ends = (Vec::new(), Vec::new());
    while let Some((key, value)) = rows.row() {
        // One that cannot be read is left to `read`, which names it.
        let event: Option<Event> = serde_json::from_slice(value).ok();
        if event.is_some_and(|event| event.entity == entity.as_str()) {
            batch.delete(Family::Events, key)?;
            if count == 0 {
                ends.0 = key.to_vec();
            }
            ends.1 = key.to_vec();
            count += 1;
            were_any = true;
        }
        if count == PART {
            also(&mut batch, (&ends.0, &ends.1))?;
            std::mem::replace(&mut batch, Batch::new(store)).write(None)?;
            count = 0;
        }
        rows.next();
    }
    // Those before one that cannot be read are erased all the same.
    let read = rows.status();
    if count > 0 {
        also(&mut batch, (&ends.0, &ends.1))?;
        batch.write(None)?;
    }
    read.map(|()| were_any)
}

fn parts(key: &[u8]) -> Result<(Fleet, u64)> {
    let parts = key.split_first_chunk().and_then(|(fleet, rest)| {
        let id: [u8; 8] = rest.try_into().ok()?;
        Some((Fleet(u32::from_be_bytes(*fleet)), u64::from_be_bytes(id)))
    });
    parts.ok_or_else(|| Error::corruption("events: a key that is not 12 bytes"))
}

/// The greatest id of a fleet, by halves: rows cannot be read backwards.
fn last_of(view: &dyn View, fleet: Fleet) -> Result<u64> {
    let (start, end) = (key(fleet, 0), behind(&fleet.prefix()));
    let mut rows = view.rows(Family::Events, &start, end.as_deref())?;
    let (mut low, mut high) = (0_u64, u64::MAX);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        rows.seek(&key(fleet, middle));
        if let Some((key, _)) = rows.row() {
            low = parts(key)?.1;
        } else {
            rows.status()?;
            high = middle - 1;
        }
    }
    Ok(low)
}

/// Ids of a write that is on its way. Those that are unsure when the service ends go with it.
#[derive(Debug)]
pub(crate) struct Ids {
    events: Weak<Events>,
    first: u64,
    count: u64,
}

impl Ids {
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        self.first..self.first + self.count
    }
}

impl Drop for Ids {
    fn drop(&mut self) {
        let Some(events) = self.events.upgrade() else {
            return;
        };
        let mut inner = events.lock();
        if self.count > 0 {
            inner.open.remove(&self.first);
        }
        let open = inner.open.first_key_value();
        let through = open.map_or(inner.last, |(first, _)| first - 1);
        // Under the lock, so that it never goes back; who waits is woken, and takes no lock of ours.
        events.through.send_if_modified(|old| {
            let is_more = through > *old;
            *old = through.max(*old);
            is_more
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Batch, Engine};

    #[test]
    fn nothing_is_given_out_above_what_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let events = Arc::new(Events::open(&store).unwrap());
        let through = events.through();
        let first = events.take(&[Fleet(3); 2], Time(1000));
        let second = events.take(&[Fleet(3)], Time(900));
        assert_eq!(first.iter().collect::<Vec<_>>(), [1000, 1001]);
        assert_eq!(second.iter().collect::<Vec<_>>(), [1002]);
        drop(second);
        assert_eq!(*through.borrow(), 999);
        let mut batch = Batch::new(&store);
        let event = |id| Event {
            id,
            kind: Kind::Enter,
            fence: "f".to_owned(),
            entity: "e".to_owned(),
            time: 1,
            lat: 2.0,
            lon: 3.0,
        };
        for id in [1000, 1001, 1002] {
            let value = serde_json::to_vec(&event(id)).unwrap();
            batch
                .put(Family::Events, &key(Fleet(3), id), &value)
                .unwrap();
        }
        batch.write(None).unwrap();
        let ids = |after, limit| {
            let read = events.read(&store, Fleet(3), after, limit).unwrap();
            read.into_iter().map(|event| event.id).collect::<Vec<_>>()
        };
        assert!(ids(0, 10).is_empty());
        drop(first);
        assert_eq!(*through.borrow(), 1002);
        assert_eq!(
            (ids(0, 10), ids(1000, 10), ids(0, 1)),
            (vec![1000, 1001, 1002], vec![1001, 1002], vec![1000])
        );
        let page = |after, limit| {
            let page = events.page(|| store.view(), Fleet(3), after, limit);
            page.unwrap().next
        };
        assert_eq!(
            (
                page(0, 1),
                page(0, 2),
                page(0, 4),
                page(1002, 1),
                page(2000, 1)
            ),
            (1000, 1001, 1002, 1002, 2000)
        );
        assert_eq!(
            (events.last_of(Fleet(3)), events.last_of(Fleet(4))),
            (1002, 0)
        );
        assert!(ids(1002, 10).is_empty() && ids(u64::MAX, 10).is_empty());
        assert_eq!(
            events.read(&store, Fleet(3), 1001, 10).unwrap(),
            [event(1002)]
        );
        let again = Arc::new(Events::open(&store).unwrap());
        assert_eq!(*again.through().borrow(), 1002);
        assert_eq!(again.take(&[Fleet(3)], Time(5)).iter().next(), Some(1003));
        what_is_unsure_is_held_back(&again);
    }

    /// What may be lost is held back, until something later is durable.
    fn what_is_unsure_is_held_back(again: &Arc<Events>) {
        let lost = again.take(&[Fleet(3)], Time(2000));
        again.is_unsure(7, lost);
        drop(again.take(&[Fleet(3)], Time(3000)));
        assert_eq!(*again.through().borrow(), 1999);
        again.is_durable(6);
        assert_eq!(*again.through().borrow(), 1999);
        assert!(again.are_held_back());
        again.is_durable(7);
        assert_eq!(*again.through().borrow(), 3000);
        // While the store fails, rounds come and go. They may end in any order.
        let [first, second, third] = [5000, 5001, 5002].map(|at| again.take(&[Fleet(3)], Time(at)));
        again.is_unsure(9, second);
        again.is_unsure(9, first);
        again.is_unsure(9, third);
        for time in 6000..7000 {
            let ids = again.take(&[Fleet(3)], Time(time));
            again.is_unsure(9, ids);
        }
        let inner = again.lock();
        assert_eq!((inner.unsure.len(), inner.open.len()), (1, 1));
        drop(inner);
        assert_eq!(*again.through().borrow(), 4999);
        again.is_durable(9);
        assert_eq!(*again.through().borrow(), 6999);
        // Told in the other order.
        let late = again.take(&[Fleet(3)], Time(7000));
        again.is_unsure(6, late);
        assert_eq!(
            (*again.through().borrow(), again.are_held_back()),
            (7000, false)
        );
    }
}
