//! Converts the Markdown tables that other commands print to HTML; each other line becomes a
//! paragraph.

use maud::{Markup, html};

/// A cell with more bytes is a sentence rather than a figure.
const LONG: usize = 40;

/// Consecutive lines of one kind.
enum Part<'a> {
    Table(Vec<Vec<&'a str>>),
    Text(Vec<&'a str>),
}

/// The cells of a table's line.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    for line in text.lines() {
        match (cells(line), parts.last_mut()) {
            (Some(row), Some(Part::Table(rows))) => rows.push(row),
            (Some(row), _) => parts.push(Part::Table(vec![row])),
            (None, _) if line.trim().is_empty() => parts.push(Part::Text(Vec::new())),
            (None, Some(Part::Text(lines))) => lines.push(line),
            (None, _) => parts.push(Part::Text(vec![line])),
        }
    }
    parts
}

/// Whether the row is the separator line of a table.
fn is_rule(row: &[&str]) -> bool {
    row.iter().all(|cell| cell.contains("---"))
}

pub(super) fn html(text: &str) -> Markup {
    html! {
        @for part in parts(text) {
            @match part {
                Part::Text(lines) => @if !lines.is_empty() {
                    p { @for (i, line) in lines.iter().enumerate() { @if i > 0 { br; } (line) } }
                },
                Part::Table(rows) => div.scroll tabindex="0" role="region" aria-label="table" {
                    table {
                        @for (i, row) in rows.iter().enumerate().filter(|(_, row)| !is_rule(row)) {
                            tr {
                                @for (column, cell) in row.iter().enumerate() {
                                    @if i == 0 { th scope="col" { (cell) } }
                                    @else if column == 0 { th scope="row" { (cell) } }
                                    @else { td class=[(cell.len() > LONG).then_some("text")] { (cell) } }
                                }
                            }
                        }
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_text_are_told_apart() {
        let text = html("\n| a | b |\n|---|---:|\n| 1 | 2 |\n\nmore\nof it\n").into_string();
        assert!(text.contains("<th scope=\"col\">b</th>"), "{text}");
        assert!(
            text.contains("<th scope=\"row\">1</th><td>2</td>"),
            "{text}"
        );
        assert!(
            text.contains("<p>more<br>of it</p>") && !text.contains("---"),
            "{text}"
        );
    }
}
