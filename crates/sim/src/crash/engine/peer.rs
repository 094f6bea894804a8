//! Real RocksDB opens the images, before Ironstone's recovery and after it.
//!
//! RocksDB recovers a copy of the image in its default mode (point in time), so its recovery of the logs is
//! tested, too.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use base::sync::thread;
use base::{Error, Result};
use io::{FileSystem, OpenHow};
use log::format::{BLOCK, Header, RecordType};

use super::super::model::Found;
use super::DIR;
use crate::dirs;
use crate::disk::SimDisk;
use crate::oracle::{self, RocksDb};

/// How long RocksDB may take with an image. It takes milliseconds, or for ever.
const PATIENCE: Duration = Duration::from_secs(300);

/// Whether the image has a database that RocksDB can open.
pub(super) fn has_database(image: &SimDisk) -> bool {
    let current = Path::new(DIR).join("CURRENT");
    image.exists(&current).unwrap_or(false)
}

/// The content of every family that RocksDB finds in the image. Errors as text.
pub(super) fn open(image: &SimDisk) -> Result<Found, String> {
    scan(image, None).map_err(|e| format!("RocksDB: {e}"))
}

/// The same for an image before any recovery, and whether the end of the MANIFEST had to be cut off.
/// RocksDB refuses a MANIFEST whose last record was torn out of order by a power cut, even one of its own:
/// that end was never acknowledged, and without it RocksDB must open.
pub(super) fn open_unrecovered(image: &SimDisk) -> Result<(Found, bool), String> {
    let refused = match scan(image, None) {
        Ok(found) => return Ok((found, false)),
        Err(e) => format!("RocksDB before the recovery: {e}"),
    };
    let torn = torn_manifest(image).map_err(|e| format!("{refused}; {e}"))?;
    match torn.filter(|_| refused.contains("MANIFEST")) {
        None => Err(refused),
        Some(torn) => scan(image, Some(torn))
            .map(|found| (found, true))
            .map_err(|e| format!("{refused}; with its torn end cut off: {e}")),
    }
}

/// The MANIFEST, and where its torn end begins, if it has one.
fn torn_manifest(image: &SimDisk) -> Result<Option<(String, usize)>> {
    let dir = Path::new(DIR);
    let current = io::read_file(image, &dir.join("CURRENT"), 100)?;
    let name = String::from_utf8_lossy(&current).trim().to_owned();
    let file = image.open(&dir.join(&name), OpenHow::READ)?;
    let mut reader = log::Reader::manifest(file);
    let mut record = Vec::new();
    while reader.read(&mut record)? {}
    Ok(match reader.end() {
        log::End::Torn { offset, .. } => Some((name, *offset as usize)),
        _ => None,
    })
}

/// Whether RocksDB would never return from opening the image.
pub(super) fn reads_for_ever(image: &SimDisk) -> bool {
    let version = oracle::rocksdb().and_then(|lib| lib.version().ok());
    if version.is_none_or(|v| v.starts_with("7.")) {
        return false;
    }
    let dir = Path::new(DIR);
    let names = image.list(dir).unwrap_or_default();
    let read = names.iter().filter(|name| {
        let name = name.to_string_lossy();
        name.ends_with(".log") || name.starts_with("MANIFEST")
    });
    read.filter_map(|name| io::read_file(image, &dir.join(name), 1 << 30).ok())
        .any(|file| has_stray_type(&file))
}

/// Whether RocksDB 11.8.1 reads this log or MANIFEST for ever.
///
/// Once it has read a record of the old format, it does not skip a header of one of the recyclable types, whatever its
/// checksum: it reads the same seven bytes again and again. Garbage in a torn record can look like that, even in a log
/// of its own. After any other invalid record it goes on in the next block, where it may meet such a header, too.
/// RocksDB 7.8.3 treats it as a torn record.
pub fn has_stray_type(file: &[u8]) -> bool {
    let (mut at, mut whole) = (0, false);
    while let Some(rest) = file.get(at..) {
        let room = BLOCK - at % BLOCK;
        let rest = &rest[..rest.len().min(room)];
        let Some(header) = Header::decode(rest) else {
            at += room;
            continue;
        };
        if header.kind.is_recyclable() {
            return whole;
        }
        if header.crc_matches(rest) {
            whole |= matches!(header.kind, RecordType::FULL | RecordType::LAST);
            at += header.record_len();
        } else {
            at += room;
        }
    }
    false
}

fn scan(image: &SimDisk, cut: Option<(String, usize)>) -> Result<Found> {
    let temp = dirs::scratch()?;
    let failed = |e| Error::io("export", temp.path(), e);
    image.export(temp.path()).map_err(failed)?;
    let path = temp.path().join(DIR.trim_start_matches('/'));
    if let Some((name, len)) = cut {
        let mut bytes = std::fs::read(path.join(&name)).map_err(failed)?;
        bytes.truncate(len);
        std::fs::write(path.join(&name), bytes).map_err(failed)?;
    }
    let (answer, answered) = mpsc::channel();
    thread::Builder::new()
        .spawn(move || answer.send(content(&path)))
        .map_err(failed)?;
    answered.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let kept = temp.keep();
        Err(Error::aborted(format!(
            "it has not come back for {PATIENCE:?} from {}",
            kept.display()
        )))
    })
}

/// The content of every family of the database in `path`.
fn content(path: &Path) -> Result<Found> {
    let Some(lib) = oracle::rocksdb() else {
        return Err(Error::not_found("there is no RocksDB to ask"));
    };
    let mut options = lib.options();
    options.set("merge_operator", super::OPERATOR)?;
    let db = RocksDb::open_all(&options, path)?;
    let mut out = Found::new();
    for name in db.cf_names() {
        let pairs = db.iterator_cf(db.cf(name)?).collect_all()?;
        out.insert(name.to_owned(), pairs.into_iter().collect());
    }
    Ok(out)
}
