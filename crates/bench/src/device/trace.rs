//! Counts writes with data exactly, with the kernel's trace of block requests.
//!
//! On a device with a volatile cache, the counters of `/sys/block/<device>/stat` leave a range (see
//! `stat`). The trace event `block_rq_issue` distinguishes a write from an empty flush by its
//! sectors. The trace itself is not read: a filter selects the device's writes, and the count is
//! the number of events in the buffer plus the number of overwritten ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The prefix of this program's trace instances; the device's name follows.
const INSTANCE: &str = "ironstone-bench-device-";

/// The mount point of tracefs in the run's folder, if it is not mounted elsewhere.
const MOUNT: &str = "mnt-trace";

/// A running count of one device's writes.
pub(crate) struct Trace {
    instance: PathBuf,
}

impl Trace {
    /// Starts counting for a device (`loop0`, `7:0`). `None`, with nothing left behind, if the
    /// kernel has no such trace.
    pub(crate) fn start(dir: &Path, name: &str, number: &str) -> Option<Self> {
        let device = device_number(number)?;
        let root = root(dir)?;
        let instance = root.join("instances").join(format!("{INSTANCE}{name}"));
        let trace = Self {
            instance: instance.clone(),
        };
        fs::create_dir_all(&instance).ok()?;
        let event = instance.join("events/block/block_rq_issue");
        let filter = format!("dev == {device} && nr_sector > 0 && rwbs ~ \"*W*\"");
        let set = fs::write(instance.join("buffer_size_kb"), "64")
            .and_then(|()| fs::write(event.join("filter"), filter))
            .and_then(|()| fs::write(event.join("enable"), "1"));
        if set.is_err() || trace.writes().is_none() {
            remove(&instance);
            return None;
        }
        Some(trace)
    }

    /// The number of writes issued so far.
    pub(crate) fn writes(&self) -> Option<u64> {
        let mut sum = 0;
        for entry in fs::read_dir(self.instance.join("per_cpu")).ok()?.flatten() {
            sum += events(&fs::read_to_string(entry.path().join("stats")).ok()?)?;
        }
        Some(sum)
    }
}

/// Ends the traces that this run, or a crashed one, has started.
pub(crate) fn end(dir: &Path) {
    let Some(root) = mounted() else { return };
    let instances = fs::read_dir(root.join("instances")).into_iter().flatten();
    for entry in instances.flatten() {
        if entry.file_name().to_string_lossy().starts_with(INSTANCE) {
            remove(&entry.path());
        }
    }
    if root == dir.join(MOUNT) {
        Command::new("umount").arg(&root).output().ok();
    }
    fs::remove_dir(dir.join(MOUNT)).ok();
}

/// An instance that cannot be removed is found and reused by the next run.
fn remove(instance: &Path) {
    fs::write(instance.join("events/block/block_rq_issue/enable"), "0").ok();
    fs::remove_dir(instance).ok();
}

/// The mount point of tracefs, which is mounted in `dir` if it is not mounted elsewhere.
fn root(dir: &Path) -> Option<PathBuf> {
    if let Some(root) = mounted() {
        return Some(root);
    }
    let root = dir.join(MOUNT);
    fs::create_dir_all(&root).ok()?;
    let mount = Command::new("mount")
        .args(["-t", "tracefs", "tracefs"])
        .arg(&root)
        .output();
    if mount.is_ok_and(|output| output.status.success()) {
        return Some(root);
    }
    fs::remove_dir(&root).ok();
    None
}

fn mounted() -> Option<PathBuf> {
    tracefs(&fs::read_to_string("/proc/self/mountinfo").ok()?)
}

/// The first mount of tracefs in `/proc/self/mountinfo`.
fn tracefs(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?;
        right
            .starts_with("tracefs ")
            .then(|| PathBuf::from(super::disk::unescape(point)))
    })
}

/// The kernel's internal number of a device such as `7:3`: 12 bits of major, 20 of minor.
fn device_number(number: &str) -> Option<u32> {
    let (major, minor) = number.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(major << 20 | minor)
}

/// The events in a processor's `stats` file: those in the buffer and the overwritten ones.
fn events(stats: &str) -> Option<u64> {
    let of = |name: &str| -> Option<u64> {
        let line = stats.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(of("entries:")? + of("overrun:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_there_and_overwritten_count() {
        let stats = "entries: 120\noverrun: 3000\ncommit overrun: 7\nbytes: 4800\n\
            oldest event ts: 1.5\nnow ts: 2.5\ndropped events: 0\nread events: 0\n";
        assert_eq!(events(stats), Some(3120));
        assert_eq!(events("entries: 120\n"), None);
    }

    #[test]
    fn device_numbers_are_the_kernels() {
        assert_eq!(device_number("7:3"), Some(7_340_035));
        assert_eq!(device_number("loop0"), None);
    }

    #[test]
    fn the_mount_is_found() {
        let info = "24 20 0:22 / /sys rw - sysfs sysfs rw\n\
            30 24 0:12 / /sys/kernel/tracing rw,nosuid - tracefs tracefs rw\n";
        assert_eq!(tracefs(info), Some("/sys/kernel/tracing".into()));
        assert_eq!(tracefs("24 20 0:22 / /sys rw - sysfs sysfs rw\n"), None);
    }
}
