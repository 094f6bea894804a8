//! The measurements of a run, as they are stored in `report.json`.

use serde::{Deserialize, Serialize};

use super::fio::Figures;
use super::target::Kind;
use crate::spread::Spread;
use crate::suites::data::Fact;

/// The version of the stored report.
pub(super) const SCHEMA: u32 = 1;

/// A whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) schema: u32,
    /// `seed`, `floor`, `modes`.
    pub(super) task: String,
    pub(super) date: String,
    pub(super) commit: Option<String>,
    pub(super) command: String,
    pub(super) complete: bool,
    pub(super) problem: Option<String>,
    pub(super) settings: Settings,
    pub(super) machine: Vec<Fact>,
    pub(super) measurements: Vec<Measurement>,
    pub(super) absent: Vec<Missing>,
    pub(super) claims: Vec<Claim>,
}

/// The requested settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    /// The length of each job, seconds.
    pub(super) seconds: u32,
    pub(super) pairs: u32,
    pub(super) size_bytes: u64,
    /// The bytes of the volume that are written and read.
    pub(super) range_bytes: u64,
    /// The bytes that are written if device operations are counted.
    pub(super) count_bytes: u64,
}

/// A target that is not available.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Missing {
    pub(super) disks: String,
    pub(super) target: Kind,
    pub(super) why: String,
}

/// One job on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measurement {
    pub(super) disks: String,
    pub(super) target: Kind,
    pub(super) job: String,
    /// The number of the pair, from 1.
    pub(super) pair: u32,
    pub(super) operations: u64,
    pub(super) per_second: f64,
    pub(super) mib_per_second: f64,
    pub(super) mean_micros: f64,
    pub(super) p50_micros: f64,
    pub(super) p99_micros: f64,
    pub(super) p99_9_micros: f64,
    pub(super) max_micros: f64,
    /// Operations in each whole second.
    pub(super) seconds: Vec<f64>,
    /// Processor time of all processes of the target, per operation.
    pub(super) cpu_micros: Option<f64>,
    /// The peak memory of a store's process so far.
    pub(super) store_memory_mib: Option<f64>,
    /// Checkpoints of the store with the fewest, per group.
    pub(super) checkpoints: Option<f64>,
    /// Writes of the log, per operation and replica.
    pub(super) log_writes: Option<f64>,
    /// Bytes per write of the log.
    pub(super) log_batch_bytes: Option<f64>,
    /// Operations of the copies' devices, per operation and copy.
    pub(super) device: Option<Device>,
}

/// Operations of devices, per operation and copy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Device {
    /// Write requests, and empty flushes.
    pub(super) requests: f64,
    pub(super) flushes: f64,
    /// Writes with data, if they were traced.
    pub(super) writes: Option<f64>,
    /// Bytes written over the bytes of the payload.
    pub(super) amplification: f64,
}

impl Measurement {
    pub(super) fn new(disks: &str, target: Kind, job: &str, pair: u32, figures: Figures) -> Self {
        Self {
            disks: disks.to_owned(),
            target,
            job: job.to_owned(),
            pair,
            operations: figures.operations,
            per_second: figures.per_second,
            mib_per_second: figures.mib_per_second,
            mean_micros: figures.mean,
            p50_micros: figures.p50,
            p99_micros: figures.p99,
            p99_9_micros: figures.p99_9,
            max_micros: figures.max,
            seconds: figures.seconds,
            cpu_micros: None,
            store_memory_mib: None,
            checkpoints: None,
            log_writes: None,
            log_batch_bytes: None,
            device: None,
        }
    }

    /// The worst second over the mean, without the first and the last, which are incomplete. `None`
    /// for fewer than three seconds.
    pub(super) fn worst_second(&self) -> Option<f64> {
        let inner = self.seconds.get(1..self.seconds.len().checked_sub(1)?)?;
        let mean = inner.iter().sum::<f64>() / inner.len() as f64;
        let worst = inner.iter().copied().reduce(f64::min)?;
        Some(worst / mean).filter(|share| share.is_finite())
    }

    /// The 99.9th percentile over the median.
    pub(super) fn tail(&self) -> f64 {
        self.p99_9_micros / self.p50_micros
    }
}

impl Report {
    /// The measurements of a job on a target, by pair.
    pub(super) fn of<'a>(
        &'a self,
        disks: &'a str,
        target: Kind,
        job: &'a str,
    ) -> impl Iterator<Item = &'a Measurement> {
        self.measurements
            .iter()
            .filter(move |m| m.disks == disks && m.target == target && m.job == job)
    }

    pub(super) fn spread(
        &self,
        (disks, target, job): (&str, Kind, &str),
        of: impl Fn(&Measurement) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::some(self.of(disks, target, job).filter_map(of))
    }

    /// All combinations of disks, job and target, in the order of their first measurement.
    pub(super) fn cases(&self) -> Vec<(String, String, Kind)> {
        let mut all = Vec::new();
        for m in &self.measurements {
            let case = (m.disks.clone(), m.job.clone(), m.target);
            if !all.contains(&case) {
                all.push(case);
            }
        }
        // Combinations with the same job are adjacent.
        let mut jobs: Vec<(String, String)> = Vec::new();
        for (disks, job, _) in &all {
            let key = (disks.clone(), job.clone());
            if !jobs.contains(&key) {
                jobs.push(key);
            }
        }
        all.sort_by_key(|(disks, job, target)| {
            let at = jobs.iter().position(|(d, j)| d == disks && j == job);
            (at, *target)
        });
        all
    }

    pub(super) fn json(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|e| e.to_string())
    }
}

/// A claim, and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) disks: String,
    /// The figure that is judged.
    pub(super) what: String,
    /// The limit, in words: `≥ 1.5`.
    pub(super) limit: String,
    /// The median over the pairs, the smallest, the largest.
    pub(super) figure: Option<[f64; 3]>,
    pub(super) pairs: usize,
    pub(super) verdict: Verdict,
    /// A remark, or why it was not judged.
    pub(super) note: String,
}

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Holds,
    Fails,
    /// The program does not implement a part of it yet.
    NotBuilt,
    /// This run has not measured it, or not for long enough.
    NotMeasured,
}

impl Verdict {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "FAILS",
            Self::NotBuilt => "not built",
            Self::NotMeasured => "not measured",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A report with one pair of each `(target, job, operations per second, p50)`.
    pub(in super::super) fn report(all: &[(Kind, &str, u32, f64, f64)]) -> Report {
        let measurements = all
            .iter()
            .map(|&(target, job, pair, per_second, p50)| {
                let figures = Figures {
                    operations: 1000,
                    per_second,
                    mib_per_second: per_second / 256.0,
                    p50,
                    p99: p50 * 2.0,
                    p99_9: p50 * 4.0,
                    max: p50 * 9.0,
                    mean: p50,
                    seconds: vec![1.0, per_second, per_second, per_second * 0.8, 2.0],
                };
                Measurement::new("own disk", target, job, pair, figures)
            })
            .collect();
        Report {
            schema: SCHEMA,
            task: "seed".to_owned(),
            date: "2026-11-24T00:00:00Z".to_owned(),
            commit: None,
            command: "cargo xtask bench-block seed".to_owned(),
            complete: true,
            problem: None,
            settings: Settings {
                seconds: 1,
                pairs: 2,
                size_bytes: 1 << 30,
                range_bytes: 1 << 30,
                count_bytes: 1 << 30,
            },
            machine: Vec::new(),
            measurements,
            absent: Vec::new(),
            claims: Vec::new(),
        }
    }

    #[test]
    fn cases_of_a_job_stand_together() {
        let report = report(&[
            (Kind::Null, "a", 1, 1.0, 1.0),
            (Kind::Background, "b", 1, 1.0, 1.0),
            (Kind::Background, "a", 1, 10.0, 1.0),
            (Kind::Background, "a", 2, 30.0, 1.0),
        ]);
        let cases: Vec<_> = report.cases().into_iter().map(|(_, j, t)| (j, t)).collect();
        let wanted = [
            ("a".to_owned(), Kind::Background),
            ("a".to_owned(), Kind::Null),
            ("b".to_owned(), Kind::Background),
        ];
        assert_eq!(cases, wanted);
        let case = ("own disk", Kind::Background, "a");
        let spread = report.spread(case, |m| Some(m.per_second)).unwrap();
        assert!((spread.median - 20.0).abs() < 1e-9);
        let stored: Report = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(stored, report);
    }

    #[test]
    fn the_worst_second_is_a_whole_one() {
        let report = report(&[(Kind::Null, "a", 1, 300.0, 1.0)]);
        let worst = report.measurements[0].worst_second().unwrap();
        assert!((worst - 240.0 / 280.0).abs() < 1e-9, "{worst}");
        let mut short = report.measurements[0].clone();
        short.seconds = vec![1.0, 2.0];
        assert_eq!(short.worst_second(), None);
    }
}
