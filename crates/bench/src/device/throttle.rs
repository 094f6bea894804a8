//! A disk as slow as a hard disk: a loop device that the kernel limits to a number of writes per
//! second.
//!
//! This uses the block I/O controller of control groups. Version 1 can limit the root group, so
//! that kernel threads (the journal's) are limited as well. Version 2 cannot limit its root: this
//! process moves into a separate group while the slow disk is measured, and writes of kernel
//! threads are not limited, which favours the engine that writes more journal. The report says
//! which version it was.

use std::fs;
use std::path::{Path, PathBuf};

/// The group that version 2 needs.
const GROUP: &str = "ironstone-bench-device";

/// The controller of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    /// The root of the `blkio` hierarchy, and this process's group in it (`/` for the root).
    V1 { root: PathBuf, own: String },
    /// The root of the unified hierarchy, which has the controller `io`, and this process's group.
    V2 { root: PathBuf, own: String },
}

impl Controller {
    /// Finds the controller. Errors: there is none; the error says what was found instead.
    pub(crate) fn find() -> Result<Self, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        let controllers =
            |root: &Path| fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let found = detect(
            &read("/proc/self/mountinfo")?,
            &read("/proc/self/cgroup")?,
            controllers,
        );
        let found = found.ok_or(
            "a control group that limits block I/O: blkio (version 1) or io (version 2), mounted \
             and with CONFIG_BLK_DEV_THROTTLING in the kernel",
        )?;
        if let Self::V1 { root, .. } = &found {
            let file = root.join("blkio.throttle.write_iops_device");
            if !file.exists() {
                return Err(format!("{} (CONFIG_BLK_DEV_THROTTLING)", file.display()));
            }
        }
        Ok(found)
    }

    /// A description for the report, in one line.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::V1 { .. } => "blkio, control groups version 1: every write counts",
            Self::V2 { .. } => {
                "io.max, control groups version 2: kernel threads' writes do not count"
            }
        }
    }

    /// Limits the writes per second to a device (`7:0`) of this process and its children.
    pub(crate) fn limit(&self, device: &str, writes_per_second: u32) -> Result<(), String> {
        match self {
            Self::V1 { root, own } => {
                if own != "/" {
                    enter(root)?;
                }
                let file = root.join("blkio.throttle.write_iops_device");
                write(&file, &format!("{device} {writes_per_second}"))
            }
            Self::V2 { root, .. } => {
                write(&root.join("cgroup.subtree_control"), "+io")?;
                let group = root.join(GROUP);
                fs::create_dir_all(&group).map_err(|e| format!("{}: {e}", group.display()))?;
                write(
                    &group.join("io.max"),
                    &format!("{device} wiops={writes_per_second}"),
                )?;
                enter(&group)
            }
        }
    }

    /// Removes the limit. Does nothing if there is none: it is also called after a crash.
    pub(crate) fn release(&self, device: &str) -> Result<(), String> {
        match self {
            Self::V1 { root, own } => {
                write(
                    &root.join("blkio.throttle.write_iops_device"),
                    &format!("{device} 0"),
                )?;
                if own == "/" {
                    return Ok(());
                }
                enter(&root.join(own.trim_start_matches('/')))
            }
            Self::V2 { root, own } => {
                let group = root.join(GROUP);
                if !group.exists() {
                    return Ok(());
                }
                // Read after the move: the group of this process is the one to remove.
                let back = own.trim_start_matches('/');
                enter(&root.join(if back == GROUP { "" } else { back }))?;
                fs::remove_dir(&group).map_err(|e| format!("{}: {e}", group.display()))
            }
        }
    }
}

fn enter(group: &Path) -> Result<(), String> {
    write(&group.join("cgroup.procs"), &std::process::id().to_string())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads `/proc/self/mountinfo` and `/proc/self/cgroup`; `controllers` returns the content of
/// `cgroup.controllers` of a unified hierarchy. The first version is preferred, because it limits
/// all processes.
fn detect(
    mountinfo: &str,
    cgroup: &str,
    controllers: impl Fn(&Path) -> String,
) -> Option<Controller> {
    let mut second = None;
    for line in mountinfo.lines() {
        // id parent major:minor root MOUNT-POINT options … - KIND source SUPER-OPTIONS
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let mut right = right.split(' ');
        let (Some(root), Some(kind)) = (left.split(' ').nth(4), right.next()) else {
            continue;
        };
        let root = PathBuf::from(root);
        let options = right.nth(1).unwrap_or_default();
        if kind == "cgroup" && options.split(',').any(|o| o == "blkio") {
            let own = group_of(cgroup, "blkio")?;
            return Some(Controller::V1 { root, own });
        }
        if kind == "cgroup2" && controllers(&root).split_whitespace().any(|c| c == "io") {
            let own = group_of(cgroup, "")?;
            second = Some(Controller::V2 { root, own });
        }
    }
    second
}

/// The group in the hierarchy that has a controller; the unified hierarchy has an empty list of
/// controllers.
fn group_of(cgroup: &str, controller: &str) -> Option<String> {
    cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (list, path) = (parts.next()?, parts.next()?);
        list.split(',')
            .any(|name| name == controller)
            .then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "31 25 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        36 25 0:32 / /sys/fs/cgroup/blkio rw,relatime shared:9 - cgroup cgroup rw,blkio\n";
    const HYBRID: &str =
        "40 25 0:36 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
    const V2: &str = "24 20 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_first_version_is_preferred() {
        let found = detect(
            &format!("{HYBRID}{V1}"),
            "7:blkio:/work\n1:cpu:/\n0::/\n",
            |_| "hugetlb io\n".to_owned(),
        );
        assert_eq!(
            found,
            Some(Controller::V1 {
                root: "/sys/fs/cgroup/blkio".into(),
                own: "/work".to_owned()
            })
        );
    }

    #[test]
    fn the_second_version_needs_its_controller() {
        let cgroup = "0::/user.slice/session-1.scope\n";
        let found = detect(V2, cgroup, |root| {
            assert_eq!(root, Path::new("/sys/fs/cgroup"));
            "cpuset cpu io memory pids\n".to_owned()
        });
        assert_eq!(
            found,
            Some(Controller::V2 {
                root: "/sys/fs/cgroup".into(),
                own: "/user.slice/session-1.scope".to_owned()
            })
        );
        assert_eq!(detect(V2, cgroup, |_| "cpu hugetlb\n".to_owned()), None);
    }

    #[test]
    fn without_either_there_is_none() {
        assert_eq!(detect("", "", |_| String::new()), None);
        let others = "31 25 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\nodd line\n";
        assert_eq!(detect(others, "1:cpu:/\n", |_| String::new()), None);
    }
}
