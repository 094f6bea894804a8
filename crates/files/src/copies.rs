//! Copies and hard links of whole files, for operations that add files to a database or copy them out of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::checksum::Crc32c;
use base::{Error, Result};
use io::{FileSystem, OpenHow, SyncKind, WriteSync, write_all_at};

/// How many bytes are read and written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// How many bytes of a copy are handed to the device at once. Kept small, because a concurrent synced write has to
/// wait until the device has written them.
const PIECE_BYTES: usize = 256 << 10;

/// The length and checksum of the data that was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// How many bytes there were.
    pub bytes: u64,
    /// Their CRC32C.
    pub crc32c: u32,
}

/// Called with the length of each chunk that was read. May wait, or stop the copy by returning an error.
pub type OnBytes<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// An [`OnBytes`] that returns at once.
pub fn at_once(_: u64) -> Result<()> {
    Ok(())
}

/// Copies `from` to the new file `to` and syncs it. With `exactly`, copies that many bytes from the start. The
/// directory entry is not synced. After an error the partial copy is removed.
///
/// Errors: `to` exists; `Corruption` if `from` is shorter than `exactly`; those of the file system.
pub fn copy(
    fs: &dyn FileSystem,
    from: &Path,
    to: &Path,
    exactly: Option<u64>,
    on_bytes: OnBytes<'_>,
) -> Result<Copied> {
    let source = fs.open(from, OpenHow::READ)?;
    let target = fs.open(to, OpenHow::CREATE_NEW)?;
    let done = each_chunk(&source, exactly, on_bytes, &mut |chunk, at| {
        write_all_at(&*target, chunk, at, WriteSync::None)?;
        (at..)
            .step_by(PIECE_BYTES)
            .zip(chunk.chunks(PIECE_BYTES))
            .try_for_each(|(at, piece)| target.write_back(at, piece.len() as u64))
    });
    let done = done.and_then(|copied| target.sync(SyncKind::Data).map(|()| copied));
    done.inspect_err(|_| drop(fs.remove(to)))
}

/// Length and checksum of a file.
pub fn checksum(fs: &dyn FileSystem, path: &Path, on_bytes: OnBytes<'_>) -> Result<Copied> {
    let file = fs.open(path, OpenHow::READ)?;
    each_chunk(&file, None, on_bytes, &mut |_, _| Ok(()))
}

fn each_chunk(
    file: &Arc<dyn io::File>,
    exactly: Option<u64>,
    on_bytes: OnBytes<'_>,
    take: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<Copied> {
    let mut buffer = vec![0; CHUNK_BYTES.min(file.len()? as usize + 1)];
    let mut crc = Crc32c::new();
    let mut at = 0u64;
    loop {
        let left = exactly.map_or(u64::MAX, |n| n - at);
        let want = (buffer.len() as u64).min(left) as usize;
        let n = match want {
            0 => 0,
            _ => file.read_at(&mut buffer[..want], at)?,
        };
        if n == 0 {
            break;
        }
        on_bytes(n as u64)?;
        crc.update(&buffer[..n]);
        take(&buffer[..n], at)?;
        at += n as u64;
    }
    match exactly {
        Some(wanted) if at < wanted => Err(Error::corruption(format!(
            "the file ends after {at} of the {wanted} bytes that it must have"
        ))
        .file(file.path())),
        _ => Ok(Copied {
            bytes: at,
            crc32c: crc.value(),
        }),
    }
}

/// Makes the hard link `to` to `from`. Where that is not possible, for example between file systems, copies the
/// file. The data of a copy is synced; the directory entry is not. Returns true for a link.
pub fn link_or_copy(
    fs: &dyn FileSystem,
    from: &Path,
    to: &Path,
    on_bytes: OnBytes<'_>,
) -> Result<bool> {
    match fs.hard_link(from, to) {
        Ok(()) => Ok(true),
        Err(e) if e.is_not_found() => Err(e),
        Err(_) => copy(fs, from, to, None, on_bytes).map(|_| false),
    }
}

/// The directory of a file.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// Removes a file, or a directory and everything in it. Does nothing if it does not exist. A symbolic link is removed
/// itself; its target stays.
pub fn remove_tree(fs: &dyn FileSystem, path: &Path) -> Result<()> {
    // Fails for a directory, but not for a link to one. The metadata would be those of what a link leads to.
    let Err(failed) = fs.remove(path) else {
        return Ok(());
    };
    match fs.metadata(path) {
        Ok(found) if found.is_dir => {}
        Err(e) if e.is_not_found() => return Ok(()),
        _ => return Err(failed),
    }
    for name in fs.list(path)? {
        remove_tree(fs, &path.join(name))?;
    }
    fs.remove_dir(path)
}

/// Files that were created. They are removed on drop, unless [`Made::take`] hands them to the caller.
pub struct Made {
    fs: Arc<dyn FileSystem>,
    paths: Vec<PathBuf>,
}

impl Made {
    /// No files yet.
    pub fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self {
            fs,
            paths: Vec::new(),
        }
    }

    /// Adds a file that was made.
    pub fn add(&mut self, path: PathBuf) {
        self.paths.push(path);
    }

    /// Returns the files and leaves them to the caller: they are not removed any more.
    pub fn take(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.paths)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.paths {
            // A file that cannot be removed is referenced by nothing; the next open deletes it.
            drop(self.fs.remove(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_exact_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let fs = io::posix::Posix;
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        let data = vec![7u8; CHUNK_BYTES + 5];
        std::fs::write(&from, &data).unwrap();
        let copied = copy(&fs, &from, &to, None, &mut at_once).unwrap();
        assert_eq!(copied.bytes, data.len() as u64);
        assert_eq!(copied.crc32c, base::checksum::crc32c(&data));
        assert_eq!(checksum(&fs, &to, &mut at_once).unwrap(), copied);
        assert!(copy(&fs, &from, &to, None, &mut at_once).is_err());
        assert_eq!(std::fs::read(&to).unwrap(), data, "it was there before");
        std::fs::remove_file(&to).unwrap();
        assert_eq!(
            copy(&fs, &from, &to, Some(3), &mut at_once).unwrap().bytes,
            3
        );
        std::fs::remove_file(&to).unwrap();
        let e = copy(&fs, &from, &to, Some(u64::MAX), &mut at_once).unwrap_err();
        assert!(e.is_corruption(), "{e}");
        let mut stop = |_| Err(Error::aborted("enough"));
        assert!(copy(&fs, &from, &to, None, &mut stop).is_err());
        assert!(!to.exists());
        assert!(link_or_copy(&fs, &from, &to, &mut at_once).unwrap());
        let mut made = Made::new(io::posix::Posix::shared());
        made.add(to.clone());
        drop(made);
        assert!(!to.exists() && from.exists());
        std::fs::create_dir(&to).unwrap();
        std::fs::write(to.join("x"), "").unwrap();
        remove_tree(&fs, &to).unwrap();
        remove_tree(&fs, &to).unwrap();
        assert!(!to.exists());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_removed_and_not_followed() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let fs = io::posix::Posix;
        let (kept, gone) = (dir.path().join("kept"), dir.path().join("gone"));
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("x"), "1").unwrap();
        std::fs::create_dir_all(gone.join("below")).unwrap();
        symlink(&kept, gone.join("below/dir")).unwrap();
        symlink(kept.join("x"), gone.join("file")).unwrap();
        symlink("nowhere", gone.join("dangling")).unwrap();
        remove_tree(&fs, &gone).unwrap();
        assert!(!gone.exists());
        symlink(&kept, &gone).unwrap();
        remove_tree(&fs, &gone).unwrap();
        assert!(gone.symlink_metadata().is_err());
        assert_eq!(std::fs::read(kept.join("x")).unwrap(), b"1");
    }
}
