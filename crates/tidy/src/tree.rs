//! The source tree for the checks: paths relative to the root, with `/`, and the content of text
//! files. Tests build small trees in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The extensions of text files. Other files are known by name only.
const TEXT: &[&str] = &["rs", "md", "toml", "yml", "yaml", "sh", "py"];

/// A source tree.
#[derive(Default)]
pub struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Reads the tree under `root`, without `target` and `.git`. Errors: a file or a folder cannot be read.
    pub fn load(root: &Path) -> Result<Self, String> {
        let mut tree = Self::default();
        tree.walk(root, "")?;
        Ok(tree)
    }

    /// A tree with these files, for tests.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let own = |&(path, text): &(&str, &str)| (path.to_owned(), Some(text.to_owned()));
        Self {
            files: files.iter().map(own).collect(),
        }
    }

    fn walk(&mut self, dir: &Path, prefix: &str) -> Result<(), String> {
        let fail = |e: std::io::Error| format!("{}: {e}", dir.display());
        for entry in fs::read_dir(dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if entry.file_type().map_err(fail)?.is_dir() {
                if name != "target" && name != ".git" {
                    self.walk(&entry.path(), &format!("{path}/"))?;
                }
                continue;
            }
            let extension = name.rsplit_once('.').map_or("", |(_, e)| e);
            let text = if TEXT.contains(&extension) || path == ".ci/run" {
                fs::read_to_string(entry.path()).ok()
            } else {
                None
            };
            self.files.insert(path, text);
        }
        Ok(())
    }

    /// The text of a file; `None` if it is missing or not a text file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether there is a file or a folder with this path.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.files.contains_key(path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&folder))
    }

    /// The text files whose path begins with `prefix` and ends with `suffix`, in order.
    pub fn texts<'a>(
        &'a self,
        prefix: &'a str,
        suffix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files
            .iter()
            .filter(move |(p, _)| p.starts_with(prefix) && p.ends_with(suffix))
            .filter_map(|(p, t)| Some((p.as_str(), t.as_deref()?)))
    }
}
