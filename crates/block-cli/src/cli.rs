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
/// `dev` writes a cluster file, makes three stores, and runs them and an NBD server. On several machines each
/// runs `chunk` for its stores, and `nbd` where volumes are used, all with the same cluster file.
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
    /// Look at a cluster, or into a store.
    #[command(subcommand)]
    Ctl(Ctl),
}

/// What processes of a cluster have in common.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The cluster file (TOML): its stores, groups and volumes.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster: PathBuf,
    /// Serve /metrics (Prometheus) and /status (JSON) here; without, what the cluster file says.
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
    /// Listen on addresses that other machines reach, without TLS: everybody there reads and writes everything.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// End when this process, which has started this one, is gone.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) with_parent: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct Chunk {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Which store of the cluster file.
    #[arg(long, value_name = "ID")]
    pub(crate) store: u64,
    /// Make the store if there is none in its directory: for a new cluster. The others do not listen to a store that
    /// is made in place of one that was lost.
    #[arg(long)]
    pub(crate) make: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Nbd {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Where clients come: a host and a port, or unix:PATH; without, what the cluster file says.
    #[arg(long, value_name = "ADDR|unix:PATH")]
    pub(crate) listen: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Where the cluster is kept; made if it is not there. On a disk, with ext4 or xfs.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Bytes of the volume `vol0`; each of the three stores has place for all of it.
    #[arg(long, default_value = "10G")]
    pub(crate) size: Size,
    /// What happens between the commit of a write and its answer: `background` (nothing; written back all the
    /// time), `snapshot` (nothing; written back rarely and all at once), `odsync` (written in place).
    #[arg(long, value_name = "MODE")]
    pub(crate) apply_sync: Option<String>,
    /// How a leader knows that it leads when it serves a read: `lease` (as long as clocks run alike), `read_index` (a
    /// round of heartbeats for each batch of reads, where clocks may stop or go back).
    #[arg(long, value_name = "MODE")]
    pub(crate) read_mode: Option<String>,
    /// The port of the NBD server; 0 is any free one.
    #[arg(long, default_value_t = 10809, conflicts_with = "listen")]
    pub(crate) port: u16,
    /// Where the NBD server listens instead: a host and a port, or unix:PATH.
    #[arg(long, value_name = "ADDR|unix:PATH")]
    pub(crate) listen: Option<String>,
    /// How many groups the volume's chunks are spread over, where the cluster is new.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) groups: u32,
    /// Bytes of the log of each store, where the cluster is new.
    #[arg(long, default_value = "1G")]
    pub(crate) log: Size,
    /// Listen on an address that other machines reach, without TLS.
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Ctl {
    /// What each process says of itself now.
    Status(Status),
    /// The same as rates, again and again.
    Top(Top),
    /// Logs of stores.
    #[command(subcommand)]
    Log(Log),
    /// Stores.
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
    /// Print JSON, a line each time.
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) interval: u64,
    /// How often; without, until Ctrl-C.
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
    /// Read everything of a store and compare checksums. The store must not be open; nothing is changed.
    Check(Offline),
}

#[derive(Debug, Args)]
pub(crate) struct Offline {
    /// The store's directory.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Print JSON, a line for each thing.
    #[arg(long)]
    pub(crate) json: bool,
}
