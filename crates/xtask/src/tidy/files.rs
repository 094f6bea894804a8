//! Rules for single Rust files: first line, length, `unsafe`, error types, and the origin of locks
//! and threads.

use super::Findings;
use super::map::Map;
use crate::source::{Kind, Token, tokens, without_tests};
use crate::tree::Tree;

const LINES_WARN: usize = 600;
const LINES_MAX: usize = 700;

/// Crates whose threads a test may schedule.
const SCHEDULED: &[&str] = &[
    "crates/io/",
    "crates/log/",
    "crates/keyspan/",
    "crates/table/",
    "crates/memtable/",
    "crates/files/",
    "crates/options/",
    "crates/manifest/",
    "crates/merging/",
    "crates/picking/",
    "crates/engine/",
];
/// An exception: the locks of a process's databases are a static.
const LOCK_FILE: &str = "crates/io/src/posix/lock.rs";
/// The names that these crates must take from `base::sync`.
const SYNC: &[&str] = &["Mutex", "Condvar", "RwLock", "Barrier", "Once"];

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
            let tokens = without_tests(&tokens);
            error_types(path, &tokens, out);
            if SCHEDULED.iter().any(|c| path.starts_with(c)) && path != LOCK_FILE {
                scheduled(path, &tokens, out);
            }
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

/// Locks and threads must come from `base::sync`, and sleeps must use the clock.
fn scheduled(path: &str, tokens: &[Token<'_>], out: &mut Findings) {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|t| t.is(text));
    for (i, token) in tokens.iter().enumerate() {
        if token.is("thread") && is(i + 1, "::") && is(i + 2, "sleep") {
            out.error(path, token.line, "sleeps go through base::clock::Clock");
        }
        if !token.is("std") || !is(i + 1, "::") {
            continue;
        }
        if is(i + 2, "thread") && !is(i + 4, "available_parallelism") {
            out.error(path, token.line, "threads come from base::sync::thread");
        }
        if !is(i + 2, "sync") {
            continue;
        }
        let end = if is(i + 4, "{") { "}" } else { ";" };
        let used = tokens[i + 3..].iter().take_while(|t| !t.is(end));
        let used = if is(i + 4, "{") {
            used.take(100)
        } else {
            used.take(2)
        };
        if let Some(lock) = used.into_iter().find(|t| SYNC.iter().any(|s| t.is(s))) {
            let text = format!("{} comes from base::sync", lock.text);
            out.error(path, lock.line, text);
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
                "crates/io/src/threads.rs",
                "//! T.\nuse std::sync::{Arc, Mutex};\nuse std::sync::Condvar;\nuse std::sync::OnceLock;\n\
                 fn f() { std::thread::spawn(g); base::sync::thread::sleep(t); }\n",
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
                "error: crates/a/src/long.rs: 701 lines; 700 at most",
                "error: crates/a/src/no_doc.rs:1: a file opens with //!: what it is, and why this way",
                "error: crates/a/src/sharp.rs:2: unsafe outside the islands that ARCHITECTURE.md lists",
                "error: crates/io/src/threads.rs:2: Mutex comes from base::sync",
                "error: crates/io/src/threads.rs:3: Condvar comes from base::sync",
                "error: crates/io/src/threads.rs:5: threads come from base::sync::thread",
                "error: crates/io/src/threads.rs:5: sleeps go through base::clock::Clock",
                "error: ARCHITECTURE.md: no such unsafe island: gone/",
            ]
        );
    }
}
