//! Queries, alone and beside reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::clock::{Clock, SystemClock};
use base::rng::Rng;
use base::stats::Histogram;
use base::threads::SystemThreads;
use base::{Error, Result};
use serde::Serialize;
use tracks::fleets::Info;
use tracks::geo::position::Position;
use tracks::geo::shape::{Rectangle, Shape};
use tracks::geo::surface::Surface;
use tracks::model::name::Name;
use tracks::model::newest::Newest;
use tracks::model::time::{SECOND, Time};
use tracks::read::{self, Choice, Filter, Patience};
use tracks::service::{Options, Tracks};
use tracks::store::Family;

use crate::load::{self, BEGIN, Load};
use crate::places::{self, Place};
use crate::redis::{self, Redis};
use crate::target;
use crate::tile38::{self, Tile38};

/// The mean number of entities in the squares of queries.
const SQUARE_HITS: f64 = 100.0;
/// The mean number of entities in the circles in which Redis searches for the nearest.
const CIRCLE_HITS: f64 = 1000.0;
/// Reports of an object per day.
const DAY: usize = 8640;

/// What is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file of places that objects go through
    #[arg(long)]
    places: std::path::PathBuf,
    /// Seconds of each kind of question
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Reports a second meanwhile; 0: none
    #[arg(long, default_value_t = 0)]
    reports: u64,
    /// Reports of each object before the questions
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Objects that have a day's track, one report each ten seconds
    #[arg(long, default_value_t = 100)]
    days: u32,
    /// The database is compacted before the questions
    #[arg(long)]
    compacted: bool,
    /// This redis-server is asked the same about the same objects
    #[arg(long, value_name = "PATH")]
    redis: Option<std::path::PathBuf>,
    /// This tile38-server is asked the same about the same objects
    #[arg(long, value_name = "PATH")]
    tile38: Option<std::path::PathBuf>,
}

/// The measurements of one kind of query.
#[derive(Debug, Serialize)]
struct Asked {
    count: u64,
    p50_micros: f64,
    p99_micros: f64,
    mean_micros: f64,
    hits: f64,
    rows_per_hit: f64,
    /// Tombstones and the entries they hide, per hit.
    dead_per_hit: f64,
}

#[derive(Debug, Serialize)]
struct Results {
    engine: &'static str,
    objects: usize,
    load_seconds: f64,
    rectangle: Asked,
    nearest: Asked,
    hour: Asked,
    day: Asked,
    /// A scan of `latest` that tests each point.
    scan_micros: f64,
    reports_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    redis: Option<redis::Results>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tile38: Option<tile38::Results>,
}

struct Service<'a> {
    tracks: &'a Tracks,
    fleet: &'a Info,
    clock: &'a dyn Clock,
    places: &'a [Place],
    args: &'a Args,
}

/// The result of a query.
struct Found {
    hits: usize,
    patience: Patience,
}

/// Loads the database and runs the queries. Returns the measurements as JSON.
pub(crate) fn run(target: &target::Args, args: &Args) -> Result<String> {
    let clock = SystemClock::shared();
    let read = places::read(&args.places, 1)?;
    let places: Vec<Place> = read.into_iter().flatten().collect();
    let opened = target.open()?;
    let store = Arc::clone(&opened.store);
    let tracks = Tracks::over(
        store,
        &Options::default(),
        Arc::clone(&clock),
        &SystemThreads,
    )?;
    let name = Name::new("fleet")?;
    let fleet = tracks.fleets().get_or_make(&*opened.store, &name)?;
    let objects = places.iter().map(|place| place.object).max().unwrap_or(0) as usize + 1;
    let count = objects.saturating_mul(args.rounds);
    // The other engines load as many objects as the file has in one cycle.
    let others = places.get(..count.min(places.len())).unwrap_or_default();
    let load = Load {
        tracks: &tracks,
        fleet: &fleet,
        clock: &*clock,
    };
    let start = clock.monotonic_nanos();
    load.all(places.iter().copied().cycle().take(count))?;
    let load_seconds = (clock.monotonic_nanos() - start) as f64 / 1e9;
    load.days(&places, args.days, DAY)?;
    if args.compacted {
        opened.compact()?;
    }
    let service = Service {
        tracks: &tracks,
        fleet: &fleet,
        clock: &*clock,
        places: &places,
        args,
    };
    let ends = AtomicBool::new(false);
    let mut results = std::thread::scope(|scope| {
        let writer = scope.spawn(|| load.on(&places, count, args.reports, &ends));
        let results = service.ask_all((target.engine(), objects, load_seconds));
        ends.store(true, Ordering::Relaxed);
        let rate = writer.join();
        let rate = rate.map_err(|_| Error::broken("a thread panicked"))??;
        let mut results = results?;
        results.reports_per_second = rate;
        Ok(results)
    })?;
    if let Some(path) = &args.redis {
        results.redis = Some(service.ask_redis(path, others)?);
    }
    if let Some(path) = &args.tile38 {
        results.tile38 = Some(service.ask_tile38(path, others)?);
    }
    serde_json::to_string(&results).map_err(|e| Error::broken(e.to_string()))
}

impl Service<'_> {
    fn ask_all(
        &self,
        (engine, objects, load_seconds): (&'static str, usize, f64),
    ) -> Result<Results> {
        let half = self.size_for(SQUARE_HITS)?;
        let rectangle = self.ask(&|place| self.rectangle(place, half))?;
        let nearest = self.ask(&|place| self.nearest(place))?;
        let hour = self.ask(&|place| self.hour(place, half))?;
        let day = self.ask(&|place| self.day(place))?;
        Ok(Results {
            engine,
            objects,
            load_seconds,
            rectangle,
            nearest,
            hour,
            day,
            scan_micros: self.scan(half)?,
            reports_per_second: 0.0,
            redis: None,
            tile38: None,
        })
    }

    fn ask(&self, one: &dyn Fn(Place) -> Result<Found>) -> Result<Asked> {
        let mut rng = Rng::new(7);
        let mut latencies = Histogram::new();
        let (mut hits, mut rows, mut dead) = (0, 0, 0);
        let end = self.clock.monotonic_nanos() + self.args.seconds * 1_000_000_000;
        while self.clock.monotonic_nanos() < end {
            let place = self.some_place(&mut rng)?;
            let start = self.clock.monotonic_nanos();
            let found = one(place)?;
            latencies.add(self.clock.monotonic_nanos() - start);
            hits += found.hits;
            rows += found.patience.rows();
            dead += found.patience.skipped();
        }
        let count = latencies.count();
        let per_hit = |of: u64| of as f64 / hits.max(1) as f64;
        Ok(Asked {
            count,
            p50_micros: latencies.percentile(50.0) / 1000.0,
            p99_micros: latencies.percentile(99.0) / 1000.0,
            mean_micros: latencies.average() / 1000.0,
            hits: hits as f64 / count.max(1) as f64,
            rows_per_hit: per_hit(rows),
            dead_per_hit: per_hit(dead),
        })
    }

    fn some_place(&self, rng: &mut Rng) -> Result<Place> {
        let nth = rng.below(self.places.len().max(1) as u64) as usize;
        let place = self.places.get(nth).copied();
        place.ok_or_else(|| Error::invalid_argument("a file without places"))
    }

    /// Entities in a square around a place, of `half` degrees of latitude to each side.
    fn rectangle(&self, place: Place, half: f64) -> Result<Found> {
        let (view, patience) = (self.tracks.view(), self.tracks.patience());
        let area = square(place.position, half)?;
        let asked = (&area as &dyn Shape, Filter::default());
        let page = read::within(
            &*view,
            self.fleet.fleet,
            asked,
            (usize::MAX, None),
            &patience,
        )?;
        let hits = page.hits.len();
        Ok(Found { hits, patience })
    }

    /// The nearest ten.
    fn nearest(&self, place: Place) -> Result<Found> {
        let (view, patience) = (self.tracks.view(), self.tracks.patience());
        let asked = (place.position, Filter::default());
        let how = (10, f64::MAX, Surface::Sphere);
        let hits = read::nearby(&*view, self.fleet.fleet, asked, how, &patience)?.len();
        Ok(Found { hits, patience })
    }

    /// Entities that were in a square in the first hour of the reports.
    fn hour(&self, place: Place, half: f64) -> Result<Found> {
        let (view, patience) = (self.tracks.view(), self.tracks.patience());
        let area = square(place.position, half)?;
        let asked = (&area as &dyn Shape, BEGIN, Time(BEGIN.0 + 3600 * SECOND));
        let found = read::visitors(
            &*view,
            self.fleet.fleet,
            asked,
            (usize::MAX, None),
            &patience,
        )?;
        let hits = found.visits.len();
        Ok(Found { hits, patience })
    }

    /// The track of a day.
    fn day(&self, place: Place) -> Result<Found> {
        let (view, patience) = (self.tracks.view(), self.tracks.patience());
        let name = load::day_name(place.object % self.args.days.max(1))?;
        let Some(entity) = read::find(&*view, self.fleet.fleet, &name)? else {
            return Ok(Found { hits: 0, patience });
        };
        let whole = (self.fleet.fleet, entity);
        let track = read::track(&*view, whole, &Choice::default(), &patience)?;
        let hits = track.parts.iter().map(Vec::len).sum();
        Ok(Found { hits, patience })
    }

    /// The size of a square that has this many entities in the mean, by doubling and then
    /// bisection.
    fn size_for(&self, hits: f64) -> Result<f64> {
        const ASKED: u32 = 50;
        let has_more = |half: f64| -> Result<bool> {
            let mut rng = Rng::new(3);
            let mut found = 0;
            for _ in 0..ASKED {
                found += self.rectangle(self.some_place(&mut rng)?, half)?.hits;
            }
            Ok(found as f64 > hits * f64::from(ASKED))
        };
        let mut high = 1e-5;
        while high < 1.0 && !has_more(high)? {
            high *= 2.0;
        }
        let mut low = high / 2.0;
        for _ in 0..10 {
            let half = f64::midpoint(low, high);
            if has_more(half)? {
                high = half;
            } else {
                low = half;
            }
        }
        Ok(low)
    }

    /// Reads each entity's newest point.
    fn scan(&self, half: f64) -> Result<f64> {
        let area = square(self.some_place(&mut Rng::new(5))?.position, half)?;
        let start = self.clock.monotonic_nanos();
        let view = self.tracks.view();
        let mut rows = view.rows(Family::Latest, &[], None)?;
        rows.seek(&[]);
        let mut hits: Vec<Time> = Vec::new();
        while let Some((_, value)) = rows.row() {
            let Newest { time, point, .. } = Newest::decode(value)?;
            hits.extend(area.has(point.position).then_some(time));
            rows.next();
        }
        rows.status()?;
        Ok((self.clock.monotonic_nanos() - start) as f64 / 1000.0)
    }

    /// The same queries with Redis, whose times are its own figures.
    fn ask_redis(&self, path: &std::path::Path, places: &[Place]) -> Result<redis::Results> {
        let (square, circle) = (self.size_for(SQUARE_HITS)?, self.size_for(CIRCLE_HITS)?);
        let mut redis = Redis::start(path, self.clock)?;
        redis.load(places)?;
        redis.ask(&self.asked()?, (square, circle))
    }

    /// The same queries with Tile38, whose times are its own figures.
    fn ask_tile38(&self, path: &std::path::Path, places: &[Place]) -> Result<tile38::Results> {
        let mut tile38 = Tile38::start(path, self.clock)?;
        tile38.load(places)?;
        tile38.ask(&self.asked()?, self.size_for(SQUARE_HITS)?)
    }

    /// The places around which the other engines are queried.
    fn asked(&self) -> Result<Vec<Place>> {
        let mut rng = Rng::new(7);
        (0..20_000).map(|_| self.some_place(&mut rng)).collect()
    }
}

fn square(around: Position, half: f64) -> Result<Rectangle> {
    let (lat, lon) = around.degrees();
    let wide = half / lat.to_radians().cos();
    Rectangle::of_degrees(lon - wide, lat - half, lon + wide, lat + half)
}
