//! One column family of a database, and the options of the calls that are made for it.
//!
//! The calls themselves are next to those of [`Db`]: writes in `writes.rs`, reads in `reads.rs`, and so on.

use std::borrow::Cow;
use std::sync::Arc;

use base::{Error, Result, SequenceNumber};

use super::{ColumnFamily, Db};
use crate::catalog::family::Family;
use crate::read::options::ReadOptions;
use crate::shared::Shared;
use crate::shared::snapshot::Snapshot;
use options::{CompactRangeOptions, CompactionOptions, FlushOptions, WriteOptions};

/// A column family of an open database, with the options of the calls that are made through it. [`Db::cf`] and
/// [`Db::with`] return it. It is cheap to make and to copy.
///
/// ```
/// use ironstone::{ColumnFamilyOptions, Db, Options, ReadOptions, WriteOptions};
/// # let dir = tempfile::tempdir().unwrap();
/// let mut options = Options::default();
/// options.db.create_if_missing = true;
/// let db = Db::open(dir.path(), &options)?;
/// let users = db.create_column_family("users", &ColumnFamilyOptions::default())?;
/// let sync = WriteOptions { sync: true, ..WriteOptions::default() };
///
/// db.cf(&users).put("7", "Ada")?;                 // one family, default options
/// db.with(&sync).put("config", "on")?;            // the default family, other options
/// db.cf(&users).with(&sync).put("8", "Grace")?;   // both
///
/// let users = db.cf(&users); // several calls
/// assert_eq!(users.get("7")?.as_deref(), Some(&b"Ada"[..]));
/// assert_eq!(users.range(..)?.count(), 2);
/// # Ok::<(), ironstone::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Cf<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) family: &'a Arc<Family>,
    pub(super) read: Option<&'a ReadOptions>,
    snapshot: Option<&'a Snapshot>,
    pub(super) write: WriteOptions,
    pub(super) flush: FlushOptions,
    pub(super) compact_range: Option<&'a CompactRangeOptions>,
    pub(super) compact_files: Option<&'a CompactionOptions>,
}

impl std::fmt::Debug for Cf<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cf")
            .field("family", &self.family.name)
            .field("read", &self.read)
            .field("snapshot", &self.snapshot)
            .field("write", &self.write)
            .finish_non_exhaustive()
    }
}

/// Options that [`Cf::with`] takes: [`ReadOptions`], [`WriteOptions`], [`FlushOptions`], [`CompactRangeOptions`],
/// [`CompactionOptions`], or the [`Snapshot`] to read.
pub trait CallOptions: sealed::Sealed {
    #[doc(hidden)]
    fn apply_to<'a>(&'a self, cf: &mut Cf<'a>);
}

mod sealed {
    /// Keeps other crates from implementing [`CallOptions`](super::CallOptions).
    pub trait Sealed {}
}

macro_rules! call_options {
    ($($name:ident: |$options:ident, $cf:ident| $apply:expr;)*) => {$(
        impl sealed::Sealed for $name {}
        impl CallOptions for $name {
            #[inline]
            fn apply_to<'a>(&'a self, $cf: &mut Cf<'a>) {
                let $options = self;
                $apply;
            }
        }
    )*};
}

call_options! {
    ReadOptions: |options, cf| cf.read = Some(options);
    Snapshot: |snapshot, cf| cf.snapshot = Some(snapshot);
    WriteOptions: |options, cf| cf.write = *options;
    FlushOptions: |options, cf| cf.flush = *options;
    CompactRangeOptions: |options, cf| cf.compact_range = Some(options);
    CompactionOptions: |options, cf| cf.compact_files = Some(options);
}

impl<'a> Cf<'a> {
    #[inline]
    pub(crate) fn new(shared: &'a Arc<Shared>, family: &'a Arc<Family>) -> Self {
        Self {
            shared,
            family,
            read: None,
            snapshot: None,
            write: WriteOptions::default(),
            flush: FlushOptions::default(),
            compact_range: None,
            compact_files: None,
        }
    }

    /// The same column family with other options. Options of one kind do not change those of another kind. A
    /// [`Snapshot`] replaces [`ReadOptions::snapshot`].
    #[must_use = "the options are those of the result"]
    #[inline]
    pub fn with(mut self, options: &'a impl CallOptions) -> Self {
        options.apply_to(&mut self);
        self
    }

    /// The handle of the family.
    pub fn column_family(&self) -> ColumnFamily {
        ColumnFamily::new(Arc::clone(self.family))
    }

    /// Errors: the handle is of a family of another open database.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.shared.check_handle(self.family)
    }

    /// The options of reads, which may lack the snapshot: see [`Cf::read_sequence`].
    #[inline]
    pub(super) fn read_options(&self) -> Cow<'a, ReadOptions> {
        self.read.map_or_else(Cow::default, Cow::Borrowed)
    }

    /// The options of reads with the snapshot.
    pub(super) fn options_with_snapshot(&self) -> Cow<'a, ReadOptions> {
        let Some(snapshot) = self.snapshot else {
            return self.read_options();
        };
        Cow::Owned(ReadOptions {
            snapshot: Some(snapshot.clone()),
            ..self.read.cloned().unwrap_or_default()
        })
    }

    /// The sequence number to read at; `None` for the newest. Errors: the snapshot is of another database; an option
    /// that is not supported.
    #[inline]
    pub(super) fn read_sequence(&self) -> Result<Option<SequenceNumber>> {
        if let Some(options) = self.read {
            options.check()?;
        }
        self.snapshot_sequence()
    }

    /// [`Cf::read_sequence`] without a check of the other options.
    #[inline]
    pub(super) fn snapshot_sequence(&self) -> Result<Option<SequenceNumber>> {
        let in_options = self.read.and_then(|options| options.snapshot.as_ref());
        match self.snapshot.or(in_options) {
            None => Ok(None),
            Some(s) if s.belongs_to(&self.shared.snapshots) => Ok(Some(s.sequence())),
            Some(_) => Err(Error::invalid_argument(
                "the snapshot is of another database",
            )),
        }
    }
}

/// Column families and options of single calls.
impl Db {
    /// The database at one column family: `db.cf(&users).put("7", "Ada")?`. See [`Cf`].
    #[inline]
    pub fn cf<'a>(&'a self, family: &'a ColumnFamily) -> Cf<'a> {
        Cf::new(&self.shared, &family.0)
    }

    /// The database at its default column family, with options: `db.with(&write_options).put("k", "v")?`. See
    /// [`Cf::with`]. Calls that get their families from an argument, such as [`Cf::write`], and [`Cf::flush_all`] are
    /// not limited to the default family.
    #[inline]
    pub fn with<'a>(&'a self, options: &'a impl CallOptions) -> Cf<'a> {
        self.default_cf().with(options)
    }

    #[inline]
    pub(crate) fn default_cf(&self) -> Cf<'_> {
        Cf::new(&self.shared, &self.default)
    }
}
