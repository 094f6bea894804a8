//! The cost of HTTP: batches beside the service without HTTP, and single reports beside a store
//! that does nothing.

use super::runs::{Figures, Outcome, Runs, Target};
use crate::limit::{Claim, Limit};
use crate::spread::Spread;

/// The contestants: name and arguments.
const WHO: [(&str, &[&str]); 5] = [
    ("batches of 100, without HTTP", &["--direct"]),
    ("batches of 100", &[]),
    (
        "single reports, a store that does nothing",
        &["--batch=1", "--connections=64", "--nothing"],
    ),
    (
        "single reports, visible",
        &["--batch=1", "--connections=64"],
    ),
    (
        "single reports, durable",
        &["--batch=1", "--connections=64", "--durable"],
    ),
];
/// Limits: the rate of the first contestant must be at least this multiple of the second's.
const LIMITS: [(usize, usize, f64); 2] = [(1, 0, 0.5), (3, 2, 0.7)];

/// Runs all of them, alternating. Returns a table, and the same tab-separated.
pub(super) fn measure(runs: &Runs) -> Result<Outcome, String> {
    let target = Target {
        rocksdb: false,
        row: "1",
        sync: "each",
    };
    let mut all: Vec<Vec<Figures>> = vec![Vec::new(); WHO.len()];
    for round in 0..runs.rounds {
        for ((name, more), figures) in WHO.into_iter().zip(&mut all) {
            let run = runs.fresh(target, ("http", runs.seconds(20)), more)?;
            let rate = run.get("per_second")?;
            eprintln!(
                "round {} of {}, {name}: {rate:.0} reports/s",
                round + 1,
                runs.rounds
            );
            figures.push(run);
        }
    }
    let rates = |nth: usize| -> Result<Vec<f64>, String> {
        all[nth].iter().map(|run| run.get("per_second")).collect()
    };
    let mut text =
        String::from("\n| over HTTP | reports/s | p50, µs | p99, µs |\n|---|---:|---:|---:|\n");
    let mut tsv = String::from("who\tround\tper_second\tp50_micros\tp99_micros\n");
    for (nth, (name, _)) in WHO.into_iter().enumerate() {
        let spread = |figure: &str| -> Result<f64, String> {
            let values: Result<Vec<f64>, String> =
                all[nth].iter().map(|run| run.get(figure)).collect();
            Ok(Spread::of(values?.into_iter()).median)
        };
        let rate = Spread::of(rates(nth)?.into_iter());
        text += &format!(
            "| {name} | {:.0} [{:.0}..{:.0}] | {:.0} | {:.0} |\n",
            rate.median,
            rate.low,
            rate.high,
            spread("p50_micros")?,
            spread("p99_micros")?
        );
        for (round, run) in all[nth].iter().enumerate() {
            tsv += &format!("{name}\t{round}");
            for figure in ["per_second", "p50_micros", "p99_micros"] {
                tsv += &format!("\t{:.3}", run.get(figure)?);
            }
            tsv.push('\n');
        }
    }
    let mut claims = Vec::new();
    for (one, other, limit) in LIMITS {
        let pairs = rates(one)?.into_iter().zip(rates(other)?);
        claims.push(Claim::new(
            format!("{} over {}", WHO[one].0, WHO[other].0),
            Limit::AtLeast(limit),
            Spread::of(pairs.map(|(one, other)| one / other)),
        ));
    }
    Ok(Outcome { text, tsv, claims })
}
