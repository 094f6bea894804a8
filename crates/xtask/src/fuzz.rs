//! `cargo xtask fuzz`: builds the targets in `fuzz/`, and runs each for a while, beginning with
//! seeds from the corpora.
//!
//! libFuzzer needs coverage counters, and the flag of the address sanitizer is unstable. With
//! `RUSTC_BOOTSTRAP` the pinned toolchain accepts both, so that neither a second toolchain nor
//! `cargo-fuzz` is needed. `cargo-fuzz` works in the same folder, too.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base::clock::SystemClock;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The flags of cargo-fuzz.
const FLAGS: &str = "--cfg fuzzing -Zsanitizer=address \
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0";

/// The limits of each target. An input that exceeds the time or the memory is a finding.
const LIMITS: [&str; 6] = [
    "-max_len=45000",
    "-timeout=10",
    "-rss_limit_mb=1024",
    "-malloc_limit_mb=256",
    "-print_final_stats=1",
    "-reload=0",
];

/// The number of last lines that are shown for a finding: they contain the stack.
const LINES_KEPT: usize = 60;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How long each target runs
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// The targets to run, separated by commas; if not given, all
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Begin with the seeds only, without the inputs that earlier runs found
    #[arg(long)]
    fresh: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let home = xtask::root().join("fuzz");
    let all = targets(&home)?;
    let wanted: Vec<&String> = match &arguments.only[..] {
        [] => all.iter().collect(),
        some => some.iter().collect(),
    };
    if let Some(unknown) = wanted.iter().find(|t| !all.contains(t)) {
        return Err(format!("no target {unknown}; there are {}", all.join(", ")));
    }
    let built = build(&home)?;
    seeds(&home, &built)?;
    if arguments.fresh {
        empty(&home.join("corpus"))?;
    }
    let mut table = HEADING.to_owned();
    let mut found = Vec::new();
    for (i, target) in wanted.iter().enumerate() {
        let place = format!("[{}/{}] {target}", i + 1, wanted.len());
        let run = fuzz(&home, &built, target, arguments.seconds, &place)?;
        table += &run.row(target);
        eprintln!("{}", run.line(&place));
        if !run.clean {
            eprintln!("{}", run.said);
            found.push(target.as_str());
        }
    }
    print!("\n{table}");
    if found.is_empty() {
        return Ok(());
    }
    Err(format!(
        "found something: {}; the inputs lie in fuzz/artifacts, and `{}/TARGET INPUT` runs one again",
        found.join(", "),
        built.display()
    ))
}

/// The names of the targets, which are those of their files.
fn targets(home: &Path) -> Result<Vec<String>, String> {
    let dir = home.join("fuzz_targets");
    let entries = std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let paths = entries.flatten().map(|e| e.path());
    let mut names: Vec<String> = paths
        .filter_map(|p| Some(p.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Builds all targets; returns their directory.
fn build(home: &Path) -> Result<PathBuf, String> {
    // libFuzzer is C++, and is built with the targets.
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    Command::new(&compiler)
        .arg("--version")
        .output()
        .map_err(|e| {
            format!(
                "{}: {e}; libFuzzer needs a C++ compiler (apt-get install g++)",
                compiler.display()
            )
        })?;
    // With an explicit target platform, build scripts and macros do not get the flags.
    let platform = xtask::cargo::platform()?;
    eprintln!("building the targets, with the address sanitizer; minutes, if it is the first time");
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(home)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", FLAGS)
        .env_remove("CARGO_TARGET_DIR")
        .args(["build", "--release", "--bins", "--target", &platform]);
    call(&mut cargo).map_err(|e| format!("the targets do not build: {e}"))?;
    Ok(home.join("target").join(platform).join("release"))
}

/// Writes the seeds of all targets.
fn seeds(home: &Path, built: &Path) -> Result<(), String> {
    let root = xtask::root();
    let from: Vec<PathBuf> = ["log", "table", "sim", "tools"]
        .iter()
        .map(|c| root.join("crates").join(c).join("tests/data"))
        .collect();
    let to = home.join("target/seeds");
    empty(&to)?;
    call(Command::new(built.join("seeds")).arg(to).args(from)).map_err(|e| format!("no seeds: {e}"))
}

/// Removes a directory, if it exists.
fn empty(dir: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {e}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// The status that libFuzzer reports in lines like
/// `#4096 NEW cov: 812 ft: 1801 corp: 96/12Kb lim: 45000 exec/s: 2048 rss: 71Mb`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    inputs: u64,
    /// Covered edges.
    edges: u64,
    corpus: u64,
    megabytes: u64,
}

impl Status {
    fn parse(line: &str) -> Option<Self> {
        let (inputs, rest) = line.strip_prefix('#')?.split_once(char::is_whitespace)?;
        let after = |key: &str| {
            let value = rest.split_once(key)?.1.trim_start();
            let end = value
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(value.len());
            value.get(..end)?.parse().ok()
        };
        Some(Self {
            inputs: inputs.parse().ok()?,
            edges: after("cov:")?,
            corpus: after("corp:").unwrap_or_default(),
            megabytes: after("rss:").unwrap_or_default(),
        })
    }
}

const HEADING: &str = "\
| target | inputs | a second | edges by seeds | edges | corpus | MB | found |
|---|---:|---:|---:|---:|---:|---:|---|
";

/// A finished run of a target.
struct Run {
    last: Status,
    /// Edges that the seeds covered.
    edges_at_first: u64,
    seconds: f64,
    /// Whether nothing was found.
    clean: bool,
    /// The last lines of output.
    said: String,
}

impl Run {
    fn rate(&self) -> f64 {
        self.last.inputs as f64 / self.seconds.max(0.1)
    }

    fn row(&self, target: &str) -> String {
        let (first, last) = (self.edges_at_first, &self.last);
        format!(
            "| {target} | {} | {:.0} | {first} | {} | {} | {} | {} |\n",
            last.inputs,
            self.rate(),
            last.edges,
            last.corpus,
            last.megabytes,
            if self.clean {
                "nothing"
            } else {
                "**something**"
            },
        )
    }

    fn line(&self, place: &str) -> String {
        let (first, last) = (self.edges_at_first, &self.last);
        format!(
            "{place}: {} inputs in {:.0} s, {first} edges by seeds, {} now{}",
            last.inputs,
            self.seconds,
            last.edges,
            if self.clean { "" } else { "; FOUND SOMETHING" },
        )
    }
}

/// Runs one target.
fn fuzz(home: &Path, built: &Path, target: &str, seconds: u64, place: &str) -> Result<Run, String> {
    let (found, artifacts) = (home.join("corpus").join(target), home.join("artifacts"));
    for dir in [&found, &artifacts] {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let program = built.join(target);
    let failed = |e| format!("{}: {e}", program.display());
    let prefix = artifacts.join(target);
    let clock = SystemClock::shared();
    let begun = clock.monotonic_nanos();
    let elapsed = || (clock.monotonic_nanos() - begun) as f64 * 1e-9;
    let mut child = Command::new(&program)
        .arg(&found)
        .arg(home.join("target/seeds").join(target))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}-", prefix.display()))
        .args(LIMITS)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let bar = bar(seconds, place);
    let mut run = Run {
        last: Status::default(),
        edges_at_first: 0,
        seconds: 0.0,
        clean: false,
        said: String::new(),
    };
    let mut lines = VecDeque::new();
    for line in child
        .stderr
        .take()
        .into_iter()
        .flat_map(|e| BufReader::new(e).split(b'\n'))
    {
        let line = String::from_utf8_lossy(&line.map_err(failed)?).into_owned();
        if let Some(status) = Status::parse(&line) {
            if line.contains("INITED") {
                run.edges_at_first = status.edges;
            }
            bar.set_position(elapsed() as u64);
            bar.set_message(format!("{} inputs, {} edges", status.inputs, status.edges));
            run.last = status;
            continue;
        }
        // The status lines only appear for new coverage; this line has the final number.
        if let Some(units) = line.strip_prefix("stat::number_of_executed_units:") {
            run.last.inputs = units.trim().parse().unwrap_or(run.last.inputs);
        }
        if lines.len() == LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }
    bar.finish_and_clear();
    run.clean = child.wait().map_err(failed)?.success();
    run.seconds = elapsed();
    for line in lines {
        run.said.push_str(&format!("    {line}\n"));
    }
    Ok(run)
}

fn bar(seconds: u64, place: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(seconds), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} s {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(place.to_owned());
    bar
}

fn call(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|e| format!("{name}: {e}"))?;
    status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{name} ended with {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_lines_are_understood() {
        let line = "#4096\tNEW    cov: 812 ft: 1801 corp: 96/12Kb lim: 45000 exec/s: 2048 rss: 71Mb L: 9/90";
        let status = Status {
            inputs: 4096,
            edges: 812,
            corpus: 96,
            megabytes: 71,
        };
        assert_eq!(Status::parse(line), Some(status));
        for other in [
            "INFO: seed corpus: files: 3",
            "#0 0x55 in main",
            "    #1 0x7f (libc+0x2)",
        ] {
            assert_eq!(Status::parse(other), None, "{other}");
        }
    }

    #[test]
    fn every_target_is_a_program_of_the_workspace() {
        let home = xtask::root().join("fuzz");
        let manifest = std::fs::read_to_string(home.join("Cargo.toml")).unwrap();
        let targets = targets(&home).unwrap();
        assert_eq!(manifest.matches("[[bin]]").count(), targets.len());
        for target in targets {
            assert!(
                manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")),
                "{target}"
            );
        }
    }
}
