//! The rules of the source tree that neither the compiler nor clippy checks: `cargo xtask tidy`.
//!
//! ```text
//!   Tree     the files                                tree
//!   Sources  what is in the Rust files                source
//!   rules    functions of both, which give findings   the other modules
//! ```
//!
//! The project-specific lists of layers and `unsafe` islands are in ARCHITECTURE.md (`map.rs`), so that the document
//! always agrees with the code.

mod changelog;
mod crates;
mod files;
mod links;
pub mod lock_table;
mod locks;
mod map;
mod modules;
pub mod source;
mod tree;
mod upward;
mod words;

pub use tree::Tree;

/// Something that a rule has to say. As text it has the file and the line.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether the check fails because of it.
    pub is_error: bool,
    file: String,
    line: Option<usize>,
    text: String,
}

/// The findings of the rules.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, file: &str, line: impl Into<Option<usize>>, text: impl Into<String>) {
        self.add(true, file, line.into(), text.into());
    }

    fn warn(&mut self, file: &str, line: impl Into<Option<usize>>, text: impl Into<String>) {
        self.add(false, file, line.into(), text.into());
    }

    fn add(&mut self, is_error: bool, file: &str, line: Option<usize>, text: String) {
        let file = file.to_owned();
        self.0.push(Finding {
            is_error,
            file,
            line,
            text,
        });
    }

    /// All findings as text, for tests.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.is_error { "error" } else { "warning" };
        write!(f, "{kind}: {}", self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// Applies every rule.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = Findings::default();
    let map = match map::read(tree) {
        Ok(map) => map,
        Err(e) => {
            out.error(map::FILE, None, e);
            map::Map::default()
        }
    };
    let sources = source::read(tree.texts("", ".rs"));
    files::check(tree, &sources, &map, &mut out);
    words::check(tree, &sources, &mut out);
    modules::check(&sources, &mut out);
    upward::check(&sources, &mut out);
    crates::check(tree, &map, &mut out);
    changelog::check(tree, &mut out);
    links::check(tree, &mut out);
    locks::check(&sources, &mut out);
    out.0
}
