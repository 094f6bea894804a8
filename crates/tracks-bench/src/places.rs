//! Places of objects: a file that is made once, so that both engines get the same; from the
//! simulator, or from a file of real reports.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use base::{Error, Result};
use tracks::files::layout::geolife_entity;
use tracks::files::{self, Format, goes_on};
use tracks::geo::cell::Cell;
use tracks::geo::position::Position;
use tracks::model::report::Report;
use tracks::sim::plan::Plan;
use tracks::sim::{Options, Traffic};

/// What is made.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file
    #[arg(long)]
    out: PathBuf,
    /// How many objects
    #[arg(long, default_value_t = 1_000_000)]
    objects: u32,
    /// How many places in all
    #[arg(long, default_value_t = 8_000_000)]
    places: usize,
    /// Other places
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Real reports instead, of a file whose ending says its format: in the order of their times, so many places at most
    #[arg(long)]
    reports: Option<PathBuf>,
    /// The format of that file: csv, ndjson, geojson, gpx, geolife, t-drive or porto
    #[arg(long, requires = "reports")]
    format: Option<Format>,
}

/// A place of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) object: u32,
    pub(crate) position: Position,
    pub(crate) speed: u16,
    pub(crate) course: u16,
}

impl Place {
    const LEN: usize = 16;

    fn encode(self, out: &mut Vec<u8>) {
        out.extend(self.object.to_le_bytes());
        out.extend(self.position.lat().to_le_bytes());
        out.extend(self.position.lon().to_le_bytes());
        out.extend(self.speed.to_le_bytes());
        out.extend(self.course.to_le_bytes());
    }

    fn decode(bytes: [u8; Self::LEN]) -> Result<Self> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Ok(Self {
            object: u32::from_le_bytes([a, b, c, d]),
            position: Position::of_units(
                i32::from_le_bytes([e, f, g, h]),
                i32::from_le_bytes([i, j, k, l]),
            )?,
            speed: u16::from_le_bytes([m, n]),
            course: u16::from_le_bytes([o, p]),
        })
    }
}

/// Makes the file of places.
pub(crate) fn make(args: &Args) -> Result<PathBuf> {
    let bytes = match &args.reports {
        Some(file) => recorded(file, args)?,
        None => simulated(args)?,
    };
    std::fs::write(&args.out, bytes).map_err(|e| Error::io("cannot write", &args.out, e))?;
    Ok(args.out.clone())
}

/// The places of a file, in the order of time. Errors: it cannot be read; it has no report.
fn recorded(file: &Path, args: &Args) -> Result<Vec<u8>> {
    let format = args.format.map_or_else(|| Format::of_path(file), Ok)?;
    let text = std::fs::read(file).map_err(|e| Error::io("cannot read", file, e))?;
    let mut all: Vec<Report> = Vec::new();
    let mut bad = 0_u64;
    let mut options = files::Options::default();
    if format == Format::GeoLife {
        options.entity = Some(geolife_entity(file)?);
    }
    for record in files::open(format, &text[..], &options) {
        match record {
            Ok(record) => all.push(record.report),
            Err(e) if goes_on(&e) => bad += 1,
            Err(e) => return Err(e.or_file(file)),
        }
    }
    if all.is_empty() {
        let text = format!("the file has no reports; {bad} records are wrong");
        return Err(Error::invalid_argument(text).file(file));
    }
    if bad > 0 {
        eprintln!("{bad} records are wrong, and left out");
    }
    all.sort_by_key(|report| report.time);
    let mut numbers = HashMap::new();
    let mut bytes = Vec::with_capacity(all.len().min(args.places) * Place::LEN);
    for report in all.into_iter().take(args.places) {
        let next = numbers.len() as u32;
        let object = *numbers.entry(report.entity).or_insert(next);
        let point = report.point;
        let place = Place {
            object,
            position: point.position,
            speed: point.speed.unwrap_or(0),
            course: point.course.unwrap_or(0),
        };
        place.encode(&mut bytes);
    }
    Ok(bytes)
}

/// A city has at most so many objects. With more, there are more cities, so that a square with a hundred objects in it
/// has the same size whatever their number.
const CITY_MAX: u32 = 1_000_000;
/// The distance between two cities, degrees of longitude.
const CITIES_APART: f64 = 1.0;

/// Drivers in cities; each report has a different cell from the one before.
fn simulated(args: &Args) -> Result<Vec<u8>> {
    let mut cities = Vec::new();
    for first in (0..args.objects).step_by(CITY_MAX as usize) {
        let (lat, lon) = Plan::default().centre.degrees();
        let lon = lon + CITIES_APART * f64::from(first / CITY_MAX);
        let traffic = Traffic::new(&Options {
            seed: args.seed,
            objects: CITY_MAX.min(args.objects - first),
            first,
            plan: Plan::around(Position::of_degrees(lat, lon)?),
            stop_ms: 0,
            interval_ms: 10_000,
            each_report_changes_cell: true,
            ..Options::clean()
        })?;
        cities.push(traffic.peekable());
    }
    let count = cities.len();
    let mut bytes = Vec::with_capacity(args.places * Place::LEN);
    for _ in 0..args.places {
        let mut arrival = |nth: &usize| Some(cities.get_mut(*nth)?.peek()?.arrival);
        let earliest = (0..count).min_by_key(|nth| arrival(nth));
        let city = earliest.and_then(|nth| cities.get_mut(nth));
        let Some(sent) = city.and_then(Iterator::next) else {
            break;
        };
        let point = sent.report.point;
        let place = Place {
            object: sent.object,
            position: point.position,
            speed: point.speed.unwrap_or(0),
            course: point.course.unwrap_or(0),
        };
        place.encode(&mut bytes);
    }
    Ok(bytes)
}

/// Reads a file of places: for each thread those of its objects, in order. They are used in a
/// cycle: if an object's last place is in the cell of its first one, it is left out, unless there
/// are no others.
pub(crate) fn read(path: &PathBuf, threads: usize) -> Result<Vec<Vec<Place>>> {
    let bytes = std::fs::read(path).map_err(|e| {
        Error::io("cannot read", path, e).hint("`tracks_bench places` makes such a file")
    })?;
    let mut all = vec![Vec::new(); threads];
    let (places, rest) = bytes.as_chunks::<{ Place::LEN }>();
    if !rest.is_empty() {
        return Err(Error::corruption("not a file of places").file(path));
    }
    for place in places {
        let place = Place::decode(*place)?;
        if let Some(of_thread) = all.get_mut(place.object as usize % threads) {
            of_thread.push(place);
        }
    }
    for of_thread in &mut all {
        close(of_thread);
    }
    Ok(all)
}

/// One value for each object of these places. Objects are numbered from 0 on, without gaps.
fn for_each_object<T: Clone>(places: &[Place], value: T) -> Vec<T> {
    let most = places.iter().map(|place| place.object).max();
    vec![value; most.map_or(0, |most| most as usize + 1)]
}

/// Leaves out places at the end that are in the cell of the first one.
fn close(places: &mut Vec<Place>) {
    let mut first: Vec<Option<(usize, Cell)>> = for_each_object(places, None);
    for (nth, place) in places.iter().enumerate() {
        if let Some(first) = first.get_mut(place.object as usize) {
            first.get_or_insert_with(|| (nth, Cell::of(place.position)));
        }
    }
    let mut is_closed = for_each_object(places, false);
    let mut stays = vec![true; places.len()];
    for (nth, (place, stays)) in places.iter().zip(&mut stays).enumerate().rev() {
        let object = place.object as usize;
        let (Some(&Some((begin, cell))), Some(is_closed)) =
            (first.get(object), is_closed.get_mut(object))
        else {
            continue;
        };
        if !*is_closed && nth != begin && Cell::of(place.position) == cell {
            *stays = false;
        } else {
            *is_closed = true;
        }
    }
    let mut stays = stays.into_iter();
    places.retain(|_| stays.next().unwrap_or(true));
}

/// The share of places whose cell differs from that of their object's place before; the first one
/// follows the last.
pub(crate) fn changes(all: &[Vec<Place>]) -> f64 {
    let (mut changes, mut count) = (0_u64, 0_u64);
    for places in all {
        let mut at: HashMap<u32, Cell> = HashMap::new();
        for place in places {
            at.insert(place.object, Cell::of(place.position));
        }
        for place in places {
            let cell = Cell::of(place.position);
            changes += u64::from(at.insert(place.object, cell) != Some(cell));
            count += 1;
        }
    }
    changes as f64 / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(object: u32, lat: f64) -> Place {
        Place {
            object,
            position: Position::of_degrees(lat, 18.0).unwrap(),
            speed: 0,
            course: 0,
        }
    }

    #[test]
    fn what_ends_where_it_began_is_left_out() {
        // Of the first object the last two are left out; of the second none; of the third none,
        // because it has only one cell.
        let mut places = vec![
            place(0, 59.0),
            place(1, 59.0),
            place(2, 59.0),
            place(0, 60.0),
            place(1, 60.0),
            place(0, 59.0),
            place(2, 59.0),
            place(0, 59.0),
        ];
        close(&mut places);
        let left: Vec<u32> = places.iter().map(|place| place.object).collect();
        assert_eq!(left, [0, 1, 2, 0, 1]);
        let share = changes(&[places]);
        assert!((share - 0.8).abs() < 1e-9, "{share}");
    }

    /// Files of users, one of each format.
    #[test]
    fn files_of_real_reports_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            (
                "a.csv",
                None,
                "entity,lat,lon,time\na,59.0,18.0,1700000000\nb,59.1,18.0,1700000001\n",
            ),
            (
                "a.ndjson",
                None,
                "{\"entity\":\"a\",\"lat\":59,\"lon\":18,\"time\":1700000000}\n",
            ),
            (
                "7/Trajectory/a.plt",
                None,
                "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n\
                 39.9,116.3,0,492,39744.1,2008-10-23,02:53:04\n",
            ),
            (
                "1.txt",
                Some(Format::TDrive),
                "1,2008-02-02 15:36:08,116.5,39.9\n1,2008-02-02 15:46:08,116.6,39.9\n",
            ),
            (
                "a.gpx",
                None,
                "<gpx version=\"1.1\"><trk><name>a</name><trkseg><trkpt lat=\"59\" lon=\"18\"><time>2023-11-14T22:13:20Z</time>\
                 </trkpt></trkseg></trk></gpx>",
            ),
        ];
        for (name, format, text) in files {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
            let args = Args {
                out: dir.path().join("places"),
                objects: 0,
                places: 10,
                seed: 1,
                reports: Some(file),
                format,
            };
            let out = make(&args).unwrap_or_else(|e| panic!("{name}: {e}"));
            let places = read(&out, 2).unwrap();
            assert!(!places[0].is_empty(), "{name}");
        }
    }
}
