//! `dev`: a whole cluster on this machine, as children of this process.
//!
//! ```text
//!   dir/  cluster.toml   store-1/ store-2/ store-3/   chunk-1.log … nbd.log: what the processes say
//!         LOCK           held while this runs
//! ```
//!
//! The stores' ports are chosen at each start; the cluster file names them. The children end with this process,
//! the NBD server first. If this process is killed, the system sends them a signal.

use std::io::{IsTerminal, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use base::rng::Rng;
use base::threads::SystemThreads;
use base::{Error, ErrorKind, Result};
use block::client::map::Striping;
use block::ids::Uuid;
use block::store::data::SLOT_BYTES;
use block::store::superblock::Superblock;
use io::posix::Posix;
use io::{FileSystem, OpenHow};
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{Cluster, GroupEntry, Nbd, Storage, Store, Volume};
use crate::ctl::look;
use crate::size::Size;
use crate::top::Looks;
use crate::{chunk, cli, print, say, signals};

const STORES: u64 = 3;
const VOLUME: &str = "vol0";
/// How long processes may take to start, and to end.
const BEGIN: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(20);
/// Time between two checks of the children.
const STEP: Duration = Duration::from_millis(100);
/// Checks between two lines, on a terminal and elsewhere.
const LINE_STEPS: u64 = 10;
const LINE_STEPS_UNSEEN: u64 = 100;

/// Runs until Ctrl-C. Errors: a child has ended by itself; an obstacle prevents the start.
pub(crate) fn run(args: &cli::Dev) -> Result<()> {
    let fs: Arc<dyn FileSystem> = Posix::shared();
    let clock = SystemClock::shared();
    io::create_dirs(&*fs, &args.dir)?;
    let _lock = fs
        .lock(&args.dir.join("LOCK"))
        .map_err(|e| match e.kind() {
            ErrorKind::Busy => Error::busy("another `ironstone-block dev` runs here")
                .file(&args.dir)
                .hint("end it, or choose another --dir")
                .because(e),
            _ => e,
        })?;
    let cluster = prepare(args, &fs, &*clock)?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_stopped);
    signals::on_stop(&SystemThreads, move || flag.store(true, Ordering::Relaxed))?;
    let mut children = Children::new(Arc::clone(&clock));
    let begun = start(args, &cluster, &mut children, &is_stopped);
    let watched = begun.and_then(|()| watch(&cluster, &mut children, &is_stopped));
    let ended = children.end();
    watched.and(ended)
}

/// Reads the cluster file and the stores, or creates those that are missing.
fn prepare(args: &cli::Dev, fs: &Arc<dyn FileSystem>, clock: &dyn Clock) -> Result<Cluster> {
    let path = args.dir.join("cluster.toml");
    let mut cluster = if fs.exists(&path)? {
        let cluster = Cluster::read(&path)?;
        let volume = cluster.volume.iter().find(|v| v.name == VOLUME);
        let size = volume.map_or(Size(0), |v| v.size);
        if size != args.size {
            return Err(Error::invalid_argument(format!(
                "{VOLUME} has {size} bytes here, and not {}",
                args.size
            ))
            .file(&path)
            .hint(format!("say --size {size}, or choose another --dir")));
        }
        cluster
    } else {
        new_cluster(args, clock)?
    };
    if let Some(mode) = &args.apply_sync {
        cluster.storage.apply_sync.clone_from(mode);
    }
    if let Some(mode) = &args.read_mode {
        cluster.storage.read_mode.clone_from(mode);
    }
    cluster.policy()?;
    cluster.read_mode()?;
    let mut ports = free_ports(STORES as usize * 2 + 1)?.into_iter();
    let mut next = || {
        let port = ports.next().unwrap_or_default();
        format!("127.0.0.1:{port}")
    };
    for store in &mut cluster.store {
        store.address = next();
        store.metrics = Some(next());
    }
    let listen = format!("127.0.0.1:{}", args.port);
    cluster.nbd = Nbd {
        listen: Some(args.listen.clone().unwrap_or(listen)),
        metrics: Some(next()),
    };
    let text = format!(
        "# Written by `ironstone-block dev` each time it begins.\n{}",
        cluster.text()?
    );
    let new = args.dir.join("cluster.toml.new");
    std::fs::write(&new, text).map_err(|e| Error::io("write", &new, e))?;
    fs.rename(&new, &path)?;
    let cluster = Cluster::read(&path)?;
    let was_used = was_used(fs, &cluster)?;
    for store in &cluster.store {
        let dir = cluster.dir_of(store);
        if fs.exists(&dir.join("STORE"))? {
            continue;
        }
        if was_used {
            return Err(Error::new(ErrorKind::NotFound, "there is no store any more")
                .file(&dir)
                .hint(
                    "bring it back, as another in its place lacks what this one has acknowledged; or begin anew with \
                     another --dir",
                ));
        }
        if fs.exists(&dir)? {
            // STORE is written last: without it there never was a store.
            std::fs::remove_dir_all(&dir).map_err(|e| Error::io("remove", &dir, e))?;
        }
        chunk::make_store(fs, &cluster, store.id, &dir, clock)?;
    }
    Ok(cluster)
}

/// Whether a store of the cluster was ever opened: then it may have acknowledged writes, and so may the others.
fn was_used(fs: &Arc<dyn FileSystem>, cluster: &Cluster) -> Result<bool> {
    for store in &cluster.store {
        let path = cluster.dir_of(store).join("STORE");
        if fs.exists(&path)? && Superblock::read(&*fs.open(&path, OpenHow::READ)?)?.openings > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

fn new_cluster(args: &cli::Dev, clock: &dyn Clock) -> Result<Cluster> {
    let mut uuid = [0; 16];
    Rng::new(chunk::seed(clock)).fill(&mut uuid);
    let store = |id| Store {
        id,
        dir: PathBuf::from(format!("store-{id}")),
        address: format!("127.0.0.1:{id}"),
        metrics: None,
    };
    let groups: Vec<u32> = (1..=args.groups).collect();
    let group = |&id: &u32| GroupEntry {
        id,
        replicas: (1..=STORES).collect(),
    };
    let mut cluster = Cluster {
        name: Uuid(uuid).to_string(),
        store: (1..=STORES).map(store).collect(),
        group: groups.iter().map(group).collect(),
        volume: vec![Volume {
            id: 1,
            name: VOLUME.to_owned(),
            size: args.size,
            groups,
            stripe_unit: Size(u64::from(Striping::default().unit_bytes)),
            stripe_count: Striping::default().count,
        }],
        nbd: Nbd::default(),
        storage: Storage {
            log: args.log,
            ..Storage::default()
        },
        folder: args.dir.clone(),
    };
    // Parsed from its own text, with all checks.
    cluster = Cluster::parse(&cluster.text()?, cluster.folder)?;
    cluster.storage.capacity = Size(cluster.chunks_of(1)? * SLOT_BYTES);
    Ok(cluster)
}

/// Ports that nobody uses now.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let failed =
        |e: std::io::Error| Error::new(ErrorKind::IoError, format!("no free port: {e}")).because(e);
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0"));
    let listeners: Vec<TcpListener> = listeners.collect::<std::io::Result<_>>().map_err(failed)?;
    let ports = listeners.iter().map(|l| Ok(l.local_addr()?.port()));
    ports.collect::<std::io::Result<_>>().map_err(failed)
}

fn start(
    args: &cli::Dev,
    cluster: &Cluster,
    children: &mut Children,
    is_stopped: &AtomicBool,
) -> Result<()> {
    let file = args.dir.join("cluster.toml");
    for store in &cluster.store {
        let id = store.id.to_string();
        let name = format!("chunk-{id}");
        children.start(&args.dir, &name, &["chunk", "--store", &id], &file, false)?;
    }
    children.start(&args.dir, "nbd", &["nbd"], &file, args.insecure)?;
    let begun = children.clock.monotonic_nanos();
    loop {
        children.check()?;
        let found = look(cluster);
        let leaders: u64 = found
            .chunks
            .iter()
            .filter_map(|(_, c)| Some(c.as_ref().ok()?.leaders))
            .sum();
        if let Some(Ok(nbd)) = &found.nbd
            && nbd.stores == STORES
            && leaders == cluster.group.len() as u64
        {
            let uri = match nbd.uri.strip_prefix("nbd+unix:///") {
                Some(rest) => format!("nbd+unix:///{VOLUME}{rest}"),
                None => format!("{}/{VOLUME}", nbd.uri),
            };
            print(&uri);
            let metrics = cluster.nbd.metrics.as_deref().unwrap_or("?");
            say(&format!(
                "{} stores in {}; what they say is in its *.log; http://{metrics}/metrics; Ctrl-C ends all",
                cluster.store.len(),
                args.dir.display()
            ));
            return Ok(());
        }
        if is_stopped.load(Ordering::Relaxed) {
            return Ok(());
        }
        let now = children.clock.monotonic_nanos();
        if now.saturating_sub(begun) > BEGIN.as_nanos() as u64 {
            return Err(Error::new(
                ErrorKind::TimedOut,
                "the processes do not come up within 60 s",
            )
            .hint("see the *.log in --dir"));
        }
        children.clock.sleep(STEP);
    }
}

/// Prints the rates until it is told to end. Errors: a child has ended.
fn watch(cluster: &Cluster, children: &mut Children, is_stopped: &AtomicBool) -> Result<()> {
    let mut looks = Looks::new();
    let is_seen = std::io::stderr().is_terminal();
    let every = if is_seen {
        LINE_STEPS
    } else {
        LINE_STEPS_UNSEEN
    };
    for step in 0_u64.. {
        if is_stopped.load(Ordering::Relaxed) {
            break;
        }
        children.check()?;
        if step.is_multiple_of(every)
            && let Some(line) = looks.line(cluster)
        {
            if is_seen {
                write!(std::io::stderr(), "\r\x1b[K{line}").unwrap_or_default();
            } else {
                say(&line);
            }
        }
        children.clock.sleep(STEP);
    }
    if is_seen {
        say("");
    }
    Ok(())
}

/// The processes of the cluster, in the order in which they were started.
struct Children {
    clock: Arc<dyn Clock>,
    all: Vec<(String, PathBuf, Child)>,
}

impl Children {
    fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            all: Vec::new(),
        }
    }

    fn start(
        &mut self,
        dir: &Path,
        name: &str,
        args: &[&str],
        cluster: &Path,
        insecure: bool,
    ) -> Result<()> {
        let log = dir.join(format!("{name}.log"));
        let failed = |e: std::io::Error| Error::io("start", name, e);
        #[expect(clippy::disallowed_methods, reason = "a child writes to it")]
        let err = std::fs::File::create(&log).map_err(|e| Error::io("create", &log, e))?;
        let executable = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(executable);
        command
            .args(args)
            .arg("--cluster")
            .arg(cluster)
            .arg("--with-parent")
            .arg(std::process::id().to_string());
        if insecure {
            command.arg("--insecure");
        }
        // In a process group of its own: Ctrl-C must reach only this process, which ends the others in
        // order.
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(err)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        self.all.push((name.to_owned(), log, child));
        Ok(())
    }

    /// Errors: a child has ended.
    fn check(&mut self) -> Result<()> {
        for (name, log, child) in &mut self.all {
            let status = child.try_wait();
            let status = status.map_err(|e| Error::io("wait for", name.as_str(), e))?;
            if let Some(status) = status {
                let text = std::fs::read_to_string(&*log).unwrap_or_default();
                let last = text.trim_end().lines().next_back().unwrap_or("nothing");
                return Err(Error::aborted(format!(
                    "{name} (pid {}) has ended: {status}; it said last: {last}",
                    child.id()
                ))
                .hint(format!("see {}", log.display())));
            }
        }
        Ok(())
    }

    /// Ends the last child that was started, then all others. Errors: one did not end well.
    fn end(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        if let Some(last) = self.all.pop() {
            outcome = self.end_all(vec![last]);
        }
        let rest = std::mem::take(&mut self.all);
        let ended = self.end_all(rest);
        outcome.and(ended)
    }

    fn end_all(&self, children: Vec<(String, PathBuf, Child)>) -> Result<()> {
        let mut living = Vec::new();
        for (name, log, mut child) in children {
            if matches!(child.try_wait(), Ok(None)) {
                tell(&child);
                living.push((name, log, child));
            }
        }
        let mut outcome = Ok(());
        for (name, log, mut child) in living {
            let begun = self.clock.monotonic_nanos();
            let status = loop {
                match child.try_wait() {
                    Ok(Some(status)) => break Some(status),
                    Err(_) => break None,
                    Ok(None) => {}
                }
                let now = self.clock.monotonic_nanos();
                if now.saturating_sub(begun) > END.as_nanos() as u64 {
                    // Its time is up.
                    child.kill().unwrap_or_default();
                    break child.wait().ok();
                }
                self.clock.sleep(STEP / 10);
            };
            if !status.is_some_and(|s| s.success()) {
                let status = status.map_or("?".to_owned(), |s| s.to_string());
                outcome = Err(Error::aborted(format!("{name} did not end well: {status}"))
                    .hint(format!("see {}", log.display())));
            }
        }
        outcome
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for (_, _, child) in &mut self.all {
            child.kill().unwrap_or_default();
            // It has ended by now.
            drop(child.wait());
        }
    }
}

fn tell(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        kill_process(pid, Signal::TERM).unwrap_or_default();
    }
}
