//! Flags of db_bench, and the effect that each has.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::db_bench::{db_bench, peer, refused, result, run};

/// Ironstone, and RocksDB if it is available.
fn engines() -> impl Iterator<Item = String> {
    std::iter::once("ironstone".to_owned()).chain(peer())
}

fn db(dir: &Path) -> String {
    format!("--db={}", dir.display())
}

/// The number of requested keys that a benchmark found.
fn found(output: &str, name: &str) -> u64 {
    let line = result(output, name);
    let text = line.split('(').nth(1).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// The number of keys of each family of a database, in the order of the families.
fn keys_of_families(dir: &Path) -> Vec<usize> {
    let options = ironstone::Options::default();
    let db = ironstone::Db::open_read_only(dir, &options).unwrap();
    let mut names = ironstone::Db::list_column_families(dir, &options.env).unwrap();
    names.sort_by_key(|name| (name != "default", name.clone()));
    let count = |name: &String| {
        let family = db.column_family(name).unwrap();
        let read = ironstone::ReadOptions::default();
        let mut it = db.cf(&family).with(&read).iterator().unwrap();
        it.seek_to_first();
        let mut count = 0;
        while it.valid() {
            count += 1;
            it.next();
        }
        it.status().unwrap();
        count
    };
    names.iter().map(count).collect()
}

#[test]
fn the_number_of_a_key_picks_its_family() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines() {
        let path = dir.path().join(engine.len().to_string());
        let bench = |benchmarks: &str, more: &[&str]| {
            let (engine, db) = (format!("--engine={engine}"), db(&path));
            let benchmarks = format!("--benchmarks={benchmarks}");
            let mut all = vec![engine.as_str(), &db, &benchmarks, "--num=1000", "--seed=3"];
            all.extend_from_slice(more);
            run(&all)
        };
        let more = ["--num_column_families=4", "--merge_operator=put"];
        let output = bench("fillseq,readrandom,mergerandom,mixgraph,flush", &more);
        assert_eq!(found(&output, "readrandom"), 1000);
        assert!(result(&output, "mixgraph").contains("reads 1000 in 1000 found"));
        assert_eq!(keys_of_families(&path), [250; 4]);

        bench(
            "fillseq",
            &[
                "--num_column_families=2",
                "--column_family_distribution=20,80",
            ],
        );
        assert_eq!(keys_of_families(&path), [210, 790]);

        // The first half of the puts goes to the first two families; the last of it begins the second.
        let hot = ["--num_column_families=4", "--num_hot_column_families=2"];
        bench("fillseq", &hot);
        assert_eq!(keys_of_families(&path), [250, 249, 250, 251]);

        // After each hundredth put a range goes, in the family of that put, which is the last.
        let more = [
            "--num_column_families=4",
            "--writes_per_range_tombstone=100",
            "--max_num_range_tombstones=9",
            "--range_tombstone_width=300",
        ];
        bench("fillseq", &more);
        let counts = keys_of_families(&path);
        assert!(counts[..3] == [250; 3] && counts[3] < 250, "{counts:?}");
    }
    let e = refused(&["--num_column_families=2", "--column_family_distribution=1"]);
    assert!(e.contains("must be 2 numbers whose sum is 100"), "{e}");
}

#[test]
fn operations_go_to_several_databases() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines() {
        let path = dir.path().join(engine.len().to_string());
        let logs = dir.path().join(format!("{}-logs", engine.len()));
        let output = run(&[
            &format!("--engine={engine}"),
            &db(&path),
            &format!("--wal_dir={}", logs.display()),
            "--benchmarks=fillseq,readrandom,readseq,seekrandom,flush,overwrite,compactall,levelstats",
            "--num=300",
            "--num_multi_db=3",
        ]);
        assert!(result(&output, "fillseq").contains(" 900 operations;"));
        assert_eq!(found(&output, "readrandom"), 300);
        assert_eq!(found(&output, "seekrandom"), 300);
        assert!(result(&output, "readseq").contains(" 900 operations;"));
        for i in 0..3 {
            assert!(path.join(i.to_string()).join("CURRENT").is_file());
            assert!(logs.join(i.to_string()).is_dir());
            let name = format!("==== DB: {} ===", path.join(i.to_string()).display());
            assert!(output.contains(&name), "{output}");
        }
        // And all of them are made anew.
        run(&[
            &format!("--engine={engine}"),
            &db(&path),
            "--benchmarks=fillrandom",
            "--num=10",
            "--num_multi_db=3",
        ]);
    }
    let e = refused(&[
        &db(&dir.path().join("x")),
        "--benchmarks=readwhilescanning",
        "--num_multi_db=2",
    ]);
    assert!(e.contains("with several databases, num_multi_db"), "{e}");
}

#[test]
fn keys_that_a_database_has_are_used() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines() {
        let path = dir.path().join(engine.len().to_string());
        let bench = |more: &[&str]| {
            let (engine, db) = (format!("--engine={engine}"), db(&path));
            let mut all = vec![engine.as_str(), &db, "--seed=5"];
            all.extend_from_slice(more);
            run(&all)
        };
        bench(&["--benchmarks=fillseq", "--num=200", "--key_size=24"]);
        let output = bench(&[
            "--benchmarks=readrandom,overwrite,readseq",
            "--use_existing_db",
            "--use_existing_keys",
        ]);
        assert_eq!(found(&output, "readrandom"), 200);
        assert!(result(&output, "readseq").contains(" 200 operations;"));
        let plain = bench(&["--benchmarks=readrandom", "--use_existing_db", "--num=200"]);
        assert_eq!(found(&plain, "readrandom"), 0);
    }
    let e = refused(&["--use_existing_keys"]);
    assert!(
        e.contains("'use_existing_keys' needs use_existing_db"),
        "{e}"
    );
}

#[test]
fn a_database_is_opened_for_reading_or_followed() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines() {
        let path = dir.path().join(engine.len().to_string());
        let (engine, db) = (format!("--engine={engine}"), db(&path));
        let families = "--num_column_families=2";
        run(&[&engine, &db, "--benchmarks=fillseq", "--num=100", families]);
        let output = run(&[
            &engine,
            &db,
            "--benchmarks=fillseq,readrandom",
            "--num=100",
            "--readonly",
            families,
        ]);
        assert!(output.contains("fillseq      : skipped (--use_existing_db is true)"));
        assert_eq!(found(&output, "readrandom"), 100);
        let output = db_bench(&[
            &engine,
            &db,
            "--benchmarks=overwrite",
            "--num=100",
            "--readonly",
            families,
        ]);
        assert_eq!(output.status.code(), Some(1));

        let own = dir.path().join("own");
        let output = run(&[
            &engine,
            &db,
            "--benchmarks=readseq",
            "--num=100",
            "--use_existing_db",
            "--use_secondary_db",
            &format!("--secondary_path={}", own.display()),
        ]);
        assert!(result(&output, "readseq").contains(" 50 operations;"));
        let times = output
            .lines()
            .find(|l| l.starts_with("Secondary instance updated  "));
        let times = times.unwrap().split_whitespace().nth(3).unwrap();
        assert!(times.parse::<u64>().unwrap() >= 1, "{output}");
        assert!(own.is_dir());
    }
    let e = refused(&["--use_secondary_db"]);
    assert!(
        e.contains("'use_secondary_db' needs use_existing_db"),
        "{e}"
    );
}

#[test]
fn snapshots_and_deletions_of_cursors() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines() {
        let path = dir.path().join(engine.len().to_string());
        let output = run(&[
            &format!("--engine={engine}"),
            &db(&path),
            "--benchmarks=fillseq,seekrandom,readseq",
            "--num=100",
            "--reads=100",
            "--seek_nexts=1",
            "--seek_nexts_to_delete=3",
            "--explicit_snapshot",
            "--threads=1",
            "--seed=7",
        ]);
        // All seeks see what was there when they began, and delete what lies behind.
        assert_eq!(found(&output, "seekrandom"), 100);
        let line = result(&output, "readseq");
        let left: u64 = line
            .split(" seconds ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!((1..40).contains(&left), "{line}");

        let output = run(&[
            &format!("--engine={engine}"),
            &db(&path),
            "--benchmarks=fillseq,seekrandom,fillseekseq,readwhilescanning",
            "--num=100",
            "--key_size=24",
            "--prefix_size=12",
            "--keys_per_prefix=10",
            "--seek_missing_prefix",
            "--explicit_snapshot",
        ]);
        assert_eq!(found(&output, "seekrandom"), 0);
    }
}

/// The options that RocksDB's tools and Ironstone's read in the OPTIONS file.
#[test]
fn options_reach_the_engine() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines() {
        let path = dir.path().join(engine.len().to_string());
        run(&[
            &format!("--engine={engine}"),
            &db(&path),
            "--benchmarks=fillseq",
            "--num=10",
            "--compression_type=none",
            "--block_align",
            "--checksum_type=1",
            "--index_with_first_key",
            "--verify_compression",
            "--initial_auto_readahead_size=4096",
            "--max_auto_readahead_size=65536",
            "--num_file_reads_for_auto_readahead=3",
            "--num_levels=3",
            "--max_bytes_for_level_multiplier_additional=1,2,3",
            "--max_manifest_file_size=1234567",
            "--fifo_compaction_max_table_files_size_mb=7",
            "--nofifo_compaction_allow_compaction",
            "--universal_stop_style=0",
            "--cost_write_buffer_to_cache",
            "--stats_level=1",
            "--statistics_string=BasicStatistics",
        ]);
        let text = options_text(&path);
        for wanted in [
            "block_align=true",
            "checksum=kCRC32c",
            "index_type=kBinarySearchWithFirstKey",
            "verify_compression=true",
            "initial_auto_readahead_size=4096",
            "max_auto_readahead_size=65536",
            "num_file_reads_for_auto_readahead=3",
            "max_bytes_for_level_multiplier_additional=1:2:3",
            "max_manifest_file_size=1234567",
            "max_table_files_size=7340032",
            "stop_style=kCompactionStopStyleSimilarSize",
        ] {
            assert!(text.contains(wanted), "{engine}: {wanted} in {text}");
        }

        // The same options once more, from the file.
        let file = options_file(&path);
        let again = dir.path().join(format!("{}-again", engine.len()));
        run(&[
            &format!("--engine={engine}"),
            &db(&again),
            "--benchmarks=fillseq",
            "--num=10",
            "--checksum_type=2",
            &format!("--options_file={}", file.display()),
        ]);
        let text = options_text(&again);
        assert!(text.contains("checksum=kCRC32c"), "{text}");
        assert!(text.contains("max_manifest_file_size=1234567"), "{text}");
    }
}

fn options_file(dir: &Path) -> std::path::PathBuf {
    let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let of_options = |p: &std::path::PathBuf| {
        let name = p.file_name().unwrap().to_string_lossy();
        name.starts_with("OPTIONS-")
    };
    files.filter(of_options).max().unwrap()
}

fn options_text(dir: &Path) -> String {
    std::fs::read_to_string(options_file(dir)).unwrap()
}

#[test]
fn what_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines() {
        let path = dir.path().join(engine.len().to_string());
        let args = [
            &format!("--engine={engine}"),
            &db(&path),
            "--benchmarks=fillseq,flush,overwrite,readrandom",
            "--num=1000",
            "--histogram",
            "--slow_usecs=0",
            "--print_malloc_stats",
            "--statistics_string=BasicStatistics",
            "--same_value_percentage=100",
            "--use_keep_filter",
        ];
        let output = db_bench(&args);
        let (out, told) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        assert!(output.status.success(), "{told}");
        assert!(told.contains("long op: "), "{told}");
        assert!(out.contains("A noop compaction filter is used\n"), "{out}");
        assert!(out.contains("Malloc stats:\nVmPeak"), "{out}");
        assert!(out.contains("STATISTICS:\nrocksdb."), "{out}");

        let output = db_bench(&[
            &format!("--engine={engine}"),
            &db(&path),
            "--benchmarks=readrandom",
            "--use_existing_db",
            "--num=1000",
            "--stats_interval=500",
            "--stats_per_interval=1",
            "--show_table_properties",
        ]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("\nLevel[0]: # data blocks="), "{told}");
    }
    let output = run(&[
        &db(&dir.path().join("counted")),
        "--benchmarks=fillseq,flush,readrandom",
        "--num=1000",
        "--sync",
        "--compression_type=none",
        "--report_file_operations",
    ]);
    let counts: Vec<u64> = ["Num Append(): ", "Num bytes written: "]
        .iter()
        .map(|name| {
            let line = output.lines().find_map(|l| l.strip_prefix(name));
            line.unwrap().parse().unwrap()
        })
        .collect();
    assert!(counts[0] >= 1000 && counts[1] >= 116_000, "{output}");
    assert!(run(&["--build_info"]).contains("rocksdb_build_mode: "));
    let e = refused(&["--statistics_string=zap", &db(&dir.path().join("x"))]);
    assert!(e.contains("must be BasicStatistics"), "{e}");
}

/// `bench-device` alternates device writes with the puts that it compares: between two puts nothing else
/// runs, and no put becomes slower.
#[test]
fn a_run_is_paused_for_others_and_the_time_is_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_db_bench"))
        .args(["--benchmarks=fillseq", "--num=300", "--pause_every=100"])
        .args(["--histogram", &db(&dir.path().join("paused"))])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (pause, told) = (
        Duration::from_millis(300),
        format!("paused: {}", child.id()),
    );
    let (mut stdin, mut pauses, mut output) = (child.stdin.take().unwrap(), 0, String::new());
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == told {
            std::thread::sleep(pause);
            writeln!(stdin).unwrap();
            pauses += 1;
        }
        output.push_str(&(line + "\n"));
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(pauses, 3, "{output}");
    let words: Vec<&str> = result(&output, "fillseq").split_whitespace().collect();
    let at = words.iter().position(|w| *w == "seconds").unwrap();
    let seconds: f64 = words[at - 1].parse().unwrap();
    assert!(seconds < pause.as_secs_f64(), "{output}");
    let e = refused(&["--pause_every=1", "--threads=2", &db(&dir.path().join("x"))]);
    assert!(e.contains("needs threads=1"), "{e}");
}

/// A histogram's buckets are half as wide as their values: its percentiles cannot show differences of a few
/// percent.
#[test]
fn the_time_of_each_operation_is_written_to_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("times");
    let times_file = format!("--times_file={}", file.display());
    let db = db(&dir.path().join("db"));
    let output = run(&[
        "--benchmarks=fillseq,fillrandom",
        "--num=300",
        "--threads=2",
        &times_file,
        &db,
    ]);
    let text = std::fs::read_to_string(&file).unwrap();
    let times: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    // fillseq has one thread; the last benchmark counts.
    assert_eq!(times.len(), 600, "{output}");
    let words: Vec<&str> = result(&output, "fillrandom").split_whitespace().collect();
    let at = words.iter().position(|w| *w == "micros/op").unwrap();
    let mean: f64 = words[at - 1].parse().unwrap();
    let sum: u64 = times.iter().sum();
    let told = sum as f64 / 600_000.0;
    // The result also has what a thread does before its first operation and behind its last.
    assert!(told > 0.0 && told <= mean * 1.01, "{told} {mean}");
    // Not after a run that may take hours.
    let e = refused(&[
        "--benchmarks=fillseq",
        "--num=1000000000",
        "--times_file=/nowhere/x",
        &db,
    ]);
    assert!(e.contains("/nowhere/x"), "{e}");
}

#[test]
fn what_one_engine_lacks_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let db = db(&dir.path().join("db"));
    for (flag, reason) in [
        ("file_checksum", "checksums of whole files"),
        ("cache_type=lru_cache", "there is one kind of block cache"),
        (
            "use_direct_io_for_flush_and_compaction",
            "tables are written through the system's cache",
        ),
        ("enable_blob_files", "blob files are not in the engine yet"),
        (
            "num_bottom_pri_threads=2",
            "background threads are all alike",
        ),
        (
            "block_protection_bytes_per_key=8",
            "checksums of single entries",
        ),
        ("preserve_internal_time_seconds=9", "times of writes"),
    ] {
        let e = refused(&[&db, "--benchmarks=fillseq", &format!("--{flag}")]);
        let name = flag.split('=').next().unwrap();
        let wanted = format!("flag '{name}' with --engine=ironstone: {reason}");
        assert!(e.contains(&wanted), "{e}");
    }
    let Some(peer) = peer() else {
        return;
    };
    let engine = format!("--engine={peer}");
    let e = refused(&[&db, &engine, "--report_file_operations"]);
    assert!(e.contains("RocksDB's C API has nothing for it"), "{e}");
    let output = db_bench(&[
        &db,
        &engine,
        "--benchmarks=fillseq,readrandom,ingestexternalfile",
        "--num=500",
        "--row_cache_size=100000",
        "--cache_type=lru_cache",
        "--use_stderr_info_logger",
        "--num_bottom_pri_threads=2",
        "--num_low_pri_threads=3",
        "--enable_io_prio",
        "--block_protection_bytes_per_key=8",
        "--memtable_protection_bytes_per_key=8",
        "--write_batch_protection_bytes_per_key=8",
        "--rate_limiter_bytes_per_sec=100000000",
        "--rate_limit_bg_reads",
        "--rate_limit_user_ops",
        "--rate_limit_auto_wal_flush",
        "--separate_key_value_in_data_block",
        "--format_version=7",
        "--file_checksum",
        "--index_block_search_type=auto_search",
        "--skip_list_lookahead=3",
        "--ingest_external_file_file_opening_threads=2",
        "--ingest_external_file_batch_size=2",
    ]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}");
    assert!(told.contains("Options.create_if_missing: 1"), "{told}");
    let text = options_text(&dir.path().join("db"));
    for wanted in [
        "block_protection_bytes_per_key=8",
        "memtable_protection_bytes_per_key=8",
        "index_block_search_type=kAuto",
        "memtable_factory=SkipListFactory:3",
        "file_checksum_gen_factory=FileChecksumGenCrc32cFactory",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

#[test]
fn keys_in_the_order_of_the_machines_numbers() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines() {
        let path = dir.path().join(engine.len().to_string());
        let output = run(&[
            &format!("--engine={engine}"),
            &db(&path),
            "--benchmarks=fillrandom,flush,fillseq,compact,readrandom,readseq,seekrandom",
            "--num=1000",
            "--key_size=8",
            "--use_uint64_comparator",
        ]);
        assert_eq!(found(&output, "readrandom"), 1000);
        assert_eq!(found(&output, "seekrandom"), 1000);
        assert!(result(&output, "readseq").contains(" 1000 operations;"));
        assert!(options_text(&path).contains("comparator=rocksdb.Uint64Comparator"));
        // In another order the database does not open.
        refused(&[
            &format!("--engine={engine}"),
            &db(&path),
            "--benchmarks=readseq",
            "--use_existing_db",
        ]);
    }
    assert!(refused(&["--use_uint64_comparator"]).contains("needs key_size=8"));
}

/// Half a second at 4 MiB a second, if reads of operations are limited too.
#[test]
fn reads_of_operations_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines() {
        let path = dir.path().join(engine.len().to_string());
        let (engine, db) = (format!("--engine={engine}"), db(&path));
        run(&[
            &engine,
            &db,
            "--benchmarks=fillseq,flush",
            "--num=2000",
            "--compression_type=none",
        ]);
        let rate = |more: &[&str]| -> u64 {
            let mut all = vec![
                engine.as_str(),
                &db,
                "--benchmarks=readrandom",
                "--use_existing_db",
                "--num=2000",
                "--reads=500",
                "--cache_size=0",
                "--rate_limiter_bytes_per_sec=4194304",
                "--rate_limit_bg_reads",
            ];
            all.extend_from_slice(more);
            let output = run(&all);
            let line = result(&output, "readrandom");
            line.split_whitespace().nth(4).unwrap().parse().unwrap()
        };
        let limited = rate(&["--rate_limit_user_ops"]);
        assert!(limited < 2500, "{engine}: {limited}");
        assert!(rate(&[]) > limited, "{engine}");
    }
}

#[test]
fn rates_follow_a_curve() {
    let dir = tempfile::tempdir().unwrap();
    let seconds = |output: &str, name: &str| -> f64 {
        let line = result(output, name);
        let text = line.split(" ops/sec ").nth(1).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    // At first 11,600 bytes a second, which is 100 puts; then very many.
    let curve = [
        "--sine_a=11600000000",
        "--sine_b=1",
        "--sine_d=11600",
        "--sine_write_rate_interval_milliseconds=100",
        "--sine_mix_rate_interval_milliseconds=100",
    ];
    let (first, db) = (dir.path().join("db"), db(&dir.path().join("db")));
    let mut all = vec![
        db.as_str(),
        "--benchmarks=fillrandom",
        "--num=1000",
        "--sine_write_rate",
    ];
    all.extend_from_slice(&curve);
    let taken = seconds(&run(&all), "fillrandom");
    assert!((0.1..2.0).contains(&taken), "{taken}");

    // From the first look on, 200 gets a second.
    let output = run(&[
        &db,
        "--benchmarks=mixgraph",
        "--use_existing_db",
        "--num=1000",
        "--duration=1",
        "--ops_between_duration_checks=1",
        "--sine_mix_rate",
        "--sine_mix_rate_interval_milliseconds=10",
        "--sine_a=1",
        "--sine_d=200",
        "--mix_accesses=7",
    ]);
    let line = result(&output, "mixgraph");
    let rate: u64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
    assert!(rate < 100_000, "{line}");
    assert!(first.is_dir());
}

/// A published comparison ran `--sync=true --use_direct_io_for_wal=true`, which was refused as an
/// unknown flag, because only three of Ironstone's own options were flags.
#[test]
fn published_commands_run_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = db(dir.path());
    let command = ["--sync=true", "--use_direct_io_for_wal=true"];
    let fill = ["--benchmarks=fillseq", "--num=20", "--perf_level=2", &path];
    let output = run(&[&command[..], &fill].concat());
    assert!(result(&output, "fillseq").contains(" 20 operations;"));
    assert!(output.contains("Perf Level: 2\n"), "{output}");
    let log = std::fs::read_to_string(dir.path().join("LOG")).unwrap();
    let set = log
        .lines()
        .any(|l| l.ends_with("Options.use_direct_io_for_wal: 1"));
    assert!(set, "{log}");
    let more = [
        "--memory_limit=64M",
        "--wal_pool_files=0",
        "--wal_slow_io_ms=5",
    ];
    run(&[&more[..], &fill].concat());
    let e = refused(&["--wal_pipeline_depth=9", &path]);
    assert!(
        e.contains("option wal_pipeline_depth = 9 is out of range"),
        "{e}"
    );
    let Some(peer) = peer() else { return };
    let engine = format!("--engine={peer}");
    let e = refused(&[&command[..], &[&engine, &path]].concat());
    let named = "flag 'use_direct_io_for_wal' with --engine=librocksdb";
    assert!(e.contains(named), "{e}");
}
