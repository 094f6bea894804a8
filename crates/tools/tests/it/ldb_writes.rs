//! Commands that write, against `ldb`: the same lines on copies of the same database must have the
//! same output and exit status, and leave the same content; and each program continues with the
//! database of the other.

mod cases;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use ironstone::{Db, Options};
use tempfile::TempDir;

use crate::ldb::{self, Ran};
use cases::{COPIES, LEVELS, LOADS, TABLES};

/// Both programs, each in a separate directory.
struct Sides {
    ours: TempDir,
    theirs: TempDir,
}

impl Sides {
    fn new() -> Self {
        let dir = || tempfile::tempdir().unwrap();
        Self {
            ours: dir(),
            theirs: dir(),
        }
    }

    fn of(database: &Path) -> Self {
        Self {
            ours: ldb::copy(database),
            theirs: ldb::copy(database),
        }
    }

    fn both(&self) -> [&Path; 2] {
        [self.ours.path(), self.theirs.path()]
    }

    /// Runs a line on both sides and compares; then the content of the databases.
    fn same(&self, line: &str, input: &str) -> Ran {
        let args: Vec<&str> = line.split_whitespace().collect();
        let theirs = run("ldb", self.theirs.path(), &args, input);
        let ours = run(OURS, self.ours.path(), &args, input);
        let said = format!("{line}: ldb: {}, ironstone: {}", theirs.stderr, ours.stderr);
        ldb::assert_same(
            (status(&ours), &ours.stdout),
            (status(&theirs), &theirs.stdout),
            &said,
        );
        if ours.code != 0 {
            assert!(!ours.stderr.is_empty(), "{line}: failed without a word");
        } else if theirs.stdout.is_empty() {
            // Some commands say on the standard error that they are done.
            let last = |ran: &Ran| ran.stderr.lines().last().map(ToOwned::to_owned);
            assert_eq!(last(&ours), last(&theirs), "{line}");
        }
        for db in ["db", "new", "bulk", "cp", "r1"] {
            self.same_content(db, line);
        }
        ours
    }

    /// What `ldb` finds in the databases of both sides.
    fn same_content(&self, db: &str, after: &str) {
        let [ours, theirs] = self.both();
        assert_eq!(
            ours.join(db).join("CURRENT").exists(),
            theirs.join(db).join("CURRENT").exists(),
            "{db} after {after}"
        );
        if ours.join(db).join("CURRENT").exists() {
            let args = [&format!("--db={db}"), "scan", "--hex"];
            let expected = run("ldb", theirs, &args, "");
            let got = run("ldb", ours, &args, "");
            assert_eq!(expected.code, 0, "{after}: {}", expected.stderr);
            let what = format!("{db} after {after}: {}", got.stderr);
            ldb::assert_same(got.visible(), expected.visible(), &what);
        }
    }

    /// Each program opens the database of the other and finds the same content; `ironstone verify`
    /// finds no problem.
    fn crossed(&self, db: &str) {
        let [ours, theirs] = self.both();
        let db = format!("--db={db}");
        let args = [&db[..], "scan", "--hex"];
        let expected = run("ldb", theirs, &args, "");
        let got = run(OURS, theirs, &args, "");
        ldb::assert_same(got.visible(), expected.visible(), &got.stderr);
        for put in [["put", "crossed", "1"], ["put", "crossed", "2"]] {
            let args = [&[&db[..]], &put[..]].concat();
            for (program, dir) in [("ldb", ours), (OURS, theirs)] {
                let ran = run(program, dir, &args, "");
                assert_eq!(ran.visible(), (0, "OK\n"), "{program}: {}", ran.stderr);
            }
        }
        let got = run(OURS, ours, &args, "");
        let expected = run("ldb", theirs, &args, "");
        ldb::assert_same(got.visible(), expected.visible(), &got.stderr);
        for dir in [ours, theirs] {
            let ran = run(OURS, dir, &[&db, "verify"], "");
            assert!(ran.code == 0 && ran.stdout.ends_with("OK\n"), "{ran:?}");
        }
    }
}

pub(crate) const OURS: &str = env!("CARGO_BIN_EXE_ironstone");

/// The exit code of a failure is 1, whatever it is for `ldb`.
fn status(ran: &Ran) -> i32 {
    i32::from(ran.code != 0)
}

/// Runs a program with a text on its standard input.
pub(crate) fn run(program: &str, cwd: &Path, args: &[&str], input: &str) -> Ran {
    let mut child = Command::new(program)
        .args(args)
        .current_dir(cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    // A program that ends before it has read everything is no mistake of the test's.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| bytes.into_iter().map(char::from).collect();
    Ran {
        code: output.status.code().unwrap_or(1),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// A database with several levels, which `db_bench` wrote.
pub(crate) fn several_levels() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let args = [
        "--db=db",
        "--benchmarks=fillrandom",
        "--num=6000",
        "--value_size=100",
        "--write_buffer_size=65536",
        "--target_file_size_base=65536",
        "--max_bytes_for_level_base=131072",
        "--compression_type=none",
        "--seed=7",
    ];
    let made = run("db_bench", root.path(), &args, "");
    assert_eq!(made.code, 0, "{}", made.stderr);
    // Compactions that db_bench left undone are done, and its log is in tables.
    let settled = run("ldb", root.path(), &["--db=db", "put", "zz", "1"], "");
    assert_eq!(settled.code, 0, "{}", settled.stderr);
    root
}

/// A database with two families.
fn two_families() -> Sides {
    let sides = Sides::new();
    for line in [
        "--db=db put b 0 --create_if_missing",
        "--db=db create_column_family two",
        "--db=db put zz 0",
        "--db=db put k v --column_family=two",
    ] {
        sides.same(line, "");
    }
    for dir in sides.both() {
        fs::write(dir.join("empty.sst"), "").unwrap();
        fs::write(dir.join("text.sst"), "no table at all\n".repeat(20)).unwrap();
        fs::create_dir(dir.join("emptydir")).unwrap();
        fs::create_dir_all(dir.join("emptybackups/meta")).unwrap();
    }
    sides
}

#[test]
fn loads_and_single_deletes_are_those_of_ldb() {
    if !ldb::has_tools() {
        return;
    }
    let sides = Sides::new();
    for (line, input) in LOADS {
        sides.same(line, input);
    }
    sides.crossed("db");
    sides.crossed("bulk");
}

#[test]
fn external_tables_are_those_of_ldb() {
    if !ldb::has_tools() {
        return;
    }
    let sides = two_families();
    for (line, input) in TABLES {
        sides.same(line, input);
    }
    // Each ingests what the other wrote.
    let [ours, theirs] = sides.both();
    for (from, to) in [(ours, theirs), (theirs, ours)] {
        fs::copy(from.join("x.sst"), to.join("foreign.sst")).unwrap();
    }
    sides.same("--db=db put c 5", "");
    sides.same("--db=db ingest_extern_sst foreign.sst --move_files", "");
    sides.crossed("db");
    // What failed left nothing behind.
    for name in ["y.sst", "i.sst", "x.sst.tmp", "y.sst.tmp"] {
        assert!(!ours.join(name).exists(), "{name}");
    }
}

#[test]
fn copies_are_those_of_ldb() {
    if !ldb::has_tools() {
        return;
    }
    let sides = two_families();
    for (line, input) in COPIES {
        sides.same(line, input);
    }
    for db in ["db", "cp", "r1"] {
        sides.crossed(db);
    }
    // Each restores the other's backups.
    let [ours, theirs] = sides.both();
    for (program, from, to) in [(OURS, theirs, ours), ("ldb", ours, theirs)] {
        let backups = format!("--backup_dir={}", from.join("bk").display());
        let ran = run(program, to, &["--db=r3", "restore", &backups], "");
        assert_eq!(ran.code, 0, "{program}: {}", ran.stderr);
    }
    sides.same_content("r3", "restoring the other's backup");
    assert!(!ours.join("none").exists() && !ours.join("r2/CURRENT").exists());
}

#[test]
fn levels_and_manifests_are_those_of_ldb() {
    if !ldb::has_tools() {
        return;
    }
    let made = several_levels();
    let database = made.path().join("db");
    let last = ldb::files(&database, ".sst").pop().unwrap();
    let last = last.trim_end_matches(".sst").to_owned();
    let sides = Sides::of(&database);
    for (line, input) in LEVELS {
        sides.same(&line.replace("LAST", &last), input);
    }
    sides.crossed("db");
    let sides = Sides::of(&database);
    let used = sides.same(
        "--db=db reduce_levels --new_levels=9 --print_old_levels",
        "",
    );
    assert_eq!(used.stdout, "The old number of levels in use is 3\n");
    let line = "--db=db change_compaction_style --old_compaction_style=0 --new_compaction_style=1";
    sides.same(line, "");
    let options = ldb::files(&sides.ours.path().join("db"), "");
    let options = options.iter().rfind(|n| n.starts_with("OPTIONS-")).unwrap();
    let text = fs::read_to_string(sides.ours.path().join("db").join(options)).unwrap();
    for kept in [
        "disable_auto_compactions=false",
        "target_file_size_base=65536",
    ] {
        assert!(text.contains(kept), "{kept}");
    }
    sides.same(
        "--db=db reduce_levels --new_levels=5 --print_old_levels",
        "",
    );
    sides.crossed("db");
}

#[test]
fn what_either_dumps_the_other_loads() {
    if !ldb::has_tools() {
        return;
    }
    let made = several_levels();
    let dump = run("ldb", made.path(), &["--db=db", "dump", "--hex"], "").stdout;
    assert!(dump.lines().count() > 1000, "{dump}");
    let sides = Sides::new();
    sides.same("--db=db load --create_if_missing --hex", &dump);
    sides.same(
        "--db=new load --create_if_missing --hex --bulk_load --disable_wal --compact",
        &dump,
    );
    sides.crossed("db");
    sides.crossed("new");
    let args = ["--db=db", "scan", "--hex"];
    let scans = [made.path(), sides.ours.path()].map(|dir| run("ldb", dir, &args, "").stdout);
    assert!(scans[1].starts_with(&scans[0][..40]));
}

#[test]
fn levels_are_reduced_beside_another_family() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let ours = |line: &str| {
        let args: Vec<&str> = line.split(' ').collect();
        let ran = run(OURS, dir, &args, "a ==> 1\nb ==> 2\n");
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
        ran.stdout
    };
    ours("--db=db put k v --create_if_missing");
    ours("--db=db create_column_family two");
    for family in ["two", "default"] {
        ours(&format!(
            "--db=db load --column_family={family} --disable_wal"
        ));
        ours(&format!("--db=db compact --column_family={family}"));
    }
    let last = "--db=db reduce_levels --new_levels=2 --print_old_levels --column_family=two";
    let said = ours(last);
    let old = "The old number of levels in use is ";
    assert!(said.starts_with(old), "{said}");
    assert_eq!(ours(last), format!("{old}2\n"));
    assert_eq!(ours("--db=db scan --column_family=two"), "a : 1\nb : 2\n");
    assert_eq!(ours("--db=db scan"), "a : 1\nb : 2\nk : v\n");
}

#[test]
fn every_command_has_help() {
    for (line, _) in LOADS.iter().chain(TABLES).chain(COPIES).chain(LEVELS) {
        let Some(command) = line.split(' ').find(|w| !w.starts_with('-')) else {
            continue;
        };
        if command != "checkconsistency" {
            let ran = run(OURS, Path::new("."), &[command, "--help"], "");
            assert!(
                ran.code == 0 && ran.stdout.contains("Usage:"),
                "{command}: {ran:?}"
            );
        }
    }
}

#[test]
fn a_missing_table_is_told_by_both() {
    if !ldb::has_tools() {
        return;
    }
    let made = several_levels();
    let sides = Sides::of(&made.path().join("db"));
    let first = ldb::files(&sides.ours.path().join("db"), ".sst").remove(0);
    for dir in sides.both() {
        fs::remove_file(dir.join("db").join(&first)).unwrap();
    }
    let args = ["--db=db", "update_manifest", "--update_temperatures"];
    for (program, dir) in [(OURS, sides.ours.path()), ("ldb", sides.theirs.path())] {
        let ran = run(program, dir, &args, "");
        assert_eq!(ran.visible(), (1, ""), "{program}");
        assert!(ran.stderr.contains(&first), "{program}: {}", ran.stderr);
    }
    // Without the table both read the rest.
    let number = first.trim_end_matches(".sst");
    sides.same(&format!("--db=db unsafe_remove_sst_file {number}"), "");
    sides.crossed("db");
}

#[test]
fn a_removed_table_comes_back_with_the_old_manifest() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let ran = run(
        OURS,
        dir,
        &["--db=db", "load", "--create_if_missing", "--disable_wal"],
        "a ==> 1\n",
    );
    assert_eq!(ran.visible(), (0, ""), "{}", ran.stderr);
    let db = dir.join("db");
    let current = fs::read(db.join("CURRENT")).unwrap();
    let table = ldb::files(&db, ".sst").pop().unwrap();
    let scan = |expected: &str| {
        let ran = run(OURS, dir, &["--db=db", "scan"], "");
        assert_eq!(ran.visible(), (0, expected), "{}", ran.stderr);
    };
    let ran = run(
        OURS,
        dir,
        &["--db=db", "unsafe_remove_sst_file", &table[..6]],
        "",
    );
    assert_eq!(ran.visible(), (0, ""), "{}", ran.stderr);
    scan("");
    fs::write(db.join("CURRENT"), current).unwrap();
    scan("a : 1\n");
}

#[test]
fn an_open_database_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let ran = run(
        OURS,
        dir,
        &["--db=db", "load", "--create_if_missing", "--disable_wal"],
        "a ==> 1\n",
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    run(OURS, dir, &["--db=db", "backup", "--backup_dir=bk"], "");
    let table = ldb::files(&dir.join("db"), ".sst").pop().unwrap();
    let open = Db::open_all(dir.join("db"), &Options::default()).unwrap();
    let manifests = ldb::files(&dir.join("db"), "").into_iter();
    let manifests: Vec<String> = manifests.filter(|n| n.starts_with("MANIFEST")).collect();
    for line in [
        format!("unsafe_remove_sst_file {}", &table[..6]),
        "update_manifest --update_temperatures".to_owned(),
        "reduce_levels --new_levels=2".to_owned(),
        "change_compaction_style --old_compaction_style=0 --new_compaction_style=1".to_owned(),
        "singledelete a".to_owned(),
        "load".to_owned(),
        "checkpoint --checkpoint_dir=cp".to_owned(),
        "restore --backup_dir=bk".to_owned(),
    ] {
        let args: Vec<&str> = std::iter::once("--db=db").chain(line.split(' ')).collect();
        let ran = run(OURS, dir, &args, "b ==> 2\n");
        assert_eq!(ran.code, 1, "{line}");
        assert!(ran.stderr.contains("LOCK"), "{line}: {}", ran.stderr);
    }
    assert_eq!(open.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(open.get("b").unwrap(), None);
    open.close().unwrap();
    let ran = run(OURS, dir, &["--db=db", "scan"], "");
    assert_eq!(ran.visible(), (0, "a : 1\n"), "{}", ran.stderr);
    assert!(manifests.iter().all(|m| dir.join("db").join(m).exists()));
}

#[test]
fn what_is_not_supported_names_itself() {
    let root = tempfile::tempdir().unwrap();
    for (line, says) in [
        ("--db=db repair", "salvage"),
        ("--db=db repair --verbose", "Db::repair"),
        (
            "--db=db backup --backup_dir=b --backup_env_uri=x",
            "--backup_env_uri",
        ),
        (
            "--db=db restore --backup_dir=b --backup_fs_uri=x",
            "--backup_fs_uri",
        ),
        (
            "--db=db backup --backup_dir=b --num_threads=0",
            "--num_threads",
        ),
        ("--db=db checkpoint --checkpoint_dir=c more", "more"),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let ran = run(OURS, root.path(), &args, "");
        assert_eq!(ran.visible(), (1, ""), "{line}");
        assert!(ran.stderr.contains(says), "{line}: {}", ran.stderr);
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}
