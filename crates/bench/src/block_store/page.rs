//! `report.html`: a report of the block store as one self-contained page, like that of `bench`.

use maud::{Markup, html};

use super::data::{Claim, Measurement, Report, Verdict};
use super::outputs::figure;
use super::target::Kind;
use crate::suites::page::curves::{AREA, Decades, Frame, line, panel, place};
use crate::suites::page::document;
use crate::suites::page::format::{bytes, digits, micros, or_dash, short};
use crate::suites::page::tables::{folded, scroll};

/// The colours of the targets, and the marks of verdicts.
const OWN_STYLE: &str = include_str!("page.css");

/// The CSS class with a target's colour.
fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Background => "iron",
        Kind::Snapshot => "snapshot",
        Kind::Odsync => "odsync",
        Kind::Single => "single",
        Kind::Null => "null",
        Kind::Quorum => "rocks",
        Kind::Files => "files",
    }
}

/// The page of a report.
pub(super) fn html(report: &Report) -> String {
    let title = format!("Ironstone's block store: {}", report.task);
    let body = html! {
        (header(report))
        main {
            (claims(report))
            (figures(report))
            (latencies(report))
            (courses(report))
            (devices(report))
            (machine(report))
            (every(report))
        }
        footer {
            p { "Written by " code { "cargo xtask bench-block" } "; docs/benchmarks.md says what the figures mean. The same figures are in report.json and report.tsv." }
        }
    };
    document(&title, OWN_STYLE, body)
}

fn header(report: &Report) -> Markup {
    let count = |verdict| {
        report
            .claims
            .iter()
            .filter(|c| c.verdict == verdict)
            .count()
    };
    let tile = |figure: usize, what: &str| html! { div.tile { b { (figure) } span { (what) } } };
    html! {
        header {
            p.kicker { "Benchmark report · " (report.task) }
            h1 { span.iron { "Ironstone's block store" } }
            p.lead {
                "Three durable copies over NBD, beside what bounds them. fio's jobs in turns, "
                (report.settings.pairs) " pairs of " (report.settings.seconds) " seconds each. "
                @if let Some(commit) = &report.commit { "Commit " code { (commit) } ". " }
                (report.date)
            }
            @if !report.complete {
                p.warning role="alert" {
                    b { "Incomplete. " }
                    "Shown is what was measured before: "
                    (report.problem.as_deref().unwrap_or("the run did not come to its end"))
                }
            }
            @if report.settings.pairs < 5 {
                p.warning { b { "Fewer than five pairs. " } "Enough to see that it works, too few to rely on." }
            }
            @for missing in &report.absent {
                p.warning { b { (missing.target.name()) " is not built. " } (missing.disks) ": " (missing.why) }
            }
            div.tiles {
                (tile(count(Verdict::Holds), "claims hold"))
                (tile(count(Verdict::Fails), "claims fail"))
                (tile(count(Verdict::NotBuilt), "not built"))
                (tile(count(Verdict::NotMeasured), "not measured"))
            }
        }
    }
}

fn heads(names: &[&str], words: &[&str]) -> Markup {
    html! {
        thead { tr {
            @for name in names { th scope="col" class=[words.contains(name).then_some("text")] { (name) } }
        } }
    }
}

fn verdict_class(claim: &Claim) -> &'static str {
    match claim.verdict {
        Verdict::Holds => "verdict holds",
        Verdict::Fails => "verdict fails",
        Verdict::NotBuilt | Verdict::NotMeasured => "verdict open",
    }
}

fn claims(report: &Report) -> Markup {
    let names = ["what", "limit", "figure", "pairs", "", "beside it"];
    html! {
        section {
            h2 { "What must hold" }
            (scroll("What must hold", html! {
                (heads(&names, &["what", "beside it"]))
                tbody {
                    @for claim in &report.claims {
                        tr {
                            th.text scope="row" { (claim.what) br; small { (claim.disks) } }
                            td { (claim.limit) }
                            td { (figure(claim)) }
                            td { (claim.pairs) }
                            td { span class=(verdict_class(claim)) { (claim.verdict.name()) } }
                            td.text { (claim.note) }
                        }
                    }
                }
            }))
            p.note { "Taken within each pair of runs, which follow each other: the median of the pairs, the smallest and the largest. The median is judged." }
        }
    }
}

/// The median of a figure, as text.
fn median(
    report: &Report,
    case: &(String, String, Kind),
    of: impl Fn(&Measurement) -> Option<f64>,
    text: fn(f64) -> String,
) -> String {
    let (disks, job, target) = case;
    or_dash(
        report
            .spread((disks, *target, job), of)
            .map(|s| text(s.median)),
    )
}

fn case_heads(case: &(String, String, Kind)) -> Markup {
    html! {
        th.text scope="row" { (case.1) br; small { (case.0) } }
        td.text class=(class(case.2)) { span.dot-name { (case.2.name()) } }
    }
}

fn figures(report: &Report) -> Markup {
    let names = [
        "job",
        "target",
        "a second",
        "smallest",
        "largest",
        "p50",
        "p99",
        "p99.9",
        "processor",
    ];
    html! {
        section {
            h2 { "Figures" }
            (scroll("Figures", html! {
                (heads(&names, &["job", "target"]))
                tbody {
                    @for case in report.cases() {
                        @let rate = report.spread((&case.0, case.2, &case.1), |m| Some(m.per_second));
                        tr {
                            (case_heads(&case))
                            td { (or_dash(rate.map(|s| short(s.median)))) }
                            td { (or_dash(rate.map(|s| short(s.low)))) }
                            td { (or_dash(rate.map(|s| short(s.high)))) }
                            td { (median(report, &case, |m| Some(m.p50_micros), micros)) }
                            td { (median(report, &case, |m| Some(m.p99_micros), micros)) }
                            td { (median(report, &case, |m| Some(m.p99_9_micros), micros)) }
                            td { (median(report, &case, |m| m.cpu_micros, micros)) }
                        }
                    }
                }
            }))
            p.note { "Medians over the pairs. Processor: of all processes of a target, for an operation." }
        }
    }
}

/// The jobs of a report with their targets, in order.
fn jobs(report: &Report) -> Vec<(String, String, Vec<Kind>)> {
    let mut all: Vec<(String, String, Vec<Kind>)> = Vec::new();
    for (disks, job, target) in report.cases() {
        match all.last_mut() {
            Some((d, j, kinds)) if *d == disks && *j == job => kinds.push(target),
            _ => all.push((disks, job, vec![target])),
        }
    }
    all
}

fn legend(kinds: &[Kind]) -> Markup {
    html! {
        p.legend {
            @for kind in kinds {
                span class=(class(*kind)) {
                    svg width="34" height="14" aria-hidden="true" { line.line x1="1" x2="33" y1="7" y2="7" {} }
                    (kind.name())
                }
            }
        }
    }
}

/// Percentiles over the pairs, a small plot for each job.
fn latencies(report: &Report) -> Markup {
    let all = jobs(report);
    html! {
        section {
            h2 { "Latency" }
            @if all.is_empty() { p.note { "Nothing was measured." } } @else {
                (legend(&seen(&all)))
                div.panels { @for (disks, job, kinds) in &all { (latency(report, disks, job, kinds)) } }
                p.note { "p50, p99, p99.9 and the longest, medians over the pairs. Logarithmic axis." }
            }
        }
    }
}

fn seen(all: &[(String, String, Vec<Kind>)]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = all.iter().flat_map(|(_, _, kinds)| kinds.clone()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

const PERCENTILES: [&str; 4] = ["p50", "p99", "p99.9", "max"];

fn latency(report: &Report, disks: &str, job: &str, kinds: &[Kind]) -> Markup {
    let of = |kind: Kind| {
        let figures: [fn(&Measurement) -> f64; 4] = [
            |m| m.p50_micros,
            |m| m.p99_micros,
            |m| m.p99_9_micros,
            |m| m.max_micros,
        ];
        figures.map(|f| {
            let spread = report.spread((disks, kind, job), |m| Some(f(m)));
            spread.map_or(0.01, |s| s.median.max(0.01))
        })
    };
    let sides: Vec<(Kind, [f64; 4])> = kinds.iter().map(|kind| (*kind, of(*kind))).collect();
    let decades = Decades::around(sides.iter().flat_map(|(_, all)| all.iter().copied()));
    let (left, _, right, bottom) = AREA;
    let x = |i: usize| left + (i as f64 + 0.5) / 4.0 * (right - left);
    let y = |v: f64| decades.y(v);
    let told: Vec<String> = sides
        .iter()
        .map(|(kind, all)| {
            let figures = PERCENTILES
                .iter()
                .zip(all)
                .map(|(p, v)| format!("{p} {}", micros(*v)));
            format!(
                "{}: {}.",
                kind.name(),
                figures.collect::<Vec<_>>().join(", ")
            )
        })
        .collect();
    let title = format!("{job}, {disks}");
    panel(
        &title,
        &format!("{title}, latency. {}", told.join(" ")),
        html! {
            (decades.grid())
            @for (i, name) in PERCENTILES.iter().enumerate() {
                text x=(place(x(i))) y=(bottom + 18.0) text-anchor="middle" { (name) }
            }
            @for (kind, all) in sides.iter().rev() {
                g class=(class(*kind)) {
                    (line(all.iter().enumerate().map(|(i, v)| (x(i), y(*v)))))
                    @for (i, v) in all.iter().enumerate() {
                        circle.dot cx=(place(x(i))) cy=(place(y(*v))) r="4" {
                            title { (kind.name()) " " (PERCENTILES[i]) ": " (micros(*v)) }
                        }
                    }
                }
            }
        },
    )
}

/// Operations per second over time, a small plot for each job.
fn courses(report: &Report) -> Markup {
    let all = jobs(report);
    let panels: Vec<Markup> = all
        .iter()
        .filter_map(|(disks, job, kinds)| course(report, disks, job, kinds))
        .collect();
    html! {
        section {
            h2 { "Rate over time" }
            @if panels.is_empty() { p.note { "No job was longer than two seconds: the rate is taken once a second." } } @else {
                (legend(&seen(&all)))
                div.panels { @for panel in &panels { (panel) } }
                p.note { "Operations of each second. Strong: the first pair. Faint: the others." }
            }
        }
    }
}

fn course(report: &Report, disks: &str, job: &str, kinds: &[Kind]) -> Option<Markup> {
    let runs = |kind: Kind| report.of(disks, kind, job).filter(|m| m.seconds.len() > 2);
    let every = || kinds.iter().flat_map(|kind| runs(*kind));
    let end = every().map(|m| m.seconds.len()).max()? as f64;
    let most = every()
        .flat_map(|m| &m.seconds)
        .fold(0.0, |a: f64, b| a.max(*b));
    let frame = Frame::new(end, most.max(1.0));
    let drawn = |m: &Measurement| {
        let points = m.seconds.iter().enumerate();
        line(points.map(|(at, rate)| (frame.x(at as f64 + 1.0), frame.y(*rate))))
    };
    let told: Vec<String> = kinds
        .iter()
        .filter_map(|kind| {
            let worst = report.spread((disks, *kind, job), Measurement::worst_second)?;
            Some(format!(
                "{}: the worst second is {:.0} % of the mean.",
                kind.name(),
                worst.median * 100.0
            ))
        })
        .collect();
    let title = format!("{job}, {disks}");
    Some(panel(
        &title,
        &format!("{title}, operations a second. {}", told.join(" ")),
        html! {
            (frame.axes("s"))
            @for kind in kinds.iter().rev() {
                g class=(class(*kind)) {
                    g.faint { @for run in runs(*kind).skip(1) { (drawn(run)) } }
                    @for run in runs(*kind).take(1) { (drawn(run)) }
                }
            }
        },
    ))
}

fn devices(report: &Report) -> Markup {
    let cases: Vec<_> = report
        .cases()
        .into_iter()
        .filter(|(disks, job, target)| {
            let has = |m: &Measurement| m.log_writes.is_some() || m.device.is_some();
            report.of(disks, *target, job).any(has)
        })
        .collect();
    let names = [
        "job",
        "target",
        "log writes",
        "a log write",
        "requests",
        "flushes",
        "writes",
        "written for a byte",
        "checkpoints",
        "memory, MiB",
    ];
    html! {
        @if !cases.is_empty() {
            section {
                h2 { "What a write took" }
                (scroll("What a write took", html! {
                    (heads(&names, &["job", "target"]))
                    tbody {
                        @for case in &cases {
                            @let of = |what: fn(&Measurement) -> Option<f64>, text| median(report, case, what, text);
                            tr {
                                (case_heads(case))
                                td { (of(|m| m.log_writes, digits)) }
                                td { (of(|m| m.log_batch_bytes, bytes)) }
                                td { (of(|m| Some(m.device?.requests), digits)) }
                                td { (of(|m| Some(m.device?.flushes), digits)) }
                                td { (of(|m| m.device?.writes, digits)) }
                                td { (of(|m| Some(m.device?.amplification), digits)) }
                                td { (of(|m| m.checkpoints, digits)) }
                                td { (of(|m| m.store_memory_mib, digits)) }
                            }
                        }
                    }
                }))
                p.note {
                    "For each operation and copy. Log writes: the stores' own count. Requests, flushes and writes: the \
                     devices', where they are our own. Checkpoints: of the store with the fewest, for each group. \
                     Memory: the most that a store's process has had so far."
                }
            }
        }
    }
}

fn machine(report: &Report) -> Markup {
    let settings = &report.settings;
    let fact =
        |name: &str, value: String| html! { tr { th scope="row" { (name) } td.text { (value) } } };
    html! {
        section {
            h2 { "Machine and settings" }
            (scroll("Machine and settings", html! {
                tbody.facts {
                    @for f in &report.machine { (fact(&f.name, f.value.clone())) }
                    (fact("Volume", bytes(settings.size_bytes as f64)))
                    (fact("Of it written and read", bytes(settings.range_bytes as f64)))
                    (fact("Command", report.command.clone()))
                    (fact("Complete", if report.complete { "yes" } else { "no" }.to_owned()))
                }
            }))
        }
    }
}

fn every(report: &Report) -> Markup {
    let names = [
        "job",
        "target",
        "pair",
        "a second",
        "MiB/s",
        "p50",
        "p99.9",
        "worst second",
    ];
    html! {
        section {
            h2 { "Every run" }
            (folded("Figures of each", scroll("Every run", html! {
                (heads(&names, &["job", "target"]))
                tbody {
                    @for m in &report.measurements {
                        tr {
                            (case_heads(&(m.disks.clone(), m.job.clone(), m.target)))
                            td { (m.pair) }
                            td { (short(m.per_second)) }
                            td { (digits(m.mib_per_second)) }
                            td { (micros(m.p50_micros)) }
                            td { (micros(m.p99_9_micros)) }
                            td { (or_dash(m.worst_second().map(|w| format!("{w:.2}")))) }
                        }
                    }
                }
            })))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_store::claims;
    use crate::block_store::data::Missing;
    use crate::block_store::data::tests::report;
    use crate::block_store::plan::Task;

    #[test]
    fn a_page_has_everything_and_no_holes() {
        let job = "4k randwrite QD128";
        let mut report = report(&[
            (Kind::Background, job, 1, 300.0, 250.0),
            (Kind::Single, job, 1, 3000.0, 25.0),
            (Kind::Background, job, 2, 300.0, 0.0),
        ]);
        report.absent.push(Missing {
            disks: "own disk".to_owned(),
            target: Kind::Odsync,
            why: "refused <by name>".to_owned(),
        });
        report.claims = claims::of(Task::Seed, &report);
        let text = html(&report);
        for wanted in [
            "odsync is not built",
            "&lt;by name&gt;",
            "not built",
            "FAILS",
            "worst second is",
        ] {
            assert!(text.contains(wanted), "{wanted}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf,"), "{text}");
        report.measurements.clear();
        report.claims.clear();
        assert!(html(&report).contains("Nothing was measured"));
    }
}
