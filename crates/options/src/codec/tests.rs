//! Tests of the OPTIONS file against RocksDB's own files and tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use base::{Comparator, ErrorKind};
use proptest::prelude::*;
use table::TableOptions;

use super::super::{CfOptions, Options};
use super::*;

fn corpus() -> Option<PathBuf> {
    let dir = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/corpus"
    ));
    if !dir.is_dir() {
        println!("skipped: {} is missing", dir.display());
        return None;
    }
    Some(dir.to_path_buf())
}

#[test]
fn defaults_are_rocksdbs() {
    let sections = [
        DbOptions::SECTION,
        CfOptions::SECTION,
        TableOptions::SECTION,
    ];
    assert_eq!(sections, [DB_SECTION, CF_SECTION, TABLE_SECTION]);
    let families = [("default", &ColumnFamilyOptions::default())];
    let text = to_text(&DbOptions::default(), &families);
    let written = KEYS.iter().filter(|k| k.releases == Releases::Both);
    for key in written.filter(|k| !k.default.is_empty()) {
        let line = format!("\n  {}={}\n", key.name, key.default);
        assert!(
            text.contains(&line),
            "{} is not written as {line}",
            key.name
        );
    }
    assert!(rocksdb::unimplemented().any(|k| k.name == "enable_blob_files"));
    assert!(!rocksdb::unimplemented().any(|k| k.name == "write_buffer_size"));
    // Each name in a table is either RocksDB's or flagged as Ironstone's own.
    let tables = [
        (DB_SECTION, DbOptions::infos()),
        (CF_SECTION, CfOptions::infos()),
        (TABLE_SECTION, TableOptions::infos()),
    ];
    for (section, infos) in tables {
        for i in infos {
            let own = i.has(base::options::OptionFlag::Ironstone);
            let theirs = rocksdb::find(section, i.name).is_some();
            assert_ne!(own, theirs, "{section}: {}", i.name);
            if let Some(key) = rocksdb::find(section, i.name) {
                let mutable = i.has(base::options::OptionFlag::Mutable);
                assert_eq!(mutable, key.mutable, "{section}: {}", i.name);
            }
        }
    }
}

#[test]
fn what_is_written_is_read_back() {
    let db = DbOptions {
        max_background_jobs: 7,
        ..DbOptions::default()
    };
    let mut odd = ColumnFamilyOptions::default();
    odd.cf.compression_opts.level = 3;
    odd.cf.max_bytes_for_level_multiplier = 8.5;
    odd.cf.max_compaction_bytes = 12345;
    // Unset options are written as the values that they stand for.
    (odd.cf.ttl, odd.cf.periodic_compaction_seconds) = (777, 888);
    odd.comparator = Comparator::reverse_bytewise();
    let name = "odd \"#: \\ \n name]";
    let plain = ColumnFamilyOptions::default();
    let text = to_text(&db, &[(name, &odd), ("default", &plain)]);
    let read = parse_with(&text, Unsupported::Refuse).unwrap();
    assert_eq!(read.warnings, Vec::<String>::new());
    assert_eq!(read.rocksdb_version, (7, 8, 3));
    assert_eq!(read.db, db);
    assert_eq!(read.families[0].name, "default");
    assert_eq!(read.families[1].name, name);
    let got = &read.families[1].options;
    assert_eq!(got.cf, odd.cf);
    assert_eq!(got.table, odd.table);
    assert_eq!(got.comparator.name(), odd.comparator.name());
}

#[test]
fn mistakes_name_the_line() {
    let minimal = "[DBOptions]\n[CFOptions \"default\"]\n";
    assert_eq!(parse(minimal).unwrap().families.len(), 1);
    let cases = [
        ("max_open_files=1\n", "line 1: a key before the first"),
        ("[DBOptions\n", "line 1: the section header"),
        ("[DBOptions]\n nonsense\n", "line 2: \"nonsense\" is not"),
        (
            "[DBOptions]\n max_background_jobs=x\n",
            "line 2: option max_background_jobs: \"x\"",
        ),
        ("[DBOptions]\n[DBOptions]\n", "line 2: a second section"),
        (
            "[DBOptions]\n[CFOptions \"a\"]\n",
            "line 2: [CFOptions \"a\"]: \"default\" must",
        ),
        (
            "[DBOptions]\n[CFOptions a]\n",
            "line 2: the name in [CFOptions a]",
        ),
        ("[DBOptions]\n[CFOptions]\n", "line 2: [CFOptions] names no"),
        (
            "[DBOptions]\n[TableOptions/BlockBasedTable \"default\"]\n",
            "line 2: [TableOptions/BlockBasedTable \"default\"] does not follow",
        ),
        ("# empty\n", "no section [DBOptions]"),
        ("[DBOptions]\n", "no section [CFOptions \"default\"]"),
        (
            "[Version]\n options_file_version=2.0\n",
            "line 2: options_file_version 2.0",
        ),
        (
            "[Version]\n rocksdb_version=x\n",
            "line 2: rocksdb_version=\"x\"",
        ),
    ];
    for (text, want) in cases {
        let e = parse(text).unwrap_err().to_string();
        assert!(e.contains(want), "{text:?}: {e}");
    }
    for bad in ["{level=1", "{level}", "{a=}}", "{level=x}"] {
        let text = format!("{minimal} compression_opts={bad}\n");
        let e = parse(&text).unwrap_err().to_string();
        assert!(e.contains("line 3: "), "{bad}: {e}");
    }
}

proptest! {
    #[test]
    fn any_text_parses_without_panic(
        lines in proptest::collection::vec("[\\[ ]?(DBOptions|CFOptions|Version|compression_opts|é)?[ =\"{};#\\\\]*(default|1|x)?[\"}\\]]*", 0..8),
        any in ".*",
    ) {
        drop(parse(&lines.join("\n")));
        drop(parse(&any));
        drop(members(&any));
    }

    #[test]
    fn names_survive_escaping(name in ".*") {
        prop_assert_eq!(unescape(&escape(&name)), name);
    }
}

#[test]
fn what_is_not_implemented_is_named() {
    let text = "[DBOptions]\n  allow_mmap_reads=true # yes\n  unordered_write=true\n  shiny=1\n  use_fsnc=1\n\
                [CFOptions \"default\"]\n  merge_operator=MyOperator\n\
                \u{20} compression_opts={level=2;max_dict_bytes=4096;window_bits=15;checksum=1;}\n\
                [Plain/Table]\n  x=1\n";
    let e = parse_with(text, Unsupported::Refuse).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotSupported);
    assert_eq!(
        e.to_string(),
        "Not implemented: line 2: option allow_mmap_reads = true (only false is implemented)"
    );
    let read = parse(text).unwrap();
    assert_eq!(
        read.warnings,
        [
            "line 2: not supported: option allow_mmap_reads = true (only false is implemented)",
            "line 3: option unordered_write = true has no effect",
            "line 4: unknown key shiny in [DBOptions]",
            "line 5: unknown key use_fsnc in [DBOptions] (did you mean use_fsync?)",
            "line 7: not supported: option merge_operator = MyOperator, which is not built in \
             (open the database with the operator in its column family's options)",
            "line 8: not supported: option compression_opts: checksum = 1 (only false is implemented)",
            "line 8: not supported: option compression_opts: window_bits that RocksDB does not read",
            "line 9: unknown section [Plain/Table] is skipped",
        ]
    );
    let opts = &read.families[0].options.cf.compression_opts;
    assert_eq!((opts.level, opts.max_dict_bytes), (2, 4096));
    assert_eq!(opts.window_bits, -14);
}

#[test]
fn every_options_file_of_the_corpus_parses() {
    let Some(corpus) = corpus() else { return };
    let (mut files, mut quiet) = (0, 0);
    for db in std::fs::read_dir(corpus).unwrap() {
        let Ok(names) = std::fs::read_dir(db.unwrap().path().join("db")) else {
            continue;
        };
        for entry in names {
            let path = entry.unwrap().path();
            if !path
                .file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("OPTIONS-")
            {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let read = parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(!read.families.is_empty());
            files += 1;
            quiet += usize::from(read.warnings.is_empty());
            let old =
                read.rocksdb_version <= ROCKSDB_VERSION || read.rocksdb_version == ROCKSDB_NEWEST;
            let unknown = read.warnings.iter().any(|w| w.contains("unknown"));
            assert!(!(old && unknown), "{}: {:?}", path.display(), read.warnings);
        }
    }
    println!("{files} OPTIONS files parsed, {quiet} without a warning");
    assert!(files > 50 && quiet > 10);
}

/// RocksDB's `ldb` refuses an OPTIONS file with any key or value that it does not know.
#[test]
fn rocksdbs_ldb_accepts_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let db_arg = format!("--db={}", dir.path().display());
    let made = Command::new("ldb")
        .args([&db_arg, "--create_if_missing", "put", "key", "value"])
        .output();
    if !made.is_ok_and(|o| o.status.success()) {
        println!("skipped: RocksDB's ldb is not installed");
        return;
    }
    let old = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| {
            p.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("OPTIONS-")
        })
        .unwrap();
    let mut options = ColumnFamilyOptions::default();
    options.cf.compression_opts.level = 3;
    options.cf.write_buffer_size = 3 << 20;
    let text = to_text(&DbOptions::default(), &[("default", &options)]);
    std::fs::write(&old, text).unwrap();
    let scan = Command::new("ldb")
        .args([&db_arg, "--try_load_options", "scan"])
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&scan.stdout),
        String::from_utf8_lossy(&scan.stderr),
    );
    assert!(out.contains("key : value"), "{out} {err}");
    // Control: ldb refuses an unknown key, which shows that it reads our file.
    std::fs::write(&old, "[Version]\n rocksdb_version=7.8.3\n options_file_version=1.1\n[DBOptions]\n nonsense=1\n[CFOptions \"default\"]\n").unwrap();
    let scan = Command::new("ldb")
        .args([&db_arg, "--try_load_options", "scan"])
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&scan.stdout).contains("key : value"));
}

#[test]
fn a_text_of_options_is_read_and_written() {
    let base = Options::default();
    let text = "max_background_jobs=4;write_buffer_size=8M;compression=kNoCompression;\
                wal_io_mode=buffered;comparator=rocksdb.ReverseBytewiseComparator;\
                block_based_table_factory={block_size=16K;filter_policy=bloomfilter:10:false;};";
    let o = base.with_text(text).unwrap();
    assert_eq!(o.db.max_background_jobs, 4);
    assert_eq!(o.cf.write_buffer_size, 8 << 20);
    assert_eq!(o.cf.table.block_size, 16 << 10);
    assert_eq!(o.cf.comparator.name(), "rocksdb.ReverseBytewiseComparator");
    let again = base.with_text(&o.to_text()).unwrap();
    assert_eq!(
        (again.db, again.cf.cf, again.cf.table),
        (o.db, o.cf.cf, o.cf.table)
    );
    // The old forms, which RocksDB still reads.
    let old = base
        .with_text("compression_opts=-13:5:1:4096:0:2:true;compaction_options_fifo=77")
        .unwrap();
    let opts = &old.cf.compression_opts;
    assert_eq!((opts.window_bits, opts.level, opts.strategy), (-13, 5, 1));
    assert_eq!((opts.parallel_threads, opts.enabled), (2, true));
    assert_eq!(old.cf.compaction_options_fifo.max_table_files_size, 77);
    for (bad, why) in [
        ("nope=1", "unknown option nope"),
        ("write_bufer_size=1", "did you mean write_buffer_size?"),
        ("compression_opts={levle=1}", "unknown member levle"),
        (
            "compression_opts={checksum=true}",
            "only false is implemented",
        ),
        ("compression_opts=1:2", "compression_opts"),
        ("keep_log_file_num=0", "out of range"),
        (
            "block_based_table_factory={block_cache=1M}",
            "env.block_cache",
        ),
        ("write_buffer_size=x", "write_buffer_size"),
        ("block_based_table_factory={nope=1}", "unknown option nope"),
        ("block_based_table_factory={block_size=1", "closing brace"),
        ("write_buffer_size", "name=value"),
    ] {
        let e = base.with_text(bad).unwrap_err().to_string();
        assert!(e.contains(why), "{bad}: {e}");
    }
}

#[test]
fn numbers_may_have_a_unit() {
    let mut o = CfOptions::default();
    for (text, value) in [("1K", 1 << 10), ("64m", 64 << 20), ("2G", 2u64 << 30)] {
        o.set("write_buffer_size", text).unwrap();
        assert_eq!(o.write_buffer_size, value);
    }
    assert!(o.set("max_write_buffer_number", "4T").is_err());
    assert!(o.set("write_buffer_size", "M").is_err());
    assert!(o.set("write_buffer_size", "").is_err());
}
