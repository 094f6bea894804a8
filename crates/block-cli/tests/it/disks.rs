//! Loop devices and mounted file systems; everything is undone when dropped, even after a panic.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base::clock::SystemClock;
use tempfile::TempDir;

use crate::cluster::{find, folder, tool, wait_for};

/// Whether file systems can be created and mounted here; prints what is missing.
pub(crate) fn can_mount() -> bool {
    let tools = [
        ("mkfs.ext4", "e2fsprogs"),
        ("fsck.ext4", "e2fsprogs"),
        ("losetup", "mount"),
        ("mount", "mount"),
        ("umount", "mount"),
    ];
    if !tools.into_iter().all(|(t, p)| find(t, p).is_some()) {
        return false;
    }
    let user = tool(Path::new("/usr/bin/id"), &["-u"]);
    if user.trim() != "0" {
        println!("SKIPPED: mounting needs root");
        return false;
    }
    let out = Command::new("losetup").arg("--find").output().unwrap();
    if !out.status.success() {
        println!("SKIPPED: no loop devices: load the kernel's module `loop`");
    }
    out.status.success()
}

pub(crate) fn sh(program: &str, args: &[&str]) -> String {
    tool(&find(program, "mount or e2fsprogs").unwrap(), args)
}

/// Runs a command to its end, but waits at most half a minute; returns whether it succeeded.
fn attempt(program: &str, args: &[&str]) -> bool {
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    let clock = SystemClock::shared();
    for _ in 0..600 {
        if let Ok(Some(status)) = child.try_wait() {
            return status.success();
        }
        clock.sleep(Duration::from_millis(50));
    }
    false
}

/// A loop device; detached when dropped.
pub(crate) struct Loop {
    pub(crate) device: String,
}

impl Loop {
    pub(crate) fn of(file: &Path) -> Self {
        let file = file.to_str().unwrap();
        let device = sh("losetup", &["--find", "--show", file]);
        Self {
            device: device.trim().to_owned(),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        attempt("losetup", &["--detach", &self.device]);
    }
}

/// A mounted file system; unmounted when dropped.
pub(crate) struct Mount {
    at: PathBuf,
    is_mounted: bool,
}

impl Mount {
    pub(crate) fn new(device: &str, at: &Path, options: &str) -> Self {
        Self::of("ext4", device, at, options)
    }

    pub(crate) fn of(kind: &str, device: &str, at: &Path, options: &str) -> Self {
        let point = at.to_str().unwrap();
        sh("mount", &["-t", kind, "-o", options, device, point]);
        Self {
            at: at.to_path_buf(),
            is_mounted: true,
        }
    }

    /// Unmounts it, which writes everything back.
    pub(crate) fn end(mut self) {
        sh("umount", &[self.at.to_str().unwrap()]);
        self.is_mounted = false;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let at = self.at.to_str().unwrap_or_default();
        if self.is_mounted && !attempt("umount", &[at]) {
            attempt("umount", &["--lazy", at]);
        }
    }
}

/// A file system of its own in a file.
pub(crate) struct Disk {
    // Dropped in this order.
    mount: Option<Mount>,
    device: Loop,
    folder: TempDir,
}

impl Disk {
    pub(crate) fn new(bytes: u64) -> Self {
        let mut disk = Self::not_mounted(bytes, "mkfs.ext4", &["-q", "-F"]);
        disk.mount("errors=remount-ro");
        disk
    }

    /// With a file system of another kind; its `mkfs` must be installed.
    pub(crate) fn of(kind: &str, bytes: u64) -> Self {
        let mut disk = Self::not_mounted(bytes, &format!("mkfs.{kind}"), &["-q", "-f"]);
        let device = &disk.device.device;
        disk.mount = Some(Mount::of(kind, device, &disk.path(), "rw"));
        disk
    }

    fn not_mounted(bytes: u64, mkfs: &str, options: &[&str]) -> Self {
        let folder = folder();
        let (image, at) = (folder.path().join("image"), folder.path().join("disk"));
        std::fs::write(&image, "").unwrap();
        sh(
            "truncate",
            &["-s", &bytes.to_string(), image.to_str().unwrap()],
        );
        std::fs::create_dir(at).unwrap();
        sh(mkfs, &[options, &[image.to_str().unwrap()]].concat());
        Self {
            mount: None,
            device: Loop::of(&image),
            folder,
        }
    }

    /// Its mount point.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// Its device, without `/dev/`.
    pub(crate) fn device(&self) -> &str {
        self.device.device.trim_start_matches("/dev/")
    }

    pub(crate) fn mount(&mut self, options: &str) {
        self.mount = Some(Mount::new(&self.device.device, &self.path(), options));
    }

    pub(crate) fn unmount(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.end();
        }
    }

    /// Repairs it; it must not be mounted.
    pub(crate) fn mend(&self) {
        // 1: errors were corrected.
        attempt("fsck.ext4", &["-f", "-y", &self.device.device]);
    }
}

/// A volume as a file, through `nbdfuse`; ended when dropped.
pub(crate) struct Fuse {
    child: Child,
    folder: TempDir,
}

impl Fuse {
    pub(crate) fn of(nbdfuse: &Path, uri: &str) -> Self {
        let folder = folder();
        let file = folder.path().join("volume");
        let child = Command::new(nbdfuse)
            .args([&file, Path::new(uri)])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let fuse = Self { child, folder };
        wait_for("nbdfuse shows the volume", || file.is_file());
        fuse
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("volume")
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let at = self.folder.path().to_str().unwrap_or_default().to_owned();
        if !attempt("umount", &[&at]) {
            attempt("umount", &["--lazy", &at]);
        }
        let clock = SystemClock::shared();
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            clock.sleep(Duration::from_millis(50));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
