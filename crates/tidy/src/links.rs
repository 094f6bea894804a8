//! Checks that links between the project's documents have a target, and that the Rust files that they name exist.

use super::Findings;
use crate::Tree;

pub(super) fn check(tree: &Tree, out: &mut Findings) {
    for (path, text) in tree.texts("", ".md") {
        for (i, line) in text.lines().enumerate() {
            for target in targets(line) {
                let file = target.split('#').next().unwrap_or_default();
                if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                    continue;
                }
                let full = join(path, file);
                if full.is_none_or(|f| !tree.has(&f)) {
                    out.error(path, i + 1, format!("the link leads nowhere: {target}"));
                }
            }
            // ADRs and lists of changes speak of their time.
            let is_history =
                path.contains("docs/adr/") || path.to_lowercase().contains("changelog");
            for name in rust_files(line).filter(|_| !is_history) {
                if !is_there(tree, name) {
                    out.error(path, i + 1, format!("there is no such file: {name}"));
                }
            }
        }
    }
}

/// The names of Rust files between backticks.
fn rust_files(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|name| {
        let is_rust = name.strip_suffix(".rs").is_some();
        is_rust && !name.contains([' ', '{', '*'])
    })
}

/// Whether a path ends with this name, or with `<crate>/src/<rest>` for the short form `<crate>/<rest>`.
fn is_there(tree: &Tree, name: &str) -> bool {
    let whole = format!("/{name}");
    let short = name
        .split_once('/')
        .map(|(of, rest)| format!("crates/{of}/src/{rest}"));
    tree.texts("", ".rs")
        .any(|(path, _)| path == name || path.ends_with(&whole) || short.as_deref() == Some(path))
}

/// The targets in `](…)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
}

/// `link` relative to the folder of `from`; `None` if it leaves the tree.
fn join(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_are_found() {
        let text = "`a/b.rs`, `b.rs`, `x/b.rs` `{a,b}.rs`\n`gone.rs` and `y/a/b.rs`; b.rs, `run gone.rs`\n";
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("docs/adr/1.md", "`gone.rs`"),
            ("CHANGELOG.md", "`gone.rs`"),
            ("crates/x/src/b.rs", ""),
            ("crates/x/src/a/b.rs", ""),
        ]);
        let mut out = Findings::default();
        check(&tree, &mut out);
        assert_eq!(
            out.texts(),
            [
                "error: docs/a.md:2: there is no such file: gone.rs",
                "error: docs/a.md:2: there is no such file: y/a/b.rs",
            ]
        );
    }

    #[test]
    fn broken_links_are_found() {
        let text =
            "[a](b.md) [c](../README.md#x) [d](https://e.f/)\n[g](h.md) [i](../../j) [k](#k)\n";
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("docs/b.md", ""),
            ("README.md", "[docs](docs)"),
        ]);
        let mut out = Findings::default();
        check(&tree, &mut out);
        assert_eq!(
            out.texts(),
            [
                "error: docs/a.md:2: the link leads nowhere: h.md",
                "error: docs/a.md:2: the link leads nowhere: ../../j",
            ]
        );
    }
}
