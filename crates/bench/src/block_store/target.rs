//! The targets: Ironstone in a mode, and its rivals, each behind a URI that fio writes to.
//!
//! | target | how it is started |
//! |---|---|
//! | Ironstone | `ironstone-block dev --apply-sync MODE`: three stores and an NBD server |
//! | single copy | `qemu-nbd -f raw --cache=none -t FILE`: one copy, not durable |
//! | no disk | `qemu-nbd --image-opts driver=null-co`: the protocol alone |
//! | quorum | three `qemu-nbd --cache=directsync` on Unix sockets, and one with `driver=quorum,vote-threshold=2` over them |

use std::fs;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::metrics::Counts;
use super::process::{self, Process};
use crate::device::Stop;

/// The size of the volume in a cluster that is made only for its cluster file.
const SMALL: u64 = 64 << 20;
/// The most seconds until a target is ready.
const START_SECONDS: u32 = 120;

/// The kinds of targets.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Ironstone; written back in the background
    Background,
    /// Ironstone; written back all at once
    Snapshot,
    /// Ironstone; written in place before the answer
    Odsync,
    /// qemu-nbd with one raw file, without syncs
    Single,
    /// qemu-nbd without a disk
    Null,
    /// qemu-nbd over three others that sync, two of which must agree
    Quorum,
    /// Files without a server in front of them
    #[value(skip)]
    Files,
}

impl Kind {
    /// The targets with a server.
    pub(super) const ALL: [Self; 6] = [
        Self::Background,
        Self::Snapshot,
        Self::Odsync,
        Self::Single,
        Self::Null,
        Self::Quorum,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Snapshot => "snapshot",
            Self::Odsync => "odsync",
            Self::Single => "single copy",
            Self::Null => "no disk",
            Self::Quorum => "quorum",
            Self::Files => "files",
        }
    }

    pub(super) fn is_ironstone(self) -> bool {
        matches!(self, Self::Background | Self::Snapshot | Self::Odsync)
    }

    /// The number of copies of a volume.
    pub(super) fn copies(self) -> u64 {
        match self {
            Self::Null | Self::Files => 0,
            Self::Single => 1,
            Self::Background | Self::Snapshot | Self::Odsync | Self::Quorum => 3,
        }
    }
}

/// Why a target is not available.
pub(super) enum Absent {
    /// The program does not have it.
    NotBuilt(String),
    Failed(String),
}

impl From<String> for Absent {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl From<Stop> for Absent {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed(message) => Self::Failed(message),
            Stop::Needs(needs) => Self::Failed(needs.join("; ")),
        }
    }
}

/// What is needed to start a target.
pub(super) struct Setup<'a> {
    /// A folder for each of three copies; they may be on one disk.
    pub(super) copies: [&'a Path; 3],
    /// For files that are not measured: logs of processes, the cluster file.
    pub(super) beside: &'a Path,
    /// Bytes of the volume.
    pub(super) size: u64,
    /// The program `ironstone-block`, or why there is none.
    pub(super) ironstone: &'a Result<PathBuf, String>,
    pub(super) qemu_nbd: &'a Path,
}

/// A running target. When it is dropped, its processes end, and its files are removed.
pub(super) struct Target {
    pub(super) kind: Kind,
    pub(super) uri: String,
    // Servers come before the servers they use.
    processes: Vec<Process>,
    /// The cluster file of Ironstone.
    cluster: Option<PathBuf>,
    made: Vec<PathBuf>,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.processes.clear();
        for path in &self.made {
            // The rest is removed with the folder of the run.
            if path.is_dir() {
                fs::remove_dir_all(path).ok();
            } else {
                fs::remove_file(path).ok();
            }
        }
    }
}

impl Target {
    pub(super) fn start(kind: Kind, setup: &Setup<'_>) -> Result<Self, Absent> {
        let mut target = Self {
            kind,
            uri: String::new(),
            processes: Vec::new(),
            cluster: None,
            made: Vec::new(),
        };
        match kind {
            Kind::Background => target.ironstone("background", setup)?,
            Kind::Snapshot => target.ironstone("snapshot", setup)?,
            Kind::Odsync => target.ironstone("odsync", setup)?,
            Kind::Single => target.single(setup)?,
            Kind::Null => {
                let disk = format!("driver=null-co,size={}", setup.size);
                target.qemu(setup, "null", &["--image-opts".to_owned(), disk])?;
            }
            Kind::Quorum => target.quorum(setup)?,
            Kind::Files => return Err(Absent::Failed("files have no server".to_owned())),
        }
        Ok(target)
    }

    fn ironstone(&mut self, mode: &str, setup: &Setup<'_>) -> Result<(), Absent> {
        let program = setup
            .ironstone
            .as_ref()
            .map_err(|e| Absent::NotBuilt(e.clone()))?;
        let is_one_disk = setup.copies[0] == setup.copies[1];
        let dir = if is_one_disk {
            setup.copies[0]
        } else {
            setup.beside
        }
        .join(mode);
        self.made.push(dir.clone());
        make_dir(&dir)?;
        let file = dir.join("cluster.toml");
        if !is_one_disk {
            // The program makes a small cluster, whose file is then changed: the stores' folders
            // and sizes.
            drop(Self::dev(program, &dir, mode, setup, SMALL)?);
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let text = sized(&text, setup.size);
            let stores = setup.copies.map(|copy| copy.join(format!("{mode}-store")));
            let text = moved(&text, &stores).map_err(|e| format!("{}: {e}", file.display()))?;
            fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
            for number in 1..=stores.len() {
                let old = dir.join(format!("store-{number}"));
                fs::remove_dir_all(&old).map_err(|e| format!("{}: {e}", old.display()))?;
            }
            self.made.extend(stores);
        }
        let (process, uri) = Self::dev(program, &dir, mode, setup, setup.size)?;
        self.uri = uri;
        self.cluster = Some(file);
        self.processes.push(process);
        Ok(())
    }

    /// Starts the cluster of a folder, which is made if it does not exist.
    fn dev(
        program: &Path,
        dir: &Path,
        mode: &str,
        setup: &Setup<'_>,
        size: u64,
    ) -> Result<(Process, String), Absent> {
        let arguments = [
            "dev".to_owned(),
            format!("--dir={}", dir.display()),
            format!("--size={size}"),
            format!("--apply-sync={mode}"),
            format!("--port={}", process::free_port()?),
        ];
        let log = setup.beside.join(format!("{mode}.log"));
        let mut process = Process::start(program, &arguments, &log)?;
        let uri = process
            .wait(START_SECONDS, |p| uri(&p.said()))
            .map_err(|e| reason(&e).map_or(Absent::Failed(e), Absent::NotBuilt))?;
        Ok((process, uri))
    }

    fn single(&mut self, setup: &Setup<'_>) -> Result<(), Absent> {
        let file = self.file(setup, 0, "single")?;
        let arguments = ["-f", "raw", "--cache=none"].map(str::to_owned);
        let mut arguments = arguments.to_vec();
        arguments.push(file);
        self.qemu(setup, "single", &arguments)?;
        Ok(())
    }

    fn quorum(&mut self, setup: &Setup<'_>) -> Result<(), Absent> {
        let mut disk = "driver=quorum,vote-threshold=2".to_owned();
        for number in 0..3 {
            let name = format!("quorum-{number}");
            let mut arguments = ["-f", "raw", "--cache=directsync"]
                .map(str::to_owned)
                .to_vec();
            arguments.push(self.file(setup, number, &name)?);
            // Over TCP, many small writes at once wait for delayed acknowledgements: 400 per second
            // instead of 8,000.
            let socket = setup.beside.join(format!("{name}.sock"));
            let at = format!("--socket={}", socket.display());
            self.qemu_at(setup, &name, &[at], &arguments, || {
                UnixStream::connect(&socket).is_ok()
            })?;
            let child = format!("children.{number}");
            disk += &format!(
                ",{child}.driver=nbd,{child}.server.type=unix,{child}.server.path={}",
                socket.display()
            );
        }
        self.qemu(setup, "quorum", &["--image-opts".to_owned(), disk])?;
        // The server that uses the others ends first.
        self.processes.reverse();
        Ok(())
    }

    /// Makes a file for a copy of the volume, and returns its path. Its blocks are allocated when
    /// the volume is filled.
    fn file(&mut self, setup: &Setup<'_>, copy: usize, name: &str) -> Result<String, Absent> {
        let folder = setup.copies.get(copy).copied().unwrap_or(setup.beside);
        let path = folder.join(format!("{name}.raw"));
        let made = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .and_then(|file| file.set_len(setup.size));
        made.map_err(|e| format!("{}: {e}", path.display()))?;
        self.made.push(path.clone());
        Ok(path.display().to_string())
    }

    /// Starts the qemu-nbd that fio connects to.
    fn qemu(&mut self, setup: &Setup<'_>, name: &str, more: &[String]) -> Result<(), Absent> {
        let port = process::free_port()?;
        let at = ["-b", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned);
        self.qemu_at(setup, name, &at, more, || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        })?;
        self.uri = format!("nbd://127.0.0.1:{port}");
        Ok(())
    }

    /// Starts a qemu-nbd with this address.
    fn qemu_at(
        &mut self,
        setup: &Setup<'_>,
        name: &str,
        at: &[String],
        more: &[String],
        answers: impl Fn() -> bool,
    ) -> Result<(), Absent> {
        let mut arguments = ["-t", "-e", "16"].map(str::to_owned).to_vec();
        arguments.extend_from_slice(at);
        arguments.extend_from_slice(more);
        let log = setup.beside.join(format!("{name}.log"));
        let mut process = Process::start_single(setup.qemu_nbd, &arguments, &log)?;
        process.wait(START_SECONDS, |_| answers().then_some(()))?;
        self.processes.push(process);
        Ok(())
    }

    /// The pids of all processes that do the work.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.processes.iter().flat_map(Process::tree).collect()
    }

    /// The peak memory of the stores' processes, in MiB.
    pub(super) fn store_memory_mib(&self) -> Option<f64> {
        let stores = self
            .pids()
            .into_iter()
            .filter(|pid| process::has_argument(*pid, "chunk"));
        stores.filter_map(process::peak_memory_mib).reduce(f64::max)
    }

    /// The counters of Ironstone's stores; empty for other targets.
    pub(super) fn counts(&self) -> Counts {
        let text = self
            .cluster
            .as_ref()
            .and_then(|path| fs::read_to_string(path).ok());
        text.map(|text| Counts::of(&text)).unwrap_or_default()
    }
}

fn make_dir(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// The first `nbd://…` in a program's output, if its line is complete.
fn uri(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("nbd://")?;
    let end = rest.find(char::is_whitespace)?;
    Some(format!("nbd://{}", rest.get(..end)?))
}

/// A cluster file with a volume of this size, and capacity for it: as much as `dev` takes, slots of
/// 16 MiB and 64 KiB.
fn sized(cluster: &str, size: u64) -> String {
    let capacity = size.div_ceil(16 << 20) * (16448 << 10);
    let line = |line: &str| {
        if line.starts_with("size = ") {
            format!("size = \"{}K\"", size >> 10)
        } else if line.starts_with("capacity = ") {
            format!("capacity = \"{}K\"", capacity >> 10)
        } else {
            line.to_owned()
        }
    };
    let lines: Vec<String> = cluster.lines().map(line).collect();
    lines.join("\n") + "\n"
}

/// A cluster file with the stores in other folders.
fn moved(cluster: &str, stores: &[PathBuf; 3]) -> Result<String, String> {
    let mut text = cluster.to_owned();
    for (number, store) in (1..).zip(stores) {
        let old = format!("dir = \"store-{number}\"");
        if !text.contains(&old) {
            return Err(format!("no line {old}"));
        }
        text = text.replace(&old, &format!("dir = \"{}\"", store.display()));
    }
    Ok(text)
}

/// The beginnings of errors that name something unavailable.
const ABSENT: [&str; 4] = [
    "not implemented",
    "not supported",
    "notsupported",
    "not built",
];

/// What a program reports as unavailable; `None` if it reports something else.
fn reason(said: &str) -> Option<String> {
    said.lines().find_map(|line| {
        let lower = line.to_lowercase();
        let start = ABSENT.iter().filter_map(|word| lower.find(word)).min()?;
        // Without the path of the log.
        let told = line.get(start..)?;
        let told = told.split_once(" (see ").map_or(told, |(told, _)| told);
        Some(told.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uri_is_found_when_its_line_is_whole() {
        assert_eq!(uri("starting\nready: nbd://127.0.0.1:10809/vo"), None);
        let said = "ready: nbd://127.0.0.1:10809/vol0\n";
        assert_eq!(uri(said).as_deref(), Some("nbd://127.0.0.1:10809/vol0"));
        assert_eq!(uri("nothing\n"), None);
    }

    #[test]
    fn stores_are_moved() {
        let cluster = "[[store]]\nid = 1\ndir = \"store-1\"\n[[store]]\ndir = \"store-2\"\n";
        let stores = [1, 2, 3].map(|n| PathBuf::from(format!("/disk-{n}/s")));
        assert!(moved(cluster, &stores).unwrap_err().contains("store-3"));
        let sized = sized(
            "size = \"64M\"\nlog = \"1G\"\ncapacity = \"65M\"\n",
            1 << 30,
        );
        assert_eq!(
            sized,
            "size = \"1048576K\"\nlog = \"1G\"\ncapacity = \"1052672K\"\n"
        );
        let whole = format!("{cluster}dir = \"store-3\"\n");
        let text = moved(&whole, &stores).unwrap();
        assert!(
            text.contains("dir = \"/disk-2/s\"") && !text.contains("\"store-"),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_built_says_so_itself() {
        let said = "dev ended (exit status: 1): error: chunk-1 has ended; it said last: error: \
            Not implemented: apply_sync=odsync is not built yet (see /a/chunk-1.log)\n";
        let told = "Not implemented: apply_sync=odsync is not built yet";
        assert_eq!(reason(said).as_deref(), Some(told));
        assert_eq!(reason("error: gone"), None);
    }
}
