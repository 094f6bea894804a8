//! `cargo xtask map`: what each file is, in its own words: the first sentence of its documentation.

use std::io::Write as _;

use tidy::Tree;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only files in this folder
    #[arg(default_value = "crates/engine")]
    folder: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let tree = Tree::load(&xtask::root())?;
    let folder = arguments.folder.trim_end_matches('/');
    let lines = lines(&tree, folder);
    if lines.is_empty() {
        return Err(format!(
            "{folder}: there is no Rust file in it; a folder is named as in crates/engine"
        ));
    }
    let mut out = std::io::stdout().lock();
    for line in lines {
        if writeln!(out, "{line}").is_err() {
            break; // whoever reads it has seen enough
        }
    }
    Ok(())
}

/// A line for each file, the faces of folders first.
fn lines(tree: &Tree, folder: &str) -> Vec<String> {
    let prefix = format!("{folder}/");
    let mut files: Vec<(&str, &str)> = tree.texts(&prefix, ".rs").collect();
    files.sort_by_key(|(path, _)| {
        let place = path.trim_end_matches("mod.rs").trim_end_matches(".rs");
        place.trim_end_matches('/').to_owned()
    });
    let names = files.iter().map(|(path, _)| &path[prefix.len()..]);
    let width = names.map(str::len).max().unwrap_or(0);
    let line = |(path, text): (&str, &str)| {
        let name = &path[prefix.len()..];
        format!("{name:width$}  {}", first_sentence(text))
    };
    files.into_iter().map(line).collect()
}

/// The first sentence of a file's documentation.
fn first_sentence(text: &str) -> String {
    let documentation = text.lines().map_while(|line| line.strip_prefix("//!"));
    let paragraph: Vec<&str> = documentation
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let paragraph = paragraph.join(" ");
    match paragraph.split_once(". ") {
        Some((sentence, _)) => format!("{sentence}."),
        None => paragraph,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_a_line() {
        let tree = Tree::of(&[
            ("crates/a/src/low/deep.rs", "//! Deep. More.\n"),
            (
                "crates/a/src/low/mod.rs",
                "//! Low,\n//! on two lines.\n//!\n//! More.\n",
            ),
            ("crates/b/src/lib.rs", "//! B.\n"),
        ]);
        assert_eq!(
            lines(&tree, "crates/a"),
            [
                "src/low/mod.rs   Low, on two lines.",
                "src/low/deep.rs  Deep."
            ]
        );
    }
}
