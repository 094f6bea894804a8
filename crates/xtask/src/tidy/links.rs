//! Checks that links between the project's documents have a target.

use super::Findings;
use crate::tree::Tree;

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
        }
    }
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
