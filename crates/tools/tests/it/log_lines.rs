//! The lines of LOG that people read, beside those of RocksDB 11.8.1 for the same work.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::db_bench::{peer, run};

/// Flushes, merges of level 0 and of a whole range, and files that move.
fn log_of(engine: &str, dynamic: bool, dir: &Path) -> String {
    let db = format!("--db={}", dir.display());
    run(&[
        &format!("--engine={engine}"),
        &db,
        "--benchmarks=fillseq,compact,overwrite,waitforcompaction,compact",
        "--num=60000",
        "--value_size=100",
        "--write_buffer_size=1048576",
        "--target_file_size_base=1000000",
        "--compression_type=none",
        "--seed=3",
        &format!("--level_compaction_dynamic_level_bytes={dynamic}"),
    ]);
    fs::read_to_string(dir.join("LOG")).unwrap()
}

/// The text of a line without its figures, if it is a line to compare.
fn form(line: &str) -> Option<String> {
    const COMPARED: [&str; 10] = [
        "Flushing memtable",
        "Level-0 flush table",
        "Flush lasted",
        "Level summary",
        "Compacting ",
        "Compaction start summary",
        "Generated table",
        "ompacted ",
        "Moving ",
        "Moved #",
    ];
    if line.contains("EVENT_LOG") || !COMPARED.iter().any(|text| line.contains(text)) {
        return None;
    }
    // RocksDB's lines have the place in its code before the family.
    let text = &line[line.find("[default]")?..];
    let mut form = String::new();
    let mut number = false;
    for c in text.chars() {
        let part = c.is_ascii_digit() || number && c == '.';
        if part && !number {
            form.push('N');
        } else if !part {
            form.push(c);
        }
        number = part;
    }
    // Lists have as many entries as there are.
    for (unit, one) in [("N(NKB)", "F"), ("N(NMB)", "F"), ("N(NB)", "F")] {
        form = form.replace(unit, one);
    }
    for (two, one) in [
        ("N N", "N"),
        ("F F", "F"),
        ("[F], [F]", "[F]"),
        ("N@N + N@N", "N@N"),
        ("#N #N", "#N"),
        ("-N", "N"),
    ] {
        while form.contains(two) {
            form = form.replace(two, one);
        }
    }
    Some(form.trim_end().to_owned())
}

#[test]
fn lines_are_those_of_rocksdb() {
    let Some(peer) = peer() else { return };
    let dir = tempfile::tempdir().unwrap();
    for dynamic in [false, true] {
        let forms = |engine: &str, name: &str| -> BTreeSet<String> {
            let dir = dir.path().join(format!("{name}-{dynamic}"));
            let log = log_of(engine, dynamic, &dir);
            log.lines().filter_map(form).collect()
        };
        let (ours, theirs) = (forms("ironstone", "ours"), forms(&peer, "theirs"));
        let unknown: Vec<_> = ours.difference(&theirs).collect();
        assert!(unknown.is_empty(), "{unknown:#?}\nRocksDB has {theirs:#?}");
        let missing: Vec<_> = theirs.difference(&ours).collect();
        assert!(missing.is_empty(), "{missing:#?}\nIronstone has {ours:#?}");
    }
}
