//! Queries: alone, after compaction, and beside reports; and the same with Redis and Tile38.

use std::path::PathBuf;

use super::runs::{Figures, Outcome, Runs, Target};
use crate::limit::{Claim, Limit};

const PER_SECOND: u64 = 20_000;
const REDIS: &str = "/usr/bin/redis-server";
const TILE38: &str = "/usr/bin/tile38-server";

#[derive(Clone, clap::Args)]
pub(super) struct Arguments {
    /// Reports a second during the queries
    #[arg(long, default_value_t = PER_SECOND)]
    reports_per_second: u64,
    /// A redis-server to run the same queries on
    #[arg(long, default_value = REDIS)]
    redis: PathBuf,
    /// A tile38-server to run the same queries on
    #[arg(long, default_value = TILE38)]
    tile38: PathBuf,
    /// Also query after an hour of movement: 72 reports of each object
    #[arg(long)]
    hour: bool,
    /// Without RocksDB, which takes most of the time if there are many objects
    #[arg(long)]
    alone: bool,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            reports_per_second: PER_SECOND,
            redis: REDIS.into(),
            tile38: TILE38.into(),
            hour: false,
            alone: false,
        }
    }
}

/// The queries, and their names in the figures.
const QUESTIONS: [(&str, &str); 4] = [
    ("a square with 100 in it", "rectangle"),
    ("the nearest ten", "nearest"),
    ("who was in the square in an hour", "hour"),
    ("a day's track of 8,640 points", "day"),
];

/// The run after many reports.
const HOUR: &str = "after an hour";

/// A run, and its peculiarity.
struct Run {
    name: &'static str,
    rocksdb: bool,
    figures: Figures,
}

/// Runs everything. Returns a table, and the same tab-separated.
pub(super) fn measure(arguments: &Arguments, runs: &Runs) -> Result<Outcome, String> {
    let busy = format!("--reports={}", arguments.reports_per_second);
    let mut quiet = Vec::new();
    for (name, program) in [("redis", &arguments.redis), ("tile38", &arguments.tile38)] {
        if program.exists() {
            quiet.push(format!("--{name}={}", program.display()));
        } else {
            eprintln!("there is no {}: {name} is left out", program.display());
        }
    }
    let mut kinds = vec![
        ("quiet", quiet),
        ("compacted", vec!["--compacted".to_owned()]),
        ("beside reports", vec![busy]),
    ];
    if arguments.hour {
        kinds.push((HOUR, vec!["--rounds=72".to_owned()]));
    }
    let mut all = Vec::new();
    for (name, more) in kinds {
        for rocksdb in [false, true] {
            // An hour's reports take minutes, and the limit is about Ironstone only.
            if rocksdb && (name == HOUR || arguments.alone) {
                continue;
            }
            // Redis is queried once.
            let more = if rocksdb && name == "quiet" {
                &[][..]
            } else {
                &more[..]
            };
            let target = Target {
                rocksdb,
                row: "1",
                sync: "each",
            };
            let figures = runs.fresh(target, ("query", runs.seconds(10)), more)?;
            eprintln!("{name}, {}: done", target.engine());
            all.push(Run {
                name,
                rocksdb,
                figures,
            });
        }
    }
    Ok(Outcome {
        text: text(&all)?,
        tsv: tsv(&all)?,
        claims: claims(arguments, &all)?,
    })
}

fn text(all: &[Run]) -> Result<String, String> {
    let mut out = String::from(
        "\n| question | when | engine | p50, µs | p99, µs | hits | rows for a hit | dead rows for a hit |\n\
         |---|---|---|---:|---:|---:|---:|---:|\n",
    );
    for (what, key) in QUESTIONS {
        for run in all {
            let of = |figure| run.figures.get_in(key, figure);
            out += &format!(
                "| {what} | {} | {} | {:.0} | {:.0} | {:.0} | {:.2} | {} |\n",
                run.name,
                engine(run.rocksdb),
                of("p50_micros")?,
                of("p99_micros")?,
                of("hits")?,
                of("rows_per_hit")?,
                if run.rocksdb {
                    "–".to_owned() // RocksDB has no count of these.
                } else {
                    format!("{:.2}", of("dead_per_hit")?)
                }
            );
        }
    }
    let quiet = run(all, "quiet")?;
    out += &others(quiet)?;
    Ok(out)
}

fn engine(rocksdb: bool) -> &'static str {
    if rocksdb { "RocksDB" } else { "Ironstone" }
}

/// Ironstone's run with this name.
fn run<'a>(all: &'a [Run], name: &str) -> Result<&'a Figures, String> {
    let mut runs = all.iter().filter(|run| !run.rocksdb);
    let found = runs.find(|run| run.name == name);
    found
        .map(|run| &run.figures)
        .ok_or_else(|| format!("no run {name}"))
}

/// The claims about Ironstone.
fn claims(arguments: &Arguments, all: &[Run]) -> Result<Vec<Claim>, String> {
    use Limit::{AtLeast, AtMost};
    let (quiet, busy) = (run(all, "quiet")?, run(all, "beside reports")?);
    let mut out = Vec::new();
    for run in all.iter().filter(|run| run.name == "beside reports") {
        let figure = run.figures.get("reports_per_second")? / arguments.reports_per_second as f64;
        let what = format!(
            "{}: reports beside, of {} a second",
            engine(run.rocksdb),
            arguments.reports_per_second
        );
        out.push(Claim::of(what, AtLeast(0.95), figure));
    }
    for (what, key) in QUESTIONS {
        let p99 = |of: &Figures| of.get_in(key, "p99_micros");
        let what = format!("{what}: p99 beside reports over quiet");
        out.push(Claim::of(what, AtMost(5.0), p99(busy)? / p99(quiet)?));
    }
    let scan = quiet.get("scan_micros")?;
    for (what, key) in &QUESTIONS[..2] {
        let figure = scan / quiet.get_in(key, "mean_micros")?;
        out.push(Claim::of(
            format!("a scan of `latest` over {what}"),
            AtLeast(100.0),
            figure,
        ));
    }
    let kinds = [("compacted", 2.0), ("beside reports", 10.0), (HOUR, 10.0)];
    for (kind, limit) in kinds {
        let Ok(of) = run(all, kind) else {
            continue;
        };
        let figure = |name| of.get_in("rectangle", name);
        let figure = figure("rows_per_hit")? + figure("dead_per_hit")?;
        let what = format!("square: rows and dead rows for a hit, {kind}");
        out.push(Claim::of(what, AtMost(limit), figure));
    }
    for (what, key, limit) in [("square", "rectangle", 2.0), ("nearest", "nearest", 1.0)] {
        let Ok(theirs) = quiet.get_in("redis", &format!("{key}_micros")) else {
            continue;
        };
        let figure = quiet.get_in(key, "mean_micros")? / theirs;
        out.push(Claim::of(
            format!("{what} over Redis's"),
            AtMost(limit),
            figure,
        ));
    }
    Ok(out)
}

/// The figures of Redis and Tile38, if they were queried.
fn others(quiet: &Figures) -> Result<String, String> {
    let mut out = String::new();
    for (who, call, rate) in [
        ("redis", "GEOADD", "adds_per_second"),
        ("tile38", "SET", "sets_per_second"),
    ] {
        if quiet.get_in(who, "rectangle_micros").is_err() {
            continue;
        }
        let of = |figure| quiet.get_in(who, figure);
        out += &format!(
            "\n{who}: square {:.0} µs with {:.0} hits, nearest {:.0} µs with {:.0}; {:.0} MiB; {call} {:.0}/s in one pipeline",
            of("rectangle_micros")?,
            of("rectangle_hits")?,
            of("nearest_micros")?,
            of("nearest_hits")?,
            of("memory")? / 1_048_576.0,
            of(rate)?,
        );
        if let Ok(durable) = of("durable_adds_per_second") {
            out += &format!(", {durable:.0}/s with `appendfsync always` for 80 clients");
        }
        out += ".\n";
    }
    Ok(out)
}

fn tsv(all: &[Run]) -> Result<String, String> {
    const FIGURES: [&str; 6] = [
        "p50_micros",
        "p99_micros",
        "mean_micros",
        "hits",
        "rows_per_hit",
        "dead_per_hit",
    ];
    let mut out = format!("question\twhen\tengine\t{}\n", FIGURES.join("\t"));
    for run in all {
        for (_, key) in QUESTIONS {
            out += &format!("{key}\t{}\t{}", run.name, engine(run.rocksdb));
            for figure in FIGURES {
                out += &format!("\t{:.3}", run.figures.get_in(key, figure)?);
            }
            out.push('\n');
        }
    }
    Ok(out)
}
