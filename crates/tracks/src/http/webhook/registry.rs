//! All webhooks: their rows, and their cursors.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::rng::Rng;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError};
use base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::client::Client;
use super::hosts::{Hosts, Target};
use crate::fleets::{Fleets, Info};
use crate::http::Stopping;
use crate::http::events::{Filter, KindBody};
use crate::http::tokens;
use crate::model::key::{Fleet, behind};
use crate::model::name::Name;
use crate::model::time::Time;
use crate::store::{Batch, Family, Store, damaged};

/// The prefix of their keys in `meta`.
const KEY: &[u8] = b"webhook/";
/// The most webhooks of a fleet.
const OF_FLEET_MAX: usize = 100;
/// The most webhooks of all fleets.
const ALL_MAX: usize = 1000;
/// The most concurrent deliveries, and those of webhooks whose last delivery failed.
const DELIVERIES: usize = 64;
const FAILING: usize = DELIVERIES / 2;
/// The most cursors that are stored at a time.
pub(super) const STORES: usize = 4;

/// The row of a webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// Differs each time that a webhook is made or replaced.
    id: u64,
    pub(super) url: String,
    pub(super) secret: String,
    pub(super) events: Vec<KindBody>,
    pub(super) fences: Vec<String>,
    /// Events up to this id were taken, or do not match.
    cursor: u64,
    /// Why it is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disabled: Option<String>,
}

/// The progress of a webhook.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) cursor: u64,
    /// The stored cursor.
    pub(super) stored: u64,
    pub(super) disabled: Option<String>,
    /// The number of failures in a row.
    pub(super) failures: u32,
    pub(super) last_failure: Option<(Time, String)>,
    pub(super) next_attempt: Option<Time>,
    pub(super) last_delivery: Option<Time>,
    /// The id of the first event that is being sent.
    pub(super) first_waiting: Option<u64>,
}

/// A webhook.
#[derive(Debug)]
pub(crate) struct Hook {
    pub(super) info: Arc<Info>,
    pub(super) name: Name,
    pub(super) target: Target,
    /// As it was made; its progress is in `state`.
    pub(super) stored: Stored,
    state: Mutex<State>,
    /// Set once it is deleted or replaced.
    ended: watch::Sender<bool>,
}

impl Hook {
    fn new(info: Arc<Info>, name: Name, stored: Stored) -> std::result::Result<Self, String> {
        Ok(Self {
            info,
            name,
            target: Target::new(&stored.url)?,
            state: Mutex::new(State {
                cursor: stored.cursor,
                stored: stored.cursor,
                disabled: stored.disabled.clone(),
                ..State::default()
            }),
            stored,
            ended: watch::Sender::new(false),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&self) -> State {
        self.lock().clone()
    }

    pub(super) fn filter(&self) -> Filter {
        Filter {
            fences: self.stored.fences.clone(),
            entities: Vec::new(),
            kinds: self.stored.events.clone(),
        }
    }

    /// Tells when it is deleted or replaced.
    pub(super) fn ended(&self) -> Stopping {
        Stopping(self.ended.subscribe())
    }

    /// Its state for metrics.
    pub(crate) fn health(&self) -> Health {
        let state = self.lock();
        Health {
            fleet: self.info.name.to_string(),
            name: self.name.to_string(),
            first_waiting: state.first_waiting,
            failures: state.failures,
            is_disabled: state.disabled.is_some(),
        }
    }

    fn key(&self) -> Place {
        (self.info.fleet, self.name.clone())
    }
}

/// The state of a webhook for metrics.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) fleet: String,
    pub(crate) name: String,
    /// The id of the first event that was not taken.
    pub(crate) first_waiting: Option<u64>,
    /// The number of failures in a row.
    pub(crate) failures: u32,
    pub(crate) is_disabled: bool,
}

type Place = (Fleet, Name);

/// The webhooks of all fleets.
#[derive(Debug)]
pub(crate) struct Webhooks {
    pub(super) hosts: Hosts,
    all: Mutex<BTreeMap<Place, Arc<Hook>>>,
    /// Locked while a row is changed.
    changes: Mutex<()>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    pub(super) client: Client,
    pub(super) deliveries: Arc<Semaphore>,
    pub(super) failing: Arc<Semaphore>,
    /// Places for storing cursors: each waits for the device on a blocking thread.
    pub(super) stores: Arc<Semaphore>,
    rng: Mutex<Rng>,
    pub(super) delivered: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// The properties of a new webhook.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) url: String,
    pub(super) secret: String,
    pub(super) events: Vec<KindBody>,
    pub(super) fences: Vec<String>,
}

impl Webhooks {
    /// Reads all webhooks, except those of refused fleets. Errors: the store's; Corruption.
    pub(crate) fn open(
        store: &dyn Store,
        fleets: &Fleets,
        hosts: Hosts,
        seed: u64,
    ) -> Result<Self> {
        let mut all = BTreeMap::new();
        let view = store.view();
        let end = behind(KEY);
        let mut rows = view.rows(Family::Meta, KEY, end.as_deref())?;
        rows.seek(KEY);
        while let Some((key, value)) = rows.row() {
            let hook = decode(fleets, key, value).map_err(|e| damaged(Family::Meta, key, &e))?;
            all.extend(hook.map(|hook| (hook.key(), Arc::new(hook))));
            rows.next();
        }
        rows.status()?;
        Ok(Self {
            hosts,
            all: Mutex::new(all),
            changes: Mutex::new(()),
            tasks: Mutex::default(),
            client: Client::new(),
            deliveries: Arc::new(Semaphore::new(DELIVERIES)),
            failing: Arc::new(Semaphore::new(FAILING)),
            stores: Arc::new(Semaphore::new(STORES)),
            rng: Mutex::new(Rng::new(seed)),
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Place, Arc<Hook>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Hook>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn get(&self, fleet: Fleet, name: &Name) -> Option<Arc<Hook>> {
        self.lock().get(&(fleet, name.clone())).cloned()
    }

    /// A random number, at least 0 and less than 1.
    pub(super) fn random(&self) -> f64 {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        rng.below(1 << 32) as f64 / f64::from(1 << 16) / f64::from(1 << 16)
    }

    /// Makes a webhook, or replaces one, whose cursor it keeps. It is not durable yet, and has no
    /// task.
    ///
    /// Errors: `InvalidArgument` if there are too many, or the URL is invalid; the store's.
    pub(super) fn put(
        &self,
        store: &dyn Store,
        (info, name): (Arc<Info>, Name),
        wanted: Wanted,
        now: u64,
    ) -> Result<Arc<Hook>> {
        let id = u64::from_le_bytes(tokens::random()?);
        let _one = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.get(info.fleet, &name);
        if old.is_none() {
            self.has_place(info.fleet)?;
        }
        let stored = Stored {
            id,
            url: wanted.url,
            secret: wanted.secret,
            events: wanted.events,
            fences: wanted.fences,
            cursor: old.as_ref().map_or(now, |old| old.state().cursor),
            disabled: None,
        };
        let hook = Hook::new(info, name, stored).map_err(Error::invalid_argument)?;
        write(store, &hook.key(), &hook.stored)?;
        let hook = Arc::new(hook);
        self.lock().insert(hook.key(), Arc::clone(&hook));
        if let Some(old) = old {
            old.ended.send_replace(true);
        }
        Ok(hook)
    }

    /// Errors: there are too many.
    fn has_place(&self, fleet: Fleet) -> Result<()> {
        let all = self.lock();
        let of_fleet = all.keys().filter(|(f, _)| *f == fleet).count();
        if of_fleet < OF_FLEET_MAX && all.len() < ALL_MAX {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "there are {of_fleet} webhooks of the fleet, and {} in all: {OF_FLEET_MAX} and {ALL_MAX} are the most",
            all.len()
        )))
    }

    /// Deletes a webhook. Errors: `NotFound` if there is none; the store's.
    pub(super) fn delete(&self, store: &dyn Store, fleet: Fleet, name: &Name) -> Result<()> {
        {
            let _one = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            let place = (fleet, name.clone());
            let old = self.get(fleet, name);
            let old = old.ok_or_else(|| Error::not_found("there is no such webhook"))?;
            let mut batch = Batch::new(store);
            batch.delete(Family::Meta, &key(&place))?;
            batch.write(None)?;
            self.lock().remove(&place);
            old.ended.send_replace(true);
        }
        store.wait_durable(store.last_number())
    }

    /// Stores the cursor of a webhook, and whether it is disabled. It is durable when this returns.
    ///
    /// Errors: `NotFound` if the webhook was deleted or replaced; the store's.
    pub(super) fn store(
        &self,
        store: &dyn Store,
        hook: &Hook,
        (cursor, disabled): (u64, Option<String>),
    ) -> Result<()> {
        let number = {
            let _one = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            let there = self.get(hook.info.fleet, &hook.name);
            if there.is_none_or(|there| there.stored.id != hook.stored.id) {
                return Err(Error::not_found("another webhook has its place, or none"));
            }
            let stored = Stored {
                cursor,
                disabled: disabled.clone(),
                ..hook.stored.clone()
            };
            write(store, &hook.key(), &stored)?
        };
        store.wait_durable(number)?;
        let mut state = hook.lock();
        state.cursor = state.cursor.max(cursor);
        state.stored = cursor;
        state.disabled = disabled;
        Ok(())
    }

    /// Remembers the task of a webhook until it ends.
    pub(super) fn started(&self, task: JoinHandle<()>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    /// Waits until all tasks have ended, which happens when the server stops.
    pub(crate) async fn end(&self) {
        let tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        for task in tasks {
            // A task that panicked has ended, too.
            drop(task.await);
        }
    }

    /// The number of deliveries that were taken, and of those that failed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (load(&self.delivered), load(&self.failed))
    }
}

fn key((fleet, name): &Place) -> Vec<u8> {
    let number = fleet.0.to_string();
    [KEY, number.as_bytes(), b"/", name.as_str().as_bytes()].concat()
}

fn write(store: &dyn Store, place: &Place, stored: &Stored) -> Result<u64> {
    let value = serde_json::to_vec(stored).map_err(|e| Error::broken(e.to_string()))?;
    let mut batch = Batch::new(store);
    batch.put(Family::Meta, &key(place), &value)?;
    batch.write(None)
}

/// `None` if two fleets have the number of the row. Errors: the row is invalid.
fn decode(fleets: &Fleets, key: &[u8], value: &[u8]) -> Result<Option<Hook>> {
    let wrong = |text: &str| Error::new(ErrorKind::Corruption, text.to_owned());
    let rest = key.strip_prefix(KEY).and_then(|k| str::from_utf8(k).ok());
    let (fleet, name) = rest
        .and_then(|rest| rest.split_once('/'))
        .ok_or_else(|| wrong("it has no fleet"))?;
    let fleet = fleet.parse().map(Fleet).ok();
    if fleet.is_some_and(|fleet| fleets.is_mixed(fleet)) {
        return Ok(None);
    }
    let info = fleet.and_then(|fleet| fleets.of(fleet));
    let info = info.ok_or_else(|| wrong("its fleet is not there"))?;
    let stored: Stored = serde_json::from_slice(value).map_err(|e| wrong(&e.to_string()))?;
    let hook = Hook::new(info, Name::new(name)?, stored);
    hook.map(Some).map_err(|e| wrong(&e))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::store::Engine;

    fn wanted(url: &str) -> Wanted {
        Wanted {
            url: url.to_owned(),
            secret: "s".repeat(16),
            events: vec![KindBody::Exit],
            fences: vec!["f".to_owned()],
        }
    }

    #[test]
    fn webhooks_are_there_again_and_those_that_were_replaced_write_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["a", "b/c"].map(|name| Name::new(name).unwrap());
        {
            let store = Engine::open(dir.path()).unwrap();
            let fleets = Fleets::open(&store).unwrap();
            let info = fleets.get_or_make(&store, &names[1]).unwrap();
            let hooks = Webhooks::open(&store, &fleets, Hosts::default(), 1).unwrap();
            let put = |name: &Name, url, now| {
                let of = (Arc::clone(&info), name.clone());
                hooks.put(&store, of, wanted(url), now).unwrap()
            };
            let first = put(&names[1], "http://a/", 5);
            hooks.store(&store, &first, (9, None)).unwrap();
            let second = put(&names[1], "http://b/", 100);
            assert!(first.ended().is_now() && !second.ended().is_now());
            assert_eq!(second.state().cursor, 9);
            let e = hooks.store(&store, &first, (50, None)).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::NotFound);
            let third = put(&names[0], "http://c/", 7);
            hooks.delete(&store, info.fleet, &names[0]).unwrap();
            let gone = hooks.store(&store, &third, (8, None)).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::NotFound);
            assert!(hooks.delete(&store, info.fleet, &names[0]).is_err());
            let why = Some("410".to_owned());
            hooks.store(&store, &second, (12, why)).unwrap();
            let values: Vec<f64> = (0..100).map(|_| hooks.random()).collect();
            assert!(values.iter().all(|n| (0.0..1.0).contains(n)));
            assert!(values.iter().any(|n| *n > 0.9) && values.iter().any(|n| *n < 0.1));
        }
        let store = Engine::open(dir.path()).unwrap();
        let fleets = Fleets::open(&store).unwrap();
        let hooks = Webhooks::open(&store, &fleets, Hosts::default(), 1).unwrap();
        let all = hooks.all();
        let state = all[0].state();
        assert_eq!((all.len(), all[0].stored.url.as_str()), (1, "http://b/"));
        assert_eq!((state.cursor, state.disabled.as_deref()), (12, Some("410")));
        // A refused fleet does not keep the server from starting.
        let twin = Info {
            name: Name::new("twin").unwrap(),
            ..Info::clone(&all[0].info)
        };
        let (row, value) = twin.row().unwrap();
        let mut batch = Batch::new(&store);
        batch.put(Family::Meta, &row, &value).unwrap();
        batch.write(None).unwrap();
        let fleets = Fleets::open(&store).unwrap();
        let hooks = Webhooks::open(&store, &fleets, Hosts::default(), 1).unwrap();
        assert!(hooks.all().is_empty());
        let mut batch = Batch::new(&store);
        let nobody = key(&(Fleet(77), names[0].clone()));
        batch.put(Family::Meta, &nobody, b"{}").unwrap();
        batch.write(None).unwrap();
        let e = Webhooks::open(&store, &fleets, Hosts::default(), 1).unwrap_err();
        assert!(e.to_string().contains("its fleet is not there"), "{e}");
    }
}
