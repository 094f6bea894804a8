//! The file formats, and their names.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use base::{Error, Result};

use super::record::shown;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// CSV with the layout of the options.
    Csv,
    /// One JSON object in each line.
    Ndjson,
    /// A Feature or FeatureCollection.
    GeoJson,
    /// GPX 1.0 or 1.1.
    Gpx,
    /// PLT files of GeoLife.
    GeoLife,
    /// CSV of T-Drive.
    TDrive,
    /// CSV of Porto's taxis.
    Porto,
}

impl Format {
    /// All formats, by name.
    pub(super) const NAMES: [(&str, Self); 7] = [
        ("csv", Self::Csv),
        ("ndjson", Self::Ndjson),
        ("geojson", Self::GeoJson),
        ("gpx", Self::Gpx),
        ("geolife", Self::GeoLife),
        ("t-drive", Self::TDrive),
        ("porto", Self::Porto),
    ];

    /// The format of a file, by its extension. Errors: `InvalidArgument` if the extension is
    /// unknown.
    ///
    /// ```
    /// use std::path::Path;
    /// use tracks::files::Format;
    /// assert_eq!(Format::of_path(Path::new("a/b.GPX"))?, Format::Gpx);
    /// assert!(Format::of_path(Path::new("a/b.txt")).is_err());
    /// # Ok::<(), base::Error>(())
    /// ```
    pub fn of_path(path: &Path) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending.unwrap_or_default().to_ascii_lowercase().as_str() {
            "csv" => Ok(Self::Csv),
            "ndjson" | "jsonl" | "ldjson" => Ok(Self::Ndjson),
            "geojson" => Ok(Self::GeoJson),
            "gpx" => Ok(Self::Gpx),
            "plt" => Ok(Self::GeoLife),
            _ => Err(
                Error::invalid_argument("the file's name does not say its format")
                    .hint("names end with .csv, .ndjson, .jsonl, .geojson, .gpx or .plt")
                    .file(path),
            ),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::NAMES.iter().find(|(_, format)| format == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, format)| *format).ok_or_else(|| {
            let names = Self::NAMES.map(|(name, _)| name).join(", ");
            let text = shown(text);
            Error::invalid_argument(format!("{text} is no format; there are {names}"))
        })
    }
}
