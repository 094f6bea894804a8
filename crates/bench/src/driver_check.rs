//! `cargo xtask bench-driver`: whether this project's db_bench is a fair driver.
//!
//! It answers two questions. The first is the cost of the driver itself: the same benchmarks on an
//! engine that does nothing, as a share of Ironstone's time. The second is whether RocksDB is as
//! fast in it, through the C API, as in RocksDB's own db_bench: both with the same library,
//! Debian's, the same options and the same database, in pairs that alternate in order.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::driver::output_of;
use crate::spread::Spread;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Keys in the database (16 bytes, with values of 100 bytes)
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    num: u64,
    /// Pairs of each benchmark
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// RocksDB's own db_bench; this project's db_bench loads the library that it is linked with
    #[arg(long, default_value = "/usr/bin/db_bench", value_name = "FILE")]
    theirs: PathBuf,
    /// An already built db_bench [default: build it]
    #[arg(long, value_name = "FILE")]
    driver: Option<PathBuf>,
}

/// Options of both, which fix the defaults that differ between the versions.
const COMMON: [&str; 8] = [
    "--threads=1",
    "--compression_type=none",
    "--key_size=16",
    "--value_size=100",
    "--cache_size=1073741824",
    "--enable_pipelined_write=true",
    "--optimize_filters_for_memory=false",
    "--compaction_readahead_size=0",
];

/// A benchmark: the benchmarks of db_bench to run, of which the last result line counts, and the
/// database.
struct Bench {
    name: &'static str,
    run: &'static str,
    on: On,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    /// A new database.
    New,
    /// The existing one.
    Shared,
    /// A copy of the existing one.
    Copy,
}

const BENCHES: [Bench; 6] = [
    bench("fillseq", "fillseq", On::New),
    bench("fillrandom", "fillrandom", On::New),
    bench("overwrite", "overwrite", On::Copy),
    // The first scan fills the block cache.
    bench("readseq", "readseq,readseq", On::Shared),
    bench("readrandom", "readseq,readrandom", On::Shared),
    bench("seekrandom", "readseq,seekrandom", On::Shared),
];

const fn bench(name: &'static str, run: &'static str, on: On) -> Bench {
    Bench { name, run, on }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let driver = match &arguments.driver {
        Some(driver) => driver.clone(),
        None => crate::driver::build(true)?,
    };
    let dir = xtask::root().join(format!("target/bench/driver-{}", std::process::id()));
    let failed = |e| format!("{}: {e}", dir.display());
    fs::create_dir_all(&dir).map_err(failed)?;
    let session = Session {
        arguments,
        driver,
        dir: dir.clone(),
    };
    let done = session
        .own_cost()
        .and_then(|cost| Ok(cost + &session.beside_theirs()?));
    let removed = fs::remove_dir_all(&dir).map_err(failed);
    print!("{}", done?);
    removed
}

struct Session<'a> {
    arguments: &'a Arguments,
    driver: PathBuf,
    dir: PathBuf,
}

impl Session<'_> {
    /// Nanoseconds per operation in the last result line, with `times` as many keys.
    fn once(
        &self,
        program: &Path,
        engine: Option<&str>,
        db: &Path,
        run: &str,
        times: u64,
    ) -> Result<f64, String> {
        let mut command = Command::new(program);
        let rocksdb = engine.is_none_or(|engine| engine.starts_with("librocksdb"));
        command
            .args(engine.map(|engine| format!("--engine={engine}")))
            .args(COMMON)
            .args(rocksdb.then_some("--cache_type=lru_cache")) // the default of RocksDB's own 7.8.3
            .arg(format!("--num={}", self.arguments.num * times))
            .arg("--seed=7")
            .arg(format!("--db={}", db.display()))
            .arg(format!("--benchmarks={run}"))
            .args(db.join("CURRENT").exists().then_some("--use_existing_db"));
        let output = output_of(command)?;
        nanos(&output).ok_or_else(|| format!("no result in:\n{output}"))
    }

    /// The share of the driver in the time of Ironstone's operations.
    fn own_cost(&self) -> Result<String, String> {
        let mut table = String::from(
            "\n| benchmark | driver alone, ns | Ironstone, ns | share |\n|---|---:|---:|---:|\n",
        );
        let db = self.dir.join("ironstone");
        for bench in &BENCHES {
            let pair = || -> Result<(f64, f64), String> {
                if bench.on == On::New {
                    fs::remove_dir_all(&db).ok(); // it does not exist the first time
                }
                let nothing = self.dir.join("nothing");
                // The clock of result lines has milliseconds: more operations give more digits.
                let own = self.once(&self.driver, Some("null"), &nothing, bench.name, 20)?;
                let engine = Some("ironstone");
                Ok((own, self.once(&self.driver, engine, &db, bench.run, 1)?))
            };
            let pairs = (0..3).map(|_| pair()).collect::<Result<Vec<_>, _>>()?;
            let own = Spread::of(pairs.iter().map(|p| p.0)).median;
            let all = Spread::of(pairs.iter().map(|p| p.1)).median;
            let line = format!(
                "| {} | {own:.1} | {all:.1} | {:.1} % |\n",
                bench.name,
                own * 100.0 / all
            );
            eprint!("{line}");
            table += &line;
        }
        Ok(table)
    }

    /// This project's driver beside RocksDB's own, on the same library.
    fn beside_theirs(&self) -> Result<String, String> {
        let theirs = &self.arguments.theirs;
        let Some(library) = library_of(theirs) else {
            let note = format!(
                "\nno comparison with RocksDB's own db_bench: {} is not there, or is linked with no \
                 librocksdb (apt-get install rocksdb-tools)\n",
                theirs.display()
            );
            return Ok(note);
        };
        let engine = format!("librocksdb:{library}");
        let shared = self.dir.join("shared");
        self.once(theirs, None, &shared, "filluniquerandom,compact", 1)?;
        let mut table = format!(
            "\n{library} through our db_bench and through its own:\n\n\
             | benchmark | ours, ns | its own, ns | ours over its own |\n|---|---:|---:|---|\n"
        );
        for bench in &BENCHES {
            let one = |ours: bool| -> Result<f64, String> {
                let db = match bench.on {
                    On::Shared => shared.clone(),
                    On::New | On::Copy => self.dir.join("own"),
                };
                if bench.on != On::Shared {
                    fs::remove_dir_all(&db).ok(); // it does not exist the first time
                }
                if bench.on == On::Copy {
                    copy(&shared, &db).map_err(|e| format!("{}: {e}", db.display()))?;
                }
                if ours {
                    self.once(&self.driver, Some(&engine), &db, bench.run, 1)
                } else {
                    self.once(theirs, None, &db, bench.run, 1)
                }
            };
            let pairs = (0..self.arguments.pairs)
                .map(|i| {
                    let first = one(i % 2 == 0)?;
                    let second = one(i % 2 != 0)?;
                    Ok(if i % 2 == 0 {
                        (first, second)
                    } else {
                        (second, first)
                    })
                })
                .collect::<Result<Vec<_>, String>>()?;
            let line = format!(
                "| {} | {:.1} | {:.1} | {} |\n",
                bench.name,
                Spread::of(pairs.iter().map(|p| p.0)).median,
                Spread::of(pairs.iter().map(|p| p.1)).median,
                Spread::of(pairs.iter().map(|p| p.0 / p.1)).text()
            );
            eprint!("{line}");
            table += &line;
        }
        Ok(table)
    }
}

/// The librocksdb that a program is linked with, as the loader finds it.
fn library_of(program: &Path) -> Option<String> {
    let output = Command::new("ldd").arg(program).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|l| l.contains("librocksdb"))?;
    let path = line.split("=> ").nth(1)?.split(' ').next()?;
    Some(path.to_owned())
}

/// Copies the files of a directory.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Nanoseconds per operation from the last result line, computed from its seconds and operations,
/// which have more digits than its microseconds.
fn nanos(output: &str) -> Option<f64> {
    let line = output.lines().rfind(|l| l.contains(" micros/op "))?;
    let (_, rest) = line.split_once(" ops/sec ")?;
    let (seconds, rest) = rest.split_once(" seconds ")?;
    let (operations, _) = rest.split_once(" operations")?;
    let (seconds, operations): (f64, f64) = (seconds.parse().ok()?, operations.parse().ok()?);
    (operations > 0.0).then(|| seconds * 1e9 / operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts() {
        let output = "readseq      :       0.304 micros/op 3283380 ops/sec 0.304 seconds 1000000 operations;\n\
            readseq      :       0.208 micros/op 4789899 ops/sec 0.104 seconds 500000 operations;  1 MB/s\n";
        assert!((nanos(output).unwrap() - 208.0).abs() < 1e-9);
        assert_eq!(nanos("fillseq : skipped"), None);
    }

    #[test]
    fn a_program_without_the_library_has_none() {
        assert_eq!(library_of(Path::new("/bin/sh")), None);
        assert_eq!(library_of(Path::new("/no/such/program")), None);
    }
}
