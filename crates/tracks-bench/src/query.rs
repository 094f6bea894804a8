//! Questions, quiet and beside reports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use base::rng::Rng;
use base::stats::Histogram;
use base::threads::SystemThreads;
use base::{Error, Result};
use serde::Serialize;
use tracks::fleets::Info;
use tracks::geo::position::Position;
use tracks::geo::shape::{Rectangle, Shape};
use tracks::model::name::Name;
use tracks::model::newest::Newest;
use tracks::model::time::Time;
use tracks::read::{self, Choice, Filter};
use tracks::service::{Options, Tracks};
use tracks::store::Family;
use tracks::write::{Ack, Ticket};

use crate::drive::{NOW, report};
use crate::places::{self, Place};
use crate::target;

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
}

/// What a kind of question took.
#[derive(Debug, Serialize)]
struct Asked {
    count: u64,
    p50_micros: f64,
    p99_micros: f64,
    mean_micros: f64,
    hits: f64,
    rows_per_hit: f64,
}

#[derive(Debug, Serialize)]
struct Results {
    engine: &'static str,
    objects: usize,
    rectangle: Asked,
    nearest: Asked,
    track: Asked,
    /// One scan of `latest`, each point tested.
    scan_micros: f64,
    reports_per_second: f64,
}

struct Service<'a> {
    tracks: &'a Tracks,
    fleet: &'a Info,
    clock: &'a dyn Clock,
    places: &'a [Place],
}

/// Loads, asks, and says what it took as JSON.
pub(crate) fn run(target: &target::Args, args: &Args) -> Result<String> {
    let clock = SystemClock::shared();
    let places: Vec<Place> = places::read(&args.places, 1)?
        .into_iter()
        .flatten()
        .collect();
    let opened = target.open()?;
    let mut options = Options::default();
    options.write.visits = false;
    let store = Arc::clone(&opened.store);
    let tracks = Tracks::over(store, &options, Arc::clone(&clock), &SystemThreads)?;
    let name = Name::new("fleet")?;
    let fleet = tracks.fleets().get_or_make(&*opened.store, &name)?;
    let service = Service {
        tracks: &tracks,
        fleet: &fleet,
        clock: &*clock,
        places: &places,
    };
    let objects = places.iter().map(|place| place.object).max().unwrap_or(0) as usize + 1;
    let count = objects.saturating_mul(args.rounds).min(places.len());
    service.load(count)?;
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| service.write(count, args.reports, &ends));
        let results = service.ask_all(args.seconds, (target.engine(), objects));
        ends.store(true, Ordering::Relaxed);
        let rate = writer
            .join()
            .map_err(|_| Error::broken("a thread panicked"))??;
        let mut results = results?;
        results.reports_per_second = rate;
        serde_json::to_string(&results).map_err(|e| Error::broken(e.to_string()))
    })
}

impl Service<'_> {
    /// The first places, in calls of 256, some at once.
    fn load(&self, count: usize) -> Result<()> {
        let mut tickets: VecDeque<Ticket> = VecDeque::new();
        let first = self.places.get(..count).unwrap_or_default();
        for (call, nth) in first.chunks(256).zip(0..) {
            let reports: Result<Vec<_>> = call
                .iter()
                .zip(256 * nth..)
                .map(|(place, nth)| report(place, nth))
                .collect();
            tickets.push_back(
                self.tracks
                    .report_at(self.fleet, reports?, Ack::Visible, NOW)?,
            );
            if tickets.len() > 64
                && let Some(first) = tickets.pop_front()
            {
                first.wait()?;
            }
        }
        tickets
            .into_iter()
            .try_for_each(|ticket| ticket.wait().map(drop))
    }

    /// Reports so many a second, until it ends; how many it were.
    fn write(&self, from: usize, per_second: u64, ends: &AtomicBool) -> Result<f64> {
        let start = self.clock.monotonic_nanos();
        let seconds = || (self.clock.monotonic_nanos() - start) as f64 / 1e9;
        let mut tickets: VecDeque<Ticket> = VecDeque::new();
        let mut sent = 0_u64;
        for (place, nth) in self.places.iter().cycle().skip(from).zip(from as i64..) {
            if ends.load(Ordering::Relaxed) || per_second == 0 {
                break;
            }
            while sent as f64 > seconds() * per_second as f64 {
                self.clock.sleep(Duration::from_millis(1));
            }
            let one = vec![report(place, nth)?];
            tickets.push_back(self.tracks.report_at(self.fleet, one, Ack::Visible, NOW)?);
            sent += 1;
            if tickets.len() > 1000
                && let Some(first) = tickets.pop_front()
            {
                first.wait()?;
            }
        }
        tickets
            .into_iter()
            .try_for_each(|ticket| ticket.wait().map(drop))?;
        Ok(sent as f64 / seconds())
    }

    fn ask_all(&self, seconds: u64, (engine, objects): (&'static str, usize)) -> Result<Results> {
        let half = self.size_for(100.0)?;
        let fleet = self.fleet.fleet;
        let rectangle = self.ask(seconds, &|place| self.rectangle(place, half))?;
        let nearest = self.ask(seconds, &|place| {
            let (view, patience) = (self.tracks.view(), self.tracks.patience());
            let asked = (place.position, Filter::default());
            let hits = read::nearby(&*view, fleet, asked, (10, f64::MAX), &patience)?;
            Ok((hits.len(), patience.rows()))
        })?;
        let track = self.ask(seconds, &|place| {
            let (view, patience) = (self.tracks.view(), self.tracks.patience());
            let name = Name::new(&format!("car-{:07}", place.object))?;
            let Some(entity) = read::find(&*view, fleet, &name)? else {
                return Ok((0, 0));
            };
            let track = read::track(&*view, (fleet, entity), &Choice::default(), &patience)?;
            Ok((track.parts.iter().map(Vec::len).sum(), patience.rows()))
        })?;
        Ok(Results {
            engine,
            objects,
            rectangle,
            nearest,
            track,
            scan_micros: self.scan(half)?,
            reports_per_second: 0.0,
        })
    }

    fn ask(&self, seconds: u64, one: &dyn Fn(Place) -> Result<(usize, u64)>) -> Result<Asked> {
        let mut rng = Rng::new(7);
        let mut latencies = Histogram::new();
        let (mut hits, mut rows) = (0, 0);
        let end = self.clock.monotonic_nanos() + seconds * 1_000_000_000;
        while self.clock.monotonic_nanos() < end {
            let place = self.some_place(&mut rng)?;
            let start = self.clock.monotonic_nanos();
            let (found, read) = one(place)?;
            latencies.add(self.clock.monotonic_nanos() - start);
            hits += found;
            rows += read;
        }
        let count = latencies.count();
        Ok(Asked {
            count,
            p50_micros: latencies.percentile(50.0) / 1000.0,
            p99_micros: latencies.percentile(99.0) / 1000.0,
            mean_micros: latencies.average() / 1000.0,
            hits: hits as f64 / count.max(1) as f64,
            rows_per_hit: rows as f64 / hits.max(1) as f64,
        })
    }

    fn some_place(&self, rng: &mut Rng) -> Result<Place> {
        let nth = rng.below(self.places.len().max(1) as u64) as usize;
        let place = self.places.get(nth).copied();
        place.ok_or_else(|| Error::invalid_argument("a file without places"))
    }

    /// How many are in a square around a place, of so many degrees of latitude to each side.
    fn rectangle(&self, place: Place, half: f64) -> Result<(usize, u64)> {
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
        Ok((page.hits.len(), patience.rows()))
    }

    /// The size of a square with so many in it, in the mean.
    fn size_for(&self, hits: f64) -> Result<f64> {
        let (mut low, mut high) = (1e-5, 1.0);
        for _ in 0..20 {
            let half = f64::midpoint(low, high);
            let mut rng = Rng::new(3);
            let mut found = 0;
            for _ in 0..50 {
                found += self.rectangle(self.some_place(&mut rng)?, half)?.0;
            }
            if found as f64 > hits * 50.0 {
                high = half;
            } else {
                low = half;
            }
        }
        Ok(low)
    }

    /// Looks at each entity's newest point.
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
}

fn square(around: Position, half: f64) -> Result<Rectangle> {
    let (lat, lon) = around.degrees();
    let wide = half / lat.to_radians().cos();
    Rectangle::of_degrees(lon - wide, lat - half, lon + wide, lat + half)
}
