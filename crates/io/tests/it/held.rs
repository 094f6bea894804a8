//! Directories that are held while their names are given to other directories.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use io::posix::Posix;
use io::{FileSystem, OpenHow};

/// A parent directory, a held directory in it with a file, and the file system that holds it.
struct Held {
    top: tempfile::TempDir,
    dir: PathBuf,
    fs: Arc<dyn FileSystem>,
}

impl Held {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("dir");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("file"), b"mine").unwrap();
        let fs = io::hold(&Posix::shared(), &dir).unwrap();
        fs.check_held().unwrap();
        Self { top, dir, fs }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// The content that the process reads under the path.
    fn read(&self) -> Vec<u8> {
        io::read_file(&*self.fs, &self.dir.join("file"), 100).unwrap()
    }

    /// Calls each method that creates a name.
    fn work(&self) -> base::Result<()> {
        let [a, b, c, sub] = ["a", "b", "c", "sub"].map(|n| self.dir.join(n));
        self.fs.open(&a, OpenHow::CREATE_TRUNCATE)?;
        self.fs.rename(&a, &b)?;
        self.fs.hard_link(&b, &c)?;
        self.fs.remove(&c)?;
        self.fs.create_dir(&sub)?;
        self.fs.open(&sub.join("x"), OpenHow::CREATE_TRUNCATE)?;
        self.fs.sync_dir(&sub)?;
        self.fs.sync_dir(&self.dir)
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn work_follows_a_directory_that_is_renamed() {
    let held = Held::new();
    std::fs::rename(&held.dir, held.path("away")).unwrap();
    let e = held.fs.check_held().unwrap_err();
    assert!(
        e.to_string().contains("removed, renamed or unmounted"),
        "{e}"
    );
    held.work().unwrap();
    assert_eq!(held.read(), b"mine");
    assert_eq!(names(&held.path("away")), ["b", "file", "sub"]);
    assert_eq!(names(held.top.path()), ["away"], "nothing is made anew");
    assert!(held.fs.metadata(&held.dir).unwrap().is_dir);
    let mut listed = held.fs.list(&held.dir).unwrap();
    listed.sort();
    assert_eq!(listed, ["b", "file", "sub"]);
    std::fs::rename(held.path("away"), &held.dir).unwrap();
    held.fs.check_held().unwrap();
}

#[test]
fn nothing_goes_to_the_directory_that_took_the_place() {
    let held = Held::new();
    std::fs::rename(&held.dir, held.path("away")).unwrap();
    std::fs::create_dir(&held.dir).unwrap();
    std::fs::write(held.dir.join("file"), b"other").unwrap();
    let e = held.fs.check_held().unwrap_err();
    assert!(e.to_string().contains("another directory"), "{e}");
    held.work().unwrap();
    assert_eq!(held.read(), b"mine");
    assert_eq!(names(&held.dir), ["file"]);
}

#[test]
fn a_directory_that_was_removed_is_not_made_again() {
    let held = Held::new();
    std::fs::remove_dir_all(&held.dir).unwrap();
    held.fs.check_held().unwrap_err();
    assert!(held.work().unwrap_err().is_not_found());
    let sub = held.dir.join("sub");
    assert!(held.fs.create_dir(&sub).unwrap_err().is_not_found());
    assert!(names(held.top.path()).is_empty());
    // With the same name, and perhaps the same number, it is another one.
    std::fs::create_dir(&held.dir).unwrap();
    held.fs.check_held().unwrap_err();
    held.work().unwrap_err();
    assert!(names(&held.dir).is_empty());
}

#[test]
fn a_link_that_leads_elsewhere_is_another_directory() {
    let top = tempfile::tempdir().unwrap();
    let [one, two, link] = ["one", "two", "link"].map(|n| top.path().join(n));
    std::fs::create_dir(&one).unwrap();
    std::fs::create_dir(&two).unwrap();
    std::os::unix::fs::symlink(&one, &link).unwrap();
    let fs = io::hold(&Posix::shared(), &link).unwrap();
    fs.check_held().unwrap();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&two, &link).unwrap();
    fs.check_held().unwrap_err();
    fs.open(&link.join("new"), OpenHow::CREATE_NEW).unwrap();
    assert_eq!((names(&one).len(), names(&two).len()), (1, 0));
}

#[test]
fn several_are_held_one_in_the_other() {
    let held = Held::new();
    let inner = held.dir.join("inner");
    std::fs::create_dir(&inner).unwrap();
    let fs = io::hold(&held.fs, &inner).unwrap();
    fs.open(&inner.join("new"), OpenHow::CREATE_NEW).unwrap();
    std::fs::rename(&inner, held.path("moved")).unwrap();
    fs.check_held().unwrap_err();
    held.fs.check_held().unwrap();
    assert!(fs.exists(&inner.join("new")).unwrap());
    assert!(
        fs.same_file(&inner.join("new"), &held.path("moved/new"))
            .unwrap()
    );
    assert!(!held.fs.exists(&inner.join("new")).unwrap());
    fs.hard_link(&inner.join("new"), &held.dir.join("linked"))
        .unwrap();
    fs.rename(&inner.join("new"), &held.path("outside"))
        .unwrap();
    assert_eq!(names(&held.dir), ["file", "linked"]);
}
