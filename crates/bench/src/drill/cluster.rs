//! A small cluster of real processes in a temporary folder: three stores and an NBD server.
//!
//! Only processes that were started here are ever signalled. They end with this process, however it
//! ends.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::net::{Net, inside};

/// The name of the volume.
pub(super) const VOLUME: &str = "vol0";
/// The id of the cluster.
pub(super) const UUID: u128 = 0x0d1c_5c2e_9d3a_4f4b_8a64_0d6f_2f0c_7a11;
const STORES: u64 = 3;
const STEP: Duration = Duration::from_millis(20);
/// The longest time for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
const HTTP_PATIENCE: Duration = Duration::from_secs(2);
const NBD: &str = "nbd";

/// The parameters of a cluster.
pub(super) struct Plan<'a> {
    pub(super) program: &'a Path,
    pub(super) dir: PathBuf,
    pub(super) volume_bytes: u64,
    pub(super) groups: u32,
    pub(super) net: Option<Net>,
}

/// A running cluster.
pub(super) struct Cluster {
    clock: Arc<dyn Clock>,
    is_interrupted: Arc<AtomicBool>,
    program: PathBuf,
    dir: PathBuf,
    addresses: BTreeMap<u64, SocketAddr>,
    metrics: BTreeMap<u64, SocketAddr>,
    // Processes are dropped before the namespaces that they are in.
    children: BTreeMap<String, Child>,
    net: Option<Net>,
}

impl Cluster {
    /// Makes the stores and starts all processes; afterwards all groups have leaders.
    pub(super) fn start(
        plan: Plan<'_>,
        clock: &Arc<dyn Clock>,
        is_interrupted: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let ports = free_ports(2 * STORES as usize)?;
        let mut ports = ports.into_iter();
        let mut next = |host| SocketAddr::from((host, ports.next().unwrap_or_default()));
        let (mut addresses, mut metrics) = (BTreeMap::new(), BTreeMap::new());
        for store in 1..=STORES {
            let host = plan.net.as_ref().map(|_| Net::address(store));
            addresses.insert(store, next(host.unwrap_or(Ipv4Addr::LOCALHOST)));
            metrics.insert(store, next(Ipv4Addr::LOCALHOST));
        }
        let mut cluster = Self {
            clock: Arc::clone(clock),
            is_interrupted: Arc::clone(is_interrupted),
            program: plan.program.to_owned(),
            dir: plan.dir,
            addresses,
            metrics,
            children: BTreeMap::new(),
            net: plan.net,
        };
        let text = cluster.text(plan.volume_bytes, plan.groups);
        let file = cluster.file();
        fs::create_dir_all(&cluster.dir)
            .and_then(|()| fs::write(&file, text))
            .map_err(|e| format!("{}: {e}", file.display()))?;
        for store in 1..=STORES {
            cluster.start_store(store)?;
        }
        cluster.start_nbd()?;
        cluster.wait("all groups have leaders", |c| c.committed().is_some())?;
        Ok(cluster)
    }

    fn text(&self, volume_bytes: u64, groups: u32) -> String {
        let mut text = format!("cluster = \"{UUID:032x}\"\n");
        for (store, address) in &self.addresses {
            let metrics = self.metrics.get(store).map(ToString::to_string);
            text += &format!(
                "[[store]]\nid = {store}\ndir = \"store-{store}\"\naddress = \"{address}\"\n\
                 metrics = \"{}\"\n",
                metrics.unwrap_or_default()
            );
        }
        for group in 1..=groups {
            text += &format!("[[group]]\nid = {group}\nreplicas = [1, 2, 3]\n");
        }
        let all: Vec<String> = (1..=groups).map(|g| g.to_string()).collect();
        let capacity = volume_bytes * 2 + (256 << 20);
        text + &format!(
            "[[volume]]\nid = 1\nname = \"{VOLUME}\"\nsize = \"{volume_bytes}\"\ngroups = [{}]\n\
             [nbd]\nlisten = \"unix:{}\"\n\
             [storage]\ncapacity = \"{capacity}\"\nlog = \"64M\"\n",
            all.join(", "),
            self.socket().display()
        )
    }

    fn file(&self) -> PathBuf {
        self.dir.join("cluster.toml")
    }

    /// The socket for NBD clients.
    pub(super) fn socket(&self) -> PathBuf {
        self.dir.join("nbd.socket")
    }

    /// The address of a store.
    pub(super) fn address(&self, store: u64) -> Option<SocketAddr> {
        self.addresses.get(&store).copied()
    }

    fn space(&self, store: u64) -> Option<String> {
        self.net.as_ref().map(|_| Net::store(store))
    }

    pub(super) fn start_store(&mut self, store: u64) -> Result<(), String> {
        let (name, id) = (format!("chunk-{store}"), store.to_string());
        let space = self.space(store);
        self.spawn(&name, &["chunk", "--make", "--store", &id], space)
    }

    fn start_nbd(&mut self) -> Result<(), String> {
        let space = self.net.as_ref().map(|_| Net::hub());
        self.spawn(NBD, &["nbd"], space)
    }

    fn spawn(
        &mut self,
        name: &str,
        arguments: &[&str],
        space: Option<String>,
    ) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("{name}: {e}");
        let log = self.dir.join(format!("{name}.log"));
        let log = fs::OpenOptions::new().create(true).append(true).open(log);
        let mut command = match &space {
            // `ip` executes the program itself: the pid stays the same.
            Some(space) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", space]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(arguments)
            .args([
                "--with-parent",
                &std::process::id().to_string(),
                "--cluster",
            ])
            .arg(self.file());
        if space.is_some() {
            command.arg("--insecure");
        }
        // In a separate process group, so that Ctrl-C reaches only this process.
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.map_err(failed)?)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        self.children.insert(name.to_owned(), child);
        Ok(())
    }

    /// Kills a store with SIGKILL.
    pub(super) fn kill_store(&mut self, store: u64) {
        if let Some(mut child) = self.children.remove(&format!("chunk-{store}")) {
            kill(&mut child);
            child.wait().ok();
        }
    }

    /// Kills all processes with SIGKILL at once.
    pub(super) fn kill_all(&mut self) {
        for child in self.children.values_mut() {
            kill(child);
        }
        for child in self.children.values_mut() {
            child.wait().ok();
        }
        self.children.clear();
    }

    /// Starts all processes after [`Cluster::kill_all`].
    pub(super) fn start_all(&mut self) -> Result<(), String> {
        for store in 1..=STORES {
            self.start_store(store)?;
        }
        self.start_nbd()
    }

    /// Sends SIGTERM to all, the NBD server first. Errors: a process does not end successfully.
    pub(super) fn end(&mut self) -> Result<(), String> {
        let mut names: Vec<String> = self.children.keys().cloned().collect();
        names.sort_by_key(|name| name != NBD);
        for name in names {
            let Some(mut child) = self.children.remove(&name) else {
                continue;
            };
            terminate(&child);
            let since = self.clock.monotonic_nanos();
            let status = loop {
                if let Some(status) = child.try_wait().map_err(|e| format!("{name}: {e}"))? {
                    break Some(status);
                }
                if self.is_late(since) {
                    kill(&mut child);
                    child.wait().ok();
                    break None;
                }
                self.clock.sleep(STEP);
            };
            if !status.is_some_and(|s| s.success()) {
                return Err(format!("{name} did not end well: {}", self.said(&name)));
            }
        }
        Ok(())
    }

    /// Runs `ctl store check` on all stores, which must not be open. Errors: damage.
    pub(super) fn check_stores(&self) -> Result<(), String> {
        for store in 1..=STORES {
            let output = Command::new(&self.program)
                .args(["ctl", "store", "check", "--dir"])
                .arg(self.dir.join(format!("store-{store}")))
                .output()
                .map_err(|e| e.to_string())?;
            if !output.status.success() {
                let text = [output.stdout, output.stderr].concat();
                let text = String::from_utf8_lossy(&text);
                return Err(format!("store {store} is damaged: {}", text.trim()));
            }
        }
        Ok(())
    }

    /// The status of a store, if it answers.
    fn status(&self, store: u64) -> Option<Value> {
        let address = *self.metrics.get(&store)?;
        let space = self.space(store);
        let text = inside(space.as_deref(), || get(address, "/status").ok());
        serde_json::from_str(&text.ok()??).ok()
    }

    /// The store that leads the first group.
    pub(super) fn leader(&self) -> Result<u64, String> {
        let mut leader = None;
        self.wait("there is a leader", |c| {
            // Of several stores that believe to lead, the one with the latest term does.
            let believes = (1..=STORES).filter_map(|store| {
                let status = c.status(store)?;
                let groups = status["groups"].as_array()?.iter();
                let mut led = groups.filter(|g| g["group"] == 1 && g["role"] == "leader");
                Some((led.next()?["term"].as_u64()?, store))
            });
            leader = believes.max().map(|(_, store)| store);
            leader.is_some()
        })?;
        leader.ok_or_else(|| "there is no leader".to_owned())
    }

    /// The committed index of each group; `None` until each has a leader.
    fn committed(&self) -> Option<BTreeMap<u64, u64>> {
        let mut committed = BTreeMap::new();
        for store in 1..=STORES {
            for group in self.status(store)?["groups"].as_array()? {
                group["leader"].as_u64()?;
                let most = committed.entry(group["group"].as_u64()?).or_insert(0);
                *most = (*most).max(group["committed"].as_u64()?);
            }
        }
        (!committed.is_empty()).then_some(committed)
    }

    /// Waits until each store has everything that was committed a moment ago, while clients go on.
    pub(super) fn catch_up(&self) -> Result<(), String> {
        let mut goal = None;
        self.wait("all stores have caught up", |c| {
            let before = std::mem::replace(&mut goal, c.committed());
            let Some(before) = before else { return false };
            (1..=STORES).all(|store| {
                let Some(status) = c.status(store) else {
                    return false;
                };
                before.iter().all(|(id, most)| {
                    let groups = status["groups"].as_array().into_iter().flatten();
                    let mut of = groups.filter(|g| g["group"] == *id);
                    of.any(|g| g["applied"].as_u64() >= Some(*most))
                })
            })
        })
    }

    /// Waits for a condition. Errors: it does not hold within a minute; a process has ended by
    /// itself; Ctrl-C.
    pub(super) fn wait(
        &self,
        what: &str,
        mut is_so: impl FnMut(&Self) -> bool,
    ) -> Result<(), String> {
        let since = self.clock.monotonic_nanos();
        while !is_so(self) {
            self.pause(STEP)?;
            if self.is_late(since) {
                let all: Vec<String> = self.children.keys().map(|n| self.said(n)).collect();
                return Err(format!("it does not happen: {what}; {}", all.join("; ")));
            }
        }
        Ok(())
    }

    /// Sleeps. Errors: a process has ended by itself; Ctrl-C.
    pub(super) fn pause(&self, time: Duration) -> Result<(), String> {
        let until = self.clock.monotonic_nanos() + time.as_nanos() as u64;
        loop {
            if self.is_interrupted.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            for (name, child) in &self.children {
                // A process that has ended stays a zombie until it is waited for.
                let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()));
                let state = stat.unwrap_or_default();
                let state = state
                    .rsplit_once(") ")
                    .map(|(_, rest)| rest.starts_with('Z'));
                if state != Some(false) {
                    return Err(format!("{name} has ended by itself: {}", self.said(name)));
                }
            }
            let now = self.clock.monotonic_nanos();
            if now >= until {
                return Ok(());
            }
            let left = Duration::from_nanos(until - now);
            self.clock.sleep(left.min(STEP * 5));
        }
    }

    fn is_late(&self, since: u64) -> bool {
        let now = self.clock.monotonic_nanos();
        now.saturating_sub(since) > PATIENCE.as_nanos() as u64
    }

    /// The last line of a process's output.
    fn said(&self, name: &str) -> String {
        let text = fs::read_to_string(self.dir.join(format!("{name}.log"))).unwrap_or_default();
        let last = text.trim_end().lines().next_back().unwrap_or("nothing");
        format!("{name} said last: {last}")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_all();
    }
}

fn kill(child: &mut Child) {
    // It may have ended already.
    child.kill().ok();
}

fn terminate(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        kill_process(pid, Signal::TERM).ok();
    }
}

/// Ports that are free now.
fn free_ports(count: usize) -> Result<Vec<u16>, String> {
    let listeners = (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listeners: Result<Vec<TcpListener>, _> = listeners.collect();
    let ports = listeners.and_then(|all| all.iter().map(|l| Ok(l.local_addr()?.port())).collect());
    ports.map_err(|e: std::io::Error| format!("free ports: {e}"))
}

/// The body of a page.
fn get(address: SocketAddr, page: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, HTTP_PATIENCE)?;
    stream.set_read_timeout(Some(HTTP_PATIENCE))?;
    write!(
        stream,
        "GET {page} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    Ok(body.unwrap_or_default())
}
