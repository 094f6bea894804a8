//! Events for who waits for them: streams, long polls and webhooks of a fleet share what is read.
//!
//! ```text
//!   Events::through ─> pump: one task ─> each fleet that somebody waits for: read once, the last events kept
//!                                              └─> page: from those, or, farther back, from the store
//! ```
//!
//! Whoever waits has a place: the id behind which it goes on. It takes pages at its own pace, so a slow one misses nothing, and
//! needs no memory here. Events come in the order of their ids, and none comes below an id that was given out.
//!
//! Events are erased, too. What was read before is dropped then, and so is what is being read: each reading says how often events
//! had been erased when it began, and counts only if that is so at its end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::Result;
use base::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, watch};

use super::App;
use super::problem::Problem;
use crate::fence::{Event, Events, Page};
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
    /// How often events of the fleet had been erased.
    erased: u64,
}

/// The last events of a fleet.
#[derive(Debug, Default)]
struct Recent {
    /// All events behind this id and up to `through` are there.
    after: u64,
    through: u64,
    events: VecDeque<Arc<Event>>,
    /// How often some were erased.
    erased: u64,
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
        let erased = self.erased;
        Some(Given {
            events,
            next,
            erased,
        })
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
                erased: 0,
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

    /// The last events of it that are behind a place. Errors: they are in the store, and events were erased so often.
    fn recent(&self, after: u64, limit: usize) -> std::result::Result<Given, u64> {
        let recent = self.lock();
        recent.page(after, limit).ok_or(recent.erased)
    }

    /// What was read from the store, if no events were erased since it began.
    fn given(&self, erased: u64, page: Page) -> Option<Given> {
        let given = Given {
            events: page.events.into_iter().map(Arc::new).collect(),
            next: page.next,
            erased,
        };
        self.is_so(&given).then_some(given)
    }

    /// How often events were erased.
    pub(crate) fn erased(&self) -> u64 {
        self.lock().erased
    }

    /// Whether no events were erased since some were given: others are not to be sent any more.
    pub(crate) fn is_so(&self, given: &Given) -> bool {
        self.erased() == given.erased
    }

    /// Behind which id it is to be read, and how often events were erased.
    fn place(&self) -> (u64, u64) {
        let recent = self.lock();
        (recent.through, recent.erased)
    }

    /// Keeps what was read, and says so to who waits. Returns whether it did: events that were erased meanwhile may be in it.
    fn add(&self, erased: u64, page: Page) -> bool {
        let (count, next) = (page.events.len(), page.next);
        {
            let mut recent = self.lock();
            if recent.erased != erased {
                return false;
            }
            recent.add(page.events, next);
        }
        if count > 0 {
            self.news.send_replace(next);
        }
        true
    }

    /// Reads what is new, and says so to who waits. Errors: the store's.
    fn read(&self, events: &Events, store: &dyn Store) -> Result<()> {
        loop {
            let (after, erased) = self.place();
            let page = events.page(store, self.fleet, after, RECENT_MAX)?;
            let is_all = page.events.len() < RECENT_MAX;
            if self.add(erased, page) && is_all {
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

    /// Events of a fleet were erased: what is kept of them is, too, and is read from the store again; so is what is being read.
    pub(crate) fn forget(&self, fleet: Fleet) {
        let feed = self.lock().get(&fleet).and_then(Weak::upgrade);
        if let Some(feed) = feed {
            let mut recent = feed.lock();
            recent.events.clear();
            recent.after = recent.through;
            recent.erased += 1;
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
    loop {
        let erased = match feed.recent(after, limit) {
            Ok(given) => return Ok(given),
            Err(erased) => erased,
        };
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
        // Otherwise it is read again: an erasure takes longer than that.
        if let Some(given) = feed.given(erased, page) {
            return Ok(given);
        }
    }
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
            let given = self.feed.recent(self.at, limit).unwrap_or_else(|erased| {
                let page = events.page(store, self.feed.fleet, self.at, limit).unwrap();
                self.feed.given(erased, page).unwrap()
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

    /// A reading that has begun.
    enum Reading {
        /// Behind which id, and how often events were erased.
        Begun(u64, u64),
        Read(u64, Page),
    }

    /// Who waits, whose readings take a while.
    struct Slow {
        reader: Reader,
        reading: Option<Reading>,
    }

    /// What is erased, and whether that is answered.
    #[derive(Default)]
    struct Erased {
        begun: Vec<u64>,
        answered: Vec<u64>,
    }

    impl Slow {
        /// Does one step of [`page`]. What it is given is sent.
        fn step(&mut self, events: &Events, store: &Engine, erased: &Erased) {
            let Reader { feed, at, .. } = &self.reader;
            let given = match self.reading.take() {
                None => match feed.recent(*at, 7) {
                    Ok(given) => Some(given),
                    Err(erased) => {
                        self.reading = Some(Reading::Begun(*at, erased));
                        None
                    }
                },
                Some(Reading::Begun(at, erased)) => {
                    let page = events.page(store, feed.fleet, at, 7).unwrap();
                    self.reading = Some(Reading::Read(erased, page));
                    None
                }
                Some(Reading::Read(erased, page)) => feed.given(erased, page),
            };
            let Some(given) = given else { return };
            for event in &given.events {
                assert!(!erased.answered.contains(&event.id), "{}", event.id);
                self.reader.seen.push(event.id);
            }
            self.reader.at = given.next;
        }
    }

    /// An event that was being read while it was erased was kept, and sent behind the answer to the erasure.
    #[test]
    fn no_event_is_sent_behind_the_answer_to_its_erasure() {
        let fleet = Fleet(1);
        for seed in 0..200 {
            let dir = tempfile::tempdir().unwrap();
            let store = Engine::open(dir.path()).unwrap();
            let events = Arc::new(Events::open(&store).unwrap());
            let (mut rng, feeds) = (Rng::new(seed), Feeds::new());
            let feed = feeds.of(&events, fleet);
            let slow = |_| Slow {
                reader: Reader {
                    feed: Arc::clone(&feed),
                    start: 0,
                    at: 0,
                    seen: Vec::new(),
                },
                reading: None,
            };
            let mut all: Vec<Slow> = (0..4).map(slow).collect();
            let mut pump: Option<Reading> = None;
            let (mut written, mut erased) = (Vec::new(), Erased::default());
            for step in 0..300 {
                match rng.below(8) {
                    0 => {
                        let count = 1 + rng.below(9) as usize;
                        let ids = events.take(&vec![fleet; count], Time(step));
                        put(&store, fleet, ids.iter());
                        written.extend(ids.iter());
                    }
                    1 | 2 => {
                        pump = match pump.take() {
                            None => Some(feed.place()).map(|(at, n)| Reading::Begun(at, n)),
                            Some(Reading::Begun(at, n)) => {
                                let page = events.page(&store, fleet, at, RECENT_MAX).unwrap();
                                Some(Reading::Read(n, page))
                            }
                            Some(Reading::Read(n, page)) => {
                                feed.add(n, page);
                                None
                            }
                        };
                    }
                    3 if erased.begun.is_empty() && !written.is_empty() => {
                        let mut batch = Batch::new(&store);
                        for id in written.extract_if(.., |_| rng.one_in(4)) {
                            batch.delete(Family::Events, &key(fleet, id)).unwrap();
                            erased.begun.push(id);
                        }
                        batch.write(None).unwrap();
                    }
                    3 => {
                        feeds.forget(fleet);
                        erased.answered.append(&mut erased.begun);
                    }
                    _ => {
                        let nth = rng.below(4) as usize;
                        all[nth].step(&events, &store, &erased);
                    }
                }
            }
            for Slow { mut reader, .. } in all {
                reader.end(&events, &store);
                let mut seen = reader.seen;
                assert!(seen.is_sorted_by(|a, b| a < b), "seed {seed}");
                seen.retain(|id| written.contains(id));
                assert_eq!(seen, written, "seed {seed}");
            }
        }
    }
}
