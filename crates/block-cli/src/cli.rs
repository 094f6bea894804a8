//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::size::Size;

/// Replicated volumes over NBD: a write is durable once a majority of replicas has it in its log.
///
/// To try it:
///
///   ironstone-block dev --dir /var/tmp/d --size 10G
///   nbdinfo nbd://127.0.0.1:10809/vol0
///
/// `dev` writes a cluster file, makes three stores, and runs them and an NBD server. For a cluster of several
/// machines, run `chunk` for each store and `nbd` where volumes are used, all with the same cluster file.
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a store: its log, its data file, its replicas.
    Chunk(Chunk),
    /// Serve the cluster's volumes to NBD clients.
    Nbd(Nbd),
    /// Run a whole cluster on this machine, until Ctrl-C.
    Dev(Dev),
    /// Inspect a cluster or a store.
    #[command(subcommand)]
    Ctl(Ctl),
}

/// The arguments that all processes of a cluster have.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The cluster file (TOML): its stores, groups and volumes.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: PathBuf,
    /// Serve /metrics (Prometheus) and /status (JSON) at this address; if not given, at the one in
    /// the cluster file.
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
    /// Listen on addresses that other machines can reach, without TLS. Anyone there can read and write all
    /// data.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Exit when the parent process with this id is gone.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) with_parent: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct Chunk {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The id of the store in the cluster file.
    #[arg(long, value_name = "ID")]
    pub(crate) store: u64,
    /// Make the store if its directory has none. Only for a new cluster: the other stores ignore a store that
    /// replaces a lost one.
    #[arg(long)]
    pub(crate) make: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Nbd {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The address for NBD clients: a host and a port, or unix:PATH; if not given, the one in the
    /// cluster file.
    #[arg(long, value_name = "ADDR|unix:PATH")]
    pub(crate) listen: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// The directory of the cluster, created if missing. It must be on a disk with ext4 or xfs.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Size of the volume `vol0`. Each of the three stores has space for the whole volume.
    #[arg(long, default_value = "10G")]
    pub(crate) size: Size,
    /// How a committed write reaches the data file: `background` (after the answer; write-back runs all the
    /// time), `snapshot` (after the answer; write-back is rare and writes everything at once), `odsync` (in
    /// place, before the answer).
    #[arg(long, value_name = "MODE")]
    pub(crate) apply_sync: Option<String>,
    /// How a leader checks that it still leads before it serves a read: `lease` (clocks must run at the same speed),
    /// or `read_index` (a round of heartbeats for each batch of reads; for clocks that may stop or go back).
    #[arg(long, value_name = "MODE")]
    pub(crate) read_mode: Option<String>,
    /// The port of the NBD server; 0 means any free port.
    #[arg(long, default_value_t = 10809, conflicts_with = "listen")]
    pub(crate) port: u16,
    /// The address of the NBD server, instead of a port: a host and a port, or unix:PATH.
    #[arg(long, value_name = "ADDR|unix:PATH")]
    pub(crate) listen: Option<String>,
    /// For a new cluster: the number of groups over which the volume's chunks are spread.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) groups: u32,
    /// For a new cluster: the size of each store's log.
    #[arg(long, default_value = "1G")]
    pub(crate) log: Size,
    /// Listen on an address that other machines can reach, without TLS.
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Ctl {
    /// Print the state of each process.
    Status(Status),
    /// Print the state of each process as rates, repeatedly.
    Top(Top),
    /// Commands for the logs of stores.
    #[command(subcommand)]
    Log(Log),
    /// Commands for stores.
    #[command(subcommand)]
    Store(StoreCommand),
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The cluster file.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The cluster file.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: PathBuf,
    /// Print JSON, one line for each update.
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds between two updates.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) interval: u64,
    /// The number of updates; if not given, until Ctrl-C.
    #[arg(long)]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Log {
    /// Print every item of a store's log. The store must not be open.
    Dump(Offline),
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Read all data of a store and verify checksums. The store must not be open; it is not changed.
    Check(Offline),
}

#[derive(Debug, Args)]
pub(crate) struct Offline {
    /// The store's directory.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Print JSON, one line for each item.
    #[arg(long)]
    pub(crate) json: bool,
}
