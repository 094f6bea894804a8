//! A cluster of real processes in a directory of its own; everything of it ends with the test.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base::clock::SystemClock;
use tempfile::TempDir;

pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_ironstone-block");
/// How many steps to wait for an expected event.
const PATIENCE_STEPS: u32 = 600;
const STEP: Duration = Duration::from_millis(50);

pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::shared();
    for _ in 0..PATIENCE_STEPS {
        if is_so() {
            return;
        }
        clock.sleep(STEP);
    }
    panic!("it does not happen: {what}");
}

/// Runs the binary to its end, for at most a minute.
pub(crate) fn run(args: &[&str]) -> Output {
    Command::new("timeout")
        .args(["-k", "5", "60", BIN])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Finds the tool; if it is missing, prints what is skipped.
pub(crate) fn find(tool: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(tool))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("SKIPPED: no {tool}: install the Debian package {package}");
    }
    found
}

/// Runs a tool for at most two minutes; returns its output. Panics if it fails.
pub(crate) fn tool(tool: &Path, args: &[&str]) -> String {
    let out = Command::new("timeout")
        .args(["-k", "5", "120"])
        .arg(tool)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success(),
        "{} {args:?}:\n{text}{err}",
        tool.display()
    );
    text
}

/// A directory on a disk, which stores need.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Ports that nobody uses now, below those that the system gives to outgoing connections. A process may listen
/// on its port only later, and again after a restart: until then, any connection on the machine could take one
/// of those.
pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(7919);
    let mut all = Vec::new();
    for _ in 0..10_000 {
        let nth = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 12_000 + (nth % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            all.push(port);
        }
        if all.len() == count {
            return all;
        }
    }
    panic!("no free ports");
}

pub(crate) struct Cluster {
    pub(crate) dir: TempDir,
    pub(crate) addresses: Vec<u16>,
    /// The ports of `/metrics` of each store, and of the NBD server at the end.
    pub(crate) metrics: Vec<u16>,
    children: BTreeMap<String, Child>,
}

impl Cluster {
    /// Three stores and an NBD server, all up; the log is short, and checkpoints are frequent.
    pub(crate) fn start() -> Self {
        Self::start_with("log = \"64M\"\ncheckpoint = \"4M\"\n")
    }

    /// The same, with other lines for `[storage]`.
    pub(crate) fn start_with(storage: &str) -> Self {
        Self::start_on(storage, None)
    }

    /// The same; the third store may be in a directory elsewhere.
    pub(crate) fn start_on(storage: &str, third: Option<&Path>) -> Self {
        let dir = folder();
        let ports = free_ports(7);
        let mut text = "cluster = \"0d1c5c2e-9d3a-4f4b-8a64-0d6f2f0c7a11\"\n".to_owned();
        for id in 1..=3 {
            let own = PathBuf::from(format!("store-{id}"));
            let at = third.filter(|_| id == 3).unwrap_or(&own).display();
            text.push_str(&format!(
                "[[store]]\nid = {id}\ndir = \"{at}\"\naddress = \"127.0.0.1:{}\"\nmetrics = \"127.0.0.1:{}\"\n",
                ports[id - 1],
                ports[id + 2]
            ));
        }
        for id in 1..=2 {
            text.push_str(&format!("[[group]]\nid = {id}\nreplicas = [1, 2, 3]\n"));
        }
        text.push_str(&format!(
            "[[volume]]\nid = 1\nname = \"vol0\"\nsize = \"64M\"\ngroups = [1, 2]\n\
             [nbd]\nlisten = \"unix:{}\"\nmetrics = \"127.0.0.1:{}\"\n\
             [storage]\ncapacity = \"256M\"\n{storage}",
            dir.path().join("nbd").display(),
            ports[6]
        ));
        std::fs::write(dir.path().join("cluster.toml"), text).unwrap();
        let mut cluster = Self {
            dir,
            addresses: ports[..3].to_vec(),
            metrics: ports[3..].to_vec(),
            children: BTreeMap::new(),
        };
        for id in 1..=3 {
            cluster.start_store(id);
        }
        cluster.start_nbd();
        cluster.wait_until_well();
        cluster
    }

    pub(crate) fn file(&self) -> String {
        self.dir
            .path()
            .join("cluster.toml")
            .to_str()
            .unwrap()
            .to_owned()
    }

    pub(crate) fn uri(&self) -> String {
        format!(
            "nbd+unix:///vol0?socket={}",
            self.dir.path().join("nbd").display()
        )
    }

    pub(crate) fn start_store(&mut self, id: u64) {
        self.spawn(
            &format!("chunk-{id}"),
            &["chunk", "--make", "--store", &id.to_string()],
        );
    }

    pub(crate) fn start_nbd(&mut self) {
        self.spawn("nbd", &["nbd"]);
    }

    fn spawn(&mut self, name: &str, args: &[&str]) {
        let log = self.log_path(name);
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log);
        let child = Command::new(BIN)
            .args(args)
            .args(["--cluster", &self.file()])
            .args(["--with-parent", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        self.children.insert(name.to_owned(), child);
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    /// The output of a process.
    pub(crate) fn said(&self, name: &str) -> String {
        let mut text = String::new();
        #[expect(clippy::disallowed_methods, reason = "the test's own file")]
        let mut file = std::fs::File::open(self.log_path(name)).unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self, name: &str) {
        let mut child = self.children.remove(name).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str, signal: &str) {
        let pid = self.children[name].id().to_string();
        tool(Path::new("/bin/kill"), &[signal, &pid]);
    }

    /// Sends SIGTERM; returns the exit code.
    pub(crate) fn end(&mut self, name: &str) -> Option<i32> {
        self.signal(name, "-TERM");
        self.ended(name)
    }

    /// Waits until a process has ended; returns the exit code.
    pub(crate) fn ended(&mut self, name: &str) -> Option<i32> {
        let mut child = self.children.remove(name).unwrap();
        let mut status = None;
        wait_for("a process ends", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }

    /// The output of `ctl status --json`.
    pub(crate) fn status(&self) -> serde_json::Value {
        let out = run(&["ctl", "status", "--json", "--cluster", &self.file()]);
        serde_json::from_slice(&out.stdout).unwrap()
    }

    pub(crate) fn wait_until_well(&self) {
        wait_for("all processes answer and all groups have leaders", || {
            let status = self.status();
            status["well"] == true && status["nbd"]["stores"] == 3
        });
    }

    /// The store that leads a group.
    pub(crate) fn leader(&self, group: u64) -> u64 {
        let mut leader = None;
        wait_for("a group has a leader", || {
            let status = self.status();
            let chunks = status["chunks"].as_array().unwrap();
            let leads = |c: &&serde_json::Value| {
                let groups = c["groups"].as_array();
                groups.is_some_and(|g| {
                    g.iter()
                        .any(|g| g["group"] == group && g["role"] == "leader")
                })
            };
            leader = chunks.iter().find(leads).and_then(|c| c["store"].as_u64());
            leader.is_some()
        });
        leader.unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (name, child) in &mut self.children {
            // SIGKILL also ends a stopped process.
            drop(child.kill());
            drop(child.wait());
            if std::thread::panicking() {
                let log = self.dir.path().join(format!("{name}.log"));
                println!(
                    "{name}:\n{}",
                    std::fs::read_to_string(log).unwrap_or_default()
                );
            }
        }
    }
}
