//! The syntax of OPTIONS files and of single options as text: names and values, escapes, structs in braces, and the
//! comparison of values.

use base::options::members;

/// Escapes the characters that would end a name or start a comment.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\\' | '#' | ':' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Undoes [`escape`].
pub fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some(c) => out.push(c),
            None => out.push('\\'),
        }
    }
    out
}

/// Whether two values mean the same: as text, as numbers, or member by member in any order.
pub(super) fn same_value(value: &str, default: &str) -> bool {
    if value == default {
        return true;
    }
    if let (Ok(a), Ok(b)) = (value.parse::<f64>(), default.parse::<f64>()) {
        return a.to_bits() == b.to_bits();
    }
    if !(value.starts_with('{') && default.starts_with('{')) {
        return false;
    }
    match (members(value), members(default)) {
        (Ok(a), Ok(b)) => a
            .iter()
            .all(|(name, v)| b.iter().any(|(n, w)| n == name && same_value(v, w))),
        _ => false,
    }
}

/// False if the default is a number or a boolean and the value is not.
pub(super) fn same_shape(value: &str, default: &str) -> bool {
    let number = |s: &str| s.parse::<f64>().is_ok();
    let switch = |s: &str| matches!(s, "true" | "false" | "0" | "1");
    let is_switch = matches!(default, "true" | "false");
    (!number(default) || number(value)) && (!is_switch || switch(value))
}

/// The line without its comment.
pub(super) fn strip_comment(line: &str) -> &str {
    let mut before = ' ';
    for (i, c) in line.char_indices() {
        if c == '#' && before != '\\' {
            return line.get(..i).unwrap_or(line);
        }
        before = c;
    }
    line
}
