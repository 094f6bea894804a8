//! Options as text, without a file: `name=value;name={…}`, and changes of single options while a
//! database is open.
//!
//! Names and values are those of the OPTIONS file. The options of tables stand in
//! `block_based_table_factory={…}`; members of a struct may be named alone
//! (`compression_opts.level=3`), and those that are not named stay as they are. Here nothing is
//! lenient: what is not known, or not implemented, is an error, and then nothing is changed.

use base::options::{OptionFlag, OptionTable};
use base::{Error, Result};

use super::codec::{self, Setter, TABLE_OPTION, members, table_members};
use super::rocksdb::{self, CF_SECTION, DB_SECTION, TABLE_SECTION};
use super::{ColumnFamilyOptions, DbOptions, Options, sanitize};

/// These options with those of a text. Errors: see [`Options::with_text`].
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

/// The settings of a table that are not the defaults.
fn differing<T: OptionTable>(table: &T) -> String {
    let defaults = T::default();
    let differs = |name: &str| {
        let value = table.get(name)?;
        (defaults.get(name)? != value).then(|| format!("{name}={value};"))
    };
    T::infos().iter().filter_map(|i| differs(i.name)).collect()
}

impl DbOptions {
    /// These options with those of a text, as [`Options::with_text`]; RocksDB's
    /// `GetDBOptionsFromString`.
    pub fn with_text(&self, text: &str) -> Result<Self> {
        let cf = ColumnFamilyOptions::default();
        let (db, _) = applied(self.clone(), cf, &[DB_SECTION], text)?;
        Ok(db)
    }

    /// The settings that are not the defaults, as [`DbOptions::with_text`] reads them.
    pub fn to_text(&self) -> String {
        differing(self)
    }
}

impl ColumnFamilyOptions {
    /// These options with those of a text, as [`Options::with_text`]; RocksDB's
    /// `GetColumnFamilyOptionsFromString`.
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

    /// The settings that are not the defaults, as [`ColumnFamilyOptions::with_text`] reads them.
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

/// The settings in which the options differ from the defaults, as [`apply`] reads them.
pub(super) fn to_options_text(options: &Options) -> String {
    options.db.to_text() + &options.cf.to_text()
}

/// The options of a family of a database with these options after a change while it is open, and what
/// of it has no effect or was replaced.
/// Errors: `InvalidArgument` for an option that is unknown, cannot be changed, or gets a value that
/// is none or breaks a rule; `NotSupported` for what is not implemented.
pub(crate) fn change_family(
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

/// The options of the whole database, whose background work is limited to `rate` bytes a second or
/// not, after a change while it is open, and what of it has no effect or was replaced. Errors: as [`change_family`].
pub(crate) fn change_db(
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

/// Errors: no option of the section has this name, or RocksDB does not change it while a database
/// is open.
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
