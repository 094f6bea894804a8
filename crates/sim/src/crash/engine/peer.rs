//! Real RocksDB on the images: before Ironstone's recovery and after it.
//!
//! RocksDB recovers a copy of the image in its default mode (point in time), so what it makes of
//! the logs is seen, not only what it reads.

use std::sync::Arc;

use base::Result;

use super::super::model::Found;
use super::DIR;
use crate::dirs;
use crate::disk::SimDisk;
use crate::oracle::{self, Library, RocksDb};
use io::FileSystem;

/// Whether the image has a database that RocksDB can be asked about.
pub(super) fn has_database(image: &SimDisk) -> bool {
    let current = std::path::Path::new(DIR).join("CURRENT");
    image.exists(&current).unwrap_or(false)
}

/// What RocksDB finds in the image: every family. Errors as text.
pub(super) fn open(image: &SimDisk) -> Result<Found, String> {
    let Some(lib) = oracle::rocksdb() else {
        return Err("there is no RocksDB to ask".to_owned());
    };
    scan(&lib, image).map_err(|e| format!("RocksDB: {e}"))
}

fn scan(lib: &Arc<Library>, image: &SimDisk) -> Result<Found> {
    let temp = dirs::scratch()?;
    image
        .export(temp.path())
        .map_err(|e| base::Error::io("export", temp.path(), e))?;
    let path = temp.path().join(DIR.trim_start_matches('/'));
    let db = RocksDb::open_all(&lib.options(), path)?;
    let mut out = Found::new();
    for name in db.cf_names() {
        let pairs = db.iterator_cf(db.cf(name)?).collect_all()?;
        out.insert(name.to_owned(), pairs.into_iter().collect());
    }
    Ok(out)
}
