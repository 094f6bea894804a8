//! Edge cases of the commands of `ironstone`: refused input, files that must not change, and manipulated
//! database files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use base::FileNumber;
use io::{FileSystem, OpenHow, posix::Posix};
use manifest::edit::{BlobAddition, BlobGarbage, FileMetaData, VersionEdit};
use tempfile::TempDir;

use crate::ldb::{self, Ran};
use crate::ldb_writes::{OURS, run, several_levels};

/// Runs a line in a directory.
fn ours(dir: &Path, line: &str) -> Ran {
    let args: Vec<&str> = line.split_whitespace().collect();
    run(OURS, dir, &args, "a ==> 1\n")
}

fn done(dir: &Path, line: &str) -> Ran {
    let ran = ours(dir, line);
    assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
    ran
}

/// The command must fail with this message.
fn refused(dir: &Path, line: &str, says: &str) {
    let ran = ours(dir, line);
    assert_eq!(ran.code, 1, "{line}: {}", ran.stderr);
    assert!(ran.stderr.contains(says), "{line}: {}", ran.stderr);
}

fn holds(dir: &Path, line: &str, expected: &str) {
    assert_eq!(done(dir, line).stdout, expected, "{line}");
}

/// The newest OPTIONS file.
fn options_file(db: &Path) -> PathBuf {
    let all = ldb::files(db, "");
    let newest = all.iter().rfind(|n| n.starts_with("OPTIONS-")).unwrap();
    db.join(newest)
}

fn option(db: &Path, name: &str) -> String {
    let text = fs::read_to_string(options_file(db)).unwrap();
    let mut lines = text.lines().filter_map(|l| l.trim().split_once('='));
    let (_, value) = lines.find(|(n, _)| *n == name).unwrap();
    value.to_owned()
}

fn set_option(db: &Path, name: &str, value: &str) {
    let path = options_file(db);
    let text = fs::read_to_string(&path).unwrap();
    let old = format!("  {name}={}\n", option(db, name));
    fs::write(path, text.replace(&old, &format!("  {name}={value}\n"))).unwrap();
}

fn one_key() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    done(root.path(), "--db=db put a 1 --create_if_missing");
    root
}

#[test]
fn a_checkpoint_deletes_only_what_is_its_own() {
    let root = one_key();
    let dir = root.path();
    fs::create_dir_all(dir.join("cp.tmp/sub")).unwrap();
    fs::write(dir.join("cp.tmp/sub/f"), "mine").unwrap();
    let line = "--db=db checkpoint --checkpoint_dir=cp";
    refused(dir, line, "is not a checkpoint's: it has sub");
    assert_eq!(fs::read(dir.join("cp.tmp/sub/f")).unwrap(), b"mine");
    fs::remove_dir_all(dir.join("cp.tmp")).unwrap();
    fs::create_dir(dir.join("other")).unwrap();
    fs::write(dir.join("other/000009.sst"), "mine").unwrap();
    symlink("other", dir.join("cp.tmp")).unwrap();
    done(dir, line);
    assert_eq!(fs::read(dir.join("other/000009.sst")).unwrap(), b"mine");
    holds(dir, "--db=cp scan", "a : 1\n");
    // What a crash leaves is no obstacle.
    fs::create_dir(dir.join("cp2.tmp")).unwrap();
    fs::write(dir.join("cp2.tmp/MANIFEST-000005"), "").unwrap();
    done(dir, "--db=db checkpoint --checkpoint_dir=cp2");
    assert!(!dir.join("cp2.tmp").exists());
}

#[test]
fn a_restore_minds_the_logs_of_what_it_replaces() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let put = "--db=db --wal_dir=logs put a 1 --create_if_missing";
    done(dir, put);
    done(dir, "--db=db backup --backup_dir=bk");
    done(dir, "--db=db put later 2");
    refused(dir, "--db=db restore --backup_dir=bk", "--wal_dir=logs");
    holds(dir, "--db=db scan", "a : 1\nlater : 2\n");
    let told = "open the database with wal_dir = ";
    let ran = done(dir, "--db=db --wal_dir=logs restore --backup_dir=bk");
    assert!(ran.stderr.contains(&format!("{told}logs")), "{ran:?}");
    holds(dir, "--db=db scan", "a : 1\n");
    // Where there is no database, the logs may go anywhere, and it is said where they are.
    let ran = done(dir, "--db=new --wal_dir=other restore --backup_dir=bk");
    assert!(ran.stderr.contains(&format!("{told}other")), "{ran:?}");
    holds(dir, "--db=new --wal_dir=other scan", "a : 1\n");
    // The OPTIONS file of a backup names no directory of logs: here nothing need be said.
    let ran = done(dir, "--db=new2 restore --backup_dir=bk");
    assert_eq!(ran.stderr, "");
    holds(dir, "--db=new2 scan", "a : 1\n");
}

#[test]
fn a_damaged_backup_is_named_where_an_older_one_is_restored() {
    let root = one_key();
    let dir = root.path();
    done(dir, "--db=db backup --backup_dir=bk");
    done(dir, "--db=db put b 2");
    done(dir, "--db=db backup --backup_dir=bk");
    let quiet = done(dir, "--db=r restore --backup_dir=bk");
    assert_eq!(quiet.stderr, "");
    fs::write(dir.join("bk/meta/2"), "no list").unwrap();
    let ran = done(dir, "--db=r restore --backup_dir=bk");
    assert!(ran.stderr.contains("backup 2 is damaged"), "{ran:?}");
    holds(dir, "--db=r scan", "a : 1\n");
}

#[test]
fn one_table_is_made_however_small_compactions_are() {
    if !ldb::has_tools() {
        return;
    }
    let root = several_levels();
    let (dir, db) = (root.path(), root.path().join("db"));
    done(dir, "--db=db put a 1");
    set_option(&db, "max_compaction_bytes", "65536");
    let line = "--db=db change_compaction_style --old_compaction_style=0 --new_compaction_style=1";
    let ran = done(dir, line);
    assert!(ran.stdout.contains("after compaction: 1,0,0"), "{ran:?}");
    assert_eq!(ran.stderr, "");
    assert_eq!(option(&db, "max_compaction_bytes"), "65536");
    assert_eq!(option(&db, "target_file_size_base"), "65536");
}

#[test]
fn settings_of_a_killed_run_become_the_defaults() {
    if !ldb::has_tools() {
        return;
    }
    let made = several_levels();
    done(made.path(), "--db=db put a 1");
    for (line, then) in [
        (
            "--db=db change_compaction_style --old_compaction_style=0 --new_compaction_style=1",
            "max_compaction_bytes",
        ),
        ("--db=db reduce_levels --new_levels=2", "num_levels=2"),
    ] {
        let root = ldb::copy(&made.path().join("db"));
        let db = root.path().join("db");
        set_option(&db, "target_file_size_base", "1125899906842624");
        set_option(&db, "max_compaction_bytes", "1125899906842624");
        set_option(&db, "disable_auto_compactions", "true");
        let ran = done(root.path(), line);
        assert!(
            ran.stderr.contains("an earlier run was killed") && ran.stderr.contains(then),
            "{line}: {}",
            ran.stderr
        );
        assert_eq!(option(&db, "target_file_size_base"), "67108864", "{line}");
        assert_eq!(option(&db, "max_compaction_bytes"), "1677721600", "{line}");
        assert_eq!(option(&db, "disable_auto_compactions"), "false", "{line}");
    }
}

#[test]
fn numbers_of_other_files_do_not_count() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    done(dir, "--db=db load --create_if_missing --disable_wal");
    let db = dir.join("db");
    let table = ldb::files(&db, ".sst").pop().unwrap();
    let current = fs::read(db.join("CURRENT")).unwrap();
    let remove = format!("--db=db unsafe_remove_sst_file {}", &table[..6]);
    refused(dir, "--db=db unsafe_remove_sst_file +9", "decimal digits");
    let last = db.join("18446744073709551615.sst");
    fs::write(&last, "").unwrap();
    refused(dir, &remove, "used up");
    assert_eq!(fs::read(db.join("CURRENT")).unwrap(), current);
    fs::remove_file(last).unwrap();
    fs::write(db.join("LOG.old.1795289014000000"), "").unwrap();
    done(dir, &remove);
    let current = fs::read_to_string(db.join("CURRENT")).unwrap();
    assert!(current.starts_with("MANIFEST-0000"), "{current}");
    holds(dir, "--db=db scan", "");
}

/// A directory whose MANIFEST has these edits.
fn made_of(edits: &[VersionEdit]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let db = root.path().join("db");
    fs::create_dir(&db).unwrap();
    fs::write(db.join("CURRENT"), "MANIFEST-000001\n").unwrap();
    let path = db.join("MANIFEST-000001");
    let file: Arc<dyn io::File> = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
    let mut writer = log::Writer::new(file, log::LogOptions::default());
    for edit in edits {
        writer.append(&edit.encode().unwrap()).unwrap();
    }
    writer.sync().unwrap();
    root
}

#[test]
fn a_hostile_manifest_is_an_error_at_most() {
    let table = |number| FileMetaData {
        number: FileNumber(number),
        file_size: u64::MAX,
        smallest: b"a\x01\x01\0\0\0\0\0\0".to_vec(),
        largest: b"b\x01\x01\0\0\0\0\0\0".to_vec(),
        ..FileMetaData::default()
    };
    let mut first = VersionEdit {
        comparator: Some("leveldb.BytewiseComparator".to_owned()),
        log_number: Some(0),
        next_file_number: Some(u64::MAX),
        last_sequence: Some(5),
        blob_file_additions: vec![BlobAddition {
            number: FileNumber(9),
            blob_count: u64::MAX,
            blob_bytes: u64::MAX,
            ..BlobAddition::default()
        }],
        ..VersionEdit::default()
    };
    first.add_file(1, table(7));
    first.add_file(2, table(8));
    let garbage = VersionEdit {
        blob_file_garbage: vec![BlobGarbage {
            number: FileNumber(9),
            blob_count: u64::MAX / 2,
            blob_bytes: u64::MAX - 1,
        }],
        ..VersionEdit::default()
    };
    let root = made_of(&[first, garbage.clone(), garbage]);
    let dir = root.path();
    let before = fs::read(dir.join("db/CURRENT")).unwrap();
    for line in [
        "--db=db dump-manifest --verbose",
        "--db=db verify",
        "--db=db unsafe_remove_sst_file 7",
        "--db=db file_checksum_dump",
        "--db=db reduce_levels --new_levels=2",
        "--db=db scan",
    ] {
        let ran = ours(dir, line);
        assert!(ran.code <= 1, "{line}: {}: {}", ran.code, ran.stderr);
        assert!(!ran.stderr.contains("panicked"), "{line}: {}", ran.stderr);
    }
    assert_eq!(fs::read(dir.join("db/CURRENT")).unwrap(), before);
}

#[test]
fn a_table_replaces_regular_files_only() {
    let root = one_key();
    let dir = root.path();
    fs::write(dir.join("kept"), "mine").unwrap();
    symlink("kept", dir.join("link.sst")).unwrap();
    fs::create_dir(dir.join("dir.sst")).unwrap();
    for name in ["link.sst", "dir.sst", "/dev/null"] {
        let line = format!("--db=db write_extern_sst {name}");
        refused(dir, &line, "is no regular file");
    }
    assert!(dir.join("link.sst").is_symlink());
    assert_eq!(fs::read(dir.join("kept")).unwrap(), b"mine");
    done(dir, "--db=db write_extern_sst kept");
    done(dir, "--db=db ingest_extern_sst kept");
}

#[test]
fn external_tables_are_compressed_as_the_lowest_level_is() {
    let root = one_key();
    let (dir, db) = (root.path(), root.path().join("db"));
    let per_level =
        "kDisableCompressionOption\n  compression_per_level=kNoCompression:kZlibCompression";
    for (setting, expected) in [(per_level, "Zlib"), ("kZSTD", "ZSTD")] {
        set_option(&db, "bottommost_compression", setting);
        done(dir, "--db=db write_extern_sst x.sst");
        let ran = done(dir, "sst_dump --file=x.sst --show_properties");
        let line = format!("SST file compression algo: {expected}\n");
        assert!(ran.stdout.contains(&line), "{setting}: {}", ran.stdout);
    }
}

#[test]
fn a_secondary_instance_changes_no_database() {
    let root = one_key();
    let dir = root.path();
    done(dir, "--db=db backup --backup_dir=bk");
    done(dir, "--db=db compact");
    for line in [
        "restore --backup_dir=bk",
        "unsafe_remove_sst_file 9",
        "update_manifest --update_temperatures",
        "reduce_levels --new_levels=2",
        "change_compaction_style --old_compaction_style=0 --new_compaction_style=1",
        "checkpoint --checkpoint_dir=cp",
        "backup --backup_dir=bk",
        "load",
        "ingest_extern_sst x",
        "singledelete a",
        "repair",
        "wal-trim --yes",
        "salvage --yes",
    ] {
        let line = format!("--db=db --secondary_path=second {line}");
        refused(dir, &line, "leave out --secondary_path");
    }
    holds(dir, "--db=db scan", "a : 1\n");
}

#[test]
fn nobody_need_read_the_standard_error() {
    let root = one_key();
    for (line, code) in [
        ("--db=db update_manifest --update_temperatures", 0),
        ("--db=db get zz", 1),
        ("--db=db frob", 1),
        ("--db=none scan", 1),
        ("dump-sst db/CURRENT --command=scan", 1),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let args = line.split(' ');
        let status = Command::new(OURS)
            .args(args)
            .current_dir(root.path())
            .stdout(std::process::Stdio::null())
            .stderr(writer)
            .status();
        assert_eq!(status.unwrap().code(), Some(code), "{line}");
    }
}

#[test]
fn inputs_that_cannot_be_read_are_told_from_outputs() {
    let root = one_key();
    for command in ["query", "load"] {
        let input = fs::OpenOptions::new().read(true).open(root.path());
        let output = Command::new(OURS)
            .args(["--db=db", command])
            .current_dir(root.path())
            .stdin(input.unwrap())
            .output();
        let ran = Ran::new(output.unwrap());
        assert_eq!(ran.code, 1, "{command}");
        let says = "reading the standard input";
        assert!(ran.stderr.contains(says), "{command}: {}", ran.stderr);
    }
}

#[test]
fn a_long_input_is_not_repeated() {
    let root = one_key();
    let long = "k".repeat(100_000);
    for (args, input, says) in [
        (vec!["get", &long, "--hex"], String::new(), "(100000 bytes)"),
        (vec!["query"], format!("get {long}\n"), "(100000 bytes)"),
        (
            vec!["load", "--hex"],
            format!("{long} ==> 0x31\n"),
            "line 1: Invalid hex",
        ),
    ] {
        let args = [vec!["--db=db"], args].concat();
        let ran = run(OURS, root.path(), &args, &input);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(ran.stderr.len() < 300, "{} bytes", ran.stderr.len());
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
}
