//! Databases that real RocksDB wrote, with what RocksDB itself read from them.
//!
//! ```text
//!   <release>_<scenario>_<variant>/
//!       db/               a database; to be copied before it is opened
//!       expected.jsonl    {"cf":…,"key":hex,"value":hex,…} a line, families' order
//!       meta.json         families with comparators, how to open it, what is in it
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use base::{Error, Result};
use ironstone::WideColumns;
use serde_json::Value;

use crate::oracle::content::FamilyContent;

/// The environment variable that names another folder of databases.
pub const CORPUS_VARIABLE: &str = "IRONSTONE_CORPUS";

/// A database of the corpus.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The folder's name, for example `r78_odd_keys_a`.
    pub name: String,
    /// The folder.
    pub path: PathBuf,
}

impl Entry {
    /// The database's directory.
    pub fn db(&self) -> PathBuf {
        self.path.join("db")
    }

    /// The scenario: the name without the release at its start and the variant at its end.
    pub fn scenario(&self) -> &str {
        let tail = self.name.split_once('_').map_or("", |(_, tail)| tail);
        tail.rsplit_once('_').map_or(tail, |(head, _)| head)
    }

    /// The release that wrote it, for example `r78`.
    pub fn release(&self) -> &str {
        self.name.split_once('_').map_or("", |(head, _)| head)
    }

    /// The families with their comparators' names.
    pub fn families(&self) -> Result<Vec<(String, String)>> {
        let path = self.path.join("meta.json");
        let meta: Value = parse(&path, &read(&path)?)?;
        let list = meta["column_families"]
            .as_array()
            .ok_or_else(|| Error::corruption("column_families is missing").file(&path))?;
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        Ok(list
            .iter()
            .map(|f| (text(&f["name"]), text(&f["comparator"])))
            .collect())
    }

    /// The merge operator of its families, by RocksDB's name; `nullptr` for none.
    pub fn merge_operator(&self) -> Result<String> {
        let path = self.path.join("meta.json");
        let meta: Value = parse(&path, &read(&path)?)?;
        let families = meta["column_families"].as_array();
        let named = families
            .into_iter()
            .flatten()
            .find_map(|f| f["merge_operator"].as_str());
        Ok(named.unwrap_or("nullptr").to_owned())
    }

    /// The wide-column entities that RocksDB read: family, key, columns.
    pub fn entities(&self) -> Result<Vec<(String, Vec<u8>, WideColumns)>> {
        let path = self.path.join("expected.jsonl");
        let mut out = Vec::new();
        for line in read(&path)?.lines() {
            let entry: Value = parse(&path, line)?;
            let Some(columns) = entry["columns"].as_array() else {
                continue;
            };
            let text = |v: &Value| unhex(v.as_str().unwrap_or_default());
            let columns = WideColumns::new(columns.iter().map(|c| (text(&c[0]), text(&c[1]))))?;
            let family = entry["cf"].as_str().unwrap_or_default().to_owned();
            out.push((family, text(&entry["key"]), columns));
        }
        Ok(out)
    }

    /// What RocksDB read: each family's keys with their values.
    pub fn expected(&self) -> Result<Vec<FamilyContent>> {
        let mut out: Vec<FamilyContent> = self
            .families()?
            .into_iter()
            .map(|(name, _)| (name, Vec::new()))
            .collect();
        let path = self.path.join("expected.jsonl");
        for line in read(&path)?.lines() {
            let entry: Value = parse(&path, line)?;
            let field = |name: &str| entry[name].as_str().unwrap_or_default();
            let family = out
                .iter_mut()
                .find(|(name, _)| name == field("cf"))
                .ok_or_else(|| Error::corruption("a family of no name").file(&path))?;
            family.1.push((unhex(field("key")), unhex(field("value"))));
        }
        Ok(out)
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| Error::io("read", path, e))
}

fn parse(path: &Path, text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|e| Error::corruption(e.to_string()).file(path))
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap_or(0) as u8;
    text.as_bytes()
        .chunks(2)
        .map(|pair| (digit(pair[0]) << 4) | pair.get(1).map_or(0, |&c| digit(c)))
        .collect()
}

/// The databases by name; `None`, with a message, if there is no corpus.
pub fn entries() -> Option<Vec<Entry>> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");
    let dir = std::env::var_os(CORPUS_VARIABLE).map_or_else(|| beside.into(), PathBuf::from);
    let Ok(list) = fs::read_dir(&dir) else {
        eprintln!("skipped: no corpus at {}", dir.display());
        return None;
    };
    let mut out: Vec<Entry> = list
        .filter_map(|e| {
            let path = e.ok()?.path();
            let name = path.file_name()?.to_str()?.to_owned();
            path.join("db").is_dir().then_some(Entry { name, path })
        })
        .collect();
    out.sort_by(|a, b| a.name.cmp(&b.name));
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let entry = Entry {
            name: "r1010_idx_two_level_partfilter_a".to_owned(),
            path: PathBuf::new(),
        };
        assert_eq!(entry.scenario(), "idx_two_level_partfilter");
        assert_eq!(entry.release(), "r1010");
        assert_eq!(unhex("00FFa0"), [0, 0xff, 0xa0]);
    }
}
