//! Real RocksDB opens the images, before Ironstone's recovery and after it.
//!
//! RocksDB recovers a copy of the image in its default mode (point in time), so its recovery of the logs is
//! tested, too.

use std::path::Path;

use base::{Error, Result};
use io::{FileSystem, OpenHow};
use log::format::{BLOCK, Header, LEGACY_HEADER, RecordType};

use super::super::model::Found;
use super::DIR;
use crate::dirs;
use crate::disk::SimDisk;
use crate::oracle::{self, RocksDb};

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

/// Whether RocksDB would never return from opening the image. If a log begins with records of the old
/// format, RocksDB 11.8.1 does not skip a header of one of the recyclable types, whatever its checksum: it
/// reads the same seven bytes for ever. Garbage in a torn record can look like that, even in a log of its
/// own. RocksDB 7.8.3 treats it as a torn record.
pub(super) fn reads_for_ever(image: &SimDisk) -> bool {
    let version = oracle::rocksdb().and_then(|lib| lib.version().ok());
    if version.is_none_or(|v| v.starts_with("7.")) {
        return false;
    }
    let dir = Path::new(DIR);
    let names = image.list(dir).unwrap_or_default();
    let paths = names.iter().map(|name| dir.join(name));
    let logs = paths.filter(|path| path.extension().is_some_and(|e| e == "log"));
    logs.filter_map(|path| io::read_file(image, &path, 1 << 30).ok())
        .any(|log| has_stray_type(&log))
}

/// Whether the first invalid header, or one before it, is of a recyclable type and follows a record of the
/// old format.
fn has_stray_type(log: &[u8]) -> bool {
    let (mut at, mut whole) = (0, false);
    while let Some(rest) = log.get(at..) {
        let room = BLOCK - at % BLOCK;
        if room < LEGACY_HEADER {
            at += room;
            continue;
        }
        let rest = &rest[..rest.len().min(room)];
        let Some(header) = Header::decode(rest) else {
            return false;
        };
        let recyclable = RecordType::RECYCLABLE_FULL.0..=RecordType::RECYCLABLE_LAST.0;
        if recyclable.contains(&header.kind.0) {
            return whole;
        }
        if !header.crc_matches(rest) {
            return false;
        }
        whole |= matches!(header.kind, RecordType::FULL | RecordType::LAST);
        at += header.record_len();
    }
    false
}

fn scan(image: &SimDisk, cut: Option<(String, usize)>) -> Result<Found> {
    let Some(lib) = oracle::rocksdb() else {
        return Err(Error::not_found("there is no RocksDB to ask"));
    };
    let temp = dirs::scratch()?;
    let failed = |e| Error::io("export", temp.path(), e);
    image.export(temp.path()).map_err(failed)?;
    let path = temp.path().join(DIR.trim_start_matches('/'));
    if let Some((name, len)) = cut {
        let mut bytes = std::fs::read(path.join(&name)).map_err(failed)?;
        bytes.truncate(len);
        std::fs::write(path.join(&name), bytes).map_err(failed)?;
    }
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
