//! Small plots of one benchmark each: latency percentiles, throughput over time, levels over time.
//!
//! All have the same size in SVG units, about that of a column on a desktop and of the page on a
//! phone, so that text has a suitable size on both. Ironstone has solid lines with circles, RocksDB
//! dashed lines with squares: the plots can be read without colours.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::format;
use crate::spread::Spread;
use crate::suites::data::{Benchmark, Engine, Latency, Levels, Run};

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 216.0;
/// The area of the curves: left, top, right, bottom.
pub(crate) const AREA: (f64, f64, f64, f64) = (54.0, 12.0, 350.0, 180.0);

/// Latency percentiles of one benchmark: medians over the runs, with their range; `None` if there
/// are none.
pub(super) fn latency(benchmark: &Benchmark) -> Option<Markup> {
    let sides = Engine::BOTH.map(|engine| {
        let at = |i: usize| benchmark.spread(engine, |run| Some(run.latency?.all()[i].max(0.01)));
        (engine, std::array::from_fn::<_, 5, _>(at))
    });
    let values = || sides.iter().flat_map(|(_, all)| all.iter().flatten());
    values().next()?;
    let decades = Decades::around(values().flat_map(|s| [s.low, s.high]));
    let (left, _, right, bottom) = AREA;
    let x = |i: usize| left + (i as f64 + 0.5) / 5.0 * (right - left);
    let y = |v: f64| decades.y(v);
    let told: Vec<String> = sides
        .iter()
        .map(|(engine, all)| told_latency(*engine, all))
        .collect();
    let label = format!("{}, latency. {}", benchmark.name, told.join(" "));
    Some(panel(
        &benchmark.name,
        &label,
        html! {
            (decades.grid())
            @for (i, name) in Latency::NAMES.iter().enumerate() {
                text x=(place(x(i))) y=(bottom + 18.0) text-anchor="middle" { (name) }
            }
            @for (engine, all) in sides.iter().rev() {
                g class=(class(*engine)) {
                    (line(all.iter().enumerate().filter_map(|(i, s)| Some((x(i), y((*s)?.median))))))
                    @for (i, spread) in all.iter().enumerate() {
                        @if let Some(s) = spread {
                            line.whisker x1=(place(x(i))) x2=(place(x(i))) y1=(place(y(s.low))) y2=(place(y(s.high))) {}
                            (mark(*engine, x(i), y(s.median), &format!("{} {}: {}", engine.name(), Latency::NAMES[i], format::micros(s.median))))
                        }
                    }
                }
            }
        },
    ))
}

fn told_latency(engine: Engine, all: &[Option<Spread>; 5]) -> String {
    let figures: Vec<String> = Latency::NAMES
        .iter()
        .zip(all)
        .filter_map(|(name, spread)| Some(format!("{name} {}", format::micros((*spread)?.median))))
        .collect();
    if figures.is_empty() {
        return format!("{}: not measured.", engine.name());
    }
    format!("{}: {}.", engine.name(), figures.join(", "))
}

/// Operations per second over time: all pairs faint, the typical one strong, with its stalls;
/// `None` if no run is longer than two seconds.
pub(super) fn throughput(benchmark: &Benchmark) -> Option<Markup> {
    let all = || Engine::BOTH.into_iter().flat_map(|e| benchmark.runs(e));
    let seconds = all().flat_map(|r| &r.rates).map(|r| r.second).max()?;
    let most = all().flat_map(|r| &r.rates).map(|r| r.ops).max()? as f64;
    if seconds < 3 || most <= 0.0 {
        return None;
    }
    let typical = benchmark.typical().or(benchmark.pairs.last())?;
    let frame = Frame::new(seconds as f64, most);
    let told: Vec<String> = Engine::BOTH
        .iter()
        .filter_map(|&engine| Some(told_rates(engine, typical.run(engine)?)))
        .collect();
    let label = format!(
        "{}, operations a second. {}",
        benchmark.name,
        told.join(" ")
    );
    let course = |run: &Run| {
        line(
            run.rates
                .iter()
                .map(|r| (frame.x(r.second as f64), frame.y(r.ops as f64))),
        )
    };
    Some(panel(
        &benchmark.name,
        &label,
        html! {
            (frame.axes("s"))
            @for engine in Engine::BOTH.into_iter().rev() {
                g class=(class(engine)) {
                    g.faint { @for run in benchmark.runs(engine) { (course(run)) } }
                    @if let Some(run) = typical.run(engine) {
                        (course(run))
                        @for stall in run.stalls.iter().flat_map(|s| &s.at).filter(|at| **at <= seconds as f64) {
                            (frame.stall(engine, *stall))
                        }
                    }
                }
            }
        },
    ))
}

fn told_rates(engine: Engine, run: &Run) -> String {
    let rates = || run.rates.iter().map(|r| r.ops as f64);
    let Some(spread) = Spread::some(rates()) else {
        return format!("{}: too short.", engine.name());
    };
    let stalls = run.stalls.as_ref().map_or(0, |s| s.at.len());
    format!(
        "{}: median {}, worst second {}, best {}; writers were held back {stalls} times.",
        engine.name(),
        format::short(spread.median),
        format::short(spread.low),
        format::short(spread.high)
    )
}

/// Files of each level over time in the typical pair, one plot for each engine; `None` if there are
/// none.
pub(super) fn levels(benchmark: &Benchmark) -> Option<Markup> {
    let typical = benchmark.typical().or(benchmark.pairs.last())?;
    let runs: Vec<(Engine, &Run)> = Engine::BOTH
        .into_iter()
        .filter_map(|engine| Some((engine, typical.run(engine)?)))
        .filter(|(_, run)| run.levels.len() >= 3)
        .collect();
    let samples = || runs.iter().flat_map(|(_, run)| &run.levels);
    let most = samples().map(|l| l.files.iter().sum::<u64>()).max()? as f64;
    let end = samples().map(|l| l.at).fold(0.0, f64::max);
    let frame = Frame::new(end, most.max(1.0));
    Some(html! {
        @for (engine, run) in &runs {
            (levels_panel(&format!("{}, {}", benchmark.name, engine.name()), *engine, &run.levels, &frame))
        }
    })
}

fn levels_panel(name: &str, engine: Engine, samples: &[Levels], frame: &Frame) -> Markup {
    let depth = samples
        .iter()
        .filter_map(|l| l.files.iter().rposition(|f| *f > 0))
        .max()
        .map_or(0, |deepest| deepest + 1);
    let last: Vec<String> = samples
        .last()
        .into_iter()
        .flat_map(|l| l.files.iter().take(depth).enumerate())
        .map(|(level, files)| format!("{files} in level {level}"))
        .collect();
    let zero = samples
        .iter()
        .filter_map(|l| l.files.first())
        .max()
        .unwrap_or(&0);
    let label = format!(
        "{name}, files of each level over time. In the end {}; at most {zero} in level 0.",
        last.join(", ")
    );
    panel(
        name,
        &label,
        html! {
            (frame.axes("s"))
            g class=(class(engine)) {
                @for level in 0..depth {
                    path class=(format!("level level{}", level.min(5))) d=(area(samples, level, frame)) {
                        title { (format!("level {level}")) }
                    }
                }
            }
        },
    )
}

/// The area of one level, stacked above the levels before it, as steps: a state holds until the
/// next.
fn area(samples: &[Levels], level: usize, frame: &Frame) -> String {
    let below = |l: &Levels, n: usize| l.files.iter().take(n).sum::<u64>() as f64;
    let edge = |n: usize| {
        let mut points = vec![];
        for (i, sample) in samples.iter().enumerate() {
            let until = samples.get(i + 1).map_or(frame.end, |next| next.at);
            let y = frame.y(below(sample, n));
            points.extend([(frame.x(sample.at), y), (frame.x(until), y)]);
        }
        points
    };
    let upper = edge(level + 1);
    let lower = edge(level);
    let mut d = String::new();
    for (i, (x, y)) in upper.iter().chain(lower.iter().rev()).enumerate() {
        let letter = if i == 0 { 'M' } else { 'L' };
        write!(d, "{letter}{x:.1} {y:.1}").ok(); // a String: never fails
    }
    d + "Z"
}

/// A logarithmic vertical axis of times in microseconds, from a power of ten to another.
pub(crate) struct Decades {
    first: f64,
    last: f64,
}

impl Decades {
    /// For these times, of which at least one must be positive and finite.
    pub(crate) fn around(micros: impl Iterator<Item = f64>) -> Self {
        let logs = micros.map(f64::log10).filter(|log| log.is_finite());
        let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| {
            (low.min(log), high.max(log))
        });
        let first = low.floor();
        Self {
            first,
            last: high.ceil().max(first + 1.0),
        }
    }

    pub(crate) fn y(&self, micros: f64) -> f64 {
        let (_, top, _, bottom) = AREA;
        bottom - (micros.log10() - self.first) / (self.last - self.first) * (bottom - top)
    }

    /// Its lines and their labels.
    pub(crate) fn grid(&self) -> Markup {
        let (left, _, right, _) = AREA;
        html! {
            @for decade in (self.first as i32..=self.last as i32).map(|d| 10f64.powi(d)) {
                @let y = self.y(decade);
                line.grid x1=(left) x2=(right) y1=(place(y)) y2=(place(y)) {}
                text x=(left - 6.0) y=(place(y + 4.0)) text-anchor="end" { (format::tick(format::micros(decade))) }
            }
        }
    }
}

/// Linear axes from 0.
pub(crate) struct Frame {
    end: f64,
    most: f64,
}

impl Frame {
    pub(crate) fn new(end: f64, most: f64) -> Self {
        Self {
            end: end.max(1e-3),
            most: most * 1.06,
        }
    }

    pub(crate) fn x(&self, value: f64) -> f64 {
        AREA.0 + value / self.end * (AREA.2 - AREA.0)
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        AREA.3 - value / self.most * (AREA.3 - AREA.1)
    }

    pub(crate) fn axes(&self, unit: &str) -> Markup {
        let (left, _, right, bottom) = AREA;
        html! {
            @for tick in ticks(self.most) {
                line.grid x1=(left) x2=(right) y1=(place(self.y(tick))) y2=(place(self.y(tick))) {}
                text x=(left - 6.0) y=(place(self.y(tick) + 4.0)) text-anchor="end" { (format::tick(format::short(tick))) }
            }
            @for tick in ticks(self.end) {
                text x=(place(self.x(tick))) y=(bottom + 18.0) text-anchor="middle" { (format::tick(format::tick(format::short(tick)))) " " (unit) }
            }
        }
    }

    /// A stall: a triangle that stands on the axis or hangs below it.
    fn stall(&self, engine: Engine, at: f64) -> Markup {
        let (x, bottom) = (self.x(at), AREA.3);
        let tip = match engine {
            Engine::Ironstone => bottom - 7.0,
            Engine::RocksDb => bottom + 7.0,
        };
        html! {
            path.stall d=(format!("M{:.1} {bottom}L{:.1} {bottom}L{x:.1} {tip}Z", x - 3.5, x + 3.5)) {
                title { (engine.name()) " held writers back after " (format::digits(at)) " s" }
            }
        }
    }
}

/// At most six round values from 0.
fn ticks(most: f64) -> Vec<f64> {
    let magnitude = 10f64.powf((most / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * magnitude)
        .find(|step| most / step <= 5.0)
        .unwrap_or(most);
    (0..=5)
        .map(|i| f64::from(i) * step)
        .filter(|t| *t <= most)
        .collect()
}

/// One small plot.
pub(crate) fn panel(name: &str, label: &str, inner: Markup) -> Markup {
    html! {
        figure.panel {
            figcaption { (name) }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(label) {
                title { (label) }
                (inner)
            }
        }
    }
}

/// The CSS class with an engine's colour.
pub(crate) fn class(engine: Engine) -> &'static str {
    match engine {
        Engine::Ironstone => "iron",
        Engine::RocksDb => "rocks",
    }
}

/// An engine's mark: a full circle, or an open square.
pub(crate) fn mark(engine: Engine, x: f64, y: f64, title: &str) -> Markup {
    html! {
        @match engine {
            Engine::Ironstone => circle.dot cx=(place(x)) cy=(place(y)) r="4.5" { title { (title) } },
            Engine::RocksDb => rect.dot x=(place(x - 4.0)) y=(place(y - 4.0)) width="8" height="8" { title { (title) } },
        }
    }
}

pub(crate) fn line(points: impl Iterator<Item = (f64, f64)>) -> Markup {
    let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    html! { polyline.line points=(points.join(" ")) {} }
}

pub(crate) fn place(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::data::tests::benchmark;
    use crate::suites::data::{Rate, Stalls};

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(95.0), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(5.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(ticks(0.33).len(), 4);
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let bare = benchmark("a", &[(1.0, 2.0)]);
        assert!(latency(&bare).is_none());
        assert!(throughput(&bare).is_none());
        assert!(levels(&bare).is_none());
        assert!(levels(&benchmark("a", &[])).is_none());
    }

    #[test]
    fn one_engine_alone_is_drawn() {
        let mut lone = benchmark("a", &[(1.0, 2.0)]);
        lone.pairs[0].rocksdb = None;
        let run = lone.pairs[0].ironstone.as_mut().unwrap();
        run.latency = Some(Latency {
            p50: 0.0,
            p99: 9.0,
            p99_9: 20.0,
            p99_99: 80.0,
            max: 9e4,
        });
        run.rates = (1..5)
            .map(|second| Rate {
                second,
                ops: second * 100,
            })
            .collect();
        run.stalls = Some(Stalls {
            count: 1,
            seconds: 0.1,
            at: vec![2.5, 99.0],
        });
        run.levels = (0..4)
            .map(|i| Levels {
                at: f64::from(i),
                files: vec![u64::from(i as u8), 0, 2, 0],
            })
            .collect();
        let text = latency(&lone).unwrap().into_string();
        assert!(
            text.contains("max 90.0 ms") && text.contains("RocksDB: not measured"),
            "{text}"
        );
        let text = throughput(&lone).unwrap().into_string();
        assert!(text.contains("median 250, worst second 100"), "{text}");
        assert_eq!(text.matches("held writers back after").count(), 1);
        let text = levels(&lone).unwrap().into_string();
        assert!(
            text.contains("In the end 3 in level 0, 0 in level 1, 2 in level 2"),
            "{text}"
        );
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
