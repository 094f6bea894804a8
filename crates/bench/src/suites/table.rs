//! A report for a terminal, and as tab-separated values with one line for each run.

use super::data::{Engine, Latency, Report, Run};

/// A Markdown table of ratios and medians.
pub(super) fn terminal(report: &Report) -> String {
    let mut lines = vec![
        String::new(),
        "| benchmark        | Ironstone µs/op | RocksDB µs/op | speed over RocksDB's | spread      | p99.9 µs: Ironstone, RocksDB | pairs |".to_owned(),
        "|------------------|----------------:|--------------:|---------------------:|-------------|-----------------------------:|------:|".to_owned(),
    ];
    for benchmark in &report.benchmarks {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "–".to_owned(), |v| format!("{v:.digits$}"))
        };
        let micros = |engine| {
            let spread = benchmark.spread(engine, |run| Some(run.micros_per_op));
            number(spread.map(|s| s.median), 3)
        };
        let tail = |engine| {
            let spread = benchmark.spread(engine, |run| Some(run.latency?.p99_9));
            number(spread.map(|s| s.median), 1)
        };
        let ratio = benchmark.ratio();
        let spread = ratio.map_or_else(String::new, |r| format!("{:.2}–{:.2}", r.low, r.high));
        lines.push(format!(
            "| {:<16} | {:>15} | {:>13} | {:>20} | {spread:<11} | {:>28} | {:>5} |",
            benchmark.name,
            micros(Engine::Ironstone),
            micros(Engine::RocksDb),
            number(ratio.map(|r| r.median), 2),
            format!("{}, {}", tail(Engine::Ironstone), tail(Engine::RocksDb)),
            benchmark.ratios().count()
        ));
    }
    if let Some(mean) = report.geometric_mean() {
        lines.push(format!(
            "\nGeometric mean: {mean:.2}. Above 1, Ironstone is faster. Times are medians; the ratio \
             is the median of\nthe ratios within each pair, for only these two were measured in the \
             same minute."
        ));
    }
    if report.settings.pairs < 5 {
        lines
            .push("Fewer than five pairs: enough to see that it works, not to publish.".to_owned());
    }
    for extra in &report.extras {
        lines.push(format!(
            "\n{} ({})\n{}",
            extra.title, extra.command, extra.text
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// A heading, and the figure of a run.
type Column = (&'static str, fn(&Run) -> Option<f64>);

const COLUMNS: [Column; 22] = [
    ("micros_per_op", |r| Some(r.micros_per_op)),
    ("ops_per_second", |r| Some(r.ops_per_second)),
    ("seconds", |r| Some(r.seconds)),
    ("operations", |r| Some(r.operations as f64)),
    ("peak_memory_mib", |r| {
        Some(r.process?.peak_memory_mib as f64)
    }),
    ("cpu_user_seconds", |r| Some(r.process?.user_seconds)),
    ("cpu_system_seconds", |r| Some(r.process?.system_seconds)),
    ("process_written_bytes", |r| {
        Some(r.process?.written_bytes as f64)
    }),
    ("process_read_bytes", |r| Some(r.process?.read_bytes as f64)),
    ("write_amplification", |r| r.write_amplification),
    ("database_bytes", |r| Some(r.database_bytes? as f64)),
    ("space_amplification", |r| r.space_amplification),
    ("stalls", |r| Some(r.stalls.as_ref()?.count as f64)),
    ("stall_seconds", |r| Some(r.stalls.as_ref()?.seconds)),
    ("device_reads", |r| Some(r.device?.reads as f64)),
    ("device_read_bytes", |r| Some(r.device?.read_bytes as f64)),
    ("device_writes", |r| Some(r.device?.writes as f64)),
    ("device_written_bytes", |r| {
        Some(r.device?.written_bytes as f64)
    }),
    ("device_flushes", |r| Some(r.device?.flushes as f64)),
    ("files", |r| {
        let files: u64 = r.final_levels.iter().map(|l| l.files).sum();
        Some(files as f64)
    }),
    ("levels_mib", |r| {
        let mib: u64 = r.final_levels.iter().map(|l| l.mib).sum();
        Some(mib as f64)
    }),
    ("worst_second_ops", |r| {
        let worst = r.rates.iter().map(|rate| rate.ops).min()?;
        Some(worst as f64)
    }),
];

/// One line for each run; missing figures are empty.
pub(super) fn tsv(report: &Report) -> String {
    let mut heads = vec!["benchmark", "pair", "engine", "place", "ratio"];
    heads.extend(COLUMNS.iter().map(|(name, _)| *name));
    heads.extend(Latency::NAMES);
    let mut lines = vec![heads.join("\t")];
    for benchmark in &report.benchmarks {
        for (number, pair) in (1..).zip(&benchmark.pairs) {
            for engine in [pair.first, pair.first.other()] {
                let Some(run) = pair.run(engine) else {
                    continue;
                };
                let place = if engine == pair.first { 1 } else { 2 };
                let ratio = pair.ratio().map_or(String::new(), |r| format!("{r:.4}"));
                let mut fields = vec![
                    benchmark.name.clone(),
                    number.to_string(),
                    engine.name().to_owned(),
                    place.to_string(),
                    ratio,
                ];
                let field = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
                fields.extend(COLUMNS.iter().map(|(_, of)| field(of(run))));
                let latency = run.latency.map(Latency::all);
                fields.extend((0..Latency::NAMES.len()).map(|i| field(latency.map(|all| all[i]))));
                lines.push(fields.join("\t"));
            }
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::data::tests::{benchmark, report};

    #[test]
    fn every_run_has_a_line_and_every_line_all_columns() {
        let mut report = report(vec![
            benchmark("fillseq", &[(1.0, 2.0), (10.0, 10.0), (2.0, 6.0)]),
            benchmark("readseq", &[]),
        ]);
        report.benchmarks[0].pairs[1].rocksdb = None;
        let text = tsv(&report);
        let widths: Vec<usize> = text.lines().map(|l| l.split('\t').count()).collect();
        assert_eq!(widths, [32; 6]);
        assert!(
            text.contains("fillseq\t1\tIronstone\t1\t2.0000\t1\t1000000\t1\t1000000\t\t"),
            "{text}"
        );
        let table = terminal(&report);
        assert!(
            table.contains("| fillseq          |           2.000 |         4.000 |                 2.50 | 2.00–3.00   |"),
            "{table}"
        );
        assert!(
            table.contains("| readseq          |               – |"),
            "{table}"
        );
        assert!(table.contains("Fewer than five pairs"));
    }
}
