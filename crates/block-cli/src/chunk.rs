//! `chunk`: a store in a process.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use base::metrics::Metrics;
use base::rng::Rng;
use base::threads::SystemThreads;
use base::{Error, ErrorKind, Result};
use block::ids::Uuid;
use block::shard::layout::{Opened, Store, make};
use block::shard::run::{Options, Server};
use block::shard::stats::Stats;
use indicatif::{ProgressBar, ProgressStyle};
use io::FileSystem;
use io::posix::Posix;

use crate::cli;
use crate::cluster::{Cluster, address};
use crate::http::{self, Pages};
use crate::{say, signals, status};

/// How often to try to open a store that another process holds, and the pause in between.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Runs a store until it is told to end. Errors: the store has failed.
pub(crate) fn run(args: &cli::Chunk) -> Result<()> {
    if let Some(parent) = args.common.with_parent {
        signals::end_with_parent(parent)?;
    }
    io::posix::raise_descriptor_limit();
    let cluster = Cluster::read(&args.common.cluster)?;
    let of = cluster.find(args.store)?;
    let dir = cluster.dir_of(of);
    let fs: Arc<dyn FileSystem> = Posix::shared();
    let clock = SystemClock::shared();
    if args.make && !fs.exists(&dir.join("STORE"))? {
        make_store(&fs, &cluster, args.store, &dir, &*clock)?;
    }
    let listen = address(&of.address)?;
    http::check_open("a store", listen, args.common.insecure)?;
    let opened = open(&fs, &cluster, &dir, &*clock)?;
    let failed = |e: std::io::Error| {
        Error::new(
            ErrorKind::IoError,
            format!("cannot listen on {listen}: {e}"),
        )
        .hint("is another process there? see `address` of the store in the cluster file")
        .because(e)
    };
    let listener = TcpListener::bind(listen).map_err(failed)?;
    let listen = listener.local_addr().map_err(failed)?;
    let id = args.store;
    let server = Server::new(
        opened,
        Options {
            cluster: cluster.uuid()?,
            id,
            listener,
            peers: cluster.addresses()?,
            groups: cluster.assignments(id)?,
            policy: cluster.policy()?,
            read_mode: cluster.read_mode()?,
            say: say::limited(format!("chunk {id}"), Arc::clone(&clock)),
            clock,
            threads: SystemThreads::shared(),
        },
    )?;
    let metrics = args.common.metrics.as_ref().or(of.metrics.as_ref());
    let mut also = String::new();
    if let Some(text) = metrics {
        let pages = Arc::new(ChunkPages {
            store: id,
            address: listen.to_string(),
            stats: server.stats(),
        });
        let bound = http::serve(address(text)?, args.common.insecure, pages, &SystemThreads)?;
        also = format!(", http://{bound}/metrics");
    }
    let stop = server.stop_handle();
    signals::on_stop(&SystemThreads, move || stop.wake())?;
    say(&format!("chunk {id}: listens on {listen}{also}"));
    server.run()?;
    say(&format!("chunk {id}: ended"));
    Ok(())
}

/// Opens a store. If its process was just killed, the store may be locked for a little while.
fn open(
    fs: &Arc<dyn FileSystem>,
    cluster: &Cluster,
    dir: &Path,
    clock: &dyn Clock,
) -> Result<Opened> {
    let (uuid, depth) = (cluster.uuid()?, cluster.storage.log_depth);
    let mut tries = 0;
    loop {
        match Store::open(fs, dir, uuid, depth, seed(clock)) {
            Err(e) if e.kind() == ErrorKind::Busy && tries < LOCK_TRIES => {
                if tries == 0 {
                    say(&format!("waits for 5 s at most: {e}"));
                }
                tries += 1;
                clock.sleep(LOCK_PAUSE);
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(e.hint("let --make make it, or mount its disk"));
            }
            opened => return opened,
        }
    }
}

/// Creates a store, with a progress bar if stderr is a terminal.
pub(crate) fn make_store(
    fs: &Arc<dyn FileSystem>,
    cluster: &Cluster,
    id: u64,
    dir: &Path,
    clock: &dyn Clock,
) -> Result<()> {
    let mut rng = Rng::new(seed(clock));
    let mut uuid = [0; 16];
    rng.fill(&mut uuid);
    let what = cluster.make(Uuid(uuid))?;
    let needed = cluster.chunks_of(id)?;
    if needed > u64::from(what.slots) {
        return Err(Error::invalid_argument(format!(
            "the volumes may take {needed} chunks of store {id}, which has place for {}",
            what.slots
        ))
        .hint("raise [storage] capacity, or make volumes smaller"));
    }
    let log_bytes = u64::from(what.log_files) * what.log_file_bytes;
    let bar = ProgressBar::new(log_bytes).with_message(format!("store {id}: the log"));
    let style = "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style.progress_chars("=> "));
    }
    make(fs, dir, &what, &mut |bytes| bar.set_position(bytes))?;
    bar.finish_and_clear();
    Ok(())
}

/// A number that differs in each process.
pub(crate) fn seed(clock: &dyn Clock) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The hasher's keys are random numbers of the system.
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u64(clock.wall_micros());
    hasher.write_u32(std::process::id());
    hasher.finish()
}

struct ChunkPages {
    store: u64,
    address: String,
    stats: Arc<Stats>,
}

impl Pages for ChunkPages {
    fn metrics(&self) -> String {
        let mut metrics = Metrics::default();
        self.stats.write(&self.store.to_string(), &mut metrics);
        metrics.text()
    }

    fn status(&self) -> String {
        let status = status::Chunk::of(self.store, &self.address, &self.stats);
        serde_json::to_string(&status).unwrap_or_default()
    }
}
