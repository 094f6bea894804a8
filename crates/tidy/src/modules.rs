//! Rules between the files of a crate: every file is declared, and the entries of `src` use each other
//! in no circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Findings;
use super::words::is_test;
use crate::source::{Source, Sources};

pub(super) fn check(sources: &Sources<'_>, out: &mut Findings) {
    dead_files(sources, out);
    let crates: BTreeSet<&str> = in_crates(sources)
        .filter_map(|path| path.find("/src/").map(|i| &path[..i + 4]))
        .collect();
    for src in crates {
        circles(sources, src, out);
    }
}

fn in_crates<'a>(sources: &'a Sources<'_>) -> impl Iterator<Item = &'a str> {
    let all = sources.keys().copied();
    all.filter(|path| path.starts_with("crates/"))
}

/// Reports files that no `mod` declares, and which the compiler therefore ignores.
fn dead_files(sources: &Sources<'_>, out: &mut Findings) {
    let mut declared = BTreeSet::new();
    for path in in_crates(sources) {
        let folder = child_folder(path);
        let beside = &path[..path.rfind('/').map_or(0, |i| i + 1)];
        for module in &sources[path].modules {
            let name = module.names.join("/");
            match &module.file {
                Some(file) => declared.extend([format!("{beside}{file}")]),
                None => declared.extend([
                    format!("{folder}{name}.rs"),
                    format!("{folder}{name}/mod.rs"),
                ]),
            }
        }
    }
    for path in in_crates(sources) {
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

/// The files under `src` that are no tests.
pub(super) fn product<'a>(
    sources: &'a Sources<'_>,
    src: &str,
) -> impl Iterator<Item = (&'a str, &'a Source)> {
    let all = sources.iter().map(|(path, source)| (*path, source));
    all.filter(move |(path, _)| path.starts_with(src) && !is_test_module(path))
}

fn is_test_module(path: &str) -> bool {
    is_test(path) && !path.starts_with("crates/sim/")
}

/// A use of one module by another: the file, its line, and the file that is used.
pub(super) type Use<'a> = (&'a str, usize, &'a str);

/// Reports circles among the entries of each folder: files and folders that lie side by side.
fn circles(sources: &Sources<'_>, src: &str, out: &mut Findings) {
    for (folder, uses) in uses(sources, src) {
        let mut places: BTreeMap<&str, BTreeMap<&str, Use<'_>>> = BTreeMap::new();
        for (from, to, place) in uses {
            places.entry(from).or_default().entry(to).or_insert(place);
        }
        if let Some(circle) = circle(&places) {
            let mut text = format!("a circle: {}", circle.join(" -> "));
            for pair in circle.windows(2) {
                let (file, line, used) = places[pair[0]][pair[1]];
                text += &format!("\n  {file}:{line} uses {used}");
            }
            if folder == src {
                out.error(&folder, None, text);
            } else {
                out.warn(&folder, None, text); // a folder is read as one
            }
        }
    }
}

/// The uses of one entry of a folder by another, by folder: the names of both, and where it is.
///
/// A module and those inside it are one entry: a face may use what it is the face of, and the other way round.
pub(super) fn uses<'a>(
    sources: &'a Sources<'_>,
    src: &'a str,
) -> BTreeMap<String, Vec<(&'a str, &'a str, Use<'a>)>> {
    let files: Vec<&str> = product(sources, src).map(|(path, _)| path).collect();
    let modules: BTreeMap<Vec<&str>, &str> = files.iter().map(|f| (module(src, f), *f)).collect();
    let mut found: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for &file in &files {
        let here = module(src, file);
        for path in &sources[file].paths {
            let Some(target) = resolve(&modules, &here, &path.names) else {
                continue;
            };
            let there = module(src, target);
            let common = here.iter().zip(&there).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (here.get(common), there.get(common)) {
                let folder = [&[src], &here[..common]].concat().join("/");
                let use_of = (*from, *to, (file, path.line, target));
                found.entry(folder).or_default().push(use_of);
            }
        }
    }
    found
}

/// The shortest circle that is found, from an entry back to itself.
fn circle<'a, T>(edges: &BTreeMap<&'a str, BTreeMap<&'a str, T>>) -> Option<Vec<&'a str>> {
    let back_to = |start: &'a str| {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut next = VecDeque::from([start]);
        while let Some(at) = next.pop_front() {
            for &to in edges.get(at)?.keys().filter(|to| edges.contains_key(*to)) {
                if to == start {
                    let mut way = vec![start, at];
                    while let Some(&b) = before.get(way[way.len() - 1]) {
                        way.push(b);
                    }
                    way.reverse();
                    return Some(way);
                }
                if !before.contains_key(to) {
                    before.insert(to, at);
                    next.push_back(to);
                }
            }
        }
        None
    };
    let circles = edges.keys().filter_map(|start| back_to(start));
    circles.min_by_key(Vec::len)
}

/// The module path of a file.
pub(super) fn module<'a>(src: &str, file: &'a str) -> Vec<&'a str> {
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
    path: &'a [String],
) -> Option<&'a str> {
    let (first, rest) = path.split_first()?;
    let mut at: Vec<&str> = match first.as_str() {
        "crate" => Vec::new(),
        "self" => here.to_vec(),
        "super" => here[..here.len().saturating_sub(1)].to_vec(),
        _ => return None,
    };
    for segment in rest {
        if segment == "super" {
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
    use crate::Tree;
    use crate::source::read;

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
                "//! W.\nmod strange;\nmod inner;\n#[path = \"odd.rs\"]\nmod odd;\n",
            ),
            ("crates/a/src/wide/inner.rs", "//! I.\nuse super::odd::W;\n"),
            (
                "crates/a/src/wide/odd.rs",
                "//! O.\nuse super::strange::deep::D;\n",
            ),
            (
                "crates/a/src/wide/strange/mod.rs",
                "//! S.\nmod deep;\nuse super::inner::I;\n",
            ),
            ("crates/a/src/wide/strange/deep.rs", "//! D.\n"),
            ("crates/a/src/dead.rs", "//! D.\n"),
            ("crates/a/tests/it/main.rs", "//! M.\nmod one;\n"),
            ("crates/a/tests/it/one.rs", "//! 1.\n"),
        ])
    }

    #[test]
    fn files_are_declared_and_stand_in_no_circle() {
        let mut out = Findings::default();
        let tree = tree();
        check(&read(tree.texts("", ".rs")), &mut out);
        assert_eq!(
            out.texts(),
            [
                "error: crates/a/src/dead.rs: no mod declares this file",
                "error: crates/a/src: a circle: high -> low -> high\n  \
                 crates/a/src/high.rs:2 uses crates/a/src/low.rs\n  \
                 crates/a/src/low.rs:2 uses crates/a/src/high.rs",
                "warning: crates/a/src/wide: a circle: inner -> odd -> strange -> inner\n  \
                 crates/a/src/wide/inner.rs:2 uses crates/a/src/wide/odd.rs\n  \
                 crates/a/src/wide/odd.rs:2 uses crates/a/src/wide/strange/deep.rs\n  \
                 crates/a/src/wide/strange/mod.rs:3 uses crates/a/src/wide/inner.rs",
            ]
        );
    }

    #[test]
    fn a_face_and_what_is_behind_it_are_one() {
        let tree = Tree::of(&[
            (
                "crates/a/src/lib.rs",
                "//! A.\nmod wide;\nuse crate::wide::W;\n",
            ),
            (
                "crates/a/src/wide.rs",
                "//! W.\nmod inner;\nuse inner::I;\nuse self::inner::J;\n",
            ),
            ("crates/a/src/wide/inner.rs", "//! I.\nuse super::W;\n"),
        ]);
        let mut out = Findings::default();
        check(&read(tree.texts("", ".rs")), &mut out);
        assert_eq!(out.texts(), [""; 0]);
    }
}
