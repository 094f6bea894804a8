//! One error type for the whole engine.
//!
//! [`Error::kind`] is RocksDB's `Status` code, so that code which branches on RocksDB's errors
//! can branch on ours. The message names the file and the offset, if known, says what is wrong there,
//! and, if the user can do something about it, says what (the *hint*). The cause is kept as
//! [`std::error::Error::source`].
//!
//! ```
//! use base::{Error, ErrorKind};
//! let e = Error::corruption("block checksum mismatch").file("000007.sst").offset(4096);
//! assert_eq!(e.kind(), ErrorKind::Corruption);
//! assert_eq!(e.to_string(), "Corruption: 000007.sst: at offset 4096: block checksum mismatch");
//! ```

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `Result` with Ironstone's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as RocksDB's `Status` codes name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The key, column family or file does not exist.
    NotFound,
    /// Bytes on disk are not what was written, or cannot have been written by a correct engine.
    Corruption,
    /// The request or the file uses a feature that Ironstone does not have (yet).
    NotSupported,
    /// An argument or option is out of range, or arguments contradict each other.
    InvalidArgument,
    /// The operating system refused a file operation.
    IoError,
    /// The device or quota is full. Reads still work.
    NoSpace,
    /// The result is not complete, for example because a `no_slowdown` write would have waited.
    Incomplete,
    /// The database is being closed.
    ShutdownInProgress,
    /// A deadline passed.
    TimedOut,
    /// The operation was aborted, for example after a background error.
    Aborted,
    /// A needed resource is in use, for example because another process holds the `LOCK` file.
    Busy,
    /// The operation may succeed if it is tried again.
    TryAgain,
    /// The column family was dropped.
    ColumnFamilyDropped,
}

impl ErrorKind {
    /// The word that RocksDB's `Status::ToString` puts before the message.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotFound => "NotFound",
            Self::Corruption => "Corruption",
            Self::NotSupported => "Not implemented",
            Self::InvalidArgument => "Invalid argument",
            Self::IoError | Self::NoSpace => "IO error",
            Self::Incomplete => "Result incomplete",
            Self::ShutdownInProgress => "Shutdown in progress",
            Self::TimedOut => "Operation timed out",
            Self::Aborted => "Operation aborted",
            Self::Busy => "Resource busy",
            Self::TryAgain => "Operation failed. Try again.",
            Self::ColumnFamilyDropped => "Column family dropped",
        }
    }
}

/// An error of any Ironstone operation. One pointer wide.
///
/// A clone has the same content and the same cause, so that a sticky error can be returned to every
/// caller.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    file: Option<PathBuf>,
    offset: Option<u64>,
    hint: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of the given kind; `message` says what is wrong.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            file: None,
            offset: None,
            hint: None,
            source: None,
        }))
    }

    /// The thing asked for does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Bytes read are not what a correct engine writes.
    pub fn corruption(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption, message)
    }

    /// A feature that is not supported; `message` names it.
    pub fn not_supported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotSupported, message)
    }

    /// An invalid argument or option.
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// The operation was not completed.
    pub fn aborted(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Aborted, message)
    }

    /// An invariant of the code is violated: a bug. The affected operation must not be acknowledged.
    #[cold]
    pub fn broken(what: impl fmt::Display) -> Self {
        Self::aborted(format!("internal error: {what}"))
            .hint("this is a bug in Ironstone, not in its use: please report it")
    }

    /// A needed resource is in use.
    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Busy, message)
    }

    /// A failed system call on `file`; `what` names the operation ("open", "write", "sync").
    pub fn io(what: &str, file: impl AsRef<Path>, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ErrorKind::NoSpace
            }
            _ => ErrorKind::IoError,
        };
        let mut e = Self::new(kind, format!("{what}: {source}")).file(file);
        e.0.source = Some(Arc::new(source));
        e
    }

    /// Names the file that the error is about.
    #[must_use]
    pub fn file(mut self, file: impl AsRef<Path>) -> Self {
        self.0.file = Some(file.as_ref().to_path_buf());
        self
    }

    /// Names the file unless one is named already: for callers of functions that do not know it.
    #[must_use]
    pub fn or_file(mut self, file: impl AsRef<Path>) -> Self {
        self.0
            .file
            .get_or_insert_with(|| file.as_ref().to_path_buf());
        self
    }

    /// Names the byte offset in the file that the error is about.
    #[must_use]
    pub fn offset(mut self, offset: u64) -> Self {
        self.0.offset = Some(offset);
        self
    }

    /// Says what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let cause: Box<dyn StdError + Send + Sync> = source.into();
        self.0.source = Some(Arc::from(cause));
        self
    }

    /// RocksDB's `Status` code.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file that the error is about, where known.
    pub fn path(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The byte offset in [`Error::path`], where known.
    pub fn at(&self) -> Option<u64> {
        self.0.offset
    }

    /// True if the thing asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == ErrorKind::NotFound
    }

    /// True if bytes on disk are damaged.
    pub fn is_corruption(&self) -> bool {
        self.kind() == ErrorKind::Corruption
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &self.0;
        write!(f, "{}: ", e.kind.label())?;
        if let Some(file) = &e.file {
            write!(f, "{}: ", file.display())?;
        }
        if let Some(offset) = e.offset {
            write!(f, "at offset {offset}: ")?;
        }
        f.write_str(&e.message)?;
        if let Some(hint) = &e.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|e| e as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_keep_their_cause_and_map_to_kinds() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let e = Error::io("write", "/db/000004.log", full).hint("free some space");
        assert_eq!(e.kind(), ErrorKind::NoSpace);
        assert!(e.source().is_some());
        let text = e.to_string();
        assert!(
            text.starts_with("IO error: /db/000004.log: write: "),
            "{text}"
        );
        assert!(text.ends_with("(free some space)"), "{text}");
        assert_eq!(e.clone().to_string(), text);
        // A caller may still ask which of the system's errors it was.
        let read_only = || std::io::Error::from_raw_os_error(30);
        let e = Error::io("write", "a", read_only()).clone();
        let cause = e.source().unwrap().downcast_ref::<std::io::Error>();
        assert_eq!(cause.unwrap().kind(), read_only().kind());
    }

    #[test]
    fn or_file_does_not_replace_a_better_name() {
        let e = Error::corruption("x").file("a").or_file("b");
        assert_eq!(e.path(), Some(Path::new("a")));
    }
}
