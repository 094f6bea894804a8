//! `ironstone` against `ldb`: the same arguments on databases with the same history must give the
//! same output and exit code.

use std::fs;
use std::path::Path;

use expect_test::expect_file;

use crate::ldb::{self, Ran, ironstone, run};

/// Command lines, run one after the other on both sides. Spaces separate arguments; `''` is an
/// empty one.
const CASES: &[&str] = &[
    "--db=db get a",
    "--db=db put a 1",
    "--db=db put a 1 --create_if_missing",
    "put b 2 --db=db",
    "--db=db get a",
    "get --db=db b",
    "--db=db get zz",
    "--db=db get zz --column_family=nope",
    "--db=db get a --hex",
    "--db=db get 0x6 --hex",
    "--db=db get 0xzz --hex",
    "--db=db get 0x61 --hex",
    "--db=db get 0x61 --key_hex",
    "--db=db get a --value_hex",
    "--db=db put 0x00ff61 0xdead00 --hex",
    "--db=db put 0x00FF62 dead --hex",
    "--db=db put 0x00FF62 dead --key_hex",
    "--db=db put nul 0x610062 --value_hex",
    "--db=db get nul",
    "--db=db get nul --hex --db=db",
    "--db=db put '' empty",
    "--db=db get ''",
    "--db=db put empty ''",
    "--db=db get empty",
    "--db=db get empty --value_hex",
    "--db=db put -5 minus",
    "--db=db get -5",
    "--db=db put",
    "--db=db put a",
    "--db=db put a b c",
    "--db=db get",
    "--db=db get a b",
    "--db=db delete",
    "--db=db delete nothere",
    "--db=db delete b",
    "--db=db delete a b",
    "--db=db deleterange",
    "--db=db deleterange a",
    "--db=db deleterange b b",
    "--db=db deleterange a c",
    "--db=db scan",
    "--db=db delete b --column_family=nope",
    "--db=db scan",
    "--db=db scan --hex",
    "--db=db scan --key_hex",
    "--db=db scan --value_hex",
    "--db=db --value_hex --max_keys=2 scan",
    "--db=db scan --no_value",
    "--db=db scan --no_value --hex",
    "--db=db scan --from=b",
    "--db=db scan --to=b",
    "--db=db scan --from=0x62 --hex",
    "--db=db scan --from=b --to=b",
    "--db=db scan --from=c --to=b",
    "--db=db scan --from=",
    "--db=db scan --max_keys=0",
    "--db=db scan --max_keys=1",
    "--db=db scan --max_keys=2",
    "--db=db scan --max_keys=-1",
    "--db=db scan --max_keys=x",
    "--db=db scan --max_keys=",
    "--db=db scan --nonsense",
    "--db=db scan --nonsense=3",
    "--db=db scan --limit=3",
    "--db=db scan --column_family=nope",
    "--db=db batchput k1 v1 k2 v2",
    "--db=db batchput k1 v1 k2",
    "--db=db batchput k1",
    "--db=db batchput",
    "--db=db batchput 0x6b33 0x7633 --hex",
    "--db=db scan",
    "--db=db list_column_families",
    "list_column_families --db=db",
    "--db=db create_column_family two",
    "--db=db create_column_family two",
    "--db=db create_column_family three",
    "--db=db list_column_families",
    "--db=db put in-two 2 --column_family=two",
    "--db=db batchput k v l w --column_family=two",
    "--db=db scan --column_family=two",
    "--db=db scan",
    "--db=db drop_column_family three",
    "--db=db drop_column_family three",
    "--db=db drop_column_family default",
    "--db=db list_column_families",
    "--db=db get_property no.such",
    "--db=none scan",
    "--db=none put a b",
    "--db=none delete a",
    "--db=db",
    "--db=db frob",
    "scan",
    "",
];

fn arguments(line: &str) -> Vec<&str> {
    line.split_whitespace()
        .map(|word| if word == "''" { "" } else { word })
        .collect()
}

/// Runs a line on both sides and compares.
fn same(line: &str, ours: &Path, theirs: &Path) -> Ran {
    let args = arguments(line);
    let expected = run("ldb", theirs, &args);
    let got = ironstone(ours, &args);
    let said = format!(
        "{line}: ldb: {}, ironstone: {}",
        expected.stderr, got.stderr
    );
    ldb::assert_same(got.visible(), expected.visible(), &said);
    got
}

#[test]
fn commands_print_what_ldb_prints() {
    if !ldb::has_tools() {
        return;
    }
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for line in CASES {
        let ran = same(line, ours.path(), theirs.path());
        if ran.code != 0 {
            assert!(!ran.stderr.is_empty(), "{line}: failed without a word");
        }
    }
    // And each program reads what the other wrote.
    for family in ["default", "two"] {
        let flag = format!("--column_family={family}");
        let args = ["--db=db", "scan", "--hex", &flag];
        let expected = run("ldb", theirs.path(), &args);
        assert!(!expected.stdout.is_empty());
        assert_eq!(run("ldb", ours.path(), &args).visible(), expected.visible());
        let crossed = ironstone(theirs.path(), &args);
        assert_eq!(crossed.visible(), expected.visible(), "{}", crossed.stderr);
    }
    let ran = ironstone(ours.path(), &["--db=db", "verify"]);
    assert!(ran.code == 0 && ran.stdout.ends_with("OK\n"), "{ran:?}");
}

#[test]
fn both_write_to_the_same_database_in_turn() {
    if !ldb::has_tools() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let db = root.path();
    run(
        "ldb",
        db,
        &["--db=db", "put", "k0", "v", "--create_if_missing"],
    );
    for i in 1..8 {
        let (key, value) = (format!("k{i}"), format!("v{i}"));
        let args = ["--db=db", "put", &key, &value];
        let ran = match i % 2 {
            0 => run("ldb", db, &args),
            _ => ironstone(db, &args),
        };
        assert_eq!(ran.visible(), (0, "OK\n"), "{i}: {}", ran.stderr);
        let ran = match i % 2 {
            0 => ironstone(db, &["--db=db", "delete", &format!("k{}", i - 1)]),
            _ => run("ldb", db, &["--db=db", "delete", &format!("k{}", i - 1)]),
        };
        assert_eq!(ran.visible(), (0, "OK\n"), "{i}: {}", ran.stderr);
        let theirs = run("ldb", db, &["--db=db", "scan"]);
        assert_eq!(theirs.stdout, format!("{key} : {value}\n"));
        assert_eq!(
            ironstone(db, &["--db=db", "scan"]).visible(),
            theirs.visible()
        );
    }
    let ran = ironstone(db, &["--db=db", "compact"]);
    assert_eq!(ran.visible(), (0, ""), "{}", ran.stderr);
    let theirs = run("ldb", db, &["--db=db", "scan"]);
    assert_eq!(theirs.stdout, "k7 : v7\n", "{}", theirs.stderr);
    let ran = run("ldb", db, &["--db=db", "checkconsistency"]);
    assert_eq!(ran.visible(), (0, "OK\n"), "{}", ran.stderr);
}

#[test]
fn a_database_of_db_bench_is_read_and_written() {
    if !ldb::has_tools() {
        return;
    }
    for compression in ["none", "snappy", "zstd"] {
        let root = tempfile::tempdir().unwrap();
        let bench = [
            "--db=db".to_owned(),
            "--benchmarks=fillrandom,overwrite".to_owned(),
            "--num=3000".to_owned(),
            "--value_size=60".to_owned(),
            "--write_buffer_size=65536".to_owned(),
            "--target_file_size_base=65536".to_owned(),
            "--bloom_bits=10".to_owned(),
            format!("--compression_type={compression}"),
        ];
        let bench: Vec<&str> = bench.iter().map(String::as_str).collect();
        let made = run("db_bench", root.path(), &bench);
        assert_eq!(made.code, 0, "{}", made.stderr);
        let ours = ldb::copy(&root.path().join("db"));
        let theirs = ldb::copy(&root.path().join("db"));
        for line in [
            "--db=db scan --hex",
            "--db=db scan --max_keys=10",
            "--db=db scan --no_value --key_hex",
            "--db=db put new value",
            "--db=db batchput new1 1 new2 2",
            "--db=db scan --from=new",
            "--db=db list_column_families",
        ] {
            same(line, ours.path(), theirs.path());
        }
        let scan = ["--db=db", "scan", "--hex"];
        let expected = run("ldb", theirs.path(), &scan);
        assert!(expected.stdout.lines().count() > 1000);
        assert_eq!(run("ldb", ours.path(), &scan).visible(), expected.visible());
    }
}

#[test]
fn reading_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let ran = ironstone(dir, &["--db=db", "put", "a", "1", "--create_if_missing"]);
    assert_eq!(ran.visible(), (0, "OK\n"), "{}", ran.stderr);
    let state = || {
        let mut all: Vec<_> = fs::read_dir(dir.join("db"))
            .unwrap()
            .map(|e| e.unwrap())
            .map(|e| (e.file_name(), fs::read(e.path()).unwrap()))
            .collect();
        all.sort();
        all
    };
    let before = state();
    for line in [
        "--db=db get a",
        "--db=db scan",
        "--db=db list-column-families",
        "--db=db get-property rocksdb.estimate-num-keys",
        "--db=db dump-wal",
        "--db=db dump-manifest --verbose",
        "--db=db verify",
        "--db=db dump --stats",
        "--db=db idump",
        "--db=db approxsize --from=a --to=b",
        "--db=db checkconsistency",
        "--db=db list-file-range-deletes",
        "--db=db list-live-files-metadata",
        "--db=db dump-live-files",
        "--db=db file-checksum-dump",
    ] {
        let ran = ironstone(dir, &arguments(line));
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
    }
    assert_eq!(state(), before);
}

#[test]
fn wrong_arguments_are_named() {
    let root = tempfile::tempdir().unwrap();
    for (line, says) in [
        ("--db=db scan --max_key=3", "'--max_keys'"),
        ("--db=db scn", "'scan'"),
        ("--db=db scan --ttl --start_time=x", "start_time"),
        ("--db=db scan --max_keys=x", "invalid value: x"),
        (
            "--db=db put a b --blob_file_starting_level=1",
            "blob files are not supported",
        ),
        (
            "--db=db put a b --prepopulate_blob_cache=1",
            "blob files are not supported",
        ),
        ("--db=db dump --path=db/000004.log", "--path"),
        ("--db=db put a b --bloom_bits=14", "--bloom_bits"),
        ("scan", "--db=DIR"),
        ("dump-wal", "ironstone dump-wal FILE"),
        ("dump-sst none.sst", "none.sst"),
        ("--db=db get 0x1 --hex", "0x1"),
        ("--db=db scan", "not a database"),
    ] {
        let ran = ironstone(root.path(), &arguments(line));
        assert_eq!(ran.visible(), (1, ""), "{line}");
        assert!(ran.stderr.contains(says), "{line}: {}", ran.stderr);
    }
    // ldb exits with 0 here.
    let ran = ironstone(root.path(), &["--db=none", "list_column_families"]);
    assert_eq!(ran.visible(), (1, ""), "{}", ran.stderr);
}

#[test]
fn settings_come_from_the_options_file() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    ironstone(dir, &["--db=db", "put", "a", "1", "--create_if_missing"]);
    let options = ldb::files(&dir.join("db"), "")
        .into_iter()
        .rfind(|n| n.starts_with("OPTIONS-"))
        .unwrap();
    let path = dir.join("db").join(options);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replace("[CFOptions", "  no_such_option=1\n[CFOptions"),
    )
    .unwrap();
    let put = |flags: &[&str]| {
        let mut args = vec!["--db=db", "get", "a"];
        args.extend(flags);
        ironstone(dir, &args)
    };
    assert_eq!(put(&[]).visible(), (0, "1\n"));
    let strict = put(&["--try_load_options"]);
    assert_eq!(strict.code, 1);
    assert!(
        strict.stderr.contains("no_such_option"),
        "{}",
        strict.stderr
    );
    let lenient = put(&["--try_load_options", "--ignore_unknown_options"]);
    assert_eq!(lenient.visible(), (0, "1\n"), "{}", lenient.stderr);
    fs::write(&path, "no options at all").unwrap();
    assert_eq!(put(&[]).code, 1);
    assert_eq!(put(&["--try_load_options=false"]).visible(), (0, "1\n"));
}

#[test]
fn help_teaches() {
    let dir = Path::new(".");
    let first = ironstone(dir, &["--help"]).stdout;
    let listed = first
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    // What goes on from the line before is indented further.
    let commands = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: Vec<&str> = commands.filter(|name| !name.is_empty()).collect();
    assert!(commands.len() > 35, "{commands:?}");
    let mut all = first.clone();
    for command in commands {
        let ran = ironstone(dir, &[command, "--help"]);
        assert_eq!(ran.code, 0);
        // The flags of all commands are in the first help already.
        let own = ran.stdout.split("\nFlags of all commands").next().unwrap();
        all.push_str(&format!("\n===== ironstone {command} --help\n{own}"));
    }
    expect_file!["../data/help.txt"].assert_eq(&all);
    let ran = ironstone(dir, &["--version"]);
    assert_eq!(
        ran.stdout,
        concat!("ironstone ", env!("CARGO_PKG_VERSION"), "\n")
    );
}
