//! The dumps against RocksDB's: `dump_wal`, `manifest_dump`, `sst_dump`; and `verify`.

use std::fs;
use std::path::Path;

use crate::ldb::{self, Ran, ironstone, run};

/// Databases of RocksDB 7.8.3, the release of the tools.
fn databases() -> Vec<std::path::PathBuf> {
    let of_release = |p: &std::path::PathBuf| {
        let name = p.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("r78_")
    };
    let all = ldb::corpus().unwrap_or_default();
    all.into_iter().filter(of_release).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn logs_look_as_in_ldb() {
    if !ldb::has_tools() {
        return;
    }
    let mut compared = 0;
    for database in databases() {
        let name = name(&database);
        // ldb gives up at an entity; here it is shown.
        if name.contains("wide_columns") {
            continue;
        }
        let dir = database.join("db");
        for log in ldb::files(&dir, ".log") {
            let file = format!("--walfile={log}");
            for flags in [&[][..], &["--header"], &["--print_value", "--header"]] {
                let args = [&["dump_wal", &file], flags].concat();
                let theirs = run("ldb", &dir, &args);
                let ours = ironstone(&dir, &args);
                let what = format!("{name}/{log} {flags:?}: {}", ours.stderr);
                ldb::assert_same((0, &ours.stdout), (0, &theirs.stdout), &what);
                // ldb exits with 0 whatever it met.
                let damaged = theirs.stderr.contains("Corruption");
                assert_eq!(
                    ours.code,
                    i32::from(damaged),
                    "{name}/{log}: {}",
                    ours.stderr
                );
                compared += 1;
            }
        }
    }
    eprintln!("{compared} dumps compared");
}

#[test]
fn manifests_look_as_in_ldb() {
    if !ldb::has_tools() {
        return;
    }
    for database in databases() {
        let name = name(&database);
        let root = ldb::copy(&database.join("db"));
        for flags in [&[][..], &["--hex"], &["--verbose", "--hex"], &["--verbose"]] {
            // Without --hex, keys in edits that are not UTF-8 are shown replaced.
            if name.contains("odd_keys") && flags == ["--verbose"] {
                continue;
            }
            let args = [&["manifest_dump", "--db=db"], flags].concat();
            let theirs = run("ldb", root.path(), &args);
            let ours = ironstone(root.path(), &args);
            let what = format!("{name} {flags:?}: {}", ours.stderr);
            ldb::assert_same(ours.visible(), theirs.visible(), &what);
        }
    }
}

/// The part of `sst_dump`'s output that describes the table.
fn of_table(theirs: &Ran) -> String {
    let ours = |line: &&str| !line.starts_with("options.env is ");
    theirs.stdout.split_inclusive('\n').filter(ours).collect()
}

#[test]
fn tables_look_as_in_sst_dump() {
    if !ldb::has_tools() {
        return;
    }
    for database in databases() {
        let name = name(&database);
        let dir = database.join("db");
        for table in ldb::files(&dir, ".sst").iter().take(3) {
            let file = format!("--file={table}");
            for flags in [
                &[][..],
                &["--command=check"],
                &["--command=scan"],
                &["--command=scan", "--output_hex", "--show_properties"],
                &["--command=scan", "--read_num=2"],
                &["--command=scan", "--from=key00000100", "--to=key00000200"],
                &[
                    "--command=scan",
                    "--from=0x6b",
                    "--to=0x6c",
                    "--input_key_hex",
                ],
                &["--command=verify", "--show_properties"],
            ] {
                // sst_dump compares with --to bytewise, whatever the table's order.
                if name.contains("cf_many") && flags.iter().any(|f| f.starts_with("--to=")) {
                    continue;
                }
                let theirs = run("sst_dump", &dir, &[&[file.as_str()], flags].concat());
                let args = [&["dump-sst", table.as_str()], flags].concat();
                let ours = ironstone(&dir, &args);
                let expected = (theirs.code, of_table(&theirs));
                let what = format!("{name}/{table} {flags:?}: {}", ours.stderr);
                ldb::assert_same((ours.code, &ours.stdout), (expected.0, &expected.1), &what);
            }
        }
    }
}

#[test]
fn raw_shows_every_entry_once() {
    for database in databases() {
        let dir = database.join("db");
        for table in ldb::files(&dir, ".sst").iter().take(2) {
            let scan = ironstone(&dir, &["dump-sst", table, "--command=scan", "--output_hex"]);
            let raw = ironstone(&dir, &["dump-sst", table, "--command=raw"]);
            assert_eq!((scan.code, raw.code), (0, 0), "{table}: {}", raw.stderr);
            let entries = |text: &str, p: &str| text.lines().filter(|l| l.starts_with(p)).count();
            assert_eq!(
                entries(&scan.stdout, "'"),
                entries(&raw.stdout, "  HEX    '"),
                "{table}"
            );
            assert!(raw.stdout.contains("Footer Details:"));
        }
    }
}

#[test]
fn verify_finds_nothing_wrong_in_sound_databases() {
    for database in ldb::corpus().unwrap_or_default() {
        let name = name(&database);
        let ran = ironstone(&database, &["--db=db", "verify"]);
        let unreadable = ran.stdout.contains("a blob file without") || name.contains("udt");
        // A log whose middle a crash left as zeros lost records.
        let damaged = name.contains("torn_zero");
        if !unreadable && !damaged {
            assert!(
                ran.code == 0 && ran.stdout.ends_with("OK\n"),
                "{name}: {ran:?}"
            );
        } else {
            assert!(ran.stdout.ends_with("problems\n"), "{name}: {ran:?}");
        }
    }
}

/// A database with a table and a log, made by the command itself.
fn small() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    for args in [
        &["--db=db", "put", "k1", "v1", "--create_if_missing"][..],
        &["--db=db", "compact"],
        &["--db=db", "put", "k2", "v2"],
    ] {
        let ran = ironstone(dir, args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
    }
    root
}

#[test]
fn verify_names_file_and_offset_of_damage() {
    let sound = small();
    let db = sound.path().join("db");
    let ran = ironstone(sound.path(), &["--db=db", "verify"]);
    assert!(ran.code == 0 && ran.stdout.ends_with("OK\n"), "{ran:?}");
    let mut hit = 0;
    for suffix in [".sst", ".log"] {
        for file in ldb::files(&db, suffix) {
            if fs::metadata(db.join(&file)).unwrap().len() < 20 {
                continue;
            }
            let root = ldb::copy(&db);
            let path = root.path().join("db").join(&file);
            let mut bytes = fs::read(&path).unwrap();
            bytes[9] ^= 0x10;
            fs::write(&path, bytes).unwrap();
            let ran = ironstone(root.path(), &["--db=db", "verify"]);
            assert_eq!(ran.code, 1, "{file}: {ran:?}");
            let line = ran.stdout.lines().find(|l| l.contains(&file));
            let line = line.unwrap_or_else(|| panic!("{file}: {ran:?}"));
            assert!(line.contains("at offset 0"), "{line}");
            hit += 1;
        }
    }
    assert!(hit >= 2, "one table and one log at least");
    for file in ldb::files(&db, ".sst") {
        let root = ldb::copy(&db);
        fs::remove_file(root.path().join("db").join(&file)).unwrap();
        let ran = ironstone(root.path(), &["--db=db", "verify"]);
        assert!(ran.code == 1 && ran.stdout.contains(&file), "{ran:?}");
    }
}

/// Regression test: damage that prevents an open was reported twice, by the open and by the check of
/// the damaged file. The same happened to a damaged block of a table whose file has a checksum in the
/// MANIFEST. "2 problems" made users search for the second one.
#[test]
fn verify_tells_of_a_problem_once() {
    let sound = small();
    let db = sound.path().join("db");
    let mut seen = Vec::new();
    let mut once = |what: &str, file: &str, harm: &dyn Fn(&std::path::Path)| {
        let root = ldb::copy(&db);
        harm(&root.path().join("db").join(file));
        let ran = ironstone(root.path(), &["--db=db", "verify"]);
        let told = ran.stdout.lines().filter(|l| l.starts_with("problem: "));
        seen.push(format!("{what} of {file}: {}", told.clone().count()));
        assert!(told.count() == 1, "{what} of {file}: {}", ran.stdout);
        assert!(ran.stdout.ends_with("\n1 problems\n"), "{}", ran.stdout);
    };
    for suffix in [".sst", ".log", "MANIFEST-", "CURRENT"] {
        let files = fs::read_dir(&db).unwrap();
        let names = files.map(|f| f.unwrap().file_name().into_string().unwrap());
        let is = |n: &String| n.ends_with(suffix) || n.starts_with(suffix);
        for file in names.filter(is) {
            let bytes = fs::read(db.join(&file)).unwrap();
            if bytes.len() < 20 && suffix != "CURRENT" {
                continue;
            }
            once("a flipped bit", &file, &|path| {
                let mut bytes = bytes.clone();
                bytes[9] ^= 0x10;
                fs::write(path, bytes).unwrap();
            });
            if suffix == ".log" {
                continue; // an old log that nothing needs may be missing
            }
            once("the absence", &file, &|path| fs::remove_file(path).unwrap());
            // The last record of a MANIFEST is the mark of a clean close: without it, it is a crash's.
            let cut = if suffix == "MANIFEST-" { 40 } else { 7 };
            once("the end", &file, &|path| {
                fs::write(path, &bytes[..bytes.len() - cut]).unwrap();
            });
        }
    }
    assert!(seen.len() > 6, "{seen:?}");
}

#[test]
fn verify_finds_every_damaged_block() {
    let Some(corpus) = ldb::corpus() else {
        return;
    };
    let levels = corpus.iter().find(|p| name(p) == "r78_default_opts_b");
    let root = ldb::copy(&levels.unwrap().join("db"));
    let db = root.path().join("db");
    let mut damaged = Vec::new();
    for table in ldb::files(&db, ".sst") {
        let raw = ironstone(&db, &["dump-sst", &table, "--command=raw"]).stdout;
        let mut bytes = fs::read(db.join(&table)).unwrap();
        for line in raw.lines().filter(|l| l.starts_with("  block # ")) {
            let offset = line.split("offset: ").nth(1).unwrap();
            let offset = offset.split(' ').next().unwrap();
            bytes[offset.parse::<usize>().unwrap() + 3] ^= 4;
            damaged.push(format!("{table}: at offset {offset}: "));
        }
        fs::write(db.join(&table), bytes).unwrap();
    }
    assert!(damaged.len() > 3);
    let ran = ironstone(root.path(), &["--db=db", "verify"]);
    assert_eq!(ran.code, 1);
    for place in &damaged {
        assert!(ran.stdout.contains(place), "{place} {}", ran.stdout);
    }
    let total = format!("{} problems\n", damaged.len());
    assert!(ran.stdout.ends_with(&total), "{}", ran.stdout);
}

#[test]
fn verify_reads_checksums_of_whole_files() {
    let named = |p: &std::path::PathBuf| name(p).contains("file_checksum");
    for database in ldb::corpus().unwrap_or_default().into_iter().filter(named) {
        let name = name(&database);
        for suffix in [".blob", ".sst"] {
            let root = ldb::copy(&database.join("db"));
            let ran = ironstone(root.path(), &["--db=db", "verify"]);
            assert_eq!(ran.code, 0, "{name}: {ran:?}");
            let db = root.path().join("db");
            let file = ldb::files(&db, suffix).pop().unwrap();
            let mut bytes = fs::read(db.join(&file)).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(db.join(&file), bytes).unwrap();
            let ran = ironstone(root.path(), &["--db=db", "verify"]);
            assert_eq!(ran.code, 1, "{name}: {ran:?}");
            assert!(ran.stdout.contains(&file), "{name}: {ran:?}");
            assert!(ran.stdout.ends_with("\n1 problems\n"), "{name}: {ran:?}");
        }
    }
}

#[test]
fn the_physical_view_says_how_a_log_ends() {
    let root = small();
    let db = root.path().join("db");
    let log = ldb::files(&db, ".log").pop().unwrap();
    let path = db.join(&log);
    let sound = fs::read(&path).unwrap();
    let view = || ironstone(&db, &["dump-wal", "--physical", &log]).stdout;
    let text = view();
    assert!(text.contains("full") && text.contains("crc ok"), "{text}");
    let batch = ironstone(&db, &["dump-wal", &log]);
    assert!(batch.stdout.contains("PUT(0) : 0x6B32"), "{}", batch.stdout);
    let end = batch.stdout.lines().count();
    assert!(end >= 1);

    fs::write(&path, [sound.as_slice(), &[0; 100]].concat()).unwrap();
    assert!(view().contains("zero tail: 100 bytes"), "{}", view());
    fs::write(&path, &sound[..sound.len() - 1]).unwrap();
    assert!(view().contains("torn: "), "{}", view());
    let ran = ironstone(&db, &["dump-wal", &log]);
    assert_eq!(ran.code, 0, "a torn tail is no damage: {}", ran.stderr);
    assert!(ran.stderr.starts_with("note: "), "{}", ran.stderr);
}

/// The logs of a database are in the directory of its OPTIONS file, or of `--wal_dir`.
#[test]
fn logs_in_a_directory_of_their_own_are_found() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, logs) = (temp.path().join("db"), temp.path().join("logs"));
    fs::create_dir(&dir).unwrap();
    let flag = format!("--wal_dir={}", logs.display());
    let db = format!("--db={}", dir.display());
    let ironstone = |args: &[&str]| ironstone(&dir, &[&[&*db], args].concat());
    let put = ironstone(&["put", "k", "v", "--create_if_missing", &flag]);
    assert_eq!(put.code, 0, "{}", put.stderr);
    assert_eq!(ldb::files(&dir, ".log").len(), 0);
    for flags in [&[][..], &[&*flag], &["--try_load_options=false", &*flag]] {
        let got = ironstone(&[&["get", "k"], flags].concat());
        assert_eq!(got.stdout, "v\n", "{flags:?}: {}", got.stderr);
        let dumped = ironstone(&[&["dump-wal"], flags].concat());
        assert!(dumped.stdout.contains("PUT(0) : 0x6B"), "{}", dumped.stdout);
        let verified = ironstone(&[&["verify"], flags].concat());
        assert_eq!(verified.code, 0, "{}", verified.stdout);
        assert!(verified.stdout.contains("logs: 1,"), "{}", verified.stdout);
    }
    // Without either, the data in the log is not silently missing.
    let got = ironstone(&["get", "k", "--try_load_options=false"]);
    assert_eq!(got.code, 1);
    assert!(got.stderr.contains("wal_dir"), "{}", got.stderr);
}
