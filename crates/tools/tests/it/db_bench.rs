//! db_bench, as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

use tools::librocksdb::PEER;

fn db_bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_db_bench"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs and returns standard output; fails with standard error.
fn run(arguments: &[&str]) -> String {
    let output = db_bench(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs, must fail with exit code 1, and returns standard error.
fn refused(arguments: &[&str]) -> String {
    let output = db_bench(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The result line of a benchmark.
fn result<'a>(output: &'a str, name: &str) -> &'a str {
    output
        .lines()
        .find(|line| line.split(" : ").next().map(str::trim) == Some(name))
        .unwrap_or_else(|| panic!("no {name} in {output}"))
}

const ALL: &str = "fillseq,fillbatch,fillsync,fill100K,fillrandom,overwrite,flush,compact,\
    waitforcompaction,readrandom,readmissing,seekrandom,readseq,readreverse,levelstats,stats,\
    deleteseq,deleterandom,readrandom";

fn run_all(engine: &str, dir: &Path) -> String {
    run(&[
        &format!("--engine={engine}"),
        &format!("--db={}", dir.display()),
        &format!("--benchmarks={ALL}"),
        "--num=2000",
        "--writes=300",
        "--seed=7",
        "--bloom_bits=10",
        "--compression_type=none",
        "--histogram",
        "--statistics",
    ])
}

/// What of the output depends on the keys alone.
fn found(output: &str) -> Vec<String> {
    output
        .lines()
        .filter(|line| line.contains("operations;"))
        .map(|line| {
            let name = line.split(" : ").next().unwrap_or_default();
            let count = line.split(" seconds ").nth(1).unwrap_or_default();
            let found = count.split_once('(').map_or("", |(_, found)| found);
            format!("{name}{} {found}", count.split(';').next().unwrap())
        })
        .collect()
}

#[test]
fn every_benchmark_runs() {
    let dir = tempfile::tempdir().unwrap();
    let output = run_all("ironstone", &dir.path().join("db"));
    assert!(result(&output, "fillseq").contains(" 300 operations; "));
    assert!(result(&output, "fillsync").ends_with(" MB/s (2 ops)"));
    assert!(result(&output, "readmissing").ends_with("operations; (0 of 2000 found)"));
    assert!(result(&output, "compact").ends_with(" 1 operations;"));
    assert!(output.contains("Microseconds per write:\nCount: 300 Average: "));
    assert!(output.contains("\nLevel Files Size(MB)\n"), "{output}");
    assert!(output.contains("\nSTATISTICS:\n"), "{output}");
    assert!(!output.contains("(failed)"), "{output}");
}

#[test]
fn both_engines_see_the_same_keys() {
    let peer = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(PEER);
    if !peer.is_file() {
        eprintln!("skipped: no {PEER} (cargo xtask peers fetches it)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let engine = format!("librocksdb:{}", peer.display());
    let theirs = run_all(&engine, &dir.path().join("theirs"));
    let ours = run_all("ironstone", &dir.path().join("ours"));
    assert_eq!(found(&ours), found(&theirs));

    // Each reads what the other wrote.
    let read = |engine: &str, db: &str| {
        run(&[
            &format!("--engine={engine}"),
            &format!("--db={}", dir.path().join(db).display()),
            "--benchmarks=readrandom,readseq",
            "--use_existing_db",
            "--num=2000",
            "--seed=9",
        ])
    };
    let expected = found(&read("ironstone", "ours"));
    assert!(expected.len() == 2 && !expected[0].contains("(0 of"));
    assert_eq!(found(&read(&engine, "ours")), expected);
    assert_eq!(found(&read("ironstone", "theirs")), expected);
}

#[test]
fn an_existing_database_is_kept_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let db = format!("--db={}", dir.path().join("db").display());
    run(&[&db, "--benchmarks=fillseq", "--num=1000"]);
    let output = run(&[
        &db,
        "--benchmarks=fillseq,readseq",
        "--num=1000",
        "--use_existing_db",
        "--threads=2",
    ]);
    assert_eq!(
        result(&output, "fillseq"),
        "fillseq      : skipped (--use_existing_db is true)"
    );
    assert!(result(&output, "readseq").contains(" 2000 operations; "));
    let output = run(&[&db, "--benchmarks=readseq", "--num=1000"]);
    assert!(result(&output, "readseq").contains(" 1 operations;"));
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let db = format!("--db={}", dir.path().display());
    std::fs::write(dir.path().join("letter"), "mine").unwrap();
    assert!(refused(&[&db]).contains("nothing was removed"));
    assert!(dir.path().join("letter").is_file());

    let e = refused(&["--row_cache_size=1", "--zap"]);
    assert!(e.contains("ERROR: command line flag 'row_cache_size' is not supported yet\n"));
    assert!(e.contains("ERROR: unknown command line flag 'zap'\n"));
    assert!(refused(&[&db, "--benchmarks=mixgraph"]).contains("'mixgraph' is not supported yet"));
    assert!(refused(&[&db, "--benchmarks=zap"]).contains("unknown benchmark 'zap'"));
    assert!(refused(&[&db, "--compression_type=zip"]).contains("compression_type zip"));
    assert!(refused(&[&db, "--engine=zap"]).contains("engine 'zap'"));
    let e = refused(&[&db, "--engine=librocksdb:/nonexistent.so"]);
    assert!(e.contains("/nonexistent.so"), "{e}");
    assert!(run(&["--help"]).contains("--benchmarks (string, default "));
}
