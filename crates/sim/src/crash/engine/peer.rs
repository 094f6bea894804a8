//! Real RocksDB on the images: before Ironstone's recovery and after it.
//!
//! RocksDB recovers a copy of the image in its default mode (point in time), so what it makes of
//! the logs is seen, not only what it reads.

use std::path::Path;

use base::{Error, Result};
use io::{FileSystem, OpenHow};

use super::super::model::Found;
use super::DIR;
use crate::dirs;
use crate::disk::SimDisk;
use crate::oracle::{self, RocksDb};

/// Whether the image has a database that RocksDB can be asked about.
pub(super) fn has_database(image: &SimDisk) -> bool {
    let current = Path::new(DIR).join("CURRENT");
    image.exists(&current).unwrap_or(false)
}

/// What RocksDB finds in the image: every family. Errors as text.
pub(super) fn open(image: &SimDisk) -> Result<Found, String> {
    scan(image, None).map_err(|e| format!("RocksDB: {e}"))
}

/// The same for an image that nobody has recovered, and whether the end of the MANIFEST had to be
/// cut off. RocksDB refuses a MANIFEST whose last record a power cut has torn out of order, also
/// one of its own: that end was acknowledged to nobody, and without it RocksDB must open.
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

/// The MANIFEST and where its torn end begins, if it has one.
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
