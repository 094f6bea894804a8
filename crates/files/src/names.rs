//! The names of a database's files, and CURRENT, the file that names the current MANIFEST.
//!
//! ```text
//!   CURRENT  MANIFEST-000005  000008.log  000009.sst  000010.blob  OPTIONS-000007
//!   LOCK  IDENTITY  LOG  LOG.old.1795289014000000  000012.dbtmp
//! ```
//!
//! One counter numbers all kinds of files of a database. Numbers have at least six digits. A name of any other form
//! does not belong to the database: [`parse_name`] returns `None`, and the file is left alone. Source: RocksDB
//! `file/filename.cc`.
#![deny(clippy::indexing_slicing)]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use base::{Error, FileNumber, Result};
use io::FileSystem;

/// The kind of a file, as its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// `000008.log`: a write-ahead log.
    Wal,
    /// `000009.sst`, or `000009.ldb` as LevelDB names it: a table.
    Table,
    /// `000010.blob`: values stored separately from their keys.
    Blob,
    /// `MANIFEST-000005`: records which files make up the database.
    Manifest,
    /// `CURRENT`: the name of the current MANIFEST.
    Current,
    /// `LOCK`: held while the database is open.
    Lock,
    /// `OPTIONS-000007`: the options, for users and tools.
    Options,
    /// `IDENTITY`: the database's id.
    Identity,
    /// `LOG`, or `LOG.old.<microseconds>`: messages for users.
    InfoLog,
    /// `000012.dbtmp` or `OPTIONS-000007.dbtmp`: a file that was not finished when the process ended.
    Temp,
    /// `METADB-1` and `COMPACTION_PROGRESS-1`: files of RocksDB features that are ignored.
    Feature,
}

impl FileKind {
    /// Whether files of this kind have numbers of the counter that a database's files share. The others have
    /// none, or one of their own, such as a time.
    pub fn is_counted(self) -> bool {
        matches!(
            self,
            Self::Wal | Self::Table | Self::Blob | Self::Manifest | Self::Options | Self::Temp
        )
    }
}

/// The kind and number that a file name stands for; the number is 0 for kinds without one. `None` if no database
/// file has such a name.
///
/// ```
/// use files::{parse_name, FileKind};
/// use base::FileNumber;
/// assert_eq!(parse_name("000009.sst".as_ref()), Some((FileKind::Table, FileNumber(9))));
/// assert_eq!(parse_name("notes.txt".as_ref()), None);
/// ```
pub fn parse_name(name: &OsStr) -> Option<(FileKind, FileNumber)> {
    let name = name.to_str()?;
    match name {
        "CURRENT" => return Some((FileKind::Current, FileNumber(0))),
        "LOCK" => return Some((FileKind::Lock, FileNumber(0))),
        "IDENTITY" => return Some((FileKind::Identity, FileNumber(0))),
        "LOG" | "LOG.old" => return Some((FileKind::InfoLog, FileNumber(0))),
        _ => {}
    }
    let prefixes = [
        ("LOG.old.", FileKind::InfoLog),
        ("MANIFEST-", FileKind::Manifest),
        ("OPTIONS-", FileKind::Options),
        ("METADB-", FileKind::Feature),
        ("COMPACTION_PROGRESS-", FileKind::Feature),
    ];
    for (prefix, kind) in prefixes {
        let Some(rest) = name.strip_prefix(prefix) else {
            continue;
        };
        return match (kind, rest.strip_suffix(".dbtmp")) {
            (FileKind::Options, Some(n)) => Some((FileKind::Temp, number(n)?)),
            _ => Some((kind, number(rest)?)),
        };
    }
    let (digits, suffix) = name.split_once('.')?;
    let kind = match suffix {
        "log" => FileKind::Wal,
        "sst" | "ldb" => FileKind::Table,
        "blob" => FileKind::Blob,
        "dbtmp" => FileKind::Temp,
        _ => return None,
    };
    Some((kind, number(digits)?))
}

/// Accepts decimal digits only: no sign, no space, no overflow.
fn number(digits: &str) -> Option<FileNumber> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| digits.parse().ok().map(FileNumber))?
}

/// A file of a database, as its name describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The kind of file.
    pub kind: FileKind,
    /// The number; 0 for kinds without one.
    pub number: FileNumber,
    /// The name in the directory.
    pub name: OsString,
}

/// The files in `dir` whose names are of a known form, sorted by kind and number.
pub fn list(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<Entry>> {
    let mut out: Vec<Entry> = fs
        .list(dir)?
        .into_iter()
        .filter_map(|name| {
            let (kind, number) = parse_name(&name)?;
            Some(Entry { kind, number, name })
        })
        .collect();
    out.sort();
    Ok(out)
}

/// `dir/000008.log`.
pub fn wal_path(dir: &Path, n: FileNumber) -> PathBuf {
    dir.join(format!("{n}.log"))
}

/// `dir/000009.sst`.
pub fn table_path(dir: &Path, n: FileNumber) -> PathBuf {
    dir.join(format!("{n}.sst"))
}

/// `dir/000009.ldb`: LevelDB's name for a table; tried if there is no `.sst` file.
pub fn leveldb_table_path(dir: &Path, n: FileNumber) -> PathBuf {
    dir.join(format!("{n}.ldb"))
}

/// `dir/000010.blob`.
pub fn blob_path(dir: &Path, n: FileNumber) -> PathBuf {
    dir.join(format!("{n}.blob"))
}

/// `dir/MANIFEST-000005`.
pub fn manifest_path(dir: &Path, n: FileNumber) -> PathBuf {
    dir.join(format!("MANIFEST-{n}"))
}

/// `dir/OPTIONS-000007`.
pub fn options_path(dir: &Path, n: FileNumber) -> PathBuf {
    dir.join(format!("OPTIONS-{n}"))
}

/// `dir/000012.dbtmp`: a file under construction, renamed when it is complete.
pub fn temp_path(dir: &Path, n: FileNumber) -> PathBuf {
    dir.join(format!("{n}.dbtmp"))
}

/// `dir/CURRENT`.
pub fn current_path(dir: &Path) -> PathBuf {
    dir.join("CURRENT")
}

/// `dir/LOCK`.
pub fn lock_path(dir: &Path) -> PathBuf {
    dir.join("LOCK")
}

/// `dir/IDENTITY`.
pub fn identity_path(dir: &Path) -> PathBuf {
    dir.join("IDENTITY")
}

/// `dir/LOG`.
pub fn info_log_path(dir: &Path) -> PathBuf {
    dir.join("LOG")
}

/// `dir/LOG.old.<micros>`: the LOG that was in use until `micros`, in microseconds since 1970.
pub fn old_info_log_path(dir: &Path, micros: u64) -> PathBuf {
    dir.join(format!("LOG.old.{micros}"))
}

/// The largest CURRENT or IDENTITY that is read, in bytes: both hold one short line.
const SMALL_FILE_BYTES_MAX: u64 = 4096;

/// The number of the MANIFEST that CURRENT names. Errors: `NotFound` if there is no CURRENT; `Corruption`, naming
/// the file, if its content is not `MANIFEST-<digits>` and one newline.
pub fn read_current(fs: &dyn FileSystem, dir: &Path) -> Result<FileNumber> {
    let path = current_path(dir);
    let bytes = io::read_file(fs, &path, SMALL_FILE_BYTES_MAX)?;
    parse_current(&bytes).map_err(|e| e.file(&path))
}

fn parse_current(bytes: &[u8]) -> Result<FileNumber> {
    let shown = || {
        let head = bytes.get(..bytes.len().min(64)).unwrap_or_default();
        String::from_utf8_lossy(head).escape_debug().to_string()
    };
    let hint = "it must hold the name of a MANIFEST file in this directory and one newline";
    if bytes.is_empty() {
        return Err(Error::corruption("the file is empty").hint(hint));
    }
    let line = bytes.strip_suffix(b"\n").ok_or_else(|| {
        Error::corruption(format!("\"{}\" does not end with a newline", shown())).hint(hint)
    })?;
    let name = std::str::from_utf8(line).ok();
    name.and_then(|n| n.strip_prefix("MANIFEST-"))
        .and_then(number)
        .ok_or_else(|| {
            Error::corruption(format!("\"{}\" is not the name of a MANIFEST", shown())).hint(hint)
        })
}

/// Makes CURRENT name the MANIFEST with the number `manifest`, which must already be durable. After a crash CURRENT
/// has either the old or the new content.
pub fn write_current(fs: &dyn FileSystem, dir: &Path, manifest: FileNumber) -> Result<()> {
    let line = format!("MANIFEST-{manifest}\n");
    let temp = temp_path(dir, manifest);
    io::replace_file(fs, &current_path(dir), &temp, line.as_bytes())
}

/// The database's id from IDENTITY; `None` if the file is missing or empty. A trailing newline is not part of the
/// id.
pub fn read_identity(fs: &dyn FileSystem, dir: &Path) -> Result<Option<String>> {
    let path = identity_path(dir);
    let bytes = match io::read_file(fs, &path, SMALL_FILE_BYTES_MAX) {
        Ok(b) => b,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(e),
    };
    let id = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let id = std::str::from_utf8(id)
        .map_err(|_| Error::corruption("the database's id is not text").file(&path))?;
    Ok((!id.is_empty()).then(|| id.to_owned()))
}

/// Writes the database's id to IDENTITY.
pub fn write_identity(fs: &dyn FileSystem, dir: &Path, id: &str) -> Result<()> {
    let temp = temp_path(dir, FileNumber(0));
    io::replace_file(fs, &identity_path(dir), &temp, id.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(name: &str) -> Option<(FileKind, u64)> {
        parse_name(name.as_ref()).map(|(k, n)| (k, n.0))
    }

    #[test]
    fn names_parse() {
        use FileKind as K;
        let cases = [
            ("000008.log", Some((K::Wal, 8))),
            ("12345678.sst", Some((K::Table, 12_345_678))),
            ("7.ldb", Some((K::Table, 7))),
            ("000010.blob", Some((K::Blob, 10))),
            ("000012.dbtmp", Some((K::Temp, 12))),
            ("OPTIONS-000007", Some((K::Options, 7))),
            ("OPTIONS-000007.dbtmp", Some((K::Temp, 7))),
            ("MANIFEST-000005", Some((K::Manifest, 5))),
            ("CURRENT", Some((K::Current, 0))),
            ("LOCK", Some((K::Lock, 0))),
            ("IDENTITY", Some((K::Identity, 0))),
            ("LOG", Some((K::InfoLog, 0))),
            ("LOG.old.17", Some((K::InfoLog, 17))),
            ("METADB-2", Some((K::Feature, 2))),
            ("COMPACTION_PROGRESS-3", Some((K::Feature, 3))),
            ("18446744073709551615.sst", Some((K::Table, u64::MAX))),
            ("18446744073709551616.sst", None),
            ("MANIFEST-", None),
            ("MANIFEST-5x", None),
            ("MANIFEST-000005.dbtmp", None),
            ("OPTIONS-.dbtmp", None),
            ("+5.sst", None),
            (".sst", None),
            ("5.sst.bak", None),
            ("5", None),
            ("current", None),
            ("LOG.older", None),
            ("", None),
        ];
        for (name, want) in cases {
            assert_eq!(parse(name), want, "{name}");
        }
    }

    #[test]
    fn built_names_parse_back() {
        let dir = Path::new("/db");
        let n = FileNumber(42);
        let cases = [
            (wal_path(dir, n), FileKind::Wal),
            (table_path(dir, n), FileKind::Table),
            (leveldb_table_path(dir, n), FileKind::Table),
            (blob_path(dir, n), FileKind::Blob),
            (manifest_path(dir, n), FileKind::Manifest),
            (options_path(dir, n), FileKind::Options),
            (temp_path(dir, n), FileKind::Temp),
            (old_info_log_path(dir, 42), FileKind::InfoLog),
        ];
        for (path, kind) in cases {
            assert_eq!(parse_name(path.file_name().unwrap()), Some((kind, n)));
        }
        assert_eq!(manifest_path(dir, n), Path::new("/db/MANIFEST-000042"));
    }

    #[test]
    fn current_is_read_strictly() {
        assert_eq!(parse_current(b"MANIFEST-000005\n").unwrap().0, 5);
        let bad: [(&[u8], &str); 8] = [
            (b"", "the file is empty"),
            (b"MANIFEST-000005", "does not end with a newline"),
            (b"MANIFEST-000005\n\n", "is not the name of a MANIFEST"),
            (b"MANIFEST-\n", "is not the name"),
            (b"../MANIFEST-000005\n", "is not the name"),
            (b"MANIFEST-000005 \n", "is not the name"),
            (b"\xff\xfe\n", "is not the name"),
            (b"\n", "is not the name"),
        ];
        for (bytes, want) in bad {
            let e = parse_current(bytes).unwrap_err();
            assert!(e.is_corruption());
            assert!(e.to_string().contains(want), "{bytes:?}: {e}");
        }
    }

    #[test]
    fn current_and_identity_are_written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let fs = io::posix::Posix;
        let dir = dir.path();
        assert!(read_current(&fs, dir).unwrap_err().is_not_found());
        assert_eq!(read_identity(&fs, dir).unwrap(), None);
        write_current(&fs, dir, FileNumber(7)).unwrap();
        write_current(&fs, dir, FileNumber(9)).unwrap();
        assert_eq!(
            std::fs::read(dir.join("CURRENT")).unwrap(),
            b"MANIFEST-000009\n"
        );
        assert_eq!(read_current(&fs, dir).unwrap(), FileNumber(9));
        write_identity(&fs, dir, "abc").unwrap();
        assert_eq!(read_identity(&fs, dir).unwrap().as_deref(), Some("abc"));
        std::fs::write(dir.join("x.txt"), "").unwrap();
        std::fs::write(dir.join("000003.log"), "").unwrap();
        let kinds: Vec<_> = list(&fs, dir).unwrap().iter().map(|e| e.kind).collect();
        assert_eq!(
            kinds,
            [FileKind::Wal, FileKind::Current, FileKind::Identity]
        );
    }

    proptest! {
        #[test]
        fn any_name_and_any_current_parse_without_panic(name in ".*", bytes: Vec<u8>) {
            parse_name(name.as_ref());
            drop(parse_current(&bytes));
        }
    }
}
