//! The cost of durable answers, with many calls in progress.

use super::runs::{Figures, Outcome, Runs, Target};
use crate::limit::{Claim, Limit};
use crate::spread::Spread;

/// The contestants: name, target, acknowledgement.
const WHO: [(&str, Target<'static>, &str); 5] = [
    ("Ironstone, visible", target(false, "each"), "visible"),
    ("Ironstone, durable", target(false, "each"), "durable"),
    ("RocksDB, visible", target(true, "each"), "visible"),
    ("RocksDB, sync", target(true, "each"), "durable"),
    (
        "RocksDB, one thread that syncs",
        target(true, "flusher"),
        "durable",
    ),
];

const fn target(rocksdb: bool, sync: &'static str) -> Target<'static> {
    Target {
        rocksdb,
        row: "1",
        sync,
    }
}

/// Runs all of them, alternating. Returns a table, and the same tab-separated.
pub(super) fn measure(runs: &Runs) -> Result<Outcome, String> {
    let mut all: Vec<Vec<Figures>> = vec![Vec::new(); WHO.len()];
    for round in 0..runs.rounds {
        for ((name, target, ack), figures) in WHO.into_iter().zip(&mut all) {
            let more = ["--threads=8", "--depth=512", "--ack", ack].map(str::to_owned);
            let run = runs.fresh(target, ("write", runs.seconds(60)), &more)?;
            let rate = run.get("per_second")?;
            eprintln!(
                "round {} of {}, {name}: {rate:.0}/s",
                round + 1,
                runs.rounds
            );
            figures.push(run);
        }
    }
    let spread = |nth: usize, figure: &str| -> Result<Spread, String> {
        let values: Result<Vec<f64>, String> = all[nth].iter().map(|run| run.get(figure)).collect();
        Ok(Spread::of(values?.into_iter()))
    };
    let mut text = String::from(
        "\n| 4,096 reports on their way | answers/s | p50, ms | p99, ms | device writes for 1,000 |\n|---|---:|---:|---:|---:|\n",
    );
    let mut tsv =
        String::from("who\tround\tper_second\tp50_micros\tp99_micros\tdevice_writes\treports\n");
    for (nth, (name, ..)) in WHO.into_iter().enumerate() {
        let (rate, p50, p99) = (
            spread(nth, "per_second")?,
            spread(nth, "p50_micros")?,
            spread(nth, "p99_micros")?,
        );
        let writes = spread(nth, "device_writes")?.median / spread(nth, "reports")?.median * 1000.0;
        text += &format!(
            "| {name} | {:.0} [{:.0}..{:.0}] | {:.1} | {:.1} | {writes:.1} |\n",
            rate.median,
            rate.low,
            rate.high,
            p50.median / 1000.0,
            p99.median / 1000.0
        );
        for (round, run) in all[nth].iter().enumerate() {
            tsv += &format!("{name}\t{round}");
            for figure in [
                "per_second",
                "p50_micros",
                "p99_micros",
                "device_writes",
                "reports",
            ] {
                tsv += &format!("\t{:.3}", run.get(figure)?);
            }
            tsv.push('\n');
        }
    }
    let mut claims = Vec::new();
    for (nth, limit) in [(0, 0.7), (3, 2.0), (4, 1.5)] {
        let pairs = all[1].iter().zip(&all[nth]);
        let ratios: Result<Vec<f64>, String> = pairs
            .map(|(ours, other)| Ok(ours.get("per_second")? / other.get("per_second")?))
            .collect();
        claims.push(Claim::new(
            format!("durable answers of Ironstone over {}", WHO[nth].0),
            Limit::AtLeast(limit),
            Spread::of(ratios?.into_iter()),
        ));
    }
    Ok(Outcome { text, tsv, claims })
}
