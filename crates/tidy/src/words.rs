//! Finds text that must not be in the project: notes of unfinished work, and paths that exist on
//! one machine only.

use std::path::Path;

use super::Findings;
use crate::Tree;
use crate::source::Sources;

/// Notes of unfinished work, spelled in pieces, so that this file does not contain them.
const NOTES: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimpl", "emented!"),
];

/// Folders of development machines.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// A folder beside the repository, which only tests may use.
const BESIDE: &str = concat!("../", "shared");

pub(super) fn check(tree: &Tree, sources: &Sources<'_>, out: &mut Findings) {
    for (path, text) in tree.texts("", "") {
        for (i, line) in text.lines().enumerate() {
            for note in NOTES.iter().filter(|n| has_word(line, n)) {
                let text = format!("{note}: finish it, or return NotSupported and list it");
                out.error(path, i + 1, text);
            }
            for machine in MACHINE_PATHS.iter().filter(|p| line.contains(**p)) {
                out.error(path, i + 1, format!("a path of one machine: {machine}"));
            }
            if line.contains(BESIDE) && !is_rust(path) && !path.contains("/tests/") {
                out.error(path, i + 1, format!("{BESIDE}: only tests may look there"));
            }
        }
        if let Some(source) = sources.get(path).filter(|_| !is_test(path)) {
            for (line, _) in source.texts.iter().filter(|(_, t)| t.contains(BESIDE)) {
                out.error(path, *line, format!("{BESIDE}: only tests may look there"));
            }
        }
    }
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension() == Some("rs".as_ref())
}

/// Whether the whole file is a test, by its name.
pub(super) fn is_test(path: &str) -> bool {
    path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
        || path.starts_with("crates/sim/")
        || path.starts_with("fuzz/")
}

/// Whether `line` contains `word` without an adjacent alphanumeric character.
fn has_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(i, _)| {
        let before = line[..i].chars().next_back();
        let after = line[i + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::read;

    #[test]
    fn notes_and_foreign_paths_are_found() {
        let note = format!("//! A.\n// {}: later\nconst XXH3: u8 = 0;\n", NOTES[0]);
        let macro_ = format!("//! B.\nfn f() {{ {}() }}\n", NOTES[3]);
        let path = format!("see {}x\n", MACHINE_PATHS[0]);
        let beside = format!("//! C.\nconst P: &str = \"{BESIDE}/x\";\n");
        let in_test =
            format!("//! D.\n#[cfg(test)]\nmod tests {{ const P: &str = \"{BESIDE}/x\"; }}\n");
        let tree = Tree::of(&[
            ("crates/a/src/a.rs", &note),
            ("crates/a/src/b.rs", &macro_),
            ("crates/a/src/c.rs", &beside),
            ("crates/a/src/d.rs", &in_test),
            ("crates/a/tests/it/e.rs", &beside),
            ("docs/f.md", &path),
            ("docs/g.md", BESIDE),
        ]);
        let mut out = Findings::default();
        check(&tree, &read(tree.texts("", ".rs")), &mut out);
        let found: Vec<_> = out.0.iter().map(|f| (f.file.as_str(), f.line)).collect();
        assert_eq!(
            found,
            [
                ("crates/a/src/a.rs", Some(2)),
                ("crates/a/src/b.rs", Some(2)),
                ("crates/a/src/c.rs", Some(2)),
                ("docs/f.md", Some(1)),
                ("docs/g.md", Some(1)),
            ]
        );
    }
}
