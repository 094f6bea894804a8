//! The outputs of a suite in a directory: `report.json`, `report.tsv` and `report.html`. Each is
//! put in place by a rename, so that it is never incomplete.

use std::fs;
use std::path::PathBuf;

use super::data::Report;
use super::{page, table};

/// A directory of outputs.
pub(crate) struct Files {
    dir: PathBuf,
}

impl Files {
    pub(crate) fn new(dir: PathBuf) -> Result<Self, String> {
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Self { dir })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes all outputs of a report.
    pub(crate) fn write(&self, report: &Report) -> Result<(), String> {
        self.put("report.json", &report.json()?)?;
        self.put("report.tsv", &table::tsv(report))?;
        self.put("report.html", &page::html(report))
    }

    /// Writes one output.
    pub(crate) fn put(&self, name: &str, text: &str) -> Result<(), String> {
        let (path, new) = (self.path(name), self.path(&format!("{name}.new")));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|e| format!("{}: {e}", path.display()))
    }
}
