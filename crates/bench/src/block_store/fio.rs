//! Jobs of fio: the arguments, and the figures of the report.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::process::Process;
use crate::device::Stop;

/// A job, independent of its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// `4k randwrite QD1`.
    pub(super) name: String,
    /// fio's `rw`.
    pub(super) rw: &'static str,
    pub(super) block_bytes: u64,
    pub(super) depth: u32,
}

impl Job {
    pub(super) fn new(rw: &'static str, block_bytes: u64, depth: u32) -> Self {
        let size = match block_bytes {
            bytes if bytes % 1024 == 0 => format!("{}k", bytes / 1024),
            bytes => bytes.to_string(),
        };
        Self {
            name: format!("{size} {rw} QD{depth}"),
            rw,
            block_bytes,
            depth,
        }
    }
}

/// Where a job reads and writes.
pub(super) enum Where<'a> {
    /// The URI of an export.
    Uri(&'a str),
    /// Files, each by a separate process, past the page cache; `sync`: each write is durable.
    Files { paths: Vec<&'a Path>, sync: bool },
}

/// When a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    Seconds(u32),
    /// When this many bytes were written or read.
    Bytes(u64),
}

/// The figures of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) operations: u64,
    pub(super) per_second: f64,
    pub(super) mib_per_second: f64,
    /// Latency from the submission of an operation to its completion, in microseconds.
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p99_9: f64,
    pub(super) max: f64,
    /// Operations in each whole second.
    pub(super) seconds: Vec<f64>,
}

/// Runs fio over the first `range` bytes; its files go to `dir`.
pub(super) fn run(
    job: &Job,
    at: &Where<'_>,
    range: u64,
    until: Until,
    dir: &Path,
) -> Result<Figures, Stop> {
    let (report, log) = (dir.join("fio.json"), dir.join("fio"));
    for stale in [report.clone(), dir.join("fio_iops.1.log")] {
        fs::remove_file(stale).ok(); // usually it is not there
    }
    let mut arguments = arguments(job, at, range, until);
    arguments.push(format!("--output={}", report.display()));
    arguments.push(format!("--write_iops_log={}", log.display()));
    // fio creates files in its working directory.
    Process::start(Path::new("fio"), &arguments, &dir.join("fio.log"))?
        .finish(seconds_max(job, until))?;
    let text = fs::read_to_string(&report).map_err(|e| format!("{}: {e}", report.display()))?;
    let mut figures = parse(&text, job.rw.contains("write"))?;
    let log = fs::read_to_string(dir.join("fio_iops.1.log")).unwrap_or_default();
    figures.seconds = seconds(&log);
    Ok(figures)
}

/// The time limit of a job, in seconds: a target may hang.
fn seconds_max(job: &Job, until: Until) -> u64 {
    120 + match until {
        Until::Seconds(seconds) => u64::from(seconds),
        // At least 4 MiB and 100 operations per second are expected.
        Until::Bytes(bytes) => bytes / (4 << 20) + bytes / job.block_bytes / 100,
    }
}

fn arguments(job: &Job, at: &Where<'_>, range: u64, until: Until) -> Vec<String> {
    let mut all = vec![
        format!("--rw={}", job.rw),
        format!("--bs={}", job.block_bytes),
        format!("--iodepth={}", job.depth),
        "--norandommap".to_owned(),
        "--randrepeat=0".to_owned(),
        "--refill_buffers".to_owned(),
        "--group_reporting".to_owned(),
        "--percentile_list=50:99:99.9".to_owned(),
        "--output-format=json+".to_owned(),
        "--log_avg_msec=1000".to_owned(),
        "--iopsavgtime=1000".to_owned(),
        format!("--size={range}"),
    ];
    match until {
        Until::Seconds(seconds) => {
            all.extend(["--time_based".to_owned(), format!("--runtime={seconds}")]);
        }
        Until::Bytes(bytes) => all.push(format!("--io_size={bytes}")),
    }
    match at {
        Where::Uri(uri) => {
            all.extend(["--name=job", "--ioengine=nbd"].map(str::to_owned));
            all.push(format!("--uri={uri}"));
        }
        Where::Files { paths, sync } => {
            let engine = if job.depth > 1 { "libaio" } else { "psync" };
            all.extend([format!("--ioengine={engine}"), "--direct=1".to_owned()]);
            if *sync {
                all.push("--sync=dsync".to_owned());
            }
            for (number, path) in paths.iter().enumerate() {
                all.push(format!("--name=job{number}"));
                all.push(format!("--filename={}", path.display()));
            }
        }
    }
    all
}

/// The figures in fio's JSON. Errors: the text is not such a report, or the job had an error.
fn parse(text: &str, writes: bool) -> Result<Figures, String> {
    // Warnings may precede the report.
    let start = text.find('{').ok_or("fio reported nothing")?;
    let report: Value = serde_json::from_str(&text[start..]).map_err(|e| format!("fio: {e}"))?;
    let job = &report["jobs"][0];
    if let Some(error) = job["error"].as_i64().filter(|error| *error != 0) {
        return Err(format!("fio: the job had error {error}"));
    }
    let side = &job[if writes { "write" } else { "read" }];
    let figure = |value: &Value, what: &str| {
        let found = value.as_f64();
        found.ok_or_else(|| format!("fio: the report has no {what}"))
    };
    let latency = &side["clat_ns"];
    let micros = |value: &Value, what: &str| figure(value, what).map(|nanos| nanos / 1000.0);
    let percentile = |name: &str| micros(&latency["percentile"][name], name);
    Ok(Figures {
        operations: figure(&side["total_ios"], "total_ios")? as u64,
        per_second: figure(&side["iops"], "iops")?,
        mib_per_second: figure(&side["bw_bytes"], "bw_bytes")? / f64::from(1 << 20),
        mean: micros(&latency["mean"], "mean")?,
        p50: percentile("50.000000")?,
        p99: percentile("99.000000")?,
        p99_9: percentile("99.900000")?,
        max: micros(&latency["max"], "max")?,
        seconds: Vec::new(),
    })
}

/// Operations in each second, from a log whose lines are `milliseconds, rate, …`. A second without
/// completions has no line.
fn seconds(log: &str) -> Vec<f64> {
    let mut all = Vec::new();
    for line in log.lines() {
        let mut fields = line.split(',').map(|field| field.trim().parse::<f64>());
        let (Some(Ok(millis)), Some(Ok(rate))) = (fields.next(), fields.next()) else {
            continue;
        };
        // Timestamps are a little late.
        let second = (millis / 1000.0).round() as usize;
        if second == 0 || second > 1_000_000 {
            continue;
        }
        if all.len() < second {
            all.resize(second, 0.0);
        }
        if let Some(slot) = all.get_mut(second - 1) {
            *slot += rate;
        }
    }
    all
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "figures that are read as they stand")]
mod tests {
    use super::*;

    const REPORT: &str = include_str!("fio_report.json");

    #[test]
    fn figures_are_read_and_converted() {
        let figures = parse(&format!("fio: a warning\n{REPORT}"), true).unwrap();
        assert_eq!(figures.operations, 613);
        assert_eq!((figures.p50, figures.p99_9), (44_302.336, 87_556.096));
        assert_eq!(figures.max, 87_878.337);
        assert!((figures.mib_per_second - 0.7856).abs() < 1e-3);
        assert_eq!(figures.per_second, 201.115486);
    }

    #[test]
    fn what_is_no_report_is_an_error() {
        assert!(parse("", true).unwrap_err().contains("nothing"));
        assert!(parse("{\"jobs\":", true).is_err());
        let failed = REPORT.replace("\"error\": 0", "\"error\": 5");
        assert!(parse(&failed, true).unwrap_err().contains("error 5"));
        // The read side of a job that writes has no percentiles.
        assert!(parse(REPORT, false).unwrap_err().contains("no "));
    }

    #[test]
    fn seconds_without_a_line_are_zero() {
        let log = "1000, 293, 1, 0, 0\n2003, 159, 1, 0, 0\n4001, 153, 1, 0, 0\nodd\n";
        assert_eq!(seconds(log), [293.0, 159.0, 0.0, 153.0]);
        assert!(seconds("").is_empty());
    }

    #[test]
    fn jobs_say_what_they_do() {
        assert_eq!(Job::new("randwrite", 4096, 128).name, "4k randwrite QD128");
        assert_eq!(Job::new("write", 4608, 1).name, "4608 write QD1");
        let paths = vec![Path::new("/a"), Path::new("/b")];
        let at = Where::Files { paths, sync: true };
        let all = arguments(&Job::new("write", 4608, 1), &at, 9216, Until::Seconds(3));
        for wanted in [
            "--sync=dsync",
            "--filename=/b",
            "--runtime=3",
            "--size=9216",
        ] {
            assert!(all.iter().any(|a| a == wanted), "{wanted} in {all:?}");
        }
    }
}
