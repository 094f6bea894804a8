//! Loop devices for measurements: made, mounted, and always removed.
//!
//! Everything is in one folder under the target directory, which alone identifies what belongs to a
//! run: a loop device whose backing file is in the folder belongs to it, and no other device is
//! ever touched. So the same [`sweep`] ends a run, cleans up after a crashed one, and is called by
//! the watcher process that outlives a killed one.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use io::{OpenHow, SyncKind};

use super::stat::Counters;
use super::throttle::Controller;
use super::trace::{self, Trace};

/// How often, and at which interval, a busy file system is retried: 10 s in all.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(200);

/// The extension of images, and the prefix of mount points.
const IMAGE: &str = "img";
const MOUNT: &str = "mnt-";

/// The most seconds for mkfs, mount, umount or losetup.
const TOOL_SECONDS: u32 = 120;

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fs {
    Ext4,
    Xfs,
}

impl Fs {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The program that makes it, and the Debian package of that program.
    pub(crate) fn maker(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
        }
    }

    /// Options that keep the image's blocks allocated (no discard) and that defer no work, which
    /// would be counted later.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &[
                "-q",
                "-F",
                "-E",
                "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
            ],
            Self::Xfs => &["-q", "-f", "-K"],
        }
    }
}

/// What the device does with a write before it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Cache {
    /// A volatile cache: a write is durable after a flush.
    WriteBack,
    /// None, or one protected against power loss: a write is durable when it is done.
    WriteThrough,
}

impl Cache {
    /// The name in `queue/write_cache`.
    fn kernel(self) -> &'static str {
        match self {
            Self::WriteBack => "write back",
            Self::WriteThrough => "write through",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WriteBack => "write-back",
            Self::WriteThrough => "write-through",
        }
    }
}

/// A loop device with a new file system, mounted.
pub(crate) struct Disk {
    /// The name of the device: `loop0`.
    pub(crate) device: String,
    /// Where the file system is mounted.
    pub(crate) mount: PathBuf,
    /// The counters of the device.
    pub(crate) counters: Counters,
}

impl Disk {
    /// Makes a disk whose files in `dir` have this name. The image is first filled with zeros, so
    /// that the file system below allocates nothing during the measurement. On an error, [`sweep`]
    /// has to remove what was made.
    pub(crate) fn make(
        dir: &Path,
        name: &str,
        fs: Fs,
        cache: Cache,
        mebibytes: u64,
    ) -> Result<Self, String> {
        let image = dir.join(format!("{name}.{IMAGE}"));
        let mount = dir.join(format!("{MOUNT}{name}"));
        zeros(&image, mebibytes << 20)?;
        fs::create_dir_all(&mount).map_err(|e| format!("{}: {e}", mount.display()))?;
        let path = tool(
            Command::new("losetup")
                .args(["--find", "--show", "--direct-io=on"])
                .arg(&image),
        )?;
        let path = path.trim();
        let device = path.trim_start_matches("/dev/").to_owned();
        let queue = format!("/sys/block/{device}/queue/write_cache");
        fs::write(&queue, cache.kernel()).map_err(|e| format!("{queue}: {e}"))?;
        tool(Command::new(fs.maker().0).args(fs.options()).arg(path))?;
        tool(
            Command::new("mount")
                .args(["-t", fs.name(), "-o", "noatime"])
                .arg(path)
                .arg(&mount),
        )?;
        let set = fs::read_to_string(&queue).map_err(|e| format!("{queue}: {e}"))?;
        if set.trim() != cache.kernel() {
            return Err(format!(
                "{queue} is '{}' after '{}' was written to it",
                set.trim(),
                cache.kernel()
            ));
        }
        let trace = Trace::start(dir, &device, &number(&device)?);
        Ok(Self {
            counters: Counters::new(device.clone(), trace),
            device,
            mount,
        })
    }

    /// The disk that `dir` is on, and the kind of its cache. Nothing is made.
    pub(crate) fn own(dir: &Path) -> Result<(Self, &'static str), String> {
        let device = device_of(dir)
            .ok_or_else(|| format!("no block device is known for {}", dir.display()))?;
        let queue = format!("/sys/block/{device}/queue/write_cache");
        let set = fs::read_to_string(&queue).map_err(|e| format!("{queue}: {e}"))?;
        let cache = if set.trim() == Cache::WriteBack.kernel() {
            Cache::WriteBack
        } else {
            Cache::WriteThrough
        };
        let disk = Self {
            counters: Counters::new(device.clone(), None),
            device,
            mount: dir.to_path_buf(),
        };
        Ok((disk, cache.name()))
    }

    /// The number of the device: `7:0`.
    pub(crate) fn number(&self) -> Result<String, String> {
        number(&self.device)
    }
}

/// The whole device that holds a directory: `vda`.
pub(crate) fn device_of(dir: &Path) -> Option<String> {
    let device = fs::metadata(dir).ok()?.st_dev();
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let path = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let whole = if path.join("partition").exists() {
        path.parent()?
    } else {
        &path
    };
    Some(whole.file_name()?.to_str()?.to_owned())
}

fn number(device: &str) -> Result<String, String> {
    let path = format!("/sys/block/{device}/dev");
    let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    Ok(text.trim().to_owned())
}

/// Makes a file of zeros whose blocks are all allocated and written.
fn zeros(path: &Path, bytes: u64) -> Result<(), String> {
    let write = || {
        let file = io::posix::Posix::shared().open(path, OpenHow::CREATE_TRUNCATE)?;
        file.zero(0, bytes)?;
        file.sync(SyncKind::All)
    };
    write().map_err(|e: base::Error| e.to_string())
}

/// Unmounts and detaches every loop device whose backing file is in `dir`, releases its limit, and
/// removes the images. Returns what was done. Errors: what could not be done.
pub(crate) fn sweep(dir: &Path) -> Result<Vec<String>, String> {
    let mut done = Vec::new();
    let mut failed = Vec::new();
    let controller = Controller::find().ok();
    trace::end(dir);
    for (device, backing) in ours(dir) {
        match detach(&device, controller.as_ref()) {
            Ok(()) => done.push(format!("/dev/{device} ({})", backing.display())),
            Err(e) => failed.push(e),
        }
    }
    if !failed.is_empty() {
        return Err(failed.join("; "));
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        // A folder that is still a mount point stays.
        if path.extension().is_some_and(|e| e == IMAGE) {
            fs::remove_file(path).ok();
        } else if entry.file_name().to_string_lossy().starts_with(MOUNT) {
            fs::remove_dir(path).ok();
        }
    }
    Ok(done)
}

/// The loop devices with a backing file in `dir`.
fn ours(dir: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
            let backing = backing(&text, dir)?;
            Some((entry.file_name().into_string().ok()?, backing))
        })
        .collect()
}

/// The backing file in the kernel's text, if it is in `dir`.
fn backing(text: &str, dir: &Path) -> Option<PathBuf> {
    let text = text.trim_end_matches('\n');
    let path = Path::new(text.strip_suffix(" (deleted)").unwrap_or(text));
    (path.parent() == Some(dir)).then(|| path.to_owned())
}

fn detach(device: &str, controller: Option<&Controller>) -> Result<(), String> {
    let number = number(device)?;
    if let Some(controller) = controller {
        controller.release(&number)?;
    }
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for point in mount_points(&mounts(), &number) {
        // It is busy while a killed benchmark is still ending.
        retry(|| tool(Command::new("umount").arg(&point)).map(drop))?;
    }
    let path = format!("/dev/{device}");
    // A device that is detached may be reused at once by another process.
    let attached = || fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).ok();
    let mine = attached();
    tool(Command::new("losetup").arg("--detach").arg(&path))?;
    retry(|| match attached() {
        Some(now) if Some(&now) == mine.as_ref() => Err(format!("{path} is still in use")),
        _ => Ok(()),
    })
}

fn retry(mut act: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let mut tries = 0;
    loop {
        match act() {
            Err(_) if tries < TRIES => tries += 1,
            result => return result,
        }
        std::thread::sleep(PAUSE);
    }
}

/// The mount points of the device with this number, the last mounted first.
fn mount_points(mountinfo: &str, number: &str) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2) == Some(number))
            .then(|| fields.nth(1))
            .flatten()
            .map(|point| PathBuf::from(unescape(point)))
    });
    let mut points: Vec<_> = points.collect();
    points.reverse();
    points
}

/// Decodes mountinfo's escapes, such as `\040` for a space.
pub(crate) fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|c| u8::from_str_radix(c, 8).ok());
        if let Some(code) = code {
            out.push(char::from(code));
            out.push_str(&part[3..]);
        } else {
            out.push('\\');
            out.push_str(part);
        }
    }
    out
}

/// Runs a tool for a limited time. Returns its output.
fn tool(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut bounded = Command::new("timeout");
    bounded
        .args(["--foreground", "--kill-after=5"])
        .arg(TOOL_SECONDS.to_string())
        .arg(&name)
        .args(command.get_args());
    let output = bounded.output().map_err(|e| format!("timeout: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    Err(format!(
        "{name} {} failed ({}): {}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_in_the_folder_are_ours() {
        let dir = Path::new("/repo/target/bench-device");
        let is = |text: &str| backing(text, dir).map(|p| p.display().to_string());
        let image = "/repo/target/bench-device/ext4.img";
        assert_eq!(is(&format!("{image}\n")).as_deref(), Some(image));
        assert_eq!(is(&format!("{image} (deleted)\n")).as_deref(), Some(image));
        assert_eq!(is("/repo/target/bench-device-2/ext4.img\n"), None);
        assert_eq!(is("/repo/target/ext4.img\n"), None);
        assert_eq!(is("/var/lib/snapd/core.snap\n"), None);
        assert_eq!(is("\n"), None);
    }

    #[test]
    fn mount_points_of_a_device() {
        let info = "29 1 254:0 / / rw,noatime - ext4 /dev/vda rw\n\
            90 29 7:0 / /repo/target/a\\040b rw - ext4 /dev/loop0 rw\n\
            91 29 7:1 / /elsewhere rw - xfs /dev/loop1 rw\n\
            92 29 7:0 /sub /again rw - ext4 /dev/loop0 rw\n";
        assert_eq!(
            mount_points(info, "7:0"),
            [Path::new("/again"), Path::new("/repo/target/a b")]
        );
        assert!(mount_points(info, "7:2").is_empty());
    }

    #[test]
    fn escapes_of_mountinfo() {
        assert_eq!(unescape("/plain"), "/plain");
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescape("/odd\\9"), "/odd\\9");
    }

    #[test]
    fn the_device_of_a_directory_is_whole() {
        if let Some(device) = device_of(Path::new("/")) {
            assert!(Path::new(&format!("/sys/block/{device}")).exists());
        }
    }
}
