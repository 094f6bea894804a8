//! Access to the parsers of an import's scratch files, only for fuzzing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Result;
use io::FileSystem;

use super::rows::Item;
use super::sorter::Sorter;

/// Decodes a sorted record and encodes it again. Errors: the bytes are not one.
pub fn item(bytes: &[u8]) -> Result<Vec<u8>> {
    let Item {
        key,
        nth,
        name,
        point,
    } = Item::decode(bytes)?;
    let len = [name.len() as u8];
    Ok([&key.to_bytes(), &nth[..], &len, name.as_bytes(), point].concat())
}

/// Merges runs: the number of their items, and the bytes of these. Errors: a file is not a run.
pub fn runs(fs: &Arc<dyn FileSystem>, runs: &[PathBuf]) -> Result<(usize, usize)> {
    let sorter = Sorter::new(fs, Path::new("/"), "fuzzing", 0);
    let (mut merged, mut found) = (sorter.open(runs)?, (0, 0));
    while let Some(item) = merged.next()? {
        found = (found.0 + 1, found.1 + item.len());
    }
    Ok(found)
}
