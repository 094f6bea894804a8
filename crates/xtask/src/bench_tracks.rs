//! `cargo xtask bench-tracks`: the tracking service on Ironstone and on RocksDB, the same code, in turns.
//!
//! A run is a process of its own (`crates/tracks-bench`). Here they are started, killed, and made tables of.

use std::path::PathBuf;

mod acks;
mod http;
mod queries;
mod rows;
mod runs;

use runs::Runs;

/// Compare the tracking service on both engines: the rows of the settings that it was tuned with, and acknowledgements
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    task: Task,
    #[command(flatten)]
    runs: runs::Arguments,
    /// Writes what was measured to this file, tab-separated
    #[arg(long, global = true)]
    tsv: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Task {
    /// 80 threads that report, each report in another cell: requests a second with each row's settings
    Rows(rows::Arguments),
    /// 4,096 reports on their way: acknowledged when visible, and when durable
    Acks(acks::Arguments),
    /// Reports over HTTP on loopback, beside the same without HTTP and beside a store that does nothing
    Http(http::Arguments),
    /// Questions about a million objects, quiet, compacted and beside reports; Redis beside them
    Queries(queries::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let runs = Runs::prepare(&arguments.runs)?;
    let (text, tsv) = match &arguments.task {
        Task::Rows(task) => rows::measure(task, &runs)?,
        Task::Acks(task) => acks::measure(task, &runs)?,
        Task::Http(task) => http::measure(task, &runs)?,
        Task::Queries(task) => queries::measure(task, &runs)?,
    };
    print!("{text}");
    if let Some(path) = &arguments.tsv {
        std::fs::write(path, tsv).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}
