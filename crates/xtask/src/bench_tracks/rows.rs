//! The rows: what tuning gave on RocksDB, and what each gives on both engines now.

use super::runs::{Figures, Runs, Target};
use crate::spread::Spread;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Seconds of each run
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Only these rows
    #[arg(long, value_delimiter = ',', default_value = "0,1,1-2016,2,3,4,5,6")]
    rows: Vec<String>,
    /// Writes visits as well
    #[arg(long)]
    visits: bool,
}

/// What a run is, and its figures.
struct Run {
    rocksdb: bool,
    row: String,
    figures: Figures,
    after_close: f64,
    after_kill: f64,
}

/// The columns: what they are called, the figure, and what it is divided by.
const COLUMNS: [(&str, &str, f64); 13] = [
    ("requests/s", "per_second", 1.0),
    ("p50, µs", "p50_micros", 1.0),
    ("p99, µs", "p99_micros", 1.0),
    ("p99.9, µs", "p99_9_micros", 1.0),
    ("longest, ms", "longest_micros", 1000.0),
    ("worst second", "worst_second", 0.01),
    ("level 0", "level0_max", 1.0),
    ("debt at half time, MiB", "debt_half", MIB),
    ("at the end", "debt_end", MIB),
    ("written, MiB", "bytes_written", MIB),
    ("memory, MiB", "memory_max", MIB),
    ("processor, s", "cpu_seconds", 1.0),
    ("load, s", "load_seconds", 1.0),
];
const MIB: f64 = 1_048_576.0;

/// Runs all; a table, and the same tab-separated.
pub(super) fn measure(arguments: &Arguments, runs: &Runs) -> Result<(String, String), String> {
    let mut all: Vec<Run> = Vec::new();
    for round in 0..runs.rounds {
        for row in &arguments.rows {
            for rocksdb in [false, true] {
                let run = once(arguments, runs, (rocksdb, row))?;
                eprintln!(
                    "round {} of {}, row {row}, {}: {:.0} requests/s",
                    round + 1,
                    runs.rounds,
                    target(rocksdb, row).engine(),
                    run.figures.get("per_second")?
                );
                all.push(run);
            }
        }
    }
    Ok((text(arguments, &all)?, tsv(&all)?))
}

fn target(rocksdb: bool, row: &str) -> Target<'_> {
    Target {
        rocksdb,
        row,
        sync: "each",
    }
}

fn once(arguments: &Arguments, runs: &Runs, (rocksdb, row): (bool, &str)) -> Result<Run, String> {
    let target = target(rocksdb, row);
    let more: &[String] = if arguments.visits {
        &["--visits".to_owned()]
    } else {
        &[]
    };
    let figures = runs.fresh(target, ("write", arguments.seconds), more)?;
    let after_close = runs.open(target)?;
    runs.kill(target, arguments.seconds.div_ceil(10))?;
    let after_kill = runs.open(target)?;
    Ok(Run {
        rocksdb,
        row: row.to_owned(),
        figures,
        after_close,
        after_kill,
    })
}

/// The figures of all rounds of a row.
fn spread(
    all: &[Run],
    of: (bool, &str),
    figure: impl Fn(&Run) -> Result<f64, String>,
) -> Result<Spread, String> {
    let rounds = all
        .iter()
        .filter(|run| (run.rocksdb, run.row.as_str()) == of);
    let values: Result<Vec<f64>, String> = rounds.map(figure).collect();
    Ok(Spread::of(values?.into_iter()))
}

fn text(arguments: &Arguments, all: &[Run]) -> Result<String, String> {
    let names = COLUMNS.map(|(name, ..)| name).join(" | ");
    let mut out = format!(
        "\n| row | engine | {names} | open, s | after a kill, s |\n|---|---|{}\n",
        "---:|".repeat(COLUMNS.len() + 2)
    );
    for row in &arguments.rows {
        for rocksdb in [false, true] {
            let of = (rocksdb, row.as_str());
            out += &format!("| {row} | {} |", target(rocksdb, row).engine());
            for (_, figure, unit) in COLUMNS {
                let value = spread(all, of, |run| run.figures.get(figure))?.median / unit;
                out += &format!(" {value:.0} |");
            }
            let close = spread(all, of, |run| Ok(run.after_close))?.median;
            let kill = spread(all, of, |run| Ok(run.after_kill))?.median;
            out += &format!(" {close:.2} | {kill:.2} |\n");
        }
    }
    out += "\nMedians of the rounds; requests/s with smallest and largest:\n\n";
    for row in &arguments.rows {
        let rates = |rocksdb| spread(all, (rocksdb, row), |run| run.figures.get("per_second"));
        let (ours, theirs) = (rates(false)?, rates(true)?);
        let ratio = ours.median / theirs.median;
        out += &format!(
            "- row {row}: {:.0} [{:.0}..{:.0}] and {:.0} [{:.0}..{:.0}]: {ratio:.2}\n",
            ours.median, ours.low, ours.high, theirs.median, theirs.low, theirs.high
        );
    }
    out += &claims(arguments, all)?;
    Ok(out)
}

/// Ironstone's defaults beside the best that tuning gave RocksDB.
fn claims(arguments: &Arguments, all: &[Run]) -> Result<String, String> {
    let rate = |rocksdb, row: &str| -> Result<f64, String> {
        Ok(spread(all, (rocksdb, row), |run| run.figures.get("per_second"))?.median)
    };
    let ours = rate(false, "1")?;
    if !ours.is_finite() {
        return Ok(String::new());
    }
    let mut out = String::from("\n| what | limit | figure |\n|---|---|---:|\n");
    let tuned = arguments
        .rows
        .iter()
        .filter(|row| !["0", "6"].contains(&row.as_str()));
    let (mut best, mut stable) = ((0.0, ""), (0.0, ""));
    for row in tuned {
        let of = (true, row.as_str());
        let (theirs, debt) = (rate(true, row)?, |name: &'static str| {
            spread(all, of, move |run| run.figures.get(name)).map(|s| s.median)
        });
        let is_stable = debt("debt_end")? <= 1.25 * debt("debt_half")? + 256.0 * MIB
            && debt("level0_max")? < 100.0;
        if theirs > best.0 {
            best = (theirs, row);
        }
        if is_stable && theirs > stable.0 {
            stable = (theirs, row);
        }
    }
    let ratio = |what: &str, (theirs, row): (f64, &str), limit: f64| {
        format!(
            "| defaults over RocksDB's {what}, row {row} | ≥ {limit} | {:.2} |\n",
            ours / theirs
        )
    };
    out += &ratio("best row with stable debt", stable, 2.5);
    out += &ratio("best row", best, 2.0);
    let own = |name: &'static str| spread(all, (false, "1"), move |run| run.figures.get(name));
    out += &format!(
        "| defaults: worst second over the mean | ≥ 0.7 | {} |\n",
        own("worst_second")?.text()
    );
    out += &format!(
        "| defaults: most files in level 0 | ≤ 20 | {:.0} |\n",
        own("level0_max")?.high
    );
    let kill = spread(all, (false, "1"), |run| Ok(run.after_kill))?;
    out += &format!(
        "| defaults: opening after a kill, s | ≤ 2 | {} |\n",
        kill.text()
    );
    let point = rate(false, "0")?;
    if point.is_finite() {
        out += &format!("| row 1 over row 0 | ≥ 0.35 | {:.2} |\n", ours / point);
    }
    Ok(out)
}

fn tsv(all: &[Run]) -> Result<String, String> {
    let names = COLUMNS.map(|(_, figure, _)| figure).join("\t");
    let mut out = format!("engine\trow\t{names}\topen_after_close\topen_after_kill\n");
    for run in all {
        out += &format!("{}\t{}", target(run.rocksdb, &run.row).engine(), run.row);
        for (_, figure, _) in COLUMNS {
            out += &format!("\t{:.3}", run.figures.get(figure)?);
        }
        out += &format!("\t{:.3}\t{:.3}\n", run.after_close, run.after_kill);
    }
    Ok(out)
}
