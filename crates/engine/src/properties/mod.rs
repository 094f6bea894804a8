//! Properties: information about the database, under RocksDB's names.
//!
//! ```text
//!   numbers  numeric properties
//!   levels   rocksdb.cfstats: flushes and compactions
//!   writes   rocksdb.dbstats: counts of writes
//!   stalls   counts of write stalls
//!   tables   lists and sums of table files
//!   cache    the content of the block cache
//!   metrics  everything for Prometheus
//!   text     numbers in RocksDB's format
//! ```
//!
//! The names, and whether a property is text, a number or a map, are those of RocksDB (measured on 11.8.1). A
//! property whose name ends in a level or a temperature is text in RocksDB, even if its value is a number.

mod cache;
mod levels;
mod metrics;
mod numbers;
mod stalls;
mod tables;
mod text;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::catalog::family::Family;
use crate::shared::Shared;
use manifest::Version;
use numbers::{Ask, Number, Scope};
use tables::Sums;

pub(crate) use metrics::metrics_text;

/// The value of a property of a family or of the database; `None` for an unknown name.
pub(crate) fn get(db: &Shared, family: &Family, name: &str) -> Option<String> {
    let plain = name.strip_prefix("rocksdb.")?;
    if let Some(number) = find(plain) {
        return (number.get)(&Ask::new(db, family)).map(|n| n.to_string());
    }
    let version = || Arc::clone(&family.view.load().version);
    Some(match plain {
        "stats" => stats(db, family),
        "cfstats" => levels::text(db, family, false) + &read_latency(&db.catalog, family),
        "cfstats-no-file-histogram" => levels::text(db, family, false),
        "cf-file-histogram" => read_latency(&db.catalog, family),
        "cf-write-stall-stats" => {
            text::pairs(stalls::of_family(&db.writes.stall, family).into_iter())
        }
        "dbstats" => writes::text(&db.info, &db.writes.stall),
        "db-write-stall-stats" => text::pairs(stalls::of_db(&db.writes.stall).into_iter()),
        "levelstats" => tables::levelstats(&version()),
        "sstables" => tables::sstables(&version(), family.view.versions()),
        "block-cache-entry-stats" | "fast-block-cache-entry-stats" => {
            Some(cache::text(&db.catalog, family)).filter(|t| !t.is_empty())?
        }
        "aggregated-table-properties" => Sums::of(&version(), None).text(),
        "options-statistics" => {
            let statistics = db.info.statistics.as_ref();
            statistics.map_or_else(String::new, |s| s.to_string())
        }
        "blob-stats" => "Number of blob files: 0\nTotal size of blob files: 0\nTotal size of \
            garbage in blob files: 0\nBlob file space amplification: 0\n"
            .to_owned(),
        _ => return with_argument(&version(), plain),
    })
}

/// Properties whose name ends in a level or a temperature.
fn with_argument(version: &Version, name: &str) -> Option<String> {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let argument: usize = name[plain.len()..].parse().ok()?;
    if plain == "live-sst-files-size-at-temperature" {
        let at = |t: u8| usize::from(t) == argument;
        let files = version.files().filter(|(_, f)| at(f.meta.temperature));
        return Some(
            files
                .map(|(_, f)| f.meta.file_size)
                .sum::<u64>()
                .to_string(),
        );
    }
    if argument >= version.num_levels() {
        return None;
    }
    Some(match plain {
        "num-files-at-level" => version.level(argument).len().to_string(),
        "compression-ratio-at-level" => {
            format!("{:.6}", tables::compression_ratio(version, argument))
        }
        "aggregated-table-properties-at-level" => Sums::of(version, Some(argument)).text(),
        _ => return None,
    })
}

/// The value of a numeric property; `None` for any other name, and if the property does not apply.
pub(crate) fn get_int(db: &Shared, family: &Family, name: &str) -> Option<u64> {
    let number = find(name.strip_prefix("rocksdb.")?)?;
    (number.get)(&Ask::new(db, family))
}

/// The sum of a numeric property over all families, as RocksDB computes it. A property of the whole database is
/// added once for each family; a property of the shared cache counts once.
pub(crate) fn aggregated_int(db: &Shared, name: &str) -> Option<u64> {
    let number = find(name.strip_prefix("rocksdb.")?)?;
    let families = db.catalog.families.load();
    let each = families.iter().map(|f| (number.get)(&Ask::new(db, f)));
    if number.scope == Scope::Cache {
        return each.flatten().next();
    }
    each.sum()
}

fn find(name: &str) -> Option<&'static Number> {
    numbers::ALL.iter().find(|n| n.name == name)
}

/// The value of a map property, with RocksDB's keys; `None` for any other name.
pub(crate) fn get_map(
    db: &Shared,
    family: &Family,
    name: &str,
) -> Option<BTreeMap<String, String>> {
    let strings = |pairs: BTreeMap<String, u64>| {
        let text = |(name, value): (String, u64)| (name, value.to_string());
        pairs.into_iter().map(text).collect()
    };
    let version = || Arc::clone(&family.view.load().version);
    Some(match name.strip_prefix("rocksdb.")? {
        "cfstats" => levels::map(&db.info, &db.writes.stall, family),
        "dbstats" => writes::map(&db.info, &db.writes.stall),
        "cf-write-stall-stats" => strings(stalls::of_family(&db.writes.stall, family)),
        "db-write-stall-stats" => strings(stalls::of_db(&db.writes.stall)),
        "block-cache-entry-stats" | "fast-block-cache-entry-stats" => {
            cache::map(&db.catalog, family)?
        }
        "aggregated-table-properties" => Sums::of(&version(), None).map(),
        other => {
            let level = other.strip_prefix("aggregated-table-properties-at-level")?;
            let level: usize = level.parse().ok()?;
            let version = version();
            if level >= version.num_levels() {
                return None;
            }
            Sums::of(&version, Some(level)).map()
        }
    })
}

/// The text of `rocksdb.stats`.
fn stats(db: &Shared, family: &Family) -> String {
    levels::text(db, family, false)
        + &read_latency(&db.catalog, family)
        + &writes::text(&db.info, &db.writes.stall)
}

/// The statistics that are written to LOG periodically.
pub(crate) fn dump(db: &Shared) -> String {
    let mut out = writes::text(&db.info, &db.writes.stall);
    for family in db.catalog.families.load().iter() {
        out += &levels::text(db, family, true);
        out += &read_latency(&db.catalog, family);
    }
    out
}

/// The text of `rocksdb.cf-file-histogram`: the latency of file reads, by level. Counted only with statistics.
fn read_latency(catalog: &Catalog, family: &Family) -> String {
    let mut out = format!(
        "\n** File Read Latency Histogram By Level [{}] **\n",
        family.name
    );
    for (level, histogram) in catalog.tables.read_latencies(family.id) {
        out += &format!("** Level {level} read latency histogram (micros):\n{histogram}\n");
    }
    out
}
