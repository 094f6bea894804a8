//! Events for who waits for them: streams, long polls and webhooks of a fleet share what is read.
//!
//! ```text
//!   Events::through ─> pump: one task ─> each fleet that somebody waits for: read once, the last events kept
//!                                              └─> page: from those, or, farther back, from the store
//! ```
//!
//! Whoever waits has a place: the id behind which it goes on. It takes pages at its own pace, so a slow one misses nothing, and
//! needs no memory here. Events come in the order of their ids, and none comes below an id that was given out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::Result;
use base::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, watch};

use super::App;
use super::problem::Problem;
use crate::fence::{Event, Events};
use crate::model::key::Fleet;
use crate::store::Store;

/// So many events of a fleet are kept for those who wait.
const RECENT_MAX: usize = 256;
/// So many that are farther back are read from the store at a time.
const READS: usize = 4;
/// Between two rounds of the pump: events that come close together are read together.
const PACE: Duration = Duration::from_millis(5);
/// Until reading is tried again when it failed.
const AGAIN: Duration = Duration::from_millis(500);

/// Events behind a place, and the next place.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) next: u64,
}

/// The last events of a fleet.
#[derive(Debug, Default)]
struct Recent {
    /// All events behind this id and up to `through` are there.
    after: u64,
    through: u64,
    events: VecDeque<Arc<Event>>,
}

impl Recent {
    /// `None`: they are farther back.
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
        Some(Given { events, next })
    }

    /// All events behind `through`, and up to `next`, are these.
    fn add(&mut self, events: Vec<Event>, next: u64) {
        self.events.extend(events.into_iter().map(Arc::new));
        while self.events.len() > RECENT_MAX {
            if let Some(first) = self.events.pop_front() {
                self.after = first.id;
            }
        }
        self.through = self.through.max(next);
    }
}

/// The events of a fleet, while somebody waits for them.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) fleet: Fleet,
    recent: Mutex<Recent>,
    /// Where there are events up to this id, that were not there before.
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
            }),
            news: watch::Sender::new(through),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Up to which id all is known.
    pub(crate) fn through(&self) -> u64 {
        self.lock().through
    }

    /// Tells, from now on, when there are events up to another id.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// The last events of it that are behind a place. `None`: they are in the store.
    fn recent(&self, after: u64, limit: usize) -> Option<Given> {
        self.lock().page(after, limit)
    }

    /// Reads what is new, and says so to who waits. Errors: the store's.
    fn read(&self, events: &Events, store: &dyn Store) -> Result<()> {
        loop {
            let after = self.through();
            let page = events.page(store, self.fleet, after, RECENT_MAX)?;
            let (count, next) = (page.events.len(), page.next);
            self.lock().add(page.events, next);
            if count > 0 {
                self.news.send_replace(next);
            }
            if count < RECENT_MAX {
                return Ok(());
            }
        }
    }

    /// There is nothing new up to an id.
    fn pass(&self, through: u64) {
        self.lock().add(Vec::new(), through);
    }
}

/// The feeds of all fleets that somebody waits for.
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

    /// That of a fleet.
    pub(crate) fn of(&self, events: &Events, fleet: Fleet) -> Arc<Feed> {
        let mut all = self.lock();
        if let Some(feed) = all.get(&fleet).and_then(Weak::upgrade) {
            return feed;
        }
        let feed = Arc::new(Feed::new(fleet, events.given_out()));
        all.insert(fleet, Arc::downgrade(&feed));
        feed
    }

    /// Events of a fleet were erased: what is kept of them is, too, and is read from the store again.
    pub(crate) fn forget(&self, fleet: Fleet) {
        let feed = self.lock().get(&fleet).and_then(Weak::upgrade);
        if let Some(feed) = feed {
            let mut recent = feed.lock();
            recent.events.clear();
            recent.after = recent.through;
        }
    }

    /// Those that somebody waits for; what nobody has any more is forgotten.
    fn all(&self) -> Vec<Arc<Feed>> {
        let mut all = self.lock();
        all.retain(|_, feed| feed.strong_count() > 0);
        all.values().filter_map(Weak::upgrade).collect()
    }
}

/// Events of a fleet behind a place, `limit` at most. Errors: the store's.
pub(crate) async fn page(
    app: &Arc<App>,
    feed: &Arc<Feed>,
    after: u64,
    limit: usize,
) -> std::result::Result<Given, Problem> {
    if let Some(given) = feed.recent(after, limit) {
        return Ok(given);
    }
    let permit = Arc::clone(&app.feeds.reads).acquire_owned().await;
    let permit = permit.map_err(Problem::internal)?;
    let (app, fleet) = (Arc::clone(app), feed.fleet);
    let read = tokio::task::spawn_blocking(move || {
        let store = app.tracks.store();
        let page = app.tracks.events().page(&**store, fleet, after, limit);
        drop(permit);
        page
    });
    let page = read.await.map_err(Problem::internal)??;
    Ok(Given {
        events: page.events.into_iter().map(Arc::new).collect(),
        next: page.next,
    })
}

/// Reads what is new for who waits, until the server stops.
pub(crate) async fn pump(app: Arc<App>) {
    let mut through = app.tracks.events().through();
    let mut stopping = app.stopping();
    loop {
        let is_changed = tokio::select! {
            changed = through.changed() => changed.is_ok(),
            () = stopping.wait() => false,
        };
        if !is_changed {
            return;
        }
        let to = *through.borrow_and_update();
        let mut news = Vec::new();
        for feed in app.feeds.all() {
            // What is given out up to `to` was taken before, and is known here.
            if app.tracks.events().last_of(feed.fleet) > feed.through() {
                news.push(feed);
            } else {
                feed.pass(to);
            }
        }
        if !news.is_empty() && !read(&app, news).await {
            tokio::time::sleep(AGAIN).await;
            through.mark_changed();
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Whether all could be read.
async fn read(app: &Arc<App>, feeds: Vec<Arc<Feed>>) -> bool {
    let tracks = Arc::clone(&app.tracks);
    let done = tokio::task::spawn_blocking(move || {
        let (events, store) = (tracks.events(), tracks.store());
        // What is wrong with one fleet keeps no other waiting; the first error is said.
        let all = feeds.iter().map(|feed| feed.read(events, &**store));
        all.fold(Ok(()), std::result::Result::and)
    });
    let problem = match done.await {
        Ok(Ok(())) => return true,
        Ok(Err(e)) => Problem::from(e),
        Err(e) => Problem::internal(e),
    };
    problem.log("events for who waits");
    false
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::*;
    use crate::fence::{Kind, key};
    use crate::model::time::Time;
    use crate::store::{Batch, Engine, Family};

    fn put(store: &Engine, fleet: Fleet, ids: impl Iterator<Item = u64>) {
        let mut batch = Batch::new(store);
        for id in ids {
            let event = Event {
                id: 0,
                kind: Kind::Enter,
                fence: "f".to_owned(),
                entity: id.to_string(),
                time: 1,
                lat: 2.0,
                lon: 3.0,
            };
            let value = serde_json::to_vec(&event).unwrap();
            batch.put(Family::Events, &key(fleet, id), &value).unwrap();
        }
        batch.write(None).unwrap();
    }

    /// Somebody who waits, and what it was given.
    struct Reader {
        feed: Arc<Feed>,
        start: u64,
        at: u64,
        seen: Vec<u64>,
    }

    impl Reader {
        /// Takes a page, as [`page`] does.
        fn take(&mut self, events: &Events, store: &Engine, limit: usize) {
            let given = self.feed.recent(self.at, limit).unwrap_or_else(|| {
                let page = events.page(store, self.feed.fleet, self.at, limit).unwrap();
                Given {
                    events: page.events.into_iter().map(Arc::new).collect(),
                    next: page.next,
                }
            });
            assert!(given.next >= self.at && given.events.len() <= limit);
            self.seen.extend(given.events.iter().map(|event| event.id));
            self.at = given.next;
        }

        /// Takes all that is left.
        fn end(&mut self, events: &Events, store: &Engine) {
            self.feed.read(events, store).unwrap();
            let mut before = None;
            while before != Some(self.at) {
                before = Some(self.at);
                self.take(events, store, 50);
            }
        }
    }

    /// Shards take ids, write and become durable in any order; the pump reads now and then; readers begin anywhere, and take
    /// pages when they like: each gets exactly the events behind its start.
    #[test]
    fn any_interleaving_gives_exactly_the_events_behind_the_start() {
        for seed in 0..60 {
            let dir = tempfile::tempdir().unwrap();
            let store = Engine::open(dir.path()).unwrap();
            let events = Arc::new(Events::open(&store).unwrap());
            let (mut rng, feeds) = (Rng::new(seed), Feeds::new());
            let fleets = [Fleet(1), Fleet(2)];
            let mut open = Vec::new();
            let mut written: BTreeMap<Fleet, Vec<u64>> = BTreeMap::new();
            let mut readers: Vec<Reader> = Vec::new();
            for step in 0..400 {
                match rng.below(8) {
                    0 | 1 => {
                        let fleet = fleets[rng.below(2) as usize];
                        let most = if rng.one_in(10) { 400 } else { 6 };
                        let count = 1 + rng.below(most);
                        let ids = events.take(&vec![fleet; count as usize], Time(step));
                        put(&store, fleet, ids.iter());
                        written.entry(fleet).or_default().extend(ids.iter());
                        open.push(ids);
                    }
                    2 | 3 if !open.is_empty() => {
                        let nth = rng.below(open.len() as u64) as usize;
                        drop(open.swap_remove(nth));
                    }
                    4 => {
                        for feed in feeds.all() {
                            let to = events.given_out();
                            if events.last_of(feed.fleet) > feed.through() {
                                feed.read(&events, &store).unwrap();
                            } else {
                                feed.pass(to);
                            }
                        }
                    }
                    5 => {
                        let feed = feeds.of(&events, fleets[rng.below(2) as usize]);
                        let back = rng.below(300);
                        let start = match rng.below(3) {
                            0 => feed.through(),
                            1 => 0,
                            _ => events.given_out().saturating_sub(back),
                        };
                        readers.push(Reader {
                            feed,
                            start,
                            at: start,
                            seen: Vec::new(),
                        });
                    }
                    6 if readers.len() > 6 => {
                        readers.swap_remove(rng.below(7) as usize);
                    }
                    _ => {
                        let limit = 1 + rng.below(40) as usize;
                        for reader in &mut readers {
                            reader.take(&events, &store, limit);
                        }
                    }
                }
            }
            open.clear();
            for reader in &mut readers {
                reader.end(&events, &store);
                let all = written.get(&reader.feed.fleet).cloned().unwrap_or_default();
                let right: Vec<u64> = all.into_iter().filter(|id| *id > reader.start).collect();
                assert_eq!(reader.seen, right, "seed {seed}");
            }
        }
    }
}
