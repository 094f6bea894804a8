//! Events: their ids, and when readers may see them.
//!
//! Ids are microseconds since 1970, each greater than the one before. A shard takes ids when it
//! writes; readers see the events below the lowest id whose write is not yet durable. So a reader
//! that has read up to an id never misses an event that appears below it later, and an event that
//! was read is never lost.

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

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Outside before, inside now.
    Enter,
    /// Inside before, outside now.
    Exit,
    /// Inside for the time that the fence asks for.
    Dwell,
    /// Outside before and now, and inside between.
    Cross,
}

/// What happened to an entity, when and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Greater than the id of each earlier event. It is in the key; in the stored value it is 0.
    #[serde(default)]
    pub id: u64,
    /// What happened.
    pub kind: Kind,
    /// The name of the fence.
    pub fence: String,
    /// The name of the entity.
    pub entity: String,
    /// The time of the report that showed it, microseconds since 1970.
    pub time: i64,
    /// Latitude at that time, degrees.
    pub lat: f64,
    /// Longitude at that time, degrees.
    pub lon: f64,
}

/// Events of a fleet after an id, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The events.
    pub events: Vec<Event>,
    /// All events up to this id are covered: the next page is read after it.
    pub next: u64,
}

/// The key of an event: fleet 4, id 8, big-endian.
pub(crate) fn key(fleet: Fleet, id: u64) -> [u8; 12] {
    let mut out = [0; 12];
    let bytes = fleet.prefix().into_iter().chain(id.to_be_bytes());
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    out
}

/// The ids of all events of the store.
#[derive(Debug)]
pub struct Events {
    inner: Mutex<Inner>,
    /// The greatest id when the store was opened.
    opened: u64,
    /// The id up to which events are given out.
    through: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    last: u64,
    /// The greatest id of each fleet that has had events since the store was opened.
    last_of: HashMap<Fleet, u64>,
    /// Taken ids whose writes are not durable yet: the first id, and the number of ids.
    open: BTreeMap<u64, u64>,
    /// The greatest number of a write that is known to be durable.
    durable: u64,
    /// The ids of writes that may not become durable, with the number of the write.
    unsure: Vec<(u64, Ids)>,
}

impl Events {
    /// Reads the last ids of a store; all stored events are durable. Errors: the store's.
    pub fn open(store: &dyn Store) -> Result<Self> {
        let view = store.view();
        let mut last = 0;
        // Visits the last event of each fleet.
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

    /// Takes ids, at `now` or later, for events of these fleets. Dropping the [`Ids`] gives them
    /// back: this is done when their write is durable or has failed.
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

    /// The write with this number may be lost: its events are held back until a later write is
    /// durable.
    pub(crate) fn is_unsure(&self, number: u64, ids: Ids) {
        let mut inner = self.lock();
        // Several threads may report in any order.
        if number <= inner.durable {
            drop(inner);
            drop(ids);
            return;
        }
        // While the store fails, each write has the same number: keeping the lowest ids holds back
        // all others.
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

    /// Whether events are held back: the caller should then find out when the stored events are
    /// durable.
    pub(crate) fn are_held_back(&self) -> bool {
        !self.lock().unsure.is_empty()
    }

    /// The write with this number, and all before it, are durable.
    pub(crate) fn is_durable(&self, number: u64) {
        let sure: Vec<(u64, Ids)> = {
            let mut inner = self.lock();
            inner.durable = inner.durable.max(number);
            inner.unsure.extract_if(.., |(n, _)| *n <= number).collect()
        };
        drop(sure);
    }

    /// The id up to which events are given out, and its changes.
    pub fn through(&self) -> watch::Receiver<u64> {
        self.through.subscribe()
    }

    /// The id up to which events are given out now.
    pub fn given_out(&self) -> u64 {
        *self.through.borrow()
    }

    /// The id of the first event that is not given out yet. `None` if all are.
    pub fn first_waiting(&self) -> Option<u64> {
        let inner = self.lock();
        inner.open.first_key_value().map(|(first, _)| *first)
    }

    /// An upper bound of the ids of the fleet's events, given out or not. For a fleet without
    /// events since the store was opened, it is the greatest id of all fleets at that time.
    pub fn last_of(&self, fleet: Fleet) -> u64 {
        let last = self.lock().last_of.get(&fleet).copied();
        last.unwrap_or(self.opened)
    }

    /// The events of a fleet after an id, in order, at most `limit`. They are read as stored: some
    /// may be older than the fleet keeps. Errors: the store's; Corruption.
    pub fn read(
        &self,
        store: &dyn Store,
        fleet: Fleet,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>> {
        Ok(self.page(|| store.view(), fleet, after, limit)?.events)
    }

    /// Like [`Events::read`], from a view that is taken after the upper bound is known; the page
    /// says after which id to go on. If there are no more events, that is the id up to which events
    /// are given out.
    pub fn page<'v>(
        &self,
        view: impl FnOnce() -> Box<dyn View + 'v>,
        fleet: Fleet,
        after: u64,
        limit: usize,
    ) -> Result<Page> {
        // Read before the view is taken, so that the view has all events up to it.
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

/// What is written together with deletions of events; the arguments are the first and the last
/// deleted key.
type Also<'a> = dyn Fn(&mut Batch<'_>, (&[u8], &[u8])) -> Result<()> + 'a;

/// Erases the events of an entity up to an id, in batches; `also` adds to each batch, given its
/// first and last deleted key. Returns whether there were any events. Errors: the store's.
pub(crate) fn erase_events(
    store: &dyn Store,
    fleet: Fleet,
    (entity, last): (&Name, u64),
    also: &Also<'_>,
) -> Result<bool> {
    /// The most deletions in one batch.
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
        // An event that cannot be decoded is left in place: `read` reports it.
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
    // If reading failed, the events found before are still erased.
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

/// The greatest id of a fleet, by bisection, because rows cannot be read backwards.
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

/// Ids of a write in progress. Unsure ids are dropped when the service ends.
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
        // Under the lock, so that it never goes back. The receivers that this wakes take none of
        // our locks.
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

    /// Events that may be lost are held back until a later write is durable.
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
        // While the store fails, writes come and go, and may end in any order.
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
        // Reported in the other order.
        let late = again.take(&[Fleet(3)], Time(7000));
        again.is_unsure(6, late);
        assert_eq!(
            (*again.through().borrow(), again.are_held_back()),
            (7000, false)
        );
    }
}
