//! Compares two stored reports: has Ironstone become slower relative to RocksDB?
//!
//! The comparison uses each benchmark's median ratio to RocksDB, which depends little on the speed
//! of the machine. A benchmark has become slower if its ratio fell by more than the noise: a given
//! band, or else the wider of a tenth and the spreads of the pairs in both reports (half of the
//! range over the median).

use std::fs;
use std::path::{Path, PathBuf};

use super::data::{Benchmark, Report};

/// The default band for benchmarks whose pairs vary less than this.
const NOISE: f64 = 0.10;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The report.json to compare with
    old: PathBuf,
    /// The report.json in question
    new: PathBuf,
    #[command(flatten)]
    pub(crate) band: Band,
}

/// The tolerated noise.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Band {
    /// How far a ratio may fall, for all benchmarks: 5% or 0.05 [default: the wider of 10% and the
    /// spreads of both reports' pairs]
    #[arg(long = "band", value_name = "SHARE", value_parser = share)]
    share: Option<f64>,
}

/// Parses `5%` or `0.05`.
fn share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().map_err(|e| e.to_string());
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    if (0.0..1.0).contains(&share) {
        Ok(share)
    } else {
        Err("must be from 0% to below 100%, or from 0 to below 1".to_owned())
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let (old, new) = (read(&arguments.old)?, read(&arguments.new)?);
    let compared = Comparison::of(&old, &new, arguments.band)?;
    print!("{}", compared.text);
    compared.verdict()
}

/// Reads a stored report.
pub(super) fn read(path: &Path) -> Result<Report, String> {
    fs::read_to_string(path)
        .map_err(|e| e.to_string())
        .and_then(|text| Report::parse(&text))
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// The result of a comparison.
pub(super) struct Comparison {
    /// The table, with remarks.
    pub(super) text: String,
    problems: Vec<String>,
}

impl Comparison {
    /// Errors: the reports were not measured alike.
    pub(super) fn of(old: &Report, new: &Report, band: Band) -> Result<Self, String> {
        alike(old, new)?;
        let mut text = String::from(
            "\n| benchmark        | ratio before | ratio now | change | noise | verdict      |\n\
             |------------------|-------------:|----------:|-------:|------:|--------------|\n",
        );
        let mut problems = Vec::new();
        for before in &old.benchmarks {
            let now = new.benchmarks.iter().find(|b| b.name == before.name);
            match now.map(|now| Change::of(before, now, band)) {
                Some(Some(change)) => {
                    text += &change.row(&before.name);
                    if change.is_slower() {
                        problems.push(format!("{} has become slower", before.name));
                    }
                }
                Some(None) if before.ratio().is_none() => {
                    text += &format!("| {:<16} | was not measured before\n", before.name);
                }
                _ => problems.push(format!("{} is not measured any more", before.name)),
            }
        }
        for now in &new.benchmarks {
            if old.benchmarks.iter().all(|b| b.name != now.name) {
                text += &format!(
                    "| {:<16} | is new: there is nothing to compare it with\n",
                    now.name
                );
            }
        }
        text += "\nRatios are RocksDB's time over Ironstone's. A change beyond the noise counts.\n";
        for (which, report) in [("old", old), ("new", new)] {
            if !report.complete {
                let why = report
                    .problem
                    .as_deref()
                    .unwrap_or("it did not come to its end");
                text += &format!("The {which} report is incomplete: {why}\n");
            }
        }
        if old.machine.first() != new.machine.first() {
            text += "The processors differ; the ratios may, too.\n";
        }
        if !new.complete {
            problems.push("the new report is incomplete".to_owned());
        }
        Ok(Self { text, problems })
    }

    /// Errors: some benchmarks need attention.
    pub(super) fn verdict(&self) -> Result<(), String> {
        if self.problems.is_empty() {
            return Ok(());
        }
        Err(format!("beyond the noise: {}", self.problems.join("; ")))
    }
}

/// Errors: two reports cannot be compared.
fn alike(old: &Report, new: &Report) -> Result<(), String> {
    let mut differences = Vec::new();
    let mut differ = |what: &str, a: String, b: String| {
        if a != b {
            differences.push(format!("  {what}: {a} before, {b} now"));
        }
    };
    let (a, b) = (&old.settings, &new.settings);
    differ("keys (--num)", a.num.to_string(), b.num.to_string());
    differ(
        "synced puts (--syncs)",
        a.syncs.to_string(),
        b.syncs.to_string(),
    );
    differ(
        "seconds of a timed run (--seconds)",
        a.seconds.to_string(),
        b.seconds.to_string(),
    );
    differ("flags of db_bench", a.flags.join(" "), b.flags.join(" "));
    let rocksdb = |r: &Report| r.versions.rocksdb.clone().unwrap_or_default();
    differ("RocksDB", rocksdb(old), rocksdb(new));
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the two reports were not measured alike, so their ratios say nothing about each other:\n{}",
        differences.join("\n")
    ))
}

/// The change of a benchmark's ratio.
struct Change {
    before: f64,
    now: f64,
    noise: f64,
}

impl Change {
    fn of(before: &Benchmark, now: &Benchmark, band: Band) -> Option<Self> {
        let (before, now) = (before.ratio()?, now.ratio()?);
        let spreads = before.relative().max(now.relative());
        Some(Self {
            before: before.median,
            now: now.median,
            noise: band.share.unwrap_or(NOISE.max(spreads)),
        })
    }

    /// The relative change of the ratio.
    fn change(&self) -> f64 {
        self.now / self.before - 1.0
    }

    fn is_slower(&self) -> bool {
        self.change() < -self.noise
    }

    fn row(&self, name: &str) -> String {
        let verdict = match self.change() {
            _ if self.is_slower() => "SLOWER",
            change if change > self.noise => "faster",
            _ => "within noise",
        };
        format!(
            "| {name:<16} | {:>12.2} | {:>9.2} | {:>+5.0}% | {:>4.0}% | {verdict:<12} |\n",
            self.before,
            self.now,
            self.change() * 100.0,
            self.noise * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::data::tests::{benchmark, report};

    const STEADY: [(f64, f64); 3] = [(1.0, 2.0), (1.0, 2.0), (1.0, 2.0)];
    const BAND: Band = Band { share: None };

    /// A report with one benchmark whose pairs all have this ratio.
    fn of(ratio: f64) -> Report {
        report(vec![benchmark("fillseq", &[(1.0, ratio); 3])])
    }

    #[test]
    fn a_fall_beyond_the_noise_fails() {
        let old = of(2.0);
        for (ratio, band, slower) in [
            (1.85, BAND, false),
            (1.75, BAND, true),
            (1.85, Band { share: Some(0.05) }, true),
            (1.75, Band { share: Some(0.2) }, false),
            (3.0, BAND, false),
        ] {
            let compared = Comparison::of(&old, &of(ratio), band).unwrap();
            assert_eq!(
                compared.verdict().is_err(),
                slower,
                "{ratio}: {}",
                compared.text
            );
        }
        let compared = Comparison::of(&old, &of(1.0), BAND).unwrap();
        assert!(
            compared.text.contains(
                "| fillseq          |         2.00 |      1.00 |   -50% |   10% | SLOWER       |"
            ),
            "{}",
            compared.text
        );
    }

    #[test]
    fn pairs_that_disagree_widen_the_noise() {
        let old = report(vec![benchmark("a", &[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)])]);
        let new = report(vec![benchmark("a", &[(1.0, 1.2); 3])]);
        let compared = Comparison::of(&old, &new, BAND).unwrap();
        assert!(compared.verdict().is_ok(), "{}", compared.text);
        assert!(compared.text.contains("50%"));
    }

    #[test]
    fn what_cannot_be_compared_is_told() {
        let old = report(vec![benchmark("a", &STEADY), benchmark("b", &STEADY)]);
        let mut new = report(vec![benchmark("a", &STEADY), benchmark("c", &STEADY)]);
        let compared = Comparison::of(&old, &new, BAND).unwrap();
        assert!(
            compared.text.contains("| c                | is new"),
            "{}",
            compared.text
        );
        let error = compared.verdict().unwrap_err();
        assert!(error.contains("b is not measured any more"), "{error}");
        new.settings.num = 11;
        new.settings.flags.push("--sync".to_owned());
        let error = Comparison::of(&old, &new, BAND).err().unwrap();
        assert!(
            error.contains("10 before, 11 now") && error.contains("--sync"),
            "{error}"
        );
    }

    #[test]
    fn an_incomplete_report_does_not_pass() {
        let old = of(2.0);
        let mut new = of(2.0);
        new.complete = false;
        new.problem = Some("interrupted".to_owned());
        let compared = Comparison::of(&old, &new, BAND).unwrap();
        assert!(compared.text.contains("incomplete: interrupted"));
        assert!(compared.verdict().is_err());
        let compared = Comparison::of(&new, &old, BAND).unwrap();
        assert!(compared.verdict().is_ok());
    }

    #[test]
    fn bands_are_shares() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.2"), Ok(0.2));
        assert!(share("120%").is_err() && share("x").is_err() && share("-1").is_err());
    }
}
