//! `cargo xtask bench cliffs`: unusual shapes of a database, each on both engines in turns.
//!
//! Usual benchmarks say nothing about a thousand column families, thousands of files or values of a megabyte. Each
//! row here is such a shape; rows of one axis show how the cost grows. A row fails if Ironstone is slower than
//! RocksDB, or needs more than 1.1 times its memory or space.

mod shapes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base::clock::SystemClock;

use super::data::Run;
use super::{device, output};
use crate::driver::{Setup, outputs_of};
use crate::spread::Spread;
use shapes::{Figure, SHAPES, Shape};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the shapes whose names contain one of these, for example families or values-65536 [default: all]
    #[arg(long = "shape", value_name = "NAME")]
    shapes: Vec<String>,
    /// List the names of the shapes
    #[arg(long)]
    list: bool,
    /// Pairs of runs of each shape
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// The directory of the databases, which are removed afterwards [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The directory of cliffs.tsv and cliffs.md [default: target/bench-report]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// An already built db_bench [default: build it]
    #[arg(long, value_name = "FILE")]
    driver: Option<PathBuf>,
    /// Fail if a row is slower than RocksDB, or needs more than 1.1 times its memory or space
    #[arg(long)]
    judge: bool,
}

/// Bytes of values that a shape of values writes, so that each takes seconds.
const VALUE_BYTES: u64 = 128 << 20;
/// The most memory or space, of RocksDB's.
const MOST: f64 = 1.1;
/// A smaller difference is no problem: the reserve for a full disk and the first buffers are as large for each database.
const SMALL: f64 = (8 << 20) as f64;

/// What is left of a shape's runs on both engines, pair by pair.
#[derive(Default)]
struct Pairs {
    ours: Vec<Figures>,
    theirs: Vec<Figures>,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
struct Figures {
    micros: f64,
    memory_mib: f64,
    cpu_seconds: f64,
    written: f64,
    space: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let wanted = |name: &str| {
        let chosen = &arguments.shapes;
        chosen.is_empty() || chosen.iter().any(|part| name.contains(part.as_str()))
    };
    let chosen: Vec<&Shape> = SHAPES.iter().filter(|s| wanted(&s.name())).collect();
    if arguments.list {
        for shape in chosen {
            println!("{}", shape.name());
        }
        return Ok(());
    }
    if chosen.is_empty() {
        return Err(format!(
            "no shape has {:?} in its name; --list names them",
            arguments.shapes
        ));
    }
    let root = xtask::root();
    let out = arguments
        .out
        .clone()
        .unwrap_or_else(|| root.join("target/bench-report"));
    fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let (parent, driver) = (arguments.dir.as_deref(), arguments.driver.as_deref());
    Setup::with("cliffs", parent, driver, |setup| {
        let mut table = Table::default();
        for (i, shape) in chosen.iter().enumerate() {
            eprintln!("[{}/{}] {}", i + 1, chosen.len(), shape.name());
            let pairs = measure(setup, shape, arguments.pairs)?;
            println!("{}", table.add(shape, &pairs));
            // After each shape: what was measured is kept if a later one fails.
            for (name, text) in [("cliffs.tsv", table.tsv()), ("cliffs.md", table.markdown())] {
                let path = out.join(name);
                fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
            }
        }
        println!("\nwritten: {}", out.join("cliffs.md").display());
        table.verdict(arguments.judge)
    })
}

/// Runs a shape `count` times on each engine; every second pair begins with RocksDB.
fn measure(setup: &Setup, shape: &Shape, count: u32) -> Result<Pairs, String> {
    let mut pairs = Pairs::default();
    for pair in 0..count {
        let order = [pair % 2 == 1, pair % 2 == 0];
        for rocksdb in order {
            let figures = once(setup, shape, rocksdb, pair)?;
            let of = if rocksdb {
                &mut pairs.theirs
            } else {
                &mut pairs.ours
            };
            of.push(figures);
        }
    }
    for rocksdb in [false, true] {
        let db = database(setup, rocksdb);
        remove(&db)?;
    }
    Ok(pairs)
}

fn database(setup: &Setup, rocksdb: bool) -> PathBuf {
    setup
        .dir
        .join(if rocksdb { "rocksdb" } else { "ironstone" })
}

/// Removes a directory, if it is there.
fn remove(dir: &Path) -> Result<(), String> {
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    Ok(())
}

/// One run. The database of a shape that prepares one is made before the first.
fn once(setup: &Setup, shape: &Shape, rocksdb: bool, pair: u32) -> Result<Figures, String> {
    let db = database(setup, rocksdb);
    let keys = (VALUE_BYTES / shape.n.max(1))
        .clamp(12, 1_000_000)
        .to_string();
    let command = |benchmarks: &str| {
        let mut command = Command::new(&setup.driver);
        command
            .arg(setup.engine(rocksdb))
            .arg(format!("--db={}", db.display()))
            .args(shape.flags().map(|flag| {
                flag.replace("{keys}", &keys)
                    .replace("{db}", &db.display().to_string())
            }))
            .arg(format!("--benchmarks={benchmarks}"))
            .arg("--process_stats");
        command
    };
    if shape.prepare.is_empty() {
        remove(&db)?;
    } else if pair == 0 {
        let mut prepare = command(&format!("{},waitforcompaction", shape.prepare));
        prepare
            .arg("--seed=1")
            .arg("--threads=1")
            .arg("--duration=0");
        outputs_of(prepare)?;
    }
    remove(&db.with_extension("backup"))?; // of a run that failed
    device::settle(&setup.dir)?;
    let mut command = command(shape.run);
    command.arg(format!("--seed={}", 1000 + pair));
    if !shape.prepare.is_empty() {
        command.arg("--use_existing_db");
    }
    let clock = SystemClock::shared();
    let began = clock.monotonic_nanos();
    let (results, _) = outputs_of(command)?;
    let seconds = (clock.monotonic_nanos() - began) as f64 / 1e9;
    let run = output::run(&results, shape.measured())
        .ok_or_else(|| format!("no result of {} in:\n{results}", shape.measured()))?;
    let space = device::size(&db).unwrap_or(0) as f64;
    remove(&db.with_extension("backup"))?;
    figures(shape, &run, seconds, space)
}

fn figures(shape: &Shape, run: &Run, seconds: f64, space: f64) -> Result<Figures, String> {
    let process = run.process.ok_or("db_bench printed no --process_stats")?;
    Ok(Figures {
        micros: match shape.figure {
            Figure::Operation => run.micros_per_op,
            Figure::Process => seconds * 1e6,
        },
        memory_mib: process.peak_memory_mib as f64,
        cpu_seconds: process.user_seconds + process.system_seconds,
        written: process.written_bytes as f64,
        space,
    })
}

impl Pairs {
    /// The median of what `of` tells of our runs, of RocksDB's, and of the ratio of each pair.
    fn median(&self, of: impl Fn(&Figures) -> f64) -> (f64, f64, Spread) {
        let middle = |all: &[Figures]| Spread::of(all.iter().map(&of)).median;
        let pairs = self.ours.iter().zip(&self.theirs);
        let ratio = Spread::of(pairs.map(|(ours, theirs)| of(theirs) / of(ours)));
        (middle(&self.ours), middle(&self.theirs), ratio)
    }
}

/// The rows so far.
#[derive(Default)]
struct Table {
    rows: Vec<Row>,
}

struct Row {
    name: String,
    ours: f64,
    theirs: f64,
    speed: Spread,
    /// Ours over RocksDB's.
    cpu: f64,
    memory: f64,
    written: f64,
    space: f64,
    /// Bytes of memory, and of space, that ours needs more.
    more: [f64; 2],
}

impl Row {
    fn cells(&self) -> [String; 9] {
        let two = |n: f64| {
            if n.is_finite() {
                format!("{n:.2}")
            } else {
                "–".to_owned()
            }
        };
        [
            self.name.clone(),
            format!("{:.3}", self.ours),
            format!("{:.3}", self.theirs),
            two(self.speed.median),
            format!("{:.2}–{:.2}", self.speed.low, self.speed.high),
            two(self.cpu),
            two(self.memory),
            two(self.written),
            two(self.space),
        ]
    }

    /// What exceeds its limit.
    fn problem(&self) -> Option<String> {
        let slow = (self.speed.median < 1.0).then(|| format!("speed {:.2}", self.speed.median));
        let large = |what: &str, n: f64, more: f64| {
            (n > MOST && more > SMALL).then(|| format!("{what} {n:.2}"))
        };
        let [memory, space] = self.more;
        let all = [
            slow,
            large("memory", self.memory, memory),
            large("space", self.space, space),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| format!("{}: {}", self.name, all.join(", ")))
    }
}

const COLUMNS: [&str; 9] = [
    "shape",
    "Ironstone, µs",
    "RocksDB, µs",
    "speed over RocksDB's",
    "spread",
    "CPU",
    "memory",
    "written",
    "space",
];

impl Table {
    /// Adds the row of a shape, and returns it as a line.
    fn add(&mut self, shape: &Shape, pairs: &Pairs) -> String {
        let (ours, theirs, speed) = pairs.median(|f| f.micros);
        let of = |figure: fn(&Figures) -> f64| 1.0 / pairs.median(figure).2.median;
        let more = |figure: fn(&Figures) -> f64| {
            let (ours, theirs, _) = pairs.median(figure);
            ours - theirs
        };
        self.rows.push(Row {
            name: shape.name(),
            ours,
            theirs,
            speed,
            cpu: of(|f| f.cpu_seconds),
            memory: of(|f| f.memory_mib),
            written: of(|f| f.written),
            space: of(|f| f.space),
            more: [
                more(|f| f.memory_mib) * f64::from(1 << 20),
                more(|f| f.space),
            ],
        });
        self.rows
            .last()
            .map(|r| r.cells().join("  "))
            .unwrap_or_default()
    }

    fn tsv(&self) -> String {
        let rows = self.rows.iter().map(|r| r.cells().join("\t"));
        let lines: Vec<String> = std::iter::once(COLUMNS.join("\t")).chain(rows).collect();
        lines.join("\n") + "\n"
    }

    /// CPU, memory, written and space are Ironstone's over RocksDB's: below 1 is less.
    fn markdown(&self) -> String {
        let mut out = format!("| {} |\n|---{}|\n", COLUMNS.join(" | "), "|---:".repeat(8));
        for row in &self.rows {
            out += &format!("| {} |\n", row.cells().join(" | "));
        }
        out
    }

    fn verdict(&self, judge: bool) -> Result<(), String> {
        let problems: Vec<String> = self.rows.iter().filter_map(Row::problem).collect();
        if problems.is_empty() {
            return Ok(());
        }
        let text = format!("beyond the limits:\n  {}", problems.join("\n  "));
        if judge {
            return Err(text);
        }
        println!("{text}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn shapes_have_names_of_their_own_and_a_measured_benchmark() {
        let names: BTreeSet<String> = SHAPES.iter().map(Shape::name).collect();
        assert_eq!(names.len(), SHAPES.len());
        for shape in SHAPES {
            assert!(!shape.measured().is_empty(), "{shape:?}");
            assert!(
                shape
                    .flags()
                    .all(|f| f.starts_with("--") && !f.contains("{n}"))
            );
        }
    }

    #[test]
    fn a_row_that_is_slower_or_larger_is_named() {
        let figures = |micros, memory_mib| Figures {
            micros,
            memory_mib,
            cpu_seconds: 1.0,
            written: 0.0,
            space: 5.0,
        };
        let pairs = |ours, theirs| Pairs {
            ours: vec![ours],
            theirs: vec![theirs],
        };
        let mut table = Table::default();
        table.add(&SHAPES[0], &pairs(figures(1.0, 10.0), figures(2.0, 10.0)));
        assert_eq!(table.verdict(true), Ok(()));
        // 5 MiB more are no problem.
        table.add(&SHAPES[2], &pairs(figures(1.0, 15.0), figures(2.0, 10.0)));
        assert_eq!(table.verdict(true), Ok(()));
        table.add(&SHAPES[1], &pairs(figures(4.0, 120.0), figures(2.0, 100.0)));
        let said = table.verdict(true).unwrap_err();
        let expected = format!("{}: speed 0.50, memory 1.20", SHAPES[1].name());
        assert!(said.contains(&expected), "{said}");
        assert_eq!(table.verdict(false), Ok(()));
        assert!(
            table
                .tsv()
                .lines()
                .all(|l| l.split('\t').count() == COLUMNS.len())
        );
        assert!(table.markdown().contains("| – |"), "nothing was written");
    }
}
