//! Rules for one Rust file at a time: its first line, its length, `unsafe`, error types.

use super::Findings;
use super::map::Map;
use crate::source::{Kind, Token, tokens, without_tests};
use crate::tree::Tree;

const LINES_WARN: usize = 600;
const LINES_MAX: usize = 1000;

pub(super) fn check(tree: &Tree, map: &Map, out: &mut Findings) {
    for (path, text) in tree.texts("", ".rs") {
        if !text.starts_with("//!") {
            out.error(
                path,
                1,
                "a file opens with //!: what it is, and why this way",
            );
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            out.error(path, None, format!("{lines} lines; {LINES_MAX} at most"));
        } else if lines > LINES_WARN {
            out.warn(
                path,
                None,
                format!("{lines} lines; more than {LINES_WARN} are hard to read"),
            );
        }
        let tokens = tokens(text);
        if !map.is_island(path)
            && let Some(t) = tokens.iter().find(|t| t.is("unsafe"))
        {
            out.error(
                path,
                t.line,
                "unsafe outside the islands that ARCHITECTURE.md lists",
            );
        }
        if path.starts_with("crates/") && path.contains("/src/") {
            error_types(path, &without_tests(&tokens), out);
        }
    }
    for island in &map.islands {
        if !tree.has(island) {
            out.error(
                super::map::FILE,
                None,
                format!("no such unsafe island: {island}"),
            );
        }
    }
}

/// One error type for the whole project: `base::Error`.
fn error_types(path: &str, tokens: &[Token<'_>], out: &mut Findings) {
    if path == "crates/base/src/error.rs" {
        return;
    }
    for pair in tokens.windows(3) {
        let [visible, what, name] = pair else {
            continue;
        };
        if visible.is("pub")
            && (what.is("struct") || what.is("enum"))
            && name.kind == Kind::Word
            && name.text.ends_with("Error")
        {
            let text = format!("{}: public errors are base::Error", name.text);
            out.error(path, name.line, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_finds_its_case() {
        let long = format!("//! Long.\n{}", "fn f() {}\n".repeat(LINES_MAX));
        let tree = Tree::of(&[
            ("crates/a/src/no_doc.rs", "fn f() {}\n"),
            ("crates/a/src/long.rs", &long),
            (
                "crates/a/src/sharp.rs",
                "//! Sharp.\nfn f() { unsafe { g() } }\n",
            ),
            (
                "crates/a/src/island.rs",
                "//! Sharp.\nfn f() { unsafe { g() } }\n",
            ),
            (
                "crates/a/src/prose.rs",
                "//! Not unsafe.\nconst S: &str = \"unsafe\";\n",
            ),
            (
                "crates/a/src/e.rs",
                "//! E.\npub struct OtherError;\nstruct OwnError;\n",
            ),
        ]);
        let map = Map {
            islands: vec!["crates/a/src/island.rs".to_owned(), "gone/".to_owned()],
            ..Map::default()
        };
        let mut out = Findings::default();
        check(&tree, &map, &mut out);
        assert_eq!(
            out.texts(),
            [
                "error: crates/a/src/e.rs:2: OtherError: public errors are base::Error",
                "error: crates/a/src/long.rs: 1001 lines; 1000 at most",
                "error: crates/a/src/no_doc.rs:1: a file opens with //!: what it is, and why this way",
                "error: crates/a/src/sharp.rs:2: unsafe outside the islands that ARCHITECTURE.md lists",
                "error: ARCHITECTURE.md: no such unsafe island: gone/",
            ]
        );
    }
}
