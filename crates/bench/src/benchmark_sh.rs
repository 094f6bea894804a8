//! `cargo xtask benchmark-sh`: RocksDB's own benchmark.sh, unmodified, with this project's
//! db_bench.
//!
//! The script comes from the published crate `librocksdb-sys`, which has all of RocksDB's sources,
//! and is kept under `target/peers/`. It gets a directory with `db_bench` in it, the environment
//! that it documents, and one job after the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::driver;

/// The crate with RocksDB 11.8.1's sources.
const CRATE: &str = "librocksdb-sys";
const CRATE_VERSION: &str = "=0.19.0";
/// The path of the script in the crate.
const MEMBER: &str = "rocksdb/tools/benchmark.sh";
/// The path to which the script is copied.
const SCRIPT: &str = "target/peers/benchmark-11.8.1.sh";
/// The environment variable with further flags of db_bench.
const FLAGS_VARIABLE: &str = "DB_BENCH_FLAGS";
/// The columns of the report, and those that may be empty: `rss` is sampled every 10 seconds, and
/// never in bulkload; `job_id` is the user's; `w_amp` needs 50 MiB of writes.
const COLUMNS: usize = 28;
const MAY_BE_EMPTY: [&str; 3] = ["rss", "job_id", "w_amp"];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Jobs of the script, in this order
    #[arg(default_values_t = [
        "bulkload", "fillseq_disable_wal", "overwrite", "readrandom", "multireadrandom", "fwdrange",
        "revrange", "readwhilewriting",
    ].map(String::from))]
    jobs: Vec<String>,
    /// Keys of the database (NUM_KEYS)
    #[arg(long, default_value_t = 1_000_000)]
    num_keys: u64,
    /// Seconds of each job that has a limit (DURATION)
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    duration: u32,
    /// Threads (NUM_THREADS)
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Further flags of db_bench for all jobs, for example --flag=--async_io or
    /// --flag=--engine=librocksdb
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// Fail if a column of the report is unexpectedly empty
    #[arg(long)]
    check: bool,
    /// An already built db_bench [default: build it]
    #[arg(long)]
    driver: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let script = ensure()?;
    let driver = match &arguments.driver {
        Some(path) => fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()))?,
        None => driver::build(true)?,
    };
    let name = format!("target/bench/benchmark-sh-{}", std::process::id());
    let dir = xtask::root().join(name);
    let made = make_room(&dir, &script, &driver);
    let report = made.and_then(|()| run_jobs(arguments, &dir));
    let removed = fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()));
    let report = report?;
    removed?;
    print!("{report}");
    if arguments.check {
        check(&report, arguments.jobs.len())?;
        println!("{} jobs, all columns filled", arguments.jobs.len());
    }
    Ok(())
}

/// The path of the script, which is fetched first if it is missing.
fn ensure() -> Result<PathBuf, String> {
    let script = xtask::root().join(SCRIPT);
    if script.is_file() {
        return Ok(script);
    }
    eprintln!("fetching {CRATE} {CRATE_VERSION} with cargo (10 MB)");
    let dir = script.with_extension("fetch");
    let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
    fs::create_dir_all(dir.join("src")).map_err(failed)?;
    let manifest = format!(
        "[package]\nname = \"fetch\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]\n\
         {CRATE} = {{ version = \"{CRATE_VERSION}\", default-features = false }}\n[workspace]\n"
    );
    fs::write(dir.join("Cargo.toml"), manifest).map_err(failed)?;
    fs::write(dir.join("src/lib.rs"), "").map_err(failed)?;
    let fetched = xtask::cargo::command()
        .args(["vendor", "--quiet", "vendor"])
        .current_dir(&dir)
        .output()
        .map_err(|e| format!("cargo: {e}"))
        .and_then(|output| {
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(format!("cargo vendor failed: {}", said.trim()));
            }
            let found = dir.join("vendor").join(CRATE).join(MEMBER);
            fs::rename(&found, &script).map_err(|e| format!("{}: {e}", found.display()))
        });
    let removed = fs::remove_dir_all(&dir).map_err(failed);
    fetched.and(removed).map(|()| script)
}

/// Makes a directory with the script, db_bench, and places for the database and the reports.
fn make_room(dir: &Path, script: &Path, driver: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
    for sub in ["db", "out"] {
        fs::create_dir_all(dir.join(sub)).map_err(failed)?;
    }
    fs::copy(script, dir.join("benchmark.sh")).map_err(failed)?;
    fs::copy(driver, dir.join("db_bench")).map_err(failed)?;
    Ok(())
}

/// Runs the jobs. Returns the report without its comments. Errors: a job failed; with its output.
fn run_jobs(arguments: &Arguments, dir: &Path) -> Result<String, String> {
    for (i, job) in arguments.jobs.iter().enumerate() {
        eprintln!("benchmark.sh {job} ({} of {})", i + 1, arguments.jobs.len());
        let output = Command::new("bash")
            .args(["benchmark.sh", job])
            .current_dir(dir)
            .env("DB_DIR", dir.join("db"))
            .env("WAL_DIR", dir.join("db"))
            .env("OUTPUT_DIR", dir.join("out"))
            .env("NUM_KEYS", arguments.num_keys.to_string())
            .env("NUM_THREADS", arguments.threads.to_string())
            .env("DURATION", arguments.duration.to_string())
            .env("CACHE_SIZE", (64 << 20).to_string())
            .env("COMPRESSION_TYPE", "none")
            .env("STATS_INTERVAL_SECONDS", "5")
            .env(FLAGS_VARIABLE, arguments.flags.join(" "))
            .output()
            .map_err(|e| format!("bash: {e}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        // The script's exit code is only that of its last command.
        if !said.contains(&format!("Completed {job}")) {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("benchmark.sh {job} failed:\n{said}\n{errors}"));
        }
    }
    let report = dir.join("out/report.tsv");
    let text = fs::read_to_string(&report).map_err(|e| format!("{}: {e}", report.display()))?;
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    Ok(lines.join("\n") + "\n")
}

/// Checks that the report has a line for each job, with all columns.
fn check(report: &str, jobs: usize) -> Result<(), String> {
    let mut lines = report.lines().map(|l| l.split('\t').collect::<Vec<_>>());
    let names = lines.next().unwrap_or_default();
    if names.len() != COLUMNS {
        return Err(format!("the report has {} columns", names.len()));
    }
    let mut count = 0;
    for line in lines {
        count += 1;
        for (i, name) in names.iter().enumerate() {
            let value = line.get(i).copied().unwrap_or_default();
            let missing = matches!(value, "" | "NA" | "failed");
            if missing && !MAY_BE_EMPTY.contains(name) {
                return Err(format!(
                    "column {name} of line {count} is {value:?}: {}",
                    line.join(" ")
                ));
            }
        }
    }
    if count == jobs {
        Ok(())
    } else {
        Err(format!("the report has {count} lines for {jobs} jobs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_columns_are_found() {
        let names: Vec<String> = (0..COLUMNS).map(|i| format!("c{i}")).collect();
        let report = |value: &str| {
            let values: Vec<&str> = (0..COLUMNS)
                .map(|i| if i == 3 { value } else { "1" })
                .collect();
            format!("{}\n{}\n", names.join("\t"), values.join("\t"))
        };
        check(&report("7"), 1).unwrap();
        assert!(check(&report("NA"), 1).unwrap_err().contains("column c3"));
        assert!(
            check(&report("7"), 2)
                .unwrap_err()
                .contains("1 lines for 2 jobs")
        );
    }
}
