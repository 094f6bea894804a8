//! The outputs of a run: `report.json`, `report.tsv`, `report.html`, and tables for a terminal.

use super::claims;
use super::data::{Claim, Measurement, Report, Verdict};
use super::page;
use super::plan::Task;
use crate::device::Stop;
use crate::suites::files::Files;
use crate::suites::page::format::{digits, or_dash};

/// Judges the claims again, and writes all outputs.
pub(super) fn write(task: Task, report: &mut Report, files: &Files) -> Result<(), Stop> {
    report.claims = claims::of(task, report);
    put(report, files)
}

/// Writes all outputs of a report without judging again.
pub(super) fn put(report: &Report, files: &Files) -> Result<(), Stop> {
    files.put("report.json", &report.json()?)?;
    files.put("report.tsv", &tsv(report))?;
    files.put("report.html", &page::html(report))?;
    Ok(())
}

/// A column: heading, and the figure of a measurement.
type Column = (&'static str, fn(&Measurement) -> Option<f64>);

const COLUMNS: [Column; 18] = [
    ("operations", |m| Some(m.operations as f64)),
    ("per_second", |m| Some(m.per_second)),
    ("mib_per_second", |m| Some(m.mib_per_second)),
    ("mean_micros", |m| Some(m.mean_micros)),
    ("p50_micros", |m| Some(m.p50_micros)),
    ("p99_micros", |m| Some(m.p99_micros)),
    ("p99_9_micros", |m| Some(m.p99_9_micros)),
    ("max_micros", |m| Some(m.max_micros)),
    ("worst_second", Measurement::worst_second),
    ("cpu_micros", |m| m.cpu_micros),
    ("store_memory_mib", |m| m.store_memory_mib),
    ("checkpoints", |m| m.checkpoints),
    ("log_writes", |m| m.log_writes),
    ("log_batch_bytes", |m| m.log_batch_bytes),
    ("device_requests", |m| Some(m.device?.requests)),
    ("device_flushes", |m| Some(m.device?.flushes)),
    ("device_writes", |m| m.device?.writes),
    ("amplification", |m| Some(m.device?.amplification)),
];

/// One line for each measurement; missing figures are empty.
fn tsv(report: &Report) -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let mut text = format!("disks\ttarget\tjob\tpair\t{}\n", names.join("\t"));
    for m in &report.measurements {
        let figures = COLUMNS.map(|(_, of)| of(m).map_or(String::new(), |f| format!("{f:.3}")));
        text += &format!(
            "{}\t{}\t{}\t{}\t{}\n",
            m.disks,
            m.target.name(),
            m.job,
            m.pair,
            figures.join("\t")
        );
    }
    text
}

/// Tables in Markdown: the figures, then the claims.
pub(super) fn terminal(report: &Report) -> String {
    let mut text = String::from(
        "\nMedians [smallest..largest] over the pairs; µs of an operation.\n\n\
         | disks | job | target | a second | p50 | p99 | p99.9 | processor |\n\
         |---|---|---|---:|---:|---:|---:|---:|\n",
    );
    for (disks, job, target) in report.cases() {
        let of = |what: fn(&Measurement) -> Option<f64>| {
            let found = report.spread((&disks, target, &job), what);
            or_dash(found.map(|s| digits(s.median)))
        };
        let rate = report.spread((&disks, target, &job), |m| Some(m.per_second));
        text += &format!(
            "| {disks} | {job} | {} | {} | {} | {} | {} | {} |\n",
            target.name(),
            or_dash(rate.map(|s| format!("{:.0} [{:.0}..{:.0}]", s.median, s.low, s.high))),
            of(|m| Some(m.p50_micros)),
            of(|m| Some(m.p99_micros)),
            of(|m| Some(m.p99_9_micros)),
            of(|m| m.cpu_micros),
        );
    }
    for missing in &report.absent {
        text += &format!(
            "| {} | | {} | not built: {} | | | | |\n",
            missing.disks,
            missing.target.name(),
            missing.why
        );
    }
    text += "\n| disks | what | limit | figure | pairs | | beside it |\n|---|---|---|---|---:|---|---|\n";
    for claim in &report.claims {
        text += &format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            claim.disks,
            claim.what,
            claim.limit,
            figure(claim),
            claim.pairs,
            claim.verdict.name(),
            claim.note
        );
    }
    text
}

/// `2.00 [1.90..2.10]`.
pub(super) fn figure(claim: &Claim) -> String {
    or_dash(claim.figure.map(|[median, low, high]| {
        format!("{} [{}..{}]", digits(median), digits(low), digits(high))
    }))
}

/// The failed claims, one line each.
pub(super) fn failures(report: &Report) -> Vec<String> {
    let failed = report.claims.iter().filter(|c| c.verdict == Verdict::Fails);
    failed
        .map(|c| format!("{}, {}: {} {}", c.disks, c.what, figure(c), c.limit))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_store::data::tests::report;
    use crate::block_store::target::Kind;

    #[test]
    fn every_measurement_has_its_line() {
        let mut report = report(&[
            (Kind::Background, "4k randwrite QD128", 1, 300.0, 250.0),
            (Kind::Single, "4k randwrite QD128", 1, 3000.0, 25.0),
        ]);
        let text = tsv(&report);
        let widths: Vec<usize> = text.lines().map(|l| l.split('\t').count()).collect();
        assert_eq!(widths, [22; 3]);
        report.claims = claims::of(Task::Seed, &report);
        let text = terminal(&report);
        let line = "| own disk | 4k randwrite QD128 | background | 300 [300..300] | 250 | 500 | 1000 | – |";
        assert!(text.contains(line), "{text}");
        assert_eq!(failures(&report).len(), 1, "{text}");
        assert!(failures(&report)[0].contains("0.100 [0.100..0.100] ≥ 0.35"));
    }
}
