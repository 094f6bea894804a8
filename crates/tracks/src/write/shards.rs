//! The shards, and how reports are distributed among them.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tokio::sync::oneshot;

use base::clock::Clock;
use base::rounds::Rounds;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::thread::JoinHandle;
use base::threads::Threads;
use base::{Error, ErrorKind, Result};

use super::admit::{Ack, Call, Item, Part, Places, Taken, Ticket};
use super::apply::Of;
use super::erase::{self, Done, Erase, Erasure, Whose};
use super::shard::{PART_MAX, ROUND_HOT_MAX, ROUND_MAX, Shard, Work};
use super::thin::{self, Thin};
use crate::fence::{Events, Fences};
use crate::fleets::Info;
use crate::live::Live;
use crate::model::key::{Entity, Fleet, PointKey};
use crate::model::name::Name;
use crate::model::report::Report;
use crate::model::time::Time;
use crate::store::Store;

/// How reports are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that take reports, 1 to 256; by default half as many as processors. One thread takes
    /// over 100,000 reports a second; more threads than needed only wait for each other in the
    /// engine.
    pub shards: usize,
    /// Entities whose newest points are kept in memory: at least this many, and at most twice as
    /// many, about 180 bytes each. Others are read from the store when they report.
    pub entities_in_memory: usize,
    /// The most reports that wait or are on their way to the device, over all shards; further ones
    /// are refused as `Busy`.
    pub reports_in_flight: usize,
    /// Whether visits are written, which searches in the past need.
    pub visits: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: std::thread::available_parallelism()
                .map_or(1, |n| n.get().div_ceil(2).min(256)),
            entities_in_memory: 1 << 20,
            reports_in_flight: 65_536,
            visits: true,
        }
    }
}

impl Options {
    /// Checks the options. Errors: `InvalidArgument` names the option that is out of its range.
    pub fn check(&self) -> Result<()> {
        let wrong = if !(1..=256).contains(&self.shards) {
            format!("shards is {}, and not within 1 and 256", self.shards)
        } else if self.reports_in_flight < self.shards {
            format!(
                "reports_in_flight is {}, and less than shards, {}",
                self.reports_in_flight, self.shards
            )
        } else {
            return Ok(());
        };
        Err(Error::invalid_argument(wrong))
    }
}

/// A part that has no place yet.
struct Undone {
    shard: usize,
    items: Vec<Item>,
}

struct Queue {
    parts: Sender<Work>,
    places: Arc<Places>,
    oldest: Arc<AtomicU64>,
    rounds: Arc<Rounds>,
}

/// All shards. Dropping it waits until the reports that were taken are written.
pub struct Shards {
    queues: Vec<Queue>,
    threads: Vec<JoinHandle<()>>,
    panics: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Shards({}, {} on their way)",
            self.queues.len(),
            self.in_flight()
        )
    }
}

impl Shards {
    /// Starts the threads. Errors: `InvalidArgument` names an option; no more threads can be
    /// started.
    pub fn start(
        store: &Arc<dyn Store>,
        (fences, events, live): (&Arc<Fences>, &Arc<Events>, &Arc<Live>),
        options: &Options,
        (clock, threads): (&Arc<dyn Clock>, &dyn Threads),
    ) -> Result<Self> {
        options.check()?;
        let mut all = Self {
            queues: Vec::new(),
            threads: Vec::new(),
            panics: Arc::default(),
            clock: Arc::clone(clock),
        };
        for nth in 0..options.shards {
            let oldest = Arc::new(AtomicU64::new(0));
            let rounds = Arc::<Rounds>::default();
            let shard = Shard {
                rounds: Arc::clone(&rounds),
                oldest: Arc::clone(&oldest),
                store: Arc::clone(store),
                // The entities that a round uses must stay in the cache until its end.
                entities: (options.entities_in_memory / options.shards).max(ROUND_HOT_MAX),
                with_visits: options.visits,
                fences: Arc::clone(fences),
                events: Arc::clone(events),
                live: Arc::clone(live),
                panics: Arc::clone(&all.panics),
                clock: Arc::clone(clock),
            };
            let (parts, queue) = channel();
            let thread = threads
                .start(&format!("shard-{nth}"), Box::new(move || shard.run(queue)))
                .map_err(|e| Error::io("cannot start a shard's thread", "", e))?;
            all.threads.push(thread);
            let places = Places::new(options.reports_in_flight / options.shards);
            all.queues.push(Queue {
                parts,
                places,
                oldest,
                rounds,
            });
        }
        Ok(all)
    }

    /// Takes reports of a fleet that arrived at `arrival`. The answer says for each report whether
    /// it was wrong.
    ///
    /// Errors: `Busy` if too many reports are in progress: then none was taken.
    pub fn submit(
        &self,
        info: &Info,
        reports: Vec<Report>,
        ack: Ack,
        arrival: Time,
    ) -> Result<Ticket> {
        // Checked first: without room, most reports would be processed for nothing.
        if !reports.is_empty() && !self.has_room() {
            return Err(self.busy());
        }
        let settings = &info.settings;
        let ahead = settings.ahead();
        let of = Of {
            fleet: info.fleet,
            limits: (
                settings.fence_accuracy_max.saturating_mul(10),
                settings.fence_speed_max.into(),
            ),
        };
        let mut outcomes = Vec::with_capacity(reports.len());
        let mut parts: Vec<Undone> = Vec::with_capacity(1);
        for (nth, report) in reports.into_iter().enumerate() {
            let dated = report.dated(arrival, ahead).and_then(|dated| {
                dated.point.check()?;
                Ok(dated)
            });
            let dated = match dated {
                Ok(dated) => dated,
                Err(e) => {
                    outcomes.push(Some(Err(e)));
                    continue;
                }
            };
            outcomes.push(None);
            let first = dated.entity.number(0);
            let shard = usize::from(first.0 as u8) % self.queues.len();
            let item = Item {
                nth,
                first,
                report: dated,
                outcome: None,
            };
            let has_room = |part: &&mut Undone| part.shard == shard && part.items.len() < PART_MAX;
            match parts.iter_mut().rev().find(has_room) {
                Some(part) => part.items.push(item),
                None => parts.push(Undone {
                    shard,
                    items: vec![item],
                }),
            }
        }
        self.send(of, parts, ack, outcomes)
    }

    fn send(
        &self,
        of: Of,
        mut parts: Vec<Undone>,
        ack: Ack,
        outcomes: Vec<Option<Result<super::Outcome>>>,
    ) -> Result<Ticket> {
        // If one shard has no place, the places of the others are given back: a call is taken as a
        // whole or not at all.
        let mut admitted: Vec<(&Queue, Undone, Taken)> = Vec::with_capacity(parts.len());
        for (shard, queue) in self.queues.iter().enumerate() {
            let of_shard = parts.extract_if(.., |part| part.shard == shard);
            let of_shard: Vec<Undone> = of_shard.collect();
            let count = of_shard.iter().map(|part| part.items.len()).sum();
            if count == 0 {
                continue;
            }
            let mut all = queue.places.take(count).ok_or_else(|| self.busy())?;
            for part in of_shard {
                let taken = all.split(part.items.len());
                admitted.push((queue, part, taken));
            }
        }
        let (call, mut ticket) = Call::new(outcomes, admitted.len());
        let since = self.clock.monotonic_nanos();
        let is_alone = admitted.len() == 1 && ack == Ack::Visible;
        for (queue, part, taken) in admitted {
            let round = queue.rounds.next();
            // With more than a round takes, most would be woken in vain by the rounds before theirs.
            if is_alone && queue.places.taken() <= ROUND_MAX {
                ticket.expect(&queue.rounds, round);
            }
            let part = Part::new((of, part.items), ack, &call, (taken, since), round);
            // If the shard is gone, the part answers when it is dropped.
            drop(queue.parts.send(Work::Reports(part)));
        }
        Ok(ticket)
    }

    /// Erases an entity, except its events. Returns, once that is durable, its number and the
    /// greatest id of its events; `None` if there is no such entity. Not for use in an asynchronous
    /// runtime.
    pub(crate) fn erase(&self, fleet: Fleet, name: &Name) -> Result<Option<(Entity, u64)>> {
        self.erase_all(fleet, &Whose::Name(name.clone()), Erasure::All)
    }

    /// Erases entities by their numbers, or what `erasure` says of each. Returns for each whether
    /// it was erased. Their batches go to the device together.
    pub(crate) fn erase_numbers(
        &self,
        fleet: Fleet,
        all: &[(Entity, Erasure)],
    ) -> Vec<Result<bool>> {
        let whose = |entity: &Entity| Whose::Number(*entity);
        let begun = all.iter();
        let begun =
            begun.map(|(entity, erasure)| self.begin_erasure(fleet, &whose(entity), *erasure));
        let begun: Vec<_> = begun.collect();
        let ended = begun
            .into_iter()
            .zip(all)
            .map(|(begun, (entity, erasure))| {
                let done = match end_erasure(begun)? {
                    Done::Part => self.erase_all(fleet, &whose(entity), *erasure)?.is_some(),
                    Done::Nothing => false,
                    Done::All(..) => true,
                };
                Ok(done)
            });
        ended.collect()
    }

    fn erase_all(
        &self,
        fleet: Fleet,
        whose: &Whose,
        erasure: Erasure,
    ) -> Result<Option<(Entity, u64)>> {
        loop {
            match end_erasure(self.begin_erasure(fleet, whose, erasure))? {
                Done::Part => {}
                Done::Nothing => return Ok(None),
                Done::All(entity, last) => return Ok(Some((entity, last))),
            }
        }
    }

    /// Passes a part of an erasure to the shard.
    fn begin_erasure(&self, fleet: Fleet, whose: &Whose, erasure: Erasure) -> Begun {
        let byte = match whose {
            Whose::Name(name) => name.number(0).0 as u8,
            Whose::Number(entity) => entity.0 as u8,
        };
        let (answer, done) = oneshot::channel();
        let whose = whose.clone();
        let erase = Erase {
            fleet,
            whose,
            erasure,
            answer,
        };
        if let Some(queue) = self.queue_of(byte) {
            // If the shard is gone, the answer says so.
            drop(queue.parts.send(Work::Erase(erase)));
        }
        done
    }

    /// Drops points of an entity, none of which is its newest, unless their bytes have changed.
    /// Returns their number once that is visible. Not for use in an asynchronous runtime. Errors:
    /// the store's.
    pub(crate) fn thin(&self, entity: Entity, points: Vec<(PointKey, Vec<u8>)>) -> Result<u64> {
        let queue = self.queue_of(entity.0 as u8).ok_or_else(thin::gone)?;
        let (answer, done) = oneshot::channel();
        // If the shard is gone, the answer says so.
        drop(queue.parts.send(Work::Thin(Thin { points, answer })));
        done.blocking_recv().map_err(|_| thin::gone())?
    }

    /// Returns once the rounds that have begun are over in each shard: what they have written is visible, or their
    /// reports have failed. Rounds that begin later see the listeners of now. A shard that is gone is not waited for.
    pub(crate) async fn rounds_end(&self) {
        let mark = |queue: &Queue| {
            let (mark, passed) = oneshot::channel();
            drop(queue.parts.send(Work::Mark(mark)));
            passed
        };
        let all: Vec<_> = self.queues.iter().map(mark).collect();
        for passed in all {
            // An error: nothing is ever sent, and the mark is dropped.
            drop(passed.await);
        }
    }

    /// The queue for entities whose number has this lowest byte.
    fn queue_of(&self, byte: u8) -> Option<&Queue> {
        self.queues.get(usize::from(byte) % self.queues.len())
    }

    /// Whether any shard has room for reports.
    pub fn has_room(&self) -> bool {
        self.queues.iter().any(|queue| queue.places.has_room())
    }

    /// Reports that wait, or are on their way to the device.
    pub fn in_flight(&self) -> usize {
        self.queues.iter().map(|queue| queue.places.taken()).sum()
    }

    /// The age of the oldest report that is not written yet; zero if there is none. A written
    /// report may still wait for the device.
    pub fn queue_age(&self) -> Duration {
        let now = self.clock.monotonic_nanos();
        let queues = self.queues.iter();
        let since = queues.map(|queue| queue.oldest.load(Ordering::Relaxed));
        let oldest = since.filter(|since| *since != 0).min();
        Duration::from_nanos(oldest.map_or(0, |since| now.saturating_sub(since)))
    }

    /// How often a shard has panicked and gone on. The reports of these rounds were answered with
    /// an error.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    fn busy(&self) -> Error {
        Error::new(
            ErrorKind::Busy,
            format!("{} reports are on their way already", self.in_flight()),
        )
        .hint("send them again later; reports_in_flight says how many may be")
    }
}

/// A part of an erasure that was passed to a shard.
type Begun = oneshot::Receiver<Result<Done>>;

fn end_erasure(begun: Begun) -> Result<Done> {
    begun.blocking_recv().map_err(|_| erase::gone())?
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.queues.clear();
        for thread in self.threads.drain(..) {
            // A thread that panicked has dropped its parts, which answered their callers.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::clock::SystemClock;
    use base::sync::Mutex;
    use base::sync::atomic::AtomicBool;
    use base::threads::SystemThreads;
    use tokio::time::timeout;

    use super::*;
    use crate::geo::cell::Cell;
    use crate::geo::position::at;
    use crate::model::key::EntityKey;
    use crate::model::newest;
    use crate::model::point::Point;
    use crate::service::{self, Tracks};
    use crate::store::faulty::{Act, Faulty};
    use crate::store::{Batch, Engine, Family};
    use crate::write::Outcome;

    /// Whoever listens and then waits for the rounds that had begun can read what those wrote.
    #[test]
    fn rounds_that_had_begun_are_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let [is_held, is_writing] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (held, writing) = (Arc::clone(&is_held), Arc::clone(&is_writing));
        let store = Faulty::new(Engine::open(dir.path()).unwrap(), move |act| {
            while matches!(act, Act::Write) && held.load(Ordering::SeqCst) {
                writing.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        let options = service::Options::default();
        let clock = SystemClock::shared();
        let tracks = Tracks::over(store, &options, clock, &SystemThreads).unwrap();
        let info = tracks
            .change_fleet(&Name::new("f").unwrap(), |_| Ok(()))
            .unwrap();
        let entity = Name::new("a").unwrap();
        is_held.store(true, Ordering::SeqCst);
        let report = Report {
            entity: entity.clone(),
            time: None,
            point: Point::at(at(59.0, 18.0)),
        };
        let ticket = tracks.report_of(&info, vec![report], Ack::Visible).unwrap();
        for _ in 0..10_000 {
            if is_writing.load(Ordering::SeqCst) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let runtime = runtime.unwrap();
        let short = Duration::from_millis(50);
        let waited = runtime.block_on(async { timeout(short, tracks.rounds_end()).await });
        // Before anything is asserted: the shard would be waited for.
        is_held.store(false, Ordering::SeqCst);
        assert!(waited.is_err(), "the round is not over");
        let long = Duration::from_secs(60);
        let waited = runtime.block_on(async { timeout(long, tracks.rounds_end()).await });
        assert!(waited.is_ok());
        let key = EntityKey {
            fleet: info.fleet,
            entity: entity.number(0),
        };
        let found = tracks.store().get(Family::Latest, &key.to_bytes()).unwrap();
        assert!(found.is_some());
        assert!(ticket.wait().outcomes[0].is_ok());
    }

    /// A service with one shard, which has no entity in memory.
    fn with_one_shard(store: Arc<Faulty>) -> Tracks {
        let mut options = service::Options::default();
        options.write.shards = 1;
        Tracks::over(store, &options, SystemClock::shared(), &SystemThreads).unwrap()
    }

    fn report_of(tracks: &Tracks, name: &str, seconds: i64) -> Result<Outcome> {
        let fleet = Name::new("f").unwrap();
        let info = tracks.change_fleet(&fleet, |_| Ok(())).unwrap();
        let report = Report {
            entity: Name::new(name).unwrap(),
            time: Some(Time(1_700_000_000_000_000 + seconds * 1_000_000)),
            point: Point::at(at(59.0, 18.0)),
        };
        let ticket = tracks.report_of(&info, vec![report], Ack::Durable).unwrap();
        ticket.wait().outcomes.remove(0)
    }

    /// A million entities are in memory. A report of another one reads one row.
    #[test]
    fn a_report_of_an_entity_that_is_not_in_memory_reads_one_row() {
        let dir = tempfile::tempdir().unwrap();
        let reads = Arc::new(Mutex::new(Vec::new()));
        let opened = || {
            let its = Arc::clone(&reads);
            with_one_shard(Faulty::new(Engine::open(dir.path()).unwrap(), move |act| {
                if let Act::Get(family @ (Family::Latest | Family::Entities), _) = act {
                    its.lock().unwrap().push(family);
                }
                Ok(())
            }))
        };
        let reads_of = |tracks: &Tracks, name: &str, seconds: i64| {
            reads.lock().unwrap().clear();
            report_of(tracks, name, seconds).unwrap();
            std::mem::take(&mut *reads.lock().unwrap())
        };
        let (latest, entities) = (Family::Latest, Family::Entities);
        let tracks = opened();
        for name in ["a", "b", "c"] {
            assert_eq!(reads_of(&tracks, name, 0), [entities], "{name} is new");
        }
        drop(tracks);
        // None is in memory.
        let tracks = opened();
        assert_eq!(reads_of(&tracks, "a", 60), [entities, latest]);
        assert_eq!(reads_of(&tracks, "b", 60), [latest]);
        assert_eq!(reads_of(&tracks, "c", 60), [latest]);
        assert!(reads_of(&tracks, "a", 120).is_empty(), "it is now");
        assert_eq!(reads_of(&tracks, "d", 0), [latest, entities]);
        assert_eq!(reads_of(&tracks, "e", 0), [entities]);
    }

    /// Wherever a shard looks first, it finds whose a number is.
    #[test]
    fn the_number_of_a_name_does_not_depend_on_where_it_is_looked_for() {
        let newest = |name: &str| {
            let (place, time) = (at(58.0, 17.0), Time(1_600_000_000_000_000));
            let point = Point::at(place).encode().unwrap();
            newest::Newest::encode(name, (time, Cell::of(place)), &point)
        };
        // The row in `entities`, that in `latest`, which turn the name gets, and whether there is an error.
        let cases = [
            (None, None, Some(0)),
            (Some(""), None, Some(0)),
            (Some("its"), None, Some(0)),
            (Some("its"), Some(newest("its")), Some(0)),
            (Some("another"), None, Some(1)),
            (Some("another"), Some(newest("another")), Some(1)),
            (Some("its"), Some(vec![7; 13]), None),
            (Some("its"), Some(newest("another")), None),
        ];
        for (entities, latest, turn) in cases {
            for expects_new in [true, false] {
                let what = format!("{entities:?} {latest:?} {expects_new}");
                let dir = tempfile::tempdir().unwrap();
                let store = Faulty::new(Engine::open(dir.path()).unwrap(), |_| Ok(()));
                let tracks = with_one_shard(store);
                report_of(&tracks, "known", 0).unwrap();
                let name = Name::new("its").unwrap();
                let fleet = tracks.fleet(&Name::new("f").unwrap()).unwrap().fleet;
                let key = |turn| {
                    let entity = name.number(turn);
                    EntityKey { fleet, entity }.to_bytes()
                };
                let mut batch = Batch::new(&**tracks.store());
                for (family, row) in [
                    (
                        Family::Entities,
                        entities.map(|row| row.as_bytes().to_vec()),
                    ),
                    (Family::Latest, latest.clone()),
                ] {
                    if let Some(row) = row {
                        batch.put(family, &key(0), &row).unwrap();
                    }
                }
                batch.write(None).unwrap();
                drop(tracks);
                let tracks =
                    with_one_shard(Faulty::new(Engine::open(dir.path()).unwrap(), |_| Ok(())));
                let before = if expects_new { "new" } else { "known" };
                report_of(&tracks, before, 60).unwrap();
                let done = report_of(&tracks, "its", 60);
                let Some(turn) = turn else {
                    assert!(done.unwrap_err().is_corruption(), "{what}");
                    continue;
                };
                assert_eq!(done.unwrap(), Outcome::Moved, "{what}");
                let found = crate::read::find(&*tracks.view(), fleet, &name).unwrap();
                assert_eq!(found, Some(name.number(turn)), "{what}");
                let row = tracks.store().get(Family::Latest, &key(turn)).unwrap();
                let row = row.unwrap();
                let newest = newest::Newest::decode(&row).unwrap();
                assert_eq!(newest.name, "its", "{what}");
                assert_eq!(newest.time, Time(1_700_000_060_000_000), "{what}");
                // The row of another name is left alone.
                if turn == 1 {
                    let row = tracks.store().get(Family::Latest, &key(0)).unwrap();
                    assert_eq!(row, latest, "{what}");
                }
            }
        }
    }
}
