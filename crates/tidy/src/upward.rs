//! Calls that go up, hidden from the circles: methods that a higher module adds to a type of another module, called by
//! modules below it. Whoever calls `shared.method()` names no module.
//!
//! Only names are known here, not types: a method counts if its name is that of no other method in the workspace.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use super::modules::{module, product, uses};
use crate::source::Sources;

/// Where it is looked for.
const SRC: &str = "crates/engine/src";

pub(super) fn check(sources: &Sources<'_>, out: &mut Findings) {
    let calls = calls(sources, SRC);
    if calls.is_empty() {
        return;
    }
    let text = format!(
        "calls go up through methods that a higher module adds:\n  {}",
        calls.join("\n  ")
    );
    out.error(SRC, None, text);
}

/// A method that is added to a type of another module.
struct Added<'a> {
    of: &'a str,
    /// Where it is, and its module at the top.
    file: &'a str,
    top: &'a str,
}

/// The calls, each with what it calls.
fn calls(sources: &Sources<'_>, src: &str) -> Vec<String> {
    let added = added(sources, src);
    let above = above(sources, src);
    let mut out = Vec::new();
    for (file, source) in product(sources, src) {
        let Some(&here) = module(src, file).first() else {
            continue;
        };
        let by_dot = source.members.iter().filter(|m| m.is_called);
        let by_dot = by_dot.map(|m| (m.line, None, m.name.as_str()));
        let by_type = source.paths.iter().filter_map(|path| {
            let [.., of, name] = path.names.as_slice() else {
                return None;
            };
            Some((path.line, Some(of.as_str()), name.as_str()))
        });
        for (line, of, name) in by_dot.chain(by_type) {
            let Some(method) = added.get(name) else {
                continue;
            };
            let is_above = above
                .get(here)
                .is_some_and(|tops| tops.contains(method.top));
            if is_above && of.is_none_or(|of| of == method.of) {
                let (of, file_of) = (method.of, method.file);
                out.push(format!("{file}:{line} calls {of}::{name} of {file_of}"));
            }
        }
    }
    out
}

/// The methods that are added to types of other modules, by their names.
fn added<'a>(sources: &'a Sources<'_>, src: &'a str) -> BTreeMap<&'a str, Added<'a>> {
    let mut homes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, source) in product(sources, src) {
        for found in &source.types {
            let top = module(src, file).first().copied().unwrap_or_default();
            homes.entry(&found.name).or_default().insert(top);
        }
    }
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for method in sources.values().flat_map(|source| &source.methods) {
        *times.entry(&method.name).or_default() += 1;
    }
    let mut out = BTreeMap::new();
    for (file, source) in product(sources, src) {
        let Some(&top) = module(src, file).first() else {
            continue;
        };
        for method in &source.methods {
            let Some(of) = method.of.as_deref() else {
                continue;
            };
            let is_elsewhere = homes.get(of).is_some_and(|tops| !tops.contains(top));
            if is_elsewhere && times.get(method.name.as_str()) == Some(&1) {
                out.insert(method.name.as_str(), Added { of, file, top });
            }
        }
    }
    out
}

/// The modules that use each one, directly or through others.
fn above<'a>(sources: &'a Sources<'_>, src: &'a str) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to, _) in uses(sources, src).remove(src).unwrap_or_default() {
        users.entry(to).or_default().insert(from);
    }
    let all = |start: &str| {
        let mut found = BTreeSet::new();
        let mut next = vec![start];
        while let Some(at) = next.pop() {
            for &user in users.get(at).into_iter().flatten() {
                if found.insert(user) {
                    next.push(user);
                }
            }
        }
        found
    };
    users.keys().map(|&start| (start, all(start))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::read;

    #[test]
    fn a_call_of_what_a_higher_module_adds_is_found() {
        let files = [
            (
                "crates/engine/src/low/mod.rs",
                "struct Shared; impl Shared { fn own(&self) {} fn twice(&self) {} }",
            ),
            (
                "crates/engine/src/low/more.rs",
                "fn f(s: &Shared) { s.own(); s.twice();\n s.added();\n\
                 m!(Shared::added(s)); Other::added(s); s.added; }",
            ),
            (
                "crates/engine/src/high.rs",
                "use crate::low::Shared; impl Shared { fn added(&self) {} fn twice(&self) {} }\n\
                 impl Clone for Shared { fn clone(&self) {} } fn f(s: &Shared) { s.added() }",
            ),
            (
                "crates/engine/src/top.rs",
                "use crate::high::H; fn f(s: &Shared) { s.added() }",
            ),
        ];
        let of = "calls Shared::added of crates/engine/src/high.rs";
        assert_eq!(
            calls(&read(files.into_iter()), SRC),
            [
                format!("crates/engine/src/low/more.rs:2 {of}"),
                format!("crates/engine/src/low/more.rs:3 {of}"),
            ]
        );
        let mut out = Findings::default();
        check(&read(files.into_iter()), &mut out);
        let texts = out.texts();
        assert!(
            texts[0].starts_with("error: crates/engine/src: calls go up"),
            "{texts:?}"
        );
        assert!(
            texts[0].contains(&format!("low/more.rs:2 {of}")),
            "{texts:?}"
        );
    }
}
