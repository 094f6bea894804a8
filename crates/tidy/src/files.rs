//! Rules for single Rust files: first line, length, `unsafe`, error types, and the origin of locks
//! and threads.

use super::Findings;
use super::map::Map;
use crate::Tree;
use crate::source::{Source, Sources};

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
/// What each unsafe island is for, and which tests cover it.
const EXPLAINED: [&str; 2] = ["docs/adr/0005-unsafe-islands.md", "SECURITY.md"];
/// An exception: the locks of a process's databases are a static.
const LOCK_FILE: &str = "crates/io/src/posix/lock.rs";
/// The names that these crates must take from `base::sync`.
const SYNC: &[&str] = &["Mutex", "Condvar", "RwLock", "Barrier", "Once"];

pub(super) fn check(tree: &Tree, sources: &Sources<'_>, map: &Map, out: &mut Findings) {
    for (&path, source) in sources {
        let text = tree.text(path).unwrap_or_default();
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
        if let Some((line, reason)) = &source.wrong {
            out.error(path, *line, format!("this is no Rust: {reason}"));
        }
        if !map.is_island(path)
            && let Some(line) = source.first_unsafe
        {
            out.error(
                path,
                line,
                "unsafe outside the islands that ARCHITECTURE.md lists",
            );
        }
        if path.starts_with("crates/") && path.contains("/src/") {
            error_types(path, source, out);
            if SCHEDULED.iter().any(|c| path.starts_with(c)) && path != LOCK_FILE {
                scheduled(path, source, out);
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
        explained(tree, island, out);
    }
}

/// Each island has its reason and its tests, under the last part of its path.
fn explained(tree: &Tree, island: &str, out: &mut Findings) {
    let name = island.trim_end_matches('/').rsplit('/').next();
    let slash = if island.ends_with('/') { "/" } else { "" };
    let name = format!("{}{slash}`", name.unwrap_or_default());
    for document in EXPLAINED {
        if !tree.text(document).is_some_and(|text| text.contains(&name)) {
            out.error(
                document,
                None,
                format!("the unsafe island {island} is missing"),
            );
        }
    }
}

/// One error type for the whole project: `base::Error`.
fn error_types(path: &str, source: &Source, out: &mut Findings) {
    if path == "crates/base/src/error.rs" {
        return;
    }
    for found in &source.types {
        if found.is_public && found.name.ends_with("Error") {
            let text = format!("{}: public errors are base::Error", found.name);
            out.error(path, found.line, text);
        }
    }
}

/// Locks and threads must come from `base::sync`, and sleeps must use the clock.
fn scheduled(path: &str, source: &Source, out: &mut Findings) {
    for found in &source.paths {
        let names: Vec<&str> = found.names.iter().map(String::as_str).collect();
        for at in 0..names.len() {
            match &names[at..] {
                ["thread", "sleep", ..] => {
                    out.error(path, found.line, "sleeps go through base::clock::Clock");
                }
                ["std", "thread", "available_parallelism", ..] => {}
                ["std", "thread", ..] => {
                    out.error(path, found.line, "threads come from base::sync::thread");
                }
                ["std", "sync", lock, ..] if SYNC.contains(lock) => {
                    out.error(path, found.line, format!("{lock} comes from base::sync"));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::read;

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
                "//! T.\nuse std::{fs, sync::{Arc, Mutex, RwLock}};\n\
                 use std::sync::Condvar;\nuse std::sync::OnceLock;\n\
                 fn f() { std::thread::spawn(g); base::sync::thread::sleep(t); }\n",
            ),
            (
                "crates/a/src/e.rs",
                "//! E.\npub struct OtherError;\nstruct OwnError;\n",
            ),
            ("crates/a/src/odd.rs", "//! O.\nfn f( {}\n"),
            (EXPLAINED[0], "`a/src/island.rs`, `gone/`"),
            (EXPLAINED[1], "`island.rs`"),
        ]);
        let map = Map {
            islands: vec!["crates/a/src/island.rs".to_owned(), "gone/".to_owned()],
            ..Map::default()
        };
        let mut out = Findings::default();
        check(&tree, &read(tree.texts("", ".rs")), &map, &mut out);
        assert_eq!(
            out.texts(),
            [
                "error: crates/a/src/e.rs:2: OtherError: public errors are base::Error",
                "error: crates/a/src/long.rs: 701 lines; 700 at most",
                "error: crates/a/src/no_doc.rs:1: a file opens with //!: what it is, and why this way",
                "error: crates/a/src/odd.rs:2: this is no Rust: cannot parse string into token stream",
                "error: crates/a/src/sharp.rs:2: unsafe outside the islands that ARCHITECTURE.md lists",
                "error: crates/io/src/threads.rs:2: Mutex comes from base::sync",
                "error: crates/io/src/threads.rs:2: RwLock comes from base::sync",
                "error: crates/io/src/threads.rs:3: Condvar comes from base::sync",
                "error: crates/io/src/threads.rs:5: threads come from base::sync::thread",
                "error: crates/io/src/threads.rs:5: sleeps go through base::clock::Clock",
                "error: ARCHITECTURE.md: no such unsafe island: gone/",
                "error: SECURITY.md: the unsafe island gone/ is missing",
            ]
        );
    }
}
