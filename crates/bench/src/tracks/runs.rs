//! Single runs: the program, its database, and its figures.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use xtask::cargo;

use crate::driver;
use crate::limit::Claim;

/// The arguments of all runs.
#[derive(clap::Args)]
#[group(id = "runs")]
pub(super) struct Arguments {
    /// The directory of the databases, which are removed afterwards [default: target/bench]
    #[arg(long, global = true)]
    dir: Option<PathBuf>,
    /// An already built tracks_bench [default: build it]
    #[arg(long, global = true)]
    program: Option<PathBuf>,
    /// Objects
    #[arg(long, global = true, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..))]
    objects: u32,
    /// A file of real reports, instead of a recording of simulated ones: CSV, NDJSON, GeoJSON, GPX, GeoLife
    #[arg(long, global = true, value_name = "FILE")]
    reports: Option<PathBuf>,
    /// The format of that file, if its name does not show it: also t-drive, porto
    #[arg(long, global = true, requires = "reports")]
    format: Option<String>,
    /// Seconds of each run [default: rows 120, acks 60, http 20, 10 for each kind of query]
    #[arg(long, global = true, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Rounds, in each of which everything runs once
    #[arg(long, global = true, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// The state that all runs share.
pub(super) struct Runs {
    program: PathBuf,
    peer: PathBuf,
    dir: PathBuf,
    places: PathBuf,
    pub(super) rounds: u32,
    seconds: Option<u64>,
    /// Whether the reports are recorded from the simulator.
    pub(super) is_simulated: bool,
}

/// The target of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) rocksdb: bool,
    pub(super) row: &'a str,
    /// How RocksDB's writes become durable.
    pub(super) sync: &'a str,
}

impl Target<'_> {
    pub(super) fn engine(self) -> &'static str {
        if self.rocksdb { "RocksDB" } else { "Ironstone" }
    }
}

/// The result of a task.
pub(super) struct Outcome {
    /// Tables.
    pub(super) text: String,
    /// The measurements, tab-separated.
    pub(super) tsv: String,
    pub(super) claims: Vec<Claim>,
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub(super) struct Figures(Value);

impl Figures {
    pub(super) fn get(&self, name: &str) -> Result<f64, String> {
        let number = self.0.get(name).and_then(Value::as_f64);
        number.ok_or_else(|| format!("tracks_bench says no {name}"))
    }

    /// A figure of a part.
    pub(super) fn get_in(&self, part: &str, name: &str) -> Result<f64, String> {
        let part = self.0.get(part).cloned().unwrap_or_default();
        Self(part).get(name)
    }
}

impl Runs {
    /// Prepares everything: RocksDB, the program, and the file of places.
    pub(super) fn prepare(arguments: &Arguments) -> Result<Self, String> {
        let peer = xtask::peers::ensure(false)?;
        let build = || cargo::program("ironstone-tracks-bench", "tracks_bench", Some("release"));
        let program = arguments.program.clone().map_or_else(build, Ok)?;
        let parent = arguments.dir.clone();
        let parent = parent.unwrap_or_else(|| xtask::root().join("target/bench"));
        let dir = parent.join(format!("tracks-{}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let runs = Self {
            places: dir.join("places"),
            program,
            peer,
            dir,
            rounds: arguments.rounds,
            seconds: arguments.seconds,
            is_simulated: arguments.reports.is_none(),
        };
        match &arguments.reports {
            Some(file) => eprintln!("reading {}", file.display()),
            None => eprintln!("making a recording of {} objects", arguments.objects),
        }
        let mut command = Command::new(&runs.program);
        command
            .args(["--dir", ".", "places", "--out"])
            .arg(&runs.places);
        command.arg(format!("--objects={}", arguments.objects));
        command.arg(format!("--places={}", u64::from(arguments.objects) * 8));
        if let Some(file) = &arguments.reports {
            command.arg("--reports").arg(file);
        }
        if let Some(format) = &arguments.format {
            command.arg(format!("--format={format}"));
        }
        driver::output_of(command)?;
        Ok(runs)
    }

    /// The seconds of a run: as requested, otherwise `usual`.
    pub(super) fn seconds(&self, usual: u64) -> u64 {
        self.seconds.unwrap_or(usual)
    }

    fn database(&self) -> PathBuf {
        self.dir.join("db")
    }

    fn command(&self, target: Target<'_>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--dir").arg(self.database());
        command.args(["--row", target.row, "--sync", target.sync]);
        if target.rocksdb {
            command.arg("--rocksdb").arg(&self.peer);
        }
        command
    }

    /// Runs a task of `tracks_bench` for some seconds on a new database: `write`, `query` or
    /// `http`.
    pub(super) fn fresh(
        &self,
        target: Target<'_>,
        (task, seconds): (&str, u64),
        more: &[impl AsRef<OsStr>],
    ) -> Result<Figures, String> {
        if self.database().exists() {
            fs::remove_dir_all(self.database()).map_err(|e| e.to_string())?;
        }
        let mut command = self.command(target);
        command.arg(task).arg("--places").arg(&self.places);
        command.arg(format!("--seconds={seconds}")).args(more);
        parse(&driver::output_of(command)?)
    }

    /// The time to open the database that the last run left.
    pub(super) fn open(&self, target: Target<'_>) -> Result<f64, String> {
        let mut command = self.command(target);
        command.arg("open");
        parse(&driver::output_of(command)?)?.get("open_seconds")
    }

    /// Reports to that database again, and kills the process in the middle.
    pub(super) fn kill(&self, target: Target<'_>, seconds: u64) -> Result<(), String> {
        let mut command = self.command(target);
        command.arg("write").arg("--places").arg(&self.places);
        command.arg(format!("--seconds={seconds}"));
        command.args(["--behind=100000000", "--go-on"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("tracks_bench: {e}"))?;
        let said = child.stderr.take().ok_or("no standard error")?;
        let mut before = String::new();
        for line in BufReader::new(said).lines() {
            let line = line.map_err(|e| e.to_string())?;
            if line == "goes on" {
                break;
            }
            before.push_str(&line);
        }
        // If it has ended by itself, that is an error, which it has printed.
        let ended = child.try_wait().map_err(|e| e.to_string())?;
        child.kill().map_err(|e| e.to_string())?;
        child.wait().map_err(|e| e.to_string())?;
        ended.map_or(Ok(()), |status| {
            Err(format!("tracks_bench: {status}: {before}"))
        })
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.dir) {
            eprintln!("{}: {e}", self.dir.display());
        }
    }
}

fn parse(text: &str) -> Result<Figures, String> {
    let value =
        serde_json::from_str(text).map_err(|e| format!("tracks_bench: {e}: {text:.200}"))?;
    Ok(Figures(value))
}
