//! A rule: where locks have an order, each lock has a place in it.

use super::Findings;
use crate::lock_table::CRATES;
use crate::source::{tokens, without_tests};
use crate::tree::Tree;

pub(super) fn check(tree: &Tree, out: &mut Findings) {
    for krate in CRATES {
        let src = format!("crates/{krate}/src/");
        for (path, text) in tree.texts(&src, ".rs") {
            if !path.contains("tests") {
                file(path, text, out);
            }
        }
    }
}

/// Complains about mutexes of `base::sync` that are made without a rank.
fn file(path: &str, text: &str, out: &mut Findings) {
    let tokens = without_tests(&tokens(text));
    let from_std = tokens
        .windows(7)
        .any(|w| w[0].is("std") && w[2].is("sync") && w[4..].iter().any(|t| t.is("Mutex")));
    if from_std {
        return; // a static, which has no order
    }
    for w in tokens.windows(3) {
        let made = w[2].is("new") || w[2].is("default");
        if w[0].is("Mutex") && w[1].is("::") && made {
            let text =
                "a mutex without a rank: make it with base::sync::ranked, and a place in locks.rs";
            out.error(path, w[0].line, text);
        }
    }
    let mut derives_default = false;
    for (i, t) in tokens.iter().enumerate() {
        if t.is("derive") {
            let rest = tokens[i..].iter().take_while(|t| !t.is("]"));
            derives_default = rest.into_iter().any(|t| t.is("Default"));
        } else if t.is("struct") || t.is("enum") {
            let body = tokens[i..].iter().take_while(|t| !t.is("}") && !t.is(";"));
            if let Some(mutex) = body.into_iter().find(|t| t.is("Mutex"))
                && derives_default
            {
                out.error(
                    path,
                    mutex.line,
                    "the default of this mutex has no rank: write Default by hand",
                );
            }
            derives_default = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mut out = Findings::default();
        check(&Tree::of(&[("crates/log/src/a.rs", text)]), &mut out);
        out.texts()
    }

    #[test]
    fn a_mutex_has_a_rank() {
        assert_eq!(
            found("fn f() { a(Mutex::new(1)); b(ranked(locks::A, 1)); }").len(),
            1
        );
        assert_eq!(
            found("struct A { a: Mutex<u8> }\nfn f() { A { a: Mutex::default() } }").len(),
            1
        );
        assert_eq!(
            found("#[derive(Debug, Default)]\nstruct A {\n    a: Mutex<u8>,\n}").len(),
            1
        );
        assert!(
            found("#[derive(Debug)]\nstruct A { a: Mutex<u8> }\n#[derive(Default)]\nstruct B;")
                .is_empty()
        );
        assert!(found("#[cfg(test)]\nmod tests { fn f() { Mutex::new(1); } }").is_empty());
        assert!(
            found("use std::sync::{Arc, Mutex};\nstatic A: Mutex<u8> = Mutex::new(1);").is_empty()
        );
    }
}
