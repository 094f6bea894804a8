//! What the pairs give: medians, ratios, spread; as a table, JSON and TSV.

use serde_json::json;

/// Everything measured, in the order of measurement.
pub(crate) struct Report {
    /// The flags that both engines got.
    pub(crate) flags: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    benchmark: String,
    /// Microseconds an operation: Ironstone's, RocksDB's.
    pairs: Vec<(f64, f64)>,
}

impl Row {
    fn ours(&self) -> f64 {
        median(self.pairs.iter().map(|p| p.0))
    }

    fn theirs(&self) -> f64 {
        median(self.pairs.iter().map(|p| p.1))
    }

    /// RocksDB's time over Ironstone's in each pair: above 1, Ironstone is faster.
    fn ratios(&self) -> impl Iterator<Item = f64> {
        self.pairs.iter().map(|(ours, theirs)| theirs / ours)
    }

    /// Median, smallest and largest ratio.
    fn spread(&self) -> (f64, f64, f64) {
        (
            median(self.ratios()),
            self.ratios().fold(f64::INFINITY, f64::min),
            self.ratios().fold(0.0, f64::max),
        )
    }
}

impl Report {
    pub(crate) fn new(flags: Vec<String>) -> Self {
        Self {
            flags,
            rows: Vec::new(),
        }
    }

    /// Adds a pair: microseconds an operation.
    pub(crate) fn add(&mut self, benchmark: &str, ours: f64, theirs: f64) {
        match self.rows.iter_mut().find(|row| row.benchmark == benchmark) {
            Some(row) => row.pairs.push((ours, theirs)),
            None => self.rows.push(Row {
                benchmark: benchmark.to_owned(),
                pairs: vec![(ours, theirs)],
            }),
        }
    }

    /// The geometric mean of the benchmarks' median ratios.
    fn mean(&self) -> f64 {
        let logs: f64 = self.rows.iter().map(|row| row.spread().0.ln()).sum();
        (logs / self.rows.len().max(1) as f64).exp()
    }

    /// A Markdown table.
    pub(crate) fn table(&self) -> String {
        let mut lines = vec![
            format!("\nFlags of both: {}\n", self.flags.join(" ")),
            "| benchmark   | Ironstone µs/op | RocksDB µs/op | speed relative to RocksDB | spread      | pairs |"
                .to_owned(),
            "|-------------|----------------:|--------------:|--------------------------:|-------------|------:|"
                .to_owned(),
        ];
        for row in &self.rows {
            let (ratio, low, high) = row.spread();
            let spread = format!("{low:.2}–{high:.2}");
            lines.push(format!(
                "| {:<11} | {:>15.3} | {:>13.3} | {ratio:>25.2} | {spread:<11} | {:>5} |",
                row.benchmark,
                row.ours(),
                row.theirs(),
                row.pairs.len()
            ));
        }
        lines.push(format!(
            "\nGeometric mean: {:.2}. Above 1, Ironstone is faster. Times are medians; the ratio is \
             the median of\nthe ratios within each pair, for only these two were measured in the \
             same minute.\n",
            self.mean()
        ));
        lines.join("\n")
    }

    /// All figures.
    pub(crate) fn json(&self) -> String {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                let (ratio, low, high) = row.spread();
                json!({
                    "benchmark": row.benchmark,
                    "ironstone_micros_per_op": row.ours(),
                    "rocksdb_micros_per_op": row.theirs(),
                    "ratio_median": ratio,
                    "ratio_min": low,
                    "ratio_max": high,
                    "pairs": row.pairs.iter().map(|(ours, theirs)| json!({
                        "ironstone_micros_per_op": ours,
                        "rocksdb_micros_per_op": theirs,
                        "ratio": theirs / ours,
                    })).collect::<Vec<_>>(),
                })
            })
            .collect();
        let report = json!({
            "flags": self.flags,
            "geometric_mean": self.mean(),
            "benchmarks": rows,
        });
        format!("{report:#}\n")
    }

    /// A line for each pair.
    pub(crate) fn tsv(&self) -> String {
        let mut lines =
            vec![["benchmark", "pair", "ironstone_us", "rocksdb_us", "ratio"].join("\t")];
        for row in &self.rows {
            for (i, (ours, theirs)) in row.pairs.iter().enumerate() {
                let (name, pair, ratio) = (&row.benchmark, i + 1, theirs / ours);
                lines.push(format!("{name}\t{pair}\t{ours}\t{theirs}\t{ratio:.4}"));
            }
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

/// The middle value, or the mean of the two middle ones; 0 for none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_pairs() {
        let mut report = Report::new(vec!["--num=10".to_owned()]);
        for (ours, theirs) in [(1.0, 2.0), (10.0, 10.0), (2.0, 6.0)] {
            report.add("fillseq", ours, theirs);
        }
        let row = &report.rows[0];
        assert_eq!((row.ours(), row.theirs()), (2.0, 6.0));
        assert_eq!(row.spread(), (2.0, 1.0, 3.0));
        assert!(
            report
                .table()
                .contains("| fillseq     |           2.000 |         6.000 |")
        );
        assert_eq!(
            report.tsv().lines().nth(3),
            Some("fillseq\t3\t2\t6\t3.0000")
        );
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["benchmarks"][0]["ratio_median"], 2.0);
        assert!((median([4.0, 1.0].into_iter()) - 2.5).abs() < 1e-9);
    }
}
