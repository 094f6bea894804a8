//! Feeds: the events of a fleet, read once for all streams, long polls and webhooks that wait for
//! them.
//!
//! ```text
//!   Events::through ─> pump: one task ─> each fleet with waiters: read once, the last events are kept
//!                                              └─> page: from those, or, farther back, from the store
//! ```
//!
//! Each waiter has a place: the id after which it goes on. It takes pages at its own pace, so that
//! a slow one misses nothing, and needs no memory here. Events come in the order of their ids, and
//! none appears below an id that was given out.
//!
//! Events are also erased, by the name of their entity. Events of it that were read before are then
//! read again, and so are those that are being read: each read notes how many erasures there were
//! when it began, and is valid only if none of its names was erased until its end. So erasures of
//! other entities invalidate nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::sync::{Mutex, MutexGuard, PoisonError};
use base::{Error, Result};
use tokio::sync::{Semaphore, watch};

use super::App;
use super::problem::{Kind, Problem};
use crate::again::{Again, caught};
use crate::fence::{Event, Events, Page};
use crate::model::key::Fleet;
use crate::model::name::Name;
use crate::model::time::{SECOND, Time};
use crate::service::Tracks;
use crate::store::View;

/// The most events of a fleet that are kept for waiters.
const RECENT_MAX: usize = 256;
/// The most concurrent reads of older events from the store.
pub(super) const READS: usize = 4;
/// The pause between two rounds of the pump: events in quick succession are read together.
const PACE: Duration = Duration::from_millis(5);
/// How often a read is repeated because events were erased meanwhile.
pub(super) const TRIES: usize = 8;
const DAY: i64 = 86_400 * SECOND;
/// The pauses before a failed read is tried again: the first one and the longest.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// The most erasures of a fleet whose names are remembered. A read that began before the oldest of
/// them is repeated.
const ERASED_MAX: usize = 1000;

/// Events after a place, and the next place.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) next: u64,
    /// The number of erasures in the fleet when they were read.
    erased: u64,
}

/// The last events of a fleet.
#[derive(Debug, Default)]
struct Recent {
    /// All events after this id and up to `through` are in `events`.
    after: u64,
    through: u64,
    events: VecDeque<Arc<Event>>,
    /// The number of erasures.
    erased: u64,
    /// The names of the last erasures, with their numbers.
    names: VecDeque<(u64, Name)>,
}

impl Recent {
    /// Some or all events of a name were erased. Events that are left or new are in the store:
    /// slower waiters read them there.
    fn forget(&mut self, name: &Name) {
        if self
            .events
            .iter()
            .any(|event| event.entity == name.as_str())
        {
            self.events.clear();
            self.after = self.through;
        }
        self.erased += 1;
        self.names.push_back((self.erased, name.clone()));
        if self.names.len() > ERASED_MAX {
            self.names.pop_front();
        }
    }

    /// Whether an entity of these events, which were read after `erased` erasures, was erased
    /// since.
    fn is_void<'a>(&self, erased: u64, events: impl IntoIterator<Item = &'a Event>) -> bool {
        if self.erased == erased {
            return false;
        }
        let (first, _) = match self.names.front() {
            Some(first) if first.0 <= erased + 1 => first,
            _ => return true,
        };
        let since = usize::try_from(erased + 1 - first).unwrap_or(usize::MAX);
        let names = self.names.iter().skip(since);
        let names: BTreeSet<&str> = names.map(|(_, name)| name.as_str()).collect();
        let mut events = events.into_iter();
        events.any(|event| names.contains(event.entity.as_str()))
    }

    /// `None` if the events are farther back.
    fn page(&self, after: u64, limit: usize) -> Option<Given> {
        if after < self.after {
            return None;
        }
        let from = self.events.partition_point(|event| event.id <= after);
        let events = self.events.iter().skip(from).take(limit);
        let events: Vec<Arc<Event>> = events.cloned().collect();
        let is_all = from + events.len() == self.events.len();
        let next = match events.last() {
            Some(last) if !is_all => last.id,
            None if !is_all => after,
            _ => after.max(self.through),
        };
        let erased = self.erased;
        Some(Given {
            events,
            next,
            erased,
        })
    }

    /// Adds all events after `through` and up to `next`.
    fn add(&mut self, events: Vec<Event>, next: u64) {
        self.events.extend(events.into_iter().map(Arc::new));
        while self.events.len() > RECENT_MAX {
            if let Some(first) = self.events.pop_front() {
                self.after = first.id;
            }
        }
        self.through = self.through.max(next);
    }

    /// Drops the events before an id.
    fn hide(&mut self, first: u64) {
        while let Some(id) = self.events.front().map(|event| event.id)
            && id < first
        {
            self.events.pop_front();
            self.after = id;
        }
    }
}

/// The events of one fleet, as long as there are waiters.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) fleet: Fleet,
    recent: Mutex<Recent>,
    /// The id up to which there are new events.
    news: watch::Sender<u64>,
}

impl Feed {
    fn new(fleet: Fleet, through: u64) -> Self {
        Self {
            fleet,
            recent: Mutex::new(Recent {
                after: through,
                through,
                events: VecDeque::new(),
                erased: 0,
                names: VecDeque::new(),
            }),
            news: watch::Sender::new(through),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id up to which all events are known.
    pub(crate) fn through(&self) -> u64 {
        self.lock().through
    }

    /// A receiver that is told of each id up to which there are new events.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// The kept events after a place. Errors: they are only in the store; the error is the number
    /// of erasures.
    fn recent(&self, after: u64, limit: usize) -> std::result::Result<Given, u64> {
        let recent = self.lock();
        recent.page(after, limit).ok_or(recent.erased)
    }

    /// Events that were read from the store, unless some were erased since the read began.
    fn given(&self, erased: u64, page: Page) -> Option<Given> {
        let given = Given {
            events: page.events.into_iter().map(Arc::new).collect(),
            next: page.next,
            erased,
        };
        self.is_so(&given).then_some(given)
    }

    /// The number of erasures.
    pub(crate) fn erased(&self) -> u64 {
        self.lock().erased
    }

    /// Whether these events are still valid: none of their entities was erased since. Otherwise
    /// they must not be sent.
    pub(crate) fn is_so(&self, given: &Given) -> bool {
        self.are_so(given.erased, given.events.iter().map(|event| &**event))
    }

    /// Like [`Feed::is_so`], for events that were read after `erased` erasures.
    pub(crate) fn are_so<'a>(
        &self,
        erased: u64,
        events: impl IntoIterator<Item = &'a Event>,
    ) -> bool {
        !self.lock().is_void(erased, events)
    }

    /// The id after which to read, and the number of erasures.
    fn place(&self) -> (u64, u64) {
        let recent = self.lock();
        (recent.through, recent.erased)
    }

    /// Keeps events that were read, and wakes the waiters. Returns `false` if some of them may have
    /// been erased meanwhile.
    fn add(&self, erased: u64, page: Page) -> bool {
        let (count, next) = (page.events.len(), page.next);
        {
            let mut recent = self.lock();
            if recent.is_void(erased, &page.events) {
                return false;
            }
            recent.add(page.events, next);
        }
        if count > 0 {
            self.news.send_replace(next);
        }
        true
    }

    /// Drops kept events that are older than the fleet keeps. Readers of older events read the
    /// store.
    fn hide(&self, tracks: &Tracks) {
        let day = Time(tracks.now().0.saturating_sub(DAY));
        let is_old = |id: u64| i64::try_from(id).is_ok_and(|id| id < day.0);
        // No fleet keeps events for less than a day.
        if !self.lock().events.front().is_some_and(|e| is_old(e.id)) {
            return;
        }
        let first = tracks.first_event(self.fleet);
        self.lock().hide(first);
    }

    /// Reads new events, and wakes the waiters. Errors: the store's.
    fn read<'v>(&self, events: &Events, view: &dyn Fn() -> Box<dyn View + 'v>) -> Result<()> {
        let mut tries = 0;
        while tries < TRIES {
            let (after, erased) = self.place();
            let page = events.page(view, self.fleet, after, RECENT_MAX)?;
            let is_all = page.events.len() < RECENT_MAX;
            let is_added = self.add(erased, page);
            if is_added && is_all {
                return Ok(());
            }
            tries = if is_added { 0 } else { tries + 1 };
        }
        Err(Error::busy("entities of the fleet are being erased"))
    }

    /// Records that there are no new events up to an id.
    fn pass(&self, through: u64) {
        self.lock().add(Vec::new(), through);
    }
}

/// The feeds of all fleets with waiters.
#[derive(Debug)]
pub(crate) struct Feeds {
    all: Mutex<BTreeMap<Fleet, Weak<Feed>>>,
    reads: Arc<Semaphore>,
}

impl Feeds {
    pub(crate) fn new() -> Self {
        Self {
            all: Mutex::default(),
            reads: Arc::new(Semaphore::new(READS)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Fleet, Weak<Feed>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The feed of a fleet.
    pub(crate) fn of(&self, events: &Events, fleet: Fleet) -> Arc<Feed> {
        let mut all = self.lock();
        if let Some(feed) = all.get(&fleet).and_then(Weak::upgrade) {
            return feed;
        }
        let feed = Arc::new(Feed::new(fleet, events.given_out()));
        all.insert(fleet, Arc::downgrade(&feed));
        feed
    }

    /// Some or all events of a name were erased: kept events are read again, and so are those that
    /// are being read.
    pub(crate) fn forget(&self, fleet: Fleet, name: &Name) {
        let feed = self.lock().get(&fleet).and_then(Weak::upgrade);
        if let Some(feed) = feed {
            feed.lock().forget(name);
        }
    }

    /// Whether a fleet has waiters.
    fn has(&self, fleet: Fleet) -> bool {
        let all = self.lock();
        all.get(&fleet).is_some_and(|feed| feed.strong_count() > 0)
    }

    /// The feeds with waiters; others are removed.
    fn all(&self) -> Vec<Arc<Feed>> {
        let mut all = self.lock();
        all.retain(|_, feed| feed.strong_count() > 0);
        all.values().filter_map(Weak::upgrade).collect()
    }
}

/// Events of a fleet after a place, at most `limit`. Errors: the store's.
pub(crate) async fn page(
    app: &Arc<App>,
    feed: &Arc<Feed>,
    after: u64,
    limit: usize,
) -> std::result::Result<Given, Problem> {
    feed.hide(&app.tracks);
    for _ in 0..TRIES {
        let erased = match feed.recent(after, limit) {
            Ok(given) => return Ok(given),
            Err(erased) => erased,
        };
        let permit = Arc::clone(&app.feeds.reads).acquire_owned().await;
        let permit = permit.map_err(Problem::internal)?;
        let (app, fleet) = (Arc::clone(app), feed.fleet);
        let read = tokio::task::spawn_blocking(move || {
            let view = || app.tracks.view_of(fleet);
            let page = app.tracks.events().page(view, fleet, after, limit);
            drop(permit);
            page
        });
        let page = read.await.map_err(Problem::internal)??;
        // Otherwise it is read again: an erasure takes longer than that.
        if let Some(given) = feed.given(erased, page) {
            return Ok(given);
        }
    }
    Err(being_erased())
}

/// The error if events were erased during each try.
pub(super) fn being_erased() -> Problem {
    let detail = "entities of the fleet are being erased: ask again later";
    Problem::new(Kind::Busy, detail.to_owned()).retry_after(1)
}

/// Reads new events for waiters until the server stops. A fleet whose events cannot be read is
/// tried again after a pause, and does not delay the others.
pub(crate) async fn pump(app: Arc<App>) {
    let mut through = app.tracks.events().through();
    let mut stopping = app.stopping();
    let mut again = Again::new(AGAIN, AGAIN_MAX);
    loop {
        let pause = again.pause(app.now());
        let is_changed = tokio::select! {
            changed = through.changed() => changed.is_ok(),
            () = after(pause) => true,
            () = stopping.wait() => false,
        };
        if !is_changed {
            return;
        }
        let (to, now) = (*through.borrow_and_update(), app.now());
        let mut news = Vec::new();
        for feed in app.feeds.all() {
            // All events up to `to` got their ids before, so that `last_of` covers them.
            if app.tracks.events().last_of(feed.fleet) <= feed.through() {
                feed.pass(to);
                again.done(&feed.fleet);
            } else if !again.waits(&feed.fleet, now) {
                news.push(feed);
            }
        }
        if !news.is_empty() {
            read(&app, news, &mut again).await;
        }
        // Forgets the failures of fleets without waiters.
        let is_waited_for = |fleet: &Fleet| app.feeds.has(*fleet);
        again.retain(is_waited_for);
        tokio::time::sleep(PACE).await;
    }
}

/// Returns after a pause; never if there is none.
async fn after(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// Reads the new events of some fleets.
async fn read(app: &Arc<App>, feeds: Vec<Arc<Feed>>, again: &mut Again<Fleet>) {
    let tracks = Arc::clone(&app.tracks);
    let fleets: Vec<Fleet> = feeds.iter().map(|feed| feed.fleet).collect();
    let done = tokio::task::spawn_blocking(move || {
        read_each(&feeds, tracks.events(), &|fleet| tracks.view_of(fleet))
    });
    let failed = done.await.unwrap_or_else(|e| {
        let all = fleets.iter();
        all.map(|fleet| (*fleet, Error::broken(&e))).collect()
    });
    for fleet in &fleets {
        let of = failed.iter().find(|(failed, _)| failed == fleet);
        if let Some((_, e)) = of {
            let why = e.to_string();
            Problem::from(e.clone()).log("events for who waits");
            again.failed(*fleet, app.now(), why);
        } else {
            again.done(fleet);
        }
    }
}

/// Reads the new events of some fleets. Returns those for which that failed; a failure does not
/// affect the others.
fn read_each<'v>(
    feeds: &[Arc<Feed>],
    events: &Events,
    view: &dyn Fn(Fleet) -> Box<dyn View + 'v>,
) -> Vec<(Fleet, Error)> {
    let all = feeds.iter().filter_map(|feed| {
        let read = caught("reading events", || feed.read(events, &|| view(feed.fleet)));
        read.err().map(|e| (feed.fleet, e))
    });
    all.collect()
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
