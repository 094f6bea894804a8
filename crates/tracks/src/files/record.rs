//! The items of readers: reports, and errors with their place in the file.
//!
//! An error of the kind `InvalidArgument` concerns one record, and the next record follows it.
//! After an error of any other kind, the rest of the file is not read: the file is truncated or
//! malformed, or the system cannot read it.

use base::{Error, ErrorKind, Result};

use crate::model::name::Name;
use crate::model::report::Report;

/// The longest line, or text of an element, bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// The largest feature of a GeoJSON file, bytes.
pub const FEATURE_BYTES_MAX: usize = 8 << 20;

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The number of a line, from 1.
    Line(u64),
    /// The offset from the beginning, bytes.
    Offset(u64),
}

/// One record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The report. Its point has no tags, because the fleet defines their bits. Its time is `None`
    /// if the file has none.
    pub report: Report,
    /// The names of its tags, at most 32.
    pub tags: Vec<String>,
    /// Its place in the file.
    pub place: Place,
}

/// Whether a reader continues after an error, because it concerns only one record.
pub fn goes_on(e: &Error) -> bool {
    e.kind() == ErrorKind::InvalidArgument
}

impl Place {
    /// Adds this place to an error.
    pub(super) fn error(self, e: Error) -> Error {
        match self {
            Self::Offset(at) => e.offset(at),
            Self::Line(line) => Error::new(e.kind(), format!("line {line}: {}", message(&e))),
        }
    }

    /// Makes a record at this place.
    pub(super) fn record(self, found: Result<(Report, Vec<String>)>) -> Result<Record> {
        let (report, tags) = found.map_err(|e| self.error(e))?;
        Ok(Record {
            report,
            tags,
            place: self,
        })
    }
}

/// An error of one record.
pub(super) fn bad(message: impl Into<String>) -> Error {
    Error::invalid_argument(message)
}

/// The error for a file that is truncated.
pub(super) fn cut_off(within: &str) -> Error {
    Error::corruption(format!("the file is cut off within {within}"))
}

/// The error for an empty file.
pub(super) fn empty() -> Error {
    Error::corruption("the file is empty")
}

/// The error for a failed read.
pub(super) fn unread(e: std::io::Error) -> Error {
    Error::new(ErrorKind::IoError, format!("read: {e}")).because(e)
}

/// The beginning of a text, in quotation marks.
pub(super) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(40).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

/// The entity of a record. Errors: `InvalidArgument` if it names none, and there is no default.
pub(super) fn entity(named: Option<&str>, otherwise: Option<&Name>) -> Result<Name> {
    match (named, otherwise) {
        (Some(text), _) => Name::new(text).map_err(|e| bad(format!("entity: {}", message(&e)))),
        (None, Some(name)) => Ok(name.clone()),
        (None, None) => Err(bad("entity is missing")),
    }
}

/// An error's text without its kind.
pub(super) fn message(e: &Error) -> String {
    let text = e.to_string();
    let label = format!("{}: ", e.kind().label());
    text.strip_prefix(&label).unwrap_or(&text).to_owned()
}
