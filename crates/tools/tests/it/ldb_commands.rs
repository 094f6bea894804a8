//! Commands that read databases, against RocksDB's `ldb` and `sst_dump`: each line runs on both
//! sides, on copies of the same database, and must have the same output and exit status.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::ldb::{self, Ran, ironstone, run};

/// Lines for every database. Spaces separate arguments.
const LINES: &[&str] = &[
    "dump",
    "dump --hex",
    "dump --key_hex",
    "dump --value_hex",
    "dump --count_only",
    "dump --count_delim",
    "dump --count_delim=1",
    "dump --count_delim= --hex",
    "dump --count_only --count_delim=0",
    "dump --max_keys=0",
    "dump --max_keys=3",
    "dump --max_keys=-1",
    "dump --max_keys=",
    "dump --max_keys=x",
    "dump --from=b",
    "dump --from=b --to=d",
    "dump --from=0x62 --to=0x64 --hex",
    "dump --from=d --to=b",
    "dump --from= --to=",
    "dump --bucket=10",
    "dump --timestamp --start_time=5 --end_time=9",
    "dump --decode_blob_index",
    "dump --column_family=two",
    "dump --column_family=nope",
    "dump --nonsense",
    "idump",
    "idump --hex",
    "idump --count_only",
    "idump --count_delim",
    "idump --count_delim=1 --hex",
    "idump --max_keys=0",
    "idump --max_keys=2",
    "idump --max_keys=-1",
    "idump --max_keys=x",
    "idump --from=b --to=d",
    "idump --from=0x62 --to=0x64 --input_key_hex",
    "idump --from=0x62 --to=0x64 --hex",
    "idump --column_family=two",
    "idump --column_family=nope",
    "idump --ttl",
    "approxsize",
    "approxsize --from=a",
    "approxsize --from=a --to=",
    "approxsize --from=0x00 --to=0xffff --hex",
    "approxsize --from=a --to=z",
    "approxsize --from=a --to=z --column_family=two",
    "checkconsistency",
    "checkconsistency --nonsense",
    "checkconsistency --column_family=two",
    "checkconsistency --column_family=nope",
    "list_file_range_deletes",
    "list_file_range_deletes --max_keys=0",
    "list_file_range_deletes --max_keys=1",
    "list_file_range_deletes --max_keys=2",
    "list_file_range_deletes --max_keys=-1",
    "list_file_range_deletes --max_keys=x",
    "list_file_range_deletes --column_family=two",
    "list_live_files_metadata",
    "list_live_files_metadata --sort_by_filename",
    "dump_live_files",
    "file_checksum_dump",
    "file_checksum_dump --hex",
    "get_property rocksdb.levelstats",
    "get_property rocksdb.sstables",
    "get_property rocksdb.aggregated-table-properties",
    "get_property rocksdb.aggregated-table-properties-at-level0",
    "get_property rocksdb.aggregated-table-properties-at-level9",
    "get_property rocksdb.num-files-at-level1",
    "get_property rocksdb.compression-ratio-at-level1",
    "get_property rocksdb.estimate-num-keys",
    "get_property rocksdb.estimate-num-keys --column_family=two",
    "get_property rocksdb.num-entries-active-mem-table",
    "get_property rocksdb.num-live-versions",
    "get_property rocksdb.live-sst-files-size",
    "get_property rocksdb.base-level",
    "get_property rocksdb.is-write-stopped",
    "get_property rocksdb.background-errors",
    "get_property rocksdb.blob-stats",
    "get_property rocksdb.cfstats",
    "get_property rocksdb.options-statistics",
    "get_property",
    "get_property a b",
    "get a --secondary_path=second",
    "scan --secondary_path=second",
    "dump --secondary_path=second",
    "idump --secondary_path=second",
    "put a b --secondary_path=second",
    "deleterange a b --secondary_path=second",
    "compact --secondary_path=second",
    "get a --secondary_path=",
    "get a --try_load_options",
    "scan --try_load_options --max_keys=2",
    "dump --try_load_options=false",
];

/// Lines of `sst_dump`, for a table in the place of `TABLE`.
const TABLE_LINES: &[&str] = &[
    "--file=TABLE",
    "--file=TABLE --show_properties",
    "--file=TABLE --command=scan",
    "--file=TABLE --command=scan --output_hex --show_properties",
    "--file=TABLE --command=scan --prefix=b",
    "--file=TABLE --command=scan --prefix=0x62 --input_key_hex",
    "--file=TABLE --command=scan --prefix=b --from=a",
    "--file=TABLE --command=scan --verify_checksum --read_num=2",
    "--file=TABLE --command=scan --from=b --to=d",
    "--file=TABLE --command=verify --show_properties",
    "--file=TABLE --command=identify",
    "--file=TABLE --command=identify --show_properties",
    "--file=TABLE --command=raw",
    "--file=TABLE --command=raw --show_properties",
    "--file=TABLE --command=recompress",
    "--file=TABLE --command=recompress --compression_types=kZSTD --compression_level_from=1 \
     --compression_level_to=3",
    "--file=TABLE --command=recompress --compression_types=kZSTD,kNoCompression \
     --set_block_size=4096",
    "--file=TABLE --command=recompress --compression_types=kZSTD --compression_max_dict_bytes=4096",
    "--file=TABLE --command=recompress --compression_types=kFoo",
    "--file=TABLE --command=recompress --compression_types=kZSTD --compression_level_from=1",
    "--file=db/CURRENT --command=scan",
    "--file=db/CURRENT --command=identify",
    "--file=nothere --command=scan",
    "--parse_internal_key=0x6101000000000000",
    "--parse_internal_key=0x610100000000000000",
    "--parse_internal_key=61",
    "--command=scan",
];

/// Lines for databases whose values have times.
const TTL_LINES: &[&str] = &[
    "get a --ttl",
    "get 0x61 --ttl --hex",
    "get zz --ttl",
    "scan --ttl",
    "scan --ttl --timestamp",
    "scan --ttl --timestamp --hex --max_keys=2",
    "scan --ttl --timestamp --no_value",
    "scan --ttl --start_time=2000000000",
    "scan --ttl --timestamp --start_time=1000000000 --end_time=2000000000",
    "dump --ttl",
    "dump --ttl --timestamp",
    "dump --ttl --timestamp --hex",
    "dump --ttl --count_only",
    "dump --ttl --timestamp --count_only",
    "dump --ttl --timestamp --count_delim=c",
    "dump --ttl --timestamp --bucket=500000000 --count_only",
    "dump --ttl --max_keys=1",
    "dump --ttl --count_delim=c",
    "dump --ttl --bucket=500000000",
    "dump --ttl --bucket=0",
    "dump --ttl --bucket=-1",
    "dump --ttl --bucket=100000000 --count_only",
    "dump --ttl --start_time=10 --end_time=20",
    "dump --ttl --end_time=20",
    "put e 5 --ttl",
    "batchput f 6 g 7 --ttl",
    "idump --hex",
];

/// The input of `query`, and its flags.
const DIALOGUES: &[(&str, &str)] = &[
    ("", ""),
    ("help\nget c\nput q 1\nget q\ndelete q\ndelete zz\n", ""),
    ("get c\nget zz\nget c\n", ""),
    (
        "get  c\nput  x  y\nquit\nget\nput q\nget c d\n get c\n\nGET c\nput n \nget c",
        "",
    ),
    ("get 0x63\nput 0x71 0x31\nget 0x71\n", "--hex"),
    ("get 0x63\n", "--key_hex"),
    ("get c\n", "--value_hex"),
    ("get x\nput z 2\nget z", "--column_family=two"),
    ("get c\nput y 1\n", "--secondary_path=second"),
];

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn made(program: &str, cwd: &Path, line: &str) {
    let ran = run(program, cwd, &words(line));
    assert_eq!(ran.code, 0, "{program} {line}: {}", ran.stderr);
}

/// A database with deletions, range deletions, levels, a second family and a log.
fn by_hand(program: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for line in [
        "--db=db batchput a 1 b 22 ba 3 c 4 d 5 e 66 --create_if_missing",
        "--db=db compact",
        "--db=db create_column_family two",
        "--db=db put x y --column_family=two",
        "--db=db deleterange b bb",
        "--db=db delete d",
        "--db=db deleterange ba c",
        "--db=db batchput b2 1 f 7 g 8",
    ] {
        made(program, root.path(), line);
    }
    root
}

/// A database of `db_bench`, with levels and blocks.
fn of_bench() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    made(
        "db_bench",
        root.path(),
        "--db=db --benchmarks=fillrandom,overwrite --num=1500 --value_size=40 \
         --write_buffer_size=65536 --target_file_size_base=65536 --bloom_bits=10 \
         --compression_type=zstd",
    );
    root
}

/// Properties of tables that 7.8.3 does not have.
const LATER: &[&str] = &[
    ".num_data_blocks_compression_bypassed",
    ".num_data_blocks_compression_rejected",
    ".num_uniform_blocks",
    ".uncompressed_data_size",
];

/// The output that must be equal on both sides: without parts that depend on the time, on memory or
/// on codecs.
fn comparable(line: &str, text: &str) -> String {
    let mut lines: Vec<String> = text
        .split('\n')
        .filter(|l| !l.starts_with("options.env is "))
        .map(|l| {
            if line.contains("recompress") {
                sizes_out(l)
            } else {
                l.to_owned()
            }
        })
        .collect();
    // `ldb` prints checksums in the order of a hash table.
    if line.contains("file_checksum_dump") {
        lines.sort();
    }
    // RocksDB numbers versions of families; Ironstone has properties of later releases.
    if line.contains("get_property") {
        let version = |l: &String| l.split(" version# ").next().unwrap_or_default().to_owned();
        lines = lines.iter().map(version).collect();
        lines.retain(|l| !LATER.iter().any(|name| l.contains(name)));
    }
    // Which levels have rows of statistics differs.
    if line.ends_with("rocksdb.cfstats") {
        lines.retain(|l| l.contains(".L0.NumFiles") || l.contains(".L0.SizeBytes"));
    }
    lines.join("\n")
}

/// A row of `recompress` without its numbers.
fn sizes_out(line: &str) -> String {
    let Some((head, _)) = line.split_once(" Size:") else {
        return line.to_owned();
    };
    let words: Vec<&str> = line.split(|c: char| !c.is_alphabetic()).collect();
    let words: Vec<&str> = words.into_iter().filter(|w| !w.is_empty()).collect();
    format!("{head} {}", words.join(" "))
}

/// Runs a line on a copy of the database on each side; collects the differences.
struct Sides<'a> {
    database: &'a Path,
    compared: usize,
    wrong: Vec<String>,
}

impl<'a> Sides<'a> {
    fn new(database: &'a Path) -> Self {
        Self {
            database,
            compared: 0,
            wrong: Vec::new(),
        }
    }

    fn compare(&mut self, line: &str, ours: &Ran, theirs: &Ran) {
        self.compared += 1;
        let texts = [ours, theirs].map(|ran| comparable(line, &ran.stdout));
        let same_end = (ours.code == 0) == (theirs.code == 0);
        // With --ttl, ldb complains and ends with 1, and does what it is asked for all the same.
        let ttl = line.contains("--ttl") && theirs.stderr.contains("multiple column families");
        let [a, b] = &texts;
        if a != b || !(same_end || ttl) {
            let (mut a, mut b) = (a.lines(), b.lines());
            let differs = loop {
                match (a.next(), b.next()) {
                    (None, None) => break String::new(),
                    (a, b) if a == b => {}
                    (a, b) => break format!("\n  ours:   {a:?}\n  theirs: {b:?}"),
                }
            };
            self.wrong.push(format!(
                "{line}: ended with {}, ldb with {}{differs}\n  said:  {:?}\n  ldb:   {:?}",
                ours.code, theirs.code, ours.stderr, theirs.stderr
            ));
        }
    }

    fn line(&mut self, line: &str) {
        let args = [&["--db=db"], &*words(line)].concat();
        let [ours, theirs] = [(); 2].map(|()| ldb::copy(self.database));
        // The directory of a secondary instance is not made by ldb with those above it.
        let theirs = run("ldb", theirs.path(), &args);
        let ours = ironstone(ours.path(), &args);
        self.compare(line, &ours, &theirs);
    }

    fn done(self, what: &str) {
        eprintln!("{what}: {} command lines compared", self.compared);
        let wrong = self.wrong.join("\n");
        assert!(wrong.is_empty(), "{what}:\n{wrong}");
    }
}

fn compare_all(what: &str, root: &TempDir) {
    let database = root.path().join("db");
    let mut sides = Sides::new(&database);
    for line in LINES {
        sides.line(line);
    }
    sides.done(what);
}

#[test]
fn commands_that_look_print_what_ldb_prints() {
    if !ldb::has_tools() {
        return;
    }
    compare_all("made by ldb", &by_hand("ldb"));
}

#[test]
fn they_do_on_databases_of_ironstone() {
    if !ldb::has_tools() {
        return;
    }
    compare_all(
        "made by ironstone",
        &by_hand(env!("CARGO_BIN_EXE_ironstone")),
    );
}

#[test]
fn they_do_on_databases_of_db_bench() {
    if !ldb::has_tools() {
        return;
    }
    compare_all("made by db_bench", &of_bench());
}

/// Checksums of whole files, and tables with every kind of index.
#[test]
fn they_do_on_the_corpus() {
    if !ldb::has_tools() {
        return;
    }
    for database in ldb::corpus().unwrap_or_default() {
        let name = database.file_name().unwrap().to_string_lossy().into_owned();
        let chosen = [
            "r78_file_checksum",
            "r78_del_range",
            "r78_levels",
            "r78_cf_many",
        ];
        if !chosen.iter().any(|c| name.starts_with(c)) {
            continue;
        }
        let db = database.join("db");
        let mut sides = Sides::new(&db);
        for line in [
            "dump",
            "idump --hex",
            "list_file_range_deletes",
            "list_live_files_metadata",
            "list_live_files_metadata --sort_by_filename",
            "file_checksum_dump --hex",
            "file_checksum_dump",
            "dump_live_files",
        ] {
            let of_checksums = line.contains("checksum");
            // ldb refuses the MANIFEST of a family with another order; Ironstone does not open a
            // database with blob files.
            let either = name.contains("cf_many") && of_checksums;
            if !either && (of_checksums || !name.contains("file_checksum")) {
                sides.line(line);
            }
        }
        sides.done(&name);
    }
}

#[test]
fn files_of_their_own_are_dumped() {
    if !ldb::has_tools() {
        return;
    }
    let root = by_hand("ldb");
    let database = root.path().join("db");
    let mut sides = Sides::new(&database);
    let names = ldb::files(&database, "");
    for name in names.iter().filter(|n| !n.starts_with("LOG")) {
        for flags in ["", " --hex"] {
            let line = format!("dump --path=db/{name}{flags}");
            let theirs = run("ldb", root.path(), &words(&line));
            let ours = ironstone(root.path(), &words(&line));
            sides.compare(&line, &ours, &theirs);
        }
    }
    sides.done("files");
}

#[test]
fn tables_are_dumped_as_by_sst_dump() {
    if !ldb::has_tools() {
        return;
    }
    let roots = [
        by_hand("ldb"),
        of_bench(),
        by_hand(env!("CARGO_BIN_EXE_ironstone")),
    ];
    for root in roots {
        let database = root.path().join("db");
        let mut sides = Sides::new(&database);
        for table in ldb::files(&database, ".sst").iter().take(4) {
            for line in TABLE_LINES {
                let line = line.replace("TABLE", &format!("db/{table}"));
                let [ours, theirs] = [(); 2].map(|()| ldb::copy(&database));
                let their_run = run("sst_dump", theirs.path(), &words(&line));
                let our_run = ironstone(ours.path(), &[&["sst_dump"], &*words(&line)].concat());
                sides.compare(&line, &our_run, &their_run);
                let dump = format!("db/{}_dump.txt", table.trim_end_matches(".sst"));
                let [ours, theirs] = [&ours, &theirs].map(|r| fs::read(r.path().join(&dump)).ok());
                if ours != theirs {
                    let text = |b: Option<Vec<u8>>| b.map(|b| b.escape_ascii().to_string());
                    let (ours, theirs) = (text(ours), text(theirs));
                    sides
                        .wrong
                        .push(format!("{line}: files:\n{ours:?}\n{theirs:?}"));
                }
            }
        }
        sides.done("tables");
    }
}

#[test]
fn a_directory_of_tables_is_dumped() {
    if !ldb::has_tools() {
        return;
    }
    let root = by_hand("ldb");
    for line in [
        "--file=db --command=identify",
        "--file=db --command=scan --from=b",
    ] {
        let sorted = |ran: &Ran| {
            // `sst_dump` takes the files in the order of the directory.
            let text = comparable(line, &ran.stdout);
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            (ran.code, lines)
        };
        let theirs = run("sst_dump", root.path(), &words(line));
        let ours = ironstone(root.path(), &[&["sst_dump"], &*words(line)].concat());
        assert_eq!(sorted(&ours), sorted(&theirs), "{line}: {}", ours.stderr);
    }
}

/// Runs a program with an input.
fn spoken(program: &str, cwd: &Path, args: &[&str], input: &str) -> Ran {
    let mut child = Command::new(program)
        .args(args)
        .current_dir(cwd)
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that has ended does not read all of it.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    Ran::new(child.wait_with_output().unwrap())
}

#[test]
fn query_answers_as_ldb_does() {
    if !ldb::has_tools() {
        return;
    }
    let root = by_hand("ldb");
    let database = root.path().join("db");
    let mut sides = Sides::new(&database);
    for (input, flags) in DIALOGUES {
        let args = [&["--db=db", "query"], &*words(flags)].concat();
        let [ours, theirs] = [(); 2].map(|()| ldb::copy(&database));
        let theirs_ran = spoken("ldb", theirs.path(), &args, input);
        let ours_ran = spoken(env!("CARGO_BIN_EXE_ironstone"), ours.path(), &args, input);
        sides.compare(&format!("query {flags}: {input:?}"), &ours_ran, &theirs_ran);
        // What was written is there.
        let scan = ["--db=db", "scan", "--hex"];
        let written = [&ours, &theirs].map(|dir| run("ldb", dir.path(), &scan).stdout);
        assert_eq!(written[0], written[1], "query {flags}: {input:?}");
    }
    sides.done("dialogues");
}

#[test]
fn values_with_times_are_read_and_written() {
    if !ldb::has_tools() {
        return;
    }
    for program in ["ldb", env!("CARGO_BIN_EXE_ironstone")] {
        let root = tempfile::tempdir().unwrap();
        // ldb ends with 1 where it finds a family in a database that it opens with --ttl.
        run(
            program,
            root.path(),
            &words("--db=db put a 1 --ttl --create_if_missing"),
        );
        run(
            program,
            root.path(),
            &words("--db=db batchput b 2 c 3 cc 44 d 4 --ttl"),
        );
        let database = root.path().join("db");
        let mut sides = Sides::new(&database);
        for line in TTL_LINES {
            let args = [&["--db=db"], &*words(line)].concat();
            let [ours, theirs] = [(); 2].map(|()| ldb::copy(&database));
            let theirs = spoken("ldb", theirs.path(), &args, "");
            let ours = spoken(env!("CARGO_BIN_EXE_ironstone"), ours.path(), &args, "");
            sides.compare(line, &ours, &theirs);
        }
        for (input, flag) in [("get a\nput x 5\nget x\n", "--ttl"), ("get a\n", "--ttl")] {
            let args = ["--db=db", "query", flag];
            let copy = ldb::copy(&database);
            let theirs = spoken("ldb", copy.path(), &args, input);
            let ours = spoken(env!("CARGO_BIN_EXE_ironstone"), copy.path(), &args, input);
            sides.compare(&format!("query {flag}: {input:?}"), &ours, &theirs);
        }
        sides.done("times");
    }
}

/// Everything that Debian's `db_bench` writes into an OPTIONS file may be asked for by name.
#[test]
fn the_options_of_db_bench_are_no_obstacle() {
    if !ldb::has_tools() {
        return;
    }
    let root = of_bench();
    for line in [
        "--db=db scan --max_keys=3 --hex --try_load_options",
        "--db=db put a b --try_load_options",
        "--db=db get a --try_load_options",
    ] {
        let ran = ironstone(root.path(), &words(line));
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
    }
}

/// A secondary instance reads while another process writes, and does not change the database.
#[test]
fn a_secondary_instance_changes_nothing() {
    let root = by_hand(env!("CARGO_BIN_EXE_ironstone"));
    let state = || {
        let mut all: Vec<_> = fs::read_dir(root.path().join("db"))
            .unwrap()
            .map(|e| e.unwrap())
            .map(|e| (e.file_name(), fs::read(e.path()).unwrap_or_default()))
            .collect();
        all.sort();
        all
    };
    let before = state();
    let ran = ironstone(
        root.path(),
        &words("--db=db scan --secondary_path=second --no_value"),
    );
    assert_eq!(ran.visible(), (0, "a\nb2\nc\ne\nf\ng\n"), "{}", ran.stderr);
    assert!(root.path().join("second/LOG").exists());
    assert_eq!(state(), before);
}
