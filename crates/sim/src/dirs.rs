//! Directories of tests: where they are, how to copy them, and whether they changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base::{Error, Result};

/// The environment variable that names the directory for temporary databases.
pub const DIRECTORY_VARIABLE: &str = "IRONSTONE_TEST_DIR";

/// A new temporary directory: under [`DIRECTORY_VARIABLE`] if it is set, otherwise in memory (`/dev/shm`)
/// if possible. Tests open thousands of databases, and what they check does not depend on a device.
pub fn scratch() -> Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let parent = match std::env::var_os(DIRECTORY_VARIABLE) {
        Some(dir) => PathBuf::from(dir),
        None if memory.is_dir() => memory.to_path_buf(),
        None => std::env::temp_dir(),
    };
    tempfile::Builder::new()
        .prefix("ironstone-")
        .tempdir_in(&parent)
        .map_err(|e| Error::io("create directory", &parent, e))
}

/// Copies the files of `from` into `to`, which is created; the copies are writable. `LOCK` and
/// subdirectories are left out.
///
/// `LOCK` must not even be opened: closing it would release the lock that this process holds.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(|e| Error::io("create directory", to, e))?;
    for (name, path) in files(from)? {
        if name == "LOCK" {
            continue;
        }
        let bytes = fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        let target = to.join(&name);
        fs::write(&target, bytes).map_err(|e| Error::io("write", &target, e))?;
    }
    Ok(())
}

/// Like [`copy`], including the subdirectories.
pub fn copy_all(from: &Path, to: &Path) -> Result<()> {
    copy(from, to)?;
    let list = |e| Error::io("list directory", from, e);
    for entry in fs::read_dir(from).map_err(list)? {
        let path = entry.map_err(list)?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_dir()) {
            copy_all(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// The plain files in a directory, by name.
pub fn files(dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let list = |e| Error::io("list directory", dir, e);
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(list)? {
        let path = entry.map_err(list)?.path();
        if path.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            out.insert(name.into_owned(), path);
        }
    }
    Ok(out)
}

/// The path of the only file in `dir` whose name starts with `start` and ends with `end`.
///
/// # Panics
/// If there is none, or more than one.
pub fn only(dir: &Path, start: &str, end: &str) -> PathBuf {
    let mut found: Vec<PathBuf> = files(dir)
        .unwrap_or_default()
        .into_iter()
        .filter(|(name, _)| name.starts_with(start) && name.ends_with(end))
        .map(|(_, path)| path)
        .collect();
    assert_eq!(found.len(), 1, "files {start}*{end} in {}", dir.display());
    found.remove(0)
}

/// The content of a directory: file names with their bytes. `LOCK` and `LOG` files are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State(BTreeMap<String, Vec<u8>>);

impl State {
    /// Reads the directory as it is now.
    pub fn of(dir: &Path) -> Result<Self> {
        let mut out = BTreeMap::new();
        for (name, path) in files(dir)? {
            if name == "LOCK" || name.starts_with("LOG") {
                continue;
            }
            let bytes = fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
            out.insert(name, bytes);
        }
        Ok(Self(out))
    }

    /// Makes `dir` have exactly these files, and no `LOG` or `LOCK`.
    pub fn restore(&self, dir: &Path) -> Result<()> {
        for (_, path) in files(dir).unwrap_or_default() {
            fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
        fs::create_dir_all(dir).map_err(|e| Error::io("create directory", dir, e))?;
        for (name, bytes) in &self.0 {
            let path = dir.join(name);
            fs::write(&path, bytes).map_err(|e| Error::io("write", &path, e))?;
        }
        Ok(())
    }

    /// The same with one file's content changed.
    #[must_use]
    pub fn with(&self, name: &str, bytes: Vec<u8>) -> Self {
        let mut out = self.clone();
        out.0.insert(name.to_owned(), bytes);
        out
    }

    /// The same without a file.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let mut out = self.clone();
        out.0.remove(name);
        out
    }

    /// The content of a file.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// The names of the files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The differences to `now`, as text; `None` if there are none.
    pub fn changes(&self, now: &Self) -> Option<String> {
        let mut out = Vec::new();
        for (name, bytes) in &self.0 {
            match now.0.get(name) {
                None => out.push(format!("{name} is gone")),
                Some(b) if b != bytes => out.push(format!("{name} changed")),
                Some(_) => {}
            }
        }
        let new = now.0.keys().filter(|name| !self.0.contains_key(*name));
        out.extend(new.map(|name| format!("{name} is new")));
        (!out.is_empty()).then(|| out.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_named() {
        let dir = scratch().unwrap();
        fs::write(dir.path().join("a"), "1").unwrap();
        fs::write(dir.path().join("b"), "1").unwrap();
        let before = State::of(dir.path()).unwrap();
        fs::write(dir.path().join("LOG"), "x").unwrap();
        assert_eq!(before.changes(&State::of(dir.path()).unwrap()), None);
        fs::write(dir.path().join("a"), "2").unwrap();
        fs::remove_file(dir.path().join("b")).unwrap();
        fs::write(dir.path().join("c"), "").unwrap();
        let now = State::of(dir.path()).unwrap();
        assert_eq!(
            before.changes(&now).unwrap(),
            "a changed, b is gone, c is new"
        );
        before.restore(dir.path()).unwrap();
        assert_eq!(before.changes(&State::of(dir.path()).unwrap()), None);
    }
}
