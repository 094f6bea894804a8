//! Events that are written, read, erased and damaged in random orders.

use base::clock::Clock;
use base::rng::Rng;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::threads::SystemThreads;

use super::*;
use crate::fence::{Kind, key};
use crate::model::name::Name;
use crate::service::Options;
use crate::store::faulty::{Act, Faulty};
use crate::store::{Batch, Engine, Family, Store};

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

/// A waiter, and the events that it was given.
struct Reader {
    feed: Arc<Feed>,
    start: u64,
    at: u64,
    seen: Vec<u64>,
}

impl Reader {
    /// Takes a page, like [`page`].
    fn take(&mut self, events: &Events, store: &Engine, limit: usize) {
        let given = self.feed.recent(self.at, limit).unwrap_or_else(|erased| {
            let (fleet, at) = (self.feed.fleet, self.at);
            let page = events.page(|| store.view(), fleet, at, limit).unwrap();
            self.feed.given(erased, page).unwrap()
        });
        assert!(given.next >= self.at && given.events.len() <= limit);
        self.seen.extend(given.events.iter().map(|event| event.id));
        self.at = given.next;
    }

    /// Takes all remaining events.
    fn end(&mut self, events: &Events, store: &Engine) {
        self.feed.read(events, &|| store.view()).unwrap();
        let mut before = None;
        while before != Some(self.at) {
            before = Some(self.at);
            self.take(events, store, 50);
        }
    }
}

/// Shards take ids, write and become durable in any order; the pump reads now and then; readers
/// begin anywhere, and take pages at any time: each gets exactly the events after its start.
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
                            feed.read(&events, &|| store.view()).unwrap();
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

/// A read in progress.
enum Reading {
    /// The id after which it reads, and the number of erasures when it began.
    Begun(u64, u64),
    Read(u64, Page),
}

/// A waiter whose reads take a while.
struct Slow {
    reader: Reader,
    reading: Option<Reading>,
}

/// The ids of erased events, and whether the erasure was answered.
#[derive(Default)]
struct Erased {
    begun: Vec<u64>,
    answered: Vec<u64>,
}

impl Slow {
    /// Does one step of [`page`]. The events that it is given count as sent.
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
                let page = events.page(|| store.view(), feed.fleet, at, 7).unwrap();
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

/// An event that is erased while it is being read is not sent after the answer to the erasure.
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
                            let page = events.page(|| store.view(), fleet, at, RECENT_MAX).unwrap();
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
                    for id in &erased.begun {
                        feeds.forget(fleet, &Name::new(&id.to_string()).unwrap());
                    }
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

/// Erasures of other entities do not invalidate a read, also if there are many.
#[test]
fn erasures_of_others_void_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Engine::open(dir.path()).unwrap();
    let events = Arc::new(Events::open(&store).unwrap());
    let feeds = Feeds::new();
    let feed = feeds.of(&events, Fleet(1));
    let ids = events.take(&[Fleet(1); 2], Time(5));
    put(&store, Fleet(1), ids.iter());
    let all: Vec<u64> = ids.iter().collect();
    drop(ids);
    let forget = |name: &str| feeds.forget(Fleet(1), &Name::new(name).unwrap());
    let erased = feed.erased();
    let page = || events.page(|| store.view(), Fleet(1), 0, 10).unwrap();
    (0..ERASED_MAX).for_each(|n| forget(&format!("other{n}")));
    let given = feed.given(erased, page()).unwrap();
    assert_eq!(given.events.len(), 2);
    assert!(feed.add(erased, page()));
    assert!(feed.is_so(&given));
    // Erasures whose names are forgotten may have concerned any entity.
    forget("another");
    assert!(!feed.is_so(&given) && feed.given(erased, page()).is_none());
    let given = feed.given(feed.erased(), page()).unwrap();
    assert_eq!(feed.recent(all[0] - 1, 10).unwrap().events.len(), 2);
    forget(&all[1].to_string());
    assert!(!feed.is_so(&given));
    // Kept events are read again.
    let mut batch = Batch::new(&store);
    batch
        .delete(Family::Events, &key(Fleet(1), all[1]))
        .unwrap();
    batch.write(None).unwrap();
    let erased = feed.recent(all[0] - 1, 10).unwrap_err();
    let left = feed.given(erased, page()).unwrap();
    let left: Vec<u64> = left.events.iter().map(|event| event.id).collect();
    assert_eq!(left, all[..1]);
}

/// An erasure that fails, or during which its entity reports anew, takes no event from waiters that
/// is still in the store.
#[test]
fn what_an_erasure_leaves_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let store = Engine::open(dir.path()).unwrap();
    let events = Arc::new(Events::open(&store).unwrap());
    let feeds = Feeds::new();
    let feed = feeds.of(&events, Fleet(1));
    let mut reader = Reader {
        feed: Arc::clone(&feed),
        start: 0,
        at: feed.through(),
        seen: Vec::new(),
    };
    let ids = events.take(&[Fleet(1); 3], Time(5));
    put(&store, Fleet(1), ids.iter());
    let all: Vec<u64> = ids.iter().collect();
    drop(ids);
    feed.read(&events, &|| store.view()).unwrap();
    for id in &all[1..] {
        feeds.forget(Fleet(1), &Name::new(&id.to_string()).unwrap());
    }
    reader.end(&events, &store);
    assert_eq!(reader.seen, all);
}

/// A damaged event or a panic of one fleet does not delay the waiters of other fleets.
#[test]
fn what_is_wrong_with_one_fleet_keeps_no_other_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let is_damaged = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&is_damaged);
    let store = Faulty::new(Engine::open(dir.path()).unwrap(), move |act| match act {
        Act::Rows(Family::Events, key)
            if key.starts_with(&Fleet(2).prefix()) && !its.load(Ordering::Relaxed) =>
        {
            panic!("a bug of this test")
        }
        _ => Ok(()),
    });
    let events = Arc::new(Events::open(&store.inner).unwrap());
    let feeds = Feeds::new();
    let all: Vec<Arc<Feed>> = (1..=4).map(|n| feeds.of(&events, Fleet(n))).collect();
    let news: Vec<_> = all.iter().map(|feed| feed.news()).collect();
    let fleets = [1, 2, 3, 3, 4].map(Fleet);
    let ids = events.take(&fleets, Time(5));
    for (id, fleet) in ids.iter().zip(&fleets) {
        put(&store.inner, *fleet, [id].into_iter());
    }
    let mut batch = Batch::new(&*store);
    let damaged = key(Fleet(3), 8);
    batch.put(Family::Events, &damaged, b"{").unwrap();
    batch.write(None).unwrap();
    drop(ids);
    let failed = |fleets: &[u32]| {
        let found = read_each(&all, &events, &|_| store.view());
        let which: Vec<u32> = found.iter().map(|(fleet, _)| fleet.0).collect();
        assert_eq!(which, fleets);
        found
    };
    let errors = failed(&[2, 3]);
    assert!(errors[0].1.to_string().contains("a bug of this test"));
    assert!(errors[1].1.is_corruption());
    let told = |nth: usize| news[nth].has_changed().unwrap();
    assert!(told(0) && !told(1) && !told(2) && told(3));
    let count = |nth: usize| all[nth].recent(0, 10).unwrap().events.len();
    assert_eq!((count(0), count(3)), (1, 1));
    // No event of the failed fleets is lost.
    is_damaged.store(true, Ordering::Relaxed);
    let mut batch = Batch::new(&*store);
    batch.delete(Family::Events, &damaged).unwrap();
    batch.write(None).unwrap();
    failed(&[]);
    assert!(told(1) && told(2));
    assert_eq!((count(1), count(2)), (1, 1));
}

/// A wall clock that a test moves.
#[derive(Debug)]
struct Wall(AtomicU64);

impl Clock for Wall {
    fn wall_micros(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn monotonic_nanos(&self) -> u64 {
        0
    }
}

/// Events that are kept for waiters are hidden once they are too old.
#[test]
fn what_is_kept_for_long_is_hidden_when_it_is_too_old() {
    let dir = tempfile::tempdir().unwrap();
    let day = DAY as u64;
    let clock = Arc::new(Wall(AtomicU64::new(20_000 * day)));
    let tracks = Tracks::over(
        Arc::new(Engine::open(dir.path()).unwrap()),
        &Options::default(),
        Arc::clone(&clock) as Arc<dyn Clock>,
        &SystemThreads,
    )
    .unwrap();
    let name = Name::new("f").unwrap();
    let info = tracks.fleet_or_make(&name).unwrap();
    let events = tracks.events();
    let feeds = Feeds::new();
    let feed = feeds.of(events, info.fleet);
    let happens = || {
        let ids = events.take(&[info.fleet; 2], tracks.now());
        let all: Vec<u64> = ids.iter().collect();
        let mut batch = Batch::new(&**tracks.store());
        for id in &all {
            let key = key(info.fleet, *id);
            let value =
                br#"{"kind":"enter","fence":"f","entity":"e","time":1,"lat":2.0,"lon":3.0}"#;
            batch.put(Family::Events, &key, value).unwrap();
        }
        batch.write(None).unwrap();
        drop(ids);
        feed.read(events, &|| tracks.view_of(info.fleet)).unwrap();
        all
    };
    let old = happens();
    clock.0.fetch_add(2 * day, Ordering::Relaxed);
    let new = happens();
    // As `page` does it.
    let from = |after| {
        feed.hide(&tracks);
        let given = feed.recent(after, 10).unwrap_or_else(|erased| {
            let page = events.page(|| tracks.view_of(info.fleet), info.fleet, after, 10);
            feed.given(erased, page.unwrap()).unwrap()
        });
        let ids: Vec<u64> = given.events.iter().map(|event| event.id).collect();
        (ids, given.next)
    };
    let all = [&old[..], &new].concat();
    let (before, last) = (old[0] - 1, new[1]);
    assert_eq!(from(before), (all.clone(), last));
    let keep = |days| {
        let set = tracks.change_fleet(&name, |settings| {
            settings.keep_days = days;
            Ok(())
        });
        set.unwrap();
    };
    keep(3);
    assert_eq!(from(before), (all, last));
    keep(1);
    for after in [before, old[0], old[1], 0] {
        assert_eq!(from(after), (new.clone(), last));
    }
    assert_eq!(from(new[0]), (vec![new[1]], last));
}
