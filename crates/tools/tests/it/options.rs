//! OPTIONS files that `ironstone` reads, and writes again.

use std::fs;
use std::path::Path;

use crate::ldb::{Ran, ironstone};

/// The path and the text of the newest OPTIONS file.
fn newest(db: &Path) -> (std::path::PathBuf, String) {
    let paths = fs::read_dir(db).unwrap().map(|e| e.unwrap().path());
    let is_options = |p: &std::path::PathBuf| {
        let name = p.file_name().unwrap().to_string_lossy();
        name.starts_with("OPTIONS-")
    };
    let path = paths.filter(is_options).max().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    (path, text)
}

/// Regression test: `put` rewrote the user's OPTIONS file without the settings that Ironstone does
/// not have, and `--try_load_options` refused files with objects or tuning settings.
#[test]
fn put_keeps_the_options_of_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let call = |arguments: &[&str]| -> Ran {
        let db = format!("--db={}", db.display());
        let all: Vec<&str> = [&[db.as_str()][..], arguments].concat();
        ironstone(dir.path(), &all)
    };
    assert_eq!(call(&["put", "a", "1", "--create_if_missing"]).code, 0);
    let (path, text) = newest(&db);
    let theirs = "  use_fsync=true\n  listeners={id=Mine;}\n  bytes_per_sync=77\n";
    let text = text
        .replace("  use_fsync=false\n", "")
        .replace("  bytes_per_sync=0\n", "")
        .replace("[DBOptions]\n", &format!("[DBOptions]\n{theirs}"));
    fs::write(&path, &text).unwrap();
    assert_eq!(call(&["--try_load_options", "put", "b", "2"]).code, 0);
    // Refused values are kept where they may be ignored.
    let (path, text) = newest(&db);
    let text = text.replace(
        "use_direct_io_for_flush_and_compaction=false",
        "use_direct_io_for_flush_and_compaction=true",
    );
    fs::write(
        &path,
        text.replace("[DBOptions]\n", "[DBOptions]\n  shiny=7\n"),
    )
    .unwrap();
    assert_ne!(call(&["--try_load_options", "put", "c", "3"]).code, 0);
    assert_eq!(call(&["put", "c", "3"]).code, 0);
    let (_, text) = newest(&db);
    for line in [
        "  use_fsync=true\n",
        "  listeners={id=Mine;}\n",
        "  bytes_per_sync=77\n",
        "  use_direct_io_for_flush_and_compaction=true\n",
        "  shiny=7\n",
    ] {
        assert_eq!(text.matches(line).count(), 1, "{line}{text}");
    }
    let log = fs::read_to_string(db.join("LOG")).unwrap();
    assert!(
        log.contains("option shiny = 7 of the database has no effect here"),
        "{log}"
    );
}
