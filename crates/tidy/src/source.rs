//! What the checks ask of Rust files, as plain data: a file is parsed once, by `syn`, and all checks share what was
//! found.
//!
//! What macros are called with, or are made of, is no syntax tree but tokens: paths, members and literals are looked
//! for among them, too. Plain comments are in neither; whoever asks for them reads the text.

mod visit;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt as _;

/// Files by their paths.
pub type Sources<'t> = BTreeMap<&'t str, Source>;

/// What is in a file. All but the first three are without what is under `#[cfg(test)]`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Line and reason, if it is no Rust.
    pub wrong: Option<(usize, String)>,
    /// The modules in files of their own that it declares.
    pub modules: Vec<Module>,
    /// The line of the first `unsafe`.
    pub first_unsafe: Option<usize>,
    /// Paths of two names or more, in order; each of a `use` by itself.
    pub paths: Vec<Path>,
    /// Fields and methods that follow a dot.
    pub members: Vec<Member>,
    /// The values of string literals, with their lines.
    pub texts: Vec<(usize, String)>,
    /// Structs and enums.
    pub types: Vec<Type>,
    /// Functions of `impl` blocks and traits.
    pub methods: Vec<Method>,
}

/// A module in a file of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct Module {
    /// The modules in braces around it, and its own.
    pub names: Vec<String>,
    /// What `#[path]` names.
    pub file: Option<String>,
}

/// `a::b::C`, or `a::*`.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    /// Of its beginning, or, in braces, of that of its part there.
    pub line: usize,
    column: usize,
    /// Its parts.
    pub names: Vec<String>,
    /// Whether it is in a static.
    pub in_static: bool,
}

/// A field or a method that follows a dot.
#[derive(Debug, PartialEq, Eq)]
pub struct Member {
    /// Its line.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// Whether it is a method.
    pub is_called: bool,
}

/// A struct or an enum.
#[derive(Debug, PartialEq, Eq)]
pub struct Type {
    /// Its line.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// Whether it is `pub` without a limit.
    pub is_public: bool,
    /// Whether it derives `Default`.
    pub derives_default: bool,
    /// The names in the types of its fields, with their lines.
    pub inside: Vec<(usize, String)>,
}

/// A function of an `impl` block or a trait.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// The type, if the block is for no trait.
    pub of: Option<String>,
}

/// Parses files, as many at a time as there are processors.
pub fn read<'t>(files: impl Iterator<Item = (&'t str, &'t str)>) -> Sources<'t> {
    let files: Vec<_> = files.collect();
    let next = AtomicUsize::new(0);
    let (send, found) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (files, next, send) = (&files, &next, send.clone());
            scope.spawn(move || {
                while let Some((path, text)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let sent = send.send((*path, Source::of(text)));
                    proc_macro2::extra::invalidate_current_thread_spans(); // they would keep every text
                    if sent.is_err() {
                        break;
                    }
                }
            });
        }
    });
    drop(send);
    found.into_iter().collect()
}

impl Source {
    /// Parses one file.
    fn of(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|e| Self {
            wrong: Some((e.span().start().line, e.to_string())),
            ..Self::default()
        })
    }

    fn parse(text: &str) -> syn::Result<Self> {
        let file = syn::parse_file(text)?;
        let mut source = visit::visit(&file);
        source.paths.sort_by_key(|p| (p.line, p.column));
        declared(&file.items, &mut Vec::new(), &mut source.modules);
        if text.contains("unsafe") {
            source.first_unsafe = first(text.parse::<TokenStream>()?, "unsafe");
        }
        Ok(source)
    }
}

/// Collects the modules in files of their own, after those in braces around them.
fn declared(items: &[syn::Item], around: &mut Vec<String>, out: &mut Vec<Module>) {
    for item in items {
        let syn::Item::Mod(module) = item else {
            continue;
        };
        around.push(module.ident.unraw().to_string());
        if let Some((_, items)) = &module.content {
            declared(items, around, out);
        } else {
            let file = module.attrs.iter().find_map(custom_path);
            out.push(Module {
                names: around.clone(),
                file,
            });
        }
        around.pop();
    }
}

/// What `#[path = "…"]` names.
fn custom_path(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(file),
            ..
        }) if pair.path.is_ident("path") => Some(file.value()),
        _ => None,
    }
}

/// The line of the first such word.
fn first(tokens: TokenStream, word: &str) -> Option<usize> {
    tokens.into_iter().find_map(|tree| match tree {
        TokenTree::Ident(name) if name == word => Some(name.span().start().line),
        TokenTree::Group(group) => first(group.stream(), word),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let source = Source::parse(text).unwrap();
        source.paths.iter().map(|p| p.names.join("::")).collect()
    }

    #[test]
    fn comments_and_strings_hide_words() {
        let source = Source::parse(
            "/* unsafe /* x */ */ fn f<'unsafe_>() { a(\"unsafe\", r#\"un\"safe\"#, 'u', '\\''); } // unsafe\n\
             /// unsafe\nfn g() { m!(\"unsafe\", /* unsafe */ { b }) }",
        );
        assert_eq!(source.unwrap().first_unsafe, None);
        for sharp in [
            "fn f() {\n unsafe { g() } }",
            "fn f() {\n m!({ unsafe { g() } }) }",
            "#[cfg(test)] mod tests {\n unsafe fn f() {} }",
            "\n unsafe extern \"C\" { fn f(); }",
            "\n #[unsafe(no_mangle)] fn f() {}",
            "macro_rules! m { () => {\n unsafe { g() } } }",
        ] {
            assert_eq!(Source::of(sharp).first_unsafe, Some(2), "{sharp}");
        }
    }

    #[test]
    fn what_is_for_tests_is_left_out() {
        let text = "fn a() { b::a(); } #[cfg(test)] mod tests { fn b() { b::b([1; 2]); } }\n\
                    #[cfg(test)] use x::y; #[cfg(all(test, unix))] mod more { use x::z; }\n\
                    impl A { #[cfg(test)] fn c() { b::c(); } fn d() { b::d(); #[cfg(test)] use x::v; } }\n\
                    struct S { #[cfg(test)] e: b::E, f: b::F } trait T { #[cfg(test)] fn g() { b::g(); } }\n\
                    #[cfg(not(test))] use b::h;";
        assert_eq!(paths(text), ["b::a", "b::d", "b::F", "b::h"]);
    }

    #[test]
    fn groups_give_one_path_each() {
        let text =
            "use crate::{a::B, c::{d::E, F as G, self, g::*}}; fn f() { super::super::g::h(); }";
        assert_eq!(
            paths(text),
            [
                "crate::a::B",
                "crate::c::d::E",
                "crate::c::F",
                "crate::c::self",
                "crate::c::g::*",
                "super::super::g::h"
            ]
        );
        let source = Source::parse("use crate::{\n a::B,\n c::\nD};").unwrap();
        let lines: Vec<_> = source.paths.iter().map(|p| p.line).collect();
        assert_eq!(lines, [2, 3]);
    }

    #[test]
    fn paths_are_found_wherever_they_are() {
        let text = "fn f<T: a::T<a::U>>(x: &mut a::V) -> <a::W as a::X>::Y where T: a::Z { x }\n\
                    fn g() { let b::A { .. } = (b::B { c: b::C }) else { b::d!() }; matches!(x, b::D | b::E(_)); }\n\
                    macro_rules! m { () => { use $crate::c::{A, b::B as C, d::*}; $crate::c::f(c::g()) } }\n\
                    #[d::a(d::B)] #[derive(d::C)] pub(in crate::d) struct S;\n\
                    fn h() { format!(\"{}\", self::e::f(x.y, [e::g::<e::T>(1)])) }";
        assert_eq!(
            paths(text),
            [
                "a::T",
                "a::U",
                "a::V",
                "a::W",
                "a::X::Y",
                "a::Z",
                "b::A",
                "b::B",
                "b::C",
                "b::d",
                "b::D",
                "b::E",
                "crate::c::A",
                "crate::c::b::B",
                "crate::c::d::*",
                "crate::c::f",
                "c::g",
                "d::a",
                "d::B",
                "d::C",
                "crate::d",
                "self::e::f",
                "e::g",
                "e::T"
            ]
        );
    }

    #[test]
    fn members_and_literals_are_found_in_macros_too() {
        let text = "fn f() { x.a.b(1.0); m!(x.c, y.d(\"s\"), z.e::<T>(), ..g, 0..h); }\n\
                    /// not this\nfn g() { s(\"t\", b\"u\"); m! { /** nor this */ v } }";
        let source = Source::parse(text).unwrap();
        let members: Vec<_> = source
            .members
            .iter()
            .map(|m| (m.name.as_str(), m.is_called))
            .collect();
        let mut sorted = members.clone();
        sorted.sort_unstable();
        assert_eq!(
            sorted,
            [
                ("a", false),
                ("b", true),
                ("c", false),
                ("d", true),
                ("e", true)
            ]
        );
        let texts: Vec<_> = source.texts.iter().map(|(_, t)| t.as_str()).collect();
        assert_eq!(texts, ["s", "t", "u"]);
    }

    #[test]
    fn modules_in_files_are_found() {
        let source = Source::parse(
            "mod a;\n#[cfg(test)]\n#[path = \"odd.rs\"]\npub(crate) mod b;\nmod c { mod d; mod r#e; mod f {} }",
        );
        let found = source.unwrap().modules;
        let found: Vec<_> = found
            .iter()
            .map(|m| (m.names.join("/"), m.file.as_deref()))
            .collect();
        let own = |names: &str| (names.to_owned(), None);
        let expected = [
            own("a"),
            ("b".to_owned(), Some("odd.rs")),
            own("c/d"),
            own("c/e"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_rust_is_said() {
        let source = Source::of("fn f() {}\nfn g( {}\n");
        assert_eq!(source.wrong.map(|w| w.0), Some(2));
    }
}
