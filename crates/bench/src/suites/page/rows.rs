//! Plots with a row for each benchmark on one horizontal logarithmic axis: ratios with their spread,
//! and figures of both engines.
//!
//! Each row is a small SVG whose coordinates are percentages, so that the plot is as wide as the
//! page, while its text and marks keep their size on a phone and on a desktop. On a phone the name
//! and the value are above the row.

use maud::{Markup, html};

use super::format;
use crate::spread::Spread;
use crate::suites::data::{Benchmark, Engine};

/// The ends of the axis, in percent of the width; there is room for whole marks at the ends.
const EDGES: (f64, f64) = (3.0, 97.0);

/// The most ticks.
const TICKS: usize = 7;

/// Maps values to places: logarithmic, with 0 at the left edge if there are zeros.
struct Axis {
    low: f64,
    high: f64,
    zero: bool,
}

impl Axis {
    /// An axis for these values; `None` if none is positive and finite.
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (mut low, mut high, mut zero) = (f64::INFINITY, 0.0f64, false);
        for value in values.filter(|v| v.is_finite()) {
            if value > 0.0 {
                low = low.min(value);
                high = high.max(value);
            } else {
                zero = true;
            }
        }
        (high > 0.0).then(|| Self {
            low: low / 1.12,
            high: high * 1.12,
            zero,
        })
    }

    /// The place of a value, in percent of the width.
    fn at(&self, value: f64) -> String {
        let (left, right) = EDGES;
        let begin = if self.zero { left + 8.0 } else { left };
        let place = if value > 0.0 {
            let share = (value / self.low).ln() / (self.high / self.low).ln();
            begin + share.clamp(0.0, 1.0) * (right - begin)
        } else {
            left
        };
        format!("{place:.2}%")
    }

    /// Round values, few enough to be readable.
    fn ticks(&self) -> Vec<f64> {
        const CHOICES: [&[f64]; 5] = [
            &[1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
            &[1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0],
            &[1.0, 1.5, 2.0, 3.0, 5.0],
            &[1.0, 2.0, 5.0],
            &[1.0],
        ];
        let inside = |mantissas: &[f64], every: i32| -> Vec<f64> {
            (-12..15)
                .filter(|decade| decade % every == 0)
                .flat_map(|decade| mantissas.iter().map(move |m| m * 10f64.powi(decade)))
                .filter(|tick| (self.low..=self.high).contains(tick))
                .collect()
        };
        let mut choices = CHOICES
            .iter()
            .map(|mantissas| inside(mantissas, 1))
            .chain((2..5).map(|every| inside(&[1.0], every)));
        let mut ticks = choices.find(|t| t.len() <= TICKS).unwrap_or_default();
        if self.zero {
            ticks.insert(0, 0.0);
        }
        ticks
    }

    fn grid(&self) -> Markup {
        html! {
            @for tick in self.ticks() {
                line.grid x1=(self.at(tick)) x2=(self.at(tick)) y1="0" y2="100%" {}
            }
        }
    }

    fn labels(&self, unit: &str) -> Markup {
        html! {
            div.row.axis aria-hidden="true" {
                span.name {}
                svg.track {
                    @for tick in self.ticks() {
                        text x=(self.at(tick)) y="14" text-anchor="middle" { (format::tick(format::short(tick))) }
                    }
                }
                span.value { (unit) }
            }
        }
    }
}

/// The ratios of the benchmarks, with a line at 1.
pub(super) fn ratios(benchmarks: &[Benchmark]) -> Markup {
    let spreads = benchmarks.iter().filter_map(Benchmark::ratio);
    let values = spreads.flat_map(|s| [s.low, s.high]).chain([1.0]);
    let Some(axis) = Axis::of(values) else {
        return html! { p { "No pair has both runs." } };
    };
    html! {
        div.rows {
            @for benchmark in benchmarks {
                @if let Some(ratio) = benchmark.ratio() {
                    (ratio_row(benchmark, ratio, &axis))
                } @else {
                    div.row { span.name { (benchmark.name) } span.track.none { "no pair has both runs" } span.value { "–" } }
                }
            }
            (axis.labels("× RocksDB"))
        }
    }
}

fn ratio_row(benchmark: &Benchmark, ratio: Spread, axis: &Axis) -> Markup {
    let class = if ratio.median >= 1.0 { "iron" } else { "rocks" };
    let label = format!(
        "{}: median ratio {:.2}, from {:.2} to {:.2}",
        benchmark.name, ratio.median, ratio.low, ratio.high
    );
    html! {
        div.row {
            span.name { (benchmark.name) }
            svg class=(format!("track {class}")) role="img" aria-label=(label) {
                title { (label) }
                (axis.grid())
                line.one x1=(axis.at(1.0)) x2=(axis.at(1.0)) y1="0" y2="100%" {}
                line.range x1=(axis.at(ratio.low)) x2=(axis.at(ratio.high)) y1="50%" y2="50%" {}
                @for pair in benchmark.ratios() {
                    circle.pair cx=(axis.at(pair)) cy="50%" r="3" {}
                }
                circle.dot cx=(axis.at(ratio.median)) cy="50%" r="6.5" {}
            }
            span.value {
                b { (format!("{:.2}", ratio.median)) }
                " "
                small { (format!("{:.2}–{:.2}", ratio.low, ratio.high)) }
            }
        }
    }
}

/// A figure of both engines for each benchmark that has it; `None` if none has.
pub(super) fn figures(
    benchmarks: &[Benchmark],
    of: impl Fn(&Benchmark, Engine) -> Option<Spread>,
    text: fn(f64) -> String,
) -> Option<Markup> {
    let rows: Vec<_> = benchmarks
        .iter()
        .map(|b| (b, Engine::BOTH.map(|engine| of(b, engine))))
        .filter(|(_, sides)| sides.iter().flatten().any(|s| s.high > 0.0))
        .collect();
    let all = rows.iter().flat_map(|(_, sides)| sides.iter().flatten());
    let axis = Axis::of(all.flat_map(|s| [s.low, s.high, s.median]))?;
    Some(html! {
        div.rows.wide {
            @for (benchmark, sides) in &rows {
                (figure_row(&benchmark.name, *sides, &axis, text))
            }
            (axis.labels(""))
        }
    })
}

fn figure_row(
    name: &str,
    sides: [Option<Spread>; 2],
    axis: &Axis,
    text: fn(f64) -> String,
) -> Markup {
    let told: Vec<String> = Engine::BOTH
        .iter()
        .zip(sides)
        .map(|(engine, side)| {
            let figure = format::or_dash(side.map(|s| text(s.median)));
            format!("{} {figure}", engine.name())
        })
        .collect();
    let label = format!("{name}: {}", told.join(", "));
    let medians: Vec<String> = sides
        .iter()
        .map(|side| format::or_dash(side.map(|s| text(s.median))))
        .collect();
    html! {
        div.row {
            span.name { (name) }
            svg.track role="img" aria-label=(label) {
                title { (label) }
                (axis.grid())
                @if let [Some(ours), Some(theirs)] = sides {
                    line.between x1=(axis.at(ours.median)) x2=(axis.at(theirs.median)) y1="50%" y2="50%" {}
                }
                @if let Some(theirs) = sides[1] {
                    g.rocks {
                        line.whisker x1=(axis.at(theirs.low)) x2=(axis.at(theirs.high)) y1="68%" y2="68%" {}
                        svg.mark x=(axis.at(theirs.median)) y="50%" { rect.dot x="-5" y="-5" width="10" height="10" {} }
                    }
                }
                @if let Some(ours) = sides[0] {
                    g.iron {
                        line.whisker x1=(axis.at(ours.low)) x2=(axis.at(ours.high)) y1="32%" y2="32%" {}
                        circle.dot cx=(axis.at(ours.median)) cy="50%" r="5.5" {}
                    }
                }
            }
            span.value {
                span.iron { (medians[0]) }
                " · "
                span.rocks { (medians[1]) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::data::tests::benchmark;

    #[test]
    fn places_are_logarithmic() {
        let axis = Axis {
            low: 1.0,
            high: 100.0,
            zero: false,
        };
        assert_eq!(axis.at(10.0), "50.00%");
        assert_eq!(
            (axis.at(1.0), axis.at(1e9)),
            ("3.00%".into(), "97.00%".into())
        );
        assert_eq!(axis.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        let wide = Axis {
            low: 1e-3,
            high: 1e9,
            zero: true,
        };
        assert_eq!(wide.at(0.0), "3.00%");
        assert!(wide.ticks().len() <= TICKS + 1 && wide.ticks()[0] == 0.0);
        assert!(Axis::of([0.0, f64::NAN].into_iter()).is_none());
    }

    #[test]
    fn rows_say_what_they_show() {
        let all = [
            benchmark("fillseq", &[(1.0, 2.0), (1.0, 3.0)]),
            benchmark("none", &[]),
        ];
        let text = ratios(&all).into_string();
        assert!(
            text.contains("fillseq: median ratio 2.50, from 2.00 to 3.00"),
            "{text}"
        );
        assert!(text.contains("no pair has both runs"));
        assert!(ratios(&[]).into_string().contains("No pair") || !text.contains("NaN"));
        let micros = |b: &Benchmark, e| b.spread(e, |r| Some(r.micros_per_op));
        let text = figures(&all, micros, format::micros).unwrap().into_string();
        assert!(
            text.contains("fillseq: Ironstone 1.00 µs, RocksDB 2.50 µs"),
            "{text}"
        );
        assert!(figures(&all, |_, _| None, format::micros).is_none());
    }
}
