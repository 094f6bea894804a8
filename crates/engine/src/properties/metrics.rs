//! Everything that is counted, in the text form that Prometheus collects.
//!
//! Numbers of a family have the label `cf`, those of a level also `level`; what belongs to the
//! whole database has none. Names are RocksDB's, with underscores.

use std::fmt::{self, Write as _};

use base::stats::metric_name;

use super::numbers::{self, Ask, Number, Scope};
use super::writes;
use crate::compaction::candidates;
use crate::compaction::stats::LevelStats;
use crate::family::Family;
use crate::shared::Shared;

/// A number of a level: its name, what it is, how it is found.
type OfLevel = (&'static str, &'static str, &'static str, fn(&Level) -> f64);

struct Level {
    files: u64,
    bytes: u64,
    score: f64,
    work: LevelStats,
}

const OF_LEVEL: &[OfLevel] = &[
    ("num_files_at_level", "gauge", "Table files", |l| {
        l.files as f64
    }),
    ("bytes_at_level", "gauge", "Bytes of table files", |l| {
        l.bytes as f64
    }),
    (
        "score_at_level",
        "gauge",
        "How much a level wants to be compacted",
        |l| l.score,
    ),
    (
        "compactions_to_level",
        "counter",
        "Flushes and compactions into a level",
        |l| l.work.count as f64,
    ),
    (
        "compaction_read_bytes_to_level",
        "counter",
        "Bytes that they read",
        |l| l.work.bytes_read() as f64,
    ),
    (
        "compaction_write_bytes_to_level",
        "counter",
        "Bytes that they wrote",
        |l| l.work.bytes_written as f64,
    ),
    (
        "compaction_moved_bytes_to_level",
        "counter",
        "Bytes of files that moved",
        |l| l.work.bytes_moved as f64,
    ),
    (
        "compaction_seconds_to_level",
        "counter",
        "Time that they took",
        |l| l.work.micros as f64 / 1e6,
    ),
    (
        "compaction_cpu_seconds_to_level",
        "counter",
        "Time of processors",
        |l| l.work.cpu_micros as f64 / 1e6,
    ),
    (
        "compaction_keys_to_level",
        "counter",
        "Entries that they read",
        |l| l.work.records_in as f64,
    ),
    (
        "compaction_dropped_keys_to_level",
        "counter",
        "Entries that they dropped",
        |l| l.work.records_dropped as f64,
    ),
];

/// All metrics of an open database.
pub(crate) fn metrics_text(db: &Shared) -> String {
    let mut out = String::with_capacity(32 << 10);
    let written = write_all(&mut out, db);
    debug_assert!(written.is_ok(), "writing to a String cannot fail");
    if let Some(statistics) = &db.env().statistics {
        out += &statistics.metrics_text();
    }
    out
}

fn write_all(out: &mut String, db: &Shared) -> fmt::Result {
    for number in numbers::ALL {
        write_number(out, db, number)?;
    }
    write_levels(out, db)?;
    for (name, value) in writes::map(db) {
        let kind = if name == "db.uptime" {
            "gauge"
        } else {
            "counter"
        };
        let name = metric_name(&format!("rocksdb.{name}"));
        head(out, &name, kind, "Since the database was opened")?;
        writeln!(out, "{name} {value}")?;
    }
    Ok(())
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}.\n# TYPE {name} {kind}")
}

fn write_number(out: &mut String, db: &Shared, number: &Number) -> fmt::Result {
    let name = metric_name(&format!("rocksdb.{}", number.name));
    let help = format!("Property rocksdb.{}", number.name);
    let families = db.families.load();
    let values: Vec<(&str, u64)> = families
        .iter()
        .filter_map(|f| Some((f.name.as_str(), (number.get)(&Ask::new(db, f))?)))
        .collect();
    let Some(&(_, first)) = values.first() else {
        return Ok(()); // it does not apply here
    };
    head(out, &name, "gauge", &help)?;
    if number.scope != Scope::Family {
        return writeln!(out, "{name} {first}");
    }
    for (family, value) in values {
        writeln!(out, "{name}{{cf=\"{}\"}} {value}", label(family))?;
    }
    Ok(())
}

fn levels(db: &Shared, family: &Family) -> Vec<Level> {
    let version = family.view.load().version.clone();
    let now = db.env().clock.wall_micros() / 1_000_000;
    let scores = candidates::scores(&version, &family.options().cf, now);
    let mut work = family.compactions.work().levels;
    work.resize_with(version.num_levels().max(work.len()), LevelStats::default);
    work.into_iter()
        .enumerate()
        .map(|(level, work)| Level {
            files: version.level(level).len() as u64,
            bytes: version.level_bytes(level),
            score: scores.get(level).copied().unwrap_or(0.0),
            work,
        })
        .collect()
}

fn write_levels(out: &mut String, db: &Shared) -> fmt::Result {
    let families = db.families.load();
    let all: Vec<(&str, Vec<Level>)> = families
        .iter()
        .map(|f| (f.name.as_str(), levels(db, f)))
        .collect();
    for (name, kind, help, get) in OF_LEVEL {
        let name = format!("rocksdb_{name}");
        head(out, &name, kind, help)?;
        for (family, levels) in &all {
            for (number, level) in levels.iter().enumerate() {
                let (family, value) = (label(family), get(level));
                writeln!(out, "{name}{{cf=\"{family}\",level=\"{number}\"}} {value}")?;
            }
        }
    }
    Ok(())
}

/// The value of a label, as it stands between its quotes.
fn label(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_end_where_they_should() {
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
