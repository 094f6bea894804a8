//! Rules between the files of a crate: every file is declared and listed, and uses point downward.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use super::map::{self, Map};
use super::words::is_test;
use crate::source::{Kind, Token, paths, tokens, without_tests};
use crate::tree::Tree;

pub(super) fn check(tree: &Tree, map: &Map, out: &mut Findings) {
    dead_files(tree, out);
    let crates: BTreeSet<&str> = tree
        .texts("crates/", ".rs")
        .filter_map(|(path, _)| path.find("/src/").map(|i| &path[..i + 4]))
        .collect();
    for src in crates {
        match map.modules.iter().find(|(s, _)| s == src) {
            Some((_, list)) => {
                listed(tree, src, list, out);
                order(tree, map, src, list, out);
            }
            None => out.error(map::FILE, None, format!("no list of modules for {src}")),
        }
    }
    for (src, _) in &map.modules {
        if !tree.has(src) {
            out.error(
                map::FILE,
                None,
                format!("a list of modules for {src}, which is not there"),
            );
        }
    }
}

/// Reports files that no `mod` declares, and which the compiler therefore ignores.
fn dead_files(tree: &Tree, out: &mut Findings) {
    let mut declared = BTreeSet::new();
    for (path, text) in tree.texts("crates/", ".rs") {
        let folder = child_folder(path);
        let beside = &path[..path.rfind('/').map_or(0, |i| i + 1)];
        for (name, custom) in declarations(&tokens(text)) {
            match custom {
                Some(file) => declared.extend([format!("{beside}{file}")]),
                None => declared.extend([
                    format!("{folder}{name}.rs"),
                    format!("{folder}{name}/mod.rs"),
                ]),
            }
        }
    }
    for (path, _) in tree.texts("crates/", ".rs") {
        if !is_root(path) && !declared.contains(path) {
            out.error(path, None, "no mod declares this file");
        }
    }
}

/// The folder with the modules that `path` declares.
fn child_folder(path: &str) -> String {
    let stem = path.trim_end_matches(".rs");
    let is_folder = is_root(path) || stem.ends_with("/mod");
    let end = if is_folder {
        stem.rfind('/').unwrap_or(0)
    } else {
        stem.len()
    };
    format!("{}/", &stem[..end])
}

/// Whether cargo compiles the file by itself.
fn is_root(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let folder = path[..path.len() - name.len()].trim_end_matches('/');
    let parent = folder.rsplit('/').next().unwrap_or(folder);
    matches!(name, "lib.rs" | "main.rs" | "build.rs")
        || matches!(parent, "bin" | "benches" | "examples" | "tests")
            && folder.split('/').count() <= 4
}

/// The modules that a file declares, with the file named by `#[path]`, if any.
fn declarations<'a>(tokens: &[Token<'a>]) -> Vec<(&'a str, Option<&'a str>)> {
    let mut out = Vec::new();
    for (i, window) in tokens.windows(3).enumerate() {
        let [keyword, name, end] = window else {
            continue;
        };
        if keyword.is("mod") && name.kind == Kind::Word && end.is(";") {
            let custom = custom_path(&tokens[..i]);
            out.push((name.text, custom));
        }
    }
    out
}

/// The file named by a `#[path = "…"]` among the attributes at the end of `before`.
fn custom_path<'a>(mut before: &[Token<'a>]) -> Option<&'a str> {
    while let Some((last, rest)) = before.split_last() {
        if last.is("]") {
            let open = rest.iter().rposition(|t| t.is("["))?;
            if let [key, mark, file] = &rest[open + 1..]
                && key.is("path")
                && mark.is("=")
            {
                return Some(file.text.trim_matches('"'));
            }
            before = &rest[..open];
        } else if ["#", "pub", "(", "crate", "super", ")"]
            .iter()
            .any(|w| last.is(w))
        {
            before = rest; // visibility, or the `#` of an attribute
        } else {
            break;
        }
    }
    None
}

/// Checks that every file has a line in the list, and every line a file.
fn listed(tree: &Tree, src: &str, list: &[String], out: &mut Findings) {
    for (path, _) in tree.texts(src, ".rs").filter(|(p, _)| !is_test_module(p)) {
        let file = &path[src.len() + 1..];
        if position(list, file).is_none() {
            out.error(path, None, "not in the list of modules in ARCHITECTURE.md");
        }
    }
    for entry in list {
        if !tree.has(&format!("{src}/{entry}")) {
            out.error(
                map::FILE,
                None,
                format!("{src}/{entry} is listed and not there"),
            );
        }
    }
}

fn is_test_module(path: &str) -> bool {
    is_test(path) && !path.starts_with("crates/sim/")
}

/// The position of a file in the list; a folder stands for all files in it.
fn position(list: &[String], file: &str) -> Option<usize> {
    list.iter().position(|e| e == file).or_else(|| {
        list.iter()
            .position(|e| e.ends_with('/') && file.starts_with(e.as_str()))
    })
}

/// Checks that a file uses only files above it in the list, except where `upward` allows it.
fn order(tree: &Tree, map: &Map, src: &str, list: &[String], out: &mut Findings) {
    let files: Vec<&str> = tree
        .texts(src, ".rs")
        .map(|(p, _)| p)
        .filter(|p| !is_test_module(p))
        .collect();
    let modules: BTreeMap<Vec<&str>, &str> = files.iter().map(|f| (module(src, f), *f)).collect();
    let mut used = BTreeSet::new();
    for &file in &files {
        let Some(here) = position(list, &file[src.len() + 1..]) else {
            continue;
        };
        let text = tree.text(file).unwrap_or_default();
        for (line, path) in paths(&without_tests(&tokens(text))) {
            let Some(target) = resolve(&modules, &module(src, file), &path) else {
                continue;
            };
            let Some(there) = position(list, &target[src.len() + 1..]) else {
                continue;
            };
            let pair = (file.to_owned(), target.to_owned());
            if there <= here {
                continue;
            }
            if !map.upward.contains(&pair) {
                let target = &target[src.len() + 1..];
                let text = format!("uses {target}, which ARCHITECTURE.md lists below it");
                out.error(file, line, text);
            }
            used.insert(pair);
        }
    }
    for pair in map.upward.iter().filter(|(from, _)| from.starts_with(src)) {
        if !used.contains(pair) {
            let text = format!("{} does not use {} any more", pair.0, pair.1);
            out.error(map::FILE, None, text);
        }
    }
}

/// The module path of a file.
fn module<'a>(src: &str, file: &'a str) -> Vec<&'a str> {
    let mut names: Vec<&str> = file[src.len() + 1..]
        .trim_end_matches(".rs")
        .split('/')
        .collect();
    if matches!(names.last(), Some(&("mod" | "lib" | "main"))) {
        names.pop();
    }
    names
}

/// The file that a path leads to: that of its longest prefix that is a module.
fn resolve<'a>(
    modules: &BTreeMap<Vec<&'a str>, &'a str>,
    here: &[&'a str],
    path: &[&'a str],
) -> Option<&'a str> {
    let (first, rest) = path.split_first()?;
    let mut at: Vec<&str> = match *first {
        "crate" => Vec::new(),
        "self" => here.to_vec(),
        _ => here[..here.len().saturating_sub(1)].to_vec(),
    };
    for segment in rest {
        if *segment == "super" {
            at.pop();
            continue;
        }
        at.push(segment);
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
    }
    // The crate's root only re-exports names: it does not count as a target.
    (!at.is_empty())
        .then(|| modules.get(&at).copied())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        Tree::of(&[
            (
                "crates/a/src/lib.rs",
                "//! A.\nmod low;\nmod high;\nmod wide;\n",
            ),
            (
                "crates/a/src/low.rs",
                "//! L.\nuse crate::high::H;\n#[cfg(test)]\nmod tests;\n",
            ),
            ("crates/a/src/low/tests.rs", "//! T.\nuse crate::wide::W;\n"),
            (
                "crates/a/src/high.rs",
                "//! H.\nuse crate::{low::L, wide::inner::I};\n",
            ),
            (
                "crates/a/src/wide/mod.rs",
                "//! W.\n#[path = \"odd.rs\"]\nmod strange;\nmod inner;\n",
            ),
            ("crates/a/src/wide/inner.rs", "//! I.\nuse super::W;\n"),
            ("crates/a/src/wide/odd.rs", "//! O.\n"),
            ("crates/a/src/dead.rs", "//! D.\n"),
            ("crates/a/tests/it/main.rs", "//! M.\nmod one;\n"),
            ("crates/a/tests/it/one.rs", "//! 1.\n"),
        ])
    }

    fn map(list: &[&str], upward: &[(&str, &str)]) -> Map {
        let own = |s: &&str| (*s).to_owned();
        Map {
            modules: vec![("crates/a/src".to_owned(), list.iter().map(own).collect())],
            upward: upward
                .iter()
                .map(|(a, b)| (format!("crates/a/src/{a}"), format!("crates/a/src/{b}")))
                .collect(),
            ..Map::default()
        }
    }

    #[test]
    fn order_lists_and_dead_files() {
        let mut out = Findings::default();
        check(
            &tree(),
            &map(&["low.rs", "high.rs", "wide/", "gone.rs"], &[]),
            &mut out,
        );
        assert_eq!(
            out.texts(),
            [
                "error: crates/a/src/dead.rs: no mod declares this file",
                "error: crates/a/src/dead.rs: not in the list of modules in ARCHITECTURE.md",
                "error: crates/a/src/lib.rs: not in the list of modules in ARCHITECTURE.md",
                "error: ARCHITECTURE.md: crates/a/src/gone.rs is listed and not there",
                "error: crates/a/src/high.rs:2: uses wide/inner.rs, which ARCHITECTURE.md lists below it",
                "error: crates/a/src/low.rs:2: uses high.rs, which ARCHITECTURE.md lists below it",
            ]
        );
    }

    #[test]
    fn listed_exceptions_pass_and_stale_ones_do_not() {
        let list = ["wide/", "low.rs", "high.rs", "dead.rs", "lib.rs"];
        let upward = [("low.rs", "high.rs"), ("wide/inner.rs", "low.rs")];
        let mut out = Findings::default();
        check(&tree(), &map(&list, &upward), &mut out);
        assert_eq!(
            out.texts(),
            [
                "error: crates/a/src/dead.rs: no mod declares this file",
                "error: ARCHITECTURE.md: crates/a/src/wide/inner.rs does not use crates/a/src/low.rs any more",
            ]
        );
    }
}
