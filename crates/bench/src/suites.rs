//! `cargo xtask bench`: suites of benchmarks on Ironstone and on RocksDB 11.8.1, alternating, with
//! a report as JSON, TSV and a page; and a comparison of two reports.
//!
//! ```text
//!   suite    which benchmarks, how large       data     the measurements, as they are stored
//!     │                                          │
//!   session  pairs in turns ──> run (db_bench) ──┤ ◄── output, log, device, machine
//!                                                ├──> table, page (HTML and SVG)
//!   cliffs   unusual shapes, a table by itself
//!   compare  two stored reports <────────────────┘     browser: checks the page in Chromium
//! ```

mod browser;
mod cliffs;
mod compare;
pub(crate) mod data;
mod device;
pub(crate) mod files;
mod log;
pub(crate) mod machine;
mod output;
pub(crate) mod page;
mod peers;
pub(crate) mod progress;
pub(crate) mod run;
pub(crate) mod session;
mod suite;
mod table;

use std::path::{Path, PathBuf};

use crate::driver::Setup;
use data::{Report, SCHEMA, Settings, Versions};
use files::Files;
use session::{Interrupt, Session};
use suite::{Bench, Suite};

/// Compare Ironstone with RocksDB 11.8.1 by suites of benchmarks
///
/// Both engines run the same benchmarks of db_bench in turns. The result is the ratio within each
/// pair of runs: the median of the pairs, the smallest and the largest. The reports are stored in
/// target/bench-report: report.json, report.tsv, and report.html with the plots.
///
///   cargo xtask bench quick                              three minutes and what building takes
///   cargo xtask bench quick --against before.json        fails if Ironstone has become slower
///   cargo xtask bench standard --benchmarks sustained    one benchmark of a larger suite
///   cargo xtask bench compare before.json after.json --band 5%
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    /// Seven benchmarks on 500,000 keys: about three minutes
    Quick(SuiteArguments),
    /// Thirteen benchmarks on two million keys: about half an hour
    Standard(SuiteArguments),
    /// The same on ten million keys with seven pairs, then sustained, requests, bulk load and device
    /// counts: hours
    Full(SuiteArguments),
    /// Unusual shapes: many families, many files, large values …, and how the cost grows
    Cliffs(cliffs::Arguments),
    /// Compare two stored reports; fails if a ratio fell by more than the noise
    Compare(compare::Arguments),
    /// Generate the page of a stored report again
    Page(PageArguments),
    /// Check a page in headless Chromium: light, dark, on a phone; fails on errors and overflow
    CheckPage(browser::Arguments),
}

#[derive(clap::Args)]
struct SuiteArguments {
    /// Keys of a database (16 bytes, with values of 100 bytes) [default: the suite's]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..))]
    num: Option<u64>,
    /// Pairs of each benchmark; at least five for figures to publish [default: the suite's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: Option<u32>,
    /// Synced puts of a fillsync run [default: the suite's]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    syncs: Option<u64>,
    /// Seconds of sustained and readwhilewriting [default: the suite's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Benchmarks, separated by commas [default: the suite's]
    #[arg(long, value_delimiter = ',')]
    benchmarks: Vec<String>,
    /// Further flags of db_bench for both engines, for example --flag=--block_size=16384
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// The directory of the databases, which are removed afterwards [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The directory for the report [default: target/bench-report]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// An already built db_bench [default: build it]
    #[arg(long, value_name = "FILE")]
    driver: Option<PathBuf>,
    /// Also run fjall, redb, LMDB and surrealkv, on at most 200,000 keys; builds bench/ first
    #[arg(long)]
    peers: bool,
    /// A stored report.json: fail if Ironstone has become slower since, beyond the noise
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    #[command(flatten)]
    band: compare::Band,
}

#[derive(clap::Args)]
struct PageArguments {
    /// A stored report.json
    report: PathBuf,
    /// The directory for the report [default: target/bench-report]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    match &arguments.task {
        Task::Quick(arguments) => measure(&suite::QUICK, arguments),
        Task::Standard(arguments) => measure(&suite::STANDARD, arguments),
        Task::Full(arguments) => measure(&suite::FULL, arguments),
        Task::Cliffs(arguments) => cliffs::run(arguments),
        Task::Compare(arguments) => compare::run(arguments),
        Task::Page(arguments) => {
            let report = compare::read(&arguments.report)?;
            let files = files(arguments.out.as_deref())?;
            files.write(&report)?;
            say(&files);
            Ok(())
        }
        Task::CheckPage(arguments) => browser::run(arguments),
    }
}

fn files(out: Option<&Path>) -> Result<Files, String> {
    Files::new(out.map_or_else(|| xtask::root().join("target/bench-report"), Path::to_owned))
}

fn say(files: &Files) {
    for name in ["report.html", "report.json", "report.tsv"] {
        println!("written: {}", files.path(name).display());
    }
}

fn measure(suite: &Suite, arguments: &SuiteArguments) -> Result<(), String> {
    let names: Vec<&str> = match arguments.benchmarks.as_slice() {
        [] => suite.benchmarks.to_vec(),
        chosen => chosen.iter().map(String::as_str).collect(),
    };
    let benches = names
        .into_iter()
        .map(Bench::of)
        .collect::<Result<Vec<_>, _>>()?;
    // An unreadable report is found now, not after the measurements.
    let old = arguments
        .against
        .as_deref()
        .map(compare::read)
        .transpose()?;
    let peers = arguments.peers.then(peers::build).transpose()?;
    let files = files(arguments.out.as_deref())?;
    let interrupt = Interrupt::watch()?;
    let mut report = empty(suite, arguments);
    let (parent, driver) = (arguments.dir.as_deref(), arguments.driver.as_deref());
    let extras = suite.extras && arguments.benchmarks.is_empty();
    Setup::with("bench", parent, driver, |setup| {
        report.machine = machine::facts(&setup.dir);
        let session = Session {
            setup,
            files: &files,
            interrupt: &interrupt,
            peers: peers.as_deref(),
        };
        session.measure(&benches, extras, &mut report)
    })?;
    print!("{}", table::terminal(&report));
    say(&files);
    if let Some(problem) = &report.problem {
        return Err(format!("incomplete; what was measured is kept: {problem}"));
    }
    let Some(old) = old else {
        return Ok(());
    };
    let compared = compare::Comparison::of(&old, &report, arguments.band)?;
    print!("{}", compared.text);
    compared.verdict()
}

/// A report without measurements.
fn empty(suite: &Suite, arguments: &SuiteArguments) -> Report {
    let num = arguments.num.unwrap_or(suite.num);
    let root = xtask::root();
    let words: Vec<String> = std::env::args()
        .skip(1)
        .map(|word| run::relative(&word, &root.to_string_lossy()))
        .collect();
    Report {
        schema: SCHEMA,
        suite: suite.name.to_owned(),
        date: machine::date(),
        command: format!("cargo xtask {}", words.join(" ")),
        complete: false,
        problem: Some("it did not come to its end".to_owned()),
        settings: Settings {
            num,
            pairs: arguments.pairs.unwrap_or(suite.pairs),
            syncs: arguments.syncs.unwrap_or(suite.syncs),
            seconds: arguments.seconds.unwrap_or(suite.seconds),
            flags: suite::common_flags(num, &arguments.flags),
        },
        versions: Versions {
            commit: machine::commit(),
            ..Versions::default()
        },
        machine: Vec::new(),
        benchmarks: Vec::new(),
        extras: Vec::new(),
    }
}
