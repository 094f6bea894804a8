//! Options as text without a file, `name=value;name={…}`, and changes of single options while a database is open.
//!
//! Names and values are those of OPTIONS files. Table options are given in `block_based_table_factory={…}`. A
//! single member of a struct may be named (`compression_opts.level=3`); the other members keep their values.
//! Parsing is strict: an unknown or unsupported option is an error, and then nothing is changed.

use base::options::{OptionFlag, OptionTable};
use base::{Error, Result};

use super::codec::{self, Setter, TABLE_OPTION, members, table_members};
use super::rocksdb::{self, CF_SECTION, DB_SECTION, TABLE_SECTION};
use super::{ColumnFamilyOptions, DbOptions, Options, sanitize};

/// Applies a text to options. Errors: see [`Options::with_text`].
pub(super) fn apply(base: &Options, text: &str) -> Result<Options> {
    let sections = [DB_SECTION, CF_SECTION];
    let (db, cf) = applied(base.db.clone(), base.cf.clone(), &sections, text)?;
    let env = base.env.clone();
    Ok(Options { db, cf, env })
}

fn applied(
    db: DbOptions,
    cf: ColumnFamilyOptions,
    sections: &[&'static str],
    text: &str,
) -> Result<(DbOptions, ColumnFamilyOptions)> {
    let mut setter = Setter::onto(db, cf);
    for (name, value) in members(text)? {
        setter.assign(sections, name, value)?;
    }
    let (db, cf, _) = setter.into_options();
    Ok((db, cf))
}

/// The settings of a table that differ from the defaults.
fn differing<T: OptionTable>(table: &T) -> String {
    let defaults = T::default();
    let differs = |name: &str| {
        let value = table.get(name)?;
        (defaults.get(name)? != value).then(|| format!("{name}={value};"))
    };
    T::infos().iter().filter_map(|i| differs(i.name)).collect()
}

impl DbOptions {
    /// Applies a text to these options, like [`Options::with_text`]: RocksDB's `GetDBOptionsFromString`.
    pub fn with_text(&self, text: &str) -> Result<Self> {
        let cf = ColumnFamilyOptions::default();
        let (db, _) = applied(self.clone(), cf, &[DB_SECTION], text)?;
        Ok(db)
    }

    /// The settings that differ from the defaults, in the form that [`DbOptions::with_text`] reads.
    pub fn to_text(&self) -> String {
        differing(self)
    }
}

impl ColumnFamilyOptions {
    /// Applies a text to these options, like [`Options::with_text`]: RocksDB's `GetColumnFamilyOptionsFromString`.
    ///
    /// ```
    /// let options = ironstone::ColumnFamilyOptions::default()
    ///     .with_text("compression_opts.level=3; block_based_table_factory={block_size=16K}")?;
    /// assert_eq!(options.cf.compression_opts.level, 3);
    /// let e = options.with_text("write_bufer_size=8M").unwrap_err();
    /// assert!(e.to_string().contains("did you mean write_buffer_size?"));
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn with_text(&self, text: &str) -> Result<Self> {
        let db = DbOptions::default();
        let (_, cf) = applied(db, self.clone(), &[CF_SECTION], text)?;
        Ok(cf)
    }

    /// The settings that differ from the defaults, in the form that [`ColumnFamilyOptions::with_text`] reads.
    /// Components without a name in OPTIONS files are left out.
    pub fn to_text(&self) -> String {
        let mut out = differing(&self.cf);
        let table = differing(&self.table);
        if !table.is_empty() {
            out += &format!("{TABLE_OPTION}={{{table}}};");
        }
        out
    }
}

/// The settings that differ from the defaults, in the form that [`apply`] reads.
pub(super) fn to_options_text(options: &Options) -> String {
    options.db.to_text() + &options.cf.to_text()
}

/// Applies changes to a family's options while the database is open. `db` are the database's options. Returns the
/// new options, and messages about settings that have no effect or were replaced.
///
/// Errors: `InvalidArgument` if an option is unknown, cannot be changed, or gets a value that is invalid or breaks
/// a rule; `NotSupported` if it is not implemented.
pub fn change_family(
    now: &ColumnFamilyOptions,
    db: &DbOptions,
    changes: &[(&str, &str)],
) -> Result<(ColumnFamilyOptions, Vec<String>)> {
    let mut setter = Setter::onto(DbOptions::default(), now.clone());
    for (name, value) in changes {
        check_family_changeable(name, value)?;
        setter.assign(&[CF_SECTION], name, value)?;
    }
    let (_, mut cf, mut told) = setter.into_options();
    cf.validate_in(db)?;
    told.extend(sanitize::family(&mut cf, db));
    Ok((cf, told))
}

/// Applies changes to the options of the whole database while it is open. `rate` is the limit of background work in
/// bytes per second, if there is one. Returns the new options, and messages about settings that have no effect or
/// were replaced. Errors: as [`change_family`].
pub fn change_db(
    now: &DbOptions,
    rate: Option<u64>,
    changes: &[(&str, &str)],
) -> Result<(DbOptions, Vec<String>)> {
    let mut setter = Setter::onto(now.clone(), ColumnFamilyOptions::default());
    for (name, value) in changes {
        check_changeable(DB_SECTION, name)?;
        setter.assign(&[DB_SECTION], name, value)?;
    }
    let (mut db, _, mut told) = setter.into_options();
    told.extend(sanitize::database(&mut db, rate));
    db.validate()?;
    db.validate_together()?;
    Ok((db, told))
}

fn check_family_changeable(name: &str, value: &str) -> Result<()> {
    if let Some((TABLE_OPTION | "table_factory", member)) = name.split_once('.') {
        return check_changeable(TABLE_SECTION, member);
    }
    match table_members(name, value)? {
        Some(members) => members
            .iter()
            .try_for_each(|(name, _)| check_changeable(TABLE_SECTION, name)),
        None => check_changeable(CF_SECTION, name.split('.').next().unwrap_or(name)),
    }
}

/// Errors: no option of the section has this name, or RocksDB does not change it while a database is open.
fn check_changeable(section: &'static str, name: &str) -> Result<()> {
    let own = rocksdb::own(section).iter().find(|i| i.name == name);
    let changeable = match (rocksdb::find(section, name), own) {
        (Some(key), _) => key.mutable,
        (None, Some(info)) => info.has(OptionFlag::Mutable),
        (None, None) => return Err(codec::unknown(&[section], name)),
    };
    if changeable {
        return Ok(());
    }
    Err(
        Error::invalid_argument(format!("Option not changeable: {name}"))
            .hint("it takes effect when the database is opened"),
    )
}
