//! Files of positions: read as streams with little memory, and written.
//!
//! ```text
//!   csv, layout   CSV with a map of its columns; GeoLife, T-Drive, Porto
//!   ndjson, json  one JSON object in each line
//!   geojson       Features: points, and lines with times        scan   the ends of JSON values in a stream
//!   gpx           tracks of GPX 1.0 and 1.1
//!   writer        writes the first four formats                 lines  lines, with a limit of their length
//! ```
//!
//! Whatever a file contains, it takes bounded memory, and time proportional to its length: lines
//! have at most 64 KiB (in files of Porto 1 MiB), features 8 MiB, tags 1 MiB. An invalid record is
//! an error that names the field and the place, and the next record follows; see [`record`].

mod csv;
mod format;
pub(crate) mod geojson;
mod gpx;
pub mod json;
pub mod layout;
mod lines;
mod ndjson;
mod number;
mod options;
pub mod record;
mod scan;
pub(crate) mod times;
mod writer;

use std::io::BufRead;

use base::Result;

use self::csv::Csv;
pub use self::format::Format;
use self::geojson::GeoJson;
use self::gpx::Gpx;
use self::layout::Layout;
use self::ndjson::Ndjson;
pub use self::options::Options;
pub use self::record::{Place, Record, goes_on};
pub use self::writer::{Writer, write};

#[derive(Debug)]
enum Reading<R> {
    Csv(Box<Csv<R>>),
    Ndjson(Box<Ndjson<R>>),
    GeoJson(Box<GeoJson<R>>),
    Gpx(Box<Gpx<R>>),
}

/// The records of a file, in its order.
///
/// An item is an error if a record is invalid; the reader continues after it if [`goes_on`] says
/// so, and ends otherwise.
#[derive(Debug)]
pub struct Reader<R>(Reading<R>);

/// Reads a file from its beginning.
///
/// ```
/// use tracks::files::{Format, Options, open};
/// let file = "entity,lat,lon,time\ncar1,59.3293,18.0686,1700000000.5\ncar1,91,0,1700000001\n";
/// let mut reader = open(Format::Csv, file.as_bytes(), &Options::default());
/// assert_eq!(reader.next().unwrap()?.report.entity.as_str(), "car1");
/// let e = reader.next().unwrap().unwrap_err().to_string();
/// assert!(e.contains("line 3: latitude 91"));
/// assert!(reader.next().is_none());
/// # Ok::<(), base::Error>(())
/// ```
pub fn open<R: BufRead>(format: Format, read: R, options: &Options) -> Reader<R> {
    let layout = match format {
        Format::GeoLife => Layout::geolife(),
        Format::TDrive => Layout::t_drive(),
        Format::Porto => Layout::porto(),
        _ => options.layout.clone(),
    };
    Reader(match format {
        Format::Ndjson => Reading::Ndjson(Box::new(Ndjson::new(read, options.clone()))),
        Format::GeoJson => Reading::GeoJson(Box::new(GeoJson::new(read, options.clone()))),
        Format::Gpx => Reading::Gpx(Box::new(Gpx::new(read, options))),
        _ => Reading::Csv(Box::new(Csv::new(read, layout, options))),
    })
}

impl<R: BufRead> Reader<R> {
    /// The number of points that were left out on purpose so far: waypoints and routes of GPX, and
    /// points of tracks without an entity.
    pub fn ignored(&self) -> u64 {
        match &self.0 {
            Reading::Gpx(gpx) => gpx.ignored(),
            _ => 0,
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Reading::Csv(csv) => csv.next(),
            Reading::Ndjson(ndjson) => ndjson.next(),
            Reading::GeoJson(geojson) => geojson.next(),
            Reading::Gpx(gpx) => gpx.next(),
        }
    }
}

#[cfg(test)]
mod tests;
