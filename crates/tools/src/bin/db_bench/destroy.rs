//! Removes a database's files, and nothing else.
//!
//! A fill benchmark starts with an empty database, but a mistaken `--db=/home/me` must not destroy
//! anything. So only files with names of database files are removed, only from a directory that has
//! such files, and never while another process has the database open.

use std::path::Path;

use base::{Error, Result};
use io::FileSystem;

/// Removes the database in `dir`. A missing or empty directory is not an error.
///
/// Errors: `InvalidArgument` if the directory has files, but no database files; `Busy` if the
/// database is open elsewhere.
pub(crate) fn destroy(dir: &Path) -> Result<()> {
    let fs = io::posix::Posix::shared();
    destroy_in(&*fs, dir)
}

fn destroy_in(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    if !fs.exists(dir)? {
        return Ok(());
    }
    let names: Vec<String> = fs
        .list(dir)?
        .into_iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    if !names.iter().any(|name| is_database_file(name)) {
        return Err(Error::invalid_argument(
            "it has files, but none of a database: nothing was removed",
        )
        .file(dir)
        .hint("name another directory with --db"));
    }
    let lock = fs.lock(&dir.join("LOCK"))?;
    // CURRENT goes first: without it, what a crash leaves over is no database.
    let (current, others): (Vec<_>, Vec<_>) = names
        .iter()
        .filter(|name| is_database_file(name) && *name != "LOCK")
        .partition(|name| *name == "CURRENT");
    for name in current.into_iter().chain(others) {
        let path = dir.join(name);
        if !fs.metadata(&path)?.is_dir {
            fs.remove(&path)?;
        }
    }
    drop(lock);
    fs.remove(&dir.join("LOCK"))
}

/// True for names that RocksDB or Ironstone gives to files of a database.
fn is_database_file(name: &str) -> bool {
    let numbered = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    if matches!(name, "CURRENT" | "IDENTITY" | "LOCK" | "LOG") || name.starts_with("LOG.old") {
        return true;
    }
    if let Some(rest) = name
        .strip_prefix("MANIFEST-")
        .or_else(|| name.strip_prefix("OPTIONS-"))
    {
        return numbered(rest.strip_suffix(".dbtmp").unwrap_or(rest));
    }
    ["log", "sst", "ldb", "blob", "dbtmp"].iter().any(|ext| {
        name.strip_suffix(ext)
            .and_then(|stem| stem.strip_suffix('.'))
            .is_some_and(numbered)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_a_databases_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        destroy(&dir.join("missing")).unwrap();
        destroy(dir).unwrap();
        for name in ["letter.txt", "my.log", "photos.sst"] {
            std::fs::write(dir.join(name), "mine").unwrap();
        }
        let e = destroy(dir).unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::InvalidArgument, "{e}");
        for name in [
            "CURRENT",
            "LOCK",
            "IDENTITY",
            "LOG",
            "LOG.old.1795292662887115",
            "MANIFEST-000004",
            "OPTIONS-000007",
            "OPTIONS-000007.dbtmp",
            "000005.log",
            "000008.sst",
            "000009.blob",
        ] {
            std::fs::write(dir.join(name), "").unwrap();
        }
        destroy(dir).unwrap();
        assert_eq!(names(dir), ["letter.txt", "my.log", "photos.sst"]);
    }
}
