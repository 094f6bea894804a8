//! Benchmarks of db_bench that need special flags, as a user runs them.

use std::path::Path;

use crate::db_bench::{peer, refused, result, run};

/// Both engines, or only Ironstone if RocksDB is missing.
fn engines() -> impl Iterator<Item = String> {
    std::iter::once("ironstone".to_owned()).chain(peer())
}

fn in_dir(dir: &Path, engine: &str, arguments: &[&str]) -> String {
    let (engine, db) = (
        format!("--engine={engine}"),
        format!("--db={}", dir.join("db").display()),
    );
    let all: Vec<&str> = [engine.as_str(), db.as_str(), "--seed=3"]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    run(&all)
}

/// The number before `word`.
fn number_before(output: &str, word: &str) -> u64 {
    let before = output.split(word).next().unwrap();
    let number = before.split_whitespace().last().unwrap();
    number
        .trim_start_matches('(')
        .parse()
        .unwrap_or_else(|_| panic!("{number} before {word} in {output}"))
}

/// The number after `words`.
fn number_behind(output: &str, words: &str) -> u64 {
    let behind = output
        .split_once(words)
        .unwrap_or_else(|| panic!("no {words} in {output}"))
        .1;
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// The levels in the lines about the shape of the database, in order, each once.
fn levels(output: &str) -> Vec<u64> {
    let lines = output.lines().filter_map(|l| l.strip_prefix("Level["));
    let mut levels: Vec<u64> = lines
        .map(|line| line.split(']').next().unwrap().parse().unwrap())
        .collect();
    levels.dedup();
    levels
}

const SMALL_FILES: [&str; 4] = [
    "--write_buffer_size=65536",
    "--disable_auto_compactions",
    "--compression_type=none",
    "--max_write_buffer_number=2",
];

#[test]
fn deterministic_fills_fill_every_level() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["fillseqdeterministic", "filluniquerandomdeterministic"] {
            let benchmarks = format!("--benchmarks={name},readrandom,levelstats");
            let mut flags = vec![benchmarks.as_str(), "--num=40000", "--reads=500"];
            flags.extend(["--num_levels=3", "--threads=4"]);
            flags.extend(SMALL_FILES);
            let output = in_dir(dir.path(), &engine, &flags);
            assert_eq!(levels(&output), [0, 1, 2], "{engine} {output}");
            // Two rounds: 40,000 keys and a tenth of it, in one thread.
            let line = result(&output, name);
            assert!(line.contains(" 44000 operations;"), "{line}");
            let line = result(&output, "readrandom");
            assert!(line.ends_with("(500 of 500 found)"), "{line}");
        }
    }
}

#[test]
fn deterministic_fills_of_universal_compaction() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        let mut flags = vec!["--benchmarks=fillseqdeterministic,readseq", "--num=20000"];
        flags.extend(["--num_levels=3", "--compaction_style=1"]);
        flags.extend(SMALL_FILES);
        let output = in_dir(dir.path(), &engine, &flags);
        assert_eq!(levels(&output), [0, 1, 2], "{engine} {output}");
        let line = result(&output, "readseq");
        assert!(line.contains(" 20000 operations;"), "{line}");
    }
}

#[test]
fn deterministic_fills_say_what_they_need() {
    let dir = tempfile::tempdir().unwrap();
    let db = format!("--db={}", dir.path().join("db").display());
    let error = |more: &[&str]| {
        let mut all = vec![
            db.as_str(),
            "--benchmarks=fillseqdeterministic",
            "--num=100",
        ];
        all.extend(more);
        refused(&all)
    };
    assert!(error(&[]).contains("needs --disable_auto_compactions"));
    let off = "--disable_auto_compactions";
    let e = error(&[off]);
    assert!(e.contains("n is too small to fill 7 levels"), "{e}");
    let e = error(&[off, "--compaction_style=2"]);
    assert!(e.contains("needs --compaction_style=0 or 1"), "{e}");
}

#[test]
fn sets_of_entries_are_completed_and_deleted() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        for delay in ["0", "20000"] {
            let output = in_dir(
                dir.path(),
                &engine,
                &[
                    "--benchmarks=fillanddeleteuniquerandom,readseq",
                    "--num=3000",
                    "--batch_size=7",
                    "--disposable_entries_batch_size=10",
                    "--persistent_entries_batch_size=5",
                    &format!("--disposable_entries_delete_delay={delay}"),
                ],
            );
            let puts = number_behind(&output, "(disposable+persistent): ");
            let deletions = number_behind(&output, "'disposable entry delete': ");
            let left = number_before(result(&output, "readseq"), " operations;");
            assert_eq!(left, puts - deletions, "{engine} {output}");
            assert!(deletions >= 100 && left >= 500, "{output}");
        }
        // Without sets it is filluniquerandom.
        let flags = [
            "--benchmarks=fillanddeleteuniquerandom,readseq",
            "--num=300",
        ];
        let output = in_dir(dir.path(), &engine, &flags);
        assert!(result(&output, "readseq").contains(" 300 operations;"));
    }
}

#[test]
fn unique_keys_are_written_again() {
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        let output = in_dir(
            dir.path(),
            &engine,
            &[
                "--benchmarks=filluniquerandom,readseq",
                "--num=2000",
                "--overwrite_probability=0.25",
                "--overwrite_window_size=10",
            ],
        );
        let unique = number_behind(&output, "Number of unique keys inserted: ");
        let again = number_behind(&output, "Number of overwrites: ");
        assert_eq!(unique + again, 2000, "{output}");
        assert!((400..600).contains(&again), "{again}");
        let left = number_before(result(&output, "readseq"), " operations;");
        assert_eq!(left, unique, "{engine}");
    }
    let e = refused(&[
        "--benchmarks=fillrandom",
        "--disposable_entries_batch_size=10",
    ]);
    assert!(
        e.contains("'fillrandom' needs --disposable_entries_batch_size=0"),
        "{e}"
    );
    let e = refused(&[
        "--benchmarks=filluniquerandom",
        "--overwrite_probability=0.1",
        "--overwrite_window_size=0",
    ]);
    assert!(e.contains("needs --overwrite_window_size above 0"), "{e}");
}

#[test]
fn ranges_are_scanned_in_both_directions() {
    let rows: Vec<u64> = engines()
        .flat_map(|engine| {
            let (one_call, in_turn) = ("--use_multiscan", "--nouse_multiscan");
            let ways = [
                (one_call, "false"),
                (one_call, "true"),
                (in_turn, "false"),
                (in_turn, "true"),
            ];
            let has_call = engine.contains("ironstone");
            let ways = ways
                .into_iter()
                .filter(move |(how, _)| has_call || *how == in_turn);
            ways.map(move |(how, reverse)| {
                let dir = tempfile::tempdir().unwrap();
                let output = in_dir(
                    dir.path(),
                    &engine,
                    &[
                        "--benchmarks=fillseq,multiscan,multiscanrandom",
                        "--num=10000",
                        "--reads=50000",
                        "--value_size=1000",
                        how,
                        &format!("--reverse_iterator={reverse}"),
                    ],
                );
                let line = result(&output, "multiscan");
                assert!(line.contains("rows_per_multiscan:500 "), "{line}");
                let line = result(&output, "multiscanrandom");
                assert!(line.contains("max_range_keys:1032)"), "{line}");
                assert_eq!(
                    number_behind(line, "multiscans:"),
                    number_before(line, " operations;")
                );
                number_behind(line, "rows_scanned:")
            })
        })
        .collect();
    assert!(
        rows[0] >= 50_000 && rows.iter().all(|r| *r == rows[0]),
        "{rows:?}"
    );
}

/// Benchmarks for which RocksDB's C API has no calls.
#[test]
fn operands_entities_and_memtables() {
    let dir = tempfile::tempdir().unwrap();
    let output = in_dir(
        dir.path(),
        "ironstone",
        &[
            "--benchmarks=fillseq,approximatememtablestats,readrandomentity,multireadentity,\
             mergerandom,readrandomoperands,getmergeoperands",
            "--num=1000",
            "--batch_size=5",
            "--merge_operator=stringappend",
        ],
    );
    let stats = output.split("Reported entry count stats (expected 5):\n");
    let stats = stats.last().unwrap();
    assert!(stats.contains("Count: 1000 Average: "), "{output}");
    let line = result(&output, "readrandomentity");
    assert!(line.ends_with("(1000 of 1000 found)"), "{line}");
    assert!(line.contains("MB/s"), "{line}");
    let line = result(&output, "multireadentity");
    assert!(line.ends_with("(1000 of 1000 found)"), "{line}");
    let line = result(&output, "readrandomoperands");
    assert!(line.ends_with("(1000 of 1000 found)"), "{line}");
    assert_eq!(output.matches("Found key? 1\n").count(), 2, "{output}");
    assert!(
        output.contains("Sample data from Get API call: 1,2,3,4,5,\n"),
        "{output}"
    );
    assert!(output.contains("List: 3 : 301,302,"), "{output}");
    result(&output, "getmergeoperands");

    let Some(engine) = peer() else { return };
    let engine = format!("--engine={engine}");
    for (name, call) in [
        ("approximatememtablestats", "GetApproximateMemTableStats"),
        ("readrandomentity", "GetEntity"),
        ("multireadentity", "MultiGetEntity"),
        ("readrandomoperands", "GetMergeOperands"),
        ("getmergeoperands", "GetMergeOperands"),
    ] {
        let e = refused(&[&engine, &format!("--benchmarks={name}")]);
        let expected = format!("benchmark '{name}': RocksDB's C API has no {call}");
        assert!(e.contains(&expected), "{e}");
    }
}

#[test]
fn benchmarks_without_a_database() {
    let output = run(&["--engine=null", "--benchmarks=acquireload"]);
    let line = result(&output, "acquireload");
    assert!(
        line.ends_with(" 100000 operations; (each op is 1000 loads)"),
        "{line}"
    );
    let flags = [
        "--engine=null",
        "--benchmarks=compressreject",
        "--compression_type=none",
    ];
    let output = run(&flags);
    let line = result(&output, "compressreject");
    assert!(line.ends_with("(compression type not supported)"), "{line}");
}

#[test]
fn rows_are_read_into_their_cache() {
    let told = "--benchmarks=readtorowcache";
    assert!(refused(&[told]).contains("needs --use_existing_keys and --row_cache_size"));
    let flags = [
        "--use_existing_db",
        "--use_existing_keys",
        "--row_cache_size=1000000",
    ];
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        in_dir(
            dir.path(),
            &engine,
            &["--benchmarks=fillseq,flush", "--num=500"],
        );
        let benchmarks = "--benchmarks=readtorowcache,readrandom";
        let all = [benchmarks, "--statistics", flags[0], flags[1], flags[2]];
        let output = in_dir(dir.path(), &engine, &all);
        let line = result(&output, "readtorowcache");
        assert!(line.ends_with("(500 of 500 found)"), "{line}");
        for ticker in ["rocksdb.row.cache.hit", "rocksdb.row.cache.miss"] {
            let line = format!("{ticker} COUNT : ");
            assert_eq!(number_behind(&output, &line), 500, "{engine}: {output}");
        }
    }
}

#[test]
fn blocks_come_from_the_second_tier() {
    let dir = tempfile::tempdir().unwrap();
    let flags = [
        "--benchmarks=fillseq,flush,readrandom,readrandom",
        "--num=20000",
        "--compression_type=none",
        "--cache_size=100000",
        "--statistics",
        "--compressed_secondary_cache_size=4000000",
    ];
    let hits = |more: &[&str]| {
        let output = in_dir(dir.path(), "ironstone", &[&flags[..], more].concat());
        number_behind(&output, "rocksdb.secondary.cache.hits COUNT : ")
    };
    let tier = "--use_compressed_secondary_cache";
    let kind = "--compressed_secondary_cache_compression_type";
    assert_eq!(hits(&[]), 0, "without the tier");
    for kind in [&format!("{kind}=lz4"), &format!("{kind}=zstd")] {
        let some = hits(&[tier, kind]);
        assert!(some > 2000, "{kind}: {some}");
    }
    let e = refused(&["--benchmarks=readrandom", tier, &format!("{kind}=nothing")]);
    assert!(
        e.contains("compressed_secondary_cache_compression_type nothing"),
        "{e}"
    );
    let Some(engine) = peer() else { return };
    let e = refused(&[
        "--benchmarks=readrandom",
        tier,
        &format!("--engine={engine}"),
    ]);
    assert!(e.contains("RocksDB's C API has nothing for it"), "{e}");
}

#[test]
fn gets_that_pin_values_find_them_too() {
    for engine in engines() {
        for pinned in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let arguments = [
                "--benchmarks=fillseq,readrandom,multireadrandom",
                "--num=300",
                "--batch_size=10",
                &format!("--pinned_gets={pinned}"),
            ];
            let output = in_dir(dir.path(), &engine, &arguments);
            for name in ["readrandom", "multireadrandom"] {
                let line = result(&output, name);
                assert!(line.contains("(300 of 300 found)"), "{engine}: {line}");
            }
        }
    }
}
