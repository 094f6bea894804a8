//! The lists in ARCHITECTURE.md that the checks read. Each is a fenced block whose first line names
//! it:
//!
//! ```text
//! crates                        unsafe
//! base <-                       crates/x/src/y.rs why
//! io   <- base
//! sim  <- *
//! ```
//!
//! `<- *` marks a development crate.

use crate::Tree;

/// The document with the lists.
pub(crate) const FILE: &str = "ARCHITECTURE.md";

/// The content of the lists.
#[derive(Debug, Default)]
pub(crate) struct Map {
    /// Each crate's library name and its allowed dependencies; `None` allows any.
    pub(crate) crates: Vec<(String, Option<Vec<String>>)>,
    /// Files or folders that may contain `unsafe`.
    pub(crate) islands: Vec<String>,
}

/// Reads the lists. Errors: the document is missing, or a line does not have the form above.
pub(crate) fn read(tree: &Tree) -> Result<Map, String> {
    let text = tree.text(FILE).ok_or("the file is missing")?;
    let mut map = Map::default();
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        if line.trim_end() != "```text" {
            continue;
        }
        let block: Vec<(usize, &str)> = lines.by_ref().take_while(|(_, l)| *l != "```").collect();
        let Some(((_, title), rows)) = block.split_first() else {
            continue;
        };
        let rows = rows.iter().filter(|(_, row)| !row.trim().is_empty());
        for (number, row) in rows {
            map.row(title.trim(), row.trim())
                .ok_or_else(|| format!("line {}: cannot be read: {row}", number + 1))?;
        }
    }
    Ok(map)
}

impl Map {
    /// Parses one row of the block with this title; other blocks are drawings and are ignored.
    fn row(&mut self, title: &str, row: &str) -> Option<()> {
        let mut words = row.split_whitespace();
        let mut title = title.split_whitespace();
        match (title.next()?, title.next()) {
            ("crates", None) => {
                let (name, below) = row.split_once("<-")?;
                let below: Vec<_> = below.split_whitespace().map(str::to_owned).collect();
                let below = (below != ["*"]).then_some(below);
                self.crates.push((name.trim().to_owned(), below));
            }
            ("unsafe", None) => self.islands.push(words.next()?.to_owned()),
            _ => {}
        }
        Some(())
    }

    /// Whether the file may contain `unsafe`.
    pub(crate) fn is_island(&self, file: &str) -> bool {
        self.islands
            .iter()
            .any(|i| i == file || (i.ends_with('/') && file.starts_with(i.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_read_and_drawings_are_not() {
        let text = "# Map\n```text\ncrates\nbase <-\nio <- base\nsim <- *\n```\n\
            ```text\nunsafe\ncrates/io/src/buffer.rs  why\ncrates/m/\n```\n\
            ```text\n put -> get\n```\n";
        let map = read(&Tree::of(&[(FILE, text)])).unwrap();
        assert_eq!(map.crates.len(), 3);
        assert_eq!(
            map.crates[1],
            ("io".to_owned(), Some(vec!["base".to_owned()]))
        );
        assert_eq!(map.crates[2].1, None);
        assert!(map.is_island("crates/m/x.rs") && !map.is_island("crates/io/src/lib.rs"));
        let bad = read(&Tree::of(&[(FILE, "```text\ncrates\nbase\n```\n")]));
        assert_eq!(bad.unwrap_err(), "line 3: cannot be read: base");
    }
}
