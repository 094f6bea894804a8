//! Questions: quiet, after compaction, and beside reports; and the same of Redis.

use std::path::PathBuf;

use super::runs::{Figures, Runs, Target};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Seconds of each kind of question
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Reports a second beside the questions
    #[arg(long, default_value_t = 20_000)]
    reports_per_second: u64,
    /// A redis-server that is asked the same
    #[arg(long, default_value = "/usr/bin/redis-server")]
    redis: PathBuf,
    /// A tile38-server that is asked the same
    #[arg(long, default_value = "/usr/bin/tile38-server")]
    tile38: PathBuf,
    /// Asks after an hour of movement as well: 72 reports of each object
    #[arg(long)]
    hour: bool,
}

/// Questions, and what they are called in the figures.
const QUESTIONS: [(&str, &str); 4] = [
    ("a square with 100 in it", "rectangle"),
    ("the nearest ten", "nearest"),
    ("who was in the square in an hour", "hour"),
    ("a day's track of 8,640 points", "day"),
];

/// The run behind many reports.
const HOUR: &str = "after an hour";

/// A run, and what is special about it.
struct Run {
    name: &'static str,
    rocksdb: bool,
    figures: Figures,
}

/// Runs all; a table, and the same tab-separated.
pub(super) fn measure(arguments: &Arguments, runs: &Runs) -> Result<(String, String), String> {
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
            // That takes minutes, and the limit is ours.
            if rocksdb && name == HOUR {
                continue;
            }
            // Redis is asked once.
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
            let figures = runs.fresh(target, ("query", arguments.seconds), more)?;
            eprintln!("{name}, {}: done", target.engine());
            all.push(Run {
                name,
                rocksdb,
                figures,
            });
        }
    }
    Ok((text(&all)?, tsv(&all)?))
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
                "| {what} | {} | {} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} |\n",
                run.name,
                engine(run.rocksdb),
                of("p50_micros")?,
                of("p99_micros")?,
                of("hits")?,
                of("rows_per_hit")?,
                of("dead_per_hit")?
            );
        }
    }
    out += &claims(all)?;
    Ok(out)
}

fn engine(rocksdb: bool) -> &'static str {
    if rocksdb { "RocksDB" } else { "Ironstone" }
}

/// What must hold of Ironstone.
fn claims(all: &[Run]) -> Result<String, String> {
    let run = |name: &str| {
        let mut runs = all.iter().filter(|run| !run.rocksdb);
        let found = runs.find(|run| run.name == name);
        found.map(|run| &run.figures).ok_or("a run is missing")
    };
    let (quiet, compacted, busy) = (run("quiet")?, run("compacted")?, run("beside reports")?);
    let mut out = String::from("\n| what | limit | figure |\n|---|---|---:|\n");
    for (what, key) in QUESTIONS {
        let (before, beside) = (
            quiet.get_in(key, "p99_micros")?,
            busy.get_in(key, "p99_micros")?,
        );
        out += &format!(
            "| {what}: p99 beside reports over quiet | ≤ 5 | {:.1} |\n",
            beside / before
        );
    }
    let scan = quiet.get("scan_micros")?;
    for (what, key) in &QUESTIONS[..2] {
        let ratio = scan / quiet.get_in(key, "mean_micros")?;
        out += &format!("| a scan of `latest` over {what} | ≥ 100 | {ratio:.0} |\n");
    }
    let rows = |of: &Figures| -> Result<f64, String> {
        Ok(of.get_in("rectangle", "rows_per_hit")? + of.get_in("rectangle", "dead_per_hit")?)
    };
    out += &format!(
        "| square: rows and dead rows for a hit, compacted | ≤ 2 | {:.2} |\n",
        rows(compacted)?
    );
    out += &format!("| the same beside reports | ≤ 10 | {:.2} |\n", rows(busy)?);
    if let Ok(moved) = run(HOUR) {
        out += &format!(
            "| the same after an hour of movement | ≤ 10 | {:.2} |\n",
            rows(moved)?
        );
    }
    out += &others(quiet)?;
    Ok(out)
}

/// What Redis and Tile38 take, where they were asked.
fn others(quiet: &Figures) -> Result<String, String> {
    let mut out = String::new();
    if let Ok(theirs) = quiet.get_in("redis", "rectangle_micros") {
        let ours = quiet.get_in("rectangle", "mean_micros")?;
        out += &format!("| square over Redis's | ≤ 2 | {:.2} |\n", ours / theirs);
        let theirs = quiet.get_in("redis", "nearest_micros")?;
        let ours = quiet.get_in("nearest", "mean_micros")?;
        out += &format!("| nearest over Redis's | ≤ 1 | {:.2} |\n", ours / theirs);
        let of = |figure| quiet.get_in("redis", figure);
        out += &format!(
            "\nRedis: square {:.0} µs, nearest {:.0} µs in a circle of a thousand; {:.0} MiB; GEOADD {:.0}/s \
             in one pipeline, {:.0}/s with `appendfsync always` for 80 clients.\n",
            of("rectangle_micros")?,
            of("nearest_micros")?,
            of("memory")? / 1_048_576.0,
            of("adds_per_second")?,
            of("durable_adds_per_second")?
        );
    }
    if quiet.get_in("tile38", "rectangle_micros").is_ok() {
        let of = |figure| quiet.get_in("tile38", figure);
        out += &format!(
            "\nTile38: square {:.0} µs, nearest {:.0} µs; {:.0} MiB; SET {:.0}/s in one pipeline.\n",
            of("rectangle_micros")?,
            of("nearest_micros")?,
            of("memory")? / 1_048_576.0,
            of("sets_per_second")?
        );
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
