//! All counters and properties in Prometheus's text format.
//!
//! Metrics of a family have the label `cf`. Metrics of a level also have the label `level`. Metrics of the whole
//! database have no labels. Names are RocksDB's, with underscores.

use base::clock::Clock;
use base::metrics::{Kind, Metrics};

use super::numbers::{self, Ask, Number, Scope};
use super::writes;
use crate::catalog::Catalog;
use crate::catalog::family::Family;
use crate::catalog::job_stats::LevelStats;
use crate::shared::Shared;
use picking::candidates;

/// A metric of a level: name, kind, help text, and the function that reads it.
type OfLevel = (&'static str, Kind, &'static str, fn(&Level) -> f64);

struct Level {
    files: u64,
    bytes: u64,
    score: f64,
    work: LevelStats,
}

const OF_LEVEL: &[OfLevel] = &[
    ("num_files_at_level", Kind::Gauge, "Table files", |l| {
        l.files as f64
    }),
    ("bytes_at_level", Kind::Gauge, "Bytes of table files", |l| {
        l.bytes as f64
    }),
    (
        "score_at_level",
        Kind::Gauge,
        "How much a level wants to be compacted",
        |l| l.score,
    ),
    (
        "compactions_to_level",
        Kind::Counter,
        "Flushes and compactions into a level",
        |l| l.work.count as f64,
    ),
    (
        "compaction_read_bytes_to_level",
        Kind::Counter,
        "Bytes that they read",
        |l| l.work.bytes_read() as f64,
    ),
    (
        "compaction_write_bytes_to_level",
        Kind::Counter,
        "Bytes that they wrote",
        |l| l.work.bytes_written as f64,
    ),
    (
        "compaction_moved_bytes_to_level",
        Kind::Counter,
        "Bytes of files that moved",
        |l| l.work.bytes_moved as f64,
    ),
    (
        "compaction_seconds_to_level",
        Kind::Counter,
        "Time that they took",
        |l| l.work.micros as f64 / 1e6,
    ),
    (
        "compaction_cpu_seconds_to_level",
        Kind::Counter,
        "Time of processors",
        |l| l.work.cpu_micros as f64 / 1e6,
    ),
    (
        "compaction_keys_to_level",
        Kind::Counter,
        "Entries that they read",
        |l| l.work.records_in as f64,
    ),
    (
        "compaction_dropped_keys_to_level",
        Kind::Counter,
        "Entries that they dropped",
        |l| l.work.records_dropped as f64,
    ),
];

/// All metrics of an open database.
pub(crate) fn metrics_text(db: &Shared) -> String {
    let mut m = Metrics::default();
    for number in numbers::ALL {
        write_number(&mut m, db, number);
    }
    write_levels(&mut m, &db.catalog, &*db.info.clock);
    for (name, value) in writes::map(&db.info, &db.writes.stall) {
        let kind = if name == "db.uptime" {
            Kind::Gauge
        } else {
            Kind::Counter
        };
        let name = format!("rocksdb.{name}");
        m.family(&name, kind, "Since the database was opened");
        m.sample(&[], value);
    }
    let lost = "Lines of LOG that could not be written, and old files of it that could not be moved or deleted";
    m.family("ironstone.info_log_lost", Kind::Counter, lost);
    m.sample(&[], db.info.log.lost());
    if let Some(statistics) = &db.info.statistics {
        statistics.metrics(&mut m);
    }
    m.text()
}

fn write_number(m: &mut Metrics, db: &Shared, number: &Number) {
    let name = format!("rocksdb.{}", number.name);
    let families = db.catalog.families.load();
    let values: Vec<(&str, u64)> = families
        .iter()
        .filter_map(|f| Some((f.name.as_str(), (number.get)(&Ask::new(db, f))?)))
        .collect();
    let Some(&(_, first)) = values.first() else {
        return; // the property does not apply
    };
    m.family(&name, Kind::Gauge, &format!("Property {name}"));
    if number.scope != Scope::Family {
        m.sample(&[], first);
        return;
    }
    for (family, value) in values {
        m.sample(&[("cf", family)], value);
    }
}

fn levels(clock: &dyn Clock, family: &Family) -> Vec<Level> {
    let version = family.view.load().version.clone();
    let now = clock.wall_micros() / 1_000_000;
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

fn write_levels(m: &mut Metrics, catalog: &Catalog, clock: &dyn Clock) {
    let families = catalog.families.load();
    let all: Vec<(&str, Vec<Level>)> = families
        .iter()
        .map(|f| (f.name.as_str(), levels(clock, f)))
        .collect();
    for (name, kind, help, get) in OF_LEVEL {
        m.family(&format!("rocksdb.{name}"), *kind, help);
        for (family, levels) in &all {
            for (number, level) in levels.iter().enumerate() {
                let labels = [("cf", *family), ("level", &number.to_string())];
                m.sample(&labels, get(level));
            }
        }
    }
}
