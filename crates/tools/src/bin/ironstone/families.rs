//! Commands about column families as wholes.

use std::io::Write;

use ironstone::{BottommostLevelCompaction, ColumnFamilyOptions, CompactRangeOptions, Db};

use crate::cli::{self, Global};
use crate::fail::{Failure, Outcome};
use crate::open;
use crate::text::parse_field;

/// Prints the names of the column families.
pub(crate) fn list(global: &Global, out: &mut dyn Write) -> Outcome {
    let dir = global.dir()?;
    let names = Db::list_column_families(dir, &ironstone::Env::default())?;
    writeln!(out, "Column families in {}: ", dir.display())?;
    Ok(writeln!(out, "{{{}}}", names.join(", "))?)
}

/// Creates a column family.
pub(crate) fn create(global: &Global, args: &cli::FamilyName, out: &mut dyn Write) -> Outcome {
    let db = open::writable(global, false)?;
    db.create_column_family(&args.name, &ColumnFamilyOptions::default())
        .map_err(|e| Failure::message(format!("Fail to create new column family: {e}")))?;
    db.close()?;
    Ok(writeln!(out, "OK")?)
}

/// Drops a column family.
pub(crate) fn drop_family(global: &Global, args: &cli::FamilyName, out: &mut dyn Write) -> Outcome {
    let db = open::writable(global, false)?;
    let name = &args.name;
    let family = db
        .column_family(name)
        .ok_or_else(|| Failure::message(format!("Column family: {name} doesn't exist in db.")))?;
    db.drop_column_family(&family)
        .map_err(|e| Failure::message(format!("Fail to drop column family: {e}")))?;
    drop(family);
    db.close()?;
    Ok(writeln!(out, "OK")?)
}

/// Prints a property.
pub(crate) fn property(global: &Global, args: &cli::Property, out: &mut dyn Write) -> Outcome {
    let db = open::read_only(global)?;
    let family = open::family(&db, global)?;
    let name = &args.name;
    // As in `ldb`, what has a form of names and numbers is shown in it.
    if let Some(map) = db.cf(&family).map_property(name) {
        for (key, value) in map {
            writeln!(out, "{name}.{key}: {value}")?;
        }
        return Ok(());
    }
    let value = db
        .cf(&family)
        .property(name)
        .filter(|value| !value.is_empty())
        .ok_or_else(|| Failure::message(format!("failed to get property: {name}")))?;
    Ok(writeln!(out, "{name}: {value}")?)
}

/// Compacts a column family. As in `ldb`, files that are on the lowest level already are written
/// again.
pub(crate) fn compact(global: &Global, args: &cli::Compact, _out: &mut dyn Write) -> Outcome {
    let key = |arg: &Option<std::ffi::OsString>| {
        arg.as_ref()
            .map(|k| parse_field(k, global.keys_hex()))
            .transpose()
    };
    let (from, to) = (key(&args.range.from)?, key(&args.range.to)?);
    let db = open::writable(global, false)?;
    let family = open::family(&db, global)?;
    let options = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::ForceOptimized,
        ..CompactRangeOptions::default()
    };
    db.cf(&family)
        .with(&options)
        .compact_range(from.as_deref(), to.as_deref())?;
    Ok(db.close()?)
}
