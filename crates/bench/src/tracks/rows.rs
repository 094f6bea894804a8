//! The rows of settings: the effect of tuning on RocksDB, and of each row on both engines.

use super::runs::{Figures, Outcome, Runs, Target};
use crate::limit::{Claim, Limit};
use crate::spread::Spread;

const ROWS: &str = "0,1,1-2016,2,3,4,5,6";
/// Rows without tuning: the defaults with one put, and with four calls.
const UNTUNED: [&str; 2] = ["0", "6"];

#[derive(Clone, clap::Args)]
pub(super) struct Arguments {
    /// Only these rows
    #[arg(long, value_delimiter = ',', default_value = ROWS)]
    rows: Vec<String>,
    /// Write visits, too
    #[arg(long)]
    visits: bool,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            rows: ROWS.split(',').map(str::to_owned).collect(),
            visits: false,
        }
    }
}

/// A run, and its figures.
struct Run {
    rocksdb: bool,
    row: String,
    figures: Figures,
    after_close: f64,
    after_kill: f64,
}

/// The columns: heading, figure, divisor.
const COLUMNS: [(&str, &str, f64); 17] = [
    ("requests/s", "per_second", 1.0),
    ("p50, µs", "p50_micros", 1.0),
    ("p99, µs", "p99_micros", 1.0),
    ("p99.9, µs", "p99_9_micros", 1.0),
    ("longest, ms", "longest_micros", 1000.0),
    ("worst second, %", "worst_second", 0.01),
    ("processors taken by the host, %", "stolen", 0.01),
    ("seconds without that", "undisturbed_seconds", 1.0),
    ("worst of them, %", "worst_undisturbed", 0.01),
    ("stopped, s", "stopped_seconds", 1.0),
    ("level 0", "level0_max", 1.0),
    ("debt at half time, MiB", "debt_half", MIB),
    ("at the end", "debt_end", MIB),
    ("written, MiB", "bytes_written", MIB),
    ("memory, MiB", "memory_max", MIB),
    ("processor, s", "cpu_seconds", 1.0),
    ("load, s", "load_seconds", 1.0),
];
const MIB: f64 = 1_048_576.0;

/// Runs everything. Returns a table, and the same tab-separated.
pub(super) fn measure(arguments: &Arguments, runs: &Runs) -> Result<Outcome, String> {
    let mut all: Vec<Run> = Vec::new();
    let mut floor: Vec<Figures> = Vec::new();
    for round in 0..runs.rounds {
        let seconds = runs.seconds(120);
        floor.push(runs.fresh(target(false, "1"), ("write", seconds), &["--nothing"])?);
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
    let mut text = text(arguments, &all)? + &on_nothing(&floor)?;
    if let (false, Some(run)) = (runs.is_simulated, all.first()) {
        let share = run.figures.get("changes")? * 100.0;
        text += &format!(
            "\n{share:.0} % of the reports are in another cell than the one before of their object.\n"
        );
    }
    Ok(Outcome {
        text,
        tsv: tsv(&all)?,
        claims: claims(arguments, &all)?,
    })
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
    let seconds = runs.seconds(120);
    let figures = runs.fresh(target, ("write", seconds), more)?;
    let after_close = runs.open(target)?;
    runs.kill(target, seconds.div_ceil(10))?;
    let after_kill = runs.open(target)?;
    let run = Run {
        rocksdb,
        row: row.to_owned(),
        figures,
        after_close,
        after_kill,
    };
    if runs.is_simulated {
        check_operations(arguments, &run)?;
    }
    Ok(run)
}

/// The spread of a figure over all rounds of a row.
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
    Ok(out)
}

/// What the same threads do on a store that does nothing: how steady the machine is.
fn on_nothing(all: &[Figures]) -> Result<String, String> {
    let spread = |name: &str| -> Result<Spread, String> {
        let values: Result<Vec<f64>, String> = all.iter().map(|run| run.get(name)).collect();
        Ok(Spread::of(values?.into_iter()))
    };
    let percent = |name: &str| -> Result<String, String> {
        let Spread { low, median, high } = spread(name)?;
        Ok(format!(
            "{:.0} % [{:.0}..{:.0}]",
            median * 100.0,
            low * 100.0,
            high * 100.0
        ))
    };
    Ok(format!(
        "\nThe same threads on a store that does nothing: {:.0} requests/s, worst second {} of the mean; the host took {} of \
         the processors.\n",
        spread("per_second")?.median,
        percent("worst_second")?,
        percent("stolen")?
    ))
}

/// The claims about Ironstone's defaults beside the best that tuning gives RocksDB.
fn claims(arguments: &Arguments, all: &[Run]) -> Result<Vec<Claim>, String> {
    let mut out = Vec::new();
    if arguments.rows.iter().any(|row| row == "1") {
        defaults(arguments, all, &mut out)?;
    }
    Ok(out)
}

/// Checks that each report is three puts and a delete, or the single put of row 0. Errors: it is
/// not, so that the figures are meaningless.
fn check_operations(arguments: &Arguments, run: &Run) -> Result<(), String> {
    let wanted = if run.row == "0" { 1.0 } else { 4.0 };
    let figure = run.figures.get("operations_per_report")?;
    if arguments.visits || (figure - wanted).abs() < 0.01 {
        return Ok(());
    }
    let engine = target(run.rocksdb, &run.row).engine();
    Err(format!(
        "row {}, {engine}: {figure:.3} operations for a report, and not {wanted}",
        run.row
    ))
}

/// RocksDB's fastest rows: of all, and of those whose compaction debt does not grow.
struct Best<'a> {
    of_all: Option<&'a str>,
    stable: Option<&'a str>,
}

fn best<'a>(arguments: &'a Arguments, all: &[Run]) -> Result<Best<'a>, String> {
    let (mut fastest, mut stable) = ((0.0, None), (0.0, None));
    for row in &arguments.rows {
        if UNTUNED.contains(&row.as_str()) {
            continue;
        }
        let median = |name: &'static str| {
            spread(all, (true, row), move |run| run.figures.get(name)).map(|s| s.median)
        };
        let rate = median("per_second")?;
        let is_stable = median("debt_end")? <= 1.25 * median("debt_half")? + 256.0 * MIB
            && median("level0_max")? < 100.0;
        if rate > fastest.0 {
            fastest = (rate, Some(row.as_str()));
        }
        if is_stable && rate > stable.0 {
            stable = (rate, Some(row.as_str()));
        }
    }
    Ok(Best {
        of_all: fastest.1,
        stable: stable.1,
    })
}

fn defaults(arguments: &Arguments, all: &[Run], out: &mut Vec<Claim>) -> Result<(), String> {
    use Limit::{AtLeast, AtMost};
    let of = |of: (bool, &str), name: &'static str| -> Result<f64, String> {
        Ok(spread(all, of, move |run| run.figures.get(name))?.median)
    };
    let ours = (false, "1");
    let rate = of(ours, "per_second")?;
    let best = best(arguments, all)?;
    let all_best = [
        ("row with stable debt", best.stable, 2.5),
        ("row of all", best.of_all, 2.0),
    ];
    for (what, row, limit) in all_best {
        let Some(row) = row else {
            continue;
        };
        let theirs = (true, row);
        let figure = rate / of(theirs, "per_second")?;
        let what = format!("defaults over RocksDB's best {what}, {row}");
        out.push(Claim::of(&what, AtLeast(limit), figure));
        for (name, figure) in [("p99", "p99_micros"), ("p99.9", "p99_9_micros")] {
            let figure = of(ours, figure)? / of(theirs, figure)?;
            out.push(Claim::of(format!("{name}: {what}"), AtMost(1.0), figure));
        }
    }
    let own = |name: &'static str| spread(all, ours, move |run| run.figures.get(name));
    // Of promises for every moment, the worst round counts.
    let (least, most) = (|spread: Spread| spread.low, |spread: Spread| spread.high);
    out.extend([
        Claim::of("defaults: requests/s", AtLeast(50_000.0), rate),
        Claim::of(
            "defaults: worst second over the mean",
            AtLeast(0.7),
            least(own("worst_second")?),
        ),
        Claim::of(
            "defaults: most files in level 0",
            AtMost(20.0),
            most(own("level0_max")?),
        ),
        Claim::of(
            "defaults: seconds in which writes were stopped",
            AtMost(0.0),
            most(own("stopped_seconds")?),
        ),
        Claim::of(
            "defaults: opening after a kill, s",
            AtMost(2.0),
            most(spread(all, ours, |run| Ok(run.after_kill))?),
        ),
    ]);
    // Of few seconds, the worst says nothing.
    if least(own("undisturbed_seconds")?) >= 20.0 {
        out.push(Claim::of(
            "defaults: worst of the seconds in which the host took at most 2 % of the processors",
            AtLeast(0.7),
            least(own("worst_undisturbed")?),
        ));
    }
    if arguments.rows.iter().any(|row| row == "0") {
        let figure = rate / of((false, "0"), "per_second")?;
        out.push(Claim::of("row 1 over row 0", AtLeast(0.35), figure));
    }
    Ok(())
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
