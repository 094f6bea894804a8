//! The tables of the page: the figures of the plots, and everything else.

use maud::{Markup, html};

use super::format::{bytes, digits, micros, or_dash, short, whole};
use crate::suites::data::{Benchmark, Engine, Latency, Level, Pair, Report, Run};

/// A table that scrolls separately if it is wider than the page.
pub(crate) fn scroll(label: &str, inner: Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) { table { (inner) } }
    }
}

/// The header; columns of words are aligned to the left, those of figures to the right.
fn heads(names: &[&str]) -> Markup {
    const WORDS: [&str; 5] = [
        "engine",
        "first",
        "an operation",
        "Ironstone's levels",
        "RocksDB's levels",
    ];
    html! {
        thead {
            tr {
                @for name in names { th scope="col" class=[WORDS.contains(name).then_some("text")] { (name) } }
            }
        }
    }
}

/// Content that is folded until its title is opened.
pub(crate) fn folded(title: &str, inner: Markup) -> Markup {
    html! { details { summary { (title) } (inner) } }
}

/// The median of an engine's figure.
fn median(
    benchmark: &Benchmark,
    engine: Engine,
    of: impl Fn(&Run) -> Option<f64>,
    text: fn(f64) -> String,
) -> String {
    or_dash(benchmark.spread(engine, of).map(|s| text(s.median)))
}

pub(super) fn results(report: &Report) -> Markup {
    let names = [
        "benchmark",
        "Ironstone",
        "RocksDB",
        "ratio",
        "spread",
        "pairs",
        "an operation",
    ];
    scroll(
        "Results",
        html! {
            (heads(&names))
            tbody {
                @for b in &report.benchmarks {
                    @let time = |engine| median(b, engine, |r| Some(r.micros_per_op), micros);
                    @let rate = |engine| median(b, engine, |r| Some(r.ops_per_second), |rate| short(rate) + "/s");
                    tr {
                        th scope="row" { (b.name) }
                        td { (time(Engine::Ironstone)) br; small { (rate(Engine::Ironstone)) } }
                        td { (time(Engine::RocksDb)) br; small { (rate(Engine::RocksDb)) } }
                        td { b { (or_dash(b.ratio().map(|r| format!("{:.2}", r.median)))) } }
                        td { (or_dash(b.ratio().map(|r| format!("{:.2}–{:.2}", r.low, r.high)))) }
                        td { (b.ratios().count()) }
                        td.text { (b.about) }
                    }
                }
            }
        },
    )
}

pub(super) fn latency(report: &Report) -> Markup {
    let mut names = vec!["benchmark", "engine"];
    names.extend(Latency::NAMES);
    folded(
        "Percentiles as figures",
        scroll(
            "Latency percentiles",
            html! {
                (heads(&names))
                tbody {
                    @for b in report.benchmarks.iter().filter(|b| b.spread(Engine::Ironstone, |r| Some(r.latency?.p50)).is_some()) {
                        @for engine in Engine::BOTH {
                            tr {
                                th scope="row" { (b.name) }
                                td.text { (engine.name()) }
                                @for i in 0..Latency::NAMES.len() {
                                    td { (median(b, engine, |r| Some(r.latency?.all()[i]), micros)) }
                                }
                            }
                        }
                    }
                }
            },
        ),
    )
}

pub(super) fn levels(report: &Report) -> Markup {
    let told = |levels: &[Level]| -> String {
        let told: Vec<String> = levels
            .iter()
            .enumerate()
            .filter(|(_, level)| level.files > 0)
            .map(|(i, level)| format!("L{i}: {} files, {} MiB", level.files, level.mib))
            .collect();
        if told.is_empty() {
            "no files".to_owned()
        } else {
            told.join("; ")
        }
    };
    folded(
        "Levels in the end",
        scroll(
            "Levels in the end",
            html! {
                (heads(&["benchmark", "Ironstone's levels", "RocksDB's levels"]))
                tbody {
                    @for b in report.benchmarks.iter().filter(|b| b.writes) {
                        tr {
                            th scope="row" { (b.name) }
                            @for engine in Engine::BOTH {
                                td.text { (or_dash(b.typical().and_then(|p| p.run(engine)).map(|r| told(&r.final_levels)))) }
                            }
                        }
                    }
                }
            },
        ),
    )
}

/// A column of a table with a row for each benchmark and engine: heading, figure, format.
type Column = (&'static str, fn(&Run) -> Option<f64>, fn(f64) -> String);

fn by_engine(title: &str, report: &Report, columns: &[Column]) -> Markup {
    let mut names = vec!["benchmark", "engine"];
    names.extend(columns.iter().map(|(name, _, _)| *name));
    folded(
        title,
        scroll(
            title,
            html! {
                (heads(&names))
                tbody {
                    @for b in &report.benchmarks {
                        @for engine in Engine::BOTH {
                            tr {
                                th scope="row" { (b.name) }
                                td.text { (engine.name()) }
                                @for (_, of, text) in columns { td { (median(b, engine, of, *text)) } }
                            }
                        }
                    }
                }
            },
        ),
    )
}

pub(super) fn resources(report: &Report) -> Markup {
    by_engine(
        "Memory, time, bytes and stalls as figures",
        report,
        &[
            (
                "peak memory, MiB",
                |r| Some(r.process?.peak_memory_mib as f64),
                whole,
            ),
            ("user, s", |r| Some(r.process?.user_seconds), digits),
            ("system, s", |r| Some(r.process?.system_seconds), digits),
            (
                "process wrote",
                |r| Some(r.process?.written_bytes as f64),
                bytes,
            ),
            ("for a byte put", |r| r.write_amplification, digits),
            ("database", |r| Some(r.database_bytes? as f64), bytes),
            ("for a live byte", |r| r.space_amplification, digits),
            ("stalls", |r| Some(r.stalls.as_ref()?.count as f64), whole),
            ("stalled, s", |r| Some(r.stalls.as_ref()?.seconds), digits),
        ],
    )
}

pub(super) fn devices(report: &Report) -> Markup {
    by_engine(
        "Device operations as figures",
        report,
        &[
            ("operations", |r| Some(r.operations as f64), short),
            ("write requests", |r| Some(r.device?.writes as f64), short),
            ("flushes", |r| Some(r.device?.flushes as f64), short),
            ("written", |r| Some(r.device?.written_bytes as f64), bytes),
            ("read requests", |r| Some(r.device?.reads as f64), short),
            ("read", |r| Some(r.device?.read_bytes as f64), bytes),
        ],
    )
}

pub(super) fn machine(report: &Report) -> Markup {
    let settings = &report.settings;
    let fact =
        |name: &str, value: Markup| html! { tr { th scope="row" { (name) } td.text { (value) } } };
    html! {
        section {
            h2 { "Machine and settings" }
            (scroll("Machine and settings", html! {
                tbody.facts {
                    @for f in &report.machine { (fact(&f.name, html! { (f.value) })) }
                    (fact("Keys of a database", html! { (settings.num) }))
                    (fact("Synced puts of a run", html! { (settings.syncs) }))
                    (fact("Seconds of a timed run", html! { (settings.seconds) }))
                    (fact("Flags of both engines", html! { code { (settings.flags.join(" ")) } }))
                    (fact("Command", html! { code { (report.command) } }))
                    (fact("Complete", html! { @if report.complete { "yes" } @else { "no" } }))
                }
            }))
        }
    }
}

/// Every run, with its command.
pub(super) fn runs(report: &Report) -> Markup {
    let names = [
        "benchmark",
        "pair",
        "first",
        "Ironstone",
        "RocksDB",
        "ratio",
    ];
    let time = |pair: &Pair, engine| or_dash(pair.run(engine).map(|r| micros(r.micros_per_op)));
    html! {
        section {
            h2 { "Every pair" }
            (folded("Times and ratios", scroll("Every pair", html! {
                (heads(&names))
                tbody {
                    @for b in &report.benchmarks {
                        @for (number, pair) in (1..).zip(&b.pairs) {
                            tr {
                                th scope="row" { (b.name) }
                                td { (number) }
                                td.text { (pair.first.name()) }
                                td { (time(pair, Engine::Ironstone)) }
                                td { (time(pair, Engine::RocksDb)) }
                                td { (or_dash(pair.ratio().map(|r| format!("{r:.3}")))) }
                            }
                        }
                    }
                }
            })))
            (folded("Commands, of the first pair", html! {
                @for b in &report.benchmarks {
                    @for run in b.pairs.first().iter().flat_map(|p| Engine::BOTH.map(|e| p.run(e))).flatten() {
                        pre { (run.command) }
                    }
                }
            }))
        }
    }
}
