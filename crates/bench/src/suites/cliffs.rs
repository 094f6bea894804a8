//! `cargo xtask bench cliffs`: unusual shapes of a database, each on both engines in turns.
//!
//! Usual benchmarks say nothing about a thousand column families, thousands of files or values of a megabyte. Each
//! row here is such a shape; rows of one axis show how the cost grows. A row fails if Ironstone is slower than
//! RocksDB, or needs more than 1.1 times its memory or space.

mod page;
mod rows;
mod shapes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base::clock::SystemClock;

use super::data::Run;
use super::{device, output};
use crate::driver::{Setup, outputs_of};
use crate::spread::Spread;
use rows::{Row, Sides, Table};
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
    /// The directory of cliffs.tsv, cliffs.md and the page cliffs.html [default: target/bench-report]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// An already built db_bench [default: build it]
    #[arg(long, value_name = "FILE")]
    driver: Option<PathBuf>,
    /// Measure nothing: write table and page again from stored cliffs.tsv files; of rows with one name the last counts
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
    /// Fail if a row is slower than RocksDB, or needs more than 1.1 times its memory or space
    #[arg(long)]
    judge: bool,
}

/// Bytes of values that a shape of values writes, so that each takes seconds.
const VALUE_BYTES: u64 = 128 << 20;
const MIB: f64 = (1 << 20) as f64;
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
    let out = match &arguments.out {
        Some(out) => out.clone(),
        None => xtask::root().join("target/bench-report"),
    };
    fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    if !arguments.from.is_empty() {
        let table = stored(&arguments.from)?;
        write(&out, &table)?;
        return finish(&out, &table, arguments.judge);
    }
    let (parent, driver) = (arguments.dir.as_deref(), arguments.driver.as_deref());
    Setup::with("cliffs", parent, driver, |setup| {
        let mut table = Table::default();
        for (i, shape) in chosen.iter().enumerate() {
            eprintln!("[{}/{}] {}", i + 1, chosen.len(), shape.name());
            let row = measure(setup, shape, arguments.pairs)?.row(shape);
            println!("{}", row.cells().join("  "));
            table.add(row);
            write(&out, &table)?; // what was measured is kept if a later shape fails
        }
        finish(&out, &table, arguments.judge)
    })
}

/// Says where the page is, and what is beyond the limits: as an error if that is to be judged.
fn finish(out: &Path, table: &Table, judge: bool) -> Result<(), String> {
    println!("\nwritten: {}", out.join("cliffs.html").display());
    let problems = table.problems();
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
    /// The row of a shape.
    fn row(&self, shape: &Shape) -> Row {
        let sides = |of: fn(&Figures) -> f64| {
            let middle = |all: &[Figures]| Spread::of(all.iter().map(of)).median;
            Sides {
                ours: middle(&self.ours),
                theirs: middle(&self.theirs),
            }
        };
        let pairs = self.ours.iter().zip(&self.theirs);
        Row {
            axis: shape.axis.to_owned(),
            n: shape.n,
            what: shape.what.to_owned(),
            micros: sides(|f| f.micros),
            speed: Spread::of(pairs.map(|(ours, theirs)| theirs.micros / ours.micros)),
            cpu_seconds: sides(|f| f.cpu_seconds),
            memory_mib: sides(|f| f.memory_mib),
            written_mib: sides(|f| f.written / MIB),
            space_mib: sides(|f| f.space / MIB),
        }
    }
}

/// Writes `cliffs.tsv`, `cliffs.md` and `cliffs.html`.
fn write(out: &Path, table: &Table) -> Result<(), String> {
    let files = [
        ("cliffs.tsv", table.tsv()),
        ("cliffs.md", table.markdown()),
        ("cliffs.html", page::html(table)),
    ];
    for (name, text) in files {
        let path = out.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// The stored rows of these files; of rows with one name the last one.
fn stored(files: &[PathBuf]) -> Result<Table, String> {
    let mut table = Table::default();
    for path in files {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        table
            .read(&text)
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(table)
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
}
