//! `cargo xtask bench-block`: the block store beside its lower bounds and a rival, as seen by a
//! client: fio over NBD.
//!
//! ```text
//!   plan     the works of each task               place    this machine's disk, or loop devices
//!     │                                           │
//!   session ── target: Ironstone, qemu-nbd ───────┤      process  starts, measures and ends processes
//!     │          fio, probe, metrics ─────────────┘
//!     └──> data ──> claims ──> outputs, page
//! ```
//!
//! Everything is made in one folder, which is removed at the end. The leftovers of a killed run are
//! removed by the next one, and its loop devices by a watcher process (see
//! `device/watch.rs`).
//!
//! Exit status: 0 done; 1 something failed, or with `--check` a claim; 2 this machine lacks a
//! requirement.

mod claims;
mod data;
mod fio;
mod metrics;
mod outputs;
mod page;
mod place;
mod plan;
mod probe;
mod process;
mod session;
mod target;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::device::{Stop, disk, is_installed, is_root, watch};
use crate::suites::files::Files;
use crate::suites::machine;
use crate::suites::run::relative;
use crate::suites::session::Interrupt;
use data::{Report, SCHEMA, Settings};
use place::Disks;
use plan::Task;
use session::Session;
use target::Kind;

/// Compare the block store with its lower bounds and with a rival, with fio over NBD
///
///   cargo xtask bench-block seed --seconds 30 --size 2G     the seed's table, in all modes
///   cargo xtask bench-block floor --seconds 30              latency, processor time and device writes
///   cargo xtask bench-block modes --seconds 120             through checkpoints
///   cargo xtask bench-block modes --disks loop-protected,hdd --size 1G
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    task: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Measure the seed's table in the three modes, beside a single copy, the protocol alone, and a quorum of
    /// qemu-nbd
    Seed(Options),
    /// Measure the parts of a write: latency, processor time, and device operations on loop devices
    Floor(Options),
    /// Measure latency and rate during checkpoints, in the three modes
    Modes(Options),
    /// Generate the page of a stored report again
    Page(PageArguments),
    /// Answer messages of another process
    #[command(hide = true)]
    Echo,
    /// Wait for the end of a run and clean up after it
    #[command(hide = true)]
    Watch {
        /// The folder of the run
        dir: PathBuf,
    },
}

#[derive(clap::Args)]
struct Options {
    /// Seconds of each job
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Pairs of each measurement; at least five for figures to publish
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Size of a volume
    #[arg(long, default_value = "10G", value_parser = bytes)]
    size: u64,
    /// How much of the volume is filled, written and read [default: all]
    #[arg(long, value_parser = bytes)]
    range: Option<u64>,
    /// How many bytes to write when device operations are counted
    #[arg(long, default_value = "1G", value_parser = bytes)]
    count: u64,
    /// The disks that hold the copies [default: dir; for floor also loop-volatile,loop-protected]
    #[arg(long, value_enum, value_delimiter = ',')]
    disks: Vec<Disks>,
    /// The targets to measure [default: all of the task]
    #[arg(long, value_enum, value_delimiter = ',')]
    targets: Vec<Kind>,
    /// Only jobs with these queue depths [default: all]
    #[arg(long, value_delimiter = ',')]
    depths: Vec<u32>,
    /// Size of each loop device in MiB [default: what the volumes need]
    #[arg(long, value_parser = clap::value_parser!(u64).range(384..))]
    image_mib: Option<u64>,
    /// The directory of the copies, which are removed afterwards [default: target]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The directory for the report [default: target/bench-block-TASK]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// An already built ironstone-block [default: build it]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Fail if a claim does not hold
    #[arg(long)]
    check: bool,
}

#[derive(clap::Args)]
struct PageArguments {
    /// A stored report.json
    report: PathBuf,
    /// The directory for the report
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Parses `4096`, `512M`, `10G`.
fn bytes(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(number) if text.ends_with('K') => (number, 10),
        Some(number) if text.ends_with('M') => (number, 20),
        Some(number) => (number, 30),
        None => (text, 0),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "a number with K, M or G".to_owned())?;
    let bytes = number.checked_shl(shift).filter(|b| b >> shift == number);
    bytes
        .filter(|bytes| *bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20))
        .ok_or_else(|| "whole MiB, at least one".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.task {
        What::Seed(options) => guarded(Task::Seed, options),
        What::Floor(options) => guarded(Task::Floor, options),
        What::Modes(options) => guarded(Task::Modes, options),
        What::Page(arguments) => page(arguments),
        What::Echo => probe::echo().map_err(Stop::Failed),
        What::Watch { dir } => watch::wait(dir),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Failed(message)) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
        Err(Stop::Needs(needs)) => {
            eprintln!("bench-block needs:");
            for need in needs {
                eprintln!("  - {need}");
            }
            ExitCode::from(2)
        }
    }
}

fn page(arguments: &PageArguments) -> Result<(), Stop> {
    let path = &arguments.report;
    let wrong = |e: String| Stop::Failed(format!("{}: {e}", path.display()));
    let text = fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    let report: Report = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    if report.schema != SCHEMA {
        return Err(wrong(format!(
            "schema {}; this reads {SCHEMA}",
            report.schema
        )));
    }
    let files = Files::new(arguments.out.clone())?;
    outputs::put(&report, &files)?;
    println!("written: {}", files.path("report.html").display());
    Ok(())
}

/// Measures, and sweeps before and after.
fn guarded(task: Task, options: &Options) -> Result<(), Stop> {
    let disks = match options.disks.as_slice() {
        [] => task.disks().to_vec(),
        chosen => chosen.to_vec(),
    };
    let disks = requirements(&disks, !options.disks.is_empty())?;
    let ironstone = program(options);
    let files = Files::new(
        options
            .out
            .clone()
            .unwrap_or_else(|| xtask::root().join(format!("target/bench-block-{}", task.name()))),
    )?;
    let parent = options
        .dir
        .clone()
        .unwrap_or_else(|| xtask::root().join("target"));
    fs::create_dir_all(&parent).map_err(|e| format!("{}: {e}", parent.display()))?;
    // The kernel names backing files by their canonical path.
    let parent = fs::canonicalize(&parent).map_err(|e| format!("{}: {e}", parent.display()))?;
    let dir = parent.join("bench-block");
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let _lock = watch::lock(&dir)?;
    clear(&dir)?;
    let watched = dir.to_string_lossy();
    let watcher = watch::Watcher::start(&["bench-block", "watch", &watched])?;
    let interrupt = Interrupt::watch()?;
    let mut report = empty(task, options, &dir);
    let session = Session {
        task,
        targets: match options.targets.as_slice() {
            [] => Kind::ALL.to_vec(),
            chosen => chosen.to_vec(),
        },
        depths: options.depths.clone(),
        image_mib: options
            .image_mib
            .unwrap_or_else(|| image_mib(task, options)),
        disks,
        dir: &dir,
        files: &files,
        interrupt: &interrupt,
        ironstone,
        qemu_nbd: PathBuf::from("qemu-nbd"),
    };
    let measured = session.measure(&mut report);
    let cleared = clear(&dir);
    if cleared.is_ok() {
        watcher.dismiss()?;
    }
    measured?;
    cleared?;
    print!("{}", outputs::terminal(&report));
    for name in ["report.html", "report.json", "report.tsv"] {
        println!("written: {}", files.path(name).display());
    }
    verdict(&report, options.check)
}

fn verdict(report: &Report, is_checked: bool) -> Result<(), Stop> {
    if let Some(problem) = &report.problem {
        let text = format!("incomplete; what was measured is kept: {problem}");
        return Err(Stop::Failed(text));
    }
    let failures = outputs::failures(report);
    if is_checked && !failures.is_empty() {
        return Err(Stop::Failed(format!(
            "does not hold:\n{}",
            failures.join("\n")
        )));
    }
    Ok(())
}

/// Checks the requirements; returns the disks that can be made. If loop devices were not requested
/// by name, they are left out if there can be none.
fn requirements(disks: &[Disks], is_asked: bool) -> Result<Vec<Disks>, Stop> {
    let missing = |tools: &[(&str, &str)]| -> Vec<String> {
        tools
            .iter()
            .filter(|(tool, _)| !is_installed(tool))
            .map(|(tool, package)| format!("{tool}: apt-get install {package}"))
            .collect()
    };
    let mut needs = missing(&[
        ("fio", "fio"),
        ("qemu-nbd", "qemu-utils"),
        ("setpriv", "util-linux"),
    ]);
    if needs.is_empty() && !fio_has_nbd() {
        needs.push("fio with the engine nbd, as Debian's has".to_owned());
    }
    let mut for_loops = missing(&[
        ("losetup", "mount"),
        ("mount", "mount"),
        ("mkfs.ext4", "e2fsprogs"),
        ("timeout", "coreutils"),
    ]);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !is_root(&status) {
        for_loops.push("root, for loop devices and mounts: run it with sudo".to_owned());
    }
    if !Path::new("/dev/loop-control").exists() {
        for_loops.push("loop devices (/dev/loop-control): modprobe loop".to_owned());
    }
    let mut there = disks.to_vec();
    if !for_loops.is_empty() {
        there.retain(|d| *d == Disks::Dir);
        if is_asked && there.len() < disks.len() || there.is_empty() {
            needs.extend(for_loops);
        } else if there.len() < disks.len() {
            eprintln!(
                "without loop devices, as they need: {}",
                for_loops.join("; ")
            );
        }
    }
    if needs.is_empty() {
        Ok(there)
    } else {
        Err(Stop::Needs(needs))
    }
}

fn fio_has_nbd() -> bool {
    let output = Command::new("fio").arg("--enghelp").output();
    output.is_ok_and(|o| {
        String::from_utf8_lossy(&o.stdout)
            .lines()
            .any(|l| l.trim() == "nbd")
    })
}

/// The program `ironstone-block`, or why there is none.
fn program(options: &Options) -> Result<PathBuf, String> {
    let is_ironstone = |kind: &Kind| kind.is_ironstone();
    if !options.targets.is_empty() && !options.targets.iter().any(is_ironstone) {
        return Err("not asked for".to_owned());
    }
    match &options.program {
        Some(path) => fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display())),
        None if xtask::root().join("crates/block-cli").is_dir() => {
            xtask::cargo::program("ironstone-block-cli", "ironstone-block", Some("release"))
        }
        None => Err("ironstone-block is not in the source tree".to_owned()),
    }
}

/// The size of a loop device in MiB: a copy of each of Ironstone's volumes, with logs and the
/// overhead of a file system.
fn image_mib(task: Task, options: &Options) -> u64 {
    let asked = |kind: &&Kind| options.targets.is_empty() || options.targets.contains(kind);
    let kinds = task.targets(Disks::LoopVolatile).iter().filter(asked);
    let volume = options.size >> 20;
    // Each store has a log of 1 GiB; the files of other writers come in addition.
    kinds.count() as u64 * (volume + volume / 8 + 1280) + 1024
}

/// Removes everything that this run, or one that crashed, has made in its folder.
fn clear(dir: &Path) -> Result<(), Stop> {
    for left in disk::sweep(dir)? {
        eprintln!("removed {left}, left by a run that crashed");
    }
    for name in ["copies", "beside"] {
        let path = dir.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}

/// A report without measurements.
fn empty(task: Task, options: &Options, dir: &Path) -> Report {
    let root = xtask::root();
    let words = std::env::args().skip(1);
    let words: Vec<String> = words
        .map(|w| relative(&w, &root.to_string_lossy()))
        .collect();
    Report {
        schema: SCHEMA,
        task: task.name().to_owned(),
        date: machine::date(),
        commit: machine::commit(),
        command: format!("cargo xtask {}", words.join(" ")),
        complete: false,
        problem: Some("it did not come to its end".to_owned()),
        settings: Settings {
            seconds: options.seconds,
            pairs: options.pairs,
            size_bytes: options.size,
            range_bytes: options.range.unwrap_or(options.size).min(options.size),
            count_bytes: options.count,
        },
        machine: machine::facts(dir),
        measurements: Vec::new(),
        absent: Vec::new(),
        claims: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("10G"), Ok(10 << 30));
        assert_eq!(bytes("512M"), Ok(512 << 20));
        assert_eq!(bytes("1048576"), Ok(1 << 20));
        assert_eq!(bytes("2048K"), Ok(2 << 20));
        for wrong in ["", "G", "0", "1K", "5T", "99999999999G", "-1M"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_claim_that_fails_fails_a_check_only() {
        let all = [
            (Kind::Background, "4k randwrite QD128", 1, 300.0, 250.0),
            (Kind::Single, "4k randwrite QD128", 1, 3000.0, 25.0),
        ];
        let mut report = data::tests::report(&all);
        report.claims = claims::of(Task::Seed, &report);
        assert!(verdict(&report, false).is_ok());
        let Err(Stop::Failed(text)) = verdict(&report, true) else {
            panic!("it holds");
        };
        assert!(text.contains("over the single copy"), "{text}");
        report.problem = Some("gone".to_owned());
        assert!(verdict(&report, false).is_err());
    }
}
