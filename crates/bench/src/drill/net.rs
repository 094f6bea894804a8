//! A network namespace for each store, and one with a bridge between them, where the NBD server is.
//!
//! ```text
//!   drill-PID-1 [eth0 10.99.0.1] ── s1 ┐
//!   drill-PID-2 [eth0 10.99.0.2] ── s2 ┼── br0 [10.99.0.100] drill-PID-hub
//!   drill-PID-3 [eth0 10.99.0.3] ── s3 ┘
//! ```
//!
//! A store is cut off by nft rules at the ends of its link, which drop incoming packets. Nothing
//! outside of these namespaces is touched. They are removed when this is dropped; the next start
//! removes those of a killed run.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const FOLDER: &str = "/run/netns";
const PREFIX: &str = "drill-";

/// The traffic that a cut lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// None.
    Both,
    /// Packets from the store; it receives none.
    Deaf,
    /// Packets to the store; nobody receives its packets.
    Mute,
}

impl Cut {
    pub(super) const ALL: [Self; 3] = [Self::Both, Self::Deaf, Self::Mute];
}

/// Why namespaces are not possible here; `None` if they are.
pub(super) fn lacking() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("partitions need root, for network namespaces and nft".to_owned());
    }
    let missing = [["ip", "-V"], ["nft", "-v"]]
        .into_iter()
        .find(|[tool, version]| {
            let mut command = Command::new(tool);
            command
                .arg(version)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            !command.status().is_ok_and(|s| s.success())
        });
    if let Some([tool, _]) = missing {
        let package = if tool == "ip" { "iproute2" } else { "nftables" };
        return Some(format!(
            "partitions need the program {tool} (package {package})"
        ));
    }
    probe()
        .err()
        .map(|e| format!("partitions need what this machine does not allow: {e}"))
}

/// Makes a namespace with a link and a rule: containers often allow none.
fn probe() -> Result<(), String> {
    let space = format!("{PREFIX}{}-probe", std::process::id());
    let tried = ip(&["netns", "add", &space])
        .and_then(|()| ip_in(&space, "link add s0 type veth peer name eth0"))
        .and_then(|()| ip_in(&space, "link add br0 type bridge"))
        .and_then(|()| nft(&space, &drop_rules("eth0")));
    // Its content is removed with it.
    let gone = if tried.is_err() && !Path::new(FOLDER).join(&space).exists() {
        Ok(())
    } else {
        ip(&["netns", "del", &space])
    };
    tried.and(gone)
}

/// The namespaces of a cluster.
pub(super) struct Net {
    stores: u64,
}

impl Net {
    /// Makes all namespaces and links.
    pub(super) fn new(stores: u64) -> Result<Self, String> {
        sweep();
        // From here on, dropping it removes what there is.
        let net = Self { stores };
        let hub = Self::hub();
        ip(&["netns", "add", &hub])?;
        for line in [
            "link set lo up",
            "link add br0 type bridge",
            "link set br0 up",
        ] {
            ip_in(&hub, line)?;
        }
        ip_in(&hub, "addr add 10.99.0.100/24 dev br0")?;
        for store in 1..=stores {
            let space = Self::store(store);
            ip(&["netns", "add", &space])?;
            let line = format!("link add s{store} type veth peer name eth0 netns {space}");
            ip_in(&hub, &line)?;
            ip_in(&hub, &format!("link set s{store} master br0 up"))?;
            ip_in(&space, "link set lo up")?;
            let address = Self::address(store);
            ip_in(&space, &format!("addr add {address}/24 dev eth0"))?;
            ip_in(&space, "link set eth0 up")?;
        }
        Ok(net)
    }

    /// The address of a store.
    pub(super) fn address(store: u64) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, store as u8)
    }

    /// The namespace of a store.
    pub(super) fn store(store: u64) -> String {
        format!("{PREFIX}{}-{store}", std::process::id())
    }

    /// The namespace with the bridge.
    pub(super) fn hub() -> String {
        format!("{PREFIX}{}-hub", std::process::id())
    }

    /// Cuts a store off.
    pub(super) fn cut(store: u64, cut: Cut) -> Result<(), String> {
        if cut != Cut::Mute {
            nft(&Self::store(store), &drop_rules("eth0"))?;
        }
        if cut != Cut::Deaf {
            nft(&Self::hub(), &drop_rules(&format!("s{store}")))?;
        }
        Ok(())
    }

    /// Removes the cut of a store.
    pub(super) fn heal(store: u64, cut: Cut) -> Result<(), String> {
        if cut != Cut::Mute {
            nft(&Self::store(store), "delete table netdev drill\n")?;
        }
        if cut != Cut::Deaf {
            nft(&Self::hub(), "delete table netdev drill\n")?;
        }
        Ok(())
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let stores = (1..=self.stores).map(Self::store);
        for space in stores.chain([Self::hub()]) {
            if Path::new(FOLDER).join(&space).exists() {
                ip(&["netns", "del", &space]).unwrap_or_else(|e| eprintln!("{e}"));
            }
        }
    }
}

/// Removes the namespaces of runs whose process is gone.
fn sweep() {
    for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let pid = rest
            .split('-')
            .next()
            .and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            ip(&["netns", "del", &name]).unwrap_or_else(|e| eprintln!("{e}"));
        }
    }
}

/// Calls a function on a thread in a namespace; without a namespace, on this thread.
pub(super) fn inside<T: Send>(
    space: Option<&str>,
    call: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    let Some(space) = space else {
        return Ok(call());
    };
    let path = PathBuf::from(FOLDER).join(space);
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let file = fs::OpenOptions::new()
        .read(true)
        .open(&path)
        .map_err(failed)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let network = Some(LinkNameSpaceType::Network);
            let moved = move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), network);
            moved.map_err(|e| failed(e.into()))?;
            Ok(call())
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn drop_rules(device: &str) -> String {
    format!(
        "table netdev drill {{\n chain in {{\n  type filter hook ingress device \"{device}\" priority 0; \
         policy drop;\n }}\n}}\n"
    )
}

fn nft(space: &str, rules: &str) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("nft: {e}");
    let mut child = Command::new("ip")
        .args(["netns", "exec", space, "nft", "-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(rules.as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "nft: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

fn ip_in(space: &str, line: &str) -> Result<(), String> {
    let arguments: Vec<&str> = ["-n", space].into_iter().chain(line.split(' ')).collect();
    ip(&arguments)
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|e| format!("ip: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), said.trim()))
}
