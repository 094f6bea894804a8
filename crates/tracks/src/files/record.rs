//! What readers of files give: reports, and errors that say where in the file they are.
//!
//! An error of the kind `InvalidArgument` is about one record, and the next record follows it. After an error of any
//! other kind the rest of the file is not read: the file is cut off, is none of its format, or the system cannot read
//! it.

use base::{Error, ErrorKind, Result};

use crate::model::name::Name;
use crate::model::report::Report;

/// The longest line, or text of an element, bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// The largest feature of a GeoJSON file, bytes.
pub const FEATURE_BYTES_MAX: usize = 8 << 20;

/// Where in a file something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line; the first one is 1.
    Line(u64),
    /// Bytes from the beginning.
    Offset(u64),
}

/// One record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it says. Its point has no tags: bits are the fleet's. Its time is `None` where the file does not say any.
    pub report: Report,
    /// The names of its tags, 32 at most.
    pub tags: Vec<String>,
    /// Where it is.
    pub place: Place,
}

/// Whether a reader goes on behind an error: it is about one record.
pub fn goes_on(e: &Error) -> bool {
    e.kind() == ErrorKind::InvalidArgument
}

impl Place {
    /// The same error, which says that it is here.
    pub(super) fn error(self, e: Error) -> Error {
        match self {
            Self::Offset(at) => e.offset(at),
            Self::Line(line) => Error::new(e.kind(), format!("line {line}: {}", message(&e))),
        }
    }

    /// A record that is here.
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

/// A file that ends where it must not.
pub(super) fn cut_off(within: &str) -> Error {
    Error::corruption(format!("the file is cut off within {within}"))
}

/// A file without content.
pub(super) fn empty() -> Error {
    Error::corruption("the file is empty")
}

/// A failed read.
pub(super) fn unread(e: std::io::Error) -> Error {
    Error::new(ErrorKind::IoError, format!("read: {e}")).because(e)
}

/// The beginning of a text, in quotation marks.
pub(super) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(40).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

/// The entity of a record. Errors: `InvalidArgument`, where it names none, and none is given.
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
