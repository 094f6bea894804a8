//! Where objects go: a file of places, made once, so that both engines get the same; of the simulator, or of a file of
//! real reports.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use base::{Error, Result};
use tracks::files::{self, Format, goes_on};
use tracks::geo::position::Position;
use tracks::model::report::Report;
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

/// Where an object goes.
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

/// Makes the file.
pub(crate) fn make(args: &Args) -> Result<PathBuf> {
    let bytes = match &args.reports {
        Some(file) => recorded(file, args)?,
        None => simulated(args)?,
    };
    std::fs::write(&args.out, bytes).map_err(|e| Error::io("cannot write", &args.out, e))?;
    Ok(args.out.clone())
}

/// What a file says, in the order of time. Errors: it cannot be read; none of its records is a report.
fn recorded(file: &Path, args: &Args) -> Result<Vec<u8>> {
    let format = args.format.map_or_else(|| Format::of_path(file), Ok)?;
    let text = std::fs::read(file).map_err(|e| Error::io("cannot read", file, e))?;
    let mut all: Vec<Report> = Vec::new();
    let mut bad = 0_u64;
    for record in files::open(format, &text[..], &files::Options::default()) {
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

/// Drivers in a city, each report in another cell than the one before.
fn simulated(args: &Args) -> Result<Vec<u8>> {
    let mut traffic = Traffic::new(&Options {
        seed: args.seed,
        objects: args.objects,
        stop_ms: 0,
        interval_ms: 10_000,
        each_report_changes_cell: true,
        ..Options::clean()
    })?;
    let mut bytes = Vec::with_capacity(args.places * Place::LEN);
    for sent in traffic.by_ref().take(args.places) {
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

/// Reads a file of places: for each of so many threads those of its objects, in their order.
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
    Ok(all)
}
