//! The measurements of a suite, as they are stored in `report.json`, and figures derived from them.
//!
//! All other outputs are computed from this, so that a page can be made again from a stored report
//! and two stored reports can be compared. A figure that a run does not have is absent (`null`),
//! never zero.

use serde::{Deserialize, Serialize};

use crate::spread::Spread;

/// The version of the stored form. It is increased by changes that an older reader would misread.
pub(crate) const SCHEMA: u64 = 1;

/// The results of a suite.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) schema: u64,
    pub(crate) suite: String,
    /// When the suite began: `2026-11-23T10:20:30Z`.
    pub(crate) date: String,
    /// The command that runs it again.
    pub(crate) command: String,
    /// Whether all runs were completed.
    pub(crate) complete: bool,
    /// Why not all runs were completed.
    pub(crate) problem: Option<String>,
    pub(crate) settings: Settings,
    pub(crate) versions: Versions,
    pub(crate) machine: Vec<Fact>,
    pub(crate) benchmarks: Vec<Benchmark>,
    /// Measurements of other commands of `cargo xtask` for this report.
    pub(crate) extras: Vec<Extra>,
}

/// The settings that all runs of a suite share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The number of keys of a database.
    pub(crate) num: u64,
    /// The requested number of pairs.
    pub(crate) pairs: u32,
    /// Synced puts per run.
    pub(crate) syncs: u64,
    /// The length of timed runs, seconds.
    pub(crate) seconds: u32,
    /// Flags of db_bench for both engines.
    pub(crate) flags: Vec<String>,
}

/// The versions that the engines report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Versions {
    pub(crate) ironstone: Option<String>,
    pub(crate) rocksdb: Option<String>,
    /// The commit that Ironstone was built from.
    pub(crate) commit: Option<String>,
}

/// A property of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// The two sides of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    Ironstone,
    RocksDb,
}

impl Engine {
    pub(crate) const BOTH: [Self; 2] = [Self::Ironstone, Self::RocksDb];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ironstone => "Ironstone",
            Self::RocksDb => "RocksDB",
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Ironstone => Self::RocksDb,
            Self::RocksDb => Self::Ironstone,
        }
    }
}

/// A benchmark with its pairs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Benchmark {
    pub(crate) name: String,
    /// A description of one operation.
    pub(crate) about: String,
    /// Whether its operations write.
    pub(crate) writes: bool,
    pub(crate) pairs: Vec<Pair>,
}

/// A run of each engine, one right after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) first: Engine,
    pub(crate) ironstone: Option<Run>,
    pub(crate) rocksdb: Option<Run>,
}

/// The figures of one run of db_bench.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) command: String,
    pub(crate) micros_per_op: f64,
    pub(crate) ops_per_second: f64,
    pub(crate) seconds: f64,
    pub(crate) operations: u64,
    pub(crate) latency: Option<Latency>,
    pub(crate) process: Option<Process>,
    /// Bytes written by the process over bytes put by the user.
    pub(crate) write_amplification: Option<f64>,
    /// The size of the directory on the device afterwards.
    pub(crate) database_bytes: Option<u64>,
    /// That size over the bytes of the live keys and values.
    pub(crate) space_amplification: Option<f64>,
    /// Operations of the whole device, from before the run until everything written was on the
    /// device.
    pub(crate) device: Option<Device>,
    pub(crate) stalls: Option<Stalls>,
    pub(crate) rates: Vec<Rate>,
    pub(crate) levels: Vec<Levels>,
    /// The levels at the end, from level 0.
    pub(crate) final_levels: Vec<Level>,
}

/// Latency of an operation, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
    pub(crate) p99_99: f64,
    pub(crate) max: f64,
}

impl Latency {
    pub(crate) const NAMES: [&'static str; 5] = ["p50", "p99", "p99.9", "p99.99", "max"];

    pub(crate) fn all(self) -> [f64; 5] {
        [self.p50, self.p99, self.p99_9, self.p99_99, self.max]
    }
}

/// Resources used by the process, including the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) peak_memory_mib: u64,
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
    pub(crate) written_bytes: u64,
    pub(crate) read_bytes: u64,
}

impl Process {
    pub(crate) fn cpu_seconds(self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}

/// Operations of a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    /// Write requests; empty flushes count, too.
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) flushes: u64,
}

/// Write stalls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stalls {
    /// How often writers were delayed or stopped.
    pub(crate) count: u64,
    /// The total time, seconds; both engines report milliseconds.
    pub(crate) seconds: f64,
    /// The begin of each, in seconds since the database was opened.
    pub(crate) at: Vec<f64>,
}

/// The number of operations in one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rate {
    pub(crate) second: u64,
    pub(crate) ops: u64,
}

/// The number of files of each level, from level 0 to the last that has any, after a flush or a
/// compaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Levels {
    /// Seconds since the database was opened.
    pub(crate) at: f64,
    pub(crate) files: Vec<u64>,
}

/// A level at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Level {
    pub(crate) files: u64,
    pub(crate) mib: u64,
}

/// The output of another command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Extra {
    pub(crate) title: String,
    pub(crate) command: String,
    /// Text with Markdown tables.
    pub(crate) text: String,
}

impl Pair {
    pub(crate) fn run(&self, engine: Engine) -> Option<&Run> {
        match engine {
            Engine::Ironstone => self.ironstone.as_ref(),
            Engine::RocksDb => self.rocksdb.as_ref(),
        }
    }

    pub(crate) fn set(&mut self, engine: Engine, run: Run) {
        match engine {
            Engine::Ironstone => self.ironstone = Some(run),
            Engine::RocksDb => self.rocksdb = Some(run),
        }
    }

    /// RocksDB's time over Ironstone's: above 1, Ironstone is faster.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (ours, theirs) = (self.ironstone.as_ref()?, self.rocksdb.as_ref()?);
        Some(theirs.micros_per_op / ours.micros_per_op).filter(|r| r.is_finite() && *r > 0.0)
    }
}

impl Benchmark {
    pub(crate) fn runs(&self, engine: Engine) -> impl Iterator<Item = &Run> {
        self.pairs.iter().filter_map(move |pair| pair.run(engine))
    }

    /// The ratios of the pairs that have both runs.
    pub(crate) fn ratios(&self) -> impl Iterator<Item = f64> {
        self.pairs.iter().filter_map(Pair::ratio)
    }

    pub(crate) fn ratio(&self) -> Option<Spread> {
        Spread::some(self.ratios())
    }

    /// The spread of a figure over all runs of an engine that have it.
    pub(crate) fn spread(
        &self,
        engine: Engine,
        figure: impl Fn(&Run) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::some(self.runs(engine).filter_map(figure))
    }

    /// The pair whose ratio is nearest to the median, which single-run plots show.
    pub(crate) fn typical(&self) -> Option<&Pair> {
        let median = self.ratio()?.median;
        let distance = |pair: &&Pair| (pair.ratio().unwrap_or(f64::MAX) / median).ln().abs();
        self.pairs
            .iter()
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }
}

impl Report {
    /// The geometric mean of the benchmarks' median ratios.
    pub(crate) fn geometric_mean(&self) -> Option<f64> {
        let logs: Vec<f64> = self
            .benchmarks
            .iter()
            .filter_map(|b| Some(b.ratio()?.median.ln()))
            .collect();
        let sum: f64 = logs.iter().sum();
        (!logs.is_empty()).then(|| (sum / logs.len() as f64).exp())
    }

    /// The stored form.
    pub(crate) fn json(&self) -> Result<String, String> {
        let text = serde_json::to_string(self).map_err(|e| e.to_string())?;
        Ok(text + "\n")
    }

    /// Reads the stored form. Errors: it is not a report, or has another schema.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
        match value["schema"].as_u64() {
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(format!(
                    "schema {other}, and this command reads schema {SCHEMA}: measure it again, or \
                     use the commit that wrote it"
                ));
            }
            None => return Err("no report of cargo xtask bench: it has no schema".to_owned()),
        }
        serde_json::from_value(value).map_err(|e| format!("not of schema {SCHEMA}: {e}"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run with this many microseconds per operation, and no other figures.
    pub(crate) fn run(micros: f64) -> Run {
        Run {
            command: "db_bench".to_owned(),
            micros_per_op: micros,
            ops_per_second: 1e6 / micros,
            seconds: 1.0,
            operations: (1e6 / micros) as u64,
            ..Run::default()
        }
    }

    /// A benchmark with these pairs.
    pub(crate) fn benchmark(name: &str, pairs: &[(f64, f64)]) -> Benchmark {
        Benchmark {
            name: name.to_owned(),
            about: "something".to_owned(),
            writes: true,
            pairs: pairs
                .iter()
                .map(|&(ours, theirs)| Pair {
                    first: Engine::Ironstone,
                    ironstone: Some(run(ours)),
                    rocksdb: Some(run(theirs)),
                })
                .collect(),
        }
    }

    /// A report with these benchmarks.
    pub(crate) fn report(benchmarks: Vec<Benchmark>) -> Report {
        Report {
            schema: SCHEMA,
            suite: "quick".to_owned(),
            date: "2026-11-23T00:00:00Z".to_owned(),
            command: "cargo xtask bench quick".to_owned(),
            complete: true,
            problem: None,
            settings: Settings {
                num: 10,
                pairs: 3,
                syncs: 5,
                seconds: 1,
                flags: vec!["--threads=1".to_owned()],
            },
            versions: Versions::default(),
            machine: Vec::new(),
            benchmarks,
            extras: Vec::new(),
        }
    }

    #[test]
    fn ratios_are_taken_within_pairs() {
        let all = [(1.0, 2.0), (10.0, 10.0), (2.0, 6.0)];
        let mut found = benchmark("fillseq", &all);
        let ratio = found.ratio().unwrap();
        assert_eq!(ratio.text(), "2.00 [1.00..3.00]");
        assert_eq!(found.typical().unwrap().ratio(), Some(2.0));
        found.pairs[0].rocksdb = None;
        assert_eq!(found.ratio().unwrap().text(), "2.00 [1.00..3.00]");
        found.pairs.clear();
        assert!(found.ratio().is_none() && found.typical().is_none());
        let mean = report(vec![
            benchmark("a", &[(1.0, 2.0)]),
            benchmark("b", &[(1.0, 8.0)]),
            found,
        ])
        .geometric_mean();
        assert!((mean.unwrap() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn the_stored_form_comes_back_and_another_schema_does_not() {
        let text = report(vec![benchmark("a", &[(1.0, 2.0)])]).json().unwrap();
        let back = Report::parse(&text).unwrap();
        assert_eq!(back.json().unwrap(), text);
        let newer = text.replace("\"schema\":1", "\"schema\":7");
        assert!(Report::parse(&newer).unwrap_err().contains("schema 7"));
        assert!(Report::parse("{}").unwrap_err().contains("no schema"));
        assert!(Report::parse("x").unwrap_err().contains("not JSON"));
        assert!(
            Report::parse("{\"schema\": 1}")
                .unwrap_err()
                .contains("not of schema 1")
        );
    }
}
