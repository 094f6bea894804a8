//! The service: a store, its fleets, and shards that take reports.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use base::threads::{SystemThreads, Threads};
use base::{Error, Result};

use crate::fence::{self, Definition, Events, Fence, Fences};
use crate::fleets::{Fleets, Info, Settings};
use crate::keep::{self, House};
use crate::live::Live;
use crate::model::key::{Entity, Fleet};
use crate::model::name::Name;
use crate::model::report::Report;
use crate::model::time::Time;
use crate::notices::Notices;
use crate::read::{self, Patience};
use crate::store::{Batch, Engine, Family, Store, View};
use crate::write::{self, Ack, Shards, Ticket};

/// The options of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How reports are taken.
    pub write: write::Options,
    /// Whether reports of an unknown fleet are refused, instead of making it.
    pub fixed_fleets: bool,
    /// A report or a fence makes a new fleet only while there are fewer fleets than this.
    pub fleets_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            write: write::Options::default(),
            fixed_fleets: false,
            fleets_max: 10_000,
        }
    }
}

/// The service. Dropping it waits until the reports that were taken are written.
///
/// ```
/// use tracks::geo::{position::Position, shape::Circle};
/// use tracks::model::{name::Name, point::Point, report::Report};
/// use tracks::read::{Filter, within};
/// use tracks::service::{Options, Tracks};
/// use tracks::write::Ack;
///
/// # let dir = tempfile::tempdir().unwrap();
/// let tracks = Tracks::open(dir.path(), &Options::default())?;
/// let fleet = Name::new("taxis")?;
/// let position = Position::of_degrees(59.3293, 18.0686)?;
/// let report = Report { entity: Name::new("car1")?, time: None, point: Point::at(position) };
/// let answer = tracks.report(&fleet, vec![report], Ack::Durable)?.wait();
/// assert!(answer.outcomes[0].is_ok());
///
/// let view = tracks.view();
/// let info = tracks.fleet(&fleet)?;
/// let area = Circle::new(position, 100.0)?;
/// let page = within(&*view, info.fleet, (&area, Filter::default()), (10, None), &tracks.patience())?;
/// assert_eq!(page.hits[0].name, "car1");
/// # Ok::<(), base::Error>(())
/// ```
#[derive(Debug)]
pub struct Tracks {
    // The first field, so that it is dropped first.
    house: House,
    shards: Arc<Shards>,
    store: Arc<dyn Store>,
    fleets: Arc<Fleets>,
    fences: Arc<Fences>,
    events: Arc<Events>,
    live: Arc<Live>,
    clock: Arc<dyn Clock>,
    options: Options,
}

impl Tracks {
    /// Opens the service's folder, or creates it.
    ///
    /// Errors: `Busy` if another process has it open; `InvalidArgument` names an option; `NotSupported` if a newer
    /// release wrote it; the store's.
    pub fn open(dir: impl AsRef<Path>, options: &Options) -> Result<Self> {
        options.write.check()?;
        let store: Arc<dyn Store> = Arc::new(Engine::open(dir)?);
        Self::over(store, options, SystemClock::shared(), &SystemThreads)
    }

    /// Like [`Tracks::open`], over a store, with a clock and threads. Errors: as there.
    pub fn over(
        store: Arc<dyn Store>,
        options: &Options,
        clock: Arc<dyn Clock>,
        threads: &dyn Threads,
    ) -> Result<Self> {
        let fleets = Arc::new(Fleets::open(&*store)?);
        let fences = Arc::new(Fences::open(&*store)?);
        let events = Arc::new(Events::open(&*store)?);
        let live = Arc::new(Live::default());
        let shards = Shards::start(
            &store,
            (&fences, &events, &live),
            &options.write,
            (&clock, threads),
        )?;
        let shards = Arc::new(shards);
        let of = keep::Of {
            store: Arc::clone(&store),
            fleets: Arc::clone(&fleets),
            shards: Arc::clone(&shards),
            clock: Arc::clone(&clock),
        };
        Ok(Self {
            house: House::start(of, threads)?,
            shards,
            store,
            fleets,
            fences,
            events,
            live,
            clock,
            options: options.clone(),
        })
    }

    /// Takes reports of a fleet. Each is independent: if one is wrong, its outcome says so, and the others are taken.
    ///
    /// Errors: `Busy` if too many are in progress: then none was taken; `NotFound` if fleets are fixed and there is
    /// none with this name. On an error the fleet is not made, nor if all reports are refused.
    pub fn report(&self, fleet: &Name, reports: Vec<Report>, ack: Ack) -> Result<Ticket> {
        if let Some(info) = self.fleets.get(fleet) {
            return self.report_of(&info, reports, ack);
        }
        self.check_fleet(fleet)?;
        let now = self.now();
        if !Self::has_good(&reports, now) {
            // All reports will be refused, so that the new fleet is not written.
            let none = self.fleets.planned(fleet, |_| Ok(()))?;
            return self.report_at(&none, reports, ack, now);
        }
        if !self.has_room() {
            let in_flight = self.in_flight();
            return Err(
                Error::busy(format!("{in_flight} reports are on their way already"))
                    .hint("send them again later; reports_in_flight says how many may be"),
            );
        }
        let info = self.fleet_or_make(fleet)?;
        self.report_of(&info, reports, ack)
    }

    /// Whether at least one of some reports can be stored in a new fleet.
    fn has_good<'a>(reports: impl IntoIterator<Item = &'a Report>, now: Time) -> bool {
        let ahead = Settings::default().ahead();
        let mut reports = reports.into_iter();
        reports.any(|report| report.check(now, ahead).is_ok())
    }

    /// Whether reports make an unknown fleet: at least one of them can be stored, and there is room for another
    /// fleet.
    pub(crate) fn would_make_fleet<'a>(
        &self,
        reports: impl IntoIterator<Item = &'a Report>,
    ) -> bool {
        self.has_room() && Self::has_good(reports, self.now())
    }

    /// Like [`Tracks::report`], for a known fleet. Errors: `Busy`, as there.
    pub fn report_of(&self, fleet: &Info, reports: Vec<Report>, ack: Ack) -> Result<Ticket> {
        self.report_at(fleet, reports, ack, self.now())
    }

    /// The current time, by the service's clock.
    pub fn now(&self) -> Time {
        Time(i64::try_from(self.clock.wall_micros()).unwrap_or(i64::MAX))
    }

    /// Like [`Tracks::report_of`], for reports that arrived at `arrival`.
    pub fn report_at(
        &self,
        fleet: &Info,
        reports: Vec<Report>,
        ack: Ack,
        arrival: Time,
    ) -> Result<Ticket> {
        self.shards.submit(fleet, reports, ack, arrival)
    }

    /// The fleet with this name. Errors: `NotFound` if there is none.
    pub fn fleet(&self, name: &Name) -> Result<Arc<Info>> {
        self.fleets.refuse_mixed(name)?;
        self.fleets.get(name).ok_or_else(|| {
            Error::not_found(format!("there is no fleet {name}"))
                .hint("a fleet is made by its first report, unless fleets are fixed")
        })
    }

    /// The fleet with this name for reports, which is made if there is none. Errors: `NotFound` if fleets are fixed
    /// and there is none; `NotSupported` if there are [`Options::fleets_max`] already.
    pub fn fleet_or_make(&self, name: &Name) -> Result<Arc<Info>> {
        if self.options.fixed_fleets {
            return self.fleet(name);
        }
        let most = self.options.fleets_max;
        self.fleets.get_or_make_of(&*self.store, name, most)
    }

    /// Whether a fleet can have reports, without making it. Errors: `NotFound` if fleets are fixed and there is none
    /// with this name.
    pub fn check_fleet(&self, name: &Name) -> Result<()> {
        if self.options.fixed_fleets {
            self.fleet(name)?;
        }
        Ok(())
    }

    /// The fleets.
    pub fn fleets(&self) -> &Fleets {
        &self.fleets
    }

    /// Changes a fleet's settings, or makes the fleet: see [`Fleets::change`]. Returns once this is durable.
    pub fn change_fleet(
        &self,
        name: &Name,
        change: impl FnOnce(&mut Settings) -> Result<()>,
    ) -> Result<Arc<Info>> {
        let info = self.fleets.change(&*self.store, name, change)?;
        self.store.wait_durable(self.store.last_number())?;
        Ok(info)
    }

    /// Makes or replaces a fence of a fleet: see [`Fences::put`]. Returns once this is durable.
    pub fn put_fence(
        &self,
        fleet: &Info,
        name: &Name,
        definition: Definition,
    ) -> Result<Arc<Fence>> {
        let named = (name, definition);
        let fence = self.fences.put(&*self.store, fleet, named, self.now())?;
        self.store.wait_durable(self.store.last_number())?;
        Ok(fence)
    }

    /// Deletes a fence: see [`Fences::delete`].
    pub fn delete_fence(&self, fleet: &Info, name: &Name) -> Result<()> {
        self.fences.delete(&*self.store, fleet, name)?;
        self.store.wait_durable(self.store.last_number())
    }

    /// The fences.
    pub fn fences(&self) -> &Fences {
        &self.fences
    }

    /// The events of fences.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// Live positions, for listeners.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// A view of the current state, for the queries of [`read`].
    ///
    /// It hides rows that are older than their fleet keeps. The cost depends on the number of fleets: see
    /// [`Tracks::view_of`].
    pub fn view(&self) -> Box<dyn View + '_> {
        keep::hidden(self.store.view(), self.house.horizons(), None)
    }

    /// Like [`Tracks::view`], for a reader of one fleet: nothing of other fleets is hidden.
    pub fn view_of(&self, fleet: Fleet) -> Box<dyn View + '_> {
        keep::hidden(self.store.view(), self.horizon(fleet), None)
    }

    /// Like [`Tracks::view_of`], for a query: skipping hidden rows counts for its patience.
    pub fn view_for<'a>(&'a self, fleet: Fleet, patience: &'a Patience) -> Box<dyn View + 'a> {
        keep::hidden(self.store.view(), self.horizon(fleet), Some(patience))
    }

    fn horizon(&self, fleet: Fleet) -> keep::Horizons {
        let horizon = self.house.horizon(fleet);
        let hides = horizon != keep::Horizon::default();
        hides.then_some((fleet, horizon)).into_iter().collect()
    }

    /// The lowest id of an event of a fleet that [`Tracks::view`] shows.
    pub(crate) fn first_event(&self, fleet: Fleet) -> u64 {
        u64::try_from(self.house.horizon(fleet).points.0).unwrap_or(0)
    }

    /// Erases an entity: its history, its newest position, its state at fences, its events and its name. Returns,
    /// once this is durable, whether there was such an entity. The erasure has a place in the order of the entity's
    /// reports: a report that was answered before is erased, and one that is sent after the answer makes a new
    /// entity. The tables with the entity's bytes are compacted afterwards.
    ///
    /// Not for use in an asynchronous runtime. Errors: the store's. After an error, a part may be erased; the next
    /// call erases the rest, also the events of an entity that is otherwise erased already.
    pub fn erase(&self, fleet: &Info, name: &Name) -> Result<bool> {
        self.erase_telling(fleet, name, &|| ())
    }

    /// Like [`Tracks::erase`]. `behind` is called as soon as everything except the events is erased, or if that
    /// failed and a part may be erased: later reports with this name belong to a new entity.
    pub(crate) fn erase_telling(
        &self,
        fleet: &Info,
        name: &Name,
        behind: &dyn Fn(),
    ) -> Result<bool> {
        let of = fleet.fleet;
        // Events of an entity that is erased already have no greater id.
        let before = self.events.last();
        let erased = self.shards.erase(of, name);
        if !matches!(erased, Ok(None)) {
            behind();
        }
        let (found, last) = match erased? {
            Some((entity, last)) => (Some(entity), last),
            None => (None, before),
        };
        let numbers = found.map_or_else(|| self.owing(of, name), |entity| Ok(vec![entity]))?;
        if numbers.is_empty() {
            return Ok(false);
        }
        let done = self.erase_events(of, (name, last), &numbers);
        // Also if erasing the events failed: the other rows are still in tables.
        self.house.is_erased();
        Ok(found.is_some() | done?)
    }

    /// The erased numbers that an entity with this name may have had, and that may have events left. Usually there
    /// are none, which saves searching all events of the fleet.
    fn owing(&self, of: Fleet, name: &Name) -> Result<Vec<Entity>> {
        let view = self.store.view();
        let mut all = read::erased(&*view, of, name)?;
        let mut error = Ok(());
        all.retain(|entity| {
            let owes = write::owes_events(&*view, (of, *entity));
            owes.unwrap_or_else(|e| {
                error = Err(e);
                false
            })
        });
        error.map(|()| all)
    }

    /// Erases the events of a name that had one of some numbers. Returns, once everything written is durable, whether
    /// there were any.
    fn erase_events(&self, of: Fleet, name: (&Name, u64), numbers: &[Entity]) -> Result<bool> {
        let store = &*self.store;
        let note = |batch: &mut Batch<'_>, (first, last): (&[u8], &[u8])| {
            let range = [write::Range::new(Family::Events, first, last)];
            let mut all = numbers.iter();
            all.try_for_each(|entity| write::note(store, batch, (of, *entity), &range))
        };
        let were_any = fence::erase_events(store, of, name, &note)?;
        store.wait_durable(store.last_number())?;
        // Only afterwards, so that until then another call still finds something to do.
        let all: Vec<_> = numbers.iter().map(|entity| (of, *entity)).collect();
        write::events_are_erased(store, &all, name.1)?;
        Ok(were_any)
    }

    /// Drops rows that are older than their fleet keeps now, as a thread does each hour. Errors: the store's.
    pub fn keep_house(&self) -> Result<keep::Kept> {
        self.house.keep()
    }

    #[cfg(test)]
    pub(crate) fn house(&self) -> &House {
        &self.house
    }

    /// Sets where failures of housekeeping are reported from now on.
    pub fn say_to(&self, notices: Notices) {
        self.house.say_to(notices);
    }

    /// The tasks of housekeeping whose last try failed. `None` if there are none.
    pub fn house_failed(&self) -> Option<String> {
        self.house.failed()
    }

    /// The time limit of a query: 30 seconds.
    pub fn patience(&self) -> Patience {
        Patience::new(Arc::clone(&self.clock), Duration::from_secs(30))
    }

    /// See [`Shards::queue_age`].
    pub fn queue_age(&self) -> Duration {
        self.shards.queue_age()
    }

    /// See [`Shards::rounds_end`].
    pub(crate) async fn rounds_end(&self) {
        self.shards.rounds_end().await;
    }

    /// See [`Shards::panics`].
    pub fn panics(&self) -> u64 {
        self.shards.panics()
    }

    /// Whether there is room for more reports.
    pub fn has_room(&self) -> bool {
        self.shards.has_room()
    }

    /// Reports that wait, or are on their way to the device.
    pub fn in_flight(&self) -> usize {
        self.shards.in_flight()
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::ErrorKind;
    use base::sync::atomic::{AtomicU64, Ordering};
    use base::sync::{Mutex, PoisonError};

    use super::*;
    use crate::fence::{Area, When};
    use crate::geo::position::at;
    use crate::model::key::EntityKey;
    use crate::model::point::Point;
    use crate::store::faulty::{Act, Faulty};

    /// What fails now.
    const NOTHING: u64 = 0;
    const EVENTS: u64 = 1;
    const DEVICE: u64 = 2;
    const COMPACTION: u64 = 3;

    struct World {
        tracks: Tracks,
        fails: Arc<AtomicU64>,
        /// The entities whose tables were compacted.
        merged: Arc<Mutex<Vec<Vec<u8>>>>,
    }

    fn open(dir: &Path, fails: u64) -> World {
        let (fails, merged) = (Arc::new(AtomicU64::new(fails)), Arc::default());
        let (its, all) = (
            Arc::clone(&fails),
            Arc::<Mutex<Vec<Vec<u8>>>>::clone(&merged),
        );
        let store = Faulty::new(Engine::open(dir).unwrap(), move |act| {
            match (its.load(Ordering::Relaxed), act) {
                (EVENTS, Act::Rows(Family::Events, _))
                | (DEVICE, Act::WaitDurable)
                | (COMPACTION, Act::Compact(..)) => {
                    return Err(Error::new(ErrorKind::IoError, "of this test"));
                }
                (_, Act::Compact(Family::Default, key)) => {
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    all.push(key.to_vec());
                }
                _ => {}
            }
            Ok(())
        });
        let tracks = Tracks::over(
            store,
            &Options::default(),
            SystemClock::shared(),
            &SystemThreads,
        );
        World {
            tracks: tracks.unwrap(),
            fails,
            merged,
        }
    }

    impl World {
        fn report(&self, info: &Info, entity: &str) {
            let lats = [0.0, 59.0, 0.0, 59.0];
            for (nth, lat) in lats.into_iter().enumerate() {
                let report = Report {
                    entity: Name::new(entity).unwrap(),
                    time: Some(Time(1_700_000_000_000_000 + nth as i64 * 60_000_000_000)),
                    point: Point::at(at(lat, 18.0)),
                };
                let ticket = self.tracks.report_of(info, vec![report], Ack::Durable);
                assert!(ticket.unwrap().wait().outcomes[0].is_ok());
            }
        }

        fn events_of(&self, info: &Info, entity: &str) -> usize {
            let (store, events) = (self.tracks.store(), self.tracks.events());
            let all = events.read(&**store, info.fleet, 0, 1000).unwrap();
            all.iter().filter(|event| event.entity == entity).count()
        }

        fn fenced(&self, name: &Name) -> Arc<Info> {
            let info = self.tracks.fleet_or_make(name).unwrap();
            let area = Area::Circle {
                centre: [18.0, 59.0],
                radius: 500.0,
            };
            let definition = Definition {
                area,
                when: When::default(),
                tags: Vec::new(),
            };
            self.tracks.put_fence(&info, name, definition).unwrap();
            info
        }

        /// Waits until the tables of this many entities were compacted.
        fn merged(&self, count: usize) -> Vec<Vec<u8>> {
            for _ in 0..3000 {
                let all = self.merged.lock().unwrap().clone();
                let left = write::purges(&*self.tracks.store().view(), None, 10, &mut |e| {
                    panic!("{e}")
                })
                .unwrap();
                if all.len() >= count && left.is_empty() {
                    return all;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            panic!("nothing was merged");
        }
    }

    /// An erasure that failed after its last part is finished by the same call, which erases the events.
    #[test]
    fn an_erasure_that_failed_is_repeated_by_the_same_call() {
        for fault in [EVENTS, DEVICE] {
            let dir = tempfile::tempdir().unwrap();
            let world = open(dir.path(), NOTHING);
            let name = Name::new("a").unwrap();
            let info = world.fenced(&name);
            world.report(&info, "a");
            world.report(&info, "b");
            assert_eq!(
                (world.events_of(&info, "a"), world.events_of(&info, "b")),
                (3, 3)
            );
            world.fails.store(fault, Ordering::Relaxed);
            assert!(world.tracks.erase(&info, &name).is_err());
            assert!(world.tracks.erase(&info, &name).is_err());
            world.fails.store(NOTHING, Ordering::Relaxed);
            let had_more = fault == EVENTS;
            assert_eq!(world.tracks.erase(&info, &name).unwrap(), had_more);
            assert_eq!(
                (world.events_of(&info, "a"), world.events_of(&info, "b")),
                (0, 3)
            );
            assert!(!world.tracks.erase(&info, &name).unwrap());
            // A later entity with this name is another one, with its own events.
            world.report(&info, "a");
            assert_eq!(world.events_of(&info, "a"), 3);
            let none = Name::new("none").unwrap();
            assert!(!world.tracks.erase(&info, &none).unwrap());
        }
    }

    /// Streams and pages read the settings of one fleet only.
    #[test]
    fn what_is_hidden_of_a_fleet_is_known_without_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let tracks = open(dir.path(), NOTHING).tracks;
        let change = |nth: u32, keep_days| {
            let name = Name::new(&format!("f{nth}")).unwrap();
            let info = tracks.change_fleet(&name, |settings| {
                (settings.keep_days, settings.silent_days) = (keep_days, nth);
                Ok(())
            });
            info.unwrap().fleet
        };
        let near = |a: Time, b: Time| a.0.abs_diff(b.0) < 60_000_000;
        let are_same = |count: usize| {
            let all = tracks.house.horizons();
            let known = tracks.fleets.all();
            assert_eq!(known.len(), count);
            for info in known {
                let all = all.get(&info.fleet).copied().unwrap_or_default();
                let one = tracks.house.horizon(info.fleet);
                assert!(near(all.points, one.points) && near(all.index, one.index));
            }
        };
        change(0, 0);
        are_same(1);
        assert!(tracks.horizon(Fleet(1)).is_empty());
        let kept = change(1, 2);
        change(2, 0);
        are_same(3);
        assert_eq!(tracks.horizon(kept).into_keys().collect::<Vec<_>>(), [kept]);
        // Rows that are hidden stay hidden even if the fleet keeps everything from now on.
        tracks.keep_house().unwrap();
        let first = tracks.first_event(kept);
        assert!(first > 0);
        change(1, 0);
        are_same(3);
        assert!(near(
            Time(tracks.first_event(kept) as i64),
            Time(first as i64)
        ));
        assert_eq!(tracks.house.horizon(Fleet(99)), keep::Horizon::default());
        // Also after a restart.
        drop(tracks);
        let tracks = open(dir.path(), NOTHING).tracks;
        let of = |fleet| tracks.fleets.of(fleet).map(|info| info.name.to_string());
        assert_eq!((of(kept), of(Fleet(99))), (Some("f1".to_owned()), None));
    }

    /// Live positions are forgotten before the events are erased, which may take seconds: an entity that reports
    /// meanwhile is not forgotten.
    #[test]
    fn positions_are_forgotten_before_events_are_erased() {
        for fault in [NOTHING, EVENTS] {
            let dir = tempfile::tempdir().unwrap();
            let world = open(dir.path(), NOTHING);
            let name = Name::new("a").unwrap();
            let info = world.fenced(&name);
            world.report(&info, "a");
            let told = Mutex::new(Vec::new());
            let behind = || {
                let is_gone = read::find(&*world.tracks.view(), info.fleet, &name);
                let events = world.events_of(&info, "a");
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                told.push((is_gone.unwrap().is_none(), events));
                world.fails.store(fault, Ordering::Relaxed);
            };
            let done = world.tracks.erase_telling(&info, &name, &behind);
            assert_eq!(done.is_ok(), fault == NOTHING);
            assert_eq!(*told.lock().unwrap(), [(true, 3)]);
            world.fails.store(NOTHING, Ordering::Relaxed);
            let none = Name::new("none").unwrap();
            assert!(!world.tracks.erase_telling(&info, &none, &behind).unwrap());
            assert_eq!(told.lock().unwrap().len(), 1);
        }
    }

    /// The tables of an erased entity are still compacted after a restart.
    #[test]
    fn what_was_erased_is_merged_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let world = open(dir.path(), COMPACTION);
        let name = Name::new("a").unwrap();
        // Without fences it has no events: its points are compacted all the same.
        let info = world.tracks.fleet_or_make(&name).unwrap();
        world.report(&info, "a");
        assert!(world.tracks.erase(&info, &name).unwrap());
        let World { tracks, merged, .. } = world;
        drop(tracks);
        assert!(merged.lock().unwrap().is_empty());
        let world = open(dir.path(), NOTHING);
        let key = |entity| {
            let (fleet, entity) = (info.fleet, Name::new(entity).unwrap().number(0));
            EntityKey { fleet, entity }.to_bytes().to_vec()
        };
        assert_eq!(world.merged(1), [key("a")]);
        world.report(&info, "b");
        world.tracks.erase(&info, &Name::new("b").unwrap()).unwrap();
        assert_eq!(world.merged(2), [key("a"), key("b")]);
        assert_eq!(world.tracks.house_failed(), None);
    }
}
