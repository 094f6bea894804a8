//! Reads the newest OPTIONS file of a database, which need not be open.

use std::path::{Path, PathBuf};

use base::{Error, Result};
use io::FileSystem;

use super::codec::{self, ParsedOptions, Unsupported};
use super::{Env, Options};
use files::FileKind;

/// The largest OPTIONS file that is read, in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// The path of the newest OPTIONS file in `dir`; `None` if there is none.
pub fn path(fs: &dyn FileSystem, dir: &Path) -> Result<Option<PathBuf>> {
    let newest = files::list(fs, dir)?
        .into_iter()
        .filter(|e| e.kind == FileKind::Options)
        .max_by_key(|e| e.number);
    Ok(newest.map(|e| dir.join(e.name)))
}

/// The text of an OPTIONS file.
pub fn text(fs: &dyn FileSystem, path: &Path) -> Result<String> {
    let bytes = io::read_file(fs, path, BYTES_MAX)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl ParsedOptions {
    /// Reads the newest OPTIONS file of the database in `dir`: the options with which it was last opened, including
    /// later changes. RocksDB's `LoadLatestOptions`. Everything that the file does not contain must be set again:
    /// caches, filters, custom operators and comparators, and Ironstone's own options.
    ///
    /// Errors: `NotFound` if there is no OPTIONS file; `InvalidArgument`, naming file and line, if it is malformed;
    /// with [`Unsupported::Refuse`], `NotSupported` for settings that Ironstone does not support.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// # drop(ironstone::Db::open(dir.path(), &options)?);
    /// use ironstone::options::{ParsedOptions, codec::Unsupported};
    /// let env = ironstone::Env::default();
    /// let latest = ParsedOptions::load_latest(dir.path(), &env, Unsupported::Refuse)?;
    /// let families = latest.families.clone();
    /// let db = ironstone::Db::open_cf(dir.path(), &latest.into_options(env), &families)?;
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn load_latest(dir: impl AsRef<Path>, env: &Env, unsupported: Unsupported) -> Result<Self> {
        let (fs, dir) = (&*env.fs, dir.as_ref());
        let path = path(fs, dir)?
            .ok_or_else(|| Error::not_found("no OPTIONS file in this directory").file(dir))?;
        codec::parse_with(&text(fs, &path)?, unsupported).map_err(|e| e.or_file(&path))
    }

    /// Makes options for opening the database. The options of the default family are also used for families without
    /// their own.
    pub fn into_options(self, env: Env) -> Options {
        let default = self.families.into_iter().next();
        Options {
            db: self.db,
            cf: default.map(|f| f.options).unwrap_or_default(),
            env,
        }
    }
}
