//! Splits Rust source into tokens: identifiers, literals and punctuation, without comments. This is
//! enough to find `mod`, `unsafe` and paths without being misled by strings and comments.

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// The line, from 1.
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    Literal,
    /// One character of punctuation, or `::`.
    Mark,
}

impl Token<'_> {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.kind != Kind::Literal && self.text == text
    }
}

/// Splits source into tokens.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer {
        source,
        at: 0,
        line: 1,
    };
    let mut out = Vec::new();
    while let Some((kind, start, line)) = lexer.next() {
        if let Some(kind) = kind {
            out.push(Token {
                line,
                kind,
                text: &source[start..lexer.at],
            });
        }
    }
    out
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl Lexer<'_> {
    /// Kind (`None` for a comment or space), start and line of the next piece.
    fn next(&mut self) -> Option<(Option<Kind>, usize, usize)> {
        let (start, line) = (self.at, self.line);
        let rest = &self.source[start..];
        let first = rest.chars().next()?;
        let (len, kind) = if first.is_whitespace() {
            (first.len_utf8(), None)
        } else if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), None)
        } else if rest.starts_with("/*") {
            (block_comment(rest), None)
        } else if let Some(len) = string(rest) {
            (len, Some(Kind::Literal))
        } else if first == '\'' {
            quote(rest)
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            (end, Some(Kind::Word))
        } else if rest.starts_with("::") {
            (2, Some(Kind::Mark))
        } else {
            (first.len_utf8(), Some(Kind::Mark))
        };
        self.at += len;
        self.line += rest[..len].matches('\n').count();
        Some((kind, start, line))
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Length of a nested block comment.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of a string literal of any kind at the start of `text`.
fn string(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c", ""]
        .into_iter()
        .find(|p| text.starts_with(p) && text[p.len()..].starts_with(['"', '#']))?;
    let rest = &text[prefix.len()..];
    let raw = prefix.contains('r');
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    if !rest[hashes..].starts_with('"') || (hashes > 0 && !raw) {
        return None;
    }
    let body = prefix.len() + hashes + 1;
    if raw {
        let end = format!("\"{}", "#".repeat(hashes));
        let found = text[body..].find(&end).map(|i| body + i + end.len());
        return Some(found.unwrap_or(text.len()));
    }
    Some(body + escaped(&text[body..], b'"'))
}

/// Length up to and including the closing `end`, past escapes.
fn escaped(text: &str, end: u8) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b if b == end => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// A character literal, or a lifetime.
fn quote(text: &str) -> (usize, Option<Kind>) {
    let mut chars = text[1..].chars();
    let (first, second) = (chars.next(), chars.next());
    if first == Some('\\') || second == Some('\'') {
        (1 + escaped(&text[1..], b'\''), Some(Kind::Literal))
    } else {
        (1, Some(Kind::Mark))
    }
}

/// The tokens without items under `#[cfg(test)]`.
pub(crate) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if is_cfg_test(&tokens[at..]) {
            at = item_end(tokens, at);
        } else {
            out.push(tokens[at].clone());
            at += 1;
        }
    }
    out
}

fn is_cfg_test(tokens: &[Token<'_>]) -> bool {
    let starts = |words: &[&str]| {
        tokens.len() >= words.len() && words.iter().zip(tokens).all(|(w, t)| t.is(w))
    };
    starts(&["#", "[", "cfg", "(", "test", ")"])
        || starts(&["#", "[", "cfg", "(", "all", "(", "test"])
}

/// The index after the item that begins with attributes at `at`: after its `;` or its closing
/// brace.
fn item_end(tokens: &[Token<'_>], mut at: usize) -> usize {
    let mut depth = 0usize;
    while at < tokens.len() {
        let t = &tokens[at];
        at += 1;
        if t.is("{") || t.is("[") || t.is("(") {
            depth += 1;
        } else if t.is("}") || t.is("]") || t.is(")") {
            depth = depth.saturating_sub(1);
            if depth == 0 && t.is("}") {
                break;
            }
        } else if depth == 0 && t.is(";") {
            break;
        }
    }
    at
}

/// The paths that begin with `crate`, `self` or `super`, each as its segments with its line; a
/// group in braces gives one path per entry.
pub(crate) fn paths<'a>(tokens: &[Token<'a>]) -> Vec<(usize, Vec<&'a str>)> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let start = ["crate", "self", "super"].iter().any(|w| tokens[at].is(w));
        if start && tokens.get(at + 1).is_some_and(|t| t.is("::")) {
            at = path(tokens, at, &mut Vec::new(), &mut out);
        } else {
            at += 1;
        }
    }
    out
}

/// Collects the path, or group of paths, at `at`, after the segments `before`.
fn path<'a>(
    tokens: &[Token<'a>],
    mut at: usize,
    before: &mut Vec<&'a str>,
    out: &mut Vec<(usize, Vec<&'a str>)>,
) -> usize {
    let depth = before.len();
    let line = tokens.get(at).map_or(0, |t| t.line);
    while let Some(t) = tokens.get(at) {
        if t.kind == Kind::Word {
            before.push(t.text);
            at += 1;
            if tokens.get(at).is_some_and(|t| t.is("::")) {
                at += 1;
                continue;
            }
        } else if t.is("{") && depth < before.len() {
            at += 1;
            while tokens.get(at).is_some_and(|t| !t.is("}")) {
                if tokens[at].kind == Kind::Word {
                    at = path(tokens, at, before, out);
                } else {
                    at += 1;
                }
            }
            before.truncate(depth);
            return at + 1;
        }
        break;
    }
    out.push((line, before.clone()));
    before.truncate(depth);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<&str> {
        tokens(source).iter().map(|t| t.text).collect()
    }

    #[test]
    fn comments_and_strings_hide_words() {
        let source = "a /* unsafe /* x */ */ \"unsafe\" r#\"un\"safe\"# 'u' 'a b'\\'' // c\nd";
        let words = words(source);
        assert!(!words.contains(&"unsafe"), "{words:?}");
        assert_eq!(words.first(), Some(&"a"));
        assert_eq!(words.last(), Some(&"d"));
        assert_eq!(tokens(source).last().unwrap().line, 2);
    }

    #[test]
    fn lifetimes_are_not_characters() {
        let found = words("fn f<'a>(x: &'a u8, c: char) { c == '\\n' }");
        assert_eq!(found[3..5], ["'", "a"]);
        assert_eq!(found[found.len() - 2..], ["'\\n'", "}"]);
    }

    #[test]
    fn items_for_tests_are_left_out() {
        let all = tokens(
            "fn a() {} #[cfg(test)] mod tests { fn b() { [1; 2]; } } #[cfg(test)] use x::y; fn c() {}",
        );
        let left: Vec<_> = without_tests(&all).iter().map(|t| t.text).collect();
        assert_eq!(left.join(" "), "fn a ( ) { } fn c ( ) { }");
    }

    #[test]
    fn groups_give_one_path_each() {
        let all = tokens("use crate::{a::B, c::{d::E, F}}; fn f() { super::super::g::h(); }");
        let found: Vec<_> = paths(&all).into_iter().map(|(_, p)| p.join("::")).collect();
        assert_eq!(
            found,
            [
                "crate::a::B",
                "crate::c::d::E",
                "crate::c::F",
                "super::super::g::h"
            ]
        );
    }
}
