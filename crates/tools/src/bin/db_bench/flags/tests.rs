//! Flags as users write them.

use super::*;

/// Flags that RocksDB's db_bench has.
const ROCKSDB_FLAGS: &str = include_str!("../rocksdb_flags.txt");

fn run(arguments: &[&str]) -> Result<Flags, Vec<String>> {
    let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
    match parse(&arguments)? {
        Command::Run(flags) => Ok(*flags),
        Command::Help | Command::Version => panic!("not a run"),
    }
}

#[test]
fn every_form_of_a_flag_is_read() {
    let flags = run(&[
        "--num=5",
        "-value_size=7",
        "--key_size",
        "8",
        "--histogram",
        "--noverify_checksum",
        "--sync=yes",
        "--use-existing-db=0",
        "--max_bytes_for_level_base=0x10",
        "--compression_ratio=0.25",
        "--db=/a=b",
    ])
    .unwrap();
    assert_eq!((flags.num, flags.value_size, flags.key_size), (5, 7, 8));
    assert!(flags.histogram && flags.sync);
    assert!(!flags.verify_checksum && !flags.use_existing_db);
    assert_eq!(flags.max_bytes_for_level_base, 16);
    assert_eq!(flags.compression_ratio.to_bits(), 0.25f64.to_bits());
    assert_eq!(flags.db, "/a=b");
    assert_eq!((flags.reads, flags.cache_size), (-1, 32 << 20));
}

#[test]
fn errors_are_rocksdbs() {
    let error = |arguments: &[&str]| run(arguments).err().unwrap();
    assert_eq!(
        error(&["--nope=1", "--num=abc"]),
        [
            "ERROR: illegal value 'abc' specified for int64 flag 'num'",
            "ERROR: unknown command line flag 'nope'",
        ]
    );
    assert_eq!(
        error(&["--max_background_jobs=99999999999"]),
        ["ERROR: illegal value '99999999999' specified for int32 flag 'max_background_jobs'"]
    );
    assert_eq!(
        error(&["--user_timestamp_size=8"]),
        [
            "ERROR: command line flag 'user_timestamp_size' is not supported: user-defined \
             timestamps are not in the engine yet"
        ]
    );
    assert_eq!(
        error(&["--noread_cache_direct_read"]),
        [
            "ERROR: command line flag 'noread_cache_direct_read' is not supported: persistent \
             caches of blocks are not in the engine"
        ]
    );
    assert_eq!(
        error(&["--num"]),
        [
            "ERROR: flag '--num' is missing its argument; flag description: \
          Number of keys in the database."
        ]
    );
    assert_eq!(error(&["stray"]), ["ERROR: unexpected argument 'stray'"]);
    assert_eq!(
        error(&["--threads=0"]),
        ["ERROR: flag 'threads' is 0, but must be at least 1"]
    );
    assert_eq!(
        error(&["--num_column_families=0"]),
        ["ERROR: flag 'num_column_families' is 0, but must be at least 1"]
    );
}

/// Regression test: only three of Ironstone's own options were flags, so the command line of a
/// published comparison, `--sync=true --use_direct_io_for_wal=true`, was refused as unknown.
#[test]
fn every_option_of_ironstones_own_is_a_flag() {
    let own = |arguments: &[&str]| {
        let all = crate::options::options(&run(arguments).unwrap()).unwrap();
        let own = all.into_iter().filter(|o| o.own);
        own.map(|o| (o.name, o.value)).collect::<Vec<_>>()
    };
    for flag in own::all() {
        let (name, value) = (flag.info.name, (flag.info.default)());
        assert_eq!(
            own(&[&format!("--{name}={value}")]),
            [(name.to_owned(), value)]
        );
    }
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        own(&["--sync=true", "--use_direct_io_for_wal=true"]),
        [set("use_direct_io_for_wal", "true")]
    );
    assert_eq!(
        own(&["--use_direct_io_for_wal", "--wal-pool-files", "3"]),
        [
            set("use_direct_io_for_wal", "true"),
            set("wal_pool_files", "3")
        ]
    );
    assert_eq!(
        own(&["--use_direct_io_for_wal", "--nouse_direct_io_for_wal"]),
        [set("use_direct_io_for_wal", "false")]
    );
    let undefok = [
        "--engine=librocksdb",
        "--undefok=wal_pool_files",
        "--wal_pool_files=3",
    ];
    assert_eq!(own(&undefok), []);
    let error = run(&["--wal_pool_files=many"]).err().unwrap();
    assert_eq!(
        error,
        ["ERROR: illegal value 'many' specified for u32 flag 'wal_pool_files'"]
    );
}

#[test]
fn undefok_allows_what_it_names() {
    run(&[
        "--undefok=nope,simcache_size",
        "--nope=3",
        "--simcache_size=1",
    ])
    .unwrap();
    run(&["--nonope", "--undefok=nope"]).unwrap();
    let flags = run(&[
        "--undefok=file_checksum,min_blob_size,report_file_operations,num",
        "--file_checksum",
        "--min_blob_size=5",
        "--report_file_operations",
        "--num=5",
    ]);
    let flags = flags.unwrap();
    assert_eq!((flags.file_checksum, flags.min_blob_size), (false, 0));
    assert!(flags.report_file_operations && flags.num == 5);
    assert!(run(&["--undefok=nope", "--nop=3"]).is_err());
}

#[test]
fn a_refused_flag_may_say_what_holds_anyway() {
    let flags = run(&[
        "--notransaction_db",
        "--use_blob_db=0",
        "--simcache_size",
        "-1",
        "--blob_cache_size=0x800000",
        "--trace_replay_fast_forward=1.0",
        "--num=5",
    ])
    .unwrap();
    assert_eq!(flags.num, 5);
    assert!(run(&["--transaction_db"]).is_err());
    assert!(run(&["--transaction_sets=3"]).is_err());
    run(&["--undefok=transaction_db", "--transaction_db"]).unwrap();
}

#[test]
fn each_of_rocksdbs_flags_works_or_has_a_reason() {
    let works = |name: &str| FLAGS.iter().any(|f| f.name == name);
    for name in ROCKSDB_FLAGS.split_whitespace().filter(|n| *n != "undefok") {
        let refused = refused::find(name).is_some_and(|(_, flag, _)| flag.0 == name);
        assert!(works(name) != refused, "{name}: works {}", works(name));
    }
    let all = refused::REFUSED.iter().flat_map(|(_, flags)| flags.iter());
    for flag in all {
        let known = ROCKSDB_FLAGS.split_whitespace().any(|f| f == flag.0);
        assert!(known && refused::is_default(flag, flag.2), "{}", flag.0);
    }
    let lists = [refused::ENGINE, refused::IRONSTONE, refused::LIBROCKSDB];
    for name in lists
        .iter()
        .flat_map(|l| l.iter().flat_map(|(_, n)| n.iter()))
    {
        assert!(works(name), "{name}");
    }
}

#[test]
fn what_is_declared_here_is_rocksdbs_but_for_our_own() {
    let own = [
        "async_gets",
        "engine",
        "flush_wal_every",
        "pause_every",
        "pinned_gets",
        "process_stats",
        "recycle_log_file_num",
        "times_file",
        "two_write_queues",
        "writes_per_iterator",
        "writes_per_snapshot",
    ];
    for flag in FLAGS {
        let known = ROCKSDB_FLAGS.split_whitespace().any(|f| f == flag.name);
        assert!(known != own.contains(&flag.name), "{}", flag.name);
    }
    for flag in own::all() {
        let name = flag.info.name;
        let twice = FLAGS.iter().any(|f| f.name == name);
        assert!(
            !twice && !ROCKSDB_FLAGS.split_whitespace().any(|f| f == name),
            "{name}"
        );
    }
    let help = help();
    assert!(
        help.contains("  --num (int64, default 1000000)\n"),
        "{help}"
    );
}
