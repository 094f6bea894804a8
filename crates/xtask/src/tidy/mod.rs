//! `cargo xtask tidy`: rules of the source tree that neither the compiler nor clippy checks.
//!
//! Each rule is a function from a [`Tree`] to findings. The project-specific lists of layers and
//! `unsafe` islands are in ARCHITECTURE.md ([`map`]), so that the document always agrees
//! with the code.

mod changelog;
mod crates;
mod files;
mod links;
mod locks;
pub(crate) mod map;
mod modules;
mod upward;
mod words;

use crate::source;
use crate::tree::Tree;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// List findings that are otherwise only counted
    #[arg(long, short)]
    verbose: bool,
}

/// Something that a rule has to say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Whether the check fails because of it.
    is_error: bool,
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

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let tree = Tree::load(&xtask::root())?;
    let findings = check(&tree, arguments.verbose);
    for f in &findings.0 {
        println!("{f}");
    }
    match findings.0.iter().filter(|f| f.is_error).count() {
        0 => {
            println!("tidy: {} Rust files checked", tree.texts("", ".rs").count());
            Ok(())
        }
        n => Err(format!("tidy: {n} findings")),
    }
}

/// Applies every rule.
fn check(tree: &Tree, is_verbose: bool) -> Findings {
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
    upward::check(&sources, is_verbose, &mut out);
    crates::check(tree, &map, &mut out);
    changelog::check(tree, &mut out);
    links::check(tree, &mut out);
    locks::check(&sources, &mut out);
    out
}
