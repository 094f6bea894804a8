//! Starts and ends processes, and measures their cost and that of their children.
//!
//! Only processes that were started here are ever signalled, by their pid. Each of them gets
//! a signal if this process dies for any reason.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::device::Stop;

/// How long a process may take to end after the request.
const GRACE: Duration = Duration::from_secs(20);
/// The interval of polling.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// A running program, which is ended when this is dropped.
pub(super) struct Process {
    child: Child,
    name: String,
    /// The file with both of its outputs.
    log: PathBuf,
}

impl Process {
    /// Starts a program; its output goes to `log`. The program gets SIGTERM if this process dies,
    /// so that it can end its own children.
    pub(super) fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self, String> {
        Self::start_with(program, arguments, log, "TERM")
    }

    /// The same, but the program gets SIGKILL if this process dies. It is for a program without
    /// children that does not obey each SIGTERM: `qemu-nbd` 7.2 forgets one that comes while it
    /// starts.
    pub(super) fn start_single(
        program: &Path,
        arguments: &[String],
        log: &Path,
    ) -> Result<Self, String> {
        Self::start_with(program, arguments, log, "KILL")
    }

    fn start_with(
        program: &Path,
        arguments: &[String],
        log: &Path,
        signal: &str,
    ) -> Result<Self, String> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let made = fs::write(log, "").and_then(|()| {
            let open = || fs::OpenOptions::new().append(true).open(log);
            Ok((open()?, open()?))
        });
        let (out, err) = made.map_err(|e| format!("{}: {e}", log.display()))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", signal])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|e| format!("{name}: {e}"))?;
        Ok(Self {
            child,
            name: name.into_owned(),
            log: log.to_owned(),
        })
    }

    /// Its output so far.
    pub(super) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until `ready` returns something. Errors: the process has ended, or the time is up;
    /// with its output.
    pub(super) fn wait<T>(
        &mut self,
        seconds: u32,
        mut ready: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, String> {
        for _ in 0..u128::from(seconds) * 1000 / TICK.as_millis() {
            if let Some(found) = ready(self) {
                return Ok(found);
            }
            if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
                return Err(format!(
                    "{} ended ({status}): {}",
                    self.name,
                    self.said().trim()
                ));
            }
            std::thread::sleep(TICK);
        }
        let said = self.said();
        Err(format!(
            "{} is not ready after {seconds} s: {}",
            self.name,
            said.trim()
        ))
    }

    /// Its pid and those of all its descendants.
    pub(super) fn tree(&self) -> Vec<u32> {
        let mut all = vec![self.child.id()];
        let parents = parents();
        let mut at = 0;
        while let Some(&parent) = all.get(at) {
            all.extend(
                parents
                    .iter()
                    .filter(|(_, p)| **p == parent)
                    .map(|(child, _)| *child),
            );
            at += 1;
        }
        all
    }

    /// Waits for its end. Errors: it has failed, or did not end in time.
    pub(super) fn finish(&mut self, seconds: u64) -> Result<(), String> {
        for _ in 0..u128::from(seconds) * 1000 / TICK.as_millis() {
            let status = self.child.try_wait();
            match status.map_err(|e| format!("{}: {e}", self.name))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    let said = self.said();
                    return Err(format!("{} failed ({status}): {}", self.name, said.trim()));
                }
                None => std::thread::sleep(TICK),
            }
        }
        Err(format!(
            "{} is not done after {seconds} s, and is ended",
            self.name
        ))
    }

    /// Asks it to end, and waits; then kills it and its descendants.
    fn end(&mut self) {
        let tree = self.tree();
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(self.child.id(), Signal::TERM);
            for _ in 0..GRACE.as_millis() / TICK.as_millis() {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(TICK);
            }
        }
        // The pid cannot be reused until the process was waited for.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
            let left = parents();
            for pid in tree.iter().skip(1).filter(|pid| left.contains_key(pid)) {
                signal(*pid, Signal::KILL);
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// An error means that it has ended already.
fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        kill_process(pid, signal).ok();
    }
}

/// The parent of each process.
fn parents() -> BTreeMap<u32, u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, Times::of(&stat)?.parent))
        })
        .collect()
}

/// The relevant fields of `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Times {
    parent: u32,
    /// Processor time of all its threads, in clock ticks.
    ticks: u64,
}

impl Times {
    /// The name in parentheses may contain anything, so that fields are counted from its end.
    fn of(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            ticks: ticks(11)? + ticks(12)?,
        })
    }
}

/// The processor time of processes so far, in microseconds. Processes that have ended do not count.
pub(super) fn cpu_micros(pids: &[u32]) -> f64 {
    let ticks: u64 = pids
        .iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok())
        .filter_map(|stat| Some(Times::of(&stat)?.ticks))
        .sum();
    ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64
}

/// The peak memory of a process, in MiB.
pub(super) fn peak_memory_mib(pid: u32) -> Option<f64> {
    peak(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn peak(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

/// Whether a process has this word among its arguments.
pub(super) fn has_argument(pid: u32, word: &str) -> bool {
    let mut line = Vec::new();
    let path = PathBuf::from(format!("/proc/{pid}/cmdline"));
    let read = fs::OpenOptions::new()
        .read(true)
        .open(path)
        .and_then(|mut file| file.read_to_end(&mut line));
    read.is_ok()
        && line
            .split(|b| *b == 0)
            .skip(1)
            .any(|w| w == word.as_bytes())
}

/// A free port of the loopback interface.
pub(super) fn free_port() -> Result<u16, Stop> {
    let found = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    Ok(found.map_err(|e| format!("a free port: {e}"))?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_do_not_matter() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194560 1 0 0 0 120 30 0 0 20 0 5 0 100 1 1";
        let times = Times::of(stat).unwrap();
        assert_eq!((times.parent, times.ticks), (3, 150));
        assert_eq!(Times::of("7 (a"), None);
        assert_eq!(peak("VmPeak:\t 9 kB\nVmHWM:\t  2048 kB\n"), Some(2.0));
    }

    #[test]
    fn a_process_is_started_watched_and_ended() {
        let dir = std::env::temp_dir().join(format!("bench-block-process-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let script = "echo ready; sleep 1000 & wait";
        let arguments = ["-c".to_owned(), script.to_owned()];
        let mut process = Process::start(Path::new("sh"), &arguments, &dir.join("log")).unwrap();
        process
            .wait(10, |p| p.said().contains("ready").then_some(()))
            .unwrap();
        let tree = process
            .wait(10, |p| {
                // Before a child executes its program, it still has the arguments of its parent.
                Some(p.tree()).filter(|tree| tree.len() == 2 && has_argument(tree[1], "1000"))
            })
            .unwrap();
        assert!(!has_argument(tree[1], "sleep"));
        assert!(peak_memory_mib(tree[0]).unwrap() > 0.0);
        signal(tree[1], Signal::TERM);
        let ended = process.wait(10, |_| None::<()>).unwrap_err();
        assert!(
            ended.contains("ended") && ended.contains("ready"),
            "{ended}"
        );
        drop(process);
        let arguments = ["1000".to_owned()];
        let mut long = Process::start(Path::new("sleep"), &arguments, &dir.join("log")).unwrap();
        assert!(long.finish(1).unwrap_err().contains("not done after 1 s"));
        drop(long);
        fs::remove_dir_all(&dir).unwrap();
    }
}
