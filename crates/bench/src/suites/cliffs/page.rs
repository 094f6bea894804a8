//! `cliffs.html`: how costs grow, as plots, and all shapes as a table.

use maud::{Markup, html};

use super::rows::{COLUMNS, Row, Sides, Table};
use crate::suites::data::Engine;
use crate::suites::page::curves::{AREA, Decades, class, line, mark, panel, place};
use crate::suites::page::{Better, document, format, legend, tables};

/// The page.
pub(super) fn html(table: &Table) -> String {
    let title = "Ironstone and RocksDB: unusual shapes";
    document(
        title,
        "",
        html! {
            (header(table))
            main {
                (growth(table))
                (shapes(table))
            }
            footer {
                p { "Written by " code { "cargo xtask bench cliffs" } "; docs/benchmarks.md says what the shapes are. The same figures are in cliffs.tsv and cliffs.md." }
            }
        },
    )
}

fn header(table: &Table) -> Markup {
    let rows = &table.rows;
    let fast = rows.iter().filter(|row| row.speed.median >= 1.0).count();
    let problems = table.problems();
    let tile = |figure: Option<f64>, what: &str, better: Better| {
        let figure = format::or_dash(figure.map(|figure| format!("{figure:.2}×")));
        html! { div.tile { b { (figure) } span { (what) } (better.mark()) } }
    };
    html! {
        header {
            p.kicker { "Benchmark report · unusual shapes" }
            h1 { span.iron { "Ironstone" } " beside " span.rocks { "RocksDB" } }
            p.lead {
                "Shapes of a database that usual benchmarks do not have: many families, many files, large values, \
                 snapshots, deletions. Both engines run each of them in turns."
            }
            @if !problems.is_empty() {
                div.warning {
                    b { "Beyond the limits" } " (slower than RocksDB, or more than 1.1 times its memory or space): "
                    @for (i, problem) in problems.iter().enumerate() { @if i > 0 { "; " } (problem) }
                    "."
                }
            }
            div.tiles {
                (tile(mean(rows, |row| row.speed.median), "RocksDB's speed, geometric mean of the shapes", Better::Higher))
                div.tile {
                    b { (fast) " of " (rows.len()) }
                    span { "shapes at least as fast as RocksDB" }
                    (Better::Higher.mark())
                }
                (tile(mean(rows, |row| row.memory_mib.ratio()), "RocksDB's peak memory", Better::Lower))
                (tile(mean(rows, |row| row.space_mib.ratio()), "RocksDB's space", Better::Lower))
            }
        }
    }
}

/// The geometric mean of the positive figures; `None` if there are none.
fn mean(rows: &[Row], of: impl Fn(&Row) -> f64) -> Option<f64> {
    let logs: Vec<f64> = rows.iter().map(|row| of(row).ln()).collect();
    let logs: Vec<f64> = logs.into_iter().filter(|log| log.is_finite()).collect();
    let sum: f64 = logs.iter().sum();
    (!logs.is_empty()).then(|| (sum / logs.len() as f64).exp())
}

/// The rows with the same axis and operations, from the smallest `n` on; only those with at least two. What is too
/// short to be measured is left out.
fn courses(table: &Table) -> Vec<Vec<&Row>> {
    let mut all: Vec<Vec<&Row>> = Vec::new();
    let is_time = |time: f64| time > 0.0 && time.is_finite();
    let measured = |row: &&Row| is_time(row.micros.ours) && is_time(row.micros.theirs);
    for row in table.rows.iter().filter(measured) {
        let same = |course: &&mut Vec<&Row>| {
            course
                .first()
                .is_some_and(|r| r.axis == row.axis && r.what == row.what)
        };
        match all.iter_mut().find(same) {
            Some(course) => course.push(row),
            None => all.push(vec![row]),
        }
    }
    all.retain(|course| course.len() > 1);
    for course in &mut all {
        course.sort_by_key(|row| row.n);
    }
    all
}

fn growth(table: &Table) -> Markup {
    let panels: Vec<Markup> = courses(table).iter().map(|c| plot(c)).collect();
    html! {
        section {
            h2 { "How the cost grows" (Better::Lower.mark()) }
            @if panels.is_empty() { p.note { "No axis was measured at two places." } } @else {
                (legend())
                div.panels { @for panel in &panels { (panel) } }
                p.note {
                    "Time of an operation, or of the whole process for opening, creating and copying, by the number that \
                     grows. A level line is a cost that does not grow. Both axes are logarithmic. Medians of the runs."
                }
            }
        }
    }
}

/// Cost against `n` for both engines.
fn plot(course: &[&Row]) -> Markup {
    let of = |sides: Sides, engine| match engine {
        Engine::Ironstone => sides.ours,
        Engine::RocksDb => sides.theirs,
    };
    let (axis, what) = course
        .first()
        .map_or(("", ""), |row| (&row.axis, &row.what));
    let name = format!("{axis}: {what}");
    let micros = |engine| course.iter().map(move |row| of(row.micros, engine));
    let all = || Engine::BOTH.into_iter().flat_map(micros);
    let decades = Decades::around(all());
    let (left, _, right, bottom) = AREA;
    let log = |n: u64| (n.max(1) as f64).ln();
    let ends = [course.first(), course.last()].map(|row| row.map_or(0.0, |row| log(row.n)));
    // Room for whole marks at both ends.
    let x = |n: u64| {
        left + (0.08 + 0.84 * (log(n) - ends[0]) / (ends[1] - ends[0]).max(1e-9)) * (right - left)
    };
    let told: Vec<String> = Engine::BOTH
        .into_iter()
        .map(|engine| {
            let figures = course.iter().zip(micros(engine));
            let figures: Vec<String> = figures
                .map(|(row, v)| format!("{} at {}", format::micros(v), row.n))
                .collect();
            format!("{}: {}.", engine.name(), figures.join(", "))
        })
        .collect();
    panel(
        &name,
        &format!("{name}. {}", told.join(" ")),
        html! {
            (decades.grid())
            @for row in course {
                text x=(place(x(row.n))) y=(bottom + 18.0) text-anchor="middle" { (format::tick(format::short(row.n as f64))) }
            }
            @for engine in Engine::BOTH.into_iter().rev() {
                g class=(class(engine)) {
                    (line(course.iter().zip(micros(engine)).map(|(row, v)| (x(row.n), decades.y(v)))))
                    @for (row, v) in course.iter().zip(micros(engine)) {
                        (mark(engine, x(row.n), decades.y(v), &format!("{} at {}: {}", engine.name(), row.n, format::micros(v))))
                    }
                }
            }
        },
    )
}

fn shapes(table: &Table) -> Markup {
    html! {
        section {
            h2 { "All shapes" }
            (tables::scroll("All shapes", html! {
                thead { tr {
                    @for name in COLUMNS { th scope="col" { (name) } }
                } }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (i, cell) in row.cells().iter().enumerate() {
                                @match i {
                                    0 => th scope="row" { (cell) },
                                    3 => td { b { (cell) } },
                                    _ => td { (cell) },
                                }
                            }
                        }
                    }
                }
            }))
            p.note {
                "Speed: RocksDB's time over Ironstone's, the median of the pairs and their spread; above 1 Ironstone is \
                 faster. Processor time, memory, bytes written and space are Ironstone's over RocksDB's: below 1 is less."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::row;
    use super::*;

    #[test]
    fn an_axis_with_several_places_is_a_plot() {
        let mut table = Table::default();
        for n in [2000, 10, 200] {
            let micros = [n as f64 / 1000.0, 1.0];
            table.add(row(("files", n, "open"), micros, [10.0, 10.0]));
        }
        for n in [10, 20] {
            table.add(row(("files", n, "newiterator"), [0.0, 1.0], [10.0, 10.0]));
        }
        let page = html(&table);
        assert_eq!(page.matches("<figure class=\"panel\">").count(), 1);
        assert!(
            page.contains("Ironstone: 10.0 ns at 10, 0.200 µs at 200, 2.00 µs at 2000."),
            "{page}"
        );
        assert!(page.contains("files-2000-open: speed 0.50"));
        assert!(page.contains("<td>–</td>") && page.contains("files-10-newiterator"));
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
        assert!(html(&Table::default()).contains("No axis was measured"));
    }
}
