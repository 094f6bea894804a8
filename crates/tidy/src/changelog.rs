//! Checks the form of `changelog.d/`: one fragment per change, which are combined into CHANGELOG.md
//! at a release.

use super::Findings;
use crate::Tree;

/// The last part of a fragment's name before `.md`.
const KINDS: &[&str] = &["added", "changed", "fixed", "removed", "security"];

pub(super) fn check(tree: &Tree, out: &mut Findings) {
    for (path, text) in tree.texts("changelog.d/", "") {
        let name = &path["changelog.d/".len()..];
        if name == "README.md" {
            continue;
        }
        if !is_name(name) {
            let kinds = KINDS.join(", ");
            out.error(
                path,
                None,
                format!("the name is <words-with-dashes>.<kind>.md; kinds: {kinds}"),
            );
        }
        let text = text.trim_end();
        let is_sentence = text.starts_with(|c: char| c.is_uppercase() || c == '`')
            && text.ends_with('.')
            && !text.contains("\n\n");
        if !is_sentence {
            out.error(path, 1, "a fragment is one paragraph of whole sentences");
        }
    }
}

fn is_name(name: &str) -> bool {
    let Some((words, kind)) = name.strip_suffix(".md").and_then(|n| n.rsplit_once('.')) else {
        return false;
    };
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    KINDS.contains(&kind) && !words.is_empty() && words.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paragraphs() {
        let tree = Tree::of(&[
            ("changelog.d/README.md", "# anything"),
            ("changelog.d/first-engine.added.md", "A first engine.\n"),
            ("changelog.d/engine.new.md", "A first engine.\n"),
            ("changelog.d/a.fixed.md", "no sentence"),
            ("changelog.d/b.fixed.md", "One.\n\nTwo.\n"),
        ]);
        let mut out = Findings::default();
        check(&tree, &mut out);
        let found: Vec<_> = out.0.iter().map(|f| f.file.as_str()).collect();
        assert_eq!(
            found,
            [
                "changelog.d/a.fixed.md",
                "changelog.d/b.fixed.md",
                "changelog.d/engine.new.md"
            ]
        );
    }
}
