//! db_bench, as a user runs it.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use tools::librocksdb::PEER;

pub(crate) fn db_bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_db_bench"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs and returns standard output; fails with standard error.
pub(crate) fn run(arguments: &[&str]) -> String {
    let output = db_bench(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs, must fail with exit code 1, and returns standard error.
pub(crate) fn refused(arguments: &[&str]) -> String {
    let output = db_bench(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The engine RocksDB 11.8.1; `None`, with a message, if it is missing.
pub(crate) fn peer() -> Option<String> {
    let peer = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(PEER);
    if peer.is_file() {
        return Some(format!("librocksdb:{}", peer.display()));
    }
    eprintln!("skipped: no {PEER} (cargo xtask peers fetches it)");
    None
}

/// The result line of a benchmark.
pub(crate) fn result<'a>(output: &'a str, name: &str) -> &'a str {
    output
        .lines()
        .find(|line| line.split(" : ").next().map(str::trim) == Some(name))
        .unwrap_or_else(|| panic!("no {name} in {output}"))
}

const ALL: &str = "fillseq,fillbatch,fillsync,fill100K,filluniquerandom,readrandom,fillseekseq,\
    fillrandom,overwrite,flush,compact,waitforcompaction,readrandom[W1-X2],readmissing,seekrandom,\
    readseq,readtocache,readreverse,multireadrandom,newiterator,readrandomwriterandom,updaterandom,\
    xorupdaterandom,appendrandom,mergerandom,readrandommergerandom,randomwithverify,mixgraph,\
    levelstats,memstats,sstables,stats,compact0,compact1,compactall,verifychecksum,backup,restore,\
    deleteseq,deleterandom,readrandom,randomreplacekeys,readseq";

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
        "--merge_operator=put",
        "--batch_size=3",
        "--mix_put_ratio=0.3",
        "--mix_seek_ratio=0.1",
        &format!("--backup_dir={}-backup", dir.display()),
        &format!("--restore_dir={}-restored", dir.display()),
    ])
}

/// The part of the output that depends only on the keys.
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
    assert!(result(&output, "filluniquerandom").contains(" 300 operations; "));
    assert!(output.contains("\nrandomwithverify"), "{output}");
    assert!(output.contains("readrandom [MEDIAN 2 runs] : "), "{output}");
    assert!(
        output.contains("\nStalls(count): 0 level0_slowdown, "),
        "{output}"
    );
    let restored = dir.path().join("db-restored");
    assert!(restored.join("CURRENT").is_file());
    assert!(result(&output, "fillsync").ends_with(" MB/s (2 ops)"));
    assert!(result(&output, "readmissing").ends_with("operations; (0 of 2000 found)"));
    assert!(result(&output, "compact").ends_with(" 1 operations;"));
    assert!(output.contains("Microseconds per write:\nCount: 100 Average: "));
    assert!(output.contains("\nLevel Files Size(MB)\n"), "{output}");
    assert!(output.contains("\nSTATISTICS:\n"), "{output}");
    assert!(!output.contains("(failed)"), "{output}");
}

#[test]
fn both_engines_see_the_same_keys() {
    let Some(engine) = peer() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
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

/// With the same seed both engines get the same writes in every benchmark: the databases are equal.
#[test]
fn one_seed_makes_equal_databases() {
    let Some(peer) = peer() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let content = |engine: &str, name: &str| {
        let path = dir.path().join(name);
        run(&[
            &format!("--engine={engine}"),
            &format!("--db={}", path.display()),
            "--benchmarks=filluniquerandom,overwrite,updaterandom,xorupdaterandom,appendrandom,\
             mixgraph,readrandomwriterandom,mergerandom,deleterandom,randomwithverify",
            "--num=1000",
            "--deletes=100",
            "--seed=11",
            "--merge_operator=put",
            "--mix_put_ratio=1",
            "--value_size_distribution_type=normal",
            "--value_size_min=10",
            "--value_size_max=200",
            "--writes_per_range_tombstone=300",
            "--range_tombstone_width=5",
            "--max_num_range_tombstones=2",
        ]);
        let mut options = ironstone::Options::default();
        options.cf.merge_operator = Some(Arc::new(ironstone::merge_operators::PutOperator));
        let db = ironstone::Db::open_read_only(&path, &options).unwrap();
        let mut it = db.iterator().unwrap();
        let mut pairs = Vec::new();
        it.seek_to_first();
        while it.valid() {
            pairs.push((it.key().to_vec(), it.value().to_vec()));
            it.next();
        }
        it.status().unwrap();
        pairs
    };
    let ours = content("ironstone", "ours");
    assert!((900..4000).contains(&ours.len()), "{}", ours.len());
    assert!(ours == content(&peer, "theirs"));
}

#[test]
fn verify_compares_with_another_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| format!("--db={}", dir.path().join(name).display());
    let truth = format!("--truth_db={}", dir.path().join("truth").display());
    let fill = ["--benchmarks=fillrandom", "--num=300", "--seed=5"];
    run(&[&path("truth"), fill[0], fill[1], fill[2]]);
    for engine in std::iter::once("ironstone".to_owned()).chain(peer()) {
        let engine = format!("--engine={engine}");
        run(&[&engine, &path("copy"), fill[0], fill[1], fill[2]]);
        let verify = |more: &str| {
            let benchmarks = format!("--benchmarks={more}verify");
            let use_it = "--use_existing_db";
            db_bench(&[&engine, &path("copy"), &benchmarks, use_it, &truth, fill[1]])
        };
        let equal = verify("");
        let told = String::from_utf8_lossy(&equal.stderr);
        assert!(
            equal.status.success() && told.contains("...Verified"),
            "{told}"
        );
        let changed = verify("overwrite,");
        let told = String::from_utf8_lossy(&changed.stderr);
        assert_eq!(changed.status.code(), Some(1), "{told}");
        assert!(told.contains("has another value in the database"), "{told}");
        std::fs::remove_dir_all(dir.path().join("copy")).unwrap();
    }
    let error = refused(&[&path("truth"), "--benchmarks=verify"]);
    assert!(error.contains("needs --truth_db"), "{error}");
}

#[test]
fn tables_are_made_and_ingested() {
    let dir = tempfile::tempdir().unwrap();
    for (i, engine) in std::iter::once("ironstone".to_owned())
        .chain(peer())
        .enumerate()
    {
        let db = dir.path().join(i.to_string());
        let output = run(&[
            &format!("--engine={engine}"),
            &format!("--db={}", db.display()),
            "--benchmarks=ingestexternalfile,readseq",
            "--num=200",
            "--reads=1000",
            "--ingest_external_file_batch_size=2",
            "--ingest_external_file_num_batches=3",
        ]);
        let line = result(&output, "ingestexternalfile");
        assert!(line.contains(" 3 operations;"), "{line}");
        assert!(
            line.contains("(3 batches x 2 files, 200 keys/file)"),
            "{line}"
        );
        assert!(
            result(&output, "readseq").contains(" 200 operations;"),
            "{output}"
        );
        assert!(!db.join("ingest_tmp").exists());
    }
}

/// Runs in a separate mount namespace, so that no mount is left afterwards.
#[test]
fn a_full_disk_leaves_the_partial_result_marked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    let on_small_disk = |engine: &str| {
        let script = format!(
            "mount -t tmpfs -o size=12m none {path} || exit 77; exec {} --engine={engine} \
             --db={path}/db --benchmarks=fillrandom,readrandom --num=1000000 --write_buffer_size=1000000 \
             --compression_type=none --progress_reports=false",
            env!("CARGO_BIN_EXE_db_bench")
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]).output()
    };
    for engine in std::iter::once("ironstone".to_owned()).chain(peer()) {
        let output = match on_small_disk(&engine) {
            Ok(output) if output.status.code() != Some(77) && output.status.code() != Some(1) => {
                panic!("{output:?}")
            }
            Ok(output) if !output.stdout.is_empty() => output,
            _ => return eprintln!("skipped: no mount namespace (needs root and unshare)"),
        };
        let (out, told) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        let line = result(&out, "fillrandom");
        assert!(
            line.contains("INCOMPLETE") && line.contains("micros/op"),
            "{line}"
        );
        assert!(told.contains("No space left on device"), "{told}");
        assert!(!out.contains("readrandom   :"), "{out}");
    }
}

#[test]
fn what_was_done_before_an_error_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = format!("--db={}", path.display());
    run(&[
        &db,
        "--benchmarks=fillseq,flush",
        "--num=20000",
        "--compression_type=none",
    ]);
    let tables = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path());
    let table = tables
        .filter(|p| p.extension().is_some_and(|e| e == "sst"))
        .max()
        .unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let output = db_bench(&[
        &db,
        "--benchmarks=readseq,readrandom",
        "--num=20000",
        "--use_existing_db",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("Corruption"), "{errors}");
    let output = String::from_utf8(output.stdout).unwrap();
    let line = result(&output, "readseq");
    assert!(line.contains("(INCOMPLETE: Corruption"), "{line}");
    let done = line.split(" seconds ").nth(1).unwrap();
    let done: u64 = done.split(' ').next().unwrap().parse().unwrap();
    assert!((5000..15000).contains(&done), "{line}");
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

    let e = refused(&["--simcache_size=1", "--zap"]);
    assert!(e.contains("ERROR: command line flag 'simcache_size' is not supported: caches that"));
    assert!(e.contains("ERROR: unknown command line flag 'zap'\n"));
    let e = refused(&[&db, "--benchmarks=randomtransaction"]);
    assert!(
        e.contains("'randomtransaction': transactions are not in the engine yet"),
        "{e}"
    );
    let e = refused(&[&db, "--benchmarks=mergerandom"]);
    assert!(e.contains("'mergerandom' needs --merge_operator"), "{e}");
    let e = refused(&[&db, "--compaction_style=9"]);
    assert!(e.contains("compaction_style 9: must be from 0 to 3"), "{e}");
    assert!(refused(&[&db, "--benchmarks=zap"]).contains("unknown benchmark 'zap'"));
    assert!(refused(&[&db, "--compression_type=zip"]).contains("compression_type zip"));
    assert!(refused(&[&db, "--engine=zap"]).contains("engine 'zap'"));
    let e = refused(&[&db, "--engine=librocksdb:/nonexistent.so"]);
    assert!(e.contains("/nonexistent.so"), "{e}");
    let e = refused(&[&db, "--engine=librocksdb:libc.so.6"]);
    assert!(e.contains("libc.so.6: not a librocksdb"), "{e}");
    assert!(run(&["--help"]).contains("--benchmarks (string, default "));
}

/// Readers beside a writer, time series, and benchmarks with a rate limit.
#[test]
fn several_threads_with_parts_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let db = format!("--db={}", dir.path().join("db").display());
    let output = run(&[
        &db,
        "--benchmarks=fillseq,readwhilewriting,multireadwhilewriting,readwhilemerging,\
         readwhilescanning,seekrandomwhilewriting,newiteratorwhilewriting,timeseries",
        "--num=1000",
        "--reads=500",
        "--threads=3",
        "--merge_operator=put",
        "--expire_style=delete",
        "--time_range=10",
        "--key_id_range=20",
    ]);
    for name in [
        "readwhilewriting",
        "multireadwhilewriting",
        "readwhilemerging",
        "readwhilescanning",
        "seekrandomwhilewriting",
        "newiteratorwhilewriting",
    ] {
        let line = result(&output, name);
        assert!(line.contains(" 1500 operations;"), "{line}");
    }
    let written = result(&output, "timeseries write");
    assert!(written.contains(" 1000 operations; "), "{written}");
    result(&output, "timeseries");

    let output = run(&[
        &db,
        "--benchmarks=overwrite,readrandom",
        "--num=1000",
        "--use_existing_db",
        "--benchmark_write_rate_limit=464000", // 4,000 puts of 116 bytes a second
        "--benchmark_read_rate_limit=4000",
        "--perf_level=2",
    ]);
    assert!(output.contains("PERF_CONTEXT:\n"), "{output}");
    for name in ["overwrite", "readrandom"] {
        let line = result(&output, name);
        let rate: f64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
        assert!(rate < 4100.0, "{rate}: {line}");
    }
}

#[test]
fn the_null_engine_does_nothing_and_is_fast() {
    let output = run(&["--engine=null", "--benchmarks=fillseq,readrandom,readseq"]);
    let line = result(&output, "readrandom");
    assert!(line.ends_with("(1000000 of 1000000 found)"), "{line}");
}
