//! `cargo xtask bench-tracks`: the tracking service on Ironstone and on RocksDB, with the same
//! code, alternating.
//!
//! Each run is a separate process (`crates/tracks-bench`). This module starts and kills them, and
//! makes tables of their figures.

use std::path::PathBuf;

mod acks;
mod http;
mod queries;
mod rows;
mod runs;

use crate::limit;
use runs::Runs;

/// Compare the tracking service on both engines: settings, acknowledgements, HTTP, and queries; without a task, all of
/// them, which takes two and a half hours
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    runs: runs::Arguments,
    /// Fail if a limit does not hold; if not given, the tables only show it
    #[arg(long, global = true)]
    check: bool,
    /// Write the measurements to this file, tab-separated
    #[arg(long, global = true)]
    tsv: Option<PathBuf>,
}

#[derive(Clone, clap::Subcommand)]
enum Task {
    /// Measure requests a second of 80 reporting threads, each report in another cell, with each row's
    /// settings
    Rows(rows::Arguments),
    /// Measure acknowledgements when visible and when durable, with 4,096 reports in flight
    Acks,
    /// Measure reports over HTTP on loopback, beside reports without HTTP and beside a store that does
    /// nothing
    Http,
    /// Measure queries about a million objects: idle, compacted, and during reports; Redis for
    /// comparison
    Queries(queries::Arguments),
}

impl Task {
    /// All tasks, with their default arguments.
    fn all() -> Vec<Self> {
        vec![
            Self::Rows(rows::Arguments::default()),
            Self::Acks,
            Self::Http,
            Self::Queries(queries::Arguments::default()),
        ]
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let runs = Runs::prepare(&arguments.runs)?;
    let tasks = arguments.task.clone();
    let tasks = tasks.map_or_else(Task::all, |task| vec![task]);
    let (mut tsv, mut claims) = (String::new(), Vec::new());
    for task in &tasks {
        let outcome = match task {
            Task::Rows(task) => rows::measure(task, &runs)?,
            Task::Acks => acks::measure(&runs)?,
            Task::Http => http::measure(&runs)?,
            Task::Queries(task) => queries::measure(task, &runs)?,
        };
        print!("{}{}", outcome.text, limit::table(&outcome.claims));
        tsv += &outcome.tsv;
        claims.extend(outcome.claims);
        if let Some(path) = &arguments.tsv {
            std::fs::write(path, &tsv).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    if arguments.check {
        limit::check(&claims)?;
    }
    Ok(())
}
