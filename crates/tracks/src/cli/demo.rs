//! `demo`: a simulated city that moves in real time, served on this machine, with a map.
//!
//! Objects report through the service, as over HTTP. Some minutes are simulated first, as fast as
//! the service takes them, so that there are tracks and events from the beginning.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use base::clock::SystemClock;
use base::threads::SystemThreads;
use base::{Error, ErrorKind, Result};
use tracks::fence::{Area, Definition, When};
use tracks::fleets::Info;
use tracks::geo::position::Position;
use tracks::http::{Config, Map, Server, Service};
use tracks::model::name::Name;
use tracks::model::report::Report;
use tracks::model::time::{SECOND, Time};
use tracks::service::{Options, Tracks};
use tracks::sim::noise::Faults;
use tracks::sim::plan::{Plan, Road};
use tracks::sim::roads::City;
use tracks::sim::{self, Sent, Traffic};
use tracks::store::{Engine, Store};
use tracks::write::Ack;

use super::args::Demo;
use super::serve::check_open;
use super::signals::{Wish, on_signals};
use super::{print, say};

/// The centre of the city: latitude, longitude.
const CENTRE: (f64, f64) = (59.3293, 18.0686);
const RADIUS_M: f64 = 6000.0;
const FLEET: &str = "city";
/// Each object has one of these tags.
const TAGS: [&str; 3] = ["taxi", "courier", "bus"];
/// The approximate limit for reports of the past.
const PAST_MAX: u64 = 200_000;
/// How often reports are passed to the service.
const STEP: Duration = Duration::from_millis(100);
/// Reports that are later than this are left out: the machine is too slow.
const LATE: i64 = 3 * SECOND;
/// The most reports that are passed together.
const BATCH: usize = 2000;

pub(crate) fn run(args: &Demo) -> Result<ExitCode> {
    check_open(args.listen, false)?;
    let (sender, stopped) = channel();
    on_signals(&SystemThreads, move |wish| {
        if wish == Wish::Stop {
            // If the receiver is gone, the process is ending.
            sender.send(()).unwrap_or_default();
        }
    })?;
    let (dir, clock) = (Folder::new(args.dir.as_deref())?, SystemClock::shared());
    let centre = Position::of_degrees(CENTRE.0, CENTRE.1)?;
    let plan = Plan {
        radius_m: RADIUS_M,
        ..Plan::around(centre)
    };
    let city = Arc::new(City::new(&plan)?);
    let engine = Engine::open(&dir.path)?;
    let db = Arc::clone(engine.db());
    let store: Arc<dyn Store> = Arc::new(engine);
    let tracks = Arc::new(Tracks::over(
        store,
        &Options::default(),
        Arc::clone(&clock),
        &SystemThreads,
    )?);
    let fleet = fleet(&tracks)?;
    let begun = tracks.now();
    let mut moving = Moving::new(args, &city, begun)?;
    if args.past > 0 {
        say(&format!(
            "simulating the last {} minutes of {} objects",
            args.past, args.objects
        ));
    }
    moving.past(&tracks, &fleet, begun, &stopped)?;
    let service = Service {
        tracks: Arc::clone(&tracks),
        db: Some(db),
        tokens: None,
    };
    let config = Config {
        map: Map::default().with_base(roads(&city)?)?,
        ..Config::default()
    };
    let server = Server::start(args.listen, service, config)?;
    print(&welcome(args, &server.address().to_string()));
    let done = moving.live(&tracks, &fleet, args.seconds, &stopped);
    say("stopping");
    server.stop()?;
    done?;
    drop(tracks);
    Ok(ExitCode::SUCCESS)
}

fn welcome(args: &Demo, address: &str) -> String {
    let (lat, lon) = CENTRE;
    let base = format!("http://{address}");
    let fleet = format!("{base}/v1/fleets/{FLEET}");
    format!(
        "A city with {} objects moves. Ctrl-C ends it.\n\n  map: {base}/map\n\n\
         \x20 curl '{fleet}/nearby?lat={lat}&lon={lon}&k=3'\n\
         \x20 curl '{fleet}/within?circle={lat},{lon},500&tag=taxi'\n\
         \x20 curl '{fleet}/entities/car-000001/summary'\n",
        args.objects
    )
}

/// The folder of the tracks. A temporary one is removed at the end.
struct Folder {
    path: PathBuf,
    is_ours: bool,
}

impl Folder {
    fn new(wanted: Option<&Path>) -> Result<Self> {
        if let Some(path) = wanted {
            return Ok(Self {
                path: path.to_owned(),
                is_ours: false,
            });
        }
        let name = format!("ironstone-tracks-demo-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(|e| Error::io("make", &path, e))?;
        Ok(Self {
            path,
            is_ours: true,
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(e) = std::fs::remove_dir_all(&self.path)
        {
            say(&format!("note: {} is left: {e}", self.path.display()));
        }
    }
}

/// The fleet, with its tags and some fences.
fn fleet(tracks: &Tracks) -> Result<Arc<Info>> {
    let name = Name::new(FLEET)?;
    let info = tracks
        .fleets()
        .change(&**tracks.store(), &name, |settings| {
            for tag in TAGS {
                if !settings.tags.iter().any(|known| known == tag) {
                    settings.tags.push(tag.to_owned());
                }
            }
            Ok(())
        })?;
    for (name, area, dwell_seconds, tags) in fences() {
        let definition = Definition {
            area,
            when: When {
                dwell_seconds,
                ..When::default()
            },
            tags,
        };
        tracks.put_fence(&info, &Name::new(name)?, definition)?;
    }
    Ok(info)
}

type FenceOf = (&'static str, Area, u32, Vec<String>);

/// Converts metres east and north of the centre to longitude and latitude.
fn at(east: f64, north: f64) -> [f64; 2] {
    let degrees = 1.0 / 111_195.0;
    let lon = CENTRE.1 + east * degrees / CENTRE.0.to_radians().cos();
    let round = |value: f64| (value * 1e6).round() / 1e6;
    [round(lon), round(CENTRE.0 + north * degrees)]
}

fn fences() -> [FenceOf; 4] {
    let ([west, south], [east, north]) = (at(2300.0, 1500.0), at(3900.0, 2700.0));
    let harbour = [
        (-3600.0, -2600.0),
        (-2200.0, -3100.0),
        (-1500.0, -2300.0),
        (-2100.0, -1500.0),
        (-3300.0, -1700.0),
    ];
    let mut ring: Vec<[f64; 2]> = harbour.into_iter().map(|(x, y)| at(x, y)).collect();
    ring.extend(ring.first().copied());
    let centre = Area::Circle {
        centre: at(0.0, 0.0),
        radius: 700.0,
    };
    let avenue = Area::Corridor {
        coordinates: vec![at(-3000.0, 2900.0), at(-1000.0, 3000.0), at(400.0, 3900.0)],
        width: 150.0,
    };
    let depot = Area::Rectangle {
        bbox: [west, south, east, north],
    };
    let harbour = Area::Polygon {
        coordinates: vec![ring],
    };
    [
        ("centre", centre, 0, Vec::new()),
        ("depot", depot, 120, Vec::new()),
        ("harbour", harbour, 0, Vec::new()),
        ("avenue", avenue, 0, vec!["taxi".to_owned()]),
    ]
}

/// The roads as GeoJSON, one line of many parts for each class.
fn roads(city: &City) -> Result<Vec<u8>> {
    let mut lines = [String::new(), String::new(), String::new()];
    for (from, to, road) in city.roads() {
        let class = match road {
            Road::Street => 0,
            Road::Main => 1,
            Road::Fast => 2,
        };
        let ((a, b), (c, d)) = (from.degrees(), to.degrees());
        if let Some(line) = lines.get_mut(class) {
            let comma = if line.is_empty() { "" } else { "," };
            write!(line, "{comma}[[{b:.5},{a:.5}],[{d:.5},{c:.5}]]").map_err(Error::broken)?;
        }
    }
    let feature = |(name, line): (&str, &String)| {
        format!(
            "{{\"type\":\"Feature\",\"properties\":{{\"class\":\"{name}\"}},\
             \"geometry\":{{\"type\":\"MultiLineString\",\"coordinates\":[{line}]}}}}"
        )
    };
    let features: Vec<String> = ["street", "main", "fast"]
        .into_iter()
        .zip(&lines)
        .map(feature)
        .collect();
    let text = format!(
        "{{\"type\":\"FeatureCollection\",\"features\":[{}]}}",
        features.join(",")
    );
    Ok(text.into_bytes())
}

/// The moving objects: traffic whose time runs `speed` times as fast as the clock.
struct Moving {
    traffic: Traffic,
    begin: Time,
    speed: i64,
    /// In the past, only one of this many reports is used.
    every: u32,
    /// A report that is not due yet.
    next: Option<Sent>,
    left_out: u64,
}

impl Moving {
    fn new(args: &Demo, city: &Arc<City>, now: Time) -> Result<Self> {
        let (objects, speed) = (u64::from(args.objects), i64::from(args.speed));
        let past = u64::from(args.past) * 60;
        let interval = (objects * 1000)
            .div_ceil(u64::from(args.reports_per_second))
            .max(1000);
        let reports = past * 1000 * objects / interval;
        let begin = Time(now.0 - past.cast_signed() * SECOND);
        let in_city = |ms: u64| u32::try_from(ms * u64::from(args.speed)).unwrap_or(u32::MAX);
        let options = sim::Options {
            objects: args.objects,
            start: begin,
            interval_ms: in_city(interval).min(86_400_000),
            stop_ms: 90_000,
            faults: Faults {
                noise_m: 2.0,
                ..Faults::none()
            },
            ..sim::Options::default()
        };
        Ok(Self {
            traffic: Traffic::in_city(Arc::clone(city), &options)?,
            begin,
            speed,
            every: u32::try_from(reports.div_ceil(PAST_MAX))
                .unwrap_or(u32::MAX)
                .max(1),
            next: None,
            left_out: 0,
        })
    }

    /// Converts a time of the traffic to one of the clock.
    fn by_clock(&self, time: Time) -> Time {
        Time(self.begin.0 + (time.0 - self.begin.0) / self.speed)
    }

    /// The next report, if it is due by `now`.
    fn due(&mut self, now: Time) -> Option<Sent> {
        let next = self.next.take().or_else(|| self.traffic.next())?;
        if self.by_clock(next.arrival).0 > now.0 {
            self.next = Some(next);
            return None;
        }
        Some(next)
    }

    fn report(&self, sent: Sent) -> Report {
        let mut report = sent.report;
        report.time = Some(self.by_clock(sent.time));
        report.point.tags = 1 << (sent.object as usize % TAGS.len());
        report
    }

    /// Passes all reports until `now` to the service, or fewer if that would take long.
    fn past(
        &mut self,
        tracks: &Tracks,
        fleet: &Info,
        now: Time,
        stopped: &Receiver<()>,
    ) -> Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        while let Some(sent) = self.due(now) {
            if sent.nth % self.every != sent.object % self.every {
                continue;
            }
            let arrival = self.by_clock(sent.arrival);
            batch.push(self.report(sent));
            if batch.len() >= BATCH {
                give(tracks, fleet, &mut batch, arrival)?;
                // The signal is sent only once: received here, it ends the demo before `live`.
                if stopped.try_recv().is_ok() {
                    return Err(Error::new(
                        ErrorKind::Aborted,
                        "stopped before it was ready",
                    ));
                }
            }
        }
        give(tracks, fleet, &mut batch, now)
    }

    /// Passes reports as they become due, until it is told to stop or the time is over.
    fn live(
        &mut self,
        tracks: &Tracks,
        fleet: &Info,
        seconds: Option<u64>,
        stopped: &Receiver<()>,
    ) -> Result<()> {
        let clock = SystemClock::shared();
        let end = seconds.map(|s| clock.monotonic_nanos() + s * 1_000_000_000);
        let mut batch = Vec::with_capacity(BATCH);
        while end.is_none_or(|end| clock.monotonic_nanos() < end) {
            match stopped.recv_timeout(STEP) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = tracks.now();
            while let Some(sent) = self.due(now) {
                if now.0 - self.by_clock(sent.arrival).0 > LATE {
                    self.left_out += 1;
                    continue;
                }
                batch.push(self.report(sent));
                if batch.len() >= BATCH {
                    give(tracks, fleet, &mut batch, now)?;
                }
            }
            give(tracks, fleet, &mut batch, now)?;
        }
        if self.left_out > 0 {
            say(&format!(
                "note: {} reports were left out: this machine is too slow for so many objects",
                self.left_out
            ));
        }
        Ok(())
    }
}

/// Passes reports to the service, and waits while too many are in progress.
fn give(tracks: &Tracks, fleet: &Info, batch: &mut Vec<Report>, arrival: Time) -> Result<()> {
    let clock = SystemClock::shared();
    while !batch.is_empty() {
        match tracks.report_at(fleet, batch.clone(), Ack::Visible, arrival) {
            Ok(ticket) => {
                let mut outcomes = ticket.wait().outcomes.into_iter();
                outcomes.try_for_each(|outcome| outcome.map(drop))?;
                batch.clear();
            }
            Err(e) if e.kind() == ErrorKind::Busy => clock.sleep(STEP),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beneath_is_geojson_and_fences_are_areas() {
        let plan = Plan {
            radius_m: 1000.0,
            destinations: 10,
            ..Plan::default()
        };
        let roads = roads(&City::new(&plan).unwrap()).unwrap();
        assert!(Map::default().with_base(roads).is_ok());
        for (name, area, ..) in fences() {
            area.shape().unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}
