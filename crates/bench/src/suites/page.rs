//! `report.html`: a report as one self-contained page.
//!
//! Nothing is loaded: no script, font or picture. Styles and SVG are in the page, and its content
//! security policy forbids the browser to load anything, so that the page can be sent around and
//! opened from a file. It follows the reader's choice of light or dark, and is as wide as its
//! window. Everything that a plot shows is also in a table or in the plot's label.

pub(crate) mod curves;
pub(crate) mod format;
mod markdown;
mod rows;
pub(crate) mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::data::{Benchmark, Engine, Report, Run};
use curves::{class, mark};

const STYLE: &str = include_str!("page/style.css");

/// The content security policy: nothing may be loaded.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A page with this title, styles besides those that all pages have, and body.
pub(crate) fn document(title: &str, styles: &str, body: Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(styles)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// The page of a report.
pub(super) fn html(report: &Report) -> String {
    let title = format!("Ironstone and RocksDB: {} suite", report.suite);
    let body = html! {
        (header(report))
        main {
            (overview(report))
            (latencies(report))
            (throughputs(report))
            (levels(report))
            (resources(report))
            (devices(report))
            @for extra in &report.extras {
                section {
                    h2 { (extra.title) }
                    (markdown::html(&extra.text))
                    p.note { "Measured by " code { (extra.command) } }
                }
            }
            (tables::machine(report))
            (tables::runs(report))
        }
        footer {
            p { "Written by " code { "cargo xtask bench" } "; docs/benchmarks.md says what the figures mean. The same figures are in report.json and report.tsv." }
        }
    };
    document(&title, "", body)
}

fn header(report: &Report) -> Markup {
    let versions = &report.versions;
    let version = |v: &Option<String>| format::or_dash(v.clone());
    html! {
        header {
            p.kicker { "Benchmark report · " (report.suite) " suite" }
            h1 { span.iron { "Ironstone" } " beside " span.rocks { "RocksDB" } }
            p.lead {
                "Ironstone " (version(&versions.ironstone))
                @if let Some(commit) = &versions.commit { " (" code { (commit) } ")" }
                " and RocksDB " (version(&versions.rocksdb))
                ", the same benchmarks by the same driver in turns, " (report.settings.pairs)
                " pairs of runs each. " (report.date)
            }
            @if !report.complete {
                p.warning role="alert" {
                    b { "Incomplete. " }
                    "Shown is what was measured before: "
                    (report.problem.as_deref().unwrap_or("the suite did not come to its end"))
                }
            }
            @if report.settings.pairs < 5 {
                p.warning { b { "Fewer than five pairs. " } "Enough to see that it works, too few to rely on." }
            }
            (tiles(report))
        }
    }
}

/// Which figures are better.
#[derive(Clone, Copy)]
pub(crate) enum Better {
    Higher,
    Lower,
}

impl Better {
    pub(crate) fn mark(self) -> Markup {
        html! {
            small.better {
                @match self {
                    Self::Higher => { "↑ higher is better" },
                    Self::Lower => { "↓ lower is better" },
                }
            }
        }
    }
}

fn tiles(report: &Report) -> Markup {
    let medians: Vec<f64> = report
        .benchmarks
        .iter()
        .filter_map(|b| Some(b.ratio()?.median))
        .collect();
    let faster = medians.iter().filter(|m| **m > 1.0).count();
    let tile = |figure: String, what: &str, better: Better| {
        html! { div.tile { b { (figure) } span { (what) } (better.mark()) } }
    };
    let written = mean_ratio(report, |run| run.write_amplification);
    let memory = mean_ratio(report, |run| Some(run.process?.peak_memory_mib as f64));
    html! {
        div.tiles {
            @if let Some(mean) = report.geometric_mean() {
                (tile(format!("{mean:.2}×"), "RocksDB's speed, geometric mean of the benchmarks", Better::Higher))
            }
            (tile(format!("{faster} of {}", medians.len()), "benchmarks faster than RocksDB", Better::Higher))
            @if let Some(written) = written {
                (tile(format!("{written:.2}×"), "RocksDB's bytes written for a byte put", Better::Lower))
            }
            @if let Some(memory) = memory {
                (tile(format!("{memory:.2}×"), "RocksDB's peak memory", Better::Lower))
            }
        }
    }
}

/// The geometric mean, over the benchmarks, of Ironstone's median figure over RocksDB's.
fn mean_ratio(report: &Report, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    let logs: Vec<f64> = report
        .benchmarks
        .iter()
        .filter_map(|b| {
            let [ours, theirs] = Engine::BOTH.map(|engine| b.spread(engine, &of));
            Some((ours?.median / theirs?.median).ln()).filter(|l| l.is_finite())
        })
        .collect();
    let sum: f64 = logs.iter().sum();
    (!logs.is_empty()).then(|| (sum / logs.len() as f64).exp())
}

/// The colours and marks of the engines.
pub(crate) fn legend() -> Markup {
    html! {
        p.legend {
            @for engine in Engine::BOTH {
                span class=(class(engine)) {
                    svg width="34" height="14" aria-hidden="true" {
                        line.line x1="1" x2="33" y1="7" y2="7" {}
                        (mark(engine, 17.0, 7.0, engine.name()))
                    }
                    (engine.name())
                }
            }
        }
    }
}

fn overview(report: &Report) -> Markup {
    html! {
        section {
            h2 { "Speed over RocksDB's" (Better::Higher.mark()) }
            figure {
                (rows::ratios(&report.benchmarks))
                figcaption {
                    "RocksDB's time for an operation over Ironstone's, within each pair of runs: right of the line \
                     at 1 Ironstone is faster. Large dot: the median of the pairs. Bar: from the smallest to \
                     the largest. Small dots: the pairs. Logarithmic axis."
                }
            }
            (tables::results(report))
        }
    }
}

fn latencies(report: &Report) -> Markup {
    let panels: Vec<Markup> = report
        .benchmarks
        .iter()
        .filter_map(curves::latency)
        .collect();
    html! {
        section {
            h2 { "Latency" (Better::Lower.mark()) }
            @if panels.is_empty() { p.note { "No run measured the time of each operation." } } @else {
                (legend())
                div.panels { @for panel in &panels { (panel) } }
                p.note {
                    "Percentiles of the time of an operation, medians over the runs; thin bars: from the smallest to the \
                     largest. Logarithmic axis. Scans are not here: reading the clock takes as long as their step."
                }
                (tables::latency(report))
            }
        }
    }
}

fn throughputs(report: &Report) -> Markup {
    let panels: Vec<Markup> = report
        .benchmarks
        .iter()
        .filter_map(curves::throughput)
        .collect();
    html! {
        section {
            h2 { "Throughput over time" (Better::Higher.mark()) }
            @if panels.is_empty() { p.note { "No run was longer than two seconds: the rate is taken once a second." } } @else {
                (legend())
                div.panels { @for panel in &panels { (panel) } }
                p.note {
                    "Operations of each second. Strong: the pair whose ratio is nearest to the median. Faint: the \
                     others. Triangles at the foot: writers were held back, Ironstone's above the axis, RocksDB's below."
                }
            }
        }
    }
}

fn levels(report: &Report) -> Markup {
    let panels: Vec<Markup> = report
        .benchmarks
        .iter()
        .filter_map(curves::levels)
        .collect();
    html! {
        section {
            h2 { "Levels over time" }
            @if panels.is_empty() { p.note { "No run flushed or compacted often enough." } } @else {
                p.legend {
                    @for level in 0..6 {
                        span.plain {
                            svg width="16" height="14" aria-hidden="true" { rect class=(format!("level level{level}")) width="16" height="14" {} }
                            @if level == 5 { "level 5 and deeper" } @else { "level " (level) }
                        }
                    }
                }
                div.panels.twins { @for panel in &panels { (panel) } }
                p.note {
                    "Files of each level, stacked, as flushes and compactions left them, until compaction had \
                     settled; from the engines' LOG, in the pair whose ratio is nearest to the median."
                }
                (tables::levels(report))
            }
        }
    }
}

/// A plot of a figure for both engines, with a title.
fn figure_plot(
    report: &Report,
    title: &str,
    of: impl Fn(&Benchmark, &Run) -> Option<f64>,
    text: fn(f64) -> String,
) -> Markup {
    let plot = rows::figures(
        &report.benchmarks,
        |benchmark, engine| benchmark.spread(engine, |run| of(benchmark, run)),
        text,
    );
    html! {
        @if let Some(plot) = plot {
            figure.half { figcaption { (title) } (plot) }
        }
    }
}

fn resources(report: &Report) -> Markup {
    html! {
        section {
            h2 { "What it took" (Better::Lower.mark()) }
            (legend())
            div.halves {
                (figure_plot(report, "Bytes written for a byte put", |_, r| r.write_amplification, format::digits))
                (figure_plot(report, "Bytes on the device for a byte of live data", |_, r| r.space_amplification, format::digits))
                (figure_plot(report, "Peak memory, MiB", |_, r| Some(r.process?.peak_memory_mib as f64), format::whole))
                (figure_plot(report, "Processor time, seconds", |_, r| Some(r.process?.cpu_seconds()), format::digits))
            }
            p.note {
                "Of the whole process: warm-up of reads and compaction after writes included. Less than a byte is \
                 written for a byte put where a log was deleted before the system had written it. Medians; \
                 thin bars: from the smallest to the largest."
            }
            (tables::resources(report))
        }
    }
}

fn devices(report: &Report) -> Markup {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let each = |run: &Run, count: u64| {
        (run.operations > 0).then(|| count as f64 * 1000.0 / run.operations as f64)
    };
    html! {
        section {
            h2 { "Device operations" (Better::Lower.mark()) }
            (legend())
            div.halves {
                (figure_plot(report, "Write requests for 1,000 operations", |_, r| each(r, r.device?.writes), format::short))
                (figure_plot(report, "Flushes for 1,000 operations", |_, r| each(r, r.device?.flushes), format::short))
                (figure_plot(report, "Written to the device, MiB", |_, r| Some(mib(r.device?.written_bytes)), format::digits))
                (figure_plot(report, "Read from the device, MiB", |_, r| Some(mib(r.device?.read_bytes)), format::digits))
            }
            p.note {
                "Counters of the whole device, from before a run until all of it was on the device: other \
                 programs are in them. Write requests contain empty flushes. cargo xtask bench-device counts \
                 on a device of its own."
            }
            (tables::devices(report))
        }
    }
}

#[cfg(test)]
mod tests;
