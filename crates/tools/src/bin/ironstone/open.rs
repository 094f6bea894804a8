//! Opens databases: for reading without changing anything, or for writing with the settings of
//! their OPTIONS file.

use std::path::{Path, PathBuf};

use files::FileKind;
use ironstone::options::codec::{self, ParsedOptions, Unsupported};
use ironstone::{
    ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions, Db, Error, ErrorKind, Options,
};

use crate::cli::Global;
use crate::fail::{Failure, Outcome};

/// Maximum size of an OPTIONS file in bytes.
const OPTIONS_BYTES_MAX: u64 = 64 << 20;

/// Opens for reading: takes no lock and writes nothing, except the LOG of a secondary instance.
pub(crate) fn read_only(global: &Global) -> Outcome<Db> {
    let dir = global.dir()?;
    let mut options = Options::default();
    let parsed = load(global, dir, &options)?;
    if let Some(parsed) = &parsed {
        options.db = parsed.db.clone();
    }
    set_wal_dir(global, &mut options);
    if let Some(log) = global.secondary() {
        if let Some(default) = parsed.as_ref().and_then(|p| p.families.first()) {
            options.cf = default.options.clone();
        }
        return Ok(Db::open_as_secondary(dir, log, &options)?);
    }
    let Some(parsed) = parsed else {
        return Ok(Db::open_read_only(dir, &options)?);
    };
    let families = families_as_written(dir, &options, &parsed)?;
    match Db::open_cf_read_only(dir, &options, &families) {
        // Without operands to merge, a database can be read whatever its OPTIONS file says.
        Err(e) if is_of_options(&e) && !families.iter().any(has_operator) => {
            Ok(Db::open_read_only(dir, &options)?)
        }
        opened => Ok(opened?),
    }
}

/// Whether the cause of an error may be the OPTIONS file.
fn is_of_options(e: &Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::InvalidArgument | ErrorKind::NotSupported
    )
}

fn has_operator(family: &ColumnFamilyDescriptor) -> bool {
    family.options.merge_operator.is_some()
}

/// Every column family of the database, with its options from the OPTIONS file.
fn families_as_written(
    dir: &Path,
    options: &Options,
    parsed: &ParsedOptions,
) -> Outcome<Vec<ColumnFamilyDescriptor>> {
    let names = Db::list_column_families(dir, &options.env)?;
    let known = |name: &str| parsed.families.iter().find(|f| f.name == name).cloned();
    let or_like_default = |name: String| {
        known(&name).unwrap_or(ColumnFamilyDescriptor::new(name, options.cf.clone()))
    };
    Ok(names.into_iter().map(or_like_default).collect())
}

/// Opens every column family for writing.
pub(crate) fn writable(global: &Global, create_if_missing: bool) -> Outcome<Db> {
    writable_as(global, create_if_missing, &mut |_, _| {})
}

/// Like [`writable`], but `change` may change the options of each column family. It gets the family's
/// name.
pub(crate) fn writable_as(
    global: &Global,
    create_if_missing: bool,
    change: &mut dyn FnMut(&str, &mut ColumnFamilyOptions),
) -> Outcome<Db> {
    let dir = global.dir()?;
    global.refuse_secondary()?;
    let mut options = Options::default();
    let parsed = load(global, dir, &options)?;
    let Some(parsed) = parsed else {
        set_wal_dir(global, &mut options);
        options.db.create_if_missing = create_if_missing;
        if !options.env.fs.exists(&files::current_path(dir))? {
            change("default", &mut options.cf);
            return Ok(Db::open_all(dir, &options)?);
        }
        let names = Db::list_column_families(dir, &options.env)?.into_iter();
        let families = names.map(|name| ColumnFamilyDescriptor::new(name, options.cf.clone()));
        return open_changed(dir, &options, families.collect(), change);
    };
    options.db = parsed.db.clone();
    set_wal_dir(global, &mut options);
    options.db.create_if_missing = create_if_missing;
    options.db.error_if_exists = false;
    if let Some(default) = parsed.families.first() {
        options.cf = default.options.clone();
    }
    let families = families_as_written(dir, &options, &parsed)?;
    open_changed(dir, &options, families, change)
}

fn open_changed(
    dir: &Path,
    options: &Options,
    mut families: Vec<ColumnFamilyDescriptor>,
    change: &mut dyn FnMut(&str, &mut ColumnFamilyOptions),
) -> Outcome<Db> {
    for family in &mut families {
        change(&family.name, &mut family.options);
    }
    Ok(Db::open_cf(dir, options, &families)?)
}

fn set_wal_dir(global: &Global, options: &mut Options) {
    if let Some(dir) = &global.wal_dir {
        options.db.wal_dir.clone_from(dir);
    }
}

/// The directory of the logs of the database in `dir`.
pub(crate) fn log_dir(global: &Global, dir: &Path) -> Outcome<PathBuf> {
    match &global.wal_dir {
        Some(named) if named.is_empty() => Ok(dir.to_path_buf()),
        Some(named) => Ok(PathBuf::from(named)),
        None => log_dir_of_options(global, dir),
    }
}

/// The directory of the logs of the database in `dir`, as its OPTIONS file says.
pub(crate) fn log_dir_of_options(global: &Global, dir: &Path) -> Outcome<PathBuf> {
    let parsed = load(global, dir, &Options::default())?;
    let named = parsed.map(|p| p.db.wal_dir).filter(|n| !n.is_empty());
    Ok(named.map_or(dir.to_path_buf(), PathBuf::from))
}

/// The column family of the command.
pub(crate) fn family(db: &Db, global: &Global) -> Outcome<ColumnFamily> {
    let name = &global.column_family;
    db.column_family(name)
        .ok_or_else(|| Failure::message(format!("Non-existing column family {name}")))
}

/// The newest OPTIONS file, if there is one and the flags do not disable it.
fn load(global: &Global, dir: &Path, options: &Options) -> Outcome<Option<ParsedOptions>> {
    if global.try_load_options == Some(false) {
        return Ok(None);
    }
    let fs = &*options.env.fs;
    if !fs.exists(dir)? {
        return Ok(None);
    }
    let newest = files::list(fs, dir)?
        .into_iter()
        .filter(|e| e.kind == FileKind::Options)
        .max_by_key(|e| e.number);
    let Some(newest) = newest else {
        return Ok(None);
    };
    let path = dir.join(newest.name);
    let bytes = io::read_file(fs, &path, OPTIONS_BYTES_MAX)?;
    let strict = global.try_load_options == Some(true) && !global.ignore_unknown_options;
    let unsupported = if strict {
        Unsupported::Refuse
    } else {
        Unsupported::Warn
    };
    let parsed = codec::parse_with(&String::from_utf8_lossy(&bytes), unsupported)
        .map_err(|e| e.or_file(&path).hint(HINT))?;
    match parsed.unknown.first() {
        Some(first) if strict => Err(Failure::message(format!(
            "Invalid argument: {}: {first} ({HINT})",
            path.display()
        ))),
        _ => Ok(Some(parsed)),
    }
}

const HINT: &str = "--ignore_unknown_options goes on, --try_load_options=false ignores the file";
