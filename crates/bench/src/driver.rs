//! Builds and runs db_bench, with which the benchmark commands compare engines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds db_bench, optimised if `release`. Returns the path of the binary.
pub(crate) fn build(release: bool) -> Result<PathBuf, String> {
    xtask::cargo::program("ironstone-tools", "db_bench", release.then_some("release"))
}

/// The standard output of a run of db_bench. Errors: it failed; with its output.
pub(crate) fn output_of(command: Command) -> Result<String, String> {
    outputs_of(command).map(|(results, _)| results)
}

/// The standard output of a run of db_bench, and its standard error. Errors: it failed; with its
/// output.
pub(crate) fn outputs_of(mut command: Command) -> Result<(String, String), String> {
    let output = command.output().map_err(|e| format!("db_bench: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok((text(&output.stdout), text(&output.stderr)));
    }
    let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    Err(format!(
        "db_bench {} failed:\n{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// The setting of a comparison.
pub(crate) struct Setup {
    /// The path of db_bench.
    pub(crate) driver: PathBuf,
    peer: PathBuf,
    /// A temporary directory of the comparison.
    pub(crate) dir: PathBuf,
}

impl Setup {
    /// Calls `measure` after fetching RocksDB, building db_bench unless `driver` is given, and
    /// making a directory under `parent` (by default `target/bench`), which is removed afterwards.
    pub(crate) fn with<T>(
        name: &str,
        parent: Option<&Path>,
        driver: Option<&Path>,
        measure: impl FnOnce(&Self) -> Result<T, String>,
    ) -> Result<T, String> {
        let peer = xtask::peers::ensure(false)?;
        let driver = driver.map_or_else(|| build(true), |path| Ok(path.to_owned()))?;
        let parent = parent.map_or_else(|| xtask::root().join("target/bench"), Path::to_owned);
        let dir = parent.join(format!("{name}-{}", std::process::id()));
        let failed = |e| format!("{}: {e}", dir.display());
        fs::create_dir_all(&dir).map_err(failed)?;
        let measured = measure(&Self {
            driver,
            peer,
            dir: dir.clone(),
        });
        let removed = fs::remove_dir_all(&dir).map_err(failed);
        let measured = measured?;
        removed.map(|()| measured)
    }

    /// Like [`Setup::with`]; prints what `measure` returns.
    pub(crate) fn print(
        name: &str,
        parent: Option<&Path>,
        driver: Option<&Path>,
        measure: impl FnOnce(&Self) -> Result<String, String>,
    ) -> Result<(), String> {
        print!("{}", Self::with(name, parent, driver, measure)?);
        Ok(())
    }

    /// The value of `--engine` of db_bench, for Ironstone or for RocksDB.
    pub(crate) fn engine(&self, rocksdb: bool) -> String {
        if rocksdb {
            format!("--engine=librocksdb:{}", self.peer.display())
        } else {
            "--engine=ironstone".to_owned()
        }
    }
}

/// Operations per second of each run of a benchmark in the output of db_bench.
pub(crate) fn rates<'a>(printed: &'a str, benchmark: &'a str) -> impl Iterator<Item = f64> + 'a {
    let lines = printed.lines();
    let lines = lines.filter(move |l| l.split_whitespace().next() == Some(benchmark));
    lines.filter_map(|line| {
        let (before, _) = line.split_once(" ops/sec")?;
        before.split_whitespace().last()?.parse().ok()
    })
}

/// The output of `--process_stats`: peak memory in MiB, and MiB written.
pub(crate) fn process_stats(output: &str) -> Option<(u64, u64)> {
    let line = output
        .lines()
        .find_map(|l| l.strip_prefix("Process: peak memory "))?;
    let (memory, rest) = line.split_once(" MiB; written ")?;
    let (written, _) = rest.split_once(" MiB")?;
    Some((memory.parse().ok()?, written.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn rates_are_found() {
        let printed = "DB path: [x]\n\
            multireadrandom :      19.401 micros/op 51543 ops/sec 3.880 seconds 200000 operations; (1 of 2 found)\n\
            multireadrandom :      19.401 micros/op 51544 ops/sec 3.880 seconds 200000 operations; (1 of 2 found)\n";
        let rates = |name| super::rates(printed, name).collect::<Vec<_>>();
        assert_eq!(rates("multireadrandom"), [51543.0, 51544.0]);
        assert!(rates("readrandom").is_empty());
    }

    #[test]
    fn rocksdb_is_fetched_to_where_it_is_looked_for() {
        assert_eq!(xtask::peers::PEER, tools::librocksdb::PEER);
    }
}
