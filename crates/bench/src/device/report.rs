//! The report: medians over the pairs and ratios within each, as a table, TSV and JSON.
//!
//! Ratios are computed within a pair, whose three runs follow each other, and then their median
//! over the pairs: changes of the machine's speed between pairs do not affect them.

use serde_json::{Value, json};

use super::run::Figures;
use crate::spread::Spread;

/// The conditions of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) fs: &'static str,
    pub(crate) cache: &'static str,
    /// The limit of the device, writes per second.
    pub(crate) limit: Option<u32>,
    pub(crate) threads: u32,
    /// The puts of one run.
    pub(crate) puts: u64,
}

impl Case {
    pub(crate) fn disk(&self) -> String {
        let limit = self.limit.map_or(String::new(), |n| format!(" {n}/s"));
        format!("{} {}{limit}", self.fs, self.cache)
    }
}

/// Runs one right after the other, each interleaved with raw writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) floor: Figures,
    /// The first half of the raw writes beside Ironstone's puts, and the second half.
    pub(crate) halves: [Figures; 2],
    pub(crate) ironstone: Figures,
    /// The raw writes beside RocksDB's puts.
    pub(crate) rocksdb_floor: Figures,
    pub(crate) rocksdb: Figures,
}

type Side = (&'static str, fn(&Pair) -> &Figures);

const SIDES: [Side; 3] = [
    ("raw floor", |p| &p.floor),
    ("Ironstone", |p| &p.ironstone),
    ("RocksDB", |p| &p.rocksdb),
];

/// All measurements.
#[derive(Default)]
pub(crate) struct Report {
    /// The machine and the common settings, one line each.
    pub(crate) notes: Vec<String>,
    cases: Vec<(Case, Vec<Pair>)>,
}

/// The ratios of Ironstone to RocksDB and to the floor in a case.
struct Ratios {
    /// Puts per second over RocksDB's: above 1, Ironstone is faster.
    rocksdb: Spread,
    /// Wall-clock time per put over that of a raw write: 1 is the device's own speed; below 1,
    /// threads share writes.
    floor: Spread,
    /// Percentiles over those of the raw write, and over RocksDB's.
    floor_p50: Spread,
    floor_p999: Spread,
    /// The second half of the raw writes over the first: the device's own variation.
    again_p50: Spread,
    again_p999: Spread,
    rocksdb_p999: Spread,
    rocksdb_p9999: Spread,
    /// RocksDB's time per put over that of a raw write.
    rocksdb_floor: Spread,
}

impl Ratios {
    fn of(pairs: &[Pair]) -> Self {
        let of = |ratio: fn(&Pair) -> f64| Spread::of(pairs.iter().map(ratio));
        Self {
            rocksdb: of(|p| p.ironstone.per_second / p.rocksdb.per_second),
            floor: of(|p| p.floor.per_second / p.ironstone.per_second),
            floor_p50: of(|p| p.ironstone.p50 / p.floor.p50),
            floor_p999: of(|p| p.ironstone.p999 / p.floor.p999),
            again_p50: of(|p| p.halves[1].p50 / p.halves[0].p50),
            again_p999: of(|p| p.halves[1].p999 / p.halves[0].p999),
            rocksdb_p999: of(|p| p.ironstone.p999 / p.rocksdb.p999),
            rocksdb_p9999: of(|p| p.ironstone.p9999 / p.rocksdb.p9999),
            rocksdb_floor: of(|p| p.rocksdb_floor.per_second / p.rocksdb.per_second),
        }
    }
}

impl Report {
    pub(crate) fn add(&mut self, case: Case, pair: &Pair) {
        match self.cases.iter_mut().find(|(c, _)| *c == case) {
            Some((_, pairs)) => pairs.push(*pair),
            None => self.cases.push((case, vec![*pair])),
        }
    }

    /// Tables for a terminal.
    pub(crate) fn table(&self) -> String {
        let mut out = self.notes.join("\n");
        out.push_str(
            "\n\nPer synced put of 100 bytes, medians. requests: writes, and flushes without data; \
             writes: those with data,\na range where they could not be traced; times in \
             microseconds. Beside a run: logs begun, memtables flushed, compactions.\n\n",
        );
        let heads = [
            "requests",
            "flushes",
            "writes",
            "KiB",
            "mean",
            "p50",
            "p99",
            "p99.9",
            "p99.99",
            "puts/s",
            "logs",
            "flushed",
            "compacted",
        ];
        out.push_str(&format!("{:<24} {:>7} {:<9}", "disk", "threads", "engine"));
        for head in heads {
            out.push_str(&format!(" {head:>11}"));
        }
        out.push('\n');
        for (case, pairs) in &self.cases {
            for (name, side) in SIDES {
                let threads = if name == SIDES[0].0 { 1 } else { case.threads };
                out.push_str(&format!("{:<24} {threads:>7} {name:<9}", case.disk()));
                for cell in cells(pairs, side) {
                    out.push_str(&format!(" {cell:>11}"));
                }
                out.push('\n');
            }
        }
        out.push_str(&self.ratios());
        out.push_str(&self.tails());
        out
    }

    /// The ratios of the percentiles.
    fn tails(&self) -> String {
        let mut out = format!(
            "\nPercentiles of Ironstone's puts over those of raw writes, and over RocksDB's: median \
             [smallest..largest]. raw/raw: the \
             second half\nof the raw writes beside Ironstone's puts over the first, the device's own change.\n\n{:<24} {:>7} {:>20} {:>20} {:>20} {:>20} {:>20} {:>20}\n",
            "disk",
            "threads",
            "p50/raw",
            "p99.9/raw",
            "p50 raw/raw",
            "p99.9 raw/raw",
            "p99.9/RocksDB",
            "p99.99/RocksDB"
        );
        for (case, pairs) in &self.cases {
            let r = Ratios::of(pairs);
            out.push_str(&format!(
                "{:<24} {:>7} {:>20} {:>20} {:>20} {:>20} {:>20} {:>20}\n",
                case.disk(),
                case.threads,
                r.floor_p50.text(),
                r.floor_p999.text(),
                r.again_p50.text(),
                r.again_p999.text(),
                r.rocksdb_p999.text(),
                r.rocksdb_p9999.text()
            ));
        }
        out
    }

    fn ratios(&self) -> String {
        let mut out = format!(
            "\nRatios within a pair: median [smallest..largest]. Ironstone/RocksDB: puts a second; \
             .../raw: time for a put over a raw write's.\n\n{:<24} {:>7} {:>5} {:>20} {:>20} {:>20}\n",
            "disk", "threads", "pairs", "Ironstone/RocksDB", "Ironstone/raw", "RocksDB/raw"
        );
        for (case, pairs) in &self.cases {
            let r = Ratios::of(pairs);
            out.push_str(&format!(
                "{:<24} {:>7} {:>5} {:>20} {:>20} {:>20}\n",
                case.disk(),
                case.threads,
                pairs.len(),
                r.rocksdb.text(),
                r.floor.text(),
                r.rocksdb_floor.text()
            ));
        }
        out
    }

    /// One line for each run.
    pub(crate) fn tsv(&self) -> String {
        let mut out = String::from(
            "fs\tcache\tlimit_writes_per_s\tthreads\tputs\tpair\tengine\trequests_per_put\t\
             flushes_per_put\twrites_per_put\tsectors_per_put\tmicros\tp50\tp99\tp99.9\tp99.99\tputs_per_s\t\
             logs\tflushed\tcompacted\n",
        );
        for (case, pairs) in &self.cases {
            let limit = case.limit.map_or(String::new(), |n| n.to_string());
            for (i, pair) in pairs.iter().enumerate() {
                for (name, side) in SIDES {
                    let f = side(pair);
                    out.push_str(&format!(
                        "{}\t{}\t{limit}\t{}\t{}\t{}\t{name}\t{:.4}\t{:.4}\t{}\t{:.2}\t{:.3}\t{:.2}\t{:.2}\t{:.2}\t{:.2}\t{:.1}\t{}\t{}\t{}\n",
                        case.fs,
                        case.cache,
                        case.threads,
                        case.puts,
                        i + 1,
                        f.each.requests,
                        f.each.flushes,
                        writes(f.each.writes()),
                        f.each.sectors,
                        f.micros,
                        f.p50,
                        f.p99,
                        f.p999,
                        f.p9999,
                        f.per_second,
                        f.jobs.logs,
                        f.jobs.flushes,
                        f.jobs.compactions
                    ));
                }
            }
        }
        out
    }

    pub(crate) fn json(&self) -> String {
        let cases: Vec<Value> = self
            .cases
            .iter()
            .map(|(case, pairs)| {
                let ratios = Ratios::of(pairs);
                let runs: Vec<Value> = pairs
                    .iter()
                    .map(|pair| {
                        json!({
                            "raw_floor": figures(&pair.floor),
                            "ironstone": figures(&pair.ironstone),
                            "rocksdb": figures(&pair.rocksdb),
                        })
                    })
                    .collect();
                json!({
                    "fs": case.fs,
                    "cache": case.cache,
                    "limit_writes_per_s": case.limit,
                    "threads": case.threads,
                    "puts": case.puts,
                    "pairs": runs,
                    "ratios": {
                        "puts_per_s_over_rocksdb": ratios.rocksdb.json(),
                        "time_over_raw": ratios.floor.json(),
                        "p50_over_raw": ratios.floor_p50.json(),
                        "p99.9_over_raw": ratios.floor_p999.json(),
                        "p50_raw_over_raw": ratios.again_p50.json(),
                        "p99.9_raw_over_raw": ratios.again_p999.json(),
                        "p99.9_over_rocksdb": ratios.rocksdb_p999.json(),
                        "p99.99_over_rocksdb": ratios.rocksdb_p9999.json(),
                        "rocksdb_time_over_raw": ratios.rocksdb_floor.json(),
                    },
                })
            })
            .collect();
        format!("{:#}\n", json!({"notes": self.notes, "cases": cases}))
    }
}

fn figures(f: &Figures) -> Value {
    let (fewest, most) = f.each.writes();
    json!({
        "requests_per_put": f.each.requests,
        "flushes_per_put": f.each.flushes,
        "writes_per_put_at_least": fewest,
        "writes_per_put_at_most": most,
        "sectors_per_put": f.each.sectors,
        "bytes_per_put": f.each.bytes(),
        "micros": f.micros,
        "p50": f.p50,
        "p99": f.p99,
        "p99.9": f.p999,
        "p99.99": f.p9999,
        "logs_begun": f.jobs.logs,
        "memtables_flushed": f.jobs.flushes,
        "compactions": f.jobs.compactions,
        "puts_per_s": f.per_second,
    })
}

/// The medians of one engine in a case, in the order of the table's columns.
fn cells(pairs: &[Pair], side: fn(&Pair) -> &Figures) -> [String; 13] {
    let median = |of: fn(&Figures) -> f64| Spread::of(pairs.iter().map(|p| of(side(p)))).median;
    let fewest = median(|f| f.each.writes().0);
    let most = median(|f| f.each.writes().1);
    [
        format!("{:.2}", median(|f| f.each.requests)),
        format!("{:.2}", median(|f| f.each.flushes)),
        writes((fewest, most)),
        format!("{:.2}", median(|f| f.each.bytes()) / 1024.0),
        format!("{:.1}", median(|f| f.micros)),
        format!("{:.1}", median(|f| f.p50)),
        format!("{:.1}", median(|f| f.p99)),
        format!("{:.1}", median(|f| f.p999)),
        format!("{:.1}", median(|f| f.p9999)),
        format!("{:.0}", median(|f| f.per_second)),
        format!("{:.0}", median(|f| f.jobs.logs as f64)),
        format!("{:.0}", median(|f| f.jobs.flushes as f64)),
        format!("{:.0}", median(|f| f.jobs.compactions as f64)),
    ]
}

/// Writes with data: one number if the counters determine it, otherwise a range.
pub(crate) fn writes((fewest, most): (f64, f64)) -> String {
    let (fewest, most) = (format!("{fewest:.2}"), format!("{most:.2}"));
    if fewest == most {
        fewest
    } else {
        format!("{fewest}..{most}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::stat::Each;
    use super::*;

    fn figures(requests: f64, flushes: f64, micros: f64) -> Figures {
        Figures {
            each: Each {
                requests,
                flushes,
                sectors: 8.0,
                writes: None,
            },
            micros,
            per_second: 1e6 / micros,
            p50: micros,
            p99: micros * 2.0,
            p999: micros * 3.0,
            p9999: micros * 4.0,
            jobs: super::super::run::Jobs {
                logs: 5,
                flushes: 4,
                compactions: 1,
            },
        }
    }

    fn report() -> Report {
        let case = Case {
            fs: "ext4",
            cache: "write-back",
            limit: None,
            threads: 1,
            puts: 1000,
        };
        let mut report = Report::default();
        report.notes.push("a machine".to_owned());
        for slower in [1.0, 4.0, 2.0] {
            report.add(
                case.clone(),
                &Pair {
                    floor: figures(2.0, 1.0, 50.0 * slower),
                    halves: [figures(2.0, 1.0, 50.0 * slower); 2],
                    ironstone: figures(2.0, 1.0, 55.0 * slower),
                    rocksdb_floor: figures(2.0, 1.0, 50.0 * slower),
                    rocksdb: figures(3.0, 2.0, 110.0 * slower),
                },
            );
        }
        report.add(
            Case {
                cache: "write-through",
                limit: Some(240),
                ..case
            },
            &Pair {
                floor: figures(1.0, 0.0, 4000.0),
                halves: [figures(1.0, 0.0, 4000.0), figures(1.0, 0.0, 6000.0)],
                ironstone: figures(1.0, 0.0, 4000.0),
                rocksdb_floor: figures(1.0, 0.0, 4000.0),
                rocksdb: figures(3.0, 0.0, 12000.0),
            },
        );
        report
    }

    #[test]
    fn the_table_names_each_column() {
        let table = report().table();
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let line = |start: &[&str]| {
            lines
                .iter()
                .find(|words| words.starts_with(start))
                .unwrap_or_else(|| panic!("{start:?} in\n{table}"))
                .join(" ")
        };
        assert_eq!(
            line(&["disk"]),
            "disk threads engine requests flushes writes KiB mean p50 p99 p99.9 p99.99 puts/s \
             logs flushed compacted"
        );
        assert_eq!(
            line(&["ext4", "write-back", "1", "Ironstone"]),
            "ext4 write-back 1 Ironstone 2.00 1.00 1.00..2.00 4.00 110.0 110.0 220.0 330.0 440.0 9091 5 4 1"
        );
        assert_eq!(
            line(&["ext4", "write-through", "240/s", "1", "RocksDB"]),
            "ext4 write-through 240/s 1 RocksDB 3.00 0.00 3.00 4.00 12000.0 12000.0 24000.0 36000.0 48000.0 83 5 4 1"
        );
        // The speed differs by a factor of four between the pairs, but the ratios are equal.
        assert_eq!(
            line(&["ext4", "write-back", "1", "3"]),
            "ext4 write-back 1 3 2.00 [2.00..2.00] 1.10 [1.10..1.10] 2.20 [2.20..2.20]"
        );
        assert_eq!(
            line(&["ext4", "write-back", "1", "1.10"]),
            "ext4 write-back 1 1.10 [1.10..1.10] 1.10 [1.10..1.10] 1.00 [1.00..1.00] 1.00 [1.00..1.00] 0.50 [0.50..0.50] 0.50 [0.50..0.50]"
        );
    }

    #[test]
    fn tsv_and_json_have_every_run() {
        let tsv = report().tsv();
        let widths: Vec<usize> = tsv.lines().map(|l| l.split('\t').count()).collect();
        assert_eq!(widths, [20; 13]);
        let json: Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!(json["cases"][0]["pairs"].as_array().unwrap().len(), 3);
        assert_eq!(
            json["cases"][0]["pairs"][0]["ironstone"]["bytes_per_put"],
            4096.0
        );
        assert_eq!(json["cases"][1]["limit_writes_per_s"], 240);
        let ratio = &json["cases"][1]["ratios"]["puts_per_s_over_rocksdb"]["median"];
        assert!((ratio.as_f64().unwrap() - 3.0).abs() < 1e-9);
    }
}
