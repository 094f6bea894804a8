//! Rules between crates: dependencies point downward, and each external one has a documented
//! reason.

use super::Findings;
use super::map::{self, Map};
use crate::Tree;

/// The document with the reason for each external dependency.
const REASONS: &str = "docs/adr/0002-dependencies.md";

pub(super) fn check(tree: &Tree, map: &Map, out: &mut Findings) {
    let reasons = tree.text(REASONS).unwrap_or_default();
    let manifests: Vec<(&str, Manifest)> = tree
        .texts("crates/", "/Cargo.toml")
        .map(|(path, text)| (path, Manifest::parse(text)))
        .collect();
    let own: Vec<&str> = manifests.iter().map(|(_, m)| m.name.as_str()).collect();
    for (path, manifest) in &manifests {
        let Some((_, allowed)) = map.crates.iter().find(|(n, _)| *n == manifest.name) else {
            let text = format!("crate {} is not in the list of crates", manifest.name);
            out.error(map::FILE, None, text);
            continue;
        };
        for (name, is_dev) in &manifest.dependencies {
            if !own.contains(&name.as_str()) {
                if !reasons.contains(&format!("`{name}`")) {
                    out.error(path, None, format!("{name} has no reason in {REASONS}"));
                }
                continue;
            }
            let Some(allowed) = allowed else { continue };
            if !is_dev && !allowed.contains(name) {
                let text = format!(
                    "{} must not depend on {name}: it is not below it in ARCHITECTURE.md",
                    manifest.name
                );
                out.error(path, None, text);
            }
        }
    }
    for (name, _) in &map.crates {
        if !own.contains(&name.as_str()) {
            out.error(
                map::FILE,
                None,
                format!("crate {name} is listed and not there"),
            );
        }
    }
}

/// The relevant parts of a Cargo.toml.
struct Manifest {
    /// The name in code: the library's, otherwise the package's.
    name: String,
    /// Names, and whether only tests use them.
    dependencies: Vec<(String, bool)>,
}

impl Manifest {
    /// Parses the subset of TOML that the workspace's manifests use: one key per line.
    fn parse(text: &str) -> Self {
        let (mut package, mut library) = (String::new(), None);
        let mut dependencies = Vec::new();
        let mut section = "";
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                section = line.trim_matches(['[', ']']);
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let (key, value) = (key.trim(), value.trim().trim_matches('"'));
            match (section, key) {
                ("package", "name") => value.clone_into(&mut package),
                ("lib", "name") => library = Some(value.to_owned()),
                _ if section.ends_with("dependencies") && !line.starts_with('#') => {
                    let name = key.split('.').next().unwrap_or(key);
                    let is_dev = section.ends_with("dev-dependencies");
                    dependencies.push((name.to_owned(), is_dev));
                }
                _ => {}
            }
        }
        Self {
            name: library.unwrap_or(package),
            dependencies,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_and_reasons() {
        let manifest = |name: &str, rest: &str| format!("[package]\nname = \"{name}\"\n{rest}");
        let tree = Tree::of(&[
            (
                "crates/base/Cargo.toml",
                &manifest("x-base", "[lib]\nname = \"base\"\n"),
            ),
            (
                "crates/table/Cargo.toml",
                &manifest(
                    "table",
                    "[dependencies]\nbase.workspace = true\nlog = { path = \"../log\" }\nsnap = \"1\"\n\
                     [dev-dependencies]\nsim.workspace = true\nproptest = \"1\"\n",
                ),
            ),
            ("crates/log/Cargo.toml", &manifest("log", "")),
            (
                "crates/sim/Cargo.toml",
                &manifest("sim", "[dependencies]\ntable.workspace = true\n"),
            ),
            (REASONS, "- `proptest`: finds cases\n"),
        ]);
        let map = Map {
            crates: vec![
                ("base".to_owned(), Some(vec![])),
                ("log".to_owned(), Some(vec!["base".to_owned()])),
                ("table".to_owned(), Some(vec!["base".to_owned()])),
                ("sim".to_owned(), None),
                ("gone".to_owned(), None),
            ],
            ..Map::default()
        };
        let mut out = Findings::default();
        check(&tree, &map, &mut out);
        assert_eq!(
            out.texts(),
            [
                "error: crates/table/Cargo.toml: table must not depend on log: it is not below it in ARCHITECTURE.md",
                "error: crates/table/Cargo.toml: snap has no reason in docs/adr/0002-dependencies.md",
                "error: ARCHITECTURE.md: crate gone is listed and not there",
            ]
        );
    }
}
