//! The order of locks: what `locks.rs` of each crate says, as rows of one table.

use std::collections::BTreeMap;

use crate::Tree;

/// The crates that give their locks a rank.
pub(crate) const CRATES: [&str; 6] = ["engine", "manifest", "memtable", "table", "log", "io"];

/// A lock, as its constant declares it.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    krate: &'static str,
    name: String,
    text: String,
}

/// The rows by their levels. Errors: a line that declares no lock as the others do; two of one level.
fn rows(tree: &Tree) -> Result<BTreeMap<u8, Row>, String> {
    let mut rows = BTreeMap::new();
    for krate in CRATES {
        let path = format!("crates/{krate}/src/locks.rs");
        let text = tree.text(&path).ok_or(format!("{path} is missing"))?;
        let mut said = Vec::new();
        for line in text.lines() {
            if let Some(doc) = line.strip_prefix("/// ") {
                said.push(doc);
            } else if line.starts_with("pub(crate) const ") {
                let (level, name) =
                    declared(line).ok_or(format!("{path}: this is no rank: {line}"))?;
                let row = Row {
                    krate,
                    name,
                    text: std::mem::take(&mut said).join(" "),
                };
                if let Some(other) = rows.insert(level, row) {
                    return Err(format!("{path}: level {level} is that of {:?}", other.name));
                }
            }
        }
    }
    Ok(rows)
}

/// The level and the name of `pub(crate) const A: Rank = Rank::new(1, "a");`.
fn declared(line: &str) -> Option<(u8, String)> {
    let (_, rest) = line.split_once(": Rank = Rank::new(")?;
    let (level, name) = rest.strip_suffix(");")?.split_once(", ")?;
    let name = name.strip_prefix('"')?.strip_suffix('"')?;
    Some((level.parse().ok()?, name.to_owned()))
}

/// The table, in Markdown. Errors: a `locks.rs` is missing, or has a line that declares no lock as the others do.
pub fn table(tree: &Tree) -> Result<String, String> {
    let mut out = String::from("| level | lock | crate | what it is |\n|---|---|---|---|\n");
    for (level, row) in rows(tree)? {
        let (name, krate, text) = (row.name, row.krate, row.text);
        out.push_str(&format!("| {level} | {name} | {krate} | {text} |\n"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(engine: &str) -> Tree {
        let empty = "//! L.\n";
        Tree::of(&[
            ("crates/engine/src/locks.rs", engine),
            ("crates/manifest/src/locks.rs", empty),
            ("crates/memtable/src/locks.rs", empty),
            ("crates/table/src/locks.rs", empty),
            ("crates/log/src/locks.rs", empty),
            (
                "crates/io/src/locks.rs",
                "//! L.\n/// I.\npub(crate) const I: Rank = Rank::new(9, \"i\");\n",
            ),
        ])
    }

    #[test]
    fn the_table_is_in_the_order_of_the_levels() {
        let engine = "//! L.\n/// B, on\n/// two lines.\npub(crate) const B: Rank = Rank::new(2, \"b c\");\n\
                      /// A.\npub(crate) const A: Rank = Rank::new(1, \"a\");\n";
        let table = table(&tree(engine)).unwrap();
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| 1 | a | engine | A. |",
                "| 2 | b c | engine | B, on two lines. |",
                "| 9 | i | io | I. |",
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let twice = "pub(crate) const A: Rank = Rank::new(9, \"a\");\n";
        assert!(table(&tree(twice)).unwrap_err().contains("level 9"));
        let other = "pub(crate) const A: Rank = rank(1);\n";
        assert!(table(&tree(other)).unwrap_err().contains("no rank"));
    }
}
