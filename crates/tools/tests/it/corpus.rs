//! `ironstone scan` over every database of the corpus: what RocksDB itself read from it, or a
//! refusal that names what is missing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::ldb::{self, ironstone, run};

/// The lines that a scan in hex prints, by family.
fn expected(database: &Path) -> BTreeMap<String, String> {
    let meta = fs::read_to_string(database.join("meta.json")).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    let mut out: BTreeMap<String, String> = meta["column_families"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["name"].as_str().unwrap().to_owned(), String::new()))
        .collect();
    let rows = fs::read_to_string(database.join("expected.jsonl")).unwrap();
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let line = format!("0x{} : 0x{}\n", text("key"), text("value"));
        out.get_mut(&text("cf")).unwrap().push_str(&line);
    }
    out
}

#[test]
fn scans_of_the_corpus_are_right() {
    let Some(corpus) = ldb::corpus() else {
        return;
    };
    let with_ldb = ldb::has_tools();
    let (mut read, mut refused) = (0, Vec::new());
    for database in corpus {
        let name = database.file_name().unwrap().to_string_lossy().into_owned();
        let expected = expected(&database);
        for (family, rows) in &expected {
            let flag = format!("--column_family={family}");
            let args = ["--db=db", "scan", "--hex", &flag];
            let ours = ironstone(&database, &args);
            if ours.code != 0 {
                assert!(
                    ours.stderr.starts_with("Failed: Not implemented: "),
                    "{name}: {}",
                    ours.stderr
                );
                refused.push(name.clone());
                break;
            }
            ldb::assert_same((0, &ours.stdout), (0, rows), &format!("{name} {family}"));
            if with_ldb && name.starts_with("r78_") {
                let plain = ["--db=db", "scan", &flag];
                let root = ldb::copy(&database.join("db"));
                let theirs = run("ldb", root.path(), &plain);
                let ours = ironstone(root.path(), &plain);
                let what = format!("{name} {family}: {}", ours.stderr);
                ldb::assert_same(ours.visible(), theirs.visible(), &what);
            }
            read += 1;
        }
    }
    eprintln!("{read} families read; refused: {}", refused.join(" "));
    assert!(read > 50);
}
