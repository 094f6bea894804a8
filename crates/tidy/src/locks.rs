//! A rule: where locks have an order, each lock has a place in it.

use super::Findings;
use crate::lock_table::CRATES;
use crate::source::{Source, Sources};

pub(super) fn check(sources: &Sources<'_>, out: &mut Findings) {
    for krate in CRATES {
        let src = format!("crates/{krate}/src/");
        for (path, source) in sources {
            if path.starts_with(&src) && !path.contains("tests") {
                file(path, source, out);
            }
        }
    }
}

/// Complains about mutexes that are made without a rank. A static has no order.
fn file(path: &str, source: &Source, out: &mut Findings) {
    let defaults = source.types.iter().filter(|t| t.derives_default);
    for (line, _) in defaults.filter_map(|t| t.inside.iter().find(|(_, name)| name == "Mutex")) {
        let text = "the default of this mutex has no rank: write Default by hand";
        out.error(path, *line, text);
    }
    for made in source.paths.iter().filter(|p| !p.in_static) {
        let mut pairs = made.names.windows(2);
        if pairs.any(|p| p[0] == "Mutex" && ["new", "default"].contains(&p[1].as_str())) {
            let text =
                "a mutex without a rank: make it with base::sync::ranked, and a place in locks.rs";
            out.error(path, made.line, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::read;

    fn found(text: &str) -> Vec<String> {
        let mut out = Findings::default();
        check(&read([("crates/log/src/a.rs", text)].into_iter()), &mut out);
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
        assert_eq!(
            found("struct A { a: &'static str }\nfn f() { a(&Mutex::new(1)) }").len(),
            1
        );
        assert!(found("thread_local! { static A: Mutex<u8> = Mutex::new(1); }").is_empty());
        assert!(found("#[cfg(test)]\nmod tests { fn f() { Mutex::new(1); } }").is_empty());
        assert!(
            found("use std::sync::{Arc, Mutex};\nstatic A: Mutex<u8> = Mutex::new(1);").is_empty()
        );
    }
}
