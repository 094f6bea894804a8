//! A rule: where locks have an order, each lock has a place in it.

use super::Findings;
use crate::lock_table::CRATES;
use crate::source::{Token, tokens, without_tests};
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

/// Complains about mutexes that are made without a rank. A static has no order.
fn file(path: &str, text: &str, out: &mut Findings) {
    let tokens = without_tests(&tokens(text));
    let mut derives_default = false;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let rest = &tokens[at..];
        if token.is("static") {
            at += until(rest, ";");
        } else if token.is("derive") {
            let list = &rest[..until(rest, "]")];
            derives_default |= list.iter().any(|t| t.is("Default"));
        } else if token.is("struct") || token.is("enum") {
            let mutex = body(rest).iter().find(|t| t.is("Mutex"));
            if let Some(mutex) = mutex
                && derives_default
            {
                let text = "the default of this mutex has no rank: write Default by hand";
                out.error(path, mutex.line, text);
            }
            derives_default = false;
        } else if token.is("Mutex") && is_made(rest) {
            let text =
                "a mutex without a rank: make it with base::sync::ranked, and a place in locks.rs";
            out.error(path, token.line, text);
        }
        at += 1;
    }
}

/// Whether `Mutex`, the first token, is followed by `::new` or `::default`.
fn is_made(tokens: &[Token<'_>]) -> bool {
    matches!(tokens, [_, colons, name, ..]
        if colons.is("::") && (name.is("new") || name.is("default")))
}

/// How many tokens come before the first of these.
fn until(tokens: &[Token<'_>], mark: &str) -> usize {
    tokens
        .iter()
        .position(|t| t.is(mark))
        .unwrap_or(tokens.len())
}

/// The tokens of a struct or enum: up to the brace that closes it, or the semicolon.
fn body<'t, 's>(tokens: &'t [Token<'s>]) -> &'t [Token<'s>] {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        if ["{", "(", "["].iter().any(|open| token.is(open)) {
            depth += 1;
        } else if ["}", ")", "]"].iter().any(|close| token.is(close)) {
            depth = depth.saturating_sub(1);
            if depth == 0 && token.is("}") {
                return &tokens[..at];
            }
        } else if token.is(";") && depth == 0 {
            return &tokens[..at];
        }
    }
    tokens
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
